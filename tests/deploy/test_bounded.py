"""Bounded replies at three sites come to what the simulation comes to, to the bit."""

import dataclasses

import pytest

import holdfast as hf
from tests.deploy.federations import ROUNDS, experiment, sites, state_at_site
from tests.problems import same_bits

MEANS = {
    "bounded": hf.aggregates.NormBounded(factor=1.0),
    "centred": hf.aggregates.CenteredClipping(factor=1.0),
    "krum": hf.aggregates.Krum(share=0.4),
}


@pytest.mark.parametrize(
    ("name", "mean"), [("feddyn", "bounded"), ("scaffold", "centred"), ("feddyn", "krum")]
)
def test_sites_are_the_simulation(name, mean, tmp_path):
    given = experiment(name)
    given = dataclasses.replace(
        given, algorithm=dataclasses.replace(given.algorithm, aggregate=MEANS[mean])
    )
    simulated = hf.simulate(given, rounds=ROUNDS)
    there = sites(given, tmp_path)
    deployed = hf.deploy.run(given, hf.deploy.InProcess(there), rounds=ROUNDS, wait=10)
    counted = "unselected" if mean == "krum" else "bounded"
    assert sum(simulated.history[counted][1:]) > 0
    assert deployed.history[counted].tolist() == simulated.history[counted].tolist()
    assert same_bits(deployed.params, simulated.params)
    assert same_bits(deployed.state.server, simulated.state.server)
    counted_once = deployed.state.client_states.touched
    for i, site in enumerate(there):
        if i not in counted_once:  # never chosen, so that its first state is still good
            assert mean == "krum"
            continue
        assert same_bits(state_at_site(deployed, site), simulated.client_states[i])
    assert deployed.ledger.entries == simulated.ledger.entries


def test_an_attack_is_not_deployed(tmp_path):
    given = experiment()
    lied = dataclasses.replace(given, attack=hf.attacks.SignFlip(share=0.2))
    with pytest.raises(hf.HoldfastError, match="attack is for simulations"):
        hf.deploy.run(lied, hf.deploy.InProcess(sites(given, tmp_path)), rounds=1, wait=10)


def test_a_server_says_where_nothing_bounds_a_site(tmp_path, caplog):
    given = experiment()
    plain = dataclasses.replace(given.algorithm, aggregate=hf.aggregates.Mean())
    meant = dataclasses.replace(given, algorithm=plain)
    for one, times in ((given, 1), (meant, 0)):
        caplog.clear()
        there = sites(one, tmp_path / str(times))
        hf.deploy.run(one, hf.deploy.InProcess(there), rounds=0, wait=10)
        assert caplog.text.count("nothing bounds what one site can do") == times
