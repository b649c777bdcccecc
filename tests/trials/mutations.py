"""Mutated experiment files and `--set`s: what is wrong is said in one line with its place, no traceback.

    python -m tests.trials.mutations --count 10000 --seed 0

takes the templates, the papers' files and those of the documentation, makes a few changes in each that a
hurried or hostile hand could make, and gives the file to `holdfast run --dry-run`, in this process. Of
those that pass, a few are run for a round: what the check could have known must not fail there.
"""

import argparse
import collections
import contextlib
import dataclasses
import functools
import inspect
import json
import os
import random
import re
import signal
import tempfile
import time
import tomllib
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.config import catalogue
from tests.config.test_papers_files import PER_METHOD, STAND_INS
from tests.trials.mutator import EVERYTHING, OWN, Case, Mutator

ROOT = Path(__file__).parents[2]
LONGEST = 300  # seconds; more is a hang


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What became of it: refused, passed, or `bad` in words."""

    case: Case
    kind: str  # "refused", "passed", "traceback", "hang", "message"
    said: str
    seconds: float

    @property
    def bad(self) -> bool:
        """Whether it must not be so."""
        return self.kind not in ("refused", "passed")


def sources() -> dict[str, dict[str, Any]]:
    """Files to begin with, by name."""
    found = {}
    folders = ("src/holdfast/config/templates", "papers/*")
    for path in sorted(p for f in folders for p in ROOT.glob(f"{f}/*.toml")):
        found[f"{path.parent.name}/{path.stem}"] = tomllib.loads(path.read_text("utf-8"))
    for path in sorted(ROOT.glob("docs/*.md")):
        for i, block in enumerate(re.findall(r"```toml\n(.*?)```", path.read_text("utf-8"), re.S)):
            values = tomllib.loads(block)
            if {"rounds", "data", "algorithm"} <= values.keys():
                found[f"{path.name}#{i}"] = values
    found["per method"] = tomllib.loads(PER_METHOD)
    found["everything"] = tomllib.loads(EVERYTHING)
    return found


class _HangError(BaseException):
    """It takes too long; no error that the command could take for one of a file."""


def _hung(*_: Any) -> None:
    raise _HangError


@contextlib.contextmanager
def stand_ins() -> Iterator[None]:
    """Data that would have to be fetched is small and made up; no loader goes to the network."""
    before = dict(catalogue.KINDS["data"])
    for name, real in before.items():
        fetched = "verify" in inspect.signature(real).parameters
        make = STAND_INS.get(name) or (STAND_INS["mnist"] if fetched else None)
        if make is not None:
            small = functools.cache(make)
            stand_in = functools.wraps(real)(lambda small=small, **settings: small())
            stand_in.__signature__ = inspect.signature(real)
            catalogue.KINDS["data"][name] = stand_in
    try:
        yield
    finally:
        catalogue.KINDS["data"].update(before)


@contextlib.contextmanager
def workplace() -> Iterator[Path]:
    """A folder to run in, with files of somebody's own."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("own.py").write_text(OWN)
        Path("broken.py").write_text("def f(:\n")
        os.mkdir("data")
        try:
            # As users have it; the tests are stricter.
            promotion = jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow")
            with stand_ins(), promotion[0], promotion[1]:
                yield Path(folder)
        finally:
            os.chdir(before)


# Lines of the experiment file, and below them those of own code that an error came through.
_EXCERPT = re.compile(r"^[> ] +\d+ \| ?|^  \S+\.py, line \d+: ")
_PLACED = re.compile(r"^error (?:e\.toml, line \d+: |--set )")
# Of the file as a whole: something is not there, or it is no text.
_WHOLE = re.compile(r"^error e\.toml(?:: `\w+` is missing| cannot be read)")


