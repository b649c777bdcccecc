"""Means coordinate by coordinate, and the geometric median: of all replies of a cohort at once."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import jax.numpy as jnp
from jax import lax, tree

from holdfast.core.hyper import Hyper, Range, check_ranges
from holdfast.core.mean import Mean
from holdfast.core.struct import static
from holdfast.errors import whole_number
from holdfast.trees import Tree

# Coordinates that are looked at at a time: copies of replies are made of so many, not of whole models.
_BLOCK = 1 << 14


def by_blocks(function: Callable[[Any], Any], replies: Any, order: Any) -> Any:
    """A function from (slots in order, some coordinates) to those coordinates, for all of an array of
    replies, of which only a block is put in order at a time."""
    flat = replies.reshape(len(replies), -1)
    size = flat.shape[1]
    if size <= _BLOCK:
        return function(flat[order]).reshape(replies.shape[1:])

    def one(k: Any, out: Any) -> Any:
        # The last block overlaps the one before, where blocks do not divide the array.
        start = jnp.minimum(k * _BLOCK, size - _BLOCK)
        found = function(lax.dynamic_slice_in_dim(flat, start, _BLOCK, 1)[order])
        return lax.dynamic_update_slice_in_dim(out, found, start, 0)

    blocks = -(-size // _BLOCK)
    found = lax.fori_loop(0, blocks, one, jnp.zeros(size, flat.dtype))
    return found.reshape(replies.shape[1:])


def _in_order(block: Any, weights: Any, there: Any) -> tuple[Any, Any]:
    """Every coordinate's values in ascending order, each with its weight; those not there last, with 0."""
    values = jnp.where(there[:, None], block, jnp.inf)
    heavy = jnp.where(there, weights, 0).astype(block.dtype)
    heavy = jnp.broadcast_to(heavy[:, None], values.shape)
    ordered, weighed = lax.sort((values, heavy), dimension=0, num_keys=1, is_stable=True)
    return ordered, weighed


def weighted_median(block: Any, weights: Any, there: Any) -> Any:
    """Of every coordinate; where half of the weight is on either side of a gap, the middle of the gap."""
    values, heavy = _in_order(block, weights, there)
    half = jnp.sum(heavy, axis=0) / 2

    def step(carry: tuple[Any, Any, Any], one: tuple[Any, Any]) -> tuple[Any, None]:
        before, low, high = carry
        value, w = one
        after = before + w
        counts = w > 0
        low = jnp.where(counts & (before < half) & (after >= half), value, low)
        high = jnp.where(counts & (before <= half) & (after > half), value, high)
        return (after, low, high), None

    nothing = jnp.zeros_like(half)
    (_, low, high), _ = lax.scan(step, (nothing, nothing, nothing), (values, heavy))
    return jnp.where(low == high, low, low / 2 + high / 2)


class CoordinateMedian(Mean):
    r"""In every coordinate the median of the replies, each with its weight.

    $$ \bar u_k = \operatorname{median}_i\, u_{ik} $$

    Where half of the weight is on either side of a gap (an even number of equal weights) it is the middle of
    the gap. What rules hear is treated likewise. For methods without client states: a median of changes is no
    change of a mean, so that the server's state would leave the clients'.
    Keeps all replies of a cohort until the last is there; sorts 16384 coordinates at a time.
    Travels: what the method sends.

    Reduces to: the plain mean of one or two equally weighted replies.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Nine clients whose optimum is 1, and one that sends its update times a million.
        >>> data = hf.Examples(np.ones((10, 1)), np.ones(10))
        >>> clients = hf.data.partition.in_order(data, clients=10)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=1)
        >>> attack = hf.attacks.Boosted(times=-1e6, clients=[3])
        >>> method = hf.Algorithm(aggregate=hf.aggregates.CoordinateMedian())
        >>> run = hf.simulate(method, model, clients, local, rounds=30, attack=attack)
        >>> print(f"{run.params['weights'].item():.2f}")
        0.96

    Reference: Yin et al., "Byzantine-robust distributed learning", ICML 2018.
    """

    gathers = True
    foreseen = False

    def combine(self, replies: Tree, weights: Any, there: Any, order: Any) -> Tree:
        def one(a: Any) -> Any:
            return by_blocks(lambda block: weighted_median(block, weights, there), a, order)

        return tree.map(one, replies)


