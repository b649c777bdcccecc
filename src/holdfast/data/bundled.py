"""Data that is always there."""

import numpy as np

from holdfast.data.checks import check_share, generator
from holdfast.data.clients import Examples
from holdfast.data.dataset import Dataset
from holdfast.errors import explain_arguments


@explain_arguments
def digits(test_share: float = 0.2, seed: int = 0) -> Dataset:
    """scikit-learn's 1,797 handwritten digits, 8 x 8 pixels in [0, 1], as (train, test).

    Args:
        test_share: share of the examples to test on.
        seed: draws them.

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> train.x.shape, test.y.shape
        ((1438, 64), (359,))
    """
    from sklearn.datasets import load_digits

    pixels, labels = load_digits(return_X_y=True)
    train, test = train_and_test(pixels / 16, labels, test_share, seed, "digits")
    return Dataset(train, test, classes=10)


@explain_arguments
def breast_cancer(test_share: float = 0.2, seed: int = 0) -> Dataset:
    """scikit-learn's 569 tumours, 30 measurements each; label 1 is benign.

    Measurements are standardised by the mean and deviation of the training examples.

    Args:
        test_share: share of the examples to test on.
        seed: draws them.

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.breast_cancer()
        >>> train.x.shape, test.y.shape
        ((455, 30), (114,))
    """
    from sklearn.datasets import load_breast_cancer

    x, labels = load_breast_cancer(return_X_y=True)
    raw, held_out = train_and_test(x, labels, test_share, seed, "breast_cancer", np.float64)
    mean, deviation = raw.x.mean(axis=0), raw.x.std(axis=0)

    def standardised(examples: Examples) -> Examples:
        return Examples(((examples.x - mean) / deviation).astype(np.float32), examples.y)

    return Dataset(standardised(raw), standardised(held_out), classes=2)


def train_and_test(
    x: np.ndarray, y: np.ndarray, share: float, seed: int, who: str, dtype: type = np.float32
) -> tuple[Examples, Examples]:
    """In random order, a share of them to test on."""
    check_share(who, share)
    order = generator(seed).permutation(len(y))
    x, y = x[order].astype(dtype), y[order].astype(np.int32)
    cut = round(len(y) * share)
    return Examples(x[cut:], y[cut:]), Examples(x[:cut], y[:cut])
