"""Federated select: a client receives, trains and returns only the table rows its data uses.

Its round runs on the small table, of fixed capacity and padded, with row numbers in its data replaced
by places in that table. The result equals the run with the full table under plain SGD: rows a client
has no data for stay where they are, or follow what the server itself adds to every step (gradient
transfer, control variates), which the server then does in the client's stead. Weight decay, clipping,
SCAFFOLD's option I and rules that remember in a chain with such a one act on the rows sent only.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.round import HasLoss, Reply, Sides, Work
from holdfast.core.rule import ClientView
from holdfast.data.clients import Clients
from holdfast.errors import HoldfastError
from holdfast.models.model import Model, Table
from holdfast.trees import Tree, flatten, float_type, paths, scale

Tables = tuple[Table, ...]


@dataclasses.dataclass(frozen=True)
class LocalNumbers:
    """A model on small tables: row numbers in a batch become places among the client's rows."""

    model: HasLoss
    tables: Tables
    rows: Any  # one sorted array per table, filled up with a number past the last row

    def losses(self, params: Tree, batch: Tree, key: jax.Array) -> jax.Array:
        """One loss per example."""
        for table, rows in zip(self.tables, self.rows, strict=True):
            numbers = {field: getattr(batch, field) for field in table.fields}
            places = {f: jnp.searchsorted(rows, n).astype(n.dtype) for f, n in numbers.items()}
            batch = batch._replace(**places)
        return self.model.losses(params, batch, key)


def _per_table(tables: Tables, change: Callable[..., Any], u: Tree, *others: Tree) -> Tree:
    """Change the leaves that belong to a table, wherever a rule keeps something shaped like the model."""
    leaves, definition = flatten(u)
    beside = [tree.leaves(other) for other in others]
    for k, name in enumerate(paths(u)):
        for i, table in enumerate(tables):
            if name == table.leaf or name.endswith("/" + table.leaf):
                leaves[k] = change(i, leaves[k], *(b[k] for b in beside))
    return definition.unflatten(leaves)


@dataclasses.dataclass(frozen=True)
class OnOwnRows:
    """Runs a client's round on its own rows; the reply is in terms of the whole tables."""

    tables: Tables

    def __call__(
        self,
        visit: Callable[[HasLoss, Tree, Tree, Sides], Reply],
        algorithm: Algorithm,
        work: Work,
        model: HasLoss,
        x: Tree,
        msg: Tree,
        row: Sides,
    ) -> Reply:
        rows = work.selected
        sizes = [leaf.shape[0] for leaf in table_leaves(self.tables, x)]

        def cut(i: int, leaf: Any) -> Any:
            return leaf[jnp.minimum(rows[i], sizes[i] - 1)]  # places past the end are never used

        def spread(i: int, leaf: Any) -> Any:
            nothing = jnp.zeros((sizes[i], *leaf.shape[1:]), leaf.dtype)
            return nothing.at[rows[i]].set(leaf, mode="drop")

        def put_back(i: int, leaf: Any, whole: Any) -> Any:
            return whole.at[rows[i]].set(leaf, mode="drop")

        small = (_per_table(self.tables, cut, u) for u in (x, msg, row))
        reply = visit(LocalNumbers(model, self.tables, rows), *small)
        new_row = _per_table(self.tables, put_back, reply.row, row)
        coded = _per_table(self.tables, spread, reply.coded)
        # Rows that were not sent would only have followed what the server itself had added to every
        # step, so it moves them in the client's stead.
        rule = hyper.of_client(algorithm, work.client, float_type(x)).rule
        at = ClientView(x, msg, None, None, work.weight, reply.path)
        gradient = rule.unsent(at)
        if gradient is None:
            heard = _per_table(self.tables, spread, reply.heard)
            return Reply(coded, heard, new_row, reply.path, reply.sound)
        delta, upload = coded
        moved = scale(-reply.path, gradient)
        delta = _per_table(
            self.tables, lambda i, d, m: m.at[rows[i]].set(d[rows[i]], mode="drop"), delta, moved
        )
        return Reply(
            (delta, upload), rule.hear(delta, upload, at), new_row, reply.path, reply.sound
        )


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


class Selection:
    """Which rows of which tables each client's data uses."""

    def __init__(self, model: Model, clients: Clients, params: Tree) -> None:
        if not model.tables:
            raise HoldfastError(
                "select: the model declares no tables; give hf.Model(tables=(hf.Table(...),)).",
                about=("select",),
            )
        self.tables = model.tables
        self.sizes = [leaf.shape[0] for leaf in table_leaves(model.tables, params)]
        self.used = [self._used(table, clients) for table in model.tables]
        self.capacity = [max(map(len, used)) for used in self.used]
        self.around = OnOwnRows(self.tables)

    @staticmethod
    def _used(table: Table, clients: Clients) -> list[np.ndarray]:
        fields = [np.asarray(getattr(clients.examples, f)) for f in table.fields]

        def of(i: int) -> np.ndarray:
            mine = clients.rows(i)
            numbers = [field[mine].reshape(-1) for field in fields]
            return np.unique(np.concatenate([np.asarray(table.always, np.int64), *numbers]))

        return [of(i) for i in range(len(clients))]

    def rows(self, places: np.ndarray) -> tuple[np.ndarray, ...]:
        """For a cohort, one array of row numbers per table, filled up past the last row."""
        out = []
        for used, capacity, size in zip(self.used, self.capacity, self.sizes, strict=True):
            table = np.full((len(places), capacity), size, np.int32)
            for slot in np.flatnonzero(places >= 0):
                i = places[slot]
                table[slot, : len(used[i])] = used[i]
            out.append(table)
        return tuple(out)

    def sent(self, client: int, shapes: Tree) -> Tree:
        """Shapes of what really travels to or from a client, given those with whole tables."""

        def cut(i: int, leaf: Any) -> Any:
            return jax.ShapeDtypeStruct((len(self.used[i][client]), *leaf.shape[1:]), leaf.dtype)

        return _per_table(self.tables, cut, shapes)
