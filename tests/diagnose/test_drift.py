"""Drift diversity against NumPy on the updates themselves, in every setting; and that watching is free."""

import jax
import numpy as np
import pytest

import holdfast as hf
from holdfast.trees import layers
from tests.engine.test_populations import two_populations
from tests.engine.test_select import MODEL as ENCODER
from tests.engine.test_select import viewers
from tests.problems import QUADRATIC, random_quadratics, same_bits, tiny_clients

MODEL = hf.models.mlp([4], classes=3)
LOCAL = hf.Local(0.1, epochs=2, batch_size=4)
DRIFT = hf.diagnose.drift()


class Spy(hf.Rule):
    """Each client's last update as the server received it."""

    neutral = True

    def init(self, params):
        return hf.State(client=params)

    def settle(self, delta, heard, at):
        return delta


def spied(algorithm):
    return hf.Algorithm(
        hf.Chain((algorithm.rule, Spy())), algorithm.wire, algorithm.weighting, name=algorithm.name
    )


def by_hand(updates):
    """The quotients, from the definition: of the whole model and of each layer."""
    flat = [[np.asarray(p, np.float64).ravel() for p in jax.tree.leaves(u)] for u in updates]

    def quotient(numbers):
        m = np.array([np.concatenate([u[k] for k in numbers]) for u in flat])
        return (m**2).sum() / (m.sum(0) ** 2).sum()

    found = {"drift_diversity": quotient(range(len(flat[0])))}
    return found | {f"drift_diversity/{n}": quotient(k) for n, k in layers(updates[0]).items()}


def check(algorithm, model, clients, local, rounds=3, **settings):
    """Every round's columns against the updates that were received in it."""
    found = []

    def look(state):
        entry = state.ledger.entries[-1]
        ids = [i for i in entry.clients if i not in entry.left_out]
        record = dict(state.history[-1])
        measured = {n: v for n, v in record.items() if n.startswith("drift_diversity")}
        if not entry.clients:
            assert not measured
            return
        kept = state.memory(Spy, ids).clients
        updates = [jax.tree.map(lambda a, k=k: a[k], kept) for k in range(len(ids))]
        expected = by_hand(updates)
        assert measured.keys() == expected.keys()
        for name, value in expected.items():
            np.testing.assert_allclose(measured[name], value, rtol=1e-6, err_msg=name)
        found.append(measured)

    hf.simulate(
        spied(algorithm), model, clients, local, rounds, evaluate=DRIFT, on_round=look, **settings
    )
    assert found
    return found


QUANTISED = hf.Algorithm(wire=hf.wires.Compressed(hf.wires.Quantise(levels=4)), name="quantised")


@pytest.mark.parametrize(
    ("algorithm", "settings"),
    [
        (hf.algorithms.fedavg(weighting="uniform"), {}),
        (hf.algorithms.fedavg(), {"cohort": hf.cohorts.fixed(3)}),
        (hf.algorithms.fedavg(weighting="processed"), {"cohort": hf.cohorts.bernoulli(0.3)}),
        (hf.algorithms.scaffold(), {}),
        (QUANTISED, {}),
    ],
    ids=["uniform", "by examples", "by processed", "scaffold", "quantised"],
)
def test_equals_the_definition_on_what_was_received(algorithm, settings):
    check(algorithm, MODEL, tiny_clients(), LOCAL, **settings)


def test_clients_of_joined_populations_count_one_each(x64):
    joined, _ = two_populations(a=hf.cohorts.fixed(2), b=hf.cohorts.fixed(5))
    check(hf.algorithms.fedavg(), **joined._asdict(), local=hf.Local(0.05, steps=2))


def test_a_rule_of_the_users_own_says_that_there_are_several_populations(x64):
    joined, _ = two_populations()
    given = {**joined._asdict(), "local": hf.Local(0.05, steps=2)}
    with pytest.raises(hf.HoldfastError, match="weights of their 2 populations"):
        hf.simulate(hf.Algorithm(hf.rules.DriftDiversity()), **given, rounds=1)
    own = hf.Algorithm(hf.rules.DriftDiversity(populations=True))
    found = hf.simulate(own, **given, rounds=1).memory(hf.rules.DriftDiversity).server
    measured = hf.simulate(hf.Algorithm(), **given, rounds=1, evaluate=DRIFT).history
    quotient = found.squares.sum() / found.together.sum()
    assert measured["drift_diversity"][0] == pytest.approx(quotient, rel=1e-12)


def test_one_client_has_one_and_like_clients_a_share():
    clients = tiny_clients()
    (alone,) = check(hf.algorithms.fedavg(), MODEL, clients, LOCAL, 1, cohort=hf.cohorts.fixed(1))
    assert all(value == pytest.approx(1, abs=1e-6) for value in alone.values())
    same = hf.Clients.from_rows(clients.examples, [[0, 1, 2]] * 5)
    # Whole batches, so that all five take the same steps.
    (alike,) = check(hf.algorithms.fedavg(), MODEL, same, hf.Local(0.1, steps=2), 1)
    assert all(value == pytest.approx(0.2, abs=1e-6) for value in alike.values())


