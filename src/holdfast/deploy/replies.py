"""A reply from bytes: decoded against the server's own template, and refused if anything is wrong."""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.keys import Purpose, client_key
from holdfast.core.wire import Wire
from holdfast.deploy import frame, messages
from holdfast.deploy.frame import BadMessageError
from holdfast.errors import HoldfastError, first_wrong
from holdfast.trees import Tree, finite, float_type, norm, signature

_MOST_HEADER = 4096


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a site may say at most, before it is refused.

    Args:
        norm: of a reply, as a multiple of 1 plus the norm of the model. A method that diverges passes it in
            the end; one that does not, does not.
        examples: of one site.
        outlying: how many times as long as the median of the other replies of its round a reply may be; a
            longer one counts as one that did not come, unless the experiment has an `aggregate` or bounds
            replies for privacy. None for any length.
    """

    norm: float = 1e6
    examples: int = 10**9
    outlying: float | None = 10.0

    def __post_init__(self) -> None:
        wrong = first_wrong(
            norm=self.norm > 0,
            examples=self.examples >= 1,
            outlying=self.outlying is None or self.outlying >= 1,
        )
        if wrong:
            (name,) = wrong
            least = "of at least 1, or None" if name == "outlying" else "above 0"
            raise HoldfastError(
                f"Limits: {name}={getattr(self, str(name))}; give a number {least}.", about=wrong
            )


def far_out(sizes: Mapping[int, float], times: float) -> tuple[int, ...]:
    """Whose reply is so many times as long as the median of the others; of two in the middle the shorter
    one is it. So the shortest is never far out, nor one alone."""
    found = []
    for client, size in sizes.items():
        others = sorted(s for other, s in sizes.items() if other != client)
        if others and size > times * others[(len(others) - 1) // 2] > 0:
            found.append(client)
    return tuple(sorted(found))


@jax.jit
def _size(wire: Wire, coded: Tree) -> tuple[jax.Array, jax.Array]:
    received = wire.receive(coded)
    return finite((coded, received)), norm(tree.map(lambda a: a.astype(float), received))


@dataclasses.dataclass(frozen=True)
class Expected:
    """What the reply of one client in one round must be."""

    run: str
    round: int
    message: str  # that it answers
    client: int
    examples: int
    algorithm: Algorithm  # with the numbers of the round
    payload: Tree  # shapes of what travels, before the wire
    coded: Tree  # shapes of what travels
    key: jax.Array  # of the round
    largest: float  # norm

    @functools.cached_property
    def _wire(self) -> Wire:
        wire: Wire = hyper.of_client(self.algorithm.wire, self.client, float_type(self.payload))
        return wire

    @property
    def length(self) -> int:
        """Bytes of its body."""
        return -(-self._wire.bits_up(self.payload) // 8)

    def read(self, data: Any) -> tuple[Tree, float]:
        """What the wire makes of it, and its norm; raises `BadMessageError` for what cannot be this reply."""
        found = frame.unpack(data, self.length, _MOST_HEADER)
        read_refusal(found)
        reply = messages.Reply.read(found)
        for what in ("run", "round", "message", "examples"):
            said, wanted = getattr(reply, what), getattr(self, what)
            if said != wanted:
                raise BadMessageError(f"its {what} is {said}, and {wanted} was asked for")
        if len(reply.body) != self.length:
            raise BadMessageError(
                f"its body has {len(reply.body)} bytes, where the wire sends {self.length}"
            )
        if not reply.finite:
            raise NotFiniteError("its numbers were not finite before the wire")
        return self._numbers(reply.body)

    def _numbers(self, body: bytes) -> tuple[Tree, float]:
        key = client_key(self.key, np.int32(self.client), Purpose.WIRE)
        try:
            coded = tree.map(jnp.asarray, self._wire.unpack(body, self.payload, key))
        # Bits that no compressor writes; a wire of somebody's own may raise anything of them.
        except Exception as error:
            raise BadMessageError(f"the wire cannot read it: {type(error).__name__}") from None
        if signature(coded) != signature(self.coded):
            raise BadMessageError("its code has other shapes than the wire's")
        is_finite, size = _size(self._wire, coded)
        if not bool(is_finite):
            raise BadMessageError("its numbers are not finite, and it says that they are")
        if not float(size) <= self.largest:
            raise BadMessageError(
                f"its norm is {float(size):.3g}, and {self.largest:.3g} is the most that is allowed"
            )
        return jax.device_get(coded), float(size)


class NotFiniteError(BadMessageError):
    """The site says itself that its numbers are not finite: a simulation leaves it out too."""


class SecondAnswerError(BadMessageError):
    """An answer to what was asked twice and answered before; the site is at work on what came after."""


class SiteRefusedError(BadMessageError):
    """The site says why it has no reply."""

    def __init__(self, why: str, lost: bool) -> None:
        super().__init__(f"the site says: {why}")
        self.lost = lost


def read_refusal(found: frame.Frame) -> None:
    """Raise what a site gives as its reason, if it does."""
    if found.header.get("kind") == "refusal":
        refusal = messages.Refusal.read(found)
        raise SiteRefusedError(refusal.why, refusal.lost)
