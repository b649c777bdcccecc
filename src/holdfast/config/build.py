"""From a checked experiment file to the objects of a run."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

import jax

from holdfast.attacks import Attack
from holdfast.client_states.storage import Storage, machine_memory
from holdfast.config import evaluation, schema, splits, sweep
from holdfast.config.file import ExperimentFile, ExperimentFileError, KeyPath
from holdfast.config.joined import Federation, federation, metric_names
from holdfast.config.making import (
    fitting,
    located,
    make,
    make_local,
    make_metric,
    make_plain,
    named,
)
from holdfast.config.schema import FileSchema
from holdfast.config.sections import sections as checked_sections
from holdfast.config.server import AtServer, at_server, learns_at_server, pretrains
from holdfast.config.sweep import over
from holdfast.config.theory import asks_theory, by_theory
from holdfast.config.validation import early_stopping
from holdfast.core.algorithm import Algorithm
from holdfast.core.keys import host_key
from holdfast.core.local import Local
from holdfast.core.wire import OnSite
from holdfast.data import Clients, Dataset, share
from holdfast.data.grouped import OfPopulation
from holdfast.data.split.table import has_classes
from holdfast.engine.choose import is_worth_sharing, operations_of_round
from holdfast.engine.compiled import CompiledEngine
from holdfast.engine.experiment import Experiment
from holdfast.engine.objective import adapts_by, averages_over
from holdfast.engine.plan import draw
from holdfast.engine.role import role
from holdfast.engine.server import Server
from holdfast.engine.setup import Setup, checked
from holdfast.engine.stopping import EarlyStopping
from holdfast.errors import About, HoldfastError
from holdfast.evaluate.evaluators import Personal
from holdfast.evaluate.protocol import declared_by
from holdfast.metrics import Metric, greater_is_better
from holdfast.metrics.metric import Directions, check_target
from holdfast.models import Model
from holdfast.privacy import Banded, ExampleLevel, Gaussian, LocalGaussian, Quantile
from holdfast.record.identity import digest
from holdfast.rules import AdaptiveClip
from holdfast.sweeps.naming import folder_name, label
from holdfast.trees import Tree

# Operations in the time it takes to measure a small model, which is mostly overhead.
_ONE_MORE_MODEL = 2e6


@dataclasses.dataclass(frozen=True)
class Method:
    """One entry of `[[algorithm]]`, or one point of `[sweep]` of it."""

    label: str
    algorithm: Algorithm
    local: Local | tuple[Local, ...]
    at_server: AtServer
    of: str  # the label without the point
    swept: sweep.SweptMethod

    @property
    def at(self) -> KeyPath:
        """Where it stands in the file."""
        return self.swept.at

    @property
    def server(self) -> Server | None:
        """What the server has of its own, and how it trains in this method."""
        return self.at_server.server

    @property
    def adapt(self) -> str:
        """The local steps after which clients use a model, in words; empty without."""
        return adapts_by(self.algorithm, self.local)

    @property
    def folder(self) -> str:
        """A name for its files."""
        return folder_name(self.label) or "method"


@dataclasses.dataclass(frozen=True)
class Study:
    """An experiment file, built: everything `simulate` needs, for every method and seed."""

    file: ExperimentFile
    name: str
    rounds: int
    seeds: tuple[int, ...]
    target: float | None
    metric: str
    window: int
    datasets: tuple[Dataset, ...]  # one, or one for each population
    clients: Clients
    tests: Clients  # every client's own test examples
    model: Model
    cohort: Any
    evaluators: tuple[Any, ...]
    metrics: tuple[Metric, ...]  # of whole test sets
    stop: EarlyStopping | None
    attack: Attack | None
    select: bool
    checkpoint_every: int
    checkpoint_keep: int
    engine: CompiledEngine | None
    storage: Storage
    methods: tuple[Method, ...]
    # Experiments that were put together when the file was checked, until they run.
    _made: dict[tuple[str, int], Experiment] = dataclasses.field(default_factory=dict)
    # What each method's objective is a mean over, by its label.
    objectives: dict[str, str] = dataclasses.field(default_factory=dict)
    # What each method is in the comparison, by its label: `federated`, `alone`, ...
    roles: dict[str, str] = dataclasses.field(default_factory=dict)
    # Operations of a method's round, of its clients' local steps and of measuring, by its label.
    operations: dict[str, float] = dataclasses.field(default_factory=dict)
    # How many runs of a method may go side by side, where what they keep in memory is a limit, by its label.
    most_at_once: dict[str, int] = dataclasses.field(default_factory=dict)
    # Draws of the split that the study is repeated on, and which of them this is; none where it is one.
    splits: tuple[int, ...] = ()
    split: int | None = None
    # Test rows per training row, where every draw has test rows of its own.
    tested_per_trained: float | None = None

    @property
    def server(self) -> Server | None:
        """What the server has of its own; how it trains may differ between methods."""
        return self.methods[0].server

    @property
    def test_sets(self) -> list[Any]:
        """The test set, or each population's own."""
        tests = [dataset.test for dataset in self.datasets]
        if self.clients.populations is None:
            return tests
        return [OfPopulation(examples, p) for p, examples in enumerate(tests)]

    @property
    def directions(self) -> Directions:
        """Which way metrics are better, as the model and evaluators declare it."""
        return declared_by(self.model, self.evaluators)

    @property
    def data_name(self) -> str:
        """What the file calls its data."""
        given = self.file.values["data"]
        return str(given if isinstance(given, str) else given["name"])

    @property
    def label_names(self) -> tuple[str, ...] | None:
        """What classes are called, if all populations call them the same."""
        found = {dataset.label_names for dataset in self.datasets}
        return found.pop() if len(found) == 1 else None

    @property
    def table(self) -> dict[str, Any]:
        """What the file says of the files its data is in: label, columns, separator and the like."""
        given = self.file.values["data"]
        return {} if isinstance(given, str) else dict(given)

    @property
    def measures_clients(self) -> bool:
        """Whether every client's own model is measured as training goes on."""
        return any(isinstance(e, Personal) and not e.name for e in self.evaluators)

    @property
    def has_labels(self) -> bool:
        """Whether examples belong to classes, by which a split can be shown."""
        return has_classes(self.clients)

    @functools.cached_property
    def _sharing(self) -> Clients:
        """The clients with the server's examples appended to each one's own."""
        assert self.server is not None
        return share(self.clients, self.server.source)

    def of_split(self, number: int | None) -> "Study":
        """The same study on another draw of its split; itself where there is one."""
        if number == self.split:
            return self
        assert number is not None
        found = _of_one_draw(splits.of(self.file, sections(self.file), number), True)
        return dataclasses.replace(
            found,
            file=self.file,
            splits=self.splits,
            split=number,
            tested_per_trained=self.tested_per_trained,
        )

    @property
    def shares_rounds(self) -> bool:
        """Whether most of the work is rounds that several devices share, or the file says that they do."""
        if self.engine is not None:
            return self.engine.devices != 1
        long = [n for n in self.operations.values() if is_worth_sharing(n)]
        return 2 * sum(long) > sum(self.operations.values())

    @property
    def runs(self) -> int:
        """How many runs it is: methods times splits times seeds."""
        return len(self.methods) * max(1, len(self.splits)) * len(self.seeds)

    def experiment(self, method: Method, seed: int) -> Experiment:
        """What `simulate` runs for a method and a seed; made and checked once."""
        known = self._made.pop((method.label, seed), None)
        return self._make(method, seed) if known is None else known

    def _make(self, method: Method, seed: int, pretrained: bool = True) -> Experiment:
        before = method.at_server.pretraining if pretrained else None
        made = Experiment(
            method.algorithm,
            self.model,
            self._sharing if method.at_server.data_sharing else self.clients,
            method.local,
            cohort=self.cohort,
            evaluate=self.evaluators,
            seed=seed,
            params=None if before is None else before.start(self.model, seed),
            server=method.server,
            select=self.select,
            engine=self.engine,
            storage=self.storage,
            stop=self.stop,
            attack=self.attack,
        )
        return by_theory(made, method.swept.table, pretrained)


