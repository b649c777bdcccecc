"""What privacy costs a round: processor time of rounds with noise over rounds without, taken in turns.

    python benchmarks/private.py [--rounds 60]

The demo's problem (digits, 50 clients, 10 a round, an MLP) and one with a larger model. Rounds with and
without take turns in one process, so that what else the machine does meets both. The account, which is
asked of some rounds alone, is apart.
"""

import argparse
import statistics
import time

import numpy as np

import holdfast as hf
from holdfast.privacy import Account, guarantee

LIMIT = 1.1
ASKED = [0.0]


def timed_account(self: Account, rounds: int) -> float:
    """The account's answer; what it took is not the round's."""
    began = time.process_time()
    found = plain_account(self, rounds)
    ASKED[0] += time.process_time() - began
    return found


plain_account = guarantee.Account.at_most


def measure(hidden: int, rounds: int) -> dict[str, tuple[float, float]]:
    """By method, milliseconds of a plain round and of a private one."""
    train, _ = hf.data.digits()
    clients = hf.data.partition.dirichlet(train, clients=50, concentration=0.3)
    local = hf.Local(learning_rate=0.1, epochs=5, batch_size=20)
    model = hf.models.mlp([hidden], classes=10)
    found = {}
    for method in (
        hf.algorithms.fedavg(weighting="uniform"),
        hf.algorithms.scaffold(upload="published", weighting="uniform"),
        hf.algorithms.feddyn(alpha=0.1, weighting="uniform"),
    ):
        noise = hf.privacy.Gaussian(clip=0.5, delta=1e-3, noise_multiplier=2.0)
        streams = [
            hf.rounds(algorithm, model, clients, local, cohort=hf.cohorts.fixed(10))
            for algorithm in (method, noise.beside(method))
        ]
        taken: list[list[float]] = [[], []]
        for number in range(rounds + 5):
            for stream, times in zip(streams, taken, strict=True):
                began, ASKED[0] = time.process_time(), 0.0
                next(stream)
                if number >= 5:
                    times.append(time.process_time() - began - ASKED[0])
        found[method.name] = tuple(1e3 * statistics.median(times) for times in taken)
    return found


def main() -> None:
    """The command."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--rounds", type=int, default=60)
    rounds = asked.parse_args().rounds
    guarantee.Account.at_most = timed_account
    ratios = []
    print(f"{'hidden':>7} {'method':10} {'plain':>9} {'private':>9}  ratio")
    for hidden in (64, 512):
        for name, (plain, private) in measure(hidden, rounds).items():
            ratios.append(private / plain)
            print(f"{hidden:7} {name:10} {plain:6.2f} ms {private:6.2f} ms  {ratios[-1]:.3f}")
    worst = float(np.max(ratios))
    print(f"worst {worst:.3f}, and at most {LIMIT} is asked")


if __name__ == "__main__":
    main()
