"""A data set: examples to train and to test on, and whose they are where that is known."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from holdfast.data.clients import Clients, Examples
from holdfast.data.preprocessing import Preprocessing
from holdfast.errors import HoldfastError

# Rows named for all clients together, where they share test examples.
_MOST_SHARED = 10_000_000


@dataclasses.dataclass(frozen=True, eq=False)
class Dataset:
    """What every loader returns; unpacks as `train, test`.

    Args:
        train: examples to train on.
        test: examples to test on.
        owners: who owns each training example (any sortable values), for a natural split.
        test_owners: the same for the test examples.
        classes: number of labels, for classification.
        vocabulary: number of symbols, where inputs are text.
        feature_names: what the columns of `x` are called, where they have names.
        label_names: what the labels 0, 1, ... are called, where they have names.
        validation: examples to choose by (rounds, hyper-parameters), where some are set apart.
        validation_owners: who owns each of them.
        preprocessing: what became of a table's columns, fitted on the training examples; new rows go the
            same way.
        ordered: whether test examples were taken by whole groups or by time, so that drawing others at random
            would tear what belongs together.
        class_weights: weights of the classes in the loss, where they are not all 1
            (`hf.models.class_weighted`).

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> hf.data.digits().classes
        10
    """

    train: Examples
    test: Examples
    owners: Any = None
    test_owners: Any = None
    classes: int | None = None
    vocabulary: int | None = None
    feature_names: tuple[str, ...] | None = None
    label_names: tuple[str, ...] | None = None
    validation: Examples | None = None
    validation_owners: Any = None
    preprocessing: Preprocessing | None = None
    class_weights: tuple[float, ...] | None = None
    ordered: bool = False

    def __iter__(self) -> Iterator[Examples]:
        return iter((self.train, self.test))

    def __repr__(self) -> str:
        parts = [f"{len(self.train.y):,} to train on", f"{len(self.test.y):,} to test on"]
        if self.validation is not None:
            parts.append(f"{len(self.validation.y):,} to choose by")
        if self.owners is not None:
            parts.append(f"{len(np.unique(np.asarray(self.owners))):,} owners")
        if self.classes is not None:
            parts.append(f"{self.classes} classes")
        return f"Dataset({', '.join(parts)})"

    def _repr_html_(self) -> str:
        from holdfast.data.look import dataset_as_html  # which makes clients of the owners

        return dataset_as_html(self)

    def natural(self) -> tuple[Clients, Clients]:
        """The population as it came: every owner a client, with training and test examples of its own."""
        if self.owners is None:
            raise HoldfastError(
                "data: this set does not say whose an example is; use one of hf.data.partition."
            )
        owners = np.asarray(self.owners)
        tested = owners[:0] if self.test_owners is None else np.asarray(self.test_owners)
        people = np.unique(np.concatenate([owners, tested]))
        names = tuple(str(p) for p in people.tolist())

        def split(examples: Examples, of: np.ndarray) -> Clients:
            place = np.searchsorted(people, of)
            order = np.argsort(place, kind="stable")
            sizes = np.bincount(place, minlength=len(people))
            offsets = np.concatenate([[0], np.cumsum(sizes)])
            return Clients(examples, order, offsets, names=names, preprocessing=self.preprocessing)

        # Everybody is tested on the same examples.
        if self.test_owners is None:
            same = np.arange(min(len(self.test.y), max(1, _MOST_SHARED // len(people))))
            offsets = np.arange(len(people) + 1) * len(same)
            return split(self.train, owners), Clients(
                self.test,
                np.tile(same, len(people)),
                offsets,
                names=names,
                preprocessing=self.preprocessing,
            )
        return split(self.train, owners), split(self.test, tested)