def sections(file: ExperimentFile) -> FileSchema:
    """What the file has, every name and argument in it checked; no data is touched."""

    def check(file: ExperimentFile, at: KeyPath, kind: str, table: dict[str, Any]) -> None:
        if kind == "metric":
            make_metric(file, at, table)
        else:
            named(file, at, kind, table)

    found = checked_sections(file, check)
    evaluation.set_metrics(file, found.evaluate)
    return found


def study(file: ExperimentFile, pretrained: bool = True) -> Study:
    """Build everything, and refuse what cannot work with the line it stands on.

    To look at a file, `pretrained=False` leaves out training before the first round. Of a file that asks
    for several draws of its split all are built once, and the first is returned.
    """
    numbers = splits.numbers(file, given := sections(file))
    if not numbers:
        return _of_one_draw(file, pretrained)
    first = _of_one_draw(splits.of(file, given, numbers[0]), pretrained)
    first = dataclasses.replace(first, file=file)
    if len(numbers) == 1:
        return first
    whole, tests = digest(first.clients.contents), digest(first.test_sets)
    redrawn = True
    for number in numbers[1:]:
        other = _of_one_draw(splits.of(file, given, number), pretrained=False)
        own_rows = digest(other.test_sets) != tests
        if not own_rows and digest(other.clients.contents) == whole:
            key = "repeats" if "repeats" in given.partition else "splits"
            raise file.error(
                ("partition", key),
                f"split {number} is the same as split {numbers[0]}: neither the partition nor the test rows "
                f"are drawn by a seed; leave `{key}` out.",
            )
        redrawn = redrawn and own_rows
    trained = int(first.clients.sizes.sum())
    tested = sum(len(dataset.test.y) for dataset in first.datasets)
    ratio = tested / trained if redrawn else None
    return dataclasses.replace(first, splits=numbers, split=numbers[0], tested_per_trained=ratio)


