"""Numbers that the documentation quotes: measured by one command, stored, and written into the pages.

    python docs/quoted.py --measure    runs what is quoted, stores it in docs/results/ (a minute or two)
    python docs/quoted.py              writes what is stored into README.md and docs/*.md

A place in a page is `<!-- =NAME -->...<!-- = -->`; what stands between is replaced. NAME is one of
those that `names` makes. `make numbers` does both; `tests/test_docs.py` fails where a page and what
is stored disagree.
"""

import argparse
import dataclasses
import json
import os
import platform
import pty
import re
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from pathlib import Path
from typing import Any

import jax

import holdfast
from holdfast.metrics import Spread
from holdfast.metrics.figures import in_figures, times_fewer
from holdfast.runs import results
from holdfast.runs.names import method_name

ROOT = Path(__file__).resolve().parent.parent
STORED = ROOT / "docs" / "results"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
DEMO = ROOT / "src" / "holdfast" / "config" / "templates" / "digits.toml"
PLACE = re.compile(r"(<!-- =([\w.]+) -->)(.*?)(<!-- = -->)", re.DOTALL)
SAVED = re.compile(
    r"Save this as `my_rules\.py`:\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


# ---- measure -------------------------------------------------------------------------------------


def measure() -> None:
    """Run what is quoted and store what came of it."""
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        (here / "experiment.toml").write_text(DEMO.read_text("utf-8"), encoding="utf-8")
        planned = _said(here, "run", "experiment.toml", "--dry-run")
        said = _said(here, "run", "experiment.toml")
        shown = said.removeprefix(planned)
        first = here / "runs/experiment/methods/scaffold/seed-0/history.jsonl"
        _store(
            "digits",
            "holdfast new && holdfast run experiment.toml    (make demo, at 80 columns)",
            planned=planned.splitlines(),
            shown=shown.splitlines(),
            first_line_of_scaffold=first.read_text("utf-8").partition("\n")[0],
            **_figures(here / "runs" / "experiment"),
        )
        (here / "my_rules.py").write_text(_saved_rule(), encoding="utf-8")
        (here / "own_rule.toml").write_text(
            (STORED / "own_rule.toml").read_text("utf-8"), encoding="utf-8"
        )
        planned = _said(here, "run", "own_rule.toml", "--dry-run")
        shown = _said(here, "run", "own_rule.toml", "--no-report").removeprefix(planned)
        _store(
            "own_rule",
            "holdfast run own_rule.toml    (of docs/results, beside my_rules.py of docs/own_rule.md)",
            shown=shown.splitlines(),
            check_seconds=_seconds_to_check(here),
            **_figures(here / "runs" / "own_rule"),
        )


def _said(here: Path, *words: str) -> str:
    """What a command prints on a terminal of 80 columns, without blanks at the ends of lines."""
    source = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    terminal, inside = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words],
        cwd=here,
        env=os.environ | {"COLUMNS": "80", "TERM": "dumb", "PYTHONPATH": source},
        stdout=inside,
        stderr=subprocess.PIPE,
    ) as command:
        os.close(inside)
        # Whoever writes to a pipe that nobody reads waits.
        waiting = threading.Thread(target=command.stderr.read)  # type: ignore[union-attr]
        waiting.start()
        said = b"".join(iter(lambda: _read(terminal), b"")).decode()
        waiting.join()
    os.close(terminal)
    if command.returncode:
        raise SystemExit(f"holdfast {' '.join(words)}: exit code {command.returncode}")
    return "".join(f"{line.rstrip()}\n" for line in said.splitlines())


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # how Linux says that the other side has closed it
        return b""


def _figures(folder: Path) -> dict[str, Any]:
    """Every figure that can be quoted, seed by seed."""
    found = results.load([folder])
    target, metric = found.target, found.metric
    assert target is not None
    methods = {}
    for m in found.methods:
        figures = {
            "final": m.last(metric),
            "rounds": m.rounds_to(target, metric),
            "megabytes": m.bytes_to(target, metric).per(1e6),
            "models": m.models_to(target, metric),
            "rounds_window_10": m.rounds_to(target, metric, 10),
            "megabytes_in_all": m.in_all("bytes_down", "bytes_up").per(1e6),
        }
        methods[m.label] = {
            "is_reference": m.is_reference,
            **{name: dataclasses.asdict(spread) for name, spread in figures.items()},
        }
    return {"target": target, "metric": metric, "methods": methods}


def _saved_rule() -> str:
    page = SAVED.search((ROOT / "docs" / "own_rule.md").read_text("utf-8"))
    assert page is not None
    return page[1]


def _seconds_to_check(here: Path) -> int:
    """Processor time of the checks of that rule."""
    sys.path.insert(0, str(here))
    from my_rules import inertia  # type: ignore[import-not-found]

    before = time.process_time()
    holdfast.testing.check(inertia())
    return round(time.process_time() - before)


