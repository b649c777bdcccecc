"""A table whose rows are at several sites: what each says of its own, and what is made of that together.

Two turns, as of `preprocessing.fit`: which columns there are and which labels; then sums, counts and
sketches. What comes of it is what `hf.data.table` fits of all rows in one place, to the bit.
"""

import dataclasses
import functools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from holdfast.data.adapters.arrays import TargetKind, divided
from holdfast.data.clients import Examples
from holdfast.data.dataset import Dataset
from holdfast.data.designs import TRAIN, Design, told_parts
from holdfast.data.preprocessing.columns import numbers, texts
from holdfast.data.preprocessing.fit import Missing, Scale, Settings, put_together
from holdfast.data.preprocessing.fitted import Preprocessing
from holdfast.data.preprocessing.summary import Question, Summary, summary, words_in
from holdfast.data.tables.files import RawTable, read_table
from holdfast.data.tables.labels import (
    MOST_CLASSES,
    TARGET,
    class_weights,
    fractional,
    read_label,
    target_of,
)
from holdfast.data.tables.rows import WHO, complete, names_of, owners_of, times_of, with_tests
from holdfast.data.tables.table import Value, inputs_of, missing_values
from holdfast.errors import HoldfastError

_NUMBER = (Question(TARGET, "number"),)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableSettings:
    """What a table at every site is, and what is to become of it: as of `hf.data.table`."""

    label: str
    # Columns that say whose a row is: no inputs, and a site need not have them.
    client: Sequence[str] = ()
    features: Sequence[str] | None = None
    test_share: float | None = None
    seed: int = 0
    one_hot: bool | None = None
    scale: Scale = "standard"
    missing: Missing | None = None
    indicator: bool = False
    categorical: Sequence[str] = ()
    na_values: Value | Sequence[Value] | Mapping[str, Value | Sequence[Value]] = ()
    ignore: Sequence[str] = ()
    target: TargetKind | None = None
    positive: Value | Sequence[Value] | None = None
    label_names: Sequence[str] | None = None
    class_weight: Literal["balanced"] | Mapping[str, float] | None = None
    split: str | None = None
    group: str | None = None
    time: str | None = None

    @functools.cached_property
    def settings(self) -> Settings:
        """Of the inputs."""
        return Settings(
            self.scale,
            self.missing,
            self.indicator,
            names_of(self.categorical),
            self.one_hot,
            missing_values(self.na_values),
        )


@dataclasses.dataclass(frozen=True)
class ColumnsThere:
    """First turn: what a site has. `labels` counts training rows by label; None where it has numbers."""

    inputs: tuple[str, ...]
    words: tuple[str, ...]
    others: tuple[str, ...]  # columns that are no inputs
    labels: dict[str, int] | None
    fractional: bool