def _of_one_draw(file: ExperimentFile, pretrained: bool) -> Study:
    given = sections(file)
    trained = federation(file, given)
    model, clients, tests = trained.model, trained.clients, trained.tests
    methods = methods_of(file, given, trained)
    made = Study(
        file=file,
        name=given.name or folder_name(file.path.stem) or "experiment",
        rounds=given.rounds,
        seeds=_seeds(file, given.seeds),
        target=given.target,
        metric="",
        window=given.window,
        datasets=trained.datasets,
        clients=clients,
        tests=tests,
        model=model,
        cohort=trained.cohort,
        evaluators=(
            *evaluation.evaluators(file, given.evaluate, trained, [m.algorithm for m in methods]),
            *evaluation.of_sets(file, given, trained, methods),
        ),
        metrics=evaluation.set_metrics(file, given.evaluate),
        stop=None,
        attack=(
            make(file, ("attack",), "attack", given.attack) if given.attack is not None else None
        ),
        select=given.select,
        checkpoint_every=given.checkpoint.every,
        checkpoint_keep=given.checkpoint.keep,
        engine=_section(file, "engine", CompiledEngine, given.engine),
        storage=_section(file, "storage", Storage, given.storage),
        methods=methods,
    )
    _check_due(file, given)
    evaluations = made.rounds // given.evaluate.every
    if made.window > evaluations:
        raise file.error(
            ("window",),
            f"`window` is {made.window}, and {made.rounds} rounds have {evaluations} evaluations, so no "
            f"mean of {made.window} would be there; give at most {evaluations}.",
        )
    measured = _try_out(made, pretrained)
    own = any(made.roles[m.label] in ("alone", "personal") for m in methods)
    metric = metric_of(file, given, measured, made.evaluators, own and made.measures_clients)
    if made.target is not None:
        with located(file, ("metric",)):
            greater_is_better(metric, made.directions)
        with located(file, ()):
            check_target(metric, made.target, made.directions)
    names = evaluation.columns(measured, made.evaluators)
    stop = stop_of(file, given, metric, names, own, bool(trained.validation))
    made = dataclasses.replace(made, metric=metric, stop=stop)
    if stop is not None:
        # Now that it is known by what is chosen, once more with it.
        made._made.clear()
        _try_out(made, pretrained)
    return made


