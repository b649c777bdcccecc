"""How far the clients of a round drift apart, layer by layer, from the updates the server receives."""

import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jax import tree

from holdfast.core.memory import recall
from holdfast.core.rule import parts_of
from holdfast.errors import HoldfastError, explain_arguments, whole_number
from holdfast.evaluate.protocol import EvaluationView
from holdfast.models.model import Model
from holdfast.rules.drift_diversity import Drift, DriftDiversity
from holdfast.trees import Tree, describe_shapes, layers, signature

NAME = "drift_diversity"


class Diversity(NamedTuple):
    """Drift diversity of the whole model and of each layer; NaN where nothing moved."""

    total: float
    layers: dict[str, float]


@explain_arguments
def drift_diversity(updates: Sequence[Tree]) -> Diversity:
    r"""Drift diversity of some clients' updates $m_i$: of the whole model, and of every layer.

    $$ \xi = \frac{\sum_i \|m_i\|^2}{\|\sum_i m_i\|^2} $$

    N clients that move alike have 1/N, clients whose updates are orthogonal 1, and clients that pull
    against each other more than 1, without a bound. It is NaN where no update moves.

    Args:
        updates: one tree per client, such as the model it trained minus the one it began with.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> one = {"hidden": {"kernel": np.array([1.0, 0.0])}, "classifier": {"kernel": np.array([1.0])}}
        >>> two = {"hidden": {"kernel": np.array([1.0, 0.0])}, "classifier": {"kernel": np.array([-3.0])}}
        >>> found = hf.diagnose.drift_diversity([one, two])
        >>> round(found.total, 3), found.layers
        (1.5, {'classifier': 2.5, 'hidden': 0.5})

    Reference: Li et al., "On the effectiveness of partial variance reduction in federated learning with
    heterogeneous data", CVPR 2023, definition 1.
    """
    several = list(updates) if isinstance(updates, list | tuple) else []
    if not several:
        raise HoldfastError(
            "drift_diversity: updates is no list of trees; give one update for each client, such as "
            "[new_0 - old, new_1 - old].",
            about=("updates",),
        )
    for update in several[1:]:
        if signature(update) != signature(several[0]):
            raise HoldfastError(
                f"drift_diversity: an update has {describe_shapes(update)}, and the first "
                f"{describe_shapes(several[0])}; give updates of one model.",
                about=("updates",),
            )
    each = [[np.asarray(leaf, np.float64) for leaf in tree.leaves(u)] for u in several]
    leaves = list(zip(*each, strict=True))
    squares = np.array([sum(np.vdot(m, m) for m in leaf) for leaf in leaves])
    sums = [np.sum(leaf, axis=0) for leaf in leaves]
    together = np.array([np.vdot(s, s) for s in sums])
    return of_sums(several[0], squares, together)


def of_sums(like: Tree, squares: np.ndarray, together: np.ndarray) -> Diversity:
    """From the two sums of every leaf of a model."""

    def quotient(numbers: Sequence[int]) -> float:
        above, below = (float(a[list(numbers)].sum()) for a in (squares, together))
        if below > 0:
            return above / below
        return float("inf") if above > 0 else float("nan")

    each = {name: quotient(numbers) for name, numbers in layers(like).items()}
    return Diversity(quotient(range(len(squares))), each)


@dataclasses.dataclass(frozen=True)
class TrackedDrift:
    """Drift diversity of the round's updates."""

    every: int = 1
    keeps_last_models = False

    def check(self, model: Model, params: Tree, clients: int) -> None:
        """Nothing about the model can be wrong."""

    def watches(self, populations: int) -> DriftDiversity:
        """The rule that has the sums of a round at the server."""
        return DriftDiversity(populations > 1)

    def columns(self, measured: list[str]) -> list[str]:
        """What it writes of any model; the layers' have a name after a slash."""
        return [NAME]

    def __call__(self, view: EvaluationView) -> dict[str, float]:
        heard = last_heard(view)
        if heard is None:
            return {}
        found = of_sums(view.state.params, *(np.asarray(a, np.float64) for a in heard[:2]))
        named = {NAME: found.total} | {f"{NAME}/{n}": value for n, value in found.layers.items()}
        return {name: value for name, value in named.items() if not np.isnan(value)}


def last_heard(view: EvaluationView) -> Drift | None:
    """What the server has of the last round's updates; None if there were none."""
    state = view.state
    algorithm = state.algorithm
    # Where nothing travels, nobody watches.
    watched = any(isinstance(part, DriftDiversity) for part in parts_of(algorithm.rule))
    if not watched or not state.ledger.entries or not state.ledger.entries[-1].clients:
        return None
    return recall(algorithm, DriftDiversity, state.server, state.client_states.first, 0).server


@explain_arguments
def drift(every: int = 1) -> TrackedDrift:
    r"""Into the history: how far clients' updates point apart, of the whole model and layer by layer.

    $$ \xi = \frac{\sum_i \|m_i\|^2}{\|\sum_i m_i\|^2} $$

    - `drift_diversity`, of the whole model;
    - `drift_diversity/<layer>`, of each layer, such as `drift_diversity/classifier`.

    $m_i$ is the update of client $i$ as the server receives it, after the wire and before the server's
    step; for FedAvg without compression it is the model the client trained minus the one it was sent.
    Sums are over the clients that were accepted in the round, and each counts 1 whatever the weighting.
    If all N of them move alike it is 1/N, if their updates are orthogonal 1, and more if they
    pull against each other: then averaging undoes most of what clients did. FedPVR finds the largest
    values in the last layers and corrects those alone.

    A layer has the parameters whose names differ in the last part only. What did not move is left out, as
    is a method in which nothing travels. No byte more is sent and no example looked at: the server adds
    up one number per leaf and client. Pass it to `simulate(evaluate=...)`, or write
    `[[evaluate.also]]` with `name = "drift"` into an experiment file.

    Args:
        every: rounds between measurements.

    Example:
        >>> import holdfast as hf
        >>> clients = hf.data.partition.dirichlet(hf.data.digits().train, clients=5, concentration=0.1)
        >>> run = hf.simulate(
        ...     hf.algorithms.fedavg(),
        ...     hf.models.mlp([32], classes=10),
        ...     clients,
        ...     hf.Local(learning_rate=0.1, epochs=1, batch_size=20),
        ...     rounds=3,
        ...     evaluate=hf.diagnose.drift(),
        ... )
        >>> hidden, last = (run.history[f"drift_diversity/{n}"] for n in ("hidden_0", "classifier"))
        >>> bool((last > hidden).all())
        True

    Reference: Li et al., "On the effectiveness of partial variance reduction in federated learning with
    heterogeneous data", CVPR 2023, definition 1.
    """
    return TrackedDrift(whole_number("drift", "every", every))
