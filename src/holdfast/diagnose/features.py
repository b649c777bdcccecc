"""What a model's layers make of a batch: one row of features per example and layer."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.errors import HoldfastError
from holdfast.models.model import Model
from holdfast.trees import Tree, layers

# (params, batch) -> by name, an array with one row per example.
Features = Callable[[Tree, Tree], Mapping[str, jax.Array]]
_FEW = 2  # examples, to find out which layers are called
OUTPUT = "output"  # what the model puts out, where it has no layers with names


def features_of(model: Model, params: Tree, batch: Tree) -> Features:
    """The outputs of the model's layers, from the first to the last that is called.

    Found while the model runs, whatever wraps it: layers are the Flax modules that have parameters.
    """
    if model.output is None:
        raise HoldfastError(
            f"cka: {model.name} does not say what its layers put out; give features=lambda params, batch: "
            f"{{'name': array}}, with one row per example.",
            about=("features",),
        )
    names = _layers_called(model, _Like.of(params), _Like.of(batch))
    return LayerOutputs(model, names)


@dataclasses.dataclass(frozen=True)
class LayerOutputs:
    """What these layers of a model put out; equal ones share their program."""

    model: Model
    names: tuple[str, ...]

    def __call__(self, params: Tree, batch: Tree) -> dict[str, jax.Array]:
        """One row per example; a layer that is called several times has its outputs side by side."""
        found = _called(self.model, params, batch)
        return {name: _side_by_side(found[name]) for name in self.names}


def _side_by_side(outputs: list[Any]) -> jax.Array:
    return jnp.concatenate([a.reshape(a.shape[0], -1) for a in outputs], axis=1)


class _Like(NamedTuple):
    """Shapes of a tree as a value with a hash."""

    structure: Any
    leaves: tuple[tuple[tuple[int, ...], Any], ...]

    @classmethod
    def of(cls, u: Tree) -> "_Like":
        leaves, structure = tree.flatten(u)
        return cls(structure, tuple((tuple(a.shape), jnp.dtype(a.dtype)) for a in leaves))

    def shapes(self, rows: int | None = None) -> Tree:
        """Such a tree, of shapes; with so many rows, if they are given."""
        shapes = (((rows, *s[1:]) if rows else s, t) for s, t in self.leaves)
        return self.structure.unflatten([jax.ShapeDtypeStruct(s, t) for s, t in shapes])


@functools.lru_cache(maxsize=64)
def _layers_called(model: Model, params: _Like, batch: _Like) -> tuple[str, ...]:
    """Names of the layers whose outputs can be had, in the order in which they are called."""
    names: list[str] = []

    def outputs(params: Tree, batch: Tree, only: str | None = None) -> Tree:
        found = _called(model, params, batch)
        names[:] = [n for n, made in found.items() if all(map(_is_one_per_example, made))]
        return {n: _side_by_side(found[n]) for n in names if only in (None, n)}

    given = params.shapes(), batch.shapes(_FEW)
    try:
        jax.eval_shape(outputs, *given)
        return tuple(names)
    # What is called within a loop of JAX has no value outside of it, and is left out.
    except jax.errors.UnexpectedTracerError:
        return tuple(n for n in list(names) if _can_be_had(outputs, given, n))


def _can_be_had(outputs: Any, given: tuple[Tree, Tree], name: str) -> bool:
    try:
        jax.eval_shape(functools.partial(outputs, only=name), *given)
    except jax.errors.UnexpectedTracerError:
        return False
    return True


def _called(model: Model, params: Tree, batch: Tree) -> dict[str, list[Any]]:
    """By layer, everything it put out while the model ran."""
    known, found = layers(params), dict[str, list[Any]]()

    def note(proceed: Any, args: Any, kwargs: Any, context: Any) -> Any:
        made = proceed(*args, **kwargs)
        name = "/".join(context.module.path)
        if context.method_name == "__call__" and name in known:
            found.setdefault(name, []).append(made)
        return made

    assert model.output is not None
    with nn.intercept_methods(note):
        output = model.output(params, batch)
    return found or {OUTPUT: [output]}


def _is_one_per_example(a: Any) -> bool:
    return hasattr(a, "shape") and a.ndim >= 1 and a.shape[0] == _FEW


def _gram(features: Features, params: Tree, batch: Tree) -> dict[str, jax.Array]:
    """By layer, products of every two examples' centred features."""

    def one(rows: Any) -> jax.Array:
        flat = jnp.asarray(rows).reshape(len(rows), -1)
        centred = flat - jnp.mean(flat, axis=0, keepdims=True)
        return jnp.matmul(centred, centred.T, precision=jax.lax.Precision.HIGHEST)

    return {name: one(rows) for name, rows in features(params, batch).items()}


# One program: a layer's features are gone when its products are known, and never leave the device.
_compiled_gram = jax.jit(_gram, static_argnums=0)


def grams(features: Features, params: Tree, batch: Tree) -> dict[str, np.ndarray]:
    """The same on the host: n x n numbers per layer for n examples."""
    found = jax.device_get(_compiled_gram(features, params, batch))
    # A program sorts names; layers are in the order in which they are called.
    names = features.names if isinstance(features, LayerOutputs) else tuple(found)
    return {name: np.asarray(found[name]) for name in names}