def test_the_function_on_updates_known_to_be_alike_orthogonal_and_opposed():
    one = {"kernel": np.array([3.0, 4.0]), "deep": {"bias": np.array([[1.0]])}}
    found = hf.diagnose.drift_diversity([one] * 4)
    assert found.total == 0.25
    assert found.layers == {"kernel": 0.25, "deep": 0.25}
    assert hf.diagnose.drift_diversity([one]).total == 1
    across = [np.eye(5)[k] * (k + 1) for k in range(5)]
    assert hf.diagnose.drift_diversity(across).total == pytest.approx(1)
    opposed = hf.diagnose.drift_diversity([np.ones(2), -np.ones(2)])
    assert opposed.total == np.inf
    assert np.isnan(hf.diagnose.drift_diversity([np.zeros(2)]).total)


def test_the_function_equals_the_definition():
    rng = np.random.default_rng(0)
    updates = [
        {
            "a": {"k": rng.normal(size=(3, 4)), "b": rng.normal(size=3)},
            "c": rng.normal(size=2),
        }
        for _ in range(6)
    ]
    found = hf.diagnose.drift_diversity(updates)
    expected = by_hand(updates)
    assert found.total == pytest.approx(expected["drift_diversity"], rel=1e-12)
    for name, value in found.layers.items():
        assert value == pytest.approx(expected[f"drift_diversity/{name}"], rel=1e-12)


@pytest.mark.parametrize("wrong", [[], None, {"a": 1}], ids=["none", "nothing", "a tree"])
def test_what_is_no_list_of_updates_is_refused(wrong):
    with pytest.raises(hf.HoldfastError, match="updates is no list of trees"):
        hf.diagnose.drift_diversity(wrong)


def test_updates_of_two_models_are_refused():
    with pytest.raises(hf.HoldfastError, match="give updates of one model"):
        hf.diagnose.drift_diversity([np.ones(2), np.ones(3)])


SERVER = hf.Server(tiny_clients()[0], hf.Local(0.1, steps=2))
FREE = {
    "weighted, some clients": (hf.algorithms.fedavg(), {"cohort": hf.cohorts.fixed(3)}),
    "feddyn": (hf.algorithms.feddyn(0.1), {}),
    "fedpvr": (hf.algorithms.fedpvr(mask=lambda path: path.startswith("classifier")), {}),
    "server data": (hf.algorithms.scaffold_plus(gamma=0.5), {"server": SERVER}),
    "error feedback": (
        hf.Algorithm(wire=hf.wires.ErrorFeedback(hf.wires.TopK(5))),
        {"cohort": hf.cohorts.fixed(2)},
    ),
}


@pytest.mark.parametrize("case", FREE)
def test_changes_no_bit_and_no_byte(case):
    algorithm, settings = FREE[case]
    runs = [
        hf.simulate(algorithm, MODEL, tiny_clients(), LOCAL, 3, evaluate=evaluate, **settings)
        for evaluate in (None, DRIFT)
    ]
    without, watched = runs
    assert same_bits(without.params, watched.params)
    everybody = np.arange(4)
    kept = [run.state.client_states.read(everybody) for run in runs]
    assert same_bits(*kept)
    assert list(without.ledger.entries) == list(watched.ledger.entries)
    assert np.isfinite(watched.history["drift_diversity"]).all()


def test_changes_no_bit_of_flix(x64):
    clients, _ = random_quadratics(0, clients=4)
    algorithm, local = hf.algorithms.flix(0.5, by=hf.algorithms.fedavg()), hf.Local(0.1, steps=2)
    plain, watched = (
        hf.simulate(algorithm, QUADRATIC, clients, local, 2, evaluate=e) for e in (None, DRIFT)
    )
    assert same_bits(plain.params, watched.params)
    assert all(same_bits(plain.personal(i), watched.personal(i)) for i in range(4))
    check(algorithm, QUADRATIC, clients, local, 2)


def test_the_debug_engine_measures_the_same(x64):
    clients, _ = random_quadratics(0, clients=3)
    check(hf.Algorithm(), QUADRATIC, clients, hf.Local(0.1, steps=1), 1, engine=hf.DebugEngine())


def test_select_measures_what_whole_tables_do():
    local = hf.Local(0.5, epochs=2, batch_size=3)
    small, full = (
        hf.simulate(
            hf.algorithms.scaffold(), ENCODER, viewers(), local, 3, select=s, evaluate=DRIFT
        )
        for s in (True, False)
    )
    names = [n for n in full.history.columns if n.startswith("drift_diversity")]
    assert len(names) > 1
    for name in names:
        np.testing.assert_allclose(small.history[name], full.history[name], rtol=1e-5)


