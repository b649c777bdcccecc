"""FLIX: every client deploys an explicit mixture of its own optimum and a global model."""

import dataclasses
from types import MappingProxyType

import jax.numpy as jnp

from holdfast.core import hyper
from holdfast.core.combinators import Wrapper
from holdfast.core.rule import ClientView, Need, Rule, ServerView, State, Tilt, Traits
from holdfast.errors import HoldfastError, expect
from holdfast.solvers import LBFGS, Known, Optimum, Solver, falls_beyond
from holdfast.trees import Tree, float_type, scale, sub


class Flix(Rule):
    r"""The global model is trained for how the mixtures perform.

    $$ \min_x \tfrac1n \sum_i f_i\big(\alpha_i x + (1 - \alpha_i) x_i\big), \quad
       x_i = \arg\min f_i $$

    Each client finds $x_i$ before its first round, and it never leaves the client. A penalty belongs
    into the loss (a model's `l2`): `weight_decay` in `Local` is no part of $f_i$, and refused.
    Alone, with one full-batch step, this is distributed gradient descent; in a `Chain` other rules
    solve the same objective with local steps.
    Travels: nothing more than without it, and nothing at all for clients with $\alpha_i = 0$.

    Args:
        alpha: $\alpha_i$ in [0, 1]: a number, one per client, or `hf.PerClient` of a function of the
            client's examples. 1 is the global model, 0 the client's own.
        solver: how clients find $x_i$, from `hf.solvers`; the search starts where the run began.

    Reduces to: the other rules of the chain at `alpha=1`, bit for bit; local training at `alpha=0`.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> flix = hf.rules.Flix(0.5, hf.solvers.GradientDescent(step=0.25))
        >>> algorithm = hf.Algorithm(hf.Chain((flix, hf.rules.ControlVariate())))
        >>> run = hf.simulate(algorithm, model, clients, local, rounds=40)
        >>> own = [round(run.personal(i)["weights"].item(), 2) for i in range(2)]
        >>> print(f"{run.params['weights'].item():.2f}, deployed as {own}")
        1.80, deployed as [1.4, 1.9]

    Reference: Gasanov et al., "FLIX: a simple and communication-efficient alternative to local
    methods in federated learning", AISTATS 2022.
    """

    needs = frozenset({Need.WHOLE_MODEL, Need.PENALTY_IN_LOSS})
    ranges = MappingProxyType({"alpha": hyper.Range(0, 1)})
    alpha: hyper.Hyper
    solver: Solver = LBFGS()

    def __post_init__(self) -> None:
        expect("Flix", "solver", self.solver, Solver, "hf.solvers.LBFGS()")
        if self.alpha is None:
            raise HoldfastError("Flix: alpha=None; give numbers in [0, 1].", about=("alpha",))
        hyper.check_ranges(self)

    @property
    def traits(self) -> Traits:
        """With alpha = 0 nothing travels; an optimum may be unfinished."""
        return dataclasses.replace(
            super().traits,
            quiet=lambda clients: hyper.values(self.alpha, clients) == 0,
            doubt=self.solver.doubt,
        )

    def init(self, params: Tree) -> State:
        self.solver.check(params)
        unknown = jnp.full((), jnp.inf, float_type(params))
        return State(client=Optimum(params, unknown, jnp.zeros_like(unknown)))

    def prepare(self, at: ClientView) -> Tree:
        start = at.mine.x
        found = self.solver.minimise(at.loss, at.grad, start)
        # Optima that were given make no claim.
        if isinstance(self.solver, Known):
            return found._replace(falls=at.mine.falls)
        return found._replace(falls=falls_beyond(at.loss, start, found.x))

    def tilt(self, at: ClientView) -> Tilt:
        return Tilt(mix=(self.alpha, at.mine.x))


class OneShot(Wrapper):
    r"""FLIX in a single round: the mean of the local optima, weighted by smoothness.

    $$ x_{\text{avg}} = \sum_i w_i x_i, \quad w_i = \frac{\alpha_i^2 L_i}{\sum_j \alpha_j^2 L_j} $$

    The best model as far as smoothness alone can tell, and where the paper's gradient descent
    begins. Here the optima do leave the clients, once. Local steps have no say.
    Travels: the model down, one model and a number up.

    Args:
        inner: `Flix(alpha, solver)`.
        smoothness: $L_i$, a number or one per client; see `hf.diagnose.curvature`.

    Reduces to: the plain mean of local optima for equal $\alpha_i$ and $L_i$.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> flix = hf.rules.Flix(0.5, hf.solvers.GradientDescent(step=0.25))
        >>> rule = hf.rules.OneShot(flix, hf.PerClient([1.0, 4.0]))
        >>> run = hf.simulate(hf.Algorithm(rule), model, clients, local, rounds=1)
        >>> # One fifth of the first optimum and four fifths of the second.
        >>> print(f"{run.params['weights'].item():.2f}")
        1.80

    Reference: Gasanov et al., "FLIX", AISTATS 2022, theorem 1.
    """

    ranges = MappingProxyType({"smoothness": hyper.Range(0)})
    smoothness: hyper.Hyper

    def __post_init__(self) -> None:
        hyper.check_ranges(self)

    @property
    def traits(self) -> Traits:
        """It sends an optimum in place of delta."""
        inner = self.inner.traits
        needs = inner.needs | {Need.EVEN_RATES, Need.EVEN_WEIGHTS}
        return dataclasses.replace(inner, rewrites_delta=True, needs=needs)

    def reply(self, delta: Tree, at: ClientView) -> tuple[Tree, Tree]:
        alpha, optimum = self.inner.tilt(at).mix or (1.0, at.x)
        weight = jnp.asarray(alpha**2 * self.smoothness, float_type(at.x))
        return scale(weight, sub(optimum, at.x)), weight

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        total = jnp.where(heard > 0, heard, jnp.ones_like(heard))  # nobody asks for it: stay
        return scale(1 / total, delta), at.state
