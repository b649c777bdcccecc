"""The evaluator against NumPy, in every setting that changes which model or which rows it looks at."""

import dataclasses

import jax
import numpy as np
import pytest

import holdfast as hf
from holdfast.evaluate.predictions import predictions_of
from tests.problems import same_bits

LOCAL = hf.Local(0.3, steps=3, batch_size=5)
MODEL = hf.models.softmax_regression(3, l2=0.1)


def drawn(seed, rows, shift=0.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, rows).astype(np.int32)
    x = rng.normal(size=(rows, 4)) + np.eye(3, 4)[y] * 1.5 + shift
    return hf.Examples(x.astype(np.float32), y)


def of_clients(seed, sizes=(30, 20, 0, 25)):
    """Clients whose inputs are shifted from each other; one has no rows."""
    parts = [drawn(seed + i, n, shift=0.5 * i) for i, n in enumerate(sizes)]
    return hf.Clients.from_datasets(parts)


TRAIN, CALIBRATION, TEST = of_clients(0, (20, 25, 15, 30)), of_clients(10), of_clients(20)
AT_SERVER, AT_TEST = drawn(30, 60), drawn(40, 70)


def simulate(evaluator, algorithm=None, rounds=2, **more):
    return hf.simulate(
        algorithm or hf.algorithms.fedavg(),
        MODEL,
        TRAIN,
        LOCAL,
        rounds=rounds,
        evaluate=evaluator,
        **more,
    )


def quantile(scores, kappa):
    rank = int(np.ceil(round((len(scores) + 1) * (1 - kappa), 9)))
    return np.inf if rank > len(scores) else np.sort(scores)[rank - 1]


def lac(run, examples, client=None):
    """Scores of all labels, and of the right one, by the model in question."""
    params = run.params if client is None else run.personal(client)
    p = np.asarray(predictions_of(MODEL, params, examples), np.float64)
    return 1 - p, 1 - p[np.arange(len(p)), examples.y]


def test_at_the_server_by_hand():
    run = simulate(hf.conformal.evaluate(AT_SERVER, AT_TEST, kappa=0.2))
    q = quantile(lac(run, AT_SERVER)[1], 0.2)
    every, own = lac(run, AT_TEST)
    last = run.history[-1]
    assert last["coverage"] == pytest.approx((own <= q).mean(), abs=1e-6)
    assert last["set_size"] == pytest.approx((every <= q).sum(1).mean(), abs=1e-6)
    assert "coverage_worst_tenth" not in last
    # Without it, the same run to the bit, and the same bytes.
    plain = simulate(None)
    assert same_bits(plain.params, run.params)
    assert plain.ledger == run.ledger


def with_rows():
    return [i for i in range(len(TEST)) if TEST.sizes[i]]


@pytest.mark.parametrize(
    "algorithm",
    [hf.algorithms.fedavg(), hf.algorithms.local_only(), hf.algorithms.flix(alpha=0.5)],
    ids=lambda a: a.name,
)
def test_each_client_by_hand(algorithm):
    run = simulate(hf.conformal.evaluate(CALIBRATION, TEST, kappa=0.2, by="each client"), algorithm)
    covered, sizes, each = [], [], []
    for i in with_rows():
        q = quantile(lac(run, CALIBRATION[i], i)[1], 0.2)
        every, own = lac(run, TEST[i], i)
        covered.append(own <= q)
        sizes.append((every <= q).sum(1))
        each.append((own <= q).mean())
    last = run.history[-1]
    assert last["coverage"] == pytest.approx(np.concatenate(covered).mean(), abs=1e-6)
    assert last["set_size"] == pytest.approx(np.concatenate(sizes).mean(), abs=1e-6)
    assert last["coverage_worst_tenth"] == pytest.approx(min(each), abs=1e-6)
    assert run.ledger == simulate(None, algorithm).ledger


