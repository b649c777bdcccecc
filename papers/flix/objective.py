"""The FLIX objective of logistic regression, written out, and its minimum by Newton's method."""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import holdfast as hf


class Terms(NamedTuple):
    r"""The objective written out for all examples at once.

    $$ \tilde f(x) = \sum_j w_j \ell(\alpha a_j^\top x + o_j, y_j)
       + \tfrac{\lambda}{2n} \sum_i \|T_i(x)\|^2 $$

    It needs neither the library's rounds nor a loop over
    clients: rows weigh $w_j = 1 / (n n_i)$, and a client's own optimum is the offset
    $o_j = (1 - \alpha) a_j^\top x_i$.
    """

    inputs: jax.Array
    labels: jax.Array
    weights: jax.Array
    offsets: jax.Array
    optima: jax.Array
    alpha: float
    l2: float


def _value(x: jax.Array, terms: Terms) -> jax.Array:
    scores = terms.alpha * (terms.inputs @ x) + terms.offsets
    losses = jax.nn.softplus(scores) - terms.labels * scores
    deployed = terms.alpha * x[None] + (1 - terms.alpha) * terms.optima
    return terms.weights @ losses + terms.l2 / 2 * jnp.mean(jnp.sum(deployed**2, axis=1))


def _hessian(x: jax.Array, terms: Terms) -> jax.Array:
    risk = jax.nn.sigmoid(terms.alpha * (terms.inputs @ x) + terms.offsets)
    curved = terms.weights * risk * (1 - risk)
    data = terms.inputs.T @ (terms.inputs * curved[:, None])
    return terms.alpha**2 * (data + terms.l2 * jnp.eye(len(x), dtype=data.dtype))


_evaluate = jax.jit(_value)
_slope = jax.jit(jax.grad(_value))
_bend = jax.jit(_hessian)


@dataclasses.dataclass(frozen=True, eq=False)
class Objective:
    """What FLIX minimises, for one alpha."""

    terms: Terms
    starts: np.ndarray  # the first row of each client

    @classmethod
    def of(cls, clients: hf.Clients, optima: np.ndarray, alpha: float, l2: float) -> "Objective":
        """For clients who own consecutive rows."""
        inputs = np.asarray(clients.examples.x)
        sizes = clients.sizes
        own = np.repeat(optima, sizes, axis=0)
        terms = Terms(
            jnp.asarray(inputs),
            jnp.asarray(clients.examples.y, inputs.dtype),
            jnp.asarray(np.repeat(1 / (len(sizes) * sizes), sizes)),
            jnp.asarray((1 - alpha) * np.sum(inputs * own, axis=1)),
            jnp.asarray(optima),
            alpha,
            l2,
        )
        return cls(terms, clients.offsets[:-1])

    def __call__(self, x: np.ndarray) -> float:
        return float(_evaluate(x, self.terms))

    def gap(self, x: np.ndarray) -> float:
        """How far above the minimum."""
        return self(x) - self.minimum

    def distance(self, x: np.ndarray) -> float:
        """Mean squared distance of the deployed models to those deployed at the optimum."""
        return self.terms.alpha**2 * float(np.sum((np.asarray(x) - self.optimum) ** 2))

    @property
    def minimum(self) -> float:
        """The smallest value; where no x attains it, the infimum to about twelve digits."""
        return self._solution[1]

    @property
    def optimum(self) -> np.ndarray:
        """Where it is smallest."""
        return self._solution[0]

    @property
    def steepness(self) -> float:
        """Gradient norm at the optimum: how exact it is."""
        return float(np.linalg.norm(_slope(self.optimum, self.terms)))

    @functools.cached_property
    def _solution(self) -> tuple[np.ndarray, float]:
        return _newton(self.terms)

    @property
    def disagreement(self) -> float:
        r"""$\sum_i \|\alpha \nabla f_i(T_i(x^*))\|^2$: what compression at the optimum makes noise of."""
        terms, x, clients = self.terms, self.optimum, len(self.starts)
        scores = terms.alpha * (terms.inputs @ x) + terms.offsets
        pull = terms.weights * clients * (jax.nn.sigmoid(scores) - terms.labels)
        data = np.add.reduceat(np.asarray(terms.inputs * pull[:, None]), self.starts, axis=0)
        deployed = terms.alpha * x[None] + (1 - terms.alpha) * terms.optima
        return float(np.sum((terms.alpha * (data + terms.l2 * deployed)) ** 2))


def _newton(terms: Terms, max_steps: int = 300) -> tuple[np.ndarray, float]:
    """Newton's method, damped where it must be, until it expects to gain no more than 1e-16.

    Without a penalty some directions have no curvature, or lose it on the way to infinity.
    """
    x, damping = np.mean(terms.optima, axis=0), 1e-3
    value, unit = float(_evaluate(x, terms)), np.eye(len(x))
    for _ in range(max_steps):
        slope, bend = np.asarray(_slope(x, terms)), np.asarray(_bend(x, terms))
        move = np.linalg.solve(bend + damping * np.trace(bend) * unit, slope)
        new = float(_evaluate(x - move, terms))
        if new <= value + 4 * np.finfo(float).eps * abs(value):
            x, value, damping = x - move, new, max(damping / 10, 1e-15)
        else:
            damping *= 10
        if slope @ move <= 1e-16:
            break
    return x, value
