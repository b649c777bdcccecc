"""What is measured: metrics by name, their directions, figures over seeds and how they are printed.

Nothing here knows of rounds or runs, so every other room may ask.
"""

from holdfast.metrics.auc import auc
from holdfast.metrics.by_name import as_metric, declare, named
from holdfast.metrics.metric import STANDARD, Metric, find, greater_is_better
from holdfast.metrics.spread import Spread

__all__ = [
    "STANDARD",
    "Metric",
    "Spread",
    "as_metric",
    "auc",
    "declare",
    "find",
    "greater_is_better",
    "named",
]
