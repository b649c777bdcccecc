"""Running rounds: `rounds` yields the state after each, `simulate` runs a number of them."""

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path

import numpy as np
from jax import tree

from holdfast import processes
from holdfast.client_states.states import Rows
from holdfast.client_states.storage import Storage
from holdfast.cohorts import Cohort
from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.local import Local
from holdfast.data.clients import Clients
from holdfast.engine.compiled import DebugEngine, Engine
from holdfast.engine.experiment import Experiment
from holdfast.engine.server import Server
from holdfast.errors import HoldfastError, explain_arguments
from holdfast.evaluate.evaluators import Evaluator, deployed_model
from holdfast.models.model import Model
from holdfast.record.checkpoint import Checkpoint
from holdfast.record.history import History
from holdfast.record.ledger import Ledger
from holdfast.record.state import RunState
from holdfast.trees import Tree


@explain_arguments
def rounds(
    algorithm: Algorithm,
    model: Model,
    clients: Clients,
    local: Local,
    *,
    cohort: Cohort | None = None,
    evaluate: Evaluator | Sequence[Evaluator] | None = None,
    seed: int = 0,
    params: Tree = None,
    start: RunState | None = None,
    engine: Engine | DebugEngine | None = None,
    server: Server | None = None,
    select: bool = False,
    storage: Storage | None = None,
) -> Generator[RunState, RunState | None, None]:
    """Rounds without end: yields the complete state after each one.

    Stop when you like, look at the state, change a copy of it, and go on: from anywhere with
    `start=state`, or in the same loop with `generator.send(state)`.

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> clients = hf.data.partition.iid(train, clients=4)
        >>> settings = dict(local=hf.Local(learning_rate=0.1, steps=2, batch_size=8), seed=1)
        >>> model = hf.models.softmax_regression(classes=10)
        >>> for state in hf.rounds(hf.algorithms.fedavg(), model, clients, **settings):
        ...     if state.round == 2:
        ...         break
        >>> state.round, len(state.history)
        (2, 2)
    """
    experiment = Experiment(
        algorithm,
        model,
        clients,
        local,
        cohort,
        evaluate,
        seed,
        params,
        engine,
        server,
        select,
        storage,
    )
    return _advance_for_ever(experiment, experiment.go_on_from(start))


def _advance_for_ever(
    experiment: Experiment, state: RunState
) -> Generator[RunState, RunState | None, None]:
    while True:
        state = experiment.advance(state)
        state = (yield state) or state


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """The result of `simulate`."""

    experiment: Experiment
    state: RunState

    def __repr__(self) -> str:
        return f"Run({self.experiment.algorithm.name}, {self.state})"

    @property
    def history(self) -> History:
        """One row per round: what was evaluated, bytes, clients, left out, seconds."""
        return self.state.history

    @property
    def params(self) -> Tree:
        """The server's model."""
        return self.state.params

    @property
    def ledger(self) -> Ledger:
        """Every byte that travelled."""
        return self.state.ledger

    @property
    def rows(self) -> Rows:
        """What each client remembers."""
        return self.state.rows

    def personal(self, client: int) -> Tree:
        """The model one client would use."""
        algorithm = hyper.at_round(self.experiment.algorithm, self.state.round)
        row = self.experiment.row(self.state, client).rule
        return deployed_model(algorithm, self.params, self.state.server.rule, row, client)

    def adapted(self, client: int, local: Local) -> Tree:
        """The model one client would use after local steps of its own, as meta-learning does."""
        return self.experiment.adapted(self.personal(client), client, local)

    def personal_all(self) -> Tree:
        """Every client's own model, along a leading axis; of one without data, the server's."""
        sizes = self.experiment.clients.sizes
        models = [self.personal(i) if n else self.params for i, n in enumerate(sizes)]
        return tree.map(lambda *leaves: np.stack(leaves), *models)


