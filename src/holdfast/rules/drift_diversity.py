"""Measure how far the clients of a round disagree, from the updates that arrive anyway."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax, tree

from holdfast.core.rule import ClientView, Rule, ServerView, State
from holdfast.core.struct import static
from holdfast.trees import Number, Tree, float_type


class Drift(NamedTuple):
    """Of the last round's accepted clients: two numbers for every leaf of the model, and how many."""

    squares: jax.Array  # sum of |m_i|^2
    together: jax.Array  # |sum of m_i|^2
    clients: jax.Array


class DriftDiversity(Rule):
    r"""Keep at the server what the drift diversity of the last round is made of, leaf by leaf.

    $$ \xi = \frac{\sum_i \|m_i\|^2}{\|\sum_i m_i\|^2} $$

    Here $m_i$ is the update of client $i$ as the server receives it: after the wire, and before the
    server's step. Sums are over the accepted clients of the round, each counting 1 whatever the
    weighting. Changes nothing else. Travels: nothing more than without it. `hf.diagnose.drift` puts it
    beside a method and writes the quotients into the history.

    Args:
        populations: whether clients are of several populations that `hf.join` put together. Then heads count
            by weight there, and the plain sum of updates is one more that the server keeps.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # From 0 the first client moves towards 1, the second towards -1 and three times as far.
        >>> data = hf.Examples(np.array([[1.0], [1.0]]), np.array([1.0, -3.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model, local = hf.models.least_squares(intercept=False), hf.Local(0.1, steps=1)
        >>> algorithm = hf.Algorithm(hf.rules.DriftDiversity())
        >>> run = hf.simulate(algorithm, model, clients, local, rounds=1)
        >>> found = run.memory(hf.rules.DriftDiversity).server
        >>> # (1 + 9) / (1 - 3)^2
        >>> print(f"{found.squares[0] / found.together[0]:.2f}")
        2.50

    Reference: Li et al., "On the effectiveness of partial variance reduction in federated learning with
    heterogeneous data", CVPR 2023, definition 1.
    """

    neutral = True
    counts_heads = True
    populations: bool = static(default=False)

    def init(self, params: Tree) -> State:
        # Two arrays, which a round gives back in each other's place.
        none, also = (jnp.zeros(len(tree.leaves(params)), _type(params)) for _ in range(2))
        return State(server=Drift(none, also, jnp.zeros((), _type(params))))

    def hear(self, delta: Tree, upload: Tree, at: ClientView) -> Tree:
        # One that is too large stays a number: a reply must not be refused because it is measured.
        most = jnp.finfo(_type(delta)).max
        return jnp.minimum(_squares(delta), most), delta

    def heard_weights(self, heard: Tree, objective: Number, head: Number) -> Tree:
        squares, delta = heard
        # What is not accepted is 0 already. Where heads count 1, it is the sum of what was received.
        each = jnp.ones_like(head) if self.populations else head
        one = jnp.ones((), squares.dtype)
        return one, tree.map(lambda _: each, delta)

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        squares, mean = heard
        heads = jnp.asarray(at.heads).astype(squares.dtype)
        return delta, Drift(heads * squares, heads**2 * _squares(mean), heads)


def _type(params: Tree) -> jnp.dtype:
    """At least 32 bits: these are sums of as many numbers as the model has."""
    own = float_type(params)
    return own if own.itemsize >= 4 else jnp.dtype(jnp.float32)


def _squares(u: Tree) -> jax.Array:
    """The squared norm of every leaf: column by column first, since XLA adds up a column's numbers several at
    a time, and a whole array's one after another. The barrier keeps it from making one sum of the two."""

    def square(p: jax.Array) -> jax.Array:
        rows = p.astype(_type(u)).reshape(-1, p.shape[-1] if p.ndim and p.size else 1)
        return jnp.sum(lax.optimization_barrier(jnp.sum(rows * rows, axis=0)))

    return jnp.stack([square(p) for p in tree.leaves(u)])
