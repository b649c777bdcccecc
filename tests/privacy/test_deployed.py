"""Noise at the server of a deployment: a site that does not answer changes no denominator and no noise."""

import jax
import numpy as np
import pytest

import holdfast as hf
from holdfast.deploy import Patience
from tests.deploy.federations import experiment, sites
from tests.deploy.test_faults import Silent
from tests.problems import same_bits

pytest.importorskip("dp_accounting", reason="needs holdfast[privacy]")
CLIP = 0.05


@pytest.fixture
def given(tmp_path):
    (tmp_path / "noise.secret").write_bytes(bytes(range(32)))
    noise = hf.privacy.Gaussian(
        clip=CLIP, delta=1e-3, noise_multiplier=2.0, accountant="rdp", secret=str(tmp_path / "noise.secret")
    )  # fmt: skip
    return experiment(algorithm=noise.beside(hf.algorithms.fedavg(weighting="uniform")))


def test_a_site_that_is_dropped_moves_the_model_by_its_bounded_reply_alone(given, tmp_path):
    whole = hf.deploy.run(given, hf.deploy.InProcess(sites(given, tmp_path / "a")), rounds=2)
    assert same_bits(whole.params, hf.simulate(given, rounds=2).params)
    post = Silent(sites(given, tmp_path / "b"), lambda post: post.rounds == 1)

    def count(state):
        post.rounds = state.round

    patience = Patience(quorum=0.6, deadline=0.3, retry=0.05, give_up=20)
    dropped = hf.deploy.run(given, post, rounds=2, patience=patience, on_round=count)
    assert dropped.history["left_out"].tolist() == [0, 1]
    apart = jax.tree.map(lambda a, b: np.asarray(a) - np.asarray(b), whole.params, dropped.params)
    length = np.sqrt(sum((p.astype(np.float64) ** 2).sum() for p in jax.tree.leaves(apart)))
    assert length == pytest.approx(CLIP / 3, rel=1e-3)
    assert dropped.privacy == whole.privacy


def test_local_noise_is_not_deployed_from_a_seed_that_the_server_has(given, tmp_path):
    local = hf.privacy.LocalGaussian(clip=1.0, delta=1e-3, noise_multiplier=4.0)
    own = experiment(algorithm=local.beside(hf.algorithms.fedavg()))
    with pytest.raises(hf.HoldfastError, match="it would know their noise"):
        hf.deploy.run(own, hf.deploy.InProcess(sites(own, tmp_path / "c")), rounds=1)
