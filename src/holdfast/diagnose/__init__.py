"""What the data says about which method it needs."""

from holdfast.diagnose.curvature import Curvature, curvature
from holdfast.diagnose.dissimilarity import dissimilarity
from holdfast.diagnose.first_layer import first_layer
from holdfast.diagnose.flops import flops
from holdfast.diagnose.tracking import track_curvature
from holdfast.diagnose.where import FirstLayer

__all__ = [
    "Curvature",
    "FirstLayer",
    "curvature",
    "dissimilarity",
    "first_layer",
    "flops",
    "track_curvature",
]
