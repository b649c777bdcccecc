"""The small convolutional networks: shapes, dropout, augmentation, and what they refuse."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import tree
from scipy import ndimage

import holdfast as hf
from holdfast.config.build import study
from holdfast.config.file import read
from holdfast.config.population import make_model
from holdfast.core.keys import Purpose, client_key, round_key
from holdfast.models import augmented, cnn, cnn_fsl_cifar10, cnn_fsl_emnist, resnet8, vgg11
from holdfast.models.images import Change, change, turned
from tests.problems import largest_difference, same_bits

SMALL = {"channels": (2, 3), "dense": (4,), "kernel": 3, "padding": "SAME"}
DROPPING = cnn(3, **SMALL, dropout=(0.25, 0.5))


def images(*shape, dtype=np.float32):
    rng = np.random.default_rng(0)
    return hf.Examples(rng.normal(size=shape).astype(dtype), rng.integers(0, 3, shape[0], np.int32))


BATCH = tree.map(jnp.asarray, images(6, 8, 8, 1))


@pytest.mark.parametrize(
    ("model", "shape", "parameters"),
    [
        (cnn(10), (32, 32, 3), 797_962),  # FedDyn's CIFAR-10: 4864 + 102464 + 614784 + 73920 + 1930
        (cnn(10), (28, 28, 1), 573_578),
        (cnn(100), (32, 32, 3), 815_332),  # FedDyn's and FSL's CIFAR-100
        (cnn_fsl_cifar10(), (32, 32, 3), 545_098),
        (cnn_fsl_emnist(), (28, 28, 1), 1_630_381),
        (vgg11(100), (32, 32, 3), 9_797_092),  # FedPVR's CIFAR-100
        (resnet8(100), (32, 32, 3), 83_892),
    ],
)
def test_the_papers_networks_have_their_number_of_parameters(model, shape, parameters):
    begun = jax.eval_shape(lambda: model.init(jax.random.key(0), images(1, *shape)))
    assert sum(leaf.size for leaf in tree.leaves(begun)) == parameters


def test_names_stand_for_the_layers_that_the_paper_prints():
    layers = {"channels": (32, 64), "dense": (128,), "kernel": 3, "padding": "SAME"}
    dropped = {"dropout": (0.25, 0.5), "init": "torch"}
    pairs = (
        (cnn_fsl_emnist(45, init="torch"), cnn(45, **layers, pool="last", **dropped)),
        (cnn_fsl_cifar10(10, init="torch"), cnn(10, **layers, **dropped)),
    )
    # They differ in the name they are saved by, and in no program.
    for named, spelt in pairs:
        assert (named, hash(named), repr(named)) == (spelt, hash(spelt), repr(spelt))


def test_patches_and_xla_train_the_same_network(x64):
    batch = tree.map(jnp.asarray, images(6, 8, 8, 1, dtype=np.float64))
    begun = cnn(3, **SMALL).init(jax.random.key(0), batch)

    @jax.jit
    def both(params, batch):
        return [
            jax.value_and_grad(lambda p, m=m: m.loss(p, batch, jax.random.key(0)).mean())(params)
            for m in (cnn(3, **SMALL, convolution=by) for by in ("patches", "xla"))
        ]

    assert {leaf.dtype for leaf in tree.leaves(begun)} == {np.dtype("float64")}
    assert largest_difference(*both(begun, batch)) < 1e-12


def test_whole_numbers_are_divided_by_255():
    model, whole = (
        cnn(3, **SMALL),
        np.random.default_rng(0).integers(0, 256, (4, 8, 8, 1), np.uint8),
    )
    y = jnp.zeros(4, jnp.int32)
    params = model.init(jax.random.key(0), hf.Examples(whole, y))
    measure = jax.jit(model.measure)
    found = measure(params, hf.Examples(jnp.asarray(whole), y))
    expected = measure(params, hf.Examples(jnp.asarray(whole / np.float32(255)), y))
    np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-5)


def test_dropout_acts_in_training_only_and_by_round_client_and_step():
    params = DROPPING.init(jax.random.key(0), BATCH)
    loss = jax.jit(DROPPING.loss)

    def at(t, client, step):
        key = client_key(round_key(0, t), jnp.asarray(client), Purpose.LOSS)
        return loss(params, BATCH, jax.random.fold_in(key, step)).tolist()

    places = [(0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 0)]
    evaluated = jax.jit(DROPPING.measure)(params, BATCH)["loss"]
    without = jax.jit(cnn(3, **SMALL).loss)(params, BATCH, jax.random.key(0))
    np.testing.assert_allclose(evaluated, without, rtol=1e-5)
    assert len({tuple(at(*place)) for place in places} | {tuple(evaluated.tolist())}) == 5
    assert at(0, 1, 0) == at(0, 1, 0)


def test_a_run_with_dropout_and_augmentation_is_reproducible_and_differs_between_equal_clients():
    model, once = augmented(DROPPING, crop=1), images(6, 8, 8, 1)
    twice = hf.Examples(*(np.concatenate([a, a]) for a in once))
    clients = hf.data.partition.by(twice, np.repeat([0, 1], 6))

    def run(client):
        return hf.simulate(
            hf.algorithms.fedavg(),
            model,
            clients,
            hf.Local(0.1, steps=2, batch_size=4, shuffle=False),
            rounds=1,
            cohort=hf.cohorts.schedule([[client]]),
            seed=3,
        ).params

    first, again, other = run(0), run(0), run(1)
    assert same_bits(first, again)
    assert largest_difference(first, other) > 1e-4


def test_images_are_mirrored_and_moved():
    x = np.arange(1, 2 * 3 * 4 + 1, dtype=np.float32).reshape(1, 3, 4, 2)
    many = jnp.asarray(np.repeat(x, 400, axis=0))
    wide = np.pad(x[0], ((1, 1), (1, 1), (0, 0)))
    moves = [wide[i : i + 3, j : j + 4] for i in range(3) for j in range(3)]
    mirrored = np.pad(x[0, :, ::-1], ((1, 1), (1, 1), (0, 0)))
    moves += [mirrored[i : i + 3, j : j + 4] for i in range(3) for j in range(3)]
    found = np.asarray(
        jax.jit(change, static_argnums=2)(many, jax.random.key(0), Change(0.5, 1, 0.5))
    )
    counts = np.array([sum(np.array_equal(image, move) for image in found) for move in moves])
    assert counts.sum() == 400
    assert (counts > 0).all()
    # FedPVR crops always.
    always = jax.jit(change, static_argnums=2)(many, jax.random.key(0), Change(0.0, 1, 1.0))
    unmoved = np.mean([np.array_equal(image, x[0]) for image in np.asarray(always)])
    np.testing.assert_allclose(unmoved, 1 / 9, atol=0.05)
    np.testing.assert_allclose(counts[[4, 13]].sum() / 400, 0.5 + 0.5 / 9, atol=0.08)
    np.testing.assert_allclose(counts[:9].sum() / 400, 0.5, atol=0.08)


def test_images_are_turned():
    x = np.random.default_rng(0).random((7, 7, 2)).astype(np.float32)
    turn = jax.jit(turned)
    for quarters in range(4):
        found = turn(x, np.float32(quarters * np.pi / 2))
        np.testing.assert_allclose(found, np.rot90(x, quarters), atol=1e-4)
    # Between the pixels, as scipy does it.
    found = turn(x, np.deg2rad(np.float32(30)))
    expected = ndimage.rotate(x, 30, reshape=False, order=1, prefilter=False)
    inside = ndimage.rotate(np.ones_like(x), 30, reshape=False, order=1, prefilter=False) > 0.999
    np.testing.assert_allclose(np.asarray(found)[inside], expected[inside], atol=1e-3)
    images = jnp.asarray(np.repeat(x[None], 50, axis=0))
    by = Change(flip=0.0, crop=0, rotate=20.0)
    many = np.asarray(jax.jit(change, static_argnums=2)(images, jax.random.key(0), by))
    assert len({image.tobytes() for image in many}) == 50
    # The middle stays where it is.
    np.testing.assert_allclose(many[:, 3, 3], np.repeat(x[3, 3][None], 50, 0), atol=1e-3)
    without = jax.jit(change, static_argnums=2)(images, jax.random.key(0), Change(rotate=0.0))
    np.testing.assert_array_equal(
        without, jax.jit(change, static_argnums=2)(images, jax.random.key(0), Change())
    )


def test_files_say_how_images_are_changed(tmp_path):
    text = """rounds = 1
    [data]
    name = "digits"
    [partition]
    name = "iid"
    clients = 2
    [model]
    name = "cnn"
    augment = { crop_probability = 1, rotate = 15.0 }
    [local]
    learning_rate = 0.1
    [[algorithm]]
    name = "fedavg"
    """
    (tmp_path / "e.toml").write_text(text)
    data = hf.data.digits()
    for changes, expected in (
        ([], augmented(cnn(10), crop_probability=1, rotate=15)),
        (["model.augment=true"], augmented(cnn(10))),
        (["model.augment=false"], cnn(10)),
    ):
        file = read(tmp_path / "e.toml", changes)
        assert make_model(file, file.values["model"], data) is expected
    for change_, says in (
        ("model.augment.crop_probability=2", r"crop_probability=2"),
        ("model.augment.spin=2", "unknown key `spin` in \\[model.augment\\]"),
        ("model.augment=3", "`augment` is 3 in \\[model\\]; expected true or false, or a table"),
    ):
        with pytest.raises(hf.HoldfastError, match=says):
            study(read(tmp_path / "e.toml", [change_]))


def test_augmentation_changes_training_only():
    model = cnn(3, **SMALL)
    changed, params = augmented(model), model.init(jax.random.key(0), BATCH)

    @jax.jit
    def losses(params, batch, key):
        found = [augmented(model), augmented(model, flip=0, crop=0), model]
        return [m.loss(params, batch, key) for m in found], changed.measure(params, batch)["loss"]

    (moved, unmoved, plain), evaluated = losses(params, BATCH, jax.random.key(1))
    assert largest_difference(moved, plain) > 1e-3
    assert largest_difference(unmoved, plain) < 1e-6
    assert largest_difference(evaluated, plain) < 1e-6


def test_equal_settings_give_the_same_model():
    assert cnn(10) is cnn(classes=10, channels=[64, 64], dense=[384, 192], dropout=[0, 0])
    assert cnn(10) is not cnn(10, kernel=3)
    assert augmented(cnn(10)) is augmented(cnn(10), flip=0.5)


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((5, 784), r"its shape is \(5, 784\) but CNN takes images of shape \(examples, height"),
        ((5, 3, 32, 32), "of at least 16 x 16 pixels"),
        ((5, 15, 32, 3), "of at least 16 x 16 pixels"),
    ],
)
def test_other_inputs_than_images_are_refused(shape, says):
    with pytest.raises(hf.HoldfastError, match=says):
        cnn(10).check(hf.Examples(np.zeros(shape), np.zeros(5, int)))


@pytest.mark.parametrize(
    "wrong",
    [
        {"classes": 1},
        {"channels": ()},
        {"dense": (0,)},
        {"padding": "FULL"},
        {"pool": "never"},
        {"dropout": (0.5, 1.0)},
        {"convolution": "fast"},
    ],
)
def test_impossible_settings_are_refused(wrong):
    with pytest.raises(hf.HoldfastError, match=f"{next(iter(wrong))}="):
        cnn(**{"classes": 10, **wrong})


def test_impossible_augmentation_is_refused():
    for wrong in ({"flip": 2}, {"crop": -1}, {"crop_probability": -1}, {"rotate": 200}):
        with pytest.raises(hf.HoldfastError, match=f"{next(iter(wrong))}="):
            augmented(cnn(10), **wrong)
    with pytest.raises(hf.HoldfastError, match=r"its shape is \(5, 784\)"):
        augmented(hf.models.mlp([4], 10)).check(hf.Examples(np.zeros((5, 784)), np.zeros(5, int)))
