"""`make deploy-test`: `holdfast deploy local`, stopped by Ctrl-C at several moments, then run to its end.

After each Ctrl-C no process is left. What it ends with has the bits of a run that nobody stopped, and
`compare` and `report` read it.
"""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.deploy.ending import marked
from tests.deploy.test_loopback import resumed, simulated
from tests.problems import same_bits

ROUNDS = 3


def command(place: Path, *words: str) -> "subprocess.Popen[str]":
    """`holdfast`, begun."""
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast", *words],
        cwd=place,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def left(place: Path) -> list[int]:
    """Processes of the federation that are still there."""
    return marked(f"FLWR_HOME={place.resolve() / 'federation' / 'local' / 'flower'}")


def until(there: Callable[[], bool], seconds: float = 600.0) -> None:
    """Wait for it."""
    end = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < end, "it did not come so far"
        time.sleep(0.02)


def main() -> None:
    """Stopped once at each moment, then run to its end."""
    os.environ["PYTHONPATH"] = os.pathsep.join(p or os.getcwd() for p in sys.path)
    random.seed(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        folder = place / "federation"
        moments: dict[str, Callable[[], bool]] = {
            "its first process is there": lambda: len(left(place)) > 0,
            "sites are starting": lambda: (folder / "local" / "site-north.log").exists(),
            "a site's own process is there": lambda: bool(
                [
                    pid
                    for pid in left(place)
                    if b"serve(given)" in Path(f"/proc/{pid}/cmdline").read_bytes()
                ]
            ),
            "the first round is saved": lambda: bool(list((folder / "run").glob("round-*"))),
        }
        words = ("deploy", "local", "federation", "--rounds", str(ROUNDS))
        for moment, there in moments.items():
            # The folder is written by the first.
            process = command(place, *words, "--sites", "3")
            until(there)
            time.sleep(random.uniform(0, 1))
            process.send_signal(signal.SIGINT)
            said, _ = process.communicate(timeout=900)
            assert process.returncode == 130, said
            assert "go on with: holdfast deploy local federation" in said, said
            assert left(place) == [], f"left behind: {left(place)}"
            print(f"stopped when {moment}: nothing is left", flush=True)
            for path in (folder / "local").glob("*.log"):
                path.unlink()
        process = command(place, *words)
        said, _ = process.communicate(timeout=3600)
        print("".join(f"  {line[:170]}\n" for line in said.splitlines()), flush=True)
        assert process.returncode == 0
        assert f"round={ROUNDS} " in said
        assert "round=1 " not in said
        assert left(place) == []
        for words in (("compare", "federation/run/results"), ("report", "federation/run/results")):
            process = command(place, *words)
            said, _ = process.communicate(timeout=900)
            assert process.returncode == 0, said
            print("".join(f"  {line[:120]}\n" for line in said.splitlines()), flush=True)
        given, expected = simulated(folder, ROUNDS)
        found = resumed(folder, given, ROUNDS)
        assert same_bits(found.params, expected.params), "another model"
        assert found.ledger.entries == expected.ledger.entries, "another ledger"
    print("stopped by Ctrl-C and gone on with: the same bits", flush=True)


if __name__ == "__main__":
    main()
