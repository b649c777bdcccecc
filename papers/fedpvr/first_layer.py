"""FedPVR, figure 5: where variance reduction should begin, and what finds it from drift alone."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

import holdfast as hf
from holdfast.engine.auto_mask import mask_from, suggested
from holdfast.engine.simulation import chosen_mask
from holdfast.models.layers import layers
from papers import figures
from papers.fedpvr import runs
from papers.study import Asked, Cell, Found, Row, Study

SPLITS = 3
LAST = 3  # rounds over whose mean an accuracy is taken
PAPER = "the later the better, FedAvg worst; no clear difference from the middle on"


@dataclasses.dataclass(frozen=True)
class Setting:
    """A network on a split of a data set, all of it plain numbers: they are kept beside the results."""

    data: str
    concentration: float
    rounds: int
    channels: tuple[int, ...] = ()  # a convolutional network if there are any
    dense: tuple[int, ...] = (64, 32)
    rate: float = 0.1
    epochs: int | None = None
    steps: int | None = None
    batch_size: int = 20
    clients: int = 10
    taking_part: int | None = None  # in a round; everyone unless given
    minutes: float = 0.5

    @property
    def model(self) -> hf.Model:
        """The network."""
        if not self.channels:
            return hf.models.mlp(self.dense, classes=10)
        return hf.models.cnn(10, self.channels, self.dense, kernel=3, padding="SAME")

    @property
    def local(self) -> hf.Local:
        """What a client does in a round."""
        return hf.Local(self.rate, epochs=self.epochs, steps=self.steps, batch_size=self.batch_size)


FEW: dict[str, Any] = {"clients": 20, "taking_part": 4}
SMALL: dict[str, Any] = {"channels": (8, 16), "dense": (32,)}
DEEP: dict[str, Any] = {"dense": (64, 64, 64)}
# From clients that are alike to clients that are not.
SETTINGS = {
    "CIFAR-10 CNN 0.1": Setting(
        "cifar10", 0.1, 20, (16, 32, 32), (32,), 0.05, epochs=5, minutes=2.5
    ),
    "digits deep MLP 0.1": Setting("digits", 0.1, 30, dense=(64,) * 6, epochs=5, minutes=1),
    "digits MLP 0.1": Setting("digits", 0.1, 30, epochs=5),
    "digits MLP 1": Setting("digits", 1.0, 20, epochs=5),
    "digits MLP 100": Setting("digits", 100.0, 20, epochs=5),
    "digits MLP 0.1, 4 of 20": Setting("digits", 0.1, 60, epochs=3, **FEW),
    "digits MLP 100, one step": Setting("digits", 100.0, 120, steps=1, batch_size=5),
    "digits MLP 100, two steps, 4 of 20": Setting(
        "digits", 100.0, 120, steps=2, batch_size=5, **FEW
    ),
    "digits CNN 0.1": Setting("digits", 0.1, 40, epochs=3, minutes=3, **SMALL),
    "MNIST MLP 0.1": Setting("mnist", 0.1, 25, epochs=5, minutes=2, **DEEP),
    "MNIST MLP 0.5": Setting("mnist", 0.5, 20, epochs=5, minutes=2, **DEEP),
    "MNIST CNN 0.1": Setting("mnist", 0.1, 20, epochs=2, minutes=5, **SMALL),
}
# Not there when `mask="auto"` was given its rule.
LATER = ("CIFAR-10 CNN 0.1", "digits deep MLP 0.1")
# Those that show what figure 5 does.
SHOWN = ("CIFAR-10 CNN 0.1", "digits deep MLP 0.1", "digits CNN 0.1", "MNIST CNN 0.1")


def cell(name: str, split: int, quick: bool = False) -> Cell:
    """All first layers on one split."""
    given = SETTINGS[name]
    if quick:
        given = dataclasses.replace(given, rounds=2, epochs=1, dense=(8,))
    kept = dataclasses.asdict(given)
    kept.pop("minutes")
    return Cell(f"{name} ({split})", measure, (kept, split), given.minutes)


def cells(asked: Asked) -> list[Cell]:
    """The paper's data first."""
    if asked.quick:
        return [cell("digits MLP 0.1", 0, quick=True)]
    return [cell(name, split) for name in SETTINGS for split in range(SPLITS)]


