"""A module as a model: its tree, its losses and gradients, what is measured, what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
import holdfast.torch
from holdfast.models.foreign import ForeignError
from holdfast.record.identity import describe
from tests.problems import largest_difference, same_bits
from tests.torch.networks import (
    CLASSES,
    CLIENTS,
    DATA,
    FEATURES,
    NETWORK,
    network,
    network_in_torch,
    torch,
)

nn = torch.nn
LOCAL = hf.Local(0.1, batch_size=4)


def begun(model, data=DATA, seed=0):
    return model.init(jax.random.key(seed), data)


def simulate(model, algorithm=None, rounds=1, **settings):
    algorithm = algorithm or hf.algorithms.fedavg()
    return hf.simulate(algorithm, model, CLIENTS, LOCAL, rounds, **settings)


def test_parameters_are_a_tree_by_the_modules_names():
    module = network()
    params = begun(holdfast.torch.model(module, classes=CLASSES))
    assert set(params) == {"0", "2"}
    assert same_bits(params["2"]["weight"], module[2].weight.detach().numpy())
    # The module is its owner's: whatever becomes of it, the model has its own.
    model = holdfast.torch.model(module, classes=CLASSES)
    before = begun(model)
    with torch.no_grad():
        module[2].weight.zero_()
    module.eval()
    assert same_bits(before, begun(model))


def test_loss_gradient_and_metrics_are_pytorchs():
    module = network()
    model = holdfast.torch.model(module, classes=CLASSES)
    params = begun(model)
    x, y = torch.tensor(np.asarray(DATA.x)), torch.tensor(np.asarray(DATA.y), dtype=torch.int64)
    losses = nn.functional.cross_entropy(module(x), y, reduction="none")
    losses.mean().backward()
    np.testing.assert_allclose(model.loss(params, DATA), losses.detach(), rtol=1e-5)
    found = jax.grad(lambda p: jnp.mean(model.loss(p, DATA)))(params)
    np.testing.assert_allclose(found["0"]["weight"], module[0].weight.grad, atol=1e-6)
    np.testing.assert_allclose(found["2"]["bias"], module[2].bias.grad, atol=1e-6)
    np.testing.assert_allclose(model.logits(params, DATA), module(x).detach(), rtol=1e-5)
    odds = torch.softmax(module(x), 1).detach()
    np.testing.assert_allclose(model.predict(params, DATA), odds, atol=1e-6)
    right = (odds.argmax(1) == y).float()
    np.testing.assert_array_equal(model.measure(params, DATA)["accuracy"], right)


def test_evaluators_measure_what_they_do_of_the_same_network_in_jax():
    evaluate = [
        hf.evaluate.on(DATA, metrics=["brier"]),
        hf.evaluate.personal(CLIENTS, name="own", adapt=hf.Local(0.1, steps=2)),
        hf.evaluate.client_average(DATA, name="mean"),
        hf.diagnose.dissimilarity(),
    ]
    server = hf.Server(DATA, hf.Local(0.05, steps=1))
    theirs, ours = (
        simulate(model, hf.algorithms.feddyn(0.1), 2, evaluate=evaluate, server=server)
        for model in (NETWORK, network_in_torch())
    )
    measured = [n for n in theirs.history.columns if "seconds" not in n]
    assert {"brier", "own_personal_loss", "mean_average_loss", "G2_mixed"} <= set(measured)
    for name in measured:
        np.testing.assert_allclose(ours.history[name], theirs.history[name], rtol=1e-3, atol=1e-5)


def test_dropout_follows_the_seed_and_is_off_in_evaluation():
    module = nn.Sequential(nn.Linear(FEATURES, 16), nn.Dropout(0.5), nn.Linear(16, CLASSES))
    model = holdfast.torch.model(module, classes=CLASSES)
    params, keys = begun(model), [jax.random.key(k) for k in (0, 0, 1)]
    first, again, other = (model.loss(params, DATA, key) for key in keys)
    assert same_bits(first, again)
    assert not same_bits(first, other)
    assert same_bits(model.loss(params, DATA), model.loss(params, DATA))
    outside = torch.random.get_rng_state()
    runs = [simulate(model, seed=seed, rounds=2) for seed in (0, 0, 1)]
    assert torch.equal(outside, torch.random.get_rng_state())
    assert same_bits(runs[0].params, runs[1].params)
    assert largest_difference(runs[0].params, runs[2].params) > 1e-3


def test_what_was_trained_is_a_module_again():
    model = network_in_torch()
    run = simulate(model)
    found = holdfast.torch.module(model, run.params)
    x = torch.tensor(np.asarray(DATA.x))
    np.testing.assert_allclose(found(x).detach(), model.logits(run.params, DATA), atol=1e-6)
    assert not found.training
    # The model's own stays as it was.
    assert largest_difference(begun(model), NETWORK.init(jax.random.key(0), DATA)) == 0
    with pytest.raises(hf.HoldfastError, match="give parameters of this model"):
        holdfast.torch.module(model, {"classifier": run.params["classifier"]})
    with pytest.raises(hf.HoldfastError, match="not one of PyTorch"):
        holdfast.torch.module(NETWORK, run.params)


def test_a_function_makes_a_module_for_every_seed():
    model = holdfast.torch.model(network, classes=CLASSES)
    outside = torch.random.get_rng_state()
    assert same_bits(begun(model, seed=4), begun(model, seed=4))
    assert largest_difference(begun(model, seed=4), begun(model, seed=5)) > 1e-3
    assert torch.equal(outside, torch.random.get_rng_state())
    run = simulate(model, params=begun(model, seed=4))
    assert largest_difference(run.params, begun(model, seed=4)) > 1e-3


def test_parameters_without_a_gradient_stay_with_the_module():
    module = network()
    module[0].requires_grad_(False)
    model = holdfast.torch.model(module, classes=CLASSES)
    run = simulate(model)
    assert set(run.params) == {"2"}
    assert run.ledger.entries[0].bytes_up == 4 * 4 * (4 * CLASSES + CLASSES)
    other = network()
    other[0].requires_grad_(False)
    assert describe(model) != describe(holdfast.torch.model(other, classes=CLASSES))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up = nn.Linear(FEATURES, 4, bias=False), nn.Linear(4, FEATURES, bias=False)
        self.up.weight = nn.Parameter(torch.ones(FEATURES, 4))
        self.again = self.down

    def forward(self, x):
        return self.up(torch.relu(self.again(x)))


def test_a_parameter_of_two_names_is_one():
    squares = hf.Examples(DATA.x, DATA.x)
    model = holdfast.torch.model(Tied(), lambda found, y: ((found - y) ** 2).sum(1))
    params = begun(model, squares)
    assert set(params) == {"down", "up"}
    slope = jax.grad(lambda p: jnp.mean(model.loss(p, squares)))(params)
    assert np.abs(slope["down"]["weight"]).max() > 1e-3


def test_numbers_in_64_bits(x64):
    data = hf.Examples(np.asarray(DATA.x, np.float64), DATA.y)
    clients = hf.Clients.from_rows(data, [CLIENTS.rows(i) for i in range(len(CLIENTS))])
    same = holdfast.torch.like(NETWORK, data, network(), classes=CLASSES)
    theirs, ours = (
        hf.simulate(hf.algorithms.scaffold(), model, clients, LOCAL, 2, seed=1)
        for model in (NETWORK, same)
    )
    assert ours.params["classifier"]["kernel"].dtype == np.float64
    assert largest_difference(theirs.params, ours.params) < 1e-13
    plain = holdfast.torch.model(network(), classes=CLASSES)
    assert begun(plain, data)["0"]["weight"].dtype == np.float64


def test_data_in_64_bits_is_taken_in_32():
    data = hf.Examples(np.asarray(DATA.x, np.float64), np.asarray(DATA.y, np.int64))
    model = network_in_torch()
    params = begun(model)
    found = [simulate(model, evaluate=hf.evaluate.on(d)).history["loss"][0] for d in (DATA, data)]
    assert found[0] == found[1]
    assert (
        begun(holdfast.torch.model(network().double(), classes=3))["0"]["weight"].dtype == "float32"
    )
    assert model.loss(params, data).dtype == "float32"


def test_what_a_run_is_known_by_tells_modules_and_losses_apart():
    class Wider(nn.Module):
        def __init__(self, power):
            super().__init__()
            self.inside, self.power = nn.Linear(FEATURES, CLASSES), power

        def forward(self, x):
            return self.inside(x) ** 2

    class Other(Wider):
        def forward(self, x):
            return self.inside(x) ** 3

    Other.__name__ = Other.__qualname__ = "Wider"
    tanh = nn.Sequential(nn.Linear(FEATURES, 4), nn.Tanh(), nn.Linear(4, CLASSES))
    models = [
        holdfast.torch.model(network(), classes=CLASSES),
        holdfast.torch.model(tanh, classes=CLASSES),
        holdfast.torch.model(network(), nn.CrossEntropyLoss(reduction="none"), CLASSES),
        holdfast.torch.model(
            network(), nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1), CLASSES
        ),
        holdfast.torch.model(
            network(), nn.CrossEntropyLoss(torch.ones(CLASSES), reduction="none"), CLASSES
        ),
        holdfast.torch.model(network(), lambda found, y: found[:, 0] * y),
        holdfast.torch.model(Wider(1), classes=CLASSES),
        holdfast.torch.model(Other(1), classes=CLASSES),
    ]
    assert len({describe(model) for model in models}) == len(models)
    assert describe(models[0]) == describe(holdfast.torch.model(network(), classes=CLASSES))
    assert "0x" not in "".join(describe(model) for model in models)


def mean_loss(found, y):
    return nn.functional.cross_entropy(found, y)


REFUSED = {
    "batch normalisation": (
        lambda: holdfast.torch.model(nn.Sequential(nn.BatchNorm1d(FEATURES)), classes=FEATURES),
        "buffers beside its parameters, 0.running_mean.*GroupNorm",
    ),
    "nothing to learn": (lambda: holdfast.torch.model(nn.ReLU(), classes=3), "no parameters"),
    "half precision": (
        lambda: holdfast.torch.model(network().bfloat16(), classes=3),
        "`0.weight` is of type bfloat16",
    ),
    "not initialised": (lambda: holdfast.torch.model(nn.LazyLinear(3), classes=3), "not known yet"),
    "no module": (lambda: holdfast.torch.model("mlp", classes=3), "module is a str"),
    "a function of no module": (lambda: holdfast.torch.model(lambda: 3, classes=3), "is a int"),
    "a loss by name": (lambda: holdfast.torch.model(network(), "mse"), "loss='mse'"),
    "no classes": (lambda: holdfast.torch.model(network()), "classes=None"),
    "a mean for a loss": (
        lambda: simulate(holdfast.torch.model(network(), mean_loss, CLASSES)),
        "has shape \\(\\); return one value per example",
    ),
    "other inputs": (
        lambda: simulate(holdfast.torch.model(nn.Linear(FEATURES + 1, CLASSES), classes=CLASSES)),
        "cannot take a batch of",
    ),
    "other outputs": (
        lambda: simulate(
            holdfast.torch.model(nn.Linear(FEATURES, 7), classes=CLASSES),
            evaluate=hf.evaluate.on(DATA),
        ),
        "one logit per class",
    ),
    "labels beyond the classes": (
        lambda: simulate(holdfast.torch.model(network(), classes=2)),
        "found 0..2",
    ),
    "a compiled engine": (
        lambda: simulate(network_in_torch(), engine=hf.CompiledEngine(devices=1)),
        "leave engine out",
    ),
    "operations": (
        lambda: simulate(network_in_torch(), evaluate=hf.diagnose.flops()),
        "whose operations are not seen",
    ),
    "curvature": (
        lambda: hf.diagnose.curvature(network_in_torch(), CLIENTS),
        "cannot differentiate again",
    ),
    "an ensemble": (
        lambda: hf.flix.ensemble(network_in_torch(), None, 0.5),
        "cannot differentiate",
    ),
}


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_line(name):
    make, words = REFUSED[name]
    with pytest.raises(hf.HoldfastError, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_no_program_and_no_second_derivative_of_a_module():
    model = network_in_torch()
    params = begun(model)
    with pytest.raises(ForeignError, match="Sequential: another framework"):
        jax.jit(model.loss)(params, DATA)
    with pytest.raises(ForeignError, match="JAX cannot"):
        jax.grad(lambda p: jnp.sum(model.logits(p, DATA)))(params)
    both = jax.tree.map(lambda p: np.stack([p, p]), params)
    with pytest.raises(ForeignError, match=r"instead of jax\.vmap"):
        jax.vmap(model.loss, (0, None))(both, DATA)
