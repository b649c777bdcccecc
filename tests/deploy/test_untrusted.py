"""Replies that nobody should believe, and servers that a site should not: refused, counted, never raised."""

import dataclasses
import json

import jax
import numpy as np
import pytest

import holdfast as hf
from holdfast.deploy import InProcess, Patience, frame, messages
from tests.deploy.federations import compressed, experiment, sites
from tests.problems import same_bits


def forged(data, change_header=None, body=None):
    """A message with another header or body, and a checksum that fits it."""
    header, own = frame.unpack(data, 1 << 20)
    if change_header is not None:
        header = {**header, **change_header}
    return frame.pack(header, own if body is None else body)


def raw(words, body=b""):
    """A message with any bytes for a header, and a checksum that fits."""
    content = frame.MAGIC + len(words).to_bytes(4, "little") + words + body
    return content + bytes.fromhex(frame.identity(content))


def mutated(data, rng):
    """One of the ways in which a reply can be wrong."""
    header, body = frame.unpack(data, 1 << 20)
    floats = np.frombuffer(body, np.float32).copy()
    place = rng.integers(len(floats))
    way = rng.integers(14)
    if way == 0:
        return data[: rng.integers(len(data))]
    if way == 1:
        return data + bytes(rng.integers(1, 50))
    if way == 2:
        changed = bytearray(data)
        changed[rng.integers(len(data))] ^= 1 << rng.integers(8)
        return bytes(changed)
    if way == 3:
        return rng.bytes(rng.integers(200))
    if way == 4:
        floats[place] = rng.choice([np.nan, np.inf, -np.inf])
        return forged(data, body=floats.tobytes())
    if way == 5:
        floats[place] = rng.choice([1e30, -1e30, 3e38])
        return forged(data, body=floats.tobytes())
    if way == 6:
        return forged(data, body=body[: 4 * place])
    if way == 7:
        return forged(data, body=body + bytes(4))
    if way == 8:
        name = rng.choice(["run", "round", "message", "examples", "kind"])
        odd = [None, -1, 10**12, 1.5, "../../etc", "", [], {}, True, "0" * 32, 10**30]
        return forged(data, {name: odd[rng.integers(len(odd))]})
    if way == 9:
        return forged(data, {"weight": float(rng.choice([-1.0, 1e12, 0.0]))})
    if way == 10:
        return raw(b"[" * int(rng.integers(1, 4000)), body)
    if way == 11:
        return raw(json.dumps(header).encode()[:-1], body)
    if way == 12:
        return raw(b'{"kind": NaN}', body)
    claim = int(rng.integers(1 << 20, 1 << 32)).to_bytes(4, "little")
    content = frame.MAGIC + claim + data[len(frame.MAGIC) + 4 : -16]
    return content + bytes.fromhex(frame.identity(content))


class Hostile(InProcess):
    """One site answers each round with many mutated replies before its own."""

    def __init__(self, sites, count):
        super().__init__(sites)
        self.count, self.sent, self._rng = count, 0, np.random.default_rng(0)

    def receive(self, seconds):
        arrived = []
        for arrival in super().receive(seconds):
            is_reply = frame.unpack(arrival.data, 1 << 20).header["kind"] == "reply"
            if arrival.address == "1" and is_reply and self.sent < self.count:
                bad = [mutated(arrival.data, self._rng) for _ in range(self.count)]
                arrived += [arrival._replace(data=b) for b in bad if b != arrival.data]
                self.sent += len(arrived)
            arrived.append(arrival)
        return arrived


def test_ten_thousand_mutated_replies_change_no_bit(tmp_path, caplog):
    caplog.set_level("ERROR", "holdfast.deploy")
    given = experiment("fedavg")
    simulated = hf.simulate(given, rounds=2)
    post = Hostile(sites(given, tmp_path), 10_000)
    run = hf.deploy.run(given, post, rounds=2)
    assert post.sent >= 9_990
    assert run.history.records[0]["refused"] == post.sent
    assert same_bits(run.params, simulated.params)
    assert run.ledger.entries == simulated.ledger.entries


def test_a_reply_that_says_it_is_not_finite_is_left_out_as_in_a_simulation(tmp_path):
    given = experiment("fedavg")

    class NotFinite(InProcess):
        def receive(self, seconds):
            return [
                a._replace(data=forged(a.data, {"finite": False}))
                if b'"reply"' in a.data and a.address == "1"
                else a
                for a in super().receive(seconds)
            ]

    run = hf.deploy.run(given, NotFinite(sites(given, tmp_path)), 1, patience=Patience(quorum=0.5))
    assert run.ledger.entries[0].left_out == (1,)
    assert run.history.records[0]["stragglers"] == 0


