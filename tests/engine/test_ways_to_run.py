"""One client at a time or several, examples on the device or gathered: the same run."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from holdfast.core.keys import HostStreams, Purpose, host_generator
from holdfast.data.clients import check_finite
from holdfast.data.read_only import aligned, is_closed
from holdfast.engine.feeds import Gathered, Resident, settled
from holdfast.testing import _everything
from tests.problems import same_bits, tiny_clients

SETTINGS = {
    "model": hf.models.mlp([4], classes=3),
    "clients": tiny_clients(),
    "local": hf.Local(0.1, epochs=2, batch_size=4),
    "cohort": hf.cohorts.fixed(3),
    "rounds": 3,
    "seed": 1,
}
METHODS = {
    "feddyn": hf.algorithms.feddyn(0.1),
    "flix": hf.algorithms.flix(0.5, solver=hf.solvers.GradientDescent(0.2, tolerance=0.5)),
    "diana": hf.algorithms.diana(hf.wires.RandK(k=5)),
}


def run(algorithm, **changes):
    return hf.simulate(algorithm, **(SETTINGS | changes))


@pytest.mark.parametrize("name", METHODS)
def test_gathered_examples_give_the_same_bits(name, tmp_path):
    clients = SETTINGS["clients"]
    mapped = []
    for k, a in enumerate(jax.tree.leaves(clients.examples)):
        np.save(tmp_path / f"{k}.npy", np.asarray(a))
        mapped.append(np.load(tmp_path / f"{k}.npy", mmap_mode="r"))
    examples = jax.tree.unflatten(jax.tree.structure(clients.examples), mapped)
    there = hf.Clients(examples, clients.order, clients.offsets)
    gathered = run(METHODS[name], clients=there, storage=hf.Storage(device=0))
    assert isinstance(gathered.simulation.feed, Gathered)
    assert same_bits(_everything(gathered.state), _everything(run(METHODS[name]).state))
    on_device = hf.Clients(jax.device_put(clients.examples), clients.order, clients.offsets)
    again = run(METHODS[name], clients=on_device, storage=hf.Storage(device=0))
    assert same_bits(again.params, gathered.params)
    mine = [r.adapted(1, hf.Local(0.1, steps=3)) for r in (gathered, run(METHODS[name]))]
    assert same_bits(*mine)


def test_few_of_many_examples_are_gathered_without_being_asked():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(1200, 250)).astype(np.float32)  # 1.2 MB
    parts = [hf.Examples(x[i : i + 4], rng.integers(0, 3, 4)) for i in range(0, 1200, 4)]
    clients = hf.Clients.from_datasets(parts)
    few, many = (
        run(METHODS["feddyn"], clients=clients, cohort=hf.cohorts.fixed(size), rounds=2)
        for size in (5, 7)
    )
    assert isinstance(few.simulation.feed, Gathered)
    assert isinstance(many.simulation.feed, Resident)


def test_gathered_data_is_checked_as_it_is_read():
    clients = tiny_clients()
    x = np.array(clients.examples.x)
    x[clients.rows(2)[0]] = np.nan
    sick = hf.Clients(clients.examples._replace(x=x), clients.order, clients.offsets)
    with pytest.raises(hf.HoldfastError, match=r"data of round 1: x contains NaN"):
        run(METHODS["feddyn"], clients=sick, cohort=None, storage=hf.Storage(device=0))


@pytest.mark.parametrize("name", METHODS)
def test_several_clients_at_a_time_differ_by_rounding(name):
    one = run(METHODS[name], cohort=None)
    for width in (2, 3):
        many = run(METHODS[name], cohort=None, engine=hf.Engine(width=width))
        for a, b in zip(
            jax.tree.leaves(_everything(many.state)),
            jax.tree.leaves(_everything(one.state)),
            strict=True,
        ):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_clients_with_the_same_work_share_the_bound_of_their_loop():
    """With an empty place in the last chunk, and one client whose numbers are not finite."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(32, 3)).astype(np.float32)
    x[8] = 1e30
    parts = [hf.Examples(x[i : i + 8], rng.integers(0, 3, 8)) for i in range(0, 32, 8)]
    clients = hf.Clients.from_datasets(parts)
    one, many = (
        run(METHODS["feddyn"], clients=clients, cohort=None, engine=hf.Engine(width=width))
        for width in (1, 3)
    )
    assert one.history["left_out"].tolist() == many.history["left_out"].tolist() == [1, 1, 1]
    for a, b in zip(jax.tree.leaves(many.params), jax.tree.leaves(one.params), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_tiny_steps_are_taken_together_without_being_asked():
    rng = np.random.default_rng(0)
    clients = hf.Clients.from_datasets(
        [hf.Examples(rng.normal(size=(100, 2)).astype(np.float32), rng.integers(0, 2, 100))] * 5
    )
    settings = {"clients": clients, "cohort": None, "local": hf.Local(0.1, batch_size=2)}
    settings |= {"model": hf.models.softmax_regression(2), "rounds": 1}
    itself = run(METHODS["feddyn"], **settings)
    planner = itself.simulation.planner
    assert planner(1).placement.execution.width == 5
    alone = run(METHODS["feddyn"], **settings, engine=hf.Engine(width=1))
    for a, b in zip(jax.tree.leaves(itself.params), jax.tree.leaves(alone.params), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)


def test_one_generator_for_all_clients_draws_what_each_would():
    streams = HostStreams(Purpose.ORDER, 5)
    for t, client, n in ((0, 0, 7), (3, 100_000, 400), (0, 0, 30)):
        mine, theirs = streams.at(t, client), host_generator(Purpose.ORDER, 5, t, client)
        assert mine.permutation(n).tolist() == theirs.permutation(n).tolist()
        assert mine.integers(9, dtype=np.uint32) == theirs.integers(9, dtype=np.uint32)


def test_a_width_of_nobody_is_refused():
    with pytest.raises(hf.HoldfastError, match="width=0; give a whole number of at least 1"):
        hf.Engine(width=0)


def test_a_folder_of_mapped_arrays(tmp_path):
    train, test = hf.data.digits()
    arrays = {"x": train.x, "y": train.y, "test_x": test.x, "test_y": test.y}
    for name, a in arrays.items():
        np.save(tmp_path / f"{name}.npy", a)
    with pytest.raises(hf.HoldfastError, match="does not say whose"):
        hf.data.partition.natural(hf.data.mapped(tmp_path))
    np.save(tmp_path / "client.npy", np.arange(len(train.y)) % 7)
    data = hf.data.mapped(tmp_path)
    clients = hf.data.partition.natural(data)
    assert (data.classes, len(clients)) == (10, 7)
    assert isinstance(clients.examples.x, np.memmap)
    np.testing.assert_array_equal(clients[3].y, train.y[3::7])
    np.save(tmp_path / "client.npy", np.arange(5))
    with pytest.raises(hf.HoldfastError, match=r"client.npy has 5 rows and y.npy"):
        hf.data.mapped(tmp_path)
    (tmp_path / "test_y.npy").unlink()
    with pytest.raises(hf.HoldfastError, match=r"test_y.npy is missing; give"):
        hf.data.mapped(tmp_path)


def test_a_run_does_not_change_when_arrays_do_that_it_was_given():
    """JAX uses an array of NumPy's where it is, if that begins at a multiple of 64 bytes."""
    clients = SETTINGS["clients"]
    given = tuple(aligned(np.shape(a), np.asarray(a).dtype) for a in clients.examples)
    for own, a in zip(given, clients.examples, strict=True):
        own[...] = a
    params = {"a": aligned((4,), np.float32), "b": np.ones(4, np.float32)}
    params["a"][...] = 1
    model = hf.Model(
        init=lambda key, examples: {name: jnp.ones(4) for name in params},
        loss=lambda p, batch: (
            (batch.x[:, :4] @ (p["a"] * p["b"])) ** 2 * batch.y.astype(jnp.float32)
        ),
        name="product",
    )
    own = hf.Clients(hf.Examples(*given), clients.order, clients.offsets)
    settings = SETTINGS | {"model": model, "params": params, "clients": own}
    del settings["rounds"]
    expected = hf.simulate(hf.algorithms.fedavg(), **settings, rounds=3)
    states = hf.rounds(hf.algorithms.fedavg(), **settings)
    next(states)
    for array in (*given, *params.values()):
        array[...] = 0
    next(states)
    assert same_bits(next(states).params, expected.params)


def test_devices_and_host_share_what_nobody_can_write_to():
    clients = SETTINGS["clients"]
    examples = hf.data.read_only(clients.examples)
    own = hf.Clients(examples, clients.order, clients.offsets)
    shared = run(METHODS["feddyn"], clients=own)
    assert same_bits(_everything(shared.state), _everything(run(METHODS["feddyn"]).state))
    for host, device in zip(examples, shared.simulation.feed.examples, strict=True):
        assert device.unsafe_buffer_pointer() == host.ctypes.data
    assert hf.data.read_only(examples).x is examples.x


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.uint8, bool, np.float16])
def test_settled_examples_are_what_the_device_would_make_of_them(dtype):
    given = np.asfortranarray(np.arange(12).reshape(4, 3)).astype(dtype)
    found, plain = settled(given), jax.device_put(given)
    assert (found.dtype, found.flags.writeable) == (plain.dtype, False)
    np.testing.assert_array_equal(found, plain)


