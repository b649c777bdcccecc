"""Federated select: small tables on clients, the same model, fewer bytes."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import holdfast as hf
from holdfast.core import hyper
from holdfast.engine import select_trial
from holdfast.engine.setup import checked
from holdfast.engine.simulation import Simulation
from holdfast.models.model import probability_metrics
from holdfast.record.ledger import Entry
from tests.problems import largest_difference, same_bits

ITEMS, WIDTH = 60, 4
MODEL = hf.models.dual_encoder(ITEMS, WIDTH)


def viewers(seed=0, sizes=(6, 9, 4, 7)):
    """Clients who each know a few items; 0 pads the context."""
    rng = np.random.default_rng(seed)
    parts = []
    for n in sizes:
        own = rng.choice(np.arange(1, ITEMS), 8, replace=False)
        x = np.where(rng.random((n, 10)) < 0.3, 0, rng.choice(own, (n, 10)))
        parts.append(hf.Examples(x.astype(np.int32), rng.choice(own, n).astype(np.int32)))
    return hf.Clients.from_datasets(parts)


def run(algorithm, select, **settings):
    settings = {"cohort": hf.cohorts.fixed(3), "seed": 1} | settings
    local = hf.Local(0.5, epochs=2, batch_size=3)
    return hf.simulate(algorithm, MODEL, viewers(), local, 4, select=select, **settings)


SPREAD = hf.Server(hf.models.spreadout(strength=0.05), hf.Local(0.1, steps=3))


@pytest.mark.parametrize(
    ("algorithm", "server"),
    [
        (hf.algorithms.fedavg(), None),
        (hf.algorithms.fedprox(0.3), None),
        (hf.algorithms.feddyn(0.3), None),
        (hf.algorithms.fedadam(), None),
        (hf.algorithms.scaffold(), None),
        (hf.algorithms.scaffold(upload="published"), None),
        (hf.algorithms.parallel_training(), SPREAD),
        (hf.algorithms.one_way_transfer(), SPREAD),
        (hf.algorithms.one_way_transfer(server_optimizer=optax.adam(0.01)), SPREAD),
        (hf.algorithms.two_way_transfer(), SPREAD),
    ],
    ids=lambda a: getattr(a, "name", ""),
)
def test_equals_the_run_with_the_full_table(algorithm, server):
    small, full = (run(algorithm, select, server=server) for select in (True, False))
    assert largest_difference(small.params, full.params) < 1e-6
    for i in range(4):
        assert largest_difference(small.client_states[i], full.client_states[i]) < 1e-6


def test_the_clients_round_really_runs_on_the_small_table():
    seen = set()

    def loss(params, batch, key):
        seen.add(params["table"].shape)
        return MODEL.losses(params, batch, key)

    spied = dataclasses.replace(MODEL, loss=loss)
    clients = viewers()
    hf.simulate(hf.algorithms.fedavg(), spied, clients, hf.Local(0.5, steps=1), 1, select=True)
    capacity = max(len(np.unique(np.append(c.x, [*c.y, 0]))) for c in clients)
    assert seen - {(ITEMS, WIDTH)} == {(capacity, WIDTH)}


def test_the_ledger_counts_the_rows_sent():
    rest = 4 * (WIDTH * WIDTH + WIDTH)
    used = [len(np.unique(np.append(c.x, [*c.y, 0]))) for c in viewers()]
    plain = run(hf.algorithms.fedavg(), True)
    for entry in plain.ledger.entries:
        expected = tuple(4 * WIDTH * used[i] + rest for i in entry.clients)
        assert entry.down == entry.up == expected
    transfer = run(hf.algorithms.one_way_transfer(), True, server=SPREAD)
    for entry in transfer.ledger.entries:  # the model and the server's gradient down
        assert entry.down == tuple(2 * (4 * WIDTH * used[i] + rest) for i in entry.clients)
    full = run(hf.algorithms.fedavg(), False)
    assert plain.ledger.total < 0.5 * full.ledger.total
    assert plain.ledger.models_transmitted < 0.5 * full.ledger.models_transmitted
    down, up = plain.ledger.by_client(4)
    assert down.sum() + up.sum() == plain.ledger.total


def test_the_papers_table_of_communication():
    """3952 movies of width 16 and a client that knows 159: 494 KB become 20, and 30 with transfer."""
    rng = np.random.default_rng(0)
    known = np.concatenate([np.arange(1, 160), rng.integers(1, 160, 31)]).reshape(19, 10)
    one = hf.Clients.from_datasets([hf.Examples(known.astype(np.int32), np.ones(19, np.int32))])
    local = hf.Local(0.1, steps=1)
    server = hf.Server(hf.models.spreadout(strength=0.01), local)

    def kilobytes_of_table(algorithm, select, tables_sent, server=None):
        model = hf.models.dual_encoder()
        run = hf.simulate(algorithm, model, one, local, 1, select=select, server=server)
        dense = 4 * (16 * 16 + 16)
        return (run.ledger.total - tables_sent * dense) / 1024

    fedavg, parallel = hf.algorithms.fedavg(), hf.algorithms.parallel_training()
    assert kilobytes_of_table(fedavg, False, 2) == pytest.approx(494, abs=0.5)
    assert kilobytes_of_table(parallel, True, 2, server) == pytest.approx(20, abs=0.1)
    transfer = hf.algorithms.one_way_transfer()
    assert kilobytes_of_table(transfer, True, 3, server) == pytest.approx(30, abs=0.1)


def test_resumes_with_its_ledger(tmp_path):
    whole = run(hf.algorithms.feddyn(0.3), True)
    for rounds in (2, 4):
        resumed = hf.simulate(
            hf.algorithms.feddyn(0.3),
            MODEL,
            viewers(),
            hf.Local(0.5, epochs=2, batch_size=3),
            rounds,
            select=True,
            cohort=hf.cohorts.fixed(3),
            seed=1,
            checkpoint=tmp_path,
        )
    assert same_bits(resumed.params, whole.params)
    assert resumed.ledger == whole.ledger


def both(algorithm, local, server=None, evaluate=None):
    settings = {"cohort": hf.cohorts.fixed(3), "seed": 1, "server": server, "evaluate": evaluate}
    return [
        hf.simulate(algorithm, MODEL, viewers(), local, 4, select=select, **settings)
        for select in (True, False)
    ]


def on_table(path):
    return path == "table"


EXACT = {
    "fedpvr": (hf.algorithms.fedpvr(on_table), {}),
    "scaffold option I": (hf.algorithms.scaffold(option="I"), {}),
    "fedavg with decay": (hf.algorithms.fedavg(), {"weight_decay": 0.1}),
    "one-way with clip": (hf.algorithms.one_way_transfer(), {"clip": 0.2}),
    "one-way with all of them": (
        hf.algorithms.one_way_transfer(),
        {"clip": 0.2, "weight_decay": 0.1, "momentum": 0.5},
    ),
}


@pytest.mark.parametrize("name", EXACT)
def test_what_rows_not_sent_would_do_is_done_for_them(name):
    algorithm, settings = EXACT[name]
    server = SPREAD if "one-way" in name else None
    small, full = both(algorithm, hf.Local(0.5, epochs=2, batch_size=3, **settings), server)
    assert largest_difference(full.params, full.simulation.params) > 0.01
    assert largest_difference(small.params, full.params) < 2e-6
    for i in range(4):
        assert largest_difference(small.client_states[i], full.client_states[i]) < 2e-6


# Shown by the trial alone, which runs the method itself on a smaller problem.
ALSO_EXACT = {
    "fedpvr, not the table": (hf.algorithms.fedpvr(lambda path: path != "table"), {}),
    "fedavg with momentum": (hf.algorithms.fedavg(), {"momentum": 0.9}),
    "fedavg with Adam": (hf.algorithms.fedavg(), {"optimizer": optax.adam}),
    "fedprox with decay and clip": (hf.algorithms.fedprox(0.3), {"weight_decay": 0.1, "clip": 0.2}),
    "scaffold with clip": (hf.algorithms.scaffold(option="I"), {"clip": 0.2}),
}


@pytest.mark.parametrize("name", ALSO_EXACT)
def test_what_is_exact_is_not_refused(name):
    algorithm, settings = ALSO_EXACT[name]
    local = hf.Local(0.1, epochs=2, batch_size=3, **settings)
    checked(hf.Experiment(algorithm, MODEL, viewers(), local, select=True))


def test_a_full_mask_is_scaffold_under_select_too():
    masked, plain = (
        run(algorithm, True)
        for algorithm in (hf.algorithms.fedpvr(lambda path: True), hf.algorithms.scaffold())
    )
    assert largest_difference(masked.params, plain.params) < 1e-6


def test_the_average_of_clients_models_has_the_rows_not_sent():
    test = viewers(1)[0]
    small, full = both(
        hf.algorithms.one_way_transfer(),
        hf.Local(0.5, epochs=1, batch_size=3),
        SPREAD,
        hf.evaluate.client_average(test),
    )
    np.testing.assert_allclose(
        small.history["average_loss"], full.history["average_loss"], rtol=1e-5
    )


transfer_and_memory = hf.Chain((hf.rules.ControlVariate(), hf.rules.OneWayTransfer()))
clipped = hf.Chain((hf.rules.OneWayTransfer(), hf.rules.AdaptiveClip(initial=0.1)))


class Decaying(hf.Rule):
    decay: hf.Hyper

    def tilt(self, at):
        return hf.Tilt(decay=self.decay)


some_decay = hf.Chain((hf.rules.Dynamic(0.1), Decaying(hf.PerClient([0.0, 0.0, 0.0, 0.3]))))
REFUSED = {
    "feddc": (hf.algorithms.feddc(0.1), {}, "what a client remembers of table rows"),
    "transfer beside control variates": (
        hf.Algorithm(transfer_and_memory),
        {},
        "what a client remembers",
    ),
    "feddyn with decay": (
        hf.algorithms.feddyn(0.3),
        {"weight_decay": 0.1},
        "what a client remembers",
    ),
    "feddyn with a little decay": (
        hf.algorithms.feddyn(0.3),
        {"weight_decay": 1e-4},
        "what a client remembers",
    ),
    "feddyn with decay from round 1 on": (
        hf.algorithms.feddyn(0.3),
        {"weight_decay": lambda t: 0.0 if t == 0 else 0.1},
        "what a client remembers",
    ),
    "fedsplit": (hf.algorithms.fedsplit(0.5), {}, "what a client remembers"),
    "one of four clients decays": (hf.Algorithm(some_decay), {}, "what a client remembers"),
    "one-way with Adam": (
        hf.algorithms.one_way_transfer(),
        {"optimizer": optax.adam},
        "rows that are not sent would move",
    ),
    "one-way, its delta clipped": (hf.Algorithm(clipped), {}, "rows that are not sent would move"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_server_cannot_know_is_refused(name):
    algorithm, settings, why = REFUSED[name]
    local = hf.Local(0.1, epochs=1, batch_size=3, **settings)
    given = hf.Experiment(algorithm, MODEL, viewers(), local, select=True, server=SPREAD)
    with pytest.raises(hf.HoldfastError, match=why):
        checked(given)


def bytes_of_a_round(algorithm, **settings):
    local = hf.Local(0.5, steps=1, **settings)
    given = hf.Experiment(algorithm, MODEL, viewers(), local, server=SPREAD, select=True)
    simulation = Simulation(given)
    now = hyper.at_round(algorithm, 0)
    return Entry(1, (0, 1), *simulation.traffic.of_round(now, simulation.begin(), np.arange(2)))


def test_what_the_server_does_for_a_client_must_be_finite_too():
    def loss(params):
        return jnp.sum(jnp.sqrt(params["table"] - 100.0))

    server = hf.Server(loss, hf.Local(0.1, steps=1))
    with pytest.raises(hf.RoundFailedError):
        run(hf.algorithms.one_way_transfer(), True, server=server)


def test_a_method_is_tried_out_in_a_program_that_is_kept():
    select_trial._tried.clear_cache()
    given = hf.Experiment(hf.algorithms.fedavg(), MODEL, viewers(), hf.Local(0.1), select=True)
    checked(given)
    known = select_trial._tried._cache_size()
    checked(dataclasses.replace(given, seed=1))
    assert select_trial._tried._cache_size() == known == 2


def test_the_ledger_counts_what_a_shared_norm_takes():
    """Under a clip a client learns three numbers of the rows it was not sent, and returns two."""
    transfer = hf.algorithms.one_way_transfer()
    plain, clip = bytes_of_a_round(transfer), bytes_of_a_round(transfer, clip=0.2)
    assert np.subtract(clip.down, plain.down).tolist() == [12, 12]
    assert np.subtract(clip.up, plain.up).tolist() == [8, 8]
    # Without anything that moves rows not sent, the norm is the client's own.
    alone = hf.algorithms.fedavg()
    assert bytes_of_a_round(alone) == bytes_of_a_round(alone, clip=0.2)


def test_two_tables_of_one_field_and_a_leaf_that_ends_like_a_table():
    def init(key, examples):
        context = {"table": jnp.ones((3, 2))}
        return {"table": jnp.ones((ITEMS, 2)), "bias": jnp.ones(ITEMS), "context": context}

    def loss(params, batch):
        away = jnp.sum((params["table"][batch.y] - 0.5) ** 2, axis=1)
        rest = jnp.sum(params["context"]["table"] ** 2)
        return away + params["bias"][batch.y] ** 2 + rest

    tables = (hf.Table("table", ("y",)), hf.Table("bias", ("y",)))
    model = hf.Model(init, loss, tables=tables)
    small, full = (
        hf.simulate(hf.algorithms.scaffold(), model, viewers(), hf.Local(0.1), 2, select=select)
        for select in (True, False)
    )
    assert largest_difference(small.params, full.params) < 1e-6
    assert small.ledger.total < 0.5 * full.ledger.total


def test_two_tables_with_different_rows_in_one_field_are_refused():
    tables = (hf.Table("table", ("x", "y")), hf.Table("context/kernel", ("x",)))
    model = dataclasses.replace(MODEL, tables=tables)
    with pytest.raises(hf.HoldfastError, match="both look rows up by `x`"):
        hf.simulate(hf.algorithms.fedavg(), model, viewers(), hf.Local(0.1), 1, select=True)


def test_a_model_without_tables_and_a_table_without_a_leaf_are_refused():
    clients = viewers()
    with pytest.raises(hf.HoldfastError, match="the model declares no tables"):
        hf.simulate(
            hf.algorithms.fedavg(),
            hf.models.gru(vocabulary=ITEMS, embedding=2, width=2),
            hf.Clients.from_rows(hf.Examples(clients.examples.x, clients.examples.x), [[0], [1]]),
            hf.Local(0.1),
            1,
            select=True,
        )
    wrong = dataclasses.replace(MODEL, tables=(hf.Table("tabel", ("x",)),))
    with pytest.raises(hf.HoldfastError, match="a table `tabel` but its leaves are context/bias"):
        hf.simulate(hf.algorithms.fedavg(), wrong, clients, hf.Local(0.1), 1, select=True)


def test_sets_are_those_of_the_run_with_the_full_table():
    def scores(params, batch):
        return params["table"][batch.x].sum(1)

    def loss(params, batch, key=None):
        return optax.softmax_cross_entropy_with_integer_labels(scores(params, batch), batch.y)

    model = hf.Model(
        lambda key, examples: {"table": jnp.zeros((ITEMS, 3))},
        loss,
        predictor=hf.models.Predictor(
            lambda params, batch: jax.nn.softmax(scores(params, batch)),
            probability_metrics,
            "classes",
        ),
        tables=(hf.Table("table", ("x",)),),
    )

    def drawn(seed, n):
        part = viewers(seed, (n,))[0]
        return hf.Examples(part.x, part.y % 3)

    clients = hf.Clients.from_datasets([drawn(seed, 12) for seed in range(4)])
    evaluator = hf.conformal.evaluate(drawn(5, 40), drawn(6, 40), kappa=0.2)
    small, full = (
        hf.simulate(
            hf.algorithms.fedavg(),
            model,
            clients,
            hf.Local(0.5, steps=3, batch_size=3),
            3,
            select=select,
            evaluate=evaluator,
        ).history
        for select in (True, False)
    )
    assert small["bytes_down"].sum() < full["bytes_down"].sum()
    for name in ("coverage", "set_size"):
        assert small[name].tolist() == full[name].tolist()
