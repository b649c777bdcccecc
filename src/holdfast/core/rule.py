r"""A method is a `Rule`: what it changes at the fixed moments of a round. Silence means FedAvg.

    both     init     -> what server and clients remember before the first round
    client   prepare  -> once, before its first round
    server   send     -> what to broadcast besides x
    client   tilt     -> once a round: the local objective; then K local steps, one solver for everybody
    client   reply    -> what to upload besides delta: all that travels
      wire   encode => ... => receive, decode
    server   hear     -> what to make of ONE reply, averaged as deltas are; sees no client state and no data
    client   settle   -> its new state, from what the server hears
    server   step     -> what to add to x, and its new state

Every function is pure and sees one client or the server, never a client axis.
"""

import dataclasses
import enum
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import numpy as np
from jax import tree

from holdfast import trees
from holdfast.core.hyper import Range, check_ranges
from holdfast.core.struct import Struct
from holdfast.errors import HoldfastError
from holdfast.trees import Number, Tree


class State(NamedTuple):
    """What a rule remembers: on the server, and on each client before its first round."""

    server: Tree = ()
    client: Tree = ()


# At a model, over all data that is meant.
Loss: TypeAlias = Callable[[Tree], Number]
Gradient: TypeAlias = Callable[[Tree], Tree]
T = TypeVar("T")


class PerPopulation(Struct):
    """In a message, one value for each population: a client receives that of its own."""

    values: Any  # with a leading axis


def addressed(msg: Tree, population: Number | None) -> Tree:
    """A message as a client of this population receives it."""

    def own(part: Any) -> Any:
        if not isinstance(part, PerPopulation):
            return part
        return tree.map(lambda a: a[0 if population is None else population], part.values)

    return tree.map(own, msg, is_leaf=lambda part: isinstance(part, PerPopulation))


class ClientView(NamedTuple):
    """All that code running on one client may look at."""

    x: Tree  # the model received
    msg: Tree  # what this rule's `send` broadcast
    mine: Tree  # this rule's own state on this client
    # z -> gradient over all local data, after the local steps that of the tilted loss.
    grad: Gradient
    weight: Number = 1.0  # n_i / mean(n)
    path: Number = 0.0  # sum of the step sizes taken, known after the local steps
    y: Tree = None  # the local model, known after the local steps
    # z -> mean loss at z over all local data; like `grad`, None where there is no data.
    loss: Loss = None  # type: ignore[assignment]
    population: Number = 0  # the number of its population, if there are several

    def heard_by_server(self) -> "ClientView":
        """The same reply as the server sees it: no client state, no data, no local model."""
        return self._replace(mine=None, grad=None, y=None, loss=None)  # type: ignore[arg-type]


class ServerView(NamedTuple):
    """All that code running on the server may look at."""

    x: Tree
    state: Tree
    share: Number = 1.0  # |S| / N
    heads: Number = 0.0  # |S|, known after the replies
    # (start, tilt) -> (moved, path): local steps on the server's own data.
    solve: Callable[..., tuple[Tree, Number]] = None  # type: ignore[assignment]
    # z -> stochastic gradient at z on the server's own data; None, like `solve`, if it has none.
    grad: Gradient = None  # type: ignore[assignment]
    weight: Number = 1.0  # n_0 / mean(n)
    # (z, w) -> what one of the server's steps at z on w times its loss would follow: `w grad(z)`, with
    # the clip and decay of its Local.
    direction: Callable[[Tree, Number], Tree] = None  # type: ignore[assignment]
    # Of the populations in the objective, if there are several.
    population_weights: Any = None


class Tilt(NamedTuple):
    r"""How a rule bends the local objective.

    $$ w\, f(T(y)) + \langle \text{linear}, y\rangle + \tfrac{\text{pull}}{2}\|y - \text{start}\|^2
       + \tfrac{\text{decay}}{2}\|y\|^2, \qquad T(y) = \alpha y + (1-\alpha) z $$

    Tilts of a chain add, in any order. `None` is absent and free. `pull` and `decay` are numbers or
    trees with one number (or None) per leaf; `decay` stands outside the gradient clip; `mix` is
    `(alpha, z)`; `start` is where the local steps begin, the received model unless given.
    """

    linear: Tree = None
    pull: Tree = None
    decay: Tree = None
    weight: Number | None = None
    mix: tuple[Number, Tree] | None = None
    start: Tree = None

    def deployed(self, x: Tree) -> Tree:
        """The model this client would use: T(start)."""
        y = x if self.start is None else self.start
        return y if self.mix is None else trees.mix(self.mix[0], y, self.mix[1])


def per_leaf(term: Tree, like: Tree) -> list[Any]:
    """A tilt's term as one entry per leaf of `like`; a number or None counts for every leaf."""
    definition: Any = tree.structure(like)
    if term is None or isinstance(term, int | float) or hasattr(term, "shape"):
        return [term] * definition.num_leaves
    return definition.flatten_up_to(term)


