"""One tree for two frameworks: a module that has the parameters of a model of JAX's."""

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np
from jax import tree

from holdfast.data.clients import count
from holdfast.errors import HoldfastError, explain_arguments
from holdfast.models.model import Model
from holdfast.torch.bridge import Bridge
from holdfast.torch.library import library
from holdfast.torch.models import Loss, loss_function, loss_in_words, module_in_words, of_bridge
from holdfast.torch.parameters import Parameters, check, trained
from holdfast.trees import Tree, paths

# Examples on which the two are compared, and how far apart their losses may be, relative to 1 + |loss|.
_COMPARED = 16
_TOLERANCE = 1e-4
# What layers of flax call what PyTorch calls `weight`.
_WEIGHTS = ("kernel", "scale", "embedding", "weight", "weights")


@explain_arguments
def like(
    model: Model,
    examples: Tree,
    module: Any,
    loss: Loss = "cross_entropy",
    classes: int | None = None,
    names: Mapping[str, str] | None = None,
) -> Model:
    """A module with the parameters of a model of JAX's, so that sites with either exchange one tree.

    Its parameters have the names and the layout of the model: a `Linear` layer's weight is the `kernel` of a
    dense layer, transposed; a `Conv2d` layer's has its axes in the order of flax. Layers are paired by the
    shapes of their parameters. That both compute the same is checked on some of the examples.

    Args:
        model: a model of JAX's, such as `hf.models.mlp([32], classes=10)`. Runs begin as with it.
        examples: data that both can take, such as the training set.
        module: the same network as an `nn.Module`.
        loss: as of `holdfast.torch.model`.
        classes: number of classes, if predictions are logits.
        names: which layer of the module is which of the model, `{"0": "hidden_0", "2": "classifier"}`, where
            shapes leave a choice.

    Example:
        >>> import holdfast as hf
        >>> import holdfast.torch
        >>> import jax
        >>> import torch
        >>> train, _ = hf.data.digits()
        >>> module = torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.ReLU(), torch.nn.Linear(8, 10))
        >>> same = holdfast.torch.like(hf.models.mlp([8], classes=10), train, module, classes=10)
        >>> params = same.init(jax.random.key(0), train)
        >>> params["hidden_0"]["kernel"].shape, module[0].weight.shape
        ((64, 8), torch.Size([8, 64]))
    """
    check(module, "like")
    if model.engine is not None:
        raise HoldfastError(
            f"like: {model.name} is a model of PyTorch already; give one of JAX's.",
            about=("model",),
        )
    params = model.init(jax.random.key(0), examples)
    parameters = _paired(params, module, names)
    words = f"{module_in_words(module)} with {loss_in_words(loss)} as {model.name} {names or ''}"
    bridge = Bridge(
        module, loss_function("like", classes, loss), parameters, type(module).__name__, words
    )
    made = of_bridge(bridge, lambda key, x: model.init(key, _Inputs(x)), classes)
    _compare(model, bridge, params, examples)
    return made


class _Inputs:
    """Examples of which only the inputs are looked at."""

    def __init__(self, x: Any) -> None:
        self.x = x


def _paired(params: Tree, module: Any, names: Mapping[str, str] | None) -> Parameters:
    """For every leaf of the model the module's parameter, by names or by shapes."""
    leaves, definition = tree.flatten(params)
    theirs = dict(zip(paths(params), leaves, strict=True))
    ours = trained(module)
    places = _places(module)
    layers: dict[str, list[str]] = {}
    for name in ours:
        layers.setdefault(name.rpartition(".")[0], []).append(name)
    groups: dict[str, list[str]] = {}
    for path in theirs:
        groups.setdefault(path.rpartition("/")[0], []).append(path)

    def pair(layer: str, group: str) -> dict[str, str] | None:
        """Of the leaves of a group the parameters of a layer; None if they do not fit."""
        if len(layers[layer]) != len(groups[group]):
            return None
        found = {}
        for name in layers[layer]:
            own = name.rpartition(".")[2]
            words = _WEIGHTS if own == "weight" else (own,)
            path = next((p for p in groups[group] if p.rpartition("/")[2] in words), None)
            shape = tuple(ours[name].shape)
            laid = tuple(shape[a] for a in places.get(name, ())) or shape
            if path is None or tuple(theirs[path].shape) != laid:
                return None
            found[path] = name
        return found

    chosen = _chosen(layers, groups, pair, names)
    found: dict[str, str] = {}
    for layer, group in chosen.items():
        found |= pair(layer, group) or {}
    order = tuple(found[path] for path in theirs)
    return Parameters(definition, order, tuple(places.get(name, ()) for name in order))


