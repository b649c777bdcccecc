"""Clients' updates, layer by layer: how long they are, and whether they point the same way."""

import dataclasses
from typing import Any

import jax
import numpy as np
from jax import tree

from holdfast.core.memory import recall
from holdfast.core.rule import parts_of
from holdfast.errors import explain_arguments, whole_number
from holdfast.evaluate.protocol import EvaluationView
from holdfast.models.model import Model
from holdfast.rules.previous_model import PreviousModel
from holdfast.trees import Tree, layers

CLIENTS = "update_clients"


@dataclasses.dataclass(frozen=True)
class TrackedUpdates:
    """Norms, shares and directions of the round's updates."""

    every: int = 1
    keeps_last_models = True

    def check(self, model: Model, params: Tree, clients: int) -> None:
        """Nothing about the model can be wrong."""

    def watches(self, populations: int) -> PreviousModel:
        """The rule that has the model the round began with."""
        return PreviousModel()

    def columns(self, measured: list[str]) -> list[str]:
        """What it writes of any model; the layers' have a name after a slash."""
        return ["weight_norm", "update_norm", "update_cosine"]

    def __call__(self, view: EvaluationView) -> dict[str, Any]:
        state = view.state
        entry = state.ledger.entries[-1]
        ids = np.setdiff1d(entry.clients, entry.left_out).astype(np.int64)
        # Where nothing travels, nobody watches.
        watched = any(isinstance(part, PreviousModel) for part in parts_of(state.algorithm.rule))
        if not watched or not len(ids):
            return {}
        first = state.client_states.first
        before = _flat(recall(state.algorithm, PreviousModel, state.server, first, 0).server)

        def update(client: int) -> list[np.ndarray]:
            return [y - x for y, x in zip(_flat(view.latest(client)), before, strict=True)]

        mean = [np.zeros_like(x) for x in before]
        for i in ids:
            mean = [s + m / len(ids) for s, m in zip(mean, update(int(i)), strict=True)]
        # Of every client and leaf: |m|^2, and the product with the mean.
        pairs = [[(m @ m, m @ s) for m, s in zip(update(int(i)), mean, strict=True)] for i in ids]
        squares, products = np.moveaxis(np.array(pairs), -1, 0)
        weights = np.array([x @ x for x in _flat(state.params)])
        together = np.array([s @ s for s in mean])
        groups = {"": tuple(range(len(before)))}
        groups |= {f"/{n}": numbers for n, numbers in layers(state.params).items()}
        out: dict[str, Any] = {}
        for name, numbers in groups.items():
            own = list(numbers)
            size, along = squares[:, own].sum(1), products[:, own].sum(1)
            lengths = np.sqrt(size * together[own].sum())
            with np.errstate(invalid="ignore", divide="ignore"):
                cosines = np.where(lengths > 0, along / lengths, np.nan)
            out[f"weight_norm{name}"] = float(np.sqrt(weights[own].sum()))
            out[f"update_norm{name}"] = float(np.sqrt(size).mean())
            if name and squares.sum() > 0:
                out[f"update_share{name}"] = float(size.sum() / squares.sum())
            if not np.isnan(cosines).all():
                out[f"update_cosine{name}"] = float(np.nanmean(cosines))
            out |= {f"update_norms{name}": np.sqrt(size), f"update_cosines{name}": cosines}
        return out | {CLIENTS: ids}


def _flat(u: Tree) -> list[np.ndarray]:
    return [np.asarray(a, np.float64).reshape(-1) for a in jax.device_get(tree.leaves(u))]


@explain_arguments
def updates(every: int = 1) -> TrackedUpdates:
    r"""Into the history: how far clients move, in which layers, and whether in the same direction.

    With $m_i = y_i - x$, the model that client $i$ trained minus the server's that the round began with, and
    $m$ their plain mean over the round's accepted clients, of the whole model and, with the layer's
    name after a slash, of each layer:

    - `weight_norm`, $\|x\|$ after the round;
    - `update_norm`, the mean of $\|m_i\|$;
    - `update_share/<layer>`, the layer's part of $\sum_i \|m_i\|^2$;
    - `update_cosine`, the mean over clients of the cosine between $m_i$ and $m$: 1 if all go the
      same way, $1/\sqrt{N}$ if N updates are orthogonal and equally long.

    The norm and cosine of every client are in `run.history.details`, as `update_norms` and
    `update_cosines`, of the clients `update_clients`. What travels may be another thing than $m_i$, where a
    wire or a rule changes it; `hf.diagnose.drift` measures that. Clients keep the model they trained last and
    the server the one before; nothing more travels. Left out are methods in which nothing travels.

    Args:
        every: rounds between measurements.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # From 0 the first client moves towards 1, the second towards -1 and three times as far.
        >>> data = hf.Examples(np.array([[1.0], [1.0]]), np.array([1.0, -3.0]))
        >>> run = hf.simulate(
        ...     hf.algorithms.fedavg(),
        ...     hf.models.least_squares(intercept=False),
        ...     hf.data.partition.in_order(data, clients=2),
        ...     hf.Local(learning_rate=0.1, steps=1),
        ...     rounds=1,
        ...     evaluate=hf.diagnose.updates(),
        ... )
        >>> print(f"{run.history['update_norm'][0]:.2f}")
        0.20
        >>> run.history.details[0]["update_cosines"]
        [-1.0, 1.0]
    """
    return TrackedUpdates(whole_number("updates", "every", every))
