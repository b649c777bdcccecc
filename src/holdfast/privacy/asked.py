"""What is asked of noise that keeps a run private: the same of the server's and of clients'."""

from typing import Any, Literal

import jax
import jax.numpy as jnp
from jax import tree

from holdfast.core.hyper import PerClient, check_ranges
from holdfast.errors import HoldfastError
from holdfast.trees import Number, Tree, paths

Accountant = Literal["pld", "rdp"]


def check_asked(own: Any) -> None:
    """Refuse numbers that are none of a guarantee, in a wire with `ranges`, and neither noise nor budget."""
    who = type(own).__name__
    for name in own.ranges:
        value = getattr(own, name)
        if isinstance(value, PerClient) or (callable(value) and name != "clip"):
            raise HoldfastError(
                f"{who}: {name} is the same for all clients"
                f"{' and may change over rounds' if name == 'clip' else ' and in all rounds'}; give a "
                f"number.",
                about=(name,),
            )
    check_ranges(own)
    for name, most in (("delta", 1.0), ("epsilon", float("inf"))):
        value = getattr(own, name)
        fits = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < most
        if not fits and not (name == "epsilon" and value is None):
            raise HoldfastError(
                f"{who}: {name}={value!r}; give a number above 0"
                f"{' and below one over the number of clients' if name == 'delta' else ''}.",
                about=(name,),
            )
    if own.epsilon is None and own.noise_multiplier is None:
        raise HoldfastError(
            f"{who}: neither epsilon nor noise_multiplier is given; give epsilon=8 to find the noise, "
            f"or noise_multiplier=1.0 to be told epsilon.",
            about=("epsilon",),
        )
    if own.accountant not in (None, "pld", "rdp"):
        raise HoldfastError(
            f"{who}: accountant={own.accountant!r}; give 'pld' or 'rdp'.", about=("accountant",)
        )


def check_real(who: str, payload: Tree) -> None:
    """Refuse replies to which no noise can be added."""
    for name, leaf in zip(paths(payload), tree.leaves(payload), strict=True):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise HoldfastError(
                f"{who}: `{name}` of a reply is {leaf.dtype}, and noise is of real numbers; send it "
                f"as one.",
                about=("wire",),
            )


def noisy(total: Tree, deviation: Number, key: jax.Array) -> Tree:
    """Independent normal noise on every number."""
    leaves: list[Any] = tree.leaves(total)
    keys = jax.random.split(key, len(leaves))
    made = [
        p + jnp.asarray(deviation, p.dtype) * jax.random.normal(k, p.shape, p.dtype)
        for p, k in zip(leaves, keys, strict=True)
    ]
    return tree.unflatten(tree.structure(total), made)
