"""Models of other libraries, and any pair of functions, as a `Model`."""

import contextlib
import functools
import importlib
import inspect
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeAlias

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax import tree

from holdfast.errors import HoldfastError, explain_arguments
from holdfast.models.model import (
    Model,
    begun_in_32_bits,
    cross_entropy,
    linen_model,
    mode_arguments,
    refuse_state,
    supervised,
    takes_key,
)
from holdfast.trees import Tree, flatten, paths

Loss: TypeAlias = Literal["cross_entropy"] | Callable[[jax.Array, jax.Array], jax.Array]


@explain_arguments
def from_apply(
    init: Callable[..., Tree],
    apply: Callable[..., jax.Array],
    classes: int | None = None,
    loss: Loss = "cross_entropy",
    name: str = "model",
) -> Model:
    """Any pair of functions, one that makes parameters and one that applies them.

    Args:
        init: `(key, x) -> params` for the first inputs of the data, or `key -> params`.
        apply: `(params, x) -> predictions`, or `(params, x, key)` if it draws random numbers; in
            evaluation the key is None.
        classes: number of classes, if predictions are logits.
        loss: `"cross_entropy"`, or a function `(predictions, y) -> one value per example`.
        name: what messages and checkpoints call the model.

    Example:
        >>> import holdfast as hf
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> line = hf.models.from_apply(
        ...     init=lambda key, x: jnp.zeros(x.shape[1]),
        ...     apply=lambda w, x: x @ w,
        ...     loss=lambda found, y: (found - y) ** 2,
        ... )
        >>> # The loss of the only example is (w - 3)**2.
        >>> clients = hf.Clients.from_datasets([hf.Examples(np.array([[1.0]]), np.array([3.0]))])
        >>> local = hf.Local(learning_rate=0.25, steps=2)
        >>> run = hf.simulate(hf.algorithms.fedavg(), line, clients, local, rounds=1)
        >>> run.params.tolist()
        [2.25]
    """
    return _from_apply(init, apply, classes, _loss_of("from_apply", classes, loss), name)


@functools.lru_cache(maxsize=64)
def _from_apply(
    init: Callable[..., Tree],
    apply: Callable[..., jax.Array],
    classes: int | None,
    loss_of: Callable[[jax.Array, jax.Array], jax.Array],
    name: str,
) -> Model:
    def begin(key: jax.Array, x: jax.Array) -> Tree:
        return init(key, x) if takes_key(init, 2) else init(key)

    def predict(params: Tree, x: jax.Array, key: jax.Array | None) -> jax.Array:
        return apply(params, x, key) if takes_key(apply, 3) else apply(params, x)

    return supervised(begin, predict, name, classes, loss_of)


@explain_arguments
def from_linen(
    module: nn.Module, classes: int | None = None, loss: Loss = "cross_entropy"
) -> Model:
    """A Flax Linen module.

    An argument `train`, `training` or `deterministic` of the module's call is given to say whether
    it is trained. In training there is a random stream `"dropout"`, in evaluation none.

    Args:
        module: maps inputs to predictions. It has nothing but parameters: no batch normalisation.
        classes: number of classes, if predictions are logits.
        loss: `"cross_entropy"`, or a function `(predictions, y) -> one value per example`.

    Example:
        >>> import flax.linen as nn
        >>> import holdfast as hf
        >>> import jax
        >>> import numpy as np
        >>> model = hf.models.from_linen(nn.Dense(10), classes=10)
        >>> examples = hf.Examples(np.zeros((1, 64), np.float32), np.zeros(1, int))
        >>> params = jax.eval_shape(model.init, jax.random.key(0), examples)
        >>> jax.tree.map(lambda leaf: leaf.shape, params)
        {'bias': (10,), 'kernel': (64, 10)}
    """
    return linen_model(module, classes, _loss_of("from_linen", classes, loss))


