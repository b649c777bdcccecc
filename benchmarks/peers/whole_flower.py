"""The whole comparison with Flower's simulation."""

import logging

import run_flower
import torch
import whole
from torch_models import build, from_torch, tensors


def main() -> None:
    """Run and measure."""
    given = whole.asked()
    logging.getLogger("flwr").setLevel(logging.WARNING)
    x, y = tensors(*given.test())

    def train(path, task, method, after):
        module = build(task.problem)

        def measured(arrays):
            state = arrays.to_torch_state_dict()
            module.load_state_dict(state)
            with torch.no_grad():
                accuracy = (module(x).argmax(1) == y).double().mean().item()
            after(accuracy, lambda: from_torch(task.problem, state))

        run_flower.train(path, task, method, given.rounds, measured)

    whole.compare(given, train)


if __name__ == "__main__":
    main()
