"""What models predict of held-out rows: every client's own by the model it would use, or by the server's."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jax import tree

from holdfast.data.clients import Clients
from holdfast.evaluate.evaluators import Personal
from holdfast.evaluate.predictions import labels_of, predictions_of
from holdfast.evaluate.protocol import EvaluationView
from holdfast.trees import Tree


class PredictedRows(NamedTuple):
    """What one model predicts of some rows, and what was to be predicted."""

    client: int
    predicted: np.ndarray
    labels: np.ndarray


def rows_of(view: EvaluationView, params: Tree, examples: Any, client: int) -> PredictedRows:
    """All rows of a data set."""
    labels = labels_of(examples)
    assert labels is not None
    return PredictedRows(client, predictions_of(view.model, params, examples), labels)


def rows_of_clients(
    view: EvaluationView, examples: Any, server: bool = False
) -> Iterator[PredictedRows]:
    """Every client's rows by the model it would use, or by the server's; of one data set, all."""
    if not isinstance(examples, Clients):
        yield rows_of(view, view.state.params, examples, 0)
        return
    personal = Personal(examples)
    ids = [int(i) for i in np.flatnonzero(examples.sizes)]
    shared: list[int] = []
    known: dict[int, PredictedRows] = {}
    # One client's model at a time: all of them may be more than memory holds.
    for i in ids:
        params = view.state.params if server else personal.model_of(view, i)
        if params is view.state.params and examples.populations is None:
            shared.append(i)
        else:
            known[i] = rows_of(view, params, examples[i], i)
    if shared:
        # Clients may share rows, and those of one model are looked at together.
        rows = np.unique(np.concatenate([examples.rows(i) for i in shared]))
        some = tree.map(lambda a: np.asarray(a)[rows], examples.examples)
        whole = rows_of(view, view.state.params, some, 0)
        for i in shared:
            at = np.searchsorted(rows, examples.rows(i))
            known[i] = PredictedRows(i, whole.predicted[at], whole.labels[at])
    yield from (known[i] for i in ids)
