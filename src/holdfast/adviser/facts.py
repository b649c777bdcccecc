"""What can be told of the data before any method is tried, and by a few rounds of FedAvg."""

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import numpy as np

from holdfast import algorithms
from holdfast.adviser.problem import Problem, is_classified
from holdfast.adviser.shift import Sample, inputs_of, label_skew, representation_of
from holdfast.core.keys import host_key
from holdfast.data.split.table import counts
from holdfast.diagnose.curvature import curvature
from holdfast.diagnose.dissimilarity import dissimilarity
from holdfast.diagnose.drift import NAME as DRIFT
from holdfast.diagnose.drift import drift
from holdfast.engine.simulate import simulate
from holdfast.errors import RoundFailedError
from holdfast.trees import Tree

_LOOKED_AT = 5  # rounds of FedAvg
# Beyond these a fact is called by its name.
SKEWED, SHIFTED, UNEQUAL = 0.1, 0.3, 0.5


@dataclasses.dataclass(frozen=True)
class Facts:
    """What clients and server have, in numbers.

    Args:
        clients: with data.
        examples: of all clients, to train on.
        sizes: smallest, median and largest client.
        size_deviation: of the sizes, over their mean.
        classes: how many; None where labels are numbers.
        labels_each: classes that a client has, the median.
        label_skew: distance between a client's mix of labels and everybody's (total variation, 0 to 1),
            beyond what drawing as many examples at random would give; the mean over examples.
        shift: how far means of inputs within a class differ between clients, in deviations of the class,
            beyond chance; None where inputs are no numbers.
        covariance_shift: how far their covariances do, relative to the size of the class's, beyond chance.
        representation_shift: the model's first layer, and both of what it makes of inputs after five rounds
            of FedAvg; None where the model has no layers.
        participation: share of the clients in a round.
        visits: how often a client takes part in all rounds.
        parameters: of the model.
        steps: of a client in a round, the mean.
        drift: drift diversity of the clients' updates (`hf.diagnose.drift`) in the first round of FedAvg and
            in the fifth; None where nothing could be run.
        drifting: the layer in which it is largest then.
        gradient_skew: mean squared distance of clients' gradients from their mean, at the start and after
            five rounds of FedAvg.
        server_ratio: squared distance of the server's gradient from the clients' mean, over
            `gradient_skew`, after five rounds; None without data at the server.
        curvature: largest eigenvalue of clients' Hessians at the start, the mean over some of them.
    """

    clients: int
    examples: int
    sizes: tuple[int, int, int]
    size_deviation: float
    classes: int | None
    labels_each: float | None
    label_skew: float | None
    shift: float
    covariance_shift: float
    representation_shift: tuple[str, float, float] | None
    has_inputs: bool
    participation: float
    visits: float
    parameters: int
    steps: float
    drift: tuple[float, float] | None
    drifting: str
    gradient_skew: tuple[float, float] | None
    server_ratio: float | None
    curvature: float | None

    @property
    def disagreement(self) -> float:
        """How much clients disagree, from 0 to 1: labels or inputs, whichever differ more."""
        return min(1.0, max(self.label_skew or 0.0, self.shift / 2))

    @property
    def server_near(self) -> bool:
        """Whether the server's data is nearer to the clients' mean than they are themselves."""
        return self.server_ratio is not None and self.server_ratio < 1

    @property
    def are_alike(self) -> bool:
        """Whether neither labels nor inputs differ between clients by more than a little."""
        return not ((self.label_skew or 0.0) > SKEWED or self.shift > SHIFTED)

    @property
    def why_disagree(self) -> str:
        """What clients disagree about, in words."""
        if (self.label_skew or 0.0) > SKEWED:
            return f"labels differ between clients ({self.label_skew:.2f} of 1)"
        if self.shift > SHIFTED:
            return f"inputs of a class differ between clients ({self.shift:.1f} deviations)"
        return "clients are much alike, so that there is little to correct"

    def lines(self) -> Iterator[tuple[str, str]]:
        """Names and what is to be said of them."""
        low, middle, high = self.sizes
        unequal = self.size_deviation >= 0.05
        sizes = f"deviation {self.size_deviation:.2f} of the mean" if unequal else "equal"
        many = f"{self.clients:,} with {self.examples:,} examples; {low} to {high} each"
        yield "clients", f"{many}, median {middle}, {sizes}"
        if self.label_skew is None:
            yield "labels", "numbers"
        else:
            level = _level(self.label_skew, (SKEWED, 0.3, 0.6))
            apart = f"mixes differ by {self.label_skew:.2f} of 1 beyond chance: {level}"
            yield (
                "labels",
                f"{self.classes} classes, {self.labels_each:g} at a client (median); {apart}",
            )
        if self.has_inputs:
            level = _level(self.shift, (0.15, SHIFTED, 1.0))
            means = "means" if self.label_skew is None else "means within a class"
            apart = f"{means} differ by {self.shift:.2f} deviations beyond chance"
            yield (
                "inputs",
                f"{apart}, covariances by {self.covariance_shift:.2f} of their size: {level}",
            )
        else:
            yield "inputs", "no plain numbers; not compared"
        if self.representation_shift is not None:
            layer, means_apart, spreads_apart = self.representation_shift
            apart = f"by {means_apart:.2f} deviations and {spreads_apart:.2f} of their covariance's size"
            yield "first layer", f"what `{layer}` makes of inputs differs {apart}"
        share = f"{100 * self.participation:.3g} % of the clients a round"
        yield "participation", f"{share}; each comes {self.visits:.1f} times in all"
        each = f"{self.examples / self.clients:.0f} examples at a client"
        yield (
            "model",
            f"{self.parameters:,} parameters for {each}; {self.steps:.0f} local steps a round",
        )
        if self.drift is not None:
            before, after = self.drift
            values = f"drift diversity {before:.2g} at first, {after:.2g} after {_LOOKED_AT} rounds"
            where = f"; largest in `{self.drifting}`" if self.drifting else ""
            yield "updates", f"{values} (1 is orthogonal, alike is 1 / clients of a round){where}"
        if self.gradient_skew is not None:
            before, after = self.gradient_skew
            apart = f"mean squared distance from their mean {before:.3g} at first"
            yield "gradients", f"{apart}, {after:.3g} after {_LOOKED_AT} rounds"
        if self.server_ratio is not None:
            near = "nearer to" if self.server_near else "farther from"
            ratio = f"xi^2 / G^2 = {self.server_ratio:.2g}"
            yield "server", f"its gradient is {near} the clients' mean than theirs are ({ratio})"
        if self.curvature is not None:
            yield (
                "curvature",
                f"largest eigenvalue of a client's Hessian {self.curvature:.3g} at first",
            )