class TrimmedMean(Mean):
    r"""In every coordinate the mean of the replies without the smallest and the largest.

    $$ \bar u_k = \frac{\sum_{i \in T_k} w_i u_{ik}}{\sum_{i \in T_k} w_i} $$

    Of n replies floor(share n) are left out at each end, whatever their weights. For methods without client
    states, as `CoordinateMedian`.
    Keeps all replies of a cohort until the last is there; sorts 16384 coordinates at a time.
    Travels: what the method sends.

    Args:
        share: of the replies that are left out at each end, below a half.

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
        >>> method = hf.Algorithm(aggregate=hf.aggregates.TrimmedMean(share=0.1))
        >>> run = hf.simulate(method, model, clients, local, rounds=30, attack=attack)
        >>> print(f"{run.params['weights'].item():.2f}")
        0.96

    Reference: Yin et al., "Byzantine-robust distributed learning", ICML 2018.
    """

    gathers = True
    foreseen = False
    ranges = MappingProxyType({"share": Range(0, 0.499)})
    share: Hyper = 0.2

    def __post_init__(self) -> None:
        check_ranges(self)

    def combine(self, replies: Tree, weights: Any, there: Any, order: Any) -> Tree:
        count = jnp.sum(there)
        cut = jnp.floor(self.share * count.astype(weights.dtype) + 1e-4).astype(count.dtype)
        place = jnp.arange(len(there))
        kept = ((place >= cut) & (place < count - cut))[:, None]

        def mean(block: Any) -> Any:
            values, heavy = _in_order(block, weights, there)
            heavy = jnp.where(kept, heavy, jnp.zeros_like(heavy))
            total = jnp.sum(heavy, axis=0)
            sums = jnp.sum(heavy * jnp.where(kept, values, jnp.zeros_like(values)), axis=0)
            return sums / jnp.maximum(total, jnp.finfo(total.dtype).tiny)

        return tree.map(lambda a: by_blocks(mean, a, order), replies)


class GeometricMedian(Mean):
    r"""The point with the smallest weighted sum of distances to the replies (RFA).

    $$ \bar u = \arg\min_z \sum_i w_i \|z - u_i\|, \qquad
       z \leftarrow \frac{\sum_i \beta_i u_i}{\sum_i \beta_i}, \quad
       \beta_i = \frac{w_i}{\max(\nu, \|z - u_i\|)} $$

    The smoothed Weiszfeld iteration, from the coordinates' medians (the paper's begins at the mean, which one
    huge reply can put anywhere). For methods without client states, as `CoordinateMedian`.
    Keeps all replies of a cohort until the last is there. For one device: several would round otherwise.
    Travels: what the method sends.

    Args:
        steps: of the iteration.
        smoothing: $\nu$, below which distances count alike.

    Reduces to: the plain mean where all replies are within `smoothing` of each other, but for rounding.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Nine clients whose optimum is 1, and one that sends its update times a million.
        >>> data = hf.Examples(np.ones((10, 1)), np.ones(10))
        >>> clients = hf.data.partition.in_order(data, clients=10)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=1)
        >>> attack = hf.attacks.Boosted(times=-1e6, clients=[3])
        >>> method = hf.Algorithm(aggregate=hf.aggregates.GeometricMedian())
        >>> run = hf.simulate(method, model, clients, local, rounds=30, attack=attack)
        >>> print(f"{run.params['weights'].item():.2f}")
        0.96

    Reference: Pillutla, Kakade and Harchaoui, "Robust aggregation for federated learning", IEEE TSP 2022.
    """

    gathers = True
    foreseen = False
    # Measured: sums of products over slots round by what the compiler fuses them with.
    one_device = True
    ranges = MappingProxyType({"smoothing": Range(0, open=True)})
    steps: int = static(default=8)
    smoothing: Hyper = 1e-6

    def __post_init__(self) -> None:
        check_ranges(self)
        whole_number("GeometricMedian", "steps", self.steps)

    def combine(self, replies: Tree, weights: Any, there: Any, order: Any) -> Tree:
        start = CoordinateMedian().combine(replies, weights, there, order)
        slots = len(there)
        heavy = jnp.where(there, weights, 0)

        def step(_: Any, z: Tree) -> Tree:
            pairs = zip(tree.leaves(replies), tree.leaves(z), strict=True)
            squares: Any = sum(
                jnp.sum(jnp.square(a - b[None]).reshape(slots, -1), axis=1) for a, b in pairs
            )
            # Of a reply that is infinitely far nothing counts.
            distance = jnp.sqrt(squares[order]).astype(heavy.dtype)
            beta = jnp.where(heavy > 0, heavy / jnp.maximum(distance, self.smoothing), 0)
            total = jnp.maximum(_ordered_sum(beta), jnp.finfo(beta.dtype).tiny)

            share = beta / total

            def mean(block: Any) -> Any:
                part = share.astype(block.dtype)[:, None]
                return _ordered_sum(jnp.where(part > 0, part * block, jnp.zeros_like(block)))

            return tree.map(lambda a: by_blocks(mean, a, order), replies)

        return lax.fori_loop(0, self.steps, step, start)


def _ordered_sum(a: Any) -> Any:
    """Over slots, one after another, so that empty ones at the end change no bit."""
    return lax.scan(lambda s, one: (s + one, None), jnp.zeros(a.shape[1:], a.dtype), a)[0]
