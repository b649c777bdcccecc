"""Transfer against parallel training as the server's loss moves away from the clients' (tables 3 and 12).

Quadratics f_i(x) = 1/2 sum_j a_ij (x_j - b_ij)^2 on clients and one more at the server, whose centre
is pushed away step by step. Everything has a closed form: the joint optimum, and with it the gap
f(x) - f(x*) that a method is left with. The paper's analysis assumes equal clients; here both, equal
and unequal ones.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

import holdfast as hf
from papers import figures
from papers.mixed import runs
from papers.mixed.runs import HALF, MIXED, ONE_WAY, PARALLEL, TWO_WAY
from papers.study import Asked, Cell, Found, Row, Study, Values, Verdict

CLIENTS, DIMENSIONS = 10, 8
STEPS, RATE = 5, 0.05
DISTANCES = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0)  # of the server's centre from the clients' optimum
ROUNDS, LIMIT = 120, 200
FLOOR = 1e-11  # below this a gap is rounding
TARGET = 1e-3
RATES = (0.2, 0.1, 0.05, 0.02, 0.01, 0.005)
# Of which the largest with which a method converges is looked for.
STABLE = tuple(round(0.8 / 2 ** (k / 2), 4) for k in range(16))
KINDS = {"equal": "equal clients", "unequal": "unequal clients"}
# Of the noise of central batches: so many steps, at the same step size.
NOISE_STEPS, NOISE_RATE, NOISE_ROUNDS = (2, 8), 0.02, 600
SCAFFOLD = "scaffold_one_way"
METHODS = (*MIXED, SCAFFOLD)
NAMES = runs.NAMES | {SCAFFOLD: "SCAFFOLD + 1-way"}
COLOURS = runs.COLOURS | {SCAFFOLD: "#CC79A7"}
MARKERS = {PARALLEL: "o", ONE_WAY: "s", TWO_WAY: "^", SCAFFOLD: "D"}


def algorithm(method: str) -> hf.Algorithm:
    """One of the paper's three, or 1-way transfer with what corrects clients' own disagreement."""
    if method == SCAFFOLD:
        rules = (hf.rules.ControlVariate(), hf.rules.OneWayTransfer(*HALF))
        return hf.Algorithm(hf.Chain(rules), name=SCAFFOLD)
    return runs.mixed(method)


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


def final_gap(method: str, given: Problem, rounds: int, rate: float = RATE) -> float:
    """How far above the optimum a method ends."""
    local = hf.Local(rate, steps=STEPS)
    end = hf.simulate(
        algorithm(method),
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
    for state in hf.rounds(algorithm(method), QUADRATIC, given.clients, local, server=server):
        gap = given.gap(state.params)
        if gap <= TARGET or state.round >= limit or not np.isfinite(gap):
            return state.round if gap <= TARGET else limit
    raise AssertionError("rounds have no end")


def fewest_rounds(method: str, given: Problem, limit: int) -> int | None:
    """With the best of several step sizes; None if none of them gets there."""
    best = limit
    for rate in RATES:
        best = min(best, rounds_needed(method, given, rate, best))
    return best if best < limit else None


def converges(method: str, given: Problem, rate: float) -> bool:
    """Whether a method comes to rest: its gap after 80 rounds is no larger than after 40, or than `FLOOR`."""
    local = hf.Local(rate, steps=STEPS)
    server = hf.Server(given.own, local)
    first, middle = given.gap(np.zeros(DIMENSIONS)), 0.0
    for state in hf.rounds(algorithm(method), QUADRATIC, given.clients, local, server=server):
        gap = given.gap(state.params)
        if not np.isfinite(gap) or gap > 1e3 * first:
            return False
        if state.round == 40:
            middle = gap
        if state.round >= 80:
            return bool(gap <= max(1.001 * middle, FLOOR))
    raise AssertionError("rounds have no end")


def line(kind: str, method: str, distances: list[float], *, asked: Asked, folder: Path) -> Values:
    """A method at every distance: what gap is left, how many rounds it needs, what step sizes it stands."""
    rounds, limit = (3, 4) if asked.quick else (ROUNDS, LIMIT)
    problems = [problem(distance, kind == "unequal") for distance in distances]
    rates = () if asked.quick else STABLE
    return {
        "gap": [final_gap(method, given, rounds) for given in problems],
        "rounds": [fewest_rounds(method, given, limit) for given in problems],
        "largest_rate": next((r for r in rates if converges(method, problems[-1], r)), None),
    }


def dissimilarity(kind: str, distances: list[float], *, asked: Asked, folder: Path) -> Values:
    """The largest sampled G of rounds 10 to 100 with one step a round, squared, at every distance."""
    found = []
    for distance in distances:
        given = problem(distance, kind == "unequal")
        local = hf.Local(RATE, steps=1)
        done = hf.simulate(
            runs.mixed(PARALLEL),
            QUADRATIC,
            given.clients,
            local,
            3 if asked.quick else 100,
            server=hf.Server(given.own, local),
            evaluate=hf.diagnose.dissimilarity(*HALF, every=1 if asked.quick else 10),
            progress=False,
        )
        values = done.history["G2_mixed"]
        found.append(float(np.nanmax(values)))
    return {"G2": found}


def noise(method: str, steps: int, rate: float, *, asked: Asked, folder: Path) -> Values:
    """The mean gap that is left by central batches of one example, equal losses of clients and server."""
    rng = np.random.default_rng(0)
    given = problem(0.0, unequal=False)
    # Centres around the server's own, so that batches of one example disagree and their mean does not.
    away = rng.normal(0, 1, (32, DIMENSIONS))
    away -= away.mean(0)
    own = hf.Examples(np.repeat(given.own.x, len(away), 0), (given.own.y + away).astype(np.float32))
    local = hf.Local(rate, steps=steps, batch_size=1)
    server = hf.Server(own, local, gradient_batch_size=1)
    rounds = 4 if asked.quick else NOISE_ROUNDS
    gaps = []
    states = hf.rounds(
        algorithm(method),
        QUADRATIC,
        given.clients,
        hf.Local(rate, steps=steps),
        server=server,
    )
    for state in states:
        gaps.append(given.gap(state.params))
        if state.round >= rounds:
            break
    return {"gap": float(np.mean(gaps[rounds // 2 :]))}


def cells(asked: Asked) -> list[Cell]:
    """Of each kind of clients the dissimilarity at every distance, and a cell for each method."""
    if asked.quick:
        return [Cell(f"equal-{ONE_WAY}", line, ("equal", ONE_WAY, [1.0]))]
    distances = list(DISTANCES)
    made = [Cell(f"{kind}-dissimilarity", dissimilarity, (kind, distances), 0.2) for kind in KINDS]
    made += [Cell(f"{k}-{m}", line, (k, m, distances), 0.5) for k in KINDS for m in METHODS]
    return made + [
        Cell(f"noise-{m}-{steps}", noise, (m, steps, NOISE_RATE), 0.1)
        for m in MIXED
        for steps in NOISE_STEPS
    ]


SCALE = "8 dimensions, 10 clients, 5 steps"
DATA = "generated quadratics, of which the joint optimum is known"


def _all(found: Found, kind: str) -> dict[str, Values]:
    return {m: found[n] for m in METHODS if (n := f"{kind}-{m}") in found}


def rows(found: Found) -> list[Row]:
    """Table 3, in its dependence on G and on the noise of central batches, and table 12."""
    return [_rounds(found), _bias(found), _unequal(found), _noise(found), _rates(found)]


def _row(what: tuple[str, str, str], told: str, verdict: Verdict, why: str = "") -> Row:
    return Row(*what, told, SCALE, DATA, verdict, why)


def _few(values: list[Any]) -> str:
    return " / ".join("never" if v is None else f"{v:g}" for v in values)


def _rounds(found: Found) -> Row:
    """Agrees where parallel training's rounds more than double with G, and transfer's hardly grow."""
    what = (
        "table 3",
        f"rounds to a gap of {TARGET:g} as G grows, equal clients, each method with its best step size",
        "parallel training grows with G, 1-way and 2-way transfer do not",
    )
    there = {m: one["rounds"] for m, one in _all(found, "equal").items() if m in MIXED}
    if len(there) < len(MIXED) or "equal-dissimilarity" not in found:
        return Row(*what)
    growth = {m: (r[-1] or LIMIT) / (r[0] or LIMIT) for m, r in there.items()}
    right = growth[PARALLEL] > 2 and all(growth[m] <= 1.1 for m in (ONE_WAY, TWO_WAY))
    told = "; ".join(f"{NAMES[m]} {_few(r)}" for m, r in there.items())
    apart = " / ".join(f"{g:.3g}" for g in found["equal-dissimilarity"]["G2"])
    said = f"{told}, at G̃² of {apart}"
    why = (
        f"2-way transfer needs {there[TWO_WAY][-1]} rounds where 1-way needs {there[ONE_WAY][-1]}: the "
        "gradients it transfers are those of the round before. That it converges at least as well as the "
        "others does not hold here."
    )
    return _row(what, said, Verdict.AGREES if right else Verdict.DISAGREES, why)


def _bias(found: Found) -> Row:
    """Agrees where at a fixed step size parallel training alone has a gap, and it grows with G."""
    what = (
        "table 3",
        f"gap that is left at the step size {RATE:g}, equal clients",
        "a term with G for parallel training alone",
    )
    there = {m: one["gap"] for m, one in _all(found, "equal").items() if m in MIXED}
    if len(there) < len(MIXED):
        return Row(*what)
    grows = there[PARALLEL][-1] > 10 * there[PARALLEL][1] > 1e-6
    none = all(max(there[m]) < 1e-9 for m in (ONE_WAY, TWO_WAY))
    told = "; ".join(f"{NAMES[m]} {' / '.join(f'{v:.0e}' for v in g)}" for m, g in there.items())
    return _row(what, told, Verdict.AGREES if grows and none else Verdict.DISAGREES)


def _unequal(found: Found) -> Row:
    """Agrees where no method's gap is above that of parallel training, which grows fastest with G."""
    what = (
        "table 3",
        f"gap that is left at the step size {RATE:g}, unequal clients (not covered by assumption 5.1)",
        "another term for the variance of clients' gradients, for all three",
    )
    there = {m: one["gap"] for m, one in _all(found, "unequal").items()}
    if len(there) < len(METHODS):
        return Row(*what)
    biased = all(min(there[m]) > 1e-6 for m in MIXED)
    told = "; ".join(f"{NAMES[m]} {' / '.join(f'{v:.0e}' for v in g)}" for m, g in there.items())
    why = (
        "Transfer corrects what clients and server disagree about, not what clients disagree about; the "
        "chain of SCAFFOLD's correction and 1-way transfer corrects both."
    )
    return _row(what, told, Verdict.AGREES if biased else Verdict.DISAGREES, why)


