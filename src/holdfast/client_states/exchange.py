"""Client states on their way between processes: just those that move, from one to the other.

They go by connections of their own. A collective of JAX would be compiled for every number of states, and
could not begin while a round runs.
"""

import functools
import hmac
import secrets
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from jax import tree

from holdfast import processes
from holdfast.errors import HoldfastError
from holdfast.trees import Tree

_NAME = 256  # bytes of a host's name and port
_SECRET = 32  # bytes
_PATIENCE = 60  # seconds for the others to be reached
_GREETING = 5  # seconds for one that connects to say who it is


def exchanged(outgoing: dict[int, Tree], incoming: dict[int, Tree]) -> None:
    """Send states to some processes, and fill those that come from some.

    All of them call it together, also who neither sends nor receives.

    Args:
        outgoing: by process, states along a leading axis.
        incoming: by process, arrays of the same kind for what comes from it.
    """
    links = _links(processes.count())
    with ThreadPoolExecutor(1) as beside:
        # While this thread receives: two that only send would wait for each other for ever.
        sending = beside.submit(_send, links, outgoing)
        for partner in _partners(incoming):
            for part in _bytes_of(incoming[partner]):
                _fill(links[partner], part, partner)
        sending.result()


def _partners(states: dict[int, Tree]) -> Iterator[int]:
    """In an order in which nobody waits for one who waits for others: pairs, one after another."""
    yield from sorted(states, key=lambda k: k ^ processes.rank())


def _bytes_of(states: Tree) -> Iterator[memoryview]:
    for leaf in tree.leaves(states):
        if leaf.size:
            yield memoryview(leaf.reshape(-1).view(np.uint8))


def _send(links: dict[int, socket.socket], outgoing: dict[int, Tree]) -> None:
    for partner in _partners(outgoing):
        for part in _bytes_of(tree.map(np.ascontiguousarray, outgoing[partner])):
            links[partner].sendall(part)


def _fill(link: socket.socket, part: memoryview, partner: int | str) -> None:
    while part.nbytes:
        count = link.recv_into(part)
        if not count:
            raise ConnectionError(f"Connection closed by peer: process {partner}")
        part = part[count:]


@functools.lru_cache(maxsize=1)
def _links(count: int) -> dict[int, socket.socket]:
    """A connection to every other process; made by all together, when it is first needed."""
    secret = processes.told_by_first(secrets.token_hex(_SECRET // 2)).encode()
    me = processes.rank()
    with socket.create_server((processes.own_address(), 0), backlog=count) as server:
        name = "{}:{}".format(*server.getsockname()[:2]).encode().ljust(_NAME)
        names = processes.gathered(np.frombuffer(name, np.uint8))
        found = {}
        for k in range(me):
            host, _, port = bytes(names[k]).decode().strip().rpartition(":")
            try:
                link = socket.create_connection((host, int(port)), _PATIENCE)
            except OSError as error:
                raise HoldfastError(
                    f"processes: process {me} cannot reach process {k} at {host}, port {port} ({error}); "
                    f"they must be able to connect to each other."
                ) from error
            link.sendall(secret + me.to_bytes(4, "little"))
            found[k] = link
        server.settimeout(_PATIENCE)
        while len(found) < count - 1:
            try:
                link, _ = server.accept()
            except TimeoutError:
                missing = sorted(set(range(count)) - {me, *found})
                raise HoldfastError(
                    f"processes: process {missing[0]} has not reached process {me} within {_PATIENCE} s; "
                    f"they must be able to connect to each other."
                ) from None
            partner = _greeted(link, secret)
            if partner is None:
                link.close()
            else:
                found[partner] = link
    for link in found.values():
        link.settimeout(None)
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def _greeted(link: socket.socket, secret: bytes) -> int | None:
    """The process that is at the other end of a new connection; None if it is nobody of this run."""
    link.settimeout(_GREETING)
    said = bytearray(_SECRET + 4)
    try:
        _fill(link, memoryview(said), "unknown")
    except OSError:  # it said nothing, or went away
        return None
    known = hmac.compare_digest(bytes(said[:_SECRET]), secret)
    return int.from_bytes(said[_SECRET:], "little") if known else None
