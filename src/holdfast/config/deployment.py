"""An experiment file whose clients are sites: the same sections, but every site has its own `[data]`.

What sites are called, and of which shape their examples are where these are no tables, is in `sites.toml`
beside the file, which `holdfast deploy new --experiment` writes:

    sites = ["north", "south"]

    [examples]                 # not for tables: their columns are known when all sites have answered
    x = { shape = [64], dtype = "float32" }
    y = { shape = [], dtype = "int32" }
    classes = 10
"""

import copy
import dataclasses
import functools
import inspect
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import jax
import numpy as np
from jax import tree

from holdfast.config import build, evaluation, joined
from holdfast.config.file import ExperimentFile, KeyPath, read
from holdfast.config.making import find, located, make, named
from holdfast.config.population import make_model
from holdfast.config.schema import FileSchema
from holdfast.config.theory import asks_theory
from holdfast.core.algorithm import Algorithm
from holdfast.core.wire import OnSite
from holdfast.data.clients import Examples
from holdfast.data.dataset import Dataset
from holdfast.data.tables.apart import Fitted, TableSettings
from holdfast.data.tables.rows import names_of
from holdfast.deploy.evaluation import HeldOut
from holdfast.deploy.federate import population
from holdfast.deploy.messages import is_name
from holdfast.deploy.site_data import SiteData, holding_out
from holdfast.deploy.taking import TEST, VALIDATION
from holdfast.deploy.task import name_of
from holdfast.engine.experiment import Experiment
from holdfast.engine.saving import columns_of
from holdfast.engine.setup import checked
from holdfast.errors import HoldfastError, file_errors_said
from holdfast.evaluate import evaluators
from holdfast.saved.description import Columns

SITES_FILE = "sites.toml"
# Keys of [data] that say where files of a simulation are, or how its rows are divided among sites.
_OF_FILES = ("path", "test_path", "folder", "columns", "separator")
_FOR_SIMULATIONS = {
    "population": "clients of several populations are for simulations only so far; deploy one of them",
    "sweep": "a federation runs one point of a sweep; give its values in the method's entry",
    "select": "only the rows of tables that are used are sent in simulations only so far",
    "conformal": "examples to calibrate with are taken off a test set, and sites have their own; calibrate a "
    "saved model by `holdfast predict --calibrate`",
}
_MEASURED = {
    "average": "every client's latest model stays at its site",
    "active": "clients' latest models stay at their sites",
    "train": "training examples are at the sites, and are measured by nobody else",
}
_OF_DATA = {
    "validation_share": "each site sets its own apart; say validation = 0.1 under [evaluate] instead, a "
    "share of what it trains on",
    "leave_out": "sites that train nothing are for simulations only; leave them out of the federation",
    "unseen": "sites that train nothing are for simulations only; leave them out of the federation",
    "preprocessing": "columns are fitted from what the sites say",
}


