"""What sets and intervals come to on rows whose label is known: how many hold it, and how large they are."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.conformal.calibration import Calibration, check_kappa
from holdfast.conformal.scores import NEW, Score, as_labels, as_numbers, own
from holdfast.errors import HoldfastError, explain_arguments

# The shares of rows whose label may be missing that a curve shows.
KAPPAS = (0.01, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)


@dataclasses.dataclass(frozen=True, eq=False)
class Outcome:
    """Rows one after the other: whether the truth is in the row's set or interval, and how large that is.

    Args:
        covered: whether it is.
        size: labels in the set, or the width of the interval.
        label: the right label of each row; None of numbers.
        client: whose row it is, by number.
    """

    covered: np.ndarray
    size: np.ndarray
    label: np.ndarray | None
    client: np.ndarray

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return len(self.covered)

    @property
    def coverage(self) -> float:
        """The share of rows whose set or interval has the truth."""
        return float(self.covered.mean())

    @property
    def mean_size(self) -> float:
        """Labels in a set, or the width of an interval, on average."""
        return float(self.size.mean())

    @property
    def empty(self) -> float:
        """The share of rows whose set is empty: no label fits as well as those it was calibrated with."""
        return float((self.size == 0).mean())

    @property
    def single(self) -> float:
        """The share of rows whose set is one label."""
        return float((self.size == 1).mean()) if self.label is not None else 0.0

    def __repr__(self) -> str:
        return f"Outcome({self.rows} rows: coverage {self.coverage:.3f}, size {self.mean_size:.3g})"

    def of_clients(self) -> "dict[int, Outcome]":
        """Every client's own rows, by its number."""
        return {int(i): self._of(self.client == i) for i in np.unique(self.client)}

    def of_classes(self) -> "dict[int, Outcome]":
        """The rows of every label; empty of numbers."""
        if self.label is None:
            return {}
        return {int(y): self._of(self.label == y) for y in np.unique(self.label)}

    def _of(self, mine: np.ndarray) -> "Outcome":
        label = None if self.label is None else self.label[mine]
        return Outcome(self.covered[mine], self.size[mine], label, self.client[mine])


@dataclasses.dataclass(frozen=True, eq=False)
class KnownRows:
    """One client's rows with known labels, ready for any threshold.

    Args:
        calibration: what their threshold comes from.
        fits: the score of every label of each row; of numbers, of the right one alone.
        truth: the score of the right label, or how far off the number is.
        label: the right label of each row; None of numbers.
        client: whose rows they are.
    """

    calibration: Calibration
    fits: np.ndarray
    truth: np.ndarray
    label: np.ndarray | None
    client: int

    def outcome(self, kappa: float) -> Outcome:
        """Coverage and size of each row at a share of rows whose label may be missing."""
        least = self.calibration.threshold(kappa)
        size = (self.fits <= least).sum(axis=1) if self.label is not None else None
        wide = np.full(len(self.truth), 2 * least) if size is None else size.astype(np.float64)
        whose = np.full(len(self.truth), self.client)
        return Outcome(self.truth <= least, wide, self.label, whose)


def known_rows(calibration: Calibration, predicted: Any, labels: Any, client: int = 0) -> KnownRows:
    """Rows whose labels are known, before any threshold."""
    score: Score = calibration.score
    if score.of_numbers:
        apart = np.abs(as_numbers(labels, "labels") - as_numbers(predicted, "predictions"))
        return KnownRows(calibration, apart[:, None], apart, None, client)
    found = score.of_all(predicted, client, NEW)
    known = as_labels(labels, found)
    return KnownRows(calibration, found, own(found, known), known, client)


def together(parts: Sequence[KnownRows], kappa: float) -> Outcome:
    """The outcome of several clients' rows."""
    each = [part.outcome(kappa) for part in parts]
    if not each:
        raise HoldfastError("conformal: no rows to test on; give at least one.", about=("labels",))
    labels = [o.label for o in each]
    known = [label for label in labels if label is not None]
    return Outcome(
        np.concatenate([o.covered for o in each]),
        np.concatenate([o.size for o in each]),
        np.concatenate(known) if len(known) == len(labels) else None,
        np.concatenate([o.client for o in each]),
    )


@explain_arguments
def outcome(
    calibration: Calibration, predicted: Any, labels: Any, kappa: float = 0.1, client: int = 0
) -> Outcome:
    r"""What sets or intervals come to on rows whose labels are known, other than those to calibrate with.

    Args:
        calibration: from `calibrate` or `from_histograms`.
        predicted: probabilities or numbers of the rows.
        labels: their labels, or their numbers.
        kappa: the share of rows whose label may be missing.
        client: whose rows they are.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> truth = rng.normal(size=2000)
        >>> predicted = truth + rng.normal(size=2000)
        >>> held_out = hf.conformal.calibrate(predicted[:1000], truth[:1000], "residual")
        >>> hf.conformal.outcome(held_out, predicted[1000:], truth[1000:], kappa=0.1)
        Outcome(1000 rows: coverage 0.893, size 3.3)
    """
    return together([known_rows(calibration, predicted, labels, client)], check_kappa(kappa))


@explain_arguments
def curve(
    calibration: Calibration, predicted: Any, labels: Any, kappas: Sequence[float] = KAPPAS
) -> dict[str, list[float]]:
    r"""Coverage and mean size over $\kappa$: how much larger sets must be to be right more often.

    Args:
        calibration: from `calibrate` or `from_histograms`.
        predicted: probabilities or numbers of the rows.
        labels: their labels, or their numbers.
        kappas: shares of rows whose label may be missing.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> labels = rng.integers(0, 3, 400)
        >>> probabilities = rng.dirichlet([1, 1, 1], 400) / 2 + np.eye(3)[labels] / 2
        >>> held_out = hf.conformal.calibrate(probabilities[:200], labels[:200])
        >>> found = hf.conformal.curve(held_out, probabilities[200:], labels[200:], [0.05, 0.2, 0.5])
        >>> found["coverage"]
        [0.945, 0.81, 0.45]
    """
    return curve_of([known_rows(calibration, predicted, labels)], kappas)


def curve_of(
    parts: Sequence[KnownRows], kappas: Sequence[float] = KAPPAS
) -> dict[str, list[float]]:
    """The same of several clients' rows."""
    each = [together(parts, check_kappa(kappa)) for kappa in kappas]
    return {
        "kappa": [float(kappa) for kappa in kappas],
        "coverage": [o.coverage for o in each],
        "size": [o.mean_size for o in each],
    }
