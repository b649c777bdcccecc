"""A module's parameters as the tree that rules and wires know, and back."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import tree

from holdfast.errors import HoldfastError
from holdfast.torch.library import library
from holdfast.trees import Tree

_TYPES = ("float32", "float64")


@dataclasses.dataclass(frozen=True)
class Parameters:
    """Which parameter of a module is which leaf of a tree.

    Args:
        definition: the structure of the tree.
        names: of the module's parameters, one for each leaf.
        axes: for each leaf the order of the parameter's axes in it; empty if it is the parameter's own.
    """

    definition: Any
    names: tuple[str, ...]
    axes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, module: Any) -> "Parameters":
        """By the names that the module gives them: `0.weight` is `{"0": {"weight": ...}}`."""
        nested: dict[str, Any] = {}
        for name in trained(module):
            *above, own = name.split(".")
            inside = nested
            for word in above:
                inside = inside.setdefault(word, {})
            inside[own] = name
        names, definition = tree.flatten(nested)
        return cls(definition, tuple(names), ((),) * len(names))

    def tensors(self, params: Tree, device: Any) -> list[Any]:
        """The leaves of a tree like the model, each as its parameter lies."""
        return self.of_leaves(self.definition.flatten_up_to(params), device)

    def of_leaves(self, leaves: Sequence[Any], device: Any) -> list[Any]:
        """The same of a list of leaves."""
        return [
            tensor(leaf, device).permute(tuple(np.argsort(axes))) if axes else tensor(leaf, device)
            for leaf, axes in zip(leaves, self.axes, strict=True)
        ]

    def leaves(self, tensors: Sequence[Any]) -> list[np.ndarray]:
        """Parameters, or what lies as they do, as leaves of the tree."""
        return [
            array(t.permute(axes) if axes else t)
            for t, axes in zip(tensors, self.axes, strict=True)
        ]

    def tree(self, tensors: Sequence[Any]) -> Tree:
        """The same as a tree of JAX's arrays."""
        return self.definition.unflatten([jax.device_put(a) for a in self.leaves(tensors)])

    def of_module(self, module: Any, dtype: Any = None) -> Tree:
        """The values a module has, in its own type unless another is given."""
        found = dict(module.named_parameters())
        leaves = self.leaves([found[name] for name in self.names])
        cast = [a if dtype is None else a.astype(dtype) for a in leaves]
        return self.definition.unflatten([jax.device_put(a) for a in cast])

    def by_name(self, tensors: Sequence[Any]) -> dict[str, Any]:
        """Parameters as `torch.func.functional_call` takes them."""
        return dict(zip(self.names, tensors, strict=True))


def trained(module: Any) -> Mapping[str, Any]:
    """The parameters that local steps change: those that require a gradient."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def tensor(given: Any, device: Any) -> Any:
    """An array as a tensor of its own; whole numbers in 64 bits, as PyTorch's labels and indices are."""
    a = np.asarray(given)
    if np.issubdtype(a.dtype, np.integer):
        a = a.astype(np.int64)
    return library().tensor(a, device=device)


def array(given: Any) -> np.ndarray:
    """A tensor as an array of its own."""
    return np.array(given.detach().cpu().numpy())


def check(module: Any, owner: str) -> None:
    """Refuse a module that clients could not agree on, or that JAX has no numbers for."""
    torch = library()
    if not isinstance(module, torch.nn.Module):
        raise HoldfastError(
            f"{owner}: module is a {type(module).__name__}; give a torch.nn.Module, or a function "
            f"without arguments that makes one.",
            about=("module",),
        )
    kept = [name for name, _ in module.named_buffers()]
    if kept:
        raise HoldfastError(
            f"{owner}: the module keeps buffers beside its parameters, {', '.join(kept[:3])}, which clients "
            f"could not agree on; use GroupNorm or LayerNorm instead of BatchNorm.",
            about=("module",),
        )
    if not trained(module):
        raise HoldfastError(
            f"{owner}: the module has no parameters that require a gradient; give one that learns.",
            about=("module",),
        )
    for name, p in module.named_parameters():
        kind = str(p.dtype).removeprefix("torch.")
        if p.requires_grad and kind not in _TYPES:
            raise HoldfastError(
                f"{owner}: the parameter `{name}` is of type {kind}; give float32 or float64, as "
                f"module.float() makes it.",
                about=("module",),
            )
        if type(p) is not torch.nn.Parameter:
            raise HoldfastError(
                f"{owner}: the parameter `{name}` is a {type(p).__name__}, whose shape is not known yet; "
                f"call the module once before.",
                about=("module",),
            )
