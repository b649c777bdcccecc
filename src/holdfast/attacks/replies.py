"""Attacks on what is sent."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import tree

from holdfast.attacks.attack import Attack, check_number
from holdfast.errors import explain_constructor
from holdfast.trees import Tree


def _floating(change: Any, payload: Tree) -> Tree:
    """A change of every number that is not whole."""
    changed = [
        change(k, a).astype(a.dtype) if jnp.issubdtype(a.dtype, jnp.floating) else a
        for k, a in enumerate(tree.leaves(payload))
    ]
    return tree.unflatten(tree.structure(payload), changed)


@explain_constructor
@dataclasses.dataclass(frozen=True, kw_only=True)
class Boosted(Attack):
    r"""Replies times a factor: one client takes the place of all.

    $$ u_i \leftarrow \text{times} \cdot u_i $$

    Args:
        clients: who lies, by number or name; or give a share.
        share: of the clients, drawn at random by the run's seed.
        times: the factor; below 0 it flips the sign too.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Ten clients whose optimum is 1, and one of them lies.
        >>> data = hf.Examples(np.ones((10, 1)), np.ones(10))
        >>> clients = hf.data.partition.in_order(data, clients=10)
        >>> model = hf.models.least_squares(intercept=False)
        >>> attack = hf.attacks.Boosted(times=-20, clients=[0])
        >>> local = hf.Local(learning_rate=0.1, steps=1)
        >>> run = hf.simulate(hf.algorithms.fedavg(), model, clients, local, 30, attack=attack)
        >>> bool(run.params["weights"].item() < -10)
        True

    Reference: Bagdasaryan et al., "How to backdoor federated learning", AISTATS 2020.
    """

    times: float = 10.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self, "times")

    def sent(self, payload: Tree, key: jax.Array) -> Tree:
        return _floating(lambda k, a: self.times * a, payload)


@explain_constructor
@dataclasses.dataclass(frozen=True, kw_only=True)
class SignFlip(Attack):
    r"""Replies that point the other way.

    $$ u_i \leftarrow -\text{times} \cdot u_i $$

    Args:
        clients: who lies, by number or name; or give a share.
        share: of the clients, drawn at random by the run's seed.
        times: how long the reply is, relative to the honest one.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import jax.numpy as jnp
        >>> attack = hf.attacks.SignFlip(clients=[0])
        >>> attack.sent((jnp.array([1.0, -2.0]), ()), jax.random.key(0))[0].tolist()
        [-1.0, 2.0]
    """

    times: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self, "times")

    def sent(self, payload: Tree, key: jax.Array) -> Tree:
        return _floating(lambda k, a: -self.times * a, payload)


@explain_constructor
@dataclasses.dataclass(frozen=True, kw_only=True)
class GaussianNoise(Attack):
    r"""Noise in place of a reply.

    $$ u_i \leftarrow \mathcal N(0, \sigma^2) $$

    Args:
        clients: who lies, by number or name; or give a share.
        share: of the clients, drawn at random by the run's seed.
        sigma: the standard deviation of every number.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import jax.numpy as jnp
        >>> attack = hf.attacks.GaussianNoise(sigma=10.0, clients=[0])
        >>> sent, _ = attack.sent((jnp.zeros(10000), ()), jax.random.key(0))
        >>> print(f"{sent.std():.0f}")
        10
    """

    sigma: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self, "sigma")

    def sent(self, payload: Tree, key: jax.Array) -> Tree:
        def noise(k: int, a: jax.Array) -> jax.Array:
            return self.sigma * jax.random.normal(jax.random.fold_in(key, k), a.shape, a.dtype)

        return _floating(noise, payload)


@explain_constructor
@dataclasses.dataclass(frozen=True, kw_only=True)
class NotANumber(Attack):
    """Replies that are NaN everywhere, which are left out of every mean.

    Args:
        clients: who lies, by number or name; or give a share.
        share: of the clients, drawn at random by the run's seed.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import jax.numpy as jnp
        >>> attack = hf.attacks.NotANumber(clients=[0])
        >>> attack.sent((jnp.array([1.0, -2.0]), ()), jax.random.key(0))[0].tolist()
        [nan, nan]
    """

    def sent(self, payload: Tree, key: jax.Array) -> Tree:
        return _floating(lambda k, a: jnp.full_like(a, jnp.nan), payload)


@explain_constructor
@dataclasses.dataclass(frozen=True, kw_only=True)
class Huge(Attack):
    """Replies of one huge number everywhere: finite, but their squares are not.

    Args:
        clients: who lies, by number or name; or give a share.
        share: of the clients, drawn at random by the run's seed.
        value: the number.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import jax.numpy as jnp
        >>> attack = hf.attacks.Huge(value=1e30, clients=[0])
        >>> print(attack.sent((jnp.array([1.0, -2.0]), ()), jax.random.key(0))[0])
        [1.e+30 1.e+30]
    """

    value: float = 1e30

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number(self, "value")

    def sent(self, payload: Tree, key: jax.Array) -> Tree:
        return _floating(lambda k, a: jnp.full_like(a, self.value), payload)
