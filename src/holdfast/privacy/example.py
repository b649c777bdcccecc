"""Every client protects its examples: bounded gradients and noise in every local step."""

import dataclasses
from collections.abc import Callable
from types import MappingProxyType
from typing import Any

import jax
import jax.numpy as jnp
from jax import tree

from holdfast.core.hyper import Hyper, Range
from holdfast.core.struct import Struct, static
from holdfast.errors import whole_number
from holdfast.privacy.asked import Accountant, check_asked, noisy
from holdfast.privacy.bound import bounded
from holdfast.trees import Array, Number, Tree, select, zeros


class NoisedGradient(Struct):
    """The numbers of one round: to what an example's gradient is bounded, and the noise in a batch's sum."""

    clip: Number
    deviation: Number

    def gradient(
        self,
        loss: Callable[[Tree, Tree, jax.Array], jax.Array],
        z: Tree,
        batch: Tree,
        keep: Array,
        whole: Number,
        keys: jax.Array,
        key: jax.Array,
    ) -> Tree:
        """The noised sum of bounded gradients at z, over the number of examples in a whole batch."""

        def of_one(example: Tree, kept: Any, own_key: jax.Array) -> Tree:
            mine = bounded(jax.grad(loss)(z, example, own_key), self.clip)[0]
            return select(kept, mine, zeros(mine))

        each = jax.vmap(of_one)(batch, keep, keys)
        total = noisy(tree.map(lambda g: jnp.sum(g, axis=0), each), self.deviation, key)
        return tree.map(lambda g: g / jnp.asarray(whole).astype(g.dtype), total)


class ExampleLevel(Struct):
    r"""Example-level differential privacy at every client (DP-SGD), for sites that protect their people.

    $$ g = \frac1B\Big(\sum_{j \in \text{batch}} g_j \min(1, C / \|g_j\|) +
       \mathcal N\big(0, (z\,C)^2\big)\Big) $$

    is the gradient of a local step, of `hf.Local(..., private=...)`: $g_j$ is that of one example, over all
    parameters together. B is the size of a whole batch, of a short last one too, so that every example
    counts alike; one whose gradient is not finite counts nothing. Whatever a method makes of such steps
    (corrections, control variates, states, replies) tells no more of the examples; a method that asks for a
    loss or gradient over all of them is refused.

    The guarantee is one of each client for one of its examples, towards everybody, the server too: that the
    example counts, or is left blank (it has no gradient, and how many there are is public). A pass over the
    data has each example in one batch, so a pass is one Gaussian mechanism with noise multiplier z, however
    it is shuffled; passes add up, and nothing is amplified. Who has several examples is protected less.
    Floating-point noise is not hardened. Travels: nothing of its own.

    Args:
        clip: C, a number or a schedule.
        delta: of the guarantee, below one over the number of examples of the largest client.
        epsilon: the budget of every client. Without a noise multiplier it finds the least that keeps it for
            all rounds; the run ends when one client has spent it.
        noise_multiplier: z, the standard deviation of the noise over the clip.
        rounds: how many the budget is for, of a client that is in each; those of `simulate` unless given.
        accountant: `"pld"` or `"rdp"`; PLD, the tighter, unless given.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> data = hf.Examples(np.ones((64, 1)), np.ones(64))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> private = hf.privacy.ExampleLevel(clip=0.5, epsilon=8, delta=1e-3)
        >>> run = hf.simulate(
        ...     hf.algorithms.scaffold(),
        ...     hf.models.least_squares(intercept=False),
        ...     clients,
        ...     hf.Local(learning_rate=0.1, epochs=2, batch_size=8, private=private),
        ...     rounds=5,
        ... )
        >>> round(run.privacy.epsilon, 2), run.privacy.unit
        (8.0, 'example')

    Reference: Abadi et al., "Deep learning with differential privacy", CCS 2016.
    """

    ranges = MappingProxyType(
        {"clip": Range(0, open=True), "noise_multiplier": Range(0, open=True)}
    )
    clip: Hyper = dataclasses.field(kw_only=True)
    delta: float = static(kw_only=True)
    epsilon: float | None = static(default=None, kw_only=True)
    noise_multiplier: Hyper | None = dataclasses.field(default=None, kw_only=True)
    rounds: int | None = static(default=None, kw_only=True)
    accountant: Accountant | None = static(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_asked(self)
        if self.rounds is not None:
            object.__setattr__(self, "rounds", whole_number("ExampleLevel", "rounds", self.rounds))

    @property
    def deviation(self) -> Any:
        """The standard deviation of the noise in the sum of a batch's gradients."""
        z: Any = self.noise_multiplier
        return z * self.clip

    def at_round(self) -> NoisedGradient:
        """The numbers of a round, where schedules are resolved."""
        return NoisedGradient(self.clip, self.deviation)
