"""A round in DrJAX: broadcast, map over the cohort, reduce, as one jitted program on one or two devices.

DrJAX maps by vmap, so clients of unequal size are padded to the longest of the population and masked.
"""

import functools

import jax
import protocol


def main() -> None:
    """Run and measure."""
    asked = protocol.options()
    watch = protocol.Watch(asked.started)
    devices = int(asked.variant)
    jax.config.update("jax_num_cpu_devices", devices)
    import drjax
    import jax.numpy as jnp
    import numpy as np
    from jax import lax
    from jax import tree_util as tree
    from jax_models import loss_of

    task = protocol.Task.load(asked.task)
    problem, dynamic = task.problem, asked.method == "feddyn"
    gradient = jax.grad(loss_of(problem, by_patches=True))

    @jax.jit
    @drjax.program(placements={"clients": problem.cohort})
    def a_round(server, h, rows, data, cohort, batches, weights):
        def local(start, row, rows_of):
            def step(y, chosen):
                keep = (chosen >= 0).astype(jnp.float32)
                x, labels = (a[jnp.maximum(chosen, 0)] for a in data)
                g = gradient(y, x, labels, keep)
                if dynamic:
                    alpha = problem.alpha
                    g = tree.tree_map(lambda g, r, p, s: g + alpha * (r + p - s), g, row, y, start)
                rate = problem.learning_rate * keep[0]
                return tree.tree_map(lambda p, g: p - rate * g, y, g), None

            y, _ = lax.scan(step, start, rows_of)
            return tree.tree_map(jnp.subtract, y, start)

        mine = tree.tree_map(lambda r: r[cohort], rows)
        delta = drjax.map_fn(local, (drjax.broadcast(server), mine, batches))
        scaled = drjax.map_fn(lambda d, w: tree.tree_map(lambda a: w * a, d), (delta, weights))
        mean = drjax.reduce_sum(scaled)
        server = tree.tree_map(jnp.add, server, mean)
        if dynamic:
            rows = tree.tree_map(lambda r, d: r.at[cohort].add(d), rows, delta)
            h = tree.tree_map(lambda h, m: h + task.share * m, h, mean)
            server = tree.tree_map(jnp.add, server, h)
        return server, h, rows

    server = tree.tree_map(jnp.asarray, task.params)
    h = tree.tree_map(jnp.zeros_like, server)
    # FedAvg has no rows; one number stands for them.
    clients = (task.population,) if dynamic else (task.population, 0)
    rows = tree.tree_map(lambda p: jnp.zeros((*clients, *(p.shape if dynamic else ())), p.dtype), h)
    state, data = [server, h, rows], (jnp.asarray(task.x), jnp.asarray(task.y))

    def advance(t: int) -> None:
        given = (task.cohorts[t], task.batches[t], task.weights(t, asked.method))
        state[:] = a_round(*state, data, *map(jnp.asarray, given))

    wait = functools.partial(jax.block_until_ready, state)
    if devices > 1 and problem.cohort % devices == 0:
        automatic = (jax.sharding.AxisType.Auto,)
        mesh = jax.make_mesh((devices,), ("clients",), axis_types=automatic)
        everywhere = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
        state[:], data = jax.device_put((list(state), data), everywhere)
        with mesh:
            protocol.timed_rounds(asked, watch, advance, wait)
    else:
        protocol.timed_rounds(asked, watch, advance, wait)
    final = {name: np.asarray(a) for name, a in state[0].items()}
    protocol.finish(asked, watch, final, jax=jax.__version__)


if __name__ == "__main__":
    main()
