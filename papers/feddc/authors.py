"""What the FedDC authors' code does that the method's description does not say."""

from typing import Any

from jax import tree

from holdfast import Chain, ClientView, Need, Rule, Tilt
from holdfast.rules import ControlVariate, Dynamic
from holdfast.trees import Tree, scale
from papers.feddyn.authors import AuthorsControlVariate


class AuthorsDynamic(Rule):
    """FedDC's code: alpha is divided by the client's share of the data; all of it is clipped."""

    needs = Dynamic.needs
    alpha: Any

    init, hear, settle, step = Dynamic.init, Dynamic.hear, Dynamic.settle, Dynamic.step

    def tilt(self, at: ClientView) -> Tilt:
        alpha = self.alpha / at.weight
        return Tilt(linear=scale(alpha, at.mine), pull=alpha)


class AuthorsDrift(Rule):
    """FedDC's code: as SCAFFOLD in FedDyn's, but c is divided by the share here too."""

    needs = frozenset({Need.PLAIN_STEPS, Need.HONEST_DELTA})
    path: Any  # K times the undecayed step size

    init, send, step = ControlVariate.init, ControlVariate.send, ControlVariate.step
    tilt, settle = AuthorsControlVariate.tilt, AuthorsControlVariate.settle

    def hear(self, delta: Tree, upload: Tree, at: ClientView) -> Tree:
        return tree.map(lambda c, d: -c - at.weight * d / self.path, at.msg, delta)


def authors_feddc(alpha: Any, path: Any) -> Chain:
    """FedDC as its authors run it."""
    return Chain((AuthorsDrift(path), AuthorsDynamic(alpha)))
