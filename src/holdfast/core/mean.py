"""How the replies of a cohort become one: their weighted mean, unless a subclass bounds, chooses or sorts."""

from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from holdfast.core.struct import Struct
from holdfast.trees import Tree


class Seen(NamedTuple):
    """What the server notes of one reply; () where the mean does not ask."""

    size: Any = ()  # its norm as it came, delta and all beside it
    bounded: Any = ()  # whether the server makes less of it than it says
    unselected: Any = ()  # whether it does not count because others were chosen


class Held(NamedTuple):
    """One reply, kept until all are there."""

    received: Tree
    heard: Tree
    weight: Any  # of what was received
    each: Tree  # of every leaf of what is heard


class Judged(NamedTuple):
    """What comes of one slot at the server."""

    accepted: Any  # took part, and its reply counts
    seen: Seen = Seen()
    held: Any = ()  # `Held`, if the mean needs all replies at once


class Mean(Struct):
    """The weighted mean of all finite replies, however large they are: what `aggregate=None` is too in a
    simulation. In a deployment it says that nothing is bounded there either.

    Reduces to: `aggregate=None`, bit for bit.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> plain = hf.Algorithm(aggregate=hf.aggregates.Mean())
        >>> print(f"{hf.simulate(plain, model, clients, local, 20).params['weights'].item():.2f}")
        1.60
    """

    # All replies of a cohort are kept until the last is there, where sums would do otherwise.
    gathers: ClassVar[bool] = False
    # Of these it chooses some, whose plain mean is taken; the others count as if they had not come.
    chooses: ClassVar[bool] = False
    # Its bits would tell on how many devices a cohort was, so it is for one.
    one_device: ClassVar[bool] = False
    # A client can tell what the server makes of its reply, so that its state follows it.
    foreseen: ClassVar[bool] = True

    def init(self, payload: Tree) -> Tree:
        """What the server remembers for it; `payload` has the shapes of a reply."""
        return ()

    def say(self, state: Tree) -> Tree:
        """Server: what clients of a round must know of it, which travels with the broadcast."""
        return ()

    def told(self, said: Tree) -> "Mean":
        """The same in a round of which this was said."""
        return self

    def take(self, reply: Tree) -> tuple[Tree, Seen]:
        """What the server makes of one reply; clients work it out too."""
        return reply, Seen()

    def unseen(self, dtype: Any) -> Seen:
        """What is noted of an empty slot."""
        return Seen()

    def after(self, state: Tree, judged: Judged, mean: Tree) -> Tree:
        """Server: its state after a round with this mean. `judged` has an entry for every slot."""
        return state

    def choose(self, replies: Tree, there: Any, order: Any) -> Any:
        """Which of those that are there count.

        `replies` have a leading axis of slots, and zeros where none is; `order` are the slots by the
        client's number, empty ones last. `there` and what is returned are in that order.
        """
        return there

    def combine(self, replies: Tree, weights: Any, there: Any, order: Any) -> Tree:
        """One of all that are there, by their weights, which are in order too; if it gathers them and does
        not choose."""
        raise NotImplementedError


PLAIN = Mean()


def middle(values: jax.Array, there: jax.Array) -> jax.Array:
    """The median of the values that are there; of an even number the mean of the two in the middle, and
    0 of none."""
    count = jnp.sum(there)
    ordered = jnp.sort(jnp.where(there, values, jnp.inf))
    low, high = ordered[jnp.maximum(count - 1, 0) // 2], ordered[count // 2]
    # Of two that are alike, the same bits; half of each first, so that large ones do not overflow.
    both = jnp.where(low == high, low, low / 2 + high / 2)
    return jnp.where(count > 0, both, jnp.zeros_like(both))
