"""A run is a folder: what is in it, written and read here and nowhere else.

experiment.toml     the experiment file as used
environment.json    versions, machine, command
split.json          who has how many examples of which label
methods.json        the methods in their order, and what each averages over; target, metric, window;
                    directions of metrics if declared
experiment.sha256   checksums of experiment.toml, methods.json and split.json
log.txt             what happened when
methods/fedavg/seed-0/  (with several splits of the data methods/fedavg/split-0/seed-0/)
    history.jsonl       one line per round: what was measured, bytes, clients
    timing.jsonl        one line per round: seconds to run and to compile (all that may differ when
                        a run is repeated)
    ledger.jsonl        one line per round: who took part, bits down and up; who was left out, if anyone
    details.jsonl       one line per round in which there is some: what was measured that is more than one
                        number, such as of every pair of clients
    start.json          what was measured of the model before the first round
    chosen.json         with early stopping: the best round and by what, the round all results are of, and
                        why the run ended
    mask.json           with mask = "auto": layers and their drift in the first round, and which are masked
    clients.json        every client's own result at the end
    confidence.json     with [conformal]: coverage and size of sets by client, by class and over kappa
    privacy.json        with [privacy]: the guarantee, and the noise it took
    params.safetensors  the server's model, by the names of its parameters, and all that hf.load needs
    personal.safetensors
                        every client's own model by its name, where clients use others than the server's
    predictions.safetensors
                        of every client's own test rows, what the model it would use predicts
    timing.sha256, complete.sha256
                        checksums of the files above; the last to be written
    checkpoints/        to go on from
"""

import dataclasses
import datetime
import hashlib
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy

from holdfast import processes
from holdfast.config.file import ExperimentFile, read
from holdfast.errors import HoldfastError, file_errors_said
from holdfast.metrics.metric import Declared, directions
from holdfast.record.checkpoint import saved_rounds
from holdfast.record.chosen_mask import ChosenMask
from holdfast.record.files import PARTIAL, checksums, damaged, write_whole
from holdfast.record.history import DETAILS, History, Record
from holdfast.record.ledger import Entry, Sent
from holdfast.record.lock import LOCK
from holdfast.record.state import RunState
from holdfast.record.versions import versions
from holdfast.runs import predictions
from holdfast.runs.predictions import Predictions
from holdfast.runs.reading import damage, read_json, read_lines

_TIMES = ("seconds", "compile_seconds")
# What two runs of the same experiment have alike; seconds they have not.
_RESULTS = ("history.jsonl", "ledger.jsonl", "clients.json", "params.safetensors")
# What older runs have not; all others have checksums of it too.
_LATER = (
    "predictions.safetensors",
    "personal.safetensors",
    "start.json",
    "chosen.json",
    "mask.json",
    "details.jsonl",
    "confidence.json",
    "privacy.json",
)
_TIMING = ("timing.jsonl",)
_BEGINNING = ("experiment.toml", "split.json", "methods.json")
_OWN_SUM = "sha256"  # in environment.json, of all else in it
_SOURCE = "experiment_folder"  # in environment.json, from the run's folder


