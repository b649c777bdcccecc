"""SCAFFOLD: every client corrects its gradients by what the others' look like."""

from jax import tree

from holdfast.core.hyper import Hyper
from holdfast.core.rule import ClientView, Need, Rule, ServerView, State, Tilt
from holdfast.trees import Tree, add, axpy, scale, sub, zeros


class ControlVariate(Rule):
    r"""SCAFFOLD with option II, and nothing but delta travels up.

    $$ y \leftarrow y - \eta\,(g_i(y) + c - c_i), \quad
       c_i^+ = c_i - c - \frac{y_i - x}{\text{path}_i}, \quad
       c \leftarrow c + \tfrac{|S|}{N}\,\overline{(c_i^+ - c_i)} $$

    The server rebuilds $c_i^+ - c_i$ from delta and the client's sum of step sizes, which it knows.
    Travels: the model and c down, delta up: 1.5 times FedAvg. As published, with the change of c_i
    uploaded too, it is `Uploaded(ControlVariate())`, twice FedAvg and the same mathematics.

    Args:
        damping: a factor to every change of c and $c_i$, for wires that add noise: undamped, the
            noise comes back in the next reply and grows. None is 1.

    Reduces to: FedAvg while all control variates are zero; `Masked` with the last layers is FedPVR.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> algorithm = hf.Algorithm(hf.rules.ControlVariate(), name="scaffold")
        >>> run = hf.simulate(algorithm, model, clients, local, rounds=20)
        >>> # FedAvg ends at 1.60 after 320 bytes.
        >>> print(f"{run.params['weights'].item():.2f}, {run.ledger.total} bytes")
        1.80, 480 bytes

    Reference: Karimireddy et al., "SCAFFOLD", ICML 2020; lean upload: FSL, appendix B.
    """

    damping: Hyper | None = None

    @property
    def needs(self) -> frozenset[Need]:  # type: ignore[override]
        """Undamped, noise in c_i comes back in the next reply."""
        calm = {Need.CALM_WIRE} if self.damping is None else set()
        return frozenset({Need.PLAIN_STEPS, Need.HONEST_DELTA} | calm)

    def init(self, params: Tree) -> State:
        return State(server=zeros(params), client=zeros(params))  # c, c_i

    def send(self, at: ServerView) -> tuple[Tree, Tree]:
        return at.state, at.state

    def tilt(self, at: ClientView) -> Tilt:
        return Tilt(linear=sub(at.msg, at.mine))

    def hear(self, delta: Tree, upload: Tree, at: ClientView) -> Tree:
        # c_i+ - c_i = -c - delta/path: every step added c - c_i to its gradient, so -delta/path is
        # the mean gradient plus c - c_i. Neither the client's state nor its data is needed.
        change = tree.map(lambda c, d: (-c - d / at.path).astype(c.dtype), at.msg, delta)
        return change if self.damping is None else scale(self.damping, change)

    def settle(self, delta: Tree, heard: Tree, at: ClientView) -> Tree:
        return add(at.mine, heard)

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        return delta, axpy(at.share, heard, at.state)


class GradientControlVariate(Rule):
    r"""SCAFFOLD with option I: the control variate is the gradient at the model received.

    $$ c_i^+ = \nabla f_i(x) $$

    Costs one more pass over the client's data, and its change must be uploaded.
    Travels: the model and c down, delta and the change of $c_i$ up: twice FedAvg.

    Args:
        damping: as for `ControlVariate`.

    Reduces to: FedAvg while all control variates are zero.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> algorithm = hf.Algorithm(hf.rules.GradientControlVariate(), name="scaffold")
        >>> run = hf.simulate(algorithm, model, clients, local, rounds=20)
        >>> # FedAvg ends at 1.60 after 320 bytes, option II at 1.80 after 480.
        >>> print(f"{run.params['weights'].item():.2f}, {run.ledger.total} bytes")
        1.80, 640 bytes

    Reference: Karimireddy et al., "SCAFFOLD", ICML 2020, algorithm 1, option I.
    """

    damping: Hyper | None = None

    @property
    def needs(self) -> frozenset[Need]:  # type: ignore[override]
        """Undamped, noise in c_i comes back in the next reply."""
        calm = {Need.CALM_WIRE} if self.damping is None else set()
        return frozenset({Need.WHOLE_MODEL} | calm)

    init = ControlVariate.init
    send = ControlVariate.send
    tilt = ControlVariate.tilt
    settle = ControlVariate.settle
    step = ControlVariate.step

    def reply(self, delta: Tree, at: ClientView) -> tuple[Tree, Tree]:
        change = sub(at.grad(at.x), at.mine)
        return delta, change if self.damping is None else scale(self.damping, change)
