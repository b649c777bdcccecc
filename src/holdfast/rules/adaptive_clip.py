"""Clip updates at a norm that follows a quantile of the clients' own."""

import dataclasses
from types import MappingProxyType

import jax.numpy as jnp

from holdfast.core.algorithm import Algorithm
from holdfast.core.combinators import Chain
from holdfast.core.hyper import Hyper, PerClient, Range, check_ranges
from holdfast.core.rule import ClientView, Need, Rule, ServerView, State
from holdfast.core.wire import OnSite
from holdfast.errors import HoldfastError
from holdfast.trees import Tree, float_type, norm, scale


class AdaptiveClip(Rule):
    r"""Each update is scaled down to norm C, and C tracks a quantile of the norms.

    $$ d_i \leftarrow d_i \min(1, C / \|d_i\|), \quad
       C \leftarrow C \exp\big(-\eta_C(\overline{b} - q)\big), \quad b_i = [\|d_i\| \le C] $$

    Travels: the bound down and one number per client up, besides what travels without it.

    Args:
        initial: the first bound.
        quantile: q, the share of updates that should not be clipped.
        rate: $\eta_C$, how fast the bound follows.

    Reduces to: no clipping while `initial` is far above all norms.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> # Both updates are longer than the bound, so the model moves by the bound, which grows.
        >>> algorithm = hf.Algorithm(hf.rules.AdaptiveClip(initial=0.1))
        >>> states = hf.rounds(algorithm, model, clients, local)
        >>> [round(next(states).params["weights"].item(), 3) for _ in range(5)]
        [0.1, 0.211, 0.333, 0.468, 0.617]

    Reference: Andrew et al., "Differentially private learning with adaptive clipping", NeurIPS 2021.
    """

    needs = frozenset({Need.EVEN_RATES})
    rewrites_delta = True
    ranges = MappingProxyType(
        {
            "initial": Range(0, open=True),
            "quantile": Range(0, 1, open=True),
            "rate": Range(0, open=True),
        }
    )
    counts_heads = True
    initial: Hyper
    quantile: Hyper = 0.5
    rate: Hyper = 0.2

    def __post_init__(self) -> None:
        for name in self.ranges:
            if isinstance(getattr(self, name), PerClient):
                raise HoldfastError(
                    f"AdaptiveClip: {name} is one value per client, and the bound is the same for all; "
                    f"give a number.",
                    about=(name,),
                )
        check_ranges(self)

    def init(self, params: Tree) -> State:
        return State(server=jnp.asarray(self.initial, float_type(params)))

    def send(self, at: ServerView) -> tuple[Tree, Tree]:
        return at.state, at.state

    def reply(self, delta: Tree, at: ClientView) -> tuple[Tree, Tree]:
        length = norm(delta)
        factor = jnp.where(length > at.msg, at.msg / length, jnp.ones_like(length))
        return scale(factor, delta), (length <= at.msg).astype(length.dtype)

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        return delta, at.state * jnp.exp(-self.rate * (heard - self.quantile))

    def beside(self, algorithm: Algorithm) -> Algorithm:
        """A method whose updates are clipped as they leave the client; the server's own are not.

        Refused where a method needs the update as local steps made it: FedDyn, SCAFFOLD and others
        with client states.

        Example:
            >>> import holdfast as hf
            >>> hf.rules.AdaptiveClip(0.1).beside(hf.algorithms.fedavg_plus(gamma=0.5)).rule.rules
            (AdaptiveClip(initial=0.1, quantile=0.5, rate=0.2), ServerLearning(gamma=0.5, pull=None))
        """
        if isinstance(algorithm.wire, OnSite):
            raise HoldfastError(
                f"AdaptiveClip: `{algorithm.name}` sends no updates that could be clipped; leave it as it is."
            )
        rule = algorithm.rule
        rules = rule.rules if isinstance(rule, Chain) else () if type(rule) is Rule else (rule,)
        for inside in rules:
            traits = inside.traits
            if traits.rewrites_delta and (traits.remembers or traits.prepares):
                raise HoldfastError(
                    f"AdaptiveClip: {type(inside).__name__} sends what a client remembers in place of its "
                    f"update, which a bound would change; leave it as it is."
                )
        # After whatever rewrites the update, and before what must stand last, which does not.
        after = tuple(r for r in rules if Need.LAST in r.traits.needs)
        before = tuple(r for r in rules if Need.LAST not in r.traits.needs)
        return dataclasses.replace(algorithm, rule=Chain((*before, self, *after)))