def metric_of(
    file: ExperimentFile,
    given: FileSchema,
    measured: list[str],
    evaluators: Sequence[Any],
    by_clients: bool,
) -> str:
    """What methods are compared by; `by_clients`: some leave clients a model of their own, and it is
    measured."""
    asked = given.metric
    if asked is None and by_clients:
        # What a method deploys is what it is judged by.
        asked = f"personal_{'accuracy' if 'accuracy' in measured else 'loss'}"
    return evaluation.metric(file, asked, measured, evaluators)


def stop_of(
    file: ExperimentFile,
    given: FileSchema,
    metric: str,
    names: list[str],
    own: bool,
    has_validation: bool,
) -> EarlyStopping | None:
    """What ends a run early, of methods that are compared by this metric; `own`: some leave clients a model
    of their own."""
    # Also where the file compares by the server's model, rounds are chosen by what clients use.
    alone = own and not metric.startswith(("personal_", "validation_"))
    chosen = f"personal_{metric}" if alone else metric
    return early_stopping(file, given.evaluate, chosen, names, has_validation)


def _check_due(file: ExperimentFile, given: FileSchema) -> None:
    """Refuse evaluations that no round is due for."""
    places: list[tuple[KeyPath, int]] = [(("evaluate", "every"), given.evaluate.every)]
    for number, table in enumerate(given.evaluate.also):
        places.append((("evaluate", "also", number, "every"), table.get("every", 1)))
    if given.conformal is not None and given.conformal.every is not None:
        places.append((("conformal", "every"), given.conformal.every))
    for at, every in places:
        if every > given.rounds:
            raise file.error(
                at,
                f"`every` is {every} with {given.rounds} rounds, so nothing would be measured; give at "
                f"most {given.rounds}.",
            )


def _section(file: ExperimentFile, name: str, make: Any, given: Any) -> Any:
    if given is None:
        return None
    with located(file, (name,)):
        return make(**given.model_dump())


def _seeds(file: ExperimentFile, seeds: int | list[int]) -> tuple[int, ...]:
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if len(set(chosen)) != len(chosen):
        raise file.error(("seeds",), f"seeds are {list(chosen)}; give each once.")
    return chosen


def methods_of(file: ExperimentFile, given: FileSchema, trained: Federation) -> tuple[Method, ...]:
    """The methods of a file, made."""
    names = [t["name"] for t in given.algorithm]
    methods = [
        _method(swept, trained, repeated=names.count(swept.table["name"]) > 1)
        for swept in sweep.swept_methods(file, given.sweep, given.algorithm, _trains_server)
    ]
    folders = [m.folder for m in methods]
    for i, method in enumerate(methods):
        if folders.index(method.folder) != i:
            raise file.error(
                method.at, f"two algorithms are called `{method.label}`; give one another `label`."
            )
    return tuple(methods)


def labels_of(given: FileSchema) -> list[str]:
    """What the methods of a file without a sweep are called."""
    names = [table["name"] for table in given.algorithm]
    return [
        table.get("label") or _label(table, names.count(table["name"]) > 1)
        for table in given.algorithm
    ]


def _algorithm(swept: sweep.SweptMethod) -> Algorithm:
    """What an entry names, with the clip and the wire it has besides."""
    file, at, table = swept.file, swept.at, swept.table
    known = {"populations": len(file.values.get("population", ())) or None}
    algorithm: Algorithm = make(file, at, "algorithm", table, known)
    if "adaptive_clip" in table:
        inside = (*at, "adaptive_clip")
        clip = make_plain(file, inside, AdaptiveClip, table["adaptive_clip"])
        with located(file, inside):
            algorithm = clip.beside(algorithm)
    if "wire" in table:
        wire = make(file, (*at, "wire"), "wire", schema.as_table(table["wire"]))
        with located(file, at):
            algorithm = dataclasses.replace(algorithm, wire=wire)
    if "aggregate" in table:
        inside = (*at, "aggregate")
        mean = make(file, inside, "aggregate", schema.as_table(table["aggregate"]))
        with located(file, inside):
            algorithm = dataclasses.replace(algorithm, aggregate=mean)
    return _private(file, algorithm)


