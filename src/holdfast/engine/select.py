"""Federated select: a client receives, trains and returns only the table rows its data uses.

Its round runs on the small table, of fixed capacity and padded, with row numbers in its data replaced
by positions in that table. The result equals the run with the full table. Rows that were not sent have
no gradient, so that they move only by what is known without the client: the linear term that the
server broadcast, decay and pull. The server moves them in the client's stead.

- Under plain steps they move by the linear term times the sum of step sizes.
- Under a clip, decay or momentum they move in the plane of two vectors, where they began and the
  linear term. Their position in that plane is two numbers, which take part in the client's local steps
  as one more small parameter per table; so a clip by the global norm sees them too, and what the
  server needs of it is a handful of numbers.

What would change client states of rows that are not sent cannot be known to the server; `select_trial`
refuses it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.core.algorithm import Algorithm
from holdfast.core.client import after_training, before_training, local_objective
from holdfast.core.keys import Purpose, client_key
from holdfast.core.local import StepGradient, Steps, solve
from holdfast.core.round_types import ClientState, HasLoss, Reply, Shared, Slot
from holdfast.core.rule import Tilt, per_leaf
from holdfast.data.clients import Clients
from holdfast.errors import HoldfastError
from holdfast.models.model import Model, Table
from holdfast.trees import Number, Tree, finite, flatten, paths, scale

Tables = tuple[Table, ...]


@dataclasses.dataclass(frozen=True, eq=False)
class SmallTables:
    """A model on small tables: row numbers in a batch become positions among the client's rows."""

    model: HasLoss
    tables: Tables
    rows: Any  # one sorted array per table, filled up with a number past the last row

    def losses(self, params: Tree, batch: Tree, key: jax.Array) -> jax.Array:
        """One loss per example."""
        positions: dict[str, jax.Array] = {}
        for table, rows in zip(self.tables, self.rows, strict=True):
            numbers = {field: getattr(batch, field) for field in table.fields}
            positions |= {f: jnp.searchsorted(rows, n).astype(n.dtype) for f, n in numbers.items()}
        return self.model.losses(params, batch._replace(**positions), key)


@dataclasses.dataclass(frozen=True)
class TableLeaves:
    """Which leaves belong to tables, wherever a rule keeps something shaped like the model."""

    tables: Tables
    names: tuple[str, ...]  # of the model's leaves

    def table(self, name: str) -> int | None:
        """The number of the table that a leaf of this name is; None if it is none.

        Inside a rule's state a name has words before it, so the longest name of the model counts: with
        leaves `emb` and `user/emb`, `0/user/emb` is the second.
        """
        known = [n for n in self.names if name == n or name.endswith("/" + n)]
        mine = max(known, key=len, default=None)
        leaves = [table.leaf for table in self.tables]
        return leaves.index(mine) if mine in leaves else None

    def map(self, change: Callable[..., Any], u: Tree, *others: Tree) -> Tree:
        """`change(table, leaf, *leaves of others)` for the leaves that belong to one."""
        leaves, definition = flatten(u)
        beside = [tree.leaves(other) for other in others]
        for k, name in enumerate(paths(u)):
            i = self.table(name)
            if i is not None:
                leaves[k] = change(i, leaves[k], *(b[k] for b in beside))
        return definition.unflatten(leaves)


class _Plane(NamedTuple):
    """Where rows that were not sent can be: the plane of two orthonormal vectors."""

    along: Any  # the direction of the linear term
    across: Any  # of where the rows began, as far as that is another direction
    start: Any  # two coordinates
    linear: Any  # of the linear term, whose second is 0


def _plane(start: Any, linear: Any) -> _Plane:
    def unit(v: Any) -> tuple[Any, Any]:
        length = jnp.sqrt(jnp.vdot(v, v))
        safe = jnp.where(length > 0, length, jnp.ones_like(length))
        return v / safe, length

    along, size = unit(linear)
    within = jnp.vdot(along, start)
    across, rest = unit(start - within * along)
    return _Plane(along, across, jnp.stack([within, rest]), jnp.stack([size, jnp.zeros_like(size)]))


