"""What is measured: test sets and evaluators that a file names, and the columns they write."""

import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import tree

from holdfast import evaluate
from holdfast.config import conformal, own_code, schema, signatures
from holdfast.config.file import ExperimentFile, KeyPath
from holdfast.config.joined import Federation
from holdfast.config.making import find, located, make, make_metric
from holdfast.config.population import load_dataset
from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.keys import host_key
from holdfast.data import Clients
from holdfast.data.grouped import group
from holdfast.data.held_out import matched_test
from holdfast.engine.role import deploys_its_own
from holdfast.engine.saving import unit_of
from holdfast.errors import HoldfastError, did_you_mean
from holdfast.metrics import Metric
from holdfast.metrics.by_name import as_metrics
from holdfast.models import Model
from holdfast.trees import Tree


class EvaluationSets:
    """Data to measure on, by name: `test`, `train`, and every `[[evaluate.test]]`."""

    def __init__(
        self,
        file: ExperimentFile,
        section: schema.Evaluate,
        trained: Federation,
    ) -> None:
        self._file, self._trained = file, trained
        self.own: dict[str, Any] = {}
        for number, given in enumerate(section.test):
            at: KeyPath = ("evaluate", "test", number)
            if not re.fullmatch(r"\w+", given.name) or given.name in (
                "test",
                "train",
                "validation",
                *self.own,
            ):
                raise file.error(
                    (*at, "name"),
                    f'`name` is "{given.name}" in [[evaluate.test]]; give each a word of its own, '
                    f"which stands before what is measured on it.",
                )
            found = load_dataset(file, (*at, "data"), given.data, like=trained.datasets[0])
            examples = getattr(found, given.part)
            if given.population is not None:
                with located(file, at):
                    examples = trained.of(given.population, examples)
            self.own[given.name] = examples

    def examples(self, at: KeyPath, name: str) -> Tree:
        """One data set."""
        clients = self._trained.clients
        if name == "test":
            return self._trained.test_examples()
        if name == "train":  # a copy of the data, made only if it is asked for
            return tree.map(lambda a: np.asarray(a)[clients.order], clients.examples)
        if name in self.own:
            return self.own[name]
        if name == "validation" and self._trained.validation:
            parts = [found.examples for found in self._trained.validation]
            return parts[0] if clients.populations is None else group(parts, [{} for _ in parts])
        known = did_you_mean(name, ["test", "train", *self.own])
        raise self._file.error((*at, "on"), f"no test set is called `{name}`; {known}")

    def measured(self, of: Any, name: str, every: int, metrics: tuple[Metric, ...] = ()) -> Any:
        """An evaluator on one data set; of several populations, on each one's own."""
        prefix = "" if name == "test" else name
        if self._trained.clients.populations is None or name in self.own:
            return of(self.examples((), name), every, name=prefix, metrics=metrics)
        return self._trained.measured(of, name, every, prefix, metrics)

    def of_clients(self, at: KeyPath, name: str) -> Clients:
        """The same as every client's own part of it."""
        clients = self._trained.clients
        if name == "test":
            return self._trained.tests
        if name == "train":
            return clients
        if name == "validation" and self._trained.validations is not None:
            return self._trained.validations
        if clients.populations is not None:
            raise self._file.error(
                (*at, "on"),
                f'`{name}` says for no population which examples are like its clients\'; use "test".',
            )
        return matched_test(self.examples(at, name), clients)


def evaluators(
    file: ExperimentFile,
    section: schema.Evaluate,
    trained: Federation,
    algorithms: Sequence[Algorithm],
) -> tuple[Any, ...]:
    """Everything that is measured in a run, checked against the model with the line it stands on."""
    every, sets = section.every, EvaluationSets(file, section, trained)
    metrics = set_metrics(file, section)
    clients, model = trained.clients, trained.model
    extra = [*(["validation"] if trained.validation else []), *(["train"] if section.train else [])]
    names = ["test", *extra, *sets.own]
    chosen: list[Any] = []
    for name in names:
        chosen.append(sets.measured(evaluate.on, name, every, metrics))
        if name in sets.own:
            number = list(sets.own).index(name)
            _check(file, ("evaluate", "test", number), chosen[-1], model, clients)
        if section.average:
            chosen.append(sets.measured(evaluate.client_average, name, every, metrics))
        if section.active:
            chosen.append(sets.measured(evaluate.active_average, name, every, metrics))
    if is_personal(section, algorithms, trained):
        chosen.append(evaluate.personal(trained.tests, every, metrics=metrics))
        if trained.validations is not None:
            own = trained.validations
            chosen.append(evaluate.personal(own, every, name="validation", metrics=metrics))
    for number, table in enumerate(section.also):
        at: KeyPath = ("evaluate", "also", number)
        made = _named(file, at, table, every, sets, clients)
        _check(file, at, made, model, clients)
        chosen.append(made)
    return tuple(chosen)


