"""What a method is in a comparison: one that federates, or one of the ends it is compared with."""

from typing import Literal

import jax
import jax.numpy as jnp

from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.rule import ClientView, Tilt, addressed
from holdfast.core.template import pretended_server
from holdfast.core.wire import OnSite
from holdfast.engine.setup import Setup
from holdfast.trees import Tree, float_type, zeros

# Everybody for themselves; all data in one place; one model for all; one for each.
Role = Literal["alone", "pooled", "federated", "personal"]


def role(setup: Setup) -> Role:
    """By what travels and what a client would use in the end, not by a name.

    Where nothing travels a method is a reference line: `pooled` if it regroups the population, `alone`
    if not. Of all others those are `personal` that leave a client another model than the server's.
    """
    algorithm = setup.algorithm
    if isinstance(algorithm.wire, OnSite):
        return "alone" if algorithm.regroup is None else "pooled"
    return "personal" if setup.adapt or deploys_its_own(algorithm, setup.params) else "federated"


def deploys_its_own(algorithm: Algorithm, params: Tree) -> bool:
    """Whether the model a client would use is, by its structure, not the server's."""

    def tilt(x: Tree, algorithm: Algorithm, client: jax.Array) -> Tilt:
        mine = hyper.of_client(algorithm, client, float_type(x))
        state = mine.rule.init(x)
        msg, _ = algorithm.rule.send(pretended_server(x, state.server))
        one = jnp.ones((), float_type(x))
        return mine.rule.tilt(ClientView(x, addressed(msg, None), state.client, zeros, one))

    bent = jax.eval_shape(tilt, params, hyper.at_round(algorithm, 0), jnp.int32(0))
    return bent.start is not None or bent.mix is not None