@dataclasses.dataclass(frozen=True)
class SelectedRound:
    """A client's round on its own rows; the reply is in terms of the whole tables."""

    tables: Tables

    def __call__(self, shared: Shared, mine: Algorithm, state: ClientState, slot: Slot) -> Reply:
        assert slot.table_rows is not None
        rows = slot.table_rows
        of_tables = TableLeaves(self.tables, tuple(paths(shared.x)))
        sizes = [leaf.shape[0] for leaf in table_leaves(self.tables, shared.x)]

        def cut(i: int, leaf: Any) -> Any:
            # What fills the small table up is zero, so that it counts in no norm.
            taken = leaf[jnp.minimum(rows[i], sizes[i] - 1)]
            there = (rows[i] < sizes[i]).reshape(-1, *(1,) * (leaf.ndim - 1))
            return jnp.where(there, taken, jnp.zeros_like(taken))

        def spread(i: int, leaf: Any) -> Any:
            nothing = jnp.zeros((sizes[i], *leaf.shape[1:]), leaf.dtype)
            return nothing.at[rows[i]].set(leaf, mode="drop")

        def put(i: int, leaf: Any, whole: Any) -> Any:
            return whole.at[rows[i]].set(leaf, mode="drop")

        def without_sent(i: int, leaf: Any) -> Any:
            return leaf.at[rows[i]].set(jnp.zeros((), leaf.dtype), mode="drop")

        x, msg, small_state = (of_tables.map(cut, u) for u in (shared.x, shared.msg, state))
        small = dataclasses.replace(
            shared, model=SmallTables(shared.model, self.tables, rows), x=x, msg=msg
        )
        at, tilt, grad = before_training(small, mine, small_state, slot)
        # Where a client has no data, its state is the first one, and so is the tilt.
        gradient_key = client_key(shared.key, slot.client, Purpose.GRADIENT)
        of_all = local_objective(shared.model, shared.examples, slot, gradient_key)
        whole_at = at._replace(
            x=shared.x, msg=shared.msg, mine=state.rule, grad=of_all[1], loss=of_all[0]
        )
        whole_tilt = mine.rule.tilt(whole_at)
        unsent = _Unsent(of_tables, shared, whole_tilt, without_sent)
        y, path, moved = unsent.solve(grad, x, tilt, slot.steps)
        key = client_key(shared.key, slot.client, Purpose.WIRE)
        reply = after_training(mine, small_state, at, tilt, y, path, key)
        delta, upload = of_tables.map(spread, reply.coded)
        if moved is not None:
            delta = of_tables.map(lambda i, d, m: d + m, delta, moved)
        heard_at = whole_at._replace(path=path).heard_by_server()
        new_state = of_tables.map(put, reply.state, state)
        if tree.leaves(state.latest):
            begun = shared.x if whole_tilt.start is None else whole_tilt.start
            latest = begun if moved is None else tree.map(jnp.add, begun, moved)
            latest = of_tables.map(put, y, latest)
            new_state = new_state._replace(latest=latest)
        taken = mine.mean.take((delta, upload))[0]
        heard = mine.rule.hear(taken[0], taken[1], heard_at)
        # What the server did in the client's stead is looked at too.
        sound = jnp.logical_and(reply.finite, finite((delta, heard, new_state)))
        return Reply((delta, upload), heard, new_state, path, sound)


@dataclasses.dataclass(frozen=True)
class _Unsent:
    """The rows of one client's round that were not sent, and how they move."""

    leaves: TableLeaves
    shared: Shared
    tilt: Tilt  # on whole tables
    without_sent: Callable[[int, Any], Any]

    @property
    def _steps(self) -> Steps:
        steps = self.shared.steps
        assert isinstance(steps, Steps)
        return steps

    def solve(
        self, grad: StepGradient, x: Tree, tilt: Tilt, count: Number
    ) -> tuple[Tree, Number, Tree]:
        """The client's local steps on its own rows; and the move of all others, None if there is none."""
        steps = self._steps
        turned = _turns(steps, tilt)
        if tilt.linear is None and not decays(steps, tilt):
            y, path = solve(steps, grad, x, tilt, count)
            return y, path, None
        if not turned:
            y, path = solve(steps, grad, x, tilt, count)
            linear = _filled(self.tilt.linear, self.shared.x)
            return y, path, self._only_tables(scale(-path, linear))
        return self._turning(grad, x, tilt, count)

    def _only_tables(self, u: Tree) -> Tree:
        """Zero but for the rows of tables that were not sent."""
        nothing = tree.map(jnp.zeros_like, u)
        unsent = self.leaves.map(self.without_sent, u)
        return self.leaves.map(lambda i, _, rest: rest, nothing, unsent)

    def _turning(
        self, grad: StepGradient, x: Tree, tilt: Tilt, count: Number
    ) -> tuple[Tree, Number, Tree]:
        """Rows not sent take part by their coordinates, as one more parameter of each table."""
        steps = self._steps
        start = self.shared.x if self.tilt.start is None else self.tilt.start
        linear = _filled(self.tilt.linear, self.shared.x)
        where = table_positions(self.leaves.tables, self.shared.x)
        ends = [
            (
                self.without_sent(i, tree.leaves(start)[k]),
                self.without_sent(i, tree.leaves(linear)[k]),
            )
            for i, k in enumerate(where)
        ]
        planes = [_plane(*both) for both in ends]
        points = tuple(plane.start for plane in planes)

        def beside(term: Tree, extra: tuple[Any, ...]) -> tuple[Any, tuple[Any, ...]]:
            entries = per_leaf(term, x)
            return tree.unflatten(tree.structure(x), entries), extra

        def of_tables(term: Tree) -> tuple[Any, ...]:
            return tuple(per_leaf(term, x)[k] for k in where)

        joint_tilt = Tilt(
            linear=beside(tilt.linear, tuple(plane.linear for plane in planes)),
            pull=beside(tilt.pull, of_tables(tilt.pull)),
            decay=beside(tilt.decay, of_tables(tilt.decay)),
            weight=tilt.weight,
            mix=None if tilt.mix is None else (tilt.mix[0], (tilt.mix[1], points)),
            start=None if tilt.start is None else (tilt.start, points),
        )
        momentum = (*steps.momentum, *(steps.momentum[k] for k in where))

        def joint_grad(k: Any, z: tuple[Tree, tuple[Any, ...]]) -> tuple[Tree, tuple[Any, ...]]:
            return grad(k, z[0]), tuple(jnp.zeros_like(p) for p in z[1])

        joint_steps = dataclasses.replace(steps, momentum=momentum)
        (y, ends_at), path = solve(joint_steps, joint_grad, (x, points), joint_tilt, count)
        moved = tree.leaves(tree.map(jnp.zeros_like, self.shared.x))
        for k, plane, point in zip(where, planes, ends_at, strict=True):
            a, b = point - plane.start
            moved[k] = (a * plane.along + b * plane.across).astype(moved[k].dtype)
        return y, path, tree.unflatten(tree.structure(self.shared.x), moved)


