"""What methods come to under attack, by how replies are averaged: one command, which can be stopped.

    python -m papers.robust.table             runs what is missing, writes docs/robust.md
    python -m papers.robust.table --page      writes the page from what there is
    python -m papers.robust.table --only fedavg scaffold --seeds 1 --cohorts everybody

A file of `results/` is one cohort and method: mean -> attack -> seed -> accuracy in the last round.
"""

import argparse
import dataclasses
import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

import holdfast as hf
from holdfast.record.files import write_whole
from papers.robust import fixed_points

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "robust.md"
CLIENTS, LIARS, SEEDS, POINTS = 50, 10, (0, 1, 2), 0.03
WHO = list(range(LIARS))


class Setting(NamedTuple):
    """Who takes part, and for how long."""

    title: str
    cohort: hf.cohorts.Cohort
    rounds: int


SETTINGS = {
    "ten": Setting("Ten of fifty a round", hf.cohorts.fixed(10), 100),
    "everybody": Setting("Everybody in every round", hf.cohorts.everyone(), 200),
}
METHODS = {
    "fedavg": hf.algorithms.fedavg(),
    "scaffold": hf.algorithms.scaffold(),
    "feddyn": hf.algorithms.feddyn(alpha=0.1),
    "fedpvr": hf.algorithms.fedpvr(mask=lambda path: path.startswith("classifier")),
}
A = hf.aggregates
MEANS = {
    "plain": None,
    "NormBounded(1)": A.NormBounded(factor=1.0),
    "CenteredClipping(1)": A.CenteredClipping(factor=1.0),
    "Krum(0.2)": A.Krum(share=0.2),
    "Krum(0.4)": A.Krum(share=0.4),
    "CoordinateMedian": A.CoordinateMedian(),
    "GeometricMedian": A.GeometricMedian(),
}
ATTACKS: dict[str, hf.attacks.Attack | None] = {
    "nobody lies": None,
    "boosted flip": hf.attacks.Boosted(times=-10.0, clients=WHO),
    "sign flip": hf.attacks.SignFlip(clients=WHO),
    "label flip": hf.attacks.LabelFlip(clients=WHO),
    "noise": hf.attacks.GaussianNoise(sigma=1.0, clients=WHO),
    "huge": hf.attacks.Huge(clients=WHO),
    "NaN": hf.attacks.NotANumber(clients=WHO),
    "a little": hf.attacks.ALittleIsEnough(z=1.5, clients=WHO),
    "inner product": hf.attacks.InnerProductManipulation(epsilon=0.1, clients=WHO),
}
Found = dict[str, dict[str, dict[str, float]]]


@functools.cache
def experiment() -> hf.Experiment:
    """That of `holdfast new digits`: fifty clients, who prefer some labels over others."""
    train, test = hf.data.digits()
    clients = hf.data.partition.dirichlet(train, clients=CLIENTS, concentration=0.3)
    return hf.Experiment(
        METHODS["fedavg"],
        hf.models.mlp([64], classes=10),
        clients,
        hf.Local(learning_rate=0.1, epochs=5, batch_size=20),
        evaluate=hf.evaluate.on(test, every=50),
    )


def accuracy(setting: str, method: str, mean: str, attack: str, seed: int) -> float:
    """Of the last evaluation; that of a guess, 0.1, if the run could not go on."""
    given = dataclasses.replace(
        experiment(),
        algorithm=dataclasses.replace(METHODS[method], aggregate=MEANS[mean]),
        attack=ATTACKS[attack],
        cohort=SETTINGS[setting].cohort,
        seed=seed,
    )
    try:
        run = hf.simulate(given, rounds=SETTINGS[setting].rounds, progress=False)
    except hf.RoundFailedError:
        return 0.1
    return float(run.history.final("accuracy") or 0.0)


def file_of(setting: str, method: str) -> Path:
    """Where the results of a cohort and a method are."""
    return HERE / "results" / f"{setting}-{method}.json"


def known(setting: str, method: str) -> Found:
    """What has been measured of them."""
    path = file_of(setting, method)
    found: Found = json.loads(path.read_text()) if path.exists() else {}
    return found


def cells(method: str) -> Iterator[tuple[str, str]]:
    """What can be run: medians take no methods with client states."""
    for mean in MEANS:
        try:
            dataclasses.replace(METHODS[method], aggregate=MEANS[mean])
        except hf.HoldfastError:
            continue
        for attack in ATTACKS:
            yield mean, attack


