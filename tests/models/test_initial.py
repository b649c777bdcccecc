"""How parameters begin: PyTorch's distributions by their definition, zeros, and flax's own."""

import jax
import numpy as np
import pytest
from scipy import stats

import holdfast as hf
from holdfast import models
from holdfast.config.build import study
from holdfast.config.file import read
from holdfast.trees import describe_shapes, paths

IMAGES = hf.Examples(np.zeros((2, 32, 32, 3), np.float32), np.array([0, 1]))
FLAT = hf.Examples(np.zeros((2, 300), np.float32), np.array([0, 1]))
IDS = hf.Examples(np.array([[1, 2, 3]]), np.array([1]))
TEXT = hf.Examples(np.array([[0, 1]]), np.array([[1, 0]]))
MAKE = {
    "mlp": (lambda init: models.mlp([200], 10, init=init), FLAT),
    "softmax": (lambda init: models.softmax_regression(10, init=init), FLAT),
    "binary": (lambda init: models.binary_mlp([200], init=init), FLAT),
    "regression": (lambda init: models.mlp_regression([200], init=init), FLAT),
    "logistic": (lambda init: models.logistic_regression(0.1, init=init), FLAT),
    "squares": (lambda init: models.least_squares(init=init), FLAT),
    "cnn": (lambda init: models.cnn(10, init=init), IMAGES),
    "vgg11": (lambda init: models.vgg11(10, init=init), IMAGES),
    "resnet8": (lambda init: models.resnet8(10, init=init), IMAGES),
    "gru": (lambda init: models.gru(60, 40, 128, init=init), TEXT),
    "lstm": (lambda init: models.lstm(60, 40, 128, init=init), IDS),
    "dual": (lambda init: models.dual_encoder(500, init=init), IDS),
}


def begun(name, init, key=0):
    make, examples = MAKE[name]
    params = make(init).init(jax.random.key(key), examples)
    return dict(zip(paths(params), map(np.asarray, jax.tree.leaves(params)), strict=True))


def fits(values, distribution):
    """Whether many values may be drawn from it; of few, whether they lie in its support."""
    low, high = distribution.support()
    assert (np.abs(values) <= max(-low, high) * (1 + 1e-6)).all()
    if values.size >= 100:
        assert stats.kstest(values.ravel()[:5000], distribution.cdf).pvalue > 1e-3
        assert values.std() == pytest.approx(distribution.std(), rel=4 / np.sqrt(values.size))


def uniform(fan_in):
    return stats.uniform(-1 / np.sqrt(fan_in), 2 / np.sqrt(fan_in))


@pytest.mark.parametrize("name", MAKE)
def test_torch_draws_by_fan_in(name):
    found = begun(name, "torch")
    for path, leaf in found.items():
        layer, _, kind = path.rpartition("/")
        if kind in ("embedding", "table"):
            fits(leaf, stats.norm())
        elif "norm" in layer:
            np.testing.assert_array_equal(leaf, float(kind == "scale"))
        elif kind in ("weights", "intercept"):
            fits(leaf, uniform(300))
        elif name in ("gru", "lstm") and layer != "classifier":
            if kind != "bias":
                fits(leaf, uniform(128))
                continue
            # PyTorch adds two biases; a GRU's candidate keeps them apart.
            alone = 128 if name == "gru" else 0
            two = stats.triang(0.5, -2 / np.sqrt(128), 4 / np.sqrt(128))
            fits(leaf[: leaf.size - alone], two)
            if alone:
                fits(leaf[-alone:], uniform(128))
        else:
            fits(leaf, uniform(np.prod(found[f"{layer}/kernel"].shape[:-1])))
    again, other = begun(name, "torch"), begun(name, "torch", key=1)
    assert all((again[path] == found[path]).all() for path in found)
    drawn = [path for path in found if found[path].std() > 0]
    assert all((other[path] != found[path]).any() for path in drawn)
    # No two leaves share their numbers.
    first = [found[path].ravel()[0] / found[path].std() for path in drawn if found[path].size > 1]
    assert len(set(first)) == len(first)


