"""A mask that the first round chooses: the run is the one that somebody would write who knows it."""

import dataclasses

import numpy as np
import pytest

import holdfast as hf
from holdfast.core import auto_mask as waiting
from holdfast.engine import auto_mask
from holdfast.engine.setup import algorithm_of, checked
from holdfast.models.layers import Layer
from holdfast.sweeps.work import without_code
from tests.engine.test_select import MODEL as TABLE
from tests.engine.test_select import viewers
from tests.engine.test_unlike_populations import joined as unlike
from tests.problems import same_bits, tiny_clients

MODEL = hf.models.mlp([4], classes=3)
CLIENTS = tiny_clients()
LOCAL = hf.Local(0.1, steps=2, batch_size=3)
AUTO = hf.algorithms.fedpvr("auto")
UNIFORM = hf.algorithms.fedavg(weighting="uniform")
EVERYBODY = np.arange(len(CLIENTS))
# Names begin with a letter each, in no order of the model.
LAYERS = (Layer("first", (2, 3), 80), Layer("second", (4,), 10), Layer("last", (0, 1), 10))
SUGGESTED = auto_mask.suggested


@pytest.fixture(autouse=True)
def some_are_masked(monkeypatch):
    """Of two layers the last, whatever rule is the library's."""
    monkeypatch.setattr(auto_mask, "suggested", lambda diversity, clients: 1)


def run_of(algorithm, rounds=4, **settings):
    settings = {"model": MODEL, "clients": CLIENTS, "local": LOCAL, "seed": 1} | settings
    return hf.simulate(algorithm, rounds=rounds, **settings)


def by_hand(algorithm, first_round, rounds=4, **settings):
    return run_of(algorithm, rounds, first_round=first_round, **settings)


def assert_same(a, b):
    assert same_bits(a.params, b.params)
    assert same_bits(a.state.server, b.state.server)
    assert same_bits(a.client_states.read(EVERYBODY), b.client_states.read(EVERYBODY))
    assert a.ledger.entries == b.ledger.entries


@pytest.fixture(scope="module")
def whole():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto_mask, "suggested", lambda diversity, clients: 1)
        return run_of(AUTO)


def populations():
    """Two with the same model, which have one order of layers."""
    several = [hf.Population(tiny_clients(seed), MODEL, weight=1.0 + seed) for seed in (0, 1)]
    found = hf.join(several)
    return {"model": found.model, "clients": found.clients, "local": LOCAL}


def test_it_is_the_run_by_hand(whole):
    chosen = whole.chosen_mask
    assert chosen.layers == ("hidden_0", "classifier")
    assert chosen.masked == ("classifier",)
    assert chosen.parameters == (True, True, False, False)
    assert chosen.share == 15 / 39
    hand = by_hand(hf.algorithms.fedpvr(chosen.parameters), UNIFORM)
    assert_same(whole, hand)
    assert hand.chosen_mask is None
    # In the first round nothing but the model travels.
    assert whole.ledger.entries[0].bits_down == 8 * 4 * 39
    assert whole.ledger.entries[1].bits_down == 8 * 4 * (39 + 15)
    # What is chosen by is the diversity that FedAvg's first round has.
    deltas = []
    at_first = hf.simulate(UNIFORM, MODEL, CLIENTS, LOCAL, 0, seed=1).params
    for i in range(4):
        alone = dataclasses.replace(CLIENTS, order=CLIENTS.order)
        run = hf.simulate(UNIFORM, MODEL, alone, LOCAL, 1, seed=1, cohort=OnlyOne(i))
        deltas.append(
            [
                np.asarray(a) - np.asarray(b)
                for a, b in zip(*leaves(run.params, at_first), strict=True)
            ]
        )
    for layer, places in ((0, (2, 3)), (1, (0, 1))):
        each = [np.concatenate([d[p].ravel() for p in places]) for d in deltas]
        known = sum(m @ m for m in each) / (sum(each) @ sum(each))
        assert chosen.diversity[layer] == pytest.approx(known, rel=1e-4)


class OnlyOne:
    """A cohort of one client."""

    def __init__(self, client):
        self.client = client

    def check(self, able, clients):
        """Nothing can be wrong."""

    def draw(self, t, able, rng):
        return np.array([self.client])


def leaves(*trees):
    import jax

    return [jax.tree.leaves(tree) for tree in trees]


def published(wire=None):
    algorithm = hf.algorithms.fedpvr("auto", upload="published")
    return algorithm if wire is None else dataclasses.replace(algorithm, wire=wire)


