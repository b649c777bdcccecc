"""Transfer against parallel training as the server's loss moves away from the clients'.

Quadratics f_i(x) = 1/2 sum_j a_ij (x_j - b_ij)^2 on clients and one more at the server, whose centre
is pushed away step by step. Everything has a closed form: the joint optimum, and with it the gap
f(x) - f(x*) that a method is left with. The paper's analysis assumes equal clients; here both, equal
and unequal ones.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes

import holdfast as hf
from papers.mixed import common, report
from papers.mixed.common import HALF, MIXED, SCAFFOLD_ONE_WAY, Watch, silent

CLIENTS, DIMENSIONS = 10, 8
STEPS, LEARNING_RATE = 5, 0.05
DISTANCES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)  # of the server's centre from the clients' optimum
FLOOR = 1e-12  # below this a gap is rounding
TARGET = 1e-3
RATES = (0.2, 0.1, 0.05, 0.02, 0.01, 0.005)

CORRECTED = hf.Algorithm(
    hf.Chain((hf.rules.ControlVariate(), hf.rules.OneWayTransfer(*HALF))), name="scaffold_one_way"
)
METHODS: dict[str, hf.Algorithm] = MIXED | {SCAFFOLD_ONE_WAY: CORRECTED}


def _loss(w: jnp.ndarray, batch: hf.Examples) -> jnp.ndarray:
    return 0.5 * jnp.sum(batch.x * (w[None] - batch.y) ** 2, axis=1)


def _begin(key: jnp.ndarray, examples: hf.Examples) -> jnp.ndarray:
    return jnp.zeros(examples.x.shape[1], examples.x.dtype)


QUADRATIC = hf.Model(_begin, _loss, name="quadratic")  # x holds curvatures, y centres


@dataclasses.dataclass(frozen=True)
class Problem:
    """Clients' quadratics, the server's, and what is known of their mixture."""

    clients: hf.Clients
    own: hf.Examples
    curvature: np.ndarray  # of the mixed loss
    optimum: np.ndarray

    def gap(self, x: np.ndarray) -> float:
        """f(x) - f(x*)."""
        away = np.asarray(x, float) - self.optimum
        return float(0.5 * np.sum(self.curvature * away**2))


@dataclasses.dataclass(frozen=True)
class Line:
    """One kind of clients: dissimilarity per distance, and per method what became of it."""

    G2: np.ndarray
    gap: dict[str, np.ndarray]  # after all rounds, at the same step size for everybody
    rounds: dict[str, np.ndarray]  # to a gap of TARGET, at each method's best step size


def problem(distance: float, unequal: bool, seed: int = 0) -> Problem:
    """A population and, at a distance from its optimum, the server's centre."""
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(0.5, 4, (CLIENTS, DIMENSIONS)), rng.normal(0, 1, (CLIENTS, DIMENSIONS))
    if not unequal:
        a, b = np.tile(a[:1], (CLIENTS, 1)), np.tile(b[:1], (CLIENTS, 1))
    own_a, direction = rng.uniform(0.5, 4, DIMENSIONS), rng.normal(0, 1, DIMENSIONS)
    federated = (a * b).sum(0) / a.sum(0)
    own_b = federated + distance * direction / np.linalg.norm(direction)
    curvature = 0.5 * a.mean(0) + 0.5 * own_a
    optimum = (0.5 * (a * b).mean(0) + 0.5 * own_a * own_b) / curvature

    def examples(x: np.ndarray, y: np.ndarray) -> hf.Examples:
        return hf.Examples(x.astype(np.float32), y.astype(np.float32))

    clients = hf.Clients.from_rows(examples(a, b), [[i] for i in range(CLIENTS)])
    return Problem(clients, examples(own_a[None], own_b[None]), curvature, optimum)


def final_gap(method: str, given: Problem, rounds: int, rate: float = LEARNING_RATE) -> float:
    """How far above the optimum a method ends."""
    local = hf.Local(rate, steps=STEPS)
    end = hf.simulate(
        METHODS[method],
        QUADRATIC,
        given.clients,
        local,
        rounds,
        server=hf.Server(given.own, local),
        progress=False,
    )
    return given.gap(end.params)


def rounds_needed(method: str, given: Problem, rate: float, limit: int) -> int:
    """Rounds until the gap is small, `limit` if that is too few."""
    local = hf.Local(rate, steps=STEPS)
    server = hf.Server(given.own, local)
    for state in hf.rounds(METHODS[method], QUADRATIC, given.clients, local, server=server):
        gap = given.gap(state.params)
        if gap <= TARGET or state.round >= limit or not np.isfinite(gap):
            return state.round if gap <= TARGET else limit
    raise AssertionError("rounds have no end")


