"""Run folders with made-up numbers, whose figures can be worked out by hand."""

import json
from pathlib import Path

import numpy as np
import safetensors.numpy

from holdfast.runs import results
from holdfast.runs.folder import RunFolder, description
from holdfast.runs.predictions import Predictions

ROUNDS, CLIENTS, CLASSES, TARGET = 20, 12, 4, 0.505
STRANGE = '<b>quick</b> & "co"'
SLOPES = {"fedavg": 0.04, STRANGE: 0.1, "slow": 0.01}
EXPERIMENT = '# </script><script>alert(1)</script>\nrounds = 20\n\n[data]\nname = "digits"\n'


def rows(slope, seed, rounds=ROUNDS, every=1, regression=False):
    """Accuracy grows by `slope` a round and 0.03 a seed; a round costs 1.5 MB and half a second."""
    found = []
    for r in range(1, rounds + 1):
        accuracy = min(slope * r + 0.03 * seed, 1.0)
        row = {"round": r}
        if r % every == 0:
            row |= {"loss": 2 - accuracy}
            row |= {} if regression else {"accuracy": accuracy, "train_loss": 1 - accuracy / 2}
        traffic = {"bytes_down": 1_000_000, "bytes_up": 500_000, "clients": 3, "left_out": 0}
        found.append(row | traffic | {"seconds": 0.5})
    return found


def client_results(seed, clients=CLIENTS, regression=False):
    accuracy = [(i + seed) / (clients + 3) for i in range(clients)]
    found = {"client": list(range(clients)), "examples": [5] * clients}
    found |= {} if regression else {"accuracy": accuracy}
    return found | {"loss": [1 - a for a in accuracy]}


def begin(
    path: Path,
    labels,
    *,
    metric="accuracy",
    target=TARGET,
    clients=CLIENTS,
    regression=False,
    greater_is_better=None,
    names=None,
    classes=None,
):
    counts = np.arange(clients * CLASSES).reshape(clients, CLASSES) % 7
    split = {"sizes": counts.sum(axis=1).tolist()}
    if not regression:
        split |= {"counts": counts.tolist(), "statistics": "12 clients <own> examples"}
    split |= {} if names is None else {"names": names, "labels": classes, "label_names": classes}
    named = [(label, f"m{i}") for i, label in enumerate(labels)]
    about = description(named, target, metric, greater_is_better=greater_is_better)
    return RunFolder.create(path, EXPERIMENT, split, about)


def add(
    folder: RunFolder,
    number: int,
    seed: int,
    history,
    clients=None,
    failed=False,
    start=None,
    predicted=None,
    ledger=(),
    split=None,
    chosen=None,
    details=(),
    confidence=None,
):
    files = folder.seed_folder(f"m{number}", seed, split)
    files.path.mkdir(parents=True)
    lines = [{n: v for n, v in row.items() if n != "seconds"} for row in history]
    times = [{"round": row["round"], "seconds": row["seconds"]} for row in history]
    written = (("history", lines), ("timing", times), ("ledger", ledger), ("details", details))
    for name, content in written[: 4 if details else 3]:
        text = "".join(json.dumps(line) + "\n" for line in content)
        (files.path / f"{name}.jsonl").write_text(text)
    if clients is not None:
        model = safetensors.numpy.save({"w": np.zeros(2)})
        files.finish(model, clients, predicted, start=start, chosen=chosen, confidence=confidence)
    if failed:
        (files.path / "failed.json").write_text("{}")


def usual(path: Path, seeds=3) -> results.Results:
    """Three methods: the baseline, a quicker one with a strange name, one that never gets there."""
    folder = begin(path, SLOPES)
    for number, slope in enumerate(SLOPES.values()):
        for seed in range(seeds):
            cut = number == 2 and seed == 1  # the slow one was interrupted
            history = rows(slope, seed, rounds=7 if cut else ROUNDS)
            add(folder, number, seed, history, None if cut else client_results(seed))
    return results.load([path])


def with_ends(path: Path, seeds=2) -> results.Results:
    """Two methods between the ends of the scale, which are quicker and better, or worse; all from 0.1."""
    slopes = {"local_only": 0.02, "fedavg": 0.2, "feddyn alpha=0.1": 0.3, "centralised": 0.9}
    folder = begin(path, slopes, target=0.7)
    for number, slope in enumerate(slopes.values()):
        for seed in range(seeds):
            history = rows(0.0, seed)
            for row in history:
                accuracy = min(0.9, 0.1 + slope * row["round"]) + 0.001 * number
                row |= {"accuracy": accuracy, "loss": 1 - accuracy}
            start = {"accuracy": 0.1, "loss": 0.9}
            add(folder, number, seed, history, client_results(seed + number), start=start)
    return results.load([path])


SITES = {"cleveland": 40, "<b>basel</b>": 9, "long beach": 31}
RIGHT = {"local_only": (0.6, 0.67, 0.6), "fedavg": (0.9, 0.67, 0.9), "feddyn": (0.9, 0.78, 0.9)}
RIGHT |= {"centralised": (0.95, 0.89, 1.0)}


def predictions(right) -> Predictions:
    """Of every site the first rows are right, as many as asked for; two classes."""
    client = np.repeat(np.arange(len(SITES)), list(SITES.values()))
    row = np.arange(len(client))
    within = np.concatenate([np.arange(n) for n in SITES.values()])
    sizes = np.array(list(SITES.values()))[client]
    good = within < np.round(np.asarray(right)[client] * sizes)
    label = row % 2
    said = np.where(good, label, 1 - label)
    return Predictions(
        client.astype(np.int32),
        row.astype(np.int32),
        label.astype(np.int32),
        np.stack([1 - said, said], axis=1).astype(np.float32),
        {"accuracy": good.astype(np.float32), "loss": 1 - good.astype(np.float32)},
        {"kept": "everything", "rows": len(row)},
    )


