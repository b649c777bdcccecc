"""A client's half of the round: from the model it receives to its reply."""

import dataclasses
import functools
from collections.abc import Callable
from typing import NoReturn

import jax
import jax.numpy as jnp
from jax import lax, tree

from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.debug import note, position
from holdfast.core.keys import Purpose, client_key
from holdfast.core.local import StepGradient, Steps, solve
from holdfast.core.round_types import (
    ClientRound,
    ClientState,
    HasLoss,
    Reply,
    Shared,
    Slot,
    in_type,
)
from holdfast.core.rule import ClientView, Gradient, Loss, Rule, Tilt, addressed
from holdfast.core.struct import Struct, static
from holdfast.errors import HoldfastError
from holdfast.trees import (
    Array,
    Number,
    Tree,
    add,
    finite,
    float_type,
    mix,
    scale,
    select,
    sub,
    zeros,
)


def take_batch(examples: Tree, rows: Array) -> tuple[Tree, Array]:
    """The examples in these rows, and which of them are not padding."""
    # Padding repeats the batch's first example, so that it can bring in no number of its own.
    safe = jnp.where(rows < 0, rows[0], rows)
    return tree.map(lambda a: a[safe], examples), rows >= 0


def local_objective(
    model: HasLoss, examples: Tree, slot: Slot, key: jax.Array
) -> tuple[Loss, Gradient]:
    """z -> mean loss, and z -> its gradient, over all of the client's data, page by page."""

    def total(k: Number, z: Tree) -> jax.Array:
        batch, keep = take_batch(examples, slot.pages[k])
        losses = model.losses(z, batch, jax.random.fold_in(key, k))
        return jnp.sum(jnp.where(keep, losses, 0))

    def mean(term: Callable[[Number, Tree], Tree], z: Tree, start: Tree) -> Tree:
        sums = lax.fori_loop(0, slot.page_count, lambda k, s: add(s, term(k, z)), start)
        size = jnp.sum(slot.pages >= 0).astype(float_type(z))
        return tree.map(lambda s: (s / size).astype(s.dtype), sums)

    def loss(z: Tree) -> jax.Array:
        return mean(total, z, jnp.zeros((), float_type(z)))

    def grad(z: Tree) -> Tree:
        return mean(jax.grad(total, argnums=1), z, zeros(z))

    return loss, grad


def tilted_gradient(grad: Gradient, tilt: Tilt) -> Gradient:
    """The gradient of the loss as a tilt mixes and weighs it."""
    if tilt.mix is None and tilt.weight is None:
        return grad
    alpha, z = (None, None) if tilt.mix is None else tilt.mix
    factors = [f for f in (alpha, tilt.weight) if f is not None]

    def tilted(y: Tree) -> Tree:
        g = grad(y if alpha is None else mix(alpha, y, z))
        return functools.reduce(lambda g, factor: scale(factor, g), factors, g)

    return tilted


def no_objective(z: Tree) -> NoReturn:
    """In place of what would tell of examples without noise."""
    raise HoldfastError(
        "ExampleLevel: the method asks for a loss or gradient over all of a client's examples, which has no "
        "noise; use one that takes local steps alone, such as fedavg, scaffold(option='II') or feddyn.",
        about=("algorithm",),
    )


def noised_gradient(shared: Shared, slot: Slot, loss_key: jax.Array) -> StepGradient:
    """(k, z) -> what is made of the gradients of the examples of the k-th batch."""
    assert isinstance(shared.steps, Steps)
    per_example, model = shared.steps.per_example, shared.model
    assert per_example is not None
    own = shared.key if shared.noise_key is None else shared.noise_key
    key = client_key(own, slot.client, Purpose.EXAMPLE_NOISE)
    # The first batch is a whole one. Of an empty slot nothing is used.
    whole = jnp.maximum(jnp.sum(slot.batches[0] >= 0), 1)

    def loss(z: Tree, example: Tree, own_key: jax.Array) -> jax.Array:
        return model.losses(z, tree.map(lambda a: a[None], example), own_key)[0]

    def grad(k: Number, z: Tree) -> Tree:
        note(batch=slot.batches[k])
        batch, keep = take_batch(shared.examples, slot.batches[k])
        keys = jax.random.split(jax.random.fold_in(loss_key, k), keep.shape[0])
        return per_example.gradient(loss, z, batch, keep, whole, keys, jax.random.fold_in(key, k))

    return grad


