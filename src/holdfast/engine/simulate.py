"""Running rounds: `rounds` yields the state after each, `simulate` runs a number of them."""

import contextlib
import dataclasses
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast import hyper
from holdfast.algorithm import Algorithm
from holdfast.cohorts import Cohort, Everyone
from holdfast.combinators import Chain
from holdfast.data.clients import Clients, check_finite
from holdfast.engine.batches import Planner
from holdfast.engine.checkpoint import Checkpoint
from holdfast.engine.engines import DebugEngine, Engine
from holdfast.engine.history import History
from holdfast.engine.identity import describe, digest
from holdfast.engine.ledger import Entry, Ledger
from holdfast.engine.rows import Rows
from holdfast.engine.state import RunState
from holdfast.errors import HoldfastError, RoundFailedError, explain_arguments
from holdfast.evaluate import Evaluator, Scene, deployed_model
from holdfast.keys import Purpose, host_generator, round_key
from holdfast.local import Local
from holdfast.models.model import Model
from holdfast.populations import JoinedCohort
from holdfast.round import Central, Work, outline
from holdfast.rules.last_model import LastModel
from holdfast.select import Selection
from holdfast.server import Server
from holdfast.trees import Tree, describe_shapes, nbytes, signature


class Experiment:
    """A run before it runs: everything checked, and `advance` from one state to the next."""

    def __init__(
        self,
        algorithm: Algorithm,
        model: Model,
        clients: Clients,
        local: Local,
        cohort: Cohort | None = None,
        evaluate: Evaluator | Sequence[Evaluator] | None = None,
        seed: int = 0,
        params: Tree = None,
        engine: Engine | DebugEngine | None = None,
        server: Server | None = None,
        select: bool = False,
    ) -> None:
        _check_types(algorithm, model, clients, local, seed)
        self.evaluators = _as_sequence(evaluate)
        if any(e.keeps_last_models for e in self.evaluators):
            algorithm = dataclasses.replace(algorithm, rule=Chain((algorithm.rule, LastModel())))
        self.cohort: Cohort = Everyone() if cohort is None else cohort
        population = len(clients)
        if algorithm.regroup is not None:
            clients, self.cohort = algorithm.regroup(clients), Everyone()
        self.algorithm, self.model, self.local, self.seed = algorithm, model, local, seed
        self.clients = clients
        self.engine = Engine() if engine is None else engine
        self.planner = Planner(clients, local, seed)
        self._check_data()
        self.examples = tree.map(jnp.asarray, clients.examples)
        self.params = self._initial_params(params)
        self._check_loss()
        self.server_side = None if server is None else ServerSide(server, seed)
        if server is not None:
            server.check(model, self.params)
        algorithm.check(self.params, local, None if server is None else server.local)
        hyper.check_population(algorithm, len(clients), algorithm.name)
        self.cohort.check(self.planner.able, len(clients))
        for evaluator in self.evaluators:
            evaluator.check(model, self.params, population)
        self.selection = Selection(model, clients, self.params) if select else None
        if select and not algorithm.wire.lossless:
            raise HoldfastError(
                f"select: the wire {type(algorithm.wire).__name__} changes replies, which travel in "
                f"rows; use hf.Wire()."
            )
        self.outline = outline(hyper.at_round(algorithm, 0), self.params)

    def _check_data(self) -> None:
        check_finite(self.clients.examples, "data")
        if self.model.check is not None:
            self.model.check(self.clients.examples)
        if not len(self.planner.able):
            raise HoldfastError(
                f"simulate: none of the {len(self.clients)} clients has data; give at least one some."
            )

    def _initial_params(self, given: Tree) -> Tree:
        key = jax.random.fold_in(jax.random.key(self.seed), Purpose.INIT)
        if given is None:
            return self.model.init(key, self.examples)
        wanted = jax.eval_shape(self.model.init, key, self.examples)
        params = tree.map(jnp.asarray, given)
        if describe_shapes(params) != describe_shapes(wanted):
            raise HoldfastError(
                f"simulate: params has {describe_shapes(params)} but the model has "
                f"{describe_shapes(wanted)}; give parameters of this model."
            )
        return params

    def _check_loss(self) -> None:
        rows = self.planner.batch_size
        batch = tree.map(lambda a: a[:1].repeat(rows, axis=0), self.examples)
        given = (self.params, batch, jax.random.key(0))
        if isinstance(self.engine, DebugEngine):
            losses = self.model.losses(*given)
        else:
            try:
                losses = jax.eval_shape(self.model.losses, *given)
            except Exception as error:  # whatever the model's library raises
                raise HoldfastError(
                    f"simulate: the model's loss cannot take a batch of {describe_shapes(batch)}: "
                    f"{str(error).splitlines()[0]} (engine=hf.DebugEngine() shows where.)"
                ) from None
        if getattr(losses, "shape", None) != (rows,):
            raise HoldfastError(
                f"simulate: the loss of a batch of {rows} examples has shape "
                f"{getattr(losses, 'shape', None)}; return one value per example, {(rows,)}, "
                f"and leave the mean to holdfast."
            )

    def identity(self) -> dict[str, str]:
        """What makes this run this run, in words."""
        return {
            "algorithm": describe(self.algorithm),
            "model": f"{describe(self.model)} with {describe_shapes(self.params)}",
            "local training": describe(self.local),
            "data": digest((self.clients.examples, self.clients.order, self.clients.offsets)),
            "seed": str(self.seed),
            "initial parameters": digest(self.params),
            "cohort": describe(self.cohort),
            "evaluation": describe(self.evaluators),
            "select": str(self.selection is not None),
            "server": describe(None if self.server_side is None else self.server_side.server),
        }

    def begin(self) -> RunState:
        """The state before the first round."""
        return RunState(
            round=0,
            params=self.params,
            server=self.outline.server,
            rows=Rows(jax.device_get(self.outline.row), len(self.clients)),
            ledger=Ledger(nbytes(self.params)),
            history=History(),
        )

    def go_on_from(self, start: RunState | None) -> RunState:
        """The given state, or the first; refuses one of another model, method or population."""
        fresh = self.begin()
        if start is None:
            return fresh
        if len(start.rows) != len(fresh.rows):
            raise HoldfastError(
                f"start: the state has {len(start.rows)} clients, the run {len(fresh.rows)}; "
                f"go on with the population it came from."
            )
        for what in ("params", "server"):
            then, now = getattr(start, what), getattr(fresh, what)
            if signature(then) != signature(now):
                raise HoldfastError(
                    f"start: the state's {what} is {describe_shapes(then) or 'empty'}, this run's "
                    f"{describe_shapes(now) or 'empty'}; go on with the method and model it came from."
                )
        return start

    def draw(self, state: RunState) -> np.ndarray:
        """The clients of the next round."""
        rng = host_generator(Purpose.COHORT, self.seed, state.round)
        return self.cohort.draw(state.round, self.planner.able, rng)

    def slots(self, ids: np.ndarray) -> int:
        """Places in the program for these clients."""
        return self.engine.slots(len(ids), getattr(self.cohort, "steady", False))

    def arguments(self, state: RunState, ids: np.ndarray) -> dict[str, Any]:
        """What the next round is a function of."""
        t, slots = state.round, self.slots(ids)
        shared: dict[str, Any] = {
            "algorithm": hyper.at_round(self.algorithm, t),
            "model": self.model,
            "x": state.params,
            "rows": state.rows.stack(ids, slots),
            "examples": self.examples,
            "work": self.planner.work(t, ids, slots),
            "key": round_key(self.seed, t),
        }
        if isinstance(self.cohort, JoinedCohort):
            shared["work"] = self._weigh_populations(self.cohort, shared["work"], ids)
        if self.selection is not None:
            rows = self.selection.rows(ids, slots)
            shared["work"] = shared["work"]._replace(selected=rows)
        if self.algorithm.rule.prepares:
            fresh = np.zeros(slots, bool)
            fresh[: len(ids)] = [int(i) not in state.rows.touched for i in ids]
            shared["rows"] = self.engine.prepare(t, fresh=fresh, **shared)
        return (
            shared
            | {
                "steps": self.local.at(t, state.params),
                "server": state.server,
                "population": float(len(self.planner.able)),
                "around": None if self.selection is None else self.selection.around,
            }
            | self._central(t)
        )

    def _weigh_populations(self, cohort: JoinedCohort, work: Work, ids: np.ndarray) -> Work:
        by = {"examples": work.weight, "processed": (work.batches >= 0).sum(axis=(1, 2))}
        weight = np.asarray(by.get(self.algorithm.weighting, np.ones_like(work.weight)))[: len(ids)]
        vote, importance = np.zeros_like(work.weight), np.zeros_like(work.weight)
        vote[: len(ids)] = cohort.votes(ids, weight)
        importance[: len(ids)] = cohort.importance(ids)
        return work._replace(vote=vote, importance=importance)

    def _central(self, t: int) -> dict[str, Any]:
        if self.server_side is None:
            return {}
        return self.server_side.arguments(t, self.params, self.planner.mean_size)

    def advance(self, state: RunState) -> RunState:
        """The state after one more round."""
        began, t = time.perf_counter(), state.round
        ids = self.draw(state)
        left_out = 0
        if len(ids):  # a given schedule may name only clients without data
            outcome = self.engine.round(t, **self.arguments(state, ids))
            accepted = np.asarray(outcome.accepted)[: len(ids)]
            left_out = int((~accepted).sum())
            if left_out == len(ids):
                raise RoundFailedError(
                    f"round {t + 1}: not one of {len(ids)} clients returned finite numbers. Try a "
                    f"smaller learning_rate, a clip in Local, or engine=hf.DebugEngine() to see where."
                )
            rows = state.rows.write(ids, outcome.rows, accepted)
            state = dataclasses.replace(state, params=outcome.x, server=outcome.server, rows=rows)
        entry = Entry(t + 1, tuple(int(i) for i in ids), *self._traffic(ids))
        state = dataclasses.replace(state, round=t + 1, ledger=state.ledger.record(entry))
        seconds = time.perf_counter() - began
        row = {"round": t + 1, **self._evaluate(state)} | {
            "bytes_down": entry.bytes_down,
            "bytes_up": entry.bytes_up,
            "clients": len(ids),
            "left_out": left_out,
            "seconds": seconds,
        }
        return dataclasses.replace(state, history=state.history.record(row))

    def _traffic(self, ids: np.ndarray) -> tuple[Any, Any]:
        """Bytes down and up: one number for everybody, or one for each who selects rows."""
        wire, broadcast, coded = (
            self.algorithm.wire,
            self.outline.broadcast,
            self.outline.reply.coded,
        )
        select = self.selection
        if select is None:
            return wire.bytes_down(broadcast), wire.bytes_up(coded)
        return (
            tuple(wire.bytes_down(select.sent(int(i), broadcast)) for i in ids),
            tuple(wire.bytes_up(select.sent(int(i), coded)) for i in ids),
        )

    def _evaluate(self, state: RunState) -> dict[str, Any]:
        sizes = self.clients.sizes
        scene = Scene(
            self.model,
            hyper.at_round(self.algorithm, state.round),
            state,
            sizes / self.planner.mean_size,
            self,
        )
        due = (e for e in self.evaluators if state.round % e.every == 0)
        return {name: value for e in due for name, value in e(scene).items()}


