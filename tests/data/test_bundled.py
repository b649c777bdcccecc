"""Data that is always there: bundled with scikit-learn, or drawn from a seed with known properties."""

import numpy as np
import pytest

import holdfast as hf


def test_breast_cancer_is_standardised_by_its_training_rows():
    data = hf.data.breast_cancer()
    train, test = data
    assert (len(train.y), len(test.y), data.classes) == (455, 114, 2)
    assert (train.x.dtype, train.y.dtype) == (np.float32, np.int32)
    assert np.allclose(train.x.mean(axis=0), 0, atol=1e-5)
    assert np.allclose(train.x.std(axis=0), 1, atol=1e-5)
    assert abs(test.x.mean(axis=0)).max() > 1e-3
    assert set(train.y) == set(test.y) == {0, 1}
    with pytest.raises(hf.HoldfastError, match=r"breast_cancer: test_share=1\.0; give a number"):
        hf.data.breast_cancer(test_share=1.0)


def test_breast_cancer_trains():
    train, test = hf.data.breast_cancer()
    clients = hf.data.partition.iid(train, clients=5)
    run = hf.simulate(
        hf.algorithms.fedavg(),
        hf.models.logistic_regression(),
        clients,
        hf.Local(learning_rate=0.1, epochs=2, batch_size=20),
        rounds=5,
        evaluate=hf.evaluate.on(test),
    )
    assert run.history[-1]["accuracy"] > 0.93


@pytest.mark.parametrize("kind", ["homogeneous", "type1", "type2", "type3"])
def test_synthetic_logistic_has_owners_everywhere(kind):
    data = hf.data.synthetic_logistic(kind, seed=1)
    again = hf.data.synthetic_logistic(kind, seed=1)
    assert np.array_equal(data.train.x, again.train.x)
    assert np.array_equal(data.train.y, again.train.y)
    assert not np.array_equal(data.train.x, hf.data.synthetic_logistic(kind, seed=2).train.x)
    train, test = data.natural()
    assert len(train) == len(test) == 20
    assert data.train.x.shape[1] == 30
    assert data.classes == 5
    assert set(data.train.y) <= set(range(5))
    assert (data.train.x.dtype, data.train.y.dtype) == (np.float32, np.int32)
    assert test.sizes.min() >= 1
    assert (set(train.sizes) == {200}) == (kind != "type3")


def test_synthetic_inputs_have_the_published_covariance():
    x = hf.data.synthetic_logistic(clients=5, features=6, examples=20_000).train.x
    assert np.cov(x.T) == pytest.approx(np.diag(np.arange(1, 7) ** -1.2), abs=0.02)
    assert abs(x.mean(axis=0)).max() < 0.02


def test_only_type_1_clients_have_labels_of_their_own():
    """The same small input: with one optimum the label of what is near 0 is everybody's."""

    def labels_near_zero(kind):
        data = hf.data.synthetic_logistic(kind, features=2, examples=2000, clients=10)
        near = np.abs(data.train.x).max(axis=1) < 0.1
        return {int(label) for label in data.train.y[near]}

    assert len(labels_near_zero("type1")) > len(labels_near_zero("homogeneous"))


def test_type_2_clients_have_inputs_and_type_3_sizes_of_their_own():
    train, _ = hf.data.synthetic_logistic("type2", gamma=2.0, clients=200, examples=20).natural()
    means = np.array([part.x.mean() for part in train])
    assert means.std() == pytest.approx(2.0, abs=0.3)
    sizes = (
        hf.data.synthetic_logistic("type3", gamma=0.5, clients=500, features=2).natural()[0].sizes
    )
    assert np.log(sizes).std() == pytest.approx(0.5, abs=0.05)
    assert np.median(sizes) == pytest.approx(200, rel=0.1)


def test_sines_come_in_two_groups():
    data = hf.data.sine(clients=10, first_share=0.3, examples=2000, test_examples=50, seed=3)
    train, test = data.natural()
    assert train.sizes.tolist() == [2000] * 10
    assert test.sizes.tolist() == [50] * 10
    assert data.train.x.shape == (20_000, 1)

    def fitted(part):
        design = np.column_stack([np.sin(part.x[:, 0]), np.cos(part.x[:, 0])])
        return np.linalg.lstsq(design, part.y)[0]

    waves = np.array([fitted(part) for part in train])
    assert np.allclose(waves[:3], waves[0], atol=1e-5)
    assert np.allclose(waves[3:], waves[3], atol=1e-5)
    assert not np.allclose(waves[0], waves[3], atol=1e-2)
    amplitudes = np.linalg.norm(waves, axis=1)
    assert 0.1 <= amplitudes.min() <= amplitudes.max() <= 0.5
    noisy = hf.data.sine(
        clients=10, first_share=0.3, examples=2000, test_examples=50, noise=1.0, seed=3
    )
    assert (noisy.train.y - data.train.y).std() == pytest.approx(1.0, abs=0.03)