@explain_arguments
def simulate(
    algorithm: Algorithm,
    model: Model,
    clients: Clients,
    local: Local,
    rounds: int,
    *,
    cohort: Cohort | None = None,
    evaluate: Evaluator | Sequence[Evaluator] | None = None,
    seed: int = 0,
    params: Tree = None,
    start: RunState | None = None,
    checkpoint: Checkpoint | str | Path | None = None,
    engine: Engine | DebugEngine | None = None,
    server: Server | None = None,
    select: bool = False,
    storage: Storage | None = None,
    progress: bool | None = None,
    on_round: Callable[[RunState], None] | None = None,
) -> Run:
    """Run a federated method on one machine, up to and with round `rounds`.

    The same arguments give the same bits. See `hf.rounds` for the state after every round.

    Args:
        algorithm: the method, from `hf.algorithms` or your own `hf.Algorithm(rule)`.
        model: `hf.models`, or your own `hf.Model(init, loss)`.
        clients: the population, from `hf.data.partition` or `hf.data.Clients`.
        local: what a client does in a round.
        rounds: number of rounds, those of a resumed run included.
        cohort: who takes part, from `hf.cohorts`; everyone unless given.
        evaluate: one or several of `hf.evaluate`.
        seed: all randomness is a function of it.
        params: initial parameters; the model's own unless given.
        start: a state to go on from.
        checkpoint: a folder (or `hf.Checkpoint`) to save to, and to go on from if it holds this run.
        engine: `hf.Engine()` unless given; `hf.DebugEngine()` says where an exception happened.
        server: the server's own data or loss, for methods in which it learns too.
        select: clients receive, train and return only the rows of the model's tables their data uses.
        storage: how much memory rows and examples may take, and where they go beyond it.
        progress: a progress bar; unless given, only where someone is looking.
        on_round: called with the state after every round.
    """
    if not isinstance(rounds, int | np.integer) or rounds < 0:
        raise HoldfastError(
            f"simulate: rounds={rounds!r}; give a whole number of at least 0.", about=("rounds",)
        )
    store = Checkpoint(checkpoint) if isinstance(checkpoint, str | Path) else checkpoint
    storage = storage or Storage()
    experiment = Experiment(
        algorithm,
        model,
        clients,
        local,
        cohort,
        evaluate,
        seed,
        params,
        engine,
        server,
        select,
        storage.beside(Path(store.folder)) if store else storage,
    )
    state = experiment.go_on_from(start)
    identity = experiment.identity() if store else {}
    if store and start is None:
        state = store.load(state, identity) or state
    saved = state.round
    try:
        with _bar(algorithm.name, rounds, progress) as show:
            stream = _advance_for_ever(experiment, state)
            while state.round < rounds:
                state = next(stream)
                if store and (state.round % store.every == 0 or state.round == rounds):
                    store.save(state, identity)
                    saved = state.round
                if on_round is not None:
                    on_round(state)
                show(state)
    except KeyboardInterrupt:
        # Several processes are not stopped in the same round, so they cannot save together.
        if store and saved < state.round and processes.count() == 1:
            store.save(state, identity)
        raise
    except Exception as error:
        if not processes.is_loss(error):
            raise
        kept = (
            f"the save of round {saved} in {store.folder} is good" if store else "nothing is saved"
        )
        raise processes.LostProcessError(
            f"round {state.round + 1}: another of the {processes.count()} processes is gone; {kept}."
        ) from None
    return Run(experiment, state)


@explain_arguments
def pretrain(
    model: Model, server: Server, rounds: int = 1, seed: int = 0, params: Tree = None
) -> Tree:
    """Parameters trained on the server's data alone, to begin a run with: `simulate(params=...)`.

    Args:
        model: the model.
        server: its data and how it trains; a round is one `local` of it.
        rounds: how often.
        seed: all randomness is a function of it.
        params: where to begin; the model's own initial parameters unless given.
    """
    if server.alone or server.loss is not None:
        raise HoldfastError(
            "pretrain: the server has a loss of its own; give one with a data set and the model's loss.",
            about=("server",),
        )
    data = server.as_clients()
    return simulate(
        Algorithm(name="pretrain"), model, data, server.local, rounds, seed=seed, params=params
    ).params


@contextlib.contextmanager
def _bar(name: str, rounds: int, wanted: bool | None) -> Iterator[Callable[[RunState], None]]:
    if not (sys.stderr.isatty() if wanted is None else wanted) or not processes.is_first():
        yield lambda state: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description:12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[measured]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(name, total=rounds, measured="")

        def show(state: RunState) -> None:
            last = state.history[-1]
            measured = [f"{n} {last[n]:.3f}" for n in ("loss", "accuracy") if n in last]
            measured.append(f"{state.ledger.total / 1e6:.1f} MB")
            bar.update(task, completed=state.round, measured="  ".join(measured))

        yield show