@explain_arguments
def from_nnx(
    build: Callable[[Any], Any], classes: int | None = None, loss: Loss = "cross_entropy"
) -> Model:
    """A Flax NNX module.

    The model's parameters are the module's `nnx.Param`s as nested dictionaries; put them back with
    `nnx.update(module, params)`. In training the module's random streams begin anew from the key of
    each step; in evaluation it is in the mode of `module.eval()`.

    Args:
        build: `nnx.Rngs -> module`, which maps inputs to predictions. It has nothing but parameters
            and random streams: no batch normalisation.
        classes: number of classes, if predictions are logits.
        loss: `"cross_entropy"`, or a function `(predictions, y) -> one value per example`.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import numpy as np
        >>> from flax import nnx
        >>> model = hf.models.from_nnx(lambda rngs: nnx.Linear(64, 10, rngs=rngs), classes=10)
        >>> examples = hf.Examples(np.zeros((1, 64), np.float32), np.zeros(1, int))
        >>> params = jax.eval_shape(model.init, jax.random.key(0), examples)
        >>> jax.tree.map(lambda leaf: leaf.shape, params)
        {'bias': (10,), 'kernel': (64, 10)}
    """
    return _from_nnx(build, classes, _loss_of("from_nnx", classes, loss))


@functools.lru_cache(maxsize=64)
def _from_nnx(
    build: Callable[[Any], Any],
    classes: int | None,
    loss_of: Callable[[jax.Array, jax.Array], jax.Array],
) -> Model:
    # It takes as long to import as the rest of flax, and few need it.
    from flax import nnx

    outline = nnx.eval_shape(lambda: build(nnx.Rngs(0)))
    parts: Any = nnx.split(outline, nnx.Param, nnx.RngState, ...)
    graph, like, streams, others = parts
    name = type(outline).__name__
    refuse_state(name, paths(nnx.to_pure_dict(others)))
    definition: Any = tree.structure(like)

    def begin(key: jax.Array, x: jax.Array) -> Tree:
        return nnx.to_pure_dict(nnx.state(build(nnx.Rngs(key)), nnx.Param))

    def predict(params: Tree, x: jax.Array, key: jax.Array | None) -> Any:
        state = definition.unflatten(tree.leaves(params))
        module: Any = nnx.merge(graph, state, _begun_streams(streams, key))
        (module.eval if key is None else module.train)()
        return module(x)

    return supervised(begun_in_32_bits(begin), predict, name, classes, loss_of)


def _begun_streams(streams: Tree, key: jax.Array | None) -> Tree:
    """NNX's random streams with keys of their own and counters at zero."""
    # In evaluation nothing is drawn.
    key = jax.random.key(0) if key is None else key
    leaves, definition = flatten(streams)

    def begun(number: int, like: Any) -> jax.Array:
        if not jnp.issubdtype(like.dtype, jax.dtypes.prng_key):
            return jnp.zeros(like.shape, like.dtype)
        own = jax.random.fold_in(key, number)
        return jax.random.split(own, like.shape) if like.shape else own

    return definition.unflatten([begun(i, leaf) for i, leaf in enumerate(leaves)])


@explain_arguments
def from_equinox(
    build: Callable[[jax.Array], Any], classes: int | None = None, loss: Loss = "cross_entropy"
) -> Model:
    """An Equinox module, called on one example at a time.

    The model's parameters are the module with its floating-point arrays alone; put them back with
    `eqx.combine(params, module)`. A module whose call takes `key` gets one for every example in
    training; in evaluation it is in the mode of `eqx.nn.inference_mode`.

    Args:
        build: `key -> module`, which maps one example to its prediction. It has no state: no batch
            normalisation.
        classes: number of classes, if predictions are logits.
        loss: `"cross_entropy"`, or a function `(predictions, y) -> one value per example`.

    Example:
        >>> import equinox as eqx  # doctest: +SKIP
        >>> model = hf.models.from_equinox(  # doctest: +SKIP
        ...     lambda key: eqx.nn.MLP(64, 10, width_size=32, depth=1, key=key), classes=10
        ... )
    """
    return _from_equinox(build, classes, _loss_of("from_equinox", classes, loss))