NATURAL = hf.wires.Natural()
CASES = {
    "weighting": (
        hf.algorithms.fedpvr("auto", weighting="examples"),
        hf.algorithms.fedavg(weighting="examples"),
        {},
    ),
    "server step": (
        hf.algorithms.fedpvr("auto", server_learning_rate=0.5),
        hf.algorithms.fedavg(server_learning_rate=0.5, weighting="uniform"),
        {"cohort": hf.cohorts.fixed(2)},
    ),
    "compressed": (
        published(hf.wires.ErrorFeedback(NATURAL)),
        dataclasses.replace(UNIFORM, wire=hf.wires.ErrorFeedback(NATURAL)),
        {},
    ),
    "diana": (
        published(hf.wires.Diana(NATURAL)),
        dataclasses.replace(UNIFORM, wire=hf.wires.Diana(NATURAL)),
        {},
    ),
    "populations": (AUTO, UNIFORM, populations()),
    "select": (AUTO, UNIFORM, {"select": True, "model": TABLE, "clients": viewers()}),
    "mixture": (
        hf.algorithms.flix(0.5, by=AUTO),
        hf.algorithms.flix(0.5, by=UNIFORM),
        {"evaluate": hf.diagnose.flops(), "model": hf.models.regularised(MODEL, 0.5)},
    ),
}


# Networks have no optimum that a solver would be sure of.
@pytest.mark.filterwarnings("ignore:.*preparation of")
@pytest.mark.parametrize("case", CASES)
def test_beside_other_things_too_it_is_the_run_by_hand(case):
    algorithm, first, settings = CASES[case]
    found = run_of(algorithm, 3, **settings)
    mask = found.chosen_mask.parameters
    assert_same(found, by_hand(waiting.with_mask(algorithm, mask), first, 3, **settings))


def test_on_the_debug_engine_it_chooses_the_same(whole):
    found = run_of(AUTO, 1, engine=hf.DebugEngine())
    assert found.chosen_mask.parameters == whole.chosen_mask.parameters
    assert found.chosen_mask.diversity == pytest.approx(whole.chosen_mask.diversity, rel=1e-4)


@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("storage", [None, hf.Storage(memory=0)], ids=["memory", "disk"])
def test_a_run_that_was_stopped_goes_on_with_the_mask_it_chose(
    whole, tmp_path, monkeypatch, rounds, storage
):
    place = hf.Checkpoint(tmp_path / "run", every=1)
    run_of(AUTO, rounds, checkpoint=place, storage=storage)
    # Another machine might choose otherwise; what was chosen counts.
    monkeypatch.setattr(auto_mask, "suggested", lambda diversity, clients: 0)
    again = run_of(AUTO, checkpoint=place, storage=storage)
    assert again.chosen_mask == whole.chosen_mask
    assert_same(whole, again)


def test_a_damaged_save_is_not_asked_for_the_mask(whole, tmp_path, monkeypatch):
    place = hf.Checkpoint(tmp_path / "run", every=1)
    run_of(AUTO, 3, checkpoint=place)
    newest = place.files()[-1]
    content = newest.read_bytes()
    newest.write_bytes(content.replace(b'first\\": 1', b'first\\": 0'))
    assert newest.read_bytes() != content
    monkeypatch.setattr(auto_mask, "suggested", lambda diversity, clients: 0)
    with pytest.warns(hf.HoldfastWarning, match="cannot be used"):
        assert_same(whole, run_of(AUTO, checkpoint=place))


def test_a_state_knows_its_mask(whole, monkeypatch):
    monkeypatch.setattr(auto_mask, "suggested", lambda diversity, clients: 0)
    experiment = hf.Experiment(AUTO, MODEL, CLIENTS, LOCAL, seed=1)
    vars(experiment)["_chosen_mask"] = whole.chosen_mask
    first = next(hf.rounds(experiment))
    again = dataclasses.replace(experiment)
    assert_same(whole, hf.simulate(again, 4, start=first))
    states = hf.rounds(dataclasses.replace(experiment), start=first)
    assert next(states).chosen_mask == whole.chosen_mask
    # Sent from another process it has no algorithm, and is given the one that its states are of.
    own = algorithm_of(dataclasses.replace(experiment), without_code(whole.state))
    named = dataclasses.replace(whole.state, algorithm=own).memory(hf.rules.ControlVariate)
    assert same_bits(named, whole.memory(hf.rules.ControlVariate))


def test_the_choice_is_part_of_no_identity():
    experiment = hf.Experiment(AUTO, MODEL, CLIENTS, LOCAL, seed=1)
    found = hf.simulate(experiment, 1)
    assert checked(experiment).identity() == found.simulation.setup.identity()
    hand = hf.Experiment(
        hf.algorithms.fedpvr(found.chosen_mask.parameters), MODEL, CLIENTS, LOCAL, seed=1
    )
    assert checked(hand).identity() != found.simulation.setup.identity()


