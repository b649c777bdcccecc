"""Clip updates at a norm that follows a quantile of the clients' own."""

import jax.numpy as jnp

from holdfast.core.hyper import Hyper
from holdfast.core.rule import ClientView, Rule, ServerView, State
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
        >>> hf.Chain((hf.rules.Proximal(0.1), hf.rules.AdaptiveClip(initial=1.0))).rules[1].quantile
        0.5

    Reference: Andrew et al., "Differentially private learning with adaptive clipping", NeurIPS 2021.
    """

    rewrites_delta = True
    initial: Hyper
    quantile: Hyper = 0.5
    rate: Hyper = 0.2

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
