"""A run is a folder: what is in it, written and read here and nowhere else.

experiment.toml     the experiment file as used
environment.json    versions, machine, command
split.json          who has how many examples of which label
methods.json        the methods in their order, and what each averages over; target, metric, window;
                    directions of metrics if declared
log.txt             what happened when
methods/fedavg/seed-0/
    history.jsonl       one line per round: what was measured, bytes, clients
    timing.jsonl        one line per round: seconds to run and to compile (all that may differ when
                        a run is repeated)
    ledger.jsonl        one line per round: who took part, bits down and up; who was left out, if anyone
    clients.json        every client's own result at the end
    params.safetensors  the model, by the names of its parameters
    checkpoints/        to go on from
"""

import dataclasses
import datetime
import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from holdfast import processes
from holdfast.errors import HoldfastError
from holdfast.metrics.metric import Declared, directions
from holdfast.record.files import PARTIAL, write_whole
from holdfast.record.history import History, Record
from holdfast.record.ledger import Entry
from holdfast.record.lock import LOCK
from holdfast.record.state import RunState
from holdfast.trees import Tree, paths

_TIMES = ("seconds", "compile_seconds")
_PACKAGES = ("holdfast", "jax", "jaxlib", "flax", "optax", "numpy", "scikit-learn")


@dataclasses.dataclass(frozen=True)
class SeedFolder:
    """The files of one method and one seed."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        """Where it is saved to go on from."""
        return self.path / "checkpoints"

    @property
    def params_file(self) -> Path:
        """The final model; written last, so that its being there means the run is complete."""
        return self.path / "params.safetensors"

    @property
    def complete(self) -> bool:
        """Whether the run reached its last round."""
        return self.params_file.exists()

    @property
    def seed(self) -> int:
        """Its seed, from its name."""
        return int(self.path.name.removeprefix("seed-"))

    def begin(self, state: RunState) -> None:
        """Files that hold exactly the rounds of this state, whatever was written after it."""
        self.path.mkdir(parents=True, exist_ok=True)
        history = [_without_time(record) for record in state.history]
        timing = [_time_alone(record) for record in state.history]
        ledger = [_entry(e) for e in state.ledger.entries]
        for name, lines in (("history", history), ("timing", timing), ("ledger", ledger)):
            write_whole(self.path / f"{name}.jsonl", _json_lines(lines))

    def record(self, state: RunState) -> None:
        """One more round."""
        record, entry = state.history[-1], state.ledger.entries[-1]
        self._append("history", _without_time(record))
        self._append("timing", _time_alone(record))
        self._append("ledger", _entry(entry))

    def _append(self, name: str, line: Record) -> None:
        if not processes.is_first():
            return
        with open(self.path / f"{name}.jsonl", "a", encoding="utf-8") as file:
            file.write(_json_lines([line]))

    def finish(self, params: Tree, clients: dict[str, Any]) -> None:
        """The results; the model last."""
        write_whole(self.path / "clients.json", json.dumps(clients))
        leaves = [np.asarray(a) for a in _leaves(params)]
        named = {n: np.ascontiguousarray(a) for n, a in zip(_names(params), leaves, strict=True)}
        write_whole(self.params_file, safetensors.numpy.save(named))

    def history(self, directions: Declared = ()) -> History:
        """Every round: what was measured, with its seconds; which way it is better, if declared."""
        measured = _read_lines(self.path / "history.jsonl")
        seconds = _read_lines(self.path / "timing.jsonl")
        both = zip(measured, seconds, strict=False)
        return History(tuple({**m, **s} for m, s in both), directions)

    def clients(self) -> dict[str, Any]:
        """Every client's own result at the end; empty if the run has not ended."""
        path = self.path / "clients.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def params(self) -> dict[str, np.ndarray]:
        """The final model by the names of its parameters."""
        return safetensors.numpy.load_file(self.params_file)


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The files of one experiment: several methods, several seeds each."""

    path: Path

    @classmethod
    def create(
        cls, path: Path, experiment: str, split: dict[str, Any], methods: dict[str, Any]
    ) -> "RunFolder":
        """An empty folder, with all that is known before the first round."""
        if processes.is_first():
            path.mkdir(parents=True, exist_ok=True)
        folder = cls(path)
        write_whole(path / "environment.json", json.dumps(environment(), indent=2) + "\n")
        write_whole(path / "split.json", json.dumps(split))
        write_whole(path / "methods.json", json.dumps(methods, indent=2) + "\n")
        # Last: its being there is what makes the folder a run.
        write_whole(folder.experiment_file, experiment)
        return folder

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """An existing one; refuses a folder that is none."""
        folder = cls(Path(path))
        if not folder.experiment_file.exists():
            what = (
                "is no run (it has no experiment.toml)"
                if folder.path.is_dir()
                else "does not exist"
            )
            raise HoldfastError(
                f"{path} {what}; give a folder that `holdfast run` made, such as runs/digits."
            )
        return folder

    @property
    def is_remainder(self) -> bool:
        """Whether this is what a run leaves that was killed before it was described: a beginning at most."""
        begun = {"environment.json", "split.json", "methods.json", "experiment.toml", LOCK}
        found = {p.name for p in self.path.iterdir()} if self.path.is_dir() else {"a file"}
        return "experiment.toml" not in found and all(
            name.removesuffix(PARTIAL) in begun or name.startswith(f"{LOCK}-") for name in found
        )

    @property
    def experiment_file(self) -> Path:
        """The experiment file as used."""
        return self.path / "experiment.toml"

    @property
    def report_file(self) -> Path:
        """Where the report page goes unless told otherwise."""
        return self.path / "report.html"

    def seed_folder(self, method_folder: str, seed: int) -> SeedFolder:
        """The files of one method and one seed."""
        return SeedFolder(self.path / "methods" / method_folder / f"seed-{seed}")

    def description(self) -> dict[str, Any]:
        """What `compare` and `report` need to know: the methods in their order, target, metric, window,
        and whether greater is better of metrics that were declared."""
        return json.loads((self.path / "methods.json").read_text())

    def environment(self) -> dict[str, Any]:
        """Versions and machine of the run."""
        return json.loads((self.path / "environment.json").read_text())

    def split(self) -> dict[str, Any]:
        """Who has how many examples of which label."""
        return json.loads((self.path / "split.json").read_text())

    def seeds(self, method_folder: str) -> list[SeedFolder]:
        """The seeds of a method that have begun, in order."""
        place = self.path / "methods" / method_folder
        found = [SeedFolder(p) for p in place.glob("seed-*") if (p / "history.jsonl").exists()]
        return sorted(found, key=lambda f: f.seed)

    def log(self, line: str) -> None:
        """One line with the time before it."""
        if not processes.is_first():
            return
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        with open(self.path / "log.txt", "a", encoding="utf-8") as file:
            file.write(f"{now} {line}\n")


def description(
    methods: Iterable[tuple[str, str]],
    target: float | None,
    metric: str,
    points: Mapping[str, Mapping[str, Any]] | None = None,
    greater_is_better: Declared = (),
    window: int = 1,
    adapt: Mapping[str, str] | None = None,
    objectives: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Labels and folders of methods, of what sweep they are a point, after which local steps clients use
    their models if they adapt, what their objective is a mean over, and by what methods are compared.

    Directions of metrics are written only where some are declared; older folders have none.
    """
    more = {"point": points or {}, "adapt": adapt or {}, "averages_over": objectives or {}}
    listed = [
        {"label": label, "folder": folder}
        | {key: known[label] for key, known in more.items() if known.get(label)}
        for label, folder in methods
    ]
    about = {"methods": listed, "target": target, "metric": metric, "window": window}
    declared = dict(directions(greater_is_better))
    return about | {"greater_is_better": declared} if declared else about


