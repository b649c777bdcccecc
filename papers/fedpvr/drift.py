"""FedPVR's figures 2 and 4 in small: which layers drift apart, and how alike their features stay.

FedAvg, SCAFFOLD and FedPVR with ten clients by Dirichlet(0.1), FedAvg on like clients beside them; digits
with a perceptron of three layers, or MNIST with one of four if its folder is given, or with a small
convolutional network.

    python -m papers.fedpvr.drift
    python -m papers.fedpvr.drift --mnist FOLDER
    python -m papers.fedpvr.drift --mnist FOLDER --cnn
"""

import argparse
import csv
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import holdfast as hf

RESULTS = Path(__file__).parent / "results"
CLIENTS = 10


@dataclasses.dataclass(frozen=True)
class Problem:
    """A data set and the network it is learnt with, from the first layer to the last."""

    name: str
    data: Any
    model: hf.Model
    layers: tuple[str, ...]
    rounds: int
    every: int  # rounds between measurements of CKA
    local: hf.Local
    seeds: int


def digits(rounds: int = 40, seeds: int = 3) -> Problem:
    """1,437 training images of 8 x 8 pixels."""
    layers = ("hidden_0", "hidden_1", "classifier")
    local = hf.Local(learning_rate=0.1, epochs=5, batch_size=20)
    model = hf.models.mlp([64, 32], classes=10)
    return Problem("digits", hf.data.digits(), model, layers, rounds, 5, local, seeds)


def mnist(folder: Path, rounds: int = 20, examples: int = 5000, seeds: int = 2) -> Problem:
    """The first examples of MNIST, and all of its test set."""
    found = hf.data.mnist(folder=folder)
    few = hf.Examples(found.train.x[:examples], found.train.y[:examples])
    layers = ("hidden_0", "hidden_1", "hidden_2", "classifier")
    local = hf.Local(learning_rate=0.05, epochs=2, batch_size=20)
    data = dataclasses.replace(found, train=few)
    model = hf.models.mlp([128, 64, 32], classes=10)
    return Problem("MNIST", data, model, layers, rounds, 5, local, seeds)


def mnist_cnn(folder: Path, rounds: int = 20, examples: int = 3000, seeds: int = 2) -> Problem:
    """Fewer examples of MNIST, and two convolutions before two dense layers."""
    flat = mnist(folder, rounds, examples, seeds)
    layers = ("convolution_0", "convolution_1", "dense_0", "classifier")
    model = hf.models.cnn(classes=10, channels=(8, 16), dense=(32,), kernel=3, padding="SAME")
    return dataclasses.replace(flat, name="MNIST-CNN", model=model, layers=layers)


def methods() -> Iterator[tuple[str, float, hf.Algorithm]]:
    """What each line is called, how alike clients are, and the method."""

    def last(path: str) -> bool:
        return path.startswith("classifier")

    yield "FedAvg, like clients", 100.0, hf.algorithms.fedavg()
    yield "FedAvg", 0.1, hf.algorithms.fedavg()
    yield "SCAFFOLD", 0.1, hf.algorithms.scaffold()
    yield "FedPVR", 0.1, hf.algorithms.fedpvr(mask=last)


def measure(
    problem: Problem, concentration: float, algorithm: hf.Algorithm, seed: int
) -> hf.History:
    """One run, with all that is measured of its drift."""
    train, test = problem.data.train, problem.data.test
    clients = hf.data.partition.dirichlet_by_class(train, CLIENTS, concentration, seed=seed)
    watched = [
        hf.evaluate.on(test, every=problem.every),
        hf.diagnose.drift(),
        hf.diagnose.updates(every=problem.every),
        hf.diagnose.cka(test, every=problem.every),
    ]
    given = dict(local=problem.local, rounds=problem.rounds, seed=seed, evaluate=watched)
    return hf.simulate(algorithm, problem.model, clients, **given).history


Rows = list[dict[str, Any]]


def study(problem: Problem) -> Rows:
    """By method, seed, round and layer, what was measured."""
    found: Rows = []
    for label, concentration, algorithm in methods():
        for seed in range(problem.seeds):
            for record in measure(problem, concentration, algorithm, seed):
                for layer in problem.layers:
                    names = (
                        "drift_diversity",
                        "cka",
                        "cka_server",
                        "update_share",
                        "update_cosine",
                    )
                    values = {n: record.get(f"{n}/{layer}") for n in names}
                    where = {
                        "method": label,
                        "seed": seed,
                        "round": record["round"],
                        "layer": layer,
                    }
                    found.append(where | values | {"accuracy": record.get("accuracy")})
            print(f"{problem.name}: {label}, seed {seed}", flush=True)
    return found


