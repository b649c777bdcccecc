"""One method on one draw of small pictures, with all that the paper's tables and figures measure of it."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import holdfast as hf
from holdfast.errors import RoundFailedError
from papers.study import Asked, Found, Verdict

METHODS = ("fedavg", "fedprox", "scaffold", "fedpvr")
OWN = "fedpvr"
NAMES = {
    "fedavg": "FedAvg",
    "fedprox": "FedProx",
    "scaffold": "SCAFFOLD",
    "fedpvr": "FedPVR",
    "centralised": "centralised",
}
SCALE = (
    "a CNN of three convolutions and two dense layers in place of VGG-11, pictures of 16 x 16 pixels, 10 "
    "clients as in the paper, 5 local epochs for its 10, batches of 20"
)
DATA = "CIFAR-10, of its first 10,000 training images 2,000 each draw, 5,000 test images"
Settings = dict[str, Any]
# By network, its layers. FedPVR corrects the CNN's dense ones, as the paper does in VGG-11, and the last
# of ResNet-8.
LAYERS = ("convolution_0", "convolution_1", "convolution_2", "dense_0", "classifier")
DENSE = 3
BLOCKS = tuple(f"stage_{k}_block_0" for k in range(3))
NETWORKS = {
    "cnn": (LAYERS, DENSE),
    "resnet8": (("convolution_0", "norm_0", *BLOCKS, "classifier"), 5),
}
CALIBRATION = 2000  # images kept out of training: to choose rates with, and to calibrate with
CKA_EVERY = 5  # rounds
KAPPAS = tuple(round(0.02 * k, 2) for k in range(1, 36))
SETTINGS: Mapping[str, Any] = {
    "network": "cnn",
    "side": 16,
    "rounds": 12,
    "images": 2000,
    "test_images": 5000,
    "epochs": 5,
    "batch_size": 20,
    "channels": [16, 32, 32],
    "dense": [32],
    "clients": 10,
}
# On the bundled digits.
QUICK: Mapping[str, Any] = {
    "rounds": CKA_EVERY,
    "images": 200,
    "test_images": 60,
    "epochs": 1,
    "channels": [4, 4, 4],
    "dense": [8],
}


@dataclasses.dataclass(frozen=True)
class Of:
    """The parameters of some layers, by their names; or of all others."""

    layers: tuple[str, ...]
    others: bool = False

    def __call__(self, path: str) -> bool:
        return (path.partition("/")[0] in self.layers) != self.others


def settings(
    method: str, concentration: float, draw: int, quick: bool = False, **own: Any
) -> Settings:
    """What a cell is called with."""
    about = {"method": method, "concentration": concentration, "draw": draw}
    return {**about, **SETTINGS, **own, **(QUICK if quick else {})}


@dataclasses.dataclass(frozen=True)
class Pictures:
    """To train on, to choose and calibrate with, and to test on; none is in two of them."""

    train: hf.Examples
    held_out: hf.Examples
    test: hf.Examples


def pictures(draw: int, images: int, test_images: int, asked: Asked, side: int = 16) -> Pictures:
    """CIFAR-10, of this width, others for training in every draw; digits if it is quick."""
    if asked.quick:
        digits = hf.data.digits()
        seen, unseen, held = _square(digits.train), _square(digits.test), 100
    else:
        seen, unseen = _smaller(asked.data, side)
        held = CALIBRATION
    order = np.random.default_rng(draw).permutation(len(seen.y))
    if images + held > len(order):
        raise ValueError(f"{images} and {held} images of {len(order)}")
    return Pictures(
        _some(seen, order[:images]),
        _some(seen, order[-held:]),
        _some(unseen, np.arange(test_images)),
    )


def pictures_of(values: Settings, asked: Asked) -> Pictures:
    """Those that a cell is called with."""
    return pictures(values["draw"], values["images"], values["test_images"], asked, values["side"])


def _square(examples: hf.Examples) -> hf.Examples:
    return hf.Examples(np.asarray(examples.x, np.float32).reshape(-1, 8, 8, 1), examples.y)


@functools.cache
def _smaller(folder: Path, side: int) -> tuple[hf.Examples, hf.Examples]:
    """Each pixel the mean of those it stands for."""
    read, by = hf.data.cifar10(batches=1, normalise=True, folder=folder), 32 // side
    seen, unseen = (
        hf.Examples(part.x.reshape(-1, side, by, side, by, 3).mean((2, 4)), part.y)
        for part in (read.train, read.test)
    )
    return seen, unseen


def _some(examples: hf.Examples, rows: np.ndarray) -> hf.Examples:
    return hf.Examples(np.asarray(examples.x)[rows], np.asarray(examples.y, np.int32)[rows])


def experiment(
    values: Settings, train: hf.Examples, evaluate: Sequence[Any]
) -> tuple[hf.Experiment, hf.Model]:
    """The run with these settings, and its model without the changes of pictures."""
    channels, dense = values["channels"], values["dense"]
    plain = (
        hf.models.resnet8(10)
        if values["network"] == "resnet8"
        else hf.models.cnn(10, channels, dense, kernel=3, padding="SAME")
    )
    # The authors' code moves pictures by an eighth of their width, too.
    model = hf.models.augmented(plain, crop=values["side"] // 8, crop_probability=1.0)
    split = hf.data.partition.dirichlet_by_class(
        train,
        values["clients"],
        values["concentration"],
        seed=values["draw"],
        # As the authors' code does.
        equal_sizes=True,
    )
    layers, first = NETWORKS[values["network"]]
    method, corrected = values["method"], layers[values.get("first", first) :]
    algorithm = {
        "fedavg": hf.algorithms.fedavg,
        "fedprox": lambda: hf.algorithms.fedprox(mu=values["mu"]),
        "scaffold": hf.algorithms.scaffold,
        "fedpvr": lambda: hf.algorithms.fedpvr(Of(corrected)),
        "centralised": hf.algorithms.centralised,
    }[method]()
    # Appendix C.1: momentum on what is not variance-reduced. Section 5.1: none where data are in one place.
    still = method in ("scaffold", "centralised") or len(corrected) == len(layers)
    local = hf.Local(
        values["rate"],
        epochs=values["epochs"],
        batch_size=values["batch_size"],
        momentum=None if still else 0.9,
        momentum_on=Of(corrected, others=True) if method == "fedpvr" and not still else None,
    )
    made = hf.Experiment(
        algorithm, model, split, local, seed=values["draw"], evaluate=list(evaluate)
    )
    return made, plain


def run(values: Settings, *, asked: Asked, folder: Path) -> dict[str, Any]:
    """Accuracy, drift diversity and CKA by layer over rounds, and in the end prediction sets.

    A curve has None where training has diverged.
    """
    data = pictures_of(values, asked)
    watched: list[Any] = [hf.evaluate.on(data.test)]
    if values["method"] != "centralised":
        watched.append(hf.diagnose.drift())
        # The layers of a block have no names of their own there.
        if values["network"] == "cnn":
            watched.append(hf.diagnose.cka(data.test, every=CKA_EVERY))
    made, model = experiment(values, data.train, watched)
    history, params = carried_out(made, values["rounds"], folder)
    found = measurements(history, values["rounds"])
    if params is None:
        return found
    sure, unsure = (np.asarray(model.predict(params, part)) for part in (data.held_out, data.test))
    if np.isfinite(sure).all() and np.isfinite(unsure).all():
        known = hf.conformal.calibrate(sure, data.held_out.y)
        sets = hf.conformal.curve(known, unsure, data.test.y, KAPPAS)
        found["sets"] = {name: rounded(np.array(of)) for name, of in sets.items()}
    return found


def carried_out(
    made: hf.Experiment, rounds: int, folder: Path | None = None
) -> tuple[hf.History, Any]:
    """All rounds, or those until not one client returns finite numbers: then there is no model."""
    seen = [hf.History()]
    store = None if folder is None else hf.Checkpoint(folder, every=5)
    try:
        done = hf.simulate(
            made,
            rounds=rounds,
            checkpoint=store,
            progress=False,
            on_round=lambda state: seen.append(state.history),
        )
    except RoundFailedError:
        return seen[-1], None
    return done.history, done.params


def measurements(history: hf.History, rounds: int) -> dict[str, Any]:
    """Accuracy over rounds, and drift diversity and CKA by layer, of what was measured."""
    curve = rounded(history["accuracy"]) if len(history) else []
    # After training has diverged there is nothing to measure.
    found: dict[str, Any] = {"accuracy": curve + [None] * (rounds - len(curve))}
    for what, every in (("drift_diversity", 1), ("cka", CKA_EVERY)):
        columns = [name for name in history.columns if name.startswith(f"{what}/")]
        if columns:
            found[what] = {
                name.removeprefix(f"{what}/"): rounded(history[name][every - 1 :: every])
                for name in columns
            }
    return found


def rounded(values: np.ndarray) -> list[float | None]:
    """To four places; None where there is no number."""
    return [round(float(v), 4) if np.isfinite(v) else None for v in np.asarray(values, np.float64)]


Curve = Sequence[float | None]


def last(curve: Curve, rounds: int = 3) -> float:
    """The mean over the last rounds; chance where training has diverged."""
    return float(np.mean([0.1 if v is None else v for v in curve[-rounds:]]))


def rounds_to(curve: Curve, target: float) -> float:
    """The first round, from 1, whose value is the target or more; infinite without."""
    there = [t for t, v in enumerate(curve, 1) if v is not None and v >= target]
    return float(there[0]) if there else float("inf")


# By method, a number for each draw, in the same order.
Numbers = Mapping[str, Sequence[float]]


def told(found: Numbers, form: str = "{:.1f}", most: int | None = None) -> str:
    """Ours of all methods in a line: mean, deviation over draws, and how many draws."""
    return " / ".join(f"{NAMES[m]} {mean(v, form, most)}" for m, v in found.items() if v)


def mean(values: Sequence[float], form: str = "{:.1f}", most: int | None = None) -> str:
    """Mean and deviation; where some are infinite, of the others, and how many these are."""
    there = [v for v in values if np.isfinite(v)]
    draws = "1 draw" if len(values) == 1 else f"{len(values)} draws"
    if not there:
        return f"{most}+ ({draws})"
    text = form.format(np.mean(there))
    if len(there) > 1:
        text += " ± " + form.format(np.std(there, ddof=1))
    if len(there) < len(values):
        return f"{text} ({len(there)} of {draws}, else {most}+)"
    return f"{text} ({draws})"


def pairs(paper: Mapping[str, float], found: Numbers, apart: float) -> dict[tuple[str, str], str]:
    """For every two methods that the paper tells apart, the one it has ahead first: what is so here.

    Greater is ahead. They are a tie here where the mean difference of the same draws is not beyond its
    standard error, or on a single draw not beyond `apart`, by which the paper's must differ too.
    """
    made: dict[tuple[str, str], str] = {}
    # Without the paper's own method its order is not put to the test.
    if OWN in paper and not found.get(OWN):
        return made
    for a in paper:
        for b in paper:
            if paper[a] - paper[b] <= apart or not found.get(a) or not found.get(b):
                continue
            count = min(len(found[a]), len(found[b]))
            with np.errstate(invalid="ignore"):
                gaps = np.array(found[a][:count]) - np.array(found[b][:count])
            # Both never got there.
            gaps = np.where(np.isnan(gaps), 0.0, gaps)
            middle = float(np.mean(gaps))
            error = apart
            if count > 1 and np.isfinite(gaps).all():
                error = float(np.std(gaps, ddof=1)) / np.sqrt(count)
            made[a, b] = "tie" if abs(middle) <= error else "same" if middle > 0 else "opposite"
    return made


def verdict(compared: Mapping[tuple[str, str], str]) -> Verdict:
    """The order agrees where no two stand the other way round, and more than half are told apart.

    Numbers of other data and another network cannot agree.
    """
    if not compared:
        return Verdict.NOT_RUN
    same = sum(value == "same" for value in compared.values())
    if "opposite" in compared.values() or 2 * same <= len(compared):
        return Verdict.DISAGREES
    return Verdict.ORDER


def said(compared: Mapping[tuple[str, str], str]) -> str:
    """Of which two methods it is not so, in words."""
    parts = []
    for how, words in (
        ("opposite", "The other way round here: {}."),
        ("tie", "Not told apart: {}."),
    ):
        those = [
            f"{NAMES[a]} before {NAMES[b]}" for (a, b), value in compared.items() if value == how
        ]
        if those:
            parts.append(words.format(", ".join(those)))
    return " ".join(parts)


def missing(found: Numbers, methods: Sequence[str] = METHODS) -> str:
    """Methods that were not run, in words."""
    names = [NAMES[m] for m in methods if not found.get(m)]
    said = f"Not run yet: {', '.join(names)}." if names else ""
    alone = max((len(values) for values in found.values()), default=0) == 1
    return f"{said} Another draw may have another order: there is one.".strip() if alone else said


def of(
    found: Found, name: str, methods: Sequence[str], draws: Sequence[int]
) -> dict[str, list[Any]]:
    """What cells called `name-method-draw` returned, by method."""
    return {
        m: [found[cell] for d in draws if (cell := f"{name}-{m}-{d}") in found] for m in methods
    }