def test_a_client_that_is_left_out_does_not_count(x64):
    clients, _ = random_quadratics(0, clients=4)
    # Numbers that overflow in the client's steps.
    clients.examples.y[2] = 1e300
    clients.examples.x[2] = 1e300
    check(hf.algorithms.fedavg(), QUADRATIC, clients, hf.Local(0.1, steps=2), 2)


def test_a_reply_is_not_left_out_because_it_is_measured():
    # Its square is no number of 32 bits, itself it is.
    data = hf.Examples(np.ones((2, 1), np.float32), np.array([[1e25], [1.0]], np.float32))
    clients = hf.Clients.from_rows(data, [[0], [1]])
    run = hf.simulate(
        hf.algorithms.fedavg(), QUADRATIC, clients, hf.Local(0.1, steps=1), 1, evaluate=DRIFT
    )
    assert run.history["left_out"][0] == 0
    assert float(run.params[0]) > 1e23


def test_goes_on_exactly(tmp_path):
    given = hf.Experiment(
        hf.algorithms.scaffold(),
        MODEL,
        tiny_clients(),
        LOCAL,
        cohort=hf.cohorts.bernoulli(0.4),
        evaluate=DRIFT,
    )
    whole = hf.simulate(given, 6)
    for rounds in (2, 4, 6):
        resumed = hf.simulate(given, rounds, checkpoint=tmp_path)
    assert same_bits(resumed.state.server, whole.state.server)
    for a, b in zip(resumed.history, whole.history, strict=True):
        apart = {n for n in a.keys() | b.keys() if a.get(n) != b.get(n)}
        assert apart <= {"seconds", "compile_seconds"}
    with pytest.raises(hf.HoldfastError, match="another evaluation"):
        hf.simulate(hf.Experiment(**(vars_of(given) | {"evaluate": None})), 8, checkpoint=tmp_path)


def vars_of(given):
    return {
        name: getattr(given, name) for name in ("algorithm", "model", "clients", "local", "cohort")
    }


@pytest.mark.parametrize("first", [None, DRIFT], ids=["begun without", "begun with"])
def test_a_state_goes_on_with_other_evaluators(first):
    then = DRIFT if first is None else None
    algorithm, clients = hf.algorithms.scaffold(), tiny_clients()
    whole = hf.simulate(algorithm, MODEL, clients, LOCAL, 4)
    start = hf.simulate(algorithm, MODEL, clients, LOCAL, 2, evaluate=first).state
    rest = hf.simulate(algorithm, MODEL, clients, LOCAL, 4, start=start, evaluate=then)
    assert same_bits(rest.params, whole.params)
    assert np.isfinite(rest.history["drift_diversity"]).sum() == 2


def test_a_mean_of_replies_is_not_enough():
    algorithm = hf.Algorithm(wire=hf.wires.Diana(hf.wires.Quantise(levels=4)), name="diana")
    with pytest.raises(hf.HoldfastError, match="diana: TrackedDrift needs every client's update"):
        hf.simulate(algorithm, MODEL, tiny_clients(), LOCAL, 1, evaluate=DRIFT)


@pytest.mark.parametrize("name", ["local_only", "centralised"])
def test_where_nothing_travels_nothing_is_measured(name):
    algorithm = getattr(hf.algorithms, name)()
    run = hf.simulate(algorithm, MODEL, tiny_clients(), LOCAL, 2, evaluate=DRIFT)
    assert "drift_diversity" not in run.history.columns


def test_costs_clients_no_operations():
    clients = tiny_clients()
    several = [hf.diagnose.flops()], [hf.diagnose.flops(), DRIFT]
    found = [
        hf.simulate(hf.algorithms.fedavg(), MODEL, clients, LOCAL, 1, evaluate=e).history["mflop"][
            0
        ]
        for e in several
    ]
    assert found[0] == found[1]


def test_every_so_many_rounds():
    every = hf.diagnose.drift(every=2)
    run = hf.simulate(hf.algorithms.fedavg(), MODEL, tiny_clients(), LOCAL, 4, evaluate=every)
    assert np.isfinite(run.history["drift_diversity"]).tolist() == [False, True, False, True]
    with pytest.raises(hf.HoldfastError, match="drift: every=0; give a whole number of at least 1"):
        hf.diagnose.drift(every=0)


def test_only_what_watches_may_stand_beside_a_method():
    class Asking(type(DRIFT)):
        def watches(self, populations):
            return hf.rules.Dynamic(0.1)

    with pytest.raises(hf.HoldfastError, match="asks for Dynamic beside the method"):
        hf.simulate(hf.algorithms.fedavg(), MODEL, tiny_clients(), LOCAL, 1, evaluate=Asking())
