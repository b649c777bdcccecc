"""Is the adviser right? Problems, their best method in hindsight, and what is advised in two minutes.

    python benchmarks/advisor/run.py                        # all, one after another
    python benchmarks/advisor/run.py digits_iid hapt        # some of them
    python benchmarks/advisor/run.py --advice               # ask again, though this adviser was asked before
    python benchmarks/advisor/run.py --table                # print the table of what is stored

What is stored is not searched again, and who was asked by the adviser as it is now is not asked again: the
same command after a stop goes on with the next problem. Every problem has a process of its own. Nothing else
should run meanwhile: the adviser has two minutes.

A problem is an experiment file without a method, in `problems/`. In hindsight every method that could be
advised is searched fully, by test data (`search.py`): step sizes from 0.03 to 10 times the file's, several
values of each method's own; the best of each is measured with five seeds that chose nothing. The adviser sees
no test data: it has two minutes and examples set apart from training. What it advises is run on all training
examples with the same five seeds.

Where test rows are so few that the standard error of the best quality exceeds half a point, hindsight's best
step sizes and all values are those over five draws of the test rows and the partition, with a seed each; the
adviser is asked on the first draw only, and what it advises is run on all of them.
"""

import argparse
import dataclasses
import hashlib
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE))

from search import (  # noqa: E402
    BASELINE,
    DRAWS,
    MEASURING,
    courses,
    hindsight,
    is_uncertain,
    measured_over_draws,
    over_draws,
    posed,
    redrawn,
    value,
)

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
BUDGET, CORES = "2 minutes", 2


