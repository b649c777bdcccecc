"""Local training: what a client does between receiving the model and replying. One solver for all."""

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax, tree

from holdfast.core import hyper
from holdfast.core.debug import position, watch
from holdfast.core.hyper import Hyper, Range
from holdfast.core.rule import Tilt, per_leaf
from holdfast.core.struct import Struct, static
from holdfast.errors import HoldfastError, whole_number
from holdfast.trees import Array, Mask, Number, Tree, flatten, mix, norm, resolve_mask

T = TypeVar("T")
# From the step size to an optax optimiser: `optax.adam`, `functools.partial(optax.adam, b1=0.8)`.
OptimizerFactory: TypeAlias = Callable[[Number], optax.GradientTransformation]


# (k, z) -> the gradient at z on the k-th batch.
StepGradient: TypeAlias = Callable[[Number, Tree], Tree]


class PerExample(Protocol):
    """How the gradient of a step is made of those of its examples, where it is not their plain mean."""

    def gradient(
        self,
        loss: Callable[[Tree, Tree, jax.Array], jax.Array],
        z: Tree,
        batch: Tree,
        keep: Array,
        whole: Number,
        keys: jax.Array,
        key: jax.Array,
    ) -> Tree:
        """At z, of the examples of a batch that are kept. `loss` is that of one example with a key of its
        own, `whole` the number of examples in a whole batch, `key` of what is drawn beside them."""


class PrivateSteps(Protocol):
    """What `Local(private=...)` is: `hf.privacy.ExampleLevel`."""

    def at_round(self) -> PerExample:
        """Its numbers in a round, of which schedules are resolved."""


class Steps(Struct):
    """The numbers of one round's local steps."""

    learning_rate: Number
    clip: Number | None
    weight_decay: Number | None
    momentum: tuple[Number | None, ...]  # one per leaf
    optimizer: OptimizerFactory | None = static(default=None)
    per_example: PerExample | None = None


class StepsPerPopulation(Struct):
    """The numbers of one round's local steps where populations train differently.

    Populations whose steps have the same structure (a clip or none, the same optimiser) share it, and
    their numbers are looked up; others have a branch of their own.
    """

    kinds: tuple[Steps, ...]  # with one number for every population of the kind
    kind: Any  # of each population
    place: Any  # of each population among those of its kind

    @classmethod
    def of(cls, each: Sequence[Steps]) -> "StepsPerPopulation":
        """From those of each population."""
        structures = [tree.structure(steps) for steps in each]
        first = [structures.index(s) for s in structures]
        kinds = sorted(set(first))
        members = [[i for i, f in enumerate(first) if f == k] for k in kinds]
        stacked = [tree.map(lambda *n: np.array(n), *(each[i] for i in m)) for m in members]
        kind = np.array([kinds.index(f) for f in first], np.int32)
        place = np.array([members[k].index(i) for i, k in enumerate(kind)], np.int32)
        return cls(tuple(stacked), kind, place)

    def choose(self, population: Number, dtype: Any, run: Callable[[Steps], T]) -> T:
        """`run` with the steps of one population."""
        place = jnp.asarray(self.place)[population]

        def branch(steps: Steps) -> Callable[[], T]:
            return lambda: run(tree.map(lambda n: jnp.asarray(n)[place].astype(dtype), steps))

        branches = [branch(steps) for steps in self.kinds]
        if len(branches) == 1:
            return branches[0]()
        return lax.switch(jnp.asarray(self.kind)[population], branches)


