"""What the studies of logistic regression share: cells, claims about curves, tables, figures."""

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from papers import figures
from papers.flix import claims, data, logistic
from papers.flix.claims import Claims
from papers.flix.curves import AVERAGE, GD, Curve
from papers.flix.logistic import Task
from papers.study import Asked, Cell, Found, Row, Study, Values

REGULARISED = Task(0.1, 1e-6, 1e-9, False, 50, ())
UNREGULARISED = Task(0.0, 1e-3, 0.75, True, 100, ())
STEPS = "nothing: all step sizes are the largest that theory allows, as in the paper, with the exact L_i."


@dataclasses.dataclass(frozen=True)
class Problem:
    """What a cell found on one data set."""

    name: str
    values: Values

    @property
    def curves(self) -> list[Curve]:
        """All its runs."""
        return [Curve.read(kept) for kept in self.values["curves"]]

    def of(self, method: str, start: str = AVERAGE, **what: Any) -> list[Curve]:
        """The runs of a method, with this alpha or this k."""
        return [
            curve
            for curve in self.curves
            if (curve.setting.method, curve.setting.start) == (method, start)
            and all(getattr(curve.setting, key) == value for key, value in what.items())
        ]

    def descent(self, alpha: float, start: str = AVERAGE) -> Curve:
        """Gradient descent on the same clients."""
        return self.of(GD, start, alpha=alpha)[0]

    @property
    def examples(self) -> str:
        """In rows."""
        clients = self.values["curves"][0]["setting"]["clients"]
        return f"{self.name}, {self.values['examples']:,} examples, {clients} clients"


Told = tuple[str, Claims, str]  # what was found, the claims, and what else must be known


@dataclasses.dataclass(frozen=True)
class Figure:
    """A figure of the paper, of which every data set has a panel.

    Args:
        place: which.
        what: is measured there.
        paper: what the paper says of it.
        told: what is found of a data set.
        why: what must be known of all its rows.
    """

    place: str
    what: str
    paper: str
    told: Callable[[Problem], Told]
    why: str = ""

    def row(self, name: str, problem: Problem | None) -> Row:
        """The dossier's, of one data set."""
        what = f"{data.title(name)}: {self.what}"
        if problem is None:
            return Row(self.place, what, self.paper)
        ours, found, more = self.told(problem)
        return Row(
            self.place,
            what,
            self.paper,
            ours,
            "full",
            problem.examples,
            claims.verdict(found, elsewhere=name in data.PLACES),
            " ".join(part for part in (claims.broken(found), more, self.why) if part),
        )


def study(
    name: str,
    title: str,
    task: Task,
    places: Sequence[Figure],
    table: Callable[[list[Problem]], str],
    figure: Callable[[list[Problem], Path], None],
    minutes: Mapping[str, float],
    searched: str = STEPS,
    rows: Callable[[list[Problem]], Sequence[Row]] = lambda problems: (),
) -> Study:
    """The study of these figures: a cell for each data set; `rows` has those about all data sets at once."""

    def cells(asked: Asked) -> list[Cell]:
        if asked.quick:
            sweeps = tuple(
                dataclasses.replace(s, alphas=(0.9, 0.1), rounds=15, sixths=s.sixths[-2:-1] or (6,))
                for s in task.sweeps
            )
            tolerance = max(task.tolerance, 1e-3)
            small = dataclasses.replace(task, clients=4, sweeps=sweeps, tolerance=tolerance)
            return [Cell(data.NAMES[0], logistic.curves, _args(data.NAMES[0], small), 0.1)]
        return [Cell(n, logistic.curves, _args(n, task), m) for n, m in minutes.items()]

    def problems(found: Found) -> list[Problem]:
        return [Problem(n, found[n]) for n in data.NAMES if n in found]

    def all_rows(found: Found) -> list[Row]:
        by = {problem.name: problem for problem in problems(found)}
        own = [place.row(n, by.get(n)) for place in places for n in minutes]
        return [*rows(list(by.values())), *own]

    return Study(
        name,
        title,
        needs=("libsvm_set",),
        searched=searched,
        cells=cells,
        rows=all_rows,
        table=lambda found: table(problems(found)),
        figure=lambda found, path: figure(problems(found), path),
    )


def _args(name: str, task: Task) -> tuple[Any, ...]:
    return name, dataclasses.asdict(task)


# Claims.


def increasing(values: Sequence[float | None]) -> bool:
    """Whether none is smaller than the one before; one that is missing is infinite."""
    numbers = [np.inf if value is None else value for value in values]
    return all(a <= b for a, b in itertools.pairwise(numbers))


def spread(values: Sequence[float | None]) -> float:
    """How many times the smallest the largest is; those that are missing are left out."""
    numbers = [value for value in values if value is not None]
    return max(numbers) / min(numbers) if numbers else np.inf


def count(value: float | None) -> str:
    """A whole number; a dash where there is none."""
    return "-" if value is None or not np.isfinite(value) else f"{round(value):,}"


def number(value: float | None) -> str:
    """Three digits; a dash where there is none."""
    return "-" if value is None or not np.isfinite(value) else f"{value:.3g}"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


# Figures.

DASHES = ("-", "--", ":", "-.")


def draw_compressed(method: str, alphas: Sequence[float]) -> Callable[[list[Problem], Path], None]:
    """The gap over rounds and over floats sent, a row of panels for each data set; colours are k."""

    def figure(problems: list[Problem], path: Path) -> None:
        shown = [(problem, over) for problem in problems for over in ("rounds", "floats")]
        with figures.panels(path, len(shown), most=2) as axes:
            for axis, (problem, over) in zip(axes, shown, strict=True):
                _draw(axis, problem, over, method, alphas)

    return figure


def _draw(axis: Any, problem: Problem, over: str, method: str, alphas: Sequence[float]) -> None:
    sizes = sorted({curve.setting.k for curve in problem.of(method)})
    for alpha, dashes in zip(alphas, DASHES, strict=False):
        for curve in (*problem.of(GD, alpha=alpha), *problem.of(method, alpha=alpha)):
            own = curve.setting.method == method
            k = curve.setting.k
            x = curve.floats if over == "floats" else np.array(curve.rounds)
            axis.plot(
                x,
                np.maximum(curve.gap, logistic.PRECISE),
                dashes,
                color=f"C{sizes.index(k)}" if own else "black",
                linewidth=1,
                label=(f"k = {k}" if own else GD) if alpha == alphas[0] else None,
            )
    axis.set(title=problem.name, yscale="log", ylabel="gap")
    axis.set_xlabel("floats a client sent" if over == "floats" else "rounds")
    if over == "floats":
        axis.set_xscale("symlog", linthresh=min(sizes) * 10)
    axis.legend(fontsize="x-small")