@dataclasses.dataclass(frozen=True, eq=False)
class DeployedFile:
    """An experiment file as a federation runs it.

    Args:
        file: as it was read.
        names: of the sites, in the order in which they are numbered.
        like: one example of theirs, where they have no tables.
        method: which of the file's methods, by its label; needed where there are several.
        seed: of the run; the file's first unless given.
        server_data: where the server's own data is, for methods in which it learns.
    """

    file: ExperimentFile
    names: tuple[str, ...]
    like: Dataset | None = None
    method: str = ""
    seed: int | None = None
    server_data: SiteData | None = None

    @functools.cached_property
    def sections(self) -> FileSchema:
        """What the file has, checked; refuses what cannot be deployed."""
        found = build.sections(self._plain)
        _check(self.file, found)
        return found

    @functools.cached_property
    def _plain(self) -> ExperimentFile:
        """The file without what is about a simulation's data."""
        values = copy.deepcopy(self.file.values)
        data = values.get("data")
        if not _is_table(values):
            values["data"] = "digits"
        elif isinstance(data, dict):
            # It must be there, and is not looked at.
            data["path"] = "sites.csv"
            data.pop("test_path", None)
        values["partition"] = "natural"
        return dataclasses.replace(self.file, values=values)

    @functools.cached_property
    def digest(self) -> str:
        """By which a site knows the experiment: all that is in the file but where a simulation's data is."""
        values = copy.deepcopy(self.file.values)
        for key in _OF_FILES:
            if isinstance(values.get("data"), dict):
                values["data"].pop(key, None)
        return name_of(json.dumps(values, sort_keys=True, default=str), *self.names)

    @functools.cached_property
    def table(self) -> TableSettings | None:
        """What every site's table is, if sites have tables."""
        if not _is_table(self.file.values):
            return None
        self.sections  # noqa: B018  # it refuses mistakes
        _, checked_table = named(self._plain, ("data",), "data", self.sections.data)
        told = checked_table.model_dump(exclude_unset=True, exclude={"name", *_OF_FILES})
        with located(self.file, ("data",)):
            return TableSettings(**told | {"client": names_of(told.get("client") or ())})

    def dataset(self, fitted: Fitted | None) -> Dataset:
        """Examples of the shapes that sites have; the values are not used."""
        if fitted is not None:
            found = fitted.dataset(2)
            return dataclasses.replace(found, test=found.train)
        assert self.like is not None
        return self.like

    def columns(self, dataset: Dataset) -> Columns:
        """What a saved model says of inputs and labels."""
        return columns_of(dataset, self.sections.data)

    def at_site(self, method: str, fitted: Fitted | None) -> Experiment:
        """What a site takes part in. What the server has of its own does not matter there."""
        return self._experiment(method, fitted, at_server=False)

    def at_server(self, fitted: Fitted | None) -> Experiment:
        """What the server runs."""
        return self._experiment(self.label, fitted, at_server=True)

    @property
    def label(self) -> str:
        """The method that is run."""
        labels = self.labels
        if not self.method and len(labels) > 1:
            raise HoldfastError(
                f"{self.file.path} has {len(labels)} methods, and a federation runs one at a time; "
                f"say method = one of {', '.join(labels)}.",
                about=("method",),
            )
        if self.method and self.method not in labels:
            raise HoldfastError(
                f"{self.file.path} has no method `{self.method}`; give one of {', '.join(labels)}.",
                about=("method",),
            )
        return self.method or labels[0]

    @property
    def validation(self) -> float | None:
        """Which share of its training examples every site sets apart to choose rounds by."""
        return self.sections.evaluate.validation

    @functools.cached_property
    def labels(self) -> tuple[str, ...]:
        """Of all methods of the file."""
        return tuple(build.labels_of(self.sections))

    def _experiment(self, label: str, fitted: Fitted | None, at_server: bool) -> Experiment:
        file, sections = self._plain, self.sections
        dataset = self.dataset(fitted)
        clients = population(self.names, dataset.train, dataset.preprocessing)
        model = make_model(file, sections.model, dataset)
        cohort = make(file, ("cohort",), "cohort", sections.cohort)
        source = self._source(fitted, dataset, at_server)
        trained = joined.Federation((dataset,), clients, clients, model, cohort, source)
        if label not in self.labels:
            raise HoldfastError(f"{self.file.path} has no method `{label}`.", about=("method",))
        # Only this one: a site builds it for every message.
        methods = build.methods_of(file, sections, trained)
        method = methods[self.labels.index(label)]
        if asks_theory(method.swept.table):
            _refuse(
                method.swept.file,
                method.at,
                "`start_at` and `step_size` ask for constants of all clients' data, which is at the sites; "
                "give numbers",
            )
        if method.at_server.data_sharing:
            _refuse(
                self.file, ("server", "data_sharing"), "clients' data would be sent to the sites"
            )
        before = method.at_server.pretraining if at_server else None
        seeds = sections.seeds
        first = (0 if isinstance(seeds, int) else seeds[0]) if self.seed is None else self.seed
        evaluators = self._evaluators(trained, [m.algorithm for m in methods])
        made = Experiment(
            method.algorithm,
            model,
            clients,
            method.local,
            cohort=cohort,
            evaluate=evaluators,
            seed=first,
            params=None if before is None else before.start(model, first),
            server=method.server,
            select=sections.select,
        )
        if not at_server:
            return made
        with located(method.swept.file, method.at):
            setup = checked(dataclasses.replace(made, evaluate=None))
        two = tree.map(lambda a: jax.ShapeDtypeStruct((2, *a.shape[1:]), a.dtype), dataset.train)
        measured = list(jax.eval_shape(model.measure, setup.params, two))
        own = any(
            evaluation.leaves_clients_their_own(m.algorithm, trained)
            or (isinstance(m.algorithm.wire, OnSite) and m.algorithm.regroup is None)
            for m in methods
        )
        by_clients = own and any(one.personal for one in evaluators if isinstance(one, HeldOut))
        metric = build.metric_of(file, sections, measured, evaluators, by_clients)
        names = evaluation.columns(measured, evaluators)
        has = self.validation is not None
        stop = build.stop_of(file, sections, metric, names, own, has)
        return dataclasses.replace(made, stop=stop)

    def _evaluators(
        self, trained: joined.Federation, algorithms: Sequence[Algorithm]
    ) -> tuple[Any, ...]:
        """Of test examples, and of those to choose by, each site measures its own; other sets are the
        server's."""
        section = self.sections.evaluate
        metrics = evaluation.set_metrics(self._plain, section)
        personal = evaluation.is_personal(section, algorithms, trained)
        if metrics and not personal:
            _refuse(
                self.file,
                ("evaluate", "metrics"),
                "a metric of all sites' test examples together needs the prediction of every one of them, "
                "which stays at its site; add personal = true, and each site measures its own",
            )
        apart = () if section.validation is None else (VALIDATION,)
        held_out = HeldOut(section.every, True, personal, metrics, (TEST, *apart))
        sets = evaluation.EvaluationSets(self._plain, section, trained)
        own = [sets.measured(evaluators.on, name, section.every) for name in sets.own]
        return (held_out, *own)

    def _source(self, fitted: Fitted | None, dataset: Dataset, at_server: bool) -> Any:
        """What the server has of its own; at a site something of the same shapes."""
        section = self.sections.server
        if section is None:
            return None
        if section.loss is not None:
            return make(self._plain, ("server", "loss"), "loss", section.loss)
        if not at_server:
            return dataset.train
        if self.server_data is None:
            _refuse(
                self.file,
                ("server",),
                "a simulation gives the server some of the clients' examples, and these are at the sites; "
                'say where its own are: server = "server.toml" of the run configuration, with [data] as at a '
                "site",
            )
        if fitted is None:
            train, _ = self.server_data.examples()
            return train
        assert self.table is not None
        settings = holding_out(self.table, 0.0)
        return fitted.of_rows(self.server_data.table(settings)).train


