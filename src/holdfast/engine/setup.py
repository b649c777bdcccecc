"""An experiment, checked: everything that can be refused is refused here, before the first round."""

import dataclasses
import json
from typing import Any

import jax
import numpy as np
from jax import tree

from holdfast import processes
from holdfast.aggregates import NormBounded
from holdfast.attacks import Attack
from holdfast.client_states.storage import Storage
from holdfast.cohorts import Cohort, Everyone
from holdfast.conformal import Conformal
from holdfast.core import auto_mask as waiting
from holdfast.core import hyper
from holdfast.core.algorithm import NOTHING_OWN, Algorithm
from holdfast.core.keys import Purpose, host_key
from holdfast.core.local import Local, steps_at
from holdfast.core.mean import Mean
from holdfast.core.rule import Need, parts_of
from holdfast.core.template import Template, template
from holdfast.core.wire import OnSite
from holdfast.data.clients import Clients, Examples, check_finite
from holdfast.engine import auto_mask, choose, private, private_examples, select_trial
from holdfast.engine.batches import BatchPlanner
from holdfast.engine.compiled import CompiledEngine
from holdfast.engine.debug import DebugEngine
from holdfast.engine.experiment import Experiment
from holdfast.engine.joined_model import counting
from holdfast.engine.plan import draw
from holdfast.engine.populations import JoinedCohort
from holdfast.engine.protocol import Engine
from holdfast.engine.select import Selection
from holdfast.engine.server import Server
from holdfast.engine.slips import meant
from holdfast.engine.stopping import EarlyStopping
from holdfast.engine.watching import unwatched, watched
from holdfast.errors import HoldfastError, brief, expect
from holdfast.evaluate.protocol import Evaluator, declared_by
from holdfast.metrics.metric import Directions
from holdfast.models.model import Model
from holdfast.origin import of_traced_value, place
from holdfast.privacy.guarantee import Account
from holdfast.record.chosen_mask import ChosenMask
from holdfast.record.identity import describe, digest
from holdfast.record.state import RunState
from holdfast.rules.drift_diversity import DriftDiversity
from holdfast.trees import Tree, describe_shapes, nbytes

# Bytes of a model; the many experiments of a file or a sweep are checked before the first of them runs.
_KEPT = 4 * 10**6


