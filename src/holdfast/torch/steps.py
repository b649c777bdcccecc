"""Local steps that PyTorch takes: those of `core/local.py`, on tensors.

The tilt comes as data, so all that is known of a method here is its linear term, pull, decay, weight,
mixture and start.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from holdfast.core.local import Steps
from holdfast.core.rule import Tilt, per_leaf
from holdfast.torch.bridge import Bridge
from holdfast.torch.library import library
from holdfast.trees import Tree

# (k, parameters) -> the gradient at these parameters on the k-th batch, for each of them.
TensorGradient = Callable[[int, list[Any]], list[Any]]


class _Terms(NamedTuple):
    """A tilt as tensors, one entry for each parameter."""

    linear: list[Any]
    pull: list[Any]
    decay: list[Any]
    weight: float | None
    alpha: float | None
    centre: list[Any] | None


def solve(
    bridge: Bridge, steps: Steps, grad: TensorGradient, x: Tree, tilt: Tilt, count: int
) -> list[Any]:
    """The local model after `count` steps on the tilted objective, from x or from the tilt's start."""
    torch = library()
    start = bridge.parameters.tensors(x if tilt.start is None else tilt.start, bridge.device)
    terms = _terms(bridge, x, tilt)
    rate, momentum = float(steps.learning_rate), [_number(m) for m in steps.momentum]
    y = [p.clone() for p in start]
    velocity: list[Any] = [
        None if m is None else torch.zeros_like(p) for m, p in zip(momentum, y, strict=True)
    ]
    with torch.no_grad():
        for k in range(count):
            with torch.enable_grad():
                g = grad(k, _mixed(terms, y))
            g = _bounded(steps, _bent(terms, g, y, start), terms.decay, y)
            for i, m in enumerate(momentum):
                if m is not None:
                    velocity[i] = g[i] = m * velocity[i] + g[i]
            y = [p - rate * q for p, q in zip(y, g, strict=True)]
    return y


def _terms(bridge: Bridge, like: Tree, tilt: Tilt) -> _Terms:
    linear, pull, decay = (_laid_out(bridge, per_leaf(term, like)) for term in tilt[:3])
    alpha, centre = (None, None) if tilt.mix is None else tilt.mix
    return _Terms(
        linear,
        pull,
        decay,
        _number(tilt.weight),
        _number(alpha),
        None if centre is None else bridge.parameters.tensors(centre, bridge.device),
    )


def _laid_out(bridge: Bridge, entries: Sequence[Any]) -> list[Any]:
    """One entry per parameter: None, a number, or numbers in the place of its own."""
    axes = bridge.parameters.axes

    def one(entry: Any, order: tuple[int, ...]) -> Any:
        if entry is None or np.ndim(entry) == 0:
            return _number(entry)
        laid = bridge.tensor(entry)
        return laid.permute(tuple(np.argsort(order))) if order else laid

    return [one(entry, order) for entry, order in zip(entries, axes, strict=True)]


def _number(value: Any) -> float | None:
    return None if value is None else float(np.asarray(value))


def _mixed(terms: _Terms, y: list[Any]) -> list[Any]:
    if terms.alpha is None or terms.centre is None:
        return y
    a = terms.alpha
    return [a * p + (1 - a) * z for p, z in zip(y, terms.centre, strict=True)]


def _bent(terms: _Terms, g: list[Any], y: list[Any], start: list[Any]) -> list[Any]:
    """A gradient of the loss as one of the tilted objective, without its decay."""
    factors = [f for f in (terms.weight, terms.alpha) if f is not None]
    for factor in factors:
        g = [factor * p for p in g]
    g = [p if c is None else p + c for p, c in zip(g, terms.linear, strict=True)]
    pulled = zip(g, terms.pull, y, start, strict=True)
    return [p if u is None else p + u * (q - s) for p, u, q, s in pulled]


def _bounded(steps: Steps, g: list[Any], decay: list[Any], y: list[Any]) -> list[Any]:
    """The same after clip and decay."""
    if steps.clip is not None:
        torch = library()
        length = torch.sqrt(torch.stack([(p * p).sum() for p in g]).sum())
        # `clamp` leaves NaN what it is, which Python's `min` would not.
        factor = torch.clamp(float(steps.clip) / (length + 1e-6), max=1.0)
        g = [factor * p for p in g]
    g = [p if d is None else p + d * q for p, d, q in zip(g, decay, y, strict=True)]
    if steps.weight_decay is not None:
        g = [p + float(steps.weight_decay) * q for p, q in zip(g, y, strict=True)]
    return g
