"""Sizes that no machine has are a line of the file, and not the end of the process."""

import sys

import numpy as np
import pytest

from holdfast.config import memory
from holdfast.config.build import study
from holdfast.config.file import ExperimentFileError, read
from holdfast.config.memory import no_more_than_there_is

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="others hand out what they have")


def test_more_than_there_is_is_a_memory_error():
    with no_more_than_there_is(), pytest.raises(MemoryError):
        np.zeros(1 << 42, np.uint8)
    np.zeros(1 << 20, np.uint8)


def test_too_many_clients_are_refused_on_their_line(tmp_path, monkeypatch):
    # As on a machine with little memory left: nothing large is written to.
    known = memory._kilobytes
    monkeypatch.setattr(
        memory, "_kilobytes", lambda path, name: 200_000 if "meminfo" in path else known(path, name)
    )
    path = tmp_path / "e.toml"
    path.write_text(
        'rounds = 1\n[data]\nname = "sine"\nclients = 10000000\n[partition]\nname = "natural"\n'
        '[model]\nname = "mlp_regression"\nhidden = [2]\n[local]\nlearning_rate = 0.1\n'
        '[[algorithm]]\nname = "fedavg"\n'
    )
    with pytest.raises(ExperimentFileError, match="too large for this machine"):
        study(read(path))
