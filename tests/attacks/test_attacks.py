"""Liars change what they send, and nobody else's anything."""

import dataclasses

import numpy as np
import pytest

import holdfast as hf
from tests.problems import QUADRATIC, random_quadratics, tiny_clients

LOCAL = hf.Local(learning_rate=0.05, steps=5)
FEDAVG = hf.algorithms.fedavg()


def after_one_round(attack=None, algorithm=FEDAVG, **settings):
    clients, _ = random_quadratics(5)
    return hf.simulate(algorithm, QUADRATIC, clients, LOCAL, 1, attack=attack, **settings)


def single_updates():
    """What each of ten honest clients would send in the first round."""
    clients, _ = random_quadratics(5)
    return np.array(
        [
            hf.simulate(
                FEDAVG, QUADRATIC, clients, LOCAL, 1, cohort=hf.cohorts.schedule([[i]])
            ).params
            for i in range(10)
        ]
    )


@pytest.mark.parametrize(
    ("attack", "factor"),
    [
        (hf.attacks.Boosted(times=30.0, clients=[2, 5]), 30.0),
        (hf.attacks.SignFlip(times=2.0, clients=[2, 5]), -2.0),
    ],
    ids=lambda a: type(a).__name__,
)
def test_replies_are_multiplied(attack, factor, x64):
    each = single_updates()
    each[[2, 5]] *= factor
    np.testing.assert_allclose(after_one_round(attack).params, each.mean(0), atol=1e-12)


def test_what_is_not_finite_is_left_out(x64):
    each = single_updates()
    run = after_one_round(hf.attacks.NotANumber(clients=[0, 9]))
    np.testing.assert_allclose(run.params, each[1:9].mean(0), atol=1e-12)
    assert run.ledger.entries[0].left_out == (0, 9)


def test_a_huge_reply_counts_and_ends_the_model_but_for_a_bound():
    attack = hf.attacks.Huge(clients=[3])
    assert abs(after_one_round(attack).params[0]) > 1e28
    clients, optimum = random_quadratics(5)
    method = hf.Algorithm(aggregate=hf.aggregates.NormBounded())
    run = hf.simulate(method, QUADRATIC, clients, LOCAL, 60, attack=attack)
    assert np.abs(run.params - optimum).max() < 1.0
    assert all(d["bounded_clients"].count(3) for d in run.history.details)


def test_noise_is_drawn_anew_for_every_round_and_client(x64):
    clients, _ = random_quadratics(5)
    attack = hf.attacks.GaussianNoise(sigma=5.0, share=0.9)
    states = hf.rounds(FEDAVG, QUADRATIC, clients, LOCAL, attack=attack)
    models = [np.asarray(next(states).params) for _ in range(3)]
    assert np.std(np.diff(models, axis=0)) > 0.3
    again = hf.simulate(FEDAVG, QUADRATIC, clients, LOCAL, 3, attack=attack)
    assert np.array_equal(again.params, models[-1])


def test_liars_by_share_are_drawn_by_the_seed_and_by_name_are_these():
    clients = hf.Clients.from_rows(random_quadratics(1)[0].examples, [[i] for i in range(10)])
    drawn = [hf.attacks.SignFlip(share=0.3).liars(clients, seed) for seed in range(5)]
    assert {len(liars) for liars in drawn} == {3}
    assert len(set(drawn)) > 1
    named = dataclasses.replace(clients, names=tuple("abcdefghij"))
    assert hf.attacks.SignFlip(clients=["c", 1]).liars(named, 0) == (1, 2)


def test_label_flip_is_honest_training_on_turned_labels():
    clients = tiny_clients()
    attack = hf.attacks.LabelFlip(clients=[1])
    labels = np.array(clients.examples.y)
    labels[clients.rows(1)] = 2 - labels[clients.rows(1)]
    turned = dataclasses.replace(clients, examples=clients.examples._replace(y=labels))
    model, local = hf.models.softmax_regression(classes=3), hf.Local(0.1, epochs=1)
    lied = hf.simulate(FEDAVG, model, clients, local, 2, attack=attack)
    plain = hf.simulate(FEDAVG, model, turned, local, 2)
    assert np.array_equal(lied.params["classifier"]["kernel"], plain.params["classifier"]["kernel"])
    # The population that was given is as it was.
    assert not np.array_equal(labels, clients.examples.y)


