"""A module and its loss, as functions of arrays: the one place where PyTorch computes."""

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np

from holdfast.errors import HoldfastError
from holdfast.models import foreign
from holdfast.torch.library import library
from holdfast.torch.parameters import Parameters, array, tensor
from holdfast.trees import Tree

Key = jax.Array | None


class Bridge:
    """A module, a loss `(outputs, y) -> one value per example`, and the tree of its parameters.

    Args:
        module: copied, so that nobody else changes it.
        loss: of PyTorch's tensors.
        parameters: which of them is which leaf; by the module's own names unless given.
        name: what messages call it.
        said: what runs are known by.
    """

    def __init__(
        self,
        module: Any,
        loss: Callable[[Any, Any], Any],
        parameters: Parameters | None = None,
        name: str = "module",
        said: str = "module",
    ) -> None:
        self.module, self.loss, self.name, self._said = copy.deepcopy(module), loss, name, said
        if not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
            self.module.float()
        self.parameters = parameters or Parameters.of(self.module)
        self.device = next(self.module.parameters()).device
        self._shapes: dict[Any, Any] = {}

    def __repr__(self) -> str:
        return self._said

    # As PyTorch sees it: tensors, in the order of the leaves.

    def forward(self, tensors: Sequence[Any], x: Any) -> Any:
        """What the module puts out at these parameters."""
        named = self.parameters.by_name(tensors)
        return library().func.functional_call(self.module, named, (x,))

    def each(self, tensors: Sequence[Any], x: Any, y: Any) -> Any:
        """One loss per example; refuses a loss that is a mean of them."""
        found = self.loss(self.forward(tensors, x), y)
        if tuple(found.shape) != (len(x),):
            raise HoldfastError(
                f"{self.name}: the loss of {len(x)} examples has shape {tuple(found.shape)}; return one "
                f"value per example, as torch.nn.CrossEntropyLoss(reduction='none') does.",
                about=("loss",),
            )
        return found

    def gradient(self, tensors: Sequence[Any], x: Any, y: Any, weights: Any = None) -> list[Any]:
        """Of the mean loss by the parameters; or of the losses by these weights."""
        torch = library()
        at = [t.detach().requires_grad_() for t in tensors]
        losses = self.each(at, x, y)
        total = losses.mean() if weights is None else torch.dot(losses, weights.to(losses.dtype))
        found = torch.autograd.grad(total, at, allow_unused=True)
        # A parameter that this batch does not use has no gradient.
        return [torch.zeros_like(t) if g is None else g for g, t in zip(found, at, strict=True)]

    @contextlib.contextmanager
    def mode(self, training: bool) -> Iterator[None]:
        """Training or evaluation; what is drawn inside is drawn from no stream of the process's own."""
        self.module.train(training)
        with library().random.fork_rng(devices=self._cards):
            yield

    def draw_from(self, words: Any) -> None:
        """From here on draw random numbers as the words of a key of JAX's say."""
        torch, seed = library(), seed_of(words)
        # `torch.manual_seed` takes milliseconds: it asks for devices that are not there.
        torch.default_generator.manual_seed(seed)
        if self._cards:
            torch.cuda.manual_seed_all(seed)

    @property
    def _cards(self) -> list[Any]:
        return [self.device] if self.device.type == "cuda" else []

    def tensor(self, given: Any) -> Any:
        """An array where the module is."""
        return tensor(given, self.device)

    # As JAX sees it: trees and arrays, one value per example.

    def losses(self, params: Tree, batch: Tree, key: Key = None) -> jax.Array:
        """One loss per example, which JAX can differentiate by the parameters."""
        leaves = tuple(self.parameters.definition.flatten_up_to(params))
        x, y = (jax.numpy.asarray(a) for a in (batch.x, batch.y))
        seed = () if key is None else (jax.random.key_data(key),)
        values = [jax.ShapeDtypeStruct((x.shape[0],), leaves[0].dtype)]
        self._tried(x, y)

        @jax.custom_vjp
        def of(leaves: tuple[Any, ...]) -> Any:
            return foreign.call(self._losses, values, *leaves, x, y, *seed)[0]

        def forward(leaves: tuple[Any, ...]) -> Any:
            return of(leaves), leaves

        def backward(leaves: tuple[Any, ...], by: Any) -> Any:
            shapes = [jax.ShapeDtypeStruct(p.shape, p.dtype) for p in leaves]
            return (tuple(foreign.call(self._slopes, shapes, *leaves, by, x, y, *seed)),)

        of.defvjp(forward, backward)
        return of(leaves)

    def outputs(self, params: Tree, x: Any, key: Key = None) -> jax.Array:
        """What the module puts out, in evaluation."""
        leaves = self.parameters.definition.flatten_up_to(params)
        x = jax.numpy.asarray(x)
        like = self._put_out(x)
        shape = jax.ShapeDtypeStruct((x.shape[0], *like.shape[1:]), array(like).dtype)
        return foreign.call(self._outputs, [shape], *leaves, x)[0]

    def losses_of(self, outputs: Any, y: Any) -> jax.Array:
        """One loss per example, of what the module put out."""
        shape = jax.ShapeDtypeStruct((outputs.shape[0],), outputs.dtype)
        return foreign.call(self._losses_of, [shape], outputs, y)[0]

    # What runs in PyTorch for these.

    def _losses(self, *given: np.ndarray) -> list[np.ndarray]:
        tensors, (x, y, *seed) = self._taken(given)
        with self._drawing(seed), library().no_grad():
            return [array(self.each(tensors, x, y))]

    def _slopes(self, *given: np.ndarray) -> list[np.ndarray]:
        tensors, (by, x, y, *seed) = self._taken(given)
        with self._drawing(seed):
            return self.parameters.leaves(self.gradient(tensors, x, y, by))

    def _outputs(self, *given: np.ndarray) -> list[np.ndarray]:
        tensors, (x,) = self._taken(given)
        with self.mode(training=False), library().no_grad():
            return [array(self.forward(tensors, x))]

    def _losses_of(self, outputs: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
        with library().no_grad():
            return [array(self.loss(self.tensor(outputs), self.tensor(y)))]

    @contextlib.contextmanager
    def _drawing(self, words: Sequence[Any]) -> Iterator[None]:
        """Training with the random numbers of a key; without one, evaluation."""
        with self.mode(training=bool(words)):
            if words:
                self.draw_from(words[0].tolist())
            yield

    def _taken(self, given: Sequence[np.ndarray]) -> tuple[list[Any], list[Any]]:
        count = len(self.parameters.names)
        leaves = self.parameters.of_leaves(given[:count], self.device)
        return leaves, [self.tensor(a) for a in given[count:]]

    # Shapes, found out once by two examples of zeros.

    def _put_out(self, x: Any) -> Any:
        known = ("outputs", x.shape[1:], str(x.dtype))
        if known not in self._shapes:
            with self.mode(training=False), library().no_grad():
                self._shapes[known] = self.forward(*self._zeros_of(x))
        return self._shapes[known]

    def _tried(self, x: Any, y: Any) -> None:
        """Refuse data that module and loss cannot take, before anything is run."""
        known = ("losses", x.shape[1:], str(x.dtype), y.shape[1:], str(y.dtype))
        if known not in self._shapes:
            with self.mode(training=False), library().no_grad():
                labels = self.tensor(np.zeros((2, *y.shape[1:]), y.dtype))
                self._shapes[known] = self.each(*self._zeros_of(x), labels)

    def _zeros_of(self, x: Any) -> tuple[list[Any], Any]:
        """The module's own parameters, and two examples."""
        zeros = self.tensor(np.zeros((2, *x.shape[1:]), x.dtype))
        found = dict(self.module.named_parameters())
        own = [found[name].detach() for name in self.parameters.names]
        return [p.to(zeros.dtype) for p in own] if zeros.is_floating_point() else own, zeros


def bridge_of(model: Any) -> Bridge | None:
    """What a model is computed by; None if its loss is not that of a module alone."""
    function = getattr(getattr(model, "loss", None), "function", None)
    owner = getattr(function, "__self__", None)
    return owner if isinstance(owner, Bridge) else None


def seed_of(words: Any) -> int:
    """A seed of PyTorch's from the words of a key of JAX's."""
    number = functools.reduce(lambda so_far, word: so_far << 32 | int(word), words, 0)
    return number & ((1 << 63) - 1)
