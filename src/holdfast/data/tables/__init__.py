"""Tables of one's own: files, what is to be predicted, and what becomes of the columns."""

from holdfast.data.tables.table import table

# By the name that other libraries' data has; the same function.
from_table = table

__all__ = ["from_table", "table"]