class Local(Struct):
    r"""SGD on a client's own data.

    $$ y \leftarrow y - \eta_t\, m\big(\mathrm{clip}(g(y) + \text{corrections}) + \lambda y\big) $$

    Everything is reset each round. Clients of unequal size take their own number of steps.

    Args:
        learning_rate: a number, or a schedule over rounds (`hf.schedules`, any optax schedule).
        epochs: passes over the client's data in a round; 1 unless `steps` is given.
        steps: an exact number of steps instead, going on into a new pass where needed.
        batch_size: examples in a step; None takes all of the client's.
        last_batch: `"keep"` a short last batch of a pass, its loss divided by its own size, or
            `"drop"` it; a client with less than one batch keeps what it has.
        shuffle: a new order in each pass; False keeps the stored order.
        clip: largest global norm of a gradient, corrections included.
        weight_decay: $\lambda$, outside the clip.
        momentum: heavy-ball factor; none unless given, and 0 is none.
        momentum_on: leaves that have momentum, as one bool per leaf or a function of the leaf's
            path; all unless given.
        optimizer: instead of SGD, the function that makes an optax optimiser from the step size
            (`optax.adam`, `functools.partial(optax.adam, b1=0.8)`); its state is reset each round.
        private: bounds every example's gradient and adds noise to their sum: `hf.privacy.ExampleLevel`. All
            else in a step (corrections, clip, decay, momentum) comes after it.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # The only client's loss is (w - 1)**2 / 2, and it begins at 0.
        >>> clients = hf.Clients.from_datasets([hf.Examples(np.array([[1.0]]), np.array([1.0]))])
        >>> model = hf.models.least_squares(intercept=False)
        >>> halving = hf.schedules.exponential(0.5, decay=0.5)
        >>> for rate, clip in ((0.5, None), (halving, None), (0.5, 0.1)):
        ...     local = hf.Local(learning_rate=rate, steps=3, clip=clip)
        ...     states = hf.rounds(hf.algorithms.fedavg(), model, clients, local)
        ...     print([round(next(states).params["weights"].item(), 3) for _ in range(3)])
        [0.875, 0.984, 0.998]
        [0.875, 0.947, 0.965]
        [0.15, 0.3, 0.45]
    """

    ranges: ClassVar[dict[str, Range]] = {
        "learning_rate": Range(0, open=True),
        "clip": Range(0, open=True),
        "weight_decay": Range(0),
        "momentum": Range(0, 1),
    }
    learning_rate: Hyper
    epochs: int | None = static(default=None)
    steps: int | None = static(default=None)
    batch_size: int | None = static(default=None)
    last_batch: str = static(default="keep")
    shuffle: bool = static(default=True)
    clip: Hyper | None = None
    weight_decay: Hyper | None = None
    momentum: Hyper | None = None
    momentum_on: Mask | None = static(default=None)
    optimizer: OptimizerFactory | None = static(default=None)
    # Runs that were saved before there was such a thing have none.
    private: PrivateSteps | None = dataclasses.field(
        default=None, metadata={"named_if_given": True}
    )

    def __post_init__(self) -> None:
        if self.private is not None and not hasattr(self.private, "at_round"):
            raise HoldfastError(
                f"Local: private={self.private!r}; give hf.privacy.ExampleLevel(clip=1.0, epsilon=8, "
                f"delta=1e-5).",
                about=("private",),
            )
        if self.epochs is not None and self.steps is not None:
            raise HoldfastError(
                f"Local: epochs={self.epochs} and steps={self.steps} are both given; give one.",
                about=("epochs",),
            )
        for name in ("epochs", "steps", "batch_size"):
            value = getattr(self, name)
            if value is not None:
                # Of Python's own type, whatever was given: programs are known by these.
                object.__setattr__(self, name, whole_number("Local", name, value))
        if not isinstance(self.shuffle, bool | np.bool_):
            raise HoldfastError(
                f"Local: shuffle={self.shuffle!r}; give True or False.", about=("shuffle",)
            )
        object.__setattr__(self, "shuffle", bool(self.shuffle))
        if self.last_batch not in ("keep", "drop"):
            raise HoldfastError(
                f"Local: last_batch={self.last_batch!r}; give 'keep' or 'drop'.",
                about=("last_batch",),
            )
        for name in self.ranges:
            if isinstance(getattr(self, name), hyper.PerClient):
                raise HoldfastError(
                    f"Local: {name} is one value per client, and all clients train alike; give a number "
                    f"or a schedule over rounds.",
                    about=(name,),
                )
        hyper.check_ranges(self)
        if self.optimizer is not None and (
            not callable(self.optimizer) or isinstance(self.optimizer, optax.GradientTransformation)
        ):
            raise HoldfastError(
                f"Local: optimizer is a {type(self.optimizer).__name__}; give the function that makes one "
                f"from the step size, such as optax.adam.",
                about=("optimizer",),
            )
        if self.optimizer is not None and self.has_momentum:
            raise HoldfastError(
                "Local: momentum and optimizer are both given; give the optimiser its momentum.",
                about=("momentum",),
            )
        if self.momentum_on is not None and not callable(self.momentum_on):
            if isinstance(self.momentum_on, str) or not isinstance(self.momentum_on, Iterable):
                raise HoldfastError(
                    f"Local: momentum_on={self.momentum_on!r}; give one bool per leaf, or a function of "
                    f"the leaf's path.",
                    about=("momentum_on",),
                )
            object.__setattr__(self, "momentum_on", tuple(self.momentum_on))

    @property
    def has_momentum(self) -> bool:
        """Whether there is any: 0 is none."""
        return self.momentum is not None and not hyper.is_zero(self.momentum)

    def at(self, t: int, params: Tree) -> Steps:
        """The numbers of round `t` for a model like `params`."""
        now = hyper.at_round(self, t)
        if hyper.scheduled(self):
            hyper.check_ranges(now, f" in round {t + 1}", ("local",))
        on = (True,) * len(tree.leaves(params))
        if self.momentum_on is not None:
            on = resolve_mask(self.momentum_on, params, "Local: momentum_on")
        per_leaf = tuple(now.momentum if m and self.has_momentum else None for m in on)
        private = None if now.private is None else now.private.at_round()
        return Steps(
            now.learning_rate, now.clip, now.weight_decay, per_leaf, self.optimizer, private
        )