def before_training(
    shared: Shared, mine: Algorithm, state: ClientState, slot: Slot
) -> tuple[ClientView, Tilt, StepGradient]:
    """Client: what its rule sees, its local objective, and (k, z) -> gradient on the k-th batch."""
    loss_key, gradient_key = (
        client_key(shared.key, slot.client, p) for p in (Purpose.LOSS, Purpose.GRADIENT)
    )

    def mean_loss(z: Tree, k: Number) -> jax.Array:
        batch, keep = take_batch(shared.examples, slot.batches[k])
        losses = shared.model.losses(z, batch, jax.random.fold_in(loss_key, k))
        return jnp.sum(jnp.where(keep, losses, 0)) / jnp.sum(keep).astype(losses.dtype)

    def plain(k: Number, z: Tree) -> Tree:
        note(batch=slot.batches[k])
        return jax.grad(mean_loss)(z, k)

    of_all = local_objective(shared.model, shared.examples, slot, gradient_key)
    grad: StepGradient = plain
    assert isinstance(shared.steps, Steps)
    if shared.steps.per_example is not None:
        grad, of_all = noised_gradient(shared, slot, loss_key), (no_objective, no_objective)
    at = ClientView(shared.x, shared.msg, state.rule, of_all[1], slot.weight, loss=of_all[0])
    if slot.population is not None:
        at = at._replace(population=slot.population)
    return at, mine.rule.tilt(at), grad


def after_training(
    mine: Algorithm,
    state: ClientState,
    at: ClientView,
    tilt: Tilt,
    y: Tree,
    path: Number,
    key: jax.Array,
) -> Reply:
    """Client: its reply, from the local model and the step sizes it took."""
    delta = sub(y, at.x if tilt.start is None else tilt.start)
    at = at._replace(path=path, y=y, grad=tilted_gradient(at.grad, tilt))
    return answer(mine, delta, at, state, key)


def client_round(shared: Shared, mine: Algorithm, state: ClientState, slot: Slot) -> Reply:
    """One client's round, from the model received to the reply. What a remote machine runs too.

    `mine` is the algorithm with this client's own numbers (`hyper.of_client`).
    """
    at, tilt, grad = before_training(shared, mine, state, slot)
    # Rounded before the first step in any program: a site's own is another one than a simulation's, which
    # would add and multiply in other places.
    tilt = lax.optimization_barrier(tilt)
    assert isinstance(shared.steps, Steps)
    y, path = solve(shared.steps, grad, shared.x, tilt, slot.steps)
    key = client_key(shared.key, slot.client, Purpose.WIRE)
    return after_training(mine, state, at, tilt, y, path, key)


def of_own_population(run: ClientRound) -> ClientRound:
    """A client's round with the message and the local steps of its population."""

    def one(shared: Shared, mine: Algorithm, state: ClientState, slot: Slot) -> Reply:
        shared = dataclasses.replace(shared, msg=addressed(shared.msg, slot.population))
        if isinstance(shared.steps, Steps):
            return run(shared, mine, state, slot)

        def with_steps(steps: Steps) -> Reply:
            return run(dataclasses.replace(shared, steps=steps), mine, state, slot)

        return shared.steps.choose(slot.population, float_type(shared.x), with_steps)

    return one


def answer(
    mine: Algorithm, delta: Tree, at: ClientView, state: ClientState, key: jax.Array
) -> Reply:
    """Client: what travels, what the server will make of it, and the state that follows from that."""
    rule, wire = mine.rule, mine.wire
    payload = rule.reply(delta, at)
    coded, told, wire_state = wire.encode(payload, state.wire, key)
    # What the server will make of it, so that the state goes by what the server hears.
    delta, upload = mine.mean.take(told)[0]
    heard = rule.hear(delta, upload, at.heard_by_server())
    latest = at.y if tree.leaves(state.latest) else ()
    new = ClientState(rule.settle(delta, heard, at), wire_state, latest)
    looked_at: Tree = (payload, coded, heard, new)
    if wire.always_finite:
        # Its own numbers must not show in whether it is left out. What the wire remembers is of what it sent.
        rule_state, kept = (
            select(finite(own), own, former)
            for own, former in ((new.rule, state.rule), (latest, state.latest))
        )
        new, looked_at = ClientState(rule_state, wire_state, kept), (coded, heard)
    return Reply(coded, heard, new, at.path, finite(looked_at))


class Preparation(Struct):
    """What clients' work before their first round is a function of; `fresh` says whose it is."""

    model: HasLoss = static()
    rule: Rule
    x: Tree
    states: Tree  # the rule's, one per slot
    slots: Slot
    examples: Tree
    fresh: jax.Array
    key: jax.Array


def prepare_cohort(inputs: Preparation) -> Tree:
    """The rule's client states, after what clients do once before their first round."""
    dtype = float_type(inputs.x)
    slots = in_type(inputs.slots, dtype)

    def prepare(state: Tree, slot: Slot) -> Tree:
        mine = hyper.of_client(inputs.rule, slot.client, dtype)
        gradient_key = client_key(inputs.key, slot.client, Purpose.GRADIENT)
        loss, grad = local_objective(inputs.model, inputs.examples, slot, gradient_key)
        return mine.prepare(ClientView(inputs.x, (), state, grad, slot.weight, loss=loss))

    def one(_: None, client: tuple[Tree, Slot, jax.Array]) -> tuple[None, Tree]:
        state, slot, is_fresh = client
        with position(client=slot.client):
            return None, lax.cond(is_fresh, prepare, lambda state, _: state, state, slot)

    return lax.scan(one, None, (inputs.states, slots, inputs.fresh))[1]
