"""Wires: which reach the optimum, what they cost, and which pairs are refused."""

import numpy as np
import pytest

import holdfast as hf
from holdfast.wires.wrapper import WireWrapper
from tests.problems import QUADRATIC, largest_difference, random_quadratics, tiny_clients

W = hf.wires
GRADIENT_STEP = hf.Local(0.1, steps=1)


def gap(algorithm, rounds=400, local=GRADIENT_STEP, seed=0, **settings):
    clients, optimum = random_quadratics(seed)
    run = hf.simulate(algorithm, QUADRATIC, clients, local, rounds, seed=seed, **settings)
    return float(np.abs(np.asarray(run.params) - optimum).max())


@pytest.mark.parametrize("compressor", [W.RandK(k=1), W.Quantise(1), W.Natural()], ids=repr)
def test_diana_reaches_the_optimum_where_plain_compression_stalls(compressor, x64):
    assert gap(hf.algorithms.diana(compressor), rounds=250) < 1e-10
    assert gap(hf.algorithms.dcgd(compressor), rounds=200) > 1e-3


@pytest.mark.parametrize("compressor", [W.TopK(k=1), W.Sign()], ids=repr)
def test_shifts_serve_biased_compressors_too(compressor, x64):
    """EF21. With plain error feedback a constant step leaves a distance that shrinks with the step."""
    assert gap(hf.algorithms.diana(compressor), rounds=250) < 1e-10
    feedback = hf.Algorithm(wire=W.ErrorFeedback(compressor))
    large, small = (gap(feedback, 800, hf.Local(step, steps=1)) for step in (0.1, 0.01))
    assert 0 < small < 0.3 * large
    assert gap(hf.algorithms.dcgd(compressor), rounds=200) > 1e-2


def test_diana_also_reaches_it_when_few_take_part(x64):
    algorithm = hf.algorithms.diana(W.RandK(k=2))
    assert gap(algorithm, 600, cohort=hf.cohorts.fixed(3)) < 1e-10


def test_wires_that_lose_nothing_are_the_bare_wire(x64):
    clients, _ = random_quadratics(1)
    plain = hf.simulate(hf.Algorithm(), QUADRATIC, clients, GRADIENT_STEP, rounds=5)
    everything = W.RandK(share=1.0)
    for wire in (
        W.Compressed(everything),
        W.ErrorFeedback(everything),
        W.Diana(everything),
        W.Downlink(W.Wire(), everything),
        W.Clipped(W.Wire(), bound=1e9),
    ):
        run = hf.simulate(hf.Algorithm(wire=wire), QUADRATIC, clients, GRADIENT_STEP, rounds=5)
        assert largest_difference(run.params, plain.params) < 1e-14, wire


def test_diana_without_shifts_is_plain_compression(x64):
    clients, _ = random_quadratics(1)
    runs = [
        hf.simulate(algorithm, QUADRATIC, clients, GRADIENT_STEP, rounds=5)
        for algorithm in (
            hf.algorithms.dcgd(W.RandK(k=2)),
            hf.algorithms.diana(W.RandK(k=2), beta=0.0),
        )
    ]
    assert largest_difference(runs[0].params, runs[1].params) < 1e-14


def test_the_mean_shift_is_the_mean_of_shifts(x64):
    clients, _ = random_quadratics(2)
    algorithm = hf.algorithms.diana(W.RandK(k=2), beta=hf.PerClient(np.linspace(0.1, 0.5, 10)))
    run = hf.simulate(
        algorithm, QUADRATIC, clients, GRADIENT_STEP, rounds=7, cohort=hf.cohorts.fixed(4)
    )
    shifts = np.stack([np.asarray(run.client_states[i].wire[0]) for i in range(10)])
    np.testing.assert_allclose(run.state.server.wire[0], shifts.mean(0), atol=1e-14)


def test_error_feedback_keeps_what_it_did_not_send(x64):
    """Replies and what is kept back add up to all that was ever to be sent."""
    clients, _ = random_quadratics(2)
    algorithm = hf.Algorithm(wire=W.ErrorFeedback(W.TopK(k=1)))
    states = []
    hf.simulate(algorithm, QUADRATIC, clients, GRADIENT_STEP, 6, on_round=states.append)
    curvature, centre = (np.asarray(a) for a in clients.examples)
    before, wanted = np.zeros(4), np.zeros(4)
    for state in states:
        wanted = wanted - 0.1 * (curvature * (before - centre)).mean(0)
        before = np.asarray(state.params)
    kept = np.stack([np.asarray(states[-1].client_states[i].wire[0]) for i in range(10)]).mean(0)
    np.testing.assert_allclose(before + kept, wanted, atol=1e-12)


FIVE_STEPS = hf.Local(0.05, steps=5)


