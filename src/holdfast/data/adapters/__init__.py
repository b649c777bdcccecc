"""Data from elsewhere: arrays, Hugging Face data sets and Flower's partitions."""

from holdfast.data.adapters.arrays import from_arrays
from holdfast.data.adapters.flower import from_flower_partitions
from holdfast.data.adapters.hugging_face import from_hugging_face

__all__ = ["from_arrays", "from_flower_partitions", "from_hugging_face"]