@pytest.mark.parametrize(
    "algorithm",
    [hf.algorithms.fedavg(), hf.algorithms.flix(alpha=0.5)],
    ids=lambda a: a.name,
)
def test_histograms_of_clients_by_hand_and_in_the_ledger(algorithm):
    bins = 40
    evaluator = hf.conformal.evaluate(
        CALIBRATION, TEST, kappa=0.2, by="clients", bins=bins, every=2
    )
    run = simulate(evaluator, algorithm, rounds=4)
    scores = np.concatenate([lac(run, CALIBRATION[i], i)[1] for i in with_rows()])
    # Up to the end of a cell of a fortieth.
    q = np.ceil(quantile(scores, 0.2) * bins - 1e-9) / bins
    pairs = [lac(run, TEST[i], i) for i in with_rows()]
    last = run.history[-1]
    covered = np.concatenate([own <= q + 1e-9 for _, own in pairs])
    sizes = np.concatenate([(every <= q + 1e-9).sum(1) for every, _ in pairs])
    assert last["coverage"] == pytest.approx(covered.mean(), abs=1e-6)
    assert last["set_size"] == pytest.approx(sizes.mean(), abs=1e-6)
    # Three clients have rows to calibrate with: 4 bytes a cell up and 8 down, in every second round.
    plain = simulate(None, algorithm, rounds=4)
    assert same_bits(plain.params, run.params)
    assert run.ledger.bytes_up - plain.ledger.bytes_up == 2 * 3 * 4 * bins
    assert run.ledger.bytes_down - plain.ledger.bytes_down == 2 * 3 * 8
    assert run.ledger.bits_up - plain.ledger.bits_up == 2 * 3 * 32 * bins
    assert [len(e.beside) for e in run.ledger.entries] == [0, 1, 0, 1]
    down, up = (
        a - b for a, b in zip(run.ledger.by_client(4), plain.ledger.by_client(4), strict=True)
    )
    assert up.tolist() == [320, 320, 0, 320]
    assert down.tolist() == [16, 16, 0, 16]
    recorded = [r["bytes_up"] for r in run.history]
    assert sum(recorded) == run.ledger.bytes_up
    assert (run.participation == plain.participation).all()


def test_who_calibrates_need_not_take_part():
    """A cohort of one: histograms of the others are counted, and their last contact stays what it was."""
    evaluator = hf.conformal.evaluate(CALIBRATION, TEST, by="clients", bins=10)
    wire = hf.wires.Downlink(hf.Wire(), hf.wires.TopK(4))
    algorithm = dataclasses.replace(hf.algorithms.fedavg(), wire=wire)
    cohort = hf.cohorts.fixed(1)
    run = simulate(evaluator, algorithm, rounds=3, cohort=cohort)
    plain = simulate(None, algorithm, rounds=3, cohort=cohort)
    assert run.ledger.last_contact() == plain.ledger.last_contact()
    assert run.ledger.bytes_up - plain.ledger.bytes_up == 3 * 3 * 40


def test_pooled_data_sends_nothing():
    evaluator = hf.conformal.evaluate(CALIBRATION, TEST, by="clients", bins=10)
    run = simulate(evaluator, hf.algorithms.centralised())
    assert run.ledger.total == 0
    assert np.isfinite(run.history[-1]["coverage"])


def test_resumed_to_the_bit_with_its_bytes(tmp_path):
    evaluator = hf.conformal.evaluate(
        CALIBRATION, TEST, score=hf.conformal.Score("aps", seed=2), by="clients", bins=30
    )
    whole = simulate(evaluator, rounds=4)
    save = hf.Checkpoint(tmp_path, every=1)
    simulate(evaluator, rounds=2, checkpoint=save)
    gone_on = simulate(evaluator, rounds=4, checkpoint=save)
    assert gone_on.ledger == whole.ledger
    assert gone_on.ledger.total == whole.ledger.total
    for one, other in zip(gone_on.history, whole.history, strict=True):
        assert {n: v for n, v in one.items() if "seconds" not in n} == {
            n: v for n, v in other.items() if "seconds" not in n
        }
    # Another calibration is another run.
    with pytest.raises(hf.HoldfastError, match="another evaluation"):
        simulate(hf.conformal.evaluate(CALIBRATION, TEST, by="clients", bins=31), checkpoint=save)


def test_the_debug_engine_and_a_server_that_learns():
    evaluator = hf.conformal.evaluate(AT_SERVER, TEST, kappa=0.2)
    compiled, debug = (simulate(evaluator, engine=e) for e in (None, hf.DebugEngine()))
    assert compiled.history[-1]["coverage"] == pytest.approx(
        debug.history[-1]["coverage"], abs=1e-6
    )
    learning = simulate(
        evaluator,
        hf.algorithms.fedavg_plus(gamma=0.5),
        server=hf.Server(drawn(50, 20), local=LOCAL),
    )
    q = quantile(lac(learning, AT_SERVER)[1], 0.2)
    own = np.concatenate([lac(learning, TEST[i])[1] for i in with_rows()])
    assert learning.history[-1]["coverage"] == pytest.approx((own <= q).mean(), abs=1e-6)


def joined(other=MODEL):
    parts = [
        hf.Population(TRAIN.subset([0, 1]), MODEL, name="a"),
        hf.Population(TRAIN.subset([2, 3]), other, name="b"),
    ]
    return hf.join(parts)


