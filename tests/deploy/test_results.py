"""What is left of a deployed run is read as a simulated one's is."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli import app
from holdfast.runs.in_memory import write
from tests.deploy.federations import experiment, sites


@pytest.mark.parametrize("name", ["fedavg", "flix_by_diana"])
def test_compare_and_report_read_a_deployed_run(name, tmp_path):
    rng = np.random.default_rng(0)
    test = hf.Examples(
        rng.normal(size=(9, 5)).astype(np.float32), rng.integers(0, 3, 9).astype(np.int32)
    )
    given = experiment(name, evaluate=hf.evaluate.on(test))
    there = hf.deploy.InProcess(sites(given, tmp_path / "sites"))
    run = hf.deploy.run(given, there, rounds=2, checkpoint=tmp_path / "run")
    folder = tmp_path / "run" / "results"
    write({name: (run,)}, folder)
    done = CliRunner().invoke(app, ["compare", str(folder)])
    assert done.exit_code == 0, done.output
    assert name in done.output
    done = CliRunner().invoke(app, ["report", str(folder)])
    assert done.exit_code == 0, done.output
    # Of the split nothing is known but sizes and names: labels are at the sites.
    split = json.loads((folder / "split.json").read_text())
    assert split == {"sizes": [7, 12, 5], "names": ["0", "1", "2"]}
    saved = hf.load(folder)
    assert saved.predict(test.x).shape == (9,)
