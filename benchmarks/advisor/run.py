"""Is the adviser right? Problems, their best method in hindsight, and what is advised in two minutes.

    python benchmarks/advisor/run.py                        # all; what is stored is not searched again
    python benchmarks/advisor/run.py digits_iid hapt        # some of them
    python benchmarks/advisor/run.py --advice               # ask again, with the stored best methods
    python benchmarks/advisor/run.py --table                # print the table of what is stored

A problem is an experiment file without a method, in `problems/`. In hindsight every method that could be
advised is searched fully, by test data (`search.py`): step sizes from 0.03 to 10 times the file's, several
values of each method's own; the best of each is measured with five seeds that chose nothing. The adviser sees
no test data: it has two minutes and examples set apart from training. What it advises is run on all training
examples with the same five seeds.
"""

import argparse
import dataclasses
import json
import math
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

from search import BASELINE, MEASURING, course, hindsight, posed, value  # noqa: E402

from holdfast.adviser.budget import Budget  # noqa: E402
from holdfast.adviser.candidates import Contestant  # noqa: E402
from holdfast.adviser.from_file import advise_file  # noqa: E402
from holdfast.adviser.problem import TO_TARGET, Problem  # noqa: E402
from holdfast.adviser.work import Entry, Score  # noqa: E402
from holdfast.config.file import read  # noqa: E402
from holdfast.errors import HoldfastError  # noqa: E402
from holdfast.record.versions import versions  # noqa: E402

RESULTS = HERE / "results"
DOCS = ROOT / "docs" / "advise.md"
# Whose goal is neither rounds to the target of the file nor quality.
GOALS = {"digits_bytes": "megabytes", "turned_digits": "worst_tenth"}
# What counts as right: so many times the best's rounds, or so much below its quality; and never so much
# worse than FedAvg.
RATIO, POINTS, WORSE = 1.25, 0.005, 0.05
BUDGET = "2 minutes"


