"""Which client runs where: work balanced over devices, and sums that do not depend on how many there are.

Replies are added up along a binary tree with a fixed number of leaves. Clients are dealt to the halves
of the tree, and to their halves, by their work alone; a device owns a subtree. So one device or eight
add the same numbers in the same order, and the result is the same to the bit.
"""

import dataclasses

import numpy as np

LEAVES = 8
# More slots than a half of a cohort needs, where clients differ in size.
_SLACK = 0.2


@dataclasses.dataclass(frozen=True)
class Execution:
    """How a program goes through its slots.

    Args:
        width: clients that a device works on at a time.
        uniform: all of them take as many steps.
        examples_apart: every device has examples of its own.
        in_place: new client states take the place of the old ones, whose arrays are used up.
    """

    width: int = 1
    uniform: bool = False
    examples_apart: bool = False
    in_place: bool = False


@dataclasses.dataclass(frozen=True)
class SlotLayout:
    """Slots for a cohort, of a number that does not depend on who is in it.

    Args:
        slots: in all.
        uniform: every client has the same work, so that halves are equal.
        devices: a power of two, at most `leaves`.
        leaves: of the tree.
        width: clients that a device works on at a time.
    """

    slots: int
    uniform: bool
    devices: int = 1
    leaves: int = LEAVES
    width: int = 1

    @property
    def levels(self) -> int:
        """Halvings from the whole cohort to a leaf."""
        return self.leaves.bit_length() - 1

    def capacity(self, level: int) -> int:
        """The most clients in one subtree at that depth."""
        most = self.slots
        for _ in range(level):
            half = -(-most // 2)
            most = half if self.uniform else min(most, half + int(np.ceil(_SLACK * half)))
        return most

    @property
    def per_device(self) -> int:
        """Slots on each device, in full chunks."""
        return -(-self.capacity(self.devices.bit_length() - 1) // self.width) * self.width

    def arrange(self, costs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """For every slot the position of its client among the costs (-1: empty), and its leaf."""
        groups = [np.argsort(-costs, kind="stable")]
        for level in range(1, self.levels + 1):
            most = self.capacity(level)
            groups = [half for group in groups for half in _halve(group, costs, most)]
        slot = np.full((self.devices, self.per_device), -1)
        leaf = np.zeros((self.devices, self.per_device), np.int32)
        each = self.leaves // self.devices
        for device in range(self.devices):
            mine = range(device * each, (device + 1) * each)
            order = np.concatenate([groups[g] for g in mine])
            leaves = np.repeat(list(mine), [len(groups[g]) for g in mine])
            # Who works at the same time should have as much to do. A leaf's own order, and with it
            # the order of its sum, stays: it is by work already.
            sorted_ = np.argsort(-costs[order], kind="stable")
            slot[device, : len(order)] = order[sorted_]
            leaf[device] = device * each
            leaf[device, : len(order)] = leaves[sorted_]
        return slot.reshape(-1), leaf.reshape(-1)

    def near_home(
        self, slot: np.ndarray, leaf: np.ndarray, homes: np.ndarray, parts: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """What `arrange` gave, on other devices: as many clients as can be in the part they come from.

        Halves of the tree, and theirs, may change places: a sum has the same bits either way round.

        Args:
            slot: for every slot the position of its client.
            leaf: for every slot its leaf.
            homes: for every client the part it comes from; -1: from none.
            parts: equal parts of the devices.
        """
        blocks = slot.reshape(parts, -1)
        met = np.zeros((parts, parts), int)
        for part, block in enumerate(blocks):
            known = homes[block[block >= 0]]
            met[part] = np.bincount(known[known >= 0], minlength=parts)
        _, there = _best_turn(met, list(range(parts)), list(range(parts)))
        each = self.leaves // parts
        own = leaf.reshape(parts, -1) - each * np.arange(parts)[:, None]
        moved, order = own + each * np.array(there)[:, None], np.argsort(there)
        return blocks[order].reshape(-1), moved[order].reshape(-1).astype(leaf.dtype)


def _best_turn(met: np.ndarray, blocks: list[int], parts: list[int]) -> tuple[int, list[int]]:
    """How many meet, and the part for each of the blocks, with the halves this way round or the other."""
    if len(blocks) == 1:
        return int(met[blocks[0], parts[0]]), parts
    half = len(blocks) // 2
    ways = []
    for first, second in ((parts[:half], parts[half:]), (parts[half:], parts[:half])):
        one, two = _best_turn(met, blocks[:half], first), _best_turn(met, blocks[half:], second)
        ways.append((one[0] + two[0], one[1] + two[1]))
    return max(ways, key=lambda way: way[0])


def _halve(group: np.ndarray, costs: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Two halves of nearly the same work: the longest first, each to the side that has less."""
    sides: tuple[list[int], list[int]] = ([], [])
    work = [0, 0]
    for i in group.tolist():
        side = int(work[1] < work[0])
        if len(sides[side]) == most:
            side = 1 - side
        sides[side].append(i)
        work[side] += int(costs[i])
    return np.array(sides[0], int), np.array(sides[1], int)
