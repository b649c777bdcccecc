"""Tables at sites: before a run, two turns in which the server learns what all columns have together."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from holdfast.data.preprocessing.fitted import Number
from holdfast.data.preprocessing.summary import Summary
from holdfast.data.tables.apart import ColumnsThere, Fitted, Together
from holdfast.deploy import frame, messages, summaries
from holdfast.deploy.frame import BadMessageError
from holdfast.deploy.replies import read_refusal
from holdfast.deploy.study import Study
from holdfast.deploy.transport import Arrival, Transport
from holdfast.errors import HoldfastError

log = logging.getLogger("holdfast.deploy")
# Seconds after which a site that said why it cannot, or nothing, is asked again.
_AGAIN = 10.0
_SILENT = 120.0
# Deviations of the other sites between their mean and a site's, from which on its units are doubted.
_FAR = 20.0
_Read = Callable[[frame.Frame], tuple[str, Any]]


def fit_at_sites(study: Study, transport: Transport, wait: float | None) -> Fitted:
    """What becomes of all sites' columns, from what each says of its own; waits until all have answered."""
    assert study.table is not None
    names = study.names
    columns = messages.Columns(study=study.digest).pack()
    there = _answers(transport, names, columns, _read_there, wait)
    _say_of_labels(there)
    together = Together(study.table, tuple(there[name] for name in names), names)
    asked = {"words": sorted(together.words), "regression": together.regression}
    message = messages.Summarise(study=study.digest, body=summaries.as_json(asked)).pack()
    target = together.regression and study.table.scale != "none"

    def read(found: frame.Frame) -> tuple[str, Any]:
        said = messages.Summary.read(found)
        return said.name, summaries.read_summary(said.body, together.questions, target)

    answers = _answers(transport, names, message, read, wait)
    fitted = together.fitted([answers[name] for name in names])
    for line in odd_units(fitted, answers):
        log.warning("deploy: %s", line)
    return fitted


def _read_there(found: frame.Frame) -> tuple[str, Any]:
    said = messages.There.read(found)
    return said.name, summaries.read_there(said.body)


def _say_of_labels(there: dict[str, ColumnsThere]) -> None:
    """Of sites whose training rows are all of one class; refuses a federation of one class."""
    known: dict[str, set[str]] = {}
    for name, own in there.items():
        if own.labels is not None:
            known[name] = {label for label, count in own.labels.items() if count}
    if len(known) == len(there) and len(set[str]().union(*known.values())) < 2:
        raise HoldfastError(
            "deploy: the training rows of all sites are of one class, so there is nothing to tell apart; "
            "check `label` and `positive` of [data].",
            about=("data",),
        )
    for name in (name for name, labels in known.items() if len(labels) == 1):
        log.warning("deploy: site %s: all its training rows are of one class", name)


def odd_units(fitted: Fitted, answers: dict[str, Summary]) -> list[str]:
    """A line for every number of a site that lies far from those of the others: likely other units."""
    numbers = [one.name for one in fitted.preprocessing.inputs if isinstance(one, Number)]
    lines = []
    for column in numbers if len(answers) > 2 else ():
        for site, answer in answers.items():
            mine = answer[column]
            others = [a[column] for name, a in answers.items() if name != site and a[column].count]
            many = sum(o.count for o in others)
            if mine.count < 2 or many < 2:
                continue
            mean = sum(o.count * o.mean for o in others) / many
            squares = sum(o.squares + o.count * (o.mean - mean) ** 2 for o in others)
            deviation = math.sqrt(squares / many)
            within = math.sqrt(mine.squares / mine.count)
            if abs(mine.mean - mean) > _FAR * max(deviation, within, 1e-12 * abs(mean)):
                lines.append(
                    f"site {site}: column `{column}` lies far from that of the other sites; check its units"
                )
    return lines


def _answers(
    transport: Transport,
    names: Sequence[str],
    message: bytes,
    read: _Read,
    wait: float | None,
    pause: float = 0.2,
) -> dict[str, Any]:
    """What every site answers, by its name; asks whoever can be reached until all have."""
    found: dict[str, Any] = {}
    at: dict[str, str] = {}  # address -> name
    why: dict[str, str] = {}  # address -> what is wrong
    tickets: dict[str, str] = {}  # ticket -> address
    due: dict[str, float] = {}  # address -> when it is asked
    began = time.monotonic()
    while len(found) < len(names):
        now = time.monotonic()
        for address in transport.addresses():
            if address not in at and due.get(address, now) <= now:
                tickets[transport.send(address, message)] = address
                due[address] = now + _SILENT
        for arrival in transport.receive(pause):
            if tickets.pop(arrival.ticket, None) != arrival.address:
                continue
            try:
                name, value = _read(arrival, read, names, found)
            except BadMessageError as bad:
                due[arrival.address] = time.monotonic() + _AGAIN
                if why.get(arrival.address) != str(bad):
                    log.warning("deploy: %s: %s", arrival.address, bad)
                why[arrival.address] = str(bad)
            else:
                found[name], at[arrival.address] = value, name
                why.pop(arrival.address, None)
        if wait is not None and time.monotonic() - began > wait and len(found) < len(names):
            missing = ", ".join(name for name in names if name not in found)
            said = "; ".join(f"{address}: {reason}" for address, reason in sorted(why.items()))
            raise HoldfastError(
                f"deploy: no answer of {missing} that can be used after {wait:g} s; "
                f"{said or 'start these sites'}."
            )
    return found


def _read(
    arrival: Arrival, read: _Read, names: Sequence[str], found: dict[str, Any]
) -> tuple[str, Any]:
    if arrival.data is None:
        raise BadMessageError(f"no answer ({arrival.error})")
    got = frame.unpack(arrival.data, summaries.MOST, 4096)
    read_refusal(got)
    name, value = read(got)
    if name not in names:
        raise BadMessageError(f"no site of this federation is called {name!r}")
    if name in found:
        raise BadMessageError(f"the site {name!r} is at another address already")
    return name, value