def decays(steps: Steps, tilt: Tilt) -> bool:
    """Whether parameters without a gradient shrink."""
    return steps.weight_decay is not None or tilt.decay is not None


def _turns(steps: Steps, tilt: Tilt) -> bool:
    """Whether rows that were not sent move otherwise than straight along the linear term."""
    bent = steps.clip is not None or tilt.pull is not None or steps.optimizer is not None
    return bent or decays(steps, tilt) or any(m is not None for m in steps.momentum)


def _filled(term: Tree, like: Tree) -> Tree:
    """A linear term with zeros for leaves it leaves out."""
    entries = zip(per_leaf(term, like), tree.leaves(like), strict=True)
    filled = [jnp.zeros_like(p) if t is None else t for t, p in entries]
    return tree.unflatten(tree.structure(like), filled)


def table_positions(tables: Tables, params: Tree) -> list[int]:
    """Which leaves are the tables."""
    names = paths(params)
    return [names.index(table.leaf) for table in tables]


def table_leaves(tables: Tables, params: Tree) -> list[Any]:
    """The parameters that are tables."""
    named = dict(zip(paths(params), tree.leaves(params), strict=True))
    for table in tables:
        if table.leaf not in named:
            raise HoldfastError(
                f"select: the model declares a table `{table.leaf}` but its leaves are "
                f"{', '.join(named)}; name one of them.",
                about=("model",),
            )
    return [named[table.leaf] for table in tables]


def _refuse_shared_fields(tables: Tables) -> None:
    """Positions in two small tables are the same only if the two have the same rows."""
    for i, table in enumerate(tables):
        for other in tables[:i]:
            both = set(table.fields) & set(other.fields)
            same = set(table.fields) == set(other.fields) and table.always == other.always
            if both and not same:
                raise HoldfastError(
                    f"select: the tables `{other.leaf}` and `{table.leaf}` both look rows up by "
                    f"`{min(both)}`, and by other fields or `always` besides; give both the same."
                )


class Selection:
    """Which rows of which tables each client's data uses."""

    def __init__(self, model: Model, clients: Clients, params: Tree) -> None:
        if not model.tables:
            raise HoldfastError(
                "select: the model declares no tables; give hf.Model(tables=(hf.Table(...),)).",
                about=("select",),
            )
        _refuse_shared_fields(model.tables)
        self.tables = model.tables
        self.sizes = [leaf.shape[0] for leaf in table_leaves(model.tables, params)]
        mine = [clients.rows(i) for i in range(len(clients))]
        tables = zip(model.tables, self.sizes, strict=True)
        self.used = [table.used(clients.examples, mine, size) for table, size in tables]
        self.capacity = [max(map(len, used)) for used in self.used]
        self.client_round = SelectedRound(self.tables)
        self._leaves = TableLeaves(self.tables, tuple(paths(params)))
        self._number_bits = sum(
            8 * leaf.dtype.itemsize for leaf in table_leaves(self.tables, params)
        )
        # Whether a client's clip depends on rows it was not sent; known once the method was tried out.
        self.shares_norm = False

    @property
    def bits_down(self) -> int:
        """For a shared norm: length of the linear term, and where the rows began in two coordinates."""
        return 3 * self._number_bits if self.shares_norm else 0

    @property
    def bits_up(self) -> int:
        """For a shared norm: where they end."""
        return 2 * self._number_bits if self.shares_norm else 0

    def rows(self, clients: np.ndarray) -> tuple[np.ndarray, ...]:
        """For a cohort, one array of row numbers per table, filled up past the last row."""
        out = []
        for used, capacity, size in zip(self.used, self.capacity, self.sizes, strict=True):
            table = np.full((len(clients), capacity), size, np.int32)
            for slot in np.flatnonzero(clients >= 0):
                i = clients[slot]
                table[slot, : len(used[i])] = used[i]
            out.append(table)
        return tuple(out)

    def sent(self, client: int, shapes: Tree) -> Tree:
        """Shapes of what really travels to or from a client, given those with whole tables."""

        def cut(i: int, leaf: Any) -> Any:
            return jax.ShapeDtypeStruct((len(self.used[i][client]), *leaf.shape[1:]), leaf.dtype)

        return self._leaves.map(cut, shapes)
