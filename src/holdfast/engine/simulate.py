"""Running rounds: `rounds` yields the state after each, `simulate` runs a number of them."""

import dataclasses
import functools
from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

import numpy as np
from jax import tree

from holdfast import processes
from holdfast.client_states.states import ClientStates
from holdfast.core import auto_mask
from holdfast.core.algorithm import Algorithm
from holdfast.core.local import Local
from holdfast.core.memory import Memory
from holdfast.core.rule import Rule
from holdfast.core.wire import Wire
from holdfast.data.clients import Clients
from holdfast.data.dataset import Dataset
from holdfast.engine import private
from holdfast.engine.experiment import Experiment, Settings, described
from holdfast.engine.look import run_as_html
from holdfast.engine.saving import Saving
from holdfast.engine.server import Server
from holdfast.engine.simulation import Simulation
from holdfast.engine.stopping import deployed
from holdfast.errors import HoldfastError, expect, explain_arguments, whole_number
from holdfast.evaluate.protocol import EvaluationView
from holdfast.models.model import Model
from holdfast.origin import OwnCodeSaid
from holdfast.privacy.guarantee import Guarantee
from holdfast.record.checkpoint import Checkpoint
from holdfast.record.chosen_mask import ChosenMask
from holdfast.record.history import History
from holdfast.record.ledger import Ledger
from holdfast.record.lock import held
from holdfast.record.progress import of_run
from holdfast.record.state import RunState
from holdfast.saved import file
from holdfast.trees import Tree

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


