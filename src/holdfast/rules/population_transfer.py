"""Gradient transfer between populations of clients, with and without a loss at the server."""

import dataclasses
from typing import Any

import jax.numpy as jnp
from jax import lax, tree

from holdfast.core.hyper import Hyper
from holdfast.core.rule import (
    ClientView,
    Need,
    PerPopulation,
    Rule,
    ServerView,
    State,
    Tilt,
    Traits,
)
from holdfast.core.struct import static
from holdfast.errors import HoldfastError
from holdfast.trees import Number, Tree, add, float_type, zeros


def _over_first(number: Any, u: Any) -> Any:
    """A vector, shaped to multiply an array along its first axis."""
    return number.reshape(-1, *(1,) * (u.ndim - 1)).astype(u.dtype)


class PopulationTransfer(Rule):
    r"""Each population's clients also add the other populations' mean gradients of the last round.

    Of the objective $\sum_p v_p F_p$, where $v_p$ are the populations' weights divided by their sum, a
    client of population p follows its own part by steps and all others by a constant:

    $$ y \leftarrow y - \eta_p\,\big(v_p\, g_i(y) + \textstyle\sum_{q \ne p} h_q\big), \qquad
       h_p^+ = -\frac{\sum_{i \in p} d_i}{\sum_{i \in p} \text{path}_i} - \sum_{q \ne p} h_q $$

    $h_p$ is the mean gradient of $v_p F_p$ along the steps of the round, and comes free from what is
    uploaded anyway, as in two-way transfer; all begin at zero, and a population of which nobody took
    part keeps its own. Every population's mean delta $D_p$ then is a step on the whole objective, so
    that they are averaged: $x \leftarrow x + \sum_p v_p D_p$, or by `merge` $\sum_p m_p D_p$. With
    `merge=(1, 0)` the first population trains and the second only lends it its gradient: one-way.

    The fixed point is where every $h_p$ is the gradient there and they add up to zero: the minimiser of
    the weighted sum, if clients of one population have the same loss (the paper's assumption 5.1), for any
    number of steps. Clients that differ within a population keep their own bias. With one step the
    move is that of FedAvg on the joined populations, with the others' gradients a round old.

    Travels: the model, one gradient and one number down, delta up. Needs clients from `hf.join`.

    Args:
        populations: how many.
        merge: $m_p$, one for each population; by weight unless given.

    Reference: Augenstein et al., "Mixed federated learning", 2022, section 6, which has it in words.
    """

    needs = frozenset({Need.WHOLE_MODEL, Need.PLAIN_STEPS, Need.FIRST})
    populations: int = static(default=2)
    merge: tuple[Hyper, ...] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.populations, int) or self.populations < 1:
            raise HoldfastError(
                f"PopulationTransfer: populations={self.populations!r}; give a whole number of at least 1.",
                about=("populations",),
            )
        if self.merge is not None and len(self.merge) != self._parties:
            raise HoldfastError(
                f"PopulationTransfer: merge has {len(self.merge)} numbers for {self._parties} moves; give "
                f"one for each population, and one for the server if it trains too.",
                about=("merge",),
            )

    @property
    def _parties(self) -> int:
        """Whose moves are merged."""
        return self.populations

    @property
    def traits(self) -> Traits:
        return dataclasses.replace(super().traits, populations=self.populations)

    def init(self, params: Tree) -> State:
        none = tree.map(lambda p: jnp.zeros((self.populations, *p.shape), p.dtype), params)
        return State(server=(none, self._central(params)))

    def _central(self, params: Tree) -> Tree:
        """What is remembered of the server's own loss."""
        return ()

    def _shares(self, at: ServerView) -> Any:
        weights = at.population_weights
        weights = jnp.ones(self.populations) if weights is None else jnp.asarray(weights)
        return (weights / jnp.sum(weights)).astype(float_type(at.x))

    def _others(self, state: Tree) -> Tree:
        """For each population, the sum of all gradients but its own."""
        return tree.map(lambda h: jnp.sum(h, axis=0, keepdims=True) - h, state[0])

    def send(self, at: ServerView) -> tuple[Tree, Tree]:
        return PerPopulation((self._others(at.state), self._shares(at))), at.state

    def tilt(self, at: ClientView) -> Tilt:
        others, share = at.msg
        return Tilt(linear=others, weight=share)

    def hear(self, delta: Tree, upload: Tree, at: ClientView) -> Tree:
        mine = jnp.arange(self.populations, dtype=jnp.int32) == at.population
        counted = mine.astype(float_type(delta))
        # One place for each population, so that a sum over clients, which weighs them as deltas are
        # weighed, is one for each.
        moves = tree.map(lambda d: _over_first(counted, d[None]) * d[None], delta)
        return moves, counted * at.path, counted

    def _heard(self, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        """Each population's mean delta, and its mean gradient in this round."""
        moves, paths, counts = heard
        came = counts > 0

        def divided(by: Any) -> Tree:
            safe = jnp.where(came, by, jnp.ones_like(by))
            return tree.map(lambda m: m / _over_first(safe, m), moves)

        # In a loop that turns once, which the compiler does not know: what is heard is a mean already, and
        # it would take both divisions together, or one with the subtraction, on some numbers of devices.
        once = (counts[0] >= 0).astype(jnp.int32)
        gradients, means = lax.fori_loop(
            0, once, lambda _, __: (divided(paths), divided(counts)), (moves, moves)
        )
        own = tree.map(
            lambda h, total, others: jnp.where(
                _over_first(came, h).astype(bool), (-total - others).astype(h.dtype), h
            ),
            at.state[0],
            gradients,
            self._others(at.state),
        )
        return means, own

    def _merged(self, delta: Tree, moves: Tree) -> Tree:
        if self.merge is None:
            return delta
        weights = jnp.stack([jnp.asarray(m, float) for m in self.merge[: self.populations]])
        return tree.map(lambda m: jnp.sum(_over_first(weights, m) * m, axis=0), moves)

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        moves, own = self._heard(heard, at)
        return self._merged(delta, moves), (own, ())


class CentralPopulationTransfer(PopulationTransfer):
    r"""The same with the server as one more party, which trains on its own loss and lends its gradient.

    $$ y \leftarrow y - \eta_p\,\big(w_p\, g_i(y) + \textstyle\sum_{q \ne p} h_q + h_c\big), \qquad
       y_c \leftarrow y_c - \eta_c\,\big(w_c\, g_c(y_c) + \textstyle\sum_q h_q\big), \qquad
       h_c^+ = -\frac{D_c}{\text{path}_c} - \sum_q h_q $$

    The objective is $\sum_p w_p F_p + w_c f_c$, and its minimiser the fixed point as above. Moves of the P
    populations, by weight, and of the server are averaged, or added by `merge`:
    $x \leftarrow x + (P\, \overline{d} + D_c)/(P + 1)$.

    Args:
        populations: how many.
        merge: $m_p$ for each population, then $m_c$; averaged unless given.
        central: $w_c$, weight of the server's loss.

    Reduces to: `TwoWayTransfer` with one population.

    Reference: Augenstein et al., "Mixed federated learning", 2022, algorithm 1 and section 6.
    """

    needs = PopulationTransfer.needs | {Need.SERVER_DATA, Need.PLAIN_SERVER_STEPS}
    central: Hyper = 1.0

    @property
    def _parties(self) -> int:
        return self.populations + 1

    def _central(self, params: Tree) -> Tree:
        return zeros(params)

    def _others(self, state: Tree) -> Tree:
        return tree.map(lambda h, c: h + c[None], super()._others(state), state[1])

    def step(self, delta: Tree, heard: Tree, at: ServerView) -> tuple[Tree, Tree]:
        moves, own = self._heard(heard, at)
        populations = tree.map(lambda h: jnp.sum(h, axis=0), at.state[0])
        moved, path = at.solve(at.x, Tilt(linear=populations, weight=self.central))
        central = tree.map(lambda m, h: (-m / path - h).astype(m.dtype), moved, populations)
        parties = self._parties
        both = ((parties - 1) / parties, 1 / parties)
        if self.merge is not None:
            both = (1.0, self.merge[-1])

        def scaled(m: Number, u: Tree) -> Tree:
            return tree.map(lambda p: (m * p).astype(p.dtype), u)

        merged = add(scaled(both[0], self._merged(delta, moves)), scaled(both[1], moved))
        return merged, (own, central)