@functools.lru_cache(maxsize=64)
def _from_equinox(
    build: Callable[[jax.Array], Any],
    classes: int | None,
    loss_of: Callable[[jax.Array, jax.Array], jax.Array],
) -> Model:
    eqx = _library("equinox", "from_equinox")
    module = build(jax.random.key(0))
    name = type(module).__name__

    def is_state(part: Any) -> bool:
        return isinstance(part, eqx.nn.StateIndex)

    parts = jax.tree_util.tree_leaves_with_path(module, is_leaf=is_state)
    refuse_state(
        name,
        [
            jax.tree_util.keystr(path, simple=True, separator="/")
            for path, part in parts
            if is_state(part)
        ],
    )
    _, rest = eqx.partition(module, eqx.is_inexact_array)
    takes_random_numbers = "key" in inspect.signature(type(module).__call__).parameters

    def begin(key: jax.Array, x: jax.Array) -> Tree:
        return eqx.filter(build(key), eqx.is_inexact_array)

    def predict(params: Tree, x: jax.Array, key: jax.Array | None) -> jax.Array:
        whole = eqx.combine(params, rest)
        if key is None:
            return jax.vmap(eqx.nn.inference_mode(whole))(x)
        if not takes_random_numbers:
            return jax.vmap(whole)(x)
        keys = jax.random.split(key, len(x))
        return jax.vmap(lambda one, own: whole(one, key=own))(x, keys)

    return supervised(begun_in_32_bits(begin), predict, name, classes, loss_of)


@explain_arguments
def from_haiku(
    function: Callable[..., jax.Array], classes: int | None = None, loss: Loss = "cross_entropy"
) -> Model:
    """A function that calls Haiku modules.

    An argument `train`, `training` or `is_training` of the function is given to say whether it is
    trained; `hk.next_rng_key` and `hk.dropout` may be called in training only.

    Args:
        function: maps inputs to predictions, as given to `hk.transform`. It has no state: no batch
            normalisation.
        classes: number of classes, if predictions are logits.
        loss: `"cross_entropy"`, or a function `(predictions, y) -> one value per example`.

    Example:
        >>> import haiku as hk  # doctest: +SKIP
        >>> model = hf.models.from_haiku(lambda x: hk.Linear(10)(x), classes=10)  # doctest: +SKIP
    """
    return _from_haiku(function, classes, _loss_of("from_haiku", classes, loss))


@functools.lru_cache(maxsize=64)
def _from_haiku(
    function: Callable[..., jax.Array],
    classes: int | None,
    loss_of: Callable[[jax.Array, jax.Array], jax.Array],
) -> Model:
    hk = _library("haiku", "from_haiku")
    pure = hk.transform_with_state(function)
    name = getattr(function, "__name__", type(function).__name__)

    def begin(key: jax.Array, x: jax.Array) -> Tree:
        with _as_lenient_as_haiku():
            params, state = pure.init(key, x, **mode_arguments(function, training=False))
        refuse_state(name, paths(state))
        return params

    def predict(params: Tree, x: jax.Array, key: jax.Array | None) -> jax.Array:
        mode = mode_arguments(function, training=key is not None)
        with _as_lenient_as_haiku():
            found, _ = pure.apply(params, {}, key, x, **mode)
        return found

    return supervised(begun_in_32_bits(begin), predict, name, classes, loss_of)


@contextlib.contextmanager
def _as_lenient_as_haiku() -> Iterator[None]:
    # Haiku's layers mix types and ranks, also for those who have JAX refuse that elsewhere.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def _loss_of(
    owner: str, classes: int | None, loss: Loss
) -> Callable[[jax.Array, jax.Array], jax.Array]:
    if callable(loss):
        return loss
    if loss != "cross_entropy":
        raise HoldfastError(
            f"{owner}: loss={loss!r}; give 'cross_entropy' or a function of predictions and y.",
            about=("loss",),
        )
    if classes is None or classes < 2:
        raise HoldfastError(
            f"{owner}: loss='cross_entropy' and classes={classes}; give the number of classes, at "
            f"least 2, or as loss a function of predictions and y.",
            about=("classes",),
        )
    return cross_entropy


def _library(name: str, owner: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        package = {"haiku": "dm-haiku"}.get(name, name)
        raise HoldfastError(
            f"{owner}: {name} is not installed; install it with `pip install {package}`."
        ) from None