def test_a_code_of_any_bits_crashes_nothing(tmp_path):
    """Bytes that a compressor could have written may be any: they become numbers, or are refused."""
    for wire in (
        hf.wires.Compressed(hf.wires.TopK(k=3)),
        hf.wires.Compressed(hf.wires.RandK(k=3)),
        hf.wires.ErrorFeedback(hf.wires.Natural()),
        hf.wires.Diana(hf.wires.RandK(k=3)),
    ):
        algorithm = dataclasses.replace(compressed(), wire=wire, weighting="uniform")
        given = experiment("fedavg", algorithm=algorithm)

        class AnyBits(InProcess):
            def receive(self, seconds):
                rng = np.random.default_rng(1)
                out = []
                for a in super().receive(seconds):
                    header, body = frame.unpack(a.data, 1 << 20)
                    if header["kind"] == "reply" and a.address == "0":
                        a = a._replace(data=forged(a.data, body=rng.bytes(len(body))))
                    out.append(a)
                return out

        folder = tmp_path / type(wire).__name__ / type(wire.compressor).__name__
        patience = Patience(quorum=0.5, deadline=600, retry=0.02)
        run = hf.deploy.run(given, AnyBits(sites(given, folder)), rounds=1, patience=patience)
        assert all(np.isfinite(a).all() for a in jax.tree.leaves(run.params))
        assert run.state.round == 1


def test_what_a_site_answers_to_a_bad_message_is_a_refusal(tmp_path):
    given = experiment("fedavg")
    site = sites(given, tmp_path)[0]
    ask = messages.Ask().pack()
    for bad in (b"", b"x" * 100, ask[:-1], raw(b"{}"), raw(b"[]"), raw(b'{"kind":"reply"}')):
        found = messages.Refusal.read(frame.unpack(site.answer(bad), 0))
        assert found.why.startswith("the message cannot be read")
        assert found.message == frame.identity(bad)
    assert list(tmp_path.iterdir()) == []


def begin_of(given, folder):
    """A site and the message that begins a run at it."""
    there = sites(given, folder)
    kept = []

    class Kept(InProcess):
        def send(self, address, data):
            if address == "0" and frame.unpack(data, 1 << 20).header["kind"] == "begin":
                kept.append(data)
            return super().send(address, data)

    hf.deploy.run(given, Kept(there), rounds=1)
    return there[0], kept[0]


def refused(site, data):
    return messages.Refusal.read(frame.unpack(site.answer(data), 0)).why


def test_a_site_checks_what_it_takes_part_in(tmp_path):
    given = experiment("fedavg")
    site, begin = begin_of(given, tmp_path)
    other = "f" * 32
    for what in ("algorithm", "model", "local"):
        assert f"the server's {what} is ffffffffffff" in refused(site, forged(begin, {what: other}))
    listed = dataclasses.replace(site, algorithms=[other])
    assert "is not on this site's list of allowed ones" in refused(listed, begin)
    listed = dataclasses.replace(site, models=[other])
    assert "is not on this site's list of allowed ones" in refused(listed, begin)
    assert "and the run began with 8" in refused(site, forged(begin, {"examples": 8}))
    own = given.clients[0]
    moved = own._replace(x=own.x + 1)
    assert "its data has changed" in refused(dataclasses.replace(site, examples=moved), begin)
    assert "the run began otherwise" in refused(site, forged(begin, {"seed": 4}))


def test_a_name_that_comes_from_a_server_is_never_a_path(tmp_path):
    given = experiment("fedavg")
    site, begin = begin_of(given, tmp_path)
    before = sorted(tmp_path.rglob("*"))
    for name in ("../../../tmp/out", "/tmp/out", "a" * 31, "A" * 32, "a" * 33, 5, None, ["a" * 32]):
        assert "`run` of its header is no digest" in refused(site, forged(begin, {"run": name}))
    assert sorted(tmp_path.rglob("*")) == before


def test_numbers_of_a_server_that_are_not_finite_or_too_few_are_refused(tmp_path):
    given = experiment("fedavg")
    site, begin = begin_of(given, tmp_path)
    body = np.frombuffer(frame.unpack(begin, 1 << 20).body, np.float32).copy()
    assert "bytes, and" in refused(site, forged(begin, {"run": "a" * 32}, body[1:].tobytes()))
    body[3] = np.nan
    assert "not finite" in refused(site, forged(begin, {"run": "a" * 32}, body.tobytes()))


def test_sites_that_do_not_belong_are_turned_away(tmp_path, caplog):
    given = experiment("fedavg")
    there = sites(given, tmp_path)
    stranger = dataclasses.replace(there[0], name="stranger")
    other = hf.deploy.Site(experiment("scaffold"), given.clients[0], tmp_path / "other", name="2")
    with pytest.raises(hf.HoldfastError, match=r"after 0\.3 s no answer of 2; start these sites"):
        hf.deploy.run(given, InProcess([*there[:2], stranger, other]), rounds=1, wait=0.3)
    assert "no site of this federation is called 'stranger'" in caplog.text
    assert "its algorithm is another one than the server's" in caplog.text


