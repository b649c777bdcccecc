"""Every named algorithm in one process and in two: the same bits, in memory, on disk, stopped and resumed.

    python -m tests.trials.two_processes [NAME ...]

Two processes are costly to start, so one pair of them runs all names, and one process all of them again.
"""

import dataclasses
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]


def methods() -> dict[str, Any]:
    """What is tried, by name: every named algorithm, and bounds that both sides of a round know."""
    import holdfast as hf
    from tests.claims.test_conformance import ALGORITHMS

    def having(name: str, mean: hf.aggregates.Mean) -> hf.Algorithm:
        return dataclasses.replace(ALGORITHMS[name], aggregate=mean)

    return ALGORITHMS | {
        "bounded feddyn": having("feddyn", hf.aggregates.NormBounded(factor=1.0)),
        "centred scaffold": having("scaffold", hf.aggregates.CenteredClipping(factor=1.0)),
    }


def work(folder: Path, names: Sequence[str]) -> None:
    """What each of the processes does; the first one writes what it found, a file for each name."""
    from holdfast import processes

    processes.connect_from_environment()
    import jax

    import holdfast as hf
    from holdfast.testing import _everything
    from tests.problems import tiny_clients

    clients, local = tiny_clients(), hf.Local(0.1, epochs=2, batch_size=4)
    own = hf.Clients.from_datasets([clients[(i + 1) % len(clients)] for i in range(len(clients))])
    calibration, tests = hf.conformal.divide(own, share=0.5)
    server = hf.Server(clients[0], hf.Local(0.1, steps=2))
    known = methods()
    for name in names:
        algorithm = known[name]
        needs = hf.Need.SERVER_DATA in algorithm.rule.traits.needs
        # What the server hears of a mean over everybody alone does not go with a part of them.
        cohort = None if name == "damped scaffold through diana" else hf.cohorts.fixed(3)

        # By the models that clients would use, whose states may be with the other process.
        sets = hf.conformal.evaluate(calibration, tests, kappa=0.3, by="clients", bins=50, every=2)
        watching = [hf.evaluate.on(clients[1], every=2), sets]
        if algorithm.wire.hears_each:
            watching.append(hf.diagnose.drift())

        def run(
            rounds,
            checkpoint=None,
            memory=None,
            algorithm=algorithm,
            needs=needs,
            cohort=cohort,
            watching=watching,
        ):
            return hf.simulate(
                algorithm,
                hf.models.mlp([4], classes=3),
                clients,
                local,
                rounds,
                cohort=cohort,
                server=server if needs else None,
                evaluate=watching,
                storage=hf.Storage(memory=memory),
                checkpoint=checkpoint,
                seed=1,
            )

        place = folder / name
        found = {"memory": run(3)}
        for rounds in (1, 2, 3):  # every one goes on from the one before
            found["disk"] = run(rounds, place / "disk", memory=0)
        run(2, place / "memory")  # which one process goes on with, whoever saved it
        if processes.count() == 1:
            found["saved by two"] = run(3, folder.parent / "2" / name / "memory")
        bits = {}
        for way, one in found.items():
            leaves = [np.asarray(a) for a in jax.tree.leaves(_everything(one.state))]
            measured = ("loss", "coverage", "set_size", "drift_diversity")
            leaves += [one.history[name] for name in measured if name in one.history.columns]
            leaves.append(np.array(one.ledger.total))
            bits |= {f"{way} {i}": leaf for i, leaf in enumerate(leaves)}
        if processes.is_first():
            np.savez(place / "found.npz", **bits)
            print(f"{name}, {processes.count()} process(es)", flush=True)


def compare(place: Path, names: Sequence[str]) -> list[str]:
    """Run them in two processes and in one; what differs, in words."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}", "XLA_FLAGS": ""}
    for count in (2, 1):
        # The launcher is a process of its own, for its children have its environment.
        code = (
            "import sys; from holdfast.processes import launch; "
            f"sys.exit(launch([sys.executable, '-m', 'tests.trials.two_processes', *sys.argv[1:]], {count}))"
        )
        words = ["--work", str(place / str(count)), *names]
        ended = subprocess.run(
            [sys.executable, "-c", code, *words], cwd=ROOT, env=environment, check=False
        )
        if ended.returncode != 0:
            return [f"{count} process(es) ended with exit code {ended.returncode}"]
    wrong = []
    for name in names:
        one, two = (dict(np.load(place / n / name / "found.npz")) for n in ("1", "2"))
        expected = {k.removeprefix("memory "): v for k, v in one.items() if k.startswith("memory ")}
        assert len(expected) > 3
        for where, found in (("one process", one), ("two processes", two)):
            for key, value in found.items():
                way, _, number = key.rpartition(" ")
                if not np.array_equal(value, expected[number], equal_nan=True):
                    wrong.append(f"{name}, {where}, {way}: value {number} differs")
    return wrong


def main() -> int:
    if sys.argv[1:2] == ["--work"]:
        work(Path(sys.argv[2]), sys.argv[3:])
        return 0
    names = sys.argv[1:] or list(methods())
    with tempfile.TemporaryDirectory() as place:
        wrong = compare(Path(place), names)
    print(*wrong, f"{len(names)} names, {len(wrong)} differences", sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
