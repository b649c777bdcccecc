"""FedPVR, figures 2, 4 and C.3: which layers drift apart, and how alike their features stay."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import holdfast as hf
from papers import figures
from papers.fedpvr import rates, runs, table2
from papers.fedpvr.runs import LAYERS, NAMES, Settings
from papers.running import Results
from papers.study import Asked, Cell, Found, Row, Study, Verdict

DRAWS = (0, 1, 2)
LIKE = 100.0
# Method and concentration, by the name in cells; the first for comparison.
RUNS = {
    "like": ("fedavg", LIKE),
    "fedavg": ("fedavg", 0.1),
    "scaffold": ("scaffold", 0.1),
    "fedpvr": ("fedpvr", 0.1),
}
TITLES = {"like": "FedAvg, like clients", **NAMES}
MEASURED = ("drift_diversity", "cka")


@dataclasses.dataclass(frozen=True)
class Setting:
    """A data set with a network, from the first layer to the last; `pictures` are those of table 2.

    Args:
        name: in the names of cells.
        title: in tables.
        layers: of the network.
        seeds: how many draws.
        of: what cells are called with besides the method.
    """

    name: str
    title: str
    layers: tuple[str, ...]
    seeds: int
    of: Mapping[str, Any]

    def found(self, found: Found, run: str) -> list[Mapping[str, Any]]:
        """Of a method, what was measured on each draw."""
        names = [f"{self.name}-{run}-{seed}" for seed in range(self.seeds)]
        return [found[name] for name in names if name in found]


def _others(**own: Any) -> dict[str, Any]:
    return {"clients": 10, "batch_size": 20, "channels": [], **own}


MNIST: Mapping[str, Any] = {"data": "mnist", "rounds": 20, "rate": 0.05, "epochs": 2}
PICTURES = Setting("cifar10", "CIFAR-10, CNN", LAYERS, len(DRAWS), {})
SETTINGS = (
    PICTURES,
    Setting(
        "digits",
        "digits, perceptron",
        ("hidden_0", "hidden_1", "classifier"),
        3,
        _others(data="digits", images=None, rounds=40, rate=0.1, epochs=5, dense=[64, 32]),
    ),
    Setting(
        "mnist",
        "MNIST, perceptron",
        ("hidden_0", "hidden_1", "hidden_2", "classifier"),
        2,
        _others(**MNIST, images=5000, dense=[128, 64, 32]),
    ),
    Setting(
        "mnist_cnn",
        "MNIST, CNN",
        ("convolution_0", "convolution_1", "dense_0", "classifier"),
        2,
        _others(**MNIST, images=3000, dense=[32]) | {"channels": [8, 16]},
    ),
)


def cell(setting: Setting, run: str, seed: int, quick: bool = False) -> Cell:
    """One run."""
    method, concentration = RUNS[run]
    name = f"{setting.name}-{run}-{seed}"
    if setting is PICTURES:
        values = runs.settings(method, concentration, seed, quick)
        # Like clients have the rate that was found where they are nearest to it.
        values |= rates.chosen(method, min(concentration, max(rates.CONCENTRATIONS)))
        return Cell(name, measured, (values,), 0.5)
    given = {"method": method, "concentration": concentration, "draw": seed, **setting.of}
    if quick:
        given |= {"rounds": runs.CKA_EVERY, "epochs": 1}
    return Cell(name, elsewhere, (given,), 0.5)


def cells(asked: Asked) -> list[Cell]:
    """A draw of everything before the next one, the paper's data first."""
    if asked.quick:
        return [cell(SETTINGS[0], "fedpvr", 0, True), cell(SETTINGS[1], "fedavg", 0, True)]
    most = max(setting.seeds for setting in SETTINGS)
    return [
        cell(setting, run, seed)
        for setting in SETTINGS
        for seed in range(most)
        for run in RUNS
        if seed < setting.seeds
    ]


def measured(values: Settings, *, asked: Asked, folder: Path) -> dict[str, Any]:
    """Drift diversity and CKA, of the run of table 2 if it is there."""
    return {n: of for n, of in taken(values, asked, folder).items() if n in ("accuracy", *MEASURED)}


def taken(values: Settings, asked: Asked, folder: Path) -> dict[str, Any]:
    """A run with these settings that table 2's study has kept, or a new one: they are the same."""
    known = {} if asked.quick else Results(table2.STUDY.results).read()
    for kept in known.values():
        if kept["args"] == [values]:
            return dict(kept["values"])
    return runs.run(values, asked=asked, folder=folder)