@dataclasses.dataclass(frozen=True)
class SeedFolder:
    """The files of one method and one seed, of one split of the data."""

    path: Path
    split: int | None = None  # None where there is one split, and no folder for it

    @property
    def checkpoints(self) -> Path:
        """Where it is saved to go on from."""
        return self.path / "checkpoints"

    @property
    def params_file(self) -> Path:
        """The final model."""
        return self.path / "params.safetensors"

    @property
    def personal_file(self) -> Path:
        """Every client's own final model; there if clients use others than the server's."""
        return self.path / "personal.safetensors"

    @property
    def sums_file(self) -> Path:
        """Checksums of the results; written last, so that its being there means the run has ended."""
        return self.path / "complete.sha256"

    @property
    def ended(self) -> bool:
        """Whether the run reached its last round; older ones have a model and no checksums."""
        return self.sums_file.exists() or self.params_file.exists()

    @property
    def complete(self) -> bool:
        """Whether the run reached its last round, and all it wrote is as it wrote it."""
        return self.sums_file.exists() and not self.damaged()

    def damaged(self) -> list[str]:
        """Files of a run that has ended which are not as it wrote them."""
        if not self.sums_file.exists():
            return []
        later = [name for name in _LATER if self._has(name)]
        found = damaged(self.sums_file, (*_RESULTS, *later))
        return found + damaged(self.path / "timing.sha256", _TIMING)

    def _has(self, name: str) -> bool:
        """Whether the run wrote this file, or it is there anyway."""
        listed = self.sums_file.read_text(errors="replace") if self.sums_file.exists() else ""
        return (self.path / name).exists() or f"  {name}\n" in listed

    def _refuse_damaged(self, *names: str) -> None:
        bad = [name for name in self.damaged() if name in names]
        if bad:
            raise damage(self.path / bad[0], "its checksum does not fit", self._remedy)

    @property
    def _remedy(self) -> str:
        depth = 2 if self.split is None else 3
        return f"`holdfast resume {self.path.parents[depth]}` writes it again from the last save"

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
        details = self.path / "details.jsonl"
        if state.history.details:
            write_whole(details, _json_lines(state.history.details))
        elif processes.is_first():
            details.unlink(missing_ok=True)

    def record(self, state: RunState) -> None:
        """One more round."""
        record, entry = state.history[-1], state.ledger.entries[-1]
        self._append("history", _without_time(record))
        self._append("timing", _time_alone(record))
        self._append("ledger", _entry(entry))
        for details in History((record,)).details:
            self._append("details", details)

    def _append(self, name: str, line: Record) -> None:
        if not processes.is_first():
            return
        path = self.path / f"{name}.jsonl"
        with file_errors_said(path=path), open(path, "a", encoding="utf-8") as file:
            file.write(_json_lines([line]))

    def finish(
        self,
        model: bytes,
        clients: dict[str, Any],
        predicted: Predictions | None = None,
        start: dict[str, Any] | None = None,
        personal: bytes | None = None,
        chosen: dict[str, Any] | None = None,
        mask: ChosenMask | None = None,
        confidence: list[dict[str, Any]] | None = None,
        privacy: dict[str, Any] | None = None,
    ) -> None:
        """The results, models as they are saved; their checksums last.

        Without test rows at clients there are no predictions.
        """
        if not processes.is_first():
            return
        # Not of results that are just being written.
        self.sums_file.unlink(missing_ok=True)
        write_whole(self.path / "clients.json", json.dumps(clients))
        write_whole(self.params_file, model)
        self.personal_file.unlink(missing_ok=True)
        if personal is not None:
            write_whole(self.personal_file, personal)
        if chosen is not None:
            write_whole(self.path / "chosen.json", json.dumps(chosen))
        if mask is not None:
            write_whole(self.path / "mask.json", mask.to_json())
        if confidence is not None:
            write_whole(self.path / "confidence.json", json.dumps({"measured": confidence}))
        if privacy is not None:
            write_whole(self.path / "privacy.json", json.dumps(privacy))
        if start is not None:
            write_whole(self.path / "start.json", json.dumps(start, default=_plain))
        if predicted is not None:
            write_whole(self.path / "predictions.safetensors", predicted.to_bytes())
        results = (*_RESULTS, *(name for name in _LATER if (self.path / name).exists()))
        for sums, names in ((self.path / "timing.sha256", _TIMING), (self.sums_file, results)):
            write_whole(sums, checksums({name: (self.path / name).read_bytes() for name in names}))

    def history(self, directions: Declared = ()) -> History:
        """Every round: what was measured, with its seconds; which way it is better, if declared."""
        self._refuse_damaged("history.jsonl", "timing.jsonl")
        measured, seconds = (
            read_lines(self.path / name, self._remedy) for name in ("history.jsonl", "timing.jsonl")
        )
        # A kill may come between the two.
        if abs(len(measured) - len(seconds)) > 1:
            raise damage(
                self.path / "timing.jsonl",
                f"{len(seconds)} rounds, and {len(measured)} in history.jsonl",
                self._remedy,
            )
        self._refuse_other_rounds("history.jsonl", measured, _without_time)
        self._refuse_other_rounds("timing.jsonl", seconds, _time_alone)
        both = zip(measured, seconds, strict=False)
        return History(tuple({**m, **s} for m, s in both), directions)

    def _refuse_other_rounds(
        self, name: str, found: list[Record], part: Callable[[Record], Record]
    ) -> None:
        """A run that has not ended has no checksums yet, but its saves have its rounds."""
        if self.sums_file.exists():
            return
        for record, saved in zip(found, saved_rounds(self.checkpoints), strict=False):
            if _json_lines([record]) != _json_lines([part(saved)]):
                what = f"round {saved['round']} is not that of the save"
                raise damage(self.path / name, what, self._remedy)

    def details(self) -> list[Record]:
        """What was measured that is more than one number, of the rounds in which there is some."""
        self._refuse_damaged("details.jsonl")
        return read_lines(self.path / "details.jsonl", self._remedy, every_round=False)

    def start(self) -> dict[str, Any]:
        """What was measured of the model before the first round; empty if the run has not ended, or is
        older."""
        self._refuse_damaged("start.json")
        path = self.path / "start.json"
        return read_json(path, self._remedy) if self.ended and path.exists() else {}

    def chosen(self) -> dict[str, Any]:
        """By early stopping: `best_round` by `metric` and its `value`, the `kept_round` that all results are
        of, and why it `stopped`; empty without, or if the run has not ended."""
        self._refuse_damaged("chosen.json")
        path = self.path / "chosen.json"
        return read_json(path, self._remedy) if self.ended and path.exists() else {}

    def mask(self) -> ChosenMask | None:
        """What `mask = "auto"` came to; None without, or if the run has not ended."""
        self._refuse_damaged("mask.json")
        path = self.path / "mask.json"
        if not (self.ended and path.exists()):
            return None
        return ChosenMask.from_json(json.dumps(read_json(path, self._remedy)))

    def ledger(self) -> list[Entry]:
        """Every round: who took part, and the bits each received and returned."""
        self._refuse_damaged("ledger.jsonl")
        lines = read_lines(self.path / "ledger.jsonl", self._remedy)
        return [_read_entry(line) for line in lines]

    def clients(self) -> dict[str, Any]:
        """Every client's own result at the end; empty if the run has not ended."""
        self._refuse_damaged("clients.json")
        path = self.path / "clients.json"
        return read_json(path, self._remedy) if path.exists() else {}

    def confidence(self) -> list[dict[str, Any]]:
        """What was measured of prediction sets or intervals at the end; empty without `[conformal]`, or if
        the run has not ended."""
        self._refuse_damaged("confidence.json")
        path = self.path / "confidence.json"
        found = read_json(path, self._remedy) if self.ended and path.exists() else {}
        return list(found.get("measured", ()))

    def privacy(self) -> dict[str, Any]:
        """The guarantee of a run that has ended, and the noise it took; empty without `[privacy]`."""
        self._refuse_damaged("privacy.json")
        path = self.path / "privacy.json"
        return dict(read_json(path, self._remedy)) if self.ended and path.exists() else {}

    def params(self) -> dict[str, np.ndarray]:
        """The final model by the names of its parameters."""
        self._refuse_damaged("params.safetensors")
        return safetensors.numpy.load_file(self.params_file)

    def check_models(self) -> None:
        """Refuse models that are not as they were written."""
        self._refuse_damaged("params.safetensors", "personal.safetensors")

    def predictions(self) -> Predictions | None:
        """What was predicted of every client's test rows; None of a run that has not ended or is older."""
        self._refuse_damaged("predictions.safetensors")
        path = self.path / "predictions.safetensors"
        return predictions.read(path) if self.ended and path.exists() else None


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The files of one experiment: several methods, several seeds each."""

    path: Path

    @classmethod
    def create(
        cls,
        path: Path,
        experiment: str,
        split: dict[str, Any],
        methods: dict[str, Any],
        source: Path | None = None,
    ) -> "RunFolder":
        """An empty folder, with all that is known before the first round.

        `source` is the folder of the experiment file, which its paths are relative to.
        """
        if processes.is_first():
            path.mkdir(parents=True, exist_ok=True)
        folder = cls(path)
        described = _described(split, methods)
        where = None if source is None else os.path.relpath(source.resolve(), path.resolve())
        write_whole(path / "environment.json", _environment_text(where))
        for name, text in described.items():
            write_whole(path / name, text)
        write_whole(folder.sums_file, checksums({"experiment.toml": experiment, **described}))
        # Last: its being there is what makes the folder a run.
        write_whole(folder.experiment_file, experiment)
        return folder

    def mend(self, split: dict[str, Any], methods: dict[str, Any]) -> list[str]:
        """Write again what is damaged of that which is known before the first round; its names."""
        described = _described(split, methods)
        bad = {*damaged(self.sums_file, described), *(n for n in described if self._unreadable(n))}
        for name in sorted(bad):
            write_whole(self.path / name, described[name])
        if bad or not self.sums_file.exists():
            kept = {name: (self.path / name).read_bytes() for name in _BEGINNING}
            write_whole(self.sums_file, checksums(kept))
        if self._unreadable("environment.json"):
            write_whole(self.path / "environment.json", _environment_text())
            bad.add("environment.json")
        return sorted(bad)

    def _unreadable(self, name: str) -> bool:
        try:
            self.environment() if name == "environment.json" else read_json(self.path / name, "")
        except HoldfastError:
            return True
        return False

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
        if not folder._has_begun:
            raise HoldfastError(
                f"{path} has an experiment.toml and no run; start one with `holdfast run "
                f"{folder.experiment_file}`, or give a folder that it made, such as runs/digits."
            )
        if damaged(folder.sums_file, ["experiment.toml"]):
            raise HoldfastError(
                f"{folder.experiment_file} is not what the run was begun with (its checksum does not fit); "
                f"restore it, or delete {folder.sums_file.name} if it is right as it stands."
            )
        return folder

    @property
    def _has_begun(self) -> bool:
        """Whether something is there that only a run writes; any of it may be missing and is mended."""
        return (
            self.sums_file.exists()
            or (self.path / "methods.json").exists()
            or any(self.path.glob("methods/**/seed-*"))
        )

    @property
    def is_remainder(self) -> bool:
        """Whether this is what a run leaves that was killed before it was described: a beginning at most."""
        begun = {*_BEGINNING, "environment.json", self.sums_file.name, LOCK}
        found = {p.name for p in self.path.iterdir()} if self.path.is_dir() else {"a file"}
        return "experiment.toml" not in found and all(
            name.removesuffix(PARTIAL) in begun or name.startswith(f"{LOCK}-") for name in found
        )

    @property
    def experiment_file(self) -> Path:
        """The experiment file as used."""
        return self.path / "experiment.toml"

    def experiment(self, trusted: bool = False) -> ExperimentFile:
        """The experiment as used; paths in it are relative to where its file was."""
        try:
            where = self.environment().get(_SOURCE)
        except HoldfastError:  # damaged: `mend` writes it again, and says so
            where = None
        folder = None if where is None else (self.path / where).resolve()
        return dataclasses.replace(read(self.experiment_file, trusted=trusted), folder=folder)

    @property
    def sums_file(self) -> Path:
        """Checksums of what is known before the first round; older folders have none."""
        return self.path / "experiment.sha256"

    @property
    def report_file(self) -> Path:
        """Where the report page goes unless told otherwise."""
        return self.path / "report.html"

    def seed_folder(self, method_folder: str, seed: int, split: int | None = None) -> SeedFolder:
        """The files of one method and one seed, of one split where there are several."""
        place = self.path / "methods" / method_folder
        if split is not None:
            place = place / f"split-{split}"
        return SeedFolder(place / f"seed-{seed}", split)

    def description(self) -> dict[str, Any]:
        """What `compare` and `report` need to know: the methods in their order, target, metric, window,
        and whether greater is better of metrics that were declared."""
        about = self._read("methods.json")
        listed = about.get("methods")
        if not isinstance(listed, list) or not {"target", "metric"} <= about.keys():
            raise damage(self.path / "methods.json", "it lists no methods", self._remedy)
        return about

    def environment(self) -> dict[str, Any]:
        """Versions and machine of the run."""
        path = self.path / "environment.json"
        about = read_json(path, self._remedy)
        if about.pop(_OWN_SUM, _own_sum(about)) != _own_sum(about):
            raise damage(path, "its checksum does not fit", self._remedy)
        return about

    def split(self) -> dict[str, Any]:
        """Who has how many examples of which label."""
        return self._read("split.json")

    def _read(self, name: str) -> dict[str, Any]:
        if damaged(self.sums_file, [name]):
            raise damage(self.path / name, "its checksum does not fit", self._remedy)
        return read_json(self.path / name, self._remedy)

    @property
    def _remedy(self) -> str:
        return f"`holdfast resume {self.path}` writes it again"

    def seeds(self, method_folder: str) -> list[SeedFolder]:
        """The seeds of a method that have begun, in order; those of one split after those of another."""
        place = self.path / "methods" / method_folder
        found = [SeedFolder(p) for p in place.glob("seed-*")]
        for p in place.glob("split-*/seed-*"):
            found.append(SeedFolder(p, int(p.parent.name.removeprefix("split-"))))
        begun = [s for s in found if s.ended or (s.path / "history.jsonl").exists()]
        return sorted(begun, key=lambda f: (f.split or 0, f.seed))

    def log(self, line: str) -> None:
        """One line with the time before it."""
        if not processes.is_first():
            return
        now = datetime.datetime.now().astimezone().isoformat(timespec="seconds")
        path = self.path / "log.txt"
        with file_errors_said(path=path), open(path, "a", encoding="utf-8") as file:
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
    algorithms: Mapping[str, str] | None = None,
    roles: Mapping[str, str] | None = None,
    splits: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Labels and folders of methods, of what sweep they are a point, after which local steps clients use
    their models if they adapt, what their objective is a mean over, what the file calls their algorithm,
    which end of a comparison they are if any, and by what methods are compared.

    Directions of metrics are written only where some are declared, splits only where there are several.
    """
    more = {
        "point": points or {},
        "adapt": adapt or {},
        "averages_over": objectives or {},
        "algorithm": algorithms or {},
        "role": roles or {},
    }
    listed = [
        {"label": label, "folder": folder}
        | {key: known[label] for key, known in more.items() if known.get(label)}
        for label, folder in methods
    ]
    about: dict[str, Any] = {
        "methods": listed,
        "target": target,
        "metric": metric,
        "window": window,
    }
    about |= {"splits": dict(splits)} if splits else {}
    declared = dict(directions(greater_is_better))
    return about | {"greater_is_better": declared} if declared else about


