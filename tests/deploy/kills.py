"""`make deploy-test`: a federation on Flower whose parts are killed at random moments, one after another.

What is killed: a site's own process, Flower's process of a message, a site's SuperNode, the server's process,
the SuperLink, what starts the server's process. A run that ended is submitted again. In the end it must have
the bits of the undisturbed simulation.

`leave`: a site that is told to end, and comes back. `late`: one that comes after the run began. `loss`: one
that is killed for good, without which a run with a quorum goes on and says so.
"""

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from holdfast.deploy.local import LocalFederation
from holdfast.deploy.starting import SITES, write_federation
from holdfast.errors import HoldfastError
from tests.deploy.test_loopback import SITE_PROCESS, resumed, simulated
from tests.problems import same_bits

SAME_BITS = ("site", "message", "server", "superexec", "superlink", "supernode", "leave", "late")
KINDS = (*SAME_BITS, "loss")
_WORDS = {
    "site": SITE_PROCESS,
    "message": "flwr-clientapp",
    "server": "flwr-serverapp",
}
_SUBMITTED = 6  # times at most
_MOMENT = 12.0  # seconds after a round in which something is killed


def kill(federation: LocalFederation, kind: str) -> str:
    """Kill one such process; says which."""
    if kind in _WORDS:
        until = time.monotonic() + 60
        while not (there := federation.started(_WORDS[kind])) and time.monotonic() < until:
            time.sleep(0.02)
        for pid in random.sample(there, min(1, len(there))):
            os.kill(pid, signal.SIGKILL)
        return f"one of {len(there)} processes of {_WORDS[kind]}" if there else ""
    name = random.choice(list(federation.sites))
    if kind in ("supernode", "leave", "loss"):
        sign = signal.SIGTERM if kind == "leave" else signal.SIGKILL
        os.kill(federation.processes[f"site-{name}"].pid, sign)
        if kind == "loss":
            return f"the SuperNode of {name}, for good"
        threading.Thread(target=restart_site, args=(federation, name), daemon=True).start()
        return f"the SuperNode of {name}"
    process = federation.processes[kind]
    process.kill()
    process.wait()
    {"superlink": federation.start_superlink, "superexec": federation.start_superexec}[kind]()
    return f"the {kind}"


def restart_site(federation: LocalFederation, name: str) -> None:
    """As a supervisor would: Flower refuses a node it takes for alive, so more than once."""
    for _ in range(30):
        federation.processes[f"site-{name}"].wait()
        time.sleep(5)
        federation.start_site(name)
        with contextlib.suppress(subprocess.TimeoutExpired):
            federation.processes[f"site-{name}"].wait(25)
            continue
        return


def disturbed(federation: LocalFederation, folder: Path, kind: str, rounds: int) -> None:
    """A run with one kill; raises unless it comes to the undisturbed bits, or goes on without who is lost."""
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    config: dict[str, float] = {"quorum": 0.6, "deadline": 60.0} if kind == "loss" else {}
    if kind == "late":
        late = random.choice(list(federation.sites))
        federation.processes[f"site-{late}"].terminate()
        threading.Timer(random.uniform(20, 40), restart_site, (federation, late)).start()
    killed, said = "", ""
    for _ in range(_SUBMITTED):
        try:
            for line in federation.connection.run(
                folder / "app", rounds=rounds, folder=str(run), **config
            ):
                said += line + "\n"
                if "round" in line or line.startswith("deploy"):
                    print(f"  {line[:150]}", flush=True)
                # After the first round, so that there is something to lose.
                if not killed and kind != "late" and line.startswith("holdfast round=1 "):
                    moment = random.uniform(0, _MOMENT)
                    time.sleep(moment)
                    killed = kill(federation, kind)
                    print(f"  killed {killed or 'nothing'} after {moment:.1f} s", flush=True)
            break
        except HoldfastError as error:
            print(f"  {error}; submitted again", flush=True)
            time.sleep(5)
    assert killed or kind == "late", "nothing was killed"
    given, expected = simulated(folder, rounds)
    found = resumed(folder, given, rounds)
    assert found.state.round == rounds, f"it ended after round {found.state.round}"
    if kind == "loss":
        last = found.history[-1]
        assert last["stragglers"] == 1, "who is lost is not counted"
        assert "no reply" in said or "stragglers=1" in said, "nobody said that a site is lost"
        assert all(np.isfinite(a).all() for a in found.params["classifier"].values())
        return
    assert same_bits(found.params, expected.params), "another model"
    assert same_bits(found.state.server, expected.state.server), "another server's state"
    assert found.ledger.entries == expected.ledger.entries, "another ledger"


def main() -> None:
    """One run for each kind, in one federation; `loss` comes last."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", default=KINDS)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    random.seed(given.seed)
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    failed = []
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "federation"
        write_federation(folder)
        sites = {name: folder / "sites" / f"{name}.toml" for name in SITES}
        with LocalFederation(folder / "local", sites) as federation:
            for kind in sorted(given.kinds, key=KINDS.index):
                began = time.monotonic()
                print(f"{kind}:", flush=True)
                try:
                    disturbed(federation, folder, kind, given.rounds)
                    how = "went on without" if kind == "loss" else "the same bits"
                    print(f"{kind}: {how} after {time.monotonic() - began:.0f} s", flush=True)
                except AssertionError as error:
                    failed.append(kind)
                    print(f"{kind}: FAILED, {error}", flush=True)
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
