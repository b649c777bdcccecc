"""What the data says about which method it needs."""

from holdfast.diagnose.curvature import Curvature, curvature
from holdfast.diagnose.dissimilarity import dissimilarity

__all__ = ["Curvature", "curvature", "dissimilarity"]
