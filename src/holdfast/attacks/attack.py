"""What an attack is, and the round of a client that lies."""

import dataclasses
import math
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, tree

from holdfast.core.algorithm import Algorithm
from holdfast.core.client import client_round
from holdfast.core.keys import Purpose, client_key, host_generator
from holdfast.core.round_types import ClientRound, ClientState, Reply, Shared, Slot
from holdfast.core.rule import ClientView
from holdfast.core.wire import Wire
from holdfast.data.clients import Clients
from holdfast.errors import HoldfastError, explain_constructor
from holdfast.trees import Tree, finite
from holdfast.wires.clipped import Clipped
from holdfast.wires.wrapper import WireWrapper


@explain_constructor
@dataclasses.dataclass(frozen=True, kw_only=True)
class Attack:
    """Clients that lie in every round they take part in. In a simulation alone: sites answer for themselves.

    Args:
        clients: who lies, by number or name; or give a share.
        share: of the clients, drawn at random by the run's seed.
    """

    # Whether they change what they send, or their data.
    on_replies: ClassVar[bool] = True
    # Whether they know the honest replies of their round, and all send what `agreed` makes of them.
    conspires: ClassVar[bool] = False
    clients: list[int] | list[str] | None = None
    share: float | None = None

    def __post_init__(self) -> None:
        name = type(self).__name__
        if (self.clients is None) == (self.share is None):
            raise HoldfastError(
                f"{name}: give who lies, clients=[0, 3], or what share of them, share=0.2.",
                about=("attack",),
            )
        if self.share is not None and not 0 <= self.share < 1:
            raise HoldfastError(
                f"{name}: share={self.share}; give a number in [0, 1).", about=("attack", "share")
            )
        if self.clients is not None:
            # Hashable: it is part of a program.
            object.__setattr__(self, "clients", tuple(self.clients))

    def liars(self, clients: Clients, seed: int) -> tuple[int, ...]:
        """The numbers of those that lie."""
        if self.clients is not None:
            try:
                return tuple(sorted({clients.number(client) for client in self.clients}))
            except HoldfastError as error:
                name = type(self).__name__
                raise HoldfastError(f"{name}: {error}", about=("attack", "clients")) from None
        count = len(clients)
        found = host_generator(Purpose.ATTACK, seed).permutation(count)
        return tuple(sorted(found[: round((self.share or 0) * count)].tolist()))

    def sent(self, payload: Tree, key: jax.Array) -> Tree:
        """What a liar sends, where an honest client would send this delta and upload."""
        return payload

    def agreed(self, honest: Tree, there: jax.Array, liars: jax.Array) -> Tree:
        """What all liars of a round send who conspire.

        `honest` has a leading axis, with those that are `there` first and zeros after them; `liars` is how
        many they are.
        """
        raise NotImplementedError

    def poisoned(self, clients: Clients, liars: tuple[int, ...]) -> Clients:
        """The population, with what liars make of their data."""
        return clients


def check_number(attack: Attack, name: str, least: float = -math.inf) -> None:
    """Refuse what is no finite number of at least this."""
    value = getattr(attack, name)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < least:
        at_least = "" if math.isinf(least) else f" of at least {least:g}"
        raise HoldfastError(
            f"{type(attack).__name__}: {name}={value!r}; give a number{at_least}.",
            about=("attack", name),
        )


def unclipped(wire: Wire) -> Wire:
    """The wire without the clips of an honest client's half."""
    if isinstance(wire, Clipped):
        return unclipped(wire.inner)
    if isinstance(wire, WireWrapper):
        return dataclasses.replace(wire, inner=unclipped(wire.inner))
    return wire


def _told_instead(own: jax.Array, agreed: jax.Array) -> jax.Array:
    # Whole numbers are a client's own.
    return agreed.astype(own.dtype) if jnp.issubdtype(own.dtype, jnp.floating) else own


@dataclasses.dataclass(frozen=True)
class RoundWithLiars:
    """A client's round; liars take theirs as everybody does, and then send something else.

    What a liar remembers is what its honest half came to: the server looks at no client's memory.
    """

    attack: Attack
    liars: tuple[int, ...]
    inner: ClientRound = client_round

    def __call__(self, shared: Shared, mine: Algorithm, state: ClientState, slot: Slot) -> Reply:
        reply = self.inner(shared, mine, state, slot)
        lies = jnp.isin(jnp.asarray(slot.client), np.array(self.liars, np.int32))

        def lie(reply: Reply) -> Reply:
            payload = mine.wire.receive(reply.coded)
            if self.attack.conspires:
                payload = tree.map(_told_instead, payload, shared.overheard)
            else:
                key = client_key(shared.key, slot.client, Purpose.ATTACK)
                payload = self.attack.sent(payload, key)
            wire_key = client_key(shared.key, slot.client, Purpose.WIRE)
            coded, told, _ = unclipped(mine.wire).encode(payload, state.wire, wire_key)
            at = ClientView(shared.x, shared.msg, None, None, slot.weight, reply.path)  # type: ignore[arg-type]
            if slot.population is not None:
                at = at._replace(population=slot.population)
            delta, upload = mine.mean.take(told)[0]
            heard = mine.rule.hear(delta, upload, at)
            return reply._replace(coded=coded, heard=heard, finite=finite((coded, told, heard)))

        return lax.cond(lies, lie, lambda reply: reply, reply)
