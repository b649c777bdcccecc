"""FedPVR's networks against the authors' own, and FedDyn's ResNet-18."""

import re
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import tree

import holdfast as hf
from holdfast.models import resnet8, resnet18, vgg11

GOLDEN = Path(__file__).parents[1] / "claims" / "golden"
# Each implementation of convolution once: by patches ResNet-8 would compile for ten seconds.
CASES = [("VGG_11", vgg11(10)), ("resnet8", resnet8(10, convolution="xla"))]


def images(side=32, dtype=np.float32):
    return hf.Examples(np.zeros((1, side, side, 3), dtype), np.zeros(1, np.int32))


def number_of_parameters(model, side=32):
    params = jax.eval_shape(lambda: model.init(jax.random.key(0), images(side)))
    return sum(leaf.size for leaf in tree.leaves(params))


def authors_weights(z):
    """Drawn as the oracle's README says, in PyTorch's names and layout."""
    weights = {}
    for k, (name, shape) in enumerate(zip(z["param_names"], z["param_shapes"], strict=True)):
        shape = tuple(int(n) for n in re.findall(r"\d+", shape))
        r = np.random.RandomState(int(z["weight_seed"]) + k).standard_normal(shape)
        if len(shape) > 1:
            weights[name] = r * np.sqrt(2 / np.prod(shape[1:]))
        elif "bn" in name or "downsample.1" in name:
            weights[name] = 1 + 0.1 * r if name.endswith("weight") else 0.1 * r
        else:
            weights[name] = 0.05 * r
    return weights


def our_path(name):
    """Where our networks keep a PyTorch parameter."""
    module, leaf = name.rsplit(".", 1)
    features = {
        f"features.{n}": f"convolution_{i}" for i, n in enumerate((0, 3, 6, 8, 11, 13, 16, 18))
    }
    dense = {"intermediate_classifier.1": "dense_0", "intermediate_classifier.4": "dense_1"}
    stem = {"conv1": "convolution_0", "bn1": "norm_0", "classifier": "classifier"}
    layers = {
        "conv1": "convolution_0",
        "conv2": "convolution_1",
        "bn1": "norm_0",
        "bn2": "norm_1",
        "downsample.0": "shortcut",
        "downsample.1": "shortcut_norm",
    }
    leaf = {"weight": "scale" if "norm" in str(stem.get(module)) else "kernel"}.get(leaf, leaf)
    if module.startswith("layer"):
        stage, block, layer = module.removeprefix("layer").split(".", 2)
        leaf = "scale" if leaf == "kernel" and "norm" in layers[layer] else leaf
        return f"stage_{int(stage) - 1}_block_{block}/{layers[layer]}/{leaf}"
    return f"{(features | dense | stem)[module]}/{leaf}"


def our_layout(weight):
    """Kernels as (height, width, in, out) and (in, out)."""
    return weight.transpose(2, 3, 1, 0) if weight.ndim == 4 else weight.T


def load(name):
    with np.load(GOLDEN / f"official_arch_{name}_cifar10.npz") as stored:
        z = dict(stored)
    ours = {our_path(n): our_layout(w).astype(np.float32) for n, w in authors_weights(z).items()}
    x = z["x"].transpose(0, 2, 3, 1)
    return z, ours, hf.Examples(jnp.asarray(x), jnp.asarray(z["y"].astype(np.int32)))


@pytest.mark.parametrize(("name", "model"), CASES)
def test_logits_loss_and_gradient_are_those_of_the_authors_network(name, model):
    z, weights, batch = load(name)
    assert number_of_parameters(model) == z["n_params"]
    like = jax.eval_shape(lambda: model.init(jax.random.key(0), images()))
    assert set(hf.trees.paths(like)) == set(weights)
    params = tree.structure(like).unflatten([weights[path] for path in hf.trees.paths(like)])

    @jax.jit
    def results(params, batch):
        def loss(params):
            return jnp.mean(model.measure(params, batch)["loss"])

        value, slopes = jax.value_and_grad(loss)(params)
        return (
            value,
            tree.map(jnp.linalg.norm, tree.map(jnp.ravel, slopes)),
            model.predictor.predict(params, batch),
        )

    value, norms, probabilities = results(params, batch)
    assert value == pytest.approx(float(z["loss"]), rel=1e-5)
    expected = jax.nn.log_softmax(z["logits"])
    np.testing.assert_allclose(np.log(probabilities), expected, rtol=1e-4, atol=1e-4)
    norms = dict(zip(hf.trees.paths(norms), tree.leaves(norms), strict=True))
    found = [norms[our_path(n)] for n in z["param_names"]]
    np.testing.assert_allclose(found, z["grad_norms"], rtol=1e-4)


def test_resnet18_has_as_many_parameters_as_feddyns():
    assert number_of_parameters(resnet18(10)) == 11_181_642  # torchvision's with 10 classes
    smaller_stem = 64 * 3 * (7 * 7 - 3 * 3)
    assert number_of_parameters(resnet18(10, stem="cifar"), side=8) == 11_181_642 - smaller_stem


def test_layers_are_easy_to_mask():
    def masked(model, beginnings):
        params = jax.eval_shape(lambda: model.init(jax.random.key(0), images()))
        return sum(path.startswith(beginnings) for path in hf.trees.paths(params))

    assert masked(vgg11(10), ("dense", "classifier")) == 6
    assert masked(resnet8(10), ("classifier",)) == 2


@pytest.mark.parametrize("make", [vgg11, resnet8, resnet18])
def test_equal_settings_give_the_same_model_and_impossible_ones_are_refused(make):
    assert make(10) is make(classes=10, convolution="auto")
    assert make(10) is not make(10, convolution="xla")
    with pytest.raises(hf.HoldfastError, match="classes=1"):
        make(1)
    with pytest.raises(hf.HoldfastError, match="convolution='fast' is not known"):
        make(10, convolution="fast")
    with pytest.raises(hf.HoldfastError, match="move channels last"):
        make(10).check(hf.Examples(np.zeros((5, 3, 32, 32)), np.zeros(5, int)))


def test_other_impossible_settings_are_refused():
    with pytest.raises(hf.HoldfastError, match="dropout=1"):
        vgg11(10, dropout=1)
    with pytest.raises(hf.HoldfastError, match="stem='mnist'"):
        resnet18(10, stem="mnist")
