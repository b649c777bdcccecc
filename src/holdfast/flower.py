"""Flower as transport: all that this library knows of it. Needs `pip install "holdfast[flower]"`.

A Flower app is a few lines:

    from my_study import experiment, site
    import holdfast.flower

    server = holdfast.flower.server_app(experiment)
    client = holdfast.flower.client_app(site)

Flower starts a process for every message and keeps nothing at a site: what a site remembers is on its own
disk, and the programs it compiled are in its folder. `Strategy` is not used; the server pushes and pulls
messages.
"""

import logging
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast.deploy.site_process import answered, made, named
from holdfast.deploy.transport import Arrival
from holdfast.errors import HoldfastError

# Flower's process of a message imports this module, and needs no JAX.
if TYPE_CHECKING:
    from holdfast.deploy.collect import Patience
    from holdfast.deploy.file_site import FileSite
    from holdfast.deploy.replies import Limits
    from holdfast.deploy.site import Site
    from holdfast.deploy.study import Study
    from holdfast.engine.experiment import Experiment
    from holdfast.engine.simulate import Run
    from holdfast.record.state import RunState

try:
    from flwr.app import Array, ArrayRecord, Context, Message, MessageType, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
except ImportError as _missing:
    raise HoldfastError(
        'holdfast.flower: Flower is not installed; pip install "holdfast[flower]".'
    ) from _missing

__all__ = ["RESULTS", "GridTransport", "client_app", "server_app"]

log = logging.getLogger("holdfast.deploy")
# Of a run's folder: what `holdfast compare` and `report` read.
RESULTS = "results"
_NAME = "message"
# Bytes as they are: neither side has NumPy look at a header that the other wrote.
_STYPE = "holdfast.bytes"
# Seconds between looks at who is there, and at what has come.
_LOOK = 1.0
_POLL = 0.2
# Seconds of failures in a row after which the server gives up; its run can be submitted again.
_PATIENT = 300.0


def _record(data: bytes) -> RecordDict:
    return RecordDict({_NAME: ArrayRecord({_NAME: Array("uint8", (len(data),), _STYPE, data)})})


def _bytes(content: RecordDict) -> bytes:
    """What a message brought; nothing if it is none of ours, which no reader takes for a message."""
    try:
        array = content[_NAME][_NAME]
    except KeyError:
        return b""
    data = getattr(array, "data", b"")
    return data if isinstance(data, bytes) else b""


T = TypeVar("T")


def _patiently(what: str, call: Callable[[], T]) -> T:
    """What a call of the grid returns, once it does: a SuperLink that is busy or is started again may fail.

    With SQLite it answers with an error of its own while another writes. A message that was sent twice harms
    nobody, and a reply that was lost is asked for again.
    """
    began = time.monotonic()
    while True:
        try:
            return call()
        # Flower's own errors and those of its libraries, of which it documents none.
        except Exception as error:
            if time.monotonic() - began > _PATIENT:
                raise
            said = " ".join(str(error).split())[:160]
            log.warning("deploy: cannot %s (%s); trying again", what, said)
            time.sleep(_LOOK)


class GridTransport:
    """A federation of Flower's: an address is a node's number, which Flower ties to its key.

    Args:
        grid: what Flower gives a ServerApp.
        ttl: seconds after which Flower gives up a message.
    """

    def __init__(self, grid: Grid, ttl: float = 3600.0) -> None:
        self._grid, self._ttl = grid, ttl
        self._nodes: list[str] = []
        self._looked = -_LOOK
        self._waiting: dict[str, str] = {}  # ticket -> address

    def addresses(self) -> Sequence[str]:
        """Nodes that are there, as of a second ago."""
        if time.monotonic() - self._looked >= _LOOK:
            nodes = _patiently("look for sites", self._grid.get_node_ids)
            self._nodes = sorted(str(node) for node in nodes)
            self._looked = time.monotonic()
        return self._nodes

    def send(self, address: str, data: bytes) -> str:
        """Push a message; the ticket is Flower's number of it."""
        message = Message(
            _record(data),
            dst_node_id=int(address),
            message_type=MessageType.TRAIN,
            ttl=self._ttl,
        )
        tickets = _patiently("send a message", lambda: self._grid.push_messages([message]))
        ticket = next(iter(tickets), "")
        if ticket:
            self._waiting[ticket] = address
        return ticket

    def receive(self, seconds: float) -> list[Arrival]:
        """Pull what has come."""
        end = time.monotonic() + seconds
        while True:
            found = [
                arrival for reply in self._pulled() if (arrival := self._arrival(reply)) is not None
            ]
            if found or time.monotonic() >= end:
                return found
            time.sleep(_POLL)

    def _pulled(self) -> list[Message]:
        waiting = list(self._waiting)
        if not waiting:
            return []
        return list(_patiently("look for replies", lambda: self._grid.pull_messages(waiting)))

    def _arrival(self, reply: Message) -> Arrival | None:
        ticket = reply.metadata.reply_to_message_id
        address = self._waiting.pop(ticket, None)
        if address is None:
            return None
        if reply.has_error():
            why = " ".join(f"{reply.error.code}: {reply.error.reason}".split())[:200]
            return Arrival(address, ticket, None, why)
        return Arrival(address, ticket, _bytes(reply.content))


