"""How far clients' labels and inputs differ, beyond what drawing their examples at random would give."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import numpy as np

from holdfast.adviser.problem import Problem, is_classified
from holdfast.diagnose.features import LayerOutputs, features_of
from holdfast.errors import HoldfastError
from holdfast.trees import Tree

# Of a client, of the population, and of an example: what is looked at, at most.
_ROWS, _CLIENTS, _COLUMNS = 400, 400, 64
# Examples of a class at a client from which its mean says something.
_LEAST = 5


def label_skew(table: np.ndarray) -> float:
    """Mean total variation between clients' mixes of labels and everybody's, beyond that of mixes drawn at
    random.

    Example:
        >>> apart, alike = np.array([[50, 0], [0, 50]]), np.array([[25, 25], [25, 25]])
        >>> round(label_skew(apart), 1), label_skew(alike)
        (0.4, 0.0)
    """
    sizes = table.sum(1)
    whole = table.sum(0) / sizes.sum()

    def distance(found: np.ndarray) -> float:
        each = np.abs(found / sizes[:, None] - whole).sum(1) / 2
        return float(np.average(each, weights=sizes))

    rng = np.random.default_rng(0)
    chance = np.mean([distance(rng.multinomial(sizes, whole)) for _ in range(20)])
    return max(0.0, distance(table) - float(chance))


class Sample(NamedTuple):
    """Some rows of some clients, and their classes; all of one class where labels are numbers."""

    rows: list[np.ndarray]
    labels: list[np.ndarray]

    @classmethod
    def of(cls, problem: Problem) -> "Sample":
        rng = np.random.default_rng(0)
        chosen = problem.able
        if len(chosen) > _CLIENTS:
            chosen = np.sort(rng.choice(chosen, _CLIENTS, replace=False))
        several = [problem.clients.rows(int(i)) for i in chosen]
        several = [r if len(r) <= _ROWS else rng.choice(r, _ROWS, replace=False) for r in several]
        y, classified = np.asarray(problem.clients.examples.y), is_classified(problem)
        return cls(
            several, [y[r].ravel() if classified else np.zeros(len(r), int) for r in several]
        )

    def shift(self, of_rows: Callable[[np.ndarray], np.ndarray]) -> tuple[float, float]:
        """How far what is made of the rows differs between clients."""
        made = [of_rows(rows) for rows in self.rows]
        width = made[0].shape[1]
        if width > _COLUMNS:
            onto = np.random.default_rng(0).normal(size=(width, _COLUMNS)) / np.sqrt(width)
            made = [m @ onto for m in made]
        return feature_shift(made, self.labels)


def inputs_of(problem: Problem) -> Callable[[np.ndarray], np.ndarray] | None:
    """Rows to inputs; None where inputs are no array of real numbers."""
    x = getattr(problem.clients.examples, "x", None)
    if x is None or not hasattr(x, "dtype") or np.ndim(x) < 2:
        return None
    kind = np.dtype(x.dtype)
    # Whole numbers of more than a byte are those of words.
    if kind.kind not in "fiu" or (kind.kind in "iu" and kind.itemsize > 1):
        return None
    return lambda rows: np.asarray(x[rows], np.float64).reshape(len(rows), -1)


def representation_of(
    problem: Problem, params: Tree
) -> tuple[str, Callable[[np.ndarray], np.ndarray]] | None:
    """Rows to what the model's first layer makes of them; None where it has no layers that can be told."""
    examples = problem.clients.examples
    few = jax.tree.map(lambda a: np.asarray(a[:2]), examples)
    try:
        features = features_of(problem.model, params, few)
    except HoldfastError:
        return None
    names = features.names if isinstance(features, LayerOutputs) else ()
    # Where there is one layer it is the last: its outputs are labels rather than a representation.
    if len(names) < 2:
        return None
    first = jax.jit(lambda params, batch: features(params, batch)[names[0]])

    def of_rows(rows: np.ndarray) -> np.ndarray:
        # As many rows for every client, so that one program will do.
        filled = np.resize(rows, _ROWS)
        batch = jax.tree.map(lambda a: np.asarray(a[filled]), examples)
        return np.asarray(first(params, batch), np.float64)[: len(rows)]

    return names[0], of_rows


def feature_shift(inputs: list[np.ndarray], labels: list[np.ndarray]) -> tuple[float, float]:
    """How far means and covariances within a class differ between clients, beyond chance: in deviations of
    the class, and relative to the size of its covariance.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> alike = [rng.normal(size=(100, 3)) for _ in range(20)]
        >>> moved = [a + rng.normal(size=3) for a in alike]
        >>> one_class = [np.zeros(100, int)] * 20
        >>> [round(feature_shift(some, one_class)[0], 1) for some in (alike, moved)]
        [0.0, 1.0]
    """
    everything, classes = np.concatenate(inputs), np.concatenate(labels)
    rng = np.random.default_rng(0)
    means: list[float] = []
    covariances: list[float] = []
    weights: list[int] = []
    for label in np.unique(classes):
        groups = [x[y == label] for x, y in zip(inputs, labels, strict=True)]
        groups = [g for g in groups if len(g) >= _LEAST]
        if len(groups) < 2:
            continue
        sizes = [len(g) for g in groups]
        # Within clients, so that what differs between them is not in the unit.
        inside = [g - g.mean(0) for g in groups]
        rows = np.concatenate(inside)
        variance = (rows**2).sum(0) / (len(rows) - len(groups))
        kept = variance > 1e-6 * max(1e-12, float(everything.var(0).max()))
        if not kept.any():
            continue
        centre = np.concatenate(groups).mean(0)
        for g in groups:
            off = ((g.mean(0) - centre) ** 2 / np.where(kept, variance, 1.0))[kept]
            means.append(float(off.mean()) - 1 / len(g))
        apart = _covariances_apart(inside)
        by_chance = _covariances_apart(np.split(rng.permutation(rows), np.cumsum(sizes)[:-1]))
        covariances += (apart - by_chance).tolist()
        weights += sizes
    if not weights:
        return 0.0, 0.0
    found = [max(0.0, float(np.average(v, weights=weights))) for v in (means, covariances)]
    return float(np.sqrt(found[0])), float(np.sqrt(found[1]))


def _covariances_apart(groups: Sequence[np.ndarray]) -> np.ndarray:
    """Squared distance of each group's covariance from that of all, over its squared size."""
    whole = np.concatenate(groups)
    shared = whole.T @ whole / len(whole)
    each = [g.T @ g / len(g) - shared for g in groups]
    return np.array([(d**2).sum() for d in each]) / max(float((shared**2).sum()), 1e-30)
