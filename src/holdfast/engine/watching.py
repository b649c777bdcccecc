"""Rules that evaluators have beside a method: put there, taken off, and carried from run to run."""

import dataclasses
from collections.abc import Sequence

from holdfast.core.algorithm import Algorithm
from holdfast.core.round_types import ServerState
from holdfast.core.rule import Rule
from holdfast.core.watched import Watched, WatchedState
from holdfast.core.wire import OnSite
from holdfast.errors import HoldfastError
from holdfast.evaluate.protocol import Evaluator
from holdfast.trees import signature


def watched(algorithm: Algorithm, evaluators: Sequence[Evaluator], populations: int) -> Algorithm:
    """The method beside the rules that its evaluators ask for; itself if they ask for none, or if there
    is nothing to hear because nothing travels."""
    if isinstance(algorithm.wire, OnSite):
        return algorithm
    rules: list[Rule] = []
    for evaluator in evaluators:
        asks = getattr(evaluator, "watches", None)
        rule = None if asks is None else asks(populations)
        if rule is None or rule in rules:
            continue
        name = type(evaluator).__name__
        if not (isinstance(rule, Rule) and rule.traits.neutral):
            raise HoldfastError(
                f"evaluate: {name} asks for {type(rule).__name__} beside the method, which is not a rule "
                f"that only watches; give one with `neutral = True`.",
                about=("evaluate",),
            )
        if "hear" in rule.defines and not algorithm.wire.hears_each:
            raise HoldfastError(
                f"{algorithm.name}: {name} needs every client's update, and the wire "
                f"{type(algorithm.wire).__name__} tells the server only their mean; use "
                f"hf.wires.Compressed or ErrorFeedback, or leave out the evaluator.",
                about=("evaluate",),
            )
        if "hear" in rule.defines and algorithm.mean.gathers and not algorithm.mean.chooses:
            raise HoldfastError(
                f"{algorithm.name}: {name} adds up what it hears of every client, and "
                f"{type(algorithm.mean).__name__} does not; use another mean, or leave out the evaluator.",
                about=("evaluate",),
            )
        rules.append(rule)
    if not rules:
        return algorithm
    return dataclasses.replace(algorithm, rule=Watched(algorithm.rule, tuple(rules)))


def unwatched(algorithm: Algorithm) -> Algorithm:
    """The method alone."""
    rule = algorithm.rule
    return (
        dataclasses.replace(algorithm, rule=rule.inner) if isinstance(rule, Watched) else algorithm
    )


def carried(state: ServerState, fresh: ServerState) -> ServerState:
    """What a server remembers, as a run needs it that has other evaluators; `fresh` is its first."""
    then, now = state.rule, fresh.rule
    own = then.inner if isinstance(then, WatchedState) else then
    if not isinstance(now, WatchedState):
        return state._replace(rule=own)
    same = isinstance(then, WatchedState) and signature(then.watched) == signature(now.watched)
    return state._replace(rule=WatchedState(own, then.watched if same else now.watched))