def client_app(
    site: "str | Site | FileSite | Callable[[Mapping[str, Any]], Site | FileSite]",
    stay: float = 3600.0,
) -> ClientApp:
    """A site as a ClientApp.

    Args:
        site: the site, or a function that makes it of what the SuperNode was started with (`--node-config`).
            As words, `"study.experiment:site"`, the function runs in a process of the site's own that stays
            between messages, so that neither imports nor compiling come again; else in that of the message.
        stay: seconds without a message after which the site's own process ends.
    """
    app = ClientApp()

    @app.train()  # type: ignore[untyped-decorator]
    def answer(message: Message, context: Context) -> Message:
        asked = _bytes(message.content)
        if isinstance(site, str):
            replied = answered(site, context.node_config, asked, stay)
        else:
            own = site if callable(site) else lambda config: site
            replied = made(own, context.node_config).answer(asked)
        return Message(_record(replied), reply_to=message)

    return app


def server_app(
    experiment: "str | Path | Experiment | Callable[[], Experiment]",
    rounds: int = 10,
    folder: str | Path = "run",
    patience: "Patience | None" = None,
    limits: "Limits | None" = None,
) -> ServerApp:
    """An experiment's server as a ServerApp. A run that is submitted again goes on from its folder.

    Args:
        experiment: what is run, or a function that makes it, also as words: `"study.experiment:experiment"`;
            or the path of an experiment file, of which `method`, `seed` and `server` of the run configuration
            say what is run.
        rounds: number of rounds; `rounds` of Flower's run configuration goes over it.
        folder: where the run is saved after every round; `folder` of the run configuration goes over it.
        patience: quorum and deadline of a round; `quorum`, `deadline` and `retry` of the run configuration go
            over it.
        limits: what a reply may be at most.
    """
    app = ServerApp()

    @app.main()  # type: ignore[untyped-decorator]
    def main(grid: Grid, context: Context) -> None:
        from holdfast.deploy.collect import Patience
        from holdfast.deploy.federate import run

        given = context.run_config
        what = _made(experiment, given)
        own = patience or Patience()
        folder_here = Path(str(given.get("folder", folder)))
        number = {name: float(given.get(name, getattr(own, name))) for name in _PATIENCE}
        done = run(
            what,
            GridTransport(grid),
            rounds=int(given.get("rounds", rounds)),
            checkpoint=folder_here,
            patience=Patience(**number, give_up=own.give_up),
            limits=limits,
            progress=False,
            on_round=_told,
        )
        _write_results(done, folder_here / RESULTS)

    return app


def _made(
    experiment: "str | Path | Experiment | Callable[[], Experiment]", given: Mapping[str, Any]
) -> "Experiment | Study":
    from holdfast.deploy.site_file import from_file

    if isinstance(experiment, str) and not experiment.endswith(".toml"):
        experiment = named(experiment)
    if isinstance(experiment, str | Path):
        seed = given.get("seed")
        return from_file(
            experiment,
            str(given.get("method", "")),
            None if seed is None else int(seed),
            str(given.get("server", "")) or None,
        )
    return experiment() if callable(experiment) else experiment


def _write_results(done: "Run", path: Path) -> None:
    """What `holdfast compare` and `report` read, of a run that is over; made anew if it went on."""
    from holdfast.record.history import BOOKKEEPING
    from holdfast.runs.in_memory import write

    if all(name in BOOKKEEPING for name in done.history.columns):
        print(
            f"holdfast: nothing was measured, so there is nothing to compare in {path}", flush=True
        )
        return
    if path.exists():
        shutil.rmtree(path)
    write({done.experiment.algorithm.name: (done,)}, path)


_PATIENCE = ("quorum", "deadline", "retry")


def _told(state: "RunState") -> None:
    """A line for every round, which Flower shows and keeps."""
    from holdfast.record.history import DETAILS

    record = state.history.records[-1]
    told = (f"{name}={_figure(value)}" for name, value in record.items() if name != DETAILS)
    print("holdfast " + " ".join(told), flush=True)


def _figure(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
