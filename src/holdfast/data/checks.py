"""Arguments that several loaders refuse alike."""

from typing import Any

import numpy as np

from holdfast.errors import HoldfastError


def check_counts(of: str, **counts: Any) -> None:
    """Whole numbers of at least 1."""
    for name, value in counts.items():
        if not isinstance(value, int | np.integer) or value < 1:
            raise HoldfastError(
                f"{of}: {name}={value!r}; give a whole number of at least 1.", about=(name,)
            )


def check_limits(of: str, **limits: Any) -> None:
    """The same, or None for no limit."""
    check_counts(of, **{name: value for name, value in limits.items() if value is not None})


def check_share(of: str, test_share: float) -> None:
    """A share to test on that leaves something to train on."""
    if not 0 <= test_share < 1:
        raise HoldfastError(
            f"{of}: test_share={test_share}; give a number from 0 to below 1, such as 0.2.",
            about=("test_share",),
        )