def add_tilts(s: Tilt, t: Tilt, like: Tree) -> Tilt:
    """The sum of two tilts."""

    def plus(a: Tree, b: Tree) -> Tree:
        if a is None or b is None:
            return b if a is None else a
        pairs = zip(per_leaf(a, like), per_leaf(b, like), strict=True)
        sums = [q if p is None else p if q is None else p + q for p, q in pairs]
        return tree.unflatten(tree.structure(like), sums)

    def only(a: T | None, b: T | None, what: str) -> T | None:
        if a is not None and b is not None:
            raise HoldfastError(
                f"Chain: two rules {what}, and there can be one; remove one of them."
            )
        return b if a is None else a

    weight = t.weight if s.weight is None else s.weight if t.weight is None else s.weight * t.weight
    return Tilt(
        linear=plus(s.linear, t.linear),
        pull=plus(s.pull, t.pull),
        decay=plus(s.decay, t.decay),
        weight=weight,
        mix=only(s.mix, t.mix, "mix the model"),
        start=only(s.start, t.start, "choose where local steps begin"),
    )


class Need(enum.Enum):
    """What a rule cannot do without. Checked before a run begins, refused with these words."""

    PLAIN_STEPS = "plain SGD steps, without momentum or an optimiser, on the leaves it corrects"
    PLAIN_SERVER_STEPS = "plain SGD steps, without momentum or an optimiser, at the server"
    PENALTY_IN_LOSS = "any penalty in the loss itself, whose own optimum or gradient it takes"
    LOSSLESS_WIRE = "a wire that delivers replies unchanged"
    CALM_WIRE = "a wire whose noise is at most half of what it carries, or a damping"
    SERVER_DATA = "data or a loss at the server"
    SERVER_EXAMPLES = "examples at the server, by whose number it counts"
    WHOLE_MODEL = "the whole model, so Masked goes inside it and not around it"
    HONEST_DELTA = "the delta as the local steps made it, not one rewritten by another rule"
    FIRST = "the first place in its Chain"
    LAST = "the last place in its Chain"
    EVEN_RATES = "all clients in every round, where they are of several populations"
    EVEN_WEIGHTS = "uniform weighting, or all clients in every round"


MOMENTS = ("init", "prepare", "send", "tilt", "reply", "hear", "settle", "step")


# Members that rules had before they had traits.
_FORMER = ("unsent", "quiet", "doubt", "plain_leaves", "parts", "prepares", "hears_uploads")


def _properties(cls: type) -> set[str]:
    return {name for name, value in vars(cls).items() if isinstance(value, property)}


def _none(clients: int) -> np.ndarray:
    return np.zeros(clients, bool)


def _no_doubt(state: Tree) -> str | None:
    return None


@dataclasses.dataclass(frozen=True)
class Traits:
    """What others must know of a rule: the one value that combinators combine.

    `hf.Rule` works it out from what a class declares and which functions it defines.
    """

    needs: frozenset[Need]
    # Changes nothing for others, so that it may stand anywhere.
    neutral: bool
    # Its `reply` sends another delta than the local one.
    rewrites_delta: bool
    # Clients have something to do before their first round.
    prepares: bool
    # It bends the local objective.
    tilts: bool
    # Its client states change, and others depend on them.
    remembers: bool
    # All it hears is what was uploaded, so that a mean of uploads will do.
    hears_uploads: bool
    # params -> on which leaves the local steps must be plain SGD.
    plain_leaves: Callable[[Tree], tuple[bool, ...]]
    # clients -> which of them neither need the model nor have anything to say: nothing travels for them.
    quiet: Callable[[int], np.ndarray] = _none
    # client state just prepared -> what to warn of.
    doubt: Callable[[Tree], str | None] = _no_doubt
    # How many populations it tells apart; None if it does not.
    populations: int | None = None
    # What it hears is delta or what is uploaded as it is, so that it may as well hear the mean of both.
    hears_as_sent: bool = False

    @classmethod
    def of_all(cls, several: "Sequence[Traits]") -> "Traits":
        """Of rules that act at once, each with a state of its own."""

        def plain_leaves(params: Tree) -> tuple[bool, ...]:
            none = (False,) * len(tree.leaves(params))
            wanted = (traits.plain_leaves(params) for traits in several)
            return functools.reduce(lambda a, b: tuple(map(max, a, b)), wanted, none)

        def quiet(clients: int) -> np.ndarray:
            each = [traits.quiet(clients) for traits in several]
            found = np.any([_none(clients), *each], axis=0)
            # Beside a rule that bends the objective, a quiet client would move with the others' mean;
            # it stays quiet only if all are, for then there is nothing to move with.
            bent = any(t.tilts for t, own in zip(several, each, strict=True) if not own.any())
            return found if found.all() or not bent else _none(clients)

        def doubt(states: Tree) -> str | None:
            found = (traits.doubt(own) for traits, own in zip(several, states, strict=True))
            return next((words for words in found if words), None)

        return cls(
            needs=frozenset().union(*(traits.needs for traits in several)),
            neutral=all(traits.neutral for traits in several),
            rewrites_delta=any(traits.rewrites_delta for traits in several),
            prepares=any(traits.prepares for traits in several),
            tilts=any(traits.tilts for traits in several),
            remembers=any(traits.remembers for traits in several),
            hears_uploads=all(traits.hears_uploads for traits in several),
            hears_as_sent=all(t.hears_as_sent or t.hears_uploads for t in several),
            plain_leaves=plain_leaves,
            quiet=quiet,
            doubt=doubt,
            populations=max((t.populations for t in several if t.populations), default=None),
        )


