"""A bound on how far one reply can move anything."""

import jax
import jax.numpy as jnp

from holdfast.core.hyper import Hyper
from holdfast.errors import HoldfastError
from holdfast.trees import Tree, norm, scale
from holdfast.wires.wrapper import WireWrapper


class Clipped(WireWrapper):
    r"""A whole reply, delta and all that is uploaded beside it, is scaled down to a norm.

    $$ u_i \leftarrow u_i \min(1, C / \|u_i\|) $$

    Args:
        inner: the wire that the clipped reply takes; `hf.Wire()` delivers it unchanged.
        bound: C, a number, one per client or a schedule.

    Reduces to: the inner wire while the bound is above all norms.

    Example:
        >>> import holdfast as hf
        >>> hf.wires.Clipped(hf.wires.Compressed(hf.wires.Natural()), bound=1.0).bound
        1.0
    """

    lossless = False
    bound: Hyper

    def __post_init__(self) -> None:
        if isinstance(self.bound, int | float) and not self.bound > 0:
            raise HoldfastError(
                f"Clipped: bound={self.bound}; give a number above 0.", about=("bound",)
            )

    def encode(self, payload: Tree, mine: Tree, key: jax.Array) -> tuple[Tree, Tree, Tree]:
        length = norm(payload)
        factor = jnp.where(length > self.bound, self.bound / length, jnp.ones_like(length))
        return self.inner.encode(scale(factor, payload), mine, key)
