"""What the data says about which method it needs."""

from holdfast.diagnose.cka import cka, linear_cka
from holdfast.diagnose.curvature import Curvature, curvature
from holdfast.diagnose.dissimilarity import dissimilarity
from holdfast.diagnose.drift import Diversity, drift, drift_diversity
from holdfast.diagnose.first_layer import first_layer
from holdfast.diagnose.flops import flops
from holdfast.diagnose.tracking import track_curvature
from holdfast.diagnose.updates import updates
from holdfast.diagnose.where import FirstLayer

__all__ = [
    "Curvature",
    "Diversity",
    "FirstLayer",
    "cka",
    "curvature",
    "dissimilarity",
    "drift",
    "drift_diversity",
    "first_layer",
    "flops",
    "linear_cka",
    "track_curvature",
    "updates",
]