def examples(data: str, split: int, asked: Asked) -> tuple[hf.Examples, hf.Examples]:
    """Digits; 3,000 training and 2,000 test images of MNIST; or the pictures of table 2."""
    if data == "cifar10":
        found = runs.pictures(split, runs.SETTINGS["images"], 2000, asked)
        return found.train, found.test
    whole, side, most = (
        (hf.data.digits(), 8, (None, None))
        if data == "digits"
        else (hf.data.mnist(folder=asked.data), 28, (3000, 2000))
    )

    def images(part: hf.Examples, count: int | None) -> hf.Examples:
        x = np.asarray(part.x, np.float32).reshape(len(part.x), side, side, 1)
        order = np.random.default_rng(0).permutation(len(x))[:count] if count else slice(None)
        return hf.Examples(x[order], np.asarray(part.y, np.int32)[order])

    return images(whole.train, most[0]), images(whole.test, most[1])


def measure(values: dict[str, Any], split: int, *, asked: Asked, folder: Path) -> dict[str, Any]:
    """Diversity by layer, how many clients it is of, and the accuracy by first masked layer."""
    given = Setting(**values)
    train, test = examples(given.data, split, asked)
    clients = hf.data.partition.dirichlet(
        train, clients=given.clients, concentration=given.concentration, seed=split
    )
    cohort = None if given.taking_part is None else hf.cohorts.fixed(given.taking_part)
    waiting = hf.Experiment(
        hf.algorithms.fedpvr("auto"), given.model, clients, given.local, cohort, seed=split
    )
    params = jax.eval_shape(given.model.init, jax.random.key(split), train)
    found = layers(given.model, params, train)
    diversity = chosen_mask(waiting).diversity
    ends = []
    for first in range(len(found) + 1):
        mask = mask_from(found, first, diversity).parameters
        masked = dataclasses.replace(
            waiting, algorithm=hf.algorithms.fedpvr(mask), evaluate=hf.evaluate.on(test)
        )
        # Correcting too many layers may diverge, which is a result and ends no study.
        history, _ = runs.carried_out(masked, given.rounds, folder / str(first))
        curve = runs.measurements(history, given.rounds)["accuracy"]
        ends.append(runs.last(curve, LAST))
    return {
        "layers": [layer.name for layer in found],
        "diversity": list(diversity),
        "clients": given.taking_part or given.clients,
        "ends": ends,
    }


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
    "less than a third": lambda d, n: ending([n * x > 3 for x in d]),
    "half of the greatest": lambda d, n: ending([x >= max(d) / 2 for x in d]),
    "above the median": lambda d, n: ending([bool(x > np.median(d)) for x in d]),
    "the largest step": _largest_step,
    "the last layer": lambda d, n: len(d) - 1,
    "SCAFFOLD": lambda d, n: 0,
    "FedAvg": lambda d, n: len(d),
}


def splits(found: Found, name: str) -> list[dict[str, Any]]:
    """What was measured in a setting."""
    names = [f"{name} ({split})" for split in range(SPLITS)]
    return [dict(found[one]) for one in names if one in found]


def behind(kept: Sequence[dict[str, Any]]) -> dict[str, float]:
    """By how much each rule ends behind the first layer that is best over these splits."""
    ends = np.array([one["ends"] for one in kept])
    best = int(ends.mean(axis=0).argmax())
    return {
        name: float(
            np.mean(
                [
                    own[best] - own[rule(one["diversity"], one["clients"])]
                    for one, own in zip(kept, ends, strict=True)
                ]
            )
        )
        for name, rule in RULES.items()
    }


def rows(found: Found) -> list[Row]:
    """Figure 5 on networks with more than three layers."""
    return [_row(found, name) for name in SHOWN]


