"""Methods that could be what the data needs, and the hyper-parameters they are tried with."""

import dataclasses
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

from holdfast import algorithms
from holdfast.adviser.facts import Facts
from holdfast.adviser.problem import TO_TARGET, Problem
from holdfast.config.making import Begins
from holdfast.core.algorithm import Algorithm
from holdfast.core.local import Local
from holdfast.engine.setup import checked
from holdfast.errors import HoldfastError, did_you_mean

BASELINE = "fedavg"
# Around the step size that is given: for FedAvg, whose best is where the others begin, and around that.
SCOUTED = (0.1, 0.3, 1.0, 3.0, 10.0)
AROUND = (1.0, 0.3, 3.0)
# From a good step size to its neighbours, and values of methods' own from the smallest on.
FINER = 1.8
LADDERS: Mapping[str, tuple[float, ...]] = {
    "alpha": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
    "mu": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0),
    "learning_rate": (0.001, 0.003, 0.01, 0.03, 0.1, 0.3),
    "momentum": (0.3, 0.5, 0.7, 0.8, 0.9, 0.95),
    "gamma": (0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0),
}
_MIXTURES = (0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9)
_LAST_LAYER = "classifier"
_CHOSEN = "auto"  # by the first round
# Of these the objective is a mean over clients unless they are told otherwise.
_WEIGHTED = (
    "fedprox", "scaffold", "feddyn", "feddc", "fedpvr", "fedavg_plus", "scaffold_plus", "feddyn_plus",
    "feddc_plus",
)  # fmt: skip
# Clients must be known again and keep something.
REMEMBERS = ("scaffold", "feddyn", "feddc", "fedpvr", "scaffold_plus", "feddyn_plus", "feddc_plus")
# Unequal sizes, by their deviation over their mean, from which it matters who counts how much.
_UNEQUAL = 0.1