@pytest.mark.parametrize(
    ("rule", "wire"),
    [
        (hf.rules.ControlVariate(), W.Compressed(W.Quantise(4))),
        (hf.rules.ControlVariate(), W.Compressed(W.Cast())),
        (hf.rules.ControlVariate(), W.Clipped(W.Wire(), bound=0.2)),
        (hf.rules.ControlVariate(damping=0.1), W.Compressed(W.RandK(k=1))),
        (hf.Uploaded(hf.rules.ControlVariate()), W.Diana(W.Natural())),
        (hf.Uploaded(hf.rules.ControlVariate(damping=0.25)), W.Diana(W.RandK(k=2))),
        (hf.Uploaded(hf.rules.ControlVariate(damping=0.1)), W.Diana(W.RandK(k=1))),
        (hf.rules.GradientControlVariate(damping=0.25), W.Compressed(W.RandK(k=2))),
        (hf.rules.Dynamic(2.0), W.Compressed(W.RandK(k=2))),
        (hf.Uploaded(hf.rules.Dynamic(2.0)), W.Diana(W.RandK(k=2))),
        (hf.rules.SplitAll(0.5), W.Compressed(W.RandK(k=2))),
        (hf.rules.ControlVariate(), W.Downlink(W.Wire(), W.TopK(k=1))),
    ],
    ids=repr,
)
def test_corrections_reach_the_optimum_through_a_lossy_wire(rule, wire, x64):
    assert gap(hf.Algorithm(rule, wire), 400, FIVE_STEPS) < 1e-8


def test_undamped_control_variates_do_diverge_through_noise(x64, monkeypatch):
    """What is refused is refused for a reason: without the refusal it diverges, each alone does not."""
    monkeypatch.setattr(hf.Algorithm, "check_wire", lambda *_: None)
    undamped = hf.Uploaded(hf.rules.ControlVariate())
    assert gap(hf.Algorithm(undamped, W.Diana(W.RandK(k=2))), 300, FIVE_STEPS) > 1e6
    assert gap(hf.Algorithm(undamped), 300, FIVE_STEPS) < 1e-10
    assert gap(hf.Algorithm(wire=W.Diana(W.RandK(k=2))), 300) < 1e-10


