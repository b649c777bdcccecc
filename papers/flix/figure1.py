"""FLIX, figures 1, 5 and 6: against FOMAML and Reptile, on other data than the paper's Stack Overflow."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from papers import figures
from papers.flix import claims, tuning
from papers.flix.regression import increasing, markdown
from papers.flix.tuning import ALPHAS, FLIX, FOMAML, INNER_RATES, RATES, REPTILE, TOLERANCES
from papers.study import Asked, Cell, Found, Row, Study

DRAWS = (0, 1, 2)
ROUNDS = 400
MANY = 4000  # rounds of runs that had not come to their end
LONGER = (0.6, 0.8)
INSIDE = ALPHAS[1:-1]
# What stands for the paper's two experiments, each with its figures.
DATA = {
    "hospitals": (
        "figure 1, a",
        "figure 5",
        "two users' posts divided among 100 workers; here four hospitals' patients, among 16",
        "heart disease, 16 clients",
    ),
    "people": (
        "figure 1, b",
        "figure 6",
        "50 users; here 30 people's activities",
        "HAPT, 30 people",
    ),
}
BETTER = "Better is by more than a standard error of the difference over splits."
METHODS = (*((FLIX, alpha) for alpha in ALPHAS), (FOMAML, 1.0), (REPTILE, 1.0))


def _name(data: str, method: str, alpha: float) -> str:
    if method == FLIX:
        return f"{data}-flix-{alpha:g}" if alpha else f"{data}-local"
    return f"{data}-{method.lower()}"


def cells(asked: Asked) -> list[Cell]:
    """Every method on both kinds of data."""
    if asked.quick:
        small = (FLIX, 0.4, "people", (0,), (5.0,), (0.1,), 4)
        return [Cell(_name("people", FLIX, 0.4), tuning.method, small, 0.1)]
    listed = []
    for data in DATA:
        for method, alpha in METHODS:
            seconds = TOLERANCES if method == FLIX else INNER_RATES
            args = (method, alpha, data, DRAWS, RATES, seconds, ROUNDS)
            listed.append(Cell(_name(data, method, alpha), tuning.method, args, 0.5))
    for alpha in LONGER:
        longer = (FLIX, alpha, "people", DRAWS, (0.5, 5.0), TOLERANCES[:1], MANY)
        listed.append(Cell(f"people-longer-{alpha:g}", tuning.method, longer, 0.5))
    return listed


def tests(found: Found, data: str) -> dict[tuple[str, float], np.ndarray]:
    """Test accuracies of all splits in per cent, by method."""
    return {
        key: 100 * np.array(found[name]["test"])
        for key in METHODS
        if (name := _name(data, *key)) in found
    }


def told(values: np.ndarray) -> str:
    """Mean and deviation over splits."""
    deviation = f" ± {values.std(ddof=1):.1f}" if len(values) > 1 else ""
    return f"{values.mean():.1f}{deviation}"


def better(ours: np.ndarray, others: Sequence[np.ndarray]) -> bool:
    """Whether the mean is higher than that of all others by more than the difference's standard error."""
    for other in others:
        gaps = ours - other
        if gaps.mean() <= gaps.std(ddof=1) / np.sqrt(len(gaps)):
            return False
    return True


def rows(found: Found) -> list[Row]:
    """Both parts of figure 1, and their grids."""
    return [row for data in DATA for row in (_comparison(found, data), _grid(found, data))]


def _comparison(found: Found, data: str) -> Row:
    place, _, what, about = DATA[data]
    claim = "recall@5: alpha from 0.2 to 0.8 better than FOMAML and Reptile"
    claim += ", by up to 11 %" if data == "hospitals" else ", best strictly between the ends"
    row = (place, f"in the paper {what}: test accuracy", claim)
    by = tests(found, data)
    if len(by) < len(METHODS):
        return Row(*row)
    best = max(INSIDE, key=lambda alpha: by[FLIX, alpha].mean())
    ours, meta = by[FLIX, best], [by[FOMAML, 1.0], by[REPTILE, 1.0]]
    said = " / ".join(f"alpha {alpha:g} {told(by[FLIX, alpha])}" for alpha in ALPHAS)
    said += f" / FOMAML {told(meta[0])} / Reptile {told(meta[1])} (3 splits, in %)"
    tells = {
        f"the best alpha inside ({best:g}) is better than both ends": better(
            ours, [by[FLIX, 0.0], by[FLIX, 1.0]]
        ),
        "it is better than FOMAML and Reptile": better(ours, meta),
    }
    return Row(
        *row,
        said,
        f"other data, accuracy in place of recall@5; {ROUNDS} rounds in place of 10,000 and 50,000",
        about,
        claims.verdict(tells, elsewhere=True),
        " ".join(part for part in (claims.broken(tells), BETTER, _late(found, data)) if part),
    )


def _late(found: Found, data: str) -> str:
    """Which methods would have gone on."""
    late = [
        f"alpha {alpha:g}" if method == FLIX else method
        for method, alpha in METHODS
        if found[_name(data, method, alpha)]["rounds"] == [ROUNDS] * len(DRAWS)
    ]
    longer = ", ".join(
        f"{told(100 * np.array(found[name]['test']))} at alpha {alpha:g}"
        for alpha in LONGER
        if (name := f"{data}-longer-{alpha:g}") in found
    )
    said = f"Best at the last round, so not yet at their end: {', '.join(late)}." if late else ""
    return f"{said} FLIX in {MANY:,} rounds: {longer}." if longer else said


