"""From a checked experiment file to the objects of a run."""

import contextlib
import dataclasses
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
from jax import tree

from holdfast import catalogue, evaluate
from holdfast.algorithm import Algorithm
from holdfast.config import schema
from holdfast.config.file import ExperimentFile, ExperimentFileError, KeyPath
from holdfast.data import Clients, Dataset, Examples
from holdfast.data.held_out import like
from holdfast.data.partition.natural import natural
from holdfast.engine.experiment import Experiment
from holdfast.engine.simulate import pretrain
from holdfast.errors import HoldfastError, did_you_mean
from holdfast.hyper import PerClient
from holdfast.local import Local
from holdfast.models import Model, augmented
from holdfast.server import Server
from holdfast.trees import Tree


@dataclasses.dataclass(frozen=True)
class Method:
    """One entry of `[[algorithm]]`."""

    label: str
    algorithm: Algorithm
    local: Local
    at: KeyPath

    @property
    def folder(self) -> str:
        """A name for its files."""
        return re.sub(r"[^\w.=-]+", "-", self.label).strip("-") or "method"


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
    server: Server | None
    pretrain: int
    select: bool
    checkpoint_every: int
    checkpoint_keep: int
    methods: tuple[Method, ...]

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
            "params": self._start(seed),
            "server": self.server,
            "select": self.select,
        }

    def _start(self, seed: int) -> Tree:
        if not self.pretrain or self.server is None:
            return None
        return pretrain(self.model, self.server, self.pretrain, seed)


def outline(file: ExperimentFile) -> Any:
    """The file's sections, every name and argument in them checked; no data is touched."""
    found: Any = schema.check(file, (), schema.Outline, file.values)
    sections = [("data",), ("partition",), ("model",), ("cohort",)]
    for at in sections:
        _named(file, at, at[0], getattr(found, at[0]))
    for i, table in enumerate(found.algorithm):
        _named(file, ("algorithm", i), "algorithm", table)
    return found


def plan(file: ExperimentFile) -> Plan:
    """Build everything, and refuse what cannot work with the line it stands on."""
    outlined = outline(file)
    dataset = _dataset(file, ("data",), outlined.data)
    server_data, clients, tests = _population(file, outlined, dataset)
    with _placed(file, ("local",)):
        local = _local(file, ("local",), outlined.local)
    model = _model(file, outlined.model, dataset)
    server = _server(file, outlined, server_data, local)
    methods = _methods(file, outlined.algorithm, outlined.local)
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
        server=server,
        pretrain=0 if outlined.server is None else outlined.server.pretrain,
        select=outlined.select,
        checkpoint_every=outlined.checkpoint.every,
        checkpoint_keep=outlined.checkpoint.keep,
        methods=methods,
    )
    if outlined.evaluate.every > made.rounds:
        raise file.error(
            ("evaluate", "every"),
            f"`every` is {outlined.evaluate.every} with {made.rounds} rounds, so nothing would be "
            f"measured; give at most {made.rounds}.",
        )
    measured = _try_out(made)
    return dataclasses.replace(made, metric=_metric(file, outlined.metric, measured))


def make(
    file: ExperimentFile,
    at: KeyPath,
    kind: str,
    table: dict[str, Any],
    known: dict[str, Any] | None = None,
    first: tuple[Any, ...] = (),
) -> Any:
    """What a table names, made with its other keys as arguments."""
    function, checked = _named(file, at, kind, table)
    given = {n: v for n, v in checked.model_dump(exclude_unset=True).items() if n != "name"}
    given = {n: v for n, v in given.items() if n in catalogue.settings(function)}
    for name, value in (known or {}).items():
        if name in catalogue.settings(function) and value is not None:
            given.setdefault(name, value)
    missing = [
        n
        for n, p in catalogue.settings(function).items()
        if p.default is p.empty and n not in given
    ]
    if missing:
        raise file.error(at, f"`{missing[0]}` is missing in [{at[0]}]; add {missing[0]} = ...")
    arguments = {n: convert(file, (*at, n), n, v) for n, v in given.items()}
    arguments = {n: _per_client(function, n, v) for n, v in arguments.items()}
    with _placed(file, at):
        if kind == "optimizer" and at[-1] == "optimizer":  # Local gives it the step size
            return functools.partial(function, **arguments) if arguments else function
        return function(*first, **arguments)


