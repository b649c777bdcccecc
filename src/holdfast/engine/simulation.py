"""From one state of a run to the next: plan, prepare, run the round, record, evaluate."""

import dataclasses
import functools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np

from holdfast.attacks.attack import RoundWithLiars
from holdfast.attacks.overheard import Overheard
from holdfast.client_states.states import ClientStates
from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.client import client_round
from holdfast.core.keys import Purpose, round_key
from holdfast.core.local import Local, steps_at
from holdfast.core.mean import Mean
from holdfast.core.round_types import ClientRound, RoundInputs, RoundResult
from holdfast.core.wire import OnSite
from holdfast.engine import auto_mask, choose, personal, private, private_examples, weights
from holdfast.engine.batches import BatchPlanner
from holdfast.engine.compiled import CompileTime
from holdfast.engine.experiment import Experiment
from holdfast.engine.flops import ClientWork
from holdfast.engine.jumps import Jumps
from holdfast.engine.plan import RoundPlan, RoundPlanner, draw
from holdfast.engine.prepare import Preparer
from holdfast.engine.protocol import RemoteEngine
from holdfast.engine.server import ServerPlanner
from holdfast.engine.setup import Setup, checked
from holdfast.engine.stacks import Stacks, in_place
from holdfast.engine.stopping import kept_best, noted
from holdfast.engine.traffic import Traffic
from holdfast.engine.watching import carried
from holdfast.errors import HoldfastError, RoundFailedError
from holdfast.evaluate.evaluators import Personal
from holdfast.evaluate.protocol import EvaluationView, Evaluator, ServerData
from holdfast.privacy.guarantee import Guarantee
from holdfast.record.chosen_mask import ChosenMask
from holdfast.record.history import DETAILS, History, Record, with_details
from holdfast.record.ledger import Entry, Ledger, Sent
from holdfast.record.state import RunState
from holdfast.trees import Tree, describe_shapes, float_type, nbytes, signature

# Local steps of all clients, or of each population's.
Adapt = Local | tuple[Local, ...]


def _stays(*_: Any) -> NoReturn:
    raise HoldfastError(
        "deploy: examples and what clients remember are at their sites; use hf.evaluate.on(test), or "
        "hf.evaluate.personal(tests), which sites work out.",
        about=("evaluate",),
    )


def _protected(*_: Any) -> NoReturn:
    raise HoldfastError(
        "evaluate: clients' examples are protected (ExampleLevel), and this would look at them without "
        "noise; measure it in a run without `private`.",
        about=("evaluate",),
    )


