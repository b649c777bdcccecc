"""The limit: the matrix products of a local step alone, in a compiled loop, on all cores at once.

    python benchmarks/limit.py mlp 2        # two devices with a loop each; 1: one device, all threads

Prints one line of JSON: seconds of one step's products when all cores work (so half of what one of two
devices takes), and the rate. Every product's left operand depends on the result before, so that nothing
can be moved out of the loop or left out.
"""

import json
import sys
import time

import jax
from problems import PROBLEMS, Product, products

_AIM = 0.3  # seconds to measure each product for
_TRIES = 3


def seconds_of(product: Product, devices: int) -> float:
    """Of one such product on each device at once."""
    import jax.numpy as jnp
    from jax import lax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(jax.devices()[:devices], ("d",))
    split = PartitionSpec("d")

    def loop(a: jax.Array, b: jax.Array, times: jax.Array) -> jax.Array:
        def step(_: int, carry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            a, c = carry
            a = a.at[0, 0].add(1e-9 * c[0, 0])
            return a, lax.optimization_barrier(a @ b)

        nothing = jnp.zeros((product.m, product.n), a.dtype)
        return lax.fori_loop(0, times, step, (a[0], nothing))[1][None]

    spread = jax.jit(
        jax.shard_map(
            loop,
            mesh=mesh,
            in_specs=(split, PartitionSpec(), PartitionSpec()),
            out_specs=split,
            check_vma=False,
        )
    )
    keys = jax.random.split(jax.random.key(0))
    a = jax.random.normal(keys[0], (devices, product.m, product.k))
    a = jax.device_put(a, NamedSharding(mesh, split))
    b = jax.random.normal(keys[1], (product.k, product.n)) / product.k

    def timed(times: int) -> float:
        began = time.perf_counter()
        jax.block_until_ready(spread(a, b, jnp.int32(times)))
        return time.perf_counter() - began

    timed(1)
    times, taken = 1, timed(1)
    while taken < _AIM / 4:
        times *= 4
        taken = timed(times)
    times = max(1, round(times * _AIM / taken))
    return min(timed(times) for _ in range(_TRIES)) / times


def main() -> None:
    """Measure and print."""
    name, devices = sys.argv[1], int(sys.argv[2])
    jax.config.update("jax_num_cpu_devices", devices)
    needed = products(PROBLEMS[name])
    seconds = sum(p.times * seconds_of(p, devices) for p in needed) / devices
    flop = sum(p.flop for p in needed)
    print(json.dumps({"seconds": seconds, "flop": flop, "gflops": flop / seconds / 1e9}))


if __name__ == "__main__":
    main()
