"""Means of the replies that lie closest together."""

from types import MappingProxyType

import jax
import jax.numpy as jnp
from jax import lax, tree

from holdfast.core.hyper import Hyper, Range, check_ranges
from holdfast.core.mean import Mean
from holdfast.core.struct import static
from holdfast.errors import whole_number
from holdfast.trees import Tree


class Krum(Mean):
    r"""The mean of the replies that are nearest to their neighbours; the others count as if absent.

    $$ s_i = \sum_{j \in N_i} \|u_i - u_j\|^2, \qquad
       S = \text{the } m \text{ replies with the smallest } s_i $$

    $N_i$ are the n - f - 2 nearest other replies (at least one), f of n are taken for lies, and m is n - f
    (multi-Krum) unless `keep` is given; with `keep=1` it is Krum. Of equal scores the client with the smaller
    number comes first. A reply is delta and all that is uploaded beside it. What a client that is not chosen
    remembers stays as it was, so client states and the server's stay in step exactly. Clients that differ are
    left out also where nobody lies: where clients disagree, every method ends beside the optimum.
    Keeps all replies of a cohort until the last is there: cohort times reply in memory.
    Travels: what the method sends.

    Args:
        share: of the replies of a round are taken for lies: f = floor(share n).
        keep: how many are averaged, instead of n - f.

    Reduces to: the plain mean at `share=0`, but for rounding.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Nine clients whose optimum is 1, and one that sends its update times a million.
        >>> data = hf.Examples(np.ones((10, 1)), np.ones(10))
        >>> clients = hf.data.partition.in_order(data, clients=10)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=1)
        >>> attack = hf.attacks.Boosted(times=-1e6, clients=[3])
        >>> method = hf.Algorithm(aggregate=hf.aggregates.Krum(share=0.1))
        >>> run = hf.simulate(method, model, clients, local, rounds=30, attack=attack)
        >>> print(f"{run.params['weights'].item():.2f}, {run.history['unselected'].tolist()[-1]} left out")
        0.96, 1 left out

    Reference: Blanchard et al., "Machine learning with adversaries", NeurIPS 2017.
    """

    gathers = True
    chooses = True
    ranges = MappingProxyType({"share": Range(0, 0.499)})
    share: Hyper = 0.2
    keep: int | None = static(default=None)

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.keep is not None:
            whole_number("Krum", "keep", self.keep)

    def choose(self, replies: Tree, there: jax.Array, order: jax.Array) -> jax.Array:
        leaves = tree.leaves(replies)
        slots = len(there)
        count = jnp.sum(there)

        def distances(i: jax.Array) -> jax.Array:
            return sum(  # type: ignore[return-value]
                jnp.sum(jnp.square(a - a[i][None]).reshape(slots, -1), axis=1) for a in leaves
            )

        squares = lax.map(distances, order)[:, order]
        others = there[None] & there[:, None] & ~jnp.eye(slots, dtype=bool)
        # What overflows is infinitely far, also from its like.
        squares = jnp.where(others & ~jnp.isnan(squares), squares, jnp.inf)
        # What floor gives of a product that is a whole number but for rounding is that number.
        lies = jnp.floor(self.share * count.astype(squares.dtype) + 1e-4).astype(count.dtype)
        near = jnp.maximum(count - lies - 2, 1)
        ordered = jnp.sort(squares, axis=1)
        # With one reply alone there is no neighbour, and it is the one.
        used = (jnp.arange(slots)[None] < near) & (count > 1)
        score = jnp.sum(jnp.where(used, ordered, jnp.zeros_like(ordered)), axis=1)
        score = jnp.where(there, score, jnp.inf)
        # Those that are there come first in their order, so a stable sort leaves ties as they are; of
        # infinite scores too.
        rank = jnp.argsort(jnp.lexsort((~there, score)))
        kept = count - lies if self.keep is None else jnp.minimum(self.keep, count)
        return there & (rank < kept)
