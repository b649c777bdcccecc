"""The round. There is no other: every method, engine and machine runs these functions."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax, tree

from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.debug import note, place
from holdfast.core.keys import Purpose, client_key
from holdfast.core.local import Steps, solve
from holdfast.core.rule import ClientView, Rule, ServerView, State, Tilt
from holdfast.errors import HoldfastError
from holdfast.trees import (
    Tree,
    add,
    axpy,
    describe_shapes,
    finite,
    float_type,
    mix,
    scale,
    select,
    signature,
    sub,
    zeros,
)


class HasLoss(Protocol):
    """A model, as far as a round knows it."""

    def losses(self, params: Tree, batch: Tree, key: jax.Array) -> jax.Array:
        """One value per example."""


class Sides(NamedTuple):
    """What the rule and what the wire remember, on one side."""

    rule: Tree
    wire: Tree


class Work(NamedTuple):
    """One client's part of a round. Examples are rows of the flat data; -1 is padding."""

    client: Any  # its number in the population
    weight: Any  # n_i / mean(n)
    count: Any  # K_i local steps; 0 means absent
    batches: Any  # (largest K, batch) rows
    pages: Any  # (pages, batch) all of the client's rows, for gradients over all its data
    page_count: Any
    selected: Any = None  # for federated select, the table rows this client uses
    vote: Any = None  # for several populations, a factor to its delta's weight
    importance: Any = None  # and to what is heard of it, 1 on average


class Central(NamedTuple):
    """The server's own work in a round, if it has data or a loss of its own."""

    steps: Steps
    count: Any  # local steps
    examples: Tree
    batches: Any  # (count, batch) rows; -1 is padding
    gradient_rows: Any  # rows of the one batch that `at.grad` takes
    weight: Any  # n_0 / mean(n)


CentralLoss = Callable[[HasLoss, Tree, Tree, Any, jax.Array], jax.Array]


def server_view(
    central_loss: CentralLoss | None,
    model: HasLoss,
    central: Central | None,
    key: jax.Array,
    view: ServerView,
) -> ServerView:
    """The view, with `solve` and `grad` on the server's own data if it has any."""
    if central is None or central_loss is None:
        return view
    loss_key, gradient_key = (
        jax.random.fold_in(key, purpose)
        for purpose in (Purpose.SERVER_LOSS, Purpose.SERVER_GRADIENT)
    )

    def loss(z: Tree, rows: Any, key: jax.Array) -> jax.Array:
        return central_loss(model, z, central.examples, rows, key)

    def step_grad(k: Any, z: Tree) -> Tree:
        rows = None if central.batches is None else jnp.asarray(central.batches)[k]
        return jax.grad(loss)(z, rows, jax.random.fold_in(loss_key, k))

    def run(start: Tree, tilt: Tilt | None = None) -> tuple[Tree, Any]:
        y, path = solve(central.steps, step_grad, start, tilt or Tilt(), central.count)
        return sub(y, start), path

    def grad(z: Tree) -> Tree:
        rows = None if central.gradient_rows is None else jnp.asarray(central.gradient_rows)
        return jax.grad(loss)(z, rows, gradient_key)

    weight = jnp.asarray(central.weight).astype(float_type(view.x))
    return view._replace(solve=run, grad=grad, weight=weight)


class Reply(NamedTuple):
    """What comes of one client's round."""

    coded: Tree  # what travels
    heard: Tree  # what the server makes of it
    row: Sides  # the client's new row, valid once the server has accepted the reply
    path: Any  # sum of the step sizes taken, which the server knows
    sound: Any  # all numbers were finite before the wire, whose codes may hide it


class Outcome(NamedTuple):
    """What comes of a round."""

    x: Tree
    server: Sides
    rows: Sides  # one per slot of the cohort
    accepted: jax.Array  # one bool per slot: took part and replied with finite numbers


def take_batch(examples: Tree, rows: jax.Array) -> tuple[Tree, jax.Array]:
    """The examples in these rows, and which of them are not padding."""
    # Padding repeats the batch's first example, so that it can bring in no number of its own.
    safe = jnp.where(rows < 0, rows[0], rows)
    return tree.map(lambda a: a[safe], examples), rows >= 0


