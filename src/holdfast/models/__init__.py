"""Models: the papers' own, adapters for other libraries', and any other as `Model(init, loss)`."""

from holdfast.metrics.auc import auc
from holdfast.models.adapters import from_apply, from_equinox, from_haiku, from_linen, from_nnx
from holdfast.models.class_weighted import class_weighted
from holdfast.models.cnn import CNN, cnn, cnn_fsl_cifar10, cnn_fsl_emnist
from holdfast.models.convolution import convolve, convolve_patches
from holdfast.models.dense import (
    MLP,
    BinaryMLP,
    binary_mlp,
    mlp,
    mlp_regression,
    softmax_regression,
)
from holdfast.models.dual_encoder import DualEncoder, Spreadout, dual_encoder, spreadout
from holdfast.models.images import augmented
from holdfast.models.initial import initialised
from holdfast.models.linear import least_squares, logistic_regression
from holdfast.models.mixture import mixture
from holdfast.models.model import GeneralisedLinear, Model, Predictor, Table, classifier
from holdfast.models.multi_label import multi_label
from holdfast.models.pooling import max_pool
from holdfast.models.recurrent import GRU, LSTM, gru, lstm
from holdfast.models.regularised import regularised
from holdfast.models.resnet import ResNet, resnet8, resnet18
from holdfast.models.vgg import VGG, vgg11

__all__ = [
    "CNN",
    "GRU",
    "LSTM",
    "MLP",
    "VGG",
    "BinaryMLP",
    "DualEncoder",
    "GeneralisedLinear",
    "Model",
    "Predictor",
    "ResNet",
    "Spreadout",
    "Table",
    "auc",
    "augmented",
    "binary_mlp",
    "class_weighted",
    "classifier",
    "cnn",
    "cnn_fsl_cifar10",
    "cnn_fsl_emnist",
    "convolve",
    "convolve_patches",
    "dual_encoder",
    "from_apply",
    "from_equinox",
    "from_haiku",
    "from_linen",
    "from_nnx",
    "gru",
    "initialised",
    "least_squares",
    "logistic_regression",
    "lstm",
    "max_pool",
    "mixture",
    "mlp",
    "mlp_regression",
    "multi_label",
    "regularised",
    "resnet8",
    "resnet18",
    "softmax_regression",
    "spreadout",
    "vgg11",
]
