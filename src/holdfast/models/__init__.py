"""Models: the papers' own, and any other as `Model(init, loss)`."""

from holdfast.models.dense import (
    MLP,
    BinaryMLP,
    binary_mlp,
    mlp,
    mlp_regression,
    softmax_regression,
)
from holdfast.models.dual_encoder import DualEncoder, Spreadout, dual_encoder, spreadout
from holdfast.models.linear import least_squares, logistic_regression
from holdfast.models.metrics import auc
from holdfast.models.model import GeneralisedLinear, Model, Predictor, Table, classifier
from holdfast.models.recurrent import GRU, gru

__all__ = [
    "GRU",
    "MLP",
    "BinaryMLP",
    "DualEncoder",
    "GeneralisedLinear",
    "Model",
    "Predictor",
    "Spreadout",
    "Table",
    "auc",
    "binary_mlp",
    "classifier",
    "dual_encoder",
    "gru",
    "least_squares",
    "logistic_regression",
    "mlp",
    "mlp_regression",
    "softmax_regression",
    "spreadout",
]
