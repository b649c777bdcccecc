"""FLIX: its two ends, what the paper proves, and what holdfast makes of it."""

import dataclasses
import itertools

import numpy as np
import pytest

import holdfast as hf
from holdfast.flix import Constants, Optima
from tests.problems import (
    QUADRATIC,
    largest_difference,
    random_quadratics,
    same_bits,
    tiny_clients,
)

ALPHAS = np.array([0.1, 0.9, 0.5, 0.3, 0.7, 0.2, 1.0, 0.6, 0.4, 0.8])
SEARCH = hf.solvers.GradientDescent(step=0.25, tolerance=1e-11)
QUICK = hf.solvers.GradientDescent(step=0.3, tolerance=0.05)
BATCHES = hf.Local(0.1, epochs=2, batch_size=4)


def logistic(seed, clients=6, examples=12, features=4, l2=0.1):
    """A random strongly convex problem of clients that disagree."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(clients, examples, features))
    truth = rng.normal(0, 2, (clients, features))
    y = (np.einsum("cef,cf->ce", x, truth) + rng.normal(size=(clients, examples)) > 0).astype(int)
    data = hf.Examples(x.reshape(-1, features), y.reshape(-1).astype(np.int32))
    population = hf.data.partition.by(data, np.repeat(np.arange(clients), examples))
    return hf.models.logistic_regression(l2, intercept=False), population


class Objective:
    """The FLIX objective of logistic regression, written from its definition, without holdfast."""

    def __init__(self, clients, optima, alpha, l2=0.1):
        self.alpha = np.broadcast_to(alpha, len(clients))
        self.optima, self.parts, self.l2 = optima.x["weights"], list(clients), l2

    def _terms(self, x):
        for a, x_i, mine in zip(self.alpha, self.optima, self.parts, strict=True):
            z = a * x + (1 - a) * x_i
            yield a, z, mine.x, mine.y, 1 / (1 + np.exp(-mine.x @ z))

    def __call__(self, x):
        losses = [
            np.mean(np.logaddexp(0, m @ z) - y * (m @ z)) + self.l2 / 2 * z @ z
            for _, z, m, y, _ in self._terms(x)
        ]
        return float(np.mean(losses))

    def grad(self, x):
        return np.mean(
            [a * (m.T @ (p - y) / len(y) + self.l2 * z) for a, z, m, y, p in self._terms(x)], axis=0
        )

    def hessian(self, x):
        eye = self.l2 * np.eye(len(x))
        return np.mean(
            [a**2 * (m.T * (p * (1 - p)) @ m / len(y) + eye) for a, _, m, y, p in self._terms(x)],
            axis=0,
        )

    def minimum(self):
        x = np.zeros(self.optima.shape[1])
        for _ in range(50):
            x = x - np.linalg.solve(self.hessian(x), self.grad(x))
        assert np.linalg.norm(self.grad(x)) < 1e-13
        return x


@pytest.mark.parametrize(
    "by",
    [
        hf.algorithms.fedavg(),
        hf.algorithms.scaffold(),
        hf.algorithms.feddyn(0.1),
        hf.algorithms.diana(hf.wires.RandK(k=4)),
    ],
    ids=lambda a: a.name,
)
def test_alpha_one_is_the_plain_method_bit_for_bit(by):
    deep = by.name == "fedavg"
    model = hf.models.mlp([4], classes=3) if deep else hf.models.softmax_regression(3)
    clients, search = tiny_clients(), QUICK
    plain = hf.simulate(by, model, clients, BATCHES, rounds=3)
    for alpha in (1.0, hf.PerClient(np.ones(4))) if deep else (1.0,):
        run = hf.simulate(hf.algorithms.flix(alpha, by, search), model, clients, BATCHES, rounds=3)
        assert same_bits(run.params, plain.params)
        assert same_bits(run.personal(2), plain.params)
        assert run.ledger == plain.ledger


@pytest.mark.parametrize(
    "by",
    [hf.algorithms.fedavg(), hf.algorithms.scaffold(), hf.algorithms.diana(hf.wires.Natural())],
)
def test_alpha_zero_sends_nothing(by):
    model, clients = hf.models.softmax_regression(3), tiny_clients()
    search = QUICK
    run = hf.simulate(hf.algorithms.flix(0.0, by, search), model, clients, BATCHES, rounds=2)
    assert run.ledger.total == run.ledger.bits_up == run.ledger.bits_down == 0
    optima = hf.flix.local_optima(model, clients, search)
    assert largest_difference(run.personal_all(), optima.x) < 1e-5
    assert same_bits(run.params, run.simulation.params)


def test_only_clients_with_alpha_zero_are_silent():
    model, clients = hf.models.softmax_regression(3), tiny_clients()
    search = QUICK
    mixed = hf.algorithms.flix(hf.PerClient([0.0, 0.5, 0.0, 1.0]), solver=search)
    run = hf.simulate(mixed, model, clients, BATCHES, rounds=1)
    bits = 32 * (5 * 3 + 3)
    assert run.ledger.entries[0].bits_up == (0, bits, 0, bits)
    assert run.ledger.entries[0].bits_down == (0, bits, 0, bits)
    # Beside a rule that bends the objective they would move with the others, so they are charged.
    both = hf.algorithms.flix(
        hf.PerClient([0.0, 0.5, 0.0, 1.0]), hf.algorithms.scaffold(), solver=search
    )
    run = hf.simulate(both, model, clients, BATCHES, rounds=1)
    assert run.ledger.entries[0].bits_up == bits


def test_alpha_as_a_function_of_the_client():
    model, clients = hf.models.softmax_regression(3), tiny_clients()
    search = QUICK
    by_size = hf.PerClient(lambda mine: 1 / len(mine.y))
    given = hf.PerClient([1 / 7, 1 / 12, 1 / 5, 1 / 9])
    runs = [
        hf.simulate(hf.algorithms.flix(a, solver=search), model, clients, BATCHES, rounds=2)
        for a in (by_size, given)
    ]
    assert same_bits(runs[0].params, runs[1].params)
    np.testing.assert_allclose(runs[0].simulation.setup.algorithm.rule.alpha.values, given.values)


METHODS = {
    "gradient descent": (hf.Algorithm(), hf.Local(0.3, steps=1)),
    "diana": (hf.algorithms.diana(hf.wires.RandK(k=2)), hf.Local(0.2, steps=1)),
    "scaffold": (hf.algorithms.scaffold(), hf.Local(0.1, steps=5)),
    "scaffold option I": (hf.algorithms.scaffold(option="I"), hf.Local(0.1, steps=5)),
    "feddyn": (hf.algorithms.feddyn(2.0), hf.Local(0.1, steps=5)),
}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_solves_the_same_objective(name, x64):
    """On quadratics its optimum is known: mean a_i^2 alpha (alpha x + (1 - alpha) b - b) = 0."""
    by, local = METHODS[name]
    clients, _ = random_quadratics(7)
    curvature, centre = (np.asarray(a) for a in clients.examples)
    weight = ALPHAS[:, None] ** 2 * curvature
    optimum = (weight * centre).sum(0) / weight.sum(0)  # x_i = centre
    algorithm = hf.algorithms.flix(hf.PerClient(ALPHAS), by, SEARCH)
    run = hf.simulate(algorithm, QUADRATIC, clients, local, rounds=600)
    np.testing.assert_allclose(run.params, optimum, atol=1e-8)
    deployed = ALPHAS[:, None] * optimum + (1 - ALPHAS[:, None]) * centre
    np.testing.assert_allclose(run.personal_all(), deployed, atol=1e-8)


def test_clients_that_never_took_part_have_personal_models_too(x64):
    clients, _ = random_quadratics(7)
    algorithm = hf.algorithms.flix(0.5, solver=SEARCH)
    settings = {"cohort": hf.cohorts.schedule([[0, 1]]), "evaluate": hf.evaluate.personal(clients)}
    run = hf.simulate(algorithm, QUADRATIC, clients, hf.Local(0.1, steps=1), 2, **settings)
    assert sorted(run.client_states.touched) == [0, 1]
    centre = np.asarray(clients.examples.y)
    expected = 0.5 * np.asarray(run.params) + 0.5 * centre
    np.testing.assert_allclose(run.personal_all(), expected, atol=1e-9)
    losses = 0.5 * (np.asarray(clients.examples.x) * (expected - centre) ** 2).sum(1)
    assert run.history[-1]["personal_loss"] == pytest.approx(losses.mean(), rel=1e-9)


def test_a_client_without_data_has_nothing_of_its_own(x64):
    clients, _ = random_quadratics(7)
    with_empty = dataclasses.replace(clients, offsets=np.append(clients.offsets, 10))
    algorithm = hf.algorithms.flix(0.5, solver=SEARCH)
    tests = hf.Clients.from_rows(clients.examples, [[i % 10] for i in range(11)])
    run = hf.simulate(
        algorithm,
        QUADRATIC,
        with_empty,
        hf.Local(0.1, steps=1),
        rounds=1,
        evaluate=hf.evaluate.personal(tests),
    )
    assert np.isfinite(run.history[-1]["personal_loss"])
    with pytest.raises(hf.HoldfastError, match=r"client 10 has no data.*use the server's"):
        run.personal(10)
    np.testing.assert_array_equal(run.personal_all()[10], run.params)


def test_an_unfinished_search_warns():
    model, clients = hf.models.softmax_regression(3), tiny_clients()
    search = hf.solvers.GradientDescent(0.1, tolerance=1e-30, max_steps=2)
    with pytest.warns(hf.HoldfastWarning, match=r"of 4 of 4 clients is unfinished.* tolerance"):
        hf.flix.local_optima(model, clients, search)


@pytest.mark.parametrize("case", ["separable", "regularised", "not separable"])
def test_an_optimum_at_infinity_is_no_optimum(case, x64, recwarn):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 20, 2))
    y = (x[..., 0] > 0).astype(np.int32)
    if case == "not separable":
        y[:, :5] = 1 - y[:, :5]
    data = hf.Examples(x.reshape(40, -1), y.reshape(-1))
    clients = hf.data.partition.by(data, np.repeat([0, 1], 20))
    l2 = 1e-3 if case == "regularised" else 0.0
    model = hf.models.logistic_regression(l2, intercept=False)
    optima = hf.flix.local_optima(model, clients)
    assert (optima.gradient_norms <= 1e-5).all()  # "optimal", says the gradient
    said = [str(w.message) for w in recwarn if issubclass(w.category, hf.HoldfastWarning)]
    if case == "separable":
        assert len(said) == 1
        assert "of 2 of 2 clients" in said[0]
        assert (
            "there is no optimum, as where examples can be separated; give the model an l2"
            in said[0]
        )
    else:
        assert not said


def test_weight_decay_is_refused_and_an_l2_is_what_is_trained(x64):
    """Decay of x is not that of the mixture, and x_i would be the optimum of another loss."""
    clients, _ = random_quadratics(7)
    curvature, centre = (np.asarray(a) for a in clients.examples)
    local = hf.Local(0.2, steps=1, weight_decay=0.5)
    for made in (hf.algorithms.flix(0.5), hf.algorithms.flix_one_shot(0.5, 1.0)):
        with pytest.raises(
            hf.HoldfastError, match=r"has weight_decay=0\.5; .*regularised\(model, l2=0\.5"
        ):
            hf.simulate(made, QUADRATIC, clients, local, rounds=1)
    scheduled = hf.Local(0.2, steps=1, weight_decay=lambda t: 0.5)
    with pytest.raises(hf.HoldfastError, match=r"Flix needs any penalty in the loss itself"):
        hf.simulate(hf.algorithms.flix(0.5), QUADRATIC, clients, scheduled, rounds=1)
    model = hf.models.regularised(QUADRATIC, l2=0.5)
    none = hf.Local(0.2, steps=1, weight_decay=0.0)
    run = hf.simulate(hf.algorithms.flix(0.5, solver=SEARCH), model, clients, none, rounds=400)
    own = curvature * centre / (curvature + 0.5)
    weight = curvature + 0.5
    optimum = (weight * own).sum(0) / weight.sum(0)
    np.testing.assert_allclose(run.params, optimum, atol=1e-8)
    np.testing.assert_allclose(run.personal_all(), 0.5 * optimum + 0.5 * own, atol=1e-8)


@pytest.mark.parametrize("seed", range(2))
def test_theory_holds(seed, x64):
    model, clients = logistic(seed)
    optima = hf.flix.local_optima(model, clients, hf.solvers.LBFGS(tolerance=1e-9))
    known = hf.flix.constants(model, clients, optima)
    assert known.exact
    rng = np.random.default_rng(seed)
    for alpha in (0.3, 1.0, rng.uniform(0.1, 1.0, len(clients))):
        f = Objective(clients, optima, alpha)
        best = f.minimum()
        # Proposition 2: the Hessian of the objective lies between its constants, everywhere.
        for _ in range(5):
            eigenvalues = np.linalg.eigvalsh(f.hessian(rng.normal(0, 1, 4)))
            assert eigenvalues.max() <= known.smoothness_at(alpha) * (1 + 1e-12)
            assert eigenvalues.min() >= known.convexity_at(alpha) * (1 - 1e-12)
        # Proposition 3: the variance of deployed models, for equal alphas.
        values = np.broadcast_to(alpha, len(clients))[:, None]
        deployed = values * best + (1 - values) * optima.x["weights"]
        if np.ndim(alpha) == 0:
            expected = (1 - alpha) ** 2 * optima.x["weights"].var(0).sum()
            assert deployed.var(0).sum() == pytest.approx(expected, rel=1e-12, abs=1e-15)
        # Theorem 1: one shot; theorem 2: the linear rate from there.
        each = hf.PerClient(np.broadcast_to(alpha, len(clients)).copy())
        smoothness = hf.PerClient(known.smoothness)
        shot = hf.simulate(
            hf.algorithms.flix_one_shot(each, smoothness, optima.known()),
            model,
            clients,
            hf.Local(1.0, steps=1),
            rounds=1,
        )
        average = known.weights(alpha) @ optima.x["weights"]
        np.testing.assert_allclose(shot.params["weights"], average, atol=1e-12)
        least = f(best)
        gaps = [f(average) - least]
        hf.simulate(
            hf.algorithms.flix(each, solver=optima.known()),
            model,
            clients,
            hf.Local(known.step_size(alpha), steps=1),
            rounds=12,
            params=shot.params,
            on_round=lambda state, f=f, least=least, gaps=gaps: gaps.append(
                f(np.asarray(state.params["weights"])) - least
            ),
        )
        bounds = [known.error(alpha, r) for r in range(1, 14)]
        assert all(
            gap + 1e-13 >= 0 and gap <= bound for gap, bound in zip(gaps, bounds, strict=True)
        )
        rate = 1 - known.convexity_at(alpha) / known.smoothness_at(alpha)
        assert all(b <= rate * a + 1e-13 for a, b in itertools.pairwise(gaps))


def test_one_shot_bound_is_attained_by_equal_quadratics(x64):
    """Where every f_i is exactly L-smooth the bound of theorem 1 is off by the optimum only."""
    clients, _ = random_quadratics(1)
    same = dataclasses.replace(clients, examples=clients.examples._replace(x=np.ones((10, 4))))
    centre = np.asarray(same.examples.y)
    known = Constants(np.ones(10), np.ones(10), centre, exact=True)
    deployed = 0.4 * centre.mean(0) + 0.6 * centre
    losses = 0.5 * ((deployed - centre) ** 2).sum(1).mean()
    assert known.error(0.4, 1) == pytest.approx(losses, rel=1e-12)


def test_budgets_are_inverse_to_each_other():
    rng = np.random.default_rng(0)
    known = Constants(rng.uniform(1, 4, 8), rng.uniform(0.1, 0.5, 8), rng.normal(size=(8, 3)), True)
    for accuracy in (1e-2, 1e-6):
        first = np.sqrt(2 * accuracy / (known.smoothness.mean() * known.spread(1.0)))
        q = 1 / np.sqrt(1 - known.convexity.mean() / known.smoothness.mean())
        for rounds in (1, 2, 5, 20):
            alpha = known.alpha(rounds, accuracy)
            assert alpha == pytest.approx(min(1.0, first * q ** (rounds - 1)), rel=1e-9)
            assert known.rounds(alpha, accuracy) <= rounds
            if alpha < 1:
                assert known.rounds(alpha * 1.001, accuracy) == rounds + 1
        assert known.alpha(0, accuracy) == 0
        assert known.rounds(0.0, accuracy) == 0
        assert known.rounds(0.5 * min(first, 1.0), accuracy) == 1
        alphas = [0.1, 0.3, 0.6, 1.0]
        needed = [known.rounds(a, accuracy) for a in alphas]
        assert needed == sorted(needed)
    flat = Constants(np.ones(8), np.zeros(8), known.optima, True)
    assert flat.rounds(1.0, 1e-6) == np.inf


def test_a_budget_gets_personal_models(x64):
    model, clients = logistic(5)
    free = hf.flix.personalise(model, clients, accuracy=1e-4, rounds=0)
    assert (free.alpha, free.run.ledger.total) == (0.0, 0)
    optima = hf.flix.local_optima(model, clients)
    assert largest_difference(free.run.personal_all(), optima.x) == 0
    twenty = hf.flix.personalise(model, clients, accuracy=1e-4, rounds=20)
    assert 0 < twenty.alpha <= 1
    assert twenty.rounds <= 20
    assert len(twenty.run.ledger.entries) == twenty.rounds
    f = Objective(clients, optima, twenty.alpha)
    assert f(np.asarray(twenty.run.params["weights"])) - f(f.minimum()) <= 1e-4
    assert twenty.accuracy <= 1e-4
    more = hf.flix.personalise(model, clients, accuracy=1e-4, rounds=5000)
    assert more.alpha == 1.0
    assert more.rounds < 5000  # no more than needed
    number, everyone = 8, len(clients)
    one = 2 * 4 * number  # a model down, a model up
    budget = everyone * (one + number) + 19 * everyone * one
    by_bytes = hf.flix.personalise(model, clients, accuracy=1e-4, megabytes=budget / 1e6)
    assert by_bytes.alpha == twenty.alpha
    assert by_bytes.run.ledger.total <= twenty.run.ledger.total
    assert "alpha=" in repr(twenty)


def test_ensembles_mix_predictions(x64):
    model, clients = logistic(2)
    optima = hf.flix.local_optima(model, clients, hf.solvers.LBFGS(tolerance=1e-8))
    alphas = hf.PerClient(np.linspace(0, 1, len(clients)))
    both = hf.flix.ensemble(model, optima, alphas)
    data = both.attach(clients)
    mine, plain = data[3], clients[3]
    x = {"weights": np.array([0.3, -0.2, 0.5, 0.1])}
    own = {"weights": optima.x["weights"][3]}
    p = alphas.values[3] * model.predictor.predict(x, plain)
    p = p + (1 - alphas.values[3]) * model.predictor.predict(own, plain)
    expected = -np.where(plain.y == 1, np.log(p), np.log(1 - p))
    np.testing.assert_allclose(both.model.losses(x, mine, None), expected, rtol=1e-10)
    run = hf.simulate(
        hf.algorithms.scaffold(),
        both.model,
        data,
        hf.Local(0.5, steps=2),
        rounds=30,
        evaluate=hf.evaluate.personal(data),
    )
    assert run.history[-1]["personal_loss"] < run.history[0]["personal_loss"]


def test_ensemble_at_alpha_one_is_the_model_alone():
    model, clients = hf.models.softmax_regression(3), tiny_clients()
    optima = hf.flix.local_optima(model, clients, QUICK)
    both = hf.flix.ensemble(model, optima, 1.0)
    runs = [
        hf.simulate(hf.algorithms.fedavg(), m, data, BATCHES, rounds=2)
        for m, data in ((model, clients), (both.model, both.attach(clients)))
    ]
    assert largest_difference(runs[0].params, runs[1].params) < 1e-6


def test_clusters_share_an_optimum(x64):
    """Two kinds of clients with too few examples each: a group's optimum is better than one's own."""
    rng = np.random.default_rng(0)
    kinds = np.arange(12) % 2
    truth = np.array([[2.0, -1.0, 0.5], [-2.0, 1.0, 1.5]])
    x = rng.normal(size=(12, 8, 3))
    y = np.einsum("cef,cf->ce", x, truth[kinds]) + rng.normal(size=(12, 8))
    data = hf.Examples(x.reshape(-1, 3), y.reshape(-1))
    clients = hf.data.partition.by(data, np.repeat(np.arange(12), 8))
    model = hf.models.least_squares(l2=1e-3, intercept=False)
    optima = hf.flix.local_optima(model, clients)
    labels = hf.flix.cluster(optima, groups=2)
    assert len(set(zip(labels, kinds, strict=True))) == 2
    shared = hf.flix.cluster_optima(model, clients, labels, hf.Local(0.3, steps=1), rounds=60)
    assert shared.bytes == 60 * 12 * 2 * 3 * 8
    own, together = (
        np.abs(found.x["weights"] - truth[kinds]).mean() for found in (optima, shared.optima)
    )
    assert together < 0.6 * own
    algorithm = hf.algorithms.flix(0.0, solver=shared.optima.known())
    run = hf.simulate(algorithm, model, clients, hf.Local(0.1, steps=1), rounds=1)
    np.testing.assert_array_equal(run.personal(4)["weights"], shared.optima.x["weights"][4])


def test_a_client_without_data_joins_a_group(x64):
    clients, _ = random_quadratics(7)
    with_empty = dataclasses.replace(clients, offsets=np.append(clients.offsets, 10))
    optima = hf.flix.local_optima(QUADRATIC, with_empty, SEARCH)
    assert np.isposinf(optima.gradient_norms[10])
    labels = hf.flix.cluster(optima, groups=3)
    np.testing.assert_array_equal(
        labels[:10], hf.flix.cluster(Optima(optima.x[:10], np.zeros(10)), 3)
    )
    assert labels[10] == np.bincount(labels[:10]).argmax()
    shared = hf.flix.cluster_optima(QUADRATIC, with_empty, labels, hf.Local(0.2, steps=1), rounds=2)
    assert np.isfinite(shared.optima.x).all()
    alone = np.append(labels[:10], 9)
    with pytest.raises(hf.HoldfastError, match=r"group 9 has no data.*\(10\) the label of another"):
        hf.flix.cluster_optima(QUADRATIC, with_empty, alone, hf.Local(0.2, steps=1), rounds=1)


def solve_quadratics(algorithm):
    return hf.simulate(
        algorithm, QUADRATIC, random_quadratics(7)[0], hf.Local(0.1, steps=1), rounds=3
    )


CASES = {
    "alpha": (lambda: hf.algorithms.flix(1.5), r"Flix: alpha=1\.5; give numbers in \[0, 1\]"),
    "alpha of one": (
        lambda: hf.algorithms.flix(hf.PerClient([0.1, -1])),
        r"give numbers in \[0, 1\]",
    ),
    "alpha of numpy": (
        lambda: hf.algorithms.flix(np.float32(1.5)),
        r"Flix: alpha=1\.5; give numbers in \[0, 1\]",
    ),
    "alpha in a tuple": (
        lambda: hf.algorithms.flix((0.2, 1.5)),
        r"Flix: alpha=\(0\.2, 1\.5\); give a number, or hf\.PerClient of one for each client",
    ),
    "alpha in quotes": (
        lambda: hf.algorithms.flix("0.3"),
        r"alpha='0\.3'; give numbers in \[0, 1\]",
    ),
    "alpha by a function": (
        lambda: solve_quadratics(hf.algorithms.flix(hf.PerClient(lambda mine: 1.5))),
        r"Flix: alpha=.*1\.5.*; give numbers in \[0, 1\]",
    ),
    "alpha by a schedule": (
        lambda: solve_quadratics(hf.algorithms.flix(lambda t: 1.0 - t, solver=QUICK)),
        r"Flix: alpha=-1\.0 in round 3; give numbers in \[0, 1\]",
    ),
    "by in quotes": (
        lambda: hf.algorithms.flix(0.5, by="diana"),
        r"flix: by='diana' is a str; give an Algorithm, such as hf\.algorithms\.diana",
    ),
    "solver in quotes": (
        lambda: hf.algorithms.flix(0.5, solver="LBFGS"),
        r"Flix: solver='LBFGS' is a str; give a Solver, such as hf\.solvers\.LBFGS\(\)",
    ),
    "solver of local optima": (
        lambda: hf.flix.local_optima(*logistic(0), "LBFGS"),
        r"local_optima: solver='LBFGS' is a str",
    ),
    "optimum is the former name": (
        lambda: hf.algorithms.flix(0.5, optimum="LBFGS"),
        r"unknown argument `optimum`; it is called `solver` now",
    ),
    "negative smoothness": (
        lambda: hf.algorithms.flix_one_shot(0.5, hf.PerClient([1.0, -1.0])),
        r"OneShot: smoothness=\[1\.0, -1\.0\]; give numbers of at least 0",
    ),
    "pooled": (lambda: hf.algorithms.flix(0.5, hf.algorithms.centralised()), r"pools the clients"),
    "two budgets": (
        lambda: hf.flix.personalise(*logistic(0), accuracy=1.0, rounds=1, megabytes=1.0),
        r"give one of them as the budget",
    ),
    "max error": (
        lambda: hf.flix.personalise(*logistic(0), accuracy=0.0, rounds=1),
        r"accuracy=0\.0; give a number above 0",
    ),
    "half a round": (
        lambda: hf.flix.personalise(*logistic(0), accuracy=1.0, rounds=2.5),
        r"rounds=2\.5; give a whole number of at least 0",
    ),
    "rounds in quotes": (
        lambda: hf.flix.personalise(*logistic(0), accuracy=1.0, rounds="5"),
        r"rounds='5'; give a whole number",
    ),
    "megabytes that are no number": (
        lambda: hf.flix.personalise(*logistic(0), accuracy=1.0, megabytes=float("nan")),
        r"megabytes=nan; give a number of at least 0",
    ),
    "accuracy in quotes": (
        lambda: hf.flix.personalise(*logistic(0), accuracy="1", rounds=5),
        r"accuracy='1'; give a number above 0",
    ),
    "accuracy beyond numbers": (
        lambda: hf.flix.personalise(*logistic(0), accuracy=1e-300, rounds=5),
        r"accuracy=1e-300, finer than numbers of 64 bits can tell.*; give at least",
    ),
    "optima of another model": (
        lambda: hf.flix.constants(*logistic(0), Optima(np.zeros((6, 9)), np.zeros(6))),
        r"the optima have float\d+\(6, 9\), but this model and population need weights float\d+\(6, 4\)",
    ),
    "optima of others": (
        lambda: hf.flix.personalise(
            *logistic(0), 1.0, rounds=5, optima=Optima({"weights": np.zeros((5, 4))}, np.zeros(5))
        ),
        r"need weights float\d+\(6, 4\); give those of hf\.flix\.local_optima",
    ),
    "known optima of another model": (
        lambda: solve_quadratics(
            hf.algorithms.flix(0.5, solver=Optima(np.zeros((10, 9)), np.zeros(10)).known())
        ),
        r"Known: the optima have float\d+\(9,\), the model float\d+\(4,\); give those of this model",
    ),
    "curvature of others": (
        lambda: hf.flix.constants(
            *logistic(0), curvature=hf.diagnose.Curvature(np.ones(9), np.ones(9), True)
        ),
        r"the curvature of 9 clients for 6; give that of this population",
    ),
    "curvature of as many others": (
        lambda: hf.flix.constants(*logistic(0), curvature=hf.diagnose.curvature(*logistic(1))),
        r"the curvature is that of other clients; give hf\.diagnose\.curvature\(model, clients\)",
    ),
    "curvature by name": (
        lambda: hf.flix.constants(*logistic(0), curvature="exact"),
        r"constants: curvature='exact' is a str; give a Curvature",
    ),
    "optima by name": (
        lambda: hf.flix.personalise(*logistic(0), 1.0, rounds=5, optima="LBFGS"),
        r"constants: optima='LBFGS' is a str; give an Optima",
    ),
    "optima of as many others": (
        lambda: hf.flix.personalise(
            *logistic(0), 1e-6, rounds=5, optima=hf.flix.local_optima(*logistic(1))
        ),
        r"the local optima are known to an error of .*, above accuracy=1e-06",
    ),
    "negative smoothness of a client": (
        lambda: Constants(np.array([1.0, -2.0]), np.ones(2), np.ones((2, 3)), True),
        r"constants: smoothness=-2; give numbers of at least 0",
    ),
    "alpha of constants": (
        lambda: Constants(np.ones(2), np.ones(2), np.ones((2, 3)), True).step_size([0.5, 1.5]),
        r"give numbers in \[0, 1\]",
    ),
    "alpha of others": (
        lambda: Constants(np.ones(2), np.ones(2), np.ones((2, 3)), True).step_size([0.5] * 3),
        r"alpha is 3 values, for 2 clients; give a number, or one for each",
    ),
    "alpha of an ensemble": (
        lambda: hf.flix.ensemble(logistic(0)[0], Optima(np.zeros((2, 1)), np.zeros(2)), "0.3"),
        r"alpha='0\.3'; give numbers in \[0, 1\]",
    ),
    "convex is the former name": (
        lambda: Constants(np.ones(2), np.ones(2), np.ones((2, 3)), True).step_size(
            1.0, convex=False
        ),
        r"unknown argument `convex`; it is called `case` now",
    ),
    "diana alone": (
        lambda: hf.flix.personalise(*logistic(0), accuracy=1.0, rounds=5, diana=True),
        r"diana=True without a compressor",
    ),
    "no predictor": (
        lambda: hf.flix.ensemble(QUADRATIC, Optima(np.zeros((2, 1)), np.zeros(2)), 0.5),
        r"quadratic does not say what it predicts",
    ),
    "labels": (
        lambda: hf.flix.cluster_optima(*logistic(0), [0], hf.Local(0.1), 1),
        r"labels of shape \(1,\) for 6 clients",
    ),
    "groups": (
        lambda: hf.flix.cluster(Optima(np.zeros((2, 1)), np.zeros(2)), groups=3),
        r"groups=3; give a whole number in 1\.\.2",
    ),
    "tolerance": (lambda: hf.solvers.LBFGS(tolerance=0.0), r"tolerance=0\.0; give a gradient norm"),
    "biased": (
        lambda: Constants(np.ones(2), np.ones(2), np.ones((2, 3)), True).step_size(
            1.0, hf.wires.TopK(k=1)
        ),
        r"TopK is biased and has no omega",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_mistakes(name):
    make, message = CASES[name]
    with pytest.raises(hf.HoldfastError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)
