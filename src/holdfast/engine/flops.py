"""How many floating-point operations a client's round takes, counted from shapes as bytes are."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.core import hyper
from holdfast.core.client import client_round
from holdfast.core.round_types import ClientState, Reply, Shared, Slot
from holdfast.data.grouped import Grouped, OfPopulation
from holdfast.engine.select import SmallTables
from holdfast.engine.setup import Setup
from holdfast.errors import HoldfastError
from holdfast.models.model import Model
from holdfast.trees import Tree, float_type

# One operation for each number that comes out.
_BY_OUTPUT = frozenset(
    (
        *(
            "add",
            "add_any",
            "sub",
            "mul",
            "div",
            "rem",
            "neg",
            "abs",
            "sign",
            "max",
            "min",
            "clamp",
        ),
        *("floor", "ceil", "round", "square", "integer_pow", "pow", "sqrt", "rsqrt", "cbrt"),
        *("exp", "exp2", "expm1", "log", "log1p", "logistic", "erf", "erfc", "erf_inv", "lgamma"),
        *("sin", "cos", "tan", "asin", "acos", "atan", "atan2"),
        *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
        *("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"),
    )
)
# One for each number that goes in.
_BY_INPUT = frozenset(("reduce_sum", "reduce_max", "reduce_min", "reduce_prod"))
# One for each number that is added to a place.
_SCATTERS = frozenset(("scatter-add", "scatter-sub", "scatter-mul"))


def flops(function: Callable[..., Any], *arguments: Any) -> int:
    """Floating-point operations of a call, from the shapes of its arguments; nothing is computed.

    A term of a matrix product or convolution counts two, a multiplication and an addition; any other
    arithmetic one for each number. Comparisons, conversions, lookups, copies, whole numbers and random
    bits count nothing. A loop counts as often as it runs, of two branches the longer counts.

    Example:
        >>> import jax.numpy as jnp
        >>> flops(lambda a, b: jnp.sum(a @ b), jnp.ones((3, 4)), jnp.ones((4, 5)))
        135
    """
    return _of_jaxpr(jax.make_jaxpr(function)(*arguments).jaxpr)


def _of_jaxpr(jaxpr: Any) -> int:
    return sum(_of_equation(equation) for equation in jaxpr.eqns)


def _of_equation(equation: Any) -> int:
    name, inside = equation.primitive.name, equation.params
    if name == "scan":
        return int(inside["length"]) * _of_jaxpr(inside["jaxpr"].jaxpr)
    if name == "cond":
        return max(_of_jaxpr(branch.jaxpr) for branch in inside["branches"])
    if name == "while":
        body = _of_jaxpr(inside["body_jaxpr"].jaxpr) + _of_jaxpr(inside["cond_jaxpr"].jaxpr)
        if body:
            raise HoldfastError(
                "flops: a loop of the method or of the model ends by what it computes, so that nobody "
                "knows its length; give it a fixed number of steps.",
                about=("evaluate",),
            )
        return 0
    nested = [part for part in inside.values() if hasattr(part, "eqns") or hasattr(part, "jaxpr")]
    if nested:
        return sum(_of_jaxpr(getattr(part, "jaxpr", part)) for part in nested)
    if not any(jnp.issubdtype(out.aval.dtype, jnp.inexact) for out in equation.outvars):
        return 0
    return _of_arithmetic(name, equation)


def _of_arithmetic(name: str, equation: Any) -> int:
    made = math.prod(equation.outvars[0].aval.shape)
    if name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        left = equation.invars[0].aval.shape
        return 2 * made * math.prod(left[i] for i in contracted)
    if name == "conv_general_dilated":
        kernel, layout = equation.invars[1].aval.shape, equation.params["dimension_numbers"]
        return 2 * made * math.prod(kernel) // kernel[layout.rhs_spec[0]]
    if name in _SCATTERS:
        return math.prod(equation.invars[2].aval.shape)
    if name in _BY_INPUT:
        return math.prod(equation.invars[0].aval.shape)
    return made if name in _BY_OUTPUT else 0


@dataclasses.dataclass(frozen=True)
class _OnePopulation:
    """The model of one of several populations."""

    model: Model
    population: int

    def losses(self, params: Tree, batch: Grouped, key: jax.Array | None = None) -> jax.Array:
        own = OfPopulation(batch.of(self.population), self.population)
        return self.model.losses(params, own, key)


class _Kind(NamedTuple):
    """What a client's work depends on."""

    steps: int
    batch: int
    pages: int  # of so many batches all of its data is
    rows: tuple[int, ...]  # that it is sent, of each table
    population: int


@dataclasses.dataclass(frozen=True, eq=False)
class ClientWork:
    """Counts from shapes alone what clients do in a round; the server's work is not theirs."""

    setup: Setup
    _known: dict[_Kind, int] = dataclasses.field(default_factory=dict)

    def of_clients(self, t: int, clients: np.ndarray) -> np.ndarray:
        """Operations of each of these clients in round `t`, counted from 0."""
        now = hyper.at_round(self.setup.method, t)
        quiet = now.rule.traits.quiet(len(self.setup.clients))
        return np.array([0 if quiet[i] else self._of_client(int(i)) for i in clients], np.float64)

    def _of_client(self, client: int) -> int:
        batches, selection = self.setup.batches, self.setup.selection
        populations = self.setup.clients.populations
        batch = int(batches.batch_sizes[client])
        kind = _Kind(
            int(batches.steps[client]),
            batch,
            -(-int(batches.sizes[client]) // batch),
            () if selection is None else tuple(len(used[client]) for used in selection.used),
            0 if populations is None else int(populations.of[client]),
        )
        if kind not in self._known:
            self._known[kind] = self._count(kind, client)
        return self._known[kind]

    def _count(self, kind: _Kind, client: int) -> int:
        setup = self.setup
        algorithm = hyper.at_round(setup.method, 0)
        (x, msg), state = setup.template.broadcast, setup.template.client
        numbers = setup.locals[min(kind.population, len(setup.locals) - 1)].at(0, setup.params)
        own: Any = setup.experiment.model
        if setup.clients.populations is not None:
            own = _OnePopulation(own, kind.population)
        if setup.selection is not None:
            (x, msg), state = (setup.selection.sent(client, u) for u in ((x, msg), state))
        dtype, batch = float_type(x), kind.batch

        def one(
            x: Tree,
            msg: Tree,
            state: ClientState,
            examples: Tree,
            who: Any,
            of: Any,
            table_rows: Any,
        ) -> Reply:
            model = own
            if table_rows:
                model = SmallTables(own, setup.experiment.model.tables, table_rows)
            mine = hyper.of_client(algorithm, who, dtype)
            shared = Shared(model, algorithm, numbers, x, msg, examples, jax.random.key(0))
            # Of the host, so that every loop has a known length.
            steps, pages = np.asarray(kind.steps), np.asarray(kind.pages)
            slot = Slot(who, jnp.ones((), dtype), steps, of[0], of[1], pages)
            return client_round(shared, mine, state, slot)

        def rows(*shape: int) -> jax.ShapeDtypeStruct:
            return jax.ShapeDtypeStruct(shape, jnp.int32)

        arrays = (x, msg, state, setup.clients.examples)
        shapes = tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, _type(a)), arrays)
        of = (rows(kind.steps, batch), rows(kind.pages, batch))
        return flops(one, *shapes, rows(), of, tuple(rows(n) for n in kind.rows))


def _type(array: Any) -> Any:
    """What becomes of an array's type on the device."""
    return jax.dtypes.canonicalize_dtype(array.dtype)
