"""The page of a run that is still going on, from a server that this machine alone can reach."""

import contextlib
import dataclasses
import functools
import hashlib
import html
import threading
import tomllib
import urllib.parse
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.record.lock import is_held_by_living_process
from holdfast.report import page
from holdfast.report.content import content
from holdfast.runs import results
from holdfast.runs.folder import RunFolder, SeedFolder
from holdfast.runs.names import method_name

HOST = "127.0.0.1"
PORT = 8642
# What changes as a run goes on.
_CHANGING = ("history.jsonl", "clients.json", "complete.sha256", "failed.json")
_WAITING = """<!doctype html><html lang="en"><meta charset="utf-8">
<meta http-equiv="refresh" content="{every}">
<title>{title}: holdfast watch</title><body style="font: 16px system-ui; margin: 3rem">
<h1>{title}</h1><p>{why}</p><p>This page looks again by itself.</p></body></html>"""


@dataclasses.dataclass(frozen=True)
class Progress:
    """How far a run is: its runs, one per method and seed, and those that are going on."""

    over: int
    runs: int
    rounds: int
    now: str = ""
    round: int = 0
    running: bool = False
    beside: tuple[str, ...] = ()  # the others that go on at the same time

    @property
    def finished(self) -> bool:
        """Whether every run is over."""
        return self.over >= self.runs

    def in_words(self) -> str:
        """One line."""
        if self.finished:
            return f"Finished: all {self.runs} runs are over."
        told = f"{self.over} of {self.runs} runs are over"
        if self.running:
            first = f"{self.now} is in round {self.round} of {self.rounds}"
            doing = ", ".join([first, *self.beside]) if self.now else "preparing"
            return f"Running: {doing}; {told}."
        return f"Stopped: {told}. `holdfast resume` goes on with it."


class Watched:
    """A run folder whose page is made anew when there is something new.

    Args:
        path: the folder.
        every: seconds between two looks.
    """

    def __init__(self, path: Path, every: float = 3.0) -> None:
        self.folder, self.every = RunFolder.open(path), every
        # Two windows may ask at once.
        self._lock = threading.Lock()
        self._values: dict[str, Any] | None = None

    def version(self) -> str:
        """Something else after every round."""
        found = hashlib.sha256(str(self.progress().running).encode())
        for path in sorted(self.folder.path.glob("methods/**/*")):
            if path.name in _CHANGING:
                # What is just being replaced is not there, and there again at the next look.
                with contextlib.suppress(FileNotFoundError):
                    known = path.stat()
                    found.update(f"{path} {known.st_size} {known.st_mtime_ns}\n".encode())
        return found.hexdigest()[:16]

    def progress(self) -> Progress:
        """How far it is, by what its files say."""
        values = tomllib.loads(self.folder.experiment_file.read_text(encoding="utf-8"))
        methods = self.folder.description()["methods"]
        begun = [(m, seed) for m in methods for seed in self.folder.seeds(m["folder"])]
        over = [seed for _, seed in begun if _is_over(seed)]
        going_on = [(m, seed) for m, seed in begun if not _is_over(seed)]
        running = is_held_by_living_process(self.folder.path)
        progress = Progress(
            len(over), len(methods) * _repeats(values), values["rounds"], running=running
        )
        if not going_on:
            return progress
        *others, (method, seed) = going_on
        now = f"{method_name(method['label'])}, seed {seed.seed},"
        beside = tuple(
            f"{method_name(m['label'])}, seed {s.seed}, in round {_rounds(s)}" for m, s in others
        )
        return dataclasses.replace(progress, now=now, round=_rounds(seed), beside=beside)

    def values(self) -> dict[str, Any]:
        """What the page shows; as it was before where files are just being written."""
        with self._lock:
            version = self.version()
            if self._values is None or self._values["live"]["version"] != version:
                try:
                    progress = self.progress()
                    made = content(results.load([self.folder.path]))
                except HoldfastError:
                    if self._values is None:
                        raise
                    return self._values
                live = {"version": version, "every": self.every, "progress": progress.in_words()}
                self._values = made | {"live": live}
            return self._values


def _rounds(seed: SeedFolder) -> int:
    return (seed.path / "history.jsonl").read_bytes().count(b"\n")


def _is_over(seed: SeedFolder) -> bool:
    return seed.sums_file.exists() or (seed.path / "failed.json").exists()


def _repeats(values: dict[str, Any]) -> int:
    """How often each method is run: seeds, of each split if there are several."""
    partition = values.get("partition")
    given = partition if isinstance(partition, dict) else {}
    splits = len(given["splits"]) if "splits" in given else given.get("repeats", 1)
    seeds = values.get("seeds", 1)
    return splits * (seeds if isinstance(seeds, int) else len(seeds))


def server(watched: Watched, port: int = 0) -> ThreadingHTTPServer:
    """A server of the page, on this machine alone; any free port unless given."""
    try:
        return ThreadingHTTPServer((HOST, port), functools.partial(_Answer, watched))
    except OSError as error:
        said = (error.strerror or str(error)).lower()
        raise HoldfastError(f"watch: port {port}: {said}; give another one with --port.") from None


class _Answer(BaseHTTPRequestHandler):
    def __init__(self, watched: Watched, *about: Any) -> None:
        self._watched = watched
        super().__init__(*about)

    def do_GET(self) -> None:
        """The page, or its values if they are new."""
        # A page of somebody else's that has its name lead here is not to read a run.
        host = (self.headers.get("Host") or "").partition(":")[0]
        asked = urllib.parse.urlsplit(self.path)
        if host not in (HOST, "localhost"):
            self._send("not here", "text/plain", HTTPStatus.FORBIDDEN)
        elif asked.path == "/":
            self._page()
        elif asked.path == "/values.json":
            self._new_values(urllib.parse.parse_qs(asked.query).get("after", [""])[0])
        else:
            self._send("nothing is here", "text/plain", HTTPStatus.NOT_FOUND)

    def _page(self) -> None:
        try:
            text = page.filled(self._watched.values())
        except HoldfastError as error:  # nothing to show yet
            title = html.escape(self._watched.folder.path.resolve().name)
            why = html.escape(str(error))
            text = _WAITING.format(title=title, why=why, every=self._watched.every)
        self._send(text, "text/html")

    def _new_values(self, known: str) -> None:
        values = self._watched.values()
        if values["live"]["version"] == known:
            self._send("", "application/json", HTTPStatus.NO_CONTENT)
        else:
            self._send(page.as_json(values), "application/json")

    def _send(self, text: str, kind: str, status: HTTPStatus = HTTPStatus.OK) -> None:
        raw = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if raw:
            self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: Any) -> None:
        """Nothing: a terminal full of requests helps nobody."""