def rounds(
    algorithm: Algorithm | Experiment,
    model: Model | None = None,
    clients: Clients | None = None,
    local: Local | tuple[Local, ...] | None = None,
    *,
    start: RunState | None = None,
    **settings: Unpack[Settings],
) -> Generator[RunState, RunState | None, None]:
    """Rounds without end: yields the complete state after each one.

    Stop when you like, look at the state, change a copy of it, and go on: from anywhere with
    `start=state`, or in the same loop with `generator.send(state)`. Arguments are those of
    `hf.Experiment`, or one.

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
    given = described("rounds", algorithm, model, clients, local, settings, ("start",))
    with OwnCodeSaid():
        simulation = Simulation(given, chosen_mask=getattr(start, "chosen_mask", None))
    return _advance_for_ever(simulation, simulation.go_on_from(start))


def _advance_for_ever(
    simulation: Simulation, state: RunState
) -> Generator[RunState, RunState | None, None]:
    while True:
        with OwnCodeSaid():
            state = simulation.advance(state)
        state = (yield state) or state


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """The result of `simulate`."""

    simulation: Simulation
    state: RunState
    # Rounds that were asked for; None where nobody said.
    asked: int | None = None

    def __repr__(self) -> str:
        return f"Run({self.experiment.algorithm.name}, {self.state})"

    def _repr_html_(self) -> str:
        return run_as_html(self.experiment, self.state, self.stopped)

    @property
    def experiment(self) -> Experiment:
        """What was run."""
        return self.simulation.experiment

    @property
    def history(self) -> History:
        """One record per round: what was evaluated, bytes, clients, left out, seconds."""
        return self.state.history

    @functools.cached_property
    def deployed(self) -> RunState:
        """What is used in the end: the state of the best round, if early stopping keeps it, or the last."""
        return deployed(self.state)

    @property
    def best_round(self) -> int | None:
        """The best round by the metric of early stopping; None without, or before it was measured."""
        stop = self.experiment.stop
        best = None if stop is None else stop.best(self.history, self.history.directions)
        return None if best is None else best[0]

    @property
    def stopped(self) -> str | None:
        """Why the run ended early; None if it did not."""
        stop = self.experiment.stop
        why = None if stop is None else stop.why(self.history, self.history.directions)
        if why is not None or (self.asked is not None and self.state.round >= self.asked):
            return why
        return self.simulation.spent(self.state)

    @property
    def privacy(self) -> Guarantee | None:
        """What the rounds so far guarantee, in a sentence and in numbers, and the noise it took; None
        without noise of `hf.privacy`."""
        return self.simulation.privacy(self.state)

    @property
    def chosen_mask(self) -> ChosenMask | None:
        """What `mask="auto"` came to after the first round; None for methods that choose no mask."""
        return self.state.chosen_mask

    @property
    def kept(self) -> str:
        """Why what is used is not of the last round, in words; empty if it is."""
        stop, round, last = self.experiment.stop, self.deployed.round, self.state.round
        if stop is None or round == last:
            return ""
        return f"round {round} of {last} was the best by {stop.metric}"

    @property
    def params(self) -> Tree:
        """The server's model; of the best round, if early stopping keeps it."""
        return self.deployed.params

    @property
    def ledger(self) -> Ledger:
        """Every byte that travelled."""
        return self.state.ledger

    @property
    def client_states(self) -> ClientStates:
        """What each client remembers; of the best round, if early stopping keeps it."""
        return self.deployed.client_states

    @property
    def rows(self) -> ClientStates:
        """The former name of `client_states`."""
        return self.client_states

    @property
    def participation(self) -> np.ndarray:
        """Who took part: one row per round, True for clients whose reply counted."""
        return self.ledger.participation(len(self.client_states))

    def plot(self, metric: str | None = None, x: str = "rounds") -> "Figure":
        """A plotly figure of what was measured; see `hf.compare` for several runs.

        Args:
            metric: what is drawn; accuracy unless given, or the first that was measured.
            x: `rounds`, `megabytes` or `seconds`.
        """
        # The page is above the engine, and draws for it only when somebody looks.
        from holdfast.report.plots import plot_run

        return plot_run(self, metric, x)

    def memory(
        self,
        kind: type[Rule] | type[Wire],
        clients: int | Sequence[int] | np.ndarray | None = None,
        which: int | None = None,
    ) -> Memory:
        """What a rule or a wire remembers after the last round; see `hf.RunState.memory`."""
        return self.deployed.memory(kind, clients, which)

    @property
    def view(self) -> EvaluationView:
        """What evaluators look at, after the last round; the best, if early stopping keeps it."""
        return self.simulation.view(self.deployed)

    def personal(self, client: int | str) -> Tree:
        """The model one client, by number or name, would use: what the method deploys there, after local
        steps if it adapts."""
        return self.view.personal(self._number(client))

    def adapted(self, client: int | str, local: Local) -> Tree:
        """The model one client would use after these local steps of its own, instead of the method's."""
        return self.view.personal(self._number(client), local)

    def _number(self, client: int | str) -> int:
        number = self.experiment.clients.number(client)
        # After pooling, everybody shares one client's model.
        return number if len(self.simulation.setup.clients) > 1 else 0

    def save(
        self, path: str | Path, client: int | str | None = None, data: Dataset | None = None
    ) -> Path:
        """Write the trained model to one file, for `hf.load`; returns its path.

        Where clients use models of their own (`local_only`, `flix`, a method with `adapt`), the file has
        all of them by name, and the server's.

        Args:
            path: the file, such as `"model.safetensors"`.
            client: one client, by name or number, whose model is written alone.
            data: the data set that was trained on: its preprocessing, names of columns and of labels go
                into the file. Without it the model takes arrays as it was trained on, and no tables.

        Example:
            >>> import holdfast as hf
            >>> import numpy as np, tempfile
            >>> x, y = np.array([[1.0], [2.0], [3.0], [4.0]]), np.array([1.0, 2.0, 6.0, 8.0])
            >>> data = hf.data.from_arrays(x, y, client=["a", "a", "b", "b"], test_share=0.0)
            >>> clients, _ = data.natural()
            >>> model = hf.models.least_squares(intercept=False)
            >>> local = hf.Local(learning_rate=0.05, steps=100)
            >>> run = hf.simulate(hf.algorithms.local_only(), model, clients, local, rounds=1)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     saved = hf.load(run.save(f"{folder}/model.safetensors"))
            >>> saved.clients, saved.for_client("b").predict(np.array([[10.0]])).round(2).tolist()
            (('a', 'b'), [20.0])
        """
        saving = Saving(self.simulation, self.deployed, data=data, kept=self.kept)
        if client is not None:
            return file.write(Path(path), *saving.client(client))
        return file.write(Path(path), *(saving.everybody() if saving.personal else saving.server()))

    def personal_all(self) -> Tree:
        """Every client's own model, along a leading axis; of one without data, the server's."""
        sizes = self.simulation.setup.clients.sizes
        personal = self.view.personal
        models = [personal(i) if n else self.params for i, n in enumerate(sizes)]
        return tree.map(lambda *leaves: np.stack(leaves), *models)


