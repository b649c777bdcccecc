"""Means in which one reply can move the model only so far, by a bound that clients know beforehand."""

from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from holdfast.core.hyper import Hyper, Range, check_ranges
from holdfast.core.mean import Judged, Mean, Seen, middle
from holdfast.core.struct import static
from holdfast.errors import whole_number
from holdfast.trees import Tree, add, float_type, norm, scale, sub, zeros


class Bounding(Mean):
    """One of these means in a round whose bound is known: what clients and server make of a reply."""

    bound: Any
    centre: Tree = None  # None is zero

    def take(self, reply: Tree) -> tuple[Tree, Seen]:
        way = reply if self.centre is None else sub(reply, self.centre)
        # Infinite where squares overflow, and then the factor is 0.
        size = norm(way).astype(self.bound.dtype)
        over = size > self.bound
        factor = jnp.where(over, self.bound / size, jnp.ones_like(size))
        way = scale(factor, way)
        return way if self.centre is None else add(self.centre, way), Seen(size, over)

    def unseen(self, dtype: Any) -> Seen:
        return Seen(jnp.zeros((), self.bound.dtype), jnp.zeros((), bool))


class NormBounded(Mean):
    r"""The mean of replies that are scaled down to a bound, a multiple of earlier rounds' norms.

    $$ u_i \leftarrow u_i \min\!\big(1, \tfrac{B_t}{\|u_i\|}\big), \qquad
       B_t = \text{factor} \cdot \operatorname{median}_{s<t}\, \operatorname{median}_i \|u_i^s\| $$

    A reply is delta and all that is uploaded beside it, with one norm. The server bounds it after it came, so
    a client that skips its own half is bounded too. B is settled before the round and sent with the model: a
    client knows what the server will make of its reply, and what it remembers follows that. So methods with
    client states keep them in step with the server's. Replies that are exactly zero count in no median.
    Travels: what the method sends, and one number down.

    Args:
        factor: of the median. Half of the replies are bounded at 1 where norms do not change.
        first: the bound of the first round. Unless given it is 0: the first round measures norms, and neither
            the model nor any client state moves in it.
        window: over how many rounds the median is taken.

    Reduces to: the plain mean while no reply reaches the bound.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Nine clients whose optimum is 1, and one that sends its update back, times twenty.
        >>> data = hf.Examples(np.ones((10, 1)), np.ones(10))
        >>> clients = hf.data.partition.in_order(data, clients=10)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=1)
        >>> attack = hf.attacks.Boosted(times=-20, clients=[3])
        >>> for aggregate in (None, hf.aggregates.NormBounded()):
        ...     method = hf.Algorithm(aggregate=aggregate)
        ...     run = hf.simulate(method, model, clients, local, rounds=60, attack=attack)
        ...     print(np.isclose(run.params["weights"].item(), 1.0, atol=0.1))
        False
        True

    Reference: Sun et al., "Can you really backdoor federated learning?", 2019.
    """

    ranges = MappingProxyType({"factor": Range(0, open=True), "first": Range(0)})
    factor: Hyper = 2.0
    first: Hyper | None = None
    window: int = static(default=10)

    def __post_init__(self) -> None:
        check_ranges(self)
        whole_number(type(self).__name__, "window", self.window)

    def init(self, payload: Tree) -> Tree:
        # The medians of rounds; 0 where there was none yet.
        return jnp.zeros(self.window, float_type(payload))

    def _bound(self, medians: jax.Array) -> jax.Array:
        known = middle(medians, medians > 0)
        first = jnp.asarray(0.0 if self.first is None else self.first, medians.dtype)
        return jnp.where(known > 0, (self.factor * known).astype(medians.dtype), first)

    def say(self, state: Tree) -> Tree:
        return self._bound(state)

    def told(self, said: Tree) -> Mean:
        return Bounding(said)

    def after(self, state: Tree, judged: Judged, mean: Tree) -> Tree:
        return _one_more(state, judged)


def _one_more(medians: jax.Array, judged: Judged) -> jax.Array:
    """The medians of rounds with one more, if anybody replied with more than zeros."""
    sizes = judged.seen.size
    found = middle(sizes, judged.accepted & (sizes > 0)).astype(medians.dtype)
    return jnp.where((found > 0) & jnp.isfinite(found), jnp.append(medians[1:], found), medians)


class Centred(NamedTuple):
    """What the server remembers, and in part says, for `CenteredClipping`."""

    medians: jax.Array
    centre: Tree


class CenteredClipping(NormBounded):
    r"""`NormBounded` around the mean of the round before: what is bounded is how far a reply is from that.

    $$ u_i \leftarrow v_t + (u_i - v_t) \min\!\big(1, \tfrac{B_t}{\|u_i - v_t\|}\big), \qquad
       v_{t+1} = \overline{u}^{\,t} $$

    One step of the paper's iteration. Where replies of a round resemble those of the round before, they are
    nearer to that than to zero, so that a bound leaves an attacker less. v is settled before the round and
    travels with the model, so that clients know what the server will make of their replies.
    Travels: what the method sends; down one number and as much again as a reply.

    Args:
        factor: of the median distance from v.
        first: the bound of the first round, in which v is 0; 0 unless given.
        window: over how many rounds the median is taken.

    Reduces to: the plain mean while no reply is further from v than the bound, but for rounding.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Nine clients whose optimum is 1, and one that sends its update times a million.
        >>> data = hf.Examples(np.ones((10, 1)), np.ones(10))
        >>> clients = hf.data.partition.in_order(data, clients=10)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=1)
        >>> attack = hf.attacks.Boosted(times=-1e6, clients=[3])
        >>> method = hf.Algorithm(aggregate=hf.aggregates.CenteredClipping())
        >>> run = hf.simulate(method, model, clients, local, rounds=30, attack=attack)
        >>> print(np.isclose(run.params["weights"].item(), 1.0, atol=0.1))
        True

    Reference: Karimireddy, He and Jaggi, "Learning from history for Byzantine robust optimization",
    ICML 2021.
    """

    def init(self, payload: Tree) -> Tree:
        return Centred(super().init(payload), zeros(payload))

    def say(self, state: Tree) -> Tree:
        return Centred(self._bound(state.medians), state.centre)

    def told(self, said: Tree) -> Mean:
        return Bounding(*said)

    def after(self, state: Tree, judged: Judged, mean: Tree) -> Tree:
        return Centred(_one_more(state.medians, judged), mean)
