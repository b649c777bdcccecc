"""The round. There is no other: every method, engine and machine runs these functions.

A client runs `client_round`; a server runs `open_round`, `accept` for every reply, and `close_round`.
`federated_round` strings them together for an engine that has all clients at hand.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
from jax import lax, tree

from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.debug import note, position
from holdfast.core.gathered import gathered, revert
from holdfast.core.keys import Purpose, client_key
from holdfast.core.local import StepGradient, Steps, StepsPerPopulation, direction, solve
from holdfast.core.mean import Held, Judged, Seen
from holdfast.core.rule import (
    ClientView,
    Gradient,
    Loss,
    Rule,
    ServerView,
    State,
    Tilt,
    addressed,
)
from holdfast.core.struct import Struct, static
from holdfast.errors import HoldfastError
from holdfast.trees import (
    Array,
    Number,
    Tree,
    add,
    axpy,
    describe_shapes,
    divided,
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


class ServerLoss(Protocol):
    """The server's own objective: a number for parameters and rows of its examples."""

    def __call__(
        self, model: HasLoss, params: Tree, examples: Tree, rows: Array | None, key: jax.Array
    ) -> jax.Array: ...


class ServerState(NamedTuple):
    """What the server remembers between rounds."""

    rule: Tree
    wire: Tree
    # Of how replies become one.
    aggregate: Tree = ()


class ClientState(NamedTuple):
    """What one client remembers between rounds."""

    rule: Tree
    wire: Tree
    # The model it trained last, if an evaluator asks for it.
    latest: Tree = ()


class Slot(NamedTuple):
    """One client's part of a round. Examples are rows of the flat data; -1 is padding."""

    client: Array  # its number in the population
    weight: Array  # n_i / mean(n)
    steps: Array  # K_i local steps; 0 means that the slot is empty
    batches: Array  # (largest K, batch) rows
    pages: Array  # (pages, batch) all of the client's rows, for gradients over all its data
    page_count: Array
    # Of its delta, of what is heard of it and of its head, in their means; None is 1 and costs no
    # product. The last two are 1 on average over all clients. () is the weight of its delta.
    delta_weight: Array | None = None
    heard_weight: Array | tuple[()] | None = None
    head_weight: Array | None = None
    # For federated select, the table rows this client uses.
    table_rows: tuple[Array, ...] | None = None
    # The number of its population, if there are several.
    population: Array | None = None


class ServerWork(NamedTuple):
    """The server's own work in a round, if it has data or a loss of its own."""

    steps: Steps
    count: Number  # local steps
    examples: Tree
    batches: Array | None  # (count, batch) rows; -1 is padding
    gradient_rows: Array | None  # rows of the one batch that `at.grad` takes
    weight: Number  # n_0 / mean(n)


class Shared(Struct):
    """What is the same for every client of a round."""

    model: HasLoss = static()
    algorithm: Algorithm
    steps: Steps | StepsPerPopulation
    x: Tree
    msg: Tree
    examples: Tree
    key: jax.Array


class Reply(NamedTuple):
    """What comes of one client's round."""

    coded: Tree  # what travels
    heard: Tree  # what the server makes of it
    state: ClientState  # the client's new state, valid once the server has accepted the reply
    path: Number  # sum of the step sizes taken, which the server knows
    finite: jax.Array  # every number was, before the wire too, whose codes may hide it


ClientRound = Callable[[Shared, Algorithm, ClientState, Slot], Reply]


class RoundInputs(Struct):
    """Everything a round is a function of. `client_states` and `slots` have a leading axis.

    A new value of a number compiles nothing; another model, loss or way for clients does.
    """

    model: HasLoss = static()
    algorithm: Algorithm
    steps: Steps | StepsPerPopulation
    x: Tree
    server: ServerState
    client_states: ClientState
    slots: Slot
    examples: Tree
    population: Number  # clients that can take part
    key: jax.Array
    server_work: ServerWork | None = None
    server_loss: ServerLoss | None = static(default=None)
    # What a client runs: `client_round`, unless on a part of the model (federated select).
    client_round: ClientRound | None = static(default=None)
    # Of the populations in the objective, if there are several.
    population_weights: Array | None = None
    # Of what the server's end of the wire adds, if it adds anything: `Wire.noise_key`.
    noise_key: jax.Array | None = None


