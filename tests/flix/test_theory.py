"""What the FLIX paper proves of gradient descent, DCGD and DIANA, and what budgets promise by it."""

import dataclasses
import math

import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from holdfast.flix import Constants, Optima
from tests.flix.test_flix import Objective, logistic
from tests.problems import QUADRATIC, random_quadratics, same_bits, tiny_clients

RAND = hf.wires.RandK(k=2)


def made_up(convexity=0.1, clients=8):
    rng = np.random.default_rng(0)
    optima = rng.normal(size=(clients, 4))
    return Constants(rng.uniform(1, 4, clients), np.full(clients, convexity), optima, True)


def test_inexact_optima_are_part_of_the_promise(x64):
    """All optima off by the same vector: they are as near to each other as before, and wrong."""
    model, clients = logistic(1)
    exact = hf.flix.local_optima(model, clients, hf.solvers.LBFGS(tolerance=1e-9))
    wrong = {"weights": exact.x["weights"] + 0.03}
    optima = hf.flix.local_optima(model, clients, Optima(wrong, exact.gradient_norms).known())
    assert 0.005 < optima.gradient_norms.mean() < 0.03
    known = hf.flix.constants(model, clients, optima)
    blind = dataclasses.replace(known, gradient_norms=0.0)
    missed = []
    for alpha in (0.01, 0.1, 1.0):
        f = Objective(clients, optima, alpha)
        x = known.weights(alpha) @ optima.x["weights"]
        least = f(f.minimum())
        for rounds in (1, 2, 20):
            gap = f(x) - least
            assert gap <= known.error(alpha, rounds)
            missed.append(gap > blind.error(alpha, rounds))
            for _ in range(1 if rounds == 1 else 18):
                x = x - known.step_size(alpha) * f.grad(x)
    assert any(missed)
    found = hf.flix.personalise(model, clients, 1e-3, rounds=30, optima=optima)
    f = Objective(clients, optima, found.alpha)
    assert f(np.asarray(found.run.params["weights"])) - f(f.minimum()) <= found.accuracy <= 1e-3
    with pytest.raises(
        hf.HoldfastError, match=r"optima are known to an error of .* smaller tolerance"
    ):
        known.alpha(1, 1e-5)
    # Those of groups have no norms; they are measured.
    shared = optima._replace(gradient_norms=np.full(len(clients), np.nan))
    measured = hf.flix.constants(model, clients, shared)
    np.testing.assert_allclose(measured.gradient_norms, optima.gradient_norms, rtol=1e-9)


@pytest.mark.parametrize("model", [hf.models.softmax_regression(3), hf.models.mlp([4], classes=3)])
def test_a_budget_that_proves_nothing_is_refused(model):
    clients = tiny_clients()
    optima = hf.flix.local_optima(model, clients, hf.solvers.LBFGS(tolerance=0.1))
    known = hf.flix.constants(model, clients, optima)
    for rounds in (1, 1000):
        with pytest.raises(
            hf.HoldfastError, match=r"so rounds guarantee no accuracy; give the model an l2"
        ):
            known.alpha(rounds, 1e-3)


def test_an_l2_makes_budgets_useful():
    model, clients = hf.models.softmax_regression(3, l2=0.1), tiny_clients()
    known = hf.flix.constants(model, clients)
    assert known.exact
    assert known.alpha(1, 1e-2) < known.alpha(20, 1e-2) < known.alpha(200, 1e-2)
    # One shot needs no convexity, if the optima are exact.
    flat = dataclasses.replace(known, convexity=0 * known.convexity, gradient_norms=0.0)
    assert flat.alpha(1, 1e-2) == pytest.approx(
        dataclasses.replace(known, gradient_norms=0.0).alpha(1, 1e-2)
    )


def test_estimates_are_said_to_be_estimates():
    model, clients = QUADRATIC, random_quadratics(7)[0]
    with pytest.warns(hf.HoldfastWarning, match=r"constants of quadratic are estimates"):
        hf.flix.personalise(model, clients, 1.0, rounds=1)


