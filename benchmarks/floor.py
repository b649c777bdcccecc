"""How cheap FedDyn could be: rounds of FedAvg and FedDyn by hand in plain JAX, nothing but their mathematics.

No check for finite numbers, no weights, no empty slots, one sum, no store of states: FedDyn's are those of
the cohort alone, in one array that is donated and renewed in place.

python benchmarks/floor.py               # FedDyn / FedAvg on the scaling line `parameters`, by processor time
python benchmarks/floor.py 10000000
"""

import itertools
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, tree
from scaling import CURVES, METHODS, setting

Params = list[tuple[Any, Any]]
Rows = tuple[Any, Any]
RATE, ALPHA, BATCH = 0.01, 0.01, 10


def loss(params: Params, batch: Rows) -> jax.Array:
    """Mean cross-entropy of a multilayer perceptron."""
    x, y = batch
    *hidden, (kernel, bias) = params
    for w, b in hidden:
        x = jax.nn.relu(x @ w + b)
    scores = x @ kernel + bias
    chosen = jnp.where(jnp.arange(scores.shape[1]) == y[:, None], scores, 0).sum(1)
    return jnp.mean(jax.nn.logsumexp(scores, axis=1) - chosen)


def local(x: Params, data: Rows, bend: Callable[[Params, Params], Params]) -> Params:
    """One pass over a client's data."""

    def step(k: Any, y: Params) -> Params:
        rows = tree.map(lambda a: lax.dynamic_slice_in_dim(a, k * BATCH, BATCH), data)
        g = bend(jax.grad(loss)(y, rows), y)
        return tree.map(lambda p, d: p - RATE * d, y, g)

    return lax.fori_loop(0, len(data[1]) // BATCH, step, x)


def fedavg(x: Params, state: Any, clients: Rows) -> tuple[Params, Any]:
    """A round; no state is kept."""

    def one(total: Params, data: Rows) -> tuple[Params, None]:
        y = local(x, data, lambda g, _: g)
        return tree.map(lambda t, p, q: t + (p - q), total, y, x), None

    total, _ = lax.scan(one, tree.map(jnp.zeros_like, x), clients)
    return tree.map(lambda p, t: p + t / len(clients[1]), x, total), state


def feddyn(x: Params, state: Any, clients: Rows) -> tuple[Params, Any]:
    """A round; the state is the server's and those of the cohort's clients."""
    server, cohort = state
    count = len(clients[1])

    def one(carry: Any, here: Any) -> tuple[Any, None]:
        (total, cohort), (k, data) = carry, here
        mine = tree.map(lambda a: lax.dynamic_index_in_dim(a, k, keepdims=False), cohort)
        constant = tree.map(lambda h, p: ALPHA * h - ALPHA * p, mine, x)
        y = local(x, data, lambda g, y: tree.map(lambda d, c, p: d + c + ALPHA * p, g, constant, y))
        delta = tree.map(jnp.subtract, y, x)
        total = tree.map(jnp.add, total, delta)
        cohort = tree.map(
            lambda a, h, d: lax.dynamic_update_index_in_dim(a, h + d, k, 0), cohort, mine, delta
        )
        return (total, cohort), None

    begin = (tree.map(jnp.zeros_like, x), cohort)
    (total, cohort), _ = lax.scan(one, begin, (jnp.arange(count), clients))
    mean = tree.map(lambda t: t / count, total)
    server = tree.map(lambda h, m: h + count / 100 * m, server, mean)
    return tree.map(lambda p, m, h: p + m + h, x, mean, server), (server, cohort)


def measure(parameters: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of the processor for every round, the two methods in turns."""
    about = setting("parameters", parameters)
    rng = np.random.default_rng(0)
    widths = [about["features"], *about["hidden"], 10]
    first = [
        (jnp.asarray(rng.normal(0, a**-0.5, (a, b)), jnp.float32), jnp.zeros(b))
        for a, b in itertools.pairwise(widths)
    ]
    shape = (about["cohort"], about["each"])
    clients = (
        jnp.asarray(rng.standard_normal((*shape, about["features"]), dtype=np.float32)),
        jnp.asarray(rng.integers(0, 10, shape, dtype=np.int32)),
    )
    zeros = tree.map(jnp.zeros_like, first)
    stacked = tree.map(lambda a: jnp.zeros((about["cohort"], *a.shape), a.dtype), first)
    programs = {
        name: jax.jit(program, donate_argnums=1)
        for name, program in zip(METHODS, (fedavg, feddyn), strict=True)
    }
    held: dict[str, Any] = {"fedavg": (first, ()), "feddyn": (first, (zeros, stacked))}
    spent: dict[str, list[float]] = {name: [] for name in METHODS}
    for turn in range(rounds + 2):
        for name, program in programs.items():
            began = time.process_time()
            held[name] = jax.block_until_ready(program(*held[name], clients))
            if turn >= 2:
                spent[name].append(time.process_time() - began)
    return spent


def main() -> None:
    """A line for every number of parameters."""
    for parameters in [int(a) for a in sys.argv[1:]] or CURVES["parameters"]:
        spent = measure(parameters, rounds=6 if parameters >= 10**7 else 30)
        few, many = (spent[name] for name in METHODS)
        ratios = {"shortest": min(many) / min(few)}
        ratios["median"] = statistics.median(many) / statistics.median(few)
        text = ", ".join(f"{name} {number:.2f}" for name, number in ratios.items())
        print(
            f"{parameters:,}: FedAvg {1e3 * min(few):.2f} ms, FedDyn / FedAvg {text}",
            flush=True,
        )


if __name__ == "__main__":
    main()