def main() -> None:
    """Search, ask, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="problems; all unless given")
    parser.add_argument("--table", action="store_true", help="only print the table")
    parser.add_argument("--advice", action="store_true", help="ask again")
    parser.add_argument("--search", action="store_true", help="search, and do not ask")
    parser.add_argument("--runs", type=Path, help="folder to keep runs in, to go on after a stop")
    given = parser.parse_args()
    known = sorted(path.stem for path in (HERE / "problems").glob("*.toml"))
    for name in given.names:
        if name not in known:
            parser.error(f"no problem is called {name}; there are {', '.join(known)}")
    if not given.table:
        for name in given.names or known:
            _one(name, given)
    print(table())
    write_docs()


def _one(name: str, given: argparse.Namespace) -> None:
    file, goal, stored = RESULTS / f"{name}.json", GOALS.get(name), _stored(name)
    experiment = read(HERE / "problems" / f"{name}.toml")
    try:
        problem = posed(experiment, goal)
    except HoldfastError as error:
        if "../shared" not in experiment.path.read_text():
            raise
        print(f"{name}: not here ({error})")
        return
    runs = None if given.runs is None else given.runs / name
    with course(problem, runs, name) as running:
        if "hindsight" not in stored:
            began = time.perf_counter()
            found = hindsight(problem, running)
            stored["goal"], stored["versions"] = problem.goal, versions()
            stored["seeds"] = list(MEASURING)
            stored["hindsight"] = {
                method: _measured(problem, contestant, scores)
                for method, (contestant, scores) in found.items()
            }
            stored["search_seconds"] = round(time.perf_counter() - began)
            _write(file, stored)
        if not given.search and (given.advice or "advice" not in stored):
            stored["advice"] = _advice(experiment, goal, problem, running)
            _write(file, stored)
    print(row(name, stored))


def _advice(experiment: Any, goal: str | None, problem: Problem, running: Any) -> dict[str, Any]:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        advice = advise_file(
            experiment, Budget.of(BUDGET), goal, folder=Path(folder), progress=False
        )
    seconds = time.perf_counter() - began
    chosen = advice.recommended
    runs = running.run("advised", [Entry(chosen, s, problem.rounds) for s in MEASURING])
    found = _measured(problem, chosen, list(runs.values()))
    found["seconds"] = round(seconds)
    found["verdict"] = advice.verdict
    found["ties"] = [p.contestant.method for p in advice.places if p.is_tied]
    facts = advice.facts
    found["by_facts"] = advice.candidates[0].name
    found["facts"] = {k: v for k, v in dataclasses.asdict(facts).items() if not isinstance(v, dict)}
    return found


def _measured(problem: Problem, contestant: Contestant, scores: list[Score]) -> dict[str, Any]:
    each = [value(problem, [s]) for s in scores]
    return {
        "label": contestant.label,
        "value": _plain(value(problem, scores)),
        "each": [_plain(v) for v in each],
        "quality": sum(s.quality for s in scores) / len(scores),
    }


def _plain(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _stored(name: str) -> dict[str, Any]:
    file = RESULTS / f"{name}.json"
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    return found


def _write(file: Path, stored: dict[str, Any]) -> None:
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(stored, indent=1) + "\n")


def verdict(stored: dict[str, Any]) -> tuple[str, float, bool, bool]:
    """Best method, how the advised compares with it, whether that is near enough, and with FedAvg."""
    goal, tried, advised = stored["goal"], stored["hindsight"], stored["advice"]
    to_target = goal in TO_TARGET
    number = {m: _number(t["value"], to_target) for m, t in tried.items()}
    best = min(number, key=number.__getitem__) if to_target else max(number, key=number.__getitem__)
    ours, plain = _number(advised["value"], to_target), number[BASELINE]
    if to_target:
        apart = ours / number[best]
        return best, apart, apart <= RATIO, ours <= (1 + WORSE) * plain
    apart = number[best] - ours
    return best, apart, apart <= POINTS, ours >= (1 - WORSE) * plain


def _number(value: float | None, to_target: bool) -> float:
    return value if value is not None else math.inf if to_target else -math.inf


def _shown(stored: dict[str, Any], found: dict[str, Any]) -> str:
    number = found["value"]
    if number is None:
        return "not reached"
    if stored["goal"] == "rounds":
        return f"{number:.1f} rounds"
    return f"{number:.2f} MB" if stored["goal"] == "megabytes" else f"{100 * number:.1f} %"


def row(name: str, stored: dict[str, Any]) -> str:
    """A line of the table."""
    if "hindsight" not in stored:
        return f"| {name} | not run | | | | | |"
    if "advice" not in stored:
        return f"| {name} | not asked | | | | | |"
    best, apart, near, not_worse = verdict(stored)
    to_target = stored["goal"] in TO_TARGET
    compared = f"{apart:.2f}x" if to_target else f"{-100 * apart:+.1f} points"
    good = "yes" if near else "**no**"
    if not not_worse:
        good += ", worse than FedAvg"
    tried, advised = stored["hindsight"], stored["advice"]
    cells = (
        name,
        f"{best}: {_shown(stored, tried[best])}",
        _shown(stored, tried[BASELINE]),
        f"{advised['label'].split()[0]}: {_shown(stored, advised)}",
        compared,
        good,
        f"{advised['seconds']} s",
    )
    return "| " + " | ".join(cells) + " |"


HEAD = "| problem | best in hindsight | FedAvg, tuned | advised | against the best | near enough | took |\n"


def table() -> str:
    """All problems, and how many were answered well."""
    names = sorted(path.stem for path in (HERE / "problems").glob("*.toml"))
    stored = {name: _stored(name) for name in names}
    asked = [s for s in stored.values() if "advice" in s]
    near = sum(verdict(s)[2] for s in asked)
    worse = sum(not verdict(s)[3] for s in asked)
    lines = "\n".join(row(name, stored[name]) for name in names)
    count = (
        f"Near enough on {near} of {len(asked)} problems (at most {RATIO} times the best's rounds or bytes, "
        f"or at most half a point below its quality); more than 5 % worse than tuned FedAvg on {worse}."
    )
    return f"{HEAD}|---|---|---|---|---|---|---|\n{lines}\n\n{count}\n"


def write_docs() -> None:
    """The table into the page on advice."""
    begin, end = "<!-- benchmarks/advisor -->\n", "<!-- end -->\n"
    if not DOCS.exists():
        return
    text = DOCS.read_text()
    before, rest = text.split(begin)
    DOCS.write_text(before + begin + table() + end + rest.split(end)[1])


if __name__ == "__main__":
    main()
