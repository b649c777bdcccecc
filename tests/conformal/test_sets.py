"""Scores, thresholds, sets and intervals against NumPy and pure Python written another way."""

import hashlib

import numpy as np
import pytest

import holdfast as hf
from holdfast.conformal.scores import CALIBRATING, NEW
from holdfast.core.keys import Purpose, host_generator

KAPPAS = (0.01, 0.05, 0.1, 0.2, 0.37, 0.5, 0.9)


def problem(seed=0, rows=200, classes=6, sharpness=1.0):
    """Probabilities, and labels drawn from others that are like them."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, classes)) * 2
    truth = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    labels = np.array([rng.choice(classes, p=p) for p in truth])
    said = np.exp(sharpness * logits) / np.exp(sharpness * logits).sum(1, keepdims=True)
    return said.astype(np.float32), labels


def papers_sets(calibration, labels, new, kappa):
    """FedPVR's rule, word by word: tau is the floor(kappa (n + 1))-th smallest probability."""
    own = sorted(float(calibration[i][labels[i]]) for i in range(len(labels)))
    place = int(np.floor(kappa * (len(own) + 1) + 1e-9))
    tau = 0.0 if place == 0 else own[place - 1]
    return np.array([[float(p) >= tau for p in row] for row in new])


@pytest.mark.parametrize("n", [1, 9, 10, 99, 150])
def test_lac_is_the_papers_rule(n):
    p, y = problem()
    new, _ = problem(seed=1)
    found = hf.conformal.calibrate(p[:n], y[:n])
    for kappa in KAPPAS:
        wanted = papers_sets(p[:n], y[:n], new, kappa)
        np.testing.assert_array_equal(found.sets(new, kappa), wanted)
        assert found.excess(kappa) == 0


def scored_by_hand(row, u, penalty=0.0, k_reg=0):
    """Walk down the ranking, adding up."""
    out, above = [0.0] * len(row), 0.0
    ranking = sorted(range(len(row)), key=lambda j: (-row[j], j))
    for rank, j in enumerate(ranking, start=1):
        out[j] = above + u * row[j] + penalty * max(0, rank - k_reg)
        above += row[j]
    return out


@pytest.mark.parametrize(
    "score",
    [
        hf.conformal.Score("aps", randomised=False),
        hf.conformal.Score("aps", seed=3),
        hf.conformal.Score("raps", penalty=0.2, k_reg=2, randomised=False),
        hf.conformal.Score("raps", penalty=0.05, k_reg=1, seed=7),
    ],
    ids=str,
)
def test_adaptive_scores_by_hand(score):
    p, y = problem(rows=120)
    p[3] = 1 / p.shape[1]  # all labels as probable as each other
    new, labels = problem(seed=1, rows=80)
    penalty, k_reg = (score.penalty, score.k_reg) if score.name == "raps" else (0.0, 0)

    def draws(rows, count):
        if not score.randomised:
            return np.zeros(count)
        return host_generator(Purpose.SETS, score.seed, rows, 0).random(count)

    def by_hand(rows, which):
        drawn = draws(which, len(rows))
        if which == NEW and score.randomised:
            key = score.seed.to_bytes(8, "big") + bytes(8)
            each = [np.round(row, 6) + 0.0 for row in np.asarray(rows, np.float64)]
            hashed = [hashlib.blake2b(row.tobytes(), digest_size=8, key=key) for row in each]
            drawn = [int(h.hexdigest(), 16) / 2**64 for h in hashed]
        pairs = zip(np.asarray(rows, np.float64), drawn, strict=True)
        return np.array([scored_by_hand(row, u, penalty, k_reg) for row, u in pairs])

    calibrating, testing = by_hand(p, CALIBRATING), by_hand(new, NEW)
    np.testing.assert_allclose(score.of_all(new), testing, atol=1e-12)
    own = np.sort(calibrating[np.arange(len(y)), y])
    found = hf.conformal.calibrate(p, y, score)
    np.testing.assert_allclose(found.scores, own, atol=1e-12)
    for kappa in (0.05, 0.1, 0.3):
        q = own[int(np.ceil((len(own) + 1) * (1 - kappa) - 1e-9)) - 1]
        outcome = hf.conformal.outcome(found, new, labels, kappa)
        sets = testing <= q + 1e-12
        assert outcome.coverage == pytest.approx(
            sets[np.arange(len(labels)), labels].mean(), abs=1e-6
        )
        assert outcome.mean_size == pytest.approx(sets.sum(1).mean(), abs=1e-6)
    if not score.randomised:
        # The most probable label is in every set.
        assert found.sets(new, 0.3)[np.arange(len(new)), new.argmax(1)].all()


