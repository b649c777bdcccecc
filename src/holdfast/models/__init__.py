"""Models: the papers' own, and any other as `Model(init, loss)`."""

from holdfast.models.dense import MLP, BinaryMLP, binary_mlp, mlp, softmax_regression
from holdfast.models.dual_encoder import DualEncoder, Spreadout, dual_encoder, spreadout
from holdfast.models.metrics import auc
from holdfast.models.model import Model, Table, classifier
from holdfast.models.recurrent import GRU, gru

__all__ = [
    "GRU",
    "MLP",
    "BinaryMLP",
    "DualEncoder",
    "Model",
    "Spreadout",
    "Table",
    "auc",
    "binary_mlp",
    "classifier",
    "dual_encoder",
    "gru",
    "mlp",
    "softmax_regression",
    "spreadout",
]
