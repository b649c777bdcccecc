"""What server and sites must agree on, and what of an experiment can be deployed."""

import dataclasses
import functools
import hashlib
from typing import Any

import jax
import numpy as np
from jax import tree

from holdfast.core import auto_mask, hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.hyper import PerClient
from holdfast.core.local import Local
from holdfast.core.template import Template, template
from holdfast.core.wire import OnSite, Wire
from holdfast.deploy.frame import BadMessageError
from holdfast.engine.experiment import Experiment
from holdfast.errors import HoldfastError
from holdfast.models.model import Model
from holdfast.record.identity import describe
from holdfast.trees import Tree, paths
from holdfast.wires.downlink import Downlink

# Which part of a run begins at a site: the run, or its first round where another method takes that.
WHOLE, FIRST_ROUND = "", "first round"


def name_of(*parts: str) -> str:
    """A digest of words, short enough to be read out: 32 hexadecimal digits."""
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def shape_of(examples: Tree) -> str:
    """A digest of what one example is: names, shapes and types of its arrays."""
    arrays = zip(paths(examples), tree.leaves(examples), strict=True)
    return name_of(*(f"{name} {np.shape(a)[1:]} {_type(a)}" for name, a in arrays))


def _type(array: Any) -> str:
    # As programs have it: numbers of 64 bits in a file are no other data.
    return str(jax.dtypes.canonicalize_dtype(array.dtype))


@dataclasses.dataclass(frozen=True, eq=False)
class Task:
    """Of an experiment what happens at a site: the algorithm, the model, the local steps."""

    algorithm: Algorithm
    model: Model
    local: Local
    # Another method that takes the first round, if there is one.
    first_round: Algorithm | None = None
    # Local steps from the server's model to what a client uses; those of a first round are its own.
    adapt: Local | None = None
    first_adapt: Local | None = None

    @classmethod
    def of(cls, experiment: Experiment) -> "Task":
        """Of an experiment; refuses one that cannot be deployed."""
        _check(experiment)
        assert isinstance(experiment.local, Local)
        # As the engine has it: no round depends on how clients adapt.
        algorithm = dataclasses.replace(experiment.algorithm, adapt=False)
        adapt = _adapt(experiment.algorithm, experiment.local)
        first, first_adapt = experiment.first_round, None
        if first is not None:
            first_adapt = _adapt(first, experiment.local)
            first = dataclasses.replace(first, adapt=False)
        if auto_mask.asks(algorithm):
            first, first_adapt = auto_mask.without(algorithm), adapt
        if first is not None:
            algorithm = dataclasses.replace(algorithm, wire=algorithm.wire.beginning(1))
        return cls(algorithm, experiment.model, experiment.local, first, adapt, first_adapt)

    def part(self, part: str, mask: str) -> "Task":
        """Of the run or of its first round alone, with a mask that was chosen; refuses what it has not."""
        first, waits = self.first_round, auto_mask.asks(self.algorithm)
        if part == FIRST_ROUND and first is not None and not mask:
            return dataclasses.replace(
                self, algorithm=first, first_round=None, adapt=self.first_adapt
            )
        if part != WHOLE or bool(mask) != waits:
            raise BadMessageError("it begins what the experiment has not here")
        if not mask:
            return self
        chosen = tuple(digit == "1" for digit in mask)
        return dataclasses.replace(self, algorithm=auto_mask.with_mask(self.algorithm, chosen))

    @functools.cached_property
    def algorithm_digest(self) -> str:
        """By which a site knows the method, with all its numbers."""
        first = self.first_round
        return name_of(
            describe(self.algorithm),
            *(() if first is None else (f"first round: {describe(first)}",)),
        )

    @functools.cached_property
    def model_digest(self) -> str:
        """By which a site knows the model."""
        return name_of(describe(self.model))

    @functools.cached_property
    def local_digest(self) -> str:
        """By which a site knows the local steps, those before a model is used included."""
        known = (("adapt", self.adapt), ("first round's adapt", self.first_adapt))
        also = (f"{what}: {describe(steps)}" for what, steps in known if steps is not None)
        return name_of(describe(self.local), *also)

    def template(self, params: Tree) -> Template:
        """What both sides begin with, and the shapes of what travels."""
        return template(hyper.at_round(self.algorithm, 0), params)


