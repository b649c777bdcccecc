"""What the papers prove, on quadratics whose constants are known: rates, conditions, where methods end."""

import itertools
import math

import numpy as np
import optax
import pytest

import holdfast as hf
from tests.problems import QUADRATIC


class Quadratics:
    """Mean of separable quadratics, one per row."""

    def __init__(self, curvature, centre):
        self.a, self.b = np.atleast_2d(curvature), np.atleast_2d(centre)

    @property
    def examples(self):
        return hf.Examples(self.a, self.b)

    @property
    def clients(self):
        return hf.Clients.from_rows(self.examples, [[i] for i in range(len(self.a))])

    def loss(self, x):
        return 0.5 * np.mean(np.sum(self.a * (x - self.b) ** 2, axis=1))

    def gradients(self, x):
        return self.a * (x - self.b)

    def gradient(self, x):
        return self.gradients(x).mean(0)


def squared(v):
    return float(np.sum(np.square(v)))


# FedDyn (Acar et al., 2021): theorems 2 and 3, of exact local minimisation and the mean of the active
# devices' models, gamma^t; h_i and h are the paper's -gradients / alpha.

DEVICES, ACTIVE = 4, 2
START = np.full(3, 5.0)


def devices(flattest):
    rng = np.random.default_rng(0)
    curvature = rng.uniform(0.3, 1.0, (DEVICES, 3))
    curvature[0, 1], curvature[1, 1], curvature[:2, 0] = 1.0, flattest, flattest
    return Quadratics(curvature, rng.normal(0, 3, (DEVICES, 3)))


def feddyn(problem, alpha, rounds, start=None, cohort=None, on_round=None):
    # Every step shrinks the distance to the local optimum at least 26 times: 15 are exact.
    local = hf.Local(1 / (1.0 + alpha), steps=15)
    return hf.simulate(
        hf.algorithms.feddyn(alpha),
        QUADRATIC,
        problem.clients,
        local,
        rounds,
        params=START,
        start=start,
        cohort=cohort or hf.cohorts.fixed(ACTIVE),
        on_round=on_round,
    )


def constants(alpha, mu, smooth=1.0):
    """kappa and kappa_0 of lemma 1, and of lemma 8 where mu > 0."""
    m, p = DEVICES, ACTIVE
    if mu == 0:
        rest = alpha**2 - 20 * smooth**2
        return (
            8 * m / p / alpha * (smooth + alpha) / rest,
            2 / alpha * (alpha**2 - 20 * alpha * smooth - 40 * smooth**2) / rest,
        )
    z = alpha**3 * p + alpha**2 * p * mu - alpha**2 * m * mu - 20 * alpha * smooth**2 * p
    z += 4 * smooth**2 * m * mu - 20 * smooth**2 * p * mu
    above = 2 * alpha**3 * p + 2 * alpha**2 * p * mu - 2 * alpha**2 * m * mu
    above += -40 * alpha**2 * smooth * p - 80 * alpha * smooth**2 * p - 40 * alpha * smooth * p * mu
    above += 8 * alpha * smooth * m * mu + 16 * smooth**2 * m * mu - 80 * smooth**2 * p * mu
    return 8 * m * (smooth + alpha) / z, above / (alpha * z)


FEDDYN = {"convex": (0.0, 25.0), "strongly convex": (0.2, 30.0)}  # mu, least alpha with L = 1