class RoundResult(NamedTuple):
    """What comes of a round."""

    x: Tree
    server: ServerState
    client_states: ClientState  # one per slot
    accepted: jax.Array  # one bool per slot: took part, and its reply counts
    seen: Seen = Seen()  # what was noted of each reply, one per slot


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Received:
    """Instead of a sum of what is heard: it is that of this leaf of what is received."""

    leaf: int


def is_received(part: Any) -> bool:
    """Whether a part of what is heard is no sum of its own."""
    return isinstance(part, Received)


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


def in_type(slots: Slot, dtype: Any) -> Slot:
    """Weights in the type of the model."""
    names = ("weight", "delta_weight", "heard_weight", "head_weight")
    given = {name: getattr(slots, name) for name in names}
    return slots._replace(**tree.map(lambda w: jnp.asarray(w).astype(dtype), given))


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

    def grad(k: Number, z: Tree) -> Tree:
        note(batch=slot.batches[k])
        return jax.grad(mean_loss)(z, k)

    of_all = local_objective(shared.model, shared.examples, slot, gradient_key)
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
    return _answer(mine, delta, at, state, key)


def client_round(shared: Shared, mine: Algorithm, state: ClientState, slot: Slot) -> Reply:
    """One client's round, from the model received to the reply. What a remote machine runs too.

    `mine` is the algorithm with this client's own numbers (`hyper.of_client`).
    """
    at, tilt, grad = before_training(shared, mine, state, slot)
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


def _answer(
    mine: Algorithm, delta: Tree, at: ClientView, state: ClientState, key: jax.Array
) -> Reply:
    rule, wire = mine.rule, mine.wire
    payload = rule.reply(delta, at)
    coded, told, wire_state = wire.encode(payload, state.wire, key)
    # What the server will make of it, so that the state goes by what the server hears.
    delta, upload = mine.mean.take(told)[0]
    heard = rule.hear(delta, upload, at.heard_by_server())
    latest = at.y if tree.leaves(state.latest) else ()
    new = ClientState(rule.settle(delta, heard, at), wire_state, latest)
    return Reply(coded, heard, new, at.path, finite((payload, coded, heard, new)))


def _pretended_reply(
    algorithm: Algorithm, x: Tree, msg: Tree, state: ClientState, trained: tuple[Any, ...]
) -> Reply:
    dtype = float_type(x)
    mine = hyper.of_client(algorithm, 0, dtype)
    delta, y, weight, path = trained
    at = ClientView(x, addressed(msg, None), state.rule, zeros, weight, path, y)
    return _answer(mine, delta, at, state, jax.random.key(0))


def _pretended_training(x: Tree) -> tuple[Any, ...]:
    """Shapes of a client's delta, model, weight and path: arguments, so that they are told apart."""
    number = jax.ShapeDtypeStruct((), float_type(x))
    return x, x, number, number


def reply_shapes(algorithm: Algorithm, x: Tree, msg: Tree, state: ClientState) -> Reply:
    """Shapes and types of a reply, without data or local steps."""
    pretend = functools.partial(_pretended_reply, algorithm)
    return jax.eval_shape(pretend, x, msg, state, _pretended_training(x))


def _heard_apart(algorithm: Algorithm, x: Tree, msg: Tree, state: ClientState, slots: Slot) -> Tree:
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


def announced(algorithm: Algorithm, said: Tree) -> Algorithm:
    """The algorithm in a round of which the server said this."""
    if algorithm.aggregate is None:
        return algorithm
    return dataclasses.replace(algorithm, aggregate=algorithm.aggregate.told(said))


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
    (x, msg), wire_state = algorithm.wire.send((at.x, msg), wire_state, wire_key)
    said = algorithm.mean.say(mean_state)
    algorithm = announced(algorithm, said)
    shapes = reply_shapes(algorithm, x, msg, client)
    mine = hyper.of_client(algorithm, 0, float_type(x))
    received = jax.eval_shape(mine.wire.receive, shapes.coded)
    zero = jnp.zeros((), float_type(x))
    heard = shapes.heard if slots is None else _heard_apart(algorithm, x, msg, client, slots)
    empty = Aggregate(_zeros_of(received), _zeros_of(heard), zero, zero)
    return Opened(x, msg, ServerState(rule_state, wire_state, mean_state), empty, said)


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


