"""Time holdfast and its peers on the same tasks, and write benchmarks/RESULTS.md. `make bench` runs this.

python benchmarks/run.py --only lr,mlp --peers torch,drjax
python benchmarks/run.py --only scaling
"""

import argparse
import datetime
import itertools
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import comparison
import in_processes
import machine
import numpy as np
import report
from problems import PROBLEMS, SIZES
from rich.console import Console
from rich.markdown import Markdown
from scaling import CURVES, METHODS, draw
from sides import ENVIRONMENTS, HERE, SIDES, Failed, Found, Side, build, compare, run, variants_for

out = Console()
Key = tuple[str, str, str]  # problem, sizes, method
_FAR = 8  # times slower: no noise will change the order
_LONG = 60  # seconds: a peer that takes longer is not run again
QUICK_PROBLEMS = ("lr", "mlp", "cnn", "lstm")
QUICK_SIDES = ("torch", "drjax", "pfl", "flower")
ONLY_WHOLE_WHEN_QUICK = ("pfl", "flower")  # a start of theirs takes half a minute
SECTIONS = (*PROBLEMS, "whole", "own", "limit", "scaling")


def arguments(only: tuple[str, ...] = SECTIONS) -> argparse.Namespace:
    """Of the command; `only` is what is measured unless it is said."""
    parser = argparse.ArgumentParser(description=__doc__)
    names = lambda text: text.split(",")  # noqa: E731
    parser.add_argument("--only", type=names, help=", ".join(SECTIONS))
    parser.add_argument("--peers", type=names, help=", ".join(SIDES))
    cases = [f"{sizes}-{method}" for sizes, method in itertools.product(SIZES, METHODS)]
    parser.add_argument("--cases", type=names, help=", ".join(cases))
    parser.add_argument("--rounds", type=int, help="instead of the problem's own number")
    parser.add_argument("--repetitions", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="headline ratios in ten minutes")
    parser.add_argument("--python", default=sys.executable, help="makes the environments")
    found = parser.parse_args()
    found.only = found.only or ([*QUICK_PROBLEMS, "whole"] if found.quick else list(only))
    found.peers = found.peers or list(QUICK_SIDES if found.quick else SIDES)
    found.cases = found.cases or (["balanced-fedavg", "lognormal-feddyn"] if found.quick else cases)
    for given, known in ((found.only, SECTIONS), (found.peers, SIDES), (found.cases, cases)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(sorted(unknown))}; give some of {', '.join(known)}")
    if found.quick:
        found.repetitions = 1
    found.peers = list(dict.fromkeys(["holdfast", *found.peers]))
    return found


def combinations(asked: argparse.Namespace) -> Iterator[Key]:
    """What is compared."""
    for problem in (p for p in PROBLEMS if p in asked.only):
        for sizes, method in itertools.product(SIZES, METHODS):
            if f"{sizes}-{method}" in asked.cases:
                yield problem, sizes, method


