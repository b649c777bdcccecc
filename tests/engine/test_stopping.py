"""Early stopping: the best round is kept, and runs end alike however they were interrupted."""

import dataclasses

import jax
import numpy as np
import pytest

import holdfast as hf
from tests.problems import same_bits, tiny_clients

MODEL = hf.models.mlp([4], classes=3)
CLIENTS = tiny_clients(sizes=(8, 12, 6, 10))
TRAIN, VALIDATION = hf.data.set_apart(CLIENTS, share=0.25)
# Too large a step: some round is better than the last.
LOCAL = hf.Local(0.8, epochs=2, batch_size=4)
WATCH = (
    hf.evaluate.on(VALIDATION.pooled()[0], name="validation"),
    hf.evaluate.personal(VALIDATION, name="validation"),
)
BEST = hf.EarlyStopping("validation_loss")
OWN = hf.EarlyStopping("validation_personal_loss")


def simulate(algorithm=None, rounds=12, stop=BEST, evaluate=WATCH, **more):
    algorithm = algorithm or hf.algorithms.scaffold()
    return hf.simulate(algorithm, MODEL, TRAIN, LOCAL, rounds, evaluate=evaluate, stop=stop, **more)


@pytest.fixture(scope="module")
def run():
    return simulate()


@pytest.mark.parametrize(
    ("algorithm", "stop"),
    [
        (hf.algorithms.scaffold(), BEST),
        (hf.algorithms.local_only(), OWN),
        (hf.algorithms.reptile(), OWN),
    ],
)
def test_the_best_round_is_what_the_run_has(algorithm, stop):
    found = simulate(algorithm, stop=stop)
    losses = found.history[stop.metric]
    assert found.best_round == int(losses.argmin()) + 1
    assert found.best_round < found.state.round == 12
    assert found.stopped is None
    # The same method, ended there.
    short = simulate(algorithm, rounds=found.best_round, stop=None)
    assert same_bits(found.params, short.params)
    assert same_bits(found.personal_all(), short.personal_all())
    for i in range(4):
        assert same_bits(found.client_states[i], short.client_states[i])
    assert found.view.state.round == found.best_round
    assert len(found.view.state.ledger.entries) == found.best_round
    assert [r["validation_loss"] for r in found.deployed.history] == [
        r["validation_loss"] for r in short.history
    ]
    assert len(found.history) == len(found.ledger.entries) == 12
    last = simulate(algorithm, stop=dataclasses.replace(stop, keep="last"))
    assert last.best_round == found.best_round
    assert same_bits(last.params, last.state.params)
    assert same_bits(last.state.params, found.state.params)  # looking changes nothing


def test_patience(run):
    at = run.best_round
    found = simulate(stop=dataclasses.replace(BEST, patience=3))
    assert (found.state.round, found.best_round) == (at + 3, at)
    assert found.stopped == f"no better validation_loss in 3 evaluations after round {at}"
    assert same_bits(found.params, run.params)
    every_other = [dataclasses.replace(e, every=2) for e in WATCH]
    rare = simulate(stop=dataclasses.replace(BEST, patience=2), evaluate=every_other)
    assert rare.best_round % 2 == 0
    assert rare.state.round == min(12, rare.best_round + 4)


def test_exact_wherever_it_is_interrupted(run, tmp_path):
    stop = dataclasses.replace(BEST, patience=3)
    whole = simulate(stop=stop)
    for ended in range(1, whole.state.round + 1):
        place = hf.Checkpoint(tmp_path / str(ended), every=2)

        def kill(state, ended=ended):
            if state.round == ended:
                raise InterruptedError

        with pytest.raises(InterruptedError):
            simulate(stop=stop, checkpoint=place, on_round=kill)
        again = simulate(stop=stop, checkpoint=place)
        assert again.state.round == whole.state.round
        assert (again.best_round, again.stopped) == (whole.best_round, whole.stopped)
        assert same_bits(again.params, whole.params)
        assert same_bits(again.state.params, whole.state.params)
        for i in range(4):
            assert same_bits(again.client_states[i], whole.client_states[i])
        # Once more: it is over, and nothing is run.
        assert simulate(stop=stop, checkpoint=place).state.round == whole.state.round


