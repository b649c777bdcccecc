"""How far a figure can be trusted: intervals over test rows, seeds and splits of the data.

A mean over test rows has a variance from the rows that were drawn, one from the seeds of training, and
one from how the data was split. Each is estimated where it varies, they add up, and the interval is
Student's with Satterthwaite's degrees of freedom.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

LEVEL = 0.95
# With fewer clients they are taken as they are, not as a sample of all there might be: a variance
# between a handful of clusters is no estimate (Cameron and Miller, 2015).
MANY = 20


@dataclasses.dataclass(frozen=True)
class Interval:
    """An estimate and where the true value lies, in 95 of 100 cases unless `level` says otherwise."""

    estimate: float
    low: float
    high: float
    level: float = LEVEL

    @property
    def includes_zero(self) -> bool:
        """Whether a difference of nothing is one of the values it may be."""
        return self.low <= 0 <= self.high

    def __neg__(self) -> "Interval":
        return Interval(-self.estimate, -self.high, -self.low, self.level)


@dataclasses.dataclass(frozen=True)
class Variance:
    """One source's part of an estimate's variance, and the degrees of freedom it was estimated with."""

    value: float
    freedom: float


def students(level: float, freedom: float) -> float:
    """The quantile of Student's distribution."""
    # Imported here, as below: a run that measures no interval need not wait for it.
    from scipy import special

    return float(special.stdtrit(freedom, level))


def interval(estimate: float, parts: Sequence[Variance], level: float = LEVEL) -> Interval:
    r"""Student's interval from variances that add up, with Satterthwaite's degrees of freedom.

    $$ \nu = \frac{(\sum_k v_k)^2}{\sum_k v_k^2 / \nu_k} $$

    Example:
        >>> import numpy as np
        >>> import scipy.stats
        >>> x = np.array([1.0, 2.0, 4.0, 7.0])
        >>> found = interval(x.mean(), [Variance(x.var(ddof=1) / 4, 3)])
        >>> known = scipy.stats.ttest_1samp(x, 0).confidence_interval(0.95)
        >>> np.allclose([found.low, found.high], known)
        True

    Reference: Satterthwaite, "An approximate distribution of estimates of variance components", 1946.
    """
    known = [part for part in parts if part.value > 0 and part.freedom > 0]
    total = sum(part.value for part in known)
    if not known:
        return Interval(estimate, estimate, estimate, level)
    freedom = total**2 / sum(part.value**2 / part.freedom for part in known)
    half = students((1 + level) / 2, freedom) * math.sqrt(total)
    return Interval(estimate, estimate - half, estimate + half, level)


def over_rows(
    values: np.ndarray, clients: np.ndarray, rows: np.ndarray, clients_alike: bool = False
) -> tuple[float, Variance]:
    """A mean over the test rows of clients, and its variance from which rows (and clients) were drawn.

    With 20 clients or more they are a sample as their rows are, and rows of one client go together; a
    row that several clients are tested on goes together too (variances by client and by row, less that
    by both: Cameron, Gelbach and Miller, "Robust inference with multiway clustering", 2011). Fewer
    clients are taken as given, and the variance is that of new rows at these clients.

    Args:
        values: one per test row of a client, such as a difference between two methods.
        clients: whose test row it is.
        rows: its number; the same number at two clients is the same row.
        clients_alike: whether each client counts the same, and not each row.

    Example:
        >>> import numpy as np
        >>> values = np.array([1.0, 0.0, 1.0, 1.0])
        >>> mean, variance = over_rows(values, np.zeros(4, int), np.arange(4))
        >>> mean, bool(variance.value == values.var(ddof=1) / 4)
        (0.75, True)
    """
    values = np.asarray(values, np.float64)
    _, whose = np.unique(clients, return_inverse=True)
    _, which = np.unique(rows, return_inverse=True)
    sizes = np.bincount(whose)
    weights = 1.0 / (len(sizes) * sizes[whose]) if clients_alike else np.full(len(values), 1.0)
    weights = weights / weights.sum()
    mean = float(weights @ values)
    if len(sizes) < MANY:
        return mean, _within_clients(values, weights, whose, which)
    parts = weights * (values - mean)
    by_client, by_row = _clustered(parts, whose), _clustered(parts, which)
    both = _clustered(parts, np.arange(len(parts)))
    least = max(by_client, by_row)
    found = by_client if len(np.unique(which)) == len(which) else by_client + by_row - both
    return mean, Variance(max(found, least), min(len(sizes), which.max() + 1) - 1)


