"""Who has which examples: the clients, their own test data, and the server."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
from jax import tree

from holdfast.client_states.storage import Storage
from holdfast.config import catalogue, schema, signatures
from holdfast.config.file import ExperimentFile, KeyPath
from holdfast.config.making import located, make
from holdfast.config.schema import FileSchema
from holdfast.config.validation import Validation, apart
from holdfast.data import Clients, Dataset, Examples, balance, collect
from holdfast.data.held_out import matched_test
from holdfast.data.partition.natural import natural
from holdfast.data.read_only import read_only
from holdfast.models import Model, augmented, class_weighted
from holdfast.models.images import Change


def load_dataset(
    file: ExperimentFile, at: KeyPath, table: dict[str, Any], like: Dataset | None = None
) -> Dataset:
    """The data set a table names, or the part of it that is wanted.

    One `like` another, which the same model is to take, has that one's preprocessing and labels.
    """
    known = {}
    if like is not None:
        known = {"preprocessing": like.preprocessing, "label_names": like.label_names}
    found: Dataset = make(file, at, "data", table, known)
    if like is not None:
        _check_alike(file, at, found, like)
    if table.get("only_classes"):
        found = _first_classes(file, at, found, table["only_classes"])
    if table.get("train_labels"):
        found = _keep(found, np.flatnonzero(np.isin(found.train.y, table["train_labels"])))
    if table.get("only_owners"):
        kept, _ = _by_owner(file, (*at, "only_owners"), found, table["only_owners"], 0)
        found = _keep_owners(found, kept)
    if table.get("only_examples"):
        order = np.random.default_rng(0).permutation(len(found.train.y))
        found = _keep(found, np.sort(order[: table["only_examples"]]))
    # What would be gathered for each cohort anyway need not be copied.
    size = sum(getattr(a, "nbytes", 0) for a in tree.leaves(found.train))
    if size > Storage().device_bytes:
        return found
    return dataclasses.replace(found, train=read_only(found.train))


def _check_alike(file: ExperimentFile, at: KeyPath, found: Dataset, like: Dataset) -> None:
    """Refuse rows that did not become numbers in the way that the model was trained on."""
    made = [
        None if d.preprocessing is None or d.preprocessing.is_plain else d for d in (found, like)
    ]
    ours, theirs = (None if d is None else d.preprocessing for d in made)
    if ours == theirs:
        return
    if ours is None:
        what = "the table of [data] is scaled and encoded, and these examples are not"
        remedy = "give them as a table with the same columns"
    else:
        what = "this table is scaled and encoded, and the examples of [data] are not"
        remedy = 'say scale = "none", with columns of numbers alone'
    raise file.error((*at, "name"), f"{what}, and one model is to take both; {remedy}.")


def _first_classes(file: ExperimentFile, at: KeyPath, found: Dataset, classes: int) -> Dataset:
    if found.classes is None or classes > found.classes:
        raise file.error(
            (*at, "only_classes"), f"only_classes={classes} of {found.classes}; give fewer."
        )
    found = _keep(found, np.flatnonzero(np.asarray(found.train.y) < classes))
    tested = np.flatnonzero(np.asarray(found.test.y) < classes)
    owners = None if found.test_owners is None else np.asarray(found.test_owners)[tested]
    return dataclasses.replace(
        found,
        test=_take(found.test, tested),
        test_owners=owners,
        classes=classes,
        label_names=None if found.label_names is None else found.label_names[:classes],
        class_weights=None if found.class_weights is None else found.class_weights[:classes],
        **_validated(found, lambda y, _: y < classes),
    )


def _by_owner(
    file: ExperimentFile, at: KeyPath, found: Dataset, count: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Training examples of so many owners drawn at random, and of all others."""
    if found.owners is None:
        raise file.error(at, f"`{at[-1]}` is {count}, but nobody owns these examples; remove it.")
    known = np.unique(np.asarray(found.owners))
    if count >= len(known):
        raise file.error(at, f"`{at[-1]}` is {count} of {len(known)} owners; give fewer.")
    drawn = np.random.default_rng(seed).permutation(len(known))[:count]
    chosen = np.isin(np.asarray(found.owners), known[drawn])
    return np.flatnonzero(chosen), np.flatnonzero(~chosen)


def _keep(dataset: Dataset, rows: np.ndarray) -> Dataset:
    """Some of the training examples."""
    owners = None if dataset.owners is None else np.asarray(dataset.owners)[rows]
    return dataclasses.replace(dataset, train=_take(dataset.train, rows), owners=owners)


def _keep_owners(dataset: Dataset, rows: np.ndarray) -> Dataset:
    """The training examples of some owners; who is not among them has no test examples either."""
    found = _keep(dataset, rows)
    if found.test_owners is None:
        return found
    tested = np.flatnonzero(np.isin(found.test_owners, np.unique(np.asarray(found.owners))))
    owners = np.asarray(found.test_owners)[tested]
    known = np.unique(np.asarray(found.owners))
    return dataclasses.replace(
        found,
        test=_take(found.test, tested),
        test_owners=owners,
        **_validated(found, lambda _, whose: np.isin(whose, known)),
    )


