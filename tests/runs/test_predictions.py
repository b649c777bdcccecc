"""What is kept of every client's own test rows."""

import dataclasses

import jax
import numpy as np
import pytest

import holdfast as hf
from holdfast.evaluate.measuring import each_example
from holdfast.runs import predictions
from holdfast.runs.predictions import Predicting

MODEL = hf.models.softmax_regression(classes=10)


def digits(clients=4):
    data = hf.data.digits()
    train = hf.data.partition.dirichlet(data.train, clients=clients, concentration=0.5)
    return train, hf.data.matched_test(data.test, train)


def asked(tests, most_bytes=predictions.MOST_BYTES, model=MODEL):
    params = model.init(jax.random.key(0), tests.examples)
    able = np.flatnonzero(tests.sizes)
    found = Predicting(model, tests, len(able), most_bytes)
    for i in map(int, able):
        found.add(i, params, tests[i])
    return params, found.done()


def test_every_row_of_every_client_is_there_and_predicted_by_its_model():
    _, tests = digits()
    params, found = asked(tests)
    assert found.about == {"kept": "everything", "rows": int(tests.sizes.sum())}
    assert len(found) == tests.sizes.sum()
    for i in found.clients:
        mine = found.client == i
        assert found.row[mine].tolist() == tests.rows(i).tolist()
        assert found.label[mine].tolist() == tests[i].y.tolist()
        np.testing.assert_allclose(found.output[mine], MODEL.predict(params, tests[i]), atol=1e-6)
        whole = hf.evaluate.evaluators.measure(MODEL, params, tests[i])
        assert found.by_client("loss")[i] == pytest.approx(whole["loss"], rel=1e-5)
        assert found.by_client("accuracy")[i] == pytest.approx(whole["accuracy"], rel=1e-5)
    assert np.mean(found.predicted == found.label) == pytest.approx(found.mean("accuracy"))


def test_a_file_has_the_same_bits_and_reads_as_it_was(tmp_path):
    _, tests = digits()
    _, found = asked(tests)
    (tmp_path / "p.safetensors").write_bytes(found.to_bytes())
    again = predictions.read(tmp_path / "p.safetensors")
    assert again.to_bytes() == found.to_bytes() == asked(tests)[1].to_bytes()
    assert again.about == found.about
    assert again.output.tolist() == found.output.tolist()


def test_a_file_is_bounded_and_says_what_it_left_out():
    _, tests = digits()
    rows = int(tests.sizes.sum())
    _, few = asked(tests, most_bytes=rows * 24)
    assert few.about == {"kept": "metrics", "rows": rows}
    assert few.output is None
    assert len(few) == rows
    _, fewer = asked(tests, most_bytes=rows * 5)
    assert fewer.about["kept"] == "some rows"
    assert rows / 5 <= len(fewer) <= rows / 4 + 4
    assert fewer.clients == few.clients
    assert len(fewer.to_bytes()) < rows * 5 + 1000
    # The same rows whatever the method, so that methods stay comparable.
    assert fewer.row.tolist() == asked(tests, most_bytes=rows * 5)[1].row.tolist()
    assert set(zip(fewer.client, fewer.row, strict=True)) <= set(
        zip(few.client, few.row, strict=True)
    )


def test_a_model_without_predictions_keeps_what_is_measured():
    model = hf.Model(
        init=lambda key, examples: {"w": np.zeros(64, np.float32)},
        loss=lambda p, batch: (batch.x @ p["w"] - batch.y.astype(np.float32)) ** 2,
    )
    _, tests = digits()
    _, found = asked(tests, model=model)
    assert found.output is None
    assert found.predicted is None
    assert found.mean("loss") == pytest.approx(float(np.mean(found.label.astype(float) ** 2)))


def test_models_that_differ_in_their_predictor_alone_predict_each_its_own():
    _, tests = digits()
    params = MODEL.init(jax.random.key(0), tests.examples)
    constant = dataclasses.replace(
        MODEL,
        predictor=hf.models.Predictor(
            lambda p, batch: jax.numpy.ones(len(batch.y)), MODEL.predictor.metrics
        ),
    )
    assert constant == MODEL
    one = each_example(MODEL, params, tests[0], True)[1]
    other = each_example(constant, params, tests[0], True)[1]
    assert one.shape != other.shape
    assert (other == 1).all()
