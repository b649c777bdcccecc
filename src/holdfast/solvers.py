"""Finding a client's own optimum: full-batch minimisers that stop at a gradient norm."""

import math
from collections.abc import Callable
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax, tree

from holdfast.core.hyper import Hyper, Range, check_ranges
from holdfast.core.struct import Struct, static
from holdfast.errors import HoldfastError
from holdfast.trees import Number, Tree, axpy, describe_shapes, float_type, norm, sub

Loss: TypeAlias = Callable[[Tree], Number]
Gradient: TypeAlias = Callable[[Tree], Tree]

__all__ = [
    "LBFGS",
    "Gradient",
    "GradientDescent",
    "Known",
    "LineSearch",
    "Loss",
    "Optimum",
    "Solver",
    "falls_beyond",
]


# A rougher tolerance is stopping early on purpose, and no claim that an optimum was found.
_ROUGH = 1e-3


class Optimum(NamedTuple):
    """Where a solver stopped, how steep it still is there, and how much lower it is ten times as far."""

    x: Tree
    gradient_norm: Number
    falls: Number = 0.0


class Solver(Struct):
    """Minimises a client's mean loss over all its data, without a message to anybody."""

    def minimise(self, loss: Loss, grad: Gradient, start: Tree) -> Optimum:
        """The optimum nearest to `start` as far as this solver gets."""
        raise NotImplementedError

    def check(self, params: Tree) -> None:
        """Refuse a model that this solver cannot be for, before a run begins."""

    def doubt(self, found: Optimum) -> str | None:
        """A warning if it stopped before it was done."""
        return None


def falls_beyond(loss: Loss, start: Tree, x: Tree) -> Number:
    """How much lower the loss is ten times as far from the start as x; below 0 where x is an optimum.

    Where examples can be separated and nothing is penalised, a loss has no optimum: its gradient vanishes
    at infinity only.
    """
    return (loss(x) - loss(axpy(9.0, sub(x, start), x))).astype(float_type(x))


def _stopped_early(found: Optimum, tolerance: Hyper, max_steps: int) -> str | None:
    if float(found.gradient_norm) <= tolerance:
        if float(found.falls) > 0 and tolerance <= _ROUGH:
            return (
                f"its gradient norm is {float(found.gradient_norm):.2g}, but its loss is lower still ten "
                f"times as far, so there is no optimum, as where examples can be separated; give the model "
                f"an l2"
            )
        return None
    if not math.isfinite(found.gradient_norm):
        return "its gradient is not finite; check its data, or take a smaller step"
    return (
        f"stopped after {max_steps} steps at gradient norm {float(found.gradient_norm):.2g}, above "
        f"the tolerance {tolerance:g}; raise `tolerance` or `max_steps`"
    )


def _check(owner: str, tolerance: Hyper, max_steps: int) -> None:
    if isinstance(tolerance, int | float) and not tolerance > 0:
        raise HoldfastError(
            f"{owner}: tolerance={tolerance}; give a gradient norm above 0.", about=("tolerance",)
        )
    if not isinstance(max_steps, int) or max_steps < 1:
        raise HoldfastError(
            f"{owner}: max_steps={max_steps!r}; give a whole number of at least 1.",
            about=("max_steps",),
        )


class GradientDescent(Solver):
    r"""Gradient descent with a fixed step, as in the FLIX paper.

    $$ z \leftarrow z - \tfrac{1}{L_i} \nabla f_i(z) \text{ until } \|\nabla f_i(z)\| \le \text{tolerance} $$

    Args:
        step: $1/L_i$, a number or one per client; see `hf.diagnose.curvature`.
        tolerance: gradient norm to stop at.
        max_steps: steps to stop after in any case.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import jax.numpy as jnp
        >>> def loss(z):
        ...     return (z[0] - 1) ** 2 / 2 + 5 * (z[1] - 2) ** 2
        >>> solver = hf.solvers.GradientDescent(step=0.1)
        >>> found = solver.minimise(loss, jax.grad(loss), jnp.zeros(2))
        >>> print(found.x.round(3), bool(found.gradient_norm <= solver.tolerance))
        [1. 2.] True
    """

    ranges = MappingProxyType({"step": Range(0, open=True)})
    step: Hyper
    tolerance: Hyper = 1e-6
    max_steps: int = static(default=100_000)

    def __post_init__(self) -> None:
        check_ranges(self)
        _check("GradientDescent", self.tolerance, self.max_steps)

    def minimise(self, loss: Loss, grad: Gradient, start: Tree) -> Optimum:
        def unfinished(carry: Any) -> Any:
            _, g, k = carry
            return (norm(g) > self.tolerance) & (k < self.max_steps)

        def body(carry: Any) -> Any:
            z, g, k = carry
            z = axpy(-self.step, g, z)
            return z, grad(z), k + 1

        z, g, _ = lax.while_loop(unfinished, body, (start, grad(start), 0))
        return Optimum(z, norm(g).astype(float_type(start)))

    def doubt(self, found: Optimum) -> str | None:
        return _stopped_early(found, self.tolerance, self.max_steps)


