"""FedProx: stay near the model received."""

from types import MappingProxyType

from holdfast.core.hyper import Hyper, Range
from holdfast.core.rule import ClientView, Rule, Tilt


class Proximal(Rule):
    r"""Pull local models towards the model received.

    $$ \min_y f_i(y) + \tfrac{\mu}{2}\|y - x\|^2 $$

    Travels: the model down, delta up.

    Args:
        mu: strength of the pull.

    Reduces to: FedAvg at `mu=0`.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # The only client's loss is (w - 1)**2 / 2, so from 0 it goes to 1 / (1 + mu).
        >>> clients = hf.Clients.from_datasets([hf.Examples(np.array([[1.0]]), np.array([1.0]))])
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=100)
        >>> for mu in (0, 1, 9):
        ...     algorithm = hf.Algorithm(hf.rules.Proximal(mu))
        ...     run = hf.simulate(algorithm, model, clients, local, rounds=1)
        ...     print(f"mu={mu}: {run.params['weights'].item():.2f}")
        mu=0: 1.00
        mu=1: 0.50
        mu=9: 0.10

    Reference: Li et al., "Federated optimization in heterogeneous networks", MLSys 2020.
    """

    ranges = MappingProxyType({"mu": Range(0)})
    mu: Hyper

    def tilt(self, at: ClientView) -> Tilt:
        return Tilt(pull=self.mu)
