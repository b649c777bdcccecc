"""Rules made of rules: several at once, or one on some leaves only."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import numpy as np
from jax import tree

from holdfast.core.hyper import Hyper
from holdfast.core.rule import ClientView, Need, Rule, ServerView, State, Tilt, add_tilts, per_leaf
from holdfast.core.struct import static
from holdfast.errors import HoldfastError
from holdfast.trees import Mask, Tree, add, flatten, resolve_mask, scale


class Chain(Rule):
    """Several rules at once: tilts add; replies and server steps are applied in order.

    Each rule keeps its own row, broadcast, upload and state.

    Example:
        >>> import holdfast as hf
        >>> feddc = hf.Chain((hf.rules.ControlVariate(), hf.rules.Dynamic(alpha=0.1)))
    """

    rules: tuple[Rule, ...]

    def __post_init__(self) -> None:
        for rule in self.rules:
            if not isinstance(rule, Rule):
                raise HoldfastError(
                    f"Chain: {rule!r} is a {type(rule).__name__}; give rules, such as "
                    f"hf.Chain((hf.rules.ControlVariate(), hf.rules.Dynamic(alpha=0.1)))."
                )
        acting = [rule for rule in self.rules if not rule.neutral]
        for place, rule in enumerate(acting):
            name, needs = type(rule).__name__, {n for part in rule.parts() for n in part.needs}
            for need, wanted in ((Need.FIRST, 0), (Need.LAST, len(acting) - 1)):
                if need in needs and place != wanted:
                    raise HoldfastError(
                        f"Chain: {name} stands at place {place} of {len(acting)} but needs "
                        f"{need.value}; move it there."
                    )
            rewriting = [type(r).__name__ for r in acting if r is not rule and _rewrites(r)]
            if Need.HONEST_DELTA in needs and rewriting:
                raise HoldfastError(
                    f"Chain: {name} needs {Need.HONEST_DELTA.value}, and {rewriting[0]} rewrites it; "
                    f"use one or the other."
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

    def parts(self) -> tuple[Rule, ...]:
        return (self, *(part for rule in self.rules for part in rule.parts()))

    @property
    def prepares(self) -> bool:
        return any(rule.prepares for rule in self.rules)

    @property
    def hears_uploads(self) -> bool:
        return all(rule.hears_uploads for rule in self.rules)

    def quiet(self, clients: int) -> np.ndarray:
        quiet = np.any([rule.quiet(clients) for rule in self.rules], axis=0)
        # Beside a rule that bends the objective, a quiet client would move with the others' mean;
        # it stays quiet only if all are, for then there is nothing to move with.
        bent = any(
            type(part).tilt is not Rule.tilt for r in self._loud(clients) for part in r.parts()
        )
        return quiet if quiet.all() or not bent else np.zeros(clients, bool)

    def _loud(self, clients: int) -> list[Rule]:
        return [rule for rule in self.rules if not rule.quiet(clients).any()]

    def plain_leaves(self, params: Tree) -> tuple[bool, ...]:
        none = (False,) * len(tree.leaves(params))
        wanted = (rule.plain_leaves(params) for rule in self.rules)
        return functools.reduce(lambda a, b: tuple(map(max, a, b)), wanted, none)

    def init(self, params: Tree) -> State:
        states = [rule.init(params) for rule in self.rules]
        return State(tuple(s.server for s in states), tuple(s.client for s in states))

    def prepare(self, at: ClientView) -> Tree:
        return tuple(rule.prepare(here) for rule, here in self._each(at))

    def doubt(self, row: Tree) -> str | None:
        doubts = (rule.doubt(own) for rule, own in zip(self.rules, row, strict=True))
        return next((doubt for doubt in doubts if doubt), None)

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

    def unsent(self, at: ClientView) -> Tree:
        # A rule that remembers takes what others add into its rows, so only one alone is exact.
        added = [(rule, rule.unsent(here)) for rule, here in self._each(at)]
        known = [gradient for _, gradient in added if gradient is not None]
        silent = [rule for rule, gradient in added if gradient is None and not rule.neutral]
        remembering = any(tree.leaves(rule.init(at.x).client) for rule in silent)
        return known[0] if len(known) == 1 and not remembering else None

    def settle(self, delta: Tree, heard: Tree, at: ClientView) -> Tree:
        return tuple(rule.settle(delta, h, here) for rule, here, h in self._each(at, heard))

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        states = []
        for rule, here, h in self._each(at, heard):
            delta, state = rule.step(delta, h, here)
            states.append(state)
        return delta, tuple(states)


def _rewrites(rule: Rule) -> bool:
    return any(part.rewrites_delta for part in rule.parts())


class Around(Rule):
    """Follows an inner rule in everything; what goes around it speaks where it has something to say."""

    inner: Rule

    def parts(self) -> tuple[Rule, ...]:
        return (self, *self.inner.parts())

    @property
    def prepares(self) -> bool:
        return self.inner.prepares

    @property
    def hears_uploads(self) -> bool:
        return self.inner.hears_uploads

    def quiet(self, clients: int) -> np.ndarray:
        return self.inner.quiet(clients)

    def plain_leaves(self, params: Tree) -> tuple[bool, ...]:
        return self.inner.plain_leaves(params)

    def init(self, params: Tree) -> State:
        return self.inner.init(params)

    def prepare(self, at: ClientView) -> Tree:
        return self.inner.prepare(at)

    def doubt(self, row: Tree) -> str | None:
        return self.inner.doubt(row)

    def send(self, at: ServerView) -> tuple[Tree, Tree]:
        return self.inner.send(at)

    def tilt(self, at: ClientView) -> Tilt:
        return self.inner.tilt(at)

    def reply(self, delta: Tree, at: ClientView) -> tuple[Tree, Tree]:
        return self.inner.reply(delta, at)

    def hear(self, delta: Tree, upload: Tree, at: ClientView) -> Tree:
        return self.inner.hear(delta, upload, at)

    def unsent(self, at: ClientView) -> Tree:
        return self.inner.unsent(at)

    def settle(self, delta: Tree, heard: Tree, at: ClientView) -> Tree:
        return self.inner.settle(delta, heard, at)

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        return self.inner.step(delta, heard, at)


class Uploaded(Around):
    """The client works out what the server would hear of its reply, and uploads that too.

    The mathematics of the inner rule, at the price of the upload: SCAFFOLD as published is
    `Uploaded(ControlVariate())`.
    """

    @property
    def hears_uploads(self) -> bool:
        return True

    def reply(self, delta: Tree, at: ClientView) -> tuple[Tree, Tree]:
        delta, upload = self.inner.reply(delta, at)
        return delta, self.inner.hear(delta, upload, at.heard_by_server())

    def hear(self, delta: Tree, upload: Tree, at: ClientView) -> Tree:
        return upload


class ServerTurn(Around):
    r"""After the clients, the server takes a round of the inner rule with a row of its own.

    It counts as a share of $\gamma$ clients: SCAFFOLD+ is `ServerTurn(ControlVariate(), gamma)`.

    $$ x \leftarrow x + \gamma (x_0 - x), \quad c \leftarrow c + \gamma\,(c_0^+ - c_0) $$

    Args:
        inner: the rule that clients follow and that the server follows too.
        gamma: how much the server's turn counts; a number or a schedule over rounds.

    Reduces to: the inner rule at `gamma=0`.
    """

    gamma: Hyper

    @property
    def needs(self) -> frozenset[Need]:  # type: ignore[override]
        """What the inner rule needs of clients it needs of the server too."""
        own = {Need.SERVER_DATA, Need.WHOLE_MODEL, Need.LAST}
        plain = any(Need.PLAIN_STEPS in part.needs for part in self.inner.parts())
        return frozenset(own | ({Need.PLAIN_SERVER_STEPS} if plain else set()))

    def init(self, params: Tree) -> State:
        state = self.inner.init(params)
        return State(server=(state.server, state.client), client=state.client)

    def send(self, at: ServerView) -> tuple[Tree, Tree]:
        state, row = at.state
        msg, state = self.inner.send(at._replace(state=state))
        return msg, (state, row)

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        rule, (state, row) = self.inner, at.state
        delta, state = rule.step(delta, heard, at._replace(state=state))
        here = at._replace(x=add(at.x, delta), state=state, share=self.gamma)
        msg, state = rule.send(here)
        me = ClientView(here.x, msg, row, at.grad, at.weight)
        moved, path = at.solve(here.x, rule.tilt(me))
        me = me._replace(path=path, y=add(here.x, moved))
        moved, upload = rule.reply(moved, me)
        heard = rule.hear(moved, upload, me.heard_by_server())
        more, state = rule.step(scale(self.gamma, moved), heard, here._replace(state=state))
        return add(delta, more), (state, rule.settle(moved, heard, me))


def _whole_model(*_: Any) -> NoReturn:
    raise HoldfastError(f"Masked: the rule inside needs {Need.WHOLE_MODEL.value}.")


class Masked(Rule):
    """A rule on some leaves only; for the rest nothing is stored, sent or computed.

    Args:
        inner: the rule.
        mask: one bool per leaf of the model, or a function of the leaf's path (`"classifier/bias"`).

    Example:
        >>> import holdfast as hf
        >>> fedpvr = hf.Masked(hf.rules.ControlVariate(), lambda path: path.startswith("classifier"))
    """

    inner: Rule
    mask: Mask = static()

    def __post_init__(self) -> None:
        if not callable(self.mask):  # a list is welcome, but what is static must be hashable
            object.__setattr__(self, "mask", tuple(bool(m) for m in self.mask))
        if isinstance(self.inner, Rule):
            for part in self.inner.parts():
                if Need.WHOLE_MODEL in part.needs:
                    raise HoldfastError(
                        f"Masked: {type(part).__name__} needs {Need.WHOLE_MODEL.value}."
                    )

    def _cut(self, full: Tree) -> Tree:
        leaves, definition = flatten(full)
        mask = resolve_mask(self.mask, full, "Masked")
        return definition.unflatten([p if m else None for m, p in zip(mask, leaves, strict=True)])

    def _paste(self, part: Tree, full: Tree) -> Tree:
        leaves, definition = flatten(full)
        mask = resolve_mask(self.mask, full, "Masked")
        chosen = zip(mask, definition.flatten_up_to(part), leaves, strict=True)
        return definition.unflatten([p if m else rest for m, p, rest in chosen])

    def _view(self, at: Any) -> Any:
        def cut(part: Tree) -> Tree:
            return None if part is None else self._cut(part)

        if isinstance(at, ServerView):
            return at._replace(x=cut(at.x), solve=_whole_model, grad=_whole_model)
        grad: Callable[..., Any] | None = None if at.grad is None else _whole_model
        return at._replace(x=cut(at.x), grad=grad, y=cut(at.y), loss=grad)

    def parts(self) -> tuple[Rule, ...]:
        return (self, *self.inner.parts())

    @property
    def prepares(self) -> bool:
        return self.inner.prepares

    @property
    def hears_uploads(self) -> bool:
        return self.inner.hears_uploads

    def plain_leaves(self, params: Tree) -> tuple[bool, ...]:
        inner = iter(self.inner.plain_leaves(self._cut(params)))
        return tuple(m and next(inner) for m in resolve_mask(self.mask, params, "Masked"))

    def init(self, params: Tree) -> State:
        return self.inner.init(self._cut(params))

    def prepare(self, at: ClientView) -> Tree:
        return self.inner.prepare(self._view(at))

    def send(self, at: ServerView) -> tuple[Tree, Tree]:
        return self.inner.send(self._view(at))

    def tilt(self, at: ClientView) -> Tilt:
        here = self._view(at)
        tilt = self.inner.tilt(here)
        if not (tilt.weight is None and tilt.mix is None and tilt.start is None):
            _whole_model()
        definition: Any = tree.structure(at.x)

        def spread(term: Tree) -> Tree:
            if term is None:
                return None
            entries = iter(per_leaf(term, here.x))
            mask = resolve_mask(self.mask, at.x, "Masked")
            return definition.unflatten([next(entries) if m else None for m in mask])

        return Tilt(spread(tilt.linear), spread(tilt.pull), spread(tilt.decay))

    def reply(self, delta: Tree, at: ClientView) -> tuple[Tree, Tree]:
        part, upload = self.inner.reply(self._cut(delta), self._view(at))
        return self._paste(part, delta), upload

    def hear(self, delta: Tree, upload: Tree, at: ClientView) -> Tree:
        return self.inner.hear(self._cut(delta), upload, self._view(at))

    def settle(self, delta: Tree, heard: Tree, at: ClientView) -> Tree:
        return self.inner.settle(self._cut(delta), heard, self._view(at))

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        part, state = self.inner.step(self._cut(delta), heard, self._view(at))
        return self._paste(part, delta), state
