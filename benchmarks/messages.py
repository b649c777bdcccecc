"""What leaves a site, measured: every message of a run of an experiment file, in one process.

python -m benchmarks.messages experiment.toml [METHOD]
"""

import collections
import sys
import tempfile
from pathlib import Path

import holdfast as hf
from holdfast.config.new_federation import write_federation_of
from holdfast.deploy import frame


def main() -> None:
    """Bytes of every kind of message, the least and the most."""
    sizes = collections.defaultdict(list)

    class Watched(hf.deploy.InProcess):
        def send(self, address: str, data: bytes) -> str:
            self._note("to", data)
            return super().send(address, data)

        def receive(self, seconds: float) -> list[hf.deploy.Arrival]:
            arrived = super().receive(seconds)
            for arrival in arrived:
                assert arrival.data is not None
                self._note("from", arrival.data)
            return arrived

        def _note(self, way: str, data: bytes) -> None:
            found = frame.unpack(data, 1 << 30)
            sizes[way, found.header["kind"]].append((len(data), len(found.body)))

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "federation"
        method = sys.argv[2] if len(sys.argv) > 2 else ""
        write_federation_of(folder, Path(sys.argv[1]))
        app = folder / "app" / "study" / "experiment.toml"
        given = hf.deploy.from_file(app, method)
        files = sorted((folder / "sites").glob("*.toml"))
        sites = [hf.deploy.site_from_file(file, app) for file in files]
        run = hf.deploy.run(given, Watched(sites), rounds=3, wait=10)
    for (way, kind), found in sizes.items():
        whole, body = zip(*found, strict=True)
        print(
            f"{way:>4} a site  {kind:<10} {min(whole):>8} to {max(whole):>8}  body {max(body):>8}"
        )
    print(f"ledger, a client and round: {run.ledger.entries[0].bits_up} bits up")


if __name__ == "__main__":
    main()
