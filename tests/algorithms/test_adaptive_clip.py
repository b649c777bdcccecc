"""Adaptive clipping beside every method: nothing while the bound is far, clipped below it, or refused."""

import pytest

import holdfast as hf
from holdfast.config.build import study
from holdfast.config.file import read
from tests.claims.test_conformance import ALGORITHMS
from tests.config.test_wrong_files import GOOD, folder, refused
from tests.problems import same_bits, tiny_clients

__all__ = ["folder"]  # a fixture

MODEL = hf.models.softmax_regression(3)
LOCAL = hf.Local(learning_rate=0.2, steps=3, batch_size=4)
OWN = hf.Server(tiny_clients(seed=5).examples, LOCAL)
# They make something of the update as local steps made it, or send none.
REFUSED = {
    "scaffold": "ControlVariate needs the delta as the local steps made it",
    "scaffold, published": "Uploaded needs the delta",
    "fedpvr": "Masked needs the delta",
    "feddyn": "Dynamic needs the delta",
    "feddc": "ControlVariate needs the delta",
    "fedsplit": "SplitActive sends what a client remembers",
    "fedsplit, all": "SplitAll needs the delta",
    "flix_one_shot": "OneShot sends what a client remembers",
    "scaffold_plus": "ServerTurn needs the delta",
    "feddyn_plus": "Dynamic needs the delta",
    "feddc_plus": "ControlVariate needs the delta",
    "centralised": "`centralised` sends no updates",
    "local_only": "`local_only` sends no updates",
    "damped scaffold through diana": "Uploaded needs the delta",
    "error feedback": "Dynamic needs the delta",
    "downlink": "ControlVariate needs the delta",
}


def run(algorithm):
    return hf.simulate(
        algorithm, MODEL, tiny_clients(), LOCAL, 3, cohort=hf.cohorts.fixed(3), server=OWN
    )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_far_bound_changes_nothing(name):
    algorithm = ALGORITHMS[name]
    far = hf.rules.AdaptiveClip(initial=1e6)
    if name in REFUSED:
        with pytest.raises(hf.HoldfastError, match=REFUSED[name]):
            far.beside(algorithm)
        return
    if algorithm.wire.hears_each and not algorithm.wire.lossless:
        pytest.skip("what is uploaded beside the update draws numbers of the wire too")
    plain, clipped = run(algorithm), run(far.beside(algorithm))
    assert same_bits(plain.params, clipped.params)


@pytest.mark.parametrize(
    "name", ["fedavg_plus", "two_way_transfer", "fomaml", "flix, diana, per client"]
)
def test_conforms(name):
    clipped = hf.rules.AdaptiveClip(initial=0.1, quantile=0.3).beside(ALGORITHMS[name])
    report = hf.testing.check(clipped, MODEL)
    assert report.passed == tuple(hf.testing.CHECKS)


def test_the_server_moves_on_from_clipped_updates():
    clip = hf.rules.AdaptiveClip(initial=0.05, quantile=0.8, rate=0.3)
    by_hand = hf.Chain((clip, hf.rules.ServerLearning(0.5)))
    algorithm = hf.algorithms.fedavg_plus(0.5)
    assert same_bits(
        run(clip.beside(algorithm)).params, run(hf.Algorithm(by_hand, weighting="examples")).params
    )
    assert not same_bits(run(clip.beside(algorithm)).params, run(algorithm).params)


CLIPPED = GOOD.replace(
    'name = "fedavg"\n', 'name = "fedavg"\nadaptive_clip = { initial = 0.5, quantile = 0.8 }\n'
)


def test_in_a_file(folder):
    (folder / "experiment.toml").write_text(CLIPPED)
    made = study(read("experiment.toml"))
    assert made.methods[0].algorithm.rule == hf.Chain((hf.rules.AdaptiveClip(0.5, 0.8),))
    sweep = ["sweep.algorithm.fedavg.adaptive_clip.initial=[0.1, 0.2]"]
    made = study(read("experiment.toml", sweep))
    assert [m.algorithm.rule.rules[0].initial for m in made.methods[:2]] == [0.1, 0.2]


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("quantile", "quantil", 24, "unknown key `quantil` in [algorithm.adaptive_clip]; did you"),
        ("initial = 0.5, ", "", 24, "`initial` is missing in [algorithm.adaptive_clip]"),
        ("0.5,", "-0.5,", 24, "AdaptiveClip: initial=-0.5; give numbers above 0."),
        ("0.8", "1.8", 24, "AdaptiveClip: quantile=1.8; give numbers in (0, 1]."),
        ("0.5,", "[0.5, 0.1, 0.1, 0.1],", 24, "initial is one value per client"),
        ("alpha = 0.1", "alpha = 0.1\nadaptive_clip.initial = 1", 29, "Dynamic needs the delta"),
    ],
)
def test_a_mistake_is_named_with_its_line(folder, old, new, line, words):
    assert old in CLIPPED
    said = refused(CLIPPED.replace(old, new, 1))
    assert words in said
    assert f"experiment.toml, line {line}:" in said
