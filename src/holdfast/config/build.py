"""From a checked experiment file to the objects of a run."""

import dataclasses
import re
from typing import Any

import jax
import numpy as np
from jax import tree

from holdfast import evaluate
from holdfast.client_states.storage import Storage
from holdfast.config import schema, sweep
from holdfast.config.file import ExperimentFile, ExperimentFileError, KeyPath
from holdfast.config.making import key_named, make, make_local, named, placed, speaks_of
from holdfast.config.population import load_dataset, make_model, make_server, population
from holdfast.core.algorithm import Algorithm
from holdfast.core.local import Local
from holdfast.data import Clients, Dataset
from holdfast.engine.compiled import Engine
from holdfast.engine.experiment import Experiment
from holdfast.engine.server import Server
from holdfast.engine.simulate import pretrain
from holdfast.errors import HoldfastError, did_you_mean
from holdfast.metrics import greater_is_better
from holdfast.models import Model
from holdfast.sweeps.naming import folder_name, label
from holdfast.trees import Tree


@dataclasses.dataclass(frozen=True)
class Method:
    """One entry of `[[algorithm]]`, or one point of `[sweep]` of it."""

    label: str
    algorithm: Algorithm
    local: Local
    server: Server | None
    of: str  # the label without the point
    swept: sweep.SweptMethod

    @property
    def at(self) -> KeyPath:
        """Where it stands in the file."""
        return self.swept.at

    @property
    def folder(self) -> str:
        """A name for its files."""
        return folder_name(self.label) or "method"


@dataclasses.dataclass(frozen=True)
class Plan:
    """An experiment file, built: everything `simulate` needs, for every method and seed."""

    file: ExperimentFile
    name: str
    rounds: int
    seeds: tuple[int, ...]
    target: float | None
    metric: str
    dataset: Dataset
    clients: Clients
    tests: Clients  # every client's own test examples
    model: Model
    cohort: Any
    evaluators: tuple[Any, ...]
    pretrain: int
    select: bool
    checkpoint_every: int
    checkpoint_keep: int
    engine: Engine | None
    storage: Storage
    methods: tuple[Method, ...]

    @property
    def server(self) -> Server | None:
        """What the server has of its own; how it trains may differ between points of a sweep."""
        return self.methods[0].server

    @property
    def data_name(self) -> str:
        """What the file calls its data."""
        given = self.file.values["data"]
        return str(given if isinstance(given, str) else given["name"])

    @property
    def has_labels(self) -> bool:
        """Whether examples belong to classes, by which a split can be shown."""
        labels = np.asarray(self.clients.examples.y)
        return labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer)

    def arguments(self, method: Method, seed: int) -> dict[str, Any]:
        """The arguments of `simulate` that a method and a seed share with `Experiment`."""
        return {
            "algorithm": method.algorithm,
            "model": self.model,
            "clients": self.clients,
            "local": method.local,
            "cohort": self.cohort,
            "evaluate": self.evaluators,
            "seed": seed,
            "params": self._start(method, seed),
            "server": method.server,
            "select": self.select,
            "engine": self.engine,
            "storage": self.storage,
        }

    def _start(self, method: Method, seed: int) -> Tree:
        if not self.pretrain or method.server is None:
            return None
        return pretrain(self.model, method.server, self.pretrain, seed)


def outline(file: ExperimentFile) -> Any:
    """The file's sections, every name and argument in them checked; no data is touched."""
    found: Any = schema.check(file, (), schema.Outline, file.values)
    sections = [("data",), ("partition",), ("model",), ("cohort",)]
    for at in sections:
        named(file, at, at[0], getattr(found, at[0]))
    for swept in sweep.swept_methods(file, found.sweep, found.algorithm):
        named(swept.file, swept.at, "algorithm", swept.table)
    return found


def plan(file: ExperimentFile) -> Plan:
    """Build everything, and refuse what cannot work with the line it stands on."""
    outlined = outline(file)
    dataset = load_dataset(file, ("data",), outlined.data)
    server_data, clients, tests = population(file, outlined, dataset)
    model = make_model(file, outlined.model, dataset)
    methods = _methods(file, outlined, server_data)
    made = Plan(
        file=file,
        name=outlined.name or file.path.stem,
        rounds=outlined.rounds,
        seeds=_seeds(file, outlined.seeds),
        target=outlined.target,
        metric="",
        dataset=dataset,
        clients=clients,
        tests=tests,
        model=model,
        cohort=make(file, ("cohort",), "cohort", outlined.cohort),
        evaluators=_evaluators(outlined.evaluate, dataset, clients, tests),
        pretrain=0 if outlined.server is None else outlined.server.pretrain,
        select=outlined.select,
        checkpoint_every=outlined.checkpoint.every,
        checkpoint_keep=outlined.checkpoint.keep,
        engine=_section(file, "engine", Engine, outlined.engine),
        storage=_section(file, "storage", Storage, outlined.storage),
        methods=methods,
    )
    if outlined.evaluate.every > made.rounds:
        raise file.error(
            ("evaluate", "every"),
            f"`every` is {outlined.evaluate.every} with {made.rounds} rounds, so nothing would be "
            f"measured; give at most {made.rounds}.",
        )
    metric = _metric(file, outlined.metric, _try_out(made))
    if made.target is not None:
        with placed(file, ("metric",)):
            greater_is_better(metric, model.greater_is_better)
    return dataclasses.replace(made, metric=metric)


def _section(file: ExperimentFile, name: str, make: Any, given: Any) -> Any:
    if given is None:
        return None
    try:
        return make(**given.model_dump())
    except HoldfastError as error:
        raise file.error((name,), str(error)) from None


