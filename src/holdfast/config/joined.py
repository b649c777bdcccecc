"""Several populations in one file: `[[population]]`, each with what differs from the file's own."""

import dataclasses
from typing import Any

import jax
import numpy as np
from jax import tree

from holdfast import evaluate
from holdfast.config.conformal import HeldOut, of_clients, set_apart
from holdfast.config.file import ExperimentFile, KeyPath
from holdfast.config.making import located, make, make_local
from holdfast.config.population import load_dataset, make_model, population
from holdfast.config.schema import FileSchema
from holdfast.config.sweep import over
from holdfast.config.validation import Validation
from holdfast.core.keys import host_key
from holdfast.core.local import Local
from holdfast.data import Clients, Dataset
from holdfast.data.grouped import OfPopulation, group
from holdfast.engine.populations import Joined, Population, join
from holdfast.errors import HoldfastError, did_you_mean
from holdfast.metrics import Metric
from holdfast.models import Model


@dataclasses.dataclass(frozen=True)
class Federation:
    """Whom a study trains, and what their models are measured on."""

    datasets: tuple[Dataset, ...]
    clients: Clients
    tests: Clients  # every client's own test examples
    model: Model
    cohort: Any
    server_data: Any
    # What rounds and hyper-parameters are chosen by, of every population; empty where nothing is set apart.
    validation: tuple[Validation, ...] = ()
    # Every client's own of these.
    validations: Clients | None = None
    # Keys of [local] that populations have of their own, and where they stand; none if all train alike.
    own_local: tuple[tuple[dict[str, Any], KeyPath], ...] = ()
    # What sets and intervals are calibrated with, of every population; empty where nothing is.
    held_out: tuple[HeldOut, ...] = ()
    # Every client's own of these to calibrate with and to test on.
    held_out_of_clients: tuple[Clients, Clients] | None = None

    def local(
        self, file: ExperimentFile, at: KeyPath, shared: dict[str, Any], own: dict[str, Any]
    ) -> Local | tuple[Local, ...]:
        """How clients train in a method, whose own keys go over a population's, and these over the file's."""
        plain = make_local(file, at, over(shared, own))
        if not self.own_local:
            return plain
        return tuple(
            make_local(file, where if keys and not own else at, over(over(shared, keys), own))
            for keys, where in self.own_local
        )

    def of(self, population: str, examples: Any) -> OfPopulation:
        """Examples for the loss of a population of this name."""
        known = self.clients.populations
        names = () if known is None else known.names
        if population not in names:
            hint = did_you_mean(population, names) if names else "there is no [[population]]."
            raise HoldfastError(f"unknown population `{population}`; {hint}", about=("population",))
        return OfPopulation(examples, names.index(population))

    def test_examples(self) -> Any:
        """The test set; those of several populations, one after the other."""
        tests = [dataset.test for dataset in self.datasets]
        if self.clients.populations is None:
            return tests[0]
        return group(tests, [{} for _ in tests])

    def measured(
        self, of: Any, name: str, every: int, prefix: str, metrics: tuple[Metric, ...] = ()
    ) -> Any:
        """An evaluator on each population's own `test` or `train` examples."""
        parts = [dataset.test for dataset in self.datasets]
        if name == "train":
            parts = self._training_examples()
        if name == "validation":
            parts = [found.examples for found in self.validation]
        made = evaluate.populations(self.clients, parts, of, every, prefix, metrics)
        shapes = jax.eval_shape(self.model.init, host_key(0), self.clients.examples)
        measured = tuple(
            tuple(metric_names(self.model, shapes, OfPopulation(examples, p)))
            for p, examples in enumerate(parts)
        )
        return dataclasses.replace(made, metrics=measured)

    def _training_examples(self) -> list[Any]:
        """All that clients train on, of each population."""
        populations = self.clients.populations
        assert populations is not None
        parts = [self.clients.subset(populations.of == p) for p in range(len(populations))]
        return [
            tree.map(lambda a, part=part: np.asarray(a)[part.order], part.examples.of(p))
            for p, part in enumerate(parts)
        ]


def metric_names(model: Model, params: Any, examples: Any) -> list[str]:
    """What a model measures of examples."""
    batch = tree.map(lambda a: a[:1], examples)
    return list(jax.eval_shape(model.measure, params, batch))


