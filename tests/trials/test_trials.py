"""A few trials of every kind; `make trials` runs as many as there is time for."""

import pytest

from tests.trials import data_files, run_folders
from tests.trials.run_folders import Ground


@pytest.fixture(scope="module")
def ground(tmp_path_factory):
    return Ground(tmp_path_factory.mktemp("trials"), "disk")


@pytest.mark.parametrize(
    ("trial", "seeds"),
    [
        (run_folders.kills, (0, 1)),
        (run_folders.kills_while_saving, (0, 1)),
        (run_folders.kills_of_workers, (0,)),
        (run_folders.damages, range(6)),
        (run_folders.full_disk, (0, 1)),
        (run_folders.two_at_once, (0,)),
        (run_folders.really_full_disk, (3,)),
        (run_folders.read_only, (0,)),
    ],
)
def test_nothing_is_lost_and_nothing_differs_in_silence(ground, trial, seeds):
    for seed in seeds:
        outcome = trial(ground, seed)
        if outcome == "not permitted here":
            pytest.skip("file systems cannot be mounted here")
        assert outcome in ("equal", "refused")


def test_damaged_data_is_read_or_refused_in_one_line(tmp_path):
    files = data_files.make(tmp_path)
    plain = {"plain.mat": files.pop("plain.mat")}  # a process of its own reads each of these first
    assert {data_files.damaged_data(plain, seed) for seed in range(3)} <= {"read", "refused"}
    found = [data_files.damaged_data(files, seed) for seed in range(300)]
    assert found.count("refused") > 200