@pytest.mark.parametrize("name", FEDDYN)
def test_one_round_of_feddyn_in_expectation_over_all_cohorts(name, x64):
    """Lemmas 1, 2 and 8, with every cohort of two of four devices tried."""
    mu, alpha = FEDDYN[name]
    problem = devices(mu)
    optimum = (problem.a * problem.b).sum(0) / problem.a.sum(0)
    at_optimum = problem.gradients(optimum)
    kappa, kappa_0 = constants(alpha, mu)
    assert kappa > 0
    assert kappa_0 > 0

    def described(state):
        h, h_i = state.memory(hf.rules.Dynamic)
        gamma = np.asarray(state.params) - h
        c = np.mean(np.sum((-alpha * h_i - at_optimum) ** 2, axis=1))
        return gamma, squared(gamma - optimum) + kappa * c

    for rounds in (0, 3, 12):
        state = feddyn(problem, alpha, rounds).state
        gamma, before = described(state)
        after, models = [], {}
        for cohort in itertools.combinations(range(DEVICES), ACTIVE):
            given = hf.cohorts.schedule([cohort])
            then = feddyn(problem, alpha, rounds + 1, start=state, cohort=given).state
            after.append(described(then))
            # The models of this round, by the change of h_i; the same in whatever cohort.
            h_i = then.memory(hf.rules.Dynamic).clients - state.memory(hf.rules.Dynamic).clients
            models |= {k: np.asarray(state.params) + h_i[k] for k in cohort}
        mean_gradient = problem.gradients(np.stack([models[k] for k in range(DEVICES)])).mean(0)
        moved = np.mean([g for g, _ in after], axis=0) - gamma
        np.testing.assert_allclose(moved, -mean_gradient / alpha, atol=1e-12)
        promised = before - kappa_0 * (problem.loss(gamma) - problem.loss(optimum))
        assert (1 + mu / alpha) * np.mean([v for _, v in after]) <= promised


@pytest.mark.parametrize("name", FEDDYN)
def test_feddyn_converges_at_the_rate_of_its_theorem(name, x64):
    mu, alpha = FEDDYN[name]
    problem = devices(mu)
    optimum = (problem.a * problem.b).sum(0) / problem.a.sum(0)
    rounds, r = 400, 1 + mu / alpha
    gammas = [START]
    averages = []

    def watch(state):
        gammas.append(np.asarray(state.params) - state.memory(hf.rules.Dynamic).server)
        averages.append(state.history[-1]["active_loss"])

    local = hf.Local(1 / (1.0 + alpha), steps=15)
    hf.simulate(
        hf.algorithms.feddyn(alpha),
        QUADRATIC,
        problem.clients,
        local,
        rounds,
        params=START,
        cohort=hf.cohorts.fixed(ACTIVE),
        evaluate=hf.evaluate.active_average(problem.examples),
        on_round=watch,
    )
    # gamma^t is the mean of the active devices' models, as the evaluator has it.
    np.testing.assert_allclose(averages, [problem.loss(g) for g in gammas[1:]], rtol=1e-12)
    far, disagree = squared(START - optimum), squared(problem.gradients(optimum)) / DEVICES
    gaps = {}
    for t in (1, 10, 50, 100, 200, rounds):
        weights = r ** np.arange(t)
        average = weights @ np.array(gammas[:t]) / weights.sum()
        gaps[t] = problem.loss(average) - problem.loss(optimum)
        spread = (DEVICES / ACTIVE) / alpha * disagree
        convex = (10 * alpha * far + 100 * spread) / t  # theorem 2
        strongly = (20 * alpha * far + 400 * spread) / r ** (t - 1)  # theorem 3
        assert gaps[t] <= (strongly if mu else convex)
    # Faster than 1/T from there on, as it must be where the bound is not reached.
    assert gaps[400] < gaps[100] / 4


# FSL (Mai, La and Zhang, 2022): theorem 1 with condition (6), and (8) under which its h is large.


class Mixture:
    """Clients, a server, and F~ = (F + gamma f_0) / (1 + gamma)."""

    def __init__(self, gamma, seed=1, clients=4):
        rng = np.random.default_rng(seed)
        self.clients = Quadratics(rng.uniform(0.2, 2, (clients, 3)), rng.normal(0, 3, (clients, 3)))
        self.server = Quadratics(rng.uniform(0.2, 2, 3), rng.normal(0, 3, 3))
        self.gamma = gamma
        self.smooth = max(self.clients.a.max(), self.server.a.max())

    def loss(self, x):
        return (self.clients.loss(x) + self.gamma * self.server.loss(x)) / (1 + self.gamma)

    def gradient(self, x):
        both = self.clients.gradient(x) + self.gamma * self.server.gradient(x)
        return both / (1 + self.gamma)

    @property
    def optimum(self):
        a = self.clients.a.mean(0) + self.gamma * self.server.a[0]
        b = (self.clients.a * self.clients.b).mean(0) + self.gamma * (
            self.server.a * self.server.b
        )[0]
        return b / a


