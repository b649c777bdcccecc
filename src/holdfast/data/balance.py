"""As many examples of rare classes as of others, by altered copies of images."""

import math
from typing import Any

import numpy as np

from holdfast.data.checks import generator, is_number
from holdfast.data.clients import Examples
from holdfast.data.labels import read_labels
from holdfast.errors import HoldfastError, explain_arguments


@explain_arguments
def balance(
    examples: Examples, seed: int = 0, crop: float = 0.8, degrees: float = 15.0
) -> Examples:
    r"""Images with altered copies of the rare classes appended, until no class is rare.

    Of $n$ images in $c$ classes, each class that is there has at least $n / c$ afterwards. A copy is a
    random part of the image, enlarged to its size and turned by a random angle; the images themselves
    stay as they are, first. As FSL does with what clients sent to the server, which is far from
    balanced; the paper says random cropping and rotations and no numbers, so these are ours.

    Args:
        examples: images (height, width) or (height, width, channels), and their labels.
        seed: the copies are a function of it.
        crop: the smallest part of height and width that a copy shows, above 0; 1 is no cropping.
        degrees: the largest angle, either way; 0 is no turning.

    Example:
        >>> import numpy as np
        >>> import holdfast as hf
        >>> images = np.random.default_rng(0).random((8, 28, 28, 1), np.float32)
        >>> few = hf.Examples(images, np.array([0, 0, 0, 0, 0, 0, 0, 3]))
        >>> hf.data.balance(few).y.tolist()
        [0, 0, 0, 0, 0, 0, 0, 3, 3, 3, 3]

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022.
    """
    if not hasattr(examples, "x"):
        raise HoldfastError(
            f"balance: {type(examples).__name__} has no images; give hf.Examples(x, y).",
            about=("examples",),
        )
    images = np.asarray(examples.x)
    names, y = read_labels(examples, None, "balance")
    if images.ndim not in (3, 4) or not np.issubdtype(images.dtype, np.floating):
        raise HoldfastError(
            f"balance: x has shape {images.shape} and type {images.dtype}; give images (n, height, "
            f"width) or (n, height, width, channels) of floating-point numbers.",
            about=("examples",),
        )
    if not is_number(crop) or not 0 < crop <= 1:
        raise HoldfastError(
            f"balance: crop={crop!r}; give a number above 0, at most 1.", about=("crop",)
        )
    if not is_number(degrees) or not 0 <= degrees <= 180:
        raise HoldfastError(
            f"balance: degrees={degrees!r}; give a number from 0 to 180.", about=("degrees",)
        )
    rng = generator(seed)
    wanted = -(-len(y) // max(len(names), 1))
    sources = [
        np.resize(rng.permutation(np.flatnonzero(y == label)), max(0, wanted - amount))
        for label, amount in enumerate(np.bincount(y, minlength=len(names)))
    ]
    rows = np.concatenate([np.zeros(0, np.int64), *sources])
    copies = [_altered(rng, images[row], crop, degrees) for row in rows]
    return Examples(
        np.concatenate([images, np.asarray(copies, images.dtype).reshape(-1, *images.shape[1:])]),
        np.concatenate([np.asarray(examples.y), np.asarray(examples.y)[rows]]),
    )


def _altered(rng: np.random.Generator, image: np.ndarray, crop: float, degrees: float) -> Any:
    """A part of the image in the whole's size, turned; beyond the edge its last pixels go on."""
    from scipy.ndimage import affine_transform

    size = np.asarray(image.shape[:2], float)
    part = rng.uniform(crop, 1)
    angle = math.radians(rng.uniform(-degrees, degrees))
    middle = (size - 1) / 2
    # The part lies within the image.
    centre = middle + rng.uniform(-0.5, 0.5, 2) * (1 - part) * size
    turn = part * np.array(
        [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    )
    channels = image if image.ndim == 3 else image[..., None]
    turned = [
        affine_transform(channels[..., k], turn, centre - turn @ middle, order=1, mode="nearest")
        for k in range(channels.shape[-1])
    ]
    return np.stack(turned, axis=-1).reshape(image.shape)
