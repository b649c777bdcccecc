"""A whole comparison: four methods with three seeds to a target accuracy, start-up included.

Every side runs what `whole.toml` describes, in one process that it may divide as it likes. holdfast's
side is the command as a user gives it, page and verdict included, with an empty cache of compiled
programs and then with a full one.
"""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

from problems import DIGITS
from sides import HERE, SIDES, Failed, call, compare
from whole import CHECKED, METHODS

EXPERIMENT = HERE / "whole.toml"
TARGET = 0.9
PATIENCE = 900  # seconds for one side
PEERS = {"torch": ("1", "2"), "pfl": ("1", "2"), "flower": ("",)}


def write_tasks(folder: Path, rounds: int, seeds: int) -> None:
    """A task for every seed, the test set, and holdfast's own parameters after the first rounds."""
    import protocol
    from run_holdfast import flat

    import holdfast as hf
    from holdfast.config import build
    from holdfast.config.file import read
    from holdfast.engine.plan import draw
    from holdfast.engine.setup import checked

    study = build.study(read(EXPERIMENT))
    data = study.datasets[0]
    np.savez(folder / "test.npz", x=np.asarray(data.test.x), y=np.asarray(data.test.y))
    after: dict[str, np.ndarray] = {}
    for seed in range(seeds):
        setup = checked(study.experiment(study.methods[0], seed))
        clients, batches = setup.clients, setup.batches
        cohorts = [draw(setup.cohort, batches, seed, t) for t in range(rounds)]
        slots = [batches.slots(t, ids) for t, ids in enumerate(cohorts)]
        steps = max(np.shape(one.batches)[1] for one in slots)
        protocol.Task(
            problem=DIGITS,
            x=np.asarray(clients.examples.x),
            y=np.asarray(clients.examples.y),
            offsets=np.asarray(clients.offsets),
            params=flat(setup.params),
            cohorts=np.stack(cohorts),
            batches=np.stack([_padded(np.asarray(one.batches), steps) for one in slots]),
            counts=np.stack([np.asarray(one.steps) for one in slots]),
        ).save(folder / f"seed-{seed}.npz")
        for method in study.methods:
            run = hf.simulate(study.experiment(method, seed), rounds=CHECKED, progress=False)
            found = flat(run.params)
            after |= {f"{method.label}-{seed}:{name}": a for name, a in found.items()}
    np.savez(folder / "holdfast.npz", **after)


def _padded(batches: np.ndarray, steps: int) -> np.ndarray:
    wider = [(0, 0)] * batches.ndim
    wider[1] = (0, steps - batches.shape[1])
    return np.pad(batches, wider, constant_values=-1)


@dataclasses.dataclass(frozen=True)
class Compared:
    """Of one side: seconds in all, accuracy after every round, how far its first rounds are from ours."""

    seconds: float
    accuracy: dict[str, list[float]]
    difference: float = 0.0

    def row(self, side: str, variant: str) -> dict[str, Any]:
        """For the table; rounds to the target are means over seeds, None where a run did not get there."""
        reached = {}
        for method in METHODS:
            runs = [a for run, a in self.accuracy.items() if run.startswith(f"{method}-")]
            rounds = [_reached(accuracy) for accuracy in runs]
            reached[method] = None if None in rounds else float(np.mean(rounds))
        row = {"side": side, "variant": variant, "seconds": self.seconds, "reached": reached}
        return row | {"difference": self.difference}


def _reached(accuracy: list[float]) -> int | None:
    there = np.flatnonzero(np.array(accuracy) >= TARGET)
    return int(there[0]) + 1 if len(there) else None


def of_holdfast(folder: Path, cache: Path, rounds: int, seeds: int) -> Compared:
    """`holdfast run`, as a user would wait for it."""
    made = Path(tempfile.mkdtemp(dir=folder))
    command = [sys.executable, "-m", "holdfast", "run", str(EXPERIMENT), "--out", str(made / "run")]
    command += ["--set", f"rounds={rounds}", "--set", f"seeds={seeds}"]
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    began = time.time()
    subprocess.run(command, env=environment, cwd=made, check=True, capture_output=True)
    seconds = time.time() - began
    accuracy = {}
    for method in METHODS:
        for seed in range(seeds):
            lines = (made / f"run/methods/{method}/seed-{seed}/history.jsonl").read_text()
            accuracy[f"{method}-{seed}"] = [json.loads(r)["accuracy"] for r in lines.splitlines()]
    shutil.rmtree(made)
    return Compared(seconds, accuracy)


def of_peer(name: str, variant: str, folder: Path, rounds: int, seeds: int) -> Compared | Failed:
    """One side in its own environment."""
    side, out = SIDES[name], folder / f"whole-{name}-{variant}"
    environment = os.environ | {"PYTHONPATH": str(HERE / "peers"), "PYTHONWARNINGS": "ignore"}
    script = HERE / "peers" / f"whole_{name}.py"
    command = [str(side.interpreter), str(script), str(folder), "--rounds", str(rounds)]
    command += [
        "--seeds",
        str(seeds),
        "--variant",
        variant,
        "--out",
        str(out),
        "--started",
        repr(time.time()),
    ]
    if failed := call(command, environment, folder, PATIENCE):
        return failed
    found = json.loads(out.with_suffix(".json").read_text())
    with np.load(out.with_suffix(".npz")) as theirs, np.load(folder / "holdfast.npz") as ours:
        difference = max(
            compare(_of(theirs, run), _of(ours, run), _first(folder, run)).of_leaf
            for run in found["accuracy"]
        )
    return Compared(found["seconds"], found["accuracy"], difference)


def _of(file: Any, run: str) -> dict[str, np.ndarray]:
    return {n.removeprefix(f"{run}:"): file[n] for n in file.files if n.startswith(f"{run}:")}


def _first(folder: Path, run: str) -> dict[str, np.ndarray]:
    with np.load(folder / f"seed-{run.rsplit('-', 1)[1]}.npz") as file:
        return {n.removeprefix("params:"): file[n] for n in file.files if ":" in n}


def measure(
    folder: Path, peers: list[str], missing: dict[str, str], quick: bool
) -> list[dict[str, Any]]:
    """A row for every side; holdfast's first. Quick: one seed and a third of the rounds."""
    rounds, seeds = (DIGITS.rounds // 3, 1) if quick else (DIGITS.rounds, 3)
    command = [sys.executable, str(HERE / "comparison.py"), str(folder), str(rounds), str(seeds)]
    subprocess.run(command, check=True)
    rows = []
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        for variant in ("", "second start"):
            rows.append(of_holdfast(folder, Path(cache), rounds, seeds).row("holdfast", variant))
    for name in (n for n in PEERS if n in peers):
        if why := missing.get(SIDES[name].environment):
            rows.append({"side": name, "why": why})
            continue
        variants = PEERS[name][: 1 if quick else None]
        found = [(v, of_peer(name, v, folder, rounds, seeds)) for v in variants]
        ran = [(v, f) for v, f in found if isinstance(f, Compared)]
        failed = [f for _, f in found if isinstance(f, Failed)]
        if ran:
            variant, best = min(ran, key=lambda one: one[1].seconds)
            rows.append(best.row(name, variant))
        else:
            rows.append({"side": name, "why": failed[0].why})
    return [row | {"rounds": rounds, "seeds": seeds} for row in rows]


if __name__ == "__main__":
    write_tasks(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