def test_steps_are_those_of_the_theorems():
    known, alpha = made_up(), 0.5
    n, omega = 8, 4 / 2 - 1
    curved = alpha**2 * known.smoothness
    smooth, noisy = curved.mean(), 2 * omega * curved.max() / n
    shifted = 4 * curved.max() * omega / n  # equal betas cancel
    eta = (1 + omega) * omega * (1 + 2 * (1 + omega)) / n
    nonconvex = min(1 / (2 * math.sqrt(eta)), 2 / (math.sqrt(1 + 8 * eta) + 1)) / smooth
    expected = {
        ("strongly convex", None, False): 1 / smooth,
        ("convex", None, False): 1 / smooth,
        ("non-convex", None, False): 1 / smooth,
        ("strongly convex", RAND, False): 1 / (smooth + noisy),  # theorem 3
        ("strongly convex", RAND, True): 1 / (smooth + noisy + shifted),  # 4
        ("convex", RAND, False): 1 / (4 * (smooth + noisy)),  # 5
        ("convex", RAND, True): 1 / (4 * (smooth + noisy + shifted)),  # 6
        ("non-convex", RAND, False): 1 / smooth,  # 7
        ("non-convex", RAND, True): nonconvex,  # 8
    }
    by_mu = {"strongly convex": 0.1, "convex": 0.0, "non-convex": -0.1}
    for (case, compressor, diana), step in expected.items():
        assert known.step_size(alpha, compressor, diana, case=case) == pytest.approx(step)
        own = made_up(by_mu[case])
        assert own.case == case
        assert own.step_size(alpha, compressor, diana) == pytest.approx(step)
    # The bound of theorem 7 grows with the rounds; a step for a number of them keeps it below e.
    for rounds in (10, 1000):
        step = made_up(-0.1).step_size(alpha, RAND, rounds=rounds)
        assert (1 + smooth * noisy * step**2) ** rounds < math.e
    # Sparser is noisier: 1 of 4 numbers, whose theorem 8 is far below the convex step.
    one = hf.wires.RandK(k=1)
    assert made_up(-0.1).step_size(1.0, one, True) < 0.7 * made_up().step_size(1.0, one, True)


def test_shifts_must_fit_the_theorem():
    known, odd = made_up(), made_up(-0.1)
    with pytest.raises(
        hf.HoldfastError, match=r"beta=0\.9 to 0\.9; theorems 4 and 6 .* \(0, 0\.5\]"
    ):
        known.step_size(1.0, RAND, True, beta=0.9)
    with pytest.raises(hf.HoldfastError, match=r"theorem 8 of the FLIX paper .* \[0\.5, 0\.625\]"):
        odd.step_size(1.0, RAND, True, beta=0.1)
    each = hf.wires.RandK(k=hf.PerClient([1] * 4 + [2] * 4))
    with pytest.raises(hf.HoldfastError, match=r"the same beta for everybody; give beta=0\.25"):
        odd.step_size(1.0, each, True)
    assert odd.step_size(1.0, each, True, beta=0.25) == odd.step_size(
        1.0, hf.wires.RandK(k=1), True
    )
    with pytest.raises(hf.HoldfastError, match=r"case='concave'; did you mean `convex`"):
        known.step_size(1.0, case="concave")


