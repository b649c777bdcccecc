"""The whole comparison as a plain PyTorch loop."""

import torch
import whole
from run_torch import Federation
from torch_models import tensors


def main() -> None:
    """Run and measure."""
    given = whole.asked()
    torch.set_num_threads(int(given.variant))
    x, y = tensors(*given.test())

    def train(path, task, method, after):
        federation = Federation(task, method)
        for t in range(given.rounds):
            federation.round(t)
            with torch.no_grad():
                for p, s in zip(federation.trainer.params, federation.server, strict=True):
                    p.copy_(s)
                accuracy = (federation.module(x).argmax(1) == y).double().mean().item()
            after(accuracy, federation.params)

    whole.compare(given, train)


if __name__ == "__main__":
    main()
