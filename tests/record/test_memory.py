"""What a run remembers is reached by the rule that remembers it, wherever it stands."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from holdfast.core.combinators import Wrapper
from tests.problems import QUADRATIC, random_quadratics, same_bits

CLIENTS, OPTIMUM = random_quadratics(1, clients=3, dimensions=2)
GRADIENTS = CLIENTS.examples.x * (OPTIMUM - CLIENTS.examples.y)  # of each client at the optimum
LOCAL = hf.Local(learning_rate=0.1, steps=3)
SERVER = hf.Server(hf.Examples(np.ones((1, 2)), np.ones((1, 2))), LOCAL)


def run(rule, rounds=2, wire=None, **settings):
    algorithm = hf.Algorithm(rule, hf.Wire() if wire is None else wire, name="mine")
    return hf.simulate(algorithm, QUADRATIC, CLIENTS, LOCAL, rounds=rounds, **settings)


class Named(Wrapper):
    """A combinator of a user's own."""


variate, dynamic = hf.rules.ControlVariate(), hf.rules.Dynamic(alpha=1.0)


@pytest.mark.parametrize(
    "rule",
    [
        variate,
        hf.Chain((hf.rules.LastModel(), variate)),
        hf.Chain((hf.rules.Proximal(0.0), hf.Chain((hf.rules.LastModel(), hf.Uploaded(variate))))),
        hf.Masked(variate, [True]),
        Named(hf.Uploaded(variate)),
    ],
    ids=["alone", "chain", "chains", "masked", "own"],
)
def test_the_same_memory_wherever_the_rule_stands(rule, x64):
    composed, plain = run(rule), run(variate)
    found = composed.memory(hf.rules.ControlVariate)
    assert same_bits(composed.params, plain.params)
    assert same_bits(found.server, plain.state.server.rule)
    assert same_bits(found.clients, np.stack([plain.client_states[i].rule for i in range(3)]))


def test_what_scaffold_and_feddyn_remember_at_the_optimum(x64):
    feddc = run(hf.Chain((variate, dynamic)), rounds=400)
    c, c_i = feddc.memory(hf.rules.ControlVariate)
    h, h_i = feddc.memory(hf.rules.Dynamic)
    np.testing.assert_allclose(feddc.params, OPTIMUM, atol=1e-9)
    # Both corrections together make up for each client's own gradient.
    np.testing.assert_allclose(c - c_i + dynamic.alpha * h_i, -GRADIENTS, atol=1e-8)
    np.testing.assert_allclose(c, c_i.mean(0), atol=1e-12)
    np.testing.assert_allclose(h, h_i.mean(0), atol=1e-12)


def test_the_server_that_takes_turns_has_a_state_of_its_own(x64):
    state = run(hf.ServerTurn(variate, 0.5), server=SERVER)
    turn, inner = state.memory(hf.ServerTurn), state.memory(hf.rules.ControlVariate)
    assert same_bits(turn.server.inner, inner.server)
    assert same_bits(turn.clients, inner.clients)
    assert not same_bits(turn.server.own, inner.server)
    transfer = run(hf.rules.TwoWayTransfer(), server=SERVER).memory(hf.rules.TwoWayTransfer)
    assert transfer.server.central.shape == transfer.server.federated.shape == (2,)
    assert transfer.clients == ()


def test_masked_memory_is_of_the_chosen_leaves(x64):
    model = hf.models.softmax_regression(classes=3)
    examples = hf.Examples(np.ones((4, 5)), np.arange(4) % 3)
    clients = hf.data.partition.in_order(examples, clients=2)
    algorithm = hf.algorithms.fedpvr(mask=lambda path: path.endswith("bias"))
    found = hf.simulate(algorithm, model, clients, LOCAL, rounds=1)
    c, c_i = found.memory(hf.rules.ControlVariate)
    shapes = {k: None if v is None else v.shape for k, v in c["classifier"].items()}
    assert shapes == {"bias": (3,), "kernel": None}
    assert c_i["classifier"]["bias"].shape == (2, 3)


def test_shifts_of_a_wire_inside_wires(x64):
    diana = hf.wires.Diana(hf.wires.RandK(k=1))
    wire = hf.wires.Clipped(hf.wires.Downlink(diana, hf.wires.Natural()), bound=1e6)
    state = run(hf.Rule(), wire=wire, rounds=3).state
    (h, _), (h_i, _) = state.memory(hf.wires.Diana)
    assert h_i.shape == (3, 2)
    np.testing.assert_allclose(h, h_i.mean(0), atol=1e-12)
    replica = state.memory(hf.wires.Downlink).server.replica[0]
    assert replica.shape == (2,)