class Bench:
    """A run of the harness: where its files are, what it has found."""

    def __init__(self, asked: argparse.Namespace, folder: Path) -> None:
        self.asked, self.folder = asked, folder
        self.store = ENVIRONMENTS / "quick.json" if asked.quick else HERE / "results.json"
        self.page = ENVIRONMENTS / "QUICK.md" if asked.quick else HERE / "RESULTS.md"
        self.results: dict[str, Any] = self._kept()
        self.missing: dict[str, str] = {}

    def _kept(self) -> dict[str, Any]:
        """Earlier sections, if only some are measured now and in the same way."""
        everything = set(self.asked.only) == set(SECTIONS)
        if self.store.exists() and not everything and not self.asked.quick:
            kept: dict[str, Any] = json.loads(self.store.read_text())
            return kept
        return {"quick": self.asked.quick}

    def save(self) -> None:
        """After every section, so that a stopped run leaves what it has."""
        ENVIRONMENTS.mkdir(exist_ok=True)
        self.store.write_text(json.dumps(self.results, indent=1) + "\n")
        text = report.render(self.results, machine.describe())
        self.page.write_text(text)

    def build(self) -> None:
        """Environments of the peers."""
        wanted = dict.fromkeys(SIDES[name].environment for name in self.asked.peers)
        for environment in filter(None, wanted):
            if why := build(environment, self.asked.python):
                self.missing[environment] = why
                out.print(f"  {environment}: {why}", markup=False)

    def warm(self) -> None:
        """Every side once, for a round that is not timed: a first import reads from a cold disk."""
        for name in self.asked.peers:
            side = SIDES[name]
            if side.environment not in self.missing:
                cache = Path(tempfile.mkdtemp(dir=self.folder))
                variant = variants_for(side, "lr")[0]
                run(side, self.task("lr", "balanced"), "fedavg", variant, 1, self.folder, cache)
                shutil.rmtree(cache)

    def rounds(self, problem: str) -> int:
        """Of one run."""
        return self.asked.rounds or PROBLEMS[problem].rounds

    def task(self, problem: str, sizes: str) -> Path:
        """The task file, written once."""
        path = self.folder / f"{problem}-{sizes}.npz"
        if not path.exists():
            command = [sys.executable, str(HERE / "task.py"), problem, sizes]
            subprocess.run([*command, str(self.rounds(problem)), str(path)], check=True)
        return path

    def one(self, side: Side, key: Key, variant: str, cache: Path | None = None) -> Found | Failed:
        """One run of one side; with an empty cache unless one is given."""
        if side.environment in self.missing:
            return Failed(self.missing[side.environment])
        problem, sizes, method = key
        own = cache or Path(tempfile.mkdtemp(dir=self.folder))
        task = self.task(problem, sizes)
        found = run(side, task, method, variant, self.rounds(problem), self.folder, own)
        if cache is None:
            shutil.rmtree(own)
        said = found.why if isinstance(found, Failed) else report.seconds(found.seconds)
        out.print(
            f"  {' '.join(key)}: {side.title} {variant} {said}", markup=False, highlight=False
        )
        return found

    def compare(self, key: Key) -> None:
        """All sides on one task: every variant once, then in turns the best of each."""
        runs: dict[str, list[Found]] = {}
        failed: dict[str, str] = {}
        quick = ONLY_WHOLE_WHEN_QUICK if self.asked.quick else ()
        have = PROBLEMS[key[0]].sides or tuple(SIDES)
        peers = [name for name in self.asked.peers if name not in quick and name in have]
        for name in peers:
            side = SIDES[name]
            for variant in variants_for(side, key[0]):
                found = self.one(side, key, variant)
                if isinstance(found, Failed):
                    failed[name] = found.why
                else:
                    runs.setdefault(name, []).append(found)
        for repetition in range(1, self.asked.repetitions):
            order = list(runs)[:: -1 if repetition % 2 else 1]
            for name in order:
                best = min(runs[name], key=lambda f: f.seconds)
                ours = min((f.seconds for f in runs.get("holdfast", ())), default=np.inf)
                if name != "holdfast" and (best.whole > _LONG or best.seconds > _FAR * ours):
                    continue
                found = self.one(SIDES[name], key, best.variant)
                if isinstance(found, Found):
                    runs[name].append(found)
        rows = [self.row(key, name, runs, failed) for name in peers]
        kept = [r for r in self.results.get("compared", []) if _key(r) != key]
        self.results["compared"] = kept + rows

    def row(
        self, key: Key, name: str, runs: dict[str, list[Found]], failed: dict[str, str]
    ) -> report.Row:
        """One line of a table: of the fastest variant, the smallest of its runs."""
        row: report.Row = dict(zip(("problem", "sizes", "method"), key, strict=True))
        row |= {"side": name, "date": datetime.date.today().isoformat()}
        if name not in runs:
            return row | {"why": failed[name]}
        best = min(runs[name], key=lambda f: f.seconds)
        same = [f for f in runs[name] if f.variant == best.variant]
        row |= {
            "variant": best.variant,
            "seconds": best.seconds,
            "cold": min(f.cold for f in same),
            "memory": max(f.memory for f in same),
        }
        if "holdfast" not in runs:
            return row | {"why": "holdfast itself did not run, so nothing to compare with"}
        with np.load(self.task(*key[:2])) as file:
            first = {n.split(":")[1]: file[n] for n in file.files if ":" in n}
        # Every run is looked at, not only the one that is shown.
        differences = [compare(f.params, runs["holdfast"][0].params, first) for f in runs[name]]
        return row | {
            "difference": max(d.of_leaf for d in differences),
            "way": max(d.of_way for d in differences),
            "same": all(d.same for d in differences),
        }

    def whole(self) -> None:
        """Four methods with three seeds, start-up included."""
        folder = self.folder / "whole"
        folder.mkdir()
        rows = comparison.measure(folder, self.asked.peers, self.missing, self.asked.quick)
        self.results["whole"] = rows

    def own(self) -> None:
        """Second starts, and one device against two."""
        rows = []
        for problem in (p for p in PROBLEMS if not PROBLEMS[p].sides):
            for method in METHODS:
                key, ours = (problem, "balanced", method), SIDES["holdfast"]
                cache = Path(tempfile.mkdtemp(dir=self.folder))
                found = [self.one(ours, key, v, cache) for v in ("", "", "1", "2")]
                shutil.rmtree(cache)
                first, second, one, two = found
                if not all(isinstance(f, Found) for f in found):
                    raise SystemExit(f"holdfast does not run: {found}")
                bits = all(
                    np.array_equal(other.params[n], one.params[n])
                    for other in (first, second, two)
                    for n in one.params
                )
                row = {"problem": problem, "method": method, "bits": bits}
                row |= {"first": first.cold, "second": second.cold}
                rows.append(row | {"one": one.seconds, "two": two.seconds})
        self.results["own"] = rows

    def limit(self) -> None:
        """Bare products against our round on the balanced task."""
        rows = []
        for problem in ("mlp", "cnn", "lstm"):
            key = (problem, "balanced", "fedavg")
            tried = []
            for devices in (1, 2):
                found = _json([str(HERE / "limit.py"), problem, str(devices)])
                tried.append(found | {"problem": problem, "devices": devices})
                out.print(f"  limit {problem}, {devices} devices: {found['gflops']:.0f} GFLOP/s")
            best = min(tried, key=lambda f: f["seconds"])
            ours = self.one(SIDES["holdfast"], key, "")
            if isinstance(ours, Failed):
                raise SystemExit(f"holdfast does not run: {ours.why}")
            with np.load(self.task(problem, "balanced")) as file:
                steps = float(file["counts"].sum(axis=1).mean())
            rows.append(best | {"round": ours.seconds, "bare": steps * best["seconds"]})
        self.results["limit"] = rows

    def scaling(self) -> None:
        """Curves, tables, figures."""
        rows = []
        rounds = 12
        for curve, values in CURVES.items():
            for value, method in itertools.product(values, METHODS):
                times = {"population": 5 * rounds, "parameters": max(4, rounds // 3)}
                point = [str(HERE / "scaling.py"), curve, str(value), method]
                point.append(str(times.get(curve, rounds)))
                rows.append(_json(point))
                out.print(f"  {curve} {value:,} {method}: {report.seconds(rows[-1]['seconds'])}")
        self.results["scaling"] = rows
        found = []
        for method, number in itertools.product(METHODS, in_processes.NUMBERS):
            found.append(in_processes.measure(method, number))
            out.print(f"  {number} processes {method}: {report.seconds(found[-1]['seconds'])}")
        self.results["processes"] = in_processes.table(found)
        draw(rows, HERE / "figures")


def _key(row: report.Row) -> Key:
    return row["problem"], row["sizes"], row["method"]


def _json(command: list[str]) -> dict[str, Any]:
    """What a script of ours prints, started with an empty cache of compiled programs."""
    with tempfile.TemporaryDirectory() as cache:
        ended = subprocess.run(
            [sys.executable, *command],
            env=os.environ | {"XDG_CACHE_HOME": cache},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return json.loads(ended.stdout.splitlines()[-1])


def main() -> None:
    """Measure what was asked for."""
    asked = arguments()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        bench = Bench(asked, Path(folder))
        bench.build()
        bench.warm()
        for key in combinations(asked):
            out.print(f"[bold]{', '.join(key)}[/]")
            bench.compare(key)
            bench.save()
        for section in ("whole", "own", "limit", "scaling"):
            if section in asked.only:
                out.print(f"[bold]{section}[/]")
                getattr(bench, section)()
                bench.save()
    out.print(Markdown(bench.page.read_text()))
    wrong = [r for r in bench.results.get("compared", []) if not r.get("same", True)]
    if wrong:
        named = "; ".join(f"{' '.join(_key(r))} {r['side']}" for r in wrong)
        out.print(f"[red]these computed something else than holdfast: {named}[/]")
        sys.exit(1)


if __name__ == "__main__":
    main()
