"""Rules made of rules: several at once, or one on some leaves only."""

import dataclasses
import functools
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, TypeVar

from jax import tree

from holdfast.core.hyper import Hyper, Range
from holdfast.core.rule import (
    MOMENTS,
    ClientView,
    Need,
    Rule,
    ServerView,
    State,
    Tilt,
    Traits,
    add_tilts,
    parts_of,
    per_leaf,
)
from holdfast.core.struct import static
from holdfast.errors import HoldfastError
from holdfast.trees import Mask, Number, Tree, add, flatten, resolve_mask, scale

View = TypeVar("View", ClientView, ServerView)
_SPOKEN_FOR = (*MOMENTS, "heard_weights", "traits", "inside")


class Combinator(Rule):
    """A rule made of rules. One that forgets a moment of the rules inside it cannot be defined."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        # One that came from another process is empty at first; what it forgets is asked of its first value.
        if any(name in vars(cls) for name in _SPOKEN_FOR):
            _refuse_forgotten(cls)

    def __new__(cls, *args: Any, **fields: Any) -> "Combinator":
        _refuse_forgotten(cls)
        return super().__new__(cls)


def _refuse_forgotten(cls: type[Combinator]) -> None:
    spoken_for = {name for base in cls.__mro__ if base is not Rule for name in vars(base)}
    forgotten = [name for name in _SPOKEN_FOR if name not in spoken_for]
    if forgotten:
        raise TypeError(
            f"{cls.__name__}: a combinator speaks for the rules inside it and forgets "
            f"{', '.join(forgotten)}; define it, or subclass Wrapper, which follows its inner rule."
        )


class Chain(Combinator):
    """Several rules at once: tilts add; replies and server steps are applied in order.

    Each rule keeps its own client state, broadcast, upload and server state.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> parts = (hf.rules.ControlVariate(), hf.rules.Dynamic(alpha=1.0))
        >>> for rule in (*parts, hf.Chain(parts)):
        ...     states = hf.rounds(hf.Algorithm(rule), model, clients, local)
        ...     print([round(next(states).params["weights"].item(), 2) for _ in range(5)])
        [1.32, 1.69, 1.78, 1.8, 1.8]
        [2.04, 2.05, 1.9, 1.83, 1.81]
        [2.04, 2.19, 1.98, 1.85, 1.8]
    """

    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        for rule in self.rules:
            if not isinstance(rule, Rule):
                raise HoldfastError(
                    f"Chain: {rule!r} is a {type(rule).__name__}; give rules, such as "
                    f"hf.Chain((hf.rules.ControlVariate(), hf.rules.Dynamic(alpha=0.1)))."
                )
        acting = [(rule, rule.traits) for rule in self.rules if not rule.traits.neutral]
        for place, (rule, traits) in enumerate(acting):
            name = type(rule).__name__
            for need, wanted in ((Need.FIRST, 0), (Need.LAST, len(acting) - 1)):
                if need in traits.needs and place != wanted:
                    raise HoldfastError(
                        f"Chain: {name} stands at place {place} of {len(acting)} but needs "
                        f"{need.value}; move it there."
                    )
            rewriting = [r for r, other in acting if r is not rule and other.rewrites_delta]
            if Need.HONEST_DELTA in traits.needs and rewriting:
                raise HoldfastError(
                    f"Chain: {name} needs {Need.HONEST_DELTA.value}, and "
                    f"{type(rewriting[0]).__name__} rewrites it; use one or the other."
                )

    def _each(self, at: Any, *parts: Any) -> Iterator[tuple[Any, ...]]:
        for i, rule in enumerate(self.rules):
            if isinstance(at, ServerView):
                here: Any = at._replace(state=at.state[i])
            else:
                here = at._replace(
                    msg=at.msg[i] if at.msg else (), mine=None if at.mine is None else at.mine[i]
                )
            yield rule, here, *(p[i] for p in parts)

    @property
    def traits(self) -> Traits:
        """Those of all its rules."""
        return Traits.of_all([rule.traits for rule in self.rules])

    def inside(self, state: State) -> tuple[tuple[Rule, State], ...]:
        """Its rules in their order."""
        states = zip(state.server, state.client, strict=True)
        return tuple((r, State(*own)) for r, own in zip(self.rules, states, strict=True))

    def init(self, params: Tree) -> State:
        states = [rule.init(params) for rule in self.rules]
        return State(tuple(s.server for s in states), tuple(s.client for s in states))

    def prepare(self, at: ClientView) -> Tree:
        return tuple(rule.prepare(here) for rule, here in self._each(at))

    def send(self, at: ServerView) -> tuple[Tree, Tree]:
        sent = [rule.send(here) for rule, here in self._each(at)]
        return tuple(msg for msg, _ in sent), tuple(state for _, state in sent)

    def tilt(self, at: ClientView) -> Tilt:
        tilts = (rule.tilt(here) for rule, here in self._each(at))
        return functools.reduce(lambda s, t: add_tilts(s, t, at.x), tilts, Tilt())

    def reply(self, delta: Tree, at: ClientView) -> tuple[Tree, Tree]:
        uploads = []
        for rule, here in self._each(at):
            delta, upload = rule.reply(delta, here)
            uploads.append(upload)
        return delta, tuple(uploads)

    def hear(self, delta: Tree, upload: Tree, at: ClientView) -> Tree:
        return tuple(rule.hear(delta, up, here) for rule, here, up in self._each(at, upload))

    def heard_weights(self, heard: Tree, objective: Number, head: Number) -> Tree:
        parts = zip(self.rules, heard, strict=True)
        return tuple(rule.heard_weights(own, objective, head) for rule, own in parts)

    def settle(self, delta: Tree, heard: Tree, at: ClientView) -> Tree:
        return tuple(rule.settle(delta, h, here) for rule, here, h in self._each(at, heard))

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        states = []
        for rule, here, h in self._each(at, heard):
            delta, state = rule.step(delta, h, here)
            states.append(state)
        return delta, tuple(states)


class Wrapper(Combinator):
    """Follows an inner rule in everything; a subclass speaks where it has something to say.

    The inner rule may live on a part of the model: `part` and `whole` go between the two, `seen` is
    what it sees of a view.
    """

    inner: Rule

    def part(self, full: Tree) -> Tree:
        """What the inner rule has of something shaped like the model."""
        return full

    def whole(self, part: Tree, full: Tree) -> Tree:
        """The model-shaped thing again, the rest of it as in `full`."""
        return part

    def seen(self, at: View) -> View:
        """The inner rule's view."""
        return at

    @property
    def traits(self) -> Traits:
        """Those of the inner rule."""
        return self.inner.traits

    def inside(self, state: State) -> tuple[tuple[Rule, State], ...]:
        """The inner rule; all that is remembered is its own."""
        return ((self.inner, state),)

    def init(self, params: Tree) -> State:
        return self.inner.init(self.part(params))

    def prepare(self, at: ClientView) -> Tree:
        return self.inner.prepare(self.seen(at))

    def send(self, at: ServerView) -> tuple[Tree, Tree]:
        return self.inner.send(self.seen(at))

    def tilt(self, at: ClientView) -> Tilt:
        return self.inner.tilt(self.seen(at))

    def reply(self, delta: Tree, at: ClientView) -> tuple[Tree, Tree]:
        part, upload = self.inner.reply(self.part(delta), self.seen(at))
        return self.whole(part, delta), upload

    def hear(self, delta: Tree, upload: Tree, at: ClientView) -> Tree:
        return self.inner.hear(self.part(delta), upload, self.seen(at))

    def heard_weights(self, heard: Tree, objective: Number, head: Number) -> Tree:
        return self.inner.heard_weights(heard, objective, head)

    def settle(self, delta: Tree, heard: Tree, at: ClientView) -> Tree:
        return self.inner.settle(self.part(delta), heard, self.seen(at))

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        part, state = self.inner.step(self.part(delta), heard, self.seen(at))
        return self.whole(part, delta), state


