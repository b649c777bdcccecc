"""Digits of sites whose cameras are turned, each by an angle of its own."""

import numpy as np
from scipy import ndimage

import holdfast as hf


def turned_digits(sites: int = 10, most: float = 60.0, seed: int = 0) -> hf.data.Dataset:
    """scikit-learn's digits, shared out at random; a site's images are turned by up to `most` degrees."""
    train, test = hf.data.digits(seed=seed)
    draw = np.random.default_rng(seed)
    angles = np.linspace(-most, most, sites)
    parts, owners = [], []
    for part in (train, test):
        owner = draw.permutation(np.arange(len(part.y)) % sites)
        images = np.asarray(part.x).reshape(-1, 8, 8)
        turned = [
            ndimage.rotate(image, angles[site], reshape=False, order=1, mode="constant")
            for image, site in zip(images, owner, strict=True)
        ]
        x = np.clip(np.stack(turned), 0, 1).astype(np.float32)
        parts.append(hf.Examples(x.reshape(np.shape(part.x)), np.asarray(part.y)))
        owners.append(owner)
    return hf.data.Dataset(*parts, owners=owners[0], test_owners=owners[1], classes=10)