def test_joined_populations():
    both = joined()
    calibration = both.tests([CALIBRATION.subset([0, 1]), CALIBRATION.subset([2, 3])])
    tests = both.tests([TEST.subset([0, 1]), TEST.subset([2, 3])])
    of_one = hf.conformal.evaluate(both.of("a", AT_SERVER), both.of("a", AT_TEST), name="a")
    all_ = hf.conformal.evaluate(calibration, tests, kappa=0.2, by="clients", bins=40)
    run = hf.simulate(
        hf.algorithms.fedavg(), **both, local=LOCAL, rounds=2, evaluate=[of_one, all_]
    )
    scores = np.concatenate([lac(run, CALIBRATION[i])[1] for i in with_rows()])
    q = np.ceil(quantile(scores, 0.2) * 40 - 1e-9) / 40
    own = np.concatenate([lac(run, TEST[i])[1] for i in with_rows()])
    assert run.history[-1]["coverage"] == pytest.approx((own <= q + 1e-9).mean(), abs=1e-6)
    q = quantile(lac(run, AT_SERVER)[1], 0.1)
    wanted = (lac(run, AT_TEST)[1] <= q).mean()
    assert run.history[-1]["a_coverage"] == pytest.approx(wanted, abs=1e-6)


def test_numbers_have_intervals():
    rng = np.random.default_rng(0)

    def line(rows):
        x = rng.normal(size=(rows, 2)).astype(np.float32)
        return hf.Examples(x, (x @ [1.0, 2.0] + rng.normal(size=rows)).astype(np.float32))

    train, few, rest = (hf.Clients.from_datasets([line(20), line(30)]) for _ in range(3))
    model = hf.models.least_squares()
    evaluators = [
        hf.conformal.evaluate(few, rest, score="residual", by="clients", largest=4.0, bins=100),
        hf.conformal.evaluate(few, rest, score="residual", by="each client", name="own"),
    ]
    run = hf.simulate(
        hf.algorithms.fedavg(), model, train, hf.Local(0.1, steps=5), rounds=2, evaluate=evaluators
    )
    errors = [
        [
            np.abs(np.asarray(predictions_of(model, run.params, c[i]), np.float64) - c[i].y)
            for i in (0, 1)
        ]
        for c in (few, rest)
    ]
    q = np.ceil(quantile(np.concatenate(errors[0]), 0.1) * 25 - 1e-9) / 25
    last = run.history[-1]
    assert last["interval_width"] == pytest.approx(2 * q)
    assert last["coverage"] == pytest.approx((np.concatenate(errors[1]) <= q).mean())
    own = [quantile(e, 0.1) for e in errors[0]]
    widths = np.repeat([2 * q for q in own], [20, 30])
    assert last["own_interval_width"] == pytest.approx(widths.mean())


def test_in_detail():
    evaluator = hf.conformal.evaluate(CALIBRATION, TEST, kappa=0.2, by="clients", bins=500)
    run = simulate(evaluator)
    about = evaluator.detail(run.view)
    last = run.history[-1]
    assert about["coverage"] == last["coverage"]
    assert about["size"] == last["set_size"]
    assert about["calibrated_on"] == CALIBRATION.sizes.sum()
    clients = about["clients"]
    assert clients["client"] == with_rows()
    assert clients["rows"] == [30, 20, 25]
    assert np.average(clients["coverage"], weights=clients["rows"]) == pytest.approx(
        about["coverage"]
    )
    # What each would get by its own examples alone.
    own = simulate(hf.conformal.evaluate(CALIBRATION, TEST, kappa=0.2, by="each client"))
    mean = np.average(clients["own_coverage"], weights=clients["rows"])
    assert mean == pytest.approx(own.history[-1]["coverage"])
    assert sum(about["classes"]["rows"]) == TEST.sizes.sum()
    at = about["curve"]["kappa"].index(0.2)
    assert about["curve"]["coverage"][at] == about["coverage"]


def test_a_client_without_rows_to_calibrate_with_promises_everything():
    tests = of_clients(20, (30, 20, 10, 25))
    evaluator = hf.conformal.evaluate(CALIBRATION, tests, by="each client")
    clients = evaluator.detail(simulate(evaluator).view)["clients"]
    assert clients["calibrated_on"][2] == 0
    assert clients["coverage"][2] == 1
    assert clients["size"][2] == 3


