"""A first round by another method, and a mask that it chooses, come to their simulations to the bit."""

import pytest

import holdfast as hf
from holdfast.deploy import InProcess, frame
from holdfast.deploy.task import Task
from holdfast.engine import auto_mask
from tests.deploy.federations import experiment, flix_by_diana, sites
from tests.deploy.test_faults import QUICK, EndedError, Troubled, require_undisturbed
from tests.problems import same_bits

ROUNDS = 4


@pytest.fixture(scope="module", autouse=True)
def some_are_masked():
    """Of two layers the last, whatever rule is the library's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(auto_mask, "suggested", lambda diversity, clients: 1)
        yield


def given(name):
    if name == "auto":
        return experiment("fedpvr", algorithm=hf.algorithms.fedpvr("auto"))
    if name == "flix":
        # Both methods have clients prepare something, each its own.
        solver = hf.solvers.GradientDescent(0.1, tolerance=1.0, max_steps=20)
        first = hf.algorithms.flix(0.3, solver=solver)
        return experiment(algorithm=flix_by_diana(), first_round=first)
    return experiment("scaffold", first_round=hf.algorithms.feddyn(alpha=0.1))


@pytest.fixture(scope="module", params=["scaffold", "flix", "auto"])
def both(request):
    made = given(request.param)
    return made, hf.simulate(made, rounds=ROUNDS)


class Watched(InProcess):
    """Notes the kind of every message, and the round of those that ask for one."""

    def __init__(self, sites):
        super().__init__(sites)
        self.sent = []

    def send(self, address, data):
        header = frame.unpack(data, 1 << 20).header
        self.sent.append((header["kind"], header.get("part", header.get("round"))))
        return super().send(address, data)


def test_it_is_the_simulation(both, tmp_path):
    made, simulated = both
    there = sites(made, tmp_path)
    post = Watched(there)
    deployed = hf.deploy.run(made, post, rounds=ROUNDS, wait=10)
    require_undisturbed(deployed, there, simulated)
    assert deployed.ledger.entries == simulated.ledger.entries
    assert deployed.chosen_mask == simulated.chosen_mask
    # Each site begins twice, and trains once a round, also where the first one has a mask chosen.
    assert post.sent.count(("begin", "first round")) == post.sent.count(("begin", "")) == 3
    assert [post.sent.count(("round", t)) for t in range(ROUNDS)] == [3] * ROUNDS


def test_lost_doubled_and_late_replies_change_no_bit(both, tmp_path):
    made, simulated = both
    there = sites(made, tmp_path)
    run = hf.deploy.run(made, Troubled(there), rounds=ROUNDS, patience=QUICK)
    require_undisturbed(run, there, simulated)


@pytest.mark.parametrize("name", ["scaffold", "auto"])
def test_a_server_that_ends_goes_on_from_its_save(name, tmp_path):
    made = given(name)
    simulated = hf.simulate(made, rounds=ROUNDS)
    there = sites(made, tmp_path / "sites")
    store = hf.Checkpoint(tmp_path / "run", every=2)

    # Before anything is saved, and after.
    for t in (1, 3):

        def end(state, t=t):
            if state.round == t:
                raise EndedError

        again = given(name)
        with pytest.raises(EndedError):
            hf.deploy.run(again, InProcess(there), ROUNDS, store, patience=QUICK, on_round=end)
    run = hf.deploy.run(given(name), InProcess(there), ROUNDS, store, patience=QUICK)
    require_undisturbed(run, there, simulated)
    assert run.chosen_mask == simulated.chosen_mask


def test_what_sites_measure_after_it_is_what_it_deploys(tmp_path):
    made = given("flix")
    tests = made.clients
    measured = experiment(
        algorithm=made.algorithm,
        first_round=made.first_round,
        evaluate=hf.evaluate.personal(tests),
    )
    there = [
        hf.deploy.Site(measured, own, tmp_path / str(i), str(i), tests=own)
        for i, own in enumerate(tests)
    ]
    simulated = hf.simulate(measured, rounds=2)
    deployed = hf.deploy.run(measured, InProcess(there), rounds=2)
    for ours, theirs in zip(deployed.history, simulated.history, strict=True):
        assert ours["personal_loss"] == pytest.approx(theirs["personal_loss"], rel=1e-6)
    # The personal model that is kept is of the method of the run.
    kept = hf.load(there[1].model_file(deployed.experiment.engine.run))
    assert same_bits(kept.params, simulated.personal(1))


def test_a_site_turns_away_another_first_round(tmp_path, caplog):
    made = given("scaffold")
    plain = experiment("scaffold")
    assert Task.of(made).algorithm_digest != Task.of(plain).algorithm_digest
    there = sites(plain, tmp_path)
    with pytest.raises(hf.HoldfastError, match="its algorithm is another one than the server's"):
        hf.deploy.run(made, InProcess(there), rounds=1, wait=0.5)


def test_a_mask_is_not_chosen_by_what_a_wire_has_changed():
    auto = hf.algorithms.fedpvr("auto")
    lossy = hf.Algorithm(
        auto.rule, wire=hf.wires.ErrorFeedback(hf.wires.TopK(share=0.5)), name="auto"
    )
    made = experiment(algorithm=lossy)
    with pytest.raises(hf.HoldfastError, match=r"run\.chosen_mask\.parameters"):
        hf.deploy.run(made, InProcess([]), rounds=1)
