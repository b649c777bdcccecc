"""Every client adds Gaussian noise to its own bounded reply."""

import dataclasses
from types import MappingProxyType
from typing import Any

import jax

from holdfast.core.algorithm import Algorithm
from holdfast.core.hyper import Hyper, Range
from holdfast.core.keys import Purpose
from holdfast.core.struct import static
from holdfast.core.wire import OnSite, Wire
from holdfast.errors import HoldfastError, whole_number
from holdfast.privacy.asked import Accountant, check_asked, check_real, noisy
from holdfast.privacy.bound import bounded
from holdfast.privacy.gaussian import Gaussian
from holdfast.trees import Tree
from holdfast.wires.wrapper import WireWrapper


class LocalGaussian(WireWrapper):
    r"""Local differential privacy: clients bound their replies and add noise, before anything leaves them.

    $$ u_i \leftarrow u_i \min(1, C / \|u_i\|) + \mathcal N(0, (z\,C)^2) $$

    The norm is of delta and of everything uploaded beside it, together. The guarantee is one of each
    client towards everybody, the server too: all its data replaced by any others of as many examples moves
    a reply by at most $2C$, so its account is that of a Gaussian mechanism with noise multiplier $z/2$ for
    every round in which it takes part. Drawing cohorts amplifies nothing, since the server knows who took
    part. What the inner wire makes of a noised reply, compression with and without memory too, tells no
    more; nor does what rules and robust means make of it. A reply that is not finite is sent as noise alone:
    that it was left out would tell. The noise of a mean of n replies is $z C / \sqrt n$, where that of
    `hf.privacy.Gaussian` is $z C / n$. Floating-point noise is not hardened. Travels: what travels on the
    inner wire.

    Args:
        inner: the wire that noised replies take; `hf.Wire()` delivers them unchanged.
        clip: C, a number or a schedule.
        delta: of the guarantee, below one over the number of clients.
        epsilon: the budget of every client. Without a noise multiplier it finds the least that keeps it for
            all replies of a client; the run ends when one client has spent it.
        noise_multiplier: z, the standard deviation of the noise over the clip.
        replies: how many of one client the budget is for; one in each round of `simulate` unless given.
        accountant: `"pld"` or `"rdp"`; PLD, the tighter, unless given.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import jax.numpy as jnp
        >>> wire = hf.privacy.LocalGaussian(clip=1.0, delta=1e-5, noise_multiplier=0.5)
        >>> travels, told, _ = wire.encode((jnp.full(4, 1e9), ()), (), jax.random.key(0))
        >>> [round(u, 2) for u in told[0].tolist()]
        [-0.04, 1.48, 1.03, 0.52]

    Reference: Kasiviswanathan et al., "What can we learn privately?", SIAM J. Comput. 2011; Dwork and Roth,
    "The algorithmic foundations of differential privacy", 2014, appendix A (the Gaussian mechanism).
    """

    lossless = False
    always_finite = True
    ranges = MappingProxyType(
        {"clip": Range(0, open=True), "noise_multiplier": Range(0, open=True)}
    )
    inner: Wire = Wire()
    clip: Hyper = dataclasses.field(kw_only=True)
    delta: float = static(kw_only=True)
    epsilon: float | None = static(default=None, kw_only=True)
    noise_multiplier: Hyper | None = dataclasses.field(default=None, kw_only=True)
    replies: int | None = static(default=None, kw_only=True)
    accountant: Accountant | None = static(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_asked(self)
        if self.replies is not None:
            whole = whole_number("LocalGaussian", "replies", self.replies)
            object.__setattr__(self, "replies", whole)

    @property
    def deviation(self) -> Any:
        """The standard deviation of the noise in every number of a reply."""
        z: Any = self.noise_multiplier
        return z * self.clip

    def encode(self, payload: Tree, mine: Tree, key: jax.Array) -> tuple[Tree, Tree, Tree]:
        own_key = jax.random.fold_in(key, Purpose.LOCAL_NOISE)
        noised = noisy(bounded(payload, self.clip)[0], self.deviation, own_key)
        # The key as it was: a server that unpacks bytes draws a compressor's random places from it again.
        return self.inner.encode(noised, mine, key)

    def beside(self, algorithm: Algorithm) -> Algorithm:
        """The method with this wire around its own.

        Example:
            >>> import holdfast as hf
            >>> private = hf.privacy.LocalGaussian(clip=1.0, delta=1e-5, noise_multiplier=1.1)
            >>> private.beside(hf.algorithms.scaffold()).wire.noise_multiplier
            1.1
        """
        if isinstance(algorithm.wire, OnSite):
            raise HoldfastError(
                f"LocalGaussian: `{algorithm.name}` sends nothing that could be made private; leave it as "
                f"it is."
            )
        return dataclasses.replace(algorithm, wire=dataclasses.replace(self, inner=algorithm.wire))

    def check(self, payload: Tree) -> None:
        self.inner.check(payload)
        check_real("LocalGaussian", payload)
        inside: Wire = self.inner
        while isinstance(inside, WireWrapper):
            if isinstance(inside, Gaussian | LocalGaussian):
                raise HoldfastError(
                    f"LocalGaussian: {type(inside).__name__} is inside it, and a reply has one noise with "
                    f"one account; give one of them.",
                    about=("wire",),
                )
            inside = inside.inner
