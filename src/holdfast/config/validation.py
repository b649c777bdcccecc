"""Examples to choose rounds and hyper-parameters by: a share of every client's, or what the data set has."""

from typing import Any, NamedTuple

import numpy as np
from jax import tree

from holdfast.config.file import ExperimentFile
from holdfast.config.making import located
from holdfast.data import Clients, Dataset, matched_test, set_apart
from holdfast.engine.stopping import EarlyStopping
from holdfast.errors import did_you_mean


class Validation(NamedTuple):
    """What models are chosen by: all examples together, and every client's own if it has some."""

    examples: Any
    clients: Clients


def apart(
    file: ExperimentFile, share: float | None, dataset: Dataset, clients: Clients
) -> tuple[Clients, Validation | None]:
    """What clients train on, and what is set apart for choosing; None where nothing is."""
    if dataset.validation is not None:
        if share is not None:
            raise file.error(
                ("evaluate", "validation"),
                f"`validation` is {share:g}, and the data set has {len(dataset.validation.y)} examples to "
                f"choose by already; leave one of the two out.",
            )
        return clients, Validation(dataset.validation, _of_clients(dataset, clients))
    if share is None:
        return clients, None
    if dataset.ordered:
        raise file.error(
            ("evaluate", "validation"),
            f"`validation` draws examples at random, and those of [data] are divided by group or by time; "
            f"say validation_share = {share:g} in [data], which keeps to that.",
        )
    with located(file, ("evaluate", "validation")):
        train, own = set_apart(clients, share)
    examples = tree.map(lambda a: np.asarray(a)[own.order], own.examples)
    return train, Validation(examples, own)


def _of_clients(dataset: Dataset, clients: Clients) -> Clients:
    """Every client's own: those of its owner where that is known, else in its own mix of labels."""
    examples: Any = dataset.validation
    if dataset.validation_owners is None or clients.names is None:
        return matched_test(examples, clients)
    owners = np.asarray(dataset.validation_owners).astype(str)
    return Clients.from_rows(examples, [np.flatnonzero(owners == name) for name in clients.names])


def early_stopping(
    file: ExperimentFile, section: Any, metric: str, names: list[str], has_validation: bool
) -> EarlyStopping | None:
    """What `patience`, `keep` and `choose_by` ask for; None if they are not there."""
    asked = [key for key in ("choose_by", "patience", "keep") if getattr(section, key) is not None]
    if not asked:
        return None
    if not has_validation:
        raise file.error(
            ("evaluate", asked[0]),
            f"`{asked[0]}` needs examples to choose by, and not the test examples, which would then look "
            f"better than they are; add validation = 0.1.",
        )
    if section.choose_by is None and section.personal is False and metric.startswith("personal_"):
        raise file.error(
            ("evaluate", asked[0]),
            f"`{asked[0]}` chooses by what clients use, and personal = false leaves that out; take that "
            f'line away, or say choose_by = "validation_loss" to choose by the server\'s model.',
        )
    by = section.choose_by or _counterpart(metric, names)
    if by not in names:
        raise file.error(
            ("evaluate", "choose_by"), f"`{by}` is not measured; {did_you_mean(by, names)}"
        )
    if not by.startswith("validation_"):
        known = [name for name in names if name.startswith("validation_")]
        raise file.error(
            ("evaluate", "choose_by"),
            f"`choose_by` is {by}, which is not measured on examples set apart for choosing; give one of "
            f"{', '.join(known)}.",
        )
    if section.patience is None and section.keep is None:
        raise file.error(
            ("evaluate", "choose_by"),
            '`choose_by` alone chooses nothing; add keep = "best" or patience = 10.',
        )
    with located(file, ("evaluate",)):
        return EarlyStopping(by, section.patience, section.keep or "best")


def _counterpart(metric: str, names: list[str]) -> str:
    """The column of the same metric on validation examples; accuracy or loss where it has none."""
    plain = "personal_" if metric.startswith("personal_") else ""
    wanted = [
        metric,
        f"validation_{metric}",
        f"validation_{plain}accuracy",
        f"validation_{plain}loss",
    ]
    usable = [name for name in wanted if name in names and name.startswith("validation_")]
    return usable[0] if usable else "validation_loss"
