"""FedProx: stay near the model received."""

from holdfast.core.hyper import Hyper
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
        >>> hf.Algorithm(hf.rules.Proximal(mu=0.01), weighting="examples").rule
        Proximal(mu=0.01)

    Reference: Li et al., "Federated optimization in heterogeneous networks", MLSys 2020.
    """

    mu: Hyper

    def tilt(self, at: ClientView) -> Tilt:
        return Tilt(pull=self.mu)
