"""The server learns too: transcriptions of the papers' corrected pseudo-code, through the public API."""

from itertools import islice

import jax
import numpy as np
import pytest

import holdfast as hf
from tests.claims.test_oracles import (
    GOLDEN,
    flat,
    load,
    population,
    shapes_of,
    unflatten,
    who_took_part,
)
from tests.problems import flat_net

FSL = sorted(p.stem for p in GOLDEN.glob("derived_fsl_*.npz"))
MIXED = sorted(p.stem for p in GOLDEN.glob("derived_mixedfl_*.npz"))
PRECISION = {"float64": 1e-8, "float32": 1e-4}


@pytest.fixture(params=list(PRECISION))
def dtype(request):
    with jax.enable_x64(request.param == "float64"):
        yield request.param


def states(z, algorithm, local, server_local, dtype):
    shapes = shapes_of(z)
    own = hf.Examples(z["X0"].astype(dtype), z["y0"].astype(np.int32))
    stream = hf.rounds(
        algorithm,
        flat_net(shapes),
        population(z, dtype),
        local,
        cohort=who_took_part(z),
        params=unflatten(z["init_params"], shapes, dtype),
        server=hf.Server(own, server_local),
    )
    return islice(stream, int(z["rounds"]))


def assert_close(found, stored, dtype, what):
    tolerance = PRECISION[dtype]
    np.testing.assert_allclose(found, stored, rtol=tolerance, atol=tolerance, err_msg=what)


@pytest.mark.parametrize("name", FSL)
def test_fsl(name, dtype):
    z, kind = load(name), name.split("_")[2]
    gamma, alpha, eta_g = (float(z[k]) for k in ("gamma", "alpha", "eta_g"))
    algorithm = {
        "fsl": hf.algorithms.fedavg_plus(gamma, eta_g, weighting="uniform"),
        "scaffoldsl": hf.algorithms.scaffold_plus(gamma, eta_g),
        "feddynsl": hf.algorithms.feddyn_plus(alpha, gamma),
        "feddcsl": hf.algorithms.feddc_plus(alpha, gamma),
    }[kind]
    local = hf.Local(float(z["eta_l"]), steps=int(z["K"]))
    server_local = hf.Local(float(z["eta_0"]), steps=int(z["K0"]))
    for t, state in enumerate(states(z, algorithm, local, server_local, dtype)):
        assert_close(flat(state.params), z["server"][t], dtype, f"{name}: server after round {t}")
    if kind == "scaffoldsl":  # a chain of the step size and the server's turn, with its own row
        c, rows = (
            state.server.rule[1][0],
            [state.client_states[i].rule[1] for i in range(len(state.client_states))],
        )
    if kind == "feddcsl":
        c, rows = (
            state.server.rule[0],
            [state.client_states[i].rule[0] for i in range(len(state.client_states))],
        )
    if "c_server" in z:
        assert_close(flat(c), z["c_server"], dtype, f"{name}: c")
        assert_close(np.stack([flat(r) for r in rows]), z["c_clients_final"], dtype, f"{name}: c_i")


@pytest.mark.parametrize("name", MIXED)
def test_mixed(name, dtype):
    z = load(name)
    kind, merge = name.split("_")[2:4]
    w_f, w_c = float(z["w_f"]), float(z["w_c"])
    weights, moves = (w_f, w_c), {"sum": (1.0, 1.0), "mean": (0.5, 0.5)}.get(merge)
    if merge == "weighted":
        weights, moves = (1.0, 1.0), (w_f, w_c)
    algorithm = {
        "pt": lambda: hf.algorithms.parallel_training(*weights, merge=moves),
        "1wgt": lambda: hf.algorithms.one_way_transfer(*weights),
        "2wgt": lambda: hf.algorithms.two_way_transfer(*weights, merge=moves),
    }[kind]()
    local = hf.Local(float(z["eta"]), steps=int(z["K"]))
    server_local = hf.Local(float(z["eta_c"]), steps=int(z["K"]))
    exchanged = (np.zeros_like(z["aug_gc"][0]), np.zeros_like(z["aug_gf"][0]))
    for t, state in enumerate(states(z, algorithm, local, server_local, dtype)):
        assert_close(flat(state.params), z["server"][t], dtype, f"{name}: server after round {t}")
        if kind == "2wgt":  # what is stored for a round is what was exchanged in it
            for found, stored in zip(exchanged, ("aug_gc", "aug_gf"), strict=True):
                assert_close(found, z[stored][t], dtype, f"{name}: {stored} of round {t}")
            exchanged = tuple(flat(g) for g in state.server.rule)