def test_a_set_does_not_change_with_what_is_drawn_elsewhere():
    p, y = problem()
    score = hf.conformal.Score("aps", seed=1)
    found = hf.conformal.calibrate(p, y, score)
    np.testing.assert_array_equal(found.sets(p), found.sets(p))
    assert (found.sets(p) != found.sets(p, client=1)).any()
    assert (
        hf.conformal.calibrate(p, y, hf.conformal.Score("aps", seed=2)).scores != found.scores
    ).any()


def test_two_classes_by_the_probability_of_one():
    p, y = problem(classes=2)
    both, one = hf.conformal.calibrate(p, y), hf.conformal.calibrate(p[:, 1], y)
    np.testing.assert_allclose(both.scores, one.scores, atol=1e-6)
    assert one.sets(p[:, 1]).shape == (200, 2)


def test_a_few_rows_promise_nothing():
    p, y = problem()
    assert hf.conformal.calibrate(p[:8], y[:8]).sets(p, 0.1).all()
    few = hf.conformal.calibrate(p[:8, 0], p[:8, 1], "residual")
    assert np.isinf(few.intervals(p[:, 0], 0.1)).all()


def test_intervals_by_hand():
    rng = np.random.default_rng(0)
    truth = rng.normal(size=300)
    predicted = truth + rng.normal(size=300)
    found = hf.conformal.calibrate(predicted[:100], truth[:100], "residual")
    q = sorted(abs(a - b) for a, b in zip(predicted[:100], truth[:100], strict=True))[90]
    wanted = np.stack([predicted[100:] - q, predicted[100:] + q], 1)
    np.testing.assert_allclose(found.intervals(predicted[100:], 0.1), wanted, atol=1e-12)
    outcome = hf.conformal.outcome(found, predicted[100:], truth[100:], 0.1)
    inside = (wanted[:, 0] <= truth[100:]) & (truth[100:] <= wanted[:, 1])
    assert outcome.coverage == pytest.approx(inside.mean(), abs=1e-6)
    assert outcome.mean_size == pytest.approx(2 * q)
    assert outcome.of_classes() == {}


@pytest.mark.parametrize("name", ["lac", "aps", "raps", "residual"])
@pytest.mark.parametrize("bins", [2, 7, 50, 1000])
def test_a_histogram_never_promises_more_than_it_keeps(name, bins):
    p, y = problem(rows=400)
    score = hf.conformal.Score(name, penalty=0.1, k_reg=1)
    labels = y if name != "residual" else p[:, 1]
    said = p if name != "residual" else p[:, 0]
    exact = hf.conformal.calibrate(said, labels, score)
    largest = score.largest(6) or 0.7
    parts = np.array_split(exact.scores, 5)
    cells = [hf.conformal.histogram(part, bins, largest) for part in parts]
    assert cells[0].bits == 32 * bins
    together = hf.conformal.from_histograms(cells, score)
    assert together.n == 400
    for kappa in KAPPAS:
        wide, narrow = together.threshold(kappa), exact.threshold(kappa)
        assert wide >= narrow
        assert wide == np.inf or wide <= narrow + largest / bins + 1e-12
        # Rows that are let in besides are those of the last cell, and no more.
        rank = 401 - int(np.floor(kappa * 401 + 1e-9))
        more = (exact.scores <= wide).sum() - min(rank, 400)
        expected = 0 if rank > 400 else more / 401
        assert together.excess(kappa) == pytest.approx(expected)


def test_by_client_and_by_class():
    p, y = problem(rows=300)
    found = hf.conformal.calibrate(p[:150], y[:150])
    sets = found.sets(p[150:], 0.2)
    outcome = hf.conformal.outcome(found, p[150:], y[150:], 0.2, client=4)
    assert list(outcome.of_clients()) == [4]
    for label, own in outcome.of_classes().items():
        mine = y[150:] == label
        assert own.rows == mine.sum()
        assert own.coverage == pytest.approx(sets[mine, label].mean())
        assert own.mean_size == pytest.approx(sets[mine].sum(1).mean())
    assert outcome.empty == pytest.approx((sets.sum(1) == 0).mean())
    assert outcome.single == pytest.approx((sets.sum(1) == 1).mean())
    curve = hf.conformal.curve(found, p[150:], y[150:], [0.2, 0.1])
    assert curve["coverage"][0] == outcome.coverage
    assert curve["size"][1] >= curve["size"][0]


