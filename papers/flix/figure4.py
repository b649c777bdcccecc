"""FLIX, figures 4 and 15: two kinds of sines, fitted by mixtures of a local and a global network."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from papers import figures
from papers.flix import sines
from papers.flix.regression import markdown
from papers.flix.sines import ALPHAS, EVEN, FEW, FEW_ALPHAS, MANY, PROPORTIONS, UNEVEN
from papers.study import Asked, Cell, Found, Row, Study, Verdict

DRAWS = (0, 1, 2)  # of the two functions
LENGTHS = (300, 1000)  # most steps of a search by the paper's optimiser
CLEARLY = 0.8  # "dramatically": a fifth less than the better end
TIE = 0.98
PAPER = "the best alpha, between 0 and 1, dramatically outperforms both ends"
WEIGHTS = "mixture of weights"


def fifth(proportion: Sequence[int]) -> tuple[int, int]:
    """A fifth of the clients."""
    return proportion[0] // sines.FIFTH, proportion[1] // sines.FIFTH


def paper(draw: int) -> tuple[int, int, tuple[float, ...], None]:
    """Points, draw, alphas, and L-BFGS."""
    return MANY, draw, ALPHAS, None


def _name(proportion: Sequence[int]) -> str:
    return f"{proportion[0]}:{proportion[1]}"


def cells(asked: Asked) -> list[Cell]:
    """A draw of everything before the next one."""
    if asked.quick:
        return [Cell("fifth-0", sines.errors, ([(1, 2)], FEW, 0, (0.0, 0.5, 1.0), 5), 0.1)]
    listed = []
    small = [fifth(p) for p in PROPORTIONS]
    for draw in DRAWS:
        listed += [
            *(
                Cell(f"paper-{first}-{draw}", sines.errors, ([(first, second)], *paper(draw)), 0.3)
                for first, second in PROPORTIONS
            ),
            Cell(f"few-{draw}", sines.errors, (small, FEW, draw, ALPHAS, None), 0.5),
            Cell(f"fifth-{draw}", sines.errors, (small[:1], MANY, draw, FEW_ALPHAS, None), 0.3),
        ]
        listed += [
            Cell(
                f"descent{n}-{draw}", sines.errors, (small[:1], MANY, draw, FEW_ALPHAS, n), n / 600
            )
            for n in LENGTHS
        ]
        more = (small[-1], draw, ALPHAS, sines.GROUP_ROUNDS)
        listed.append(Cell(f"remedies-{draw}", sines.remedies, more, 0.7))
    return listed


def curves(found: Found, kind: str, name: str) -> np.ndarray:
    """Test errors by alpha, a line for each draw that was run."""
    names = [n for draw in DRAWS if (n := f"{_whole(kind, name)}-{draw}") in found]
    return np.array([found[n]["errors"][name] for n in names])


def _whole(kind: str, name: str) -> str:
    """In the paper's setting every proportion has cells of its own."""
    return f"paper-{name.partition(':')[0]}" if kind == "paper" else kind


def middle(errors: np.ndarray) -> int:
    """The place of the best alpha strictly between the ends, on average of the draws."""
    return 1 + int(errors[:, 1:-1].mean(0).argmin())


def gains(errors: np.ndarray) -> np.ndarray:
    """The error of the best alpha between the ends over that of the better end, on every draw."""
    return np.asarray(errors[:, middle(errors)] / np.minimum(errors[:, 0], errors[:, -1]))


def mean(ratios: np.ndarray) -> float:
    """Geometric."""
    return math.exp(float(np.mean(np.log(ratios))))


def verdict(ratios: np.ndarray) -> Verdict:
    """Whether a mixture beats both ends on every draw, and by a fifth or more."""
    if not (ratios < 1).all() or mean(ratios) > TIE:
        return Verdict.DISAGREES
    return Verdict.AGREES if mean(ratios) <= CLEARLY else Verdict.ORDER


