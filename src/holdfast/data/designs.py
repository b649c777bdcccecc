"""Test designs: which rows are trained on, chosen by, and tested on."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.data.checks import generator, is_number
from holdfast.errors import HoldfastError, did_you_mean

TRAIN, VALIDATION, TEST = 0, 1, 2
_DEFAULT_SHARE = 0.2
_WORDS = {
    "train": TRAIN,
    "training": TRAIN,
    "validation": VALIDATION,
    "valid": VALIDATION,
    "val": VALIDATION,
    "dev": VALIDATION,
    "test": TEST,
}


@dataclasses.dataclass(frozen=True)
class Design:
    """How rows are divided.

    Args:
        test_share: share of every client's rows to test on; 0.2 unless given, or 0 where whole clients
            are tested on.
        validation_share: share of every client's rows to choose by, in the same way.
        leave_out: clients whose rows are all tested on.
        unseen: share of the clients whose rows are all tested on, drawn by the seed.
        seed: draws rows, groups and clients.
    """

    test_share: float | None = None
    validation_share: float = 0.0
    leave_out: tuple[str, ...] = ()
    unseen: float = 0.0
    seed: int = 0

    def check(self, who: str, owned: bool, given: Sequence[str]) -> None:
        """Refuse what cannot work; `given` are columns and files that say something on tests."""
        shares = {"test_share": self.test_share, "validation_share": self.validation_share}
        for name, value in {**shares, "unseen": self.unseen}.items():
            if value is not None and (not is_number(value) or not 0 <= value < 1):
                raise HoldfastError(
                    f"{who}: {name}={value!r}; give a number from 0 to below 1, such as 0.2.",
                    about=(name,),
                )
        if (self.test_share or 0) + self.validation_share >= 1:
            raise HoldfastError(
                f"{who}: test_share={self.test_share} and validation_share={self.validation_share} leave "
                f"nothing to train on; give less.",
                about=("validation_share",),
            )
        whole = [n for n, v in (("leave_out", self.leave_out), ("unseen", self.unseen)) if v]
        if whole and not owned:
            raise HoldfastError(
                f"{who}: {whole[0]} is given, but nothing says whose a row is; give `client`, or a file "
                f"per client.",
                about=(whole[0],),
            )
        own = [name for name in given if name in ("split", "test_path")]
        others = [*whole, *(["test_share"] if self.test_share else [])]
        if len(whole) == 2 or len(own) == 2 or (own and others):
            several = [*own, *others] if own else whole
            raise HoldfastError(
                f"{who}: {several[0]} and {several[1]} both say what to test on; give one of them.",
                about=(several[1],),
            )
        if "group" in given and "time" in given:
            raise HoldfastError(
                f"{who}: group and time both say which rows of a client are tested on; give one of them.",
                about=("time",),
            )

    def parts(
        self,
        who: str,
        owners: np.ndarray | None,
        rows: int,
        groups: np.ndarray | None = None,
        times: np.ndarray | None = None,
        told: np.ndarray | None = None,
    ) -> np.ndarray:
        """For each row 0 (train), 1 (validation) or 2 (test).

        Args:
            who: asks for it; messages begin with it.
            owners: whose each row is.
            rows: how many there are.
            groups: rows of one group are in one part.
            times: the last of a client's rows are tested on, the last before them chosen by.
            told: parts that are given already; only validation is drawn, from what is 0.
        """
        part = np.zeros(rows, np.int8) if told is None else told.astype(np.int8)
        client = np.zeros(rows, np.int64)
        names = np.array(["all"])
        if owners is not None:
            names, client = np.unique(owners, return_inverse=True)
        whole = bool(self.leave_out or self.unseen)
        if self.leave_out:
            part[np.isin(client, _numbers(names, self.leave_out, who))] = TEST
        elif self.unseen:
            drawn = generator(self.seed).permutation(len(names))
            tested = round(len(names) * self.unseen)
            chosen = round(len(names) * self.validation_share)
            if not tested or len(names) <= tested + chosen:
                raise HoldfastError(
                    f"{who}: unseen={self.unseen} of {len(names)} clients are {tested}, beside {chosen} to "
                    f"choose by; leave some on either side.",
                    about=("unseen",),
                )
            part[np.isin(client, drawn[:tested])] = TEST
            part[np.isin(client, drawn[tested : tested + chosen])] = VALIDATION
        share = self.test_share
        if share is None:
            share = 0.0 if whole or told is not None else _DEFAULT_SHARE
        sizes = np.bincount(client[part == TRAIN], minlength=len(names))
        # Both shares are of what a client had before either was taken.
        self._take(part, TEST, share, client, sizes, groups, times)
        if not self.unseen:
            self._take(part, VALIDATION, self.validation_share, client, sizes, groups, times)
        if groups is not None:
            _check_groups(who, part, groups, client, whole)
        return part

    def _take(
        self,
        part: np.ndarray,
        into: int,
        share: float,
        client: np.ndarray,
        sizes: np.ndarray,
        groups: np.ndarray | None,
        times: np.ndarray | None,
    ) -> None:
        """Move a share of every client's training rows into another part."""
        if not share:
            return
        free = np.flatnonzero(part == TRAIN)
        # The same draw as ever for the test rows; another one for validation.
        rng = generator(self.seed)
        if into == VALIDATION:
            rng = np.random.default_rng([self.seed, into])
        wanted = np.round(sizes * share).astype(np.int64)
        if groups is not None:
            names, codes = np.unique(groups, return_inverse=True)
            chosen = _whole_groups(rng, codes[free], len(names), client[free], wanted)
        elif times is not None:
            chosen = _latest(times[free], client[free], wanted)
        else:
            chosen = _drawn(rng, client[free], wanted)
        part[free[chosen]] = into


