"""Which examples are kept for testing, where a data set does not say."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.data.checks import check_share, generator
from holdfast.data.clients import Examples
from holdfast.data.dataset import Dataset
from holdfast.errors import HoldfastError

LATER, OTHERS = "later", "others"


@dataclasses.dataclass(frozen=True)
class Reserve:
    """What is kept for testing.

    Args:
        test: `later` keeps the end of what everybody has, `others` all that some owners have.
        share: how much, of an owner's examples or of the owners.
        seed: draws those owners.
    """

    test: str = LATER
    share: float = 0.2
    seed: int = 0

    def check(self, of: str) -> None:
        """Refuse what cannot work, in the name of the loader that was called."""
        if self.test not in (LATER, OTHERS):
            raise HoldfastError(
                f"{of}: test={self.test!r}; give `later` or `others`.", about=("test",)
            )
        check_share(of, self.share)

    def rows(self, owners: np.ndarray, gap: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Rows to train and to test on; an owner's rows are in order of time.

        Args:
            owners: one per example, those of one owner together.
            gap: so many rows between an owner's two parts belong to neither, as they overlap with both.
        """
        sizes, place = owner_runs(owners)
        if self.test == OTHERS:
            drawn = generator(self.seed).permutation(len(sizes))
            held_out = np.zeros(len(sizes), bool)
            held_out[drawn[: round(len(sizes) * self.share)]] = True
            tested = np.repeat(held_out, sizes)
            return np.flatnonzero(~tested), np.flatnonzero(tested)
        kept = np.repeat(np.maximum(1, np.floor(sizes * (1 - self.share))), sizes)
        return np.flatnonzero(place < kept), np.flatnonzero(place >= kept + gap)

    def split(
        self,
        x: Any,
        y: Any,
        owners: np.ndarray,
        gap: int = 0,
        everyone_tests: bool = False,
        **about: Any,
    ) -> Dataset:
        """A data set of examples that are sorted by owner.

        Others who are tested train nothing and are not named, so that nobody becomes a client
        without data. `everyone_tests` leaves out owners that have too little for both parts.
        """
        train, test = self.rows(owners, gap)
        if everyone_tests and self.test == LATER and self.share:
            train = train[np.isin(owners[train], owners[test])]
        return Dataset(
            Examples(x[train], y[train]),
            Examples(x[test], y[test]),
            owners[train],
            None if self.test == OTHERS else owners[test],
            **about,
        )


def owner_runs(owners: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """How many examples each owner has, and the place of each example among its owner's.

    Examples of one owner stand together.

    Example:
        >>> sizes, place = owner_runs(np.array(["b", "b", "b", "a"]))
        >>> sizes.tolist(), place.tolist()
        ([3, 1], [0, 1, 2, 0])
    """
    starts = np.flatnonzero(np.r_[len(owners) > 0, owners[1:] != owners[:-1]])
    sizes = np.diff(np.r_[starts, len(owners)])
    return sizes, np.arange(len(owners)) - np.repeat(starts, sizes)


def draw_owners(names: Sequence[str], number: int | None, seed: int) -> list[str]:
    """Only so many of the names, drawn by the seed, in the order they have; all where it is None."""
    drawn = generator(seed).permutation(len(names))[:number]
    return [names[k] for k in sorted(drawn)]
