"""Label imbalance: clients have smiling faces only, the server the others (4.1, B.1, B.2.1, B.4)."""

import functools
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import holdfast as hf
from papers import figures
from papers.mixed import runs
from papers.mixed.runs import (
    CENTRAL,
    FEDERATED,
    METHODS,
    MIXED,
    NAMES,
    ONE_WAY,
    ORACLE,
    PARALLEL,
    TWO_WAY,
)
from papers.study import Asked, Cell, Found, Row, Study, Values, Verdict

FILE = "smiles/smiles_64x64.npz"
DRAWS = (0, 1, 2)
# Tables 5 and 6, but for the step size, which is searched.
ROUNDS, COHORT, STEPS, BATCH, HIDDEN = 100, 100, 2, 5, 64
CENTRAL_BATCH, ONE_WAY_BATCH = 500, 1000
RATES = (0.03, 0.1, 0.3, 1.0)
RATE = 0.03
# So many rounds, to see whether who is behind arrives.
LONGER = 400
EACH = 10  # faces of a client: those of two steps
# Figures 7 and 8, and figure 9: the text at hand has not which sizes; more steps have smaller ones.
BATCHES = (1, 5, 25, 100)
STEPS_TRIED = (1, 2, 4, 8)
PAPER = (49.04, 1.26)  # table 4
NEAR = 0.01  # of AUC: as good as the oracle
LEARNS = 0.6  # AUC of whoever does not diverge
DATA = "13,165 grey faces of 32 x 32 pixels, 3,690 of them smiling, in place of CelebA"
AUC = hf.metrics.named("auc")
Settings = dict[str, Any]


@functools.lru_cache(maxsize=2)
def examples(asked: Asked) -> hf.Examples:
    """Faces, 1 for those that smile; quick: digits, 1 for the odd ones."""
    if asked.quick:
        train, _ = hf.data.digits()
        return hf.Examples(np.asarray(train.x), (np.asarray(train.y) % 2).astype(np.int32))
    file = asked.data / FILE
    if not file.exists():
        raise hf.HoldfastError(
            f"mixed/imbalance: {file} is not there; it has the arrays x, (13165, 64, 64) bytes, and y, 1 for "
            f"a smile, of github.com/hromi/SMILEsmileD."
        )
    with np.load(file) as kept:
        pixels, y = kept["x"].astype(np.float32) / 255, kept["y"].astype(np.int32)
    # A quarter of the pixels, each the mean of four.
    return hf.Examples(pixels.reshape(-1, 32, 2, 32, 2).mean((2, 4)), y)