def _seeds(file: ExperimentFile, seeds: int | list[int]) -> tuple[int, ...]:
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if len(set(chosen)) != len(chosen):
        raise file.error(("seeds",), f"seeds are {list(chosen)}; give each once.")
    return chosen


def _methods(file: ExperimentFile, outlined: Any, server_data: Any) -> tuple[Method, ...]:
    names = [t["name"] for t in outlined.algorithm]
    methods = [
        _method(swept, outlined, server_data, repeated=names.count(swept.table["name"]) > 1)
        for swept in sweep.swept_methods(file, outlined.sweep, outlined.algorithm)
    ]
    folders = [m.folder for m in methods]
    for i, method in enumerate(methods):
        if folders.index(method.folder) != i:
            raise file.error(
                method.at, f"two algorithms are called `{method.label}`; give one another `label`."
            )
    return tuple(methods)


def _method(swept: sweep.SweptMethod, outlined: Any, server_data: Any, repeated: bool) -> Method:
    file, at, table = swept.file, swept.at, swept.table
    with placed(file, ("local",)):
        shared = make_local(file, ("local",), swept.local)
    algorithm = make(file, at, "algorithm", table)
    if not isinstance(algorithm, Algorithm):
        raise file.error(
            at, f"`{table['name']}` made a {type(algorithm).__name__}, no hf.Algorithm."
        )
    if "wire" in table:
        wire = make(file, (*at, "wire"), "wire", schema._a_table(table["wire"]))
        with placed(file, (*at, "wire")):
            algorithm = dataclasses.replace(algorithm, wire=wire)
    own = table.get("local") or {}
    where = (*at, "local") if own else ("local",)
    of = table.get("label") or _label(swept.unswept, repeated)
    return Method(
        label=f"{of} {label(swept.values)}" if swept.values else of,
        algorithm=algorithm,
        local=make_local(file, where, _over(swept.local, own)),
        server=make_server(file, outlined, server_data, shared),
        of=of,
        swept=swept,
    )


def _over(shared: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """A method's own local training over what all share: its `steps` replace `epochs`, and back."""
    hidden = {sweep.INSTEAD[name] for name in own if name in sweep.INSTEAD}
    return {n: v for n, v in shared.items() if n not in hidden} | own


def _label(table: dict[str, Any], repeated: bool) -> str:
    name = str(table["name"]).rpartition(":")[2]
    settings = {n: v for n, v in table.items() if n not in ("name", "local")}
    if not repeated or not settings:
        return name
    return f"{name} " + " ".join(f"{n}={_brief(v)}" for n, v in settings.items())


def _brief(value: Any) -> str:
    return "-".join(map(str, value.values())) if isinstance(value, dict) else str(value)


def _evaluators(
    section: Any, dataset: Dataset, clients: Clients, tests: Clients
) -> tuple[Any, ...]:
    every = section.every
    chosen: list[Any] = [evaluate.on(dataset.test, every)]
    if section.average:
        chosen.append(evaluate.client_average(dataset.test, every))
    if section.train:  # a copy of the data, made only if it is asked for
        everything = tree.map(lambda a: np.asarray(a)[clients.order], clients.examples)
        chosen.append(evaluate.on(everything, every, name="train"))
        if section.average:
            chosen.append(evaluate.client_average(everything, every, name="train"))
    if section.personal:
        chosen.append(evaluate.personal(tests, every))
    return tuple(chosen)


# Where in the file to look, by how a message of the library begins or what it speaks of.
_SPOKEN_OF = (
    (r"^cohort", ("cohort",)),
    (r"^(data|labels|x:|y:)", ("data",)),
    (r"^Local|learning_rate", ("local",)),
    (r"^(simulate: the model|the model)", ("model",)),
    (r"^evaluate", ("data",)),
    (r"^Server", ("server",)),
    (r"clients has data|^partition", ("partition",)),
)


def _try_out(made: Plan) -> list[str]:
    """Put every method together once, so that nothing is refused after the first has run."""
    measured: list[str] = []
    for method in made.methods:
        try:
            experiment = Experiment(**made.arguments(method, made.seeds[0]))
        except HoldfastError as error:
            raise _blame(method, str(error)) from None
        if not measured:
            batch = tree.map(lambda a: a[:1], made.dataset.test)
            measured = list(jax.eval_shape(made.model.measure, experiment.params, batch))
    return measured


def _blame(method: Method, message: str) -> ExperimentFileError:
    file = method.swept.file
    if "simulate(server=" in message:
        message = re.sub(r"give simulate\(server=.*\)", "add [server] with examples = 500", message)
    for changed in method.swept.changed:
        if speaks_of(message, str(changed[-1])):
            return file.error(changed, message)
    for pattern, section in _SPOKEN_OF:
        if re.search(pattern, message) and section in file.lines:
            return file.error(key_named(file, section, message), message)
    return file.error(method.at, message)


_PREFIXES = {
    ("train",): "train_",
    ("average",): "average_",
    ("train", "average"): "train_average_",
    ("personal",): "personal_",
}


def _metric(file: ExperimentFile, asked: str | None, measured: list[str]) -> str:
    if asked is None:
        return "accuracy" if "accuracy" in measured else "loss"
    section = file.values.get("evaluate", {})
    names = list(measured)
    for switches, prefix in _PREFIXES.items():
        if all(section.get(switch) for switch in switches):
            names += [prefix + name for name in measured]
    if asked not in names:
        raise file.error(("metric",), f"`{asked}` is not measured; {did_you_mean(asked, names)}")
    return asked
