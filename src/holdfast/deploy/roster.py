"""Which site is where: bound to an address by its first answer, and to its number by its name."""

import logging
import time
from collections.abc import Sequence

from holdfast.deploy import frame, messages
from holdfast.deploy.frame import BadMessageError
from holdfast.deploy.replies import Limits, read_refusal
from holdfast.deploy.task import Task, name_of
from holdfast.deploy.transport import Arrival, Transport
from holdfast.errors import HoldfastError

log = logging.getLogger("holdfast.deploy")
# Seconds after which an address that has not said who it is is asked again.
_ASK_AGAIN = 120.0
# The same where it is known that there will be no answer.
_AFTER_FAILURE = 5.0
# Seconds between words about who is missing at the beginning.
_SAY = 30.0


class Roster:
    """The sites of a federation, by name, and the address of each as far as it is known.

    A transport says which addresses there are; who is at one is asked once. While a site can be reached at
    an address, no other address can take its name.
    """

    def __init__(
        self,
        names: Sequence[str],
        transport: Transport,
        task: Task,
        shape: str,
        limits: Limits,
        method: str = "",
        columns: bytes = b"",
    ) -> None:
        self.names, self.method = tuple(names), method
        # By what became of all sites' columns, where they have tables.
        self.table = name_of(columns.decode()) if columns else ""
        self._ask = messages.Ask(method, body=columns).pack()
        self.sizes: dict[str, int] = {}
        self._transport, self._task, self._shape, self._limits = transport, task, shape, limits
        self._at: dict[str, str] = {}  # name -> address
        self._turned_away: dict[str, str] = {}  # address -> why
        self._asked: dict[str, float] = {}  # address -> when
        self._tickets: dict[str, str] = {}  # ticket -> address
        self._there: frozenset[str] = frozenset()

    def address(self, client: int) -> str | None:
        """Where a client can be reached now; None if nowhere."""
        where = self._at.get(self.names[client])
        return where if where is not None and where in self._there else None

    def wait_for_all(self, seconds: float | None, pause: float = 0.2) -> None:
        """Until every site has said what it has."""
        began, told = time.monotonic(), 0.0
        while missing := [name for name in self.names if name not in self.sizes]:
            self.look()
            if (waited := time.monotonic() - began) - told > _SAY:
                told = waited
                log.warning(
                    "deploy: waiting for %s: not started, not registered, or turned away",
                    ", ".join(missing),
                )
            for arrival in self._transport.receive(pause):
                self.take(arrival)
            if seconds is not None and time.monotonic() - began > seconds:
                why = "; ".join(self._turned_away.values())
                raise HoldfastError(
                    f"deploy: after {seconds:g} s no answer of {', '.join(missing)}; start these sites"
                    + (f" ({why})." if why else ".")
                )

    def look(self) -> None:
        """See who can be reached, and ask addresses that nobody is known at who they are."""
        self._there = frozenset(self._transport.addresses())
        now = time.monotonic()
        known = set(self._at.values())
        for address in sorted(self._there - known):
            if now - self._asked.get(address, -_ASK_AGAIN) >= _ASK_AGAIN:
                self._asked[address] = now
                self._tickets[self._transport.send(address, self._ask)] = address

    def take(self, arrival: Arrival) -> bool:
        """Take an answer to that question; False if it is none."""
        if self._tickets.get(arrival.ticket) != arrival.address:
            return False
        del self._tickets[arrival.ticket]
        if arrival.data is None:
            log.warning("deploy: no answer from %s (%s)", arrival.address, arrival.error)
            self._asked[arrival.address] = time.monotonic() - _ASK_AGAIN + _AFTER_FAILURE
        else:
            self._enrol(arrival.address, arrival.data)
        return True

    def _enrol(self, address: str, data: bytes) -> None:
        try:
            found = frame.unpack(data, 0, 4096)
            read_refusal(found)
            facts = messages.Facts.read(found)
            self._check(address, facts)
        except BadMessageError as bad:
            self._turned_away[address] = f"{address}: {bad}"
            log.warning("deploy: the site at %s is turned away: %s", address, bad)
            return
        self._at[facts.name] = address
        self.sizes.setdefault(facts.name, facts.examples)

    def _check(self, address: str, facts: messages.Facts) -> None:
        if facts.name not in self.names:
            raise BadMessageError(f"no site of this federation is called {facts.name!r}")
        if self._at.get(facts.name, address) != address and self._at[facts.name] in self._there:
            raise BadMessageError(f"the site {facts.name!r} is at another address already")
        if not 1 <= facts.examples <= self._limits.examples:
            raise BadMessageError(
                f"{facts.examples} examples, where 1 to {self._limits.examples} are allowed"
            )
        known = self.sizes.get(facts.name)
        if known not in (None, facts.examples):
            raise BadMessageError(f"{facts.examples} examples, and there were {known} before")
        for what, said, own in (
            ("example", facts.shape, self._shape),
            ("algorithm", facts.algorithm, self._task.algorithm_digest),
            ("model", facts.model, self._task.model_digest),
        ):
            if said != own:
                raise BadMessageError(f"its {what} is another one than the server's")
