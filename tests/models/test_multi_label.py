"""Several labels per example, against sums of logistic regressions and counted recalls."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

import holdfast as hf
from holdfast.config.build import study
from holdfast.config.file import read
from holdfast.models import logistic_regression, multi_label
from tests.data.test_stack_overflow import folder, reader  # noqa: F401 - fixtures

rng = np.random.default_rng(0)
EXAMPLES = hf.Examples(rng.normal(size=(20, 4)), (rng.random((20, 6)) < 0.4).astype(np.float32))


def test_loss_is_the_sum_of_one_logistic_regression_per_label(x64):
    model, single = multi_label(6, l2=0.1), logistic_regression(0.1)
    params = model.init(jax.random.key(0), EXAMPLES)
    kernel, bias = params["classifier"]["kernel"], params["classifier"]["bias"] + 0.3
    params = {"classifier": {"kernel": kernel, "bias": bias}}
    expected = sum(
        single.loss(
            {"weights": kernel[:, c], "intercept": bias[c]}, EXAMPLES._replace(y=EXAMPLES.y[:, c])
        )
        for c in range(6)
    )
    np.testing.assert_allclose(model.loss(params, EXAMPLES), expected, rtol=1e-6)
    predicted = model.predictor.metrics(model.predict(params, EXAMPLES), EXAMPLES)
    plain = multi_label(6)
    for name, values in plain.measure(params, EXAMPLES).items():
        np.testing.assert_allclose(predicted[name], values, rtol=1e-6)


@pytest.mark.parametrize("k", [1, 2, 5, 6])
def test_recall_counts_labels_among_the_first_k(k):
    model = multi_label(6, k=k)
    params = model.init(jax.random.key(0), EXAMPLES)
    examples = EXAMPLES._replace(x=EXAMPLES.x.astype(np.float32))
    logits = np.asarray(model.logits(params, examples))
    first = np.argsort(-logits, axis=1)[:, :k]
    hits = np.take_along_axis(EXAMPLES.y, first, axis=1).sum(1)
    expected = hits / np.maximum(EXAMPLES.y.sum(1), 1)
    found = jax.jit(model.measure)(params, jax.tree.map(jnp.asarray, examples))
    np.testing.assert_allclose(found[f"recall_at_{k}"], expected, rtol=1e-6)
    assert hf.metrics.greater_is_better(f"recall_at_{k}")


def test_ties_and_examples_without_labels_find_nothing():
    model = multi_label(3, k=2, init="zeros")
    examples = hf.Examples(np.ones((2, 1), np.float32), np.array([[1, 1, 1], [0, 0, 0]]))
    params = model.init(jax.random.key(0), examples)
    assert model.measure(params, examples)["recall_at_2"].tolist() == [0, 0]
    np.testing.assert_allclose(model.loss(params, examples), 3 * np.log(2), rtol=1e-6)


def test_constants_bound_the_hessian(x64):
    model = multi_label(2, k=1, l2=0.2)
    examples = EXAMPLES._replace(y=EXAMPLES.y[:, :2])
    bent = hf.diagnose.curvature(model, hf.data.partition.iid(examples, clients=1))
    zero, unravel = ravel_pytree(model.init(jax.random.key(0), examples))
    hessian = jax.jit(jax.hessian(lambda w: jnp.mean(model.loss(unravel(w), examples))))(0 * zero)
    # At zero every probability is 1/2: the bound is sharp.
    assert bent.exact
    assert np.linalg.eigvalsh(hessian)[-1] == pytest.approx(bent.smoothness[0], rel=1e-9)
    assert bent.convexity[0] == 0.2


@pytest.mark.parametrize(
    ("y", "says"),
    [(np.zeros(20, int), r"shape is \(20,\)"), (np.full((20, 6), 2), "other values than 0 and 1")],
)
def test_labels_of_another_kind_are_refused(y, says):
    with pytest.raises(hf.HoldfastError, match=says):
        multi_label(6).check(EXAMPLES._replace(y=y))
    with pytest.raises(hf.HoldfastError, match="k=7; give"):
        multi_label(6, k=7)


def test_stack_overflow_is_trained_from_a_file(folder, tmp_path):  # noqa: F811
    text = f"""rounds = 3
    metric = "recall_at_1"
    target = 0.5
    [data]
    name = "stack_overflow"
    words = 3
    tags = 2
    folder = "{folder}"
    verify = false
    [partition]
    name = "natural"
    [model]
    name = "multi_label"
    k = 1
    init = "zeros"
    [local]
    learning_rate = 10.0
    epochs = 5
    [evaluate]
    train = true
    personal = true
    [[algorithm]]
    name = "fedavg"
    """
    (tmp_path / "tags.toml").write_text(text)
    made = study(read(tmp_path / "tags.toml"))
    run = hf.simulate(made.experiment(made.methods[0], 0), rounds=made.rounds)
    # Words tell the tags: three of the four posts have one, which is found.
    assert run.history["train_recall_at_1"][-1] == 0.75
    assert run.history["recall_at_1"][-1] == 1
    assert np.diff(run.history["train_loss"]).max() < 0