def _private(file: ExperimentFile, algorithm: Algorithm) -> Algorithm:
    """The method with the noise that `[privacy]` asks for; as it is where nothing travels."""
    if "privacy" not in file.values or isinstance(algorithm.wire, OnSite):
        return algorithm
    at, given = _privacy(file)
    if given.pop("unit", "client") == "example":
        return algorithm
    local = given.pop("noise", "central") == "local"
    for key in (
        "max_examples",
        "mean_examples",
        "quantile",
        "correlated",
        "secret",
        "rounds",
    ):
        if local and key in given:
            raise file.error(
                (*at, key), f'privacy: `{key}` is for noise = "central"; leave it out.'
            )
    if not local and "replies" in given:
        raise file.error(
            (*at, "replies"), 'privacy: `replies` is for noise = "local"; give `rounds`.'
        )
    if "noise_multiplier" not in given or "correlated" in given:
        # What the noise is found for is known before the run.
        given.setdefault("replies" if local else "rounds", file.values["rounds"])
    if "secret" in given:
        given["secret"] = str(file.found(given["secret"]))
    with located(file, at):
        if local:
            return LocalGaussian(**given).beside(algorithm)
        quantile = Quantile(**given.pop("quantile")) if "quantile" in given else None
        correlated = Banded(**given.pop("correlated")) if "correlated" in given else None
        return Gaussian(**given, quantile=quantile, correlated=correlated).beside(algorithm)


def _privacy(file: ExperimentFile) -> tuple[KeyPath, dict[str, Any]]:
    """Where `[privacy]` stands, and what it says."""
    at: KeyPath = ("privacy",)
    found: Any = schema.check(file, at, schema.PrivacySection, file.values["privacy"])
    return at, found.model_dump(exclude_unset=True)


def _protecting_examples(
    file: ExperimentFile, algorithm: Algorithm, local: Local | tuple[Local, ...]
) -> Local | tuple[Local, ...]:
    """Local training with the noise that `[privacy]` asks for examples; as it is where nothing travels."""
    if "privacy" not in file.values or isinstance(algorithm.wire, OnSite):
        return local
    at, given = _privacy(file)
    if given.pop("unit", "client") != "example":
        return local
    taken = ("clip", "delta", "epsilon", "noise_multiplier", "rounds", "accountant")
    for key in given:
        if key not in taken:
            raise file.error((*at, key), f'privacy: `{key}` is for unit = "client"; leave it out.')
    if "noise_multiplier" not in given:
        given.setdefault("rounds", file.values["rounds"])
    with located(file, at):
        private = ExampleLevel(**given)
    if isinstance(local, Local):
        return dataclasses.replace(local, private=private)
    return tuple(dataclasses.replace(own, private=private) for own in local)


def _trains_server(swept: sweep.SweptMethod) -> bool:
    """Whether it matters to a method how the server trains."""
    return learns_at_server(_algorithm(swept)) or pretrains(swept)


def _method(swept: sweep.SweptMethod, trained: Federation, repeated: bool) -> Method:
    file, at, table = swept.file, swept.at, swept.table
    algorithm = _algorithm(swept)
    own = table.get("local") or {}
    where = (*at, "local") if own else ("local",)
    algorithm = _adapting(swept, algorithm, over(swept.local, own))
    of = table.get("label") or _label(swept.unswept, repeated)
    return Method(
        label=f"{of} {label(swept.values)}" if swept.values else of,
        algorithm=algorithm,
        local=_protecting_examples(file, algorithm, trained.local(file, where, swept.local, own)),
        at_server=_at_server(swept, algorithm, trained),
        of=of,
        swept=swept,
    )


def _adapting(swept: sweep.SweptMethod, algorithm: Algorithm, local: dict[str, Any]) -> Algorithm:
    """With local steps before a client uses a model, if the file has something to say on that."""
    file, at = swept.file, swept.at
    where: KeyPath = (*at, "adapt") if "adapt" in swept.table else ("evaluate", "adapt")
    wanted = swept.table.get("adapt", file.values.get("evaluate", {}).get("adapt"))
    if wanted is None:
        return algorithm
    if isinstance(wanted, dict):  # what it does not say is as in training
        wanted = make_local(file, where, over(local, wanted))
    with located(file, where[:-1]):
        return dataclasses.replace(algorithm, adapt=wanted)


