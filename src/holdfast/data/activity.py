"""HAPT: what thirty people do, from the accelerometer and gyroscope of the phone at their waist."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from holdfast.data.checks import check_counts
from holdfast.data.dataset import Dataset
from holdfast.data.tables import table
from holdfast.data.unpack import damage_said, refuse_larger_archive
from holdfast.errors import HoldfastError, explain_arguments

ACTIVITIES = (
    *("walking", "upstairs", "downstairs", "sitting", "standing", "lying"),
    *("stand_to_sit", "sit_to_stand", "sit_to_lie", "lie_to_sit", "stand_to_lie", "lie_to_stand"),
)
CHANNELS = tuple(f"{sensor}_{axis}" for sensor in ("acc", "gyro") for axis in "xyz")
_PAGE = (
    "https://archive.ics.uci.edu/dataset/341/"
    "smartphone+based+recognition+of+human+activities+and+postural+transitions"
)


@explain_arguments
def hapt(
    path: str | os.PathLike[str],
    window: int = 128,
    step: int = 64,
    transitions: bool = True,
    group: Literal["bout", "recording"] = "bout",
    test_share: float | None = None,
    seed: int = 0,
    leave_out: str | Sequence[str] = (),
    unseen: float = 0.0,
    validation_share: float = 0.0,
) -> Dataset:
    """HAPT: windows of thirty people's movements as a table, every person a client.

    Signals of 50 Hz are cut into windows of one activity each, and a window becomes the 62 columns of
    `hf.data.window_features`, standardised as those of any table. Windows overlap, so test windows are
    taken by whole bouts (one activity without a break) or by whole recordings, of which everybody has about
    two.

    Args:
        path: the folder of the official files (`RawData/labels.txt` and the others are in it), or an .npz
            file with `signals` (samples, 6), `label` (1 to 12, -1 for none), `subject` and `experiment`.
        window: samples in a window; 128 are 2.56 seconds.
        step: samples from the beginning of one window to that of the next.
        transitions: whether the six movements between postures are activities too.
        group: what is never divided between training and testing: `bout` or `recording`.
        test_share: share of every person's windows to test on; 0.2 unless they are said otherwise.
        seed: draws them.
        leave_out: people, by number, who are tested on and train nothing.
        unseen: share of the people who are tested on and train nothing, drawn.
        validation_share: share of every person's windows to choose by, in the same way.
    """
    check_counts("hapt", window=window, step=step)
    signals, label, subject, experiment = _read(Path(path).expanduser())
    last = len(ACTIVITIES) if transitions else 6
    found: dict[str, list[np.ndarray]] = {}
    for bout, (begin, end) in enumerate(_bouts(label, subject, experiment)):
        if not 1 <= label[begin] <= last or end - begin < window:
            continue
        columns: dict[str, Any] = dict(window_features(signals[begin:end], window, step))
        rows = len(next(iter(columns.values())))
        columns |= {
            "activity": np.full(rows, ACTIVITIES[label[begin] - 1], object),
            "person": np.full(rows, int(subject[begin])),
            "recording": np.full(rows, int(experiment[begin])),
            "bout": np.full(rows, bout),
        }
        for name, values in columns.items():
            found.setdefault(name, []).append(values)
    if not found:
        raise HoldfastError(
            f"hapt: no activity in {path} lasts {window} samples; give a shorter window.",
            about=("window",),
        )
    together = {name: np.concatenate(parts) for name, parts in found.items()}
    unused = {"bout", "recording"} - {group}
    return table(
        together,
        label="activity",
        client="person",
        test_share=test_share,
        seed=seed,
        ignore=sorted(unused),
        group=group,
        leave_out=leave_out,
        unseen=unseen,
        validation_share=validation_share,
        label_names=ACTIVITIES[:last],
    )


def window_features(signals: Any, window: int = 128, step: int = 64) -> dict[str, np.ndarray]:
    """Columns of numbers from signals of six channels, a row for each window.

    Of each channel and of the magnitude of both sensors: mean, deviation, least, median, most, energy and
    deviation of the differences; and the correlations of the axes, two by two.

    Args:
        signals: samples by channels: three axes of the accelerometer, three of the gyroscope.
        window: samples in a window.
        step: samples from the beginning of one window to that of the next.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> columns = hf.data.window_features(np.random.default_rng(0).random((256, 6)))
        >>> len(columns), len(columns["acc_x_mean"])
        (62, 3)
    """
    given = np.asarray(signals, np.float64)
    if given.ndim != 2 or given.shape[1] != len(CHANNELS) or len(given) < window:
        raise HoldfastError(
            f"window_features: signals of shape {given.shape}; give at least {window} samples of six.",
            about=("signals",),
        )
    both = [np.linalg.norm(given[:, :3], axis=1), np.linalg.norm(given[:, 3:], axis=1)]
    channels = np.column_stack([given, *both])
    cut = np.lib.stride_tricks.sliding_window_view(channels, window, axis=0)[::step]
    names = (*CHANNELS, "acc_norm", "gyro_norm")
    of_window = {
        "mean": cut.mean(axis=2),
        "std": cut.std(axis=2),
        "min": cut.min(axis=2),
        "median": np.median(cut, axis=2),
        "max": cut.max(axis=2),
        "energy": np.square(cut).mean(axis=2),
        "jerk": np.diff(cut, axis=2).std(axis=2),
    }
    found = {
        f"{name}_{what}": values[:, k]
        for k, name in enumerate(names)
        for what, values in of_window.items()
    }
    centred = cut - cut.mean(axis=2, keepdims=True)
    deviation = np.maximum(cut.std(axis=2), np.finfo(float).eps)
    for first, second in ((0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)):
        together = (centred[:, first] * centred[:, second]).mean(axis=1)
        correlation = together / (deviation[:, first] * deviation[:, second])
        found[f"{names[first]}_{names[second]}_corr"] = correlation
    return found


def _bouts(*arrays: np.ndarray) -> Iterator[tuple[int, int]]:
    """Stretches in which nothing changes: one activity of one person in one recording."""
    changes = np.any([a[1:] != a[:-1] for a in arrays], axis=0)
    edges = np.concatenate([[0], np.flatnonzero(changes) + 1, [len(arrays[0])]])
    return zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)


def _read(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Signals, and of each sample the activity, the person and the recording."""
    if path.is_dir():
        return _official(path)
    remedy = "give the folder of the official files, or an .npz file of them"
    if not path.exists():
        raise HoldfastError(
            f"hapt: {path} is missing; {remedy}. They are at {_PAGE}.", about=("path",)
        )
    with damage_said("hapt", path, remedy):
        refuse_larger_archive(path)
        with np.load(path) as file:
            whole = [file[name] for name in ("signals", "label", "subject", "experiment")]
    return whole[0], whole[1], whole[2], whole[3]


def _official(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    raw = folder if (folder / "labels.txt").exists() else folder / "RawData"
    labels = raw / "labels.txt"
    if not labels.exists():
        raise HoldfastError(
            f"hapt: {folder} has no RawData/labels.txt; unpack the official archive there, from {_PAGE}.",
            about=("path",),
        )
    with damage_said("hapt", labels, "unpack the official archive again"):
        listed = np.loadtxt(labels, int, ndmin=2)
    parts = []
    for number, person in dict.fromkeys(map(tuple, listed[:, :2].tolist())):
        ending = f"exp{number:02}_user{person:02}.txt"
        with damage_said("hapt", raw / f"acc_{ending}", "unpack the official archive again"):
            signals = np.hstack(
                [np.loadtxt(raw / f"{sensor}_{ending}") for sensor in ("acc", "gyro")]
            )
        activity = np.full(len(signals), -1)
        for _, _, what, begin, end in listed[(listed[:, :2] == (number, person)).all(axis=1)]:
            activity[begin - 1 : end] = what
        parts.append(
            (signals, activity, np.full(len(signals), person), np.full(len(signals), number))
        )
    columns = [np.concatenate(part) for part in zip(*parts, strict=True)]
    return columns[0], columns[1], columns[2], columns[3]