def test_a_liar_skips_the_clip_of_its_own_half(x64):
    clipped = hf.Algorithm(wire=hf.wires.Clipped(hf.Wire(), bound=1e-3))
    attack = hf.attacks.Boosted(times=1e6, clients=[0])
    honest, lied = after_one_round(None, clipped), after_one_round(attack, clipped)
    assert np.linalg.norm(honest.params) <= 1e-3
    assert np.linalg.norm(lied.params) > 50


@pytest.mark.parametrize("wire", ["compressed", "error feedback"])
def test_lies_travel_by_every_wire(wire, x64):
    compressor = hf.wires.Natural()
    wires = {
        "compressed": hf.wires.Compressed(compressor),
        "error feedback": hf.wires.ErrorFeedback(compressor),
    }
    method = hf.Algorithm(wire=wires[wire])
    attack = hf.attacks.Boosted(times=1e3, clients=[0])
    apart = np.abs(after_one_round(attack, method).params - after_one_round(None, method).params)
    expected = 999 * np.abs(single_updates()[0]) / 10
    # Codes of powers of two are off by a third at most.
    assert (apart > expected / 3).all()
    assert (apart < 3 * expected + 1).all()


def test_engines_agree_on_lies():
    attack = hf.attacks.GaussianNoise(sigma=2.0, clients=[1, 2])
    method = hf.Algorithm(hf.rules.Dynamic(1.0), aggregate=hf.aggregates.NormBounded(first=1.0))
    a, b = (
        after_one_round(attack, method, engine=engine)
        for engine in (hf.CompiledEngine(), hf.DebugEngine())
    )
    np.testing.assert_allclose(a.params, b.params, rtol=1e-5)


def test_an_attack_is_part_of_what_a_run_is(tmp_path):
    clients, _ = random_quadratics(5)
    attack = hf.attacks.SignFlip(share=0.2)
    settings = dict(model=QUADRATIC, clients=clients, local=LOCAL, checkpoint=tmp_path)
    method = hf.Algorithm(hf.rules.ControlVariate(), aggregate=hf.aggregates.CenteredClipping())
    whole = hf.simulate(method, QUADRATIC, clients, LOCAL, 6, attack=attack)
    hf.simulate(method, rounds=3, attack=attack, **settings)
    resumed = hf.simulate(method, rounds=6, attack=attack, **settings)
    assert np.array_equal(whole.params, resumed.params)
    assert whole.history.details == resumed.history.details
    with pytest.raises(hf.HoldfastError, match="attack"):
        hf.simulate(method, rounds=6, **settings)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: hf.attacks.SignFlip(), "give who lies"),
        (lambda: hf.attacks.SignFlip(clients=[0], share=0.2), "give who lies"),
        (lambda: hf.attacks.SignFlip(share=1.0), "share=1.0"),
        (lambda: hf.attacks.Boosted(times=float("nan"), share=0.1), "give a number"),
        (lambda: after_one_round(hf.attacks.SignFlip(clients=[10])), "10"),
        (lambda: after_one_round(hf.attacks.LabelFlip(clients=[1])), "labels"),
        (lambda: after_one_round("SignFlip"), "attack"),
        (
            lambda: after_one_round(
                hf.attacks.SignFlip(share=0.1),
                hf.Algorithm(wire=hf.wires.Diana(hf.wires.Natural())),
            ),
            "differences",
        ),
        (
            lambda: after_one_round(hf.attacks.SignFlip(share=0.1), hf.algorithms.local_only()),
            "nothing travels",
        ),
    ],
)
def test_what_cannot_be_is_refused(make, words):
    with pytest.raises(hf.HoldfastError, match=words):
        make()
