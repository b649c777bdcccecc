"""FedPVR's figure 5 in small: where variance reduction should begin, and what finds it from drift alone.

For every setting and split: the drift diversity of FedAvg's first round, and the accuracy of FedPVR from
every layer on. Then how far rules that see only the diversities stay behind the best first layer.

    python -m papers.fedpvr.first_layer --mnist FOLDER
"""

import argparse
import dataclasses
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import holdfast as hf
from holdfast.engine.auto_mask import mask_from, suggested
from holdfast.engine.simulation import chosen_mask
from holdfast.models.layers import layers

RESULTS = Path(__file__).parent / "results" / "first_layer.json"
SPLITS = 3
LAST = 3  # rounds over whose mean an accuracy is taken


@dataclasses.dataclass(frozen=True)
class Setting:
    """A network on a split of a data set."""

    data: str
    model: hf.Model
    concentration: float
    local: hf.Local
    rounds: int
    clients: int = 10
    taking_part: int | None = None  # in a round; everyone unless given


def settings() -> dict[str, Setting]:
    """Perceptrons and small convolutional networks, from clients that are alike to clients that are not."""
    perceptron, deeper = (
        hf.models.mlp([64, 32], classes=10),
        hf.models.mlp([64, 64, 64], classes=10),
    )
    images = hf.models.cnn(classes=10, channels=(8, 16), dense=(32,), kernel=3, padding="SAME")
    five, three, two = (hf.Local(0.1, epochs=n, batch_size=20) for n in (5, 3, 2))
    one_step, two_steps = (hf.Local(0.1, steps=n, batch_size=5) for n in (1, 2))
    few = {"clients": 20, "taking_part": 4}
    return {
        "digits MLP 0.1": Setting("digits", perceptron, 0.1, five, 30),
        "digits MLP 1": Setting("digits", perceptron, 1.0, five, 20),
        "digits MLP 100": Setting("digits", perceptron, 100.0, five, 20),
        "digits MLP 0.1, 4 of 20": Setting("digits", perceptron, 0.1, three, 60, **few),
        "digits MLP 100, one step": Setting("digits", perceptron, 100.0, one_step, 120),
        "digits MLP 100, two steps, 4 of 20": Setting(
            "digits", perceptron, 100.0, two_steps, 120, **few
        ),
        "digits CNN 0.1": Setting("digits", images, 0.1, three, 40),
        "MNIST MLP 0.1": Setting("mnist", deeper, 0.1, five, 25),
        "MNIST MLP 0.5": Setting("mnist", deeper, 0.5, five, 20),
        "MNIST CNN 0.1": Setting("mnist", images, 0.1, two, 20),
    }


def examples(name: str, folder: Path | None) -> tuple[hf.Examples, hf.Examples]:
    """Digits, or 3,000 training and 2,000 test images of MNIST."""
    if name == "digits":
        data, side, most = hf.data.digits(), 8, (None, None)
    else:
        data, side, most = hf.data.mnist(folder=folder), 28, (3000, 2000)

    def images(part: hf.Examples, count: int | None) -> hf.Examples:
        x = np.asarray(part.x, np.float32).reshape(len(part.x), side, side, 1)
        order = np.random.default_rng(0).permutation(len(x))[:count] if count else slice(None)
        return hf.Examples(x[order], np.asarray(part.y, np.int32)[order])

    return images(data.train, most[0]), images(data.test, most[1])


def measure(
    given: Setting, train: hf.Examples, test: hf.Examples, seed: int
) -> tuple[list[float], int, list[float]]:
    """Of one split: diversity by layer, how many clients it is of, and the accuracy by first layer."""
    clients = hf.data.partition.dirichlet(
        train, clients=given.clients, concentration=given.concentration, seed=seed
    )
    cohort = None if given.taking_part is None else hf.cohorts.fixed(given.taking_part)
    waiting = hf.Experiment(
        hf.algorithms.fedpvr("auto"), given.model, clients, given.local, cohort, seed=seed
    )
    params = jax.eval_shape(given.model.init, jax.random.key(seed), train)
    found = layers(given.model, params, train)
    diversity = chosen_mask(waiting).diversity
    ends = []
    for first in range(len(found) + 1):
        mask = mask_from(found, first, diversity).parameters
        run = hf.simulate(
            hf.algorithms.fedpvr(mask), given.model, clients, given.local, given.rounds,
            cohort=cohort, seed=seed, evaluate=hf.evaluate.on(test), progress=False,
        )  # fmt: skip
        ends.append(float(np.mean(run.history["accuracy"][-LAST:])))
    return list(diversity), given.taking_part or given.clients, ends


def ending(drifts: Sequence[bool]) -> int:
    """Where the longest run of last layers begins that all do."""
    first = len(drifts)
    while first and drifts[first - 1]:
        first -= 1
    return first


def _largest_step(d: Sequence[float], n: int) -> int:
    return 1 + int(np.argmax([np.mean(d[k:]) - np.mean(d[:k]) for k in range(1, len(d))]))


# From diversities and the number of clients to the first masked layer.
RULES: dict[str, Callable[[Sequence[float], int], int]] = {
    "averaging keeps less than half": suggested,
    "averaging keeps less than a third": lambda d, n: ending([n * x > 3 for x in d]),
    "at least half of the greatest": lambda d, n: ending([x >= max(d) / 2 for x in d]),
    "above the median": lambda d, n: ending([x > np.median(d) for x in d]),
    "the largest step": _largest_step,
    "the last layer": lambda d, n: len(d) - 1,
    "all layers (SCAFFOLD)": lambda d, n: 0,
    "no layer (FedAvg)": lambda d, n: len(d),
}


def behind(rows: Sequence[tuple[list[float], int, list[float]]]) -> dict[str, float]:
    """By how much each rule ends behind the first layer that is best over these splits."""
    ends = np.array([row[2] for row in rows])
    best = int(ends.mean(axis=0).argmax())
    return {
        name: float(
            np.mean(
                [own[best] - own[rule(d, n)] for (d, n, _), own in zip(rows, ends, strict=True)]
            )
        )
        for name, rule in RULES.items()
    }


def main() -> None:
    """Measure all settings, write them down, and print how far rules are behind."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--mnist", type=Path, help="a folder with the files of MNIST")
    folder = arguments.parse_args().mnist
    found: dict[str, Any] = {}
    for name, given in settings().items():
        if given.data == "mnist" and folder is None:
            continue
        train, test = examples(given.data, folder)
        found[name] = [measure(given, train, test, seed) for seed in range(SPLITS)]
        RESULTS.write_text(json.dumps(found, indent=1) + "\n")
        print(
            name, {rule: round(value, 4) for rule, value in behind(found[name]).items()}, flush=True
        )
    each = [behind(rows) for rows in found.values()]
    for rule in RULES:
        print(f"{np.mean([one[rule] for one in each]):.4f}  {rule}")


if __name__ == "__main__":
    main()
