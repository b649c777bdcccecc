"""`make trials`: every kind of trial in turn, for as long as is asked for; counts, and what went wrong."""

import argparse
import collections
import tempfile
import time
import traceback
from pathlib import Path

from tests.trials import data_files, run_folders
from tests.trials.run_folders import KINDS_OF_RUN, Ground

TRIALS = {
    "kills": run_folders.kills,
    "kills while saving": run_folders.kills_while_saving,
    "damages": run_folders.damages,
    "full disk": run_folders.full_disk,
    "really full disk": run_folders.really_full_disk,
    "read-only": run_folders.read_only,
    "data files": data_files.damaged_data,
    "two at once": run_folders.two_at_once,
    "kills of two processes": run_folders.kills_of_the_launcher,
    "kills of workers": run_folders.kills_of_workers,
}
# These cost so many times as much as the others.
SELDOM = {
    "really full disk": 5,
    "read-only": 5,
    "kills of two processes": 10,
    "kills of workers": 5,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trials", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=TRIALS, action="append")
    given = parser.parse_args()
    counts: collections.Counter[str] = collections.Counter()
    failures = 0
    with tempfile.TemporaryDirectory() as place:
        grounds = {kind: Ground(Path(place) / kind, kind) for kind in KINDS_OF_RUN}
        files = data_files.make(Path(place) / "data")
        end = time.monotonic() + given.seconds
        seed = given.seed
        while time.monotonic() < end:
            for name in given.only or TRIALS:
                if seed % SELDOM.get(name, 1):
                    continue
                kind = list(grounds)[seed % len(grounds)]
                try:
                    outcome = TRIALS[name](files if name == "data files" else grounds[kind], seed)
                except AssertionError:
                    failures += 1
                    outcome = "FAILED"
                    print(f"{name}, {kind}, seed {seed}:\n{traceback.format_exc()}", flush=True)
                counts[f"{name}, {kind}: {outcome}"] += 1
            seed += 1
            if seed % 10 == 0:
                print(dict(sorted(counts.items())), flush=True)
    print(f"seeds {given.seed} to {seed - 1}, {failures} failures")
    for what, count in sorted(counts.items()):
        print(f"{count:6}  {what}")
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