def test_who_can_write_to_an_array(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((4, 16)))
    modes = {mode: np.load(tmp_path / "a.npy", mmap_mode=mode) for mode in ("r", "r+", "c")}
    assert [mode for mode, a in modes.items() if is_closed(a)] == ["r"]
    assert hf.data.read_only(modes["r+"]) is modes["r+"]
    for whole, can in ((np.zeros(8), False), (np.frombuffer(bytes(8), np.uint8), True)):
        view = whole[:4]
        view.flags.writeable = False
        assert is_closed(view) is can
    assert not is_closed(np.frombuffer(bytearray(8), np.uint8))
    frozen = np.zeros(8)
    earlier = frozen[:4]
    frozen.flags.writeable = False
    assert earlier.flags.writeable
    assert not is_closed(frozen)
    with pytest.raises(ValueError, match="read-only"):
        hf.data.read_only(np.zeros(4)).base[0] = 1


def test_numbers_whose_sum_overflows_are_finite():
    large = np.full((4, 2), 3e38, np.float32)
    check_finite(hf.Examples(large, np.zeros(4)), "data")
    large[2, 1] = np.inf
    with pytest.raises(hf.HoldfastError, match="x contains infinity, first in row 2"):
        check_finite(hf.Examples(large, np.zeros(4)), "data")
