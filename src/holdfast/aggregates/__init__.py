"""How replies become one where clients may lie: means that bound, choose or sort them."""

from holdfast.aggregates.bounded import CenteredClipping, NormBounded
from holdfast.aggregates.krum import Krum
from holdfast.aggregates.sorted import CoordinateMedian, GeometricMedian, TrimmedMean
from holdfast.core.mean import Mean

__all__ = [
    "CenteredClipping",
    "CoordinateMedian",
    "GeometricMedian",
    "Krum",
    "Mean",
    "NormBounded",
    "TrimmedMean",
]