def told(errors: np.ndarray, alphas: Sequence[float] = ALPHAS) -> str:
    """Both ends, the best between them, and by how much it is better."""
    best, ratios = middle(errors), gains(errors)
    parts = [
        f"{words} {errors[:, place].mean():.4f}"
        for words, place in (
            ("alpha 0:", 0),
            (f"{alphas[best]:g}:", best),
            ("1:", -1),
        )
    ]
    draws = f"{int((ratios < 1).sum())} of {len(ratios)} draws"
    return (
        f"{', '.join(parts)}; best mixture over better end {mean(ratios):.2f}, below 1 in {draws}"
    )


def rows(found: Found) -> list[Row]:
    """All proportions in one row, each in its own, and what the authors recommend."""
    ours = {_name(p): curves(found, "paper", _name(p)) for p in PROPORTIONS}
    what = "average MSE of 200 clients on new points over alpha"
    first = ("figure 4", f"{what}, all proportions", PAPER)
    made = []
    if all(len(errors) for errors in ours.values()):
        ratios = np.concatenate([gains(errors) for errors in ours.values()])
        each = ", ".join(f"{name} {mean(gains(errors)):.2f}" for name, errors in ours.items())
        text = f"best mixture over better end {mean(ratios):.2f}: {each}"
        made.append(Row(*first, text, SCALE, DATA, verdict(ratios), " ".join(reasons(found))))
    else:
        made.append(Row(*first))
    for name, errors in ours.items():
        row = ("figure 15", f"{what}, {name}", PAPER)
        known = (told(errors), SCALE, DATA, verdict(gains(errors))) if len(errors) else ()
        made.append(Row(*row, *known))
    return [*made, *remedies(found)]


SCALE = "full; L-BFGS in place of gradient descent with a line search"
DATA = "generated as section 4 says, 50 points a client, 2,000 for the test"


def reasons(found: Found) -> Iterator[str]:
    """By experiment, on a fifth of the clients: few points, and local models trained too little."""
    few = {p: curves(found, "few", _name(fifth(p))) for p in PROPORTIONS}
    there = [errors for errors in few.values() if len(errors)]
    if there:
        ratios = np.concatenate([gains(errors) for errors in there])
        yield (
            f"With {FEW} points a client and a fifth of the clients a mixture is better in "
            f"{int((ratios < 1).sum())} of {len(ratios)} cases, with {mean(ratios):.2f} times the error of "
            "the better end: mixing pays where local models cannot be good."
        )
    name = _name(fifth(UNEVEN))
    whole = curves(found, "fifth", name)
    for length in LENGTHS:
        errors = curves(found, f"descent{length}", name)
        if len(errors) and len(whole):
            late = np.mean(
                [c["late_clients"] for n, c in found.items() if n.startswith(f"descent{length}-")]
            )
            yield (
                f"With the paper's optimiser stopped after {length} steps ({late:.0%} of local searches have "
                f"not reached the tolerance) it is {mean(gains(errors)):.2f} times, by L-BFGS "
                f"{mean(gains(whole[: len(errors)])):.2f} times."
            )


def remedies(found: Found) -> Iterator[Row]:
    """Section 11: ensembles in place of weights, and optima of clusters where data are few."""
    own = curves(found, "few", _name(fifth(EVEN)))
    wanted = {
        sines.ENSEMBLE: (
            "ensemble of predictions in place of the mixture of weights",
            "may remedy that local optima are not unique",
        ),
        sines.CLUSTERS: (
            "optima of clusters of clients in place of each client's own",
            "mitigates that a client's data are few",
        ),
    }
    for name, (what, paper) in wanted.items():
        row = ("section 11", f"sines with {FEW} points: {what}", paper)
        errors = curves(found, "remedies", name)
        draws = min(len(errors), len(own))
        if not draws:
            yield Row(*row)
            continue
        ratios = errors[:draws].min(1) / own[:draws].min(1)
        said = f"lowest error over that of the mixture with clients' own optima {mean(ratios):.2f}"
        why = ""
        if name == sines.CLUSTERS:
            pure = [c["purity"] for n, c in found.items() if n.startswith("remedies-")]
            said += (
                f"; k-means puts {min(pure):.0%} to {max(pure):.0%} of the clients with their kind"
            )
            truly = curves(found, "remedies", sines.TRUE_GROUPS)[:draws].min(1) / own[:draws].min(1)
            why = f"With the true groups it is {mean(truly):.2f}."
        else:
            why = "All searches start at the same parameters: weights mix well here. A tie within 5 %."
        better = Verdict.AGREES if mean(ratios) < 0.95 else Verdict.ORDER
        judged = better if mean(ratios) < 1.05 else Verdict.DISAGREES
        yield Row(
            *row, f"{said} ({draws} draws)", "40 clients", "generated, 18:22 clients", judged, why
        )