class ServerSide:
    """The server's own data on the device, and its work round by round."""

    def __init__(self, server: Server, seed: int) -> None:
        self.server = server
        self.examples: Any = ()
        if not server.alone:
            self.examples = tree.map(jnp.asarray, server.source)
            one_step = Local(
                learning_rate=1.0,
                steps=1,
                batch_size=server.gradient_batch_size or server.local.batch_size,
                shuffle=server.local.shuffle,
            )
            data = server.as_clients()
            self._steps = Planner(data, server.local, seed, Purpose.SERVER_ORDER)
            self._gradient = Planner(data, one_step, seed, Purpose.SERVER_GRADIENT)

    def gradient_rows(self, t: int) -> np.ndarray:
        """The one batch of round `t` that the server's gradient is taken on."""
        return self._gradient.work(t, np.zeros(1, np.int64), 1).batches[0, 0]

    def arguments(self, t: int, params: Tree, mean_size: float) -> dict[str, Any]:
        """What the server brings to round `t`."""
        batches = gradient_rows = None
        steps = self.server.local.steps or 1
        if not self.server.alone:
            batches = self._steps.work(t, np.zeros(1, np.int64), 1).batches[0]
            gradient_rows = self.gradient_rows(t)
            steps = len(batches)
        central = Central(
            steps=self.server.local.at(t, params),
            count=np.int32(steps),
            examples=self.examples,
            batches=batches,
            gradient_rows=gradient_rows,
            weight=self.server.size / mean_size,
        )
        return {"central": central, "central_loss": self.server.objective}