def test_after_diverging_there_is_nothing_to_calibrate():
    view = simulate(None).view
    params = jax.tree.map(lambda a: a * np.float32(np.nan), view.state.params)
    state = dataclasses.replace(view.state, params=params)
    found = hf.conformal.evaluate(AT_SERVER, AT_TEST)(view._replace(state=state))
    assert np.isnan(found["coverage"])
    assert np.isnan(found["set_size"])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: hf.conformal.evaluate(AT_SERVER, AT_TEST, kappa=1.5), r"kappa=1\.5"),
        (lambda: hf.conformal.evaluate(AT_SERVER, AT_TEST, bins=1), "tells no score from another"),
        (lambda: hf.conformal.evaluate(AT_SERVER, AT_TEST, by="client"), "did you mean `clients`"),
        (lambda: hf.conformal.evaluate(AT_SERVER, AT_TEST, every=0), "every=0"),
        (lambda: hf.conformal.evaluate(CALIBRATION, TEST), "give one data set, or by="),
        (
            lambda: hf.conformal.evaluate(AT_SERVER, TEST, by="clients"),
            "one data set to calibrate with",
        ),
        (
            lambda: hf.conformal.evaluate(CALIBRATION, AT_TEST, by="clients"),
            "says for no client which",
        ),
        (lambda: hf.conformal.evaluate(AT_SERVER, AT_SERVER), "calibrated with and tested on"),
        (
            lambda: hf.conformal.evaluate(TEST, TEST, by="each client"),
            "calibrated with and tested on",
        ),
        (
            lambda: hf.conformal.evaluate(TEST, TEST.subset([0, 1, 2, 3]), by="clients"),
            "75 examples are calibrated with and tested on",
        ),
        (
            lambda: hf.conformal.evaluate(AT_TEST, hf.data.matched_test(AT_TEST, TRAIN)),
            "calibrated with and tested on",
        ),
        (
            lambda: hf.conformal.evaluate(
                AT_SERVER, AT_TEST, own=hf.data.matched_test(AT_SERVER, TRAIN)
            ),
            "calibrated with and tested on",
        ),
        (
            lambda: hf.conformal.evaluate(AT_SERVER, TEST, own=TEST),
            "beside one data set to test on",
        ),
        (
            lambda: hf.conformal.evaluate(
                hf.data.matched_test(AT_SERVER, TRAIN), TEST, by="clients"
            ),
            "clients share examples",
        ),
        (
            lambda: hf.conformal.evaluate(CALIBRATION.subset([0]), TEST, by="clients"),
            "1 clients have",
        ),
        (
            lambda: hf.conformal.evaluate(of_clients(0, (0, 0, 0, 0)), TEST, by="clients"),
            "no client has",
        ),
        (lambda: hf.conformal.evaluate(drawn(0, 0), AT_TEST), "no examples to calibrate with"),
        (lambda: hf.conformal.evaluate(hf.Examples(AT_SERVER.x, None), AT_TEST), "have no labels"),
        (lambda: hf.conformal.evaluate({"x": AT_SERVER.x}, AT_TEST), "have no labels"),
        (
            lambda: hf.conformal.evaluate(AT_SERVER, AT_TEST, score="residual"),
            "predicts labels; use",
        ),
        (
            lambda: hf.conformal.evaluate(AT_SERVER, AT_TEST, score="rasp"),
            "did you mean `raps`",
        ),
    ],
)
def test_bad_input_gets_one_clear_line(wrong, message):
    with pytest.raises(hf.HoldfastError, match=message) as error:
        simulate(wrong(), rounds=1)
    assert "\n" not in str(error.value)


def test_rows_that_are_trained_on_calibrate_nothing():
    for wrong in (
        lambda: simulate(hf.conformal.evaluate(TRAIN, TEST, by="each client"), rounds=1),
        lambda: simulate(hf.conformal.evaluate(TRAIN.examples, AT_TEST), rounds=1),
        lambda: simulate(
            hf.conformal.evaluate(AT_SERVER, AT_TEST),
            hf.algorithms.fedavg_plus(gamma=0.5),
            rounds=1,
            server=hf.Server(AT_SERVER, local=LOCAL),
        ),
    ):
        with pytest.raises(hf.HoldfastError, match="are trained on and calibrated with"):
            wrong()
    # Set apart from the same arrays, it is as good as any other.
    rest, apart = hf.data.set_apart(TRAIN, 0.3)
    evaluator = hf.conformal.evaluate(apart, TEST, by="each client")
    run = hf.simulate(hf.algorithms.fedavg(), MODEL, rest, LOCAL, rounds=1, evaluate=evaluator)
    assert 0 <= run.history[-1]["coverage"] <= 1


def test_a_regression_asked_for_sets():
    numbers = hf.Examples(AT_SERVER.x, AT_SERVER.x[:, 0])
    other = hf.Examples(AT_TEST.x, AT_TEST.x[:, 0])
    clients = hf.Clients.from_datasets([numbers])
    with pytest.raises(
        hf.HoldfastError, match=r"score `lac` is of labels, and .* predicts numbers; use"
    ):
        hf.simulate(
            hf.algorithms.fedavg(), hf.models.least_squares(), clients, LOCAL, rounds=1,
            evaluate=hf.conformal.evaluate(numbers, other),
        )  # fmt: skip
    few = hf.Clients.from_datasets([other])
    with pytest.raises(hf.HoldfastError, match="no largest value that a histogram could end at"):
        hf.simulate(
            hf.algorithms.fedavg(), hf.models.least_squares(), clients, LOCAL, rounds=1,
            evaluate=hf.conformal.evaluate(clients, few, score="residual", by="clients"),
        )  # fmt: skip
