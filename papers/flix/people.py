"""Natural splits with few training examples: activities of thirty people, patients of four hospitals."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np

import holdfast as hf

HAPT = Path("hapt/hapt.npz")
WINDOW = 128  # samples, 2.56 seconds; windows do not overlap, so that no test window was trained on
ACTIVITIES = 6  # walking, upstairs, downstairs, sitting, standing, lying; no postural transitions
HOSPITALS = ("cleveland", "hungarian", "switzerland", "va")
HEART = Path("heart-disease")


@dataclasses.dataclass(frozen=True)
class Owned:
    """Examples, and which client each belongs to."""

    x: np.ndarray
    y: np.ndarray
    owner: np.ndarray
    classes: int


@dataclasses.dataclass(frozen=True)
class Split:
    """Every client's training, validation and test examples."""

    train: hf.Clients
    validation: hf.Clients
    test: hf.Clients
    classes: int


def activities(folder: Path) -> Owned:
    """HAPT's windows of one person, recording and activity: mean, deviation, extremes, mean change."""
    file = folder / HAPT
    with np.load(file) as given:
        signals, label = given["signals"], given["label"]
        person, recording = given["subject"], given["experiment"]
    changes = [np.diff(a) != 0 for a in (label, person, recording)]
    borders = np.flatnonzero(np.logical_or.reduce(changes)) + 1
    begins, ends = np.r_[0, borders], np.r_[borders, len(label)]
    at = np.concatenate(
        [
            np.arange(begin, end - WINDOW + 1, WINDOW)
            for begin, end in zip(begins, ends, strict=True)
            if 1 <= label[begin] <= ACTIVITIES
        ]
    )
    windows = signals[at[:, None] + np.arange(WINDOW)]
    change = np.abs(np.diff(windows, axis=1)).mean(axis=1)
    sides = (windows.mean(1), windows.std(1), windows.min(1), windows.max(1), change)
    x = np.concatenate(sides, axis=1)
    return Owned(x, label[at] - 1, person[at], ACTIVITIES)


def stand_in(clients: int = 30, seed: int = 0) -> Owned:
    """Handwritten digits, few classes per client: for a quick run."""
    train, test = hf.data.digits(seed=seed)
    x, y = (np.concatenate(parts) for parts in zip(train, test, strict=True))
    parts = hf.data.partition.dirichlet(hf.Examples(x, y), clients, 0.3, seed=seed)
    owner = np.zeros(len(y), int)
    for i in range(clients):
        owner[parts.rows(i)] = i
    return Owned(x, y, owner, 10)


def hospitals(folder: Path) -> Owned:
    """Heart disease by hospital, missing values as NaN."""
    files = [folder / HEART / f"processed.{name}.data" for name in HOSPITALS]
    tables = [np.genfromtxt(f, delimiter=",", missing_values="?") for f in files]
    rows = np.concatenate(tables)
    owner = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    return Owned(rows[:, :-1], rows[:, -1] > 0, owner, 2)


def split(given: Owned, training: int, validation: int, seed: int) -> Split:
    """Half of each client's examples are for the test, the same for all seeds.

    Of the other half at most so many are for training and for validation.
    """
    return split_among_workers(given, 1, training, validation, seed)


def split_among_workers(
    given: Owned, workers: int, training: int, validation: int, seed: int
) -> Split:
    """Each source's training examples divided among workers, who share its validation and test."""
    fixed, rng = np.random.default_rng(0), np.random.default_rng(seed)
    train, held, test = [], [], []
    for source in np.unique(given.owner):
        rows = fixed.permutation(np.flatnonzero(given.owner == source))
        last, rest = np.split(rows, [len(rows) // 2])
        rest = rng.permutation(rest)
        used = workers * min(training, len(rest) // (2 * workers))
        train += np.split(rest[:used], workers)
        held += [rest[used : used + validation]] * workers
        test += [last] * workers
    return _as_split(given, train, held, test)


def _as_split(given: Owned, *parts: Sequence[np.ndarray]) -> Split:
    """Features standardised, and missing ones set to the mean, by the training examples of all."""
    seen = given.x[np.concatenate(parts[0])]
    mean, deviation = np.nanmean(seen, axis=0), np.nanstd(seen, axis=0)
    scaled = (given.x - mean) / np.where(deviation > 0, deviation, 1)
    examples = hf.Examples(np.nan_to_num(scaled).astype(np.float32), given.y.astype(np.int32))
    train, validation, test = (hf.Clients.from_rows(examples, rows) for rows in parts)
    return Split(train, validation, test, given.classes)
