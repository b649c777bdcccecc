"""Where to begin variance reduction: every layer tried, beside what drift diversity alone suggests."""

import dataclasses
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import Unpack

import jax
import numpy as np
from jax import tree

from holdfast.algorithms import fedpvr
from holdfast.core import auto_mask
from holdfast.core.algorithm import Algorithm
from holdfast.core.keys import Purpose, host_key
from holdfast.core.local import Local
from holdfast.data.clients import Clients
from holdfast.data.validation import set_apart
from holdfast.diagnose.where import FirstLayer, Row
from holdfast.engine.experiment import Experiment, Settings
from holdfast.engine.simulation import chosen_mask
from holdfast.errors import HoldfastError
from holdfast.evaluate import on
from holdfast.metrics import greater_is_better
from holdfast.models.layers import Layer, layers
from holdfast.models.model import Model
from holdfast.record.checkpoint import Checkpoint
from holdfast.record.chosen_mask import ChosenMask
from holdfast.sweeps.results import Sweep
from holdfast.sweeps.sweep import sweep
from holdfast.trees import paths

# What the question itself settles.
_OWN = {
    "evaluate": "it measures on the examples it sets apart",
    "seed": "give seeds=, how many or a list of them",
    "first_round": "the suggestion has one of its own",
    "stop": "all runs have the same rounds",
}


@dataclasses.dataclass(frozen=True)
class FromLayer:
    """A mask: the parameters of a layer and of all after it."""

    layer: str
    parameters: tuple[str, ...]

    def __call__(self, path: str) -> bool:
        return path in self.parameters

    @property
    def in_short(self) -> str:
        """What it is called where points are shown."""
        return self.layer