def _refuse(what: str, about: str) -> None:
    raise HoldfastError(f"deploy: {what}", about=(about,))


def _check(given: Experiment) -> None:
    """Refuse what cannot be deployed, each in a line."""
    algorithm = given.algorithm
    if given.attack is not None:
        _refuse("attack is for simulations; leave it out, or simulate the experiment.", "attack")
    if given.select:
        _refuse("select=True is for simulations only so far; leave it out.", "select")
    if given.clients.populations is not None or not isinstance(given.local, Local):
        _refuse(
            "clients are of several populations (hf.join); deploy an experiment of one population.",
            "clients",
        )
    _check_method(algorithm, len(given.clients))
    if isinstance(given.local, Local) and given.local.private is not None:
        _refuse(
            "Local has `private`, and sites draw from the server's seed, so that it would know their noise; "
            "use it in simulations alone.",
            "local",
        )
    if given.first_round is not None:
        _check_method(given.first_round, len(given.clients))
        wires = (algorithm.wire, given.first_round.wire)
        if any(wire.replicates for wire in wires):
            _refuse(
                f"{algorithm.name}: first_round is {given.first_round.name}, and hf.wires.Downlink sends "
                f"changes since the first round; leave one of them out.",
                "first_round",
            )
    if auto_mask.asks(algorithm) and type(algorithm.wire) is not Wire:
        _refuse(
            f'{algorithm.name}: mask="auto" chooses by updates as local steps make them, and the wire '
            f"{type(algorithm.wire).__name__} does not bring these; give hf.Wire(), or the mask that a "
            f"simulation has chosen, run.chosen_mask.parameters.",
            "algorithm",
        )


def _adapt(algorithm: Algorithm, local: Local) -> Local | None:
    return local if algorithm.adapt is True else algorithm.adapt or None


def _check_method(algorithm: Algorithm, count: int) -> None:
    """Refuse a method that cannot be deployed."""
    if algorithm.regroup is not None:
        _refuse(
            f"{algorithm.name} pools all data, which would have to leave the sites.", "algorithm"
        )
    if isinstance(algorithm.wire, OnSite):
        _refuse(f"{algorithm.name} sends nothing, so there is nothing to deploy.", "algorithm")
    if algorithm.wire.replicates and not isinstance(algorithm.wire, Downlink):
        _refuse(
            f"{algorithm.name}: the wire {type(algorithm.wire).__name__} is around one that sends changes of "
            f"a copy that sites keep; give it as the inner wire, hf.wires.Downlink(inner, compressor).",
            "algorithm",
        )
    if any(
        isinstance(leaf, PerClient) and callable(leaf.values)
        for leaf in tree.leaves(algorithm, is_leaf=lambda leaf: isinstance(leaf, PerClient))
    ):
        _refuse(
            "a PerClient is a function of a client's examples, which only its site has; give its "
            "values, one for each site.",
            "algorithm",
        )
    if algorithm.rule.traits.quiet(count).any():
        _refuse(
            f"{algorithm.name}: some clients neither need the model nor have anything to say; leave "
            f"them out of the federation.",
            "algorithm",
        )


def check_evaluators(evaluators: Any) -> None:
    """Refuse evaluators that look at what sites keep."""
    for evaluator in evaluators:
        if getattr(evaluator, "adapt", None) is not None:
            _refuse(
                f"{type(evaluator).__name__} measures models after local steps that a site does not know of; "
                f"give them to the method, hf.Algorithm(..., adapt=hf.Local(...)), which each site has.",
                "evaluate",
            )
        if getattr(evaluator, "sent", ()):
            _refuse(
                f"{type(evaluator).__name__} has clients send something beside training, which is for "
                f'simulations only so far; calibrate at the server (by="server"), or leave it out.',
                "evaluate",
            )
        if evaluator.keeps_last_models:
            _refuse(
                f"{type(evaluator).__name__} asks for the model every client trained last, which stays "
                f"at its site; use hf.evaluate.on(test).",
                "evaluate",
            )
