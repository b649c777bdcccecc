"""Bounded replies at three sites come to what the simulation comes to, to the bit."""

import dataclasses

import numpy as np
import pytest

import holdfast as hf
from holdfast.deploy import frame
from holdfast.deploy.replies import far_out
from holdfast.runs import results
from holdfast.runs.in_memory import write
from holdfast.runs.offenders import offenders
from tests.deploy.federations import ROUNDS, experiment, sites, state_at_site
from tests.deploy.test_untrusted import forged
from tests.problems import same_bits, tiny_clients

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
    any_length = hf.deploy.Limits(outlying=None)
    for one, limits, times in ((given, None, 0), (given, any_length, 1), (meant, any_length, 0)):
        caplog.clear()
        post = hf.deploy.InProcess(sites(one, tmp_path / f"{times} {limits}"))
        hf.deploy.run(one, post, rounds=0, wait=10, limits=limits)
        assert caplog.text.count("nothing bounds what one site can do") == times


class Changed(hf.deploy.InProcess):
    """The reply of site 1 is changed on its way, in every round."""

    def __init__(self, sites, change):
        super().__init__(sites)
        self.change = change

    def receive(self, seconds):
        return [
            a._replace(data=self.change(a.data)) if a.address == "1" and b'"reply"' in a.data else a
            for a in super().receive(seconds)
        ]


def thousandfold(data):
    _, body = frame.unpack(data, 1 << 20)
    return forged(data, body=(1000 * np.frombuffer(body, np.float32)).tobytes())


def not_finite(data):
    return forged(data, {"finite": False})


@pytest.mark.parametrize("name", ["fedavg", "scaffold"])
def test_a_reply_far_longer_than_the_others_is_as_if_it_had_not_come(name, tmp_path, caplog):
    measured = hf.evaluate.on(tiny_clients().examples, every=3)
    given = experiment(name, evaluate=measured)
    far, absent = (
        hf.deploy.run(given, Changed(sites(given, tmp_path / change.__name__), change), rounds=3)
        for change in (thousandfold, not_finite)
    )
    assert same_bits(far.params, absent.params)
    assert same_bits(far.state.server, absent.state.server)
    assert [entry.left_out for entry in far.ledger.entries] == [(1,)] * 3
    assert far.history["outlying"].tolist() == [1] * 3
    assert [d["outlying_clients"] for d in far.history.details] == [[1]] * 3
    assert absent.history["outlying"].tolist() == [0] * 3
    assert caplog.text.count("site 1: its reply has norm") == 3
    assert caplog.text.count("it is left out") == 3
    write({name: (far,)}, tmp_path / "results")
    (named,) = offenders(results.load([tmp_path / "results"]))
    assert "client 1 (3 of 3 rounds) were outlying" in named.text
    # What it remembers it goes on with only when the server has taken its reply.
    assert 1 not in far.state.client_states.touched


def test_a_plain_mean_that_is_meant_takes_it_with_a_warning(tmp_path, caplog):
    given = experiment("fedavg")
    plain = dataclasses.replace(given.algorithm, aggregate=hf.aggregates.Mean())
    given = dataclasses.replace(given, algorithm=plain)
    run = hf.deploy.run(given, Changed(sites(given, tmp_path), thousandfold), rounds=1)
    assert run.ledger.entries[0].left_out == ()
    assert run.history["outlying"].tolist() == [1]
    assert "it counts all the same" in caplog.text


@pytest.mark.parametrize(
    ("sizes", "out"),
    [
        ([1.0, 9.9, 1.0], ()),
        ([1.0, 10.1, 1.0], (1,)),
        ([5.0, 1.0], ()),
        ([50.0, 1.0], (0,)),
        ([1e6], ()),
        ([1.0, 1.0, 1.0, 90.0, 90.0], (3, 4)),
        ([1.0, 90.0, 90.0], (1, 2)),
        # Quiet sites do not turn others into liars.
        ([0.0, 0.0, 3.0], ()),
        ([], ()),
    ],
)
def test_far_out_is_longer_than_the_others(sizes, out):
    assert far_out(dict(enumerate(sizes)), 10.0) == out


@pytest.mark.parametrize("given", [dict(norm=0.0), dict(examples=0), dict(outlying=0.5)])
def test_limits_out_of_range_are_refused(given):
    with pytest.raises(hf.HoldfastError, match=next(iter(given))):
        hf.deploy.Limits(**given)
