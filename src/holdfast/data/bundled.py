"""Data that is always there."""

import numpy as np

from holdfast.data.clients import Examples
from holdfast.data.dataset import Dataset


def digits(test_share: float = 0.2, seed: int = 0) -> Dataset:
    """scikit-learn's 1,797 handwritten digits, 8 x 8 pixels in [0, 1], as (train, test).

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> train.x.shape, test.y.shape
        ((1438, 64), (359,))
    """
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    x, y = (pixels[order] / 16).astype(np.float32), labels[order].astype(np.int32)
    cut = round(len(y) * test_share)
    train, test = Examples(x[cut:], y[cut:]), Examples(x[:cut], y[:cut])
    return Dataset(train, test, classes=10)
