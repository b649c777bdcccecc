"""Does a mixture fit sines better than the local and the global network? Figure 4 of the paper."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes

from papers.flix import sines
from papers.flix.sines import FEW, MANY, UNEVEN, Curves, Descent
from papers.mixed import report
from papers.mixed.common import Watch, silent

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00")  # Okabe and Ito's
MARKERS = ("o", "s", "^", "D")


def run(folder: Path, results: Path, quick: bool, watch: Watch = silent) -> str:
    """The whole study; its data are generated, so that `folder` is not needed."""
    if quick:
        small = (1, (0.0, 0.5, 1.0), (sines.EVEN,), (FEW,), 2, sines.descent(20))
        found = sines.compare(*small, watch=watch)
        slow = {}
    else:
        found = sines.compare(watch=watch)
        slow = {limit: sines.compare_descent(limit, watch=watch) for limit in sines.LENGTHS}
    draw(found, results)
    text = section(found, slow)
    report.write(results, "sine", text)
    return text


def middle(found: Curves, curve: np.ndarray) -> tuple[float, np.ndarray]:
    """The best alpha strictly between 0 and 1, on average of the draws, and its errors."""
    inside = [k for k, alpha in enumerate(found.alphas) if 0 < alpha < 1]
    best = min(inside, key=lambda k: curve[:, k].mean())
    return found.alphas[best], curve[:, best]


def by_points(found: Curves) -> Iterator[tuple[int, dict[tuple[int, int], np.ndarray]]]:
    """Curves of all proportions, first those with many points."""
    for points in dict.fromkeys(points for points, _ in found.by_proportion):
        curves = {p: c for (n, p), c in found.by_proportion.items() if n == points}
        yield points, curves


def draw(found: Curves, folder: Path) -> None:
    """Errors against alpha: by proportion with many and with few points, and the remedies."""
    groups = list(by_points(found))
    figure, axes = report.panels(len(groups) + 1, height=4.0)
    for axis, (points, curves) in zip(axes, groups, strict=False):
        lines = {f"{a} and {b} clients": curve for (a, b), curve in curves.items()}
        _plot(axis, found, lines)
        axis.set_title(f"{points} training points per client")
    own = found.by_proportion[FEW, sines.EVEN]
    _plot(axes[-1], found, {sines.WEIGHTS: own} | found.by_remedy)
    axes[-1].set_title(f"Remedies, {FEW} points, {sines.EVEN[0]} and {sines.EVEN[1]} clients")
    axes[0].set_ylabel("mean squared error on new points")
    report.save(figure, folder, "sine")


def _plot(axis: Axes, found: Curves, lines: dict[str, np.ndarray]) -> None:
    for (name, curve), colour, marker in zip(lines.items(), COLOURS, MARKERS, strict=False):
        axis.semilogy(
            found.alphas, curve.mean(0), label=name, color=colour, marker=marker, markersize=4
        )
    axis.set_xlabel("alpha (0: local, 1: global)")
    low, high = axis.get_ylim()
    axis.set_ylim(low, high * (high / low) ** 0.45)  # room for the legend
    axis.legend(frameon=False, fontsize=8, loc="upper left")
    axis.grid(visible=True, which="both", alpha=0.2)


def proportions_table(found: Curves) -> str:
    """Both ends and the best alpha between them."""
    rows = []
    for points, curves in by_points(found):
        for (a, b), curve in curves.items():
            alpha, best = middle(found, curve)
            ends = np.minimum(curve[:, 0], curve[:, -1])
            wins = int(np.sum(best < ends))
            numbers = (f"{v.mean():.5f}" for v in (curve[:, 0], best, curve[:, -1]))
            local, inside, whole = numbers
            gain = float(np.exp(np.mean(np.log(best / ends))))
            row = (points, f"{a} : {b}", local, inside, f"{alpha:g}", whole)
            rows.append((*row, f"{gain:.2f}", f"{wins} of {len(curve)}"))
    head = [
        "points per client",
        "clients",
        "local (alpha = 0)",
        "best mixture",
        "its alpha",
        "global (alpha = 1)",
        "mixture : better end",
        "draws in which it wins",
    ]
    return report.markdown(head, rows)


def remedies_table(found: Curves) -> str:
    """Every alpha for the mixture of weights, the ensemble, and shared optima."""
    own = found.by_proportion[FEW, sines.EVEN]
    rows = [
        (name, *(f"{value:.5f}" for value in curve.mean(0)))
        for name, curve in ({sines.WEIGHTS: own} | found.by_remedy).items()
    ]
    return report.markdown([f"{FEW} points; alpha:", *(f"{a:g}" for a in found.alphas)], rows)


def verdicts(found: Curves) -> Iterator[str]:
    """What the numbers say about the claim, and about the remedies."""
    for points, curves in by_points(found):
        wins, gains = [], []
        for curve in curves.values():
            best = middle(found, curve)[1]
            ends = np.minimum(curve[:, 0], curve[:, -1])
            wins += list(best < ends)
            gains += list(np.log(best / ends))
        share, gain = np.mean(wins), np.exp(np.mean(gains))
        word = "agrees" if share > 0.9 and gain < 0.95 else "agrees in part"
        word = "**does not agree**" if gain > 0.98 else word
        yield (
            f"- {points} points per client: {word}. The best mixture beats both ends in {sum(wins)} of "
            f"{len(wins)} cases (draws times proportions); its error is {gain:.2f} times that of the "
            f"better end (geometric mean)."
        )
    own, lowest = found.by_proportion[FEW, sines.EVEN], {}
    for name, curve in ({sines.WEIGHTS: own} | found.by_remedy).items():
        lowest[name] = curve.mean(0).min()
    ratio = lowest[sines.ENSEMBLE] / lowest[sines.WEIGHTS]
    yield (
        f"- Ensemble: its lowest error is {ratio:.2f} times that of the mixture of weights. Since all "
        f"searches start at the same parameters, the weights of these networks mix well enough."
    )
    ratio = lowest[sines.CLUSTERS] / lowest[sines.WEIGHTS]
    true = lowest[sines.TRUE_GROUPS] / lowest[sines.WEIGHTS]
    alone = found.by_remedy[sines.CLUSTERS].mean(0)[0] / own.mean(0)[0]
    pure = ", ".join(f"{share:.0%}" for share in found.purity)
    yield (
        f"- Clusters {'help' if ratio < 0.95 else 'do not help'}. The lowest error is "
        f"{ratio:.2f} times that of the mixture with clients' own optima, and the cluster's model "
        f"alone (alpha = 0) has {alone:.2f} times the error of a client's own. K-means on the optima puts "
        f"{pure} of the clients with their own kind (one number per draw); with the true groups the "
        f"lowest error is {true:.2f} times that of the mixture."
    )


def by_descent(found: Curves, slow: dict[int, Descent]) -> str:
    """The paper's optimiser with few and with many steps beside L-BFGS, on the same draws."""
    one = next(iter(slow.values()))
    draws = len(one.error)
    same = [found.alphas.index(alpha) for alpha in one.alphas]
    errors = {"L-BFGS": found.by_proportion[MANY, UNEVEN][:draws, same]}
    errors |= {f"gradient descent, at most {limit} steps": d.error for limit, d in slow.items()}
    rows = [(name, *(f"{value:.5f}" for value in error.mean(0))) for name, error in errors.items()]
    head = f"{MANY} points, {UNEVEN[0]} : {UNEVEN[1]} clients, {draws} draws; alpha:"
    return report.markdown([head, *(f"{a:g}" for a in one.alphas)], rows)