def sure(number, seed, name="", coverage=0.9):
    """What `[conformal]` measured at three sites: `basel` gets a third less than the others."""
    kappas = [0.05, 0.1, 0.5]
    return {
        "name": name, "by": "clients", "score": "lac", "kappa": 0.1, "sets": True, "calibrated_on": 60,
        "rows": 80, "coverage": coverage + 0.01 * seed, "size": 1.5 + number, "empty": 0.05, "single": 0.4,
        "excess": 0.03,
        "curve": {
            "kappa": kappas, "coverage": [0.95, coverage + 0.01 * seed, 0.5],
            "size": [None if number == 3 else 3.0, 1.5 + number, 1.0],
        },
        "classes": {"label": [0, 1], "rows": [40, 40], "coverage": [1.0, 0.8], "size": [1.0, 2.0]},
        "clients": {
            "client": [0, 1, 2], "rows": list(SITES.values()), "coverage": [0.95, 0.56, 0.9],
            "size": [1.4, 1.7, 1.5], "calibrated_on": [30, 0, 30], "own_coverage": [0.9, 1.0, 0.9],
            "own_size": [1.3, 2.0, 1.5],
        },
    }  # fmt: skip


def at_sites(path: Path, seeds=2, confident=()) -> results.Results:
    """Four methods at three sites with names, and what they predict of each test row; of populations with
    these names, how sure methods may be."""
    classes = ["well", "<ill>", "two", "three"]
    folder = begin(path, RIGHT, clients=len(SITES), target=None, names=list(SITES), classes=classes)
    ledger = [
        {"round": t, "clients": [0, t % 2 + 1], "bits_down": 8_000_000, "bits_up": [8, 4_000_000]}
        for t in range(1, 21)
    ]
    for number, right in enumerate(RIGHT.values()):
        made = predictions(right)
        by_client = [made.by_client(name) for name in ("accuracy", "loss")]
        clients = {"client": [0, 1, 2], "name": list(SITES), "examples": [6, 15, 10]}
        clients |= {"accuracy": list(by_client[0].values()), "loss": list(by_client[1].values())}
        history = rows(0.0, 0)
        for r in history:
            r |= {"accuracy": made.mean("accuracy"), "loss": made.mean("loss")}
        for seed in range(seeds):
            found = [sure(number, seed, name) for name in confident] or None
            add(
                folder, number, seed, history, clients, predicted=made, ledger=ledger, confidence=found
            )  # fmt: skip
    return results.load([path])


LAYERS = ("convolution_2", "convolution_10", "classifier")


def drifting(path: Path, seeds=2, matrices=True, methods=("fedavg", "slow")) -> results.Results:
    """Two methods, of which the first has measured drift: more in deeper layers, and more every round."""
    folder = begin(path, methods)
    for seed in range(seeds):
        history = rows(0.04, seed)
        for row in history:
            t = row["round"]
            # In the order of a model's leaves.
            for layer in sorted(LAYERS):
                depth = LAYERS.index(layer)
                row[f"drift_diversity/{layer}"] = 0.1 * t * (depth + 1) + seed
                row[f"cka/{layer}"] = 1 - 0.2 * depth
            row["drift_diversity"] = 0.15 * t + seed
        details = [
            {"round": t, "update_cosines": [1.0, 0.5]}
            if t % 2
            else {"round": t, **{f"cka_matrix/{n}": _alike(k) for k, n in enumerate(LAYERS)}}
            | {"cka_clients": [0, 5]}
            for t in range(1, 21)
        ]
        add(folder, 0, seed, history, client_results(seed), details=details if matrices else ())
        if len(methods) > 1:
            add(folder, 1, seed, rows(0.01, seed), client_results(seed))
    return results.load([path])


def _alike(depth):
    like, unknown = 1 - 0.2 * depth, float("nan")
    return [[1.0, like, 0.9], [like, 1.0, unknown], [0.9, unknown, 1.0]]


SWEPT = [("fedavg", {"rate": 0.1}), ("fedavg", {"rate": 0.01})] + [
    ("feddyn", {"alpha": alpha, "rate": rate}) for alpha in (1, 2) for rate in (0.1, 0.01)
]


def swept(path: Path, seeds=2) -> results.Results:
    """Six points of two methods: accuracy grows with the rate; the last one diverges."""
    labels = [f"{of} {values}" for of, values in SWEPT]
    points = {label: {"of": of, "values": v} for label, (of, v) in zip(labels, SWEPT, strict=True)}
    named = [(label, f"m{i}") for i, label in enumerate(labels)]
    split = {"sizes": [5] * CLIENTS}
    about = description([*named, ("fixed", "m6")], TARGET, "accuracy", points)
    folder = RunFolder.create(path, EXPERIMENT, split, about)
    for number, (_, values) in enumerate([*SWEPT, ("fixed", {"rate": 0.5})]):
        for seed in range(seeds):
            history = rows(values["rate"] / 3, seed, rounds=3 if number == 5 else ROUNDS)
            add(folder, number, seed, history, failed=number == 5)
    return results.load([path])


def single(path: Path, history, clients=None, *, failed=False, **about) -> results.Results:
    """One method, one seed."""
    folder = begin(path, ["only"], **about)
    add(folder, 0, 0, history, clients, failed)
    return results.load([path])
