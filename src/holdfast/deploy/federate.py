"""A deployed run: enrol the sites, then the same rounds, saves and history as in a simulation."""

import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from jax import tree

from holdfast.data.clients import Clients
from holdfast.data.preprocessing import Preprocessing
from holdfast.data.tables.apart import Fitted
from holdfast.deploy.changes import Changes
from holdfast.deploy.cohort import RemoteCohort
from holdfast.deploy.collect import Patience
from holdfast.deploy.evaluation import at_sites
from holdfast.deploy.keeping import keep_models
from holdfast.deploy.replies import Limits
from holdfast.deploy.roster import Roster
from holdfast.deploy.study import Study
from holdfast.deploy.summaries import as_json
from holdfast.deploy.tables import fit_at_sites
from holdfast.deploy.task import Task, check_evaluators, shape_of
from holdfast.deploy.transport import Transport
from holdfast.engine.experiment import Experiment
from holdfast.engine.setup import checked
from holdfast.engine.simulate import Run, chosen_before, simulate
from holdfast.engine.simulation import settled
from holdfast.errors import HoldfastError
from holdfast.record.checkpoint import Checkpoint
from holdfast.record.files import write_whole
from holdfast.record.lock import refuse_held
from holdfast.record.state import RunState
from holdfast.saved.description import Columns
from holdfast.trees import Tree

_SITES = "sites.json"
_COLUMNS = "columns.json"
_CHANGES = "changes"


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Elsewhere(Clients):
    """A population whose examples are at its sites; with what a saved model says of them, if it is known."""

    here = False
    columns: Columns | None = None


def elsewhere(
    like: Tree,
    sizes: Sequence[int],
    names: Sequence[str],
    preprocessing: Preprocessing | None = None,
    columns: Columns | None = None,
) -> Clients:
    """A population of which only the sizes are here; one example shows what theirs are."""
    # One row that stands for all, and takes no memory for them.
    examples = tree.map(
        lambda a: np.broadcast_to(np.zeros(np.shape(a)[1:], a.dtype), (1, *np.shape(a)[1:])), like
    )
    offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
    order = np.broadcast_to(np.zeros((), np.int64), (int(offsets[-1]),))
    return Elsewhere(
        examples,
        order,
        offsets,
        names=tuple(names),
        preprocessing=preprocessing,
        columns=columns,
    )


def population(
    names: Sequence[str], like: Tree, preprocessing: Preprocessing | None = None
) -> Clients:
    """Clients of whom nothing is known yet but their names: they are sites, and say how much they have.

    Args:
        names: of the sites.
        like: one or more examples like theirs, for the shapes; the values are not used.
        preprocessing: how their examples came of a table.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> digit = hf.Examples(np.zeros((1, 64), np.float32), np.zeros(1, np.int32))
        >>> hf.deploy.population(["north", "south"], digit).names
        ('north', 'south')
    """
    return elsewhere(like, [1] * len(names), names, preprocessing)


@dataclasses.dataclass(frozen=True, eq=False)
class Federation:
    """A federation whose sites are enrolled: the experiment as the server runs it."""

    experiment: Experiment
    engine: RemoteCohort

    def run(
        self,
        rounds: int,
        checkpoint: Checkpoint | None = None,
        progress: bool | None = None,
        on_round: Callable[[RunState], None] | None = None,
        start: RunState | None = None,
    ) -> Run:
        """So many rounds, those before a restart included."""
        engine, setup = self.engine, checked(self.experiment)
        engine.take_part_in(setup)
        if setup.waiting is not None:
            # From sites' first round, which is then the run's too; or as it was chosen before a restart.
            engine.take_part_in(settled(setup, chosen_before(self.experiment, start, checkpoint)))
        engine.say_if_unbounded()
        every = 1 if checkpoint is None else checkpoint.every

        def seen(state: RunState) -> None:
            if state.round % every == 0 or state.round == rounds:
                engine.saved(state)
            if on_round is not None:
                on_round(state)

        done = simulate(
            self.experiment,
            rounds=rounds,
            checkpoint=checkpoint,
            progress=progress,
            on_round=seen,
            start=start,
        )
        keep_models(engine, done.view)
        return done