def _drawn(rng: np.random.Generator, client: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """So many rows of every client, drawn; everybody keeps one."""
    n = len(client)
    sizes = np.bincount(client, minlength=len(wanted))
    kept = np.minimum(wanted, np.maximum(sizes - 1, 0))
    shuffled = rng.permutation(n)
    by_client = shuffled[np.argsort(client[shuffled], kind="stable")]
    place = np.arange(n) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    chosen = np.zeros(n, bool)
    chosen[by_client[place < np.repeat(kept, sizes)]] = True
    return chosen


def _latest(times: np.ndarray, client: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The last rows of every client; those of the moment of its last training row are trained on too."""
    chosen = np.zeros(len(client), bool)
    order = np.lexsort((times, client))
    starts = np.searchsorted(client[order], np.arange(len(wanted) + 1))
    for i, number in enumerate(wanted):
        mine = order[starts[i] : starts[i + 1]]
        number = min(int(number), len(mine) - 1)
        if number > 0:
            last = times[mine[-number - 1]]
            chosen[mine[times[mine] > last]] = True
    return chosen


def _whole_groups(
    rng: np.random.Generator, group: np.ndarray, count: int, client: np.ndarray, wanted: np.ndarray
) -> np.ndarray:
    """Groups of every client with about so many rows; everybody keeps one group.

    A group that several clients have goes with its rows everywhere. Who has at least two groups gives
    one, though it be larger than wanted.
    """
    chosen, decided = np.zeros(count, bool), np.zeros(count, bool)
    order = np.argsort(client, kind="stable")
    starts = np.searchsorted(client[order], np.arange(len(wanted) + 1))
    for i, number in enumerate(wanted):
        mine, sizes = np.unique(group[order[starts[i] : starts[i + 1]]], return_counts=True)
        free = rng.permutation(np.flatnonzero(~decided[mine]))
        decided[mine] = True
        have = int(sizes[chosen[mine]].sum())
        # One stays, unless a group that is trained on elsewhere is here too.
        kept = len(free) < len(mine) - int(chosen[mine].sum())
        if not number or len(free) + kept < 2:
            continue
        able = free if kept else free[:-1]
        taken = []
        for k in able:
            if abs(have + sizes[k] - number) < abs(have - number):
                taken.append(k)
                have += int(sizes[k])
        if not have:
            taken = [able[np.argmin(sizes[able])]]
        chosen[mine[taken]] = True
    return chosen[group]


def _check_groups(
    who: str, part: np.ndarray, groups: np.ndarray, client: np.ndarray, whole: bool
) -> None:
    """Refuse a group in two parts, which whole clients and given parts may do."""
    names, codes = np.unique(groups, return_inverse=True)
    least = np.full(len(names), TEST, np.int8)
    most = np.zeros(len(names), np.int8)
    np.minimum.at(least, codes, part)
    np.maximum.at(most, codes, part)
    torn = np.flatnonzero(least != most)
    if len(torn):
        why = "clients that are tested on share it with others" if whole else "the file says so"
        raise HoldfastError(
            f"{who}: group {str(names[torn[0]])!r} and {len(torn) - 1} more would be trained and tested on: "
            f"{why}; leave out such rows, or give another design.",
            about=("group",),
        )


def _numbers(names: np.ndarray, wanted: Sequence[str], who: str) -> list[int]:
    known = [str(name) for name in names]
    for name in wanted:
        if name not in known:
            raise HoldfastError(
                f"{who}: leave_out: no client is called `{name}`; {did_you_mean(name, known)}",
                about=("leave_out",),
            )
    if len(set(wanted)) >= len(known):
        raise HoldfastError(
            f"{who}: leave_out names all {len(known)} clients; leave some to train on.",
            about=("leave_out",),
        )
    return [known.index(name) for name in wanted]


def told_parts(values: Sequence[Any], column: str, who: str) -> np.ndarray:
    """Parts by the words of a column: train, validation, test."""
    found = np.zeros(len(values), np.int8)
    for row, value in enumerate(values):
        word = str(value).strip().lower()
        if word not in _WORDS:
            raise HoldfastError(
                f"{who}: row {row} (from 0), column `{column}` is {value!r}; give train, validation or test.",
                about=("split",),
            )
        found[row] = _WORDS[word]
    return found
