"""A wire that sends what changed: every site follows the server's copy, to the bits of the simulation."""

import dataclasses

import numpy as np
import pytest

import holdfast as hf
from holdfast.deploy import InProcess, frame
from holdfast.deploy.cohort import version_of
from holdfast.deploy.states import StateVersions
from tests.deploy.federations import experiment, sites
from tests.deploy.test_faults import QUICK, EndedError, Troubled
from tests.problems import same_bits

ROUNDS = 6


def given(compressor, inner=None, rule=None, **changes):
    wire = hf.wires.Downlink(hf.Wire() if inner is None else inner, compressor)
    algorithm = dataclasses.replace(rule or hf.algorithms.fedavg(), wire=wire)
    return experiment(algorithm=algorithm, **changes)


CASES = {
    "natural": lambda: given(hf.wires.Natural(), rule=hf.algorithms.scaffold()),
    "some places": lambda: given(hf.wires.RandK(k=5), rule=hf.algorithms.feddyn(alpha=0.1)),
    "largest places, replies compressed too": lambda: given(
        hf.wires.TopK(k=4), hf.wires.ErrorFeedback(hf.wires.TopK(k=4))
    ),
    "quantised, some sites a round": lambda: given(
        hf.wires.Quantise(levels=4), cohort=hf.cohorts.fixed(2)
    ),
    "a schedule, one site a round": lambda: given(
        hf.wires.RandK(k=3), cohort=hf.cohorts.fixed(1), rule=hf.algorithms.scaffold()
    ),
}


@pytest.fixture(scope="module", params=CASES)
def both(request):
    made = CASES[request.param]()
    return made, hf.simulate(made, rounds=ROUNDS)


def require_simulation(run, there, simulated):
    assert same_bits(run.params, simulated.params)
    assert same_bits(run.state.server, simulated.state.server)
    engine = run.experiment.engine
    template = engine.setup.template
    for i, site in enumerate(there):
        mark = version_of(run.state.client_states[i])
        if mark.round == 0:
            continue
        states = StateVersions(site.folder / engine.run)
        own, copy = states.read(mark, (template.client, template.broadcast))
        assert same_bits(own, simulated.client_states[i])
        if mark.round == run.state.round:
            # What it has is what the server takes it to have.
            assert same_bits(copy, run.state.server.wire.replica)


class Weighed(InProcess):
    """Bytes of bodies of rounds, as they were sent."""

    def __init__(self, sites):
        super().__init__(sites)
        self.down = {}

    def send(self, address, data):
        header, body = frame.unpack(data, 1 << 20)
        if header["kind"] == "round":
            self.down.setdefault(header["round"], []).append((len(body), header["changes"]))
        return super().send(address, data)


def test_every_site_follows_the_servers_copy(both, tmp_path):
    made, simulated = both
    there = sites(made, tmp_path)
    post = Weighed(there)
    run = hf.deploy.run(made, post, rounds=ROUNDS, wait=10)
    require_simulation(run, there, simulated)
    assert run.ledger.entries == simulated.ledger.entries
    for t, entry in enumerate(run.ledger.entries):
        # Each change is rounded up to whole bytes.
        spare = sum(max(changes, 1) for _, changes in post.down[t])
        assert 0 <= sum(n for n, _ in post.down[t]) - entry.bytes_down <= spare
    assert any(changes for t in post.down for _, changes in post.down[t])


def test_servers_that_end_and_replies_that_are_lost_change_no_bit(both, tmp_path):
    made, simulated = both
    there = sites(made, tmp_path / "sites")
    store = hf.Checkpoint(tmp_path / "run", every=2)
    for t in (1, 3, 5):

        def end(state, t=t):
            if state.round == t:
                raise EndedError

        with pytest.raises(EndedError):
            hf.deploy.run(made, Troubled(there), ROUNDS, store, patience=QUICK, on_round=end)
    run = hf.deploy.run(made, Troubled(there), ROUNDS, store, patience=QUICK)
    require_simulation(run, there, simulated)
    assert run.ledger.entries == simulated.ledger.entries


def test_a_copy_that_is_not_the_servers_is_replaced_by_the_whole_model(tmp_path, caplog):
    made = CASES["natural"]()
    simulated = hf.simulate(made, rounds=4)
    there = sites(made, tmp_path)

    def spoil(state):
        if state.round == 2:
            engine = run_of[0]
            template = engine.setup.template
            states = StateVersions(there[1].folder / engine.run)
            version = version_of(state.client_states[1])
            own, (x, msg) = states.read(version, (template.client, template.broadcast))
            x["classifier"]["bias"] = x["classifier"]["bias"] + np.float32(1)
            states.write(version, (own, (x, msg)))

    from holdfast.deploy.federate import federation

    enrolled = federation(made, InProcess(there), QUICK)
    run_of = [enrolled.engine]
    run = enrolled.run(4, on_round=spoil)
    assert "the copy of the model at this site is not the server's" in caplog.text
    assert same_bits(run.params, simulated.params)
    # What travelled is counted: the whole model to that site in that round.
    third = run.ledger.entries[2]
    assert third.down[1] > third.down[0] == simulated.ledger.entries[2].down[0]


class Away(InProcess):
    """A site that cannot be reached in rounds 2 to 4."""

    away = False

    def addresses(self):
        return [name for name in self.sites if not (self.away and name == "1")]


def test_a_site_that_comes_back_is_sent_what_it_missed(tmp_path):
    made = CASES["some places"]()
    there = sites(made, tmp_path)
    post = Away(there)

    def leave(state):
        post.away = 1 <= state.round < 3

    patience = hf.deploy.Patience(quorum=0.5, deadline=600, retry=0.02)
    run = hf.deploy.run(made, post, rounds=5, patience=patience, on_round=leave)
    down = [entry.down for entry in run.ledger.entries]
    assert [each[1] for each in down[1:3]] == [0, 0]
    assert down[3][1] == min(down[0][1], 3 * down[3][0])
    assert down[4][1] == down[4][0]


def test_it_has_one_first_round_and_stands_outermost():
    made = CASES["natural"]()
    for changes, words in (
        ({"first_round": hf.algorithms.fedavg()}, "changes since the first round"),
        (
            {
                "algorithm": dataclasses.replace(
                    hf.algorithms.fedavg(), wire=hf.wires.Clipped(made.algorithm.wire, 1.0)
                )
            },
            "give it as the inner wire",
        ),
    ):
        with pytest.raises(hf.HoldfastError, match=words):
            hf.deploy.run(dataclasses.replace(made, **changes), InProcess([]), rounds=1, wait=0.1)