class LineSearch(Solver):
    r"""Gradient descent whose steps a backtracking line search chooses: needs no constants.

    Args:
        tolerance: gradient norm to stop at.
        max_steps: steps to stop after in any case.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import jax.numpy as jnp
        >>> def loss(z):
        ...     return (z[0] - 1) ** 2 / 2 + 5 * (z[1] - 2) ** 2
        >>> solver = hf.solvers.LineSearch()
        >>> found = solver.minimise(loss, jax.grad(loss), jnp.zeros(2))
        >>> print(found.x.round(3), bool(found.gradient_norm <= solver.tolerance))
        [1. 2.] True
    """

    tolerance: Hyper = 1e-5
    max_steps: int = static(default=2000)

    def __post_init__(self) -> None:
        _check("LineSearch", self.tolerance, self.max_steps)

    def minimise(self, loss: Loss, grad: Gradient, start: Tree) -> Optimum:
        search = optax.scale_by_backtracking_linesearch(max_backtracking_steps=30, store_grad=True)
        optimizer = optax.chain(optax.sgd(1.0), search)
        return _descend(optimizer, loss, grad, start, self.tolerance, self.max_steps)

    doubt = GradientDescent.doubt


class LBFGS(Solver):
    r"""L-BFGS with a zoom line search: few passes over the data, and needs no constants.

    Args:
        tolerance: gradient norm to stop at.
        max_steps: steps to stop after in any case.
        memory: past steps that estimate the curvature.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import jax.numpy as jnp
        >>> def loss(z):
        ...     return (z[0] - 1) ** 2 / 2 + 5 * (z[1] - 2) ** 2
        >>> solver = hf.solvers.LBFGS()
        >>> found = solver.minimise(loss, jax.grad(loss), jnp.zeros(2))
        >>> print(found.x.round(3), bool(found.gradient_norm <= solver.tolerance))
        [1. 2.] True

    Reference: Liu and Nocedal, "On the limited memory BFGS method", 1989; the code is optax's.
    """

    tolerance: Hyper = 1e-5
    max_steps: int = static(default=500)
    memory: int = static(default=10)

    def __post_init__(self) -> None:
        _check("LBFGS", self.tolerance, self.max_steps)

    def minimise(self, loss: Loss, grad: Gradient, start: Tree) -> Optimum:
        optimizer = optax.lbfgs(memory_size=self.memory)
        return _descend(optimizer, loss, grad, start, self.tolerance, self.max_steps)

    doubt = GradientDescent.doubt


class Known(Solver):
    """Optima found before, one per client: `hf.flix.local_optima`, or those of a cluster.

    Args:
        optima: a tree like the model, each leaf a `hf.PerClient`.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import jax.numpy as jnp
        >>> def loss(z):
        ...     return (z[0] - 1) ** 2 / 2 + 5 * (z[1] - 2) ** 2
        >>> # As one client sees it: nothing is searched for, but how steep it is there is measured.
        >>> solver = hf.solvers.Known(jnp.array([1.0, 1.9]))
        >>> found = solver.minimise(loss, jax.grad(loss), jnp.zeros(2))
        >>> print(found.x, f"{found.gradient_norm:.2f}")
        [1.  1.9] 1.00
    """

    optima: Tree

    def check(self, params: Tree) -> None:
        mine = tree.map(
            lambda z: jax.ShapeDtypeStruct(np.shape(z), float_type(params)), self.optima
        )
        given, wanted = (jax.tree_util.tree_flatten_with_path(of)[0] for of in (mine, params))
        if [(path, p.shape) for path, p in given] != [(path, p.shape) for path, p in wanted]:
            raise HoldfastError(
                f"Known: the optima have {describe_shapes(mine)}, the model {describe_shapes(params)}; give "
                f"those of this model.",
                about=("algorithm", "solver"),
            )

    def minimise(self, loss: Loss, grad: Gradient, start: Tree) -> Optimum:
        x = tree.map(lambda z, p: jnp.asarray(z, p.dtype), self.optima, start)
        return Optimum(x, norm(grad(x)).astype(float_type(start)))


def _descend(
    optimizer: optax.GradientTransformationExtraArgs,
    loss: Loss,
    grad: Gradient,
    start: Tree,
    tolerance: Hyper,
    max_steps: int,
) -> Optimum:
    """An optax optimiser with a line search, to a gradient norm."""

    # The loss runs over as many pages as a client has, which JAX cannot differentiate backwards;
    # its gradient, page by page, is known.
    @jax.custom_vjp
    def value(z: Tree) -> Any:
        return loss(z)

    def forward(z: Tree) -> Any:
        return loss(z), grad(z)

    def backward(g: Tree, by: Any) -> Any:
        return (tree.map(lambda p: by * p, g),)

    value.defvjp(forward, backward)
    begin = norm(grad(start)).astype(float_type(start))

    def unfinished(carry: Any) -> Any:
        _, _, length, k = carry
        return (length > tolerance) & (k < max_steps)

    def body(carry: Any) -> Any:
        z, state, _, k = carry
        # Optax mixes counters and step sizes.
        with jax.numpy_dtype_promotion("standard"):
            f, g = optax.value_and_grad_from_state(value)(z, state=state)
            move, state = optimizer.update(g, state, z, value=f, grad=g, value_fn=value)
            z = optax.apply_updates(z, move)
            # The search has been there already.
            steepness = norm(optax.tree.get(state, "grad"))
        return z, state, steepness.astype(begin.dtype), k + 1

    with jax.numpy_dtype_promotion("standard"):
        state = optimizer.init(start)
    z, _, length, _ = lax.while_loop(unfinished, body, (start, state, begin, 0))
    return Optimum(z, length)
