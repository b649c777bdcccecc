"""An `nn.Module` and a loss as an `hf.Model`."""

import copy
import dataclasses
import functools
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import jax
import numpy as np
from jax import tree

from holdfast.errors import HoldfastError, explain_arguments
from holdfast.models.model import Model, supervised
from holdfast.record.identity import describe, digest
from holdfast.torch.bridge import Bridge, bridge_of, seed_of
from holdfast.torch.engine import Engine
from holdfast.torch.library import library
from holdfast.torch.parameters import Parameters, check
from holdfast.trees import Tree, describe_shapes, signature

Loss: TypeAlias = Literal["cross_entropy"] | Callable[[Any, Any], Any]


@explain_arguments
def model(module: Any, loss: Loss = "cross_entropy", classes: int | None = None) -> Model:
    """An `nn.Module`, to be trained by any method of the library.

    Rules and wires see its parameters as a tree by their own names, `0.weight` as
    `{"0": {"weight": ...}}`; PyTorch takes the local steps, the gradients and the measurements. Local
    steps run the module in training mode, with random numbers that follow from the run's seed;
    measurements in evaluation mode. Parameters that require no gradient stay with the module and do not
    travel. Runs begin at the module's own values.

    Args:
        module: maps a batch of `x` to predictions. It keeps no buffers: no batch normalisation. Or a
            function without arguments that makes such a module: then every seed begins at its own.
        loss: `"cross_entropy"`, or a function `(predictions, y) -> one value per example` of tensors,
            such as `torch.nn.MSELoss(reduction="none")`.
        classes: number of classes, if predictions are logits.

    Example:
        >>> import holdfast as hf
        >>> import holdfast.torch
        >>> import torch
        >>> train, test = hf.data.digits()
        >>> clients = hf.data.partition.dirichlet(train, clients=5, concentration=0.3)
        >>> _ = torch.manual_seed(0)
        >>> module = torch.nn.Sequential(
        ...     torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)
        ... )
        >>> run = hf.simulate(
        ...     hf.algorithms.scaffold(),
        ...     holdfast.torch.model(module, classes=10),
        ...     clients,
        ...     hf.Local(learning_rate=0.1, batch_size=32),
        ...     rounds=2,
        ...     evaluate=hf.evaluate.on(test),
        ... )
        >>> run.history.columns[:3], run.params["2"]["weight"].shape
        (['round', 'loss', 'accuracy'], (10, 32))
    """
    torch = library()
    builds = callable(module) and not isinstance(module, torch.nn.Module)
    made = _built(module, 0) if builds else module
    check(made, "model")
    loss_of, said = loss_function("model", classes, loss), loss_in_words(loss)
    words = f"{module_in_words(made)} with {said}"
    bridge = Bridge(made, loss_of, name=type(made).__name__, said=words)
    begin = _drawn(bridge, module) if builds else _as_it_is(bridge)
    return of_bridge(bridge, begin, classes)


@explain_arguments
def module(model: Model, params: Tree) -> Any:
    """A module with these parameters: what `run.params` or `run.personal(client)` is in PyTorch.

    Args:
        model: of `holdfast.torch.model` or `holdfast.torch.like`.
        params: its parameters.

    Example:
        >>> import holdfast.torch
        >>> import torch
        >>> model = holdfast.torch.model(torch.nn.Linear(2, 3), classes=3)
        >>> ones = {"weight": torch.ones(3, 2).numpy(), "bias": torch.zeros(3).numpy()}
        >>> holdfast.torch.module(model, ones)(torch.ones(1, 2)).tolist()
        [[2.0, 2.0, 2.0]]
    """
    bridge = bridge_of(model)
    if bridge is None:
        raise HoldfastError(
            "module: the model is not one of PyTorch; give what holdfast.torch.model or holdfast.torch.like "
            "returned.",
            about=("model",),
        )
    parameters = bridge.parameters
    found = copy.deepcopy(bridge.module).eval()
    given, wanted = (signature(p) for p in (params, parameters.of_module(found)))
    if given[0] != wanted[0] or [s for s, _ in given[1]] != [s for s, _ in wanted[1]]:
        raise HoldfastError(
            f"module: params is {describe_shapes(params)}; give parameters of this model.",
            about=("params",),
        )
    own = dict(found.named_parameters())
    with library().no_grad():
        for name, value in zip(
            parameters.names, parameters.tensors(params, bridge.device), strict=True
        ):
            own[name].data = value.contiguous()
    return found