@dataclasses.dataclass(frozen=True)
class Fitted:
    """What all sites' rows become.

    Args:
        preprocessing: of the inputs, and of the numbers of a regression.
        classes: the class of every label, as text; None for a regression.
        label_names: of the classes.
        class_weights: of the loss.
    """

    preprocessing: Preprocessing
    classes: dict[str, int] | None = None
    label_names: tuple[str, ...] | None = None
    class_weights: tuple[float, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as JSON has them."""
        return {
            "preprocessing": self.preprocessing.to_dict(),
            "classes": self.classes,
            "label_names": None if self.label_names is None else list(self.label_names),
            "class_weights": None if self.class_weights is None else list(self.class_weights),
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> "Fitted":
        """What `to_dict` gave."""
        names, weights = given["label_names"], given["class_weights"]
        return cls(
            Preprocessing.from_dict(given["preprocessing"]),
            given["classes"],
            None if names is None else tuple(names),
            None if weights is None else tuple(weights),
        )

    def dataset(self, rows: int = 1) -> Dataset:
        """A data set of zeros, of the shapes and names that the sites' own have."""
        names = self.preprocessing.feature_names
        kind = np.float32 if self.classes is None else np.int32
        zeros = Examples(np.zeros((rows, len(names)), np.float32), np.zeros(rows, kind))
        return self._about(zeros, np.zeros(rows, np.int8))

    def _about(self, examples: Examples, part: np.ndarray) -> Dataset:
        return divided(
            examples,
            None,
            part,
            None if self.label_names is None else len(self.label_names),
            self.label_names,
            feature_names=self.preprocessing.feature_names,
            preprocessing=self.preprocessing,
            class_weights=self.class_weights,
        )

    def of_rows(self, table: "TableApart") -> Dataset:
        """A site's own rows as examples."""
        x = self.preprocessing.of_columns(table.raw.columns)
        target = self.preprocessing.target
        if self.classes is None:
            y = table.numbers if target is None else (table.numbers - target.centre) / target.scale
            return self._about(Examples(x, y.astype(np.float32)), table.part)
        strange = next((k for k, s in enumerate(table.said) if s not in self.classes), None)
        if strange is not None:
            raise HoldfastError(
                f"{WHO}: {table.raw.place(strange)}, the label is {table.said[strange]!r}, which no site had "
                f"when the columns were fitted; begin a new run.",
                about=("label",),
            )
        y = np.array([self.classes[s] for s in table.said], np.int32)
        return self._about(Examples(x, y), table.part)


class TableApart:
    """The rows of one site; or of all sites in one place.

    Args:
        path: files with its rows, or a table in memory.
        given: what is said of the table, the same at every site.
        test_path: rows to test on, in files of their own.
        columns: names of the columns, for files without a first line of them.
        separator: what stands between the cells of a text file.
        of_all: whether these are the rows of all sites: by columns, or a file for each.
    """

    def __init__(
        self,
        path: Any,
        given: TableSettings,
        test_path: Any = None,
        columns: Sequence[str] | None = None,
        separator: str | None = None,
        of_all: bool = False,
    ) -> None:
        self.given = given
        raw = read_table(path, WHO, columns, separator, "path")
        said = {"split": given.split, "group": given.group, "time": given.time}
        special: dict[str, Any] = {"label": given.label} | said
        whose = [name for name in names_of(given.client) if name in raw.columns]
        ignored = (*names_of(given.ignore), *whose)
        self.inputs = inputs_of(raw, special, given.features, ignored, given.settings.categorical)
        told: np.ndarray | None = None
        if test_path is not None:
            tests = read_table(test_path, WHO, columns, separator, "test_path")
            raw, told = with_tests(raw, tests)
        design = Design(given.test_share, seed=given.seed)
        own = [name for name in said if said[name] is not None]
        design.check(WHO, False, [*own, *(["test_path"] if test_path is not None else [])])
        self.raw, told = complete(raw, self.inputs, special, given.settings, told)
        if given.split is not None:
            told = told_parts(self.raw.columns[given.split].tolist(), given.split, WHO)
        group, time = given.group, given.time
        owners = owners_of(self.raw, names_of(given.client) or None) if of_all else None
        self.part = design.parts(
            WHO,
            owners,
            len(self.raw),
            None if group is None else texts(self.raw.columns[group], frozenset()).astype(str),
            None if time is None else times_of(self.raw, time),
            told,
        )

    @functools.cached_property
    def said(self) -> np.ndarray:
        """Labels as texts."""
        given = self.given
        return texts(
            self.raw.columns[given.label], given.settings.missing_values.column(given.label)
        )

    @functools.cached_property
    def _numbers(self) -> np.ndarray | None:
        given = self.given
        return numbers(
            self.raw.columns[given.label], given.settings.missing_values.column(given.label)
        )

    @property
    def numbers(self) -> np.ndarray:
        """Labels as the numbers of a regression."""
        found = self._numbers
        if found is None or not np.isfinite(found).all():
            raise HoldfastError(
                f"{WHO}: column `{self.given.label}` is no finite number in every row, and it is a "
                f"regression for all sites.",
                about=("label",),
            )
        return found

    def rows_of(self, part: int, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Columns as they came, of some of the rows that are trained on, or tested on."""
        return self.raw.rows(np.flatnonzero(self.part == part)[rows]).columns

    def _trained(self) -> dict[str, np.ndarray]:
        rows = self.part == TRAIN
        return {name: self.raw.columns[name][rows] for name in self.inputs}

    def there(self) -> ColumnsThere:
        """First turn."""
        given = self.given
        are_numbers = given.target == "regression"
        if given.target is None and given.positive is None and self._numbers is not None:
            # So many different numbers are no classes; their values would tell much of the rows.
            many = len(set(self.said)) > MOST_CLASSES
            are_numbers = fractional(self._numbers) or many
        labels = None
        if not are_numbers:
            trained = Counter(self.said[self.part == TRAIN].tolist())
            labels = {str(name): trained.get(name, 0) for name in sorted(set(self.said))}
        return ColumnsThere(
            tuple(self.inputs),
            tuple(sorted(words_in(self._trained(), given.settings.missing_values))),
            tuple(name for name in self.raw.columns if name not in self.inputs),
            labels,
            fractional(self._numbers),
        )

    def answers(self, questions: Sequence[Question], regression: bool) -> Summary:
        """Second turn: sums, counts and sketches of the training rows."""
        found = summary(self._trained(), questions, self.given.settings.missing_values)
        if regression and self.given.scale != "none":
            own = {TARGET: self.numbers[self.part == TRAIN]}
            # Under a name that no column of the inputs can have.
            found[""] = summary(own, _NUMBER, self.given.settings.missing_values)[TARGET]
        return found


@dataclasses.dataclass(frozen=True)
class Together:
    """What is known after the first turn of all sites, in their order."""

    given: TableSettings
    there: tuple[ColumnsThere, ...]
    names: tuple[str, ...]  # of the sites

    def __post_init__(self) -> None:
        first = self.there[0]
        for name, own in zip(self.names, self.there, strict=True):
            if own.inputs != first.inputs:
                differ = sorted(set(own.inputs) ^ set(first.inputs)) or ["their order"]
                raise HoldfastError(
                    f"{WHO}: site {name} has other inputs than site {self.names[0]}: "
                    f"{', '.join(differ[:4])}; give all the same columns in the same order, or `features`.",
                    about=("features",),
                )
        numeric = [n for n, t in zip(self.names, self.there, strict=True) if t.labels is None]
        if numeric and not self.regression:
            raise HoldfastError(
                f"{WHO}: `{self.given.label}` has more than {MOST_CLASSES} different whole numbers at site "
                f'{numeric[0]}; say target = "regression" or target = "classification".',
                about=("target",),
            )

    @property
    def regression(self) -> bool:
        """Whether a number is predicted."""
        given = self.given
        return given.target == "regression" or (
            given.target is None
            and given.positive is None
            and any(there.fractional for there in self.there)
        )

    @property
    def words(self) -> set[str]:
        """Columns that somebody has words in."""
        return set[str]().union(*(there.words for there in self.there))

    @functools.cached_property
    def questions(self) -> list[Question]:
        """What everybody is asked in the second turn."""
        return self.given.settings.questions(self.there[0].inputs, self.words)

    def fitted(self, answers: Sequence[Summary]) -> Fitted:
        """From all answers, in the order of the sites."""
        given = self.given
        inputs = [{n: s for n, s in one.items() if n} for one in answers]
        made = put_together(inputs, self.questions, self.words, given.settings, WHO)
        target = None
        if self.regression and given.scale != "none":
            own = [{TARGET: one[""]} for one in answers]
            target = target_of(put_together(own, _NUMBER, set(), Settings(), WHO))
        made = dataclasses.replace(made, target=target, others=self.there[0].others)
        if self.regression:
            if given.class_weight is not None:
                class_weights(given.class_weight, np.zeros(0, np.int32), None, WHO)
            return Fitted(made)
        counts = Counter[str]()
        for there in self.there:
            counts.update(there.labels or {})
        different = list(counts)
        column = np.array(different, object)
        raw = RawTable(
            {given.label: column}, (), np.zeros(len(column), int), np.arange(len(column))
        )
        labels = read_label(
            raw,
            given.label,
            given.target,
            given.positive,
            given.label_names,
            given.settings.missing_values,
            WHO,
        )
        assert labels.names is not None
        weights = None
        if given.class_weight is not None:
            trained = np.repeat(labels.y, [counts[name] for name in different])
            weights = class_weights(given.class_weight, trained, labels.names, WHO)
        classes = {name: int(k) for name, k in zip(different, labels.y, strict=True)}
        return Fitted(made, classes, labels.names, weights)
