"""The server's own data on the device, and its work round by round."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.core.keys import Purpose
from holdfast.core.local import Local
from holdfast.core.round import Central
from holdfast.engine.batches import Planner
from holdfast.engine.server import Server
from holdfast.trees import Tree


class ServerSide:
    """The server's own data on the device, and its work round by round."""

    def __init__(self, server: Server, seed: int) -> None:
        self.server = server
        self.examples: Any = ()
        if not server.alone:
            self.examples = tree.map(jnp.asarray, server.source)
            one_step = Local(
                learning_rate=1.0,
                steps=1,
                batch_size=server.gradient_batch_size or server.local.batch_size,
                shuffle=server.local.shuffle,
            )
            data = server.as_clients()
            self._steps = Planner(data, server.local, seed, Purpose.SERVER_ORDER)
            self._gradient = Planner(data, one_step, seed, Purpose.SERVER_GRADIENT)

    def gradient_rows(self, t: int) -> np.ndarray:
        """The one batch of round `t` that the server's gradient is taken on."""
        return self._gradient.work(t, np.zeros(1, np.int64)).batches[0, 0]

    def arguments(self, t: int, params: Tree, mean_size: float) -> dict[str, Any]:
        """What the server brings to round `t`."""
        batches = gradient_rows = None
        steps = self.server.local.steps or 1
        if not self.server.alone:
            batches = self._steps.work(t, np.zeros(1, np.int64)).batches[0]
            gradient_rows = self.gradient_rows(t)
            steps = len(batches)
        central = Central(
            steps=self.server.local.at(t, params),
            count=np.int32(steps),
            examples=self.examples,
            batches=batches,
            gradient_rows=gradient_rows,
            weight=self.server.size / mean_size,
        )
        return {"central": central, "central_loss": self.server.objective}