class Uploaded(Wrapper):
    """The client works out what the server would hear of its reply, and uploads that too.

    The mathematics of the inner rule, at the price of the upload: SCAFFOLD as published is
    `Uploaded(ControlVariate())`.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> lean = hf.rules.ControlVariate()
        >>> for rule in (lean, hf.Uploaded(lean)):
        ...     run = hf.simulate(hf.Algorithm(rule), model, clients, local, rounds=20)
        ...     print(f"{run.params['weights'].item():.2f}, {run.ledger.total} bytes")
        1.80, 480 bytes
        1.80, 640 bytes
    """

    @property
    def traits(self) -> Traits:
        """A mean of uploads will do."""
        return dataclasses.replace(self.inner.traits, hears_uploads=True)

    def reply(self, delta: Tree, at: ClientView) -> tuple[Tree, Tree]:
        delta, upload = self.inner.reply(delta, at)
        return delta, self.inner.hear(delta, upload, at.heard_by_server())

    def hear(self, delta: Tree, upload: Tree, at: ClientView) -> Tree:
        return upload


class TurnState(NamedTuple):
    """What the server remembers that also takes turns: the inner rule's, and as a client would."""

    inner: Tree
    own: Tree


class ServerTurn(Wrapper):
    r"""After the clients, the server takes a round of the inner rule with a client state of its own.

    It counts as a share of $\gamma$ clients: SCAFFOLD+ is `ServerTurn(ControlVariate(), gamma)`.

    $$ x \leftarrow x + \gamma (x_0 - x), \quad c \leftarrow c + \gamma\,(c_0^+ - c_0) $$

    Args:
        inner: the rule that clients follow and that the server follows too.
        gamma: how much the server's turn counts; a number or a schedule over rounds.

    Reduces to: the inner rule at `gamma=0`.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2, the second with four times the curvature: together the optimum is 1.8.
        >>> data = hf.Examples(np.array([[1.0], [2.0]]), np.array([1.0, 4.0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> model = hf.models.least_squares(intercept=False)
        >>> local = hf.Local(learning_rate=0.1, steps=10)
        >>> server = hf.Server(data, local)
        >>> for gamma in (0, 0.5):
        ...     rule = hf.ServerTurn(hf.rules.ControlVariate(), gamma)
        ...     states = hf.rounds(hf.Algorithm(rule), model, clients, local, server=server)
        ...     print([round(next(states).params["weights"].item(), 2) for _ in range(5)])
        [1.32, 1.69, 1.78, 1.8, 1.8]
        [1.8, 1.79, 1.8, 1.8, 1.8]
    """

    ranges = MappingProxyType({"gamma": Range(0)})
    gamma: Hyper

    @property
    def needs(self) -> frozenset[Need]:  # type: ignore[override]
        """What the inner rule needs of clients it needs of the server too."""
        own = {Need.SERVER_DATA, Need.WHOLE_MODEL, Need.LAST}
        plain = Need.PLAIN_STEPS in self.inner.traits.needs
        return frozenset(own | ({Need.PLAIN_SERVER_STEPS} if plain else set()))

    @property
    def traits(self) -> Traits:
        """Those of the inner rule, and its own needs."""
        inner = self.inner.traits
        return dataclasses.replace(inner, needs=inner.needs | self.needs)

    def inside(self, state: State) -> tuple[tuple[Rule, State], ...]:
        """The inner rule, without what the server remembers as a client."""
        return ((self.inner, state._replace(server=state.server.inner)),)

    def init(self, params: Tree) -> State:
        state = self.inner.init(params)
        return State(server=TurnState(state.server, state.client), client=state.client)

    def send(self, at: ServerView) -> tuple[Tree, Tree]:
        state, mine = at.state
        msg, state = self.inner.send(at._replace(state=state))
        return msg, TurnState(state, mine)

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        rule, (state, mine) = self.inner, at.state
        delta, state = rule.step(delta, heard, at._replace(state=state))
        here = at._replace(x=add(at.x, delta), state=state, share=self.gamma)
        msg, state = rule.send(here)
        me = ClientView(here.x, msg, mine, at.grad, at.weight)
        moved, path = at.solve(here.x, rule.tilt(me))
        me = me._replace(path=path, y=add(here.x, moved))
        moved, upload = rule.reply(moved, me)
        heard = rule.hear(moved, upload, me.heard_by_server())
        more, state = rule.step(scale(self.gamma, moved), heard, here._replace(state=state))
        return add(delta, more), TurnState(state, rule.settle(moved, heard, me))