def run_missing(setting: str, method: str, seed: int) -> None:
    """Every cell that lacks this seed; kept after each."""
    found = known(setting, method)
    for mean, attack in cells(method):
        cell = found.setdefault(mean, {}).setdefault(attack, {})
        if str(seed) not in cell:
            cell[str(seed)] = round(accuracy(setting, method, mean, attack, seed), 6)
            file_of(setting, method).parent.mkdir(exist_ok=True)
            write_whole(file_of(setting, method), json.dumps(found, indent=1) + "\n")
            print(setting, method, mean, attack, list(cell.values()), flush=True)


def page() -> str:
    """The tables, from the results there are."""
    lines = [
        "# Under attack",
        "",
        (
            f"Final accuracy on test digits, in per cent: {CLIENTS} clients of the demo's split, of whom "
            f"{LIARS} lie in every round they take part in. Every figure is a mean over seeds, their number "
            f"beside it where it is not {len(SEEDS)}; in bold what is within {100 * POINTS:.0f} points of "
            f"the method's plain mean with nobody lying. The boosted flip is an update times -10, noise has "
            f"a standard deviation of 1, *a little is enough* takes z = 1.5 (its own formula gives 0.25 for "
            f"ten of fifty) and *inner product* epsilon = 0.1. With NaN, which is left out, the liars' data "
            f"is lost and nothing else. Written by `python -m papers.robust.table`, no figure by hand."
        ),
    ]
    for name, setting in SETTINGS.items():
        lines += ["", f"## {setting.title}, {setting.rounds} rounds"]
        for method in METHODS:
            found = known(name, method)
            clean = found.get("plain", {}).get("nobody lies")
            if clean:
                lines += ["", f"### {method}", "", *_table(found, _mean(clean))]
    return "\n".join([*lines, "", *fixed_points.section()]) + "\n"


def _mean(cell: dict[str, float]) -> float:
    return float(np.mean(list(cell.values())))


def _table(found: Found, clean: float) -> list[str]:
    lines = ["| mean | " + " | ".join(ATTACKS) + " |", "|---" * (1 + len(ATTACKS)) + "|"]
    for mean in MEANS:
        row = [_cell(found.get(mean, {}).get(attack), clean) for attack in ATTACKS]
        if any(row):
            lines.append(f"| {mean} | " + " | ".join(row) + " |")
    return [*lines, "", _conclusion(found, clean)]


def _cell(values: dict[str, float] | None, clean: float) -> str:
    if not values:
        return ""
    text = f"{100 * _mean(values):.1f}" + ("" if len(values) == len(SEEDS) else f" ({len(values)})")
    return f"**{text}**" if _mean(values) >= clean - POINTS else text


def _conclusion(found: Found, clean: float) -> str:
    """Which means stand every attack, and what the best of the others do not."""
    whole = [m for m in MEANS if all(found.get(m, {}).get(a) for a in ATTACKS)]

    def lost(mean: str) -> list[str]:
        return [a for a in ATTACKS if _mean(found[mean][a]) < clean - POINTS]

    stand = [mean for mean in whole if not lost(mean)]
    if stand:
        return f"Within 3 points under every attack tried: {', '.join(stand)}."
    if not whole:
        return "No mean has been measured under every attack yet."
    fewest = min(len(lost(mean)) for mean in whole)
    best = [mean for mean in whole if len(lost(mean)) == fewest]
    said = "; ".join(f"{mean} is not under: {', '.join(lost(mean))}" for mean in best)
    return f"No mean is within 3 points under every attack. {said}."


def main() -> None:
    """The command."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--page", action="store_true")
    asked.add_argument("--only", nargs="*", default=list(METHODS), choices=list(METHODS))
    asked.add_argument("--cohorts", nargs="*", default=list(SETTINGS), choices=list(SETTINGS))
    asked.add_argument("--seeds", type=int, default=len(SEEDS))
    given = asked.parse_args()
    if not given.page:
        for setting in given.cohorts:
            # Seed by seed, so that a table that was stopped has all its cells.
            for seed in SEEDS[: given.seeds]:
                for method in given.only:
                    run_missing(setting, method, seed)
        fixed_points.run_missing()
    write_whole(PAGE, page())


if __name__ == "__main__":
    main()