def world(settings: Settings, asked: Asked) -> dict[str, Any]:
    """Who holds what: test and validation have as many of either label, the others train."""
    whole = examples(asked)
    rng = np.random.default_rng(settings["draw"])
    positive, negative = (rng.permutation(np.flatnonzero(whole.y == k)) for k in (1, 0))
    kept = len(positive) // 5

    def of(rows: np.ndarray) -> hf.Examples:
        return hf.Examples(np.asarray(whole.x)[rows], np.asarray(whole.y)[rows])

    def held_out(begin: int) -> hf.Examples:
        return of(np.concatenate([p[begin : begin + kept] for p in (positive, negative)]))

    positives, negatives = positive[2 * kept :], negative[2 * kept :]
    both = np.concatenate([positives, negatives[: len(positives)]])
    return {
        "test": held_out(0),
        "validation": held_out(kept),
        "clients": hf.data.partition.iid(of(positives), len(positives) // EACH, settings["draw"]),
        "negatives": of(negatives),
        "both": hf.Clients.from_datasets([of(both)]),
    }


def arguments(settings: Settings, around: Mapping[str, Any]) -> dict[str, Any]:
    """What distinguishes one method's run from another's."""
    method, rate, steps = settings["method"], settings["rate"], settings["steps"]
    batch = settings["central_batch"]
    if method in (CENTRAL, ORACLE):
        # In the oracle's step there are as many examples as in those of clients and server together.
        size = (2 if method == ORACLE else 1) * settings["cohort"] * BATCH
        own = (
            around["both"] if method == ORACLE else hf.Clients.from_datasets([around["negatives"]])
        )
        return {
            "algorithm": hf.algorithms.centralised(),
            "clients": own,
            "local": hf.Local(rate, steps=steps, batch_size=min(size, int(own.sizes[0]))),
        }
    federated: dict[str, Any] = {
        "clients": around["clients"],
        "local": hf.Local(rate, steps=steps, batch_size=BATCH),
        "cohort": hf.cohorts.fixed(min(settings["cohort"], len(around["clients"]))),
    }
    if method == FEDERATED:
        return federated | {"algorithm": hf.algorithms.fedavg(weighting="processed")}
    negatives = around["negatives"]
    batch = min(batch, len(negatives.y))
    central = hf.Local(rate, steps=steps, batch_size=batch)
    server = hf.Server(negatives, central, gradient_batch_size=batch)
    return federated | {"algorithm": runs.mixed(method), "server": server}


def run(settings: Settings, *, asked: Asked, folder: Path) -> Values:
    """AUC, accuracy and loss on faces of both labels, by round."""
    around = world(settings, asked)
    done = runs.trained(
        folder / settings["method"],
        settings["rounds"],
        model=hf.models.binary_mlp([HIDDEN]),
        seed=settings["draw"],
        evaluate=hf.evaluate.on(around[settings["measured"]], settings["every"], metrics=[AUC]),
        **arguments(settings, around),
    )
    names = ("auc", "accuracy", "loss")
    return {"rounds": runs.rounds_of(done, "auc"), **{n: runs.curve(done, n) for n in names}}


def searched(settings: Settings, *, asked: Asked, folder: Path) -> Values:
    """AUC and loss on the validation set after the last round, of the three mixed methods."""
    ends = {}
    for method in MIXED:
        batch = ONE_WAY_BATCH if method == ONE_WAY else CENTRAL_BATCH
        own = settings | {"method": method, "central_batch": batch}
        found = run(own, asked=asked, folder=folder)
        ends[method] = {"auc": found["auc"][-1], "loss": found["loss"][-1]}
    return ends


def dissimilar(settings: Settings, *, asked: Asked, folder: Path) -> Values:
    """Eq. 7 by round, with one step a round (B.1): of batches, as the paper samples it, and of all data."""
    around = world(settings, asked)
    sampled = runs.Sampled(
        around["clients"], settings["cohort"], BATCH, around["negatives"], CENTRAL_BATCH
    )
    done = runs.trained(
        folder,
        settings["rounds"],
        model=hf.models.binary_mlp([HIDDEN]),
        seed=settings["draw"],
        evaluate=sampled,
        **arguments(settings, around),
    )
    return {name: runs.curve(done, name) for name in ("G2", "B2")}


def settings_of(method: str, draw: int, **changes: Any) -> Settings:
    """The paper's, but for what is changed."""
    made: Settings = {
        "method": method,
        "draw": draw,
        "rate": RATE,
        "steps": STEPS,
        "rounds": ROUNDS,
        "cohort": COHORT,
        "central_batch": ONE_WAY_BATCH if method == ONE_WAY else CENTRAL_BATCH,
        "every": 2,
        "measured": "test",
    }
    return made | changes


def _main(method: str, draw: int, **changes: Any) -> Cell:
    return Cell(f"{method}-{draw}", run, (settings_of(method, draw, **changes),), minutes=0.2)


def _longer(method: str, draw: int) -> Cell:
    made = settings_of(method, draw, rounds=LONGER, every=10)
    return Cell(f"{method}_longer-{draw}", run, (made,), minutes=0.4)


def _batch(method: str, batch: int, draw: int) -> Cell:
    made = settings_of(method, draw, central_batch=batch)
    return Cell(f"{method}_batch{batch}-{draw}", run, (made,), minutes=0.2)


def _steps(method: str, steps: int, draw: int) -> Cell:
    made = settings_of(method, draw, steps=steps, rate=RATE * STEPS / steps)
    return Cell(f"{method}_steps{steps}-{draw}", run, (made,), minutes=0.2)


def cells(asked: Asked) -> list[Cell]:
    """The search, then a draw of everything before the next."""
    if asked.quick:
        return [_main(PARALLEL, 0, rounds=2, cohort=5, every=1)]
    search = [
        Cell(f"search-{r:g}", searched, (settings_of("", 0, rate=r, measured="validation"),), 0.6)
        for r in RATES
    ]
    made = [_main(m, d) for d in DRAWS for m in METHODS]
    made += [
        Cell(f"dissimilarity-{d}", dissimilar, (settings_of(PARALLEL, d, steps=1),), minutes=0.2)
        for d in DRAWS
    ]
    made += [_longer(m, d) for d in DRAWS for m in (*MIXED, ORACLE)]
    made += [_batch(m, b, d) for d, m, b in itertools.product(DRAWS, (ONE_WAY, TWO_WAY), BATCHES)]
    others = [s for s in STEPS_TRIED if s != STEPS]
    made += [_steps(m, s, d) for d, m, s in itertools.product(DRAWS, MIXED, others)]
    return search + made


def chosen(found: Found) -> float | None:
    """The step size with the best AUC on validation data, of the mean of the three methods."""
    there = [r for r in RATES if f"search-{r:g}" in found]
    return max(there, key=lambda r: _search_mean(found, r), default=None)


def _search_mean(found: Found, rate: float) -> float:
    return float(np.mean([found[f"search-{rate:g}"][m]["auc"] or 0 for m in MIXED]))


def rows(found: Found) -> list[Row]:
    """Figures 1, 2, 4, 7, 8 and 9, and table 4."""
    return [
        _reaches(found),
        _speed(found),
        *_dissimilarity(found),
        _batches(found),
        _two_way_batches(found),
        _trade(found),
        _stands(found),
    ]


SCALE = f"{ROUNDS} rounds of {COHORT} clients, as the paper; 221 clients of 10 faces for 2,802 of about 31"


def _row(place: str, what: str, paper: str, told: str, verdict: Verdict, why: str = "") -> Row:
    if not told:
        return Row(place, what, paper)
    return Row(place, what, paper, told, SCALE, DATA, verdict, why)


def _reaches(found: Found) -> Row:
    """Agrees where the three end within `NEAR` of the oracle, above 0.95, and federated training below."""
    last = runs.ends(found, METHODS, "auc")
    what = (
        "figure 1",
        "smiles, AUC after the last round",
        "the three and the oracle over 0.95, federated only below",
    )
    if not all(last[m] for m in (FEDERATED, *MIXED, ORACLE)):
        return Row(*what)
    oracle = runs.mean(last[ORACLE])
    there = all(runs.mean(last[m]) > oracle - NEAR for m in MIXED)
    below = runs.mean(last[FEDERATED]) < oracle - NEAR
    high = all(runs.mean(last[m]) > 0.95 for m in (*MIXED, ORACLE))
    verdict = Verdict.DISAGREES
    if below and there:
        verdict = Verdict.AGREES if high else Verdict.ORDER
    behind = [NAMES[m] for m in MIXED if runs.mean(last[m]) <= oracle - NEAR]
    why = f"More than {NEAR} behind the oracle: {', '.join(behind)}." if behind else ""
    if not high:
        why += f" The oracle itself has {oracle:.3f} here: the faces are others, and fewer."
    later = {
        m: v
        for m, v in runs.ends(found, [f"{m}_longer" for m in (*MIXED, ORACLE)], "auc").items()
        if v
    }
    if later:
        told = runs.of_methods({NAMES[m.removesuffix("_longer")]: v for m, v in later.items()})
        why += f" After {LONGER} rounds: {told}."
    why = why.strip()
    return _row(*what, runs.of_methods(last), verdict, why)


def _speed(found: Found) -> Row:
    """The order of the mean loss over all rounds."""
    area = runs.areas(found, MIXED)
    what = (
        "figure 2",
        "smiles, loss by round",
        "parallel training converges worse than 1-way and 2-way transfer",
    )
    if not all(area.values()):
        return Row(*what)
    worse = [
        all(p > t for p, t in zip(area[PARALLEL], area[m], strict=False))
        for m in (ONE_WAY, TWO_WAY)
    ]
    told = f"mean loss of all rounds: {runs.of_methods(area, 4)}"
    verdict = Verdict.ORDER if all(worse) else Verdict.DISAGREES
    why = "" if all(worse) else "On some draws parallel training is as fast as a transfer."
    return _row(*what, told, verdict, why)


def _dissimilarity(found: Found) -> list[Row]:
    values = runs.values_of(found, "dissimilarity")
    why = (
        "By eq. 7, B̃² = 1 + G̃² / |∇f|², so the paper's two numbers ask for |∇f|² of at least "
        f"{PAPER[0] / (PAPER[1] - 1):.0f} in the round of the largest G̃². Here gradients of the two labels "
        "nearly cancel from the first round on, which is what a joint minimum is. Both are measured on "
        "batches, as the paper does."
    )
    table = runs.dissimilarity_row(values, "smiles", PAPER, scale=SCALE, data=DATA, why=why)
    return [table, runs.dissimilarity_curves(values, "smiles", table)]


def _sweep(found: Found, method: str) -> dict[int, list[float]]:
    full = ONE_WAY_BATCH if method == ONE_WAY else CENTRAL_BATCH
    names = {b: f"{method}_batch{b}" for b in BATCHES} | {full: method}
    return {
        b: last for b, name in names.items() if (last := runs.areas(found, [name], "auc")[name])
    }


def _told_sweep(sweep: Mapping[int, Sequence[float]]) -> str:
    return " / ".join(f"{b}: {runs.told(v)}" for b, v in sorted(sweep.items()))


def _batches(found: Found) -> Row:
    """Order agrees where smaller batches are slower and those from 25 on are alike."""
    what = (
        "figure 7",
        "smiles, 1-way transfer, central batches: mean AUC of all rounds",
        "larger batches are faster, above 25 no longer appreciably",
    )
    sweep = {b: runs.mean(v) for b, v in _sweep(found, ONE_WAY).items()}
    if len(sweep) <= len(BATCHES):
        return Row(*what)
    alike = max(v for b, v in sweep.items() if b >= 25) - min(
        v for b, v in sweep.items() if b >= 25
    )
    right = sweep[min(BATCHES)] < sweep[25] - NEAR / 2 and alike < NEAR
    verdict = Verdict.ORDER if right else Verdict.DISAGREES
    return _row(*what, _told_sweep(_sweep(found, ONE_WAY)), verdict)


def _two_way_batches(found: Found) -> Row:
    """Order agrees where 2-way transfer loses less by the smallest batch than 1-way does."""
    what = (
        "figure 8",
        "smiles, 2-way transfer, central batches: mean AUC of all rounds",
        "less sensitive than 1-way transfer",
    )
    lost = {}
    for method in (ONE_WAY, TWO_WAY):
        sweep = {b: runs.mean(v) for b, v in _sweep(found, method).items()}
        if len(sweep) <= len(BATCHES):
            return Row(*what)
        lost[method] = sweep[max(sweep)] - sweep[min(sweep)]
    verdict = Verdict.ORDER if lost[TWO_WAY] < lost[ONE_WAY] else Verdict.DISAGREES
    why = f"By a batch of one example 1-way loses {lost[ONE_WAY]:.3f}, 2-way {lost[TWO_WAY]:.3f}."
    return _row(*what, _told_sweep(_sweep(found, TWO_WAY)), verdict, why)


def _steps_of(found: Found, method: str) -> dict[int, list[float]]:
    names = {s: method if s == STEPS else f"{method}_steps{s}" for s in STEPS_TRIED}
    return {s: area for s, n in names.items() if (area := runs.areas(found, [n])[n])}


def _trade(found: Found) -> Row:
    """Order agrees where more and smaller steps never have a higher mean loss by over a hundredth of it."""
    what = (
        "figure 9",
        "smiles, K steps of step size 2 η / K: mean loss of all rounds",
        "more and smaller steps never hurt, and often help",
    )
    by = {m: _steps_of(found, m) for m in MIXED}
    if not all(len(one) == len(STEPS_TRIED) for one in by.values()):
        return Row(*what)
    hurt = [
        f"{NAMES[m]} from K = {a} to {b}"
        for m, one in by.items()
        for a, b in itertools.pairwise(STEPS_TRIED)
        if runs.mean(one[b]) > 1.01 * runs.mean(one[a])
    ]
    told = "; ".join(
        f"{NAMES[m]} {' / '.join(f'K = {s}: {runs.told(v)}' for s, v in one.items())}"
        for m, one in by.items()
    )
    why = f"It hurts {', '.join(hurt)}." if hurt else ""
    return _row(*what, told, Verdict.DISAGREES if hurt else Verdict.ORDER, why)


def _stands(found: Found) -> Row:
    """Order agrees where 1-way transfer stands the largest step size, and 2-way the smallest."""
    what = (
        "B.4.3",
        "smiles, the largest step size with which a method learns",
        "2-way transfer is the first to diverge, 1-way the last (language model)",
    )
    there = [r for r in RATES if f"search-{r:g}" in found]
    if len(there) < len(RATES):
        return Row(*what)
    largest = {
        m: max([r for r in RATES if (found[f"search-{r:g}"][m]["auc"] or 0) > LEARNS], default=0.0)
        for m in MIXED
    }
    right = largest[ONE_WAY] >= largest[PARALLEL] >= largest[TWO_WAY] < largest[ONE_WAY]
    told = " / ".join(f"{NAMES[m]} {rate:g}" for m, rate in largest.items())
    said = f"{told} (of {', '.join(f'{r:g}' for r in RATES)}; AUC above {LEARNS} on validation faces, 1 draw)"
    return _row(*what, said, Verdict.ORDER if right else Verdict.DISAGREES)


def table(found: Found) -> str:
    """AUC on the way and at the end, and what the search gave."""
    lines = [
        "| method | AUC after 20 rounds | after 50 | after 100 | accuracy | loss |",
        "|---|---|---|---|---|---|",
    ]
    for method in METHODS:
        curves = runs.draws(found, method, "auc")
        if curves:
            half = [runs.told([c[round(len(c) * s) - 1] for c in curves]) for s in (0.2, 0.5, 1)]
            rest = [runs.told(runs.ends(found, [method], f)[method]) for f in ("accuracy", "loss")]
            lines.append(f"| {NAMES[method]} | {' | '.join([*half, *rest])} |")
    there = [r for r in RATES if f"search-{r:g}" in found]
    if there:
        lines += ["", "AUC on validation data after the last round, by step size:", ""]
        lines += ["| step size | " + " | ".join(NAMES[m] for m in MIXED) + " |", "|---" * 4 + "|"]
        for r in there:
            told = [runs.told([found[f"search-{r:g}"][m]["auc"]]) for m in MIXED]
            lines.append(f"| {r:g} | {' | '.join(told)} |")
        taken = "" if chosen(found) == RATE else f" The search prefers {chosen(found):g}."
        lines += ["", f"All runs have step size {RATE:g}.{taken}"]
    return "\n".join(lines)


def figure(found: Found, path: Path) -> None:
    """AUC, loss and dissimilarity by round."""
    with figures.panels(path, 4, most=2) as (auc, loss, apart, near):
        for method in METHODS:
            for axis, field in ((auc, "auc"), (loss, "loss"), (near, "auc")):
                curves = runs.draws(found, method, field)
                if curves:
                    at = found[f"{method}-0"]["rounds"] if f"{method}-0" in found else None
                    values = np.array(curves, float).mean(0)
                    axis.plot(
                        at or range(len(values)), values, label=NAMES[method], **runs.style(method)
                    )
        for one in runs.values_of(found, "dissimilarity"):
            apart.plot(one["G2"], color="C0", linewidth=0.8)
            apart.plot(one["B2"], color="C3", linewidth=0.8)
        auc.set(title="figure 1a", xlabel="round", ylabel="AUC")
        loss.set(title="figure 2a", xlabel="round", ylabel="loss", ylim=(0, 1.5))
        near.set(title="the same, nearer", xlabel="round", ylabel="AUC", ylim=(0.7, 1.0))
        apart.set(title="figure 4: G̃² blue, B̃² red", xlabel="round", yscale="log")
        if auc.lines:
            auc.legend(fontsize="x-small")


STUDY = Study(
    "mixed/imbalance",
    "Smiling faces on clients, the others at the server",
    needs=("smiles",),
    searched="the step size, 0.03, 0.1, 0.3 and 1, by the mean AUC of the three mixed methods on validation "
    "faces after 100 rounds, on the first draw; all methods have the same, as in the paper. All else is the "
    "paper's (tables 5 and 6).",
    cells=cells,
    rows=rows,
    table=table,
    figure=figure,
)
