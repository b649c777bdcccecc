"""The server's half of the round: it opens, takes one reply after another, and closes."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import tree

from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.gathered import gathered
from holdfast.core.keys import Purpose
from holdfast.core.local import direction, solve
from holdfast.core.mean import Held, Judged
from holdfast.core.round_types import ClientState, Reply, RoundInputs, ServerState, Slot
from holdfast.core.rule import ClientView, ServerView, Tilt
from holdfast.core.template import Received, heard_apart, is_received, reply_shapes
from holdfast.trees import (
    Array,
    Number,
    Tree,
    add,
    axpy,
    divided,
    float_type,
    scale,
    select,
    sub,
    zeros,
)


class Aggregate(NamedTuple):
    """What the server has heard so far in a round: sums, to be divided when it closes."""

    received: Tree  # weighted as the algorithm weights deltas
    heard: (
        Tree  # by what clients count in the objective, or as heads; `Received` where it is the same
    )
    weight: jax.Array
    heads: jax.Array


def heard_sums(heard_all: Aggregate) -> Tree:
    """The sums of what was heard, also those that are of what was received."""
    received = tree.leaves(heard_all.received)
    return tree.map(
        lambda part: received[part.leaf] if is_received(part) else part,
        heard_all.heard,
        is_leaf=is_received,
    )


def server_view(inputs: RoundInputs) -> ServerView:
    """What the server's rule sees, with `solve` and `grad` on its own data if it has any."""
    view = ServerView(inputs.x, inputs.server.rule, population_weights=inputs.population_weights)
    work, own_loss, model = inputs.server_work, inputs.server_loss, inputs.model
    if work is None or own_loss is None:
        return view
    loss_key, gradient_key = (
        jax.random.fold_in(inputs.key, purpose)
        for purpose in (Purpose.SERVER_LOSS, Purpose.SERVER_GRADIENT)
    )

    def loss(z: Tree, rows: Array | None, key: jax.Array) -> jax.Array:
        return own_loss(model, z, work.examples, rows, key)

    def step_grad(k: Number, z: Tree) -> Tree:
        rows = None if work.batches is None else jnp.asarray(work.batches)[k]
        return jax.grad(loss)(z, rows, jax.random.fold_in(loss_key, k))

    def run(start: Tree, tilt: Tilt | None = None) -> tuple[Tree, Number]:
        y, path = solve(work.steps, step_grad, start, tilt or Tilt(), work.count)
        return sub(y, start), path

    def grad(z: Tree) -> Tree:
        rows = None if work.gradient_rows is None else jnp.asarray(work.gradient_rows)
        return jax.grad(loss)(z, rows, gradient_key)

    def towards(z: Tree, weight: Number) -> Tree:
        return direction(work.steps, scale(weight, grad(z)), z)

    weight = jnp.asarray(work.weight).astype(float_type(view.x))
    return view._replace(solve=run, grad=grad, weight=weight, direction=towards)


def announced(algorithm: Algorithm, said: Tree) -> Algorithm:
    """The algorithm in a round of which the server said this."""
    if algorithm.aggregate is None:
        return algorithm
    return dataclasses.replace(algorithm, aggregate=algorithm.aggregate.told(said))


def _zeros_of(shapes: Tree) -> Tree:
    # Made by the program, where `zeros` would store them in it.
    return tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)


class Opened(NamedTuple):
    """A round that has begun: what clients will have, the server's state meanwhile, and empty sums."""

    x: Tree
    msg: Tree
    server: ServerState
    aggregate: Aggregate
    said: Tree = ()  # of how replies become one
    change: Tree = ()  # what travels of the broadcast, where that says what changed


