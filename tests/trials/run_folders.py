"""Trials of run folders: killed, damaged, without room, two at once. Each is a function of a seed."""

import contextlib
import os
import random
import shutil
import signal
import time
from pathlib import Path

from tests.trials import mounts
from tests.trials.command import Command, Outcome, run
from tests.trials.damage import KINDS, damage

FILE = """\
rounds = 14
{seeds}
[data]
name = "breast_cancer"

[partition]
name = "dirichlet"
clients = 6
concentration = 1.0

[model]
name = "logistic_regression"

[local]
learning_rate = 0.1
batch_size = 32
steps = 2

[cohort]
name = "fixed"
size = 3

[evaluate]
every = 5

[checkpoint]
every = 2

{storage}
[[algorithm]]
name = "scaffold"
{sweep}
"""
KINDS_OF_RUN = {
    "memory": {"seeds": "seeds = 2"},
    "disk": {"storage": "[storage]\nmemory = 0\n"},
    "sweep": {"sweep": '\n[sweep]\n"local.learning_rate" = [0.05, 0.1]'},
}
# What may differ when a run is repeated: seconds, machine, and who holds it.
DIFFERENT = {"timing.jsonl", "timing.sha256", "environment.json", "log.txt", "lock", "lock-1"}
DIFFERENT |= {"lock-2", "lock-3"}
RESUME = ("resume", "run", "--no-report")
# Extended at every moment of a run, and looked at by nobody.
UNREAD = {"log.txt", "lock"}


