"""The model one client would use, and that model after local steps of its own."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.client import client_round, of_own_population
from holdfast.core.keys import Purpose, host_key
from holdfast.core.local import Steps, StepsPerPopulation
from holdfast.core.round_types import ClientState, Shared, Slot
from holdfast.core.rule import ClientView, addressed
from holdfast.core.template import pretended_server
from holdfast.engine.batches import BatchPlanner
from holdfast.engine.feeds import Feed
from holdfast.models.foreign import uncompiled
from holdfast.models.model import Model
from holdfast.trees import Tree, add, float_type, zeros


def deployed_model(
    algorithm: Algorithm, x: Tree, server_state: Tree, state: Tree, client: Any
) -> Tree:
    """The model one client would use: the server's, unless the rule makes it personal."""
    return deployed_with(algorithm, x, deployed_message(algorithm, x, server_state), state, client)


def deployed_message(algorithm: Algorithm, x: Tree, server_state: Tree) -> Tree:
    """What a client would be told beside the model, to make its own of it."""
    msg, _ = algorithm.rule.send(pretended_server(x, server_state))
    return addressed(msg, None)


def deployed_with(algorithm: Algorithm, x: Tree, msg: Tree, state: Tree, client: Any) -> Tree:
    """The model a client makes of the server's, with that message."""
    dtype = float_type(x)
    mine = hyper.of_client(algorithm, client, dtype)
    return mine.rule.tilt(ClientView(x, msg, state, zeros, jnp.ones((), dtype))).deployed(x)


compiled_deployed_model = jax.jit(deployed_model)


def deploys_server_model(algorithm: Algorithm, x: Tree, server_state: Tree, state: Tree) -> bool:
    """Whether every client uses the server's model as it is: by the program, whatever its numbers."""
    program = jax.make_jaxpr(deployed_model)(algorithm, x, server_state, state, 0).jaxpr
    first = len(tree.leaves(algorithm))
    given = program.invars[first : first + len(tree.leaves(x))]
    return all(a is b for a, b in zip(program.outvars, given, strict=True))


def _local_steps(
    model: Model,
    steps: Steps | StepsPerPopulation,
    params: Tree,
    examples: Tree,
    slot: Slot,
    key: jax.Array,
) -> Tree:
    plain = Algorithm()
    shared = Shared(model, plain, steps, params, (), examples, key)
    run = of_own_population(client_round)
    delta, _ = run(shared, plain, ClientState((), ()), slot).coded
    return add(params, delta)


_adapted = jax.jit(_local_steps, static_argnames="model")


def adapted(
    model: Model,
    steps: Steps | StepsPerPopulation,
    feed: Feed,
    batches: BatchPlanner,
    seed: int,
    params: Tree,
    client: int,
) -> Tree:
    """A model after a client's own local steps on its training data, outside any round."""
    slots, examples = feed(batches, 0, np.array([client]), 1)
    slot = tree.map(lambda a: a[0], slots)
    key = host_key(seed, Purpose.ADAPT)
    with uncompiled(model):
        return _adapted(model, steps, params, examples, slot, key)