def test_a_name_that_is_taken_is_not_given_twice(tmp_path, caplog):
    given = experiment("fedavg")
    there = sites(given, tmp_path)

    class Twice(InProcess):
        def addresses(self):
            return [*self.sites, "zz"]

        def send(self, address, data):
            if address == "zz":
                address, ticket = "zz", super().send("0", data)
                last = self._waiting.pop()
                self._waiting.append(last._replace(address="zz"))
                return ticket
            return super().send(address, data)

    hf.deploy.run(given, Twice(there), rounds=1)
    assert "the site '0' is at another address already" in caplog.text


REFUSED = {
    "select": (dict(select=True), "select=True"),
    "centralised": (dict(algorithm=hf.algorithms.centralised()), "pools all data"),
    "local_only": (dict(algorithm=hf.algorithms.local_only()), "sends nothing"),
    "per_client": (
        dict(algorithm=hf.algorithms.fedprox(hf.PerClient(lambda mine: float(len(mine.y))))),
        "a function of a client's examples",
    ),
    "quiet": (
        dict(algorithm=hf.algorithms.flix(hf.PerClient([0.0, 0.5, 0.5]))),
        "neither need the model",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_deployed_is_refused_in_a_line(name, tmp_path):
    changes, words = REFUSED[name]
    with pytest.raises(hf.HoldfastError, match=words) as caught:
        hf.deploy.run(experiment("fedavg", **changes), InProcess([]), rounds=1, wait=0.1)
    assert "\n" not in str(caught.value)


def test_evaluators_that_look_at_what_sites_keep_are_refused(tmp_path):
    test = hf.Examples(np.zeros((4, 5), np.float32), np.zeros(4, np.int32))
    given = experiment("fedavg", evaluate=hf.evaluate.client_average(test))
    with pytest.raises(hf.HoldfastError, match="stays at its site"):
        hf.deploy.run(given, InProcess(sites(given, tmp_path)), rounds=1)


def test_a_wire_that_needs_everybody_needs_a_quorum_of_all(tmp_path):
    wire = hf.wires.Diana(hf.wires.Natural())
    algorithm = hf.Algorithm(
        hf.Uploaded(hf.rules.Dynamic(alpha=0.1)), wire=wire, weighting="uniform", name="dyn"
    )
    given = experiment("fedavg", algorithm=algorithm)
    patience = Patience(quorum=0.5)
    with pytest.raises(hf.HoldfastError, match=r"needs every site .* quorum=1\.0"):
        hf.deploy.run(given, InProcess(sites(given, tmp_path)), 1, patience=patience)


def test_what_a_site_says_of_its_columns_is_read_against_what_it_was_asked():
    from collections import Counter

    from holdfast.data.preprocessing.sketch import QuantileSketch
    from holdfast.data.preprocessing.summary import ColumnSummary, Question
    from holdfast.data.tables.apart import ColumnsThere
    from holdfast.deploy import summaries

    questions = [
        Question("age", "number", counts=True, sketch=True),
        Question("ward", "category", counts=True),
    ]
    sketch = QuantileSketch(np.array([30.0, 31.5]), np.array([1, 2]))
    answer = {
        "age": ColumnSummary(1, 3, 31.0, 1.5, Counter({"30": 1, "31.5": 2}), sketch),
        "ward": ColumnSummary(0, 4, counts=Counter({"b": 3, "a": 1})),
    }
    there = ColumnsThere(("age", "ward"), ("ward",), ("sick",), {"0": 3, "1": 1}, False)
    assert summaries.read_there(summaries.there_as_json(there)) == there
    body = summaries.summary_as_json(answer)
    found = summaries.read_summary(body, questions, target=False)
    assert summaries.summary_as_json(found) == body
    odd = [None, -1, 1.5, "x", [], {}, True, 10**30, [["a", -1]], [30.0], [[1]]]
    refused = tried = 0
    for original, read in (
        (json.loads(body), lambda b: summaries.read_summary(b, questions, target=False)),
        (json.loads(summaries.there_as_json(there)), summaries.read_there),
    ):
        for name in original:
            for key in original[name] if isinstance(original[name], dict) else [None]:
                for value in odd:
                    changed = json.loads(json.dumps(original))
                    where = changed if key is None else changed[name]
                    where[name if key is None else key] = value
                    tried += 1
                    try:
                        again = read(json.dumps(changed).encode())
                    except frame.BadMessageError:
                        refused += 1
                    else:
                        # What is believed is finite and not negative.
                        counts = [again[n].count for n in again] if isinstance(again, dict) else []
                        assert all(n >= 0 for n in counts)
    assert tried > 150
    assert refused > 0.7 * tried
    for wrong in (b"", b"[]", b"{}", b"[" * 5000, b"\xff", body[:-5]):
        with pytest.raises(frame.BadMessageError):
            summaries.read_summary(wrong, questions, target=False)