class Simulation:
    """An experiment that runs: `advance` goes from one state to the next.

    Client states that outgrow memory go to `folder`, unless the experiment's storage names another.
    """

    def __init__(
        self,
        experiment: Experiment,
        folder: Path | None = None,
        chosen_mask: ChosenMask | None = None,
    ) -> None:
        setup = checked(experiment)
        if setup.waiting is not None:
            setup = settled(setup, chosen_mask)
        if folder is not None:
            setup = dataclasses.replace(setup, storage=setup.storage.beside(folder))
        self.setup = setup
        self.experiment = experiment = setup.experiment
        self.params = setup.params
        first = draw(setup.cohort, setup.batches, experiment.seed, 0)
        self.feed = choose.choose_feed(setup.clients, setup.storage, setup.engine, first)
        self.planner = RoundPlanner(
            setup.algorithm,
            setup.cohort,
            setup.batches,
            setup.engine,
            self.feed,
            setup.selection,
            experiment.seed,
            np.dtype(float_type(setup.params)),
            choose.has_tiny_steps(setup.params, setup.batches),
            # A state that is not chosen must still be there when all replies have come.
            not setup.algorithm.mean.chooses
            and in_place(setup.engine, setup.algorithm.rule, setup.template.client),
            private.weights_of(setup.algorithm.wire, setup.batches.sizes),
        )
        self._stacks = Stacks(setup.engine) if self.planner.in_place else None
        self.preparer = Preparer(setup, self.feed)
        self._adapting: tuple[Adapt, BatchPlanner] | None = None
        self.server = None
        if experiment.server is not None:
            mean_size = setup.batches.mean_size
            self.server = ServerPlanner(experiment.server, experiment.seed, mean_size)
        # Whose clients are elsewhere, with what they remember.
        self.remote = setup.engine if isinstance(setup.engine, RemoteEngine) else None
        bounded = type(setup.algorithm.mean) is not Mean or isinstance(setup.algorithm.wire, OnSite)
        self._jumps = None if bounded else Jumps()
        self.opening = None if setup.opening is None else Simulation(setup.opening)
        count = len(setup.clients)
        self.traffic = Traffic(setup.algorithm, setup.template, count, setup.selection)

    def begin(self) -> RunState:
        """The state before the first round."""
        setup = self.setup
        kept = setup.template.client if self.remote is None else self.remote.mark
        first = jax.device_get(kept)
        return RunState(
            round=0,
            params=setup.params,
            server=setup.template.server,
            client_states=ClientStates(first, len(setup.clients), setup.storage),
            ledger=Ledger(nbytes(setup.params)),
            history=History(directions=setup.directions),
            algorithm=setup.algorithm,
            chosen_mask=setup.chosen_mask,
        )

    def go_on_from(self, start: RunState | None) -> RunState:
        """The given state, or the first; refuses one of another model, method or population."""
        fresh = self.begin()
        if start is None:
            return fresh
        if not isinstance(start, RunState):
            raise HoldfastError(
                f"start: a {type(start).__name__} is given; give the state of a run, such as run.state.",
                about=("start",),
            )
        mask = self.setup.chosen_mask
        if mask is not None and start.chosen_mask != mask:
            raise HoldfastError(
                f'start: mask="auto", and the state is of a run with '
                f"{'another' if start.chosen_mask else 'no'} chosen mask; give that run's own mask, or begin "
                f"at the first round.",
                about=("start",),
            )
        then, now = len(start.client_states), len(fresh.client_states)
        if then != now:
            raise HoldfastError(
                f"start: the state has {then} clients, the run {now}; go on with the population it "
                f"came from.",
                about=("start",),
            )
        if self.setup.account is not None:
            private.check_start(self.setup, start, self._spent)
        start = dataclasses.replace(start, server=carried(start.server, fresh.server))
        for what in ("params", "server"):
            given, wanted = getattr(start, what), getattr(fresh, what)
            if signature(given) != signature(wanted):
                raise HoldfastError(
                    f"start: the state's {what} is {describe_shapes(given) or 'empty'}, this run's "
                    f"{describe_shapes(wanted) or 'empty'}; go on with the method and model it came from.",
                    about=("start",),
                )
        kept = start.client_states.kept_by(self.setup.storage)
        stop = self.experiment.stop
        best = None if stop is None else kept_best(stop, start)
        if best is not None:
            best = best._replace(server=carried(best.server, fresh.server))
        algorithm = self.setup.algorithm
        return dataclasses.replace(
            start, client_states=kept, algorithm=algorithm, best=best, chosen_mask=mask
        )

    def inputs(self, state: RunState, plan: RoundPlan, now: Algorithm | None = None) -> RoundInputs:
        """What the next round is a function of; `now` is the algorithm with that round's numbers."""
        setup, t = self.setup, state.round
        if self._stacks is not None and plan.placement.execution.in_place:
            states = self._stacks.filled(state.client_states, plan.clients)
        else:
            states = state.client_states.stack(plan.clients, plan.here)
        here = plan.clients[plan.here]
        if self.remote is None:
            states = self.preparer.cohort(t, state.client_states, here, states)
        server = self.server
        return RoundInputs(
            model=setup.model,
            algorithm=_informed(hyper.at_round(setup.algorithm, t) if now is None else now, state),
            steps=steps_at(setup.local, t, state.params),
            x=state.params,
            server=state.server,
            client_states=states,
            slots=plan.slots,
            examples=plan.examples,
            population=float(len(setup.batches.able)),
            key=round_key(self.experiment.seed, t),
            server_work=None if server is None else server.work(t, setup.params),
            server_loss=None if server is None else server.server.objective,
            client_round=self._client_round,
            overhear=self._overhear,
            population_weights=self._population_weights,
            noise_key=setup.algorithm.wire.noise_key(self.experiment.seed, t),
        )

    def _open(self, opening: "Simulation", state: RunState) -> RunState:
        """The state after a first round of another method: its model and records, and no other state."""
        begun = dataclasses.replace(opening.begin(), params=state.params, history=state.history)
        after = opening.advance(begun)
        return dataclasses.replace(
            state, round=1, params=after.params, ledger=after.ledger, history=after.history
        )

    def advance(self, state: RunState) -> RunState:
        """The state after one more round."""
        if self.opening is not None and state.round == 0:
            return noted(self.experiment.stop, self._open(self.opening, state))
        spent = self.spent(state)
        if spent is not None:
            raise HoldfastError(f"round {state.round + 1}: {spent}.", about=("rounds",))
        began, t = time.perf_counter(), state.round
        plan, now = self.planner(t), hyper.at_round(self.setup.algorithm, t)
        if hyper.scheduled(self.setup.algorithm):
            hyper.check_ranges(now, f" in round {t + 1}", ("algorithm",))
        left_out: tuple[int, ...] = ()
        compiling = CompileTime()
        if len(plan.ids) or self.planner.private:
            self.preparer.compiling = compiling
            inputs = self.inputs(state, plan, now)
            with compiling.watch():
                result = self.setup.engine.round(t, inputs, plan.placement)
            # While it runs, the next round is planned.
            homes = state.client_states.homes_after(plan.clients, plan.here)
            coming = self.planner.ahead(t + 1, homes)
            state.client_states.read_ahead(coming.clients, coming.here, plan.ids)
            # Waits for the round to be over.
            accepted = np.asarray(result.accepted)
            left_out = tuple(np.setdiff1d(plan.ids, plan.clients[accepted]).tolist())
            # Whether anybody came, or was left out, must not show in what is released.
            if len(left_out) == len(plan.ids) and not self.planner.private:
                raise RoundFailedError(
                    f"round {t + 1}: not one of {len(plan.ids)} clients returned finite numbers. Try a "
                    f"smaller learning_rate, a clip in Local, or engine=hf.DebugEngine() to see where."
                )
            kept = state.client_states.write(plan.clients, result.client_states, accepted)
            if self._stacks is not None and plan.placement.execution.in_place:
                self._stacks.hand_back(result.client_states)
            if self._jumps is not None:
                self._jumps.look(t + 1, state.params, result.x)
            state = dataclasses.replace(
                state, params=result.x, server=result.server, client_states=kept
            )
        cohort = tuple(int(i) for i in plan.ids)
        bits_down, bits_up = self.traffic.of_round(now, state, plan.ids)
        told: Record = {}
        less = _made_less_of(plan.clients, result) if len(plan.ids) else {}
        if self.remote is not None:
            bits_down, bits_up = self.remote.counted(plan.ids, bits_down, bits_up)
            told = self.remote.facts(plan.ids)
        entry = Entry(t + 1, cohort, bits_down, bits_up, left_out, self._sent(t + 1))
        state = dataclasses.replace(state, round=t + 1, ledger=state.ledger.record(entry))
        seconds = time.perf_counter() - began - compiling.seconds
        measured = self._evaluate(state)
        details: Record = {}
        for found in (measured, less, told):
            details |= found.pop(DETAILS, {})
        if details:
            measured[DETAILS] = details
        record = {"round": t + 1, **measured} | {
            "bytes_down": entry.bytes_down,
            "bytes_up": entry.bytes_up,
            "models": state.ledger.relative(entry),
            "clients": len(plan.ids),
            "left_out": len(left_out) - less.get("unselected", 0),
            **told,
            **less,
            **self._accounted(state),
            "seconds": seconds,
            "compile_seconds": compiling.seconds,
        }
        state = dataclasses.replace(state, history=state.history.record(record))
        return noted(self.experiment.stop, state)

    def spent(self, state: RunState) -> str | None:
        """Why there is no further round after this state, if a budget of privacy is spent."""
        account = self.setup.account
        return None if account is None else account.spent(self._spent.so_far(state))

    def privacy(self, state: RunState) -> Guarantee | None:
        """What is guaranteed after this state, and the noise it took."""
        setup = self.setup
        if setup.account is None:
            return None
        count = self._spent.so_far(state)
        if setup.account.scheme.kind == "example":
            noise = private_examples.noise_in_step(setup.local, setup.batches)
            return setup.account.guarantee(count, *noise)
        return private.guarantee(setup.algorithm.wire, setup.account, count)

    def _accounted(self, state: RunState) -> dict[str, float]:
        account = self.setup.account
        return {} if account is None else {"epsilon": account.at_most(self._spent.so_far(state))}

    @functools.cached_property
    def _spent(self) -> private.Spent:
        assert self.setup.account is not None
        each = np.ones(len(self.setup.clients), int)
        if self.setup.account.scheme.kind == "example":
            each = self.setup.batches.passes
        return private.Spent(self.setup.account, each)

    def _sent(self, round: int) -> tuple[Sent, ...]:
        """What travels for what is measured after this round; nothing where all data is in one place."""
        if self.setup.algorithm.regroup is not None:
            return ()
        due = [e for e in self.setup.evaluators if round % e.every == 0]
        return tuple(sent for e in due for sent in getattr(e, "sent", ()))

    def view(self, state: RunState) -> EvaluationView:
        """What evaluators look at."""
        setup, t = self.setup, state.round
        # With what costs nothing until it is asked for: some look at every round, however short.
        now = functools.cache(lambda: hyper.at_round(setup.algorithm, t))
        view = EvaluationView(
            model=self.experiment.model,
            state=state,
            weights=self._weights,
            votes=self._votes,
            weights_of=self._weights_of,
            personal=lambda client, adapt=setup.adapt: self._personal(now(), state, client, adapt),
            adapted=lambda params, client, local: self._adapted(t, params, client, local),
            coming_cohort=lambda: self.planner(t).clients,
            data_of=lambda clients: self.feed(setup.batches, t, clients, 1),
            server_data=lambda: self._server_data(t),
            flops_of=lambda clients: self._work.of_clients(t - 1, clients),
            coming_key=lambda: round_key(self.experiment.seed, t),
        )
        if self.remote is not None:
            view = view._replace(personal=_stays, adapted=_stays, data_of=_stays)
        elif setup.account is not None and setup.account.scheme.kind == "example":
            view = view._replace(adapted=_protected, data_of=_protected)
        return view

    @functools.cached_property
    def deploys_server_model(self) -> bool:
        """Whether every client uses the server's model as it is, but for local steps of its own."""
        setup = self.setup
        now, first = hyper.at_round(setup.algorithm, 0), setup.template
        return personal.deploys_server_model(
            now, setup.params, first.server.rule, first.client.rule
        )

    @functools.cached_property
    def _client_round(self) -> ClientRound | None:
        """What a client runs, if it is not `client_round`."""
        selection, attack = self.setup.selection, self.experiment.attack
        found = None if selection is None else selection.client_round
        if attack is None or not attack.on_replies:
            return found
        return RoundWithLiars(attack, self.setup.liars, found or client_round)

    @functools.cached_property
    def _overhear(self) -> Overheard | None:
        """What liars find out of a round before it, if they do."""
        selection, attack = self.setup.selection, self.experiment.attack
        if attack is None or not attack.conspires:
            return None
        honest = client_round if selection is None else selection.client_round
        return Overheard(attack, self.setup.liars, honest)

    @functools.cached_property
    def _population_weights(self) -> np.ndarray | None:
        populations = self.setup.clients.populations
        return None if populations is None else np.asarray(populations.weights)

    @functools.cached_property
    def _work(self) -> ClientWork:
        return ClientWork(self.setup)

    @functools.cached_property
    def _weights(self) -> np.ndarray:
        """How much each client's delta would count if everybody took part."""
        able = self.setup.batches.able
        found = np.zeros(len(self.setup.clients))
        found[able] = self._weights_of(able)
        return found

    def _weights_of(self, ids: np.ndarray) -> np.ndarray:
        setup = self.setup
        return weights.of_cohort(setup.algorithm.weighting, setup.batches, ids).delta

    def _votes(self, ids: np.ndarray) -> np.ndarray:
        setup = self.setup
        return weights.of_cohort("uniform", setup.batches, ids).delta

    def _server_data(self, t: int) -> ServerData | None:
        if self.server is None:
            return None
        server, rows = self.server.server, None
        if not server.alone:
            few = server.gradient_batch_size
            rows = np.arange(server.size) if few is None else self.server.gradient_rows(t)
        return ServerData(server.objective, self.server.examples, rows)

    def _personal(self, now: Algorithm, state: RunState, client: int, adapt: Adapt | None) -> Tree:
        """The model one client would use; `now` is the algorithm with the state's round's numbers."""
        count = len(self.setup.clients)
        if not isinstance(client, int | np.integer) or not 0 <= client < count:
            raise HoldfastError(
                f"personal: client={client!r}; give a number in 0..{count - 1}.", about=("client",)
            )
        found = state.params
        if not self.deploys_server_model:
            mine = self.preparer.state_of(state.client_states, client).rule
            server = state.server.rule
            found = personal.compiled_deployed_model(now, state.params, server, mine, client)
        return found if adapt is None else self._adapted(state.round, found, client, adapt)

    def _adapted(self, t: int, params: Tree, client: int, local: Adapt) -> Tree:
        """A model after a client's own local steps on its training data, outside any round; as it is
        without data. A step size that changes over rounds is that of the coming one."""
        if self.setup.clients.sizes[client] == 0:
            return params
        model, seed = self.experiment.model, self.experiment.seed
        steps, batches = steps_at(local, t, params), self._batches_to_adapt(local)
        return personal.adapted(model, steps, self.feed, batches, seed, params, client)

    def _batches_to_adapt(self, local: Adapt) -> BatchPlanner:
        # One planner for all clients of an evaluation: it knows all their sizes.
        if self._adapting is None or self._adapting[0] is not local:
            seed = self.experiment.seed
            self._adapting = local, BatchPlanner(self.setup.clients, local, seed, Purpose.ADAPT)
        return self._adapting[1]

    def measure_start(self) -> Record:
        """What is measured of the model before the first round, by evaluators that say they can.

        It is in no history, since that has one record per round, and no round depends on it.
        """
        # What clients prepare is theirs from their first round on, and may take long.
        prepares = self.setup.algorithm.rule.traits.prepares
        able = [e for e in self.setup.evaluators if getattr(e, "at_start", False)]
        asked = [e for e in able if not (prepares and isinstance(e, Personal))]
        return self._evaluate(self.begin(), asked)

    def _evaluate(
        self, state: RunState, evaluators: Sequence[Evaluator] | None = None
    ) -> dict[str, Any]:
        several = self.setup.evaluators if evaluators is None else evaluators
        due = [e for e in several if state.round % e.every == 0]
        view = self.view(state) if due else None
        measured: dict[str, Any] = {}
        for evaluator in due:
            assert view is not None
            found = evaluator(view)
            if not isinstance(found, dict):
                raise HoldfastError(
                    f"evaluate: {type(evaluator).__name__} returned a {type(found).__name__}; return a "
                    f"dictionary of what it measured, such as {{'error': 0.1}}.",
                    about=("evaluate",),
                )
            twice = sorted(found.keys() & measured.keys())
            if twice:
                raise HoldfastError(
                    f"evaluate: two evaluators both report `{twice[0]}`; give one a name, such as "
                    f'hf.evaluate.on(examples, name="validation").',
                    about=("evaluate",),
                )
            measured |= found
        return with_details(measured)