def _level(value: float, bounds: tuple[float, float, float]) -> str:
    words = ("none to speak of", "some", "much", "very much")
    return words[sum(value > bound for bound in bounds)]


def facts(problem: Problem, look: bool = True) -> Facts:
    """What there is to know; with a `look`, also by a few rounds of FedAvg and eigenvalues."""
    clients, able = problem.clients, problem.able
    sizes = clients.sizes[able]
    shapes = jax.eval_shape(problem.model.init, host_key(0), clients.examples)
    participation = problem.participation
    classes = labels_each = skew = None
    if is_classified(problem):
        table = counts(clients)[able]
        classes, labels_each = table.shape[1], float(np.median((table > 0).sum(1)))
        skew = label_skew(table)
    inputs, sample = inputs_of(problem), Sample.of(problem)
    shift, covariances = (0.0, 0.0) if inputs is None else sample.shift(inputs)
    seen = _look(problem) if look else _NOTHING_SEEN
    layer = None if seen.params is None else representation_of(problem, seen.params)
    return Facts(
        clients=len(able),
        examples=int(sizes.sum()),
        sizes=(int(sizes.min()), int(np.median(sizes)), int(sizes.max())),
        size_deviation=float(sizes.std() / sizes.mean()),
        classes=classes,
        labels_each=labels_each,
        label_skew=skew,
        shift=shift,
        covariance_shift=covariances,
        representation_shift=None if layer is None else (layer[0], *sample.shift(layer[1])),
        has_inputs=inputs is not None,
        participation=participation,
        visits=participation * problem.rounds,
        parameters=sum(int(np.prod(a.shape)) for a in jax.tree.leaves(shapes)),
        steps=_steps(problem, sizes),
        drift=seen.drift,
        drifting=seen.drifting,
        gradient_skew=seen.gradients,
        server_ratio=seen.server_ratio,
        curvature=_curvature(problem) if look else None,
    )


def _steps(problem: Problem, sizes: np.ndarray) -> float:
    local = problem.local
    if local.steps is not None:
        return float(local.steps)
    batch = sizes if local.batch_size is None else np.minimum(local.batch_size, sizes)
    return float((np.ceil(sizes / batch) * (local.epochs or 1)).mean())


class _Seen(NamedTuple):
    """What a few rounds of FedAvg show."""

    gradients: tuple[float, float] | None
    server_ratio: float | None
    drift: tuple[float, float] | None
    drifting: str
    params: Tree


_NOTHING_SEEN = _Seen(None, None, None, "", None)


def _look(problem: Problem) -> _Seen:
    """How far clients' gradients and updates are apart, and the server's from them."""
    some = None if len(problem.able) <= 32 else 32
    watch = (dissimilarity(clients=some), drift())
    given = problem.experiment(algorithms.fedavg(), problem.local, 0, watch)
    try:
        run = simulate(given, rounds=_LOOKED_AT, progress=False)
    except RoundFailedError:
        return _NOTHING_SEEN
    history = run.history
    apart = [float(value) for value in history["G2_clients"]]
    server = None
    if "xi2_server" in history.columns and apart[-1] > 0:
        server = float(np.mean(history["xi2_server"]) / np.mean(apart))
    before = f"{DRIFT}/"
    layers = {
        name.removeprefix(before): float(np.mean(history[name]))
        for name in history.columns
        if name.startswith(before)
    }
    most = max(layers, key=layers.__getitem__) if len(layers) > 1 else ""
    drifts = [float(value) for value in history[DRIFT]] if DRIFT in history.columns else []
    ends = (drifts[0], drifts[-1]) if drifts else None
    return _Seen((apart[0], apart[-1]), server, ends, most, run.params)


def _curvature(problem: Problem) -> float | None:
    """Of a few clients, since it costs eigenvalues of a Hessian for each."""
    few = problem.able[np.linspace(0, len(problem.able) - 1, min(5, len(problem.able))).astype(int)]
    found: Any = curvature(
        problem.model, problem.clients.subset(few), problem.params, examples=64, progress=False
    )
    return float(found.smoothness.mean())
