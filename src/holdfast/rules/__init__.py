"""The rules: one idea a file. Compose them with `Chain` and `Masked`."""

from holdfast.rules.adaptive_clip import AdaptiveClip
from holdfast.rules.control_variate import ControlVariate, GradientControlVariate
from holdfast.rules.drift_diversity import DriftDiversity
from holdfast.rules.dynamic import Dynamic
from holdfast.rules.flix import Flix, OneShot
from holdfast.rules.last_model import LastModel
from holdfast.rules.local_only import LocalOnly
from holdfast.rules.meta import FirstOrderMAML
from holdfast.rules.population_transfer import CentralPopulationTransfer, PopulationTransfer
from holdfast.rules.previous_model import PreviousModel
from holdfast.rules.proximal import Proximal
from holdfast.rules.server_learning import ServerAsClient, ServerLearning
from holdfast.rules.server_optimizer import ServerOptimizer
from holdfast.rules.split import SplitActive, SplitAll
from holdfast.rules.transfer import OneWayTransfer, ParallelTraining, TwoWayTransfer

__all__ = [
    "AdaptiveClip",
    "CentralPopulationTransfer",
    "ControlVariate",
    "DriftDiversity",
    "Dynamic",
    "FirstOrderMAML",
    "Flix",
    "GradientControlVariate",
    "LastModel",
    "LocalOnly",
    "OneShot",
    "OneWayTransfer",
    "ParallelTraining",
    "PopulationTransfer",
    "PreviousModel",
    "Proximal",
    "ServerAsClient",
    "ServerLearning",
    "ServerOptimizer",
    "SplitActive",
    "SplitAll",
    "TwoWayTransfer",
]
