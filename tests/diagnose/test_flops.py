"""Floating-point operations of clients, against XLA's own count and by hand."""

import dataclasses
import io
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from rich.console import Console

import holdfast as hf
from holdfast.config.build import study
from holdfast.config.file import read
from holdfast.engine.flops import ClientWork, flops
from holdfast.engine.setup import checked
from holdfast.runs import compare
from holdfast.runs.results import MethodResult, Results
from tests.problems import same_bits, tiny_clients


def test_what_xla_counts_where_nothing_is_repeated():
    x, y = np.ones((20, 64), np.float32), np.zeros(20, np.int32)
    model = hf.models.mlp([200, 100], 10)
    batch = hf.Examples(jnp.asarray(x), jnp.asarray(y))
    params = model.init(jax.random.key(0), batch)

    def slope(params):
        return jax.grad(lambda p: jnp.mean(model.loss(p, batch)))(params)

    found = flops(slope, params)
    by_xla = jax.jit(slope).lower(params).cost_analysis()["flops"]
    assert found == pytest.approx(by_xla, rel=0.01)
    # The products: forwards, and twice backwards but for the inputs' gradient.
    products = 2 * 20 * (2 * 64 * 200 + 3 * 200 * 100 + 3 * 100 * 10)
    assert products < found < 1.03 * products


def test_loops_count_as_often_as_they_run_and_convolutions_as_products():
    a = jnp.ones((4, 4))
    once = flops(lambda a: jnp.tanh(a @ a), a)
    assert once == 2 * 64 + 16
    assert flops(lambda a: lax.fori_loop(0, 7, lambda _, b: jnp.tanh(b @ a), a), a) == 7 * once
    longer = flops(lambda a: lax.cond(a[0, 0] > 0, lambda b: b @ b, lambda b: b + 1, a), a)
    assert longer == 2 * 64
    image, kernel = jnp.ones((2, 8, 8, 3)), jnp.ones((3, 3, 3, 5))
    by_hand = 2 * (2 * 6 * 6 * 5) * 27
    for convolve in (hf.models.convolve, lax.conv_general_dilated):
        layout = lax.conv_dimension_numbers(image.shape, kernel.shape, ("NHWC", "HWIO", "NHWC"))

        def one(x, k, convolve=convolve, layout=layout):
            return convolve(x, k, (1, 1), "VALID", dimension_numbers=layout)

        assert flops(one, image, kernel) == by_hand
    with pytest.raises(hf.HoldfastError, match="nobody knows its length"):
        flops(lambda a: lax.while_loop(lambda b: b[0, 0] < 9, lambda b: b @ b, a), a)


def counted(algorithm, model, clients, local, **settings):
    """Millions of operations of each client in a round; nothing is run."""
    setup = checked(hf.Experiment(algorithm, model, clients, local, **settings))
    return ClientWork(setup).of_clients(0, np.arange(len(clients))) / 1e6


def test_a_client_counts_its_own_steps_and_what_its_method_adds():
    clients, model = tiny_clients(), hf.models.softmax_regression(3)
    local = hf.Local(0.1, epochs=1, batch_size=4)
    found = counted(hf.algorithms.fedavg(), model, clients, local)
    # Of 7, 12, 5 and 9 examples there are 2, 3, 2 and 3 batches.
    assert found[0] == found[2] < found[1] == found[3]
    step = found[1] - found[0]
    assert 0 < found[0] - 2 * step < step
    prox = counted(hf.algorithms.fedprox(0.1), model, clients, local)
    # For each of 18 parameters a product and two sums in a step, and in a round the constant in them; for
    # each of the two arrays the strength of the pull with another sign.
    expected = (3 * np.array([2, 3, 2, 3]) + 1) * 18e-6 + 2e-6
    np.testing.assert_allclose(prox - found, expected, rtol=1e-9)
    # A gradient over all data is a pass more.
    assert (counted(hf.algorithms.scaffold(option="I"), model, clients, local) > 1.5 * found).all()


def test_quiet_clients_compute_nothing():
    clients, local = tiny_clients(classes=2), hf.Local(0.1, steps=2)
    flix = hf.algorithms.flix(hf.PerClient([0.0, 0.5, 0.0, 1.0]), hf.algorithms.fedavg())
    found = counted(flix, hf.models.logistic_regression(0.1), clients, local)
    assert (found > 0).tolist() == [False, True, False, True]


MOVIES = hf.Examples(
    np.random.default_rng(0).integers(1, 400, (40, 3)),
    np.random.default_rng(1).integers(1, 400, 40),
)