def local_objective(model: HasLoss, examples: Tree, work: Work, key: jax.Array) -> tuple[Any, Any]:
    """z -> mean loss, and z -> its gradient, over all of the client's data, page by page."""

    def total(k: Any, z: Tree) -> jax.Array:
        batch, keep = take_batch(examples, work.pages[k])
        losses = model.losses(z, batch, jax.random.fold_in(key, k))
        return jnp.sum(jnp.where(keep, losses, 0))

    def mean(term: Any, z: Tree, start: Tree) -> Tree:
        sums = lax.fori_loop(0, work.page_count, lambda k, s: add(s, term(k, z)), start)
        size = jnp.sum(work.pages >= 0).astype(float_type(z))
        return tree.map(lambda s: (s / size).astype(s.dtype), sums)

    def loss(z: Tree) -> jax.Array:
        return mean(total, z, jnp.zeros((), float_type(z)))

    def grad(z: Tree) -> Tree:
        return mean(jax.grad(total, argnums=1), z, zeros(z))

    return loss, grad


def tilted_gradient(grad: Any, tilt: Tilt) -> Any:
    """The gradient of the loss as a tilt mixes and weighs it."""
    if tilt.mix is None and tilt.weight is None:
        return grad
    alpha, z = (None, None) if tilt.mix is None else tilt.mix
    factors = [f for f in (alpha, tilt.weight) if f is not None]

    def tilted(y: Tree) -> Tree:
        g = grad(y if alpha is None else mix(alpha, y, z))
        return functools.reduce(lambda g, factor: scale(factor, g), factors, g)

    return tilted


def prepare_cohort(
    rule: Rule,
    model: HasLoss,
    x: Tree,
    rows: Tree,
    examples: Tree,
    work: Work,
    fresh: jax.Array,
    key: jax.Array,
) -> Tree:
    """The rule's rows, after what clients do once before their first round; `fresh` says which
    slots have not yet."""
    dtype = float_type(x)
    work = work._replace(weight=jnp.asarray(work.weight).astype(dtype))

    def prepare(row: Tree, slot: Work) -> Tree:
        me = hyper.of_client(rule, slot.client, dtype)
        gradient_key = client_key(key, slot.client, Purpose.GRADIENT)
        loss, grad = local_objective(model, examples, slot, gradient_key)
        return me.prepare(ClientView(x, (), row, grad, slot.weight, loss=loss))

    def one(_: None, client: tuple[Tree, Work, jax.Array]) -> tuple[None, Tree]:
        row, slot, is_fresh = client
        with place(client=slot.client):
            return None, lax.cond(is_fresh, prepare, lambda row, _: row, row, slot)

    return lax.scan(one, None, (rows, work, fresh))[1]


def client_round(
    algorithm: Algorithm,
    model: HasLoss,
    steps: Steps,
    x: Tree,
    msg: Tree,
    row: Sides,
    examples: Tree,
    work: Work,
    key: jax.Array,
) -> Reply:
    """One client's round, from the model received to the reply. What a remote machine runs too."""
    algorithm = hyper.of_client(algorithm, work.client, float_type(x))
    rule = algorithm.rule
    loss_key, gradient_key, wire_key = (
        client_key(key, work.client, p) for p in (Purpose.LOSS, Purpose.GRADIENT, Purpose.WIRE)
    )

    def mean_loss(z: Tree, k: Any) -> jax.Array:
        batch, keep = take_batch(examples, work.batches[k])
        losses = model.losses(z, batch, jax.random.fold_in(loss_key, k))
        return jnp.sum(jnp.where(keep, losses, 0)) / jnp.sum(keep).astype(losses.dtype)

    def grad(k: Any, z: Tree) -> Tree:
        note(batch=work.batches[k])
        return jax.grad(mean_loss)(z, k)

    mean_of_all, gradient_of_all = local_objective(model, examples, work, gradient_key)
    at = ClientView(x, msg, row.rule, gradient_of_all, work.weight, loss=mean_of_all)
    tilt = rule.tilt(at)
    y, path = solve(steps, grad, x, tilt, work.count)
    delta = sub(y, x if tilt.start is None else tilt.start)
    at = at._replace(path=path, y=y, grad=tilted_gradient(gradient_of_all, tilt))
    return _answer(algorithm, delta, at, row.wire, wire_key)


def _answer(algorithm: Algorithm, delta: Tree, at: ClientView, wire_row: Tree, key: Any) -> Reply:
    rule, wire = algorithm.rule, algorithm.wire
    payload = rule.reply(delta, at)
    coded, (delta, upload), wire_row = wire.encode(payload, wire_row, key)
    heard = rule.hear(delta, upload, at.heard_by_server())
    row = Sides(rule.settle(delta, heard, at), wire_row)
    return Reply(coded, heard, row, at.path, finite(payload))


