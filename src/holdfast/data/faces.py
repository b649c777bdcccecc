"""CelebA: faces of celebrities, who own their pictures."""

import contextlib
import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.data.cache import File, Folder, home, obtain, opened_archive, optional
from holdfast.data.checks import check_counts, check_limits, generator
from holdfast.data.clients import Examples
from holdfast.data.dataset import Dataset
from holdfast.data.images import as_floats
from holdfast.data.reserve import Reserve
from holdfast.data.unpack import damage_said
from holdfast.errors import HoldfastError, did_you_mean, explain_arguments

PAGE = "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html"
# Checksums: torchvision.datasets.CelebA. Its makers give the files through Google Drive, to people only.
IMAGES = File("img_align_celeba.zip", checksum="md5:00d2c5bc6d35e252742224ab0c1e8fcb", page=PAGE)
ATTRIBUTES = File(
    "list_attr_celeba.txt", checksum="md5:75e246fa4810816ffd6ee81facbd244c", page=PAGE
)
IDENTITIES = File("identity_CelebA.txt", checksum="md5:32bd1bd63d3c78cd57e08160ec5ed1e2", page=PAGE)
PARTITION = File(
    "list_eval_partition.txt", checksum="md5:d32c9cbf5e040fd4025c592c306e6668", page=PAGE
)
EXTRACTED = "img_align_celeba"
SCALE = ((0.5,) * 3, (0.5,) * 3)
# In the official partition; 1 is for validation.
TRAIN, TEST = 0, 2

Opener = Callable[[str], bytes]


_AGAIN = "it is damaged: delete it, and it is fetched again"


@explain_arguments
def celeba(
    attribute: str = "Smiling",
    size: int = 84,
    min_examples: int = 5,
    people: int | None = None,
    people_per_client: int = 1,
    test: str = "later",
    test_share: float = 0.2,
    seed: int = 0,
    normalise: bool = False,
    folder: Folder = None,
    verify: bool = True,
) -> Dataset:
    """CelebA: 202,599 faces of 10,177 celebrities and whether an attribute applies to them.

    As LEAF prepares them: celebrities with fewer than 5 pictures are left out, pictures become
    84 x 84. All of them take 17 GB, so give `people`. The files are not for programs to download;
    their checksums are those of torchvision. Needs Pillow.

    Args:
        attribute: one of the 40 of `list_attr_celeba.txt`; label 1 where it applies, otherwise 0.
        size: height and width, to which pictures are stretched from 218 x 178.
        min_examples: pictures that a celebrity must have.
        people: only so many celebrities, drawn by `seed`.
        people_per_client: so many of them, who stand together in the list, own their pictures as one;
            3 in the mixed federated learning paper.
        test: `later` keeps the last of every celebrity's pictures for testing, `others` all pictures
            of some celebrities, `official` those of `list_eval_partition.txt`, who train nothing.
        test_share: how much is kept, of the pictures or of the celebrities.
        seed: draws celebrities.
        normalise: subtract 0.5 and divide by 0.5, so that pixels lie in [-1, 1].
        folder: instead of the cache folder; `img_align_celeba.zip`, or the `img_align_celeba`
            extracted from it, and the lists lie in it or in its subfolder `celeba`.
        verify: compare checksums.
    """
    check_counts(
        "celeba", size=size, min_examples=min_examples, people_per_client=people_per_client
    )
    check_limits("celeba", people=people)
    official = test == "official"
    reserve = Reserve("later" if official else test, test_share, seed)
    reserve.check("celeba")
    lists = [ATTRIBUTES, IDENTITIES, *([PARTITION] if official else [])]
    extracted = home("celeba", folder, [EXTRACTED, IMAGES.name, ATTRIBUTES.name]) / EXTRACTED
    files = lists if extracted.is_dir() else [*lists, IMAGES]
    paths = obtain("celeba", files, folder, verify)

    with damage_said("celeba", paths[0], _AGAIN, about=("folder",)):
        labels = read_attribute(paths[0].read_text(), attribute)
    with damage_said("celeba", paths[1], _AGAIN, about=("folder",)):
        who = _pairs(paths[1].read_text())
    pictures, owners = _choose(who, min_examples, people, seed)
    if not pictures:
        raise HoldfastError(
            f"celeba: nobody has {min_examples} pictures; lower `min_examples`.",
            about=("min_examples",),
        )
    with _pictures(extracted if extracted.is_dir() else paths[-1]) as opened:
        x = read_pictures(pictures, opened, size)
    x = as_floats(x, SCALE if normalise else None)
    with damage_said("celeba", f"{paths[0]} (a picture)", _AGAIN, about=("folder",)):
        y = np.asarray([labels[name] for name in pictures], np.int32)
    if people_per_client > 1:
        owners = np.unique(owners, return_inverse=True)[1] // people_per_client
    if not official:
        return reserve.split(x, y, owners, classes=2)
    # Celebrities in the test part train nothing; named, they would be clients without data.
    with damage_said("celeba", paths[2], _AGAIN, about=("folder",)):
        part = _pairs(paths[2].read_text())
        places = np.asarray([part[name] for name in pictures])
    seen, unseen = (Examples(x[places == k], y[places == k]) for k in (TRAIN, TEST))
    return Dataset(seen, unseen, owners[places == TRAIN], classes=2)