def table(found: Found) -> str:
    """Both ends and the best alpha between, the remedies, and the paper's optimiser."""
    listed = []
    for kind, words in (
        ("paper", f"200 clients, {MANY} points"),
        ("few", f"40 clients, {FEW} points"),
        ("fifth", f"40 clients, {MANY} points"),
        *((f"descent{n}", f"the same, gradient descent, at most {n} steps") for n in LENGTHS),
        ("remedies", f"40 clients, {FEW} points"),
    ):
        for name in _names(found, kind):
            listed.append(_line(words, name, curves(found, kind, name)))
    head = ["setting", "clients of both kinds, or remedy", "alpha 0", "best between"]
    return markdown([*head, "alpha 1", "best : better end", "draws in which it wins"], listed)


def _names(found: Found, kind: str) -> list[str]:
    """Proportions or remedies that were run."""
    there = [c["errors"] for n, c in found.items() if n.partition("-")[0] == kind]
    return list(dict.fromkeys(name for of in there for name in of))


def _line(words: str, name: str, errors: np.ndarray) -> list[str]:
    ratios = gains(errors)
    best = errors[:, middle(errors)].mean()
    alphas = {len(ALPHAS): ALPHAS, len(FEW_ALPHAS): FEW_ALPHAS}.get(errors.shape[1])
    at = f" (alpha {alphas[middle(errors)]:g})" if alphas else ""
    return [
        words,
        name,
        f"{errors[:, 0].mean():.5f}",
        f"{best:.5f}{at}",
        f"{errors[:, -1].mean():.5f}",
        f"{mean(ratios):.2f}",
        f"{int((ratios < 1).sum())} of {len(ratios)}",
    ]


def figure(found: Found, path: Path) -> None:
    """Errors over alpha: the paper's setting, few points, and the remedies."""
    lines = {
        f"200 clients, {MANY} points": [("paper", _name(p)) for p in PROPORTIONS],
        f"40 clients, {FEW} points": [("few", _name(fifth(p))) for p in PROPORTIONS],
        f"remedies, {_name(fifth(EVEN))}, {FEW} points": [
            ("few", _name(fifth(EVEN))),
            *(("remedies", n) for n in (sines.ENSEMBLE, sines.CLUSTERS, sines.TRUE_GROUPS)),
        ],
    }
    shown = {t: [w for w in of if _has(found, *w)] for t, of in lines.items()}
    shown = {title: of for title, of in shown.items() if of}
    with figures.panels(path, len(shown)) as axes:
        for axis, (title, of) in zip(axes, shown.items(), strict=True):
            for kind, name in of:
                errors = curves(found, kind, name).mean(0)
                own = WEIGHTS if title.startswith("remedies") and kind == "few" else name
                axis.semilogy(ALPHAS, errors, marker="o", markersize=3, linewidth=1, label=own)
            axis.set(title=title, xlabel="alpha (0: local, 1: global)", ylabel="mean squared error")
            axis.legend(fontsize="x-small")


def _has(found: Found, kind: str, name: str) -> bool:
    return name in _names(found, kind) and curves(found, kind, name).shape[1] == len(ALPHAS)


STUDY = Study(
    "flix/figure4",
    "Sines of two kinds, fitted by mixtures of a local and a global network",
    needs=(),
    searched="nothing: alpha is what is varied; all problems are solved to the paper's gradient norm of 0.01 "
    "from the same parameters. The best alpha is that with the lowest mean test error, as one reads it off "
    "the paper's figure.",
    cells=cells,
    rows=rows,
    table=table,
    figure=figure,
)