def test_of_one_client_of_some_and_of_who_never_came(x64):
    found = run(dynamic, cohort=hf.cohorts.schedule([[0, 2]]))
    everyone = found.memory(hf.rules.Dynamic).clients
    assert everyone.shape == (3, 2)
    assert everyone[0].all()
    assert not everyone[1].any()
    assert same_bits(found.memory(hf.rules.Dynamic, clients=2).clients, everyone[2])
    assert same_bits(found.memory(hf.rules.Dynamic, clients=[2, 0]).clients, everyone[[2, 0]])


def test_states_between_rounds_and_saved_ones_know_too(x64, tmp_path):
    seen = []
    algorithm = hf.Algorithm(hf.Chain((hf.rules.LastModel(), dynamic)), name="mine")
    settings = {
        "checkpoint": tmp_path,
        "on_round": lambda s: seen.append(s.memory(hf.rules.Dynamic)),
    }
    made = hf.simulate(algorithm, QUADRATIC, CLIENTS, LOCAL, rounds=2, **settings)
    loaded = hf.simulate(algorithm, QUADRATIC, CLIENTS, LOCAL, rounds=2, **settings)
    assert len(seen) == 2
    assert same_bits(loaded.memory(hf.rules.Dynamic), made.memory(hf.rules.Dynamic))
    assert same_bits(seen[1], made.memory(hf.rules.Dynamic))
    # A state that another algorithm goes on from is read as that one's.
    other = dataclasses.replace(algorithm, rule=hf.Chain((dynamic, hf.rules.Proximal(0.0))))
    with pytest.raises(hf.HoldfastError, match="server is"):
        hf.simulate(other, QUADRATIC, CLIENTS, LOCAL, rounds=3, start=made.state)


TWICE = hf.Chain((hf.Masked(dynamic, [True]), hf.rules.Dynamic(alpha=0.1)))


def test_a_rule_that_is_there_twice_is_chosen_by_number(x64):
    found = run(TWICE)
    first, second = (found.memory(hf.rules.Dynamic, which=k).clients for k in (0, 1))
    assert same_bits((first, second), found.memory(hf.Chain).clients)


@pytest.mark.parametrize(
    ("rule", "arguments", "message"),
    [
        (
            hf.Uploaded(variate),
            {"kind": hf.rules.Dynamic},
            "there is no Dynamic in mine, which is Uploaded, ControlVariate, Wire",
        ),
        (TWICE, {"kind": hf.rules.Dynamic}, "Dynamic is in mine 2 times; give which=0 .* which=1"),
        (TWICE, {"kind": hf.rules.Dynamic, "which": 2}, r"which=2, .* number in 0\.\.1"),
        (dynamic, {"kind": dynamic}, r"Dynamic\(alpha=1.0\) is not the class .* such as Dynamic"),
        (dynamic, {"kind": "Dynamic"}, "'Dynamic' is not the class of a rule"),
        (dynamic, {"kind": hf.rules.Dynamic, "clients": 3}, r"clients=3; give a number in 0\.\.2"),
        (dynamic, {"kind": hf.rules.Dynamic, "clients": [0.5]}, r"clients=\[0.5\]; give a number"),
    ],
)
def test_what_cannot_be_found_is_said(rule, arguments, message, x64):
    with pytest.raises(hf.HoldfastError, match=message):
        run(rule, rounds=0).memory(**arguments)


@pytest.mark.parametrize("client", [3, -1, 0.5])
def test_the_model_of_nobody_is_refused(client, x64):
    with pytest.raises(hf.HoldfastError, match=r"client=.*; give a number in 0\.\.2"):
        run(hf.Rule(), rounds=0).personal(client)


def test_who_took_part_in_each_round():
    in_turn = hf.cohorts.schedule([[0, 1], [2], [1, 2]])
    found = run(hf.Rule(), rounds=4, cohort=in_turn)
    expected = [[1, 1, 0], [0, 0, 1], [0, 1, 1], [1, 1, 0]]
    assert found.participation.dtype == bool
    assert found.participation.astype(int).tolist() == expected


def test_a_client_that_was_left_out_did_not_take_part(tmp_path):
    def loss(w, batch):
        return QUADRATIC.loss(w, batch) * jnp.where(batch.y[:, 0] == 9.0, jnp.nan, 1.0)

    centres = np.array([[1.0], [9.0], [2.0]], np.float32)
    clients = hf.Clients.from_rows(hf.Examples(centres * 0 + 1, centres), [[0], [1], [2]])
    sick = dataclasses.replace(QUADRATIC, loss=loss)
    algorithm = hf.algorithms.fedavg()
    for _ in range(2):  # run, and read from its save
        found = hf.simulate(algorithm, sick, clients, LOCAL, rounds=2, checkpoint=tmp_path)
        assert found.participation.astype(int).tolist() == [[1, 0, 1], [1, 0, 1]]
        assert found.ledger.entries[0].clients == (0, 1, 2)
