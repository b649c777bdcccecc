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
    """Examples to calibrate with, which nobody trains on, chooses by or is tested on."""

    examples: Examples
    owners: Any


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

    def taken(rows: np.ndarray) -> HeldOut:
        owners = None if dataset.test_owners is None else np.asarray(dataset.test_owners)[rows]
        return HeldOut(tree.map(lambda a: np.asarray(a)[rows], dataset.test), owners)

    kept = taken(rest)
    return dataclasses.replace(dataset, test=kept.examples, test_owners=kept.owners), taken(few)


def of_clients(held: HeldOut, clients: Clients, seed: int) -> Clients:
    """Every client's own of them, none of which is another's: those of its owner where that is known, else
    dealt out at random, of each label as many as there is of it in the client's training examples."""
    if held.owners is not None and clients.names is not None:
        owners = np.asarray(held.owners).astype(str)
        rows = [np.flatnonzero(owners == name) for name in clients.names]
    else:
        rows = _dealt(np.asarray(held.examples.y), clients, seed)
    found = Clients.from_rows(held.examples, rows)
    return dataclasses.replace(found, names=clients.names)


def _dealt(labels: np.ndarray, clients: Clients, seed: int) -> list[np.ndarray]:
    trained = np.asarray(clients.examples.y)
    if trained.ndim != 1 or trained.dtype.kind not in "biu":
        trained, labels = np.zeros(len(trained), np.int64), np.zeros(len(labels), np.int64)
    rng = host_generator(Purpose.SETS, seed, 3)
    parts: list[list[np.ndarray]] = [[] for _ in range(len(clients))]
    for label in np.unique(labels):
        stock = rng.permutation(np.flatnonzero(labels == label))
        wanted = np.array([(trained[clients.rows(i)] == label).sum() for i in range(len(clients))])
        if not wanted.any():
            continue  # nobody's
        ends = np.round(np.cumsum(wanted) / wanted.sum() * len(stock)).astype(int)
        for own, mine in zip(parts, np.split(stock, ends[:-1]), strict=True):
            own.append(mine)
    return [np.sort(np.concatenate(own)) if own else np.zeros(0, np.int64) for own in parts]


def evaluators(
    file: ExperimentFile,
    section: ConformalSection | None,
    every: int,
    held: tuple[HeldOut, ...],
    calibrations: Clients | None,
    tests: Clients,
    test_sets: list[Any],
    personal: list[str],
) -> list[conformal.Conformal]:
    """What measures sets or intervals: one for everybody; at the server, one for each population.

    `personal` has the names of methods that leave clients models of their own.
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
        if section.by != "server":
            return [conformal.evaluate(calibrations, tests, **known)]
        if tests.populations is None:
            return [conformal.evaluate(held[0].examples, test_sets[0], own=tests, **known)]
        names = tests.populations.names
        pairs = zip(held, test_sets, names, strict=True)
        return [
            conformal.evaluate(OfPopulation(one.examples, p), test, name=name, **known)
            for p, (one, test, name) in enumerate(pairs)
        ]
