"""Curvature of the clients' losses as training goes on."""

import dataclasses

import numpy as np

from holdfast.data.clients import Clients
from holdfast.diagnose.curvature import curvature
from holdfast.errors import HoldfastError, explain_arguments
from holdfast.evaluate.protocol import EvaluationView
from holdfast.models.model import Model
from holdfast.trees import Tree


@dataclasses.dataclass(frozen=True)
class TrackedCurvature:
    """Smoothness and convexity of clients' losses at the server's model."""

    clients: Clients
    every: int
    sample: int
    points: int
    radius: float
    keeps_last_models = False

    def check(self, model: Model, params: Tree, clients: int) -> None:
        if len(self.clients) != clients:
            raise HoldfastError(
                f"track_curvature: {len(self.clients)} clients, and the run has {clients}; give those of "
                f"the run.",
                about=("evaluate",),
            )

    def columns(self, measured: list[str]) -> list[str]:
        """What it writes."""
        return ["smoothness", "smoothness_max", "convexity", "convexity_min"]

    def __call__(self, view: EvaluationView) -> dict[str, float]:
        found = curvature(
            view.model,
            self.clients,
            view.state.params,
            examples=self.sample,
            points=self.points,
            radius=self.radius,
            progress=False,
        )
        able = np.flatnonzero(self.clients.sizes)
        smooth, convex = found.smoothness[able], found.convexity[able]
        values = (smooth.mean(), smooth.max(), convex.mean(), convex.min())
        return dict(zip(self.columns([]), map(float, values), strict=True))


@explain_arguments
def track_curvature(
    clients: Clients, every: int = 10, sample: int = 512, points: int = 0, radius: float = 1.0
) -> TrackedCurvature:
    r"""Into the history: how strongly clients' losses bend at the server's model.

    `smoothness` and `smoothness_max` are the mean and the largest $L_i$ of `hf.diagnose.curvature` over
    clients with data, `convexity` and `convexity_min` the mean and the smallest $\mu_i$. For a linear
    model they are bounds that hold everywhere, so once is enough; for others they change as training
    goes on. Costs eigenvalues of a Hessian for each client.

    Args:
        clients: the population of the run.
        every: rounds between measurements.
        sample: examples of each client at most.
        points: random points beside the server's model.
        radius: their distance from it.

    Example:
        >>> import holdfast as hf
        >>> clients = hf.data.partition.iid(hf.data.digits().train, clients=4)
        >>> run = hf.simulate(
        ...     hf.algorithms.fedavg(),
        ...     hf.models.softmax_regression(classes=10),
        ...     clients,
        ...     hf.Local(learning_rate=0.1, steps=5),
        ...     rounds=2,
        ...     evaluate=hf.diagnose.track_curvature(clients, every=1, sample=64),
        ... )
        >>> run.history["smoothness"].round(1).tolist()
        [5.7, 5.7]
    """
    if not isinstance(every, int) or every < 1:
        raise HoldfastError(
            f"track_curvature: every={every!r}; give a whole number of at least 1.",
            about=("every",),
        )
    return TrackedCurvature(clients, every, sample, points, radius)