class Rule(Struct):
    """Eight pure functions, each optional; the bare `Rule()` is FedAvg.

    A rule that others must know more of declares it: what it cannot do without in `needs`,
    `rewrites_delta` if its `reply` sends another delta, `counts_heads` if what it hears is averaged
    uniformly even where deltas are not, `hears_as_sent` if it hears delta itself, `neutral` if it only
    watches.
    """

    needs: ClassVar[frozenset[Need]] = frozenset()
    neutral: ClassVar[bool] = False
    rewrites_delta: ClassVar[bool] = False
    # What it hears is averaged uniformly, whatever the weighting of deltas: a count of clients.
    counts_heads: ClassVar[bool] = False
    # Its `hear` returns delta, what is uploaded or parts of them, and works out nothing.
    hears_as_sent: ClassVar[bool] = False
    defines: ClassVar[frozenset[str]] = frozenset()
    # What its hyper-parameters may be, by their names.
    ranges: ClassVar[Mapping[str, Range]] = MappingProxyType({})

    def __post_init__(self) -> None:
        check_ranges(self)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        former = [
            name for name in _FORMER if callable(vars(cls).get(name)) or name in _properties(cls)
        ]
        if former:
            raise HoldfastError(
                f"{cls.__name__}: `{former[0]}` is no longer a function of a rule; what others must know of "
                f"it is in its `traits` (hf.Traits)."
            )
        own = [vars(base) for base in cls.__mro__ if base is not Rule and issubclass(base, Rule)]
        cls.defines = frozenset(name for name in MOMENTS if any(name in body for body in own))

    @property
    def traits(self) -> Traits:
        """What others must know of this rule."""
        everywhere = Need.PLAIN_STEPS in self.needs
        return Traits(
            needs=self.needs,
            neutral=self.neutral,
            rewrites_delta=self.rewrites_delta,
            prepares="prepare" in self.defines,
            tilts="tilt" in self.defines,
            remembers="settle" in self.defines and not self.neutral,
            hears_uploads="hear" not in self.defines,
            hears_as_sent=self.hears_as_sent,
            plain_leaves=lambda params: (everywhere,) * len(tree.leaves(params)),
        )

    def inside(self, state: State) -> tuple[tuple["Rule", State], ...]:
        """The rules directly inside it, each with its part of a state that `init` laid out."""
        return ()

    def init(self, params: Tree) -> State:
        """Server state and one client's first state."""
        return State()

    def prepare(self, at: ClientView) -> Tree:
        """Client, once before its first round and without a message: its state. x is the model the
        run began with, so that a client which never takes part can prepare too."""
        return at.mine

    def send(self, at: ServerView) -> tuple[Tree, Tree]:
        """Server: what to broadcast besides x, and its state."""
        return (), at.state

    def tilt(self, at: ClientView) -> Tilt:
        """Client, once a round: the local objective."""
        return Tilt()

    def reply(self, delta: Tree, at: ClientView) -> tuple[Tree, Tree]:
        """Client: the delta and the upload beside it; all that travels."""
        return delta, ()

    def hear(self, delta: Tree, upload: Tree, at: ClientView) -> Tree:
        """Server: what to make of one reply, to be averaged over the cohort by what clients count in
        the objective."""
        return upload

    def settle(self, delta: Tree, heard: Tree, at: ClientView) -> Tree:
        """Client: its new state."""
        return at.mine

    def heard_weights(self, heard: Tree, objective: Number, head: Number) -> Tree:
        """What of one reply counts how much in its mean: a number for every leaf of what is heard."""
        return tree.map(lambda _: head if self.counts_heads else objective, heard)

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        """Server, given the means: what to add to x, and its state."""
        return delta, at.state


def parts_of(rule: Rule) -> Iterator[Rule]:
    """A rule and every rule inside it, found in its fields."""
    yield rule
    for field in dataclasses.fields(rule):
        value = getattr(rule, field.name)
        for inside in value if isinstance(value, tuple) else (value,):
            if isinstance(inside, Rule):
                yield from parts_of(inside)
