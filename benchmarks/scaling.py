"""Scaling curves of holdfast: one point in one process, so that peak memory is that of the point.

python benchmarks/scaling.py population 100000 feddyn 12
python benchmarks/scaling.py ratio cohort parameters     # FedDyn / FedAvg, by processor time
"""

import itertools
import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

CURVES: dict[str, tuple[int, ...]] = {
    "population": (10**3, 10**4, 10**5, 10**6),
    "cohort": (10, 32, 100, 316, 1000),
    "parameters": (10**4, 10**5, 10**6, 10**7),
}
TITLES = {
    "population": "clients in the population (100 a round, logistic regression 8-5, 4 examples each)",
    "cohort": "clients a round (of 2000, MLP 32-64-10, 20 examples each, batch 10)",
    "parameters": "parameters of the model (MLP 100-w-w-10, 10 clients a round of 100, 20 examples each)",
}
METHODS = ("fedavg", "feddyn")


def _width(parameters: int) -> int:
    """w with w^2 + 112 w + 10 parameters."""
    return round(-56 + (56**2 + parameters - 10) ** 0.5)


def setting(curve: str, value: int) -> dict[str, Any]:
    """Sizes of a point."""
    if curve == "population":
        return {
            "clients": value,
            "each": 4,
            "features": 8,
            "classes": 5,
            "cohort": 100,
            "hidden": [],
        }
    if curve == "cohort":
        return {"clients": 2000, "each": 20, "features": 32, "cohort": value, "hidden": [64]}
    width = _width(value)
    return {"clients": 100, "each": 20, "features": 100, "cohort": 10, "hidden": [width, width]}


def _stream(curve: str, value: int, method: str) -> tuple[Iterator[Any], int]:
    """Rounds of a point, and the bytes of its data."""
    import holdfast as hf

    about = {"classes": 10} | setting(curve, value)
    rng = np.random.default_rng(0)
    examples = about["clients"] * about["each"]
    x = rng.standard_normal((examples, about["features"]), dtype=np.float32)
    y = rng.integers(0, about["classes"], examples, dtype=np.int32)
    offsets = np.arange(about["clients"] + 1) * about["each"]
    algorithms = {"fedavg": hf.algorithms.fedavg, "feddyn": lambda: hf.algorithms.feddyn(0.01)}
    stream = hf.rounds(
        algorithms[method](),
        hf.models.mlp(about["hidden"], about["classes"]),
        hf.data.Clients(hf.Examples(x, y), np.arange(examples), offsets),
        hf.Local(learning_rate=0.01, epochs=1, batch_size=10),
        cohort=hf.cohorts.fixed(about["cohort"]),
    )
    return stream, int(x.nbytes + y.nbytes)


def measure(curve: str, value: int, method: str, rounds: int) -> dict[str, Any]:
    """Seconds a round, seconds to the end of round 1, and peak memory."""
    began = time.perf_counter()
    from holdfast.cli import use_machine

    use_machine()
    from peers.protocol import own_peak

    stream, data = _stream(curve, value, method)
    ends = []
    for _ in itertools.islice(stream, rounds):
        ends.append(time.perf_counter())
    seconds = [b - a for a, b in itertools.pairwise(ends)]
    return {
        "curve": curve,
        "value": value,
        "method": method,
        "seconds": statistics.median(seconds),
        "cold": ends[0] - began,
        "memory": own_peak(),
        "data": data,
    }


def ratio(curve: str, value: int, rounds: int = 12) -> dict[str, float]:
    """FedDyn's processor time of a round over FedAvg's, taken in turns: what else runs adds little to it."""
    from holdfast.cli import use_machine

    use_machine()
    streams = {method: _stream(curve, value, method)[0] for method in METHODS}
    spent: dict[str, list[float]] = {method: [] for method in METHODS}
    for turn in range(rounds + 2):
        for method, stream in streams.items():
            began = time.process_time()
            next(stream)
            if turn >= 2:
                spent[method].append(time.process_time() - began)
    few, many = (spent[method] for method in METHODS)
    return {
        "shortest": min(many) / min(few),
        "median": statistics.median(many) / statistics.median(few),
    }


def draw(points: list[dict[str, Any]], folder: Path) -> list[Path]:
    """One figure a curve: seconds and memory, both axes logarithmic."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    folder.mkdir(exist_ok=True)
    written = []
    for curve in dict.fromkeys(p["curve"] for p in points):
        figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
        for method in METHODS:
            mine = [p for p in points if (p["curve"], p["method"]) == (curve, method)]
            values = [p["value"] for p in mine]
            left.loglog(values, [p["seconds"] for p in mine], "o-", label=method)
            right.loglog(values, [p["memory"] / 1e6 for p in mine], "o-", label=method)
        left.set_ylabel("seconds a round")
        right.set_ylabel("peak memory, MB")
        for axes in (left, right):
            axes.set_xlabel(curve)
            axes.grid(alpha=0.3, which="both")
            axes.legend()
        written.append(folder / f"{curve}.png")
        figure.savefig(written[-1], dpi=120)
        plt.close(figure)
    return written


if __name__ == "__main__":
    if sys.argv[1] == "ratio":
        for curve in sys.argv[2:] or CURVES:
            for value in CURVES[curve]:
                found = ratio(curve, value, rounds=6 if value == 10**7 else 20)
                text = ", ".join(f"{name} {number:.2f}" for name, number in found.items())
                print(f"{curve} {value:,}: FedDyn / FedAvg {text}", flush=True)
    else:
        curve, value, method, rounds = sys.argv[1:]
        print(json.dumps(measure(curve, int(value), method, int(rounds))))