def test_quadratics_are_what_they_promise():
    data = hf.data.quadratics(clients=6, dimension=4, condition=9.0, seed=2)
    clients, tests = data.natural()
    assert clients.sizes.tolist() == tests.sizes.tolist() == [4] * 6
    curvatures, centres = [], []
    for part in clients:
        x, y = part.x.astype(np.float64), part.y.astype(np.float64)
        curvatures.append(x.T @ x / 4)
        centres.append(np.linalg.solve(x, y))
        eigenvalues = np.linalg.eigvalsh(curvatures[-1])
        assert eigenvalues.min() > 1 - 1e-5
        assert eigenvalues.max() < 9 + 1e-4
    weighted = sum(a @ c for a, c in zip(curvatures, centres, strict=True))
    optimum = np.linalg.solve(sum(curvatures), weighted)
    found = hf.data.least_squares_optimum(clients)["weights"]
    assert found == pytest.approx(optimum, abs=1e-5)
    assert hf.data.least_squares_optimum(clients, "uniform")["weights"] == pytest.approx(found)
    same = hf.data.quadratics(clients=6, heterogeneity=0.0).natural()[0]
    own = [hf.data.least_squares_optimum(same.subset([i]))["weights"] for i in range(6)]
    assert np.allclose(own, own[0], atol=1e-5)


def test_scaffold_reaches_the_optimum_of_the_quadratics_and_fedavg_does_not():
    clients, _ = hf.data.quadratics(clients=5, dimension=3, heterogeneity=3.0).natural()
    optimum = hf.data.least_squares_optimum(clients)["weights"]

    def distance(algorithm):
        model = hf.models.least_squares(intercept=False)
        local = hf.Local(learning_rate=0.05, steps=10)
        run = hf.simulate(algorithm, model, clients, local, rounds=150)
        return float(np.abs(np.asarray(run.params["weights"]) - optimum).max())

    assert distance(hf.algorithms.scaffold()) < 1e-4
    assert distance(hf.algorithms.fedavg()) > 1e-2


def test_optimum_with_a_penalty_an_intercept_and_unequal_clients():
    rng = np.random.default_rng(0)
    data = hf.Examples(rng.normal(size=(12, 3)), rng.normal(size=12))
    clients = hf.data.partition.by(data, [0] * 9 + [1] * 3)
    found = hf.data.least_squares_optimum(clients, "uniform", l2=0.1, intercept=True)
    point = np.append(found["weights"], found["intercept"])
    design = np.column_stack([data.x, np.ones(12)])

    def gradient(rows):
        return design[rows].T @ (design[rows] @ point - data.y[rows]) / len(design[rows])

    whole = (gradient(slice(0, 9)) + gradient(slice(9, 12))) / 2 + 0.1 * point
    assert whole == pytest.approx(np.zeros(4), abs=1e-12)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (lambda: hf.data.synthetic_logistic("type4"), r"kind='type4'; did you mean `type3`"),
        (lambda: hf.data.synthetic_logistic(clients=0), r"clients=0; give a whole number"),
        (
            lambda: hf.data.synthetic_logistic(gamma=-1.0),
            r"gamma=-1\.0; give a number of at least 0",
        ),
        (lambda: hf.data.sine(first_share=2.0), r"first_share=2\.0; give a number from 0 to 1"),
        (lambda: hf.data.quadratics(condition=0.5), r"condition=0\.5; give a number of at least 1"),
        (lambda: hf.data.quadratics(dimensions=3), r"unknown argument `dimensions`; did you mean"),
        (
            lambda: hf.data.least_squares_optimum(hf.data.quadratics().natural()[0], "even"),
            r"weighting='even'; give `examples` or `uniform`",
        ),
    ],
)
def test_arguments_that_make_no_sense_are_refused(request_, message):
    with pytest.raises(hf.HoldfastError, match=message):
        request_()


def test_gamma_changes_no_label_of_type_1():
    """The published shift is the same for all classes, so that the largest score stays the largest."""
    none, much = (hf.data.synthetic_logistic("type1", gamma=gamma) for gamma in (0.0, 5.0))
    assert np.mean(none.train.y == much.train.y) > 0.999
