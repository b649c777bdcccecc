"""What the data says about which method it needs."""

from holdfast.diagnose.dissimilarity import dissimilarity

__all__ = ["dissimilarity"]
