"""From the columns of a table to numbers: fitted on training rows, by sums and counts of clients."""

from holdfast.data.preprocessing.columns import MissingValues
from holdfast.data.preprocessing.fit import Settings, fit, put_together
from holdfast.data.preprocessing.fitted import Category, Number, Preprocessing, Target
from holdfast.data.preprocessing.sketch import QuantileSketch
from holdfast.data.preprocessing.summary import ColumnSummary, Question, merge, summary

__all__ = [
    "Category",
    "ColumnSummary",
    "MissingValues",
    "Number",
    "Preprocessing",
    "QuantileSketch",
    "Question",
    "Settings",
    "Target",
    "fit",
    "merge",
    "put_together",
    "summary",
]
