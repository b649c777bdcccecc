"""Every byte that travelled, by round and client."""

import dataclasses
from typing import cast

import numpy as np

from holdfast.record.log import Log


@dataclasses.dataclass(frozen=True)
class Sent:
    """Messages beside training, such as histograms that a measurement needs: bits of each of these clients,
    which need not be of the round's cohort."""

    what: str
    clients: tuple[int, ...]
    bits_down: int
    bits_up: int

    @property
    def down(self) -> int:
        """Bytes each of them received."""
        return -(-self.bits_down // 8)

    @property
    def up(self) -> int:
        """Bytes each of them returned."""
        return -(-self.bits_up // 8)


@dataclasses.dataclass(frozen=True)
class Entry:
    """The traffic of one round: bits each client received and returned.

    One number stands for everybody; where clients differ (federated select, compressors of their
    own, catching up) there is one each. A message is a whole number of bytes, so bytes are rounded
    up for each client.
    """

    round: int
    clients: tuple[int, ...]
    bits_down: int | tuple[int, ...]
    bits_up: int | tuple[int, ...]
    # Of these clients, those whose reply did not count: it was not finite, or was not selected.
    left_out: tuple[int, ...] = ()
    # What travelled besides, for what was measured after the round.
    beside: tuple[Sent, ...] = ()

    @property
    def down(self) -> int | tuple[int, ...]:
        """Bytes each client received for training."""
        return _bytes(self.bits_down)

    @property
    def up(self) -> int | tuple[int, ...]:
        """Bytes each client returned from training."""
        return _bytes(self.bits_up)

    @property
    def bytes_down(self) -> int:
        """Bytes all clients received in the round."""
        return self._total(self.down) + sum(s.down * len(s.clients) for s in self.beside)

    @property
    def bytes_up(self) -> int:
        """Bytes all clients returned in the round."""
        return self._total(self.up) + sum(s.up * len(s.clients) for s in self.beside)

    def of_client(self) -> dict[int, tuple[int, int]]:
        """Bytes down and up of every client of which something travelled, by its number."""
        each = ((n,) * len(self.clients) if isinstance(n, int) else n for n in (self.down, self.up))
        found = {i: (down, up) for i, down, up in zip(self.clients, *each, strict=True)}
        for sent in self.beside:
            for i in sent.clients:
                down, up = found.get(i, (0, 0))
                found[i] = (down + sent.down, up + sent.up)
        return found

    def _total(self, each: int | tuple[int, ...]) -> int:
        return each * len(self.clients) if isinstance(each, int) else sum(each)


def _bytes(bits: int | tuple[int, ...]) -> int | tuple[int, ...]:
    return -(-bits // 8) if isinstance(bits, int) else tuple(-(-b // 8) for b in bits)


@dataclasses.dataclass(frozen=True)
class Ledger:
    """The traffic of a run, counted to the bit from the shapes and types of what travels.

    `model_bytes` is the size of one model: a FedAvg client receives and returns one each.
    The number of steps and examples of a client is known from its enrolment and not counted.
    """

    model_bytes: int
    entries: Log[Entry] = dataclasses.field(default_factory=Log)
    # Kept up to date, so that a glance at the total does not go through all rounds.
    _sums: tuple[int, int] | None = dataclasses.field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self._sums is None:
            sums = sum(e.bytes_down for e in self.entries), sum(e.bytes_up for e in self.entries)
            object.__setattr__(self, "_sums", sums)

    def record(self, entry: Entry) -> "Ledger":
        """With one more round."""
        sums = self.bytes_down + entry.bytes_down, self.bytes_up + entry.bytes_up
        return Ledger(self.model_bytes, self.entries.with_one_more(entry), sums)

    @property
    def bits_up(self) -> int:
        """Bits from clients to the server, before messages are filled up to whole bytes."""
        return sum(
            e._total(e.bits_up) + sum(s.bits_up * len(s.clients) for s in e.beside)
            for e in self.entries
        )

    @property
    def bits_down(self) -> int:
        """Bits from the server to clients, before messages are filled up to whole bytes."""
        return sum(
            e._total(e.bits_down) + sum(s.bits_down * len(s.clients) for s in e.beside)
            for e in self.entries
        )

    def participation(self, clients: int) -> np.ndarray:
        """One row per round and one column per client of a population: whether its reply counted."""
        took_part = np.zeros((len(self.entries), clients), bool)
        for row, entry in zip(took_part, self.entries, strict=True):
            row[list(entry.clients)] = True
            row[list(entry.left_out)] = False
        return took_part

    def last_contact(self) -> dict[int, int]:
        """The last round of every client that ever took part."""
        return {client: entry.round for entry in self.entries for client in entry.clients}

    @property
    def bytes_down(self) -> int:
        """Bytes from the server to clients."""
        return cast(tuple[int, int], self._sums)[0]

    @property
    def bytes_up(self) -> int:
        """Bytes from clients to the server."""
        return cast(tuple[int, int], self._sums)[1]

    @property
    def total(self) -> int:
        """Bytes in both directions."""
        return self.bytes_down + self.bytes_up

    @property
    def models_transmitted(self) -> float:
        """The papers' unit: traffic relative to one FedAvg round of the same cohort, summed over rounds."""
        return sum(self.relative(e) for e in self.entries)

    def relative(self, entry: Entry) -> float:
        """One round's traffic relative to a FedAvg round of the same cohort."""
        plain = 2 * self.model_bytes * len(entry.clients)
        return (entry.bytes_down + entry.bytes_up) / plain if plain else 0.0

    def by_client(self, clients: int) -> tuple[np.ndarray, np.ndarray]:
        """Bytes down and up of each client of a population."""
        down, up = np.zeros(clients, np.int64), np.zeros(clients, np.int64)
        for e in self.entries:
            down[list(e.clients)] += e.down
            up[list(e.clients)] += e.up
            for sent in e.beside:
                down[list(sent.clients)] += sent.down
                up[list(sent.clients)] += sent.up
        return down, up

    def __repr__(self) -> str:
        return (
            f"Ledger({len(self.entries)} rounds: {self.bytes_down:,} bytes down, "
            f"{self.bytes_up:,} up, {self.models_transmitted:g} FedAvg rounds' worth)"
        )
