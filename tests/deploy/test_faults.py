"""Replies that are lost, come twice or late; sites and servers that end and come back."""

import dataclasses
import itertools

import pytest

import holdfast as hf
from holdfast.deploy import Arrival, InProcess, Patience
from holdfast.deploy.federate import federation as deploy_federation
from holdfast.deploy.states import StateVersions
from tests.deploy.federations import experiment, sites, state_at_site
from tests.problems import same_bits

QUICK = Patience(retry=0.0, give_up=60)


@pytest.fixture(scope="module")
def given():
    return experiment("scaffold")


@pytest.fixture(scope="module")
def undisturbed(given):
    return hf.simulate(given, rounds=5)


class EndedError(Exception):
    """The server ends."""


def require_undisturbed(run, there, undisturbed):
    assert same_bits(run.params, undisturbed.params)
    assert same_bits(run.state.server, undisturbed.state.server)
    for i, site in enumerate(there):
        assert same_bits(state_at_site(run, site), undisturbed.client_states[i])


class Troubled(InProcess):
    """Every third answer is lost and reported as failed, every fourth comes twice, every fifth later."""

    def __init__(self, sites):
        super().__init__(sites)
        self._count = itertools.count(1)
        self._later = []

    def receive(self, seconds):
        arrived, self._later = self._later, []
        for arrival in super().receive(seconds):
            k = next(self._count)
            if k % 3 == 0:
                arrived.append(arrival._replace(data=None, error="gone"))
            elif k % 5 == 0:
                self._later.append(arrival)
            else:
                arrived += [arrival] * (2 if k % 4 == 0 else 1)
        return arrived


def test_lost_doubled_and_late_replies_change_no_bit(given, undisturbed, tmp_path):
    there = sites(given, tmp_path)
    run = hf.deploy.run(given, Troubled(there), rounds=5, patience=QUICK)
    require_undisturbed(run, there, undisturbed)
    assert sum(record["stray"] for record in run.history.records) > 0


class SlowToBegin(InProcess):
    """One site says twice that it has begun, the second time when it has its round already."""

    def receive(self, seconds):
        arrived = super().receive(seconds)
        return [a for arrival in arrived for a in self._as_often(arrival)]

    def _as_often(self, arrival):
        begun = arrival.address == "1" and b'"kind":"begun"' in (arrival.data or b"")
        return [arrival] * (2 if begun else 1)


def test_a_site_that_is_told_twice_to_begin_is_not_refused(given, undisturbed, tmp_path):
    there = sites(given, tmp_path)
    run = hf.deploy.run(given, SlowToBegin(there), rounds=5, patience=Patience(give_up=60))
    require_undisturbed(run, there, undisturbed)
    assert [record["refused"] for record in run.history.records] == [0] * 5
    assert [record["stray"] for record in run.history.records] == [1, 0, 0, 0, 0]


class NewProcesses(InProcess):
    """A site that is made anew for every message: all it knows is on its disk."""

    def send(self, address, data):
        self.sites[address] = dataclasses.replace(self.sites[address])
        return super().send(address, data)


def test_a_site_may_be_another_process_for_every_message(given, undisturbed, tmp_path):
    there = sites(given, tmp_path)
    run = hf.deploy.run(given, NewProcesses(there), rounds=5)
    require_undisturbed(run, there, undisturbed)


def test_a_server_that_ends_goes_on_from_its_save(given, undisturbed, tmp_path):
    there = sites(given, tmp_path / "sites")
    post = InProcess(there)

    def after(t, state):
        if state.round == t:
            raise EndedError

    for t in (1, 2, 4):
        with pytest.raises(EndedError):
            hf.deploy.run(
                given,
                post,
                5,
                tmp_path / "run",
                patience=QUICK,
                on_round=lambda state, t=t: after(t, state),
            )
    run = hf.deploy.run(given, post, rounds=5, checkpoint=tmp_path / "run", patience=QUICK)
    require_undisturbed(run, there, undisturbed)


def test_rounds_that_the_server_never_saved_are_taken_again(given, undisturbed, tmp_path):
    there = sites(given, tmp_path / "sites")
    store = hf.Checkpoint(tmp_path / "run", every=2)

    def end(state):
        if state.round == 3:
            raise EndedError

    with pytest.raises(EndedError):
        hf.deploy.run(given, InProcess(there), 5, store, patience=QUICK, on_round=end)
    assert [path.stem for path in store.files()] == ["round-00000002"]
    run = hf.deploy.run(given, InProcess(there), rounds=5, checkpoint=store, patience=QUICK)
    require_undisturbed(run, there, undisturbed)


def test_a_site_keeps_few_versions_of_its_state(given, tmp_path):
    there = sites(given, tmp_path / "sites")
    run = hf.deploy.run(given, InProcess(there), rounds=5, checkpoint=tmp_path / "run")
    kept = StateVersions(there[0].folder / run.experiment.engine.run).versions()
    assert [version.round for version in kept] == [3, 4, 5]