def kappa_of(gamma, eta_g):
    return max(4 * gamma**3, 2 / eta_g**2 + 3 * gamma**2)


def progress(gamma, eta_g, path, smooth):
    """h of theorem 1; `path` is K_0 eta_0."""
    kappa = kappa_of(gamma, eta_g)
    return (
        gamma + 0.5 - path * smooth * (1 + gamma) / 2 * (3 * gamma + 3 + 16 * kappa * path * smooth)
    )


def condition_6(gamma, eta_g, smooth):
    return min(eta_g, 1 / gamma if gamma else math.inf, 8 / 9) / (4 * smooth)


def condition_8(gamma, eta_g, smooth):
    return min(1, (gamma + 1) ** 2 / (2 * kappa_of(gamma, eta_g))) / (8 * smooth * (gamma + 1))


def test_condition_8_leaves_progress_and_condition_6_need_not():
    grid = list(itertools.product(np.linspace(0, 5, 51), (0.5, 1, math.sqrt(2), 2, 10)))
    for gamma, eta_g in grid:
        h = progress(gamma, eta_g, condition_8(gamma, eta_g, 3.0), 3.0)
        assert h >= (3 * gamma + 1) / 4 - 1e-12
    # At the edge of (6) alone the bound may promise nothing.
    assert progress(1.0, 1.0, condition_6(1.0, 1.0, 3.0), 3.0) < 0


@pytest.mark.parametrize("condition", [condition_6, condition_8])
@pytest.mark.parametrize(("gamma", "eta_g", "active"), [(0.5, math.sqrt(2), 2), (1.0, 1.0, 4)])
def test_one_round_of_server_learning_makes_the_progress_of_theorem_1(
    gamma, eta_g, active, condition, x64
):
    problem, k, k_0 = Mixture(gamma), 3, 2
    smooth, n = problem.smooth, len(problem.clients.a)
    path = min(condition(gamma, eta_g, smooth), condition_6(gamma, eta_g, smooth))
    h, kappa = progress(gamma, eta_g, path, smooth), kappa_of(gamma, eta_g)
    algorithm = hf.algorithms.fedavg_plus(gamma, server_learning_rate=eta_g, weighting="uniform")
    server = hf.Server(problem.server.examples, hf.Local(path / k_0, steps=k_0))
    for x in (np.zeros(3), problem.optimum, np.array([10.0, -5.0, 3.0])):
        after = []
        for cohort in itertools.combinations(range(n), active):
            run = hf.simulate(
                algorithm,
                QUADRATIC,
                problem.clients.clients,
                hf.Local(path / (k * eta_g), steps=k),
                1,
                server=server,
                params=x,
                cohort=hf.cohorts.schedule([cohort]),
            )
            after.append(problem.loss(np.asarray(run.params)))
        each, mean = problem.clients.gradients(x), problem.clients.gradient(x)
        g2, xi2 = squared(each - mean) / n, squared(problem.server.gradient(x) - mean)
        share = (n - active) / (n - 1)
        psi = share * g2 / active
        phi = gamma**2 * psi + 2 * gamma**2 / active * share * g2 + 2 * g2 / eta_g**2
        drift = 5 * path**2 * smooth * psi
        drift += 8 * path**3 * smooth**2 * (gamma * kappa / (1 + gamma) * xi2 + phi)
        promised = problem.loss(x) - path * h * squared(problem.gradient(x)) + drift
        assert np.mean(after) <= promised + 1e-12


