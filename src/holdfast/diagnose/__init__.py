"""What the data says about which method it needs."""

from holdfast.diagnose.curvature import Curvature, curvature
from holdfast.diagnose.dissimilarity import dissimilarity
from holdfast.diagnose.drift import Diversity, drift, drift_diversity
from holdfast.diagnose.flops import flops
from holdfast.diagnose.tracking import track_curvature

__all__ = [
    "Curvature",
    "Diversity",
    "curvature",
    "dissimilarity",
    "drift",
    "drift_diversity",
    "flops",
    "track_curvature",
]