def judge(case: Case, *options: str) -> Outcome:
    """Give one to the command, and look at what it does and says."""
    Path("e.toml").write_bytes(case.content)
    words = ["run", "e.toml", *options, *(w for c in case.changes for w in ("--set", c))]
    began = time.perf_counter()
    before = signal.signal(signal.SIGALRM, _hung)
    signal.alarm(LONGEST)
    try:
        kind, said = _judged(CliRunner().invoke(app, words, env={"COLUMNS": "200"}))
    except _HangError as error:
        kind, said = "hang", _place(error)
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    seconds = time.perf_counter() - began
    return Outcome(case, kind, said, seconds)


def _judged(result: Any) -> tuple[str, str]:
    error = result.exception
    if error is not None and not isinstance(error, SystemExit):
        return "traceback", f"{type(error).__name__} in {_place(error)}: {str(error)[:300]}"
    if result.exit_code == 0:
        return "passed", ""
    text = result.stderr
    lines = text.splitlines()
    first = lines[0] if lines else ""
    if result.exit_code != 2 or not first.startswith("error ") or not first[6:].strip():
        return "message", f"exit code {result.exit_code}: {text[:300]}"
    if not (_PLACED.match(first) or _WHOLE.match(first)):
        return "message", f"no place: {text[:300]}"
    if not all(_EXCERPT.match(line) for line in lines[1:]):
        return "message", f"more than one line: {text[:400]}"
    return "refused", first


def _place(error: BaseException) -> str:
    where = traceback.extract_tb(error.__traceback__)
    ours = [f for f in where if "/holdfast/" in f.filename] or where
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno} {ours[-1].name}"


def run_a_round(case: Case, number: int) -> Outcome:
    """A file that was found right, for one round; a method may diverge, nothing else may fail."""
    shorter = ("rounds=1", "seeds=1", "window=1", "evaluate.every=1")
    options = [w for c in shorter for w in ("--set", c)]
    found = judge(case, *options, "--out", f"out-{number}")
    diverged = found.kind == "message" and found.said.startswith("exit code 1:")
    too_short = found.kind == "refused" and "`every` is" in found.said
    return dataclasses.replace(found, kind="passed") if diverged or too_short else found


def trial(count: int, seed: int, run_every: int = 0, first: int = 0) -> Iterator[Outcome]:
    """So many mutations; of those that pass, every so manyth is run for a round."""
    known = sources()
    passed = 0
    with workplace():
        for number in range(first, first + count):
            case = Mutator(random.Random(f"{seed} {number}")).case(number, known)
            found = judge(case, "--dry-run")
            yield found
            # Pre-training takes as long as its epochs ask for, before the only round.
            if found.kind == "passed" and run_every and b"pretrain" not in case.content:
                passed += 1
                if passed % run_every == 0:
                    again = run_a_round(case, number)
                    late = again.kind in ("refused", "traceback", "hang", "message")
                    yield dataclasses.replace(again, kind="late" if late else "passed")


def main() -> None:
    """Many of them, with a line for everything that must not be and counts at the end."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--count", type=int, default=10_000)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--first", type=int, default=0)
    asked.add_argument("--run-every", type=int, default=50)
    asked.add_argument("--out", type=Path, default=None, help="a file for what must not be")
    given = asked.parse_args()
    out = given.out.resolve() if given.out else None
    counts: collections.Counter[str] = collections.Counter()
    for done, found in enumerate(trial(given.count, given.seed, given.run_every, given.first), 1):
        counts[found.kind] += 1
        if found.bad:
            about = {"number": found.case.number, "source": found.case.source, "kind": found.kind}
            about |= {"said": found.said, "changes": found.case.changes}
            about["content"] = found.case.content.decode("utf-8", "replace")
            if out is not None:
                with open(out, "a", encoding="utf-8", errors="replace") as file:
                    file.write(json.dumps(about) + "\n")
            print(found.case.number, found.kind, found.said.encode("utf-8", "replace"), flush=True)
        if done % 100 == 0:
            print(done, dict(counts), flush=True)
    print(f"seed {given.seed}: {dict(counts)}")
    raise SystemExit(1 if set(counts) - {"passed", "refused"} else 0)


if __name__ == "__main__":
    main()