def simulate(
    algorithm: Algorithm | Experiment,
    model: Model | None = None,
    clients: Clients | None = None,
    local: Local | tuple[Local, ...] | None = None,
    rounds: int | None = None,
    *,
    start: RunState | None = None,
    checkpoint: Checkpoint | str | Path | None = None,
    progress: bool | None = None,
    on_round: Callable[[RunState], None] | None = None,
    until: Callable[[RunState], bool] | None = None,
    **settings: Unpack[Settings],
) -> Run:
    """Run a federated method on one machine, up to and with round `rounds`.

    The same arguments give the same bits. Takes an `hf.Experiment`, or the arguments of one. See
    `hf.rounds` for the state after every round.

    Args:
        algorithm: the method, from `hf.algorithms` or your own `hf.Algorithm(rule)`; or an
            `hf.Experiment`, and then none of the other things that it describes.
        model: `hf.models`, or your own `hf.Model(init, loss)`.
        clients: the population, from `hf.data.partition` or `hf.data.Clients`.
        local: what a client does in a round; of joined populations, one for all or one for each.
        rounds: number of rounds, those of a resumed run included.
        start: a state to go on from.
        checkpoint: a folder (or `hf.Checkpoint`) to save to, and to go on from if it holds this run.
        progress: a progress bar; unless given, only where someone is looking.
        on_round: called with the state after every round.
        until: called with the state after every round too; the run ends where it says True.
        settings: `cohort`, `evaluate`, `seed`, `params`, `engine`, `server`, `select`, `storage`,
            `first_round`, `stop` and `attack` of `hf.Experiment`.
    """
    own = ("rounds", "start", "checkpoint", "progress", "on_round", "until")
    # `simulate(experiment, 10)`: the second argument is not a model then.
    if isinstance(algorithm, Experiment) and isinstance(model, int) and rounds is None:
        model, rounds = None, model
    given = described("simulate", algorithm, model, clients, local, settings, own)
    if rounds is None:
        raise HoldfastError(
            "simulate: `rounds` is missing; give how many, rounds=100.", about=("rounds",)
        )
    rounds = whole_number("simulate", "rounds", rounds, least=0)
    store = Checkpoint(checkpoint) if isinstance(checkpoint, str | Path) else checkpoint
    if store is not None:
        expect("simulate", "checkpoint", store, Checkpoint, 'hf.Checkpoint("runs/mine")')
    if on_round is not None and not callable(on_round):
        raise HoldfastError(
            f"simulate: on_round={on_round!r}; give a function of the state after a round.",
            about=("on_round",),
        )
    given = private.with_rounds(given, rounds)
    with OwnCodeSaid():
        folder = None if store is None else Path(store.folder)
        simulation = Simulation(given, folder, chosen_before(given, start, store))

        def seen(state: RunState) -> None:
            if on_round is not None:
                on_round(state)
            bar.advance(state)

        bar = of_run(given.algorithm.name, rounds, progress)
        # From before saves are read until the last one is written.
        with nullcontext() if store is None else held(Path(store.folder)), bar:
            state = _carried_out(simulation, start, rounds, store, seen, until)
            return Run(simulation, state, rounds)


def chosen_before(
    given: Experiment, start: RunState | None, store: Checkpoint | None
) -> ChosenMask | None:
    """The mask of a run that is gone on with; None if it has none, or is to choose it."""
    if start is not None:
        return getattr(start, "chosen_mask", None)
    waits = isinstance(given.algorithm, Algorithm) and auto_mask.asks(given.algorithm)
    return store.chosen_mask() if store is not None and waits else None


def _carried_out(
    simulation: Simulation,
    start: RunState | None,
    rounds: int,
    store: Checkpoint | None,
    seen: Callable[[RunState], None],
    until: Callable[[RunState], bool] | None,
) -> RunState:
    """The state after so many rounds, from where a run stands, saved on the way.

    Here and nowhere above it is the state of the last round alone: one that is kept keeps what every later
    round has overwritten, and memory that states have left for the disk.
    """
    state = simulation.go_on_from(start)
    identity = simulation.setup.identity() if store else {}
    if store and start is None:
        state = store.load(state, identity) or state
    saved = state.round
    stop = simulation.experiment.stop

    def over(state: RunState) -> bool:
        """Whether it ends here, by what it has measured: so a run that is gone on with knows it too."""
        if simulation.spent(state) is not None:
            return True
        return stop is not None and stop.why(state.history, state.history.directions) is not None

    stream = _advance_for_ever(simulation, state)
    try:
        while state.round < rounds and not over(state):
            state = next(stream)
            done = state.round == rounds or (until is not None and until(state)) or over(state)
            if store and (state.round % store.every == 0 or done):
                store.save(state, identity)
                saved = state.round
            seen(state)
            if done:
                break
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
    return state


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