def federation(
    experiment: Experiment | Study,
    transport: Transport,
    patience: Patience | None = None,
    limits: Limits | None = None,
    wait: float | None = None,
    folder: Path | None = None,
) -> Federation:
    """Wait until all sites have said how many examples they have; what was said is kept in `folder`."""
    patience, limits = patience or Patience(), limits or Limits()
    method, fitted_json, about = "", b"", None
    if not isinstance(experiment, Experiment):
        study = experiment
        fitted = None if study.table is None else _fitted(study, transport, wait, folder)
        fitted_json = b"" if fitted is None else as_json(fitted.to_dict())
        method, about = study.label, study.columns(study.dataset(fitted))
        experiment = study.at_server(fitted)
    task = Task.of(experiment)
    clients = experiment.clients
    names = clients.names or tuple(str(i) for i in range(len(clients)))
    shape = shape_of(clients.examples)
    roster = Roster(names, transport, task, shape, limits, method, fitted_json)
    roster.sizes.update(_known(folder, names))
    roster.wait_for_all(wait)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / _SITES, json.dumps(roster.sizes, indent=1, sort_keys=True) + "\n")
    methods = (experiment.algorithm, experiment.first_round)
    strict = [m for m in methods if m is not None and m.needs_everyone]
    if patience.quorum < 1 and strict:
        raise HoldfastError(
            f"deploy: {strict[0].name} needs every site in every round, since its wire tells the "
            f"server only a mean over everybody; give quorum=1.0.",
            about=("quorum",),
        )
    sizes = [roster.sizes[name] for name in names]
    there = elsewhere(clients.examples, sizes, names, clients.preprocessing, about)
    changes = Changes(None if folder is None else folder / _CHANGES)
    engine = RemoteCohort(transport, task, roster, patience, limits, changes)
    evaluators = experiment.evaluate
    several = evaluators if isinstance(evaluators, list | tuple) else [evaluators]
    asked = [at_sites(one, engine) for one in several if one is not None]
    check_evaluators(asked)
    deployed = dataclasses.replace(experiment, clients=there, engine=engine, evaluate=asked or None)
    return Federation(deployed, engine)


def _fitted(study: Study, transport: Transport, wait: float | None, folder: Path | None) -> Fitted:
    """What became of all sites' columns: as before a restart, or by asking."""
    path = None if folder is None else folder / _COLUMNS
    if path is None or not path.exists():
        fitted = fit_at_sites(study, transport, wait)
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            kept = {"study": study.digest, "fitted": fitted.to_dict()}
            write_whole(path, as_json(kept))
        return fitted
    try:
        found = json.loads(path.read_text())
        if found["study"] == study.digest:
            return Fitted.from_dict(found["fitted"])
    except (ValueError, TypeError, KeyError, AttributeError):
        raise HoldfastError(
            f"{path} cannot be read; delete it, and sites are asked again."
        ) from None
    raise HoldfastError(
        f"{path} is of another experiment file than this one; give the run a folder of its own."
    )


def _known(folder: Path | None, names: Sequence[str]) -> dict[str, int]:
    """What sites said before a restart."""
    path = None if folder is None else folder / _SITES
    if path is None or not path.exists():
        return {}
    try:
        found = json.loads(path.read_text())
        return {name: int(found[name]) for name in names if name in found}
    except (ValueError, TypeError, AttributeError):
        raise HoldfastError(
            f"{path} cannot be read; delete it, and sites are asked again."
        ) from None


def run(
    experiment: Experiment | Study,
    transport: Transport,
    rounds: int,
    checkpoint: Checkpoint | str | Path | None = None,
    patience: Patience | None = None,
    limits: Limits | None = None,
    wait: float | None = None,
    progress: bool | None = None,
    on_round: Callable[[RunState], None] | None = None,
) -> Run:
    """Run an experiment at its sites: the model, client states and ledger that `hf.simulate` gives.

    Sites are the experiment's clients, by name or number. Their examples are not used: sites have their own.

    Args:
        experiment: what is run; the same object may be simulated. Or an experiment file, as
            `hf.deploy.from_file` reads it.
        transport: how messages travel, such as `hf.deploy.InProcess(sites)`.
        rounds: number of rounds, those of a resumed run included.
        checkpoint: a folder (or `hf.Checkpoint`) to save to after every round, and to go on from.
        patience: quorum and deadline of a round, `hf.deploy.Patience(quorum=0.5, deadline=60)`.
        limits: what a reply may be at most.
        wait: seconds to wait for sites at the beginning; for ever unless given.
        progress: a progress bar; unless given, only where someone is looking.
        on_round: called with the state after every round.
    """
    store = checkpoint
    if isinstance(store, str | Path):
        store = Checkpoint(store, every=1)
    folder = None if store is None else Path(store.folder)
    # Said before sites are waited for.
    if folder is not None and folder.exists():
        refuse_held(folder)
    enrolled = federation(experiment, transport, patience, limits, wait, folder)
    return enrolled.run(rounds, store, progress, on_round)