def elsewhere(values: Settings, *, asked: Asked, folder: Path) -> dict[str, Any]:
    """The same on digits or MNIST, with a perceptron or a smaller convolutional network."""
    digits = values["data"] == "digits"
    data = hf.data.digits() if digits else hf.data.mnist(folder=asked.data)
    few = values["images"]
    train = hf.Examples(data.train.x[:few], data.train.y[:few])
    if values["channels"]:
        model = hf.models.cnn(10, values["channels"], values["dense"], kernel=3, padding="SAME")
    else:
        model = hf.models.mlp(values["dense"], classes=10)
    split = hf.data.partition.dirichlet_by_class(
        train, values["clients"], values["concentration"], seed=values["draw"]
    )
    algorithm = {
        "fedavg": hf.algorithms.fedavg(),
        "scaffold": hf.algorithms.scaffold(),
        "fedpvr": hf.algorithms.fedpvr(runs.Of(("classifier",))),
    }[values["method"]]
    done = hf.simulate(
        algorithm,
        model,
        split,
        hf.Local(values["rate"], epochs=values["epochs"], batch_size=values["batch_size"]),
        rounds=values["rounds"],
        seed=values["draw"],
        evaluate=[
            hf.evaluate.on(data.test, every=runs.CKA_EVERY),
            hf.diagnose.drift(),
            hf.diagnose.cka(data.test, every=runs.CKA_EVERY),
        ],
        checkpoint=hf.Checkpoint(folder, every=5),
        progress=False,
    )
    return runs.measurements(done.history, values["rounds"])


# What is told of it.


def by_layer(setting: Setting, found: Found, run: str, what: str) -> np.ndarray:
    """Means over rounds: a row for each draw, a column for each layer."""
    kept = setting.found(found, run)
    if not kept:
        return np.zeros((0, len(setting.layers)))
    each = [[np.array(one[what][n], np.float64) for n in setting.layers] for one in kept]
    return np.array([[np.nanmean(layer) for layer in one] for one in each])


def most(setting: Setting, found: Found, run: str) -> tuple[int, int, int]:
    """In how many rounds of how many the classifier, and the first layer, is the most diverse."""
    each = [
        np.array([one["drift_diversity"][n] for n in setting.layers], np.float64)
        for one in setting.found(found, run)
    ]
    if not each:
        return 0, 0, 0
    rounds = np.concatenate(each, axis=1)
    rounds = rounds[:, np.isfinite(rounds).all(axis=0)]
    first = rounds.argmax(axis=0)
    return int(np.sum(first == len(rounds) - 1)), int(np.sum(first == 0)), rounds.shape[1]


def _layers(setting: Setting, found: Found, run: str, what: str) -> str:
    values = by_layer(setting, found, run, what)
    return ", ".join(
        f"{n} {v:.3f}" for n, v in zip(setting.layers, values.mean(axis=0), strict=True)
    )


def rows(found: Found) -> list[Row]:
    """Figure 2 on all data, figures 4 and C.3 on the first."""
    made = [row for setting in SETTINGS for row in _figure2(setting, found)]
    return made + _methods(found)


def _scale(setting: Setting) -> tuple[str, str]:
    if setting is PICTURES:
        return f"{runs.SCALE}, {runs.SETTINGS['rounds']} rounds", runs.DATA
    return (
        f"{setting.title} in place of VGG-11, {setting.of['rounds']} rounds of {setting.of['epochs']} epochs",
        f"{setting.title.partition(',')[0]}, {setting.of['images'] or '1,437'} images",
    )


def _row(
    setting: Setting,
    place: str,
    what: str,
    paper: str,
    ours: str,
    holds: Sequence[bool],
    why: str = "",
) -> Row:
    """Agrees in order if it holds on every draw; nothing was run if there is none."""
    if not holds:
        return Row(place, what, paper)
    verdict = Verdict.ORDER if all(holds) else Verdict.DISAGREES
    said = "" if all(holds) else f"It holds on {sum(holds)} of {len(holds)} draws. {why}".strip()
    draws = "1 draw" if len(holds) == 1 else f"{len(holds)} draws"
    return Row(place, what, paper, f"{ours} ({draws})", *_scale(setting), verdict, said)


def _figure2(setting: Setting, found: Found) -> list[Row]:
    drift, alike = (by_layer(setting, found, "fedavg", what) for what in MEASURED)
    like = by_layer(setting, found, "like", "cka")
    count = min(len(alike), len(like))
    last = [int(np.argmax(one)) == len(one) - 1 for one in drift]
    rounds, _, of = most(setting, found, "fedavg")
    lowest = [
        int(np.argmin(one)) == len(one) - 1 and int(np.argmax(other - one)) == len(one) - 1
        for one, other in zip(alike[:count], like[:count], strict=True)
    ]
    return [
        _row(
            setting,
            "figure 2",
            f"drift diversity by layer, FedAvg, Dirichlet 0.1 ({setting.title})",
            "the classifier has the highest",
            f"{_layers(setting, found, 'fedavg', 'drift_diversity')}; the classifier's is the highest in "
            f"{rounds} of {of} rounds"
            if last
            else "",
            last,
        ),
        _row(
            setting,
            "figure 2",
            f"CKA between clients by layer, FedAvg, Dirichlet 0.1 and 100 ({setting.title})",
            "first layers as alike at 0.1 as at 100, the classifier's lowest and furthest from it",
            f"0.1: {_layers(setting, found, 'fedavg', 'cka')}; 100: {_layers(setting, found, 'like', 'cka')}"
            if lowest
            else "",
            lowest,
        ),
    ]


