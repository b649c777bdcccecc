"""Convolutional networks with a few layers, as FedDyn and FSL use them."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import flax.linen as nn
import jax

from holdfast.errors import HoldfastError, explain_arguments, first_wrong
from holdfast.models.constructor import rebuildable
from holdfast.models.convolution import Convolution, ConvolutionLayer, convolution_by
from holdfast.models.images import image_classifier, pixels
from holdfast.models.initial import Init, initialised
from holdfast.models.model import Model

Pool: TypeAlias = Literal["each", "last"]


class CNN(nn.Module):
    """Convolutions with ReLU and pooling, then dense layers; the last is called `classifier`."""

    classes: int
    channels: tuple[int, ...]
    dense: tuple[int, ...]
    kernel: int
    padding: str
    pool: Pool
    dropout: tuple[float, float]
    convolution: Convolution

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = pixels(x)
        for i, width in enumerate(self.channels):
            pooled = self.pool == "each" or i == len(self.channels) - 1
            name = f"convolution_{i}"
            x = ConvolutionLayer(
                width, self.kernel, self.padding, pooled, self.convolution, name=name
            )(x)
        training = self.has_rng("dropout")
        x = x.reshape((x.shape[0], -1))
        x = nn.Dropout(self.dropout[0], deterministic=not training)(x)
        for i, width in enumerate(self.dense):
            x = nn.relu(nn.Dense(width, name=f"dense_{i}")(x))
            x = nn.Dropout(self.dropout[1], deterministic=not training)(x)
        return nn.Dense(self.classes, name="classifier")(x)


@explain_arguments
@rebuildable
def cnn(
    classes: int,
    channels: Sequence[int] = (64, 64),
    dense: Sequence[int] = (384, 192),
    kernel: int = 5,
    padding: Literal["VALID", "SAME"] = "VALID",
    pool: Pool = "each",
    dropout: Sequence[float] = (0.0, 0.0),
    convolution: Convolution = "auto",
    init: Init = "flax",
) -> Model:
    """A small convolutional network on images, by default FedDyn's for CIFAR.

    The papers' networks are

    - FedDyn's for CIFAR-10 and CIFAR-100, and FSL's for CIFAR-100: `cnn(classes)`
    - FSL's for CIFAR-10: `cnn_fsl_cifar10`
    - FSL's for EMNIST: `cnn_fsl_emnist`

    Examples: `x` holds images (examples, height, width, channels), of any float type or whole
    numbers 0..255, which are divided by 255.

    Args:
        classes: number of classes, the width of the layer `classifier`.
        channels: of each convolution, called `convolution_0`, `convolution_1`, ...
        dense: width of each dense layer after them, called `dense_0`, `dense_1`, ...
        kernel: side of the convolutions' kernels.
        padding: `"VALID"` for none, `"SAME"` for zeros around the image so that it keeps its size.
        pool: halve the image after `"each"` convolution, or only after the `"last"`.
        dropout: probability of dropping a feature after the convolutions, and after each dense
            layer. In evaluation nothing is dropped.
        convolution: `"patches"` (fast on a CPU), `"xla"`, or `"auto"` for what suits the backend.
        init: how parameters begin: `"flax"`, `"torch"` (PyTorch's default) or `"zeros"`
            (`hf.models.initialised`).

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import numpy as np
        >>> model = hf.models.cnn(classes=10)
        >>> images = hf.Examples(np.zeros((1, 32, 32, 3), np.float32), np.zeros(1, int))
        >>> params = jax.eval_shape(model.init, jax.random.key(0), images)
        >>> params["dense_0"]["kernel"].shape
        (1600, 384)

    Reference: Acar et al., "Federated learning based on dynamic regularization", ICLR 2021, where
    the first dense layer is printed as 394 wide; Mai, La and Zhang, "Federated learning with server
    learning", 2022.
    """
    wrong = first_wrong(
        classes=classes >= 2,
        channels=len(channels) > 0 and min(channels) >= 1,
        dense=all(width >= 1 for width in dense),
        kernel=kernel >= 1,
    )
    if wrong:
        raise HoldfastError(
            f"cnn: classes={classes}, channels={list(channels)}, dense={list(dense)}, "
            f"kernel={kernel}; give 2 classes, one convolution, and widths of at least 1.",
            about=wrong,
        )
    for name, value, known in (
        ("padding", padding, ("VALID", "SAME")),
        ("pool", pool, ("each", "last")),
    ):
        if value not in known:
            raise HoldfastError(
                f"cnn: {name}={value!r}; give one of {', '.join(known)}.", about=(name,)
            )
    if len(dropout) != 2 or not all(0 <= rate < 1 for rate in dropout):
        raise HoldfastError(
            f"cnn: dropout={list(dropout)}; give two probabilities from 0 to below 1, after the "
            f"convolutions and after each dense layer.",
            about=("dropout",),
        )
    # Refuses what it does not know.
    convolution_by(convolution)
    before, after = dropout
    module = CNN(
        classes,
        tuple(channels),
        tuple(dense),
        kernel,
        padding,
        pool,
        (float(before), float(after)),
        convolution,
    )
    return initialised(image_classifier(module, classes, _smallest(module)), init)


@explain_arguments
@rebuildable
def cnn_fsl_emnist(
    classes: int = 45, convolution: Convolution = "auto", init: Init = "flax"
) -> Model:
    """FSL's network for EMNIST: two 3 x 3 convolutions, one pooling, a dense layer of 128, dropout.

    It is `cnn(classes, (32, 64), (128,), kernel=3, padding="SAME", pool="last", dropout=(0.25, 0.5))`.

    Args:
        classes: number of classes, the width of the layer `classifier`.
        convolution: `"patches"` (fast on a CPU), `"xla"`, or `"auto"` for what suits the backend.
        init: how parameters begin: `"flax"`, `"torch"` (PyTorch's default) or `"zeros"`
            (`hf.models.initialised`).

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import numpy as np
        >>> images = hf.Examples(np.zeros((1, 28, 28, 1), np.float32), np.zeros(1, int))
        >>> params = jax.eval_shape(
        ...     hf.models.cnn_fsl_emnist().init, jax.random.key(0), images
        ... )
        >>> sum(leaf.size for leaf in jax.tree.leaves(params))
        1630381

    Reference: Mai, La and Zhang, "A study of enhancing federated learning on non-IID data with server
    learning", appendix C-A.
    """
    return _fsl(classes, "last", convolution, init)


@explain_arguments
@rebuildable
def cnn_fsl_cifar10(
    classes: int = 10, convolution: Convolution = "auto", init: Init = "flax"
) -> Model:
    """FSL's network for CIFAR-10: two 3 x 3 convolutions with pooling, a dense layer of 128, dropout.

    It is `cnn(classes, (32, 64), (128,), kernel=3, padding="SAME", dropout=(0.25, 0.5))`.

    Args:
        classes: number of classes, the width of the layer `classifier`.
        convolution: `"patches"` (fast on a CPU), `"xla"`, or `"auto"` for what suits the backend.
        init: how parameters begin: `"flax"`, `"torch"` (PyTorch's default) or `"zeros"`
            (`hf.models.initialised`).

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import numpy as np
        >>> images = hf.Examples(np.zeros((1, 32, 32, 3), np.float32), np.zeros(1, int))
        >>> params = jax.eval_shape(
        ...     hf.models.cnn_fsl_cifar10().init, jax.random.key(0), images
        ... )
        >>> sum(leaf.size for leaf in jax.tree.leaves(params))
        545098

    Reference: Mai, La and Zhang, "A study of enhancing federated learning on non-IID data with server
    learning", appendix C-A.
    """
    return _fsl(classes, "each", convolution, init)


def _fsl(classes: int, pool: Pool, convolution: Convolution, init: Init) -> Model:
    return cnn(
        classes,
        channels=(32, 64),
        dense=(128,),
        kernel=3,
        padding="SAME",
        pool=pool,
        dropout=(0.25, 0.5),
        convolution=convolution,
        init=init,
    )


def _smallest(module: CNN) -> int:
    """Side of the images of which one pixel is left in the end."""
    lost = module.kernel - 1 if module.padding == "VALID" else 0
    side = 1
    for i in reversed(range(len(module.channels))):
        pooled = module.pool == "each" or i == len(module.channels) - 1
        side = (2 * side if pooled else side) + lost
    return side
