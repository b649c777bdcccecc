"""Few bytes: compressors, and the wires that use them without losing the optimum."""

from holdfast.core.wire import OnSite, Wire
from holdfast.wires.clipped import Clipped
from holdfast.wires.compressed import Compressed
from holdfast.wires.compressor import Compressor
from holdfast.wires.diana import Diana
from holdfast.wires.downlink import Downlink
from holdfast.wires.error_feedback import ErrorFeedback
from holdfast.wires.quantise import Cast, Natural, Quantise, Sign
from holdfast.wires.sparsify import RandK, TopK

__all__ = [
    "Cast",
    "Clipped",
    "Compressed",
    "Compressor",
    "Diana",
    "Downlink",
    "ErrorFeedback",
    "Natural",
    "OnSite",
    "Quantise",
    "RandK",
    "Sign",
    "TopK",
    "Wire",
]