def _row(found: Found, name: str) -> Row:
    what = f"accuracy by where variance reduction begins: in the paper VGG-11 on CIFAR-100, here {name}"
    kept = splits(found, name)
    if not kept:
        return Row("figure 5", what, PAPER)
    given = SETTINGS[name]
    ends = 100 * np.array([one["ends"] for one in kept])
    starts = [*kept[0]["layers"], "none"]
    told = ", ".join(
        f"{start} {runs.mean(list(of)).partition(' (')[0]}"
        for start, of in zip(starts, ends.T, strict=True)
    )
    compared = compare(ends)
    verdict = runs.verdict(compared)
    splits_said = "1 split" if len(kept) == 1 else f"{len(kept)} splits"
    return Row(
        "figure 5",
        what,
        PAPER,
        f"{told} ({splits_said}, % in the end)",
        f"{given.rounds} rounds, no momentum, one rate for all",
        {
            "cifar10": runs.DATA,
            "digits": "digits, 1,437 images",
            "mnist": "MNIST, 3,000 and 2,000 images",
        }[given.data],
        verdict,
        _why(ends, compared),
    )


def _why(ends: np.ndarray, compared: Mapping[tuple[str, str], str]) -> str:
    words = {"opposite": "The other way round here: {}.", "tie": "Not told apart: {}."}
    said = [
        words[how].format(f"{a} before {b}") for (a, b), how in compared.items() if how in words
    ]
    # About chance among ten classes.
    lost = int(np.sum(ends[:, 0] < 20))
    if lost:
        said.append(f"Correcting all layers diverged on {lost} of {len(ends)} splits.")
    return " ".join(said)


def compare(ends: np.ndarray) -> dict[tuple[str, str], str]:
    """Of the last layer, all layers and none, as `runs.pairs` has it: the paper's order is this one."""
    found = {"the last layer": ends[:, -2], "all layers": ends[:, 0], "no layer": ends[:, -1]}
    order = dict(zip(found, (2.0, 1.0, 0.0), strict=True))
    return runs.pairs(order, {name: list(of) for name, of in found.items()}, 0.5)


def table(found: Found) -> str:
    """How far each rule is behind the best first layer, which needs runs from every layer on to be known."""
    lines = ["| setting | best from | " + " | ".join(RULES) + " |", "|---" * (2 + len(RULES)) + "|"]
    known = [name for name in SETTINGS if splits(found, name) and name not in LATER]
    lines += [_line(name, splits(found, name)) for name in known]
    if known:
        each = [behind(splits(found, name)) for name in known]
        means = [f"{np.mean([one[rule] for one in each]):.4f}" for rule in RULES]
        lines.append("| mean of these | | " + " | ".join(means) + " |")
    lines += [_line(name, splits(found, name)) for name in LATER if splits(found, name)]
    return "\n".join(lines)


def _line(name: str, kept: Sequence[dict[str, Any]]) -> str:
    ends = np.mean([one["ends"] for one in kept], axis=0)
    # Of equal ends none is the best.
    first = [*kept[0]["layers"], "none"][int(ends.argmax())] if np.ptp(ends) > 1e-9 else "any"
    told = [f"{value:.4f}" for value in behind(kept).values()]
    return f"| {name} | `{first}` | " + " | ".join(told) + " |"


def figure(found: Found, path: Path) -> None:
    """Accuracy by first masked layer, a line for each split."""
    there = [name for name in SETTINGS if splits(found, name)]
    there = [name for name in there if name in SHOWN] or there[:1]
    with figures.panels(path, len(there), most=2) as axes:
        for axis, name in zip(axes, there, strict=True):
            kept = splits(found, name)
            for split, one in enumerate(kept):
                axis.plot(
                    100 * np.array(one["ends"]), marker="o", linewidth=1, label=f"split {split}"
                )
            names = [*kept[0]["layers"], "none"]
            axis.set_xticks(range(len(names)), names, rotation=45, ha="right", fontsize="x-small")
            axis.set(title=name, ylabel="accuracy in %")
            axis.legend(fontsize="x-small")


STUDY = Study(
    "fedpvr/first_layer",
    "Where variance reduction should begin: from every layer on, and rules that see drift alone",
    needs=("cifar10", "mnist"),
    searched="the first masked layer, over all layers, by test accuracy: it is what is asked. Step sizes are "
    "the same for all, and no layer has momentum.",
    cells=cells,
    rows=rows,
    table=table,
    figure=figure,
)
