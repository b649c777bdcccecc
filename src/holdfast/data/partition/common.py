"""What several splits need: sizes, and populations from owners."""

import math

import numpy as np

from holdfast.data.checks import check_counts, is_number
from holdfast.data.clients import Clients
from holdfast.errors import HoldfastError
from holdfast.trees import Tree


def even_sizes(examples: int, clients: int) -> np.ndarray:
    """Equal sizes, differing by one at most."""
    check_counts("partition", clients=clients)
    return np.full(clients, examples // clients) + (np.arange(clients) < examples % clients)


def lognormal_sizes(
    rng: np.random.Generator, examples: int, clients: int, sigma: float, who: str
) -> np.ndarray:
    """Lognormal sizes rescaled to the total; what rounding leaves goes to the largest fractions."""
    even = even_sizes(examples, clients)
    if not is_number(sigma) or not 0 <= sigma < math.inf:
        raise HoldfastError(
            f"partition.{who}: sigma={sigma!r}; give a number of at least 0.", about=("sigma",)
        )
    if sigma == 0:
        return even
    logarithm = sigma * rng.standard_normal(clients)
    # The mean cancels, and no sigma overflows.
    share = np.exp(logarithm - logarithm.max())
    exact = share / share.sum() * examples
    sizes = np.floor(exact).astype(np.int64)
    rest = examples - int(sizes.sum())
    sizes[np.argsort(sizes - exact, kind="stable")[:rest]] += 1
    return sizes


def check_concentration(concentration: float, who: str) -> None:
    """Refuse what is not a concentration, or so extreme that its logarithms overflow."""
    if not is_number(concentration) or not concentration > 0:
        raise HoldfastError(
            f"partition.{who}: concentration={concentration!r}; give a number above 0.",
            about=("concentration",),
        )
    if not 1e-200 <= concentration <= 1e200:
        raise HoldfastError(
            f"partition.{who}: concentration={concentration}; give a number from 1e-200 to 1e200.",
            about=("concentration",),
        )


def log_gamma(rng: np.random.Generator, shape: float, size: int | tuple[int, int]) -> np.ndarray:
    """Logarithms of gamma variates, exact also where the variates underflow to zero."""
    # log Gamma(a) = log Gamma(a + 1) + log(U) / a
    return np.log(rng.standard_gamma(shape + 1.0, size)) + np.log1p(-rng.random(size)) / shape


def grouped(data: Tree, rows: np.ndarray, owner: np.ndarray, sizes: np.ndarray) -> Clients:
    """The population in which `owner[k]` owns `rows[k]`; each client keeps the order of `rows`."""
    order = rows[np.argsort(owner, kind="stable")]
    return Clients(data, order, np.concatenate([[0], np.cumsum(sizes)]))