def _named(
    file: ExperimentFile, at: KeyPath, kind: str, table: dict[str, Any]
) -> tuple[Callable[..., Any], Any]:
    """The function a table names, and the table checked against its arguments."""
    with _placed(file, (*at, "name") if (*at, "name") in file.lines else at):
        function = catalogue.find(kind, table["name"])
    return function, schema.check(
        file, at, schema.arguments(function, schema.ALSO.get(kind)), table
    )


def convert(file: ExperimentFile, at: KeyPath, name: str, value: Any) -> Any:
    """A value of the file as the function wants it: schedules, masks and nested tables."""
    if name in schema.NESTED:
        return make(file, at, schema.NESTED[name], value)
    if name in schema.MASKS:
        return Begins(tuple(value))
    if isinstance(value, dict) and "schedule" in value:
        rest = {n: v for n, v in value.items() if n != "schedule"}
        return make(file, at, "schedule", {"name": value["schedule"], **rest})
    return value


def _per_client(function: Any, name: str, value: Any) -> Any:
    """A list where a number is wanted has one value for each client."""
    wanted = schema.hints(function).get(name, Any) is Any
    return PerClient(value) if wanted and isinstance(value, list) else value


@dataclasses.dataclass(frozen=True)
class Begins:
    """A mask: parameters whose names begin with one of these words; after `!`, all others."""

    words: tuple[str, ...]

    def __call__(self, path: str) -> bool:
        unwanted = tuple(w[1:] for w in self.words if w.startswith("!"))
        wanted = tuple(w for w in self.words if not w.startswith("!"))
        chosen = path.startswith(wanted) if wanted else True
        return chosen and not (unwanted and path.startswith(unwanted))


@contextlib.contextmanager
def _placed(file: ExperimentFile, at: KeyPath) -> Iterator[None]:
    """Give a message of the library its line in the file."""
    try:
        yield
    except ExperimentFileError:
        raise
    except HoldfastError as error:
        raise file.error(_key_named(file, at, str(error)), str(error)) from None


def _key_named(file: ExperimentFile, at: KeyPath, message: str) -> KeyPath:
    """The key of this table that a message speaks of, by name or else by value."""
    inside = [key for key in file.lines if key[:-1] == at]
    table = _at(file.values, at)
    for words in (lambda key: key[-1], lambda key: table.get(key[-1])):
        for key in inside:
            word = words(key)
            if isinstance(word, str | int | float) and _speaks_of(message, str(word)):
                return key
    return at


def _speaks_of(message: str, word: str) -> bool:
    return bool(word) and re.search(rf"(?<![\w.]){re.escape(word)}(?![\w.])", message) is not None


def _at(values: Any, at: KeyPath) -> dict[str, Any]:
    for key in at:
        values = values[key] if isinstance(key, int) else values.get(key, {})
    return values if isinstance(values, dict) else {}


def _dataset(file: ExperimentFile, at: KeyPath, table: dict[str, Any]) -> Dataset:
    found = make(file, at, "data", table)
    if not isinstance(found, Dataset):
        raise file.error(
            at, f"`{table['name']}` returned a {type(found).__name__}; return a hf.data.Dataset."
        )
    if table.get("only_classes"):
        found = _first_classes(file, at, found, table["only_classes"])
    if table.get("train_labels"):
        found = _keep(found, np.flatnonzero(np.isin(found.train.y, table["train_labels"])))
    if table.get("only_examples"):
        order = np.random.default_rng(0).permutation(len(found.train.y))
        found = _keep(found, np.sort(order[: table["only_examples"]]))
    return found


