"""What methods add to FedAvg, where PyTorch trains: a tilt at clients, a step at the server.

A client's gradient becomes g + linear + pull (y - x), as in holdfast itself.
"""

from collections.abc import Sequence

import torch
from problems import Problem
from torch import Tensor

Leaves = list[Tensor]


class Method:
    """FedAvg: nothing is added, nothing remembered."""

    pull = 0.0
    uploads = False  # whether the server hears more than deltas

    def __init__(self, like: Sequence[Tensor], problem: Problem) -> None:
        self.like, self.problem = like, problem

    def zeros(self) -> Leaves:
        """A state to begin with."""
        return [torch.zeros_like(p) for p in self.like]

    def told(self) -> Leaves:
        """What the server sends besides its model."""
        return []

    def linear(self, row: Leaves, told: Leaves) -> Leaves:
        """Added to a client's every gradient."""
        return []

    def change(self, delta: Leaves, told: Leaves, steps: int) -> Leaves:
        """What a client adds to its row."""
        return []

    def step(self, mean: Leaves, heard: Leaves, share: float) -> Leaves:
        """What the server adds to its model; `heard` is the mean change of rows, where it is uploaded."""
        return mean


class FedProx(Method):
    """A pull towards the model received."""

    def __init__(self, like: Sequence[Tensor], problem: Problem) -> None:
        super().__init__(like, problem)
        self.pull = problem.mu


class FedDyn(Method):
    """Rows h_i and the server's h: the gradient gets alpha (h_i + y - x)."""

    def __init__(self, like: Sequence[Tensor], problem: Problem) -> None:
        super().__init__(like, problem)
        self.pull, self.h = problem.alpha, self.zeros()

    def linear(self, row: Leaves, told: Leaves) -> Leaves:
        return [self.pull * r for r in row]

    def change(self, delta: Leaves, told: Leaves, steps: int) -> Leaves:
        return delta

    def step(self, mean: Leaves, heard: Leaves, share: float) -> Leaves:
        for h, m in zip(self.h, mean, strict=True):
            h.add_(m, alpha=share)
        return [m + h for m, h in zip(mean, self.h, strict=True)]


class Scaffold(Method):
    """Control variates, option II."""

    uploads = True

    def __init__(self, like: Sequence[Tensor], problem: Problem) -> None:
        super().__init__(like, problem)
        self.c = self.zeros()

    def told(self) -> Leaves:
        return self.c

    def linear(self, row: Leaves, told: Leaves) -> Leaves:
        return [c - r for c, r in zip(told, row, strict=True)]

    def change(self, delta: Leaves, told: Leaves, steps: int) -> Leaves:
        path = steps * self.problem.learning_rate
        return [-c - d / path for c, d in zip(told, delta, strict=True)]

    def step(self, mean: Leaves, heard: Leaves, share: float) -> Leaves:
        for c, m in zip(self.c, heard, strict=True):
            c.add_(m, alpha=share)
        return mean


METHODS: dict[str, type[Method]] = {
    "fedavg": Method,
    "fedprox": FedProx,
    "scaffold": Scaffold,
    "feddyn": FedDyn,
}
