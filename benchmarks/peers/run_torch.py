"""A plain PyTorch loop: for every client, for every batch, forwards, backwards, SGD."""

import protocol
import torch
from torch.nn import functional as F
from torch_models import from_torch, learnt, loaded, tensors


def main() -> None:
    """Run and measure."""
    asked = protocol.options()
    watch = protocol.Watch(asked.started)
    torch.set_num_threads(int(asked.variant))
    task = protocol.Task.load(asked.task)
    problem, dynamic = task.problem, asked.method == "feddyn"
    x, y = tensors(task.x, task.y)
    module = loaded(problem, task.params)
    mine = list(learnt(module).values())
    server = [p.detach().clone() for p in mine]
    h = [torch.zeros_like(p) for p in server]  # the server's, and one row a client
    rows: dict[int, list[torch.Tensor]] = {}
    optimizer = torch.optim.SGD(mine, lr=problem.learning_rate)

    def train(t: int, slot: int, row: list[torch.Tensor]) -> list[torch.Tensor]:
        with torch.no_grad():
            for p, s in zip(mine, server, strict=True):
                p.copy_(s)
        for batch in task.rows(t, slot):
            chosen = torch.from_numpy(batch).long()
            optimizer.zero_grad()
            F.cross_entropy(module(x[chosen]), y[chosen]).backward()
            if dynamic:
                with torch.no_grad():
                    for p, s, r in zip(mine, server, row, strict=True):
                        p.grad += problem.alpha * (r + p - s)
            optimizer.step()
        with torch.no_grad():
            return [p - s for p, s in zip(mine, server, strict=True)]

    def a_round(t: int) -> None:
        mean = [torch.zeros_like(p) for p in server]
        weights = task.weights(t, asked.method).tolist()
        for slot, client in enumerate(task.cohorts[t].tolist()):
            row = rows.setdefault(client, [torch.zeros_like(p) for p in server]) if dynamic else []
            delta = train(t, slot, row)
            for m, d in zip(mean, delta, strict=True):
                m.add_(d, alpha=weights[slot])
            for r, d in zip(row, delta, strict=False):
                r.add_(d)
        for s, m, correction in zip(server, mean, h, strict=True):
            s.add_(m)
            if dynamic:
                s.add_(correction.add_(m, alpha=task.share))

    protocol.in_turn(asked, watch, a_round, after=lambda: None)
    final = dict(zip(learnt(module), server, strict=True))
    protocol.finish(asked, watch, from_torch(problem, final), torch=torch.__version__)


if __name__ == "__main__":
    main()