@pytest.mark.parametrize("diana", [False, True])
def test_compressed_methods_keep_their_promise(diana, x64):
    """Theorems 3 and 4, from x_avg: the mean error over seeds is below the bound, round by round."""
    model, clients = logistic(3)
    optima = hf.flix.local_optima(model, clients, hf.solvers.LBFGS(tolerance=1e-9))
    known, compressor, alpha = hf.flix.constants(model, clients, optima), RAND, 0.6
    f = Objective(clients, optima, alpha)
    least = f(f.minimum())
    by = hf.algorithms.diana(compressor) if diana else hf.algorithms.dcgd(compressor)
    plain = hf.Experiment(
        hf.algorithms.flix(alpha, by, optima.known()), model, clients, hf.Local(1.0, steps=1)
    )
    experiment = hf.flix.by_theory(plain, known)
    assert experiment.local.learning_rate == known.step_size(alpha, compressor, diana)
    gaps = []
    for seed in range(4):
        path = []
        hf.simulate(
            dataclasses.replace(experiment, seed=seed),
            rounds=150,
            on_round=lambda state, path=path: path.append(
                f(np.asarray(state.params["weights"])) - least
            ),
        )
        gaps.append(path)
    mean = np.mean(gaps, axis=0)
    bounds = [known.error(alpha, r, compressor, diana) for r in range(1, 151)]
    assert (mean <= bounds).all()
    # DCGD stays above a floor, by theory and here; DIANA does not.
    floor = known.rounds(alpha, bounds[-1] / 1e6, compressor, diana)
    assert (floor == math.inf) == (not diana)
    assert (mean[-1] < 1e-7) == diana


@pytest.mark.parametrize("diana", [False, True])
def test_compressed_budgets_are_inverse_to_each_other(diana):
    known = made_up(convexity=0.5)
    for accuracy in (1e-1, 1e-3):
        alphas = []
        for rounds in (1, 20, 100, 400):
            alpha = known.alpha(rounds, accuracy, RAND, diana)
            alphas.append(alpha)
            assert known.rounds(alpha, accuracy, RAND, diana) <= rounds
            needed = known.rounds(min(1.0, alpha * 1.001), accuracy, RAND, diana)
            assert alpha == 1 or needed > rounds
        assert alphas == sorted(alphas)
        assert alphas[0] == known.alpha(1, accuracy)
    assert made_up(0.0).rounds(0.5, 1e-3, RAND, diana) == math.inf


