"""Where methods end with nobody lying, by how replies are averaged: what a robust mean costs or biases.

Ten quadratics in four dimensions whose optima disagree, so that the optimum of their mean is known.
"""

import dataclasses
import json
from pathlib import Path
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

import holdfast as hf
from holdfast.record.files import write_whole

FILE = Path(__file__).parent / "results" / "fixed_points.json"
ROUNDS, PROBLEMS = 400, (0, 1, 2)
A = hf.aggregates
METHODS = {
    "FedAvg, one local step": hf.algorithms.fedavg(weighting="uniform"),
    "FedAvg": hf.algorithms.fedavg(weighting="uniform"),
    "SCAFFOLD, published upload": hf.algorithms.scaffold(upload="published"),
    "SCAFFOLD, option I": hf.algorithms.scaffold(option="I"),
    "FedDyn, alpha 2": hf.algorithms.feddyn(alpha=2.0),
}
MEANS: dict[str, hf.aggregates.Mean | None] = {
    "plain": None,
    "NormBounded(2)": A.NormBounded(factor=2.0),
    "NormBounded(1)": A.NormBounded(factor=1.0),
    "CenteredClipping(2)": A.CenteredClipping(factor=2.0),
    "CenteredClipping(1)": A.CenteredClipping(factor=1.0),
    "Krum(0.2)": A.Krum(share=0.2),
    "CoordinateMedian": A.CoordinateMedian(),
    "TrimmedMean(0.2)": A.TrimmedMean(share=0.2),
    "GeometricMedian": A.GeometricMedian(),
}
COHORTS: dict[str, hf.cohorts.Cohort] = {
    "everybody": hf.cohorts.everyone(),
    "three of ten": hf.cohorts.fixed(3),
}


def _loss(w: jax.Array, batch: hf.Examples) -> jax.Array:
    return 0.5 * jnp.sum(batch.x * (w[None] - batch.y) ** 2, axis=1)


MODEL = hf.Model(
    init=lambda key, examples: jnp.zeros(examples.x.shape[1], examples.x.dtype),
    loss=_loss,
    name="quadratic",
)


def problem(seed: int) -> tuple[hf.Clients, np.ndarray]:
    """Ten clients with a quadratic each, and the minimiser of their mean."""
    rng = np.random.default_rng(seed)
    curvature, centre = rng.uniform(0.5, 4.0, (10, 4)), rng.normal(0, 3, (10, 4))
    clients = hf.Clients.from_rows(hf.Examples(curvature, centre), [[i] for i in range(10)])
    return clients, (curvature * centre).sum(0) / curvature.sum(0)


def is_refused(method: str, mean: str) -> bool:
    """Whether the library takes this mean with this method."""
    try:
        dataclasses.replace(METHODS[method], aggregate=MEANS[mean])
    except hf.HoldfastError:
        return True
    return False


def distance(method: str, mean: str, cohort: str, seed: int) -> float:
    """The largest of any coordinate to the optimum, in the last round."""
    clients, optimum = problem(seed)
    steps = 1 if "one local step" in method else 5
    local = hf.Local(learning_rate=0.05, steps=steps)
    # Also where the pair is refused: to find out what the refusal is for.
    with mock.patch.object(hf.Algorithm, "_check_aggregate"):
        run = hf.simulate(
            dataclasses.replace(METHODS[method], aggregate=MEANS[mean]),
            MODEL,
            clients,
            local,
            rounds=ROUNDS,
            cohort=COHORTS[cohort],
            progress=False,
        )
    return float(np.abs(np.asarray(run.params) - optimum).max())


def run_missing() -> None:
    """Every distance there is none of."""
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    with jax.enable_x64(True):
        for cohort in COHORTS:
            for method in METHODS:
                for mean in MEANS:
                    key = f"{cohort} | {method} | {mean}"
                    if key not in found:
                        found[key] = [distance(method, mean, cohort, seed) for seed in PROBLEMS]
                        write_whole(FILE, json.dumps(found, indent=1) + "\n")
                        print(key, found[key], flush=True)


def section() -> list[str]:
    """The part of the page, from what has been measured."""
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    starts = [np.abs(problem(seed)[1]).max() for seed in PROBLEMS]
    lines = [
        "## With nobody lying",
        "",
        (
            f"Ten quadratics in 4 dimensions with different optima, {ROUNDS} rounds of 5 local steps, 64 "
            f"bits: the largest distance of a coordinate to the optimum of the mean, best to worst of "
            f"{len(PROBLEMS)} problems (at the start {min(starts):.1f} to {max(starts):.1f}). In brackets "
            f"what the library refuses, measured in place of the refusal."
        ),
    ]
    for cohort in COHORTS:
        lines += ["", f"### {cohort.capitalize()}", ""]
        lines += ["| mean | " + " | ".join(METHODS) + " |", "|---" * (1 + len(METHODS)) + "|"]
        for mean in MEANS:
            row = []
            for method in METHODS:
                values = found.get(f"{cohort} | {method} | {mean}")
                text = "" if values is None else _range(values)
                row.append(f"({text})" if text and is_refused(method, mean) else text)
            lines.append(f"| {mean} | " + " | ".join(row) + " |")
    return lines


def _range(values: list[float]) -> str:
    low, high = (f"{v:.1g}" if v > 1e-9 else "0" for v in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
