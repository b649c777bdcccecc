"""One run in several processes: what a round takes, and what processes send each other.

python benchmarks/in_processes.py feddyn 2
"""

import hashlib
import itertools
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

NUMBERS = (1, 2, 4)
_ROUNDS = 30
# Before them programs are compiled, and most clients have no state to send yet.
_FIRST = 10


def work(method: str, folder: Path) -> None:
    """What each of the processes does: it writes what it measured of its rounds."""
    from holdfast import processes
    from holdfast.cli import use_machine

    use_machine()
    processes.connect_from_environment()
    import jax

    import holdfast as hf

    rng = np.random.default_rng(0)
    x = rng.standard_normal((60_000, 784), dtype=np.float32)
    examples = hf.Examples(x, rng.integers(0, 10, len(x), dtype=np.int32))
    algorithms = {"fedavg": hf.algorithms.fedavg, "feddyn": lambda: hf.algorithms.feddyn(0.01)}
    stream = hf.rounds(
        algorithms[method](),
        hf.models.mlp([200, 200], 10),
        hf.data.partition.iid(examples, clients=100),
        hf.Local(learning_rate=0.01, epochs=2, batch_size=50),
        cohort=hf.cohorts.fixed(10),
    )
    seen = []
    for state in itertools.islice(stream, _ROUNDS):
        sent = state.client_states.exchanged_bytes
        seen.append((time.perf_counter(), time.process_time(), sent))
    wall, busy, sent = np.diff(seen[_FIRST:], axis=0).T
    leaves = [np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(state.params)]
    found = {
        "seconds": float(np.median(wall)),
        "fastest": float(wall.min()),
        "busy": float(np.median(busy)),
        "sent": float(sent.mean()),
        "bits": hashlib.sha256(b"".join(leaves)).hexdigest(),
    }
    (folder / f"{processes.rank()}.json").write_text(json.dumps(found))


def measure(method: str, number: int) -> dict[str, Any]:
    """A round's seconds, those of the busiest process's processor, and bytes of states sent by all."""
    from holdfast.processes import launch

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--work", method, folder]
        if launch(command, number) != 0:
            raise SystemExit(f"{method} in {number} processes failed")
        each = [json.loads(path.read_text()) for path in Path(folder).glob("*.json")]
    assert len(each) == number
    (bits,) = {one["bits"] for one in each}
    return {
        "method": method,
        "processes": number,
        "seconds": max(one["seconds"] for one in each),
        "fastest": max(one["fastest"] for one in each),
        "busy": max(one["busy"] for one in each),
        "sent": sum(one["sent"] for one in each),
        "bits": bits,
    }


def table(found: list[dict[str, Any]]) -> list[str]:
    """Lines of a table; a round's seconds only where every process had a core."""
    import report

    cores = len(os.sched_getaffinity(0))
    rows = []
    for one in found:
        base = next(f for f in found if f["method"] == one["method"] and f["processes"] == 1)
        number, share = one["processes"], one["seconds"] / base["seconds"]
        timed = number <= cores
        rows.append(
            [
                str(number),
                one["method"],
                report.seconds(one["seconds"]) if timed else "",
                f"{share:.3g}" if timed else "",
                report.seconds(one["busy"]),
                f"{base['busy'] / (number * one['busy']):.0%}",
                f"{one['sent'] / 1e6:.2f} MB",
                "" if one is base else "yes" if one["bits"] == base["bits"] else "NO",
            ]
        )
    names = ("processes", "method", "round", "/ one process", "processor time of a process")
    return report.table((*names, "efficiency", "states sent a round", "same bits"), rows)


if __name__ == "__main__":
    if sys.argv[1] == "--work":
        work(sys.argv[2], Path(sys.argv[3]))
    else:
        print(json.dumps(measure(sys.argv[1], int(sys.argv[2]))))
