"""The host's part of a round: who takes part, in which slot, with which examples and weight."""

import dataclasses
from typing import NamedTuple

import numpy as np

from holdfast.cohorts import Cohort
from holdfast.core.algorithm import Algorithm
from holdfast.core.keys import Purpose, host_generator
from holdfast.core.round_types import Slot
from holdfast.engine import weights
from holdfast.engine.batches import BatchPlanner
from holdfast.engine.feeds import Feed
from holdfast.engine.layout import Execution
from holdfast.engine.protocol import Engine, Placement
from holdfast.engine.select import Selection
from holdfast.errors import HoldfastError
from holdfast.trees import Tree


class RoundPlan(NamedTuple):
    """One round, planned; of several processes, with the slots and examples of this one."""

    ids: np.ndarray  # the cohort
    clients: np.ndarray  # the client in every slot of the program; -1: none
    here: slice  # the slots of this process, of which is all that follows
    placement: Placement
    slots: Slot
    examples: Tree


def draw(cohort: Cohort, planner: BatchPlanner, seed: int, t: int) -> np.ndarray:
    """The clients of round `t`."""
    drawn = np.asarray(cohort.draw(t, planner.able, host_generator(Purpose.COHORT, seed, t)))
    count = len(planner.clients)
    fits = drawn.ndim == 1 and drawn.dtype.kind in "iu"
    if not fits or (drawn.size and not (drawn.min() >= 0 and drawn.max() < count)):
        raise HoldfastError(
            f"cohort: {type(cohort).__name__} drew {drawn} for round {t + 1}; return an array of some of the "
            f"clients it is given, whole numbers in 0..{count - 1}.",
            about=("cohort",),
        )
    return drawn


@dataclasses.dataclass
class RoundPlanner:
    """Plans rounds. A plan is a function of the round alone, so that the next one is made ahead."""

    algorithm: Algorithm
    cohort: Cohort
    batches: BatchPlanner
    engine: Engine
    feed: Feed
    selection: Selection | None
    seed: int
    dtype: np.dtype
    tiny_steps: bool
    in_place: bool
    # What clients count for where nobody else's data may have a say in it; a round may then be empty.
    fixed_weights: np.ndarray | None = None
    _known: tuple[int, RoundPlan] | None = None
    _homes: tuple[int, np.ndarray] | None = None

    @property
    def private(self) -> bool:
        """Whether nothing may show how many came, not even that nobody did."""
        return self.fixed_weights is not None

    def __call__(self, t: int) -> RoundPlan:
        """The plan of round `t`, made now or ahead."""
        if self._known is None or self._known[0] != t:
            self._known = (t, self.plan(t, draw(self.cohort, self.batches, self.seed, t)))
        return self._known[1]

    def ahead(self, t: int, homes: np.ndarray | None) -> RoundPlan:
        """The plan of round `t` while another runs.

        Of several processes, `homes` has for every client the one with its state, -1 for none. They agree
        on it, and on what is planned by it, as long as nobody else gives it.
        """
        if homes is not None:
            self._known, self._homes = None, (t, homes)
        return self(t)

    def plan(self, t: int, ids: np.ndarray) -> RoundPlan:
        """Round `t` with these clients."""
        # A given schedule may name only clients without data.
        if not len(ids) and not self.private:
            nobody = np.full(1, -1)
            placement = Placement(np.zeros(1, np.int32), Execution())
            return RoundPlan(ids, nobody, slice(0, 1), placement, self.batches.slots(t, nobody), ())
        uniform = self.batches.uniform
        steady = getattr(self.cohort, "steady", False)
        layout = self.engine.layout(len(ids), steady, uniform, self.tiny_steps)
        position, leaf = layout.arrange(self.batches.steps[ids])
        here = self.engine.here(len(position))
        if self._homes is not None and self._homes[0] == t:
            parts = len(position) // (here.stop - here.start)
            position, leaf = layout.near_home(position, leaf, self._homes[1][ids], parts)
        # Of an empty cohort no slot has a client.
        clients = np.append(ids, -1)[position]
        slots, examples = self.feed(self.batches, t, clients[here], self.engine.local_devices)
        slots = self._weighed(ids, position[here], slots)
        if self.selection is not None:
            slots = slots._replace(table_rows=self.selection.rows(clients[here]))
        in_place = self.in_place and layout.width == 1
        execution = Execution(layout.width, uniform, self.feed.apart, in_place)
        return RoundPlan(ids, clients, here, Placement(leaf[here], execution), slots, examples)

    def _weighed(self, ids: np.ndarray, position: np.ndarray, slots: Slot) -> Slot:
        weighting = self.algorithm.weighting
        fixed = self.fixed_weights
        delta, heard, head = weights.of_cohort(weighting, self.batches, ids, self.dtype, fixed)
        alike = weighting == "uniform" and (heard is None or fixed is not None)
        if alike:
            heard = None

        def of_slots(each: np.ndarray) -> np.ndarray:
            return np.append(each, self.dtype.type(0))[position]

        if fixed is not None:
            # Otherwise by the mean size of clients, in which each of them would have a say.
            own = of_slots(delta)
            slots = slots._replace(weight=own)

        return slots._replace(
            delta_weight=None if alike else of_slots(delta),
            heard_weight=None if heard is None else () if heard is delta else of_slots(heard),
            head_weight=None if head is None else of_slots(head),
        )
