"""A run before it runs: everything checked, and the step from one state to the next."""

import dataclasses
import time
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import tree

from holdfast import processes
from holdfast.client_states.states import Rows
from holdfast.client_states.storage import Storage
from holdfast.cohorts import Cohort, Everyone
from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.combinators import Chain
from holdfast.core.keys import Purpose, host_generator, round_key
from holdfast.core.local import Local, Steps
from holdfast.core.round import Sides, Work, client_round, outline
from holdfast.data.clients import Clients, check_finite
from holdfast.engine.batches import Planner
from holdfast.engine.compiled import DebugEngine, Engine, compiled_programs
from holdfast.engine.feeds import Feed, Gathered, Resident
from holdfast.engine.layout import Way
from holdfast.engine.populations import JoinedCohort
from holdfast.engine.select import Selection
from holdfast.engine.server import Server
from holdfast.engine.server_side import ServerSide
from holdfast.errors import HoldfastError, HoldfastWarning, RoundFailedError
from holdfast.evaluate.evaluators import Evaluator, Scene
from holdfast.models.model import Model
from holdfast.record.history import History
from holdfast.record.identity import describe, digest
from holdfast.record.ledger import Entry, Ledger
from holdfast.record.state import RunState
from holdfast.record.traffic import Traffic
from holdfast.rules.last_model import LastModel
from holdfast.trees import Tree, add, describe_shapes, nbytes, signature

_WORTH_SHARING = 3e8  # operations a round, some milliseconds; below, handing out costs more
_TINY = 5e4  # operations a step; starting it costs as much
_MANY = 50  # steps of a client, for which it is worth compiling them together
# XLA looks rows up in a large array with several threads, which costs more than copying a few of them.
_LITTLE = 10**6  # bytes
_SMALL_PART = 0.02  # of the examples
_PREPARED_TOGETHER = 32  # clients; they share one program and the memory of their rows