def _bounded(steps: Steps, g: list[Any], decay: list[Any], y: list[Any]) -> list[Any]:
    """A step's gradient after clip and decay."""
    if steps.clip is not None:
        factor = jnp.minimum(1.0, steps.clip / (norm(g) + 1e-6))
        g = [factor * p for p in g]
    g = [p if d is None else p + d * q for p, d, q in zip(g, decay, y, strict=True)]
    if steps.weight_decay is not None:
        g = [p + steps.weight_decay * q for p, q in zip(g, y, strict=True)]
    return g


def direction(steps: Steps, gradient: Tree, z: Tree) -> Tree:
    """What a plain step at z with this gradient would follow: clipped, and with the decay."""
    leaves, definition = flatten(gradient)
    bounded = _bounded(steps, leaves, [None] * len(leaves), definition.flatten_up_to(z))
    return definition.unflatten([p.astype(g.dtype) for p, g in zip(bounded, leaves, strict=True)])


def solve(
    steps: Steps,
    grad: Callable[[Number, Tree], Tree],
    x: Tree,
    tilt: Tilt,
    count: Number,
) -> tuple[Tree, Number]:
    """Take `count` local steps on the tilted objective: the only local loop there is.

    Returns the local model and the sum of step sizes taken. `grad(k, z)` is the gradient of the
    untilted loss on the k-th batch.
    """
    start = x if tilt.start is None else tilt.start
    origin, definition = flatten(start)
    linear, pull, decay = (per_leaf(term, start) for term in tilt[:3])
    alpha = None if tilt.mix is None else tilt.mix[0]
    weight = alpha if tilt.weight is None else tilt.weight if alpha is None else tilt.weight * alpha
    optimizer: Any = None if steps.optimizer is None else steps.optimizer(steps.learning_rate)
    # pull (y - start) + linear is pull y + constant, with one array to read in a step, not two. It is
    # rounded where y = start, and an optimiser that divides by the size of gradients, as Adam does,
    # would make whole steps of that: with one, the difference is taken first.
    if optimizer is None:
        origins: list[Any] = [None] * len(origin)
        constant = [
            li if pu is None else -pu * s if li is None else li - pu * s
            for li, pu, s in zip(linear, pull, origin, strict=True)
        ]
    else:
        origins, constant = origin, linear

    def bend(g: Tree, co: Tree, pu: Tree, s: Tree, y: Tree) -> Tree:
        g = g if weight is None else weight * g
        g = g if co is None else g + co
        return g if pu is None else g + pu * (y if s is None else y - s)

    def step(k: Any, carry: tuple[list[Any], Any]) -> tuple[list[Any], Any]:
        y, velocity = carry
        with position(step=k):
            z = definition.unflatten(y)
            g_tree = grad(k, z if tilt.mix is None else mix(alpha, z, tilt.mix[1]))
            watch("gradient", g_tree)
            g = definition.flatten_up_to(g_tree)
            g = [bend(*terms) for terms in zip(g, constant, pull, origins, y, strict=True)]
            g = _bounded(steps, g, decay, y)
            if optimizer is None:
                velocity = [
                    v if m is None else m * v + p
                    for m, v, p in zip(steps.momentum, velocity, g, strict=True)
                ]
                g = [
                    p if m is None else v
                    for m, v, p in zip(steps.momentum, velocity, g, strict=True)
                ]
                move = [-steps.learning_rate * p for p in g]
            else:
                with jax.numpy_dtype_promotion("standard"):  # optax mixes counters and decay rates
                    move, velocity = optimizer.update(g, velocity, y)
            y = [(q + m).astype(q.dtype) for q, m in zip(y, move, strict=True)]
            watch("model", y)
        return y, velocity

    still: Any = (
        [
            () if m is None else jnp.zeros_like(p)
            for m, p in zip(steps.momentum, origin, strict=True)
        ]
        if optimizer is None
        else optimizer.init(origin)
    )
    y, _ = lax.fori_loop(0, count, step, (origin, still))
    dtype = jnp.result_type(*(p.dtype for p in origin))
    return definition.unflatten(y), steps.learning_rate * jnp.asarray(count, dtype)


def steps_at(local: Local | tuple[Local, ...], t: int, params: Tree) -> Steps | StepsPerPopulation:
    """The numbers of round `t`: one local training for all clients, or one for each population."""
    if isinstance(local, Local):
        return local.at(t, params)
    return StepsPerPopulation.of([own.at(t, params) for own in local])