def test_of_one_client_state_that_is_personal_through_a_save(tmp_path):
    whole = simulate(hf.algorithms.local_only(), stop=OWN)
    simulate(hf.algorithms.local_only(), stop=OWN, rounds=whole.best_round + 1, checkpoint=tmp_path)
    again = simulate(hf.algorithms.local_only(), stop=OWN, checkpoint=tmp_path)
    assert same_bits(again.personal_all(), whole.personal_all())
    with pytest.raises(hf.HoldfastError, match="another early stopping"):
        simulate(hf.algorithms.local_only(), stop=BEST, checkpoint=tmp_path)


def test_going_on_from_a_state(run):
    half = simulate(rounds=6)
    on = simulate(start=half.state)
    assert on.best_round == run.best_round
    assert same_bits(on.params, run.params)
    bare = simulate(rounds=6, stop=None)
    with pytest.raises(hf.HoldfastError, match="which the state has not kept"):
        simulate(start=bare.state)
    assert simulate(start=half.state, stop=None).state.best is None


def test_joined_populations():
    both = hf.join([hf.Population(TRAIN, MODEL, name="a"), hf.Population(TRAIN, MODEL, name="b")])
    tests = [VALIDATION.pooled()[0]] * 2
    watch = hf.evaluate.populations(both.clients, tests, name="validation")
    settings = {"local": LOCAL, "evaluate": watch}
    joined = hf.simulate(hf.algorithms.fedavg(), **both, rounds=10, stop=BEST, **settings)
    short = hf.simulate(hf.algorithms.fedavg(), **both, rounds=joined.best_round, **settings)
    assert same_bits(joined.params, short.params)


def test_what_cannot_be_chosen_by():
    with pytest.raises(
        hf.HoldfastError, match="nothing called `validation_los` is measured; did you"
    ):
        simulate(stop=hf.EarlyStopping("validation_los"))
    with pytest.raises(hf.HoldfastError, match=r"patience=0; give how many"):
        hf.EarlyStopping("validation_loss", patience=0)
    with pytest.raises(hf.HoldfastError, match="keep='first'"):
        hf.EarlyStopping("validation_loss", keep="first")
    with pytest.raises(hf.HoldfastError, match="stop=3 is a int; give an EarlyStopping"):
        simulate(stop=3)
    with pytest.raises(hf.HoldfastError, match="kept in memory, where there is room for"):
        simulate(storage=hf.Storage(memory=10))


def test_numbers_that_are_none_are_never_best():
    history = hf.History(
        [{"round": t, "loss": v} for t, v in enumerate([3.0, np.nan, 2.0, 2.0], 1)]
    )
    stop = hf.EarlyStopping("loss", patience=2)
    assert stop.best(history, ()) == (3, 2.0)
    assert stop.why(history, ()) is None
    never = hf.History([{"round": t, "loss": np.nan} for t in (1, 2)])
    assert stop.best(never, ()) is None
    assert stop.why(never, ()) == "no better loss in 2 evaluations from the beginning"


def test_what_is_set_apart():
    train, _ = hf.data.digits()
    everything = hf.data.partition.dirichlet(train, clients=10, concentration=0.5)
    clients, apart = hf.data.set_apart(everything, share=0.2, seed=3)
    for i in range(10):
        both = np.sort(np.concatenate([clients.rows(i), apart.rows(i)]))
        assert np.array_equal(both, np.sort(everything.rows(i)))
        assert abs(len(apart.rows(i)) - 0.2 * len(both)) <= 0.5
        # Of each label its share, but for less than one example on either side.
        counts = [np.bincount(part[i].y, minlength=10) for part in (everything, apart)]
        assert (abs(counts[1] - 0.2 * counts[0]) < 2).all()
    again = hf.data.set_apart(everything, share=0.2, seed=3)[1]
    assert np.array_equal(again.order, apart.order)
    assert not np.array_equal(hf.data.set_apart(everything, 0.2, seed=4)[1].order, apart.order)
    tiny = hf.Clients.from_datasets([hf.Examples(np.ones((n, 1)), np.ones(n)) for n in (1, 2, 9)])
    kept, few = hf.data.set_apart(tiny, share=0.9)
    assert (kept.sizes.tolist(), few.sizes.tolist()) == ([1, 1, 1], [0, 1, 8])
    with pytest.raises(hf.HoldfastError, match="is none at any client"):
        hf.data.set_apart(tiny, share=0.01)
    with pytest.raises(hf.HoldfastError, match=r"share=1; give more than 0 and less"):
        hf.data.set_apart(tiny, share=1)
    assert jax.tree.leaves(few.examples)[0].shape == (12, 1)
