"""A method with rules beside it that only watch at the server, for what evaluators ask."""

import dataclasses
from typing import NamedTuple

from holdfast.core.combinators import Wrapper
from holdfast.core.rule import ClientView, Rule, ServerView, State, Traits
from holdfast.trees import Number, Tree


class WatchedState(NamedTuple):
    """What the server remembers: of the method, and of each rule that watches."""

    inner: Tree
    watched: tuple[Tree, ...]


class Heard(NamedTuple):
    """What is made of one reply: by the method, and by each rule that watches."""

    inner: Tree
    watched: tuple[Tree, ...]


class Watched(Wrapper):
    """A rule, and others that hear replies and remember at the server, and do nothing else.

    Unlike in a `Chain`, messages, uploads and client states are those of the inner rule alone: nothing
    that travels or that clients keep is another thing because somebody watches.
    """

    watching: tuple[Rule, ...]

    @property
    def traits(self) -> Traits:
        """Those of the inner rule; but replies must be heard one by one, if somebody listens to them."""
        own = self.inner.traits
        listens = any("hear" in rule.defines for rule in self.watching)
        return dataclasses.replace(own, hears_uploads=own.hears_uploads and not listens)

    def inside(self, state: State) -> tuple[tuple[Rule, State], ...]:
        """The method, and what only watches."""
        own, watched = state.server
        states = [State(server=kept) for kept in watched]
        return (self.inner, state._replace(server=own)), *zip(self.watching, states, strict=True)

    def init(self, params: Tree) -> State:
        own = self.inner.init(params)
        watched = tuple(rule.init(params).server for rule in self.watching)
        return State(WatchedState(own.server, watched), own.client)

    def send(self, at: ServerView) -> tuple[Tree, Tree]:
        own, watched = at.state
        msg, own = self.inner.send(at._replace(state=own))
        return msg, WatchedState(own, watched)

    def hear(self, delta: Tree, upload: Tree, at: ClientView) -> Tree:
        alone = at._replace(msg=(), mine=None)
        watched = tuple(rule.hear(delta, (), alone) for rule in self.watching)
        return Heard(self.inner.hear(delta, upload, at), watched)

    def heard_weights(self, heard: Tree, objective: Number, head: Number) -> Tree:
        pairs = zip(self.watching, heard.watched, strict=True)
        watched = tuple(rule.heard_weights(own, objective, head) for rule, own in pairs)
        return Heard(self.inner.heard_weights(heard.inner, objective, head), watched)

    def settle(self, delta: Tree, heard: Tree, at: ClientView) -> Tree:
        return self.inner.settle(delta, heard.inner, at)

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        own, watched = at.state
        if not isinstance(
            heard, Heard
        ):  # the mean of uploads alone, from a wire that tells no more
            heard = Heard(heard, ((),) * len(self.watching))
        kept = tuple(
            rule.step(delta, made, at._replace(state=state))[1]
            for rule, made, state in zip(self.watching, heard.watched, watched, strict=True)
        )
        moved, own = self.inner.step(delta, heard.inner, at._replace(state=own))
        return moved, WatchedState(own, kept)