def _is_table(values: Mapping[str, Any]) -> bool:
    data = values.get("data")
    name = data.get("name") if isinstance(data, dict) else data
    return name == "table"


def _refuse(file: ExperimentFile, at: KeyPath, why: str) -> NoReturn:
    raise file.error(at, f"this cannot be deployed: {why}.")


def _check(file: ExperimentFile, given: FileSchema) -> None:
    """Refuse what cannot be deployed, each with its line."""
    for key, why in _FOR_SIMULATIONS.items():
        if file.values.get(key):
            _refuse(file, (key,), why)
    for key, why in _MEASURED.items():
        if getattr(given.evaluate, key) not in (None, False):
            _refuse(file, ("evaluate", key), why)
    data = file.values["data"]
    for key, why in _OF_DATA.items() if _is_table(file.values) and isinstance(data, dict) else ():
        if data.get(key):
            _refuse(file, ("data", key), why)
    for key in ("only_classes", "train_labels", "only_examples", "only_owners"):
        if isinstance(data, dict) and data.get(key) is not None:
            _refuse(file, ("data", key), "each site has its own examples; leave it out")
    partition = file.values["partition"]
    for key in ("repeats", "splits", "max_examples"):
        if isinstance(partition, dict) and partition.get(key) is not None:
            _refuse(file, ("partition", key), "each site has its own examples; leave it out")
    if given.server is not None and given.server.balance:
        _refuse(
            file, ("server", "balance"), "balance the server's data in its own file; leave it out"
        )
    for number, table in enumerate(given.evaluate.also):
        _check_evaluator(file, ("evaluate", "also", number), table)