def federation(file: ExperimentFile, sections: FileSchema) -> Federation:
    """The one population of a file, or several joined."""
    if sections.population:
        return _joined(file, sections)
    if sections.server is not None and sections.server.population is not None:
        raise file.error(
            ("server", "population"), "there is no [[population]]; leave out `population`."
        )
    dataset = load_dataset(file, ("data",), sections.data)
    dataset, held = set_apart(file, sections.conformal, dataset)
    data, clients, tests, validation = population(file, sections, dataset)
    model = make_model(file, sections.model, dataset)
    cohort = make(file, ("cohort",), "cohort", sections.cohort)
    known = () if validation is None else (validation,)
    own = None if validation is None or not validation.clients.sizes.any() else validation.clients
    made = Federation((dataset,), clients, tests, model, cohort, data, known, own)
    if held is None or sections.conformal is None:
        return made
    mine = of_clients(held, clients, sections.conformal.seed)
    return dataclasses.replace(made, held_out=(held,), held_out_of_clients=mine)


def _joined(file: ExperimentFile, sections: FileSchema) -> Federation:
    names = [table.name or str(i) for i, table in enumerate(sections.population)]
    with_server = _server_population(file, sections, names)
    parts, datasets, tests, server_data = [], [], [], None
    validations: list[Validation | None] = []
    held_out: list[HeldOut] = []
    for i in range(len(names)):
        dataset, held, part, own_tests, data, apart = _population(
            file, sections, i, with_server == i
        )
        held_out += [] if held is None else [held]
        validations.append(apart)
        parts.append(part)
        datasets.append(dataset)
        tests.append(own_tests)
        server_data = data if with_server == i else server_data
    with located(file, ("population",)):
        joined: Joined = join(parts)
        # Refuses models of different parameters.
        jax.eval_shape(joined.model.init, host_key(0), joined.clients.examples)
    if with_server is not None and not callable(server_data):
        server_data = OfPopulation(server_data, with_server)
    given = [table.local for table in sections.population]
    own = tuple((keys or {}, ("population", i, "local")) for i, keys in enumerate(given))
    known = tuple(found for found in validations if found is not None)
    if known and len(known) < len(names):
        lacking = names[validations.index(None)]
        raise file.error(
            ("population", validations.index(None)),
            f"population `{lacking}` has no examples to choose by, and others have; give all of them some.",
        )
    each = [found.clients for found in known]
    measurable = bool(known) and all(part.sizes.any() for part in each)
    of_each = None
    if sections.conformal is not None:
        seed = sections.conformal.seed
        halves = [of_clients(h, p.clients, seed) for h, p in zip(held_out, parts, strict=True)]
        of_each = joined.tests([one for one, _ in halves]), joined.tests([two for _, two in halves])
    return Federation(
        tuple(datasets),
        joined.clients,
        joined.tests(tests),
        joined.model,
        joined.cohort,
        server_data,
        known,
        joined.tests(each) if measurable else None,
        own if any(keys is not None for keys in given) else (),
        tuple(held_out),
        of_each,
    )


def _population(
    file: ExperimentFile, sections: FileSchema, i: int, serves: bool
) -> tuple[Dataset, HeldOut | None, Population, Clients, Any, Validation | None]:
    """One population: what its table has, and of the file's own sections what it has not."""
    table: Any = sections.population[i]

    def where(kind: str) -> KeyPath:
        return (kind,) if getattr(table, kind) is None else ("population", i, kind)

    def wanted(kind: str) -> Any:
        own = getattr(table, kind)
        return getattr(sections, kind) if own is None else own

    dataset = load_dataset(file, where("data"), wanted("data"))
    if len(dataset.test.y) == 0:
        raise file.error(
            where("data"), "its test part is empty; give at least one example to test on."
        )
    dataset, held = set_apart(file, sections.conformal, dataset)
    server = sections.server if serves else None
    taken = sections.model_copy(update={"partition": wanted("partition"), "server": server})
    data, clients, tests, validation = population(file, taken, dataset, where("partition"))
    model = make_model(file, wanted("model"), dataset, where("model"))
    cohort = make(file, where("cohort"), "cohort", wanted("cohort"))
    able = np.flatnonzero(clients.sizes > 0)
    with located(file, where("cohort")[:-1]):
        cohort.check(able, len(clients))
    if model.check is not None:
        with located(file, ("population", i)):
            model.check(clients.examples)
    with located(file, ("population", i)):
        part = Population(clients, model, cohort, table.weight, table.name or str(i))
    return dataset, held, part, tests, data, validation


def _server_population(file: ExperimentFile, sections: FileSchema, names: list[str]) -> int | None:
    """The population whose loss the server's data is for, and whose data it takes."""
    server = sections.server
    if server is None:
        return None
    if server.population is None and server.loss is not None:
        return 0
    if server.population is None:
        raise file.error(
            ("server",),
            f"there are several populations, and nothing says for which one's loss the server's data is; "
            f'add population = "{names[0]}".',
        )
    if server.population not in names:
        hint = did_you_mean(server.population, names)
        raise file.error(
            ("server", "population"), f"there is no population `{server.population}`; {hint}"
        )
    return names.index(server.population)
