"""What is fixed in the study: populations, methods and their step sizes."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import optax

import holdfast as hf


@dataclasses.dataclass(frozen=True)
class Setting:
    """What all methods of a comparison share."""

    clients: int  # N
    cohort: int  # |S|
    server_examples: int  # n_0, an IID sample taken away from the clients
    rounds: int
    targets: tuple[float, ...]
    steps: int = 10  # K = K_0
    batch_size: int = 20
    hidden: int = 64

    @property
    def root_of_cohort(self) -> float:
        """The paper's global step size."""
        return math.sqrt(self.cohort)


@dataclasses.dataclass(frozen=True)
class Steps:
    """Step sizes: clients' (eta_l) and global (eta_g), and the regulariser of FedDyn and FedDC."""

    eta_l: float
    eta_g: float = 1.0
    alpha: float | None = None


@dataclasses.dataclass(frozen=True)
class Method:
    """An algorithm with its step sizes, and what becomes of the server's data."""

    algorithm: hf.Algorithm
    eta_l: float
    eta_0: float | None = None  # the server's step size; None: the server does not learn
    shares_data: bool = False  # its examples are handed to every client instead


def method(name: str, steps: Steps, gamma: Any = None) -> Method:
    """A method by the name it has in the tables; gamma is the paper's unless given."""
    gamma = default_gamma(name) if gamma is None else gamma
    algorithm = _ALGORITHMS[name](steps, gamma)
    if name in ("FL", "FedAvg", "SCAFFOLD", "FedDyn", "FedDC"):
        return Method(algorithm, steps.eta_l)
    if name == "DS":
        return Method(algorithm, steps.eta_l, shares_data=True)
    # The paper's eta_0 = eta_l eta_g; where the server is one more client, or there is no eta_g, eta_l.
    factor = steps.eta_g if name in ("FSL", "FedAvg+", "SCAFFOLD+") else 1.0
    return Method(algorithm, steps.eta_l, steps.eta_l * factor)


def default_gamma(name: str) -> Any:
    """The paper's weights for EMNIST: 1 as correction, 0.1 as regulariser, the latter decaying."""
    return hf.schedules.exponential(0.1, 0.99) if name in ("FedDyn+", "FedDC+") else 1.0


def _server_as_client(eta_g: float) -> hf.Algorithm:
    outer = hf.rules.ServerOptimizer(optax.sgd, {"learning_rate": eta_g})
    rule = hf.Chain((hf.rules.ServerAsClient(), outer))
    return hf.Algorithm(rule, weighting="examples", name="server_as_client")


_ALGORITHMS: dict[str, Callable[[Steps, Any], hf.Algorithm]] = {
    "FL": lambda s, gamma: hf.algorithms.fedavg(s.eta_g),
    "DS": lambda s, gamma: hf.algorithms.fedavg(s.eta_g),
    "FSL-p": lambda s, gamma: _server_as_client(s.eta_g),
    "FSL": lambda s, gamma: hf.algorithms.fedavg_plus(gamma, s.eta_g),
    "FedAvg": lambda s, gamma: hf.algorithms.fedavg(s.eta_g),
    "FedAvg+": lambda s, gamma: hf.algorithms.fedavg_plus(gamma, s.eta_g),
    "SCAFFOLD": lambda s, gamma: hf.algorithms.scaffold(server_learning_rate=s.eta_g),
    "SCAFFOLD+": lambda s, gamma: hf.algorithms.scaffold_plus(gamma, s.eta_g),
    "FedDyn": lambda s, gamma: hf.algorithms.feddyn(s.alpha),
    "FedDyn+": lambda s, gamma: hf.algorithms.feddyn_plus(s.alpha, gamma),
    "FedDC": lambda s, gamma: hf.algorithms.feddc(s.alpha),
    "FedDC+": lambda s, gamma: hf.algorithms.feddc_plus(s.alpha, gamma),
}
ON_CLASSES = ("FL", "DS", "FSL-p", "FSL")
PLUS = ("FedAvg", "FedAvg+", "SCAFFOLD", "SCAFFOLD+", "FedDyn", "FedDyn+", "FedDC", "FedDC+")


SAME_STEPS = (0.1, 0.03)  # eta_l and alpha where all methods take the same; eta_g = root of |S|


@dataclasses.dataclass(frozen=True)
class Plan:
    """The settings of one data set, after the paper's two scenarios."""

    few: Setting  # few clients with much data: comparisons 1 and 2
    many: Setting  # many clients with little data: comparison 3
    tuned: dict[str, Steps]  # found by tune.py; methods not listed take `same_steps`

    def steps(self, name: str, setting: Setting) -> Steps:
        """One method's own step sizes."""
        return self.tuned.get(name) or same_steps(setting)


def same_steps(setting: Setting) -> Steps:
    """One choice for all methods, as in the paper."""
    eta_l, alpha = SAME_STEPS
    return Steps(eta_l, setting.root_of_cohort, alpha)


DIGITS = Plan(
    few=Setting(clients=10, cohort=4, server_examples=50, rounds=150, targets=(0.90,)),
    many=Setting(clients=100, cohort=5, server_examples=50, rounds=150, targets=(0.90, 0.94)),
    tuned={
        "FL": Steps(0.6),
        "DS": Steps(0.6),
        "FSL-p": Steps(0.6),
        "FSL": Steps(0.3, 2.0),
        "FedAvg": Steps(0.6),
        "FedAvg+": Steps(0.6),
        "SCAFFOLD": Steps(0.3),
        "SCAFFOLD+": Steps(0.3, 2.236),
        "FedDyn": Steps(0.6, alpha=0.03),
        "FedDyn+": Steps(0.6, alpha=0.1),
        "FedDC": Steps(0.3, alpha=0.03),
        "FedDC+": Steps(0.6, alpha=0.03),
    },
)
MNIST = Plan(
    few=Setting(10, 4, 50, rounds=150, targets=(0.85,), steps=20, batch_size=50),
    many=Setting(100, 5, 50, rounds=150, targets=(0.88, 0.92), steps=20, batch_size=50),
    tuned={
        "FL": Steps(0.3),
        "DS": Steps(0.3),
        "FSL-p": Steps(0.3),
        "FSL": Steps(0.3),
    },
)
EMNIST = Plan(
    few=Setting(47, 5, 235, rounds=150, targets=(0.45,)),
    many=Setting(100, 5, 235, rounds=150, targets=(0.45, 0.5)),
    tuned={},
)
PLANS = {"digits": DIGITS, "mnist": MNIST, "emnist": EMNIST}