def _methods(found: Found) -> list[Row]:
    by = {run: by_layer(PICTURES, found, run, "drift_diversity") for run in RUNS if run != "like"}
    count = min(len(values) for values in by.values())
    fedavg, scaffold, fedpvr = (by[run][:count] for run in ("fedavg", "scaffold", "fedpvr"))
    last, early = -1, slice(0, runs.DENSE)

    def told(which: Any) -> str:
        means = {run: float(np.mean(values[:count, which])) for run, values in by.items()}
        return " / ".join(f"{TITLES[run]} {value:.3f}" for run, value in means.items())

    classifier = list((fedavg[:, last] > scaffold[:, last]) & (scaffold[:, last] > fedpvr[:, last]))
    features = list(fedpvr[:, early].mean(axis=1) > scaffold[:, early].mean(axis=1))
    both = "Figure 4 is of ResNet-8 on CIFAR-100 at 1.0, C.3 of VGG-11 at 0.1."
    return [
        _row(
            PICTURES,
            "figures 4 and C.3",
            "drift diversity of the classifier: in the paper CIFAR-100, here CIFAR-10, Dirichlet 0.1",
            "FedAvg above SCAFFOLD above FedPVR",
            told(last) if count else "",
            [bool(one) for one in classifier],
            both,
        ),
        _row(
            PICTURES,
            "figures 4 and C.3",
            "drift diversity of the convolutions: in the paper CIFAR-100, here CIFAR-10, Dirichlet 0.1",
            "FedPVR above SCAFFOLD",
            told(early) if count else "",
            [bool(one) for one in features],
            both,
        ),
    ]


def table(found: Found) -> str:
    """Means over rounds by layer, for every method, and where the classifier leads."""
    lines = []
    for setting in SETTINGS:
        there = [run for run in RUNS if setting.found(found, run)]
        if not there:
            continue
        heads = " | ".join(TITLES[run] for run in there)
        lines += [f"**{setting.title}** ({_scale(setting)[0]})", ""]
        for what, title in zip(MEASURED, ("drift diversity", "CKA between clients"), strict=True):
            lines += [f"| {title} | {heads} |", "|---" * (1 + len(there)) + "|"]
            for k, layer in enumerate(setting.layers):
                told = [_mean(by_layer(setting, found, run, what)[:, k]) for run in there]
                lines.append(f"| {layer} | " + " | ".join(told) + " |")
            if what == MEASURED[0]:
                counts = [most(setting, found, run) for run in there]
                told = [f"{last} / {first} of {of} rounds" for last, first, of in counts]
                lines.append("| highest: classifier / first layer | " + " | ".join(told) + " |")
            lines.append("")
    return "\n".join(lines)


def _mean(values: np.ndarray) -> str:
    deviation = f" ± {np.std(values, ddof=1):.3f}" if len(values) > 1 else ""
    return f"{np.mean(values):.3f}{deviation}"


def figure(found: Found, path: Path) -> None:
    """Drift diversity over rounds, a line for each layer, from light to dark; the first data there are."""
    setting = next(s for s in SETTINGS if any(s.found(found, run) for run in RUNS))
    there = [run for run in RUNS if setting.found(found, run)]
    with figures.panels(path, len(there), most=2) as axes:
        for axis, run in zip(axes, there, strict=True):
            for k, layer in enumerate(setting.layers):
                curves = [one["drift_diversity"][layer] for one in setting.found(found, run)]
                middle = np.mean(np.array(curves, np.float64), axis=0)
                shade = str(0.8 * (1 - k / (len(setting.layers) - 1)))
                axis.plot(np.arange(1, len(middle) + 1), middle, color=shade, label=layer)
            axis.set(title=TITLES[run], xlabel="rounds", ylabel="drift diversity")
            axis.legend(fontsize="x-small")


STUDY = Study(
    "fedpvr/drift",
    "Which layers drift apart: drift diversity and CKA by layer",
    needs=("cifar10", "mnist"),
    searched="on CIFAR-10 each method's learning rate by `fedpvr/rates`; nothing on digits and MNIST, where "
    "all methods have the same rate and no momentum, and FedPVR corrects the classifier alone.",
    cells=cells,
    rows=rows,
    table=table,
    figure=figure,
)
