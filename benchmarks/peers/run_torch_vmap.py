"""`torch.func`: the clients of a cohort side by side, their gradients by vmap(grad).

Clients that differ in size are padded to the longest; what is padding does not count and does not move.
"""

import protocol
import torch
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch_models import from_torch, learnt, loaded, tensors

Named = dict[str, torch.Tensor]


def main() -> None:
    """Run and measure."""
    asked = protocol.options()
    watch = protocol.Watch(asked.started)
    torch.set_num_threads(int(asked.variant))
    task = protocol.Task.load(asked.task)
    problem, dynamic = task.problem, asked.method == "feddyn"
    x, y = tensors(task.x, task.y)
    module = loaded(problem, task.params, by_hand=True)
    server: Named = {name: p.detach().clone() for name, p in learnt(module).items()}
    h: Named = {name: torch.zeros_like(p) for name, p in server.items()}
    rows: Named = {
        name: torch.zeros(task.population, *p.shape) if dynamic else p for name, p in server.items()
    }

    def loss(params: Named, inputs: torch.Tensor, labels: torch.Tensor, keep: torch.Tensor):
        losses = functional.cross_entropy(
            functional_call(module, params, inputs), labels, reduction="none"
        )
        return (losses * keep).sum() / keep.sum().clamp(min=1)

    gradients = vmap(grad(loss))

    @torch.no_grad()
    def a_round(t: int) -> None:
        clients = torch.from_numpy(task.cohorts[t]).long()
        y_i = {n: s.expand(len(clients), *s.shape).clone() for n, s in server.items()}
        mine = {n: r[clients] for n, r in rows.items()} if dynamic else {}
        steps = int(task.counts[t].max())
        batches = torch.from_numpy(task.batches[t]).long()
        for k in range(steps):
            chosen = batches[:, k]
            keep = (chosen >= 0).float()
            chosen = chosen.clamp(min=0)
            g = gradients(y_i, x[chosen], y[chosen], keep)
            moving = (keep[:, 0] * problem.learning_rate).view
            for n, p in y_i.items():
                if dynamic:
                    g[n] = g[n] + problem.alpha * (mine[n] + p - server[n])
                p -= moving(-1, *[1] * (p.dim() - 1)) * g[n]
        weights = torch.from_numpy(task.weights(t, asked.method))
        for n, s in server.items():
            delta = y_i[n] - s
            mean = torch.tensordot(weights, delta, 1)
            s += mean
            if dynamic:
                rows[n][clients] += delta
                h[n] += task.share * mean
                s += h[n]

    protocol.timed_rounds(asked, watch, a_round, after=lambda: None)
    protocol.finish(asked, watch, from_torch(problem, server), torch=torch.__version__)


if __name__ == "__main__":
    main()
