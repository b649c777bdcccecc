"""A user's own rule, without touching the library; and rules that `check` must refuse."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from holdfast.trees import scale, zeros
from tests.problems import tiny_clients


class Inertia(hf.Rule):
    """Each client goes on in the direction it took last time, and reports how far it went."""

    strength: Any

    def init(self, params):
        return hf.State(server=hf.trees.norm(zeros(params)), client=zeros(params))

    def tilt(self, at):
        return hf.Tilt(linear=scale(-self.strength, at.mine))

    def reply(self, delta, at):
        return delta, hf.trees.norm(delta)

    def settle(self, delta, heard, at):
        return delta

    def step(self, delta, heard, at):
        return delta, heard


def test_it_runs_is_checked_and_appears_in_the_ledger():
    algorithm = hf.Algorithm(Inertia(0.2), name="inertia")
    model = hf.models.mlp([4], classes=3)
    run = hf.simulate(algorithm, model, tiny_clients(), hf.Local(0.1, batch_size=4), rounds=3)
    model_bytes = sum(p.size * 4 for p in [*run.params["classifier"].values()]) + sum(
        p.size * 4 for p in run.params["hidden_0"].values()
    )
    assert [e.down for e in run.ledger.entries] == [model_bytes] * 3
    assert [e.up for e in run.ledger.entries] == [model_bytes + 4] * 3
    assert float(run.state.server.rule) > 0
    small = hf.models.softmax_regression(classes=3)
    assert hf.testing.check(algorithm, small).passed == tuple(hf.testing.CHECKS)


class Unlike(hf.Rule):
    """Sends some numbers of its client, and hears others of the same shapes."""

    def init(self, params):
        return hf.State(server=(params, jnp.zeros(())))

    def reply(self, delta, at):
        return delta, (at.y, at.weight)

    def hear(self, delta, upload, at):
        return at.x, at.path

    def step(self, delta, heard, at):
        return delta, heard


def test_what_is_heard_is_not_taken_for_what_was_received():
    """Sums that are the same are kept once, and only those."""
    model, local = hf.models.softmax_regression(classes=3), hf.Local(0.1, steps=3, batch_size=4)
    run = hf.simulate(hf.Algorithm(Unlike()), model, tiny_clients(), local, rounds=1)
    (x, path), begun = run.state.server.rule, run.simulation.params
    np.testing.assert_allclose(path, 0.3, rtol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6), x, begun)


class Forgetful(hf.Rule):
    """Has a number it never uses."""

    ignored: Any


class Widening(hf.Rule):
    """Its row changes type."""

    def init(self, params):
        return hf.State(client=jnp.zeros((), jnp.float16))

    def settle(self, delta, heard, at):
        return at.mine.astype(jnp.float32)


CALLS = itertools.count(1)


class OrderBound(hf.Rule):
    """Its step depends on numbers that are there only while one program is traced."""

    def step(self, delta, heard, at):
        return scale(float(next(CALLS)), delta), at.state


class Negative(hf.Rule):
    """Lets a compiled value decide in Python, so every new value is a new program."""

    amount: float = hf.static(default=0.1)
    strength: Any = 0.5

    def tilt(self, at):
        return hf.Tilt(pull=self.strength if self.amount > 0 else None)


def test_check_names_the_number_without_effect():
    with pytest.raises(hf.testing.ConformanceError, match=r"ignored changes nothing"):
        hf.testing.check(hf.Algorithm(Forgetful(1.0)), only=["hyper-parameters"])


def test_a_row_that_changes_shape_or_type_is_refused_before_the_run():
    with pytest.raises(hf.HoldfastError, match=r"`settle` returns a state of .*float32"):
        hf.testing.check(hf.Algorithm(Widening()), only=["types"])


def test_check_finds_a_rule_that_is_not_a_function_of_its_arguments():
    with pytest.raises(hf.testing.ConformanceError, match=r"engines: .*more than rounding"):
        hf.testing.check(hf.Algorithm(OrderBound()), only=["engines"])


def test_static_numbers_are_structure_and_not_hyper_parameters():
    assert hf.testing.check(hf.Algorithm(Negative()), only=["recompilation", "hyper-parameters"])


def test_an_unknown_check_is_named():
    with pytest.raises(hf.HoldfastError, match=r"did you mean `order`"):
        hf.testing.check(hf.algorithms.fedavg(), only=["orders"])


class Greedy(hf.Rule):
    needs = frozenset({hf.Need.WHOLE_MODEL, hf.Need.SERVER_DATA, hf.Need.LAST})


class Rewriting(hf.Rule):
    rewrites_delta = True

    def reply(self, delta, at):
        return scale(0.5, delta), ()


class Lossy(hf.Wire):
    lossless = False


class Exact(hf.Rule):
    needs = frozenset({hf.Need.LOSSLESS_WIRE})


def test_declared_needs_are_refused_with_a_sentence():
    with pytest.raises(hf.HoldfastError, match=r"Masked: Greedy needs the whole model"):
        hf.Masked(Greedy(), [True])
    with pytest.raises(hf.HoldfastError, match=r"Greedy stands at place 0 of 2 but needs the last"):
        hf.Chain((Greedy(), hf.Rule()))
    with pytest.raises(hf.HoldfastError, match=r"SplitAll stands at place 1 of 2"):
        hf.Chain((hf.rules.Proximal(0.1), hf.rules.SplitAll(0.5)))
    with pytest.raises(hf.HoldfastError, match=r"Dynamic needs the delta .* Rewriting rewrites it"):
        hf.Chain((hf.rules.Dynamic(0.1), Rewriting()))
    with pytest.raises(hf.HoldfastError, match=r"Exact needs a wire .* Lossy changes them"):
        hf.Algorithm(Exact(), Lossy())
    with pytest.raises(hf.HoldfastError, match=r"Greedy needs data or a loss at the server"):
        hf.simulate(
            hf.Algorithm(Greedy()), hf.models.mlp([], 3), tiny_clients(), hf.Local(0.1), rounds=1
        )


def test_momentum_where_a_rule_needs_plain_steps_is_refused():
    clients, model = tiny_clients(), hf.models.mlp([4], classes=3)
    heavy = hf.Local(0.1, momentum=0.9)
    with pytest.raises(hf.HoldfastError, match=r"momentum on `classifier/bias`"):
        hf.simulate(hf.algorithms.scaffold(), model, clients, heavy, rounds=1)
    masked = hf.algorithms.fedpvr(mask=lambda path: path.startswith("classifier"))
    with pytest.raises(hf.HoldfastError, match=r"keep it off this leaf with momentum_on"):
        hf.simulate(masked, model, clients, heavy, rounds=1)
    elsewhere = hf.Local(0.1, momentum=0.9, momentum_on=lambda path: path.startswith("hidden"))
    assert hf.simulate(masked, model, clients, elsewhere, rounds=1).state.round == 1


def test_rules_that_both_choose_a_start_are_refused():
    twice = hf.Chain((hf.rules.LocalOnly(), hf.rules.LocalOnly()))
    with pytest.raises(hf.HoldfastError, match=r"two rules choose where local steps begin"):
        hf.simulate(
            hf.Algorithm(twice), hf.models.mlp([], 3), tiny_clients(), hf.Local(0.1), rounds=1
        )


class Once(hf.Rule):
    """Remembers the gradient it saw before its first round."""

    def init(self, params):
        return hf.State(client=zeros(params))

    def prepare(self, at):
        return at.grad(at.x)

    def tilt(self, at):
        return hf.Tilt(linear=scale(0.1, at.mine))


def test_prepare_runs_once_before_a_clients_first_round():
    clients, model = tiny_clients(), hf.models.mlp([], classes=3)
    algorithm = hf.Algorithm(hf.Chain((Once(), hf.rules.LastModel())))
    local = hf.Local(0.1, steps=1)
    seen = list(
        hf.simulate(
            algorithm, model, clients, local, rounds, cohort=hf.cohorts.schedule([[0], [0, 1]])
        )
        for rounds in (0, 1, 2)
    )
    start, first, second = seen

    def gradient(params, client):
        def mean(p):
            batch = jax.tree.map(jnp.asarray, clients[client])
            return jnp.mean(model.losses(p, batch, jax.random.key(0)))

        return jax.grad(mean)(params)

    # Where the run began, also for the client that comes later: no message is needed to prepare.
    for run, client in ((first, 0), (second, 0), (second, 1)):
        expected = gradient(start.params, client)
        for p, q in zip(
            jax.tree.leaves(run.client_states[client].rule[0]),
            jax.tree.leaves(expected),
            strict=True,
        ):
            np.testing.assert_allclose(p, q, atol=1e-6)
    assert jax.tree.leaves(first.client_states[2].rule[0])[0].sum() == 0