def _at_server(swept: sweep.SweptMethod, algorithm: Algorithm, trained: Federation) -> AtServer:
    found = at_server(swept, algorithm, trained.server_data)
    if found.data_sharing and trained.clients.populations is not None:
        own = "data_sharing" in (swept.table.get("server") or {})
        raise swept.file.error(
            (*(swept.at if own else ()), "server", "data_sharing"),
            "`data_sharing` appends the server's examples to every client's, and populations have losses of "
            "their own; leave it out.",
        )
    return found


def _label(table: dict[str, Any], repeated: bool) -> str:
    name = _in_one_line(str(table["name"]).rpartition(":")[2])
    settings = {n: v for n, v in table.items() if n not in ("name", "local", "server", "adapt")}
    if not repeated or not settings:
        return name
    return _in_one_line(f"{name} " + " ".join(f"{n}={_brief(v)}" for n, v in settings.items()))


def _in_one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def _brief(value: Any) -> str:
    return "-".join(map(str, value.values())) if isinstance(value, dict) else str(value)


def _try_out(made: Study, pretrained: bool) -> list[str]:
    """Put every method together once, so that nothing is refused after the first has run."""
    measured: list[str] = []
    for method in made.methods:
        try:
            with fitting(method.swept.file, method.at):
                if not measured:
                    _check_size(made)
                experiment = made._make(method, made.seeds[0], pretrained)
                setup = checked(experiment)
        except ExperimentFileError:
            raise
        except HoldfastError as error:
            raise method.swept.file.error(_location(method, error.about), str(error)) from None
        if pretrained or not (method.at_server.pretraining or asks_theory(method.swept.table)):
            made._made[method.label, made.seeds[0]] = experiment
        made.objectives[method.label] = averages_over(setup)
        made.roles[method.label] = role(setup)
        made.operations[method.label] = _operations(made, method, setup)
        if setup.most_at_once:
            made.most_at_once[method.label] = setup.most_at_once
        if not measured:
            measured = _names(made, setup.params)
    return measured


def _operations(made: Study, method: Method, setup: Setup) -> float:
    """Of a round, more or less: by this the longest runs begin first."""
    cohort = draw(setup.cohort, setup.batches, made.seeds[0], 0)
    found = operations_of_round(setup.params, setup.batches, cohort)
    own = made.roles[method.label] in ("alone", "personal") and made.measures_clients
    return found + (_ONE_MORE_MODEL * len(made.clients) if own else 0)


def _check_size(made: Study) -> None:
    """Refuse a model that no array of this machine could hold, which XLA would abort the process for."""
    examples = made.clients.examples
    made.model.check_examples(examples, "simulate", ("data",))
    shapes = jax.eval_shape(made.model.init, host_key(0), examples)
    size = sum(math.prod(a.shape) * a.dtype.itemsize for a in jax.tree.leaves(shapes))
    room = machine_memory()
    if size > room:
        raise HoldfastError(
            f"the model's parameters are {size / 1e9:,.0f} GB, and this machine has {room / 1e9:,.0f} GB; "
            f"give it smaller sizes.",
            about=("model",),
        )


def _names(made: Study, params: Tree) -> list[str]:
    """What is measured of every test set."""
    each = [metric_names(made.model, params, tests) for tests in made.test_sets]
    return [name for name in each[0] if all(name in other for other in each)]


def _location(method: Method, about: About) -> KeyPath:
    """Where the file has what an error of a run is about; the method itself if it has it nowhere."""
    values, own = method.swept.file.values, method.swept.table
    if about[:1] == ("algorithm",):
        return (*method.at, *about[1:])
    if len(about) > 1 and _has(own, about):
        return (*method.at, *about)
    if about[:1] == ("stop",):
        section = values.get("evaluate", {})
        return "evaluate", next((k for k in ("choose_by", "keep") if k in section), "patience")
    if about[:2] == ("server", "local") and "local" not in values.get("server", {}):
        about = about[1:]  # the server trains as clients do
    return about if about and about[0] in values else method.at


def _has(table: Any, at: KeyPath) -> bool:
    """Whether a table has a key in tables within it."""
    for key in at:
        if not isinstance(table, dict) or key not in table:
            return False
        table = table[key]
    return True
