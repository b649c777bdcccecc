"""How messages reach sites: what a transport must do, and one that stays in this process."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from holdfast.deploy.file_site import FileSite
    from holdfast.deploy.site import Site


class Arrival(NamedTuple):
    """Something came back: from whom, in answer to which ticket, and what; None if it failed there."""

    address: str
    ticket: str
    data: bytes | None
    error: str = ""


class Transport(Protocol):
    """Carries bytes. It may lose messages, deliver them late or twice, and change them."""

    def addresses(self) -> Sequence[str]:
        """The sites that can be reached now. Who has which address is not up to the site."""

    def send(self, address: str, data: bytes) -> str:
        """Hand a message over; returns a ticket by which its answer is known."""

    def receive(self, seconds: float) -> list[Arrival]:
        """What has come since; waits so long at most if nothing has."""


class InProcess:
    """Sites in this process, each by its name: to try a deployment out, and for tests.

    Args:
        sites: any number of `hf.deploy.Site`, or of what `hf.deploy.site_from_file` returned.
    """

    def __init__(self, sites: "Sequence[Site | FileSite]") -> None:
        self.sites = {site.name: site for site in sites}
        self._waiting: list[Arrival] = []
        self._tickets = 0

    def addresses(self) -> Sequence[str]:
        return list(self.sites)

    def send(self, address: str, data: bytes) -> str:
        self._tickets += 1
        ticket = str(self._tickets)
        self._waiting.append(Arrival(address, ticket, self.sites[address].answer(data)))
        return ticket

    def receive(self, seconds: float) -> list[Arrival]:
        arrived, self._waiting = self._waiting, []
        if not arrived:
            # Somebody waits for a pause to end: without this it would take a core.
            time.sleep(min(seconds, 0.01))
        return arrived
