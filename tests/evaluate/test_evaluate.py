"""Which model is measured, on what, and when."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from tests.problems import largest_difference, tiny_clients

MODEL = hf.models.mlp([4], classes=3)
LOCAL = hf.Local(0.3, epochs=3, batch_size=4)
TEST = tiny_clients(seed=9, sizes=(40,), clients=1)[0]


def run(algorithm=None, rounds=3, **settings):
    algorithm = algorithm or hf.algorithms.fedavg()
    settings = {"cohort": hf.cohorts.schedule([[0, 1], [1, 3], [0, 1]])} | settings
    return hf.simulate(algorithm, MODEL, tiny_clients(), LOCAL, rounds, **settings)


def accuracy(params, data):
    hidden = np.asarray(data.x) @ params["hidden_0"]["kernel"] + params["hidden_0"]["bias"][None]
    classifier = params["classifier"]
    scores = np.maximum(hidden, 0) @ classifier["kernel"] + classifier["bias"][None]
    return float((scores.argmax(1) == data.y).mean())


def test_the_server_model():
    result = run(evaluate=hf.evaluate.on(TEST))
    assert result.history["accuracy"][-1] == pytest.approx(accuracy(result.params, TEST))
    losses = MODEL.losses(result.params, jax.tree.map(jnp.asarray, TEST), jax.random.key(0))
    assert result.history["loss"][-1] == pytest.approx(float(losses.mean()), rel=1e-5)


def test_at_an_interval():
    result = run(evaluate=hf.evaluate.on(TEST, every=2), rounds=5)
    assert np.isnan(result.history["accuracy"]).tolist() == [True, False, True, False, True]


def test_large_test_sets_are_measured_in_parts(monkeypatch):
    monkeypatch.setattr(hf.evaluate.batches, "_LARGEST_BATCH", 16)
    parts = run(evaluate=hf.evaluate.on(TEST))
    monkeypatch.undo()
    whole = run(evaluate=hf.evaluate.on(TEST))
    np.testing.assert_allclose(parts.history["loss"], whole.history["loss"], rtol=1e-6)
    np.testing.assert_allclose(parts.history["accuracy"], whole.history["accuracy"])


@pytest.mark.parametrize("weighting", ["examples", "uniform"])
def test_the_average_of_every_clients_latest_model(weighting):
    algorithm = hf.algorithms.fedavg(weighting=weighting)
    result = run(algorithm, evaluate=hf.evaluate.client_average(TEST))
    start = run(rounds=0).params
    assert largest_difference(result.client_states[2].latest, start) == 0  # never active
    sizes = tiny_clients().sizes if weighting == "examples" else np.ones(4)
    models = [result.client_states[i].latest for i in range(4)]
    mean = jax.tree.map(
        lambda *p: sum(w * q for w, q in zip(sizes / sizes.sum(), p, strict=True)), *models
    )
    assert result.history["average_accuracy"][-1] == pytest.approx(accuracy(mean, TEST))
    plain = run(algorithm)
    assert largest_difference(result.params, plain.params) == 0  # looking changes nothing


def weighted_mean(result, weights):
    models = [result.client_states[i].latest for i in range(len(weights))]
    shares = np.array(weights) / np.sum(weights)
    return jax.tree.map(lambda *p: sum(w * q for w, q in zip(shares, p, strict=True)), *models)


def test_the_average_weighs_by_examples_processed_where_the_method_does():
    # Three batches of 4: 4 + 3 + 4, 4 + 4 + 4, 4 + 1 + 4 and 4 + 4 + 1 of 7, 12, 5 and 9 examples.
    result = hf.simulate(
        hf.algorithms.fedavg(weighting="processed"),
        MODEL,
        tiny_clients(),
        hf.Local(0.3, steps=3, batch_size=4),
        2,
        evaluate=hf.evaluate.client_average(TEST),
    )
    expected = hf.evaluate.measure(MODEL, weighted_mean(result, [11, 12, 9, 9]), TEST)["loss"]
    assert result.history["average_loss"][-1] == pytest.approx(expected, rel=1e-6)
    by_examples = hf.evaluate.measure(MODEL, weighted_mean(result, [7, 12, 5, 9]), TEST)["loss"]
    assert abs(by_examples - expected) > 1e-3


def test_the_average_weighs_populations_as_the_round_does():
    """Two of four clients have as much to say together as the two others, three times over."""
    few, many = tiny_clients().subset([0, 1]), tiny_clients().subset([2, 3])
    joined = hf.join([hf.Population(few, MODEL), hf.Population(many, MODEL, weight=3.0)])
    result = hf.simulate(
        hf.algorithms.fedavg(),
        **joined._asdict(),
        local=LOCAL,
        rounds=2,
        evaluate=hf.evaluate.client_average(TEST),
    )
    weights = [1 * 7 / 19, 1 * 12 / 19, 3 * 5 / 14, 3 * 9 / 14]
    expected = hf.evaluate.measure(MODEL, weighted_mean(result, weights), TEST)["loss"]
    assert result.history["average_loss"][-1] == pytest.approx(expected, rel=1e-6)


ACTIVE = hf.evaluate.active_average(TEST)


def active_loss(result, ids, weights):
    models = [result.client_states[i].latest for i in ids]
    shares = np.array(weights) / np.sum(weights)
    mean = jax.tree.map(lambda *p: sum(w * q for w, q in zip(shares, p, strict=True)), *models)
    return hf.evaluate.measure(MODEL, mean, TEST)["loss"]


@pytest.mark.parametrize(
    ("weighting", "weights"), [("examples", [7, 5]), ("uniform", [1, 1]), ("processed", [11, 9])]
)
def test_the_average_of_the_rounds_clients(weighting, weights):
    """Client 1 trained in the first round and not in the second."""
    result = hf.simulate(
        hf.algorithms.fedavg(weighting=weighting),
        MODEL,
        tiny_clients(),
        hf.Local(0.3, steps=3, batch_size=4),
        2,
        cohort=hf.cohorts.schedule([[0, 1], [0, 2]]),
        evaluate=[ACTIVE, hf.evaluate.on(TEST)],
    )
    expected = active_loss(result, [0, 2], weights)
    assert result.history["active_loss"][-1] == pytest.approx(expected, rel=1e-6)
    # FedAvg's model is that mean, and no other weights would give it.
    np.testing.assert_allclose(result.history["active_loss"], result.history["loss"], rtol=1e-6)


def test_the_average_of_the_rounds_clients_weighs_populations_as_the_round_does():
    few, many = tiny_clients().subset([0, 1]), tiny_clients().subset([2, 3])
    one = hf.cohorts.schedule([[0]])
    joined = hf.join(
        [hf.Population(few, MODEL, cohort=one), hf.Population(many, MODEL, weight=3.0)]
    )
    result = hf.simulate(
        hf.algorithms.fedavg(),
        **joined._asdict(),
        local=LOCAL,
        rounds=2,
        evaluate=[ACTIVE, hf.evaluate.on(TEST)],
    )
    # Of the first population one client came, and counts for all of it.
    expected = active_loss(result, [0, 2, 3], [1.0, 3 * 5 / 14, 3 * 9 / 14])
    assert result.history["active_loss"][-1] == pytest.approx(expected, rel=1e-6)
    np.testing.assert_allclose(result.history["active_loss"], result.history["loss"], rtol=1e-6)


def test_a_round_without_clients_has_no_average_and_one_left_out_does_not_count():
    nobody = hf.Clients.from_rows(tiny_clients().examples, [[0, 1], []])
    result = hf.simulate(
        hf.algorithms.fedavg(),
        MODEL,
        nobody,
        LOCAL,
        2,
        cohort=hf.cohorts.schedule([[0], [1]]),
        evaluate=[ACTIVE, hf.evaluate.on(TEST)],
    )
    assert np.isnan(result.history["active_loss"]).tolist() == [False, True]

    def loss(params, batch, key=None):
        sick = jnp.isin(batch.y, 2).any()
        return MODEL.losses(params, batch, jax.random.key(0)) * jnp.where(sick, jnp.nan, 1.0)

    x = np.ones((3, 5), np.float32)
    clients = hf.data.partition.in_order(hf.Examples(x, np.array([0, 2, 1], np.int32)), clients=3)
    result = hf.simulate(
        hf.algorithms.fedavg(),
        dataclasses.replace(MODEL, loss=loss),
        clients,
        LOCAL,
        1,
        evaluate=ACTIVE,
    )
    assert result.history["left_out"].tolist() == [1]
    assert result.history["active_loss"][-1] == pytest.approx(active_loss(result, [0, 2], [1, 1]))


def test_each_clients_own_model_on_its_own_data():
    data = tiny_clients(seed=4).examples
    own = hf.Clients.from_rows(data, [range(6), range(6, 9), [], range(9, 17)])
    result = run(
        hf.algorithms.local_only(),
        evaluate=[hf.evaluate.personal(own), hf.evaluate.on(TEST)],
        cohort=None,
    )
    found = [accuracy(result.personal(i), own[i]) for i in (0, 1, 3)]
    assert result.history["personal_accuracy"][-1] == pytest.approx(np.mean(found))
    assert result.history["personal_accuracy_worst_tenth"][-1] == pytest.approx(min(found))
    assert "accuracy" in result.history.columns


def test_for_a_method_without_personal_models_it_is_the_servers():
    own = tiny_clients(seed=4)
    result = run(hf.algorithms.feddyn(0.1), evaluate=hf.evaluate.personal(own))
    found = [accuracy(result.params, own[i]) for i in range(4)]
    assert result.history["personal_accuracy"][-1] == pytest.approx(np.mean(found))


def test_or_the_model_each_client_trained_last():
    own = tiny_clients(seed=4)
    result = run(hf.algorithms.feddyn(0.1), evaluate=hf.evaluate.personal(own, latest=True))
    found = [accuracy(result.client_states[i].latest, own[i]) for i in range(4)]
    assert result.history["personal_accuracy"][-1] == pytest.approx(np.mean(found))


def test_one_data_set_for_everybodys_model():
    result = run(hf.algorithms.local_only(), evaluate=hf.evaluate.personal(TEST), cohort=None)
    found = [accuracy(result.personal(i), TEST) for i in range(4)]
    assert result.history["personal_accuracy"][-1] == pytest.approx(np.mean(found))


def test_centralised_has_one_model_for_all():
    own = tiny_clients(seed=4)
    result = run(hf.algorithms.centralised(), evaluate=hf.evaluate.personal(own))
    found = [accuracy(result.params, own[i]) for i in range(4)]
    assert result.history["personal_accuracy"][-1] == pytest.approx(np.mean(found))


def test_test_data_of_another_population_is_refused():
    with pytest.raises(hf.HoldfastError, match="3 clients have test data but the population has 4"):
        run(evaluate=hf.evaluate.personal(tiny_clients(sizes=(3, 3, 3), clients=3)))


def test_the_worst_tenth_is_the_highest_of_what_is_better_low():
    def metrics(params, batch):
        wrong = 1 - MODEL.measure(params, batch)["accuracy"]
        return {"error": wrong, "oddity": wrong, "accuracy": 1 - wrong}

    model = dataclasses.replace(MODEL, metrics=metrics, greater_is_better={"oddity": False})
    own = tiny_clients(seed=4)
    evaluate = hf.evaluate.personal(own, name="validation")
    settings = {"rounds": 1, "evaluate": evaluate}
    result = hf.simulate(hf.algorithms.local_only(), model, tiny_clients(), LOCAL, **settings)
    found = [accuracy(result.personal(i), own[i]) for i in range(4)]
    assert min(found) < max(found)
    last = result.history[-1]
    for name in ("error", "oddity"):
        assert last[f"validation_personal_{name}_worst_tenth"] == pytest.approx(1 - min(found))
    assert last["validation_personal_accuracy_worst_tenth"] == pytest.approx(min(found))


def test_former_names_of_the_view_say_the_new_ones():
    view = run(rounds=1).view
    with pytest.raises(hf.HoldfastError, match=r"`last_model` is gone; use `view\.latest"):
        view.last_model(0)
    assert not hasattr(view, "experiment")
    assert not hasattr(view, "colour")
