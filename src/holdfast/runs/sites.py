"""Clients one by one: what they sent and received, and what each method comes to at each of them."""

import dataclasses

import numpy as np

from holdfast.metrics.intervals import Interval
from holdfast.runs.differences import Judged, score
from holdfast.runs.results import MethodResult, Results


@dataclasses.dataclass(frozen=True)
class Traffic:
    """One client's traffic in a method, a mean over its runs.

    Args:
        client: its number.
        name: what the data calls it; its number where it has no name.
        rounds: in how many rounds it took part.
        left_out: in how many of these its reply was not finite and did not count.
        bytes_down: bytes it received.
        bytes_up: bytes it returned.
    """

    client: int
    name: str
    rounds: float
    left_out: float
    bytes_down: float
    bytes_up: float


def names_of_clients(results: Results) -> dict[int, str]:
    """What the data calls clients, by their numbers; empty where it has no names."""
    names = results.folders[0].split().get("names") if results.folders else None
    found = {i: str(name) for i, name in enumerate(names or ())}
    for method in results.methods:
        for about in method.clients:
            pairs = zip(about.get("client", []), about.get("name") or [], strict=False)
            found |= {int(i): str(name) for i, name in pairs}
    return found


def names_of_labels(results: Results) -> tuple[str, ...] | None:
    """What the data calls the labels 0, 1, ...; None where it has no names."""
    names = results.folders[0].split().get("labels") if results.folders else None
    return None if names is None else tuple(map(str, names))


def traffic(method: MethodResult, names: dict[int, str] | None = None) -> list[Traffic]:
    """Every client's own traffic, from the ledger; of clients that never took part there is none.

    Args:
        method: a method of a run folder.
        names: what clients are called (`names_of_clients`).
    """
    sums: dict[int, np.ndarray] = {}
    for files in method.files:
        for entry in files.ledger():
            cohort, left_out = set(entry.clients), set(entry.left_out)
            for client, (received, returned) in entry.of_client().items():
                there, out = client in cohort, client in left_out
                total = sums.setdefault(client, np.zeros(4))
                total += np.array([there, out, received, returned])
    runs = max(len(method.files), 1)
    return [
        Traffic(client, (names or {}).get(client, str(client)), *map(float, sums[client] / runs))
        for client in sorted(sums)
    ]


@dataclasses.dataclass(frozen=True)
class SiteRow:
    """One client: its sizes, and each method's figure on its own test rows, by the method's label."""

    client: int
    name: str
    trained_on: int
    tested_on: int
    figures: dict[str, Interval]


def sites(results: Results, by: Judged) -> list[SiteRow]:
    """A row for every client that has test rows; of several splits, of those that have names.

    Args:
        results: the methods.
        by: the metric (`holdfast.runs.differences.judged_by`).
    """
    names = names_of_clients(results)
    known = {m.label: score(m, by) for m in results.methods}
    figures = {label: found.by_client for label, found in known.items() if found is not None}
    if not figures or (not names and any(len(set(m.splits)) > 1 for m in results.methods)):
        return []
    sizes = results.folders[0].split().get("sizes", []) if results.folders else []
    some = next(iter(next(m for m in results.methods if m.predictions).predictions.values()))
    return [
        SiteRow(
            client,
            names.get(client, str(client)),
            int(sizes[client]) if client < len(sizes) else 0,
            int((some.client == client).sum()),
            {label: found[client] for label, found in figures.items() if client in found},
        )
        for client in some.clients
    ]
