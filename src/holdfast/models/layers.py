"""Layers of a model, and the order in which its examples pass them: read from the traced loss."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
from jax import tree

from holdfast import trees
from holdfast.core.keys import host_key
from holdfast.errors import HoldfastError, did_you_mean
from holdfast.models.model import Model
from holdfast.trees import Tree


class Layer(NamedTuple):
    """Parameters that stand together, such as a kernel and its bias."""

    name: str
    leaves: tuple[int, ...]  # by their number among the model's
    size: int  # how many numbers they have


def layers(
    model: Model, params: Tree, examples: Tree, order: Sequence[str] | None = None
) -> tuple[Layer, ...]:
    """The layers of a model from the first that examples meet to the last.

    Args:
        model: the model; its loss is traced, nothing is computed.
        params: its parameters, or their shapes.
        examples: some examples, or their shapes.
        order: names of all layers, where the program does not say in which order they are meant.

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> model, (train, _) = hf.models.mlp([16], classes=10), hf.data.digits()
        >>> params = model.init(jax.random.key(0), train)
        >>> [(layer.name, layer.size) for layer in layers(model, params, train)]
        [('hidden_0', 1040), ('classifier', 170)]
    """
    named = trees.layers(params)
    sizes = [int(leaf.size) for leaf in tree.leaves(params)]
    if order is None:
        met = meetings(model, params, examples)
        ordered = sorted(named, key=lambda n: min((met[i] for i in named[n] if met[i]), default=0))
    else:
        ordered = _checked_order(order, list(named))
    return tuple(Layer(n, named[n], sum(sizes[i] for i in named[n])) for n in ordered)


def _checked_order(order: Sequence[str], known: list[str]) -> list[str]:
    given = [order] if isinstance(order, str) else list(order)
    for name in given:
        if name not in known:
            raise HoldfastError(
                f"layers: the model has none called {name!r}; {did_you_mean(str(name), known)}",
                about=("layers",),
            )
    missing = [name for name in known if name not in given]
    if missing or len(set(given)) != len(given):
        raise HoldfastError(
            f"layers: {len(given)} are given, and the model has {len(known)}: {', '.join(known)}. Give each "
            f"once, from the first to the last.",
            about=("layers",),
        )
    return given


def meetings(model: Model, params: Tree, examples: Tree) -> list[int]:
    """For every leaf, how far the loss has come when examples first meet it; 0 if they never do.

    By the traced program, not by names: a leaf that is only cast, scaled or added to a penalty before has
    met no example yet.
    """
    count = len(tree.leaves(params))
    shapes = tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), params)
    batch = tree.map(
        lambda a: jax.ShapeDtypeStruct((2, *a.shape[1:]), jax.dtypes.canonicalize_dtype(a.dtype)),
        examples,
    )
    program = jax.make_jaxpr(model.losses)(shapes, batch, host_key(0)).jaxpr
    inputs = [_Origin(leaves=frozenset((i,))) for i in range(count)]
    inputs += [_Origin(data=True)] * len(tree.leaves(batch))
    inputs += [_NOTHING] * (len(program.invars) - len(inputs))
    walk = _Walk()
    walk.through(program, inputs)
    return [walk.met.get(leaf, 0) for leaf in range(count)]


class _Origin(NamedTuple):
    """What a value was made of: examples, or parameters alone."""

    data: bool = False
    leaves: frozenset[int] = frozenset()

    def with_(self, other: "_Origin") -> "_Origin":
        data = self.data or other.data
        return _Origin(data, frozenset() if data else self.leaves | other.leaves)


_NOTHING = _Origin()


@dataclasses.dataclass
class _Walk:
    """A way through a program, one operation after another, loops and calls included."""

    met: dict[int, int] = dataclasses.field(default_factory=dict)
    now: int = 0

    def through(self, jaxpr: Any, inputs: Sequence[_Origin]) -> list[_Origin]:
        known = dict(zip(map(id, jaxpr.invars), inputs, strict=True))

        def of(value: Any) -> _Origin:
            return known.get(id(value), _NOTHING)

        for equation in jaxpr.eqns:
            found = self._equation(equation, [of(value) for value in equation.invars])
            known.update(zip(map(id, equation.outvars), found, strict=True))
        return [of(value) for value in jaxpr.outvars]

    def _equation(self, equation: Any, inputs: list[_Origin]) -> list[_Origin]:
        name, inside = equation.primitive.name, equation.params
        if name == "scan":
            kept = slice(inside["num_consts"], inside["num_consts"] + inside["num_carry"])
            return self._loop(inside["jaxpr"].jaxpr, inputs, kept)
        if name == "while":
            first = inside["cond_nconsts"]
            kept = slice(inside["body_nconsts"], None)
            return self._loop(inside["body_jaxpr"].jaxpr, inputs[first:], kept)
        if name == "cond":
            return self._branches([branch.jaxpr for branch in inside["branches"]], inputs[1:])
        for part in inside.values():
            called = getattr(part, "jaxpr", part)
            if hasattr(called, "eqns") and len(called.invars) == len(inputs):
                return self.through(called, inputs)
        return [self._plain(inputs)] * len(equation.outvars)

    def _branches(self, branches: list[Any], inputs: list[_Origin]) -> list[_Origin]:
        """One of several ways: what they meet must be in one order."""
        each = [_Walk(dict(self.met), self.now) for _ in branches]
        ends = [walk.through(b, inputs) for walk, b in zip(each, branches, strict=True)]
        fullest = max(each, key=lambda walk: len(walk.met))
        for walk in each:
            common = [leaf for leaf in fullest.met if leaf in walk.met]
            if len(common) < len(walk.met) or common != sorted(common, key=walk.met.__getitem__):
                raise HoldfastError(
                    "layers: branches of the loss meet parameters in orders of their own, as those of "
                    "populations with different models do, so that there is no one order; give a mask.",
                    about=("layers",),
                )
        self.met, self.now = fullest.met, max(walk.now for walk in each)
        return [_merged(several) for several in zip(*ends, strict=True)]

    def _loop(self, body: Any, inputs: list[_Origin], kept: slice) -> list[_Origin]:
        """What is carried around may have met examples after the first time."""
        inputs = list(inputs)
        while True:
            found = self.through(body, inputs)
            before = inputs[kept]
            after = [a.with_(b) for a, b in zip(before, found, strict=False)]
            if after == before:
                return found
            inputs[kept] = after

    def _plain(self, inputs: list[_Origin]) -> _Origin:
        self.now += 1
        together = _merged(inputs)
        if together.data:
            for leaf in frozenset().union(*(one.leaves for one in inputs)):
                self.met.setdefault(leaf, self.now)
        return together


def _merged(several: Sequence[_Origin]) -> _Origin:
    found = _NOTHING
    for one in several:
        found = found.with_(one)
    return found