@pytest.mark.parametrize("name", ["lac", "aps", "raps"])
@pytest.mark.parametrize("kappa", [0.1, 0.3])
def test_coverage_is_as_asked_on_exchangeable_rows(name, kappa):
    """Over many draws of rows, whatever the model says: here one that is far too sure of itself."""
    p, y = problem(rows=4000, sharpness=3.0)
    score = hf.conformal.Score(name, penalty=0.05, k_reg=2)
    covered = []
    for draw in range(40):
        order = np.random.default_rng(draw).permutation(len(y))
        few, rest = order[:400], order[400:]
        calibration = hf.conformal.calibrate(p[few], y[few], score)
        covered.append(hf.conformal.outcome(calibration, p[rest], y[rest], kappa).coverage)
    # Between 1 - kappa and 1/401 more in expectation; 40 draws scatter by a third of a percent.
    assert 1 - kappa - 0.008 <= np.mean(covered) <= 1 - kappa + 1 / 401 + 0.008


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda p, y: hf.conformal.calibrate(p, y, "lak"), "score `lak`; did you mean `lac`"),
        (lambda p, y: hf.conformal.calibrate(p[:0], y[:0]), "no rows to calibrate with"),
        (lambda p, y: hf.conformal.calibrate(p, y[1:]), "199 labels for 200 rows"),
        (
            lambda p, y: hf.conformal.calibrate(p, y + 6),
            r"label \d+, and there are",
        ),
        (lambda p, y: hf.conformal.calibrate(p, y + 0.5), "one whole number for each row"),
        (lambda p, y: hf.conformal.calibrate(p[0, 0], y), "a row for each example"),
        (lambda p, y: hf.conformal.calibrate(p * 9, y), "outside 0 to 1"),
        (lambda p, y: hf.conformal.calibrate(p * np.nan, y), "outside 0 to 1"),
        (lambda p, y: hf.conformal.calibrate(p, y, "residual"), "one finite number"),
        (
            lambda p, y: hf.conformal.calibrate(p[:, 0], y, "residual").sets(p),
            "intervals and no sets",
        ),
        (lambda p, y: hf.conformal.calibrate(p, y).intervals(p[:, 0]), "sets and no intervals"),
        (lambda p, y: hf.conformal.calibrate(p, y).sets(p, 0.0), r"kappa=0\.0, the share"),
        (lambda p, y: hf.conformal.calibrate(p, y).sets(p, 1), "kappa=1, the share"),
        (lambda p, y: hf.conformal.calibrate(p, y).sets(p, True), "kappa=True, the share"),
        (lambda p, y: hf.conformal.curve(hf.conformal.calibrate(p, y), p, y, [2.0]), r"kappa=2\.0"),
        (lambda p, y: hf.conformal.Score("raps", penalty=-1), "penalty=-1"),
        (lambda p, y: hf.conformal.Score("raps", k_reg=-1), "k_reg=-1"),
        (lambda p, y: hf.conformal.histogram([0.1], bins=1), "tells no score from another"),
        (lambda p, y: hf.conformal.histogram([0.1], bins=0), "bins=0"),
        (lambda p, y: hf.conformal.histogram([0.1], largest=0), "largest=0"),
        (lambda p, y: hf.conformal.histogram([np.nan]), "none of them NaN"),
        (lambda p, y: hf.conformal.from_histograms([]), "no rows to calibrate with"),
        (
            lambda p, y: hf.conformal.from_histograms(
                [hf.conformal.histogram([0.1], bins=n) for n in (5, 6)]
            ),
            "5 cells up to 1 and 6 cells up to 1",
        ),
        (lambda p, y: hf.conformal.divide(hf.Examples(p, y), 1.0), r"share=1\.0"),
        (lambda p, y: hf.conformal.divide(hf.Examples(p[:1], y[:1])), "both parts need some"),
        (lambda p, y: hf.conformal.calibrate(p, y, scor="lac"), "unknown argument `scor`"),
    ],
)
def test_bad_input_gets_one_clear_line(wrong, message):
    with pytest.raises(hf.HoldfastError, match=message) as error:
        wrong(*problem())
    assert "\n" not in str(error.value)


def test_dividing_leaves_nothing_in_both():
    p, y = problem()
    few, rest = hf.conformal.divide(hf.Examples(p, y), 0.3, seed=1)
    assert (len(few.y), len(rest.y)) == (60, 140)
    back = np.concatenate([few.x, rest.x])
    assert sorted(map(tuple, back.tolist())) == sorted(map(tuple, p.tolist()))
    clients = hf.Clients.from_rows(hf.Examples(p, y), np.split(np.arange(200), [20, 21, 90]))
    few, rest = hf.conformal.divide(clients, 0.5)
    assert (few.sizes + rest.sizes == clients.sizes).all()
    assert not np.intersect1d(few.order, rest.order).size
    shared = hf.Clients.from_rows(hf.Examples(p, y), [[0, 1, 2], [2, 3]])
    with pytest.raises(hf.HoldfastError, match="clients share examples"):
        hf.conformal.divide(shared)


@pytest.mark.parametrize("seed", [0, 3, 4, 5])
def test_rows_asked_about_one_at_a_time_are_covered_as_in_a_batch(seed):
    p, y = problem(rows=400)
    new, _ = problem(seed=1, rows=400)
    found = hf.conformal.calibrate(p, y, hf.conformal.Score("aps", seed=seed))
    batch = np.asarray(found.sets(new, 0.1))
    alone = np.concatenate([np.asarray(found.sets(row[None], 0.1)) for row in new])
    np.testing.assert_array_equal(alone, batch)
