"""What a saved model was calibrated with, in its description and out of it."""

import dataclasses
from typing import Any

import numpy as np

from holdfast.conformal import Calibration, Score, calibrate
from holdfast.errors import HoldfastError
from holdfast.saved.description import Description

# Scores that files of format 1 have, by what the model predicts: they need not be named.
_FIRST = {True: Score("residual"), False: Score()}


def calibration_of(about: Description, what: str) -> Calibration:
    """What the model was calibrated with; refuses one that was not."""
    if not about.scores:
        raise HoldfastError(
            f"{what}: the model is not calibrated; use saved.calibrate(rows, labels) with rows that were "
            f"neither trained on nor chosen by."
        )
    score = _FIRST[about.task == "numbers"] if about.score is None else Score(**about.score)
    return Calibration(score, np.asarray(about.scores, np.float64))


def with_calibration(
    about: Description, predicted: np.ndarray, labels: np.ndarray, score: Score
) -> Description:
    """The description of a model that was calibrated with these rows."""
    found = calibrate(predicted, labels, score)
    assert found.scores is not None
    return with_scores(about, found.scores, score)


def with_scores(about: Description, scores: np.ndarray, score: Score) -> Description:
    """The description of a model whose rows to calibrate with have these scores."""
    known = score == _FIRST[about.task == "numbers"]
    more: dict[str, Any] = {} if known else {"score": dataclasses.asdict(score), "format": 2}
    return dataclasses.replace(about, scores=tuple(scores.tolist()), **more)


def kappa_of(coverage: float, what: str) -> float:
    """The share of rows that may be missed, from the share that may not."""
    if not 0 < coverage < 1:
        raise HoldfastError(
            f"{what}: coverage={coverage}; give a share above 0 and below 1, such as 0.9.",
            about=("coverage",),
        )
    return 1 - coverage