def fewest_rounds(method: str, given: Problem, limit: int) -> float:
    """With the best of several step sizes; NaN if none of them gets there."""
    best = limit
    for rate in RATES:
        best = min(best, rounds_needed(method, given, rate, best))
    return best if best < limit else float("nan")


def dissimilarity(given: Problem, rounds: int) -> float:
    """The paper's sampled G~^2, its largest value in rounds 10 to 100 with one step a round."""
    local = hf.Local(LEARNING_RATE, steps=1)
    measured = common.largest_dissimilarity(
        silent,
        "",
        seeds=1,
        rounds=rounds,
        first=min(10, rounds),
        every=min(10, rounds),
        model=QUADRATIC,
        clients=given.clients,
        local=local,
        server=hf.Server(given.own, local),
    )
    return measured["G2"]


def compare(
    distances: Sequence[float] = DISTANCES,
    rounds: int = 120,
    limit: int = 200,
    seed: int = 0,
    watch: Watch = silent,
) -> dict[str, Line]:
    """Every method at every distance, for equal and for unequal clients."""
    found = {}
    for name, unequal in (("equal clients", False), ("unequal clients", True)):
        problems = [problem(d, unequal, seed) for d in distances]
        gap, needed = {}, {}
        for k, method in enumerate(METHODS):
            watch(f"dissimilarity, {name}, {method}", k, len(METHODS))
            gap[method] = np.array([final_gap(method, p, rounds) for p in problems])
            needed[method] = np.array([fewest_rounds(method, p, limit) for p in problems])
        apart = np.array([dissimilarity(p, min(rounds, 100)) for p in problems])
        found[name] = Line(apart, gap, needed)
    return found


def table(line: Line, values: dict[str, np.ndarray], form: str) -> str:
    """One row per distance, one column per method."""
    rows = [
        (f"{g2:.3g}", *(form.format(values[m][k]).replace("nan", "-") for m in values))
        for k, g2 in enumerate(line.G2)
    ]
    return report.markdown(["measured G̃²", *values], rows)


def write(found: dict[str, Line], folder: Path = report.RESULTS) -> None:
    """`dissimilarity.md` and `dissimilarity.png`."""
    parts = []
    for name, line in found.items():
        parts += [f"Gap to the joint optimum, {name}, everybody with step size {LEARNING_RATE}:"]
        parts += [table(line, line.gap, "{:.1e}")]
        parts += [f"Rounds to a gap of {TARGET}, {name}, each with its best step size:"]
        parts += [table(line, line.rounds, "{:.0f}")]
    report.write(folder, "dissimilarity", *parts)
    equal, unequal = found.values()
    figure, (left, middle, right) = report.panels(3)
    draw(left, equal.G2, {m: np.maximum(v, FLOOR) for m, v in equal.gap.items()})
    draw(middle, unequal.G2, {m: np.maximum(v, FLOOR) for m, v in unequal.gap.items()})
    draw(right, equal.G2, equal.rounds)
    for axes in (left, middle):
        axes.set(ylabel="f(x) - f(x*) at the end", ylim=(FLOOR / 4, 0.5))
    left.set_title("Equal clients: only parallel training is biased")
    middle.set_title("Unequal clients: all but SCAFFOLD + 1-way are")
    right.set(
        title="Equal clients, each with its best step size", ylabel=f"rounds to a gap of {TARGET}"
    )
    right.set_yticks([3, 10, 30, 100], ["3", "10", "30", "100"])
    right.minorticks_off()
    left.annotate("rounding", (1, FLOOR), (1, 8 * FLOOR), color="0.4", fontsize=9)
    left.legend(frameon=False, fontsize=9, loc="center right", bbox_to_anchor=(1, 0.42))
    report.save(figure, folder, "dissimilarity")


def draw(axes: Axes, apart: np.ndarray, values: dict[str, np.ndarray]) -> None:
    """Values of all methods against the measured dissimilarity, both on a logarithmic scale."""
    for k, (method, marker) in enumerate(report.MARKERS.items()):
        # Methods that agree are drawn inside one another: the first has the largest, hollow marker.
        look = report.style_of(method) | {"marker": marker, "markersize": 11 - 2.5 * k}
        axes.loglog(apart, values[method], label=method, markerfacecolor="none", **look)
    axes.set_xlabel("dissimilarity of clients and server, G̃²")
