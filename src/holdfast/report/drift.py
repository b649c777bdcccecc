"""How clients' models drift apart, layer by layer: lines over rounds, and how alike every two of them are."""

import re
from typing import Any, NamedTuple

import numpy as np

from holdfast.metrics.figures import number
from holdfast.report import curves
from holdfast.runs.results import MethodResult, Results
from holdfast.runs.sites import names_of_clients

# Matrices of a method at most: the first, the last and some between.
_MOST_ROUNDS = 6
_MATRIX = "cka_matrix/"


class Family(NamedTuple):
    """Columns of one kind, a layer's name after a slash; and what their values mean."""

    column: str
    name: str
    words: str


FAMILIES = (
    Family(
        "drift_diversity",
        "drift diversity",
        "How far the clients of a round pull apart: 1/N if N clients move alike, 1 if their updates are "
        "orthogonal, more if they undo each other. A layer that is far above the others loses most of what "
        "clients learn there when updates are averaged: correct that layer (FedPVR, or SCAFFOLD for all of "
        "them), or take fewer local steps.",
    ),
    Family(
        "cka",
        "likeness of clients' features (CKA)",
        "How alike clients' models see the same examples, after their local steps and before they are "
        "averaged; mean over pairs of clients. At 1 they have learnt the same features. A layer far below 1 "
        "has gone each client's own way: correct it, or leave it to the clients as a personal layer.",
    ),
    Family(
        "cka_server",
        "likeness to the server's model (CKA)",
        "How alike a client's model and the server's after the round see the same examples; mean over "
        "clients. Near 1 the average keeps what clients have learnt; far below 1 it is another model than "
        "any client's: take fewer local steps, or correct the layer.",
    ),
    Family(
        "update_cosine",
        "cosine of updates with their mean",
        "Whether clients move in the same direction: 1 if all do, about 1/√N if the updates of N clients "
        "have nothing to do with each other, near 0 or below where they are opposed and their average stands "
        "still: then correct the layer, or take fewer local steps.",
    ),
    Family(
        "update_norm",
        "length of updates",
        "How far a client's local steps take the model, mean over clients. It shrinks as training settles; "
        "where it stays large while the model no longer improves, clients undo each other: take a smaller "
        "step size or fewer steps.",
    ),
    Family(
        "update_share",
        "share of updates",
        "Which layers clients change: the layer's part of the squared length of all updates, which add up to "
        "1. A layer with a small share matters little for drift, however diverse it is.",
    ),
    Family(
        "weight_norm",
        "length of the server's parameters",
        "How large the server's parameters are; compare the length of updates with it.",
    ),
    Family(
        "G2_clients",
        "gradient dissimilarity",
        "How far clients' gradients at the server's model are from that of the objective, squared and "
        "averaged. It is 0 where all clients have like data, and large where a method that corrects local "
        "steps pays; the layers' add up to the whole.",
    ),
)


def is_of_a_layer(column: str) -> bool:
    """Whether a column is drawn here, and not among what is measured of a whole model."""
    family, _, layer = column.partition("/")
    return bool(layer) and any(family == known.column for known in FAMILIES)


def drift(results: Results, tables: list[curves.Measured]) -> dict[str, Any] | None:
    """By method, lines of each kind and matrices over pairs; None where nothing of it was measured."""
    names = names_of_clients(results)
    found = [
        _method(method, table, names) for method, table in zip(results.methods, tables, strict=True)
    ]
    if not any(found):
        return None
    shown = [f for f in FAMILIES if any(m and f.column in m["lines"] for m in found)]
    return {"families": [f._asdict() for f in shown], "methods": found}


def _method(
    method: MethodResult, table: curves.Measured, names: dict[int, str]
) -> dict[str, Any] | None:
    # Matrices are of one run: of another seed or split clients are others.
    details = [d for d in method.files[0].details() if "cka_clients" in d] if method.files else []
    order = [n.removeprefix(_MATRIX) for d in details[:1] for n in d if n.startswith(_MATRIX)]
    lines = {
        f.column: made for f in FAMILIES if (made := _lines(table, f.column, order)) is not None
    }
    if not lines:
        return None
    matrices = [_matrices(d, order, names) for d in _some(details)]
    return {"lines": lines, "layers": order, "matrices": matrices}


def _lines(table: curves.Measured, family: str, order: list[str]) -> list[dict[str, Any]] | None:
    layers = [n.partition("/")[2] for n in table.columns if n.startswith(f"{family}/")]
    if not layers:
        return None
    made = []
    for layer in ["", *sorted(layers, key=lambda n: _depth(n, order))]:
        curve = curves.curve(table, f"{family}/{layer}" if layer else family)
        if curve is None:
            continue
        curve = curve.thinned()
        values = [number(float(f"{v:.5g}")) for v in curve.mean]
        made.append({"layer": layer, "rounds": [int(t) for t in curve.rounds], "values": values})
    return made


def _depth(layer: str, order: list[str]) -> tuple[bool, int, bool, str]:
    """From the input to the output: as layers are called, where that was seen; else a classifier is last."""
    known = layer in order
    numbered = re.sub(r"\d+", lambda digits: digits[0].zfill(6), layer)
    last = layer.split("/")[0] in ("classifier", "output")
    return not known, order.index(layer) if known else 0, last, numbered


def _some(details: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if len(details) <= _MOST_ROUNDS:
        return details
    chosen = np.unique(np.linspace(0, len(details) - 1, _MOST_ROUNDS).astype(int))
    return [details[k] for k in chosen]


def _matrices(details: dict[str, Any], order: list[str], names: dict[int, str]) -> dict[str, Any]:
    return {
        "round": details["round"],
        "clients": [names.get(i, str(i)) for i in details["cka_clients"]],
        "layers": [
            [[number(float(f"{v:.3g}")) for v in row] for row in details[f"{_MATRIX}{layer}"]]
            for layer in order
        ],
    }
