"""VGG-11 without normalisation, as FedPVR uses it."""

import flax.linen as nn
import jax

from holdfast.errors import HoldfastError, explain_arguments, first_wrong
from holdfast.models.constructor import rebuildable
from holdfast.models.convolution import Convolution, ConvolutionLayer, convolution_by
from holdfast.models.images import image_classifier, pixels
from holdfast.models.initial import Init, initialised
from holdfast.models.model import Model


class VGG(nn.Module):
    """Blocks of 3 x 3 convolutions that halve the image, then dense layers with dropout."""

    classes: int
    blocks: tuple[tuple[int, ...], ...]
    dense: tuple[int, ...]
    dropout: float
    convolution: Convolution

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        x = pixels(x)
        number = 0
        for block in self.blocks:
            for i, width in enumerate(block):
                pooled, name = i == len(block) - 1, f"convolution_{number}"
                x = ConvolutionLayer(width, 3, "SAME", pooled, self.convolution, name=name)(x)
                number += 1
        x = x.reshape((x.shape[0], -1))
        training = self.has_rng("dropout")
        for i, width in enumerate(self.dense):
            x = nn.Dropout(self.dropout, deterministic=not training)(x)
            x = nn.relu(nn.Dense(width, name=f"dense_{i}")(x))
        return nn.Dense(self.classes, name="classifier")(x)


@explain_arguments
@rebuildable
def vgg11(
    classes: int, dropout: float = 0.5, convolution: Convolution = "auto", init: Init = "flax"
) -> Model:
    """VGG-11 for small images, without normalisation: FedPVR's larger network.

    Eight convolutions `convolution_0` to `convolution_7` with 64, 128, 256, 256, 512, 512, 512 and
    512 channels, pooling after the 1st, 2nd, 4th, 6th and 8th, and the layers `dense_0`, `dense_1`
    (512 wide) and `classifier`. FedPVR reduces variance on the last three:
    `mask=lambda path: path.startswith(("dense", "classifier"))`.

    Examples: `x` holds images (examples, height, width, channels) of at least 32 x 32 pixels, of
    any float type or whole numbers 0..255, which are divided by 255.

    Args:
        classes: number of classes, the width of the layer `classifier`.
        dropout: probability of dropping a feature before `dense_0` and `dense_1` in training.
        convolution: `"patches"` (fast on a CPU), `"xla"`, or `"auto"` for what suits the backend.
        init: how parameters begin: `"flax"`, `"torch"` (PyTorch's default) or `"zeros"`
            (`hf.models.initialised`).

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import numpy as np
        >>> examples = hf.Examples(np.zeros((1, 32, 32, 3), np.float32), np.zeros(1, int))
        >>> model = hf.models.vgg11(classes=10)
        >>> params = jax.eval_shape(model.init, jax.random.key(0), examples)
        >>> sum(leaf.size for leaf in jax.tree.leaves(params))
        9750922

    Reference: Simonyan and Zisserman, "Very deep convolutional networks for large-scale image
    recognition", ICLR 2015; Li et al., "On the effectiveness of partial variance reduction in
    federated learning with heterogeneous data", CVPR 2023.
    """
    wrong = first_wrong(classes=classes >= 2, dropout=0 <= dropout < 1)
    if wrong:
        raise HoldfastError(
            f"vgg11: classes={classes}, dropout={dropout}; give at least 2 classes and a probability "
            f"from 0 to below 1.",
            about=wrong,
        )
    # Refuses what it does not know.
    convolution_by(convolution)
    blocks = ((64,), (128,), (256, 256), (512, 512), (512, 512))
    module = VGG(classes, blocks, (512, 512), float(dropout), convolution)
    return initialised(image_classifier(module, classes, smallest=2 ** len(blocks)), init)
