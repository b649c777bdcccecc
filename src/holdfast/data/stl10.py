"""STL-10: larger pictures of nearly the same things as in CIFAR-10."""

import numpy as np

from holdfast.data.cache import Archive, File, Folder, contents
from holdfast.data.checks import check_limits, generator
from holdfast.data.clients import Examples
from holdfast.data.dataset import Dataset
from holdfast.data.images import CIFAR10_SCALE, Scale, as_floats
from holdfast.errors import HoldfastError, explain_arguments

# Checksum: torchvision, datasets/stl10.py.
STL10 = Archive(
    File(
        "stl10_binary.tar.gz",
        ("http://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",),
        "md5:91f7769df0f17e558f3565bffb0c7dfb",
        size=2640397119,
    ),
    {
        "stl10_binary/train_X.bin": "md5:918c2871b30a85fa023e0c44e0bee87f",
        "stl10_binary/train_y.bin": "md5:5a34089d4802c674881badbb80307741",
        "stl10_binary/test_X.bin": "md5:7f263ba9f9e0b06b93213547f721ac82",
        "stl10_binary/test_y.bin": "md5:36f9794fa4beb8a2c72628de14fa638e",
    },
)
SIDE = 96
# airplane, bird, car, cat, deer, dog, horse, monkey, ship, truck
IN_CIFAR10 = np.array([0, 2, 1, 3, 4, 5, 7, -1, 8, 9])


@explain_arguments
def stl10(
    as_cifar10: bool = False,
    max_per_class: int | None = None,
    normalise: bool = False,
    seed: int = 0,
    folder: Folder = None,
    verify: bool = True,
) -> Dataset:
    """STL-10: 5,000 and 8,000 colour pictures of 96 x 96 pixels in 10 classes, in [0, 1].

    With `as_cifar10` the nine classes that CIFAR-10 has too, under CIFAR-10's labels and reduced to
    32 x 32 pixels: data from another source for a server whose clients have CIFAR-10, as in FSL, which
    takes 56 of each. CIFAR-10's frogs are not in STL-10, and its monkeys are left out. Reads the
    binary version, from the official archive (2.6 GB) or the extracted `stl10_binary`.

    Args:
        as_cifar10: only what CIFAR-10 has, as CIFAR-10 has it.
        max_per_class: only so many training pictures of each class, drawn by `seed`.
        normalise: subtract CIFAR-10's usual mean of each channel and divide by its usual deviation.
        seed: draws pictures.
        folder: instead of the cache folder; the files lie in it or in its subfolder `stl10`.
        verify: compare checksums.
    """
    check_limits("stl10", max_per_class=max_per_class)
    raw = contents("stl10", STL10, folder, verify)
    scale = CIFAR10_SCALE if normalise else None
    train, test = (_examples(raw[k], raw[k + 1], as_cifar10, scale) for k in (0, 2))
    if max_per_class is not None:
        order = generator(seed).permutation(len(train.y))
        rows = [order[train.y[order] == label][:max_per_class] for label in np.unique(train.y)]
        chosen = np.sort(np.concatenate(rows))
        train = Examples(train.x[chosen], train.y[chosen])
    return Dataset(train, test, classes=10)


def _examples(pixels: bytes, labels: bytes, as_cifar10: bool, scale: Scale | None) -> Examples:
    images, y = read_stl10(pixels, labels)
    if as_cifar10:
        y = IN_CIFAR10[y]
        images, y = images[y >= 0], y[y >= 0]
        small = images.reshape(len(images), 32, 3, 32, 3, 3).mean(axis=(2, 4), dtype=np.float32)
        return Examples(as_floats(small, scale), y.astype(np.int32))
    return Examples(as_floats(images, scale), y.astype(np.int32))


def read_stl10(pixels: bytes, labels: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Images (height, width, channels) and labels from 0, from `train_X.bin` and `train_y.bin`.

    Example:
        >>> images, labels = read_stl10(bytes(2 * 3 * 96 * 96), bytes([10, 1]))
        >>> images.shape, labels.tolist()
        ((2, 96, 96, 3), [9, 0])
    """
    picture, y = 3 * SIDE * SIDE, np.frombuffer(labels, np.uint8).astype(np.int64)
    if not len(y) or len(pixels) != len(y) * picture:
        raise HoldfastError(
            f"stl10: {len(pixels):,} bytes of pictures and {len(y):,} labels; give files of the same "
            f"part, {picture:,} bytes for each label."
        )
    if y.min() < 1 or y.max() > 10:
        raise HoldfastError(
            f"stl10: labels from {y.min()} to {y.max()}; give the file of labels, 1 to 10."
        )
    # Of a picture the channels, of a channel the columns.
    by_column = np.frombuffer(pixels, np.uint8).reshape(-1, 3, SIDE, SIDE)
    return by_column.transpose(0, 3, 2, 1), y - 1