def test_server_learning_ends_near_the_optimum_of_both_nearer_with_smaller_steps(x64):
    """Theorem 2: what remains of the squared gradient goes with the square of the step."""
    problem, remains = Mixture(1.0), []
    for share in (1.0, 0.5):
        path = share * condition_8(1.0, 1.0, problem.smooth)
        local = hf.Local(path / 4, steps=4)
        run = hf.simulate(
            hf.algorithms.fedavg_plus(1.0, weighting="uniform"),
            QUADRATIC,
            problem.clients.clients,
            local,
            round(500 / share),
            server=hf.Server(problem.server.examples, local),
        )
        remains.append(squared(problem.gradient(np.asarray(run.params))))
    assert remains[0] / remains[1] == pytest.approx(4, rel=0.1)
    assert 0 < remains[0] < 1e-2


# Where the plus methods end. SCAFFOLD+ at the optimum of both; FedDyn+ and FedDC+ as far as the server
# solves its problem, which begins at x + h and has curvature gamma a_0 + alpha.

ALPHA, STEP = 1.0, 0.05


def where_it_ends(problem, steps):
    """x = y + rho (x + h - y), with y the server's optimum and alpha h = -grad F(x)."""
    a, b = problem.clients.a.mean(0), (problem.clients.a * problem.clients.b).mean(0)
    a_0, b_0 = problem.server.a[0], (problem.server.a * problem.server.b)[0]
    curvature = problem.gamma * a_0 + ALPHA
    rho = (1 - STEP * curvature) ** steps
    kept = (1 - rho) * ALPHA / curvature + rho
    gained = (1 - rho) / curvature * problem.gamma * b_0
    return (gained + kept * b / ALPHA) / (1 - kept * (1 - a / ALPHA))


@pytest.mark.parametrize("name", ["scaffold_plus", "feddyn_plus", "feddc_plus"])
def test_where_the_plus_methods_end(name, x64):
    problem = Mixture(0.5, clients=5)
    given = {"gamma": 0.5} if name == "scaffold_plus" else {"alpha": ALPHA, "gamma": 0.5}
    far = {}
    for steps in (5, 50, 400):
        run = hf.simulate(
            getattr(hf.algorithms, name)(**given),
            QUADRATIC,
            problem.clients.clients,
            hf.Local(0.1, steps=10),
            250,
            server=hf.Server(problem.server.examples, hf.Local(STEP, steps=steps)),
        )
        far[steps] = np.abs(np.asarray(run.params) - problem.optimum).max()
        if name != "scaffold_plus":
            np.testing.assert_allclose(run.params, where_it_ends(problem, steps), atol=1e-9)
    if name == "scaffold_plus":
        assert max(far.values()) < 1e-12
    else:
        assert far[5] > 0.3
        assert 1e-3 < far[50] < 0.1
        assert far[400] < 1e-9


# Mixed federated learning (Augenstein et al., 2022): tables 3, 12 and 13, with equal clients.

BETA, MU, K = 1.0, 0.2, 4
CLIENTS = 4


class Mixed:
    """f = f_f + f_c; `apart` scales how far the two optima are from each other."""

    def __init__(self, apart=1.0):
        optima = np.array([[3.0, -2.0, 1.0], [-1.0, 4.0, 0.0]])
        optima = optima.mean(0) + apart * (optima - optima.mean(0))
        self.a = np.array([[0.2, 1.0, 0.6], [1.0, 0.3, 0.5]])
        self.both = Quadratics(self.a, optima)
        self.federated = Quadratics(
            np.tile(self.a[0], (CLIENTS, 1)), np.tile(optima[0], (CLIENTS, 1))
        )
        self.central = Quadratics(self.a[1], optima[1])
        self.optimum = (self.a * optima).sum(0) / self.a.sum(0)

    def gap(self, x):
        return 2 * (self.both.loss(x) - self.both.loss(self.optimum))

    def path(self, algorithm, step, rounds, start=10.0):
        seen = [np.full(3, start)]
        hf.simulate(
            algorithm,
            QUADRATIC,
            self.federated.clients,
            hf.Local(step, steps=K),
            rounds,
            server=hf.Server(self.central.examples, hf.Local(step, steps=K)),
            params=seen[0],
            on_round=lambda state: seen.append(np.asarray(state.params)),
        )
        return np.array(seen)


