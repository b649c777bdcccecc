"""One tree for two frameworks: layers are paired by shapes or names, and must compute the same."""

import flax.linen
import jax
import numpy as np
import pytest

import holdfast as hf
import holdfast.torch
from tests.problems import largest_difference
from tests.torch.networks import CLASSES, DATA, FEATURES, NETWORK, network, network_in_torch, torch

nn = torch.nn
DEEP = hf.models.mlp([FEATURES, FEATURES], classes=CLASSES)


def deep():
    wide = nn.Linear(FEATURES, FEATURES), nn.ReLU(), nn.Linear(FEATURES, FEATURES), nn.ReLU()
    return nn.Sequential(*wide, nn.Linear(FEATURES, CLASSES))


def test_it_begins_as_the_model_does():
    keys = [jax.random.key(k) for k in (0, 0, 1)]
    theirs, ours, other = (
        model.init(key, DATA)
        for model, key in zip((NETWORK, network_in_torch(), NETWORK), keys, strict=True)
    )
    assert largest_difference(theirs, ours) == 0
    assert largest_difference(theirs, other) > 0.1


def test_names_choose_where_shapes_leave_a_choice():
    names = {"0": "hidden_0", "2": "hidden_1", "4": "classifier"}
    model = holdfast.torch.like(DEEP, DATA, deep(), classes=CLASSES, names=names)
    params = DEEP.init(jax.random.key(2), DATA)
    np.testing.assert_allclose(model.loss(params, DATA), DEEP.loss(params, DATA), rtol=1e-5)


class Images(flax.linen.Module):
    @flax.linen.compact
    def __call__(self, x):
        x = flax.linen.relu(flax.linen.Conv(2, (3, 2), padding="VALID", name="seen")(x))
        x = flax.linen.GroupNorm(1, name="norm")(x)
        return flax.linen.Dense(CLASSES, name="said")(x.reshape((x.shape[0], -1)))


class ImagesInTorch(nn.Module):
    def __init__(self, channels_last):
        super().__init__()
        self.seen, self.norm = nn.Conv2d(1, 2, (3, 2)), nn.GroupNorm(1, 2, eps=1e-6)
        self.said, self.channels_last = nn.Linear(2 * 2 * 3, CLASSES), channels_last

    def forward(self, x):
        x = self.norm(torch.relu(self.seen(x.permute(0, 3, 1, 2))))
        return self.said((x.permute(0, 2, 3, 1) if self.channels_last else x).flatten(1))


def test_convolutions_and_norms_have_the_axes_of_flax():
    rng = np.random.default_rng(0)
    images = hf.Examples(
        rng.normal(size=(9, 4, 4, 1)).astype(np.float32), rng.integers(0, CLASSES, 9)
    )
    reference = hf.models.from_linen(Images(), classes=CLASSES)
    names = {"seen": "seen", "norm": "norm", "said": "said"}
    model = holdfast.torch.like(reference, images, ImagesInTorch(True), classes=CLASSES)
    params = reference.init(jax.random.key(1), images)
    np.testing.assert_allclose(
        model.loss(params, images), reference.loss(params, images), rtol=1e-4
    )
    # Shapes fit, but the features of an image come in another order.
    with pytest.raises(hf.HoldfastError, match="height, width, channels"):
        holdfast.torch.like(reference, images, ImagesInTorch(False), classes=CLASSES, names=names)


REFUSED = {
    "a choice": (lambda: (DEEP, deep(), None), "several ways to pair"),
    "names exchanged": (
        lambda: (DEEP, deep(), {"0": "hidden_1", "2": "hidden_0", "4": "classifier"}),
        "losses of module and model are",
    ),
    "names missing": (lambda: (DEEP, deep(), {"0": "hidden_1"}), "give each layer"),
    "names of other shapes": (
        lambda: (DEEP, deep(), {"0": "hidden_0", "2": "classifier", "4": "hidden_1"}),
        "give each layer",
    ),
    "another width": (
        lambda: (hf.models.mlp([6], classes=CLASSES), network(), None),
        "no way to pair",
    ),
    "another activation": (
        lambda: (
            NETWORK,
            nn.Sequential(nn.Linear(FEATURES, 4), nn.Tanh(), nn.Linear(4, CLASSES)),
            None,
        ),
        "give the same network and loss",
    ),
    "a model of PyTorch": (lambda: (network_in_torch(), network(), None), "give one of JAX's"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_line(name):
    make, words = REFUSED[name]
    model, module, names = make()
    with pytest.raises(hf.HoldfastError, match=words) as caught:
        holdfast.torch.like(model, DATA, module, classes=CLASSES, names=names)
    assert "\n" not in str(caught.value)
