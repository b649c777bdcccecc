"""What drift diversity costs beside a round: with `hf.diagnose.drift()` and without, in turns.

    python benchmarks/drift.py [--rounds 100]

Ten clients with digits and a perceptron of 200 and 200 hidden units, 55,410 parameters. Both runs go on
round by round in one process, each first in every other turn, so that what else happens on the machine falls
on both. Milliseconds are the median of all rounds and the shortest, a ratio is the median of the ratios of
all turns and that of the shortest.
"""

import argparse
import statistics
import time

import jax

import holdfast as hf
from holdfast.engine.simulation import Simulation

CLIENTS, HIDDEN, BATCH = 10, (200, 200), 10
STEPS = (1, 5, 20)


def simulation(weighting: str, steps: int, watched: bool) -> Simulation:
    """A run of FedAvg, with somebody who watches its drift or without."""
    clients = hf.data.partition.dirichlet(hf.data.digits().train, CLIENTS, concentration=0.1)
    return Simulation(
        hf.Experiment(
            hf.algorithms.fedavg(weighting=weighting),
            hf.models.mlp(list(HIDDEN), classes=10),
            clients,
            hf.Local(0.01, steps=steps, batch_size=BATCH),
            evaluate=hf.diagnose.drift() if watched else None,
        )
    )


def measure(weighting: str, steps: int, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds of every round without and with it, after three that compile."""
    runs = [simulation(weighting, steps, watched) for watched in (False, True)]
    states = [run.begin() for run in runs]
    seconds: tuple[list[float], list[float]] = ([], [])
    for turn in range(rounds + 3):
        for which in (0, 1) if turn % 2 else (1, 0):
            began = time.perf_counter()
            states[which] = runs[which].advance(states[which])
            jax.block_until_ready(states[which].params)
            if turn >= 3:
                seconds[which].append(time.perf_counter() - began)
    return seconds


def main() -> None:
    """The table."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--rounds", type=int, default=100)
    given = asked.parse_args()
    print("| weighting | local steps | ms a round | ms with drift | ratio |\n|---|---|---|---|---|")
    for weighting in ("uniform", "examples"):
        for steps in STEPS:
            without, beside = measure(weighting, steps, given.rounds)
            pairs = statistics.median(b / a for a, b in zip(without, beside, strict=True))
            shown = " | ".join(
                f"{1e3 * statistics.median(each):.2f} ({1e3 * min(each):.2f})"
                for each in (without, beside)
            )
            shown += f" | {pairs:.3f} ({min(beside) / min(without):.3f})"
            print(f"| {weighting} | {steps} | {shown} |", flush=True)


if __name__ == "__main__":
    main()