def _grid(found: Found, data: str) -> Row:
    _, place, what, about = DATA[data]
    row = (
        place,
        f"in the paper {what}: the step size with the lowest validation loss, by alpha",
        "the smaller alpha, the larger the best step size, in proportion to 1 / alpha^2",
    )
    names = [_name(data, FLIX, alpha) for alpha in ALPHAS[1:]]
    if any(name not in found for name in names):
        return Row(*row)
    rates = [found[name]["chosen"][0] for name in names]
    ratio = rates[0] / rates[-1]
    tells = {
        "the best step size does not grow with alpha": increasing(rates[::-1]),
        "at alpha 0.2 it is (1 / 0.2)^2 = 25 times as large as at 1, to a step of the grid": (
            25 / 10 <= ratio <= 25 * 10
        ),
    }
    said = ", ".join(f"{alpha:g}: {rate:g}" for alpha, rate in zip(ALPHAS[1:], rates, strict=True))
    return Row(
        *row,
        f"by alpha {said}",
        f"other data; the paper's grid; {ROUNDS} rounds",
        about,
        claims.verdict(tells, elsewhere=True),
        claims.broken(tells),
    )


def table(found: Found) -> str:
    """Accuracies, what each method chose, and the grid."""
    listed = []
    for data, (*_, about) in DATA.items():
        for (method, alpha), values in tests(found, data).items():
            kept = found[_name(data, method, alpha)]
            rate, second = kept["chosen"]
            words = f"tolerance {second:g}" if method == FLIX else f"inner step {second:g}"
            chosen = words if (method, alpha) == (FLIX, 0.0) else f"step {rate:g}, {words}"
            name = f"FLIX, alpha = {alpha:g}" if method == FLIX else method
            rounds = ", ".join(map(str, kept["rounds"]))
            listed.append([about, name, told(values), chosen, rounds])
    for alpha in LONGER:
        if (name := f"people-longer-{alpha:g}") in found:
            kept = found[name]
            chosen = f"step {kept['chosen'][0]:g}, tolerance {kept['chosen'][1]:g}"
            rounds = ", ".join(map(str, kept["rounds"]))
            what = f"FLIX, alpha = {alpha:g}, {MANY:,} rounds"
            listed.append(
                [DATA["people"][-1], what, told(100 * np.array(kept["test"])), chosen, rounds]
            )
    head = ["data", "method", "test accuracy in %", "chosen on validation data", "best round"]
    parts = [markdown(head, listed)]
    for data, (_, place, _, about) in DATA.items():
        lines = []
        for alpha in ALPHAS[1:]:
            if (name := _name(data, FLIX, alpha)) in found:
                losses = {rate: loss for rate, _, loss in found[name]["grid"]}
                lines.append([f"{alpha:g}", *(_log(losses.get(rate)) for rate in RATES)])
        if lines:
            said = f"Logarithm of the validation loss by alpha and step size ({place}), {about}:"
            parts += [said, markdown(["alpha", *(f"{rate:g}" for rate in RATES)], lines)]
    return "\n\n".join(parts)


def _log(loss: float | None) -> str:
    return "-" if loss is None else f"{np.log(loss):.2f}"


def figure(found: Found, path: Path) -> None:
    """Test accuracy over alpha, with a line for either competitor."""
    there = [data for data in DATA if tests(found, data)]
    with figures.panels(path, len(there)) as axes:
        for axis, data in zip(axes, there, strict=True):
            by = tests(found, data)
            mixed = {alpha: values for (m, alpha), values in by.items() if m == FLIX}
            means = [values.mean() for values in mixed.values()]
            spread = [values.std(ddof=1) if len(values) > 1 else 0 for values in mixed.values()]
            axis.errorbar(list(mixed), means, yerr=spread, marker="o", capsize=3, label=FLIX)
            for number, method in enumerate((FOMAML, REPTILE)):
                if (method, 1.0) in by:
                    mean = by[method, 1.0].mean()
                    axis.axhline(mean, color=f"C{number + 1}", linestyle="--", label=method)
            axis.set(title=DATA[data][-1], xlabel="alpha", ylabel="test accuracy in %")
            axis.legend(fontsize="x-small")


STUDY = Study(
    "flix/figure1",
    "FLIX, FOMAML and Reptile on natural splits, and their step sizes",
    needs=("hapt", "heart disease"),
    searched="the paper's grids by the validation loss of the first split: step size 5e-2 to 5e6 by tens for "
    "every method and alpha; tolerance of local optima 1e-1 to 1e-5 by local models; inner step size 1e-3 to "
    "10 of FOMAML and Reptile, with five inner steps (Reptile's step is per mean inner gradient). On every "
    "split the best of four looks at the validation data. Runs of 4,000 rounds: step sizes 0.5 and 5.",
    cells=cells,
    rows=rows,
    table=table,
    figure=figure,
)
