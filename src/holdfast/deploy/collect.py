"""A round's replies: sent for, waited for, looked at; until all are there, or enough at the deadline."""

import dataclasses
import logging
import math
import time
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from holdfast.deploy.frame import BadMessageError
from holdfast.deploy.replies import NotFiniteError, SecondAnswerError, SiteRefusedError
from holdfast.deploy.roster import Roster
from holdfast.deploy.transport import Arrival, Transport
from holdfast.errors import HoldfastError, first_wrong

log = logging.getLogger("holdfast.deploy")


@dataclasses.dataclass(frozen=True)
class Patience:
    """When a round closes without everybody.

    Args:
        quorum: replies that are enough at the deadline: a share of the round's sites, such as 0.5, or 1.0 for
            all of them. Below it, the round waits.
        deadline: seconds after which a round closes with a quorum.
        retry: seconds after which a site that failed or came back is asked again; one that says nothing is
            asked again after the deadline.
        give_up: seconds without a quorum after which the run ends, to be gone on with later; None waits
            for ever.
    """

    quorum: float = 1.0
    deadline: float = 600.0
    retry: float = 10.0
    give_up: float | None = None

    def __post_init__(self) -> None:
        wrong = first_wrong(
            quorum=0 < self.quorum <= 1,
            deadline=self.deadline > 0,
            retry=self.retry >= 0,
            give_up=self.give_up is None or self.give_up > 0,
        )
        if wrong:
            raise HoldfastError(
                f"Patience: {wrong[0]}={getattr(self, str(wrong[0]))}; give a quorum in (0, 1] and seconds "
                f"above 0.",
                about=wrong,
            )

    def needed(self, sites: int) -> int:
        """Replies that are enough of so many sites."""
        return max(1, -int(-self.quorum * sites // 1))


class NoQuorumError(HoldfastError):
    """Too few sites replied for too long; the run is saved and can be gone on with."""


@dataclasses.dataclass
class Collected:
    """What came of asking: by client what its reply was read as, and what else happened."""

    found: dict[int, Any] = dataclasses.field(default_factory=dict)
    # Why the last reply of a client was no good.
    refused: dict[int, str] = dataclasses.field(default_factory=dict)
    asked: set[int] = dataclasses.field(default_factory=set)  # who was sent a message
    bad: int = 0  # replies that were refused
    stray: int = 0  # late ones, second ones, and from nobody that was asked


class Asking(Protocol):
    """What clients are asked in a round, and how their answers are read."""

    def message(self, client: int) -> bytes:
        """What to send it next."""

    def read(self, client: int, data: bytes) -> Any:
        """What its answer comes to; None if there is another message for it. Raises `BadMessageError`."""


class Collector:
    """Asks sites and reads their replies; what is wrong with one is counted and logged, never raised."""

    def __init__(self, transport: Transport, roster: Roster, patience: Patience) -> None:
        self.transport, self.roster, self.patience = transport, roster, patience

    def __call__(
        self,
        t: int,
        clients: Sequence[int],
        asking: "Asking",
    ) -> Collected:
        """Ask these clients, and read what they reply."""
        out, open_ = Collected(), set(clients)
        sent: dict[tuple[str, str], int] = {}  # (address, ticket) -> client
        due = dict.fromkeys(clients, 0.0)  # when each is asked, or asked again
        working: set[int] = set()  # who has been asked and has not answered
        began = time.monotonic()
        enough = self.patience.needed(len(clients))
        said = False
        while open_:
            self.roster.look()
            now = time.monotonic()
            for client in [c for c in clients if c in open_ and due[c] <= now]:
                where = self.roster.address(client)
                if where is None:
                    due[client] = now + self.patience.retry
                    continue
                sent[where, self.transport.send(where, asking.message(client))] = client
                out.asked.add(client)
                # A message may be lost without a word. To be asked twice harms nobody.
                due[client] = now + max(self.patience.deadline, self.patience.retry)
                working.add(client)
            for client, data, error in self._arrived(sent, out):
                if client not in open_:
                    out.stray += 1
                    continue
                again = self._take(t, client, data, error, asking, out)
                if again is None:
                    open_.discard(client)
                elif again < math.inf:
                    due[client] = min(due[client], time.monotonic() + again)
                    working.discard(client)
            waited = time.monotonic() - began
            if len(out.found) >= enough and (
                waited > self.patience.deadline or self._nobody_is_working(open_, working, out)
            ):
                break
            if self.patience.give_up is not None and waited > self.patience.give_up:
                raise NoQuorumError(
                    f"round {t + 1}: {len(out.found)} of {len(clients)} sites replied within "
                    f"{waited:.0f} s and {enough} are needed; start the sites and go on with the run."
                )
            if waited > self.patience.deadline and not said:
                said = True
                log.warning(
                    "round %d: %d of %d replies at the deadline, and %d are needed; waiting",
                    t + 1,
                    len(out.found),
                    len(clients),
                    enough,
                )
        return out

    def _nobody_is_working(
        self,
        open_: set[int],
        working: set[int],
        out: Collected,
    ) -> bool:
        """Whether all that are missing were refused or cannot be reached: then waiting is for nothing."""
        return all(
            self.roster.address(c) is None or (c not in working and c in out.refused) for c in open_
        )

    def _arrived(
        self, sent: dict[tuple[str, str], int], out: Collected
    ) -> Iterator[tuple[int, bytes | None, str]]:
        # Little at a time: what is due is looked at in between.
        for arrival in self.transport.receive(min(1.0, max(0.01, self.patience.retry))):
            client = _asked(sent, arrival)
            if client is None:
                out.stray += not self.roster.take(arrival)
            else:
                yield client, arrival.data, arrival.error

    def _take(
        self,
        t: int,
        client: int,
        data: bytes | None,
        error: str,
        asking: "Asking",
        out: Collected,
    ) -> float | None:
        """Take an answer; in how many seconds to ask again: None if that is not needed, infinity if the site
        is at work on what it was asked last."""
        if data is None:
            log.warning("round %d, client %d: no reply (%s)", t + 1, client, error)
            return self.patience.retry
        try:
            found = asking.read(client, data)
        except SecondAnswerError:
            out.stray += 1
            return math.inf
        except SiteRefusedError as refusal:
            out.refused[client] = str(refusal)
            log.warning("round %d, client %d: %s", t + 1, client, refusal)
            return self.patience.retry
        except BadMessageError as bad:
            out.bad += 1
            out.refused[client] = str(bad)
            log.warning("round %d, client %d: its reply is refused: %s", t + 1, client, bad)
            # Its round would come to the same again.
            return None if isinstance(bad, NotFiniteError) else self.patience.retry
        out.refused.pop(client, None)
        if found is None:
            return 0.0
        out.found[client] = found
        return None


def _asked(sent: dict[tuple[str, str], int], arrival: Arrival) -> int | None:
    """Whose answer this is: known by the address that was written to, not by what it says."""
    return sent.get((arrival.address, arrival.ticket))
