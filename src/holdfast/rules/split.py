"""FedSplit, with the two ways FedDyn's authors average it under partial participation."""

from types import MappingProxyType

from holdfast.core.hyper import Hyper, Range
from holdfast.core.rule import ClientView, Need, Rule, ServerView, State, Tilt
from holdfast.trees import Tree, add, axpy, scale, sub

_STEP = MappingProxyType({"step_size": Range(0, open=True)})


def _towards_reflection(at: ClientView, step_size: Hyper) -> Tilt:
    # |y - (2x - z)|^2 / (2s) has gradient (y - x)/s + (z - x)/s.
    return Tilt(linear=scale(1 / step_size, sub(at.mine, at.x)), pull=1 / step_size)


class SplitAll(Rule):
    r"""Peaceman-Rachford splitting; the server averages every client's state $z_i$, active or not.

    $$ y_i = \arg\min_y f_i(y) + \tfrac{1}{2s}\|y - (2x - z_i)\|^2, \quad
       z_i \leftarrow z_i + 2(y_i - x), \quad x = \tfrac1N\textstyle\sum_i z_i $$

    Travels: the model down, delta up (the mean of all $z_i$ moves by what the active ones report).

    Args:
        step_size: s, the step of the proximal operator.

    Reduces to: `SplitActive` under full participation.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> in_turn = hf.cohorts.schedule([[0], [1]])
        >>> algorithm = hf.Algorithm(hf.rules.SplitAll(step_size=0.5), name="fedsplit")
        >>> states = hf.rounds(algorithm, model, clients, local, cohort=in_turn)
        >>> [round(next(states).params["weights"].item(), 2) for _ in range(8)]
        [0.32, 1.55, 1.96, 1.82, 1.79, 1.8, 1.8, 1.8]

    Reference: Pathak and Wainwright, "FedSplit", NeurIPS 2020; FedDyn, appendix A.4.
    """

    needs = frozenset({Need.HONEST_DELTA, Need.FIRST})
    ranges = _STEP
    step_size: Hyper

    def init(self, params: Tree) -> State:
        return State(server=params, client=params)  # mean of the z_i, z_i

    def tilt(self, at: ClientView) -> Tilt:
        return _towards_reflection(at, self.step_size)

    def hear(self, delta: Tree, upload: Tree, at: ClientView) -> Tree:
        return scale(2.0, delta)

    def settle(self, delta: Tree, heard: Tree, at: ClientView) -> Tree:
        return add(at.mine, heard)

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        z = axpy(at.share, heard, at.state)
        return sub(z, at.x), z


class SplitActive(Rule):
    r"""Peaceman-Rachford splitting; the server averages the states $z_i$ of this round's clients.

    $$ z_i \leftarrow z_i + 2(y_i - x), \quad x = \tfrac1{|S|}\textstyle\sum_{i \in S} z_i $$

    Travels: the model down; up, in place of delta, the way from x to the new $z_i$.

    Args:
        step_size: s, the step of the proximal operator.

    Reduces to: `SplitAll` under full participation.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> in_turn = hf.cohorts.schedule([[0], [1]])
        >>> algorithm = hf.Algorithm(hf.rules.SplitActive(step_size=0.5), name="fedsplit")
        >>> states = hf.rounds(algorithm, model, clients, local, cohort=in_turn)
        >>> [round(next(states).params["weights"].item(), 2) for _ in range(8)]
        [0.65, 2.23, 1.9, 2.14, 1.47, 2.4, 1.77, 2.29]

    Reference: Pathak and Wainwright, "FedSplit", NeurIPS 2020; FedDyn, appendix A.4.
    """

    needs = frozenset({Need.FIRST})
    rewrites_delta = True
    ranges = _STEP
    step_size: Hyper

    def init(self, params: Tree) -> State:
        return State(client=params)

    def tilt(self, at: ClientView) -> Tilt:
        return _towards_reflection(at, self.step_size)

    def reply(self, delta: Tree, at: ClientView) -> tuple[Tree, Tree]:
        return sub(axpy(2.0, delta, at.mine), at.x), ()

    def settle(self, delta: Tree, heard: Tree, at: ClientView) -> Tree:
        return add(at.x, delta)