def of_bridge(
    bridge: Bridge, begin: Callable[[jax.Array, Any], Tree], classes: int | None
) -> Model:
    """The model of a module whose parameters begin so."""
    found = supervised(begin, bridge.outputs, bridge.name, classes, bridge.losses_of)
    measure: Any = found.metrics

    def metrics(params: Tree, batch: Tree) -> dict[str, jax.Array]:
        # In the types that a compiled program would have them in.
        return measure(params, tree.map(jax.numpy.asarray, batch))

    return dataclasses.replace(
        found,
        loss=bridge.losses,
        metrics=metrics,
        check=functools.partial(_check_examples, found.check),
        engine=Engine(),
    )


def _check_examples(labels: Callable[[Tree], None] | None, examples: Tree) -> None:
    fields = tuple(getattr(examples, "_fields", ()))
    if set(fields) != {"x", "y"} or any(len(tree.leaves(part)) != 1 for part in examples):
        raise HoldfastError(
            f"examples: their fields are {', '.join(fields) or 'not named'}; give a module of PyTorch "
            f"hf.Examples(x, y) of one array each.",
            about=("data",),
        )
    if labels is not None:
        labels(examples)


def _values(bridge: Bridge, module: Any, x: Any) -> Tree:
    """As all models begin: in the type of the data, if that is one of numbers with a point."""
    floating = jax.numpy.issubdtype(x.dtype, np.floating)
    return bridge.parameters.of_module(module, x.dtype if floating else None)


def _as_it_is(bridge: Bridge) -> Callable[[jax.Array, Any], Tree]:
    def begin(key: jax.Array, x: Any) -> Tree:
        return _values(bridge, bridge.module, x)

    return begin


def _drawn(bridge: Bridge, build: Callable[[], Any]) -> Callable[[jax.Array, Any], Tree]:
    def begin(key: jax.Array, x: Any) -> Tree:
        # Where only shapes are asked for there is no seed.
        if isinstance(key, jax.core.Tracer):
            return _values(bridge, bridge.module, x)
        module = _built(build, seed_of(jax.random.key_data(key).tolist()))
        check(module, "model")
        if Parameters.of(module) != bridge.parameters:
            raise HoldfastError(
                "model: the function makes another module every time; let all have the same parameters.",
                about=("module",),
            )
        return _values(bridge, module, x)

    return begin


def _built(build: Callable[[], Any], seed: int) -> Any:
    torch = library()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build()


def loss_function(owner: str, classes: int | None, loss: Loss) -> Callable[[Any, Any], Any]:
    """A loss per example of predictions and labels."""
    if callable(loss):
        return loss
    if loss != "cross_entropy":
        raise HoldfastError(
            f"{owner}: loss={loss!r}; give 'cross_entropy' or a function of predictions and y.",
            about=("loss",),
        )
    if classes is None or classes < 2:
        raise HoldfastError(
            f"{owner}: loss='cross_entropy' and classes={classes}; give the number of classes, at least 2, "
            f"or as loss a function of predictions and y.",
            about=("classes",),
        )
    return functools.partial(library().nn.functional.cross_entropy, reduction="none")


def module_in_words(module: Any) -> str:
    """What a module is, equal in any process: its layers, code that is not PyTorch's, and what is fixed."""
    text = " ".join(repr(module).split())
    own = {type(part) for part in module.modules() if not _is_of_torch(type(part))}
    code = sorted(describe(vars(kind)["forward"]) for kind in own if "forward" in vars(kind))
    fixed = {
        n: p.detach().cpu().numpy() for n, p in module.named_parameters() if not p.requires_grad
    }
    more = [*code, *([f"fixed {digest(fixed)}"] if fixed else [])]
    return " ".join([text, *more])


def loss_in_words(loss: Loss) -> str:
    """The same of a loss, of which PyTorch's own say little by themselves."""
    torch = library()
    if not isinstance(loss, torch.nn.Module):
        return describe(loss)
    settings = {name: getattr(loss, name, None) for name in getattr(loss, "__constants__", ())}
    values = {name: t.detach().cpu().numpy() for name, t in loss.state_dict().items()}
    return f"{module_in_words(loss)} {describe(settings)} {digest(values)}"


def _is_of_torch(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "torch"