class TestRefusals:
    def refused(self, match, algorithm=AUTO, **settings):
        with pytest.raises(hf.HoldfastError, match=match):
            run_of(algorithm, 2, **settings)

    def test_another_word(self):
        with pytest.raises(hf.HoldfastError, match="fedpvr: unknown mask `atuo`; did you mean"):
            hf.algorithms.fedpvr("atuo")

    def test_a_first_round_of_its_own(self):
        self.refused('mask="auto" has a first round of its own', first_round=UNIFORM)

    def test_momentum_on_any_layer(self):
        local = hf.Local(0.1, steps=1, momentum=0.9, momentum_on=lambda path: "hidden" in path)
        self.refused("momentum on `hidden_0/bias`", local=local)

    def test_nobody_in_the_first_round(self):
        self.refused("nobody took part in the first round", cohort=OnlyLater())

    def test_a_state_of_another_run(self, whole):
        plain = run_of(UNIFORM, 1)
        with pytest.raises(hf.HoldfastError, match="run with no chosen mask"):
            run_of(AUTO, 2, start=plain.state)

    def test_a_mask_inside_a_mask(self):
        inside = hf.Masked(AUTO.rule, lambda path: path.startswith("hidden"))
        self.refused("mask has 4 entries but params has 2 leaves", hf.Algorithm(inside))

    def test_populations_with_models_of_their_own(self):
        both = unlike()
        with pytest.raises(hf.HoldfastError, match="fedpvr: layers: branches of the loss meet"):
            checked(hf.Experiment(AUTO, both.model, both.clients, both.local))

    def test_a_rule_that_nobody_ran(self):
        with pytest.raises(
            hf.HoldfastError, match="chosen after a first round, and there was none"
        ):
            AUTO.rule.init({"weights": np.zeros(2)})

    def test_the_save_of_another_choice(self, tmp_path, whole):
        place = hf.Checkpoint(tmp_path / "run", every=1)
        run = run_of(AUTO, 1, checkpoint=place)
        other = dataclasses.replace(run.chosen_mask, share=0.5)
        fresh = dataclasses.replace(run.simulation.begin(), chosen_mask=other)
        with pytest.raises(hf.HoldfastError, match="another mask"):
            place.load(fresh, run.simulation.setup.identity())


class OnlyLater:
    """A cohort of nobody in the first round."""

    def check(self, able, clients):
        """Nothing can be wrong."""

    def draw(self, t, able, rng):
        return able if t else able[:0]


def test_algorithms_with_and_without_the_mask():
    chained = hf.algorithms.fedpvr("auto", server_learning_rate=0.5)
    assert waiting.asks(AUTO)
    assert not waiting.asks(UNIFORM)
    assert (waiting.places(AUTO), waiting.places(chained)) == (["rule.mask"], ["rule.rules.0.mask"])
    assert waiting.without(AUTO).rule == hf.Rule()
    assert not waiting.asks(waiting.with_mask(chained, (True, False)))
    assert waiting.with_mask(UNIFORM, (True,)) == UNIFORM


def test_all_layers_from_one_on():
    found = auto_mask.mask_from(LAYERS, 1, (0.2, 0.5, 2.0))
    assert found.masked == ("second", "last")
    assert found.parameters == (True, True, False, False, True)
    assert found.share == 0.2
    assert str(found) == "masked from second on, 20.0% of the parameters"
    assert type(found).from_json(found.to_json()) == found
    none = auto_mask.mask_from(LAYERS, 3, (0.2, 0.5, np.inf))
    assert (none.masked, none.share, str(none)) == ((), 0.0, "no layer is masked")
    assert type(none).from_json(none.to_json()) == none


@pytest.mark.parametrize(
    ("diversity", "clients", "first"),
    [
        # Everybody moves alike: nothing to reduce.
        ((0.1, 0.1, 0.1), 10, 3),
        # All drift.
        ((0.3, 0.6, 0.9), 10, 0),
        # The last alone does.
        ((0.1, 0.2, 0.9), 10, 2),
        # So do both ends, but what is between them does not.
        ((0.9, 0.1, 0.9), 10, 2),
        # The last agrees, whatever the others do.
        ((0.9, 0.9, 0.1), 10, 3),
        # Half of what clients do is undone: not most of it.
        ((0.25, 0.25), 8, 2),
        ((0.26, 0.26), 8, 0),
        # One client agrees with itself.
        ((1.0, 1.0), 1, 2),
        # Updates that cancel.
        ((0.4, np.inf), 4, 1),
        ((np.inf,), 2, 0),
    ],
)
def test_the_mask_is_the_longest_ending_that_drifts(diversity, clients, first):
    assert SUGGESTED(diversity, clients) == first
