"""FSL, figures 1 and 2 of the paper and of the supplement: few classes a client, IID data at the server."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from papers import figures
from papers.fsl import runs
from papers.fsl.runs import DRAWS
from papers.study import Asked, Cell, Found, Row, Study, Verdict

ROUNDS = 200
CLASSES = (1, 2, 5, 10)
KINDS = ("FL", "DS", "FSL-p", "FSL")
CLIENTS, EXAMPLES, ROOT_OF_COHORT = 10, 10_000, 2.0
RATE, OWN = 0.05, 50  # clients' step size, and the server's examples
# What FSL and DS have in figure 2: step size, the server's examples.
SWEPT = ((RATE, OWN), (4 * RATE, OWN), (RATE, 4 * OWN))
TIE = 0.005  # of accuracy
CHANGES: Mapping[str, Any] = {
    "data": {"name": "mnist", "only_examples": EXAMPLES},
    "model": {"name": "mlp", "hidden": [100], "init": "torch"},
    "rounds": ROUNDS,
}
SCALE = (
    "MNIST, 10,000 of its images, in place of EMNIST and CIFAR-10; a perceptron (100); 10 clients, 4 a round "
    f"as for CIFAR-10; 10 local steps of size {RATE:g}, as long a path a round as its 50 of 0.01; {ROUNDS} "
    f"rounds in place of 1,000; {OWN} examples at the server, 0.5 % of all (in the paper 0.2 % and 1 %)"
)


@dataclasses.dataclass(frozen=True)
class Point:
    """One way of training."""

    kind: str
    classes: int
    pretrained: bool = True
    gamma: float = 1.0  # of FSL
    rate: float = RATE
    own: int = OWN

    @property
    def name(self) -> str:
        """In names of cells."""
        more = [f"gamma{self.gamma:g}"] if self.kind == "FSL" and self.gamma != 1 else []
        more += [f"rate{self.rate:g}"] if self.rate != RATE else []
        more += [f"own{self.own}"] if self.own != OWN else []
        more += ["scratch"] if not self.pretrained and self.kind != "FL" else []
        return "-".join([f"{self.classes}", self.kind, *more])

    @property
    def changes(self) -> dict[str, Any]:
        """Of the experiment file. 2,500 steps of training before, and 10 a round at the server."""
        batch = min(100, self.own)
        epoch = self.own // batch
        incremental = ROOT_OF_COHORT if self.kind == "FSL" else 1.0
        changes = {
            **CHANGES,
            "partition.classes": self.classes,
            "local.learning_rate": self.rate,
            "server.examples": self.own,
            "server.local": {
                "learning_rate": self.rate * incremental,
                "epochs": 10 // epoch,
                "batch_size": batch,
            },
        }
        if self.kind == "FSL":
            changes["algorithm.0.gamma"] = self.gamma
        if self.kind != "FL":
            before = {"epochs": 2500 // epoch, "learning_rate": 0.01, "batch_size": batch}
            changes["algorithm.0.server.pretrain"] = before if self.pretrained else 0
        return changes

    def cell(self, draw: int, quick: bool = False) -> Cell:
        """A run of it."""
        small = {**runs.QUICK, "partition.classes": 2, "server.examples": 20} if quick else {}
        label = self.kind
        values = runs.settings("cifar10_classes", label, draw, {**self.changes, **small})
        return Cell(f"{self.name}-{draw}", runs.run, ("cifar10_classes", values), minutes=0.3)


def gammas(own: int) -> tuple[float, ...]:
    """The paper's; the first gives FSL the objective of data sharing."""
    return (CLIENTS * own / EXAMPLES, 0.5, 1.0, 1.5, 2.0)


def points() -> list[Point]:
    """What is compared, each once: over classes, then over gamma, step sizes and examples."""
    over = [Point(k, c) for c in CLASSES for k in KINDS]
    over += [Point(k, c, pretrained=False) for c in CLASSES for k in ("DS", "FSL")]
    for rate, own in SWEPT:
        over.append(Point("DS", 2, rate=rate, own=own))
        over += [Point("FSL", 2, gamma=g, rate=rate, own=own) for g in gammas(own)]
    return list({point.name: point for point in over}.values())


def cells(asked: Asked) -> list[Cell]:
    """A draw of everything before the next one."""
    if asked.quick:
        return [Point("FSL", 2, pretrained=False).cell(0, quick=True)]
    return [point.cell(draw) for draw in DRAWS for point in points()]


def curves(found: Found, point: Point) -> list[np.ndarray]:
    """Accuracy, the mean of a window, of every draw that was run."""
    return [runs.accuracy(one) for one in runs.draws_of(found, point.name)]


def final(found: Found, point: Point) -> list[float]:
    """Accuracy at the end, by draw."""
    return [float(c[-1]) for c in curves(found, point)]


def overall(found: Found, point: Point) -> list[float]:
    """Accuracy, the mean over all rounds, by draw: higher for who is fast."""
    return [float(c.mean()) for c in curves(found, point)]