def _first_classes(file: ExperimentFile, at: KeyPath, found: Dataset, classes: int) -> Dataset:
    if found.classes is None or classes > found.classes:
        raise file.error(
            (*at, "only_classes"), f"only_classes={classes} of {found.classes}; give fewer."
        )
    found = _keep(found, np.flatnonzero(np.asarray(found.train.y) < classes))
    tested = np.flatnonzero(np.asarray(found.test.y) < classes)
    owners = None if found.test_owners is None else np.asarray(found.test_owners)[tested]
    return dataclasses.replace(
        found, test=_take(found.test, tested), test_owners=owners, classes=classes
    )


def _keep(dataset: Dataset, rows: np.ndarray) -> Dataset:
    """Some of the training examples."""
    owners = None if dataset.owners is None else np.asarray(dataset.owners)[rows]
    return dataclasses.replace(dataset, train=_take(dataset.train, rows), owners=owners)


def _take(examples: Examples, rows: np.ndarray) -> Examples:
    if len(rows) == len(examples.y):
        return examples
    return tree.map(lambda a: np.asarray(a)[rows], examples)


def _model(file: ExperimentFile, table: dict[str, Any], dataset: Dataset) -> Model:
    known = {name: getattr(dataset, name) for name in schema.FROM_DATA}
    made = make(file, ("model",), "model", table, known)
    return augmented(made) if table.get("augment") else made


def _population(
    file: ExperimentFile, outline: Any, dataset: Dataset
) -> tuple[Any, Clients, Clients]:
    """What the server has, the clients, and test examples for each of them."""
    section, n = outline.server, len(dataset.train.y)
    source: Any = None
    if section is not None:
        _check_server(file, section, n)
        if section.examples is not None or section.share is not None:
            size = section.examples or round(section.share * n)
            order = np.random.default_rng(section.seed).permutation(n)
            source = _take(dataset.train, np.sort(order[:size]))
            dataset = _keep(dataset, np.sort(order[size:]))
        elif section.data is not None:
            source = _dataset(file, ("server", "data"), section.data).train
        elif section.loss is not None:
            source = make(file, ("server", "loss"), "loss", section.loss)
    clients, tests = _split(file, outline.partition, dataset)
    if section is not None and section.clients is not None:
        source = _sent_by_clients(file, section, clients)
    return source, clients, tests


def _split(
    file: ExperimentFile, table: dict[str, Any], dataset: Dataset
) -> tuple[Clients, Clients]:
    most = table.get("most")
    if catalogue.KINDS["partition"].get(table["name"]) is natural:
        with _placed(file, ("partition",)):
            clients, tests = dataset.natural()
    else:
        clients = make(file, ("partition",), "partition", table, first=(dataset.train,))
        tests = like(dataset.test, clients)
    if most is not None:
        rows = [clients.rows(i)[:most] for i in range(len(clients))]
        clients = Clients.from_rows(clients.examples, rows)
    return clients, tests


_SOURCES = ("examples", "share", "clients", "data", "loss")


def _check_server(file: ExperimentFile, section: Any, n: int) -> None:
    given = [name for name in _SOURCES if getattr(section, name) is not None]
    if len(given) != 1:
        raise file.error(
            ("server",),
            f"{' and '.join(given) or 'nothing'} is given; give one of {', '.join(_SOURCES)}, such as "
            f"examples = 500.",
        )
    if (section.clients is None) != (section.each is None):
        raise file.error(("server",), "give `clients` and `each` together, or neither.")
    size = section.examples or (section.share and round(section.share * n)) or 1
    if not 1 <= size < n:
        raise file.error(
            ("server", given[0]), f"{size} of {n} examples for the server; leave clients some."
        )