def _whole_model(*_: Any) -> NoReturn:
    raise HoldfastError(f"Masked: the rule inside needs {Need.WHOLE_MODEL.value}.")


class Masked(Wrapper):
    """A rule on some leaves only; for the rest nothing is stored, sent or computed.

    Args:
        inner: the rule.
        mask: one bool per leaf of the model, or a function of the leaf's path (`"classifier/bias"`).

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Clients agree on the intercept 3, but their slopes are 1 and 2: together 1.8.
        >>> x, y = np.array([[-1.0], [1.0], [-2.0], [2.0]]), np.array([2.0, 4.0, -1.0, 7.0])
        >>> clients = hf.data.partition.in_order(hf.Examples(x, y), clients=2)
        >>> model, local = hf.models.least_squares(), hf.Local(learning_rate=0.1, steps=10)
        >>> everywhere = hf.rules.ControlVariate()
        >>> for rule in (everywhere, hf.Masked(everywhere, lambda path: path == "weights")):
        ...     run = hf.simulate(hf.Algorithm(rule), model, clients, local, rounds=20)
        ...     print(f"{run.params['weights'].item():.2f}, {run.ledger.total} bytes")
        1.80, 960 bytes
        1.80, 800 bytes
    """

    mask: Mask = static()

    def __post_init__(self) -> None:
        # A list is welcome, but what is static must be hashable.
        if not callable(self.mask):
            object.__setattr__(self, "mask", tuple(bool(m) for m in self.mask))
        if isinstance(self.inner, Rule):
            for inside in parts_of(self.inner):
                if Need.WHOLE_MODEL in inside.needs:
                    raise HoldfastError(
                        f"Masked: {type(inside).__name__} needs {Need.WHOLE_MODEL.value}."
                    )

    def _chosen(self, full: Tree) -> tuple[bool, ...]:
        return resolve_mask(self.mask, full, "Masked")

    def part(self, full: Tree) -> Tree:
        """The chosen leaves; the others are absent."""
        leaves, definition = flatten(full)
        chosen = zip(self._chosen(full), leaves, strict=True)
        return definition.unflatten([p if m else None for m, p in chosen])

    def whole(self, part: Tree, full: Tree) -> Tree:
        """The chosen leaves of one and the others of the other."""
        leaves, definition = flatten(full)
        chosen = zip(self._chosen(full), definition.flatten_up_to(part), leaves, strict=True)
        return definition.unflatten([p if m else rest for m, p, rest in chosen])

    def seen(self, at: View) -> View:
        """The view with the chosen leaves; losses and gradients are of whole models only."""

        def cut(full: Tree) -> Tree:
            return None if full is None else self.part(full)

        if isinstance(at, ServerView):
            never = _whole_model
            return at._replace(x=cut(at.x), solve=never, grad=never, direction=never)
        none: Any = None if at.grad is None else _whole_model
        return at._replace(x=cut(at.x), grad=none, y=cut(at.y), loss=none)

    @property
    def traits(self) -> Traits:
        """Those of the inner rule, whose leaves are the chosen ones."""
        inner = self.inner.traits

        def plain_leaves(params: Tree) -> tuple[bool, ...]:
            of_part = iter(inner.plain_leaves(self.part(params)))
            return tuple(m and next(of_part) for m in self._chosen(params))

        return dataclasses.replace(inner, plain_leaves=plain_leaves)

    def tilt(self, at: ClientView) -> Tilt:
        here = self.seen(at)
        tilt = self.inner.tilt(here)
        if not (tilt.weight is None and tilt.mix is None and tilt.start is None):
            _whole_model()
        definition: Any = tree.structure(at.x)

        def spread(term: Tree) -> Tree:
            if term is None:
                return None
            entries = iter(per_leaf(term, here.x))
            return definition.unflatten([next(entries) if m else None for m in self._chosen(at.x)])

        return Tilt(spread(tilt.linear), spread(tilt.pull), spread(tilt.decay))