REFUSED = {
    "undamped control variates": (
        lambda: hf.Algorithm(hf.Uploaded(hf.rules.ControlVariate()), W.Diana(W.RandK(k=2))),
        {},
        r"noise of the wire Diana is 1: .* give damping=0\.25 or less",
    ),
    "undamped, one client noisier": (
        lambda: hf.Algorithm(
            hf.rules.ControlVariate(), W.Compressed(W.RandK(k=hf.PerClient([4] * 9 + [1])))
        ),
        {},
        r"noise of the wire Compressed is 3",
    ),
    "each reply is needed": (
        lambda: hf.Algorithm(hf.rules.Dynamic(0.1), W.Diana(W.RandK(k=2))),
        {},
        r"Dynamic hears every reply, .* use hf\.Uploaded\(rule\)",
    ),
    "weighted": (
        lambda: hf.Algorithm(wire=W.Diana(W.RandK(k=2)), weighting="examples"),
        {},
        r"weighting is 'examples', .* use weighting='uniform'",
    ),
    "rows and a mean of few": (
        lambda: hf.Algorithm(hf.Uploaded(hf.rules.Dynamic(0.1)), W.Diana(W.Natural())),
        {"cohort": hf.cohorts.fixed(3)},
        r"Dynamic keeps client states .* let everyone take part",
    ),
    "no k": (lambda: W.RandK(), {}, r"RandK: k=None, share=None; give one of them"),
    "k too small": (lambda: W.TopK(k=0), {}, r"TopK: k=0; give whole numbers of at least 1"),
    "k not whole": (lambda: W.RandK(k=2.5), {}, r"RandK: k=2\.5; give whole numbers"),
    "k of a client": (
        lambda: W.RandK(k=hf.PerClient([3, 0])),
        {},
        r"k=\[3, 0\]; give whole numbers",
    ),
    "k in quotes": (lambda: W.TopK(k="3"), {}, r"TopK: k='3'; give whole numbers"),
    "k above d": (
        lambda: hf.algorithms.dcgd(W.RandK(k=5)),
        {},
        r"RandK: k=5, but a reply has 4 numbers; give at most 4, or share=1\.0",
    ),
    "k above d for one": (
        lambda: hf.algorithms.dcgd(W.TopK(k=hf.PerClient([1] * 9 + [7]))),
        {},
        r"TopK: k=7, but a reply has 4 numbers",
    ),
    "k of a later round": (
        lambda: hf.algorithms.dcgd(W.RandK(k=lambda t: 2 - 2 * t)),
        {"rounds": 2},
        r"RandK: k=0\.0 in round 2; give whole numbers of at least 1",
    ),
    "a name for a compressor": (
        lambda: hf.algorithms.diana("RandK"),
        {},
        r"Diana: compressor='RandK' is a str; give a Compressor, such as hf\.wires\.RandK",
    ),
    "beta": (
        lambda: hf.algorithms.diana(W.RandK(k=2), beta=-1),
        {},
        r"Diana: beta=-1; give numbers in \[0, 1\]",
    ),
    "share too large": (lambda: W.TopK(share=2.0), {}, r"share=2\.0; give a number in \(0, 1\]"),
    "levels": (lambda: W.Quantise(0), {}, r"Quantise: levels=0; give whole numbers of at least 1"),
    "cast": (lambda: W.Cast("int8"), {}, r"Cast: dtype='int8'; give 'bfloat16' or 'float16'"),
    "one broadcast": (
        lambda: W.Downlink(W.Wire(), W.TopK(k=hf.PerClient([1, 2]))),
        {},
        r"everybody receives the same broadcast",
    ),
    "bound": (lambda: W.Clipped(W.Wire(), bound=0.0), {}, r"bound=0\.0; give a number above 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    make, settings, message = REFUSED[name]
    clients, _ = random_quadratics(0)
    with pytest.raises(hf.HoldfastError, match=message) as caught:
        hf.simulate(make(), QUADRATIC, clients, FIVE_STEPS, **{"rounds": 1} | settings)
    assert "\n" not in str(caught.value)


def test_clipping_covers_the_whole_reply(x64):
    clients, _ = random_quadratics(3)
    clipped = hf.Algorithm(hf.Uploaded(hf.rules.Dynamic(1.0)), W.Clipped(W.Wire(), bound=0.01))
    run = hf.simulate(clipped, QUADRATIC, clients, FIVE_STEPS, rounds=1)
    rows = np.stack(
        [np.asarray(run.client_states[i].rule) for i in range(10)]
    )  # what was heard: delta
    # delta and its copy in the upload share the bound
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 0.01 / np.sqrt(2), rtol=1e-12)


def test_ledger_counts_codes_to_the_bit():
    clients = tiny_clients()
    model, local = hf.models.mlp([4], classes=3), hf.Local(0.1, steps=1, batch_size=4)
    size = 5 * 4 + 4 + 4 * 3 + 3
    each = hf.PerClient([1, 2, 3, 4])
    run = hf.simulate(hf.algorithms.dcgd(W.RandK(k=each)), model, clients, local, rounds=2)
    expected = tuple(k * (32 + 6) for k in (1, 2, 3, 4))
    for entry in run.ledger.entries:
        assert entry.bits_down == (32 * size,) * 4
        assert entry.bits_up == expected
        assert entry.up == tuple(-(-b // 8) for b in expected)
    assert run.ledger.bits_up == 2 * sum(expected)
    published = hf.Algorithm(
        hf.Uploaded(hf.rules.ControlVariate(0.1)), W.Compressed(W.Quantise(7)), name="scaffold"
    )
    run = hf.simulate(published, model, clients, local, rounds=1)
    assert run.ledger.entries[0].bits_up == 2 * (32 + 4 * size)
    assert run.ledger.entries[0].bits_down == 2 * 32 * size


def test_absent_clients_catch_up_with_the_replica():
    clients = tiny_clients()
    model, local = hf.models.mlp([4], classes=3), hf.Local(0.1, steps=1, batch_size=4)
    size = 5 * 4 + 4 + 4 * 3 + 3
    whole, change = 32 * size, 8 * 32 + size
    wire = W.Downlink(W.Compressed(W.Cast()), W.TopK(k=8))
    cohort = hf.cohorts.schedule([[0, 1], [0], [0], [0, 1], [0], [0], [0], [0], [0], [0, 1, 2]])
    run = hf.simulate(hf.Algorithm(wire=wire), model, clients, local, rounds=10, cohort=cohort)
    down = [entry.bits_down for entry in run.ledger.entries]
    assert down[0] == (whole, whole)  # new
    assert down[1] == (change,)
    assert down[3] == (change, 3 * change)  # two missed and this one
    assert down[9] == (change, min(6 * change, whole), whole)
    assert whole < 6 * change
    assert {entry.bits_up for entry in run.ledger.entries if len(entry.clients) == 1} == {
        (16 * size,)
    }


def test_the_replica_follows_the_model(x64):
    clients, optimum = random_quadratics(4)
    algorithm = hf.Algorithm(wire=W.Downlink(W.Diana(W.RandK(k=2)), W.TopK(k=1)))
    run = hf.simulate(algorithm, QUADRATIC, clients, hf.Local(0.05, steps=1), rounds=500)
    (replica, _), _ = run.state.server.wire
    np.testing.assert_allclose(replica, optimum, atol=1e-10)
    np.testing.assert_allclose(run.params, optimum, atol=1e-10)


def test_a_wrapper_follows_its_inner_wire_in_every_member():
    # These are about the wrapper itself.
    own = ("inside", "beginning", "informed", "change")
    members = [name for name in dir(hf.Wire) if not name.startswith("_") and name not in own]

    class Named(hf.Wire):
        """Answers with the name of what is asked."""

    for name in members:
        method = callable(getattr(hf.Wire, name))
        setattr(Named, name, (lambda self, name=name: name) if method else name)
    Named.informed = lambda self, state: state
    wrapped = WireWrapper(Named())
    found = {name: getattr(wrapped, name) for name in members}
    assert {n: f() if callable(f) else f for n, f in found.items()} == {n: n for n in members}
    assert wrapped.inside(hf.State(1, 2)) == ((wrapped.inner, hf.State(1, 2)),)
    assert wrapped.informed("of a round") == WireWrapper("of a round")
    # Sites keep copies by the outermost wire alone.
    assert wrapped.change("broadcast", (), None) == ()