class Silent(InProcess):
    """One site says nothing while `silent` says so."""

    def __init__(self, sites, silent):
        super().__init__(sites)
        self.silent, self.rounds = silent, 0

    def receive(self, seconds):
        return [a for a in super().receive(seconds) if not (a.address == "2" and self.silent(self))]


def test_a_round_closes_at_its_deadline_with_a_quorum(given, tmp_path):
    there = sites(given, tmp_path)
    post = Silent(there, lambda post: post.rounds == 2)

    def count(state):
        post.rounds = state.round

    patience = Patience(quorum=0.6, deadline=0.3, retry=0.05)
    run = hf.deploy.run(given, post, rounds=4, patience=patience, on_round=count)
    records = run.history.records
    assert [record["stragglers"] for record in records] == [0, 0, 1, 0]
    assert [record["left_out"] for record in records] == [0, 0, 1, 0]
    third = run.ledger.entries[2]
    assert third.left_out == (2,)
    assert third.up[2] == 0 < third.up[0]
    assert third.down[2] == third.down[0]
    # It goes on from the round before the one that was lost, and its c_i fits the server's.
    mark = run.state.client_states[2]
    assert int(mark.rule) == 4


def test_a_round_without_a_quorum_waits_and_in_the_end_says_so(given, tmp_path):
    post = Silent(sites(given, tmp_path), lambda post: post.rounds == 1)

    def count(state):
        post.rounds = state.round

    patience = Patience(quorum=1.0, deadline=0.05, retry=0.05, give_up=0.5)
    with pytest.raises(hf.deploy.NoQuorumError, match=r"2 of 3 sites replied .* 3 are needed"):
        hf.deploy.run(given, post, rounds=4, patience=patience, on_round=count)


class Gone(InProcess):
    """A site that cannot be reached while it is away."""

    away = False

    def addresses(self):
        return [name for name in self.sites if not (self.away and name == "1")]


def test_a_site_that_is_lost_for_good_is_not_waited_for(given, tmp_path):
    post = Gone(sites(given, tmp_path))

    def leave(state):
        post.away = state.round >= 2

    patience = Patience(quorum=0.5, deadline=600)
    run = hf.deploy.run(given, post, rounds=4, patience=patience, on_round=leave)
    assert [record["stragglers"] for record in run.history.records] == [0, 0, 1, 1]
    assert run.ledger.entries[3].down[1] == run.ledger.entries[3].up[1] == 0


def test_a_site_that_lost_its_state_is_left_out_and_never_begins_again(given, tmp_path, caplog):
    there = sites(given, tmp_path)

    def lose(state):
        if state.round == 2:
            for path in (there[0].folder).rglob("*.state"):
                path.unlink()

    patience = Patience(quorum=0.5, deadline=600, retry=0.02)
    run = hf.deploy.run(given, InProcess(there), rounds=3, patience=patience, on_round=lose)
    assert run.ledger.entries[2].left_out == (0,)
    assert "the state after round 2 is not on this site's disk" in caplog.text


def test_a_damaged_state_is_never_used(given, tmp_path, caplog):
    there = sites(given, tmp_path)

    def damage(state):
        if state.round == 2:
            for path in (there[0].folder).rglob("round-00000002-*.state"):
                raw = bytearray(path.read_bytes())
                raw[-40] ^= 1
                path.write_bytes(raw)

    patience = Patience(quorum=0.5, deadline=600, retry=0.02)
    run = hf.deploy.run(given, InProcess(there), rounds=3, patience=patience, on_round=damage)
    assert run.ledger.entries[2].left_out == (0,)
    assert "is damaged on this site's disk" in caplog.text


def test_a_reply_of_another_address_is_nobodys(given, undisturbed, tmp_path):
    class Impostor(InProcess):
        def receive(self, seconds):
            arrived = super().receive(seconds)
            return [Arrival("9", a.ticket, a.data) for a in arrived] + arrived

    there = sites(given, tmp_path)
    run = hf.deploy.run(given, Impostor(there), rounds=5)
    require_undisturbed(run, there, undisturbed)


def test_a_message_that_is_lost_without_a_word_is_sent_again(given, undisturbed, tmp_path):
    class Forgetful(InProcess):
        dropped = 0

        def receive(self, seconds):
            arrived = super().receive(seconds)
            if self.dropped < 4 and arrived:
                self.dropped += 1
                arrived = arrived[1:]
            return arrived

    there = sites(given, tmp_path)
    patience = Patience(deadline=0.2, retry=0.2, give_up=60)
    post = Forgetful(there)
    post.dropped = 4
    # All have said who they are before anything is lost.
    federation = deploy_federation(given, post, patience)
    post.dropped = 0
    run = federation.run(5)
    assert post.dropped == 4
    require_undisturbed(run, there, undisturbed)