def environment() -> dict[str, Any]:
    """What a run depends on besides its experiment file."""
    import jax

    return {
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "started": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in _PACKAGES},
        "system": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "devices": [str(d) for d in jax.devices()],
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def _json_lines(records: Iterable[Record]) -> str:
    return "".join(json.dumps(record, default=_plain) + "\n" for record in records)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else list(value)


def _read_lines(path: Path) -> list[Record]:
    """The lines of a file; a last one cut short by a kill is not one."""
    if not path.exists():
        return []
    whole = path.read_text().split("\n")[:-1]
    return [json.loads(line) for line in whole]


def _without_time(record: Record) -> Record:
    return {name: value for name, value in record.items() if name not in _TIMES}


def _time_alone(record: Record) -> Record:
    return {"round": record["round"], **{n: record[n] for n in _TIMES if n in record}}


def _entry(entry: Entry) -> Record:
    return {
        "round": entry.round,
        "clients": entry.clients,
        "bits_down": entry.bits_down,
        "bits_up": entry.bits_up,
        **({"left_out": entry.left_out} if entry.left_out else {}),
    }


def _names(params: Tree) -> list[str]:
    names = paths(params)
    return [name or "params" for name in names]


def _leaves(params: Tree) -> list[Any]:
    import jax

    return jax.tree.leaves(jax.device_get(params))