def of_sets(
    file: ExperimentFile, sections: schema.FileSchema, trained: Federation, methods: Sequence[Any]
) -> tuple[Any, ...]:
    """What `[conformal]` asks for, checked against the model with the line it stands on."""
    if sections.conformal is None or trained.held_out_of_clients is None:
        return ()
    own = [m.label for m in methods if leaves_clients_their_own(m.algorithm, trained)]
    found = conformal.evaluators(
        file,
        sections.conformal,
        sections.evaluate.every,
        trained.held_out,
        trained.held_out_of_clients,
        own,
        unit_of(trained.datasets[0] if len(trained.datasets) == 1 else None),
    )
    for evaluator in found:
        _check(file, ("conformal",), evaluator, trained.model, trained.clients)
    return tuple(found)


def set_metrics(file: ExperimentFile, section: schema.Evaluate) -> tuple[Metric, ...]:
    """Metrics of whole test sets that the file asks for."""
    at: KeyPath = ("evaluate", "metrics")
    found = [make_metric(file, (*at, i), table) for i, table in enumerate(section.metrics)]
    with located(file, at[:1]):
        return as_metrics(found)


def is_personal(
    section: schema.Evaluate, algorithms: Sequence[Algorithm], trained: Federation
) -> bool:
    """Whether every client's own model is measured: where a method leaves clients another model than the
    server's, unless the file says no. Then every method is judged by what its clients would use."""
    if section.personal is not None:
        return section.personal
    return any(leaves_clients_their_own(algorithm, trained) for algorithm in algorithms)


def leaves_clients_their_own(algorithm: Algorithm, trained: Federation) -> bool:
    """Whether clients use another model than the server's: adapted, mixed, or trained alone."""
    if algorithm.adapt:
        return True
    model, clients = trained.model, trained.clients
    try:
        model.check_examples(clients.examples, "simulate", ("data",))
        shapes = jax.eval_shape(model.init, host_key(0), clients.examples)
        return deploys_its_own(hyper.of_population(algorithm, clients), shapes)
    # Refused with its line, when the method is put together.
    except (HoldfastError, OverflowError):
        return False


def _named(
    file: ExperimentFile,
    at: KeyPath,
    table: dict[str, Any],
    every: int,
    sets: EvaluationSets,
    clients: Clients,
) -> Any:
    """An evaluator by its name in the catalogue, or one of the user's own."""
    with located(file, (*at, "name")):
        function = find(file, "evaluator", table["name"])
        supplied = signatures.supplied(function)
    on = table.get("on", "test")
    known: dict[str, Any] = {"every": every}
    for name, what in supplied.items():
        if what == "clients":
            known[name] = clients
        elif what == "examples":
            whole = function is not evaluate.personal
            known[name] = sets.examples(at, on) if whole else sets.of_clients(at, on)
        else:
            known[name] = table.get("label", "" if on == "test" else on)
    for key, what in (("on", "examples"), ("label", "prefix")):
        if key in table and what not in supplied.values():
            raise file.error(
                (*at, key), f"`{table['name']}` has no use for `{key}`; take it out of the file."
            )
    return make(file, at, "evaluator", table, known)


def _check(
    file: ExperimentFile, at: KeyPath, evaluator: Any, model: Model, clients: Clients
) -> None:
    shapes = jax.eval_shape(model.init, host_key(0), clients.examples)
    with located(file, at), own_code.explained("its `check`", anywhere=False):
        evaluator.check(model, shapes, len(clients))


def columns(measured: list[str], evaluators: Sequence[Any]) -> list[str]:
    """All that is written, of evaluators that say so beforehand."""
    saying = [e for e in evaluators if hasattr(e, "columns")]
    return [name for e in saying for name in e.columns(measured)]


def metric(
    file: ExperimentFile, asked: str | None, measured: list[str], evaluators: Sequence[Any]
) -> str:
    """What methods are compared by: what the file says, or accuracy or loss of what they deploy."""
    # An evaluator of somebody's own need not say beforehand what it writes.
    silent = [e for e in evaluators if not hasattr(e, "columns")]
    names = columns(measured, evaluators)
    if asked is None:
        return "accuracy" if "accuracy" in names else "loss"
    if asked not in names and not silent:
        raise file.error(("metric",), f"`{asked}` is not measured; {did_you_mean(asked, names)}")
    return asked