def test_one_way_transfer_at_its_largest_step(x64):
    """Table 12: 1 / 8 beta, with the server's step of table 13, the root of the cohort's size."""
    problem, root = Mixed(), math.sqrt(CLIENTS)
    algorithm = hf.algorithms.one_way_transfer(server_optimizer=optax.sgd(root))
    seen = problem.path(algorithm, 1 / (8 * BETA * K * root), 100)
    path = 1 / (8 * BETA)
    far = np.sum((seen - problem.optimum) ** 2, axis=1)
    gaps = np.array([problem.gap(x) for x in seen])
    # The recursion of the proof of theorem C.2, while it is above rounding.
    promised = (1 - 1.5 * MU * path) * far - (CLIENTS - 1) / CLIENTS * path * gaps
    assert (far[1:61] <= promised[:60]).all()
    # And the bound for general convex losses, of the mean of x.
    for t in (1, 10, 99):
        mean = seen[1 : t + 2].mean(0)
        assert problem.gap(mean) <= CLIENTS / (CLIENTS - 1) * 8 * BETA * far[0] / (t + 1)
    assert far[-1] < 1e-9 * far[0]


@pytest.mark.parametrize("merge", [(0.5, 0.5), (1.0, 1.0)])
def test_two_way_transfer_at_its_largest_step(merge, x64):
    """Table 12: min(1 / 81 beta, 1 / 15 mu). No G in table 3: it goes on to the joint optimum."""
    step = min(1 / (81 * BETA), 1 / (15 * MU)) / K
    seen = Mixed().path(hf.algorithms.two_way_transfer(merge=merge), step, 1500)
    gaps = [Mixed().gap(x) for x in seen]
    assert gaps[500] < 1e-5 * gaps[0]
    assert gaps[1500] < 1e-10 * gaps[0]


def test_parallel_training_ends_at_a_gap_that_goes_with_disagreement_and_step(x64):
    """Table 3: rounds go with G / root of epsilon, so epsilon with the square of G and of the step."""

    def end(apart, share):
        problem = Mixed(apart)
        a_f, a_c = problem.a
        b2 = 2 * np.max(2 * (a_f**2 + a_c**2) / (a_f + a_c) ** 2)
        g2 = 4 * squared(problem.both.gradients(problem.optimum))
        for x in np.random.default_rng(0).normal(0, 30, (100, 3)):
            both = problem.both.gradients(x)  # definition 5.2, with weights of a half
            assert 2 * squared(both) <= g2 + b2 * squared(both.sum(0)) + 1e-9
        step = share / (6 * (1 + b2) * BETA * K)
        seen = problem.path(hf.algorithms.parallel_training(), step, round(600 / share))
        return problem.gap(seen[-1])

    whole = end(1.0, 1.0)
    assert whole > 1e-5
    assert end(2.0, 1.0) / whole == pytest.approx(4, rel=0.01)
    assert whole / end(1.0, 0.5) == pytest.approx(4, rel=0.05)
    assert end(0.0, 1.0) < 1e-12


def test_the_servers_noise_counts_k_times_in_one_way_transfer(x64):
    """Table 3: K S sigma_c^2 beside S sigma_c^2, for one batch serves a round and not K."""
    rng = np.random.default_rng(0)
    central = hf.Examples(np.ones((64, 20)), rng.normal(0, 1, (64, 20)))
    federated = np.tile(central.y.mean(0), (2, 1))
    clients = Quadratics(np.ones((2, 20)), federated).clients
    steps, noise = 8, {}
    for name in ("parallel_training", "one_way_transfer"):
        far = []
        local = hf.Local(0.005, steps=steps, batch_size=1)
        hf.simulate(
            getattr(hf.algorithms, name)(),
            QUADRATIC,
            clients,
            local,
            800,
            server=hf.Server(central, local),
            params=federated[0],
            on_round=lambda state, far=far: far.append(squared(state.params - federated[0])),
        )
        noise[name] = np.mean(far[100:])
    # A round's eight batches are drawn without putting back: 8 times, and 64/56 of it.
    assert noise["one_way_transfer"] / noise["parallel_training"] == pytest.approx(9.1, rel=0.35)