def _check_types(algorithm: Any, model: Any, clients: Any, local: Any, seed: Any) -> None:
    expected = (
        ("algorithm", algorithm, Algorithm, "hf.algorithms.fedavg()"),
        ("model", model, Model, "hf.models.mlp([64], classes=10)"),
        ("clients", clients, Clients, "hf.data.partition.iid(train, clients=10)"),
        ("local", local, Local, "hf.Local(learning_rate=0.1)"),
    )
    for name, value, kind, example in expected:
        if not isinstance(value, kind):
            raise HoldfastError(
                f"simulate: {name} is a {type(value).__name__}; give a {kind.__name__}, "
                f"such as {example}."
            )
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**31:
        raise HoldfastError(f"simulate: seed={seed!r}; give a whole number in 0..{2**31 - 1}.")


def _as_sequence(evaluate: Any) -> tuple[Evaluator, ...]:
    if evaluate is None:
        return ()
    return tuple(evaluate) if isinstance(evaluate, list | tuple) else (evaluate,)


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
        algorithm, model, clients, local, cohort, evaluate, seed, params, engine, server, select
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
        """One row per round: what was evaluated, bytes down and up, clients, left out, seconds."""
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
        row = self.state.rows[client].rule
        return deployed_model(algorithm, self.params, self.state.server.rule, row, client)


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
        progress: a progress bar; unless given, only where someone is looking.
        on_round: called with the state after every round.
    """
    if not isinstance(rounds, int | np.integer) or rounds < 0:
        raise HoldfastError(f"simulate: rounds={rounds!r}; give a whole number of at least 0.")
    experiment = Experiment(
        algorithm, model, clients, local, cohort, evaluate, seed, params, engine, server, select
    )
    store = Checkpoint(checkpoint) if isinstance(checkpoint, str | Path) else checkpoint
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
        if store and saved < state.round:
            store.save(state, identity)
        raise
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
            "pretrain: the server has a loss of its own; give one with a data set and the model's loss."
        )
    data = server.as_clients()
    return simulate(
        Algorithm(name="pretrain"), model, data, server.local, rounds, seed=seed, params=params
    ).params


@contextlib.contextmanager
def _bar(name: str, rounds: int, wanted: bool | None) -> Iterator[Callable[[RunState], None]]:
    if not (sys.stderr.isatty() if wanted is None else wanted):
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
