"""What the four parts share: names and weights of the methods, progress, the paper's table 4."""

from collections.abc import Callable
from typing import Any

import numpy as np

import holdfast as hf

FEDERATED = "federated only"
CENTRAL = "central only"
PARALLEL = "parallel training"
ONE_WAY = "1-way transfer"
TWO_WAY = "2-way transfer"
SCAFFOLD_ONE_WAY = "SCAFFOLD + 1-way"
ORACLE = "oracle (everything in one place)"

# Both losses count the same, as in the paper's smile and movie tasks.
HALF = (0.5, 0.5)
MIXED: dict[str, hf.Algorithm] = {
    PARALLEL: hf.algorithms.parallel_training(*HALF),
    ONE_WAY: hf.algorithms.one_way_transfer(*HALF),
    TWO_WAY: hf.algorithms.two_way_transfer(*HALF),
}

Watch = Callable[[str, int, int], None]  # told (what is running, round, of how many) every round


def silent(what: str, now: int, rounds: int) -> None:
    """Tell nobody."""


def simulate(watch: Watch, what: str, *, rounds: int, **arguments: Any) -> hf.Run:
    """A run that tells how far it is."""
    arguments["on_round"] = lambda state: watch(what, state.round, rounds)
    return hf.simulate(rounds=rounds, progress=False, **arguments)


def column(run: hf.Run, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rounds in which something was measured, and what."""
    values = run.history[name]
    there = ~np.isnan(values)
    return run.history["round"][there], values[there]


def largest_dissimilarity(
    watch: Watch,
    what: str,
    *,
    seeds: int,
    rounds: int = 100,
    first: int = 10,
    every: int = 1,
    **arguments: Any,
) -> dict[str, float]:
    """The largest G~^2 and B~^2 of rounds 10 to 100, over all seeds, as in the paper's table 4.

    With a single step per round (appendix B.1), where all three methods are the same.
    """
    found = [
        simulate(
            watch,
            f"{what}, dissimilarity, seed {seed}",
            algorithm=MIXED[PARALLEL],
            rounds=rounds,
            seed=seed,
            evaluate=hf.diagnose.dissimilarity(*HALF, every=every),
            **arguments,
        )
        for seed in range(seeds)
    ]

    def largest(name: str) -> float:
        return max(float(v[r >= first].max()) for r, v in (column(run, name) for run in found))

    return {"G2": largest("G2_mixed"), "B2": largest("B2_mixed")}
