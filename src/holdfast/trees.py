"""The algebra of models: a model is any pytree of arrays."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.errors import HoldfastError

__all__ = [
    "Array",
    "Mask",
    "Number",
    "Tree",
    "add",
    "axpy",
    "describe_shapes",
    "divided",
    "finite",
    "flatten",
    "float_type",
    "layers",
    "mix",
    "nbytes",
    "neg",
    "norm",
    "paths",
    "resolve_mask",
    "scale",
    "select",
    "signature",
    "sub",
    "zeros",
]

Tree: TypeAlias = Any
# A Python number, or an array without axes.
Number: TypeAlias = Any
Array: TypeAlias = jax.Array | np.ndarray
Mask: TypeAlias = Sequence[bool] | Callable[[str], bool]

add = functools.partial(tree.map, jnp.add)
sub = functools.partial(tree.map, jnp.subtract)
neg = functools.partial(tree.map, jnp.negative)


def zeros(u: Tree) -> Tree:
    """Zeros of the same shapes and types."""
    return tree.map(_zeros_like, u)


def _zeros_like(p: Any) -> Any:
    if isinstance(p, jax.core.Tracer):
        return jnp.zeros_like(p)
    # From the host: JAX's own zeros would be a program to compile for every shape.
    return jax.device_put(np.zeros(np.shape(p), jnp.result_type(p)))


def flatten(u: Tree) -> tuple[list[Any], Any]:
    """Leaves and structure."""
    leaves, definition = tree.flatten(u)
    return leaves, definition


def scale(a: Number, u: Tree) -> Tree:
    """a u, each leaf in its own type."""
    return tree.map(lambda p: (a * p).astype(p.dtype), u)


def axpy(a: Number, u: Tree, v: Tree) -> Tree:
    """a u + v, each leaf in the type of v."""
    return tree.map(lambda p, q: (a * p + q).astype(q.dtype), u, v)


def mix(a: Number, u: Tree, v: Tree) -> Tree:
    """a u + (1 - a) v."""
    return tree.map(lambda p, q: (a * p + (1 - a) * q).astype(p.dtype), u, v)


def divided(u: Tree, by: jax.Array) -> Tree:
    """u / by, and finite also where `by` is 0."""
    safe = jnp.maximum(by, jnp.finfo(by.dtype).tiny)
    return tree.map(lambda a: (a / safe).astype(a.dtype), u)


def norm(u: Tree) -> jax.Array:
    """Euclidean norm over all leaves together."""
    return jnp.sqrt(sum(jnp.vdot(p, p).real for p in tree.leaves(u)))


def finite(u: Tree) -> jax.Array:
    """Whether every number in the tree is finite; an array that is there twice is looked at once."""
    alike: dict[Any, list[jax.Array]] = {}
    for p in {id(p): p for p in tree.leaves(u)}.values():
        # A rule may send a Python number.
        dtype = jnp.result_type(p)
        if jnp.issubdtype(dtype, jnp.inexact):
            # 0 where it is finite, else nan. As `0 p` it made XLA write an array of zeros first.
            alike.setdefault((np.shape(p), dtype), []).append(jnp.subtract(p, p))
    # A sum of numbers, and one for all arrays of a shape: one pass, where `all` took three times as long.
    checks = [jnp.sum(functools.reduce(jnp.add, same)) == 0 for same in alike.values()]
    return functools.reduce(jnp.logical_and, checks, jnp.bool_(True))


def select(condition: jax.Array, u: Tree, v: Tree) -> Tree:
    """u where the condition holds, else v."""
    return tree.map(lambda p, q: jnp.where(condition, p, q), u, v)


def nbytes(u: Tree) -> int:
    """Bytes of all leaves, from their shapes and types."""
    return sum(int(p.size) * jnp.dtype(p.dtype).itemsize for p in tree.leaves(u))


def float_type(u: Tree) -> jnp.dtype:
    """The type in which scalars about this model are kept."""
    return jnp.result_type(*(p.dtype for p in tree.leaves(u)))


def paths(u: Tree) -> list[str]:
    """Names of the leaves, such as `hidden_0/kernel`."""
    return [
        "/".join(str(getattr(k, "key", getattr(k, "idx", getattr(k, "name", k)))) for k in path)
        for path, _ in jax.tree_util.tree_flatten_with_path(u)[0]
    ]


def layers(u: Tree) -> dict[str, tuple[int, ...]]:
    """Names of the layers, with the numbers of their leaves.

    A layer has the leaves whose paths differ in the last part only (`hidden_0/kernel` and `hidden_0/bias`
    are `hidden_0`); a leaf without a part before it is a layer of its own.
    """
    return dict(_layers(tree.structure(u)))


@functools.lru_cache(maxsize=64)
def _layers(structure: Any) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    names = paths(tree.unflatten(structure, range(structure.num_leaves)))
    for number, path in enumerate(names):
        layer = path.rpartition("/")[0] or path
        found[layer] = (*found.get(layer, ()), number)
    return found


def resolve_mask(mask: Mask, like: Tree, owner: str) -> tuple[bool, ...]:
    """One bool per leaf of `like`, from bools or from a function of the leaf's path."""
    names = paths(like)
    if callable(mask):
        return tuple(bool(mask(name)) for name in names)
    if len(mask) != len(names):
        raise HoldfastError(
            f"{owner}: mask has {len(mask)} entries but params has {len(names)} leaves: "
            f"{', '.join(names)}. Give one bool per leaf, or a function of the leaf path."
        )
    return tuple(bool(m) for m in mask)


def signature(u: Tree) -> Any:
    """Structure, shapes and types: equal for trees that can stand in for each other."""
    return tree.structure(u), [(tuple(p.shape), jnp.dtype(p.dtype)) for p in tree.leaves(u)]


def describe_shapes(u: Tree) -> str:
    """Shapes and types, for messages: `x float32(20, 64), y int32(20,)`."""
    leaves = zip(paths(u), tree.leaves(u), strict=True)
    return ", ".join(f"{n} {jnp.dtype(p.dtype).name}{tuple(p.shape)}".strip() for n, p in leaves)