def _noise(found: Found) -> Row:
    """Agrees where from 2 to 8 steps only 1-way transfer's share of noise grows, by 2 to 8 times."""
    what = (
        "table 3",
        "gap left by the noise of central batches of one example, K = 2 and 8 steps",
        "1-way transfer's noise is K times that of the others",
    )
    there = {
        m: [found[n]["gap"] for k in NOISE_STEPS if (n := f"noise-{m}-{k}") in found] for m in MIXED
    }
    if not all(len(values) == len(NOISE_STEPS) for values in there.values()):
        return Row(*what)
    times = [one / other for one, other in zip(there[ONE_WAY], there[PARALLEL], strict=True)]
    near = all(0.5 * k <= t <= 2 * k for k, t in zip(NOISE_STEPS, times, strict=True))
    told = "; ".join(f"{NAMES[m]} {' / '.join(f'{v:.2g}' for v in g)}" for m, g in there.items())
    said = f"{told}; 1-way to parallel {' and '.join(f'{t:.1f}' for t in times)} times"
    return _row(what, said, Verdict.AGREES if near else Verdict.DISAGREES)


def _rates(found: Found) -> Row:
    """Order agrees where 1-way transfer stands the largest step sizes and 2-way smaller ones."""
    what = (
        "table 12",
        f"the largest step size of {STEPS} steps at which a method converges",
        "1-way 1/(8 beta) above 2-way 1/(81 beta); parallel training 1/(6 (1 + B²) beta)",
    )
    there = {m: one["largest_rate"] for m, one in _all(found, "equal").items() if m in MIXED}
    if len(there) < len(MIXED) or None in there.values():
        return Row(*what)
    right = there[ONE_WAY] > there[TWO_WAY]
    told = " / ".join(f"{NAMES[m]} {value:g}" for m, value in there.items())
    why = (
        f"Tried were {len(STABLE)} step sizes from {STABLE[0]:g}, each the last divided by the root of 2, "
        "on equal clients at the largest distance. The paper's limits are those with which its proofs "
        "work, not those of the methods: here each side of 2-way transfer and of parallel training comes to "
        "rest at the minimiser of its own loss, while 1-way transfer adds the same central gradient in every "
        "step and diverges beyond 2 / (K beta)."
    )
    return _row(what, told, Verdict.ORDER if right else Verdict.DISAGREES, why)


