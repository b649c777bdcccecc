"""What a run starts from, and the shapes of what travels, found out without data or local steps."""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import tree

from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.client import answer
from holdfast.core.round_types import ClientState, Reply, ServerState, Slot
from holdfast.core.rule import ClientView, ServerView, State, Tilt, addressed
from holdfast.errors import HoldfastError
from holdfast.trees import Number, Tree, describe_shapes, float_type, signature, zeros


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Received:
    """Instead of a sum of what is heard: it is that of this leaf of what is received."""

    leaf: int


def is_received(part: Any) -> bool:
    """Whether a part of what is heard is no sum of its own."""
    return isinstance(part, Received)


def _pretended_reply(
    algorithm: Algorithm, x: Tree, msg: Tree, state: ClientState, trained: tuple[Any, ...]
) -> Reply:
    dtype = float_type(x)
    mine = hyper.of_client(algorithm, 0, dtype)
    delta, y, weight, path = trained
    at = ClientView(x, addressed(msg, None), state.rule, zeros, weight, path, y)
    return answer(mine, delta, at, state, jax.random.key(0))


def _pretended_training(x: Tree) -> tuple[Any, ...]:
    """Shapes of a client's delta, model, weight and path: arguments, so that they are told apart."""
    number = jax.ShapeDtypeStruct((), float_type(x))
    return x, x, number, number


def reply_shapes(algorithm: Algorithm, x: Tree, msg: Tree, state: ClientState) -> Reply:
    """Shapes and types of a reply, without data or local steps."""
    pretend = functools.partial(_pretended_reply, algorithm)
    return jax.eval_shape(pretend, x, msg, state, _pretended_training(x))


def heard_apart(algorithm: Algorithm, x: Tree, msg: Tree, state: ClientState, slots: Slot) -> Tree:
    """Shapes of what is heard, `Received` where its sum is one that the server has anyway.

    It is where a number that is heard is one that was received, by the traced program, and counts as much.
    """
    same = isinstance(slots.heard_weight, tuple) or slots.heard_weight is slots.delta_weight is None
    all_alike = slots.head_weight is slots.delta_weight is None

    def pretend(x: Tree, msg: Tree, state: ClientState, trained: Any, weights: list[Any]) -> Any:
        reply = _pretended_reply(algorithm, x, msg, state, trained)
        weight, other, head = weights
        mine = hyper.of_client(algorithm, 0, float_type(x))
        objective, vote = weight if same else other, weight if all_alike else head
        each = mine.rule.heard_weights(reply.heard, objective, vote)
        return mine.wire.receive(reply.coded), reply.heard, each, weight

    trained = _pretended_training(x)
    numbers = [trained[-1]] * 3
    program, shapes = jax.make_jaxpr(pretend, return_shape=True)(x, msg, state, trained, numbers)
    received, heard, each, weight = tree.unflatten(tree.structure(shapes), program.jaxpr.outvars)
    place = {id(variable): k for k, variable in reversed(list(enumerate(tree.leaves(received))))}

    def one(variable: Any, own_weight: Any, shape: Any) -> Any:
        there = id(variable) in place and own_weight is weight
        return Received(place[id(variable)]) if there else shape

    return tree.map(one, heard, each, shapes[1])


class Template(NamedTuple):
    """What a run starts from, and the shapes of what travels in a round of it."""

    server: ServerState
    client: ClientState  # every client's first state
    broadcast: Tree  # shapes of what one client receives
    payload: Tree  # shapes of what one client returns, before the wire
    said: Tree = ()  # shapes of what clients are told of how replies become one


def pretended_server(x: Tree, state: Tree) -> ServerView:
    """A server whose data is of no interest, to find out what its rule would send."""
    one = jnp.ones((), float_type(x))

    def still(start: Tree, tilt: Tilt | None = None) -> tuple[Tree, Number]:
        return zeros(start), one

    return ServerView(x, state, one, one, still, zeros, one, lambda z, weight: zeros(z))


def template(algorithm: Algorithm, x: Tree, keep_latest: bool = False) -> Template:
    """The initial state of both sides for an algorithm and a model."""
    mine = hyper.of_client(algorithm, 0, float_type(x))
    state = mine.rule.init(x)

    def payload(x: Tree, state: State) -> tuple[Tree, Tree, tuple[Tree, Tree]]:
        one = jnp.ones((), float_type(x))
        msg, _ = algorithm.rule.send(pretended_server(x, state.server))
        own = addressed(msg, None)
        at = ClientView(x, own, state.client, zeros, one, one, x)
        return msg, own, mine.rule.reply(zeros(x), at)

    msg, own, travelling = jax.eval_shape(payload, x, state)
    if mine.wire.replicates and signature(own) != signature(msg):
        raise HoldfastError(
            f"{algorithm.name}: it sends each population a message of its own, and the wire "
            f"{type(mine.wire).__name__} keeps one copy of what everybody knows; use another wire.",
            about=("algorithm", "wire"),
        )
    # Everybody knows x at the start, and of a message that nothing has been said yet.
    wire = mine.wire.init(zeros(travelling), (x, zeros(msg)))
    first = ClientState(state.client, wire.client, x if keep_latest else ())
    reply = reply_shapes(algorithm, x, msg, first)
    if signature(reply.state) != signature(first):
        raise HoldfastError(
            f"{algorithm.name}: `settle` returns a state of {describe_shapes(reply.state)} where `init` "
            f"and the wire began with {describe_shapes(first)}; return the same shapes and types."
        )
    of_mean = mine.mean.init(travelling)
    server = ServerState(state.server, wire.server, of_mean)
    said = jax.eval_shape(mine.mean.say, of_mean)
    return Template(server, first, (x, own), travelling, said)
