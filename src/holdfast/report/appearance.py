"""What a reader may choose of how results are shown: names, the range of an axis, the size of figures."""

import dataclasses
from collections.abc import Mapping, Sequence

from holdfast.errors import HoldfastError, did_you_mean
from holdfast.runs.names import method_name, metric_name
from holdfast.runs.results import MethodResult, Results

COLUMN = 3.33  # inches: a column of a two-column page


@dataclasses.dataclass(frozen=True)
class Appearance:
    """How results are shown.

    Args:
        names: what methods (by label) and metrics (by column) are to be called.
        range: lowest and highest value on the axis of the metric; where lines differ unless given.
        width: of figures in inches; a column of a two-column page unless given.
        height: of figures in inches, without the names below; 0.72 of the width unless given.

    Example:
        >>> Appearance(names={"feddyn": "Ours"}).metric("train_loss")
        'training loss'
    """

    names: Mapping[str, str] = dataclasses.field(default_factory=dict)
    range: tuple[float, float] | None = None
    width: float = COLUMN
    height: float | None = None

    def __post_init__(self) -> None:
        low, high = self.range or (0.0, 1.0)
        if not low < high:
            raise HoldfastError(
                f"range {low:g} to {high:g} is empty; give the lowest value first, such as 0.9:1."
            )
        for name, size in (("width", self.width), ("height", self.height)):
            if size is not None and not 1 <= size <= 40:
                raise HoldfastError(f"{name} {size:g}; give inches, from 1 to 40.")

    def method(self, method: MethodResult) -> str:
        """What a method is called; a point of a sweep by the name of its method and its values."""
        return self.label(method.label)

    def label(self, label: str) -> str:
        """What a label is called."""
        return self.names.get(label) or method_name(label)

    def metric(self, column: str) -> str:
        """What a column of a history is called."""
        return self.names.get(column) or metric_name(column)

    def goal(self, results: Results) -> str:
        """What is to be reached, and how that is counted."""
        metric = self.metric(results.metric)
        if results.target is None:
            return metric
        return f"{metric} {results.target:g} ({results.counting})"


PLAIN = Appearance()


def names_of(given: Sequence[str], results: Results) -> dict[str, str]:
    """`LABEL=NAME` as given on the command line; refuses a label that nothing has."""
    columns = (c for m in results.methods for h in m.histories for c in h.columns)
    known = list(dict.fromkeys([*(m.label for m in results.methods), *columns]))
    found = {}
    for text in given:
        # A label may hold `=` itself.
        label = max((k for k in known if text.startswith(f"{k}=")), key=len, default=None)
        if label is None:
            asked = text.partition("=")[0]
            raise HoldfastError(
                f"--names {text}: no method and no metric is called `{asked}`; "
                f"{did_you_mean(asked, known)} Write LABEL=NAME."
            )
        found[label] = text[len(label) + 1 :]
    return found


def range_of(text: str) -> tuple[float, float]:
    """`LOW:HIGH` as given on the command line.

    Example:
        >>> range_of("0.9:1")
        (0.9, 1.0)
    """
    low, _, high = text.partition(":")
    try:
        return float(low), float(high)
    except ValueError:
        raise HoldfastError(
            f"--range {text}: no two numbers; give the lowest and the highest, such as 0.9:1."
        ) from None
