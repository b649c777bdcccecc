"""How sure `holdfast predict` may be: sets and intervals from a file of rows whose labels are known."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from holdfast.conformal import Calibration, Score, calibrate
from holdfast.conformal.calibration import check_kappa
from holdfast.data.preprocessing.columns import text
from holdfast.errors import HoldfastError, did_you_mean
from holdfast.runs.predicting import Predicted, predict_file
from holdfast.saved.model import SavedModel

_WHO = "predict"
BETWEEN = " | "  # labels of a set


@dataclasses.dataclass(frozen=True)
class Promise:
    """What sets and intervals rest on, and how often they may miss.

    Args:
        kappa: the share of rows whose label may be outside its set.
        calibrations: by site; one under "" for everybody.
        by: the column that says whose a row is; None where all have one threshold.
    """

    kappa: float
    calibrations: dict[str, Calibration]
    by: str | None = None

    @property
    def rows(self) -> int:
        """How many rows it rests on."""
        return sum(c.n for c in self.calibrations.values())


@dataclasses.dataclass(frozen=True)
class Promised:
    """Rows with their sets or intervals.

    Args:
        promise: what they rest on.
        sets: which labels each row may have; None of numbers.
        intervals: from where to where its number may be; None of labels.
        covered: whether the truth is in it, where that is known.
    """

    promise: Promise
    sets: np.ndarray | None
    intervals: np.ndarray | None
    covered: np.ndarray | None

    @property
    def mean_size(self) -> float:
        """Labels in a set, or the width of an interval, on average."""
        if self.sets is not None:
            return float(self.sets.sum(axis=1).mean()) if len(self.sets) else math.nan
        assert self.intervals is not None
        return float(np.diff(self.intervals, axis=1).mean()) if len(self.intervals) else math.nan


def promise_of(
    saved: SavedModel,
    kappa: float,
    path: Path | None = None,
    score: str | None = None,
    by: str | None = None,
    ids: Sequence[str] = (),
    label: str | None = None,
) -> Promise:
    """What is calibrated with the rows of a file, or what the model was calibrated with before.

    Args:
        saved: the model.
        kappa: the share of rows whose label may be outside its set.
        path: rows that were neither trained on nor chosen by, with their labels.
        score: `lac`, `aps` or `raps`; `lac` unless given, and of numbers `residual`.
        by: a column that says whose a row is, to calibrate for each.
        ids: columns that are kept and not used.
        label: the column with the right label, if it is not as in training.
    """
    check_kappa(kappa)
    if path is None:
        if score is not None or by is not None:
            what = "--score" if score is not None else "--by"
            raise HoldfastError(f"{what} is of rows to calibrate with; give --calibrate FILE too.")
        if not saved.description.scores:
            raise HoldfastError(
                f"{_WHO}: the model is not calibrated; give --calibrate FILE, with rows that were neither "
                f"trained on nor chosen by, and their labels."
            )
        return Promise(kappa, {"": saved.calibration})
    numbers = saved.description.task == "numbers"
    known = Score(score or ("residual" if numbers else "lac"))  # type: ignore[arg-type]
    if known.of_numbers != numbers:
        raise HoldfastError(
            f"--score {known.name}: {saved.model.name} predicts "
            + ("numbers, which have intervals; leave it out." if numbers else "labels; use lac.")
        )
    found = predict_file(saved, path, (*ids, *(() if by is None else (by,))), label)
    if found.truth is None or not len(found.truth):
        raise HoldfastError(
            f"--calibrate {path}: it has no labels"
            + ("" if label is None else f" in `{label}`")
            + ", and how sure a model may be is measured by them; give rows whose labels are known, or "
            "--label COLUMN."
        )
    said = found.predicted if numbers else found.probabilities
    assert said is not None
    truth = np.asarray(found.truth)
    if by is None:
        return Promise(kappa, {"": calibrate(said, truth, known)})
    whose = _sites(found, by, path)
    each = {
        site: calibrate(said[whose == site], truth[whose == site], known)
        for site in dict.fromkeys(whose.tolist())
    }
    return Promise(kappa, each, by)


def keep(promise: Promise, found: Predicted, path: Path) -> tuple[Predicted, Promised]:
    """Predictions with a column for their sets, or two for their intervals."""
    whose = np.full(len(found.predicted), "", object)
    if promise.by is not None:
        whose = _sites(found, promise.by, path)
    for site in dict.fromkeys(whose.tolist()):
        if site not in promise.calibrations:
            hint = did_you_mean(site, promise.calibrations)
            raise HoldfastError(
                f"{_WHO}: {path} has rows of `{site}`, and no row to calibrate with is of it; {hint}"
            )
    numbers = found.probabilities is None
    said = (
        np.asarray(found.predicted, np.float64)
        if found.probabilities is None
        else found.probabilities
    )
    shape = (len(said), 2) if numbers else said.shape
    made = np.zeros(shape, np.float64 if numbers else bool)
    for number, (site, calibration) in enumerate(promise.calibrations.items()):
        mine = whose == site
        if not mine.any():
            continue
        if numbers:
            made[mine] = calibration.intervals(said[mine], promise.kappa)
        else:
            made[mine] = calibration.sets(said[mine], promise.kappa, client=number)
    if numbers:
        more = {"low": made[:, 0], "high": made[:, 1]}
    else:
        names = np.asarray(found.labels, object)
        joined = [BETWEEN.join(names[row]) for row in made]
        more = {"set": np.array(joined, object), "set_size": made.sum(axis=1)}
    for name in more:
        if name in found.rows:
            raise HoldfastError(
                f"{_WHO}: the file has a column `{name}` already, which is to be written; rename it."
            )
    kept = dataclasses.replace(found, columns={**found.columns, **more})
    covered = None
    if found.truth is not None and len(found.truth):
        truth = np.asarray(found.truth)
        inside = (made[:, 0] <= truth) & (truth <= made[:, 1]) if numbers else None
        covered = made[np.arange(len(truth)), truth.astype(np.int64)] if inside is None else inside
    return kept, Promised(promise, None if numbers else made, made if numbers else None, covered)


def _sites(found: Predicted, by: str, path: Path) -> np.ndarray:
    if by not in found.rows:
        raise HoldfastError(f"--by {by}: {path} has no such column; {did_you_mean(by, found.rows)}")
    return np.array([str(text(value)) for value in found.rows[by]], object)
