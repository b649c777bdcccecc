"""What a split looks like: numbers, a picture, and a sketch for the terminal."""

from holdfast.data.split.drawing import picture
from holdfast.data.split.histogram import histogram, histogram_picture
from holdfast.data.split.numbers import Statistics, statistics
from holdfast.data.split.table import counts
from holdfast.data.split.terminal import sketch

__all__ = [
    "Statistics",
    "counts",
    "histogram",
    "histogram_picture",
    "picture",
    "sketch",
    "statistics",
]
