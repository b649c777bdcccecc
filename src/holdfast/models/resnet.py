"""Residual networks with group normalisation, which has no state of its own to be averaged."""

from typing import Literal, TypeAlias

import flax.linen as nn
import jax

from holdfast.errors import HoldfastError, explain_arguments
from holdfast.models.constructor import rebuildable
from holdfast.models.convolution import Convolution, convolution_by
from holdfast.models.images import image_classifier, pixels
from holdfast.models.initial import Init, initialised
from holdfast.models.model import Model
from holdfast.models.pooling import max_pool

Stem: TypeAlias = Literal["imagenet", "cifar"]


def _convolution(width: int, kernel: int, stride: int, by: Convolution, name: str) -> nn.Conv:
    # As in PyTorch, zeros on both sides. "SAME" would put them on one side where stride is 2.
    around = (kernel - 1) // 2
    return nn.Conv(
        width,
        (kernel, kernel),
        strides=(stride, stride),
        padding=((around, around), (around, around)),
        use_bias=False,
        conv_general_dilated=convolution_by(by),
        name=name,
    )


def _norm(name: str) -> nn.GroupNorm:
    return nn.GroupNorm(num_groups=2, epsilon=1e-5, name=name)


class Block(nn.Module):
    """Two 3 x 3 convolutions, added to what came in."""

    width: int
    stride: int
    convolution: Convolution

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = _convolution(self.width, 3, self.stride, self.convolution, "convolution_0")(x)
        y = nn.relu(_norm("norm_0")(y))
        y = _convolution(self.width, 3, 1, self.convolution, "convolution_1")(y)
        y = _norm("norm_1")(y)
        if x.shape != y.shape:
            x = _convolution(self.width, 1, self.stride, self.convolution, "shortcut")(x)
            x = _norm("shortcut_norm")(x)
        return nn.relu(x + y)


class ResNet(nn.Module):
    """Stages of residual blocks, each but the first halving the image; then the mean of the pixels."""

    classes: int
    widths: tuple[int, ...]
    blocks: int  # in each stage
    stem: Stem
    convolution: Convolution

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        large = self.stem == "imagenet"
        kernel, stride = (7, 2) if large else (3, 1)
        x = _convolution(self.widths[0], kernel, stride, self.convolution, "convolution_0")(
            pixels(x)
        )
        x = nn.relu(_norm("norm_0")(x))
        if large:
            x = max_pool(x, window=3, stride=2, padding=((1, 1), (1, 1)))
        for i, width in enumerate(self.widths):
            for j in range(self.blocks):
                halve = 2 if i > 0 and j == 0 else 1
                x = Block(width, halve, self.convolution, name=f"stage_{i}_block_{j}")(x)
        return nn.Dense(self.classes, name="classifier")(x.mean(axis=(1, 2)))


@explain_arguments
@rebuildable
def resnet8(classes: int, convolution: Convolution = "auto", init: Init = "flax") -> Model:
    """ResNet-8 with two groups in each normalisation: FedPVR's smaller network.

    Three stages of one block with 16, 32 and 64 channels. Layers: `convolution_0`, `norm_0`,
    `stage_0_block_0` to `stage_2_block_0`, and `classifier`, on which FedPVR reduces variance:
    `mask=lambda path: path.startswith("classifier")`.

    Examples: `x` holds images (examples, height, width, channels), of any float type or whole
    numbers 0..255, which are divided by 255.

    Args:
        classes: number of classes, the width of the layer `classifier`.
        convolution: `"patches"` (fast on a CPU), `"xla"`, or `"auto"` for what suits the backend.
        init: how parameters begin: `"flax"`, `"torch"` (PyTorch's default) or `"zeros"`
            (`hf.models.initialised`).

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import numpy as np
        >>> examples = hf.Examples(np.zeros((1, 32, 32, 3), np.float32), np.zeros(1, int))
        >>> model = hf.models.resnet8(classes=10)
        >>> params = jax.eval_shape(model.init, jax.random.key(0), examples)
        >>> sum(leaf.size for leaf in jax.tree.leaves(params))
        78042

    Reference: He et al., "Deep residual learning for image recognition", CVPR 2016; Wu and He,
    "Group normalization", ECCV 2018; Li et al., "On the effectiveness of partial variance reduction
    in federated learning with heterogeneous data", CVPR 2023.
    """
    return _resnet("resnet8", ResNet(classes, (16, 32, 64), 1, "cifar", convolution), init)


@explain_arguments
@rebuildable
def resnet18(
    classes: int, stem: Stem = "imagenet", convolution: Convolution = "auto", init: Init = "flax"
) -> Model:
    """ResNet-18 with two groups in each normalisation, as in FedDyn's code.

    Four stages of two blocks with 64, 128, 256 and 512 channels. Layers: `convolution_0`, `norm_0`,
    `stage_0_block_0` to `stage_3_block_1`, and `classifier`.

    Examples: `x` holds images (examples, height, width, channels), of any float type or whole
    numbers 0..255, which are divided by 255.

    Args:
        classes: number of classes, the width of the layer `classifier`.
        stem: `"imagenet"` begins with a 7 x 7 convolution and a pooling, which make the image a
            quarter as high and wide, as FedDyn's code does on CIFAR too; `"cifar"` begins with a
            3 x 3 convolution, which keeps small images whole.
        convolution: `"patches"` (fast on a CPU), `"xla"`, or `"auto"` for what suits the backend.
        init: how parameters begin: `"flax"`, `"torch"` (PyTorch's default) or `"zeros"`
            (`hf.models.initialised`).

    Example:
        >>> import holdfast as hf
        >>> import jax
        >>> import numpy as np
        >>> examples = hf.Examples(np.zeros((1, 32, 32, 3), np.float32), np.zeros(1, int))
        >>> model = hf.models.resnet18(classes=10, stem="cifar")
        >>> params = jax.eval_shape(model.init, jax.random.key(0), examples)
        >>> sum(leaf.size for leaf in jax.tree.leaves(params))
        11173962

    Reference: He et al., "Deep residual learning for image recognition", CVPR 2016; Acar et al.,
    "Federated learning based on dynamic regularization", ICLR 2021.
    """
    if stem not in ("imagenet", "cifar"):
        raise HoldfastError(f"resnet18: stem={stem!r}; give imagenet or cifar.", about=("stem",))
    return _resnet("resnet18", ResNet(classes, (64, 128, 256, 512), 2, stem, convolution), init)


def _resnet(owner: str, module: ResNet, init: Init) -> Model:
    if module.classes < 2:
        raise HoldfastError(
            f"{owner}: classes={module.classes}; give at least 2.", about=("classes",)
        )
    # Refuses what it does not know.
    convolution_by(module.convolution)
    # Smaller ones would work, but what has 1 or 3 rows is an image with its channels first.
    return initialised(image_classifier(module, module.classes, smallest=8), init)