def reply_shapes(algorithm: Algorithm, x: Tree, msg: Tree, row: Sides) -> Reply:
    """Shapes and types of a reply, without data or local steps."""

    def pretend(x: Tree, msg: Tree, row: Sides) -> Reply:
        dtype = float_type(x)
        me = hyper.of_client(algorithm, 0, dtype)
        one = jnp.ones((), dtype)
        at = ClientView(x, msg, row.rule, zeros, one, one, x)
        return _answer(me, zeros(x), at, row.wire, jax.random.key(0))

    return jax.eval_shape(pretend, x, msg, row)


class Outline(NamedTuple):
    """What a run starts from, and what travels in a round of it."""

    server: Sides
    row: Sides  # every client's first row
    broadcast: Tree  # shapes of what one client receives
    payload: Tree  # shapes of what one client returns, before the wire


def pretended_server(x: Tree, state: Tree) -> ServerView:
    """A server whose data is of no interest, to find out what its rule would send."""
    one = jnp.ones((), float_type(x))
    return ServerView(x, state, one, one, lambda start, tilt=None: (zeros(start), one), zeros, one)


def outline(algorithm: Algorithm, x: Tree) -> Outline:
    """The initial state of both sides for an algorithm and a model."""
    me = hyper.of_client(algorithm, 0, float_type(x))
    state = me.rule.init(x)

    def payload(x: Tree, state: State) -> Any:
        one = jnp.ones((), float_type(x))
        msg, _ = algorithm.rule.send(pretended_server(x, state.server))
        at = ClientView(x, msg, state.client, zeros, one, one, x)
        return msg, me.rule.reply(zeros(x), at)

    msg, travelling = jax.eval_shape(payload, x, state)
    # Everybody knows x at the start, and of a message that nothing has been said yet.
    wire = me.wire.init(zeros(travelling), (x, zeros(msg)))
    row = Sides(state.client, wire.client)
    reply = reply_shapes(algorithm, x, msg, row)
    if signature(reply.row) != signature(row):
        raise HoldfastError(
            f"{algorithm.name}: `settle` returns a row of {describe_shapes(reply.row)} where `init` "
            f"and the wire began with {describe_shapes(row)}; return the same shapes and types."
        )
    return Outline(Sides(state.server, wire.server), row, (x, msg), travelling)


def _zeros_of(shapes: Tree) -> Tree:
    # Made by the program, where `zeros` would store them in it.
    return tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)


class Sums(NamedTuple):
    """What the server has heard so far in a round."""

    received: Tree  # weighted as the algorithm weights deltas
    heard: Tree  # one head, one vote
    weight: jax.Array
    heads: jax.Array


def open_round(
    algorithm: Algorithm, at: ServerView, wire_state: Tree, row: Sides, key: jax.Array
) -> tuple[Tree, Tree, Sides, Sums]:
    """Server: the model and message clients will have, the state meanwhile, sums to add replies to."""
    msg, rule_state = algorithm.rule.send(at)
    wire_key = jax.random.fold_in(key, Purpose.DOWNLINK)
    (x, msg), wire_state = algorithm.wire.send((at.x, msg), wire_state, wire_key)
    shapes = reply_shapes(algorithm, x, msg, row)
    me = hyper.of_client(algorithm, 0, float_type(x))
    received = jax.eval_shape(me.wire.receive, shapes.coded)
    zero = jnp.zeros((), float_type(x))
    sums = Sums(_zeros_of(received), _zeros_of(shapes.heard), zero, zero)
    return x, msg, Sides(rule_state, wire_state), sums


def accept(
    algorithm: Algorithm, sums: Sums, reply: Reply, row: Sides, work: Work
) -> tuple[Sums, Sides, jax.Array]:
    """Server: add a reply if it is finite. The client's row changes only then."""
    wire = hyper.of_client(algorithm.wire, work.client, sums.heads.dtype)
    accepted = (work.count > 0) & reply.sound & finite(reply)
    head = accepted.astype(sums.heads.dtype)
    w = head * client_weight(algorithm, work, head.dtype)
    ear = head
    if work.vote is not None:
        w, ear = w * work.vote.astype(w.dtype), head * work.importance.astype(head.dtype)
    # The select keeps a non-finite reply out of the sum: 0 x nan would still be nan.
    received = wire.receive(reply.coded)
    received = axpy(w, select(accepted, received, zeros(sums.received)), sums.received)
    heard = axpy(ear, select(accepted, reply.heard, zeros(sums.heard)), sums.heard)
    sums = Sums(received, heard, sums.weight + w, sums.heads + head)
    return sums, select(accepted, reply.row, row), accepted


def client_weight(algorithm: Algorithm, work: Work, dtype: Any) -> jax.Array:
    """How much one client's delta counts in the mean."""
    if algorithm.weighting == "examples":
        return work.weight
    if algorithm.weighting == "processed":
        return jnp.sum(work.batches >= 0).astype(dtype)
    return jnp.ones((), dtype)