def test_select_and_the_servers_spreadout_spare_clients_what_mixed_learning_says():
    clients = hf.data.partition.in_order(MOVIES, clients=4)
    local, items, width = hf.Local(0.1, steps=2, batch_size=5), 400, 16
    server = hf.Server(hf.models.spreadout(1e-3), hf.Local(0.1, steps=2))
    mixed = hf.algorithms.parallel_training(0.5, 0.5)
    both = hf.models.dual_encoder(items, width, spreadout=1e-3)
    hinge = hf.models.dual_encoder(items, width)
    baseline = counted(hf.algorithms.fedavg(), both, clients, local)
    whole = counted(mixed, hinge, clients, local, server=server)
    selected = counted(mixed, hinge, clients, local, server=server, select=True)
    # N'N of the table of directions, forwards and twice backwards, in each of two steps.
    gram = 2 * 3 * 2 * items * width**2 / 1e6
    assert ((gram < baseline - whole) & (baseline - whole < 1.5 * gram)).all()
    # A client has at most 40 of the 400 movies; the table's own steps are spared too.
    assert (selected < whole / 2).all()


def test_joined_populations_count_their_own_batches_steps_and_losses():
    clients, model = tiny_clients(), hf.models.softmax_regression(3)
    few, many = hf.Local(0.1, steps=2, batch_size=4), hf.Local(0.1, steps=5, batch_size=5)
    # The second one's loss is another program, of which clients of the first compute nothing.
    other, fedavg = hf.models.softmax_regression(3, l2=0.1), hf.algorithms.fedavg()
    apart = [counted(fedavg, *way) for way in ((model, clients, few), (other, clients, many))]
    joined = hf.join(
        [hf.Population(clients, model, local=few), hf.Population(clients, other, local=many)]
    )
    together = counted(fedavg, **joined)
    np.testing.assert_allclose(together, np.concatenate(apart), rtol=1e-12)


def test_a_comparison_shows_computation_beside_bytes_if_it_was_asked_for():
    def method(label, **work):
        records = [
            {
                "round": t,
                "loss": 1.0,
                "bytes_down": 4,
                "bytes_up": 4,
                **{n: w * t for n, w in work.items()},
            }
            for t in (1, 3)
        ]
        return MethodResult(label, (hf.History(tuple(records)),), (), True)

    def shown(*methods):
        console = Console(width=120, record=True, file=io.StringIO())
        console.print(compare.table(Results(methods, "loss", None, ())))
        return console.export_text()

    said = shown(method("both", mflop_per_client=0.023), method("neither"))
    assert re.search(r"method +MB +final +Mflop", said)
    assert re.search(r"both .* 0\.0460", said)
    assert "operations of a client in a round" in said
    assert "Mflop" not in shown(method("neither"))


def test_files_may_ask_for_it(tmp_path):
    text = """rounds = 1
    [data]
    name = "digits"
    [partition]
    name = "iid"
    clients = 2
    [model]
    name = "softmax_regression"
    [local]
    learning_rate = 0.1
    [[evaluate.also]]
    name = "flops"
    [[algorithm]]
    name = "fedavg"
    """
    (tmp_path / "e.toml").write_text(text)
    made = study(read(tmp_path / "e.toml"))
    asked = made.experiment(made.methods[0], 0)
    run = hf.simulate(asked, rounds=1)
    each = ClientWork(checked(asked)).of_clients(0, np.arange(2)) / 1e6
    assert run.history["mflop"][0] == each.sum() > 0
    assert run.history["mflop_per_client"][0] == each.mean()
    # Asking changes no bit.
    plain = hf.simulate(dataclasses.replace(asked, evaluate=None), rounds=1)
    assert same_bits(run.params, plain.params)
    assert "mflop" not in plain.history.columns


def test_the_papers_table_of_computation():
    """Mixed FL, table 2: a client's step costs 125 Mflop with the regulariser and 0.025 without.

    The paper counts a multiplication with its addition as one operation, here they are two; and it
    counts half of the matrix of all cosines, where here the norm is that of the small matrix N'N.
    """
    rows, width, batch = 3953, 16, 16
    hinge = batch * width + 3 * batch * width**2 + 3 * batch**2 * width + 2 * batch
    assert hinge / 1e6 == pytest.approx(0.025, abs=5e-4)
    assert (hinge + rows**2 * width / 2 + rows * width) / 1e6 == pytest.approx(125.16, rel=1e-3)
    rng = np.random.default_rng(0)
    known = np.concatenate([np.arange(1, 160), rng.integers(1, 160, 1441)]).reshape(160, 10)
    clients = hf.Clients.from_datasets([hf.Examples(known, rng.integers(1, 160, 160))])
    server = hf.Server(hf.models.spreadout(0.01), hf.Local(0.5, steps=1))

    def step(algorithm, model, **settings):
        found = [
            counted(algorithm, model, clients, hf.Local(0.5, steps=k, batch_size=16), **settings)[0]
            for k in (1, 2)
        ]
        return found[1] - found[0]

    both = step(hf.algorithms.fedavg(), hf.models.dual_encoder(spreadout=0.01))
    mixed = hf.algorithms.parallel_training()
    spared = step(mixed, hf.models.dual_encoder(), server=server, select=True)
    assert spared == pytest.approx(2 * 0.025, rel=0.1)
    assert both == pytest.approx(7.41, rel=0.01)
