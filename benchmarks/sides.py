"""The sides of the comparison, their environments, and running one of them once."""

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
ENVIRONMENTS = ROOT / ".venv-bench"
TOLERANCE = 1e-4  # of a leaf's largest entry
OF_THE_WAY = 1e-2  # of the distance from the first parameters
PATIENCE = 90  # seconds for one run of a side


@dataclasses.dataclass(frozen=True)
class Side:
    """One peer: the script that runs it, the environment it runs in, and what is tried, best taken."""

    name: str
    title: str
    environment: str = ""  # holdfast's own if empty
    variants: tuple[str, ...] = ("",)
    says: str = "{}"  # of a variant, in a table

    @property
    def script(self) -> Path:
        """What its interpreter is given."""
        return HERE / "peers" / f"run_{self.name}.py"

    @property
    def interpreter(self) -> Path:
        """Of its own environment."""
        if not self.environment:
            return Path(sys.executable)
        return ENVIRONMENTS / self.environment / "bin" / "python"


SIDES = {
    side.name: side
    for side in (
        Side("holdfast", "holdfast"),
        Side("torch", "PyTorch loop", "torch", ("1", "2"), "threads {}"),
        Side("torch_vmap", "torch.func vmap", "torch", ("1", "2"), "threads {}"),
        Side("pfl", "pfl-research", "pfl", ("1", "2"), "threads {}"),
        Side("flower", "Flower simulation", "flower"),
        Side("fedjax", "FedJAX", "fedjax", ("xla", "patches"), "convolution {}"),
        Side("drjax", "DrJAX", "drjax", ("1", "2"), "devices {}"),
    )
}


def variants_for(side: Side, problem: str) -> tuple[str, ...]:
    """What is tried; how to convolve only where something is convolved."""
    return ("",) if side.name == "fedjax" and problem != "cnn" else side.variants


def build(environment: str, python: str) -> str:
    """Make a peer's environment if it is not there; '' or why it cannot be."""
    folder = ENVIRONMENTS / environment
    wanted = HERE / "peers" / f"{environment}.txt"
    done = folder / "installed.txt"
    if done.exists() and done.read_text() == wanted.read_text():
        return ""
    steps = (
        [python, "-m", "venv", str(folder)],
        [str(folder / "bin" / "pip"), "install", "--quiet", "-r", str(wanted)],
    )
    for step in steps:
        print(f"  building the environment of {environment}", flush=True)
        ended = subprocess.run(step, capture_output=True, text=True)
        if ended.returncode:
            return f"not installable: {last_line(ended.stderr)}"
    done.write_text(wanted.read_text())
    return ""


def last_line(text: str) -> str:
    """The last line that says something, without folders of this machine."""
    noise = ("For simplicity, JAX has removed", "---", "[notice]")
    lines = [line.strip() for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(noise)]
    said = lines[-1] if lines else "no message"
    return said.replace(str(ROOT), "").replace(str(Path.home()), "~")[:160]


@dataclasses.dataclass(frozen=True)
class Found:
    """What one run of a side gave."""

    variant: str
    cold: float
    rounds: tuple[float, ...]
    memory: int
    params: dict[str, np.ndarray]
    about: dict[str, Any]

    @property
    def seconds(self) -> float:
        """Of a round in steady state: the fastest, since what others do on a machine only adds."""
        return float(np.min(self.rounds))

    @property
    def whole(self) -> float:
        """Of the whole run."""
        return self.cold + sum(self.rounds)


@dataclasses.dataclass(frozen=True)
class Failed:
    """Why a side has no numbers."""

    why: str


def call(
    command: list[str], environment: dict[str, str], folder: Path, patience: float
) -> Failed | None:
    """Run a side's command to its end; None, or why it has no numbers."""
    try:
        ended = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=patience
        )
    except subprocess.TimeoutExpired:
        return Failed(f"not done after {patience} s")
    return Failed(f"not running: {last_line(ended.stderr)}") if ended.returncode else None


def run(
    side: Side, task: Path, method: str, variant: str, rounds: int, folder: Path, cache: Path
) -> Found | Failed:
    """Run a side once, in a process of its own, with `cache` for compiled programs if it keeps any."""
    out = folder / f"{task.stem}-{method}-{side.name}-{variant}"
    environment = os.environ | {
        "XDG_CACHE_HOME": str(cache),
        "PYTHONPATH": os.pathsep.join(_imports(side)),
        "PYTHONWARNINGS": "ignore",
        "JAX_PLATFORMS": "cpu",
    }
    # An installed package has its bytecode; without the last, ours would be compiled in every start.
    own = (
        "JAX_NUM_CPU_DEVICES",
        "JAX_COMPILATION_CACHE_DIR",
        "XLA_FLAGS",
        "PYTHONDONTWRITEBYTECODE",
    )
    for name in own:
        environment.pop(name, None)
    command = [str(side.interpreter), str(side.script), str(task), "--method", method]
    command += ["--rounds", str(rounds), "--variant", variant, "--out", str(out)]
    command += ["--started", repr(time.time())]
    if failed := call(command, environment, folder, PATIENCE):
        return failed
    measured = json.loads(out.with_suffix(".json").read_text())
    with np.load(out.with_suffix(".npz")) as file:
        params = dict(file)
    return Found(
        variant,
        measured["cold"],
        tuple(measured["rounds"]),
        measured["memory"],
        params,
        measured["about"],
    )


def _imports(side: Side) -> list[str]:
    # Workers of a peer import its client by name. holdfast is found where this process found it.
    mine = [p for p in sys.path if p.endswith("src")] if not side.environment else []
    return [str(HERE / "peers"), *mine]


@dataclasses.dataclass(frozen=True)
class Difference:
    """How far a side's final parameters are from holdfast's."""

    of_leaf: float  # largest difference in a leaf over its largest entry
    of_way: float  # length of the difference over the length of the way from the first parameters

    @property
    def same(self) -> bool:
        """The same algorithm was timed."""
        return self.of_leaf <= TOLERANCE and self.of_way <= OF_THE_WAY


def compare(params: Any, ours: Any, first: Any) -> Difference:
    """Of a side's final parameters and holdfast's, which both began at `first`."""
    if set(params) != set(ours):
        return Difference(np.inf, np.inf)
    largest = max(float(np.abs(params[n] - ours[n]).max() / np.abs(ours[n]).max()) for n in ours)
    apart = sum(float(np.sum((params[n] - ours[n]) ** 2)) for n in ours)
    way = sum(float(np.sum((first[n] - ours[n]) ** 2)) for n in ours)
    found = Difference(largest, float(np.sqrt(apart / max(way, 1e-30))))
    finite = np.isfinite([found.of_leaf, found.of_way]).all()
    return found if finite else Difference(np.inf, np.inf)