def first_layer(
    model: Model,
    clients: Clients,
    local: Local,
    rounds: int,
    *,
    algorithm: Algorithm | None = None,
    seeds: int | Sequence[int] = 3,
    validation: float = 0.2,
    metric: str | None = None,
    target: float | None = None,
    layers_in_order: Sequence[str] | None = None,
    checkpoint: Checkpoint | str | Path | None = None,
    progress: bool | None = None,
    jobs: int | None = None,
    executor: Executor | None = None,
    **settings: Unpack[Settings],
) -> FirstLayer:
    r"""Where variance reduction should begin: FedPVR from every layer on, and what drift alone suggests.

    For $L$ layers in the order in which examples meet them, FedPVR is run with the mask "layer $k$ and
    all after it" for every $k$: $k = 1$ is SCAFFOLD, $k = L + 1$ FedAvg. Beside these runs stands what
    `fedpvr(mask="auto")` would choose from the drift diversity of one round of FedAvg, at a cost of one
    round, and how far it is from the best of the sweep. Everything is measured on examples that are set
    apart from the clients' own, which nobody trains on.

    Args:
        model: the model; the order of its layers is read from its traced loss.
        clients: the population.
        local: what a client does in a round.
        rounds: number of rounds of every run.
        algorithm: FedPVR with settings of its own, `fedpvr("auto", upload="published")`; plain FedPVR
            unless given.
        seeds: so many, from 0 on, or a list of them.
        validation: share of every client's examples that is set apart.
        metric: what is compared; accuracy unless given, or the first that the model measures.
        target: count rounds until the metric is there, too.
        layers_in_order: names of all layers from the first to the last, where another order is meant.
        checkpoint: a folder to save runs to, and to go on from.
        progress: a progress bar; unless given, only where someone is looking.
        jobs: how many runs at once; see `hf.sweep`.
        executor: where runs are carried out instead; see `hf.sweep`.
        settings: `cohort`, `params`, `engine`, `server`, `select` and `storage` of `hf.Experiment`.

    Example:
        >>> import holdfast as hf
        >>> train, _ = hf.data.digits()
        >>> clients = hf.data.partition.dirichlet(train, clients=4, concentration=0.1)
        >>> model, local = hf.models.mlp([8], classes=10), hf.Local(0.1, epochs=1, batch_size=20)
        >>> found = hf.diagnose.first_layer(model, clients, local, rounds=3, seeds=1)
        >>> [(row.layer, round(row.share, 2)) for row in found.rows]
        [('hidden_0', 1.0), ('classifier', 0.15), (None, 0.0)]
        >>> found.suggested[0].masked
        ('hidden_0', 'classifier')

    Reference: Li et al., "On the effectiveness of partial variance reduction in federated learning with
    heterogeneous data", CVPR 2023, figure 5.
    """
    for name, why in _OWN.items():
        if name in settings:
            raise HoldfastError(f"first_layer: `{name}` is given, but {why}; leave it out.")
    waiting = fedpvr("auto") if algorithm is None else algorithm
    if not isinstance(waiting, Algorithm) or not auto_mask.asks(waiting):
        name = getattr(waiting, "name", type(waiting).__name__)
        raise HoldfastError(
            f'first_layer: {name} has no mask to choose; give hf.algorithms.fedpvr("auto", ...).',
            about=("algorithm",),
        )
    train, apart = set_apart(clients, validation)
    rows = apart.order
    held_out = tree.map(lambda a: np.asarray(a)[rows], apart.examples)
    measured = on(held_out, name="validation")
    given = dataclasses.replace(
        Experiment(waiting, model, train, local, **settings), evaluate=measured
    )
    shapes = jax.eval_shape(model.init, host_key(0, Purpose.INIT), clients.examples)
    found = layers(model, shapes, clients.examples, layers_in_order)
    masks = _masks(found, paths(shapes))
    first = dataclasses.replace(given, algorithm=auto_mask.with_mask(waiting, masks[0]))
    chosen_seeds = range(seeds) if isinstance(seeds, int) else seeds
    if 0 not in chosen_seeds:
        first = dataclasses.replace(first, seed=next(iter(chosen_seeds), 0))
    swept = sweep(
        first,
        rounds=rounds,
        over=dict.fromkeys(auto_mask.places(waiting), masks),
        how="paired",
        seeds=seeds,
        checkpoint=checkpoint,
        progress=progress,
        jobs=jobs,
        executor=executor,
    )
    suggested = tuple(
        chosen_mask(dataclasses.replace(given, seed=seed), layers_in_order) for seed in swept.seeds
    )
    return _found(swept, found, suggested, metric, target)


def _masks(found: Sequence[Layer], names: Sequence[str]) -> list[FromLayer]:
    """From every layer on; the last is nobody's."""
    each = []
    for k in range(len(found) + 1):
        called = found[k].name if k < len(found) else "none"
        leaves = sorted(leaf for layer in found[k:] for leaf in layer.leaves)
        each.append(FromLayer(called, tuple(names[leaf] for leaf in leaves)))
    return each


def _found(
    swept: Sweep,
    found: Sequence[Layer],
    suggested: tuple[ChosenMask, ...],
    metric: str | None,
    target: float | None,
) -> FirstLayer:
    table = swept.table(_of_validation(swept, metric), target)
    assert table.metric is not None
    whole = sum(layer.size for layer in found)
    rows = []
    for k, (point, runs) in enumerate(zip(table, swept.runs, strict=True)):
        travelled = [run.ledger.total / len(run.history) for run in runs if run.ledger is not None]
        rows.append(
            Row(
                layer=found[k].name if k < len(found) else None,
                share=sum(layer.size for layer in found[k:]) / whole,
                bytes_per_round=float(np.mean(travelled)) if travelled else None,
                final=point.final,
                rounds=point.rounds if target is not None else None,
            )
        )
    up = greater_is_better(table.metric, swept.directions)
    return FirstLayer(tuple(rows), swept.seeds, suggested, table.metric, up, target)


def _of_validation(swept: Sweep, metric: str | None) -> str | None:
    """A metric by its name in the history, which begins with what it is measured on."""
    known = {name for run in swept for name in run.history.columns}
    return f"validation_{metric}" if f"validation_{metric}" in known else metric