def table(found: Found) -> str:
    """Gaps and rounds by dissimilarity, for both kinds of clients."""
    parts = []
    for kind, title in KINDS.items():
        there, apart = _all(found, kind), found.get(f"{kind}-dissimilarity")
        if not there or apart is None:
            continue
        for field, said in (
            ("gap", f"Gap to the joint optimum, {title}, everybody with step size {RATE:g}:"),
            ("rounds", f"Rounds to a gap of {TARGET:g}, {title}, each with its best step size:"),
        ):
            head = "| measured G̃² | " + " | ".join(NAMES[m] for m in there) + " |"
            lines = [head, "|---" * (1 + len(there)) + "|"]
            for k, g2 in enumerate(apart["G2"]):
                values = [one[field][k] for one in there.values()]
                told = [
                    "never" if v is None else f"{v:.1e}" if field == "gap" else str(v)
                    for v in values
                ]
                lines.append(f"| {g2:.3g} | {' | '.join(told)} |")
            parts += [said, "\n".join(lines)]
    return "\n\n".join(parts) or "| nothing was run |\n|---|"


def figure(found: Found, path: Path) -> None:
    """Gap and rounds against dissimilarity."""
    with figures.panels(path, 3) as axes:
        for axis, (kind, field) in zip(
            axes, (("equal", "gap"), ("unequal", "gap"), ("equal", "rounds")), strict=True
        ):
            apart = found.get(f"{kind}-dissimilarity")
            for k, (m, one) in enumerate(_all(found, kind).items()):
                if apart is not None:
                    values = [np.nan if v is None else max(v, FLOOR) for v in one[field]]
                    # Methods that agree are drawn inside one another: the first has the largest marker.
                    look = {"marker": MARKERS[m], "markersize": 11 - 2.5 * k, "color": COLOURS[m]}
                    axis.loglog(apart["G2"], values, label=NAMES[m], markerfacecolor="none", **look)
            said = "gap left" if field == "gap" else f"rounds to a gap of {TARGET:g}"
            axis.set(
                title=f"{KINDS[kind]}: {said}", xlabel="dissimilarity of clients and server, G̃²"
            )
            if axis.lines:
                axis.legend(fontsize="x-small")


STUDY = Study(
    "mixed/dissimilarity",
    "Quadratics whose server moves away from the clients: bias, rounds, noise and step sizes",
    needs=(),
    searched="for rounds, each method's step size, 0.2, 0.1, 0.05, 0.02, 0.01 and 0.005; gaps are those of "
    "one step size for all.",
    cells=cells,
    rows=rows,
    table=table,
    figure=figure,
)
