"""What the data says about which method it needs."""

from holdfast.diagnose.curvature import Curvature, curvature
from holdfast.diagnose.dissimilarity import dissimilarity
from holdfast.diagnose.flops import flops
from holdfast.diagnose.tracking import track_curvature

__all__ = ["Curvature", "curvature", "dissimilarity", "flops", "track_curvature"]
