"""Next-item recommendation: a dual encoder, and the regulariser that keeps its items apart."""

import dataclasses
import functools
import math
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

from holdfast.core.struct import Struct, static
from holdfast.errors import HoldfastError, explain_arguments, first_wrong
from holdfast.models.constructor import rebuildable
from holdfast.models.initial import Init, initialised
from holdfast.models.model import Model, Table
from holdfast.trees import Tree

# This row of the table fills short contexts; it is no item.
PADDING = 0


class DualEncoder(nn.Module):
    """Directions, of length 1, of contexts and of items; both towers share the leaf `table`."""

    items: int
    width: int

    @nn.compact
    def __call__(self, context: jax.Array, item: jax.Array) -> tuple[jax.Array, jax.Array]:
        table = self.param("table", _small_uniform, (self.items, self.width))
        there = (context != PADDING)[..., None]
        total = jnp.sum(jnp.take(table, context, axis=0), axis=1, where=there)
        mean = total / jnp.maximum(jnp.sum(there, axis=1), 1).astype(total.dtype)
        hidden = nn.relu(nn.Dense(self.width, name="context")(mean))
        return _direction(hidden), _direction(jnp.take(table, item, axis=0))


def _small_uniform(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    # In 32 bits, as flax draws its own layers, also where 64 are enabled.
    return jax.random.uniform(key, shape, jnp.float32, minval=-0.05, maxval=0.05)


def _direction(vectors: jax.Array) -> jax.Array:
    """Vectors scaled to length 1; zero has no direction and stays, with a finite gradient."""
    square = jnp.sum(vectors**2, axis=-1, keepdims=True)
    return vectors / jnp.sqrt(jnp.where(square > 0, square, 1))


@explain_arguments
@rebuildable
def dual_encoder(
    items: int = 3953,
    width: int = 16,
    margin: float = 0.9,
    init: Init = "flax",
    spreadout: float = 0.0,
) -> Model:
    r"""Predicts the next item from the previous ones, by the angle between two towers.

    With $E$ the table, $C$ the items of the context that are not padding and $y$ the next item,

    $$ u = \mathrm{relu}\Big(W^\top \tfrac{1}{|C|} \sum_{j \in C} E_j + b\Big), \quad
       \ell = \max\Big(m - \frac{\langle u, E_y \rangle}{|u|\,|E_y|},\; 0\Big)^2 $$

    Leaves: `table` $E$, `context/kernel` $W$, `context/bias` $b$. Nothing in the loss pushes items
    apart: without `spreadout` all of them end in one place.

    Examples: `x` holds ids of previous items, 0 where there are fewer; `y` the id of the next.
    The loss takes as many rows as the table has, so it also works on a selection of rows, with
    ids that count within the selection; its row 0 must still be padding.

    Args:
        items: rows of the table, the padding row included; by default those of MovieLens-1M.
        width: of the embeddings and of the context's layer.
        margin: $m$, the cosine from which on a pair costs nothing.
        init: how parameters begin: `"flax"`, `"torch"` (PyTorch's default) or `"zeros"`
            (`hf.models.initialised`).
        spreadout: $\lambda$ of the regulariser in the clients' loss; 0 leaves it to the server.

    With `spreadout` clients compute that regulariser too, the paper's baseline for what a server that
    computes it saves: $\ell + \lambda \| N N^\top - \mathrm{diag}(N N^\top) \|_F$, as the function
    `spreadout` has it. It needs the whole table, so such a model takes no `select`; `loss` contains it, and
    `hinge_loss` is measured beside it.

    Metrics: `loss` and `recall_at_10`, whether the next item is among the 10 nearest to the
    context. Ties count against the model, so one whose items have all become equal gets nothing.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import numpy as np
        >>> model = hf.models.dual_encoder()
        >>> examples = hf.Examples(x=np.array([[1, 2, 0], [3, 0, 0]]), y=np.array([3, 4]))
        >>> params = jax.eval_shape(model.init, jax.random.key(0), examples)
        >>> jax.tree.map(lambda leaf: leaf.shape, params)
        {'context': {'bias': (16,), 'kernel': (16, 16)}, 'table': (3953, 16)}

    Reference: Augenstein et al., "Mixed federated learning", 2022.
    """
    wrong = first_wrong(items=items >= 2, width=width >= 1, spreadout=0 <= spreadout < math.inf)
    if wrong:
        raise HoldfastError(
            f"dual_encoder: items={items}, width={width}, spreadout={spreadout}; give at least 2 rows, "
            f"padding and an item, a width of at least 1, and a strength of at least 0.",
            about=wrong,
        )
    model = _dual_encoder(items, width, margin)
    return initialised(_spread(model, float(spreadout)) if spreadout else model, init)


@functools.lru_cache(maxsize=64)
def _dual_encoder(items: int, width: int, margin: float) -> Model:
    @jax.jit
    def begin(key: jax.Array, context: jax.Array) -> Tree:
        return DualEncoder(items, width).init(key, context, context[:, 0])["params"]

    def init(key: jax.Array, examples: Tree) -> Tree:
        return begin(key, jnp.asarray(examples.x[:1]))

    def towers(params: Tree, context: jax.Array, item: jax.Array) -> Any:
        # flax insists on the shapes of `init`; a client may hold fewer rows than the server.
        module = DualEncoder(len(params["table"]), width)
        return module.apply({"params": params}, context, item)

    def hinge(cosine: jax.Array) -> jax.Array:
        return jnp.maximum(margin - cosine, 0) ** 2

    def loss(params: Tree, batch: Tree) -> jax.Array:
        context, label = towers(params, batch.x, batch.y)
        return hinge(jnp.sum(context * label, axis=1))

    def metrics(params: Tree, batch: Tree) -> dict[str, jax.Array]:
        context, everything = towers(params, batch.x, jnp.arange(len(params["table"])))
        cosines = context @ everything.T
        own = jnp.take_along_axis(cosines, batch.y[:, None], axis=1)
        # The item itself included.
        at_least_as_near = jnp.sum(cosines[:, PADDING + 1 :] >= own, axis=1)
        losses = hinge(own[:, 0])
        return {"loss": losses, "recall_at_10": (at_least_as_near <= 10).astype(losses.dtype)}

    def check(examples: Tree) -> None:
        for what, given, least in (("x", examples.x, PADDING), ("y", examples.y, PADDING + 1)):
            ids = np.asarray(given)
            if not np.issubdtype(ids.dtype, np.integer):
                raise HoldfastError(
                    f"{what}: its type is {ids.dtype}; give ids, whole numbers {least}..{items - 1}.",
                    about=("data",),
                )
            if ids.size and (ids.min() < least or ids.max() >= items):
                raise HoldfastError(
                    f"{what}: found ids {ids.min()}..{ids.max()} but they must lie in "
                    f"{least}..{items - 1} (0 is padding); renumber the items or raise `items`.",
                    about=("model", "items"),
                )

    name = f"DualEncoder(items={items}, width={width}, margin={margin})"
    # Row 0 is padding.
    table = Table("table", fields=("x", "y"), always=(0,))
    return Model(init, loss, metrics, check, name, tables=(table,))


@functools.lru_cache(maxsize=64)
def _spread(model: Model, strength: float) -> Model:
    """The model with both losses on clients."""
    regulariser = Spreadout(strength)

    def loss(params: Tree, batch: Tree) -> jax.Array:
        return model.loss(params, batch) + regulariser(params)

    def metrics(params: Tree, batch: Tree) -> dict[str, jax.Array]:
        found = model.measure(params, batch)
        hinge = found["loss"]
        return found | {"loss": hinge + regulariser(params), "hinge_loss": hinge}

    name = f"{model.name} with spreadout({strength})"
    return dataclasses.replace(model, loss=loss, metrics=metrics, name=name, tables=())


class Spreadout(Struct):
    """What `spreadout` returns: a loss of the parameters alone, equal for equal settings."""

    strength: float
    skip_padding: bool = static(default=False)

    def __call__(self, params: Tree) -> jax.Array:
        items = params["table"][PADDING + 1 :] if self.skip_padding else params["table"]
        return self.strength * _off_diagonal_norm(_direction(items))


@explain_arguments
def spreadout(strength: float, skip_padding: bool = False) -> Spreadout:
    r"""Pushes the items of a `dual_encoder` apart; made for the server, as it needs no examples.

    With $N$ the table, its rows scaled to length 1,

    $$ \lambda\, \big\| N N^\top - \mathrm{diag}(N N^\top) \big\|_F $$

    Args:
        strength: $\lambda$.
        skip_padding: leave out row 0, which is no item.

    Example:
        >>> import holdfast as hf
        >>> import jax.numpy as jnp
        >>> table = jnp.array([[1.0, 0.0], [0.0, 2.0], [0.0, 3.0]])  # the last two point the same way
        >>> print(f"{hf.models.spreadout(strength=0.1)({'table': table}):.4f}")
        0.1414

    Reference: Zhang et al., "Learning spread-out local feature descriptors", ICCV 2017.
    """
    return Spreadout(strength, skip_padding)


def _off_diagonal_norm(directions: jax.Array) -> jax.Array:
    """Frobenius norm of all cosines between different rows; zero has a finite gradient too."""
    rows, width = directions.shape
    if rows < 2 * width:
        cosines = directions @ directions.T
        square = jnp.sum(jnp.where(jnp.eye(rows, dtype=bool), 0, cosines) ** 2)
    else:
        # |N N^T| = |N^T N|, a small matrix: 60 times faster for MovieLens. Of |N^T N|^2, which is at
        # least rows^2/width, at most a half is subtracted here, so no digits are lost.
        lengths = jnp.sum(directions**2, axis=1)
        square = jnp.sum((directions.T @ directions) ** 2) - jnp.sum(lengths**2)
    return jnp.where(square > 0, jnp.sqrt(jnp.where(square > 0, square, 1)), 0)