def main() -> None:
    """Search, ask, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="problems; all unless given")
    parser.add_argument("--table", action="store_true", help="only print the table")
    parser.add_argument("--advice", action="store_true", help="ask again")
    parser.add_argument("--search", action="store_true", help="search, and do not ask")
    parser.add_argument("--budget", default=BUDGET, help=f"of the adviser; {BUDGET} unless given")
    parser.add_argument(
        "--busy",
        action="store_true",
        help="the machine has other work: the adviser has twice the time by the clock, and what it takes\n"
        "of processors must not exceed that of two cores in the budget, or nothing is stored",
    )
    parser.add_argument("--runs", type=Path, help="folder to keep runs in, to go on after a stop")
    given = parser.parse_args()
    known = sorted(path.stem for path in (HERE / "problems").glob("*.toml"))
    for name in given.names:
        if name not in known:
            parser.error(f"no problem is called {name}; there are {', '.join(known)}")
    names, began = given.names or known, time.perf_counter()
    if not given.table and len(names) == 1:
        _one(names[0], given)
        return
    for name in () if given.table else names:
        options = [f"--{key}" for key in ("advice", "search", "busy") if getattr(given, key)]
        options += ["--budget", given.budget]
        options += [] if given.runs is None else ["--runs", str(given.runs)]
        subprocess.run([sys.executable, __file__, name, *options], check=True)
        print(f"{(time.perf_counter() - began) / 60:.1f} minutes", flush=True)
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
    draws = [problem]
    if _is_uncertain(problem, stored):
        draws += [posed(redrawn(experiment, d), goal) for d in range(1, DRAWS)]
    ask = not given.search and (given.advice or stored.get("advice", {}).get("asked") != _adviser())
    if "hindsight" in stored and ("draws" in stored or len(draws) == 1) and not ask:
        print(row(name, stored))
        return
    with courses(draws, runs, name) as running:
        if "hindsight" not in stored:
            began = time.perf_counter()
            found = hindsight(problem, running[0])
            stored["goal"], stored["versions"] = problem.goal, versions()
            stored["seeds"] = list(MEASURING)
            stored["hindsight"] = _found(problem, found)
            stored["search_seconds"] = round(time.perf_counter() - began)
            _write(file, stored)
            if _is_uncertain(problem, stored):
                print(f"{name}: searched on one draw; the same command goes on with {DRAWS}")
                return
        if len(draws) > 1 and "draws" not in stored:
            labels = [tried["label"] for tried in stored["hindsight"].values()]
            stored["first_draw"] = stored["hindsight"]
            stored["hindsight"] = _found(problem, over_draws(draws, running, labels))
            stored["draws"] = DRAWS
            _write(file, stored)
        if ask:
            stored["advice"] = _advice(
                experiment, goal, draws, running, Budget.of(given.budget), given.busy
            )
            _write(file, stored)
    print(row(name, stored))
    write_docs()


def _is_uncertain(problem: Problem, stored: dict[str, Any]) -> bool:
    if "hindsight" not in stored or problem.goal in TO_TARGET:
        return False
    tried = stored.get("first_draw", stored["hindsight"])
    return is_uncertain(problem, max(t["value"] for t in tried.values()))


def _adviser() -> str:
    """Which adviser it is: a checksum of its source, but for that of the page, which decides nothing."""
    folder = ROOT / "src" / "holdfast" / "adviser"
    files = sorted(path for path in folder.glob("*.py") if path.name != "page.py")
    text = b"".join(path.read_bytes() for path in files)
    return hashlib.sha256(text).hexdigest()[:12]


def _found(problem: Problem, found: Any) -> dict[str, Any]:
    return {method: _measured(problem, who, scores) for method, (who, scores) in found.items()}


def _advice(
    experiment: Any,
    goal: str | None,
    draws: list[Problem],
    running: Any,
    budget: Budget,
    busy: bool,
) -> dict[str, Any]:
    assert budget.seconds is not None
    began, used, problem = time.perf_counter(), _processor_seconds(), draws[0]
    time_given = Budget(2 * budget.seconds) if busy else budget
    with tempfile.TemporaryDirectory() as folder:
        advice = advise_file(experiment, time_given, goal, folder=Path(folder), progress=False)
    seconds, used = time.perf_counter() - began, _processor_seconds() - used
    if busy and used > CORES * budget.seconds:
        raise SystemExit(f"{used:.0f} processor seconds are more than the budget has; ask again.")
    chosen = advice.recommended
    if len(draws) > 1:
        runs = measured_over_draws(draws, running, [chosen], MEASURING)
    else:
        runs = running[0].run("advised", [Entry(chosen, s, problem.rounds) for s in MEASURING])
    found = _measured(problem, chosen, list(runs.values()))
    found["asked"] = _adviser()
    found["seconds"] = round(seconds)
    found["processor_seconds"], found["busy"] = round(used), busy
    found["verdict"] = advice.verdict
    found["ties"] = [p.contestant.method for p in advice.places if p.is_tied]
    facts = advice.facts
    found["by_facts"] = advice.candidates[0].name
    found["facts"] = {k: v for k, v in dataclasses.asdict(facts).items() if not isinstance(v, dict)}
    return found


def _processor_seconds() -> float:
    """Of this process and of those it started that have ended, as the adviser's have when it answers."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in both)


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
        _took(advised),
    )
    return "| " + " | ".join(cells) + " |"


def _took(advised: dict[str, Any]) -> str:
    """By the clock; beside other work, what it would have taken two cores at least."""
    if advised.get("busy"):
        return f"{advised['processor_seconds'] / CORES:.0f} s*"
    return f"{advised['seconds']} s"


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
        f"or at most half a point below its quality); more than 5 % worse than tuned FedAvg on {worse}. "
        f"That is {100 * near / max(1, len(asked)):.0f} %; the goal was 13 of 16 (81 %), and it is "
        f"{'reached' if near * 16 >= 13 * len(asked) else 'missed'}."
    )
    several = [name for name, s in stored.items() if "draws" in s]
    if several:
        count += f" Over {DRAWS} draws of the test rows: {', '.join(several)}."
    if any(s["advice"].get("busy") for s in asked):
        count += (
            f" *Asked beside other work, with twice the time by the clock: shown is processor time over "
            f"{CORES} cores, of which there was at most {BUDGET}."
        )
    earlier = sum(s["advice"].get("asked") != _adviser() for s in asked)
    if earlier:
        count += f" {earlier} of them were asked of an earlier adviser than this one."
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
