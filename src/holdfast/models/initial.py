"""How parameters begin: as flax draws them, as PyTorch does, or at zero."""

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias, get_args

import jax
import jax.numpy as jnp
from jax import tree

from holdfast.errors import HoldfastError, explain_arguments
from holdfast.models.constructor import rebuildable
from holdfast.models.model import Model
from holdfast.trees import Tree

Init: TypeAlias = Literal["flax", "torch", "zeros"]


@explain_arguments
@rebuildable
def initialised(model: Model, init: Init) -> Model:
    r"""The model with another start. All of `hf.models` that take `init` are made by it.

    - `"flax"`: as the model is. In the networks of `hf.models` kernels are LeCun normal, recurrent ones
      orthogonal, and biases zero.
    - `"torch"`: PyTorch's default, which most papers' figures rest on. Kernels and biases of dense layers
      and convolutions are uniform in $\pm 1/\sqrt{\text{fan in}}$, all of an LSTM or GRU in
      $\pm 1/\sqrt{\text{width}}$ (where PyTorch has two biases and here there is their sum, the sum of
      two such), embeddings standard normal; normalisations begin at scale 1 and bias 0.
    - `"zeros"`: every parameter is 0. Made for models with one layer: in a network with hidden layers
      all gradients but that of the last bias stay zero too.

    Args:
        model: one whose parameters have the names of flax: `kernel`, `bias`, `scale`, `embedding`.
        init: one of these.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> train, test = hf.data.digits()
        >>> model = hf.models.initialised(hf.models.mlp([32], classes=10), "torch")
        >>> params = model.init(jax.random.key(0), train)
        >>> # The bound is 1/sqrt(64) in the first layer.
        >>> print(f"{abs(params['hidden_0']['kernel']).max():.3f}")
        0.125
    """
    if init not in get_args(Init):
        known = ", ".join(repr(name) for name in get_args(Init))
        raise HoldfastError(f"init={init!r} is not known; give one of {known}.", about=("init",))
    return model if init == "flax" else _initialised(model, init)


@functools.lru_cache(maxsize=64)
def _initialised(model: Model, init: Init) -> Model:
    def begin(key: jax.Array, examples: Tree) -> Tree:
        few = tree.map(lambda a: a[:1], examples)
        like = jax.eval_shape(model.init, key, few)
        if init == "zeros":
            return tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), like)
        leaves, structure = tree.flatten(like)
        # Inside another program, or where shapes alone are asked for, it is no program of its own.
        draw = _draw if isinstance(key, jax.core.Tracer) else _compiled
        return draw(key, structure, tuple((leaf.shape, leaf.dtype) for leaf in leaves))

    return dataclasses.replace(model, init=begin, name=f"initialised({model.name}, {init})")


def _draw(key: jax.Array, structure: Any, types: tuple[tuple[tuple[int, ...], Any], ...]) -> Tree:
    like = structure.unflatten([jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in types])
    keys = structure.unflatten(list(jax.random.split(key, len(types))))
    drawn = _layer(keys, like, "")
    # Drawn in 32 bits and then in the type of the data: the same start in any precision.
    return tree.map(lambda p, leaf: p.astype(leaf.dtype), drawn, like)


# A program that runs once, as `begun_in_32_bits` says.
_compiled = jax.jit(
    _draw, static_argnums=(1, 2), compiler_options={"xla_backend_optimization_level": 1}
)


def _layer(keys: Tree, like: Tree, path: str) -> Tree:
    """The parameters of a layer and of the layers in it."""
    if not isinstance(like, Mapping):
        raise _unknown(path)
    # The inputs' layer of a recurrent one is bounded by the state's width, as all of it is.
    recurrent = {"input", "recurrent", "candidate_bias"} if "recurrent" in like else set()
    inside = {name: leaf for name, leaf in like.items() if name in recurrent}
    found = _recurrent(keys, inside) if recurrent else {}
    for name, part in like.items():
        if name in recurrent:
            continue
        where = f"{path}/{name}" if path else name
        if isinstance(part, Mapping):
            found[name] = _layer(keys[name], part, where)
        else:
            found[name] = _leaf(keys[name], name, part.shape, like, where)
    return {name: found[name] for name in like}


def _leaf(
    key: jax.Array, name: str, shape: tuple[int, ...], layer: Mapping[str, Any], path: str
) -> jax.Array:
    if name in ("kernel", "weights") or (name in ("bias", "intercept") and "scale" not in layer):
        weights = layer.get("kernel", layer.get("weights"))
        if weights is None:
            raise _unknown(path)
        # A kernel's last axis is its output; the weights of one output have none.
        fan_in = math.prod(weights.shape[:-1] if "kernel" in layer else weights.shape)
        return _uniform(key, shape, fan_in)
    if name in ("embedding", "table"):
        return jax.random.normal(key, shape, jnp.float32)
    if name in ("scale", "bias"):
        return jnp.full(shape, float(name == "scale"), jnp.float32)
    raise _unknown(path)


def _recurrent(keys: Tree, like: Mapping[str, Any]) -> dict[str, Any]:
    width = like["recurrent"].shape[0]
    kernel, bias = like["input"]["kernel"], like["input"]["bias"]
    first, second = jax.random.split(keys["input"]["bias"])
    both = _uniform(first, bias.shape, width)
    # Of PyTorch's two biases the one of the state is a parameter of its own in a GRU's candidate.
    alone = width if "candidate_bias" in like else 0
    added = _uniform(second, (bias.shape[0] - alone,), width)
    found: dict[str, Any] = {
        "input": {
            "kernel": _uniform(keys["input"]["kernel"], kernel.shape, width),
            "bias": both + jnp.pad(added, (0, alone)),
        },
        "recurrent": _uniform(keys["recurrent"], like["recurrent"].shape, width),
    }
    if alone:
        found["candidate_bias"] = _uniform(keys["candidate_bias"], (width,), width)
    return found


def _uniform(key: jax.Array, shape: tuple[int, ...], fan_in: int) -> jax.Array:
    bound = 1 / math.sqrt(fan_in)
    return jax.random.uniform(key, shape, jnp.float32, minval=-bound, maxval=bound)


def _unknown(path: str) -> HoldfastError:
    return HoldfastError(
        f"init='torch': the parameter `{path}` has none of the names kernel, bias, scale, embedding, so "
        f"its initialisation is not known; take init='flax', or write the model's init yourself.",
        about=("init",),
    )
