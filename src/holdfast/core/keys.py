"""Random numbers folded from (seed, round, client, purpose): never from global state or order.

So a result depends neither on how a cohort is spread over devices nor on which machine a client is.
"""

import enum
from typing import Any

import jax
import numpy as np

from holdfast.trees import Number


class Purpose(enum.IntEnum):
    """What a random number is for. The numbers are part of every stored run: add, never renumber."""

    INIT = 0
    COHORT = 1
    ORDER = 2
    LOSS = 3
    GRADIENT = 4
    WIRE = 5
    SERVER_ORDER = 6
    SERVER_LOSS = 7
    SERVER_GRADIENT = 8
    DOWNLINK = 9
    PREPARE = 10
    ADAPT = 11
    SAMPLE = 12
    SETS = 13
    NOISE = 14
    ATTACK = 16
    LOCAL_NOISE = 17
    EXAMPLE_NOISE = 18


_THREEFRY = "threefry2x32"
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def host_key(seed: int, *folded: int) -> jax.Array:
    """`jax.random.key(seed)` with these whole numbers folded in, to the bit, and no program compiled.

    JAX compiles four for it, a fifth of a second at every start.
    """
    if jax.config.jax_default_prng_impl != _THREEFRY:  # type: ignore[attr-defined]
        key = jax.random.key(seed)
        for number in folded:
            key = jax.random.fold_in(key, number)
        return key
    words = (int(seed) >> 32 & _WORD, int(seed) & _WORD)
    for number in folded:
        words = _threefry(words, (0, int(number) & _WORD))
    return jax.random.wrap_key_data(jax.device_put(np.array(words, np.uint32)), impl=_THREEFRY)


_WORD = 0xFFFFFFFF


def _threefry(key: tuple[int, int], counter: tuple[int, int]) -> tuple[int, int]:
    """Threefry-2x32 with twenty rounds (Salmon et al., SC 2011): whole numbers of 32 bits, so exact."""
    parts = (*key, key[0] ^ key[1] ^ 0x1BD11BDA)
    a, b = ((c + k) & _WORD for c, k in zip(counter, key, strict=True))
    for group in range(5):
        for by in _ROTATIONS[group % 2]:
            a = (a + b) & _WORD
            b = ((b << by | b >> (32 - by)) & _WORD) ^ a
        a = (a + parts[(group + 1) % 3]) & _WORD
        b = (b + parts[(group + 2) % 3] + group + 1) & _WORD
    return a, b


def round_key(seed: int, t: int) -> jax.Array:
    """The key of one round."""
    return host_key(seed, t)


def client_key(round_key: jax.Array, client: Number, purpose: Purpose) -> jax.Array:
    """The key of one client in one round, for one purpose."""
    return jax.random.fold_in(jax.random.fold_in(round_key, client), purpose)


class HostStreams:
    """`host_generator` for many clients: one generator that is set to each, which is three times as fast.

    A stream ends where the next one is asked for.
    """

    def __init__(self, purpose: Purpose, seed: int) -> None:
        self._bits = np.random.Philox(key=np.array([seed, purpose], np.uint64))
        self._generator = np.random.Generator(self._bits)
        self._begin: Any = self._bits.state

    def at(self, t: int, client: int) -> np.random.Generator:
        """The stream of one client in one round, from its beginning."""
        counter = np.array([0, 0, client, t], np.uint64)
        self._begin["state"]["counter"] = counter
        self._bits.state = self._begin
        return self._generator


def host_generator(purpose: Purpose, seed: int, t: int = 0, client: int = 0) -> np.random.Generator:
    """The same discipline for numbers drawn on the host, such as cohorts and batch order."""
    # Philox is a function of key and counter; its low counter words run within one stream.
    key = np.array([seed, purpose], np.uint64)
    counter = np.array([0, 0, client, t], np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))