@dataclasses.dataclass(frozen=True, eq=False)
class Setup:
    """What an experiment comes to: its own values, and what follows from them."""

    experiment: Experiment
    # With one number per client where it asks the clients' data, and with what evaluators have beside it.
    algorithm: Algorithm
    model: Model  # with losses that count as much as they do beside the server's
    clients: Clients  # as the method groups them
    cohort: Cohort
    evaluators: tuple[Evaluator, ...]
    storage: Storage
    batches: BatchPlanner
    params: Tree
    engine: Engine
    selection: Selection | None
    template: Template
    opening: Experiment | None  # of the first round, if another method takes it
    adapt: Local | tuple[Local, ...] | None  # steps from the server's model to what a client uses
    # The algorithm that waits for a mask, if one does: `algorithm` is what it became, or before that is
    # known with every parameter masked.
    waiting: Algorithm | None = None
    chosen_mask: ChosenMask | None = None
    # Clients that lie, if the experiment has an attack.
    liars: tuple[int, ...] = ()
    # How clients train, with the noise of their steps, if there is any.
    local: Local | tuple[Local, ...] = ()
    account: Account | None = None  # of privacy, where the wire or local steps keep it

    @property
    def method(self) -> Algorithm:
        """The algorithm without what evaluators have beside it."""
        return unwatched(self.algorithm)

    def identity(self) -> dict[str, str]:
        """What makes this run this run, in words."""
        given = self.experiment
        opened = {}
        # Which mask it chooses, and so all after its first round, follows from the rest.
        if given.first_round is not None and self.waiting is None:
            opened["first round"] = describe(given.first_round)
        if given.attack is not None:
            opened["attack"] = f"{describe(given.attack)} by {self.liars}"
        if given.stop is not None:
            opened["early stopping"] = describe(given.stop)
        return (
            opened
            | {
                "algorithm": describe(self.waiting or self.method),
                "model": f"{describe(given.model)} with {describe_shapes(self.params)}",
                "local training": describe(given.local),
                "data": digest(self.clients.contents),
                "seed": str(given.seed),
                "initial parameters": digest(self.params),
                "cohort": describe(self.cohort),
                "evaluation": describe(self.evaluators)
                + ("" if self.adapt is None else f" after {describe(self.adapt)}"),
                "select": str(self.selection is not None),
                "server": describe(given.server),
            }
            | self._populations()
            | self._preprocessing()
        )

    def _preprocessing(self) -> dict[str, str]:
        """What new rows go through: two that agree on these examples need not on others."""
        found = self.clients.preprocessing
        return {} if found is None else {"preprocessing": json.dumps(found.to_dict())}

    def _populations(self) -> dict[str, str]:
        found = self.clients.populations
        if found is None:
            return {}
        return {"populations": f"{found.names} with weights {found.weights}, {digest(found.of)}"}

    @property
    def most_at_once(self) -> int:
        """How many runs like this one may go side by side by what they keep in memory; 0: any number."""
        stop = self.experiment.stop
        kept = 0 if stop is None else stop.kept_bytes(self.template.client, len(self.clients))
        return max(1, self.storage.machine_bytes // kept) if kept else 0

    @property
    def directions(self) -> Directions:
        """Which way metrics are better, as the model and evaluators declare it."""
        return declared_by(self.experiment.model, self.evaluators)

    @property
    def locals(self) -> tuple[Local, ...]:
        """How clients train: one for all, or one for each population."""
        return (self.local,) if isinstance(self.local, Local) else self.local


def algorithm_of(experiment: Experiment, state: RunState) -> Algorithm:
    """What the states of a run of this experiment are of."""
    if state.chosen_mask is not None:
        experiment = auto_mask.settled(experiment, state.chosen_mask)
    return checked(experiment).algorithm


def locals_of(given: Experiment) -> tuple[Local, ...]:
    """How clients train: one for all, or one for each population."""
    return (given.local,) if isinstance(given.local, Local) else tuple(given.local)


def checked(experiment: Experiment) -> Setup:
    """Refuse what cannot work. Done once: the answer stays with the experiment, if it is not large."""
    known: dict[str, Any] = vars(experiment)
    found: Setup = known.get("_setup") or _checked(experiment)
    if nbytes(found.params) <= _KEPT:
        known["_setup"] = found
    return found


def _checked(given: Experiment) -> Setup:
    _check_types(given)
    asked = given
    if waiting.asks(given.algorithm):
        given = auto_mask.opened(given)
    storage = Storage() if given.storage is None else given.storage
    evaluators = _as_sequence(given.evaluate)
    clients, cohort = given.clients, given.cohort
    liars: tuple[int, ...] = ()
    if given.attack is not None:
        liars = _liars(given, given.attack)
        clients = given.attack.poisoned(clients, liars)
    if given.algorithm.regroup is not None:
        clients, cohort = given.algorithm.regroup(clients), Everyone()
    cohort = Everyone() if cohort is None else cohort
    # No round depends on how clients adapt, and programs are the same with and without.
    own = given.local if isinstance(given.local, Local) else tuple(given.local)
    adapt = own if given.algorithm.adapt is True else given.algorithm.adapt or None
    algorithm = hyper.of_population(dataclasses.replace(given.algorithm, adapt=False), clients)
    asking = algorithm if given is not asked else None
    if given.first_round is not None:
        algorithm = dataclasses.replace(algorithm, wire=algorithm.wire.beginning(1))
    batches = BatchPlanner(clients, given.local, given.seed)
    fits = choose.fits_on_a_device(clients, storage)
    _check_data(given.model, batches, fits)
    algorithm, cohort, account = private.settled(
        given, algorithm, cohort, batches, asking is not None
    )
    local, of_examples = private_examples.settled(given, batches)
    if of_examples is not None and account is not None:
        raise HoldfastError(
            f"{algorithm.name}: Local has `private` and the wire adds noise too, each with an account of its "
            f"own, and a run has one; leave one of them out.",
            about=("local", "private"),
        )
    account = account or of_examples
    cohort.check(batches.able, len(clients))
    examples = _shown(clients, fits)
    params = _initial_params(given, examples)
    if asking is not None:
        auto_mask.layers_of(given, params)
        algorithm = auto_mask.pretended(algorithm, params)
    first = draw(cohort, batches, given.seed, 0)
    engine = given.engine or given.model.engine or choose.choose_engine(params, batches, first)
    _check_engine(given, engine, params)
    _check_loss(given.model, params, examples, batches.batch_size, engine)
    private_examples.check_experiment(
        given, of_examples is not None, adapt, asking is not None, engine
    )
    server_local = None
    if given.server is not None:
        given.server.check(given.model, params)
        server_local = given.server.local
        if given.server.alone:
            algorithm.refuse(
                Need.SERVER_EXAMPLES,
                "its loss is of the parameters alone; give hf.Server(examples, local=...)",
                about=("server",),
            )
    for own_local in (local,) if isinstance(local, Local) else local:
        algorithm.check(params, own_local, server_local)
    hyper.check_population(algorithm, len(clients), algorithm.name)
    if adapt is not None:
        steps_at(adapt, 0, params)  # refuses momentum on leaves that are not there
    for evaluator in evaluators:
        evaluator.check(given.model, params, len(given.clients))
        if isinstance(evaluator, Conformal):
            evaluator.check_untrained(
                given.clients, None if given.server is None else given.server.source
            )
        if algorithm.regroup is not None and getattr(evaluator, "adapt", None) is not None:
            raise HoldfastError(f"{algorithm.name}: {NOTHING_OWN}.", about=("evaluate",))
    now = hyper.at_round(algorithm, 0)
    # What a function of a client's examples or a schedule comes to.
    hyper.check_ranges(now, above=("algorithm",))
    selection = _selection(given, algorithm, clients, params) if given.select else None
    count = 1 if clients.populations is None else len(clients.populations)
    _check_gathering(algorithm, count, engine)
    if given.attack is not None:
        _check_conspiring(given.attack, engine)
    algorithm = watched(algorithm, evaluators, count)
    now = hyper.at_round(algorithm, 0)
    begun = template(now, params, any(e.keeps_last_models for e in evaluators))
    everyone = isinstance(cohort, Everyone) or (
        isinstance(cohort, JoinedCohort) and cohort.everyone
    )
    now.check_wire(begun.payload, len(clients), everyone)
    if of_examples is not None:
        private_examples.check_method(now, begun, params)
        private_examples.check_loss(given.model, params, examples)
        private_examples.check_evaluators(evaluators)
    _check_populations(algorithm, clients, everyone)
    if given.stop is not None:
        declared = declared_by(given.model, evaluators)
        given.stop.check(given.model, params, given.clients.examples, evaluators, declared)
        given.stop.check_room(begun.client, len(clients), storage)
    opening = None
    if given.first_round is not None:
        opening = dataclasses.replace(
            given, algorithm=given.first_round, first_round=None, stop=None
        )
        checked(opening)
    return Setup(
        experiment=asked,
        algorithm=algorithm,
        model=_counting(given.model, algorithm, clients),
        clients=clients,
        cohort=cohort,
        evaluators=evaluators,
        storage=storage,
        batches=batches,
        params=params,
        engine=engine,
        selection=selection,
        template=begun,
        opening=opening,
        adapt=adapt,
        waiting=asking,
        liars=liars,
        local=local,
        account=account,
    )


def _liars(given: Experiment, attack: Attack) -> tuple[int, ...]:
    """Who lies; refused where nobody could, or where an attack cannot be put."""
    if isinstance(given.algorithm.wire, OnSite):
        raise HoldfastError(
            f"{given.algorithm.name}: attack is {type(attack).__name__}, and nothing travels in this method "
            f"that could be a lie; leave it out.",
            about=("attack",),
        )
    if given.clients.populations is not None and not attack.on_replies:
        raise HoldfastError(
            f"simulate: {type(attack).__name__} changes labels, and joined populations have examples of "
            f"their own kinds; use an attack on replies, such as hf.attacks.SignFlip.",
            about=("attack",),
        )
    name = type(attack).__name__
    if attack.conspires and given.clients.populations is not None:
        raise HoldfastError(
            f"simulate: {name} takes means over all honest replies, and joined populations have replies of "
            f"their own kinds; use hf.attacks.SignFlip.",
            about=("attack",),
        )
    if attack.on_replies and not given.algorithm.wire.hears_each:
        raise HoldfastError(
            f"{given.algorithm.name}: {type(attack).__name__} changes replies, and the wire "
            f"{type(given.algorithm.wire).__name__} sends differences to what both sides remember; use "
            f"hf.wires.Compressed, or hf.attacks.LabelFlip.",
            about=("attack",),
        )
    framework = given.model.engine is not None or (
        given.engine is not None and not isinstance(given.engine, CompiledEngine | DebugEngine)
    )
    if attack.on_replies and framework:
        raise HoldfastError(
            f"simulate: {type(attack).__name__} changes replies within a round of hf.Engine or "
            f"hf.DebugEngine, and this run has another engine; use hf.attacks.LabelFlip.",
            about=("attack",),
        )
    return attack.liars(given.clients, int(given.seed))


def _selection(
    given: Experiment, algorithm: Algorithm, clients: Clients, params: Tree
) -> Selection:
    if not algorithm.wire.lossless:
        raise HoldfastError(
            f"select: the wire {type(algorithm.wire).__name__} changes replies, which travel in rows; use "
            f"hf.Wire().",
            about=("algorithm", "wire"),
        )
    if type(algorithm.mean) not in (Mean, NormBounded):
        raise HoldfastError(
            f"select: {type(algorithm.mean).__name__} looks at table rows that clients are not sent; use "
            f"hf.aggregates.NormBounded, or leave out select.",
            about=("algorithm", "aggregate"),
        )
    selection = Selection(given.model, clients, params)
    server = None if given.server is None else given.server.local
    tried = [
        select_trial.check(algorithm, params, local, server, given.model.tables, len(clients))
        for local in locals_of(given)
    ]
    selection.shares_norm = any(tried)
    return selection


def _check_gathering(algorithm: Algorithm, populations: int, engine: Engine) -> None:
    """Refuse a mean that keeps all replies where they are not all in one place, or of one kind."""
    mean = algorithm.mean
    if mean.gathers and populations > 1:
        raise HoldfastError(
            f"{algorithm.name}: {type(mean).__name__} compares replies, and those of {populations} "
            f"populations count by weights of their own; use hf.aggregates.NormBounded.",
            about=("algorithm", "aggregate"),
        )
    if mean.one_device and isinstance(engine, CompiledEngine) and engine.mesh.size > 1:
        raise HoldfastError(
            f"{algorithm.name}: {type(mean).__name__} would round by how many devices there are, and "
            f"there are {engine.mesh.size}; give engine=hf.Engine(devices=1), or [engine] devices = 1.",
            about=("algorithm", "aggregate"),
        )
    if mean.gathers and processes.count() > 1:
        raise HoldfastError(
            f"{algorithm.name}: {type(mean).__name__} needs all replies in one place, and this run has "
            f"{processes.count()} processes; use one, or hf.aggregates.NormBounded.",
            about=("algorithm", "aggregate"),
        )


def _check_conspiring(attack: Attack, engine: Engine) -> None:
    """Refuse liars who look at all replies where those are not all in one place."""
    if attack.conspires and isinstance(engine, CompiledEngine) and engine.mesh.size > 1:
        raise HoldfastError(
            f"simulate: {type(attack).__name__} would round by how many devices there are, and there are "
            f"{engine.mesh.size}; give engine=hf.Engine(devices=1), or [engine] devices = 1.",
            about=("attack",),
        )


def _counting(model: Model, algorithm: Algorithm, clients: Clients) -> Model:
    """The clients' losses on one scale with the server's, where it has one that the method learns from."""
    populations = clients.populations
    learns = Need.SERVER_DATA in algorithm.rule.traits.needs
    if populations is None or not learns or populations.total == 1:
        return model
    return counting(model, populations.total)


def _check_populations(algorithm: Algorithm, clients: Clients, everyone: bool) -> None:
    """Refuse what would weigh populations otherwise than the objective does."""
    needs, weighting = algorithm.rule.traits.needs, algorithm.weighting
    if Need.EVEN_WEIGHTS in needs and weighting != "uniform" and not everyone:
        raise HoldfastError(
            f"{algorithm.name}: it needs {Need.EVEN_WEIGHTS.value}, but weighting is {weighting!r}; give "
            f"weighting='uniform', or let everyone take part.",
            about=("algorithm", "weighting"),
        )
    count = 1 if clients.populations is None else len(clients.populations)
    told_apart = algorithm.rule.traits.populations
    if told_apart not in (None, count):
        raise HoldfastError(
            f"{algorithm.name}: populations={told_apart}, and the clients are of {count}; give as many as "
            f"hf.join has put together.",
            about=("algorithm", "populations"),
        )
    for part in parts_of(algorithm.rule):
        if isinstance(part, DriftDiversity) and count > 1 and not part.populations:
            raise HoldfastError(
                f"{algorithm.name}: DriftDiversity would count clients by the weights of their {count} "
                f"populations; give it populations=True, or evaluate=hf.diagnose.drift() in its place.",
                about=("algorithm", "populations"),
            )
    central = Need.PLAIN_SERVER_STEPS in algorithm.rule.traits.needs
    if count > 1 and Need.EVEN_RATES in algorithm.rule.traits.needs and not everyone:
        raise HoldfastError(
            f"{algorithm.name}: it needs {Need.EVEN_RATES.value}, since its mean over clients would count "
            f"populations by how many take part; let everyone take part"
            + (f", or use population_transfer({count}, central=...)." if central else "."),
            about=("cohort",),
        )
    if count > 1 and not algorithm.wire.hears_each and not everyone:
        raise HoldfastError(
            f"{algorithm.name}: the wire {type(algorithm.wire).__name__} keeps one mean of all clients, "
            f"which would drift where populations take part at rates of their own; let everyone take part, "
            f"or use hf.wires.Compressed or ErrorFeedback.",
            about=("algorithm", "wire"),
        )


def _check_data(model: Model, batches: BatchPlanner, fits: bool) -> None:
    clients = batches.clients
    # What does not fit is checked as it is read.
    if fits:
        check_finite(clients.examples, "data")
    model.check_examples(clients.examples, "simulate", ("data",))
    if not len(batches.able):
        raise HoldfastError(
            f"simulate: none of the {len(clients)} clients has data; give at least one some.",
            about=("partition",),
        )


def _shown(clients: Clients, fits: bool) -> Tree:
    """What a model may look at before the run: the examples on a device, or the first of very many."""
    return tree.map(lambda a: jax.device_put(a if fits else a[:1]), clients.examples)


def _initial_params(given: Experiment, examples: Tree) -> Tree:
    key = host_key(given.seed, Purpose.INIT)
    if given.params is None:
        return given.model.init(key, examples)
    wanted = jax.eval_shape(given.model.init, key, examples)
    try:
        # An array of NumPy's could be used where it is, and be written to later.
        params = tree.map(
            lambda p: p if isinstance(p, jax.Array) else jax.device_put(p, may_alias=False),
            given.params,
        )
    except TypeError:
        raise HoldfastError(
            f"simulate: params is {brief(given.params)}, which are no arrays; give parameters of this "
            f"model, such as run.params.",
            about=("params",),
        ) from None
    if describe_shapes(params) != describe_shapes(wanted):
        raise HoldfastError(
            f"simulate: params has {describe_shapes(params)} but the model has "
            f"{describe_shapes(wanted)}; give parameters of this model.",
            about=("params",),
        )
    return params


def _check_engine(given: Experiment, engine: Engine, params: Tree) -> None:
    """Refuse what this engine cannot run, in its own words if it has any."""
    check = getattr(engine, "check", None)
    if check is not None:
        check(given, params)
    elif given.model.engine is not None and isinstance(engine, CompiledEngine):
        raise HoldfastError(
            f"simulate: another framework computes {given.model.name}, and a CompiledEngine makes one "
            f"program of a round; leave engine out.",
            about=("engine",),
        )


def _check_loss(model: Model, params: Tree, examples: Tree, rows: int, engine: Engine) -> None:
    batch = tree.map(lambda a: jax.ShapeDtypeStruct((rows, *a.shape[1:]), a.dtype), examples)
    key = host_key(0)
    if isinstance(engine, DebugEngine):
        repeated = tree.map(lambda a: a[:1].repeat(rows, axis=0), examples)
        losses = model.losses(params, repeated, key)
    else:
        try:
            # The function itself: JAX remembers what it has traced, and a study's methods share a model.
            losses = jax.eval_shape(model.loss, params, batch, key)
        # Whatever the model's library raises.
        except Exception as error:
            asked, where = of_traced_value(error), place(error)
            at = "engine=hf.DebugEngine() shows where." if where is None else f"Raised by {where}."
            raise asked or HoldfastError(
                f"simulate: the model's loss cannot take a batch of {describe_shapes(batch)}: "
                f"{(str(error) or type(error).__name__).splitlines()[0]} ({at})",
                about=("model",),
            ) from None
    if getattr(losses, "shape", None) != (rows,):
        raise HoldfastError(
            f"simulate: the loss of a batch of {rows} examples has shape "
            f"{getattr(losses, 'shape', None)}; return one value per example, {(rows,)}, "
            f"and leave the mean to holdfast.",
            about=("model",),
        )


def _check_types(given: Experiment) -> None:
    if given.first_round is not None:
        expect(
            "simulate",
            "first_round",
            given.first_round,
            Algorithm,
            "hf.algorithms.flix_one_shot(...)",
        )
    expected = (
        ("algorithm", given.algorithm, Algorithm, "hf.algorithms.fedavg()"),
        ("model", given.model, Model, "hf.models.mlp([64], classes=10)"),
        ("clients", given.clients, Clients, "hf.data.partition.iid(train, clients=10)"),
        *(("local", local, Local, "hf.Local(learning_rate=0.1)") for local in _given_locals(given)),
    )
    for name, value, kind, example in expected:
        if not isinstance(value, kind):
            raise HoldfastError(
                f"simulate: {name} is a {type(value).__name__}; give a {kind.__name__}, "
                f"such as {example}.",
                about=(name,),
            )
    _check_locals(given)
    seed = given.seed
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    if not whole or not 0 <= seed < 2**31:
        raise HoldfastError(
            f"simulate: seed={seed!r}; give a whole number in 0..{2**31 - 1}.", about=("seeds",)
        )
    if given.server is not None:
        expect("simulate", "server", given.server, Server, "hf.Server(data, hf.Local(0.1))")
    if given.attack is not None:
        expect("simulate", "attack", given.attack, Attack, "hf.attacks.SignFlip(share=0.2)")
    if given.stop is not None:
        example = 'hf.EarlyStopping("validation_accuracy", patience=10)'
        expect("simulate", "stop", given.stop, EarlyStopping, example)
    if given.storage is not None:
        expect("simulate", "storage", given.storage, Storage, 'hf.Storage(memory="8 GB")')
    _check_protocols(given)


def _check_protocols(given: Experiment) -> None:
    """What may be of anybody's class, as long as it has what is asked of it."""
    evaluators = ("every", "keeps_last_models", "check", "__call__")
    expected = [
        (
            "cohort",
            given.cohort,
            ("check", "draw"),
            "one of hf.cohorts, such as hf.cohorts.fixed(10)",
        ),
        ("engine", given.engine, ("layout", "round"), "an engine, such as hf.Engine(devices=2)"),
        *(
            (
                "evaluate",
                evaluator,
                evaluators,
                "one or several of hf.evaluate, such as hf.evaluate.on(test)",
            )
            for evaluator in _as_sequence(given.evaluate) or (None,)
        ),
    ]
    several = given.evaluate is not None
    for name, value, members, wanted in expected:
        if value is None and not (name == "evaluate" and several):
            continue
        if isinstance(value, type) or not all(hasattr(value, member) for member in members):
            raise HoldfastError(
                f"simulate: {name}={brief(value)} is a {type(value).__name__}; "
                f"{meant(name, value) or f'give {wanted}'}.",
                about=(name,),
            )
    if not isinstance(given.select, bool | np.bool_):
        raise HoldfastError(
            f"simulate: select={given.select!r}; give True or False.", about=("select",)
        )


def _given_locals(given: Experiment) -> tuple[Any, ...]:
    return tuple(given.local) if isinstance(given.local, tuple | list) else (given.local,)


def _check_locals(given: Experiment) -> None:
    """Refuse several local trainings where they are not one for each population."""
    populations = given.clients.populations
    several = 1 if populations is None else len(populations)
    if not isinstance(given.local, Local) and len(given.local) != several:
        raise HoldfastError(
            f"simulate: local has {len(given.local)} entries for {several} populations; give one hf.Local "
            f"for all clients, or one for each population that hf.join put together.",
            about=("local",),
        )


def _as_sequence(evaluate: Any) -> tuple[Evaluator, ...]:
    if evaluate is None:
        return ()
    # Examples are a tuple too, and no evaluators.
    several = isinstance(evaluate, list | tuple) and not isinstance(evaluate, Examples)
    return tuple(evaluate) if several else (evaluate,)
