"""What is made of replies that are all there: in an order that depends on nothing but who replied."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, tree

from holdfast.core.mean import Held, Judged, Mean, Seen
from holdfast.trees import Tree, zeros

# After every client's number.
LAST = 2**31 - 1


def gathered(mean: Mean, judged: Judged, clients: Any) -> tuple[Tree, Tree, Judged]:
    """The mean of what was received; that of what was heard, over heads; and whose reply counts.

    Slots are taken by the client's number, those that do not count last. How many empty ones there are,
    and on which devices, then changes no bit. Replies stay where they are, since there may be no room for
    them twice.
    """
    order = jnp.argsort(jnp.where(judged.accepted, jnp.asarray(clients), LAST))
    held: Held = judged.held
    weight, each = tree.map(lambda a: a[order], (held.weight, held.each))
    there = judged.accepted[order]
    chosen = mean.choose(held.received, there, order)
    counts = jnp.zeros_like(judged.accepted).at[order].set(chosen)
    if mean.chooses:
        # Far-off replies of those that are not chosen may be of any size.
        received = _mean(held.received, weight, chosen, order)
        heads = jnp.maximum(jnp.sum(chosen), 1)
        heard = tree.map(
            lambda u, w: (_sum(u, w, chosen, order) / heads.astype(w.dtype)).astype(u.dtype),
            held.heard,
            each,
        )
        seen = Seen(unselected=judged.accepted & ~counts)
        return received, heard, Judged(counts, seen)
    received = mean.combine(held.received, weight, there, order)
    if not tree.leaves(held.heard):
        return received, held.heard, Judged(judged.accepted)
    # Weighted alike: rules that weigh parts of what they hear in other ways are refused.
    weight = tree.leaves(each)[0]
    heads = jnp.maximum(jnp.sum(there), 1).astype(weight.dtype)
    share = jnp.sum(jnp.where(there, weight, 0)) / heads
    middle = mean.combine(held.heard, weight, there, order)
    heard = tree.map(lambda u: (share * u).astype(u.dtype), middle)
    return received, heard, Judged(judged.accepted)


def _sum(u: Any, weight: Any, there: Any, order: Any) -> Any:
    """Over slots, one after another. Weights and who is there are in order, `u` is as it lies."""

    def add(so_far: Any, one: Any) -> Any:
        slot, w, counts = one
        value = lax.dynamic_index_in_dim(u, slot, keepdims=False)
        return so_far + jnp.where(counts, w.astype(so_far.dtype) * value, zeros(so_far)), None

    return lax.scan(add, jnp.zeros(u.shape[1:], u.dtype), (order, weight, there))[0]


def _mean(u: Tree, weight: Any, there: Any, order: Any) -> Tree:
    total = _sum(jnp.ones_like(weight), weight, there, order)
    safe = jnp.maximum(total, jnp.finfo(total.dtype).tiny)
    return tree.map(
        lambda a: (_sum(a, weight, there, order) / safe.astype(a.dtype)).astype(a.dtype), u
    )


def revert(counts: jax.Array, new: Tree, old: Tree) -> Tree:
    """New states of the slots that count, the old ones of all others."""

    def one(p: Any, q: Any) -> Any:
        return jnp.where(counts.reshape(-1, *(1,) * (p.ndim - 1)), p, q)

    return tree.map(one, new, old)
