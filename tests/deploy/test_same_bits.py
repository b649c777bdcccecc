"""An experiment at three sites comes to what its simulation comes to, to the bit."""

import pytest

import holdfast as hf
from tests.deploy.federations import METHODS, ROUNDS, experiment, sites, state_at_site
from tests.problems import same_bits


@pytest.mark.parametrize("name", METHODS)
def test_five_rounds_at_three_sites_are_the_simulation(name, tmp_path):
    given = experiment(name)
    simulated = hf.simulate(given, rounds=ROUNDS)
    there = sites(given, tmp_path)
    deployed = hf.deploy.run(given, hf.deploy.InProcess(there), rounds=ROUNDS, wait=10)
    assert same_bits(deployed.params, simulated.params)
    assert same_bits(deployed.state.server, simulated.state.server)
    for i, site in enumerate(there):
        assert same_bits(state_at_site(deployed, site), simulated.client_states[i])
    assert deployed.ledger.entries == simulated.ledger.entries
    facts = ("stragglers", "refused", "stray", "outlying")
    assert all(record[fact] == 0 for record in deployed.history.records for fact in facts)


def test_what_travels_has_the_bytes_that_the_ledger_counts(tmp_path):
    from holdfast.deploy import frame

    given = experiment("compressed")
    carried = {"round": [], "reply": []}

    class Watched(hf.deploy.InProcess):
        def send(self, address, data):
            self._note(data)
            return super().send(address, data)

        def receive(self, seconds):
            arrived = super().receive(seconds)
            for arrival in arrived:
                self._note(arrival.data)
            return arrived

        def _note(self, data):
            header, body = frame.unpack(data, 1 << 20)
            if header["kind"] in carried:
                carried[header["kind"]].append(len(body))

    run = hf.deploy.run(given, Watched(sites(given, tmp_path)), rounds=2, wait=10)
    assert sum(carried["round"]) == sum(e.bytes_down for e in run.ledger.entries)
    assert sum(carried["reply"]) == sum(e.bytes_up for e in run.ledger.entries)
    assert len(carried["reply"]) == 6


def test_a_cohort_of_some_sites_is_that_of_the_simulation(tmp_path):
    given = experiment("scaffold", cohort=hf.cohorts.fixed(2))
    simulated = hf.simulate(given, rounds=4)
    deployed = hf.deploy.run(given, hf.deploy.InProcess(sites(given, tmp_path)), rounds=4, wait=10)
    assert same_bits(deployed.params, simulated.params)
    assert same_bits(deployed.state.server, simulated.state.server)
    assert deployed.ledger.entries == simulated.ledger.entries


def test_a_site_compiles_its_half_in_its_first_round_alone(tmp_path):
    from jax import monitoring

    from holdfast.deploy import frame

    compiled, programs = [], {}

    def note(event, seconds, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            compiled.append(seconds)

    class Watched(hf.deploy.InProcess):
        def send(self, address, data):
            before = len(compiled)
            ticket = super().send(address, data)
            header = frame.unpack(data, 1 << 20).header
            if header["kind"] == "round":
                counts = programs.setdefault(header["round"], [])
                counts.append(len(compiled) - before)
            return ticket

    # A learning rate that no other test has, so that nothing is known yet.
    given = experiment("scaffold", local=hf.Local(learning_rate=0.1234, epochs=2, batch_size=3))
    monitoring.register_event_duration_secs_listener(note)
    try:
        hf.deploy.run(given, Watched(sites(given, tmp_path)), rounds=3)
    finally:
        monitoring.unregister_event_duration_listener(note)
    assert all(programs[0])
    assert programs[1] == programs[2] == [0, 0, 0]