def _store(name: str, command: str, **found: Any) -> None:
    about = {
        "command": command,
        "made_by": "make numbers",
        "versions": {
            "holdfast": holdfast.__version__,
            "jax": jax.__version__,
            "python": platform.python_version(),
        },
    }
    text = json.dumps(about | found, indent=1, ensure_ascii=False)
    # A list of numbers on one line.
    text = re.sub(r"\[\s+([^\[\]{}\"]*?)\s+\]", lambda m: f"[{' '.join(m[1].split())}]", text)
    (STORED / f"{name}.json").write_text(f"{text}\n", encoding="utf-8")


# ---- write ---------------------------------------------------------------------------------------


def stored(name: str) -> dict[str, Any]:
    """One of the stored results, its figures as spreads over seeds."""
    found = json.loads((STORED / f"{name}.json").read_text("utf-8"))
    for method in found["methods"].values():
        for key, value in method.items():
            if isinstance(value, dict):
                method[key] = Spread(tuple(value["values"]), tuple(value["spent"]))
    return dict(found)


def names() -> dict[str, str]:
    """What can stand in a page, by its name."""
    digits, own = stored("digits"), stored("own_rule")
    methods = digits["methods"]
    contestants = {n: m for n, m in methods.items() if not m["is_reference"]}
    finals = [m["final"].mean for m in contestants.values()]
    made = {
        "digits.table": _table(methods, percent=True),
        "digits.choose": _table(methods, settings=_settings()),
        "digits.planned": _console("holdfast run experiment.toml --dry-run", digits["planned"]),
        "digits.shown": _console("holdfast run experiment.toml", digits["shown"]),
        "digits.points_apart": f"{100 * (max(finals) - min(finals)):.1f}",
        "digits.first_line_of_scaffold": _block("json", [digits["first_line_of_scaffold"]]),
        "own_rule.shown": _block("text", _without_columns(own["shown"])),
        "own_rule.check_seconds": str(own["check_seconds"]),
    }
    base = methods["fedavg"]
    for name, m in contestants.items():
        for key, digits_ in (("rounds", 0), ("megabytes", 1), ("models", 0)):
            made[f"digits.{name}.{key}"] = in_figures(Spread((m[key].mean,)), digits=digits_)
            if key != "models":
                times = times_fewer(base[key], m[key])
                made[f"digits.{name}.{key}_saving"] = f"{times:.2f}" if times else "-"
        made[f"digits.{name}.rounds_window_10"] = in_figures(
            Spread((m["rounds_window_10"].mean,)), digits=0
        )
        made[f"digits.{name}.megabytes_in_all"] = f"{m['megabytes_in_all'].mean:.1f}"
    return made


def _table(
    methods: dict[str, Any], percent: bool = False, settings: dict[str, str] | None = None
) -> str:
    lines = ["| method | rounds to 95 % | MB to 95 % | final accuracy |", "|---|---:|---:|---:|"]
    for name, m in methods.items():
        final = in_figures(m["final"].per(0.01), digits=1) + " %" if percent else None
        to = ["", ""]
        if not m["is_reference"]:
            to = [in_figures(m["rounds"], digits=0), in_figures(m["megabytes"], digits=1)]
        title = method_name(name) if settings is None else f"`{name}`{settings[name]}"
        lines.append(
            f"| {title} | {to[0]} | {to[1]} | {final or in_figures(m['final'], precision=3)} |"
        )
    return "\n\n" + "\n".join(lines) + "\n\n"


def _settings() -> dict[str, str]:
    """What the file gives each method, in words."""
    entries = tomllib.loads(DEMO.read_text("utf-8"))["algorithm"]
    return {
        e.get("label", e["name"]): "".join(
            f", {key} {value}" for key, value in e.items() if key not in ("name", "label")
        )
        for e in entries
    }


def _console(command: str, lines: list[str]) -> str:
    return _block("console", [f"$ {command}", *lines])


def _block(language: str, lines: list[str]) -> str:
    return "\n\n" + "\n".join([f"```{language}", *lines, "```"]) + "\n\n"


def _without_columns(lines: list[str]) -> list[str]:
    """The first table of a command alone."""
    start = next(i for i, line in enumerate(lines) if line.strip().startswith("method"))
    end = next(i for i, line in enumerate(lines) if i > start and not line)
    return lines[start:end]


def filled(text: str, made: dict[str, str]) -> str:
    """A page with what is stored in its places."""

    def put(place: re.Match[str]) -> str:
        if place[2] not in made:
            raise SystemExit(f"<!-- ={place[2]} -->: no such name; {', '.join(sorted(made))}")
        return place[1] + made[place[2]] + place[4]

    return PLACE.sub(put, text)


def write() -> list[Path]:
    """Fill every page; those that changed."""
    made, changed = names(), []
    for page in PAGES:
        before = page.read_text("utf-8")
        after = filled(before, made)
        if after != before:
            page.write_text(after, encoding="utf-8")
            changed.append(page)
    return changed


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--measure", action="store_true", help="run it all again first")
    if parser.parse_args().measure:
        measure()
    for page in write():
        print(f"wrote {page.relative_to(ROOT)}")
