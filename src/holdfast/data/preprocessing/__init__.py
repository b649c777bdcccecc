"""From the columns of a table to numbers: fitted on training rows, by sums and counts of clients."""

from holdfast.data.preprocessing.columns import MissingValues
from holdfast.data.preprocessing.fitted import Category, Number, Preprocessing, Target

__all__ = ["Category", "MissingValues", "Number", "Preprocessing", "Target"]
