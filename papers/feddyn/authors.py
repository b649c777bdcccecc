"""What the FedDyn authors' code does that their paper does not say, as small rules of their own.

Both agree with the paper's methods when data is balanced, nothing is clipped, there is no weight
decay and the step size does not decay.
"""

from typing import Any

from jax import tree

from holdfast import ClientView, Need, Rule, Tilt
from holdfast.rules import ControlVariate, Dynamic
from holdfast.trees import Tree, axpy, scale, sub


class AuthorsDynamic(Rule):
    """FedDyn's code: alpha is divided by the client's share of the data, and clipping covers the
    loss and `alpha_i (h_i - x)` while `alpha_i y` goes through weight decay and is not clipped."""

    needs = Dynamic.needs
    alpha: Any

    init, hear, settle, step = Dynamic.init, Dynamic.hear, Dynamic.settle, Dynamic.step

    def tilt(self, at: ClientView) -> Tilt:
        alpha = self.alpha / at.weight
        return Tilt(linear=scale(alpha, sub(at.mine, at.x)), decay=alpha)


class AuthorsControlVariate(Rule):
    """SCAFFOLD in FedDyn's code: c is divided by the client's share of the data in the correction
    but not in the control variate, which uses the step size before decay."""

    needs = frozenset({Need.PLAIN_STEPS, Need.HONEST_DELTA})
    path: Any  # K times the undecayed step size

    init, send, step = ControlVariate.init, ControlVariate.send, ControlVariate.step

    def tilt(self, at: ClientView) -> Tilt:
        return Tilt(linear=tree.map(lambda c, c_i: c / at.weight - c_i, at.msg, at.mine))

    def hear(self, delta: Tree, upload: Tree, at: ClientView) -> Tree:
        return tree.map(lambda c, d: at.weight * (-c - d / self.path), at.msg, delta)

    def settle(self, delta: Tree, heard: Tree, at: ClientView) -> Tree:
        return axpy(1 / at.weight, heard, at.mine)