def open_round(
    algorithm: Algorithm,
    at: ServerView,
    wire_state: Tree,
    client: ClientState,
    key: jax.Array,
    slots: Slot | None = None,
    mean_state: Tree = (),
) -> Opened:
    """Server: begin a round. `client` is any client's state, for its shapes.

    Given the slots, whose replies are those of `client_round`, equal sums are kept once.
    """
    msg, rule_state = algorithm.rule.send(at)
    wire_key = jax.random.fold_in(key, Purpose.DOWNLINK)
    change = algorithm.wire.change((at.x, msg), wire_state, wire_key)
    (x, msg), wire_state = algorithm.wire.send((at.x, msg), wire_state, wire_key)
    said = algorithm.mean.say(mean_state)
    algorithm = announced(algorithm, said)
    shapes = reply_shapes(algorithm, x, msg, client)
    mine = hyper.of_client(algorithm, 0, float_type(x))
    received = jax.eval_shape(mine.wire.receive, shapes.coded)
    zero = jnp.zeros((), float_type(x))
    heard = shapes.heard if slots is None else heard_apart(algorithm, x, msg, client, slots)
    empty = Aggregate(_zeros_of(received), _zeros_of(heard), zero, zero)
    return Opened(x, msg, ServerState(rule_state, wire_state, mean_state), empty, said, change)


def accept(
    mine: Algorithm, so_far: Aggregate, reply: Reply, state: ClientState, slot: Slot
) -> tuple[Aggregate, ClientState, Judged]:
    """Server: add a reply if it is finite. The client's state changes only then."""
    accepted = jnp.logical_and(slot.steps > 0, reply.finite)
    head = accepted.astype(so_far.heads.dtype)
    weight = head if slot.delta_weight is None else head * slot.delta_weight
    objective, vote = (
        head if w is None else weight if isinstance(w, tuple) else head * w
        for w in (slot.heard_weight, slot.head_weight)
    )
    # The select keeps a non-finite reply out of the sum: 0 x nan would still be nan.
    received, seen = mine.mean.take(mine.wire.receive(reply.coded))
    received = select(accepted, received, zeros(so_far.received))
    if not mine.mean.gathers:
        received = axpy(weight, received, so_far.received)
    heard = select(accepted, reply.heard, zeros(reply.heard))
    each = mine.rule.heard_weights(heard, objective, vote)
    if mine.mean.gathers:
        counted = so_far._replace(weight=so_far.weight + weight, heads=so_far.heads + head)
        held = Held(received, heard, weight, each)
        return counted, select(accepted, reply.state, state), Judged(accepted, seen, held)

    def one_more(so_far: Any, w: Any, u: Any) -> Any:
        return so_far if isinstance(so_far, Received) else (w * u + so_far).astype(so_far.dtype)

    heard = tree.map(one_more, so_far.heard, each, heard, is_leaf=is_received)
    more = Aggregate(received, heard, so_far.weight + weight, so_far.heads + head)
    return more, select(accepted, reply.state, state), Judged(accepted, seen)


def gathered_sums(
    algorithm: Algorithm, heard_all: Aggregate, judged: Judged, slots: Slot
) -> tuple[Aggregate, Judged]:
    """Server: what replies that were kept until all are there come to, as sums; and whose count."""
    received, heard, judged = gathered(algorithm.mean, judged, slots.client)
    heads = jnp.sum(judged.accepted).astype(heard_all.heads.dtype)
    sums = Aggregate(received, scale(heads, heard), jnp.ones_like(heads), heads)
    return sums, judged


def close_round(
    algorithm: Algorithm,
    at: ServerView,
    wire_state: Tree,
    heard_all: Aggregate,
    population: Number,
    mean_state: Tree = (),
    judged: Judged | None = None,
    noise_key: jax.Array | None = None,
) -> tuple[Tree, ServerState]:
    """Server: the two means, then the rule's step.

    `judged` has an entry for every slot, `noise_key` is of `Wire.noise_key`.
    """
    wire = algorithm.wire
    received, heads = wire.average(heard_all.received, heard_all.weight, heard_all.heads, noise_key)
    share = heads / population
    (delta, upload), wire_state = wire.decode(received, wire_state, share)
    heard = divided(heard_sums(heard_all), heads) if wire.hears_each else upload
    if not (wire.hears_each or algorithm.rule.traits.hears_uploads):
        # Only what works out nothing, so that it makes of the mean the mean of what it would have heard.
        heard = algorithm.rule.hear(delta, upload, ClientView(at.x, (), None, None))  # type: ignore[arg-type]
    at = at._replace(share=share, heads=heads)
    if judged is not None:
        mean_state = algorithm.mean.after(mean_state, judged, (delta, upload))
    delta, rule_state = algorithm.rule.step(delta, heard, at)
    return add(at.x, delta), ServerState(rule_state, wire_state, mean_state)