class Plan(NamedTuple):
    """The host's part of a round."""

    places: np.ndarray  # the client in every place of the program; -1: none
    here: slice  # the places of this process, of which is all that follows
    leaf: np.ndarray  # of the tree along which a reply is added up
    way: Way  # in which the program visits them
    work: Work
    examples: Tree


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
        storage: Storage | None = None,
    ) -> None:
        _check_types(algorithm, model, clients, local, seed)
        self.storage = Storage() if storage is None else storage
        self.evaluators = _as_sequence(evaluate)
        if any(e.keeps_last_models for e in self.evaluators):
            algorithm = dataclasses.replace(algorithm, rule=Chain((algorithm.rule, LastModel())))
        self.cohort: Cohort = Everyone() if cohort is None else cohort
        population = len(clients)
        if algorithm.regroup is not None:
            clients, self.cohort = algorithm.regroup(clients), Everyone()
        algorithm = hyper.of_population(algorithm, clients)
        self.algorithm, self.model, self.local, self.seed = algorithm, model, local, seed
        self.clients = clients
        self.planner = Planner(clients, local, seed)
        self._check_data()
        self.cohort.check(self.planner.able, len(clients))
        shown = self._shown()
        self.params = self._initial_params(params, shown)
        self.engine = self._fitting_engine() if engine is None else engine
        self._check_loss(shown)
        self.feed = self._fitting_feed(shown)
        self.server_side = None if server is None else ServerSide(server, seed)
        if server is not None:
            server.check(model, self.params)
        algorithm.check(self.params, local, None if server is None else server.local)
        hyper.check_population(algorithm, len(clients), algorithm.name)
        for evaluator in self.evaluators:
            evaluator.check(model, self.params, population)
        self.selection = Selection(model, clients, self.params) if select else None
        if select and not algorithm.wire.lossless:
            raise HoldfastError(
                f"select: the wire {type(algorithm.wire).__name__} changes replies, which travel in "
                f"rows; use hf.Wire().",
                about=("algorithm", "wire"),
            )
        self._prepared: dict[int, Sides] = {}
        self._ahead: tuple[int, np.ndarray, Plan] | None = None
        now = hyper.at_round(algorithm, 0)
        self.outline = outline(now, self.params)
        self.traffic = Traffic(algorithm, self.outline, len(clients), self.selection)
        everyone = isinstance(self.cohort, Everyone)
        now.check_wire(self.outline.payload, len(clients), everyone)

    def _check_data(self) -> None:
        if self._fits_on_a_device():
            check_finite(self.clients.examples, "data")  # otherwise as they are read
        if self.model.check is not None:
            self.model.check(self.clients.examples)
        if not len(self.planner.able):
            raise HoldfastError(
                f"simulate: none of the {len(self.clients)} clients has data; give at least one some.",
                about=("partition",),
            )

    def _fitting_engine(self) -> Engine:
        """All devices where a round is long enough to be shared; results do not depend on it."""
        if len(jax.devices()) == 1 or processes.count() > 1:
            return Engine()
        steps = int(self.planner.steps[self._cohort_of(0)].sum())
        return Engine() if self._operations(steps) > _WORTH_SHARING else Engine(devices=1)

    def _operations(self, steps: int) -> int:
        """A parameter costs about six per example, forwards and backwards."""
        return (
            6 * sum(int(p.size) for p in tree.leaves(self.params)) * self.planner.batch_size * steps
        )

    def _fits_on_a_device(self) -> bool:
        return nbytes(self.clients.examples) <= self.storage.device_bytes

    def _fitting_feed(self, shown: Tree) -> Feed:
        gathered = Gathered(self.clients)
        if not self._fits_on_a_device():
            return gathered
        if nbytes(shown) > _LITTLE:  # sorting clients by size is not for nothing
            most = gathered.capacity(len(self._cohort_of(0)))
            if most < _SMALL_PART * len(tree.leaves(shown)[0]):
                return gathered
        return Resident(self.engine.everywhere(shown))  # on a device already, and not copied again

    def _cohort_of(self, t: int) -> np.ndarray:
        rng = host_generator(Purpose.COHORT, self.seed, t)
        return self.cohort.draw(t, self.planner.able, rng)

    def _shown(self) -> Tree:
        """What a model may look at before the run: the examples, or the first of very many."""
        whole = self._fits_on_a_device()
        return tree.map(lambda a: jax.device_put(a if whole else a[:1]), self.clients.examples)

    def _initial_params(self, given: Tree, shown: Tree) -> Tree:
        key = jax.random.fold_in(jax.random.key(self.seed), Purpose.INIT)
        if given is None:
            return self.model.init(key, shown)
        wanted = jax.eval_shape(self.model.init, key, shown)
        params = jax.device_put(given)
        if describe_shapes(params) != describe_shapes(wanted):
            raise HoldfastError(
                f"simulate: params has {describe_shapes(params)} but the model has "
                f"{describe_shapes(wanted)}; give parameters of this model.",
                about=("params",),
            )
        return params

    def _check_loss(self, shown: Tree) -> None:
        rows = self.planner.batch_size
        batch = tree.map(lambda a: jax.ShapeDtypeStruct((rows, *a.shape[1:]), a.dtype), shown)
        key = jax.random.key(0)
        if isinstance(self.engine, DebugEngine):
            repeated = tree.map(lambda a: a[:1].repeat(rows, axis=0), shown)
            losses = self.model.losses(self.params, repeated, key)
        else:
            try:
                losses = jax.eval_shape(self.model.losses, self.params, batch, key)
            except Exception as error:  # whatever the model's library raises
                raise HoldfastError(
                    f"simulate: the model's loss cannot take a batch of {describe_shapes(batch)}: "
                    f"{str(error).splitlines()[0]} (engine=hf.DebugEngine() shows where.)",
                    about=("model",),
                ) from None
        if getattr(losses, "shape", None) != (rows,):
            raise HoldfastError(
                f"simulate: the loss of a batch of {rows} examples has shape "
                f"{getattr(losses, 'shape', None)}; return one value per example, {(rows,)}, "
                f"and leave the mean to holdfast.",
                about=("model",),
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
            rows=Rows(jax.device_get(self.outline.row), len(self.clients), self.storage),
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
                f"go on with the population it came from.",
                about=("start",),
            )
        for what in ("params", "server"):
            then, now = getattr(start, what), getattr(fresh, what)
            if signature(then) != signature(now):
                raise HoldfastError(
                    f"start: the state's {what} is {describe_shapes(then) or 'empty'}, this run's "
                    f"{describe_shapes(now) or 'empty'}; go on with the method and model it came from.",
                    about=("start",),
                )
        return dataclasses.replace(start, rows=start.rows.kept_by(self.storage))

    def draw(self, state: RunState) -> np.ndarray:
        """The clients of the next round."""
        return self._cohort_of(state.round)

    def plan(self, t: int, ids: np.ndarray) -> Plan:
        """Who goes where with which examples; a function of round and cohort alone, so made ahead."""
        known = self._ahead
        if known is None or known[0] != t or not np.array_equal(known[1], ids):
            steady = getattr(self.cohort, "steady", False)
            tiny = self._operations(steps=1) < _TINY and self.planner.largest[1] >= _MANY
            layout = self.engine.layout(len(ids), steady, self.planner.uniform, tiny)
            position, leaf = layout.arrange(self.planner.steps[ids])
            places = np.where(position < 0, -1, ids[position])
            here = self.engine.here(places)
            fed = self.feed(self.planner, t, places[here], self.engine.local_devices)
            way = Way(layout.width, self.planner.uniform, self.feed.apart)
            self._ahead = known = (t, ids, Plan(places, here, leaf[here], way, *fed))
        return known[2]

    def _plan_ahead(self, t: int) -> None:
        """The next round's plan, while this one's program runs."""
        ids = self._cohort_of(t)
        if len(ids):
            self.plan(t, ids)

    def arguments(self, state: RunState, ids: np.ndarray) -> dict[str, Any]:
        """What the next round is a function of."""
        t = state.round
        places, here, leaf, way, work, examples = self.plan(t, ids)
        rows = state.rows.stack(places)
        if here != slice(0, len(places)):
            rows = tree.map(lambda a: a[here], rows)
        shared: dict[str, Any] = {
            "algorithm": hyper.at_round(self.algorithm, t),
            "model": self.model,
            "x": state.params,
            "rows": rows,
            "examples": examples,
            "work": work,
            "key": round_key(self.seed, t),
        }
        if isinstance(self.cohort, JoinedCohort):
            shared["work"] = self._weigh_populations(self.cohort, work, places, here)
        if self.selection is not None:
            selected = self.selection.rows(places[here])
            shared["work"] = shared["work"]._replace(selected=selected)
        if self.algorithm.rule.prepares:
            shared["rows"] = self._prepare(t, state.rows, places[here], rows)
        return (
            shared
            | {
                "steps": self.local.at(t, state.params),
                "server": state.server,
                "population": float(len(self.planner.able)),
                "around": None if self.selection is None else self.selection.around,
                "leaf": leaf,
                "way": way,
            }
            | self._central(t)
        )

    def _prepare(self, t: int, known: Rows, places: np.ndarray, rows: Sides) -> Sides:
        """Rows of a cohort, those of clients in their first round prepared."""
        fresh = (places >= 0) & ~known.has(places)
        if not fresh.any():
            return rows
        work, examples = self.feed(self.planner, t, places, 1)
        # What a client prepares is a function of its data and of where the run began, not of when
        # it first takes part.
        found = self.engine.prepare(
            t,
            fresh=fresh,
            rule=hyper.at_round(self.algorithm, 0).rule,
            model=self.model,
            x=self.params,
            rows=rows.rule,
            examples=examples,
            work=work,
            key=jax.random.fold_in(jax.random.key(self.seed), Purpose.PREPARE),
        )
        self._warn_of_doubts(places, fresh, jax.device_get(found))
        return rows._replace(rule=found)

    def _warn_of_doubts(self, places: np.ndarray, fresh: np.ndarray, rows: Any) -> None:
        new = np.flatnonzero(fresh)
        doubts = {
            int(places[slot]): doubt
            for slot in new
            if (doubt := self.algorithm.rule.doubt(tree.map(lambda a, s=slot: a[s], rows)))
        }
        if doubts:
            client, doubt = next(iter(doubts.items()))
            warnings.warn(
                f"{self.algorithm.name}: the preparation of {len(doubts)} of {len(new)} clients is "
                f"unfinished, first client {client}: {doubt}.",
                HoldfastWarning,
                stacklevel=2,
            )

    def row(self, state: RunState, client: int) -> Sides:
        """One client's row as it would enter the next round, also if it never took part."""
        if client in state.rows.touched or not self.algorithm.rule.prepares:
            return state.rows[client]
        if self.clients.sizes[client] == 0:
            raise HoldfastError(
                f"client {client} has no data, so it cannot prepare a model of its own; "
                f"use the server's, run.params."
            )
        if client not in self._prepared:
            self._prepare_absent(state.rows, client)
        return self._prepared[client]

    def _prepare_absent(self, rows: Rows, client: int) -> None:
        """Prepare this client and some of the next ones, for evaluation without a round."""
        able = self.planner.able
        ids = able[np.searchsorted(able, client) :]
        ids = ids[~rows.has(ids)][:_PREPARED_TOGETHER]
        # A power of two, so that few programs are compiled.
        places = np.concatenate([ids, np.full((1 << (len(ids) - 1).bit_length()) - len(ids), -1)])
        found = jax.device_get(self._prepare(0, rows, places, rows.read(places)))
        for slot, i in enumerate(ids):
            self._prepared[int(i)] = tree.map(lambda a, slot=slot: np.array(a[slot]), found)

    def adapted(self, params: Tree, client: int, local: Local) -> Tree:
        """A model after a client's own local steps on its training data, outside any round."""
        plan = Planner(self.clients, local, self.seed, Purpose.ADAPT)
        work, examples = self.feed(plan, 0, np.array([client]), 1)
        work = tree.map(lambda a: a[0], work)
        key = jax.random.fold_in(jax.random.key(self.seed), Purpose.ADAPT)
        steps = local.at(0, params)
        return _adapted(self.model, steps, params, examples, work, key)

    def _weigh_populations(
        self, cohort: JoinedCohort, work: Work, places: np.ndarray, here: slice
    ) -> Work:
        # In the order of the clients, not of the places: a sum's bits should not tell how many devices.
        ids = np.sort(places[places >= 0])
        weight = np.ones(len(ids))
        if self.algorithm.weighting == "examples":
            weight = self.planner.weights[ids]
        elif self.algorithm.weighting == "processed":
            weight = self.planner.processed[ids]
        votes, importance = cohort.votes(ids, weight), cohort.importance(ids)
        mine = places[here]
        place = np.searchsorted(ids, np.maximum(mine, ids[0]))
        return work._replace(
            vote=np.where(mine < 0, 0.0, votes[place]),
            importance=np.where(mine < 0, 0.0, importance[place]),
        )

    def _central(self, t: int) -> dict[str, Any]:
        if self.server_side is None:
            return {}
        return self.server_side.arguments(t, self.params, self.planner.mean_size)

    def advance(self, state: RunState) -> RunState:
        """The state after one more round."""
        began, t = time.perf_counter(), state.round
        ids = self.draw(state)
        left_out, compiling = 0, 0.0
        if len(ids):  # a given schedule may name only clients without data
            arguments = self.arguments(state, ids)
            places = self.plan(t, ids).places
            known, called = compiled_programs(), time.perf_counter()
            outcome = self.engine.round(t, **arguments)
            if compiled_programs() > known:  # a call returns once there is a program, and it runs
                compiling = time.perf_counter() - called
            self._plan_ahead(t + 1)
            accepted = np.asarray(outcome.accepted)  # waits for the round to be over
            left_out = len(ids) - int(accepted.sum())
            if left_out == len(ids):
                raise RoundFailedError(
                    f"round {t + 1}: not one of {len(ids)} clients returned finite numbers. Try a "
                    f"smaller learning_rate, a clip in Local, or engine=hf.DebugEngine() to see where."
                )
            rows = state.rows.write(places, outcome.rows, accepted)
            state = dataclasses.replace(state, params=outcome.x, server=outcome.server, rows=rows)
        entry = Entry(t + 1, tuple(int(i) for i in ids), *self.traffic.of_round(state, ids))
        state = dataclasses.replace(state, round=t + 1, ledger=state.ledger.record(entry))
        seconds = time.perf_counter() - began - compiling
        row = {"round": t + 1, **self._evaluate(state)} | {
            "bytes_down": entry.bytes_down,
            "bytes_up": entry.bytes_up,
            "clients": len(ids),
            "left_out": left_out,
            "seconds": seconds,
            "compile_seconds": compiling,
        }
        return dataclasses.replace(state, history=state.history.record(row))

    def scene(self, state: RunState) -> Scene:
        """What evaluators look at."""
        now = hyper.at_round(self.algorithm, state.round)
        return Scene(self.model, now, state, self.planner.weights, self)

    def _evaluate(self, state: RunState) -> dict[str, Any]:
        scene = self.scene(state)
        measured: dict[str, Any] = {}
        for evaluator in self.evaluators:
            found = evaluator(scene) if state.round % evaluator.every == 0 else {}
            twice = sorted(found.keys() & measured.keys())
            if twice:
                raise HoldfastError(
                    f"evaluate: two evaluators both report `{twice[0]}`; give one a name, such as "
                    f'hf.evaluate.on(examples, name="validation").',
                    about=("evaluate",),
                )
            measured |= found
        return measured


def _local_steps(
    model: Model, steps: Steps, params: Tree, examples: Tree, work: Work, key: jax.Array
) -> Tree:
    nothing = Sides((), ())
    reply = client_round(Algorithm(), model, steps, params, (), nothing, examples, work, key)
    delta, _ = reply.coded
    return add(params, delta)


_adapted = jax.jit(_local_steps, static_argnames="model")


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
                f"such as {example}.",
                about=(name,),
            )
    if not isinstance(seed, int | np.integer) or not 0 <= seed < 2**31:
        raise HoldfastError(
            f"simulate: seed={seed!r}; give a whole number in 0..{2**31 - 1}.", about=("seeds",)
        )


def _as_sequence(evaluate: Any) -> tuple[Evaluator, ...]:
    if evaluate is None:
        return ()
    return tuple(evaluate) if isinstance(evaluate, list | tuple) else (evaluate,)
