"""Conformal prediction: sets of labels, and intervals, that hold the truth as often as is asked for."""

from holdfast.conformal.calibration import Calibration, calibrate, from_histograms
from holdfast.conformal.divide import divide
from holdfast.conformal.evaluator import Conformal, evaluate
from holdfast.conformal.histogram import Histogram, histogram
from holdfast.conformal.outcome import Outcome, curve, outcome
from holdfast.conformal.scores import Score

__all__ = [
    "Calibration",
    "Conformal",
    "Histogram",
    "Outcome",
    "Score",
    "calibrate",
    "curve",
    "divide",
    "evaluate",
    "from_histograms",
    "histogram",
    "outcome",
]
