"""Attacks of clients that know the honest replies of their round, and all send one thing."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax import lax, tree

from holdfast.attacks.attack import Attack, check_number
from holdfast.errors import explain_constructor
from holdfast.trees import Tree


def _mean(of: Callable[[Any], Any], values: Any, there: jax.Array) -> Any:
    """Of what a function makes of each that is there, all alike; 0 of none. Who is there comes first."""
    count = jnp.sum(there)
    total = lax.fori_loop(
        0, count, lambda k, s: s + of(values[k]), jnp.zeros(values.shape[1:], values.dtype)
    )
    return total / jnp.maximum(count, 1).astype(values.dtype)


@explain_constructor
@dataclasses.dataclass(frozen=True, kw_only=True)
class ALittleIsEnough(Attack):
    r"""All liars send the mean of the honest replies, less z of their standard deviations (ALIE).

    $$ u_i \leftarrow \mu - z \sigma, \qquad
       z = \max\!\Big(0,\ \Phi^{-1}\!\Big(\tfrac{n - f - s}{n - f}\Big)\Big), \quad
       s = \lfloor \tfrac n2 + 1 \rfloor - f $$

    Coordinate by coordinate, with $\mu$ and $\sigma$ over the honest replies of the round, all alike and as
    the server decodes them. n replied in the round, f of them lie, so that s honest ones make a majority with
    the liars; z is how far out a reply may be with s honest ones further out. Of few liars that is 0: they
    send the mean. Liars know all honest replies, so that the cohort works twice a round. For one device.

    Args:
        clients: who lies, by number or name; or give a share.
        share: of the clients, drawn at random by the run's seed.
        z: how many standard deviations, instead of what follows from n and f.

    Example:
        >>> import holdfast as hf
        >>> import jax.numpy as jnp
        >>> attack = hf.attacks.ALittleIsEnough(clients=[2], z=1.5)
        >>> honest = jnp.array([[1.0, 4.0], [3.0, 4.0]])
        >>> attack.agreed(honest, jnp.array([True, True]), 1).tolist()
        [0.5, 4.0]

    Reference: Baruch, Baruch and Goldberg, "A little is enough: circumventing defenses for distributed
    learning", NeurIPS 2019.
    """

    conspires: ClassVar[bool] = True
    z: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.z is not None:
            check_number(self, "z")

    def agreed(self, honest: Tree, there: jax.Array, liars: jax.Array) -> Tree:
        count = jnp.sum(there)
        z = within_reach(count + liars, liars) if self.z is None else self.z

        def one(values: Any) -> Any:
            mean = _mean(lambda u: u, values, there)
            deviation = jnp.sqrt(_mean(lambda u: jnp.square(u - mean), values, there))
            return mean - jnp.asarray(z, mean.dtype) * deviation

        return tree.map(one, honest)


def within_reach(replies: Any, liars: Any) -> Any:
    """ALIE's z; 0 where liars are too few to go further, and where one is honest or nobody."""
    honest = replies - liars
    # Liars that are a majority by themselves need one to be further out than they are.
    needed = jnp.maximum(replies // 2 + 1 - liars, 1)
    share = (honest - needed) / jnp.maximum(honest, 1)
    return jnp.maximum(jax.scipy.special.ndtri(jnp.clip(share, 0.5, 1.0)), 0.0)


@explain_constructor
@dataclasses.dataclass(frozen=True, kw_only=True)
class InnerProductManipulation(Attack):
    r"""All liars send the mean of the honest replies the other way (IPM).

    $$ u_i \leftarrow -\epsilon\, \mu $$

    With $\mu$ the mean of the honest replies of the round, all alike and as the server decodes them. A small
    epsilon is shorter than any honest reply; a large one turns the mean round. Liars know all honest
    replies, so that the cohort works twice a round. For one device.

    Args:
        clients: who lies, by number or name; or give a share.
        share: of the clients, drawn at random by the run's seed.
        epsilon: how long the lie is, relative to the mean.

    Example:
        >>> import holdfast as hf
        >>> import jax.numpy as jnp
        >>> attack = hf.attacks.InnerProductManipulation(clients=[2], epsilon=0.5)
        >>> honest = jnp.array([[1.0, 4.0], [3.0, 4.0]])
        >>> attack.agreed(honest, jnp.array([True, True]), 1).tolist()
        [-1.0, -2.0]

    Reference: Xie, Koyejo and Gupta, "Fall of empires: breaking Byzantine-tolerant SGD by inner product
    manipulation", UAI 2020.
    """

    conspires: ClassVar[bool] = True
    epsilon: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self, "epsilon", least=0)

    def agreed(self, honest: Tree, there: jax.Array, liars: jax.Array) -> Tree:
        return tree.map(lambda values: -self.epsilon * _mean(lambda u: u, values, there), honest)