class Exchange(NamedTuple):
    """What happens in one slot of a cohort, in two halves: the client's, and the server's."""

    reply: ClientRound
    accept: Callable[
        [Algorithm, Aggregate, Reply, ClientState, Slot], tuple[Aggregate, ClientState, Judged]
    ] = accept

    def __call__(
        self, so_far: Aggregate, state: ClientState, slot: Slot, shared: Shared
    ) -> tuple[Aggregate, tuple[ClientState, Judged]]:
        """Both; nothing at all if the slot is empty."""

        def absent(
            so_far: Aggregate, state: ClientState, slot: Slot
        ) -> tuple[Aggregate, tuple[ClientState, Judged]]:
            return so_far, (state, self.unseen(shared, so_far))

        present = functools.partial(self.present, shared)
        return lax.cond(slot.steps > 0, present, absent, so_far, state, slot)

    def present(
        self, shared: Shared, so_far: Aggregate, state: ClientState, slot: Slot
    ) -> tuple[Aggregate, tuple[ClientState, Judged]]:
        """Both, of a slot that is known to have a client."""
        mine = hyper.of_client(shared.algorithm, slot.client, so_far.heads.dtype)
        with position(client=slot.client):
            reply = self.reply(shared, mine, state, slot)
        so_far, state, judged = self.accept(mine, so_far, reply, state, slot)
        return so_far, (state, judged)

    def unseen(self, shared: Shared, so_far: Aggregate) -> Judged:
        """What comes of an empty slot at the server."""
        seen = shared.algorithm.mean.unseen(so_far.heads.dtype)
        held: Any = ()
        if shared.algorithm.mean.gathers:
            nobody = jnp.zeros_like(so_far.heads)
            each = tree.map(lambda _: nobody, so_far.heard)
            held = Held(zeros(so_far.received), zeros(so_far.heard), nobody, each)
        return Judged(jnp.zeros((), bool), seen, held)


VisitCohort = Callable[
    [Exchange, Aggregate, tuple[ClientState, Slot], Shared],
    tuple[Aggregate, tuple[ClientState, Judged]],
]


def one_by_one(
    exchange: Exchange, empty: Aggregate, cohort: tuple[ClientState, Slot], shared: Shared
) -> tuple[Aggregate, tuple[ClientState, Judged]]:
    """Visit one client of the cohort after another."""
    return lax.scan(lambda so_far, one: exchange(so_far, *one, shared), empty, cohort)


def opened_round(inputs: RoundInputs, client: ClientState) -> Opened:
    """The server's half before the clients'. `client` is any client's state, for its shapes."""
    slots = in_type(inputs.slots, float_type(inputs.x))
    # With select, what is heard of rows that were not sent is not what was received of them.
    kept = inputs.algorithm.mean.gathers
    alike = slots if inputs.client_round is None and not kept else None
    at = server_view(inputs)
    server = inputs.server
    return open_round(
        inputs.algorithm, at, server.wire, client, inputs.key, alike, server.aggregate
    )


def finished_round(
    inputs: RoundInputs, opened: Opened, reply: ClientRound, visit: VisitCohort
) -> RoundResult:
    """The rest of a round that has begun, with every client's reply as it is asked for or has come."""
    slots = in_type(inputs.slots, float_type(inputs.x))
    shared = Shared(
        inputs.model,
        announced(inputs.algorithm, opened.said),
        inputs.steps,
        opened.x,
        opened.msg,
        inputs.examples,
        inputs.key,
    )
    exchange = Exchange(of_own_population(reply))
    cohort = (inputs.client_states, slots)
    heard_all, (states, judged) = visit(exchange, opened.aggregate, cohort, shared)
    if inputs.algorithm.mean.gathers:
        heard_all, judged = gathered_sums(inputs.algorithm, heard_all, judged, slots)
        if inputs.algorithm.mean.chooses:
            states = revert(judged.accepted, states, inputs.client_states)
    at, (_, wire_state, mean_state) = server_view(inputs), opened.server
    x, server = close_round(
        inputs.algorithm,
        at._replace(state=opened.server.rule),
        wire_state,
        heard_all,
        inputs.population,
        mean_state,
        judged,
        inputs.noise_key,
    )
    return RoundResult(x, server, states, judged.accepted, judged.seen)


def federated_round(inputs: RoundInputs, visit: VisitCohort = one_by_one) -> RoundResult:
    """A whole round: send, every client of the cohort, the two means, the server's step.

    `visit` goes through the slots: one by one, several at a time, or spread over devices.
    """
    client = tree.map(lambda a: a[0], inputs.client_states)
    opened = opened_round(inputs, client)
    return finished_round(inputs, opened, inputs.client_round or client_round, visit)