def _clustered(parts: np.ndarray, of: np.ndarray) -> float:
    sums = np.bincount(of, parts)
    return float(sums @ sums * len(sums) / max(len(sums) - 1, 1))


def _within_clients(
    values: np.ndarray, weights: np.ndarray, whose: np.ndarray, which: np.ndarray
) -> Variance:
    sizes = np.bincount(whose)
    means = np.bincount(whose, values) / sizes
    parts = weights * (values - means[whose])
    distinct = int(which.max()) + 1
    if distinct < len(which):  # rows are shared
        freedom = max(distinct - len(sizes), 1)
        sums = np.bincount(which, parts)
        return Variance(float(sums @ sums) * distinct / freedom, freedom)
    several = sizes > 1
    each = np.bincount(whose, parts**2)[several] * (sizes / np.maximum(sizes - 1, 1))[several]
    total = float(each.sum())
    if total == 0:
        return Variance(0.0, max(len(values) - len(sizes), 1))
    return Variance(total, total**2 / float((each**2 / (sizes[several] - 1)).sum()))


def resampled(
    score: Callable[[np.ndarray], float],
    clients: np.ndarray,
    draws: int = 200,
    seed: int = 0,
) -> Variance:
    """The variance of any figure over test rows, by the bootstrap: of clients where they are 20 or more, of
    each client's rows where they are fewer.

    Args:
        score: the figure, of the rows with these places.
        clients: whose each test row is.
        draws: how often it is drawn anew; 200 are enough for a standard error.
        seed: the draws are a function of it.

    Example:
        >>> import numpy as np
        >>> x = np.random.default_rng(0).normal(size=400)
        >>> found = resampled(lambda places: x[places].mean(), np.zeros(400, int))
        >>> abs(found.value * 400 - 1) < 0.25
        True

    Reference: Efron and Tibshirani, "An introduction to the bootstrap", 1993, chapters 6 and 8.
    """
    rng = np.random.default_rng(seed)
    places = [np.flatnonzero(clients == i) for i in np.unique(clients)]
    many = len(places) >= MANY
    found = []
    for _ in range(draws):
        chosen = rng.integers(len(places), size=len(places)) if many else range(len(places))
        parts = [places[i] if many else rng.choice(places[i], len(places[i])) for i in chosen]
        found.append(score(np.concatenate(parts)))
    known = np.array(found)[np.isfinite(found)]
    freedom = len(places) - 1 if many else len(clients) - len(places)
    return Variance(float(known.var(ddof=1)) if len(known) > 1 else 0.0, max(freedom, 1))


def over_runs(values: Sequence[float]) -> Variance:
    """The variance of a mean from runs that differ in their seed alone."""
    count = len(values)
    return Variance(float(np.var(values, ddof=1)) / count if count > 1 else 0.0, max(count - 1, 0))


def over_splits(values: Sequence[float], tested_per_trained: float) -> Variance:
    r"""The variance of a mean over splits whose training sets overlap: the corrected resampled one.

    $$ \Big(\tfrac1K + \tfrac{n_\text{test}}{n_\text{train}}\Big) s^2 $$

    Splits of the same data are not independent: divided by K alone, the variance is too small.

    Args:
        values: a difference, one per split.
        tested_per_trained: test rows per training row.

    Example:
        >>> round(over_splits([0.01, 0.03, 0.05], 0.25).value, 7)
        0.0002333

    Reference: Nadeau and Bengio, "Inference for the generalization error", Machine Learning 2003.
    """
    count = len(values)
    spread = float(np.var(values, ddof=1)) if count > 1 else 0.0
    return Variance((1 / count + tested_per_trained) * spread, max(count - 1, 0))


def wilson(share: float, count: int, level: float = LEVEL) -> Interval:
    """The interval of a share of rows, such as an accuracy; right for few rows and near 0 and 1.

    Example:
        >>> import numpy as np
        >>> import scipy.stats
        >>> found = wilson(8 / 9, 9)
        >>> known = scipy.stats.binomtest(8, 9).proportion_ci(method="wilson")
        >>> np.allclose([found.low, found.high], known)
        True

    Reference: Wilson, "Probable inference, the law of succession, and statistical inference", 1927.
    """
    from scipy import special

    z = float(special.ndtri((1 + level) / 2))
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2)) / (1 + z**2 / count)
    return Interval(share, max(0.0, middle - half), min(1.0, middle + half), level)
