"""Every public name of holdfast: what `import holdfast as hf` has, imported when it is first used."""

from holdfast import (
    aggregates,
    algorithms,
    attacks,
    cohorts,
    conformal,
    data,
    deploy,
    diagnose,
    evaluate,
    flix,
    metrics,
    models,
    privacy,
    rules,
    schedules,
    solvers,
    testing,
    trees,
    wires,
)
from holdfast.adviser import Advice, Budget, advise
from holdfast.client_states.storage import Storage
from holdfast.comparison import Comparison, compare, figures, report
from holdfast.core.algorithm import Algorithm
from holdfast.core.combinators import Chain, Masked, ServerTurn, Uploaded
from holdfast.core.debug import DebugError
from holdfast.core.hyper import Hyper, PerClient
from holdfast.core.local import Local
from holdfast.core.rule import ClientView, Need, Rule, ServerView, State, Tilt, Traits
from holdfast.core.struct import static
from holdfast.core.wire import OnSite, Wire
from holdfast.data import Clients, Examples
from holdfast.engine.compiled import CompiledEngine
from holdfast.engine.debug import DebugEngine
from holdfast.engine.experiment import Experiment
from holdfast.engine.populations import Population, join
from holdfast.engine.protocol import Engine
from holdfast.engine.server import Server
from holdfast.engine.simulate import Run, pretrain, rounds, simulate
from holdfast.engine.stopping import EarlyStopping
from holdfast.errors import HoldfastError, HoldfastWarning, RoundFailedError
from holdfast.models import Model, Table
from holdfast.record.checkpoint import Checkpoint
from holdfast.record.history import History
from holdfast.record.ledger import Ledger
from holdfast.record.state import RunState
from holdfast.runs.load import load
from holdfast.saved.model import SavedModel
from holdfast.sweeps.results import Sweep
from holdfast.sweeps.sweep import sweep

__all__ = [
    "Advice",
    "Algorithm",
    "Budget",
    "Chain",
    "Checkpoint",
    "ClientView",
    "Clients",
    "Comparison",
    "CompiledEngine",
    "DebugEngine",
    "DebugError",
    "EarlyStopping",
    "Engine",
    "Examples",
    "Experiment",
    "History",
    "HoldfastError",
    "HoldfastWarning",
    "Hyper",
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
    "SavedModel",
    "Server",
    "ServerTurn",
    "ServerView",
    "State",
    "Storage",
    "Sweep",
    "Table",
    "Tilt",
    "Traits",
    "Uploaded",
    "Wire",
    "advise",
    "aggregates",
    "algorithms",
    "attacks",
    "cohorts",
    "compare",
    "conformal",
    "data",
    "deploy",
    "diagnose",
    "evaluate",
    "figures",
    "flix",
    "join",
    "load",
    "metrics",
    "models",
    "pretrain",
    "privacy",
    "report",
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
