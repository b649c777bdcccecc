"""What is measured of every client or pair of clients: in a run's folder, and after it was stopped."""

import contextlib
import json
import signal
from pathlib import Path

import pytest

from holdfast.config.build import study
from holdfast.config.file import read
from holdfast.errors import HoldfastError
from holdfast.record.progress import Progress
from holdfast.report.content import content
from holdfast.runs import results
from holdfast.runs.execute import create, execute

FILE = """\
rounds = 5

[data]
name = "digits"

[partition]
name = "dirichlet"
clients = 4
concentration = 0.5

[model]
name = "mlp"
hidden = [4]

[local]
learning_rate = 0.1
steps = 3
batch_size = 20

[checkpoint]
every = 1

[[algorithm]]
name = "fedavg"

[[evaluate.also]]
name = "drift"

[[evaluate.also]]
name = "cka"
every = 2
rows = 20

[[evaluate.also]]
name = "updates"
every = 2
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """The same run in one go, and stopped after its third round."""
    place = tmp_path_factory.mktemp("runs")
    (place / "experiment.toml").write_text(FILE)
    made = study(read(place / "experiment.toml"))

    def stops(method, seed, record):
        if record["round"] == 3 and (place / "stopped").exists() and not (place / "once").exists():
            (place / "once").touch()
            signal.raise_signal(signal.SIGINT)

    whole, stopped = (create(made, place / name) for name in ("whole", "stopped"))
    with Progress(5, 1) as silent:
        execute(made, whole, silent)
        with contextlib.suppress(KeyboardInterrupt):
            execute(made, stopped, silent, (stops,))
        (before,) = stopped.seeds("fedavg")
        assert [d["round"] for d in before.details()] == [2]
        execute(made, stopped, silent)
    return whole, stopped


def test_a_line_for_every_round_that_has_some(folders):
    (seed,) = folders[0].seeds("fedavg")
    details = seed.details()
    assert [d["round"] for d in details] == [2, 4]
    assert {"cka_clients", "cka_matrix/classifier", "update_cosines/hidden_0"} <= details[0].keys()
    # A number is in the history, and what is more is not.
    assert "cka/classifier" in seed.history().columns
    assert "details" not in json.loads((seed.path / "history.jsonl").read_text().splitlines()[1])


def test_a_run_that_was_stopped_ends_in_the_same_bits(folders):
    whole, stopped = (folder.seeds("fedavg")[0] for folder in folders)
    for name in ("history.jsonl", "details.jsonl", "params.safetensors"):
        assert (whole.path / name).read_bytes() == (stopped.path / name).read_bytes()
    assert whole.complete
    assert stopped.complete


def test_the_page_has_the_section(folders):
    found = content(results.load([folders[0].path]))["drift"]
    assert [f["column"] for f in found["families"]][:2] == ["drift_diversity", "cka"]
    (method,) = found["methods"]
    assert method["layers"] == ["hidden_0", "classifier"]
    assert [m["round"] for m in method["matrices"]] == [2, 4]


def test_damaged_details_are_refused(folders):
    path: Path = folders[1].seeds("fedavg")[0].path / "details.jsonl"
    whole = path.read_text()
    path.write_text(whole.replace('"round": 4', '"round": 1'))
    try:
        (seed,) = folders[1].seeds("fedavg")
        assert seed.damaged() == ["details.jsonl"]
        with pytest.raises(HoldfastError, match="its checksum does not fit"):
            seed.details()
    finally:
        path.write_text(whole)
