"""What a rule or a wire remembers, found by its class wherever it stands in an algorithm."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from holdfast.core.algorithm import Algorithm
from holdfast.core.round_types import ClientState, ServerState
from holdfast.core.rule import Rule, State
from holdfast.core.wire import Wire
from holdfast.errors import HoldfastError
from holdfast.trees import Tree


class Memory(NamedTuple):
    """What one rule or wire remembers on the two sides; empty where it remembers nothing."""

    server: Tree
    clients: Tree  # along a leading axis, unless of one client


def recall(
    algorithm: Algorithm,
    kind: type[Rule] | type[Wire],
    server: ServerState,
    clients: ClientState,
    which: int | None = None,
) -> Memory:
    """What the rule or wire of this class remembers; `which` chooses if there are several."""
    if not (isinstance(kind, type) and issubclass(kind, Rule | Wire)):
        example = type(kind).__name__ if isinstance(kind, Rule | Wire) else "hf.rules.Dynamic"
        raise HoldfastError(
            f"memory: {kind!r} is not the class of a rule or of a wire; give one, such as {example}."
        )
    everything = [
        *_within(algorithm.rule, State(server.rule, clients.rule)),
        *_within(algorithm.wire, State(server.wire, clients.wire)),
    ]
    found = [state for part, state in everything if isinstance(part, kind)]
    name = kind.__name__
    if not found:
        there = ", ".join(type(part).__name__ for part, _ in everything)
        raise HoldfastError(f"memory: there is no {name} in {algorithm.name}, which is {there}.")
    if which is None and len(found) > 1:
        raise HoldfastError(
            f"memory: {name} is in {algorithm.name} {len(found)} times; give which=0 for the first, up "
            f"to which={len(found) - 1}, in the order of the algorithm."
        )
    if which is not None and which not in range(len(found)):
        raise HoldfastError(
            f"memory: which={which!r}, and {name} is in {algorithm.name} {len(found)} times; give a "
            f"number in 0..{len(found) - 1}."
        )
    return Memory(*found[which or 0])


def _within(part: Any, state: State) -> Iterator[tuple[Rule | Wire, State]]:
    """A rule or wire and every one inside it, with what each remembers."""
    yield part, state
    for inner, own in part.inside(state):
        yield from _within(inner, own)