def environment() -> dict[str, Any]:
    """What a run depends on besides its experiment file."""
    import jax

    return {
        "command": " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        "started": datetime.datetime.now().astimezone().isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "packages": {name: v for name, v in versions().items() if name != "python"},
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


def _described(split: dict[str, Any], methods: dict[str, Any]) -> dict[str, str]:
    return {"split.json": json.dumps(split), "methods.json": json.dumps(methods, indent=2) + "\n"}


def _environment_text(source: str | None = None) -> str:
    about = environment() | ({} if source is None else {_SOURCE: source})
    return json.dumps(about | {_OWN_SUM: _own_sum(about)}, indent=2) + "\n"


def _own_sum(about: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _without_time(record: Record) -> Record:
    return {name: value for name, value in record.items() if name not in (*_TIMES, DETAILS)}


def _time_alone(record: Record) -> Record:
    return {"round": record["round"], **{n: record[n] for n in _TIMES if n in record}}


def _entry(entry: Entry) -> Record:
    return {
        "round": entry.round,
        "clients": entry.clients,
        "bits_down": entry.bits_down,
        "bits_up": entry.bits_up,
        **({"left_out": entry.left_out} if entry.left_out else {}),
        **({"beside": [dataclasses.asdict(s) for s in entry.beside]} if entry.beside else {}),
    }


def _read_entry(line: Record) -> Entry:
    plain: dict[str, Any] = _with_tuples(line)
    beside = tuple(Sent(**_with_tuples(sent)) for sent in plain.pop("beside", ()))
    return Entry(**plain, beside=beside)


def _with_tuples(line: Mapping[str, Any]) -> dict[str, Any]:
    return {n: tuple(v) if isinstance(v, list) else v for n, v in line.items()}
