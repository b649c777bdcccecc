"""`make deploy-test`: a federation on Flower whose parts are killed at random moments, one after another.

What is killed: the process in which a site answers, a site's SuperNode, the server's process, the SuperLink.
A run that ended is submitted again. In the end it must have the bits of the undisturbed simulation.
"""

import argparse
import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

from holdfast.deploy.local import LocalFederation
from holdfast.deploy.starting import SITES, write_federation
from holdfast.errors import HoldfastError
from tests.deploy.test_loopback import resumed, simulated
from tests.problems import same_bits

KINDS = ("client", "supernode", "server", "superlink")
_SUBMITTED = 6  # times at most


def kill(federation: LocalFederation, kind: str) -> str:
    """Kill one such process; says which."""
    if kind == "supernode":
        name = random.choice(list(federation.sites))
        os.kill(federation.processes[f"site-{name}"].pid, signal.SIGKILL)
        threading.Thread(target=restart_site, args=(federation, name), daemon=True).start()
        return f"the SuperNode of {name}"
    if kind == "superlink":
        federation.processes["superlink"].kill()
        federation.processes["superlink"].wait()
        for pid in federation.started("flwr-serverapp") + federation.started("superexec"):
            os.kill(pid, signal.SIGKILL)
        federation.start_superlink()
        for name, process in federation.processes.items():
            if name.startswith("site-") and process.poll() is not None:
                federation.start_site(name.removeprefix("site-"))
        return "the SuperLink"
    word = {"client": "flwr-clientapp", "server": "flwr-serverapp"}[kind]
    there = federation.started(word)
    if not there:
        return ""
    os.kill(random.choice(there), signal.SIGKILL)
    return f"a {word} process"


def restart_site(federation: LocalFederation, name: str) -> None:
    """As a supervisor would: Flower refuses a node it takes for alive, so more than once."""
    for _ in range(30):
        federation.processes[f"site-{name}"].wait()
        time.sleep(5)
        federation.start_site(name)
        try:
            federation.processes[f"site-{name}"].wait(15)
        except Exception:  # it runs
            return


def disturbed(folder: Path, kind: str, rounds: int) -> None:
    """A run with one kill; raises if it does not come to the undisturbed bits."""
    sites = {name: folder / "sites" / f"{name}.toml" for name in SITES}
    with LocalFederation(folder / "local", sites) as federation:
        killed = ""
        for _ in range(_SUBMITTED):
            lines = federation.connection.run(
                folder / "app", rounds=rounds, folder=str(folder / "run"), deadline=60.0
            )
            try:
                for line in lines:
                    print(f"  {line[:150]}", flush=True)
                    # After the first round, so that there is something to lose.
                    if not killed and line.startswith("holdfast round=1 "):
                        time.sleep(random.uniform(2, 12))
                        killed = kill(federation, kind)
                        print(f"  killed {killed or 'nothing'}", flush=True)
                break
            except HoldfastError as error:
                print(f"  {error}; submitted again", flush=True)
                time.sleep(5)
    given, expected = simulated(folder, rounds)
    found = resumed(folder, given, rounds)
    assert killed, "nothing was killed"
    assert same_bits(found.params, expected.params), "another model"
    assert same_bits(found.state.server, expected.state.server), "another server's state"
    assert found.ledger.entries == expected.ledger.entries, "another ledger"


def main() -> None:
    """One run for each kind of process."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="*", default=KINDS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    random.seed(given.seed)
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    for kind in given.kinds:
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place) / "federation"
            write_federation(folder)
            began = time.monotonic()
            print(f"{kind}:", flush=True)
            disturbed(folder, kind, given.rounds)
            print(f"{kind}: the same bits after {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
