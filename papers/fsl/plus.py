"""Rounds to targets and final accuracy of methods with and without server learning: the paper's table I."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from papers import figures, ordering
from papers.fsl import runs
from papers.fsl.runs import BASELINES, DRAWS, NAMES
from papers.study import Asked, Cell, Found, Row, Study, Verdict

TIE = 0.002  # of final accuracy


@dataclasses.dataclass(frozen=True)
class Setting:
    """A split of table I.

    Args:
        name: in the names of cells.
        title: in rows and tables.
        file: the experiment file.
        changes: of the file, by the place in it.
        of: the paper's data set.
        printed: the paper's targets, from the lowest.
        paper: of each method the rounds to each target and the final accuracy, as the paper prints them.
        rounds: how many there are here, and in the paper.
        scale: what is smaller than in the paper.
        data: on which data, of which size.
        minutes: of a cell, on one quiet core.
    """

    name: str
    title: str
    file: str
    changes: Mapping[str, Any]
    of: str
    printed: tuple[str, ...]
    paper: Mapping[str, tuple[float, ...]]
    rounds: tuple[int, int]
    scale: str
    data: str
    minutes: float

    @property
    def places(self) -> list[float]:
        """After which share of all rounds the paper's FedAvg has each target."""
        return [value / self.rounds[1] for value in self.paper["fedavg"][:-1]]

    def cell(self, method: str, draw: int, quick: bool = False) -> Cell:
        """One method on one draw."""
        small = {**runs.QUICK, **runs.FROM_FEW} if quick else {}
        values = runs.settings(self.file, method, draw, {**self.changes, **small})
        return Cell(f"{self.name}-{method}-{draw}", runs.run, (self.file, values), self.minutes)

    def curves(self, found: Found, method: str) -> list[np.ndarray]:
        """Accuracy, the mean of a window, of every draw that was run."""
        return [runs.accuracy(one) for one in runs.draws_of(found, f"{self.name}-{method}")]

    def targets(self, found: Found) -> list[float]:
        """From the lowest; none before FedAvg was run."""
        known = self.curves(found, "fedavg")
        if not known:
            return []
        mean = np.mean(known, axis=0)
        return [round(float(mean[round(place * len(mean)) - 1]), 3) for place in self.places]

    def reached(self, found: Found, target: float) -> dict[str, list[float | None]]:
        """Rounds to a target by method."""
        return {m: [self.rounds_to(c, target) for c in self.curves(found, m)] for m in self.paper}

    def rounds_to(self, curve: np.ndarray, target: float) -> float | None:
        """Rounds of one run, which was measured at equal distances."""
        there = runs.rounds_to(curve, target)
        return None if there is None else there * self.rounds[0] / len(curve)

    def finals(self, found: Found) -> dict[str, list[float]]:
        """Final accuracy by method."""
        return {m: [float(c[-1]) for c in self.curves(found, m)] for m in self.paper}


def study(name: str, title: str, needs: str, searched: str, settings: Sequence[Setting]) -> Study:
    """The study of these settings, whose targets are all set by FedAvg in the first one, as `how` says."""

    def cells(asked: Asked) -> list[Cell]:
        if asked.quick:
            return [settings[0].cell(m, 0, quick=True) for m in ("fedavg", "fedavg_plus")]
        # A setting whole, a draw of all methods before the next one.
        return [s.cell(m, d) for s, d in itertools.product(settings, DRAWS) for m in s.paper]

    return Study(
        name,
        title,
        needs=(needs,),
        searched=searched,
        cells=cells,
        rows=lambda found: [row for s in settings for row in _rows(s, settings[0], found)],
        table=lambda found: table(settings, found),
        figure=lambda found, path: figure(settings, found, path),
    )


def how(first: Setting) -> str:
    """Where targets come from."""
    shares = " and ".join(f"{100 * place:.0f} %" for place in first.places)
    printed = " and ".join(first.printed)
    return (
        f"Targets: what FedAvg has with {first.title}, on average over draws, after {shares} of all rounds, "
        f"where it has {printed} in the paper; chosen so before other methods were looked at."
    )


def _rows(setting: Setting, first: Setting, found: Found) -> list[Row]:
    known = first.targets(found)
    numbers = range(len(setting.printed))
    made = [_to_target(setting, first, k, known[k] if known else None, found) for k in numbers]
    return [*made, _final(setting, found)]


def _to_target(
    setting: Setting, first: Setting, number: int, target: float | None, found: Found
) -> Row:
    paper = {m: values[number] for m, values in setting.paper.items()}
    kind = ("lower", "higher")[number] if len(setting.printed) > 1 else "only"
    printed = f"{setting.printed[number]} of {setting.of}"
    what = f"{setting.title}: rounds to the {kind} target, in the paper {printed}"
    told = " / ".join(f"{NAMES[m]} {n:.0f}" for m, n in paper.items())
    ours = {} if target is None else setting.reached(found, target)
    verdict = ordering.verdict(paper, ours)
    if target is None or verdict is Verdict.NOT_RUN:
        return Row("table I", what, told)
    cap = setting.rounds[0]
    there = " / ".join(f"{NAMES[m]} {ordering.mean_told(v, cap)}" for m, v in ours.items() if v)
    why = [_unlike(paper, ours), _shares(paper, ours), how(first)]
    return Row(
        "table I",
        what,
        told,
        f"to {100 * target:.1f} %: {there}",
        setting.scale,
        setting.data,
        # Other data: only the order can agree.
        Verdict.ORDER if verdict is Verdict.AGREES else verdict,
        " ".join(part for part in [*why, _missing(ours)] if part),
    )


