"""FLIX: trajectories of the authors' code, with the coordinates it drew, through the public API."""

from itertools import islice
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from holdfast.flix import Constants, Optima
from holdfast.wires.sparsify import Sparse
from tests.claims.test_oracles import GOLDEN, load

NAMES = sorted(p.stem for p in GOLDEN.glob("official_flixrepo_*.npz"))


class Replayed(hf.wires.Compressor):
    """Rand-k with coordinates drawn by somebody else."""

    k: Any
    kept: Any

    def encode(self, v, key):
        return Sparse(v * self.kept, self.kept > 0)

    def decode(self, code, dtype):
        return (code.values.size / self.k) * code.values

    def omega(self, size):
        return size / self.k - 1

    def bits(self, size, dtype):
        return hf.wires.RandK(k=float(self.k)).bits(size, dtype)


def problem(z):
    x = z["X_with_intercept_first"]
    clients, examples, features = x.shape
    data = hf.Examples(x.reshape(-1, features), z["y01"].reshape(-1).astype(np.int32))
    population = hf.data.partition.by(data, np.repeat(np.arange(clients), examples))
    return hf.models.logistic_regression(l2=float(z["reg"]), intercept=False), population


def method(z, kind):
    if kind == "gd":
        return hf.Algorithm(name="dgd")
    replayed = Replayed(
        hf.PerClient(z["k_i"]),
        lambda t: hf.PerClient(jnp.asarray(z["masks"][min(t, int(z["iters"]) - 1)], float)),
    )
    if kind == "dcgd":
        return hf.algorithms.dcgd(replayed)
    return hf.algorithms.diana(replayed, hf.PerClient(z["beta_i"]))


def known(z, smoothness):
    regularised = np.full(len(smoothness), float(z["reg"]))
    return Constants(smoothness, regularised, z["plm"], exact=False)


@pytest.mark.parametrize("name", NAMES)
def test_iterates_shifts_and_objective(name, x64):
    z, kind = load(name), name.split("_")[2]
    model, clients = problem(z)
    optima = Optima({"weights": z["plm"]}, np.zeros(len(clients)))
    algorithm = hf.algorithms.flix(hf.PerClient(z["alpha"]), method(z, kind), optima.known())
    stream = hf.rounds(
        algorithm,
        model,
        clients,
        hf.Local(float(z["lr"]), steps=1),
        params={"weights": z["x0"]},
        evaluate=hf.evaluate.personal(clients),
    )
    for t, state in enumerate(islice(stream, int(z["iters"]))):
        close = {"rtol": 1e-8, "atol": 1e-8, "err_msg": f"{name}, round {t}"}
        np.testing.assert_allclose(state.params["weights"], z["iterates"][t + 1], **close)
        np.testing.assert_allclose(state.history[-1]["personal_loss"], z["f"][t + 1], **close)
        if kind == "diana":  # a reply is minus the step size times a gradient, and so is its shift
            shifts = [state.client_states[i].wire[0]["weights"] for i in range(len(clients))]
            np.testing.assert_allclose(np.stack(shifts) / -float(z["lr"]), z["h"][t], **close)


@pytest.mark.parametrize("name", NAMES)
def test_step_sizes_with_the_codes_constants(name):
    z, kind = load(name), name.split("_")[2]
    constants = known(z, z["L_i_code"])
    compressor = None if kind == "gd" else hf.wires.RandK(k=hf.PerClient(z["k_i"]))
    step = constants.step_size(hf.PerClient(z["alpha"]), compressor, diana=kind == "diana")
    assert step == pytest.approx(float(z["lr"]), rel=1e-12)
    assert constants.smoothness_at(z["alpha"]) == pytest.approx(float(z["L_alpha_code"]), rel=1e-12)


def test_the_correct_constants_are_the_default(x64):
    """The authors' code divides the regulariser by the number of examples; the Hessian does not."""
    z = load("official_flixrepo_gd_a03")
    model, clients = problem(z)
    found = hf.diagnose.curvature(model, clients)
    assert found.exact
    np.testing.assert_allclose(found.smoothness, z["L_i_true"], rtol=1e-10)
    assert not np.allclose(found.smoothness, z["L_i_code"], rtol=1e-3)


@pytest.mark.parametrize("solver", ["gradient descent", "line search", "L-BFGS"])
def test_solvers_find_the_authors_local_optima(solver, x64):
    z = load("official_flixrepo_gd_a03")
    model, clients = problem(z)
    search = {
        "gradient descent": hf.solvers.GradientDescent(hf.PerClient(1 / z["L_i_true"]), 1e-9),
        "line search": hf.solvers.LineSearch(1e-7),
        "L-BFGS": hf.solvers.LBFGS(1e-9),
    }[solver]
    optima = hf.flix.local_optima(model, clients, search)
    assert optima.gradient_norms.max() <= search.tolerance
    np.testing.assert_allclose(optima.x["weights"], z["plm"], atol=2e-5)
