"""Early stopping of a deployed run: its best round is kept, at the sites too; and local steps before use."""

import dataclasses

import numpy as np
import pytest

import holdfast as hf
from holdfast.deploy import InProcess
from holdfast.deploy.cohort import version_of
from holdfast.deploy.states import StateVersions
from tests.deploy.federations import LOCAL, experiment, flix_by_diana, sites
from tests.deploy.test_faults import QUICK, EndedError, Troubled
from tests.problems import same_bits, tiny_clients

ROUNDS, BEST = 6, 2
VALIDATION = tiny_clients(seed=6, clients=3, sizes=(5, 3, 4))


class Scripted:
    """A score that is best after round 2."""

    every = 1
    keeps_last_models = False
    directions = (("score", True),)

    def check(self, model, params, clients):
        pass

    def __call__(self, view):
        return {"score": 1.0 / (1 + abs(view.state.round - BEST))}


def stopping(**changes):
    given = experiment(algorithm=flix_by_diana(), evaluate=Scripted())
    return dataclasses.replace(given, stop=hf.EarlyStopping("score", patience=4), **changes)


@pytest.fixture(scope="module")
def simulated():
    return hf.simulate(stopping(), rounds=10)


def require_best(run, there, simulated):
    assert run.best_round == simulated.best_round == BEST
    assert run.state.round == simulated.state.round == ROUNDS
    assert run.stopped == simulated.stopped
    assert same_bits(run.params, simulated.params)
    name, first = run.experiment.engine.run, run.experiment.engine.setup.template.client
    for i, site in enumerate(there):
        states = StateVersions(site.folder / name)
        of_best = states.read(version_of(run.client_states[i]), first)
        assert same_bits(of_best, simulated.client_states[i])
        kept = hf.load(site.model_file(name))
        assert kept.description.round == BEST
        assert same_bits(kept.params, simulated.personal(i))


def test_sites_keep_the_best_round_and_use_it(simulated, tmp_path):
    there = sites(stopping(), tmp_path / "sites")
    run = hf.deploy.run(stopping(), InProcess(there), 10, tmp_path / "run")
    require_best(run, there, simulated)
    rounds = [
        v.round for v in StateVersions(there[0].folder / run.experiment.engine.run).versions()
    ]
    assert rounds == [0, BEST, 4, 5, 6]


def test_in_spite_of_lost_replies_and_servers_that_end(simulated, tmp_path):
    there = sites(stopping(), tmp_path / "sites")
    for t in (1, 3, 5):

        def end(state, t=t):
            if state.round == t:
                raise EndedError

        with pytest.raises(EndedError):
            hf.deploy.run(
                stopping(), Troubled(there), 10, tmp_path / "run", patience=QUICK, on_round=end
            )
    run = hf.deploy.run(stopping(), InProcess(there), 10, tmp_path / "run", patience=QUICK)
    require_best(run, there, simulated)


def test_sites_measure_what_they_hold_out_to_choose_by(tmp_path):
    given = experiment(
        "scaffold",
        evaluate=hf.evaluate.personal(VALIDATION, name="validation"),
        stop=hf.EarlyStopping("validation_personal_loss", patience=2, keep="last"),
    )
    expected = hf.simulate(given, rounds=3)
    there = [
        dataclasses.replace(site, validation=own, tests=None)
        for site, own in zip(sites(given, tmp_path), VALIDATION, strict=True)
    ]
    run = hf.deploy.run(given, InProcess(there), rounds=3)
    measured = [n for n in expected.history.columns if n.startswith("validation_")]
    assert len(measured) == 4
    for ours, theirs in zip(run.history, expected.history, strict=True):
        np.testing.assert_allclose(
            [ours[n] for n in measured], [theirs[n] for n in measured], rtol=1e-5
        )


def test_where_no_site_has_examples_to_choose_by_it_says_so(tmp_path):
    given = experiment("scaffold", evaluate=hf.evaluate.personal(VALIDATION, name="validation"))
    with pytest.raises(hf.HoldfastError, match="no site has examples to choose by"):
        hf.deploy.run(given, InProcess(sites(given, tmp_path)), rounds=1)


@pytest.mark.parametrize("adapt", [True, hf.Local(learning_rate=0.05, steps=3, batch_size=4)])
def test_local_steps_before_a_model_is_used_are_the_simulations(adapt, tmp_path):
    tests = tiny_clients(seed=5, clients=3, sizes=(4, 6, 3))
    algorithm = dataclasses.replace(hf.algorithms.scaffold(), adapt=adapt)
    given = experiment(algorithm=algorithm, evaluate=hf.evaluate.personal(tests))
    expected = hf.simulate(given, rounds=2)
    there = [
        dataclasses.replace(site, tests=own)
        for site, own in zip(sites(given, tmp_path), tests, strict=True)
    ]
    run = hf.deploy.run(given, InProcess(there), rounds=2)
    assert same_bits(run.params, expected.params)
    assert run.ledger.entries == expected.ledger.entries
    for name in ("personal_loss", "personal_accuracy"):
        np.testing.assert_allclose(run.history[name], expected.history[name], rtol=1e-5)
    for i, site in enumerate(there):
        kept = hf.load(site.model_file(run.experiment.engine.run))
        assert same_bits(kept.params, expected.personal(i))
        assert not same_bits(kept.params, run.params)


def test_a_site_turns_away_other_steps_before_use(tmp_path, caplog):
    adapting = dataclasses.replace(hf.algorithms.scaffold(), adapt=True)
    there = sites(experiment("scaffold"), tmp_path)
    given = experiment(algorithm=adapting, local=LOCAL)
    patience = dataclasses.replace(QUICK, give_up=0.3)
    with pytest.raises(hf.deploy.NoQuorumError):
        hf.deploy.run(given, InProcess(there), rounds=1, patience=patience, wait=1)
    assert "both must have the same" in caplog.text
