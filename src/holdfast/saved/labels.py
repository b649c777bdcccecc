"""Labels as people write them, to the numbers a model has for them."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from holdfast.data.preprocessing.columns import text
from holdfast.errors import HoldfastError
from holdfast.saved.description import Columns


def label_numbers(
    values: Iterable[Any], columns: Columns | None, classes: int | None, what: str
) -> np.ndarray:
    """Labels by their names, or as the numbers they have where they have no names."""
    said = [text(value) for value in values]
    names = None if columns is None else columns.labels
    known = {str(i): i for i in range(classes or 0)}
    if names is not None:
        known = {str(text(name)): i for i, name in enumerate(names)}
    if columns is not None and columns.positive is not None:
        # Any other value is the other class, as it was in training.
        known |= {str(s): int(s in columns.positive) for s in said if s is not None}
    for row, value in enumerate(said):
        if value not in known:
            raise HoldfastError(
                f"{what}: row {row} (from 0) is {value!r}, and labels are {', '.join(known)}; give one of "
                f"these in each row."
            )
    return np.array([known[str(value)] for value in said], np.int64)