def _validated(dataset: Dataset, kept: Callable[[Any, Any], np.ndarray]) -> dict[str, Any]:
    """The examples to choose by of which labels and owners are kept."""
    if dataset.validation is None:
        return {}
    whose = dataset.validation_owners
    rows = np.flatnonzero(kept(np.asarray(dataset.validation.y), whose))
    owners = None if whose is None else np.asarray(whose)[rows]
    return {"validation": _take(dataset.validation, rows), "validation_owners": owners}


def _take(examples: Examples, rows: np.ndarray) -> Examples:
    if len(rows) == len(examples.y):
        return examples
    return tree.map(lambda a: np.asarray(a)[rows], examples)


def make_model(
    file: ExperimentFile, table: dict[str, Any], dataset: Dataset, at: KeyPath = ("model",)
) -> Model:
    """The model, with as many classes as the data has."""
    known = {name: getattr(dataset, name) for name in schema.FROM_DATA}
    made = make(file, at, "model", table, known)
    if dataset.class_weights is not None:
        with located(file, at):
            made = class_weighted(made, dataset.class_weights)
    changes = table.get("augment")
    if changes is None or changes is False:
        return made
    at = (*at, "augment")
    given = {} if changes is True else changes
    checked = schema.check(file, at, signatures.arguments(Change), {"name": "", **given})
    with located(file, at):
        return augmented(made, **checked.model_dump(exclude_unset=True, exclude={"name"}))


def population(
    file: ExperimentFile,
    sections: FileSchema,
    dataset: Dataset,
    partition: KeyPath = ("partition",),
) -> tuple[Any, Clients, Clients, Validation | None]:
    """What the server has, the clients, test examples for each of them, and what is set apart for
    choosing."""
    section: Any = sections.server
    source: Any = None
    n = len(dataset.train.y)
    if section is not None:
        _check_server(file, section, n)
        if section.examples is not None or section.share is not None:
            size = section.examples or round(section.share * n)
            order = np.random.default_rng(section.seed).permutation(n)
            source = _take(dataset.train, np.sort(order[:size]))
            dataset = _keep(dataset, np.sort(order[size:]))
        elif section.owners is not None:
            own, others = _by_owner(
                file, ("server", "owners"), dataset, section.owners, section.seed
            )
            source, dataset = _take(dataset.train, own), _keep_owners(dataset, others)
        elif section.data is not None:
            source = load_dataset(file, ("server", "data"), section.data, like=dataset).train
        elif section.loss is not None:
            source = make(file, ("server", "loss"), "loss", section.loss)
    clients, tests = _split(file, sections.partition, dataset, partition)
    # Before clients send the server some: it must not train on them either.
    clients, validation = apart(file, sections.evaluate.validation, dataset, clients)
    if section is not None and section.clients is not None:
        with located(file, ("server",)):
            source = collect(clients, section.clients, section.each, section.seed)
    if section is not None and section.balance:
        with located(file, ("server", "balance")):
            source = balance(source, section.seed)
    return source, clients, tests, validation


def _split(
    file: ExperimentFile, table: dict[str, Any], dataset: Dataset, at: KeyPath
) -> tuple[Clients, Clients]:
    max_examples = table.get("max_examples")
    if catalogue.KINDS["partition"].get(table["name"]) is natural:
        with located(file, (*at, "name")):
            clients, tests = dataset.natural()
    else:
        clients = make(file, at, "partition", table, first=(dataset.train,))
        clients = dataclasses.replace(clients, preprocessing=dataset.preprocessing)
        tests = matched_test(dataset.test, clients)
    if max_examples is not None:
        rows = [clients.rows(i)[:max_examples] for i in range(len(clients))]
        fewer = Clients.from_rows(clients.examples, rows)
        clients = dataclasses.replace(clients, order=fewer.order, offsets=fewer.offsets)
    return clients, tests


_SOURCES = ("examples", "share", "owners", "clients", "data", "loss")


def _check_server(file: ExperimentFile, section: Any, n: int) -> None:
    given = [name for name in _SOURCES if getattr(section, name) is not None]
    if len(given) != 1:
        raise file.error(
            ("server",),
            f"{' and '.join(given) or 'nothing'} is given; give one of {', '.join(_SOURCES)}, such as "
            f"examples = 500.",
        )
    if section.balance and section.loss is not None:
        raise file.error(("server", "balance"), "a loss has no classes to balance; give examples.")
    if (section.clients is None) != (section.each is None):
        raise file.error(("server",), "give `clients` and `each` together, or neither.")
    size = section.examples or (section.share and round(section.share * n)) or 1
    if not 1 <= size < n:
        raise file.error(
            ("server", given[0]), f"{size} of {n} examples for the server; leave clients some."
        )
