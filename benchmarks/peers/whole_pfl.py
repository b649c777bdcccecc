"""The whole comparison with pfl-research."""

import run_pfl
import torch
import whole
from torch_models import from_torch, learnt, tensors


def main() -> None:
    """Run and measure."""
    given = whole.asked()
    torch.set_num_threads(int(given.variant))
    x, y = tensors(*given.test())

    def train(path, task, method, after):
        def measured(module):
            with torch.no_grad():
                accuracy = (module(x).argmax(1) == y).double().mean().item()
            after(accuracy, lambda: from_torch(task.problem, dict(learnt(module))))

        run_pfl.train(task, method, given.rounds, measured)

    whole.compare(given, train)


if __name__ == "__main__":
    main()
