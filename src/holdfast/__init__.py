"""holdfast: federated learning for data that disagrees."""

from holdfast import (
    algorithms,
    cohorts,
    data,
    diagnose,
    evaluate,
    flix,
    models,
    rules,
    schedules,
    solvers,
    testing,
    trees,
    wires,
)
from holdfast.algorithm import Algorithm
from holdfast.combinators import Chain, Masked, ServerTurn, Uploaded
from holdfast.data import Clients, Examples
from holdfast.engine.checkpoint import Checkpoint
from holdfast.engine.engines import DebugEngine, Engine
from holdfast.engine.history import History
from holdfast.engine.ledger import Ledger
from holdfast.engine.simulate import Run, pretrain, rounds, simulate
from holdfast.engine.state import RunState
from holdfast.errors import HoldfastError, HoldfastWarning, RoundFailedError
from holdfast.hyper import PerClient
from holdfast.local import Local
from holdfast.models import Model, Table
from holdfast.places import DebugError
from holdfast.populations import Population, join
from holdfast.rule import ClientView, Need, Rule, ServerView, State, Tilt
from holdfast.server import Server
from holdfast.stores.storage import Storage
from holdfast.struct import static
from holdfast.sweeps.results import Sweep
from holdfast.sweeps.sweep import sweep
from holdfast.wire import OnSite, Wire

__version__ = "0.1.0"

__all__ = [
    "Algorithm",
    "Chain",
    "Checkpoint",
    "ClientView",
    "Clients",
    "DebugEngine",
    "DebugError",
    "Engine",
    "Examples",
    "History",
    "HoldfastError",
    "HoldfastWarning",
    "Ledger",
    "Local",
    "Masked",
    "Model",
    "Need",
    "OnSite",
    "PerClient",
    "Population",
    "RoundFailedError",
    "Rule",
    "Run",
    "RunState",
    "Server",
    "ServerTurn",
    "ServerView",
    "State",
    "Storage",
    "Sweep",
    "Table",
    "Tilt",
    "Uploaded",
    "Wire",
    "algorithms",
    "cohorts",
    "data",
    "diagnose",
    "evaluate",
    "flix",
    "join",
    "models",
    "pretrain",
    "rounds",
    "rules",
    "schedules",
    "simulate",
    "solvers",
    "static",
    "sweep",
    "testing",
    "trees",
    "wires",
]
