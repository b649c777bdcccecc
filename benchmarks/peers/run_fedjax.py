"""FedJAX: its own federated averaging; FedDyn, which it does not ship, on its `for_each_client`.

With FEDJAX_SOURCE naming a checkout, that code is imported instead of the released package.
"""

import os
import sys

if source := os.environ.get("FEDJAX_SOURCE"):
    sys.path.insert(0, source)

import jax
import jax.numpy as jnp
import numpy as np
import protocol
from fedjax.algorithms import fed_avg
from fedjax.core import for_each_client, optimizers, tree_util
from jax_models import loss_of


class Ordered:
    """A client's data in the order of the task, short batches padded with a mask as FedJAX pads them."""

    def __init__(self, task: protocol.Task, t: int, slot: int) -> None:
        self.task, self.t, self.slot = task, t, slot

    def __len__(self) -> int:
        return int(self.task.sizes[self.task.cohorts[self.t, self.slot]])

    def shuffle_repeat_batch(self, hparams=None):
        """Batches of this round."""
        task, t, slot = self.task, self.t, self.slot
        for rows in task.batches[t, slot, : task.counts[t, slot]]:
            keep = rows >= 0
            rows = np.maximum(rows, 0)
            yield {"x": task.x[rows], "y": task.y[rows], "__mask__": keep.astype(np.float32)}


def feddyn(task: protocol.Task, gradient):
    """Rounds of FedDyn: (server, h, rows), t -> the same after it."""
    alpha, rate = task.problem.alpha, task.problem.learning_rate

    def client_init(server, row):
        return {"y": server, "start": server, "row": row}

    def client_step(state, batch):
        g = gradient(state["y"], batch)
        trees = (state["y"], g, state["row"], state["start"])
        y = jax.tree_util.tree_map(lambda y, g, r, s: y - rate * (g + alpha * (r + y - s)), *trees)
        return {**state, "y": y}

    def client_final(server, state):
        return jax.tree_util.tree_map(jnp.subtract, state["y"], server)

    train = for_each_client.for_each_client(client_init, client_step, client_final)

    @jax.jit
    def server_step(server, h, total):
        mean = tree_util.tree_weight(total, 1 / task.cohorts.shape[1])
        h = tree_util.tree_add(h, tree_util.tree_weight(mean, task.share))
        return tree_util.tree_add(tree_util.tree_add(server, mean), h), h

    def advance(server, h, rows, t):
        zeros = tree_util.tree_zeros_like(server)
        clients = [
            (i, Ordered(task, t, slot).shuffle_repeat_batch(), rows.get(i, zeros))
            for slot, i in enumerate(task.cohorts[t].tolist())
        ]
        total = zeros
        for i, delta in train(server, clients):
            rows[i] = tree_util.tree_add(rows.get(i, zeros), delta)
            total = tree_util.tree_add(total, delta)
        return *server_step(server, h, total), rows

    return advance


def main() -> None:
    """Run and measure."""
    asked = protocol.options()
    watch = protocol.Watch(asked.started)
    task = protocol.Task.load(asked.task)
    gradient_of = jax.grad(loss_of(task.problem, by_patches=asked.variant == "patches"))

    def gradient(params, batch, rng=None):
        return gradient_of(params, batch["x"], batch["y"], batch["__mask__"])

    first = {name: jnp.asarray(a) for name, a in task.params.items()}
    key = jax.random.PRNGKey(0)
    if asked.method == "fedavg":
        algorithm = fed_avg.federated_averaging(
            gradient, optimizers.sgd(task.problem.learning_rate), optimizers.sgd(1.0), None
        )
        state = [algorithm.init(first)]

        def a_round(t: int) -> None:
            cohort = enumerate(task.cohorts[t].tolist())
            clients = [(i, Ordered(task, t, slot), key) for slot, i in cohort]
            state[:] = [algorithm.apply(state[0], clients)[0]]

        def params():
            return state[0].params

    else:
        advance = feddyn(task, gradient)
        state = [first, tree_util.tree_zeros_like(first), {}]

        def a_round(t: int) -> None:
            state[:] = advance(*state, t)

        def params():
            return state[0]

    protocol.timed_rounds(asked, watch, a_round, after=lambda: jax.block_until_ready(params()))
    final = {name: np.asarray(a) for name, a in params().items()}
    protocol.finish(asked, watch, final, jax=jax.__version__)


if __name__ == "__main__":
    main()
