"""`[conformal]`: which of the test examples calibrate, whose they are, and what is measured on the others."""

import dataclasses
from typing import Any, NamedTuple

import numpy as np
from jax import tree

from holdfast import conformal
from holdfast.config.file import ExperimentFile
from holdfast.config.making import located
from holdfast.config.schema import ConformalSection
from holdfast.conformal.divide import rows_in_two
from holdfast.core.keys import Purpose, host_generator
from holdfast.data import Clients, Dataset, Examples
from holdfast.data.grouped import OfPopulation

_AT = ("conformal",)


class HeldOut(NamedTuple):
    """Test examples in two: some to calibrate with, which nobody trains on, chooses by or is tested on."""

    examples: Examples  # to calibrate with
    tested: Examples  # all others
    labels: np.ndarray  # of all test examples
    owners: np.ndarray | None  # whose they are, where that is known
    rows: tuple[np.ndarray, np.ndarray]  # which of them calibrate, and which do not


def set_apart(
    file: ExperimentFile, section: ConformalSection | None, dataset: Dataset
) -> tuple[Dataset, HeldOut | None]:
    """The data set with fewer test examples, and those that calibrate; as it is where nothing is asked."""
    if section is None:
        return dataset, None
    if dataset.ordered:
        raise file.error(
            (*_AT, "share"),
            "`share` draws examples to calibrate with at random, and the test examples of [data] are divided "
            "by group or by time; give hf.conformal.evaluate, in Python, examples of other groups.",
        )
    n = len(dataset.test.y)
    few, rest = rows_in_two(n, section.share, section.seed)
    if not len(few) or not len(rest):
        raise file.error(
            (*_AT, "share"),
            f"`share` is {section.share:g} of {n} test examples; leave some to calibrate with and some to "
            f"test on.",
        )
    parts = [tree.map(lambda a, r=rows: np.asarray(a)[r], dataset.test) for rows in (few, rest)]
    owners = None if dataset.test_owners is None else np.asarray(dataset.test_owners)
    held = HeldOut(parts[0], parts[1], np.asarray(dataset.test.y), owners, (few, rest))
    kept = None if owners is None else owners[rest]
    return dataclasses.replace(dataset, test=held.tested, test_owners=kept), held


def of_clients(held: HeldOut, clients: Clients, seed: int) -> tuple[Clients, Clients]:
    """Every client's own examples to calibrate with and to test on, none of which is another client's.

    Those of its owner where that is known. Else all test examples are dealt out at random, of each label in
    proportion to how many the client has to train on. That does not look at which of them calibrate, so that
    a client's two parts are exchangeable.
    """
    if held.owners is not None and clients.names is not None:
        numbers = {name: i for i, name in enumerate(clients.names)}
        owner = np.array([numbers.get(str(name), -1) for name in held.owners.tolist()], np.int64)
    else:
        owner = _dealt(held.labels, clients, seed)

    def part(examples: Examples, rows: np.ndarray) -> Clients:
        whose = owner[rows]
        order = np.argsort(whose, kind="stable")
        sizes = np.bincount(whose[whose >= 0], minlength=len(clients))
        offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        # Rows that are nobody's come first.
        return Clients(examples, order[(whose < 0).sum() :], offsets, names=clients.names)

    return part(held.examples, held.rows[0]), part(held.tested, held.rows[1])


def _dealt(labels: np.ndarray, clients: Clients, seed: int) -> np.ndarray:
    """Whose each row is, by its label; -1 of labels that nobody has."""
    trained = np.asarray(clients.examples.y)
    if trained.ndim != 1 or trained.dtype.kind not in "biu":
        trained, labels = np.zeros(len(trained), np.int64), np.zeros(len(labels), np.int64)
    rng = host_generator(Purpose.SETS, seed, 3)
    whose = np.repeat(np.arange(len(clients)), clients.sizes)
    owner = np.full(len(labels), -1)
    for label in np.unique(labels):
        stock = rng.permutation(np.flatnonzero(labels == label))
        wanted = np.bincount(whose[trained[clients.order] == label], minlength=len(clients))
        if wanted.any():
            ends = np.round(np.cumsum(wanted) / wanted.sum() * len(stock)).astype(int)
            owner[stock] = np.repeat(np.arange(len(clients)), np.diff(ends, prepend=0))
    return owner


def evaluators(
    file: ExperimentFile,
    section: ConformalSection | None,
    every: int,
    held: tuple[HeldOut, ...],
    own: tuple[Clients, Clients],
    personal: list[str],
    unit: float = 1.0,
) -> list[conformal.Conformal]:
    """What measures sets or intervals: one for everybody; at the server, one for each population.

    `own` is every client's to calibrate with and to test on; `personal` has the names of methods that leave
    clients models of their own; `unit` is what one unit of the model's numbers is in the table's.
    """
    if section is None:
        return []
    if section.by == "server" and personal:
        raise file.error(
            (*_AT, "by"),
            f'by = "server" calibrates the server\'s model, and clients of {personal[0]} use models of their '
            f'own; say by = "clients" or by = "each client".',
        )
    known: dict[str, Any] = {
        "kappa": section.kappa,
        "by": section.by,
        "bins": section.bins,
        "largest": section.largest,
        "every": section.every or every,
    }
    with located(file, _AT):
        known["score"] = conformal.Score(
            section.score, section.penalty, section.k_reg, section.randomised, section.seed
        )
        calibrations, tests = own
        if section.by != "server":
            found = conformal.evaluate(calibrations, tests, **known)
            return [dataclasses.replace(found, unit=unit)]
        if tests.populations is None:
            found = conformal.evaluate(held[0].examples, held[0].tested, own=tests, **known)
            return [dataclasses.replace(found, unit=unit)]
        pairs = zip(held, tests.populations.names, strict=True)
        return [
            conformal.evaluate(
                OfPopulation(one.examples, p), OfPopulation(one.tested, p), name=name, **known
            )
            for p, (one, name) in enumerate(pairs)
        ]
