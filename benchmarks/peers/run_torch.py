"""A plain PyTorch loop: for every client, for every batch, forwards, backwards, SGD."""

import protocol
import torch
from torch_methods import METHODS, Leaves
from torch_models import Trainer, from_torch, index, learnt, loaded, tensors


class Federation:
    """The server's model, and a row for every client that has taken part."""

    def __init__(self, task: protocol.Task, method: str) -> None:
        self.task, self.name = task, method
        self.x, self.y = tensors(task.x, task.y)
        self.module = loaded(task.problem, task.params)
        self.server = [p.detach().clone() for p in learnt(self.module).values()]
        self.method = METHODS[method](self.server, task.problem)
        self.rows: dict[int, Leaves] = {}
        self.trainer = Trainer(self.module, task.problem)

    def round(self, t: int) -> None:
        """Train the cohort one by one, then move the server's model."""
        mean, heard = self.method.zeros(), self.method.zeros()
        weights, told = self.task.weights(t, self.name).tolist(), self.method.told()
        for slot, client in enumerate(self.task.cohorts[t].tolist()):
            row = self.rows.get(client) or self.method.zeros()
            batches = ((self.x[r], self.y[r]) for r in index(self.task.rows(t, slot)))
            linear = self.method.linear(row, told)
            delta = self.trainer.train(self.server, batches, linear, self.method.pull)
            for m, d in zip(mean, delta, strict=True):
                m.add_(d, alpha=weights[slot])
            change = self.method.change(delta, told, int(self.task.counts[t, slot]))
            if change:
                self.rows[client] = [r.add_(c) for r, c in zip(row, change, strict=True)]
            if self.method.uploads:
                heard = [h.add_(c, alpha=weights[slot]) for h, c in zip(heard, change, strict=True)]
        for s, move in zip(
            self.server, self.method.step(mean, heard, self.task.share), strict=True
        ):
            s.add_(move)

    def params(self) -> protocol.Arrays:
        """The server's model as the task names it."""
        return from_torch(
            self.task.problem, dict(zip(learnt(self.module), self.server, strict=True))
        )


def main() -> None:
    """Run and measure."""
    asked = protocol.options()
    watch = protocol.Watch(asked.started)
    torch.set_num_threads(int(asked.variant))
    federation = Federation(protocol.Task.load(asked.task), asked.method)
    protocol.timed_rounds(asked, watch, federation.round, after=lambda: None)
    protocol.finish(asked, watch, federation.params(), torch=torch.__version__)


if __name__ == "__main__":
    main()
