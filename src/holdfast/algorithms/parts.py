"""What the names below are put together from."""

from typing import Any

import optax

from holdfast.core.combinators import Chain
from holdfast.core.hyper import Hyper
from holdfast.core.rule import Rule
from holdfast.errors import HoldfastError, did_you_mean
from holdfast.rules import ServerOptimizer


def choose(owner: str, name: str, given: str, options: dict[str, Any]) -> Any:
    """One of several options by name, or a sentence with the nearest."""
    if given not in options:
        raise HoldfastError(
            f"{owner}: unknown {name} `{given}`; {did_you_mean(given, options)}", about=(name,)
        )
    return options[given]


def server_step(server_learning_rate: Hyper | None) -> tuple[Rule, ...]:
    """A step size at the server as a part of a chain; None is absent and free."""
    if server_learning_rate is None:
        return ()
    return (ServerOptimizer(optax.sgd, {"learning_rate": server_learning_rate}),)


def chain(*rules: Rule) -> Rule:
    """A chain, or its only rule."""
    return rules[0] if len(rules) == 1 else Chain(rules)
