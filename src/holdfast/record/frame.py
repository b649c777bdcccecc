"""Records as a pandas frame, where pandas is installed."""

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from pandas import DataFrame


def frame(records: Iterable[Mapping[str, Any]], of: str) -> "DataFrame":
    """One row per record; the columns are all names, in order of appearance.

    Example:
        >>> frame([{"round": 1}, {"round": 2, "loss": 0.5}], "history.to_frame")
           round  loss
        0      1   NaN
        1      2   0.5
    """
    try:
        import pandas
    except ImportError:
        raise HoldfastError(
            f'{of}: pandas is not installed; install it with `pip install "holdfast[data]"`.'
        ) from None
    # Of a column that is empty as a whole, too, the values are numbers.
    rows = [{k: math.nan if v is None else v for k, v in record.items()} for record in records]
    return pandas.DataFrame(rows, columns=list(dict.fromkeys(n for row in rows for n in row)))