def mean(rows: Rows, column: str, **where: Any) -> tuple[float, float]:
    """Of a column over all rounds, and the deviation of seeds about it."""
    chosen = [r for r in rows if all(r[k] == v for k, v in where.items()) and r[column] is not None]
    seeds = sorted({r["seed"] for r in chosen})
    each = [np.mean([r[column] for r in chosen if r["seed"] == s]) for s in seeds]
    return float(np.mean(each)), float(np.std(each, ddof=1)) if len(each) > 1 else 0.0


def table(problem: Problem, rows: Rows) -> str:
    """Means over rounds by layer, for every method."""
    labels = list(dict.fromkeys(r["method"] for r in rows))
    lines = []
    kinds = {"drift_diversity": "drift diversity", "cka": "CKA between clients"}
    kinds |= {
        "cka_server": "CKA with the server's model",
        "update_cosine": "cosine with the mean update",
    }
    for column, name in kinds.items():
        lines += ["", f"| {name} | " + " | ".join(labels) + " |", "|---|" + "---|" * len(labels)]
        for layer in problem.layers:
            cells = (
                "{:.3f} ± {:.3f}".format(*mean(rows, column, method=m, layer=layer)) for m in labels
            )
            lines.append(f"| {layer} | " + " | ".join(cells) + " |")
    last = max(r["round"] for r in rows if r["accuracy"] is not None)
    ends = ("{:.3f} ± {:.3f}".format(*mean(rows, "accuracy", method=m, round=last)) for m in labels)
    lines.append(f"| accuracy in round {last} | " + " | ".join(ends) + " |")
    return "\n".join(lines)


def draw(problem: Problem, rows: Rows, path: Path) -> None:
    """Drift diversity and CKA over rounds: a column for each method, a line for each layer."""
    from matplotlib.figure import Figure

    labels = list(dict.fromkeys(r["method"] for r in rows))
    figure = Figure(figsize=(2.5 * len(labels), 4.2), layout="constrained")
    axes = figure.subplots(2, len(labels), sharex=True, sharey="row", squeeze=False)
    for column, label in enumerate(labels):
        for row, kind in enumerate(("drift_diversity", "cka")):
            for k, layer in enumerate(problem.layers):
                chosen = [
                    r
                    for r in rows
                    if (r["method"], r["layer"]) == (label, layer) and r[kind] is not None
                ]
                rounds = sorted({r["round"] for r in chosen})
                values = [np.mean([r[kind] for r in chosen if r["round"] == t]) for t in rounds]
                shade = str(0.75 * (1 - k / (len(problem.layers) - 1)))
                axes[row, column].plot(rounds, values, color=shade, label=layer, lw=1.4)
        axes[0, column].set_title(label, fontsize=9)
        axes[1, column].set_xlabel("round")
    axes[0, 0].set_ylabel("drift diversity")
    axes[1, 0].set_ylabel("CKA between clients")
    axes[0, 0].legend(fontsize=7, frameon=False)
    figure.savefig(path, dpi=150)


def write(problem: Problem, rows: Rows, folder: Path = RESULTS) -> Path:
    """The table, the figure and every number."""
    folder.mkdir(exist_ok=True)
    stem = f"drift-{problem.name.lower()}"
    with open(folder / f"{stem}.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: _short(v) for k, v in row.items()} for row in rows)
    what = f"{problem.rounds} rounds, {problem.seeds} seeds"
    about = f"{what}; means over rounds, ± the deviation over seeds.\n"
    path = folder / f"{stem}.md"
    path.write_text(about + table(problem, rows) + "\n")
    draw(problem, rows, folder / f"{stem}.png")
    return path


def _short(value: Any) -> Any:
    return f"{value:.6g}" if isinstance(value, float) else value


def main() -> None:
    """Run the study and write its results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--mnist", type=Path, help="MNIST instead of digits: the folder with its four files"
    )
    parser.add_argument("--cnn", action="store_true", help="of MNIST, a convolutional network")
    given = parser.parse_args()
    if given.cnn and given.mnist is None:
        parser.error("--cnn is of MNIST; give --mnist FOLDER too")
    of_mnist = mnist_cnn if given.cnn else mnist
    problem = digits() if given.mnist is None else of_mnist(given.mnist)
    print(write(problem, study(problem)))


if __name__ == "__main__":
    main()
