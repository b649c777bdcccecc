"""Centred kernel alignment against its definition, on features and on clients' models."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from tests.problems import QUADRATIC, random_quadratics, same_bits, tiny_clients

MODEL = hf.models.mlp([6], classes=3)
LOCAL = hf.Local(0.1, epochs=2, batch_size=4)


def by_hand(a, b):
    """By products of features, which the library never forms."""
    a, b = (np.asarray(side, np.float64).reshape(len(side), -1) for side in (a, b))
    a, b = a - a.mean(0), b - b.mean(0)
    above = np.linalg.norm(b.T @ a) ** 2
    return above / (np.linalg.norm(a.T @ a) * np.linalg.norm(b.T @ b))


def test_equals_the_definition_with_more_and_with_fewer_features_than_examples():
    rng = np.random.default_rng(0)
    for widths in ((3, 5), (70, 4), (5000, 90)):
        a, b = (rng.normal(size=(40, w)) + 3 for w in widths)
        b[:, :3] += a[:, :3]
        assert hf.diagnose.linear_cka(a, b) == pytest.approx(by_hand(a, b), abs=1e-12)


def test_identical_rotated_and_independent_features():
    rng = np.random.default_rng(1)
    a = rng.normal(size=(2000, 6)) * np.arange(1, 7)
    turned = a @ np.linalg.qr(rng.normal(size=(6, 6)))[0]
    assert hf.diagnose.linear_cka(a, a) == pytest.approx(1, abs=1e-12)
    assert hf.diagnose.linear_cka(a, 5 * turned + 7) == pytest.approx(1, abs=1e-12)
    assert hf.diagnose.linear_cka(a, rng.normal(size=(2000, 6))) < 0.01
    assert np.isnan(hf.diagnose.linear_cka(a, np.ones((2000, 2))))


def test_features_of_other_examples_are_refused():
    with pytest.raises(hf.HoldfastError, match=r"shapes \(3, 1\) and \(4, 1\)"):
        hf.diagnose.linear_cka(np.ones((3, 1)), np.ones((4, 1)))


def batch(clients=None):
    rng = np.random.default_rng(3)
    return hf.Examples(rng.normal(size=(30, 5)).astype(np.float32), np.zeros(30, np.int32))


def hidden_and_last(params, x):
    first = x @ np.asarray(params["hidden_0"]["kernel"]) + np.asarray(params["hidden_0"]["bias"])
    last = np.maximum(first, 0) @ np.asarray(params["classifier"]["kernel"])
    return {"hidden_0": first, "classifier": last + np.asarray(params["classifier"]["bias"])}


def run(**more):
    given = {"rounds": 2, "evaluate": hf.diagnose.cka(batch(), every=1)} | more
    return hf.simulate(hf.algorithms.fedavg(), MODEL, tiny_clients(), LOCAL, **given)


def test_layers_of_clients_models_against_numpy():
    models = []

    def look(state):
        models.append([*(state.client_states[i].latest for i in range(4)), state.params])

    done = run(on_round=look)
    for record, details, found in zip(done.history, done.history.details, models, strict=True):
        assert details["cka_clients"] == [0, 1, 2, 3]
        features = [hidden_and_last(params, batch().x) for params in found]
        for layer in ("hidden_0", "classifier"):
            expected = np.array([[by_hand(a[layer], b[layer]) for a in features] for b in features])
            np.testing.assert_allclose(details[f"cka_matrix/{layer}"], expected, atol=1e-6)
            pairs = expected[:4, :4][~np.eye(4, dtype=bool)]
            assert record[f"cka/{layer}"] == pytest.approx(pairs.mean(), abs=1e-6)
            assert record[f"cka_server/{layer}"] == pytest.approx(expected[4, :4].mean(), abs=1e-6)
    # In the order in which they are called.
    names = [n for n in done.history.columns if n.startswith("cka/")]
    assert names == ["cka/hidden_0", "cka/classifier"]


def test_only_clients_of_the_round_and_not_too_many():
    done = run(cohort=hf.cohorts.fixed(3), evaluate=hf.diagnose.cka(batch(), every=1, clients=2))
    for entry, details in zip(done.ledger.entries, done.history.details, strict=True):
        assert set(details["cka_clients"]) <= set(entry.clients)
        assert np.shape(details["cka_matrix/classifier"]) == (3, 3)
    one = run(cohort=hf.cohorts.fixed(1))
    assert not one.history.details


def test_goes_on_exactly_with_its_matrices(tmp_path):
    whole = run(rounds=4)
    for rounds in (1, 3, 4):
        resumed = run(rounds=rounds, checkpoint=tmp_path)
    assert resumed.history.details == whole.history.details
    assert same_bits(resumed.params, whole.params)
    assert "details" not in whole.history.columns
    assert "details" not in repr(whole.history)


def test_a_function_of_the_users_own():
    clients, _ = random_quadratics(0, clients=3)
    given = hf.diagnose.cka(
        clients.examples, 1, features=lambda w, batch: {"own": batch.x * w[None]}
    )
    done = hf.simulate(
        hf.algorithms.fedavg(), QUADRATIC, clients, hf.Local(0.1, steps=2), 1, evaluate=given
    )
    assert 0 <= done.history["cka/own"][0] <= 1 + 1e-6
    for wrong in (
        lambda w, batch: batch.x * w[None],
        lambda w, batch: {"mean": jnp.sum(batch.x)},
    ):
        evaluate = hf.diagnose.cka(clients.examples, 1, features=wrong)
        with pytest.raises(hf.HoldfastError, match="must return arrays by name"):
            hf.simulate(hf.algorithms.fedavg(), QUADRATIC, clients, LOCAL, 1, evaluate=evaluate)
    with pytest.raises(hf.HoldfastError, match="give a function"):
        hf.diagnose.cka(clients.examples, features="layers")
    with pytest.raises(hf.HoldfastError, match="does not say what its layers put out"):
        hf.simulate(
            hf.algorithms.fedavg(),
            QUADRATIC,
            clients,
            LOCAL,
            1,
            evaluate=hf.diagnose.cka(clients.examples),
        )


class Looped(nn.Module):
    """One layer within a loop of JAX, one twice outside of it."""

    @nn.compact
    def __call__(self, x):
        scanned = nn.scan(
            lambda cell, carry, _: (cell(carry), None),
            variable_broadcast="params",
            split_rngs={"params": False},
            length=2,
        )
        x, _ = scanned(nn.Dense(5, name="looped"), x, None)
        twice = nn.Dense(5, name="twice")
        return nn.Dense(3, name="classifier")(twice(nn.relu(twice(x))))


def test_a_layer_within_a_loop_is_left_out_and_one_called_twice_is_one():
    from holdfast.diagnose.features import features_of

    model = hf.models.from_linen(Looped(), classes=3)
    params = model.init(jax.random.key(0), batch())
    features = features_of(model, params, batch())
    found = features(params, jax.tree.map(jnp.asarray, batch()))
    assert {n: a.shape for n, a in found.items()} == {"twice": (30, 10), "classifier": (30, 3)}


@pytest.mark.parametrize("wrong", [{"rows": 2}, {"clients": 1}, {"every": 0}])
def test_wrong_numbers_are_refused(wrong):
    with pytest.raises(hf.HoldfastError, match=r"cka: .*give a whole number of at least"):
        hf.diagnose.cka(batch(), **wrong)
    with pytest.raises(hf.HoldfastError, match="cka: 2 examples; give at least 3"):
        run(evaluate=hf.diagnose.cka(jax.tree.map(lambda a: a[:2], batch())))


def test_layers_of_joined_populations_are_found_where_examples_say_whose_they_are():
    train, test = hf.data.digits()
    halves = [hf.Examples(train.x[i:80:2], train.y[i:80:2]) for i in range(2)]
    parts = [hf.data.partition.iid(half, clients=2) for half in halves]
    models = hf.models.mlp([8], classes=10), hf.models.mlp([8], classes=10, l2=0.1)
    joined = hf.join(
        [hf.Population(c, m, name=n) for c, m, n in zip(parts, models, "ab", strict=True)]
    )
    local = hf.Local(0.1, steps=2, batch_size=5)

    def measured(examples, features=None):
        evaluator = hf.diagnose.cka(examples, every=1, rows=20, features=features)
        return hf.simulate(
            hf.algorithms.fedavg(), **joined, local=local, rounds=1, evaluate=evaluator
        ).history

    own = joined.of("b", test)
    found = measured(own)
    by_hand = measured(
        own, lambda params, batch: {"last": models[1].output(params, batch.examples)}
    )
    assert found["cka/classifier"][0] == pytest.approx(by_hand["cka/last"][0], abs=1e-6)
    assert found["cka/hidden_0"][0] > 0
    with pytest.raises(hf.HoldfastError, match=r"joined.of\('a', examples\)"):
        measured(test)
