"""The rules: one idea a file. Compose them with `Chain` and `Masked`."""

from holdfast.rules.control_variate import ControlVariate, GradientControlVariate
from holdfast.rules.dynamic import Dynamic
from holdfast.rules.last_model import LastModel
from holdfast.rules.local_only import LocalOnly
from holdfast.rules.proximal import Proximal
from holdfast.rules.server_optimizer import ServerOptimizer
from holdfast.rules.split import SplitActive, SplitAll

__all__ = [
    "ControlVariate",
    "Dynamic",
    "GradientControlVariate",
    "LastModel",
    "LocalOnly",
    "Proximal",
    "ServerOptimizer",
    "SplitActive",
    "SplitAll",
]