def rise(found: Found, point: Point) -> list[int]:
    """Rounds to 90 % of the final accuracy, by draw: the paper's rise time."""
    found_here = curves(found, point)
    return [runs.rounds_to(c, 0.9 * float(c[-1])) or len(c) for c in found_here]


def ahead(first: Sequence[float], second: Sequence[float]) -> bool:
    """Whether a claim that the first is better can stand: it is, or it is a tie."""
    return float(np.mean(first)) >= float(np.mean(second)) - TIE


def _told(found: Found, of: Mapping[str, Point]) -> str:
    """Final accuracy, and the mean over all rounds."""
    return " / ".join(
        f"{title} {runs.percent(final(found, p))} ({runs.percent(overall(found, p))})"
        for title, p in of.items()
    )


BOTH = "final accuracy in % (mean over all rounds)"


def rows(found: Found) -> list[Row]:
    """Figure 1 for each number of classes, figure 2 for gamma and n_0, and the supplement's figures."""
    return [
        *(_by_classes(found, c) for c in CLASSES),
        _by_gamma(found),
        _by_own(found),
        _scratch(found),
        _as_client(found),
    ]


def _row(
    place: str,
    what: str,
    paper: str,
    found: Found,
    needed: Sequence[Point],
    ours: str = "",
    good: bool = False,
    why: str = "",
) -> Row:
    """A row that is not run until all that it needs was."""
    if not all(runs.draws_of(found, point.name) for point in needed):
        return Row(place, what, paper)
    count = min(len(runs.draws_of(found, point.name)) for point in needed)
    return Row(
        place,
        what,
        paper,
        f"{ours}; {count} draw{'s' * (count > 1)}",
        SCALE,
        "MNIST, 10,000 and 10,000 images",
        Verdict.ORDER if good else Verdict.DISAGREES,
        why,
    )


def _by_classes(found: Found, classes: int) -> Row:
    what = f"C = {classes} of 10 classes a client; DS and FSL trained before at the server"
    alike = classes == CLASSES[-1]
    paper = (
        "all end alike" if alike else "FSL has the highest accuracy and is fastest, DS is above FL"
    )
    of = {kind: Point(kind, classes) for kind in ("FL", "DS", "FSL")}
    if not all(curves(found, point) for point in of.values()):
        return _row("figure 1", what, paper, found, list(of.values()))
    ends, means = (
        {kind: measure(found, point) for kind, point in of.items()} for measure in (final, overall)
    )
    if alike:
        levels = [float(np.mean(v)) for v in ends.values()]
        good, why = max(levels) - min(levels) <= 2 * TIE, "Alike is taken as: within a point."
    else:
        pairs = [("FSL", "DS"), ("FSL", "FL"), ("DS", "FL")]
        claims = {
            f"{a} {word} {b}": ahead(by[a], by[b])
            for word, by in (("ends above", ends), ("is faster than", means))
            for a, b in pairs
        }
        good = all(claims.values())
        not_so = [claim for claim, holds in claims.items() if not holds]
        why = f"Not so here: {', '.join(not_so)}." if not_so else ""
    return _row(
        "figure 1", what, paper, found, list(of.values()), f"{BOTH}: {_told(found, of)}", good, why
    )


def _by_gamma(found: Found) -> Row:
    what = "C = 2: gamma, for two step sizes and two sizes of the server's data; DS stands at 0"
    paper = "more accurate and faster than DS over a wide range of gamma; 0.5 to 1.5 are all about the same"
    needed, told, good = [], [], []
    for rate, own in SWEPT:
        of = {"DS": Point("DS", 2, rate=rate, own=own)}
        of |= {f"{g:g}": Point("FSL", 2, gamma=g, rate=rate, own=own) for g in gammas(own)}
        needed += list(of.values())
        if not all(curves(found, point) for point in of.values()):
            continue
        ends = {title: final(found, point) for title, point in of.items()}
        rises = {title: float(np.mean(rise(found, point))) for title, point in of.items()}
        told.append(
            f"step {rate:g}, {own} examples: "
            + " / ".join(
                f"{title} {runs.percent(ends[title])} ({rises[title]:.0f})" for title in of
            )
        )
        middle = ("0.5", "1", "1.5")
        levels = [float(np.mean(ends[title])) for title in middle]
        good.append(max(levels) - min(levels) <= 2 * TIE)
        good += [ahead(ends[title], ends["DS"]) for title in middle]
        good += [rises[title] <= rises["DS"] + 1 for title in middle]
    return _row(
        "figure 2",
        what,
        paper,
        found,
        needed,
        f"final accuracy in % by gamma (rounds to 90 % of it): {'; '.join(told)}",
        all(good),
        "About the same is taken as within a point; each of 0.5, 1 and 1.5 must end no lower than DS and "
        "rise no slower.",
    )


def _by_own(found: Found) -> Row:
    what = f"C = 2, gamma 1: {4 * OWN} examples at the server in place of {OWN}"
    few, many = Point("FSL", 2), Point("FSL", 2, own=4 * OWN)
    ends = [final(found, point) for point in (few, many)]
    good = all(ends) and float(np.mean(ends[1])) > float(np.mean(ends[0]))
    told = {f"{point.own} examples": point for point in (few, many)}
    return _row(
        "figure 2",
        what,
        "more of the server's data makes FSL better",
        found,
        list(told.values()),
        f"{BOTH}: {_told(found, told)}" if all(ends) else "",
        good,
        "",
    )


