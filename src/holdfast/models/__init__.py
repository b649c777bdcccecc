"""Models: the papers' own, and any other as `Model(init, loss)`."""

from holdfast.models.dense import MLP, mlp, softmax_regression
from holdfast.models.model import Model, classifier

__all__ = ["MLP", "Model", "classifier", "mlp", "softmax_regression"]
