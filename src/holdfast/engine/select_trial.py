"""Whether a method is the same with federated select: its own round is tried out on a small problem.

What would change client states of rows that are not sent to a client, or would move such rows by more
than is known at the server, cannot be done in the client's stead. The trial runs the method itself with
and without select, so that it holds for rules of users too.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.keys import host_key
from holdfast.core.local import Local, Steps
from holdfast.core.round import federated_round
from holdfast.core.round_types import (
    HasLoss,
    RoundInputs,
    RoundResult,
    ServerState,
    ServerWork,
    Slot,
)
from holdfast.core.rule import ClientView
from holdfast.core.template import template
from holdfast.engine.select import (
    SelectedRound,
    Tables,
    decays,
    table_leaves,
    table_positions,
)
from holdfast.errors import HoldfastError
from holdfast.trees import Tree, flatten, paths


class _Trial(NamedTuple):
    """A problem small enough to try a method out on: two clients, who use two and three of five rows."""

    params: Tree
    tables: Tables
    examples: Any
    rows: tuple[np.ndarray, ...]


_ROWS = 5
_USED = ((0, 2, _ROWS), (1, 2, 4))


def _numbers(rng: np.random.Generator, shapes: Tree) -> Tree:
    """Numbers in place of numbers; what is not one (a counter) stays."""

    def one(a: Any) -> Any:
        if not jnp.issubdtype(a.dtype, jnp.floating):
            return jnp.asarray(a)
        return jnp.asarray(rng.uniform(0.1, 1.0, a.shape), a.dtype)

    return tree.map(one, shapes)


@functools.lru_cache(maxsize=64)
def _examples_type(fields: tuple[str, ...]) -> Any:
    """The same type for the same fields: another one would be another program."""
    return NamedTuple("Looked", [(f, Any) for f in fields])


def _trial(params: Tree, tables: Tables, rng: np.random.Generator) -> _Trial:
    leaves, definition = flatten(params)
    where = table_positions(tables, params)
    shapes = [
        jax.ShapeDtypeStruct((_ROWS, *(2,) * (a.ndim - 1)) if k in where else (2,) * a.ndim, float)
        for k, a in enumerate(leaves)
    ]
    fields = tuple(sorted({f for table in tables for f in table.fields}))
    looked_up = np.array([0, 2, 1, 4, 2], np.int32)
    return _Trial(
        _numbers(rng, definition.unflatten(shapes)),
        tables,
        _examples_type(fields)(*(looked_up for _ in fields)),
        tuple(np.array(_USED, np.int32) for _ in tables),
    )


@dataclasses.dataclass(frozen=True)
class _TrialModel:
    """Distance of the rows looked up, and of all else, to a number."""

    tables: Tables

    def losses(self, params: Tree, batch: Tree, key: jax.Array) -> jax.Array:
        named = dict(zip(paths(params), tree.leaves(params), strict=True))
        count = len(tree.leaves(batch)[0])
        total = jnp.zeros(count, jnp.result_type(*named.values()))
        for table in self.tables:
            leaf = named.pop(table.leaf)
            for field in table.fields:
                away = (leaf[getattr(batch, field)] - 0.3) ** 2
                total = total + jnp.sum(away.reshape(count, -1), axis=1).astype(total.dtype)
        rest = sum((jnp.sum((p - 0.1) ** 2) for p in named.values()), jnp.zeros((), total.dtype))
        return total + rest.astype(total.dtype)


def _trial_server_loss(
    model: HasLoss, params: Tree, examples: Tree, rows: Any, key: jax.Array
) -> jax.Array:
    return sum(jnp.sum((p - 0.2) ** 2) for p in tree.leaves(params))  # type: ignore[return-value]


# In 64 bits exact ones differ by 1e-14, a weight decay of 1e-6 by 1e-8.
_TOLERANCE = 1e-10
# Rounds in which schedules are looked at, and scales of what the server remembers: a bound that it
# keeps may be reached only if it is small.
_ROUNDS = (0, 1, 10, 100)
_SCALES = (1.0, 0.01)
# Of clients with numbers of their own; a pair costs a millisecond.
_MOST_CLIENTS = 32


def check(
    algorithm: Algorithm,
    params: Tree,
    local: Local,
    server: Local | None,
    tables: Tables,
    clients: int,
) -> bool:
    """Refuse a method whose round on small tables is not the round on whole ones.

    Tried out in 64 bits with first client states and any state of the server: if these stay as they
    were for rows that are not sent, and the model moves alike, so it does in the next round. What a
    rule does only after a warm-up of its own is not seen. Returns whether a client's clip depends on
    rows it was not sent.
    """
    table_leaves(tables, params)
    step = max(1, clients // _MOST_CLIENTS)
    ids = range(0, clients, step) if hyper.varies(algorithm) else (0,)
    with jax.enable_x64(True):
        trial = _trial(params, tables, np.random.default_rng(0))
        for t in _ROUNDS:
            now = hyper.at_round(algorithm, t)
            steps = _of_trial(local.at(t, trial.params))
            own = None if server is None else _of_trial(server.at(t, trial.params))
            for scale in _SCALES if t == 0 else (1.0,):
                for client in ids:
                    shares_norm = _try(now, trial, steps, own, client, scale)
    return shares_norm


def _try(
    algorithm: Algorithm,
    trial: _Trial,
    steps: Steps,
    server: Steps | None,
    client: int,
    scale: float,
) -> bool:
    """One round with and without select."""
    tables, rng = trial.tables, np.random.default_rng(1)
    begun = template(algorithm, trial.params)
    # The run has gone on since clients' states began.
    x = _numbers(rng, trial.params)
    first = tree.map(lambda a: jnp.where(jnp.isfinite(a), a, jnp.ones_like(a)), begun.client)
    remembered = tree.map(
        lambda a: a * scale if jnp.issubdtype(a.dtype, jnp.floating) else a,
        _numbers(rng, begun.server.rule),
    )
    slots = Slot(
        client=np.full(2, client, np.int32),
        weight=np.ones(2),
        steps=np.full(2, 2, np.int32),
        batches=np.array([[[0, 1], [1, 0]], [[2, 3], [3, 4]]], np.int32),
        pages=np.array([[[0, 1], [-1, -1]], [[2, 3], [4, -1]]], np.int32),
        page_count=np.array([1, 2], np.int32),
        delta_weight=np.ones(2),
        heard_weight=np.ones(2),
        head_weight=np.ones(2),
        table_rows=trial.rows,
    )
    work = None if server is None else ServerWork(server, np.int32(2), (), None, None, 1.0)
    inputs = RoundInputs(
        model=_TrialModel(tables),
        algorithm=algorithm,
        steps=steps,
        x=x,
        # Small numbers, by which a mean that bounds replies bounds these.
        server=ServerState(remembered, begun.server.wire, tree.map(_small, begun.server.aggregate)),
        client_states=tree.map(lambda a: jnp.stack([a, a]), first),
        slots=slots,
        examples=tree.map(jnp.asarray, trial.examples),
        population=2.0,
        key=host_key(0),
        server_work=work,
        server_loss=None if server is None else _trial_server_loss,
    )
    small = dataclasses.replace(inputs, client_round=SelectedRound(tables))
    whole, selected = (_tried(given) for given in (inputs, small))
    _refuse_difference(algorithm, x, whole, selected)
    shown = ClientView(x, tree.map(_ones, begun.broadcast[1]), first.rule, _zero, 1.0, loss=_zero)
    tilt = hyper.of_client(algorithm, client, float).rule.tilt(shown)
    return steps.clip is not None and not (tilt.linear is None and not decays(steps, tilt))


_tried = jax.jit(federated_round, compiler_options={"xla_backend_optimization_level": 0})


def _ones(shape: Any) -> Any:
    return jnp.ones(shape.shape, shape.dtype)


def _small(a: Any) -> Any:
    return jnp.full_like(a, 0.01)


def _zero(z: Tree) -> Tree:
    return tree.map(jnp.zeros_like, z)


def _of_trial(steps: Steps) -> Steps:
    """Steps that move something, and a clip that is one."""
    clip = None if steps.clip is None else 0.5
    return dataclasses.replace(steps, learning_rate=0.05, clip=clip)


def _refuse_difference(
    algorithm: Algorithm, x: Tree, whole: RoundResult, selected: RoundResult
) -> None:
    def apart(a: Tree, b: Tree) -> float:
        pairs = zip(tree.leaves(a), tree.leaves(b), strict=True)
        gaps = [float(np.max(np.abs(np.asarray(p) - np.asarray(q)), initial=0)) for p, q in pairs]
        return max(gaps, default=0.0)

    moved = apart(whole.x, x)
    why = None
    if not (bool(np.all(whole.accepted)) and bool(np.all(selected.accepted))):
        why = "it does not give finite numbers where that is tried out"
    elif not apart(whole.client_states, selected.client_states) < _TOLERANCE:
        why = "it changes what a client remembers of table rows that are not sent to it"
    elif not apart((whole.x, whole.server), (selected.x, selected.server)) < _TOLERANCE * (
        1 + moved
    ):
        why = "rows that are not sent would move in a way that the server cannot work out"
    if why is not None:
        raise HoldfastError(
            f"select: {algorithm.name} with this local training would be another method, since {why}; "
            f"leave out select, or the rule, optimiser or setting that does it.",
            about=("select",),
        )