def _sent_by_clients(file: ExperimentFile, section: Any, clients: Clients) -> Examples:
    """A few examples of a few clients, who keep them too."""
    able = np.flatnonzero(clients.sizes)
    if section.clients > len(able):
        raise file.error(
            ("server", "clients"),
            f"{section.clients} clients of {len(able)} with data; give fewer.",
        )
    rng = np.random.default_rng(section.seed)
    chosen = rng.choice(able, section.clients, replace=False)
    rows = [rng.permutation(clients.rows(i))[: section.each] for i in chosen]
    return _take(clients.examples, np.concatenate(rows))


def _server(file: ExperimentFile, outline: Any, source: Any, local: Local) -> Server | None:
    if source is None:
        return None
    own = outline.server.local
    with _placed(file, ("server",)):
        how = local if own is None else _local(file, ("server", "local"), own)
        return Server(source, how, gradient_batch_size=outline.server.gradient_batch_size)


def _local(file: ExperimentFile, at: KeyPath, table: dict[str, Any]) -> Local:
    checked = schema.check(file, at, schema.arguments(Local), {"name": "", **table})
    given = checked.model_dump(exclude_unset=True)
    settings = {n: convert(file, (*at, n), n, v) for n, v in given.items() if n != "name"}
    with _placed(file, at):
        return Local(**settings)


def _seeds(file: ExperimentFile, seeds: int | list[int]) -> tuple[int, ...]:
    chosen = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if len(set(chosen)) != len(chosen):
        raise file.error(("seeds",), f"seeds are {list(chosen)}; give each once.")
    return chosen


def _methods(
    file: ExperimentFile, tables: list[dict[str, Any]], shared: dict[str, Any]
) -> tuple[Method, ...]:
    names = [t["name"] for t in tables]
    methods = []
    for i, table in enumerate(tables):
        at: KeyPath = ("algorithm", i)
        algorithm = make(file, at, "algorithm", table)
        if not isinstance(algorithm, Algorithm):
            raise file.error(
                at, f"`{table['name']}` made a {type(algorithm).__name__}, no hf.Algorithm."
            )
        if "wire" in table:
            wire = make(file, (*at, "wire"), "wire", schema._a_table(table["wire"]))
            with _placed(file, (*at, "wire")):
                algorithm = dataclasses.replace(algorithm, wire=wire)
        own = table.get("local") or {}
        where = (*at, "local") if own else ("local",)
        local = _local(file, where, _over(shared, own))
        label = table.get("label") or _label(table, repeated=names.count(table["name"]) > 1)
        methods.append(Method(label, algorithm, local, at))
    folders = [m.folder for m in methods]
    for i, method in enumerate(methods):
        if folders.index(method.folder) != i:
            raise file.error(
                method.at, f"two algorithms are called `{method.label}`; give one another `label`."
            )
    return tuple(methods)


def _over(shared: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """A method's own local training over what all share: its `steps` replace `epochs`, and back."""
    other = {"steps": "epochs", "epochs": "steps"}
    hidden = {other[name] for name in own if name in other}
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
    everything = tree.map(lambda a: np.asarray(a)[clients.order], clients.examples)
    if section.train:
        chosen.append(evaluate.on(everything, every, name="train"))
    if section.average:
        chosen.append(evaluate.client_average(dataset.test, every))
    if section.average and section.train:
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
            raise _blame(made.file, method, str(error)) from None
        if not measured:
            batch = tree.map(lambda a: a[:1], made.dataset.test)
            measured = list(jax.eval_shape(made.model.measure, experiment.params, batch))
    return measured


def _blame(file: ExperimentFile, method: Method, message: str) -> ExperimentFileError:
    if "simulate(server=" in message:
        message = re.sub(r"give simulate\(server=.*\)", "add [server] with examples = 500", message)
    for pattern, section in _SPOKEN_OF:
        if re.search(pattern, message) and section in file.lines:
            return file.error(_key_named(file, section, message), message)
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