@pytest.mark.parametrize("name", MAKE)
def test_zeros_and_the_shapes_of_flax(name):
    make, examples = MAKE[name]
    zeros = make("zeros").init(jax.random.key(0), examples)
    own = jax.eval_shape(make("flax").init, jax.random.key(0), examples)
    assert describe_shapes(zeros) == describe_shapes(own)
    assert not any(leaf.any() for leaf in jax.tree.leaves(zeros))
    # What the loss is of does not depend on where one begins.
    assert make("torch").loss == make("flax").loss
    assert make("torch") != make("flax") != make("zeros")


def test_flax_is_the_model_as_it_was_and_the_default_of_networks():
    for name in ("mlp", "cnn", "gru", "dual"):
        make, _ = MAKE[name]
        assert "initialised" not in make("flax").name
    assert models.mlp([200], 10) is models.mlp([200], 10, init="flax")
    assert models.logistic_regression(0.1) is models.logistic_regression(0.1, init="zeros")
    weights = begun("logistic", "flax")["weights"]
    assert weights.std() == pytest.approx(300**-0.5, rel=0.1)


def test_the_same_start_in_64_bits(x64):
    make, examples = MAKE["mlp"]
    wide = make("torch").init(jax.random.key(0), examples._replace(x=examples.x.astype("f8")))
    narrow = make("torch").init(jax.random.key(0), examples)
    for a, b in zip(jax.tree.leaves(wide), jax.tree.leaves(narrow), strict=True):
        assert a.dtype == np.float64
        np.testing.assert_array_equal(a, b)


def test_what_is_not_known_is_refused():
    with pytest.raises(hf.HoldfastError, match=r"init='kaiming' is not known; give one of 'flax'"):
        models.mlp([4], 2, init="kaiming")
    own = models.from_apply(lambda key, x: {"w": np.zeros(3)}, lambda w, x: x, 2)
    with pytest.raises(hf.HoldfastError, match=r"init='torch': the parameter `w` has none"):
        models.initialised(own, "torch").init(jax.random.key(0), FLAT)


def test_files_may_ask_for_it(tmp_path):
    text = """rounds = 1
    [data]
    name = "digits"
    [partition]
    name = "iid"
    clients = 2
    [model]
    name = "softmax_regression"
    init = "zeros"
    l2 = 0.1
    [local]
    learning_rate = 0.1
    [[algorithm]]
    name = "fedavg"
    """
    path = tmp_path / "zeros.toml"
    path.write_text(text)
    made = study(read(path))
    assert made.model is models.softmax_regression(10, l2=0.1, init="zeros")


def test_torch_itself_draws_alike():
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    theirs = {
        "dense_0/kernel": torch.nn.Linear(1600, 384).weight,
        "dense_0/bias": torch.nn.Linear(1600, 384).bias,
        "convolution_1/kernel": torch.nn.Conv2d(64, 64, 5).weight,
    }
    ours = begun("cnn", "torch")
    for path, tensor in theirs.items():
        drawn = tensor.detach().numpy().ravel()
        assert stats.ks_2samp(drawn[:5000], ours[path].ravel()[:5000]).pvalue > 1e-3
    gru, found = torch.nn.GRU(40, 128), begun("gru", "torch")
    gates = (gru.bias_ih_l0 + gru.bias_hh_l0).detach().numpy()[:256]
    for drawn, leaf in (
        (gru.weight_ih_l0.detach().numpy(), found["input/kernel"]),
        (gru.weight_hh_l0.detach().numpy(), found["recurrent"]),
        (gates, found["input/bias"][:256]),
    ):
        assert stats.ks_2samp(drawn.ravel()[:5000], leaf.ravel()[:5000]).pvalue > 1e-3


def test_shapes_can_be_asked_for_without_drawing():
    """As `holdfast run --dry-run` does to count parameters."""
    train, _ = hf.data.digits()
    model = hf.models.mlp([5], classes=10, init="torch")
    shapes = jax.eval_shape(model.init, jax.random.key(0), train)
    drawn = model.init(jax.random.key(0), train)
    assert jax.tree.map(lambda p: p.shape, shapes) == jax.tree.map(lambda p: p.shape, drawn)
