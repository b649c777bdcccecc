"""What methods come to under attack, by how replies are averaged: one command, which can be stopped.

    python -m papers.robust.table             runs what is missing, writes docs/robust.md
    python -m papers.robust.table --page      writes the page from what there is
    python -m papers.robust.table --only fedavg scaffold --seeds 1

A file of `results/` is one method, mean and attack, with the final accuracy of every seed.
"""

import argparse
import dataclasses
import functools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import holdfast as hf
from holdfast.record.files import write_whole

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "robust.md"
CLIENTS, LIARS, ROUNDS, SEEDS = 50, 10, 100, (0, 1, 2)
WHO = list(range(LIARS))

METHODS = {
    "fedavg": hf.algorithms.fedavg(),
    "scaffold": hf.algorithms.scaffold(),
    "feddyn": hf.algorithms.feddyn(alpha=0.1),
    "fedpvr": hf.algorithms.fedpvr(mask=lambda path: path.startswith("classifier")),
}
MEANS = {
    "plain": None,
    "NormBounded(1)": hf.aggregates.NormBounded(factor=1.0),
    "NormBounded(2)": hf.aggregates.NormBounded(factor=2.0),
    "CenteredClipping(1)": hf.aggregates.CenteredClipping(factor=1.0),
    "Krum(0.4)": hf.aggregates.Krum(share=0.4),
    "CoordinateMedian": hf.aggregates.CoordinateMedian(),
    "TrimmedMean(0.3)": hf.aggregates.TrimmedMean(share=0.3),
    "GeometricMedian": hf.aggregates.GeometricMedian(),
}
ATTACKS: dict[str, hf.attacks.Attack | None] = {
    "nobody lies": None,
    "boosted flip": hf.attacks.Boosted(times=-10.0, clients=WHO),
    "sign flip": hf.attacks.SignFlip(clients=WHO),
    "label flip": hf.attacks.LabelFlip(clients=WHO),
    "Gaussian": hf.attacks.GaussianNoise(sigma=1.0, clients=WHO),
    "huge": hf.attacks.Huge(clients=WHO),
    "NaN": hf.attacks.NotANumber(clients=WHO),
}


@functools.cache
def experiment() -> hf.Experiment:
    """That of `holdfast new digits`: ten of fifty clients a round, who prefer some labels over others."""
    train, test = hf.data.digits()
    clients = hf.data.partition.dirichlet(train, clients=CLIENTS, concentration=0.3)
    return hf.Experiment(
        METHODS["fedavg"],
        hf.models.mlp([64], classes=10),
        clients,
        hf.Local(learning_rate=0.1, epochs=5, batch_size=20),
        cohort=hf.cohorts.fixed(10),
        evaluate=hf.evaluate.on(test, every=10),
    )


def accuracy(method: str, mean: str, attack: str, seed: int) -> float:
    """Of the last evaluation; that of a guess, 0.1, if the run could not go on."""
    algorithm = dataclasses.replace(METHODS[method], aggregate=MEANS[mean])
    given = dataclasses.replace(
        experiment(), algorithm=algorithm, attack=ATTACKS[attack], seed=seed
    )
    try:
        run = hf.simulate(given, rounds=ROUNDS, progress=False)
    except hf.RoundFailedError:
        return 0.1
    return float(run.history.final("accuracy") or 0.0)


def file_of(method: str, mean: str, attack: str) -> Path:
    """Where the result of a cell is."""
    words = f"{method} {mean} {attack}".translate({ord(c): " " for c in "().,"})
    return HERE / "results" / ("-".join(words.split()) + ".json")


def cells(methods: list[str]) -> Iterator[tuple[str, str, str]]:
    """What can be run: medians take no methods with client states."""
    for mean in MEANS:
        for method in methods:
            try:
                dataclasses.replace(METHODS[method], aggregate=MEANS[mean])
            except hf.HoldfastError:
                continue
            for attack in ATTACKS:
                yield method, mean, attack


def run_missing(methods: list[str], seeds: tuple[int, ...]) -> None:
    """Every cell that lacks a seed."""
    for cell in cells(methods):
        path = file_of(*cell)
        known = json.loads(path.read_text()) if path.exists() else {}
        for seed in seeds:
            if str(seed) not in known:
                known[str(seed)] = accuracy(*cell, seed)
                path.parent.mkdir(exist_ok=True)
                write_whole(path, json.dumps(known, indent=1) + "\n")
        print(*cell, {s: round(a, 3) for s, a in known.items()}, flush=True)


def page() -> str:
    """The tables, from the results there are."""
    lines = [
        "# Under attack",
        "",
        (
            f"Final accuracy on test digits, in per cent: {CLIENTS} clients of the demo's split, of whom "
            f"{LIARS} lie in every round they take part in; 10 clients a round, {ROUNDS} rounds. Every "
            f"figure is a mean over seeds, their number beside it where it is not {len(SEEDS)}; in bold what "
            f"is within 3 points of the method's plain mean with nobody lying. Written by "
            f"`python -m papers.robust.table`, no figure by hand."
        ),
    ]
    for method in METHODS:
        found = {
            (mean, attack): list(json.loads(path.read_text()).values())
            for _, mean, attack in cells([method])
            if (path := file_of(method, mean, attack)).exists()
        }
        clean = found.get(("plain", "nobody lies"))
        if clean is None:
            continue
        lines += ["", f"## {method}", ""]
        lines += ["| mean | " + " | ".join(ATTACKS) + " |", "|---" * (1 + len(ATTACKS)) + "|"]
        for mean in MEANS:
            row = [_cell(found.get((mean, attack)), float(np.mean(clean))) for attack in ATTACKS]
            if any(row):
                lines.append(f"| {mean} | " + " | ".join(row) + " |")
        lines += ["", _conclusion(found, float(np.mean(clean)))]
    return "\n".join(lines) + "\n"


def _cell(values: list[float] | None, clean: float) -> str:
    if values is None:
        return ""
    mean = float(np.mean(values))
    text = f"{100 * mean:.1f}" + ("" if len(values) == len(SEEDS) else f" ({len(values)})")
    return f"**{text}**" if mean >= clean - 0.03 else text


def _conclusion(found: dict[tuple[str, str], list[float]], clean: float) -> str:
    """Which means stand every attack, and what the others do not."""
    whole = [m for m in MEANS if all((m, a) in found for a in ATTACKS)]

    def lost(mean: str) -> list[str]:
        return [a for a in ATTACKS if np.mean(found[mean, a]) < clean - 0.03]

    stand = [mean for mean in whole if not lost(mean)]
    if stand:
        return f"Within 3 points under every attack tried: {', '.join(stand)}."
    if not whole:
        return "No mean has been measured under every attack yet."
    best = min(whole, key=lambda mean: len(lost(mean)))
    return f"No mean is within 3 points under every attack; {best} is not under: {', '.join(lost(best))}."


def main() -> None:
    """The command."""
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--page", action="store_true")
    asked.add_argument("--only", nargs="*", default=list(METHODS), choices=list(METHODS))
    asked.add_argument("--seeds", type=int, default=len(SEEDS))
    given = asked.parse_args()
    if not given.page:
        run_missing(given.only, SEEDS[: given.seeds])
    write_whole(PAGE, page())


if __name__ == "__main__":
    main()
