"""The server adds Gaussian noise to a sum of bounded replies."""

import dataclasses
import hashlib
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import tree

from holdfast.core.algorithm import Algorithm
from holdfast.core.combinators import Uploaded
from holdfast.core.hyper import Hyper, Range, check_ranges
from holdfast.core.keys import Purpose, host_key
from holdfast.core.rule import State
from holdfast.core.struct import Struct, static
from holdfast.core.wire import OnSite, Wire
from holdfast.errors import HoldfastError
from holdfast.privacy.asked import Accountant, check_asked, check_real, noisy
from holdfast.privacy.banded import Banded, Fresh, Remembering
from holdfast.privacy.bound import bounded
from holdfast.trees import Number, Tree, add, float_type
from holdfast.wires.wrapper import WireWrapper


class Quantile(Struct):
    r"""A clip that follows a quantile of the norms of replies, found by a noisy count.

    $$ C \leftarrow C \exp\big(-\eta_C(\tilde b - q)\big), \quad
       \tilde b = \tfrac12 + \tfrac1n\Big(\sum_i \big([\|u_i\| \le C] - \tfrac12\big) +
       \mathcal N(0, \sigma_b^2)\Big) $$

    The count has its share of the budget: for a whole noise multiplier of $z$ the sum of replies has
    noise of $(z^{-2} - (2\sigma_b)^{-2})^{-1/2}$ times the clip.

    Args:
        target: q, the share of replies that should not be clipped.
        rate: $\eta_C$, how fast the clip follows.
        noise: $\sigma_b$, of the count; a twentieth of the clients of a round unless given, as the paper.

    Example:
        >>> import holdfast as hf
        >>> hf.privacy.Quantile(target=0.5)
        Quantile(target=0.5, rate=0.2, noise=None)

    Reference: Andrew et al., "Differentially private learning with adaptive clipping", NeurIPS 2021.
    """

    ranges = MappingProxyType(
        {
            "target": Range(0, 1, open=True),
            "rate": Range(0, open=True),
            "noise": Range(0, open=True),
        }
    )
    target: Hyper = 0.5
    rate: Hyper = 0.2
    noise: Hyper | None = None

    def __post_init__(self) -> None:
        check_ranges(self)


class Counted(NamedTuple):
    """A bounded reply, and whether it was short enough, less a half."""

    payload: Tree
    short: Tree


class Following(NamedTuple):
    """What the server remembers where the clip follows a quantile: the clip, and of the inner wire."""

    clip: Tree
    inner: Tree


