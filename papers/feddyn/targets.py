"""Models transmitted until a target accuracy, for several settings of MNIST: tables 1, 2, 4 and 5."""

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from papers import figures, ordering
from papers.feddyn import runs
from papers.feddyn.runs import METHODS, NAMES
from papers.study import Asked, Cell, Found, Row, Study, Verdict

DRAWS = (0, 1, 2)
NEVER = float("inf")  # the paper's "1000+"
# Small, on the bundled digits.
QUICK: Mapping[str, Any] = {
    "data": {"name": "digits"},
    "rounds": 2,
    "partition.clients": 4,
    "cohort": {"name": "everyone"},
    "model.hidden": [8],
    "local.epochs": 1,
    "algorithm.0.local": {},
}


@dataclasses.dataclass(frozen=True)
class Setting:
    """A split and a participation of a table.

    Args:
        name: in the names of cells.
        title: in rows and tables.
        file: the experiment file.
        paper: the paper's models transmitted by target, for each method in the order of `METHODS`.
        minutes: of each method, in this order, on one quiet core.
        place: the table.
        changes: of the file, by the place in it.
        own: of the file for one method alone.
        scale: what is smaller than in the paper.
        why: what must be known of its rows.
        elsewhere: where the paper's numbers are of other data, so that only the order can agree: what is
            compared, by target.
        cap: the paper's last round.
    """

    name: str
    title: str
    file: str
    paper: Mapping[float, tuple[float, float, float, float]]
    minutes: tuple[float, float, float, float]
    place: str
    changes: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    own: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    scale: str = "full"
    why: Mapping[float, str] = dataclasses.field(default_factory=dict)
    elsewhere: Mapping[float, str] = dataclasses.field(default_factory=dict)
    cap: int = 1000

    @property
    def targets(self) -> list[float]:
        """From the lowest."""
        return sorted(self.paper)

    def values(self, method: str, draw: int, quick: bool) -> dict[str, Any]:
        """What the file says of a method, on a draw."""
        changes = {**self.changes, **self.own.get(method, {}), **(QUICK if quick else {})}
        values = runs.settings(self.file, method, changes)
        values["seeds"] = [draw]
        values["partition"]["seed"] = draw
        values["target"] = self.targets[-1]
        if quick:
            values["data"] = {"name": "digits"}
            values["local"] = {**values["local"], "epochs": 1}
            values["algorithm"][0].pop("local", None)
        return values

    def cell(self, method: str, draw: int, quick: bool = False) -> Cell:
        """One run of it."""
        return Cell(
            name=f"{self.name}-{method}-{draw}",
            function=runs.run,
            args=(self.file, self.values(method, draw, quick), self.targets),
            minutes=self.minutes[METHODS.index(method)],
        )

    def found(self, found: Found, target: float) -> dict[str, list[float | None]]:
        """Models transmitted by method, of the draws that were run."""
        return {
            m: [
                found[name]["reached"][str(target)]
                for draw in DRAWS
                if (name := f"{self.name}-{m}-{draw}") in found
            ]
            for m in METHODS
        }

    def caps(self, found: Found) -> dict[str, int]:
        """How many models were transmitted at most."""
        longest = {
            m: [c["rounds"] for name, c in found.items() if name.startswith(f"{self.name}-{m}-")]
            for m in METHODS
        }
        return {m: max(r, default=0) * runs.TRANSMITTED.get(m, 1) for m, r in longest.items()}


def study(name: str, title: str, searched: str, settings: Sequence[Setting]) -> Study:
    """The study of these settings."""

    def cells(asked: Asked) -> list[Cell]:
        if asked.quick:
            return [settings[0].cell(m, 0, quick=True) for m in ("feddyn", "scaffold")]
        # A draw of everything before the next one.
        order = itertools.product(DRAWS, settings, METHODS)
        return [setting.cell(method, draw) for draw, setting, method in order]

    return Study(
        name,
        title,
        needs=("mnist",),
        searched=searched,
        cells=cells,
        rows=lambda found: [r for s in settings for r in rows(s, found)],
        table=lambda found: table(settings, found),
        figure=lambda found, path: figure(settings, found, path),
    )


def rows(setting: Setting, found: Found) -> list[Row]:
    """One for each target, the highest first."""
    made = []
    for target in reversed(setting.targets):
        paper = dict(zip(METHODS, setting.paper[target], strict=True))
        ours = setting.found(found, target)
        verdict = ordering.verdict(paper, ours)
        if verdict is Verdict.AGREES and setting.elsewhere:
            verdict = Verdict.ORDER
        why = [ordering.unlike(paper, ours, NAMES), setting.why.get(target, ""), runs.missing(ours)]
        run = verdict is not Verdict.NOT_RUN
        made.append(
            Row(
                setting.place,
                setting.elsewhere.get(target)
                or f"{setting.title}, {100 * target:g} %: models transmitted",
                runs.printed(paper, setting.cap),
                runs.told(ours, setting.caps(found)) if run else "",
                setting.scale if run else "",
                "MNIST, 60,000 and 10,000 images" if run else "",
                verdict,
                " ".join(part for part in why if part) if run else setting.why.get(target, ""),
            )
        )
    return made


def table(settings: Sequence[Setting], found: Found) -> str:
    """A row for each target and setting: ours, and the paper's in parentheses."""
    lines = ["| setting | target | " + " | ".join(NAMES[m] for m in METHODS) + " |"]
    lines.append("|---" * (2 + len(METHODS)) + "|")
    for setting in settings:
        caps = setting.caps(found)
        for target in reversed(setting.targets):
            ours = setting.found(found, target)
            if not any(ours.values()):
                continue
            paper = dict(zip(METHODS, setting.paper[target], strict=True))
            cells = [
                (ordering.mean_told(ours[m], caps[m]) if ours[m] else "not run")
                + f"<br>paper: {runs.printed({m: paper[m]}, setting.cap).split()[-1]}"
                for m in METHODS
            ]
            lines.append(f"| {setting.title} | {100 * target:g} % | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def figure(settings: Sequence[Setting], found: Found, path: Path) -> None:
    """Accuracy over models transmitted, a panel for each setting that was run."""
    there = [s for s in settings if any(name.startswith(f"{s.name}-") for name in found)]
    with figures.panels(path, len(there)) as axes:
        for axis, setting in zip(axes, there, strict=True):
            for number, method in enumerate(METHODS):
                curves = [
                    found[name]["curve"]
                    for draw in DRAWS
                    if (name := f"{setting.name}-{method}-{draw}") in found
                ]
                factor = runs.TRANSMITTED.get(method, 1)
                for k, curve in enumerate(curves):
                    axis.plot(
                        [factor * (t + 1) for t in range(len(curve))],
                        [100 * value for value in curve],
                        color=f"C{number}",
                        linewidth=1,
                        label=NAMES[method] if k == 0 else None,
                    )
            for target in setting.targets:
                axis.axhline(100 * target, color="grey", linewidth=0.5)
            best = max(c["best"] for n, c in found.items() if n.startswith(f"{setting.name}-"))
            axis.set(title=setting.title, xlabel="models transmitted", ylabel="accuracy in %")
            axis.set_ylim(max(0.0, 100 * setting.targets[0] - 6), 100 * best + 0.5)
            axis.legend(fontsize="small")
