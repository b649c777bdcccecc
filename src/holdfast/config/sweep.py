"""`[sweep]`: values to try; every combination is a method of its own, as if written so in the file."""

import copy
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from holdfast.config.file import ExperimentFile, KeyPath, put
from holdfast.errors import HoldfastError, did_you_mean
from holdfast.sweeps.grid import WAYS, combinations
from holdfast.sweeps.naming import brief, short_names

# Either replaces the other in local training that goes over another.
INSTEAD = {"steps": "epochs", "epochs": "steps"}
_EXAMPLE = '"local.learning_rate" = [0.05, 0.1] or "algorithm.feddyn.alpha" = [0.01, 0.1]'


# What of [server] is how it trains; the rest is who has which data, which all methods share.
_TRAINING = ("local", "pretrain", "gradient_batch_size")


def over(shared: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """Own local training over what is shared: its `steps` replace `epochs`, and back."""
    hidden = {INSTEAD[name] for name in own if name in INSTEAD}
    return {n: v for n, v in shared.items() if n not in hidden} | own


@dataclasses.dataclass(frozen=True)
class Axis:
    """One key of `[sweep]`."""

    at: KeyPath  # where it stands
    root: str  # "local" or "server", which all methods share, or "algorithm"
    number: int | None  # the [[algorithm]] it is about; None: all of them
    inside: str  # the key in there
    values: tuple[Any, ...]

    @property
    def key(self) -> str:
        """The dotted key it changes, with the number of the algorithm."""
        return ".".join(
            [self.root, *([] if self.number is None else [str(self.number)]), self.inside]
        )

    @property
    def name(self) -> str:
        """What a method calls it."""
        return self.inside if self.root == "algorithm" else f"{self.root}.{self.inside}"

    def concerns(self, number: int, table: dict[str, Any], others: Sequence["Axis"]) -> bool:
        """Whether it changes a method: one with a value of its own is left alone by what all share."""
        if self.number is not None:
            return self.number == number
        own = [name for _, name, _ in _flat(table.get(self.root) or {}, ("",))]
        before = f"{self.root}."
        own += [
            a.inside.removeprefix(before)
            for a in others
            if a.number == number and a.inside.startswith(before)
        ]
        return not any(_same_or_inside(self.inside, name) for name in own)


def _same_or_inside(one: str, other: str) -> bool:
    """Whether either key is the other, a key in it, or what stands in its place."""
    table, _, last = one.rpartition(".")
    if last in INSTEAD and ".".join(filter(None, [table, INSTEAD[last]])) == other:
        return True
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


@dataclasses.dataclass(frozen=True)
class SweptMethod:
    """One method to run: an entry of `[[algorithm]]` with one combination of values."""

    file: ExperimentFile  # as if the values were written in it; messages point at [sweep]
    number: int  # which entry
    values: dict[str, Any]  # by short names; empty where nothing is swept
    changed: tuple[KeyPath, ...]  # where they are put

    @property
    def at(self) -> KeyPath:
        """Where the entry stands."""
        return ("algorithm", self.number)

    @property
    def table(self) -> dict[str, Any]:
        """The entry, with the values in it."""
        return self.file.values["algorithm"][self.number]

    @property
    def unswept(self) -> dict[str, Any]:
        """The entry without what is swept in it."""
        swept = {at[2] for at in self.changed if at[0] == "algorithm"}
        return {name: value for name, value in self.table.items() if name not in swept}

    @property
    def local(self) -> dict[str, Any]:
        """What all methods share of local training, with the values in it."""
        return self.file.values["local"]


def swept_methods(
    file: ExperimentFile,
    section: dict[str, Any],
    tables: list[Any],
    trains_server: Callable[[SweptMethod], bool] = lambda _: True,
) -> list[SweptMethod]:
    """Every method to run, in the order of the file; the entries as they are without `[sweep]`.

    A method to which it does not matter how the server trains is not swept over it.
    """
    file = dataclasses.replace(file, values={**file.values, "algorithm": tables})
    how = section.get("how", "grid")
    if how not in WAYS:
        raise file.error(
            ("sweep", "how"), f"`how` is {how!r} in [sweep]; {did_you_mean(str(how), WAYS)}"
        )
    axes = [
        _axis(file, at, dotted, values, tables)
        for at, dotted, values in _flat(section, ("sweep",))
        if at != ("sweep", "how")
    ]
    _check(file, axes, how)
    found: list[SweptMethod] = []
    used: set[KeyPath] = set()
    for number, table in enumerate(tables):
        concerned = [a for a in axes if a.concerns(number, table, axes)]
        points = _points(file, number, concerned, how)
        if any(a.root == "server" for a in concerned) and not any(map(trains_server, points)):
            concerned = [a for a in concerned if a.root != "server"]
            points = _points(file, number, concerned, how)
        used |= {a.at for a in concerned}
        found += points
    for axis in axes:
        if axis.root == "server" and axis.at not in used:
            raise file.error(
                axis.at, f"`{axis.name}` changes no method: the server trains in none; remove it."
            )
    return found


def _points(file: ExperimentFile, number: int, axes: list[Axis], how: str) -> list[SweptMethod]:
    return [_swept_method(file, number, axes, c) for c in _combinations(axes, how)]


def _flat(table: dict[str, Any], before: KeyPath) -> Iterator[tuple[KeyPath, str, Any]]:
    """Keys in quotes are one word with dots, others tables within tables; both are the same."""
    for key, value in table.items():
        at = (*before, key)
        if isinstance(value, dict):
            yield from _flat(value, at)
        else:
            yield at, ".".join(map(str, at[1:])), value


def _axis(file: ExperimentFile, at: KeyPath, dotted: str, values: Any, tables: list[Any]) -> Axis:
    if not isinstance(values, list) or not values:
        raise file.error(
            at, f"`{dotted}` is {values!r} in [sweep]; give a list of values, such as [0.01, 0.1]."
        )
    root, _, inside = dotted.partition(".")
    number = None
    if root == "algorithm":
        word, inside = _algorithm_and_key(inside, tables)
        number = _number(file, at, word, tables)
    elif root == "server":
        _check_server(file, at, inside)
    if root not in ("local", "server", "algorithm") or inside in ("", *_WHOLE):
        raise file.error(at, f"`{dotted}` cannot be swept; give {_EXAMPLE}.")
    return Axis(at, root, number, inside, tuple(values))


_WHOLE = ("name", "label", "local", "server")


def _check_server(file: ExperimentFile, at: KeyPath, inside: str) -> None:
    if "server" not in file.values:
        raise file.error(at, "there is no [server] to sweep; add one with examples = 500.")
    if inside.partition(".")[0] not in _TRAINING:
        raise file.error(
            at,
            f"`server.{inside}` cannot be swept, only how the server trains: server.local.learning_rate, "
            f"server.pretrain, ...; an argument of a method is algorithm.NAME.{inside}.",
        )


def _names(tables: list[Any]) -> list[str]:
    return [str(t.get("label") or t["name"]) for t in tables]


def _algorithm_and_key(dotted: str, tables: list[Any]) -> tuple[str, str]:
    """A label may have dots in it too."""
    for name in sorted(_names(tables), key=len, reverse=True):
        if dotted.startswith(f"{name}."):
            return name, dotted.removeprefix(f"{name}.")
    word, _, key = dotted.partition(".")
    return word, key


def _number(file: ExperimentFile, at: KeyPath, word: str, tables: list[Any]) -> int:
    names = _names(tables)
    if names.count(word) == 1:
        return names.index(word)
    if names.count(word) > 1:
        raise file.error(
            at, f"{names.count(word)} algorithms are called `{word}`; give each a label."
        )
    if word.isdigit() and int(word) < len(tables):
        return int(word)
    raise file.error(at, f"no algorithm is called `{word}`; {did_you_mean(word, names)}")


def _check(file: ExperimentFile, axes: list[Axis], how: str) -> None:
    for i, axis in enumerate(axes):
        if any(axis.key == other.key for other in axes[:i]):
            raise file.error(
                axis.at, f"`{axis.inside}` is swept twice; give all its values in one list."
            )
        names = [brief(value) for value in axis.values]
        twice = [name for j, name in enumerate(names) if names.index(name) != j]
        if twice and how == "grid":
            raise file.error(axis.at, f"the value {twice[0]} is there twice; give each once.")
        if how == "paired" and len(axis.values) != len(axes[0].values):
            raise file.error(
                axis.at,
                f"{len(axis.values)} values paired with {len(axes[0].values)} of "
                f"`{axes[0].inside}`; give as many of each.",
            )


def _combinations(axes: list[Axis], how: str) -> list[tuple[Any, ...]]:
    found = combinations([axis.values for axis in axes], how)
    # A method that only some of the keys concern may have the same pair several times.
    return [c for i, c in enumerate(found) if how == "grid" or c not in found[:i]]


def _swept_method(
    file: ExperimentFile, number: int, axes: list[Axis], combination: tuple[Any, ...]
) -> SweptMethod:
    values, lines, changed = copy.deepcopy(file.values), dict(file.lines), dict(file.changed)
    targets: list[KeyPath] = []
    # What clients do first: a server that trains as they do begins with that.
    for axis, value in sorted(
        zip(axes, combination, strict=True), key=lambda p: p[0].root == "server"
    ):
        if axis.root == "server" and axis.inside.startswith("local."):
            values["server"].setdefault("local", copy.deepcopy(values["local"]))
        try:
            target = put(values, axis.key, copy.deepcopy(value))
        except HoldfastError as error:
            raise file.error(axis.at, str(error)) from None
        if target in file.changed:
            raise file.error(
                target, f"[sweep] has values for it; set sweep.{'.'.join(map(str, axis.at[1:]))}."
            )
        targets.append(target)
        line = file.line_of(axis.at)
        if line is not None:
            lines[target] = line
        if axis.at in file.changed:
            changed[target] = file.changed[axis.at]
    names = short_names([axis.name for axis in axes])
    by_name = {names[a.name]: value for a, value in zip(axes, combination, strict=True)}
    made = dataclasses.replace(file, values=values, lines=lines, changed=changed)
    return SweptMethod(made, number, by_name, tuple(targets))