def _made_less_of(clients: np.ndarray, result: RoundResult) -> Record:
    """How many replies the server bounded or did not select, and whose; nothing where it does neither."""
    found: Record = {}
    for name, whose in (
        ("bounded", result.seen.bounded),
        ("unselected", result.seen.unselected),
    ):
        if not isinstance(whose, tuple):
            some = np.sort(clients[np.asarray(whose) & (clients >= 0)])
            found |= {name: len(some), f"{name}_clients": some}
    return with_details(found)


def _informed(now: Algorithm, state: RunState) -> Algorithm:
    """The algorithm of a round, with what its wire takes from the server's state."""
    wire = now.wire.informed(state.server.wire)
    return now if wire is now.wire else dataclasses.replace(now, wire=wire)


def chosen_mask(experiment: Experiment, order: Sequence[str] | None = None) -> ChosenMask:
    """What a method that waits for a mask chooses after a first round; layers in the order of the model
    unless given."""
    watching = Simulation(auto_mask.watching(experiment))
    return auto_mask.chosen(experiment, watching.advance(watching.begin()), order)


def settled(setup: Setup, chosen: ChosenMask | None) -> Setup:
    """The setup with the mask of a run that has begun, or that its first round chooses."""
    experiment = setup.experiment
    # Found once: the answer stays with the experiment, as its setup does.
    known: dict[str, Any] = vars(experiment)
    chosen = chosen or known.get("_chosen_mask")
    if chosen is None:
        chosen = known["_chosen_mask"] = chosen_mask(experiment)
    found = checked(auto_mask.settled(experiment, chosen))
    return dataclasses.replace(found, waiting=setup.waiting, chosen_mask=chosen)