def _check_evaluator(file: ExperimentFile, at: KeyPath, table: dict[str, Any]) -> None:
    what = inspect.signature(find(file, "evaluator", table["name"])).parameters
    _refuse(
        file,
        at,
        f"`{table['name']}` is for simulations only so far"
        + (", since it looks at clients' examples" if {"examples", "clients"} & what.keys() else "")
        + "; in Python, hf.deploy.run takes evaluators that look at the server's model",
    )


def from_file(
    path: str | Path,
    method: str = "",
    seed: int | None = None,
    server: str | Path | None = None,
    trusted: bool = False,
) -> DeployedFile:
    """An experiment file as a federation runs it, for `hf.deploy.run` and `hf.deploy.site_from_file`.

    Sites are named by `sites.toml` beside the file; without one, by the clients of the simulated data, which
    is then loaded for it.

    Args:
        path: of the experiment file.
        method: which of its methods, by its label; needed at the server where there are several.
        seed: of the run; the file's first unless given.
        server: a file whose `[data]` says where the server's own data is, for methods in which it learns.
        trusted: whether code that the file names may be anybody's.
    """
    file = read(path, trusted=trusted)
    own = None if server is None else SiteData.of_server(Path(server))
    beside = file.path.parent / SITES_FILE
    if beside.exists():
        names, like = _described(beside)
        return DeployedFile(file, names, like, method, seed, own)
    made = build.study(file, pretrained=False)
    names, like = shapes_of(made)
    return DeployedFile(file, names, like, method, seed, own)


def shapes_of(study: build.Study) -> tuple[tuple[str, ...], Dataset | None]:
    """Names of a simulation's clients, and what an example of theirs is where they have no tables."""
    clients = study.clients
    names = tuple(clients.name(i) for i in range(len(clients)))
    if _is_table(study.file.values):
        return names, None
    data = study.datasets[0]

    def zeros(a: Any) -> np.ndarray:
        return np.zeros((2, *np.shape(a)[1:]), np.asarray(a[:1]).dtype)

    train = tree.map(zeros, data.train)
    return names, dataclasses.replace(
        data, train=train, test=train, owners=None, test_owners=None, validation=None,
        validation_owners=None,
    )  # fmt: skip


_ABOUT = ("classes", "vocabulary", "feature_names", "label_names", "class_weights")


def described(names: tuple[str, ...], like: Dataset | None) -> dict[str, Any]:
    """The values of `sites.toml`."""
    found: dict[str, Any] = {"sites": list(names)}
    if like is None:
        return found
    about: dict[str, Any] = {}
    for field, array in zip(like.train._fields, like.train, strict=True):
        about[field] = {"shape": list(array.shape[1:]), "dtype": str(array.dtype)}
    for key in _ABOUT:
        value = getattr(like, key)
        if value is not None:
            about[key] = list(value) if isinstance(value, tuple) else value
    return found | {"examples": about}


@file_errors_said()
def _described(path: Path) -> tuple[tuple[str, ...], Dataset | None]:
    try:
        given = tomllib.loads(path.read_text("utf-8"))
        names, about = tuple(given["sites"]), given.get("examples")
        if not names or len(set(names)) != len(names) or not all(map(is_name, names)):
            raise ValueError("`sites` lists no different names")
        if about is None:
            return names, None
        parts = [np.zeros((2, *about[k]["shape"]), np.dtype(about[k]["dtype"])) for k in ("x", "y")]
        train = Examples(*parts)
        known: dict[str, Any] = {
            k: tuple(v) if isinstance(v := about.get(k), list) else v for k in _ABOUT
        }
        return names, Dataset(train, train, **known)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise HoldfastError(
            f"{path} does not say what sites are called ({error}); write it with `holdfast deploy new "
            f"--experiment`."
        ) from None
