"""Where a server's examples come from: sent by clients, and balanced by altered copies."""

import numpy as np
import pytest

import holdfast as hf
from holdfast.config.build import study
from holdfast.config.file import ExperimentFileError, read

FILE = """
rounds = 1
[data]
name = "digits"
[partition]
name = "dirichlet"
clients = 30
concentration = 0.1
[model]
name = "softmax_regression"
[local]
learning_rate = 0.1
batch_size = 20
[server]
clients = 20
each = 10
[[algorithm]]
name = "fedavg_plus"
gamma = 1.0
"""


def population():
    train, _ = hf.data.digits()
    return hf.data.partition.dirichlet(train, 30, 0.1, sigma=1.0)


def test_a_few_clients_send_a_few_examples_and_keep_them():
    clients = population()
    sent = hf.data.collect(clients, senders=20, each=10, seed=3)
    owner = {one.tobytes(): i for i, part in enumerate(clients) for one in part.x}
    by_owner = np.bincount([owner[one.tobytes()] for one in sent.x], minlength=30)
    senders = np.flatnonzero(by_owner)
    assert len(senders) == 20
    assert by_owner[senders].tolist() == np.minimum(clients.sizes[senders], 10).tolist()
    assert len(np.unique(sent.x, axis=0)) == len(sent.x)
    assert clients.sizes.sum() == 1438
    again = hf.data.collect(clients, senders=20, each=10, seed=3)
    other = hf.data.collect(clients, senders=20, each=10, seed=4)
    assert np.array_equal(sent.x, again.x)
    assert not np.array_equal(sent.x, other.x)


def test_what_cannot_be_sent_is_refused():
    clients = population()
    with pytest.raises(hf.HoldfastError, match=r"31 senders of 30 clients .* give at most 30"):
        hf.data.collect(clients, senders=31, each=1)
    with pytest.raises(hf.HoldfastError, match=r"each=0; give a whole number"):
        hf.data.collect(clients, senders=2, each=0)


def test_a_file_says_it_by_two_keys(tmp_path):
    (tmp_path / "e.toml").write_text(FILE)
    made = study(read(tmp_path / "e.toml", []))
    sent = hf.data.collect(made.clients, senders=20, each=10)
    assert np.array_equal(made.server.source.x, sent.x)
    with pytest.raises(ExperimentFileError, match=r"clients=40: collect: 40 senders of 30"):
        study(read(tmp_path / "e.toml", ["server.clients=40"]))


def pictures(amounts):
    y = np.repeat(np.arange(len(amounts)), amounts)
    rng = np.random.default_rng(0)
    return hf.Examples(rng.random((len(y), 12, 9, 2), np.float32), y)


def test_every_class_that_is_there_has_its_share_after_balancing():
    before = pictures([20, 0, 3, 1])
    after = hf.data.balance(before, seed=1)
    assert np.bincount(after.y).tolist() == [20, 0, 8, 8]
    assert np.array_equal(after.x[:24], before.x)
    assert len(np.unique(after.x, axis=0)) == len(after.x)
    assert after.x.dtype == np.float32
    assert after.x.min() >= 0
    assert after.x.max() <= 1
    assert np.array_equal(hf.data.balance(before, seed=1).x, after.x)


def test_a_copy_is_a_part_of_the_image_turned():
    """Nothing cropped and nothing turned is a plain copy; a ramp stays one with a smaller slope."""
    plain = hf.data.balance(pictures([2, 1]), crop=1.0, degrees=0.0)
    assert len(plain.y) == 4
    np.testing.assert_allclose(plain.x[3], plain.x[2], atol=1e-6)
    ramp = np.tile(np.arange(16.0), (3, 16, 1))
    cropped = hf.data.balance(hf.Examples(ramp, np.array([0, 0, 1])), crop=0.5, degrees=0.0)
    slope = np.diff(cropped.x[3], axis=1)
    np.testing.assert_allclose(slope, slope[0, 0], atol=1e-9)
    assert 0.5 <= slope[0, 0] < 1


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"crop": 0.0}, r"crop=0\.0; give a number above 0"),
        ({"degrees": -1.0}, r"degrees=-1\.0; give a number from 0 to 180"),
        ({"examples": hf.Examples(np.zeros((3, 4)), np.arange(3))}, r"shape \(3, 4\).*give images"),
    ],
)
def test_what_cannot_be_balanced_is_refused(how, message):
    with pytest.raises(hf.HoldfastError, match=message):
        hf.data.balance(**{"examples": pictures([2, 1])} | how)


def test_a_file_refuses_to_balance_what_are_no_images(tmp_path):
    (tmp_path / "e.toml").write_text(FILE.replace("each = 10", "each = 10\nbalance = true"))
    with pytest.raises(ExperimentFileError, match=r"line 17: balance: x has shape \(.*, 64\)"):
        study(read(tmp_path / "e.toml", []))
