"""How long a deployed round takes beside what Flower takes for a message that does nothing.

    python benchmarks/deployed.py [--rounds 12]

needs `holdfast[flower]`, and Linux: processor time is read from /proc. One federation of three sites on this
machine, without TLS; four apps in turn, so that what else the machine does falls on all of them:

- `echo`: a site that returns the bytes it got, and imports Flower and NumPy only;
- `echo, jax`: the same in a process that imports JAX and calls one compiled function, the least that any app
  with JAX does in the process of a message;
- `holdfast`: SCAFFOLD on three shares of the digits, by the process of each site that stays;
- `holdfast, process per message`: the same without (`stay=0` as it were: the site is given as a function).

The echo apps send and return as many bytes as a round of holdfast does. Per round: seconds of the clock, and
processor seconds of all processes of the three sites together. Medians, the first two rounds left out. The
clock is mostly Flower's polling, and no use on a machine that does other things; processor time is better.
"""

import argparse
import itertools
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

from holdfast.deploy.ending import marked
from holdfast.deploy.local import LocalFederation
from holdfast.deploy.starting import SITES, write_federation

_ECHO = """\
import time

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MessageType, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp

# Flower looks for names that are assigned one by one.
client = ClientApp()
server = ServerApp()


def record(size):
    return RecordDict({{"m": ArrayRecord({{"m": Array(np.zeros(size, np.uint8))}})}})


@client.train()
def answer(message, context):
{body}
    return Message(message.content, reply_to=message)


@server.main()
def main(grid, context):
    for t in range(int(context.run_config["rounds"])):
        while len(nodes := sorted(grid.get_node_ids())) < 3:
            time.sleep(0.2)
        waiting = set(grid.push_messages([
            Message(record(5200), dst_node_id=n, message_type=MessageType.TRAIN) for n in nodes
        ]))
        while waiting:
            for reply in grid.pull_messages(waiting):
                assert not reply.has_error(), reply.error
                waiting.discard(reply.metadata.reply_to_message_id)
            time.sleep(0.2)
        print(f"holdfast round={{t + 1}}", flush=True)
"""
_JAX = """\
    import jax
    import jax.numpy as jnp
    jax.config.update("jax_compilation_cache_dir", str({cache!r}))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.jit(lambda x: (x @ x).sum())(jnp.ones((64, 64))).block_until_ready()
"""
_FUNCTION = """\
import holdfast.flower

from study.experiment import experiment, site

server = holdfast.flower.server_app(experiment)
client = holdfast.flower.client_app(site)
"""


def write_apps(folder: Path) -> dict[str, Path]:
    """The four, by name."""
    write_federation(folder / "federation")
    given = folder / "federation" / "app"
    # One message a round to each site, as the echo apps have it.
    experiment = given / "study" / "experiment.py"
    experiment.write_text(re.sub(r"\n *evaluate=.*", "", experiment.read_text()))
    texts = {
        "echo": _ECHO.format(body="    pass"),
        "echo, jax": _ECHO.format(body=_JAX.format(cache=str(folder / "cache"))),
        "holdfast": None,
        "holdfast, process per message": _FUNCTION,
    }
    apps = {}
    for place, (name, text) in enumerate(texts.items()):
        apps[name] = folder / f"app-{place}"
        shutil.copytree(given, apps[name])
        if text is not None:
            (apps[name] / "study" / "app.py").write_text(text)
    return apps


_SERVERS = ("flower-superlink", "flwr-serverapp", "flwr")


def spent(federation: LocalFederation) -> float:
    """Processor seconds so far of the sites' processes, and of those they have waited for."""
    tick, total = os.sysconf("SC_CLK_TCK"), 0
    server = federation.processes["superexec"].pid
    for pid in marked(f"FLWR_HOME={federation.connection.environment['FLWR_HOME']}"):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        of_server = any(Path(w.decode()).name in _SERVERS for w in words[:2])
        if pid != server and not of_server:
            total += sum(int(x) for x in fields[11:15])
    return total / tick


def measured(
    federation: LocalFederation, app: Path, run: Path, rounds: int
) -> list[tuple[float, float]]:
    """Of every round but the first two: seconds of the clock, and of the processor."""
    at = [
        (time.perf_counter(), spent(federation))
        for line in federation.connection.run(app, rounds=rounds, folder=str(run))
        if line.startswith("holdfast round=")
    ]
    return [(b[0] - a[0], b[1] - a[1]) for a, b in itertools.pairwise(at[1:])]


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10, help="of each app, in each pass")
    parser.add_argument("--passes", type=int, default=2)
    parser.add_argument("--apps", nargs="+", default=None, help="these and `echo` only")
    given = parser.parse_args()
    os.environ["PYTHONPATH"] = os.pathsep.join(p for p in sys.path if p)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        apps = write_apps(folder)
        asked = given.apps or [*apps]
        apps = {name: app for name, app in apps.items() if name in ("echo", *asked)}
        sites = {name: folder / "federation" / "sites" / f"{name}.toml" for name in SITES}
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in apps}
        with LocalFederation(folder / "local", sites, insecure=True) as federation:
            for again in range(given.passes):
                for number, (name, app) in enumerate(apps.items()):
                    found[name] += measured(
                        federation, app, folder / f"run-{number}-{again}", given.rounds
                    )
        medians = {
            name: [statistics.median(column) for column in zip(*rounds, strict=True)]
            for name, rounds in found.items()
        }
        print("| app | seconds a round | of echo | processor seconds | of echo |")
        print("|---|---|---|---|---|")
        plain = medians["echo"]
        for name, (clock, processor) in medians.items():
            print(
                f"| {name} | {clock:.1f} | {clock / plain[0]:.2f} | {processor:.1f} | "
                f"{processor / plain[1]:.2f} |"
            )
        print(f"load of the machine at the end: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
