r"""A method is a `Rule`: what it changes at the fixed moments of a round. Silence means FedAvg.

    server   send     -> what to broadcast besides x
    client   prepare  -> once, before its first round
    client   tilt     -> once a round: the local objective; then K local steps, one solver for everybody
    client   reply    -> what to upload besides delta: all that travels
      wire   encode => ... => decode
    server   hear     -> what to make of ONE reply; averaged uniformly; sees no row and no data
    client   settle   -> its new row, from what the server hears
    server   step     -> what to add to x, and its new state

Every function is pure and sees one client or the server, never a client axis.
"""

import enum
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jax import tree

from holdfast import trees
from holdfast.core.struct import Struct
from holdfast.errors import HoldfastError
from holdfast.trees import Number, Tree


class State(NamedTuple):
    """What a rule remembers: on the server, and on each client before its first round."""

    server: Tree = ()
    client: Tree = ()


class ClientView(NamedTuple):
    """All that code running on one client may look at."""

    x: Tree  # the model received
    msg: Tree  # what this rule's `send` broadcast
    mine: Tree  # this rule's own row
    grad: Any  # z -> gradient over all local data, after the local steps that of the tilted loss
    weight: Number = 1.0  # n_i / mean(n)
    path: Number = 0.0  # sum of the step sizes taken, known after the local steps
    y: Tree = None  # the local model, known after the local steps
    loss: Any = None  # z -> mean loss at z over all local data

    def heard_by_server(self) -> "ClientView":
        """The same reply as the server sees it: no row, no data, no local model."""
        return self._replace(mine=None, grad=None, y=None, loss=None)


class ServerView(NamedTuple):
    """All that code running on the server may look at."""

    x: Tree
    state: Tree
    share: Number = 1.0  # |S| / N
    heads: Number = 0.0  # |S|, known after the replies
    solve: Any = None  # (start, tilt) -> (moved, path): local steps on the server's own data
    grad: Any = None  # z -> stochastic gradient at z on the server's own data
    weight: Number = 1.0  # n_0 / mean(n)


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

    def only(a: Any, b: Any, what: str) -> Any:
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
    LOSSLESS_WIRE = "a wire that delivers replies unchanged"
    CALM_WIRE = "a wire whose noise is at most half of what it carries, or a damping"
    SERVER_DATA = "data or a loss at the server"
    WHOLE_MODEL = "the whole model, so Masked goes inside it and not around it"
    HONEST_DELTA = "the delta as the local steps made it, not one rewritten by another rule"
    FIRST = "the first place in its Chain"
    LAST = "the last place in its Chain"


class Rule(Struct):
    """Eight pure functions, each optional; the bare `Rule()` is FedAvg."""

    needs: ClassVar[frozenset[Need]] = frozenset()
    neutral: ClassVar[bool] = False  # changes nothing for others, so it may stand anywhere
    rewrites_delta: ClassVar[bool] = False  # its `reply` sends another delta than the local one

    def parts(self) -> "tuple[Rule, ...]":
        """This rule and every rule inside it."""
        return (self,)

    @property
    def prepares(self) -> bool:
        """Whether clients have something to do before their first round."""
        return type(self).prepare is not Rule.prepare

    @property
    def hears_uploads(self) -> bool:
        """Whether all it hears is what was uploaded, so that a mean of uploads will do."""
        return type(self).hear is Rule.hear

    def quiet(self, clients: int) -> np.ndarray:
        """Which clients neither need the model nor have anything to say: nothing travels for them."""
        return np.zeros(clients, bool)

    def plain_leaves(self, params: Tree) -> tuple[bool, ...]:
        """On which leaves the local steps must be plain SGD."""
        return (Need.PLAIN_STEPS in self.needs,) * len(tree.leaves(params))

    def init(self, params: Tree) -> State:
        """Server state and one client's first row."""
        return State()

    def prepare(self, at: ClientView) -> Tree:
        """Client, once before its first round and without a message: its row. x is the model the
        run began with, so that a client which never takes part can prepare too."""
        return at.mine

    def doubt(self, row: Tree) -> str | None:
        """Host: what to warn of in a row just prepared."""
        return None

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
        """Server: what to make of one reply, to be averaged uniformly over the cohort."""
        return upload

    def unsent(self, at: ClientView) -> Tree:
        """Server, under federated select: the constant gradient, shaped like the model, that this
        rule adds where the client has no data; None if it adds none."""
        return None

    def settle(self, delta: Tree, heard: Tree, at: ClientView) -> Tree:
        """Client: its new row."""
        return at.mine

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        """Server, given the means: what to add to x, and its state."""
        return delta, at.state
