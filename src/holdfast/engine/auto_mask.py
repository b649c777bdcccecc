"""Where variance reduction begins: chosen by the drift diversity of a first round without it."""

import dataclasses
import math
from collections.abc import Sequence

import jax
from jax import tree

from holdfast.core import auto_mask
from holdfast.core.algorithm import Algorithm
from holdfast.core.memory import recall
from holdfast.core.watched import Watched
from holdfast.core.wire import Wire
from holdfast.engine.experiment import Experiment
from holdfast.errors import HoldfastError
from holdfast.models.layers import Layer, layers
from holdfast.record.chosen_mask import ChosenMask
from holdfast.record.state import RunState
from holdfast.rules.drift_diversity import Drift, DriftDiversity
from holdfast.trees import Tree


def opened(experiment: Experiment) -> Experiment:
    """With a first round in which the masked rule is silent; refused if it has another."""
    if experiment.first_round is not None:
        raise HoldfastError(
            f'{experiment.algorithm.name}: mask="auto" has a first round of its own to choose by, and '
            f"first_round is {experiment.first_round.name}; give a mask, or no first_round.",
            about=("algorithm", "mask"),
        )
    return dataclasses.replace(experiment, first_round=auto_mask.without(experiment.algorithm))


def watching(experiment: Experiment) -> Experiment:
    """The first round again with somebody who measures, and nothing that a mask does not depend on.

    Apart from the run, so that its first round is the same program as anybody's who gives the mask. The
    updates are as local steps make them: whatever the wire, it delivers them unchanged here.
    """
    alone = auto_mask.without(experiment.algorithm)
    populations = experiment.clients.populations
    several = populations is not None and len(populations) > 1
    watched = Watched(alone.rule, (DriftDiversity(several),))
    algorithm = dataclasses.replace(alone, rule=watched, wire=Wire(), adapt=False)
    return dataclasses.replace(
        experiment, algorithm=algorithm, evaluate=None, select=False, stop=None
    )


def settled(experiment: Experiment, chosen: ChosenMask) -> Experiment:
    """The experiment with this mask: what somebody would write who knows it."""
    algorithm = auto_mask.with_mask(experiment.algorithm, chosen.parameters)
    return dataclasses.replace(opened(experiment), algorithm=algorithm)


def pretended(algorithm: Algorithm, params: Tree) -> Algorithm:
    """With every parameter masked: whatever is chosen needs no more, so what this can do it can do."""
    return auto_mask.with_mask(algorithm, (True,) * len(tree.leaves(params)))


def chosen(
    experiment: Experiment, after: RunState, order: Sequence[str] | None = None
) -> ChosenMask:
    """The mask, from the state after the first round of `watching`."""
    found = layers_of(experiment, after.params, order)
    known = recall(after.algorithm, DriftDiversity, after.server, after.client_states.first, 0)
    drift: Drift = jax.device_get(known.server)
    if not drift.clients:
        raise HoldfastError(
            f'{experiment.algorithm.name}: mask="auto", and nobody took part in the first round, so that '
            f"there is no drift to choose by; give a mask, or a cohort that draws somebody.",
            about=("algorithm", "mask"),
        )
    diversity = per_layer(found, drift)
    first = suggested(diversity, round(float(drift.clients)))
    return mask_from(found, first, diversity)


def layers_of(
    experiment: Experiment, params: Tree, order: Sequence[str] | None = None
) -> tuple[Layer, ...]:
    """The model's layers in their order, or in this one; refused where there is none."""
    try:
        return layers(experiment.model, params, experiment.clients.examples, order)
    except HoldfastError as error:
        raise HoldfastError(
            f"{experiment.algorithm.name}: {error}", about=("algorithm", "mask")
        ) from None
    # Whatever the model's library raises where a loss cannot be traced.
    except Exception as error:
        raise HoldfastError(
            f'{experiment.algorithm.name}: mask="auto" reads the order of layers from the traced loss, which '
            f"cannot be traced ({(str(error) or type(error).__name__).splitlines()[0]}); give a mask.",
            about=("algorithm", "mask"),
        ) from None


def mask_from(found: Sequence[Layer], first: int, diversity: Sequence[float]) -> ChosenMask:
    """All layers from this one on."""
    leaves = {leaf for layer in found[first:] for leaf in layer.leaves}
    count = sum(len(layer.leaves) for layer in found)
    masked, size = (sum(layer.size for layer in some) for some in (found[first:], found))
    return ChosenMask(
        layers=tuple(layer.name for layer in found),
        diversity=tuple(diversity),
        first=first,
        parameters=tuple(leaf in leaves for leaf in range(count)),
        share=masked / size,
    )


def per_layer(found: Sequence[Layer], drift: Drift) -> list[float]:
    """Drift diversity of every layer."""

    def one(layer: Layer) -> float:
        squares = math.fsum(float(drift.squares[leaf]) for leaf in layer.leaves)
        together = math.fsum(float(drift.together[leaf]) for leaf in layer.leaves)
        if not squares:
            return 1 / float(drift.clients)  # nobody has moved, so nobody disagrees
        return squares / together if together else math.inf

    return [one(layer) for layer in found]


def suggested(diversity: Sequence[float], clients: int) -> int:
    r"""The number of the first layer to mask: that of the longest ending all of whose layers drift.

    Of n clients' updates $m_i$ of a layer, the part of their mean square that their mean keeps is

    $$ \frac{\|\frac1n \sum_i m_i\|^2}{\frac1n \sum_i \|m_i\|^2} = \frac{1}{n\,\xi} $$

    A layer drifts if that is less than half, so that averaging undoes most of what clients did there. If the
    last layer does not, no layer is masked, and the method goes on as FedAvg.

    Args:
        diversity: $\xi$ of every layer, in the order of the model.
        clients: n, those that took part.

    Example:
        >>> suggested([0.3, 0.1, 0.4, 0.9], clients=10), suggested([0.11, 0.12, 0.13], clients=10)
        (2, 3)
    """
    first = len(diversity)
    while first and clients * diversity[first - 1] > 2:
        first -= 1
    return first