class Gaussian(WireWrapper):
    r"""Client-level differential privacy: replies are bounded and the server adds noise to their sum.

    $$ \overline u = \frac1n\Big(\sum_{i \in S} w_i\, u_i \min(1, C / \|u_i\|) +
       \mathcal N\big(0, (z\,C\,w_{\max})^2\big)\Big) $$

    The norm is of delta and of everything uploaded beside it, together, as the server receives them. n is
    the expected number of clients in a round and not how many came, so that one client moves the sum by
    $C w_{\max}$ and nothing else. Rules see the noised mean alone: one that hears each reply is taken by
    `beside`, and client states follow the bounded reply. The server is trusted with replies, and the seed
    (or `secret`) must be known to nobody else: cohorts and noise follow from it. Floating-point noise is
    not hardened. Travels: what travels on the inner wire.

    Args:
        inner: the wire that replies take; `hf.Wire()` delivers them unchanged.
        clip: C, a number or a schedule; with `quantile`, the first one.
        delta: of the guarantee, below one over the number of clients.
        epsilon: the budget. Without a noise multiplier it finds the least that keeps it for all rounds; the
            run ends when it is spent.
        noise_multiplier: z, the standard deviation of the noise over what one client can move the sum by.
        rounds: how many the budget is for; those of `simulate` unless given.
        max_examples: with `weighting="examples"`, the most that a client counts for.
        mean_examples: with `weighting="examples"`, what sums are divided by for each client: a number that
            is public, such as a guess at the mean of what clients count for.
        quantile: lets the clip follow a quantile of the norms.
        correlated: `hf.privacy.Banded`, noise that later rounds take back in part, for cohorts that are known
            beforehand.
        accountant: `"pld"` or `"rdp"`; unless given, the tighter that knows the cohort.
        secret: a file of at least 16 random bytes, from which noise is drawn instead of the seed alone.
        clients: how many are expected in a round; found when the run begins.

    Example:
        >>> import holdfast as hf
        >>> private = hf.privacy.Gaussian(clip=1.0, delta=1e-5, noise_multiplier=1.1)
        >>> private.beside(hf.algorithms.fedavg()).wire.noise_multiplier
        1.1

    Reference: McMahan et al., "Learning differentially private recurrent language models", ICLR 2018.
    """

    lossless = False
    hears_each = False
    fixed_mean = True
    ranges = MappingProxyType(
        {
            "clip": Range(0, open=True),
            "noise_multiplier": Range(0, open=True),
            "max_examples": Range(0, open=True),
            "mean_examples": Range(0, open=True),
        }
    )
    inner: Wire = Wire()
    clip: Hyper = dataclasses.field(kw_only=True)
    delta: float = static(kw_only=True)
    epsilon: float | None = static(default=None, kw_only=True)
    noise_multiplier: Hyper | None = dataclasses.field(default=None, kw_only=True)
    rounds: int | None = static(default=None, kw_only=True)
    max_examples: Hyper | None = dataclasses.field(default=None, kw_only=True)
    mean_examples: Hyper | None = dataclasses.field(default=None, kw_only=True)
    quantile: Quantile | None = dataclasses.field(default=None, kw_only=True)
    correlated: Banded | None = dataclasses.field(default=None, kw_only=True)
    accountant: Accountant | None = static(default=None, kw_only=True)
    # Not part of the description by which a run goes on, nor of anything that is printed.
    secret: str | None = static(default=None, kw_only=True, repr=False)
    clients: Hyper | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_asked(self)
        if self.quantile is not None and callable(self.clip):
            raise HoldfastError(
                "Gaussian: clip is a schedule and quantile moves it; give one number to begin with, or "
                "leave quantile out.",
                about=("clip",),
            )
        if self.correlated is not None and (callable(self.clip) or self.quantile is not None):
            raise HoldfastError(
                "Gaussian: correlated noise is taken back in later rounds, so that all must have one clip; "
                "give clip as a number, and no quantile.",
                about=("clip" if callable(self.clip) else "quantile",),
            )

    @property
    def most(self) -> Any:
        """What the client that counts most counts."""
        return 1.0 if self.max_examples is None else self.max_examples / self.mean_examples

    @property
    def count_noise(self) -> Any:
        """Of the count of short replies, for clients that count 1."""
        assert self.quantile is not None
        own = self.quantile.noise
        expected: Any = self.clients
        return expected / 20 if own is None else own

    @property
    def deviation(self) -> Any:
        """The standard deviation of the noise in the sum of replies; if it is correlated, of fresh noise."""
        z: Any = self.noise_multiplier
        if self.quantile is not None:
            z = (z**-2 - (2 * self.count_noise) ** -2) ** -0.5
        return z * self.clip * self.most

    def inside(self, state: State) -> tuple[tuple[Wire, State], ...]:
        own = state._replace(server=state.server.inner) if self._remembers else state
        return ((self.inner, own),)

    @property
    def _remembers(self) -> bool:
        """Whether the server's state is more than that of the inner wire."""
        return self.quantile is not None or self.correlated is not None

    def init(self, payload: Tree, broadcast: Tree) -> State:
        inner = self.inner.init(payload, broadcast)
        if self.correlated is not None:
            past = self.correlated.nothing(payload)
            return State(server=Remembering(past, inner.server), client=inner.client)
        if self.quantile is None:
            return inner
        clip = jnp.asarray(self.clip, float_type(payload))
        return State(server=Following(clip, inner.server), client=inner.client)

    def informed(self, state: Tree) -> Wire:
        if self.quantile is None:
            return self
        return dataclasses.replace(self, clip=state.clip)

    def noise_key(self, seed: int, t: int) -> jax.Array:
        # By way of a digest: from the key of one round, which clients may know, that of another cannot
        # be worked out.
        secret = b"" if self.secret is None else read_secret(self.secret)
        words = f"{Purpose.NOISE} {seed} {t} ".encode() + secret
        return host_key(int.from_bytes(hashlib.sha256(words).digest()[:8]) >> 2)

    def send(self, broadcast: Tree, state: Tree, key: jax.Array) -> tuple[Tree, Tree]:
        if not self._remembers:
            return self.inner.send(broadcast, state, key)
        received, inner = self.inner.send(broadcast, state.inner, key)
        return received, state._replace(inner=inner)

    def encode(self, payload: Tree, mine: Tree, key: jax.Array) -> tuple[Tree, Tree, Tree]:
        coded, told, mine = self.inner.encode(payload, mine, key)
        return coded, bounded(told, self.clip)[0], mine

    def receive(self, coded: Tree) -> Tree:
        # Here, where a client has no say.
        payload, short = bounded(self.inner.receive(coded), self.clip)
        if self.quantile is None:
            return payload
        return Counted(payload, short.astype(float_type(payload)) - 0.5)

    def average(
        self, total: Tree, weight: jax.Array, heads: jax.Array, key: jax.Array | None
    ) -> tuple[Tree, jax.Array]:
        assert key is not None
        deviations: Any = self.deviation
        noised: Any
        if self.correlated is not None:
            noised = Fresh(total, noisy(tree.map(jnp.zeros_like, total), deviations, key))
        elif self.quantile is None:
            noised = noisy(total, deviations, key)
        else:
            first, second = jax.random.split(key)
            count = noisy(total.short, self.count_noise * self.most, second)
            noised = Counted(noisy(total.payload, deviations, first), count)
        expected = jnp.asarray(self.clients, heads.dtype)
        return tree.map(lambda a: a / expected.astype(a.dtype), noised), expected

    def decode(self, mean: Tree, state: Tree, share: Number) -> tuple[Tree, Tree]:
        if self.correlated is not None:
            noise, past = self.correlated.after(mean.noise, state.past)
            payload, inner = self.inner.decode(add(mean.payload, noise), state.inner, share)
            return payload, Remembering(past, inner)
        if self.quantile is None:
            return self.inner.decode(mean, state, share)
        payload, inner = self.inner.decode(mean.payload, state.inner, share)
        away = mean.short + 0.5 - self.quantile.target
        clip = (state.clip * jnp.exp(-self.quantile.rate * away)).astype(state.clip.dtype)
        return payload, Following(clip, inner)

    def beside(self, algorithm: Algorithm) -> Algorithm:
        """The method with this wire around its own. What a rule works out of each reply its clients upload
        instead: `hf.Uploaded`.

        Example:
            >>> import holdfast as hf
            >>> private = hf.privacy.Gaussian(clip=1.0, delta=1e-5, noise_multiplier=1.1)
            >>> for made in (hf.algorithms.scaffold(), hf.algorithms.feddyn(alpha=0.1)):
            ...     print(type(private.beside(made).rule).__name__)
            Uploaded
            Dynamic
        """
        if isinstance(algorithm.wire, OnSite):
            raise HoldfastError(
                f"Gaussian: `{algorithm.name}` sends nothing that could be made private; leave it as it is."
            )
        rule = algorithm.rule
        if not (rule.traits.hears_uploads or rule.traits.hears_as_sent):
            rule = Uploaded(rule)
        wire = dataclasses.replace(self, inner=algorithm.wire)
        return dataclasses.replace(algorithm, rule=rule, wire=wire)

    def check(self, payload: Tree) -> None:
        self.inner.check(payload)
        check_real("Gaussian", payload)


def read_secret(path: str) -> bytes:
    """What a file of random bytes holds; refuses one that could be guessed."""
    try:
        found = Path(path).read_bytes()
    except OSError as error:
        raise HoldfastError(
            f"Gaussian: secret={path!r} cannot be read ({error.strerror}); give a file of at least 16 random "
            f"bytes, such as `head -c 32 /dev/urandom > noise.secret` writes.",
            about=("secret",),
        ) from None
    if len(found) < 16:
        raise HoldfastError(
            f"Gaussian: secret={path!r} has {len(found)} bytes; give at least 16 random ones.",
            about=("secret",),
        )
    return found