def read_attribute(text: str, attribute: str) -> dict[str, int]:
    """Whether an attribute applies, by picture; the list has a count, the names, then -1 and 1.

    Example:
        >>> read_attribute("2\\nBald Smiling\\n1.jpg -1 1\\n2.jpg  1 -1\\n", "Smiling")
        {'1.jpg': 1, '2.jpg': 0}
    """
    _, header, *lines = text.splitlines()
    names = header.split()
    if attribute not in names:
        raise HoldfastError(
            f"celeba: unknown attribute `{attribute}`; {did_you_mean(str(attribute), names)}",
            about=("attribute",),
        )
    column = 1 + names.index(attribute)
    rows = (line.split() for line in lines if line.strip())
    return {row[0]: int(int(row[column]) > 0) for row in rows}


def _pairs(text: str) -> dict[str, int]:
    rows = (line.split() for line in text.splitlines() if line.strip())
    return {name: int(number) for name, number in rows}


def _choose(
    who: dict[str, int], min_examples: int, people: int | None, seed: int
) -> tuple[list[str], np.ndarray]:
    """Pictures sorted by owner, then by name."""
    names, owners = np.asarray(list(who)), np.asarray(list(who.values()), np.int32)
    found, counts = np.unique(owners, return_counts=True)
    kept = found[counts >= min_examples]
    if people is not None:
        kept = generator(seed).permutation(kept)[:people]
    rows = np.flatnonzero(np.isin(owners, kept))
    rows = rows[np.lexsort((names[rows], owners[rows]))]
    return names[rows].tolist(), owners[rows]


@contextlib.contextmanager
def _pictures(path: Path) -> Iterator[Opener]:
    if path.is_dir():
        yield lambda name: (path / name).read_bytes()
        return
    with opened_archive("celeba", path) as archive:
        yield lambda name: archive.read(f"{EXTRACTED}/{name}")


def read_pictures(names: Sequence[str], opened: Opener, size: int) -> np.ndarray:
    """Pictures stretched to `size` x `size`, as bytes (pictures, height, width, channels)."""
    pillow: Any = optional("PIL.Image", "Pillow", "celeba")
    x = np.empty((len(names), size, size, 3), np.uint8)
    for row, name in zip(x, names, strict=True):
        try:
            with pillow.open(io.BytesIO(opened(name))) as picture:
                row[:] = np.asarray(picture.convert("RGB").resize((size, size)))
        except OSError as error:
            raise HoldfastError(
                f"celeba: {name} cannot be read: {error}; extract the official archive again."
            ) from None
    return x