def _final(setting: Setting, found: Found) -> Row:
    """Whether no method is worse with server learning, as the paper says of its table."""
    what = f"{setting.title}: final accuracy in %, in the paper of {setting.of}"
    told = " / ".join(f"{NAMES[m]} {values[-1]:.2f}" for m, values in setting.paper.items())
    ours = setting.finals(found)
    pairs = [(b, p) for b in BASELINES if ours.get(b) and ours.get(p := f"{b}_plus")]
    if not pairs:
        return Row("table I", what, told)
    losses = [NAMES[b] for b, plus in pairs if np.mean(ours[plus]) < np.mean(ours[b]) - TIE]
    there = " / ".join(f"{NAMES[m]} {runs.percent(v)}" for m, v in ours.items() if v)
    why = "The claim judged is that server learning lowers no method's accuracy by more than "
    why += f"{100 * TIE:g} points"
    why += f"; here it lowers that of {', '.join(losses)}." if losses else "."
    return Row(
        "table I",
        what,
        told,
        there,
        setting.scale,
        setting.data,
        Verdict.DISAGREES if losses else Verdict.ORDER,
        " ".join(part for part in (why, _missing(ours)) if part),
    )


def _unlike(paper: ordering.Numbers, ours: ordering.Draws) -> str:
    """Which methods stand the other way round, by how much and on how many draws."""
    said = ordering.unlike(paper, ours, NAMES)
    draws = min(len(values) for values in ours.values() if values)
    so_far = (
        f"{draws} of {len(DRAWS)} draws were run so far." if said and draws < len(DRAWS) else ""
    )
    return f"{said} {so_far}".strip()


def _shares(paper: ordering.Numbers, ours: ordering.Draws) -> str:
    """What server learning leaves of each method's rounds, here and in the paper."""
    said = []
    for base in BASELINES:
        plus = f"{base}_plus"
        if all(ours.get(m) and np.isfinite(ordering.mean(ours[m])) for m in (base, plus)):
            share = ordering.mean(ours[plus]) / ordering.mean(ours[base])
            said.append(f"{NAMES[base]} {share:.2f} ({paper[plus] / paper[base]:.2f})")
    if not said:
        return ""
    return f"Rounds with server learning for one without, in parentheses the paper's: {', '.join(said)}."


def _missing(ours: Mapping[str, Sequence[object]]) -> str:
    names = [NAMES[m] for m, values in ours.items() if not values]
    return f"Not run yet: {', '.join(names)}." if names else ""


def table(settings: Sequence[Setting], found: Found) -> str:
    """As the paper's: a row for each method, ours over the paper's."""
    known = settings[0].targets(found)
    there = [s for s in settings if known and any(s.finals(found).values())]
    heads = [
        f"{s.title}, {what}"
        for s in there
        for what in (*(f"rounds to {100 * t:.1f} %" for t in known), "final accuracy, %")
    ]
    lines = ["| method | " + " | ".join(heads) + " |", "|---" * (1 + len(heads)) + "|"]
    for method in settings[0].paper:
        told = []
        for setting in there:
            curves, paper = setting.curves(found, method), setting.paper[method]
            reached = [setting.reached(found, target)[method] for target in known]
            ours = [ordering.mean_told(rounds, setting.rounds[0]) for rounds in reached]
            ours.append(runs.percent([float(c[-1]) for c in curves]) if curves else "")
            pairs = zip(ours, paper, strict=True)
            told += [
                f"{o if curves else 'not run'}<br>paper: {p:.{2 * (k == len(known))}f}"
                for k, (o, p) in enumerate(pairs)
            ]
        lines.append(f"| {NAMES[method]} | " + " | ".join(told) + " |")
    return "\n".join([*lines, "", how(settings[0])])


def figure(settings: Sequence[Setting], found: Found, path: Path) -> None:
    """Accuracy by round, with and without server learning: a panel for each split and method."""
    there = [(s, b) for s in settings for b in BASELINES if s.finals(found).get(b)]
    with figures.panels(path, len(there), most=4) as axes:
        for axis, (setting, base) in zip(axes, there, strict=True):
            for number, method in enumerate((base, f"{base}_plus")):
                for k, curve in enumerate(setting.curves(found, method)):
                    rounds = np.linspace(
                        setting.rounds[0] / len(curve), setting.rounds[0], len(curve)
                    )
                    label = NAMES[method] if k == 0 else None
                    axis.plot(rounds, 100 * curve, color=f"C{number}", linewidth=1, label=label)
            for target in settings[0].targets(found):
                axis.axhline(100 * target, color="grey", linewidth=0.5)
            axis.set(title=setting.title, xlabel="rounds", ylabel="accuracy in %")
            axis.legend(fontsize="small")