def _scratch(found: Found) -> Row:
    what = "nobody trained before: FL, DS and FSL from the same start, for every C"
    paper = "FSL is faster also where clients are alike (C = 10), where DS is hardly faster than FL"
    needed = [Point("FL", c) for c in CLASSES]
    needed += [Point(k, c, pretrained=False) for c in CLASSES for k in ("DS", "FSL")]
    told, good = [], []
    for classes in CLASSES:
        of = {kind: Point(kind, classes, pretrained=False) for kind in ("FL", "DS", "FSL")}
        if not all(curves(found, point) for point in of.values()):
            continue
        told.append(f"C = {classes}: {_told(found, of)}")
        means = {kind: float(np.mean(overall(found, point))) for kind, point in of.items()}
        good.append(means["FSL"] > max(means["FL"], means["DS"]))
        if classes == CLASSES[-1]:
            good.append(means["DS"] - means["FL"] < 0.5 * (means["FSL"] - means["FL"]))
    return _row(
        "supplement, figure 1",
        what,
        paper,
        found,
        needed,
        f"{BOTH}: {'; '.join(told)}",
        all(good),
        "Judged by the mean over all rounds: FSL above both for every C, and with C = 10 DS gains less than "
        "half of what FSL gains.",
    )


def _as_client(found: Found) -> Row:
    what = "FSL-p, the server as one more client, for every C; all trained before"
    paper = "FSL-p slightly worse than DS, FSL much better than both"
    needed = [Point(k, c) for c in CLASSES for k in KINDS[1:]]
    told, good = [], []
    for classes in CLASSES:
        of = {kind: Point(kind, classes) for kind in KINDS[1:]}
        if not all(curves(found, point) for point in of.values()):
            continue
        told.append(f"C = {classes}: {_told(found, of)}")
        means = {kind: overall(found, point) for kind, point in of.items()}
        good += [ahead(means["FSL"], means["DS"]), ahead(means["DS"], means["FSL-p"])]
    return _row(
        "supplement, figure 2",
        what,
        paper,
        found,
        needed,
        f"{BOTH}: {'; '.join(told)}",
        all(good),
        "Judged by the mean over all rounds.",
    )


def table(found: Found) -> str:
    """Everything that was run."""
    heads = ("C", "method", "gamma", "step size", "server's examples", "trained before")
    measures = ("final accuracy, %", "mean over all rounds, %", "rise time, rounds", "draws")
    lines = [f"| {' | '.join((*heads, *measures))} |", "|---" * (len(heads) + len(measures)) + "|"]
    for point in points():
        ends = final(found, point)
        if ends:
            gamma = f"{point.gamma:g}" if point.kind == "FSL" else ""
            own = "" if point.kind == "FL" else f"{point.own}"
            before = "" if point.kind == "FL" else ("yes" if point.pretrained else "no")
            told = [f"{point.classes}", point.kind, gamma, f"{point.rate:g}", own, before]
            told += [runs.percent(ends), runs.percent(overall(found, point))]
            told += [f"{np.mean(rise(found, point)):.0f}", f"{len(ends)}"]
            lines.append(f"| {' | '.join(told)} |")
    return "\n".join([*lines, "", "Rise time: rounds to 90 % of the final accuracy."])


def figure(found: Found, path: Path) -> None:
    """Accuracy by round on the first draw, a panel for each number of classes; dashed: not trained before."""
    there = [c for c in CLASSES if any(name.startswith(f"{c}-") for name in found)]
    with figures.panels(path, len(there), most=2) as axes:
        for axis, classes in zip(axes, there, strict=True):
            for number, kind in enumerate(KINDS):
                for pretrained in (True, False) if kind in ("DS", "FSL") else (True,):
                    point = Point(kind, classes, pretrained=pretrained)
                    for curve in curves(found, point)[:1]:
                        axis.plot(
                            np.arange(1, len(curve) + 1),
                            100 * curve,
                            color=f"C{number}",
                            linestyle="-" if pretrained else "--",
                            linewidth=1,
                            label=kind if pretrained else f"{kind}, not trained before",
                        )
            axis.set(title=f"C = {classes}", xlabel="rounds", ylabel="accuracy in %")
            axis.legend(fontsize="small")


STUDY = Study(
    "fsl/classes",
    "Few classes a client, IID data at the server: FL, data sharing and server learning, on MNIST",
    needs=("mnist",),
    searched="gamma 0.05 (0.2 with 200 examples), 0.5, 1, 1.5, 2 in figure 2, all shown; elsewhere gamma is "
    "1 and one step size serves all methods, as in the paper. The server's step size is that of clients "
    "times the root of the cohort for FSL, that of clients for FSL-p.",
    cells=cells,
    rows=rows,
    table=table,
    figure=figure,
)
