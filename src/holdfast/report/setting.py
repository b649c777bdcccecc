"""What was run, in words: data, split, model, training and methods of an experiment file."""

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from holdfast.config import catalogue
from holdfast.report.appearance import Appearance
from holdfast.runs.folder import RunFolder
from holdfast.runs.names import in_words, method_name

_EVALUATED = {
    "train": "and on all training data",
    "average": "the average of clients' latest models",
    "active": "the average of the round's models",
    "personal": "every client's own model on test rows like its own",
}
_TOLD = ("name", "local", "server", "label")  # elsewhere, or in another way


@dataclasses.dataclass(frozen=True)
class Fact:
    """One line: what it is about, and what there is to say."""

    about: str
    text: str


def setting(folder: RunFolder, appearance: Appearance) -> list[Fact]:
    """Everything a reader must know before the first number."""
    values = tomllib.loads(folder.experiment_file.read_text(encoding="utf-8"))
    populations = values.get("population") or [{}]
    facts = []
    for number, population in enumerate(populations, 1):
        whose = f" of population {population.get('name', number)}" if len(populations) > 1 else ""
        own = {**values, **population} if len(populations) > 1 else values
        facts += [Fact(fact.about + whose, fact.text) for fact in _population(own)]
    sizes = folder.split().get("sizes", ())
    if sizes:
        facts.insert(1, Fact("Clients", _sizes(sizes)))
    # What methods are compared by need not stand in the file.
    values = {**values, "metric": folder.description()["metric"]}
    facts += _training(values, len(sizes), appearance)
    return [fact for fact in facts if fact.text]


def _population(values: Mapping[str, Any]) -> Iterator[Fact]:
    for about, kind in (("Data", "data"), ("Split", "partition"), ("Model", "model")):
        if kind in values:
            yield Fact(about, named(kind, values[kind]))


def _sizes(sizes: list[int]) -> str:
    most, least = max(sizes), min(sizes)
    each = f"{least:,}" if most == least else f"{least:,} to {most:,}"
    return f"{len(sizes):,}, with {each} training examples each, {sum(sizes):,} in all"


def _training(values: Mapping[str, Any], clients: int, appearance: Appearance) -> Iterator[Fact]:
    local = values.get("local")
    yield Fact("A client's round", pairs(local) if isinstance(local, Mapping) else "")
    cohort = as_table(values.get("cohort", "everyone"))
    if cohort.get("name") == "fixed" and clients and "size" in cohort:
        yield Fact("In a round", f"{cohort['size']} of {clients:,} clients")
    else:
        yield Fact("In a round", named("cohort", cohort))
    yield Fact("Methods", "; ".join(map(_method, values.get("algorithm", ()))))
    yield Fact("Server", pairs(values.get("server", {})))
    yield Fact("Swept", pairs(values.get("sweep", {})))
    evaluated = dict(values.get("evaluate", {}))
    if values["metric"].startswith("personal_"):
        evaluated["personal"] = True
    yield Fact("Measured", _measured(evaluated, appearance))
    yield Fact("Length", _length(values, appearance))


def _measured(given: Mapping[str, Any], appearance: Appearance) -> str:
    """What is evaluated besides the server's model on the test set."""
    told = ["the server's model on the test set"]
    told += [words for key, words in _EVALUATED.items() if given.get(key) is True]
    metrics = [as_table(one)["name"] for one in given.get("metrics", ())]
    if metrics:
        told.append(", ".join(appearance.metric(str(name).rpartition(":")[2]) for name in metrics))
    rest = {k: v for k, v in given.items() if k not in (*_EVALUATED, "metrics", "every")}
    every = given.get("every", 1)
    told.append(pairs(rest))
    return "; ".join(filter(None, told)) + ("" if every == 1 else f"; every {every} rounds")


def _method(table: Mapping[str, Any]) -> str:
    name = str(table.get("name", ""))
    called = str(table.get("label") or method_name(name.rpartition(":")[2]))
    return ", ".join(
        filter(None, [called, pairs({k: v for k, v in table.items() if k not in _TOLD})])
    )


def _length(values: Mapping[str, Any], appearance: Appearance) -> str:
    seeds = values.get("seeds", 1)
    count = seeds if isinstance(seeds, int) else len(seeds)
    told = f"{values.get('rounds', '?')} rounds, {count} seed{'s' * (count != 1)}"
    if "target" in values:
        told += f"; target {appearance.metric(values['metric'])} {told_as(values['target'])}"
    return told


def as_table(given: Any) -> dict[str, Any]:
    """A name alone is a table with a name."""
    return dict(given) if isinstance(given, Mapping) else {"name": str(given)}


def named(kind: str, given: Any) -> str:
    """Something of the catalogue: its name, its settings and what its documentation says of it.

    Example:
        >>> named("cohort", {"name": "fixed", "size": 10}).split(".")[0]
        'fixed, size 10'
    """
    table = as_table(given)
    name = str(table.pop("name", ""))
    called = ", ".join(filter(None, [in_words(name), pairs(table)]))
    if name not in catalogue.KINDS[kind]:
        return called
    title = catalogue.page(kind, name).title.replace("`", "").rstrip(".")
    title = title.removesuffix(", as (train, test)")
    # Formulas are for the documentation.
    return called if "$" in title or "\\" in title else f"{called}. {title}."


def pairs(table: Mapping[str, Any]) -> str:
    """Keys and values.

    Example:
        >>> pairs({"epochs": 5, "learning_rate": {"schedule": "exponential", "value": 0.1}})
        'epochs 5, learning rate (schedule exponential, value 0.1)'
    """
    return ", ".join(f"{in_words(key)} {told_as(value)}" for key, value in table.items())


def told_as(value: Any) -> str:
    """A value of a file.

    Example:
        >>> told_as([64, 32]), told_as(True), told_as(0.10)
        ('64 and 32', 'yes', '0.1')
    """
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return f"({pairs(value)})"
    if isinstance(value, list):
        words = [told_as(one) for one in value]
        if len(words) > 8:
            return f"{', '.join(words[:8])} and {len(words) - 8} more"
        return " and ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))
    return f"{value:g}" if isinstance(value, float) else str(value)