def results(folder: Path) -> dict[str, bytes]:
    """All that must be the same in the end, by its path; saves hold seconds, so they are not among it."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in DIFFERENT and "checkpoints" not in path.parts
    }


class Ground:
    """A place for trials of one kind of run: one undisturbed, one killed half way."""

    def __init__(self, place: Path, kind: str = "memory") -> None:
        self.place = place
        place.mkdir(parents=True, exist_ok=True)
        given = {"seeds": "", "storage": "", "sweep": ""} | KINDS_OF_RUN[kind]
        (place / "file.toml").write_text(FILE.format(**given))
        self.begin("whole")
        self.expected = results(place / "whole")
        assert any(name.endswith("params.safetensors") for name in self.expected)
        began = time.monotonic()
        self.begin("again")
        self.seconds = time.monotonic() - began
        assert results(place / "again") == self.expected
        self._half()

    def begin(self, name: str) -> None:
        outcome = run("run", "file.toml", "--out", name, "--no-report", cwd=self.place)
        assert outcome.code == 0, outcome

    def _half(self) -> None:
        """A run that was killed between two saves of its last part."""
        folder = self.place / "half"
        last = [name for name in self.expected if name.endswith("complete.sha256")][-1]
        while True:
            command = Command("run", "file.toml", "--out", "half", "--no-report", cwd=self.place)
            saves = (folder / last).parent / "checkpoints"
            while command.process.is_alive() and len(list(saves.glob("round-*.holdfast"))) < 2:
                time.sleep(0.001)
            command.kill()
            command.end()
            if not (folder / last).exists():
                return
            shutil.rmtree(folder)

    def fresh(self, source: str) -> Path:
        folder = self.place / "run"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.place / source, folder)
        return folder

    def resume(self, *words: str) -> Outcome:
        return run(*RESUME, *words, cwd=self.place)

    def check_ends_equal(self, outcome: Outcome, folder: str = "run") -> None:
        assert outcome.code == 0, outcome
        assert "Traceback" not in outcome.said, outcome
        found = results(self.place / folder)
        different = [n for n in {*found, *self.expected} if found.get(n) != self.expected.get(n)]
        assert not different, f"{different} differ after\n{outcome}"


def kills(ground: Ground, seed: int) -> str:
    """Killed at random moments, one to three times; then it goes on to the same bits."""
    draw = random.Random(seed)
    shutil.rmtree(ground.place / "run", ignore_errors=True)
    first = ("run", "file.toml", "--out", "run", "--no-report")
    for _ in range(draw.randint(1, 3)):
        there = (ground.place / "run" / "experiment.toml").exists()
        command = Command(*(RESUME if there else first), cwd=ground.place)
        time.sleep(draw.random() * ground.seconds)
        command.kill()
        outcome = command.end()
        assert outcome.code in (0, -signal.SIGKILL), outcome
    there = (ground.place / "run" / "experiment.toml").exists()
    ground.check_ends_equal(run(*(RESUME if there else first), cwd=ground.place))
    return "equal"


def kills_while_saving(ground: Ground, seed: int) -> str:
    """Killed the moment a file of a save is being written or renamed."""
    draw = random.Random(seed)
    folder = ground.place / "run"
    shutil.rmtree(folder, ignore_errors=True)
    command = Command("run", "file.toml", "--out", "run", "--no-report", cwd=ground.place)
    wanted, seen = draw.randint(1, 6), set()
    what = draw.choice(("*.partial", "round-*.holdfast", "rounds-*.jsonl", "rows-*"))
    while command.process.is_alive() and len(seen) < wanted:
        seen |= {str(p) for p in folder.glob(f"methods/*/seed-*/checkpoints/{what}")}
    command.kill()
    outcome = command.end()
    assert outcome.code in (0, -signal.SIGKILL), outcome
    there = (folder / "experiment.toml").exists()
    first = ("run", "file.toml", "--out", "run", "--no-report")
    ground.check_ends_equal(run(*(RESUME if there else first), cwd=ground.place))
    return "equal"


def damages(ground: Ground, seed: int) -> str:
    """One damaged file of an ended or a killed run: it goes on to the same bits, or is refused."""
    draw = random.Random(seed)
    folder = ground.fresh(draw.choice(("whole", "half")))
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    # A folder has many saves: every kind of file is drawn as often as any other.
    names = sorted({_kind(p) for p in files})
    name = draw.choice(names)
    path = draw.choice([p for p in files if _kind(p) == name])
    kind = draw.choice(KINDS)
    before = path.read_bytes()
    damage(path, kind, draw)
    what = f"{path.relative_to(folder)} {kind}"
    read = run("compare", "run", cwd=ground.place)
    assert read.code == 0 or read.is_refusal, f"{what}: {read}"
    outcome = ground.resume()
    if outcome.code == 0:
        try:
            ground.check_ends_equal(outcome)
        except AssertionError as error:
            raise AssertionError(f"{what}: {error}") from None
        return "equal"
    assert outcome.is_refusal, f"{what}: {outcome}"
    # Nothing else was spoiled by trying.
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(before)
    ground.check_ends_equal(ground.resume())
    return "refused"


def _kind(path: Path) -> str:
    return path.name.rstrip("0123456789") if path.suffix else path.name


def full_disk(ground: Ground, seed: int) -> str:
    """No room for a file beyond some size: one line, and it goes on when there is room again."""
    draw = random.Random(seed)
    folder = ground.fresh("half") if draw.random() < 0.5 else ground.place / "run"
    if not (folder / "experiment.toml").exists() or draw.random() < 0.5:
        shutil.rmtree(folder, ignore_errors=True)
    there = folder.exists()
    first = ("run", "file.toml", "--out", "run", "--no-report")
    size = int(10 ** draw.uniform(0, 4.5))
    outcome = run(*(RESUME if there else first), cwd=ground.place, largest_file=size)
    assert outcome.code == 0 or outcome.is_refusal, f"{size} bytes: {outcome}"
    there = (folder / "experiment.toml").exists()
    ground.check_ends_equal(run(*(RESUME if there else first), cwd=ground.place))
    return "equal" if outcome.code == 0 else "refused"


def really_full_disk(ground: Ground, seed: int) -> str:
    """A file system that fills up: one line, also of who tries again; with more room it goes on."""
    if not mounts.permitted():
        return "not permitted here"
    draw = random.Random(seed)
    small, folder = ground.place / "small", ground.place / "small" / "run"
    largest = sum(4 + p.stat().st_size // 1024 for p in (ground.place / "whole").rglob("*"))
    size = draw.randint(4, largest)
    first = ("run", "file.toml", "--out", "small/run")
    again = ("resume", "small/run")

    def words() -> tuple[str, ...]:
        return again if (folder / "experiment.toml").exists() else first

    with mounts.of_size(small, size):
        outcomes = [run(*words(), cwd=ground.place) for _ in range(draw.randint(1, 3))]
        if (folder / "experiment.toml").exists():
            reported = run("report", "small/run", cwd=ground.place)
            assert reported.code == 0 or reported.is_refusal, f"{size} kB: {reported}"
        assert all(o.code == 0 or o.is_refusal for o in outcomes), f"{size} kB: {outcomes}"
        mounts.resize(small, 1 << 16)
        last = run(*words(), cwd=ground.place)
        assert last.code == 0, f"{size} kB: {last} after {outcomes}"
        (folder / "report.html").unlink()
        ground.check_ends_equal(last, "small/run")
    return "refused" if outcomes[-1].code else "equal"


def read_only(ground: Ground, seed: int) -> str:
    """A folder that becomes read-only: one line of every command that writes, and nothing has changed."""
    if not mounts.permitted():
        return "not permitted here"
    draw = random.Random(seed)
    folder = ground.fresh(draw.choice(("whole", "half")))
    seeds = sorted(folder.glob("methods/*/seed-*"))
    place = draw.choice([folder, folder / "methods", *seeds, *(s / "checkpoints" for s in seeds)])
    with mounts.read_only(place):
        outcomes = [
            ground.resume(),
            run("report", "run", cwd=ground.place),
            run("compare", "run", cwd=ground.place),
            run("run", "file.toml", "--out", "run/new", cwd=ground.place),
            run("new", "run/new.toml", cwd=ground.place),
        ]
    assert all(o.code == 0 or o.is_refusal for o in outcomes), f"{place}: {outcomes}"
    shutil.rmtree(folder / "new", ignore_errors=True)
    (folder / "new.toml").unlink(missing_ok=True)
    last = ground.resume()
    (folder / "report.html").unlink(missing_ok=True)
    ground.check_ends_equal(last)
    return "refused" if any(o.code for o in outcomes) else "equal"


def two_at_once(ground: Ground, seed: int) -> str:
    """A second job beside the first is refused, and the first is not disturbed."""
    draw = random.Random(seed)
    ground.fresh("half")
    one = Command(*RESUME, cwd=ground.place)
    time.sleep(draw.random() * ground.seconds / 2)
    words = draw.choice((RESUME, ("run", "file.toml", "--out", "run", "--no-report")))
    two = Command(*words, cwd=ground.place)
    outcomes = one.end(), two.end()
    refused = [o for o in outcomes if o.code != 0]
    assert all(o.is_refusal for o in refused), outcomes
    ground.check_ends_equal(ground.resume())
    return "refused" if refused else "equal"


def kills_of_the_launcher(ground: Ground, seed: int) -> str:
    """The command that started two processes is killed: they end, and then it goes on to the same bits."""
    draw = random.Random(seed)
    shutil.rmtree(ground.place / "run", ignore_errors=True)
    two = ("--processes", "2")
    command = Command("run", "file.toml", "--out", "run", "--no-report", *two, cwd=ground.place)
    time.sleep(draw.uniform(3, 12))
    command.kill()
    outcome = command.end()
    assert outcome.code in (0, -signal.SIGKILL), outcome
    # Until they have ended, they keep others out.
    for _ in range(30):
        there = (ground.place / "run" / "experiment.toml").exists()
        first = ("run", "file.toml", "--out", "run", "--no-report")
        outcome = run(*(RESUME if there else first), *two, cwd=ground.place)
        if outcome.code != 75:
            break
        assert outcome.is_refusal, outcome
    ground.check_ends_equal(outcome)
    return "equal"


def kills_of_workers(ground: Ground, seed: int) -> str:
    """Runs side by side, whose workers or whose launcher are killed: it goes on to the same bits."""
    draw = random.Random(seed)
    shutil.rmtree(ground.place / "run", ignore_errors=True)
    first = ("run", "file.toml", "--out", "run", "--no-report")
    command = Command(*first, "--jobs", "2", cwd=ground.place)
    end = time.monotonic() + draw.random() * 2 * ground.seconds
    killed = 0
    while command.process.is_alive() and time.monotonic() < end:
        for pid in workers_of(command.process.pid):
            if draw.random() < 0.01 and killed < 2:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    killed += 1
        time.sleep(0.02)
    if draw.random() < 0.5:
        command.kill()
    outcome = command.end()
    assert outcome.code in (0, -signal.SIGKILL), outcome
    there = (ground.place / "run" / "experiment.toml").exists()
    last = run(*(RESUME if there else first), "--jobs", "2", cwd=ground.place)
    ground.check_ends_equal(last)
    return "equal"


def workers_of(pid: int | None) -> list[int]:
    """Worker processes that a process has started."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    with contextlib.suppress(FileNotFoundError):
        found = [int(child) for task in tasks for child in task.read_text().split()]
        lines = {child: Path(f"/proc/{child}/cmdline").read_bytes() for child in found}
        return [child for child, line in lines.items() if b"holdfast.jobs.worker" in line]
    return []