@dataclasses.dataclass(frozen=True)
class Contestant:
    """A method with its hyper-parameters, as an entry of `[[algorithm]]` has them.

    Args:
        name: of the method.
        arguments: of its function, as in a file.
        learning_rate: of local steps; None keeps what is given.
        adapt: clients take local steps of their own before they use the model.
    """

    name: str
    arguments: tuple[tuple[str, Any], ...] = ()
    learning_rate: float | None = None
    adapt: bool = False

    @property
    def method(self) -> str:
        """The method, whatever its hyper-parameters."""
        return f"{self.name} + local steps" if self.adapt else self.name

    @property
    def label(self) -> str:
        """With its hyper-parameters."""
        shown = [f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in self.arguments]
        if self.learning_rate is not None:
            shown.append(f"local.learning_rate={self.learning_rate:g}")
        return " ".join([self.method, *shown])

    @property
    def folder(self) -> str:
        """A name for its files; who adapts after training is trained like who does not."""
        words = dataclasses.replace(self, adapt=False).label
        return "".join(c if c.isalnum() or c in "._=-" else "_" for c in words)

    def algorithm(self) -> Algorithm:
        """What runs."""
        given = dict(self.arguments)
        if given.get("mask", _CHOSEN) != _CHOSEN:
            given["mask"] = Begins((given["mask"],))
        made: Algorithm = getattr(algorithms, self.name)(**given)
        return dataclasses.replace(made, adapt=True) if self.adapt else made

    def neighbours(self) -> "list[Contestant]":
        """The same method with one value changed a little: its step size, or one of its own."""
        found = []
        if self.learning_rate is not None:
            rates = (self.learning_rate * FINER, self.learning_rate / FINER)
            found += [dataclasses.replace(self, learning_rate=float(f"{r:.4g}")) for r in rates]
        for place, (name, value) in enumerate(self.arguments):
            if not isinstance(value, float):
                continue
            ladder = _MIXTURES if self.name == "flix" else LADDERS.get(name, ())
            beside = [v for v in ladder if v < value][-1:] + [v for v in ladder if v > value][:1]
            for other in beside:
                changed = (*self.arguments[:place], (name, other), *self.arguments[place + 1 :])
                found.append(dataclasses.replace(self, arguments=changed))
        return found

    def local(self, given: Local) -> Local:
        """Local steps with its step size."""
        if self.learning_rate is None:
            return given
        return dataclasses.replace(given, learning_rate=self.learning_rate)

    def entry(self) -> dict[str, Any]:
        """As a table of an experiment file."""
        table: dict[str, Any] = {"name": self.name, **dict(self.arguments)}
        if self.learning_rate is not None:
            table["local"] = {"learning_rate": self.learning_rate}
        if self.adapt:
            table["adapt"] = True
        return table


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A method that the facts speak for, the values of its own to try, and why it is one.

    Args:
        name: of the method.
        reason: in words.
        strengths: tables of arguments, the likeliest first.
        prior: how much the facts alone speak for it; only the order counts.
    """

    name: str
    reason: str
    strengths: tuple[Mapping[str, Any], ...] = ({},)
    prior: float = 0.0

    def contestants(
        self, rates: Sequence[float | None], common: Mapping[str, Any]
    ) -> list[Contestant]:
        """Every value with every step size, the likeliest first."""
        shared = {k: v for k, v in common.items() if k != "weighting" or self.name in _WEIGHTED}
        return [
            Contestant(self.name, tuple(sorted({**shared, **strength}.items())), rate)
            for rate in rates
            for strength in self.strengths
        ]


def rates(problem: Problem, factors: Sequence[float], centre: float | None = None) -> list[Any]:
    """Step sizes to try; only the given one where it is a schedule or differs between clients."""
    given = problem.local.learning_rate
    if centre is None and not isinstance(given, numbers.Real):
        return [None]
    base = float(given) if centre is None else centre
    return [float(f"{base * factor:.4g}") for factor in factors]


def common(facts: Facts) -> dict[str, Any]:
    """What all methods are told, so that they minimise the same mean."""
    return {"weighting": "examples"} if facts.size_deviation > _UNEQUAL else {}


_FORGETS = ("fedavg", "fedprox", "fedavgm", "fedadam", "fedavg_plus", "flix")
KNOWN = (*REMEMBERS, *_FORGETS, "one_way_transfer", "parallel_training")


def candidates(
    problem: Problem, facts: Facts, methods: Sequence[str] | None = None
) -> tuple[list[Candidate], list[str]]:
    """Methods to try, the likeliest first, and in words which ones were left out for which reason.

    Of `methods` alone, if they are given, and FedAvg.
    """
    for name in methods or ():
        if name not in KNOWN:
            raise HoldfastError(
                f"advise: {name!r} is no method it could advise; {did_you_mean(str(name), KNOWN)}",
                about=("methods",),
            )
    found = [Candidate(BASELINE, "what all others are measured against", prior=0.0)]
    left_out: list[str] = []
    drift = facts.disagreement
    visits = facts.visits
    if problem.server is not None:
        found += _at_server(problem, facts, left_out)
    if visits < 2:
        left_out.append(
            f"methods with a memory on clients (SCAFFOLD, FedDyn, FedDC, FedPVR): a client takes part "
            f"{visits:.1f} times in {problem.rounds} rounds, and needs to come back for it to help"
        )
    else:
        why = facts.why_disagree
        if facts.are_alike:
            why = "it corrects what clients disagree about, though they are much alike"
        few = "" if facts.participation > 0.05 else ", though few clients take part in a round"
        found += [
            Candidate("feddyn", f"{why}{few}", _values("alpha", 0.1, 0.01, 1.0), 3 * drift),
            Candidate("scaffold", f"{why}{few}", prior=2 * drift - (facts.participation < 0.1)),
            Candidate("feddc", f"{why}{few}", _values("alpha", 0.01, 0.1, 0.001), 2.5 * drift),
        ]
        found += _partial(problem, drift, left_out)
    found += [
        Candidate(
            "fedavgm",
            "momentum at the server evens out what single cohorts ask for",
            _values("momentum", 0.9, 0.7),
            0.5 + (facts.participation < 0.3) * drift,
        ),
        Candidate(
            "fedadam",
            "the server has a step size of its own for every parameter",
            _values("learning_rate", 0.01, 0.03, 0.003),
            0.3,
        ),
        Candidate(
            "fedprox",
            "holds clients near the server's model",
            _values("mu", 0.1, 0.01, 1.0),
            0.6 * drift,
        ),
    ]
    if problem.goal not in TO_TARGET and facts.shift > 0.3:
        found.append(
            Candidate(
                "flix",
                "clients' inputs differ within a class, so that models of their own may pay",
                _values("alpha", 0.5, 0.8, 0.2),
                1.0,
            )
        )
    if methods is not None:
        found = [c for c in found if c.name in (BASELINE, *methods)]
    usable = []
    for candidate in found:
        refused = _refused(problem, candidate, facts)
        if refused:
            left_out.append(
                f"{candidate.name}: {refused.removeprefix(f'{candidate.name}: ').rstrip('.')}"
            )
        else:
            usable.append(candidate)
    return sorted(usable, key=lambda c: -c.prior), left_out


def _partial(problem: Problem, drift: float, left_out: list[str]) -> list[Candidate]:
    """FedPVR, where the model has layers to choose among."""
    # Weights and an intercept that stand by themselves are one layer.
    found = {name.rpartition("/")[0] for name in problem.layers}
    if len(found) < 2:
        left_out.append("FedPVR: the model has one layer, and there is none to leave uncorrected")
        return []
    last = any(name.startswith(_LAST_LAYER) for name in problem.layers)
    why = (
        "last layers usually drift most, and it corrects only those"
        if last
        else "it corrects only layers that drift, and the first round says which those are"
    )
    mask = _LAST_LAYER if last else _CHOSEN
    return [Candidate("fedpvr", why, ({"mask": mask},), 1.5 * drift)]


def _values(name: str, *values: float) -> tuple[Mapping[str, Any], ...]:
    return tuple({name: value} for value in values)


def _at_server(problem: Problem, facts: Facts, left_out: list[str]) -> list[Candidate]:
    """Methods in which the server trains too."""
    assert problem.server is not None
    near, known = facts.server_near, facts.server_ratio is not None
    ratio = f"{facts.server_ratio:.2g}" if known else "unknown"
    if problem.server.alone:
        left_out.append("FedAvg+ and the like: the server has a loss and no examples")
    else:
        near_or_far = "near" if near else "far from"
        why = f"the server's gradient is {near_or_far} the clients' mean (xi^2 / G^2 = {ratio})"
        worth = 4.0 if near else 0.5
        plus = [
            Candidate("fedavg_plus", why, _values("gamma", 0.3, 1.0, 0.1), worth),
        ]
        if facts.visits >= 2:
            plus += [
                Candidate("scaffold_plus", why, _values("gamma", 0.3, 1.0), worth - 0.2),
                Candidate(
                    "feddyn_plus",
                    why,
                    ({"alpha": 0.1, "gamma": 0.3}, {"alpha": 0.1, "gamma": 1.0}),
                    worth - 0.1,
                ),
            ]
        return plus
    return [
        Candidate("one_way_transfer", "the server has a loss of its own", prior=2.0),
        Candidate("parallel_training", "the server has a loss of its own", prior=1.5),
    ]


def _refused(problem: Problem, candidate: Candidate, facts: Facts) -> str:
    """Why a method cannot run here, in the words it is refused with; empty if it can."""
    try:
        first = candidate.contestants([None], common(facts))[0]
        checked(problem.experiment(first.algorithm(), first.local(problem.local), 0))
    except HoldfastError as error:
        return str(error)
    return ""