def gains(slow: Descent) -> np.ndarray:
    """The error of the best mixture over that of the better end, one per draw."""
    ends = np.minimum(slow.error[:, 0], slow.error[:, -1])
    return slow.error[:, 1:-1].min(axis=1) / ends


def descent_verdict(slow: dict[int, Descent]) -> Iterator[str]:
    """Whether the paper's optimiser changes the answer, and how long it ran."""
    means = {limit: float(np.exp(np.mean(np.log(gains(one))))) for limit, one in slow.items()}
    for limit, one in slow.items():
        wins = f"{int(np.sum(gains(one) < 1))} of {len(one.error)} draws"
        yield (
            f"- The paper's optimiser, at most {limit} steps, {MANY} points: some mixture beats both ends "
            f"in {wins}, with {means[limit]:.2f} times the error of the better end. "
            f"{one.late_clients:.0%} of the clients' searches and {one.late:.0%} of the server's did not "
            f"reach the tolerance."
        )
    if means[min(means)] < 0.95 < 0.98 < means[max(means)]:
        yield (
            f"- So with {MANY} points the advantage is there while local models are trained too little, "
            f"and gone once they are trained to the tolerance; with {FEW} points, where local models "
            f"cannot be good, it stays."
        )


def section(found: Curves, slow: dict[int, Descent]) -> str:
    """What the paper did, what was done here, numbers, and what agrees."""
    draws = next(iter(found.by_proportion.values())).shape[0]
    late = int(np.sum(found.excess > 1))
    parts = [
        "## Sines",
        "**The paper** (section 4, figure 4): two functions a sin(x + b) with a in [0.1, 0.5] and b in "
        "[0, 2π]; each of 200 clients has one of them, 50 points in [-5, 5] and a network with two "
        "hidden layers of 40 (tanh). Local models and the FLIX objective are solved to a gradient norm "
        "of 0.01 by gradient descent with a line search. Claim: the best alpha strictly between 0 and 1 can "
        "dramatically outperform both ends on 2000 new points per client.",
        f"**Here**: {sum(sines.EVEN)} clients in the same proportions, {draws} draws of the two functions; "
        f"the same network, tolerance and test; {MANY} points per client as in the paper, and {FEW}. Both "
        f"problems are solved by L-BFGS (`hf.solvers`; at the server on the whole objective), since gradient "
        f"descent with a line search needs thousands of steps; one proportion is done with it too. At the "
        f"server the printed criterion is used, the norm of the mean of ∇f_i(T_i(x)); {late} of "
        f"{len(found.excess)} searches missed it. Every search starts at the same parameters. The best "
        f"mixture is the one with the lowest test error on average, as one reads it off the figure.",
        "![error against alpha](results/sine.png)",
        proportions_table(found),
        f"Remedies of the authors (their section 11), {sines.EVEN[0]} : {sines.EVEN[1]} clients: mixing "
        f"predictions instead of weights, and giving all clients of a cluster the model they train "
        f"together (`hf.flix.cluster`, `hf.flix.cluster_optima`: FedAvg).",
        remedies_table(found),
    ]
    lines = list(verdicts(found))
    if slow:
        parts.append(by_descent(found, slow))
        lines += descent_verdict(slow)
    return "\n\n".join([*parts, "\n".join(lines)])
