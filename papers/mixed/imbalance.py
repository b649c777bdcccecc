"""Label imbalance: clients have only positive examples, the server only negative ones.

The paper's smile classifier (section 4.1) with handwritten digits: is the number odd? Clients hold
the odd ones, the server the even ones, and neither alone says anything about the border.
"""

import dataclasses
from pathlib import Path
from typing import Any

import jax
import numpy as np

import holdfast as hf
from papers.mixed import common, report
from papers.mixed.common import FEDERATED, MIXED, ONE_WAY, ORACLE, Watch, silent

HIDDEN = 64
CLIENTS, COHORT, BATCH_SIZE = 50, 10, 5
STEPS = 5
LEARNING_RATE = 0.3
CENTRAL_BATCH_SIZE = COHORT * BATCH_SIZE  # the paper's rule, so that both sides are as noisy
METHODS = (FEDERATED, *MIXED, ORACLE)
PAPER = (49.04, 1.26)  # largest G~^2 and B~^2 of its smile classifier, table 4


@dataclasses.dataclass(frozen=True)
class World:
    """Who holds what."""

    clients: hf.Clients  # odd numbers
    negatives: hf.Examples  # even numbers, the server's
    everything: hf.Clients  # both, in one place
    test: hf.Examples


@dataclasses.dataclass(frozen=True)
class Result:
    """AUC on held-out digits of both kinds, as (seeds, points), and where it was measured."""

    rounds: np.ndarray
    auc: dict[str, np.ndarray]
    dissimilarity: dict[str, float]


class AreaUnderCurve:
    """An evaluator: the AUC is no mean over examples, so the model cannot have it as a metric."""

    keeps_last_models = False

    def __init__(self, test: hf.Examples, every: int) -> None:
        self.test, self.every = test, every
        self.scores = jax.jit(hf.models.BinaryMLP((HIDDEN,)).apply)

    def check(self, model: hf.Model, params: Any, clients: int) -> None:
        """The model has seen such data in training."""

    def __call__(self, view: Any) -> dict[str, float]:
        """One number for the history."""
        scores = self.scores({"params": view.state.params}, self.test.x)
        return {"auc": hf.models.auc(scores, self.test.y)}


def world(seed: int) -> World:
    """Digits split into training and test, then by label; a function of the seed."""
    train, test = (e._replace(y=(e.y % 2).astype(np.int32)) for e in hf.data.digits(seed=seed))
    negatives, positives = (hf.Examples(*(a[train.y == k] for a in train)) for k in (0, 1))
    return World(
        hf.data.partition.iid(positives, CLIENTS, seed),
        negatives,
        hf.Clients.from_datasets([train]),
        test,
    )


def server(negatives: hf.Examples, steps: int) -> hf.Server:
    """The server takes as many steps as a client; 1-way transfer sees as many examples in one batch."""
    local = hf.Local(LEARNING_RATE, steps=steps, batch_size=CENTRAL_BATCH_SIZE)
    at_once = min(steps * CENTRAL_BATCH_SIZE, len(negatives.y))
    return hf.Server(negatives, local, gradient_batch_size=at_once)


def arguments(method: str, around: World, steps: int) -> dict[str, Any]:
    """What distinguishes one method's run from another's."""
    train = hf.Local(LEARNING_RATE, steps=steps, batch_size=BATCH_SIZE)
    if (
        method == ORACLE
    ):  # as many steps, and in each as many examples as the other two sides together
        both = hf.Local(LEARNING_RATE, steps=steps, batch_size=2 * CENTRAL_BATCH_SIZE)
        return {
            "algorithm": hf.algorithms.centralised(),
            "clients": around.everything,
            "local": both,
        }
    federated: dict[str, Any] = {
        "clients": around.clients,
        "local": train,
        "cohort": hf.cohorts.fixed(COHORT),
    }
    if method == FEDERATED:
        return federated | {"algorithm": hf.algorithms.fedavg()}
    return federated | {"algorithm": MIXED[method], "server": server(around.negatives, steps)}


def run(method: str, seed: int, rounds: int, every: int, watch: Watch = silent) -> hf.Run:
    """One method from one seed."""
    around = world(seed)
    return common.simulate(
        watch,
        f"imbalance, {method}, seed {seed}",
        model=hf.models.binary_mlp([HIDDEN]),
        rounds=rounds,
        seed=seed,
        evaluate=AreaUnderCurve(around.test, every),
        **arguments(method, around, STEPS),
    )


def compare(seeds: int = 3, rounds: int = 200, watch: Watch = silent) -> Result:
    """All methods from all seeds, and how far the two sides disagree."""
    every = max(1, rounds // 100)
    auc = {}
    for method in METHODS:
        runs = [run(method, seed, rounds, every, watch) for seed in range(seeds)]
        auc[method] = np.stack([common.column(r, "auc")[1] for r in runs])
    at = common.column(runs[0], "auc")[0]
    around = world(seed=0)
    alike = {k: v for k, v in arguments(ONE_WAY, around, steps=1).items() if k != "algorithm"}
    alike["server"] = hf.Server(around.negatives, alike["server"].local)  # its whole gradient
    measured = common.largest_dissimilarity(
        watch,
        "imbalance",
        seeds=seeds,
        rounds=min(rounds, 100),
        first=min(10, rounds),
        model=hf.models.binary_mlp([HIDDEN]),
        **alike,
    )
    return Result(at, auc, measured)


def write(result: Result, folder: Path = report.RESULTS) -> None:
    """`imbalance.md` and `imbalance.png`."""
    oracle = result.auc[ORACLE][:, -1]
    rows = [
        (
            method,
            *(report.spread(curves[:, nearest(result.rounds, r)]) for r in milestones(result)),
            f"{(curves[:, -1] - oracle).mean():+.4f}",
            f"{(curves[:, -1] - oracle).min():+.4f}",
        )
        for method, curves in result.auc.items()
    ]
    head = [
        "AUC after round",
        *map(str, milestones(result)),
        "end, against the oracle",
        "worst seed",
    ]
    seeds = len(result.auc[ORACLE])
    report.write(
        folder,
        "imbalance",
        f"Odd digits on {CLIENTS} clients, even ones at the server; mean ± standard deviation of "
        f"{seeds} seeds.",
        report.markdown(head, rows),
        report.sampled_dissimilarity(result.dissimilarity, PAPER),
    )
    figure, (whole, near) = report.panels(2)
    for axes in (whole, near):
        for method, curves in result.auc.items():
            report.band(axes, result.rounds, curves, method)
        axes.set_xlabel("round")
    whole.set(
        title="Mixing both sides reaches the oracle", ylabel="AUC on both labels", ylim=(0.45, 1.01)
    )
    near.set(title="Transfer does so sooner than parallel training", ylim=(0.95, 1.002))
    whole.legend(frameon=False, loc="center right", fontsize=9, bbox_to_anchor=(1, 0.62))
    report.save(figure, folder, "imbalance")


def milestones(result: Result) -> list[int]:
    """An early, a middle and the last round."""
    last = int(result.rounds[-1])
    return sorted({max(1, last // 10), max(1, last // 2), last})


def nearest(rounds: np.ndarray, wanted: int) -> int:
    """Where a round, or the one measured nearest to it, stands."""
    return int(np.abs(rounds - wanted).argmin())
