"""Arguments that several loaders and splits refuse alike."""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.errors import HoldfastError, HoldfastWarning


def is_number(value: Any) -> bool:
    """Whether it is one number, whole or not; a truth value is none."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    """Whether it is a whole number, of Python or NumPy."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def check_counts(of: str, **counts: Any) -> None:
    """Whole numbers of at least 1."""
    for name, value in counts.items():
        if not is_whole(value) or value < 1:
            raise HoldfastError(
                f"{of}: {name}={value!r}; give a whole number of at least 1.", about=(name,)
            )


def check_limits(of: str, **limits: Any) -> None:
    """The same, or None for no limit."""
    check_counts(of, **{name: value for name, value in limits.items() if value is not None})


def check_share(of: str, test_share: float) -> None:
    """A share to test on that leaves something to train on."""
    if not is_number(test_share) or not 0 <= test_share < 1:
        raise HoldfastError(
            f"{of}: test_share={test_share!r}; give a number from 0 to below 1, such as 0.2.",
            about=("test_share",),
        )


def generator(seed: Any) -> np.random.Generator:
    """Random numbers that are a function of the seed."""
    if not is_whole(seed) or seed < 0:
        raise HoldfastError(
            f"data: seed={seed!r}; give a whole number of at least 0.", about=("seed",)
        )
    return np.random.default_rng(seed)


_FAR_APART = 1000
_ENOUGH_ROWS = 10_000


def warn_of_scales(of: str, x: np.ndarray, names: Sequence[str] | None, remedy: str) -> None:
    """Warn of inputs whose deviations differ by a thousand: one step size cannot serve both."""
    if x.ndim != 2 or x.dtype.kind not in "iuf" or len(x) < 2:
        return
    deviation = x[:: -(-len(x) // _ENOUGH_ROWS)].astype(np.float64).std(axis=0)
    varying = np.flatnonzero(deviation > 0)
    if len(varying) < 2:
        return
    small, large = (varying[f(deviation[varying])] for f in (np.argmin, np.argmax))
    if deviation[large] < _FAR_APART * deviation[small]:
        return
    one, other = (f"column {k}" if names is None else f"`{names[k]}`" for k in (large, small))
    warnings.warn(
        f"{of}: {one} varies by {deviation[large]:.3g} and {other} by {deviation[small]:.3g}, and nothing "
        f"scales them: models trained by steps learn little from that; {remedy}.",
        HoldfastWarning,
        stacklevel=3,
    )
