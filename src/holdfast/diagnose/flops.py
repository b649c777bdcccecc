"""What a round costs clients in computation, beside what it costs them in communication."""

import dataclasses

import numpy as np

from holdfast.errors import HoldfastError, explain_arguments
from holdfast.evaluate.protocol import EvaluationView
from holdfast.models.model import Model
from holdfast.trees import Tree


@dataclasses.dataclass(frozen=True)
class ClientFlops:
    """Floating-point operations of the round's clients."""

    every: int = 1
    keeps_last_models = False

    def check(self, model: Model, params: Tree, clients: int) -> None:
        """Refuse a model whose operations are not there to be counted."""
        if model.engine is not None:
            raise HoldfastError(
                f"flops: another framework computes {model.name}, whose operations are not seen; take "
                f"hf.diagnose.flops out, or use a model of JAX's.",
                about=("evaluate",),
            )

    def columns(self, measured: list[str]) -> list[str]:
        """What it writes."""
        return ["mflop", "mflop_per_client"]

    def __call__(self, view: EvaluationView) -> dict[str, float]:
        entry = view.state.ledger.entries[-1]
        each = view.flops_of(np.asarray(entry.clients, int)) / 1e6
        mean = float(each.mean()) if len(each) else 0.0
        return {"mflop": float(each.sum()), "mflop_per_client": mean}


@explain_arguments
def flops(every: int = 1) -> ClientFlops:
    """Into the history: millions of floating-point operations of a round, as bytes are counted.

    - `mflop`, of all clients of the round;
    - `mflop_per_client`, the mean over them.

    Counted from the shapes of what a client computes in its round: local steps, what its method adds to
    them, and the wire. A term of a matrix product or convolution is two operations, other arithmetic one
    for each number; comparisons, lookups and random bits are none. Short batches are padded and count
    as whole ones, and convolutions as they are computed here (`hf.models.convolve`). With `select` a
    client computes on the rows it was sent. Not counted is what the server does, in a client's stead
    too, and what a client does once before its first round. Nothing is run for it, and it costs nothing
    unless it is asked for: pass it to `simulate(evaluate=...)`, or write `[[evaluate.also]]` with
    `name = "flops"` into an experiment file.

    Args:
        every: rounds between measurements.

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> clients = hf.data.partition.iid(train, clients=10)
        >>> run = hf.simulate(
        ...     hf.algorithms.fedavg(),
        ...     hf.models.softmax_regression(10),
        ...     clients,
        ...     hf.Local(0.1, steps=5, batch_size=20),
        ...     rounds=1,
        ...     evaluate=hf.diagnose.flops(),
        ... )
        >>> # The products alone are 5 steps x 2 x 2 x 20 x 64 x 10 operations, 0.26 million.
        >>> print(f"{run.history['mflop_per_client'][0]:.2f}")
        0.28
    """
    return ClientFlops(every)
