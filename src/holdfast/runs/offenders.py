"""Clients of whose replies the server made less, or none, round after round."""

from collections import Counter
from collections.abc import Iterator

from holdfast.runs.flags import Flag
from holdfast.runs.results import MethodResult, Results
from holdfast.runs.sites import names_of_clients

_WORDS = {
    "bounded_clients": "bounded",
    "unselected_clients": "not selected",
    "outlying_clients": "outlying",
}
_AT_LEAST = 3  # rounds
_NAMED = 5


def offenders(results: Results) -> Iterator[Flag]:
    """Who was bounded, or not selected, in most rounds it took part in and twice as often as clients are
    on average. Rounds in which that befell everybody (the first, which measures) are not counted."""
    names = names_of_clients(results)
    for method in results.methods:
        for kind, words in _WORDS.items():
            found = _of_method(method, kind)
            if not found:
                continue
            told = [
                f"{names.get(client, str(client))} ({times} of {of} rounds)"
                for client, times, of in found[:_NAMED]
            ]
            more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
            text = (
                f"{method.label}: replies of {'client' if len(found) == 1 else 'clients'} "
                f"{', '.join(told)}{more} were {words} far more often than others'; look at what they send."
            )
            yield Flag("offenders", method.label, words, None, text)


def _of_method(method: MethodResult, kind: str) -> list[tuple[int, int, int]]:
    """Clients with how often, of how many rounds of all runs; the most frequent first."""
    times: Counter[int] = Counter()
    there: Counter[int] = Counter()
    for files in method.files:
        whose = {d["round"]: d[kind] for d in files.details() if kind in d}
        for entry in files.ledger():
            some = set(whose.get(entry.round, ()))
            if entry.round in whose and some != set(entry.clients):
                there.update(entry.clients)
                times.update(some)
    usual = sum(times.values()) / max(1, sum(there.values()))
    found = [
        (client, n, there[client])
        for client, n in times.items()
        if n >= _AT_LEAST and n > there[client] / 2 and n > 2 * usual * there[client]
    ]
    return sorted(found, key=lambda one: (-one[1] / one[2], one[0]))
