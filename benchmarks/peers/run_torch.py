"""A plain PyTorch loop: for every client, for every batch, forwards, backwards, SGD."""

import protocol
import torch
from torch_models import Trainer, from_torch, index, learnt, loaded, tensors


def main() -> None:
    """Run and measure."""
    asked = protocol.options()
    watch = protocol.Watch(asked.started)
    torch.set_num_threads(int(asked.variant))
    task = protocol.Task.load(asked.task)
    problem, dynamic = task.problem, asked.method == "feddyn"
    x, y = tensors(task.x, task.y)
    module = loaded(problem, task.params)
    server = [p.detach().clone() for p in learnt(module).values()]
    h = [torch.zeros_like(p) for p in server]  # the server's, and one row a client
    rows: dict[int, list[torch.Tensor]] = {}
    trainer = Trainer(module, problem)

    def a_round(t: int) -> None:
        mean = [torch.zeros_like(p) for p in server]
        weights = task.weights(t, asked.method).tolist()
        for slot, client in enumerate(task.cohorts[t].tolist()):
            row = rows.setdefault(client, [torch.zeros_like(p) for p in server]) if dynamic else []
            batches = ((x[rows], y[rows]) for rows in index(task.rows(t, slot)))
            delta = trainer.train(server, batches, row)
            for m, d in zip(mean, delta, strict=True):
                m.add_(d, alpha=weights[slot])
            for r, d in zip(row, delta, strict=False):
                r.add_(d)
        for s, m, correction in zip(server, mean, h, strict=True):
            s.add_(m)
            if dynamic:
                s.add_(correction.add_(m, alpha=task.share))

    protocol.timed_rounds(asked, watch, a_round, after=lambda: None)
    final = dict(zip(learnt(module), server, strict=True))
    protocol.finish(asked, watch, from_torch(problem, final), torch=torch.__version__)


if __name__ == "__main__":
    main()