def close_round(
    algorithm: Algorithm, at: ServerView, wire_state: Tree, sums: Sums, population: Any
) -> tuple[Tree, Sides]:
    """Server: the two means, then the rule's step."""

    def mean(total: Tree, weight: jax.Array) -> Tree:
        # An empty cohort is refused by the engine; the maximum only keeps its zeros finite.
        safe = jnp.maximum(weight, jnp.finfo(weight.dtype).tiny)
        return tree.map(lambda a: (a / safe).astype(a.dtype), total)

    share = sums.heads / population
    received = mean(sums.received, sums.weight)
    (delta, upload), wire_state = algorithm.wire.decode(received, wire_state, share)
    heard = mean(sums.heard, sums.heads) if algorithm.wire.hears_each else upload
    at = at._replace(share=share, heads=sums.heads)
    delta, rule_state = algorithm.rule.step(delta, heard, at)
    return add(at.x, delta), Sides(rule_state, wire_state)


class Told(NamedTuple):
    """What is the same for every client of a round."""

    algorithm: Algorithm
    steps: Steps
    x: Tree
    msg: Tree
    examples: Tree
    key: jax.Array


class Visit(NamedTuple):
    """What happens to one slot of a cohort, in two halves: the client's, and the server's."""

    reply: Callable[[Sides, Work, Told], Reply]
    accept: Callable[[Sums, Reply, Sides, Work, Told], tuple[Sums, tuple[Sides, jax.Array]]]

    def __call__(
        self, sums: Sums, slot: tuple[Sides, Work], told: Told
    ) -> tuple[Sums, tuple[Sides, jax.Array]]:
        """Both; nothing at all if the slot is empty."""

        def present(sums: Sums, row: Sides, work: Work) -> tuple[Sums, tuple[Sides, jax.Array]]:
            return self.accept(sums, self.reply(row, work, told), row, work, told)

        def absent(sums: Sums, row: Sides, work: Work) -> tuple[Sums, tuple[Sides, jax.Array]]:
            return sums, (row, jnp.zeros((), bool))

        row, work = slot
        return lax.cond(work.count > 0, present, absent, sums, row, work)


def in_turn(visit: Visit, sums: Sums, slots: Any, told: Told) -> tuple[Sums, Any]:
    """One client of the cohort after another."""
    return lax.scan(lambda sums, slot: visit(sums, slot, told), sums, slots)


def federated_round(
    algorithm: Algorithm,
    model: HasLoss,
    steps: Steps,
    x: Tree,
    server: Sides,
    rows: Sides,
    examples: Tree,
    work: Work,
    population: Any,
    key: jax.Array,
    central: Central | None = None,
    central_loss: CentralLoss | None = None,
    around: Callable[..., Reply] | None = None,
    cohort: Callable[..., tuple[Sums, Any]] = in_turn,
) -> Outcome:
    """A whole round: send, every client of the cohort, the two means, the server's step.

    `rows` and `work` have a leading axis, one slot per client; slots with no steps are empty.
    `around` may run a client's round on a part of the model (federated select). `cohort` visits
    the slots: in turn, several at a time, or spread over devices.
    """
    work = work._replace(weight=jnp.asarray(work.weight).astype(float_type(x)))
    at = server_view(central_loss, model, central, key, ServerView(x, server.rule))
    row = tree.map(lambda a: a[0], rows)
    seen, msg, server, sums = open_round(algorithm, at, server.wire, row, key)

    def reply(row: Sides, slot: Work, told: Told) -> Reply:
        def answer(model: HasLoss, x: Tree, msg: Tree, row: Sides) -> Reply:
            return client_round(
                told.algorithm, model, told.steps, x, msg, row, told.examples, slot, told.key
            )

        with place(client=slot.client):
            if around is None:
                return answer(model, told.x, told.msg, row)
            return around(answer, told.algorithm, slot, model, told.x, told.msg, row)

    def accepted_reply(
        sums: Sums, reply: Reply, row: Sides, slot: Work, told: Told
    ) -> tuple[Sums, tuple[Sides, jax.Array]]:
        sums, row, accepted = accept(told.algorithm, sums, reply, row, slot)
        return sums, (row, accepted)

    told = Told(algorithm, steps, seen, msg, examples, key)
    sums, (rows, accepted) = cohort(Visit(reply, accepted_reply), sums, (rows, work), told)
    at = at._replace(state=server.rule)
    x, server = close_round(algorithm, at, server.wire, sums, population)
    return Outcome(x, server, rows, accepted)