def _chosen(
    layers: Mapping[str, Any], groups: Mapping[str, Any], pair: Any, names: Mapping[str, str] | None
) -> dict[str, str]:
    """Which layer is which group: as given, or the only way that fits."""
    if names is not None:
        wrong = set(names) != set(layers) or sorted(names.values()) != sorted(groups)
        odd = [(a, b) for a, b in names.items() if not wrong and pair(a, b) is None]
        if wrong or odd:
            raise HoldfastError(
                f"like: names={dict(names)}; give each layer of the module ({', '.join(layers)}) one of the "
                f"model with parameters of its shapes ({', '.join(groups)}).",
                about=("names",),
            )
        return dict(names)
    ways = list(itertools.islice(_ways(list(layers), list(groups), pair), 2))
    if len(ways) != 1:
        what = "no way" if not ways else "several ways"
        raise HoldfastError(
            f"like: there is {what} to pair the module's layers {', '.join(layers)} with the model's "
            f"{', '.join(groups)} by their shapes; give the same network, and names={{'layer': 'of the "
            f"model'}} where shapes repeat.",
            about=("names",),
        )
    return ways[0]


def _ways(layers: list[str], groups: list[str], pair: Any) -> Iterator[dict[str, str]]:
    if not layers and not groups:
        yield {}
        return
    for group in groups if layers else ():
        if pair(layers[0], group) is not None:
            for rest in _ways(layers[1:], [g for g in groups if g != group], pair):
                yield {layers[0]: group, **rest}


def _places(module: Any) -> dict[str, tuple[int, ...]]:
    """In which order JAX has the axes of the parameters, where it has another."""
    torch = library()
    orders = {
        torch.nn.Linear: (1, 0),
        torch.nn.Conv1d: (2, 1, 0),
        torch.nn.Conv2d: (2, 3, 1, 0),
        torch.nn.Conv3d: (2, 3, 4, 1, 0),
    }
    found = {}
    for prefix, part in module.named_modules():
        order = next((axes for kind, axes in orders.items() if isinstance(part, kind)), None)
        if order is not None:
            found[f"{prefix}.weight".removeprefix(".")] = order
    return found


def _compare(model: Model, bridge: Bridge, params: Tree, examples: Tree) -> None:
    """Refuse a module that puts out something else, as one does that flattens images in another order."""
    few = tree.map(lambda a: np.asarray(a)[: min(_COMPARED, count(examples))], examples)
    # At other values than those of the start: biases begin at zero, and many networks then agree.
    rng = np.random.default_rng(0)
    moved = tree.map(lambda p: np.asarray(p) + rng.normal(0, 0.1, p.shape).astype(p.dtype), params)
    try:
        theirs, ours = (
            model.losses(moved, tree.map(jax.numpy.asarray, few)),
            bridge.losses(moved, few),
        )
    except HoldfastError:
        raise
    # Whatever the module raises.
    except Exception as error:
        raise HoldfastError(
            f"like: the module cannot take these examples: {str(error).splitlines()[0]}; give the same "
            f"network, for the same inputs.",
            about=("module",),
        ) from None
    apart = float(np.max(np.abs(theirs - ours) / (1 + np.abs(theirs))))
    if not apart <= _TOLERANCE:
        raise HoldfastError(
            f"like: with the same parameters the losses of module and model are {apart:.2g} apart; give the "
            f"same network and loss (images lie as height, width, channels, and are flattened so), or names.",
            about=("module",),
        )