@pytest.mark.parametrize("diana", [False, True])
def test_a_compressed_budget_gets_personal_models(diana, x64):
    model, clients = logistic(5)
    # Half of the numbers of a gradient travel, so a megabyte lasts for more rounds.
    settings = {"compressor": hf.wires.RandK(k=2, shared_seed=True), "diana": diana}
    found = hf.flix.personalise(model, clients, 1e-2, megabytes=0.02, **settings)
    plain = hf.flix.personalise(model, clients, 1e-2, rounds=1)
    assert 0 < found.run.ledger.total <= 20_000
    # The floor of DCGD is above what one shot reaches, so it stops there.
    assert (found.rounds > 1, found.alpha > plain.alpha) == (diana, diana)
    optima = hf.flix.local_optima(model, clients)
    f = Objective(clients, optima, found.alpha)
    assert f(np.asarray(found.run.params["weights"])) - f(f.minimum()) <= 1e-2
    if diana:
        # One k per client, of whom one has no data, and codes that are not whole bytes.
        empty = dataclasses.replace(
            clients, offsets=np.append(clients.offsets, clients.offsets[-1])
        )
        each = hf.wires.RandK(k=hf.PerClient([1, 2, 3, 4, 1, 2, 4]))
        some = hf.flix.personalise(model, empty, 1e-2, megabytes=0.01, compressor=each, diana=True)
        assert 0 < some.run.ledger.total <= 10_000
    afforded = 1 + ((20_000 - 6 * 72) // (6 * (32 + 16)))
    assert found.alpha == hf.flix.constants(model, clients, optima).alpha(
        afforded, 1e-2, **settings
    )


def test_gradient_descent_ends_when_its_gradient_proves_it(x64):
    model, clients = logistic(4)
    found = hf.flix.personalise(model, clients, 1e-5, rounds=400)
    worst = found.constants.rounds(found.alpha, 1e-5)
    assert 2 < found.rounds < worst
    assert len(found.run.ledger.entries) == found.rounds
    f = Objective(clients, hf.flix.local_optima(model, clients), found.alpha)
    x = np.asarray(found.run.params["weights"])
    gap = f(x) - f(f.minimum())
    assert gap <= found.accuracy <= 1e-5
    # It is proven by the last gradient that was sent, not by the one before.
    certificate = found.constants.certificate(found.alpha, np.linalg.norm(f.grad(x)))
    assert gap <= certificate <= found.accuracy


def test_a_start_at_the_average_is_one_shot_and_then_the_method(x64, tmp_path):
    model, clients = logistic(2)
    optima = hf.flix.local_optima(model, clients)
    known = hf.flix.constants(model, clients, optima)
    by = hf.algorithms.diana(RAND)
    plain = hf.Experiment(hf.algorithms.flix(0.5, by), model, clients, hf.Local(1.0, steps=1))
    experiment = hf.flix.by_theory(plain)
    run = hf.simulate(experiment, rounds=6)
    shot = hf.algorithms.flix_one_shot(0.5, hf.PerClient(known.smoothness), optima.known())
    first = hf.simulate(shot, model, clients, hf.Local(1.0, steps=1), rounds=1)
    own = dataclasses.replace(experiment, first_round=None)
    begun = next(iter([hf.engine.simulation.Simulation(own).begin()]))
    begun = dataclasses.replace(begun, round=1, params=first.params, ledger=first.ledger)
    two = hf.simulate(own, rounds=6, start=begun)
    assert same_bits(run.params, two.params)
    assert run.ledger == two.ledger
    assert run.history["round"].tolist() == [1, 2, 3, 4, 5, 6]
    # Interrupted and gone on with, it is the same run; with another first round it is another.
    hf.simulate(experiment, rounds=3, checkpoint=tmp_path)
    again = hf.simulate(experiment, rounds=6, checkpoint=tmp_path)
    assert same_bits(run.params, again.params)
    assert again.ledger == run.ledger
    with pytest.raises(hf.HoldfastError, match="first round"):
        hf.simulate(own, rounds=6, checkpoint=tmp_path)


def test_what_theory_has_no_step_for_is_refused(x64):
    model, clients = logistic(2)
    one = hf.Local(1.0, steps=1)
    cases = {
        r"fedavg is not FLIX": (hf.algorithms.fedavg(), one, {}),
        r"the cohort is Fixed; let everyone": (
            hf.algorithms.flix(0.5),
            one,
            {"cohort": hf.cohorts.fixed(2)},
        ),
        r"not for flix, scaffold": (hf.algorithms.flix(0.5, hf.algorithms.scaffold()), one, {}),
        r"weighting is 'examples'": (hf.algorithms.flix(0.5, hf.algorithms.fedavg()), one, {}),
        r"Local is steps=3, batch_size=None": (hf.algorithms.flix(0.5), hf.Local(1.0, steps=3), {}),
        r"Local is with clip": (hf.algorithms.flix(0.5), hf.Local(1.0, steps=1, clip=1.0), {}),
        r"alpha changes over rounds": (hf.algorithms.flix(lambda t: 0.5), one, {}),
    }
    for message, (algorithm, local, settings) in cases.items():
        experiment = hf.Experiment(algorithm, model, clients, local, **settings)
        with pytest.raises(hf.HoldfastError, match=message):
            hf.flix.by_theory(experiment)
    two = hf.join([hf.Population(clients, model), hf.Population(clients, model)])
    joined = hf.Experiment(hf.algorithms.flix(0.5), two.model, two.clients, one)
    with pytest.raises(hf.HoldfastError, match="joined populations"):
        hf.flix.by_theory(joined)
    # Other methods may start there, with a step of their own.
    scaffold = hf.algorithms.flix(0.5, hf.algorithms.scaffold())
    begun = hf.flix.by_theory(
        hf.Experiment(scaffold, model, clients, hf.Local(0.3, steps=2)), step=False
    )
    assert begun.local.learning_rate == 0.3
    assert hf.simulate(begun, rounds=2).state.round == 2


def _wave_loss(w, batch):
    """Neither convex nor concave, between 0 and 2, and bent by at most |a|^2 / 4 at any w."""
    u = jnp.sum(batch.x * (w[None] - batch.y), axis=1)
    return 2 * u**2 / (4 + u**2)


WAVES = hf.Model(
    init=lambda key, examples: jnp.zeros(examples.x.shape[1], examples.x.dtype) + 1.0,
    loss=_wave_loss,
    name="waves",
)


def test_shifts_begin_at_the_gradients_if_asked(x64):
    clients, _ = random_quadratics(7)
    local, wire = hf.Local(0.05, steps=1), hf.wires.Natural()
    plain = hf.simulate(
        hf.algorithms.fedavg(weighting="uniform"), QUADRATIC, clients, local, rounds=1
    )
    asked = hf.algorithms.diana(wire, start="gradients")
    states = hf.rounds(asked, QUADRATIC, clients, local)
    first, second = next(states), next(states)
    np.testing.assert_allclose(first.params, plain.params, rtol=1e-12)
    curvature, centre = (np.asarray(a) for a in clients.examples)
    for i in (0, 9):
        shift = np.asarray(first.client_states[i].wire[0])
        np.testing.assert_allclose(shift, 0.05 * curvature[i] * centre[i], rtol=1e-12)
    np.testing.assert_allclose(first.server.wire[0], plain.params, rtol=1e-12)
    # The whole reply is paid for once.
    whole, code = 10 * 4 * 64, 10 * wire.bits(4, np.float64)
    assert [entry.bits_up * 10 for entry in second.ledger.entries] == [whole, code]
    # After another first round it is the second that is whole.
    after = hf.simulate(
        asked,
        QUADRATIC,
        clients,
        local,
        rounds=3,
        first_round=hf.algorithms.fedavg(weighting="uniform"),
    )
    assert [entry.bits_up * 10 for entry in after.ledger.entries] == [whole, whole, code]
    wrapped = hf.wires.Clipped(asked.wire, bound=1e9).beginning(2)
    assert [wrapped.inner.whole(t) for t in range(4)] == [0, 0, 1, 0]
    with pytest.raises(hf.HoldfastError, match=r"start='ones'; give 'zeros' or 'gradients'"):
        hf.algorithms.diana(wire, start="ones")


def test_diana_of_theorem_8_where_losses_are_not_convex(x64):
    rng = np.random.default_rng(1)
    direction, centre = rng.normal(size=(8, 4)), rng.normal(size=(8, 4))
    clients = hf.Clients.from_rows(hf.Examples(direction, centre), [[i] for i in range(8)])
    # x_i = centre is a minimum of 0; phi(u) = 2 u^2 / (4 + u^2) has |phi''| <= 1.
    optima = Optima(centre, np.zeros(8))
    squares = (direction**2).sum(1)
    known = Constants(squares, -squares / 4, centre, True)
    assert known.case == "non-convex"
    compressor, alpha, rounds = hf.wires.RandK(k=1), 0.9, 60
    by = hf.algorithms.diana(compressor, start="gradients")
    plain = hf.Experiment(
        hf.algorithms.flix(alpha, by, optima.known()), WAVES, clients, hf.Local(1.0, steps=1)
    )
    experiment = hf.flix.by_theory(plain, known, start=False)
    step = experiment.local.learning_rate
    assert step == known.step_size(alpha, compressor, True, case="non-convex")

    def gradient(x):
        u = ((alpha * x + (1 - alpha) * centre - centre) * direction).sum(1)
        value = 2 * u**2 / (4 + u**2)
        slope = 16 * u / (4 + u**2) ** 2
        return value.mean(), (alpha * slope[:, None] * direction).mean(0)

    squared = []
    for seed in range(3):
        path = [np.ones(4)]
        hf.simulate(
            dataclasses.replace(experiment, seed=seed),
            rounds=rounds - 1,
            on_round=lambda state, path=path: path.append(np.asarray(state.params)),
        )
        squared.append(np.mean([np.sum(gradient(x)[1] ** 2) for x in path]))
    assert np.mean(squared) <= 2 / (step * rounds) * gradient(np.ones(4))[0]
    from_zero = dataclasses.replace(
        plain, algorithm=hf.algorithms.flix(alpha, hf.algorithms.diana(compressor), optima.known())
    )
    with pytest.raises(hf.HoldfastError, match=r"theorem 8 .* start='gradients'"):
        hf.flix.by_theory(from_zero, known, start=False)
