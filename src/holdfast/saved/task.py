"""What a model predicts: classes, label 0 or 1, several labels at once, or numbers."""

import math

import jax
import numpy as np

from holdfast.data.clients import Examples
from holdfast.models.model import Model, Task
from holdfast.saved.description import ArrayType
from holdfast.trees import Tree


def task_of(model: Model, params: Tree, x: ArrayType, y: ArrayType) -> Task | None:
    """What the model predicts, as it says or by the shapes of predictions and labels."""
    if model.predictor is None:
        return None if model.output is None else "numbers"
    if model.predictor.task is not None:
        return model.predictor.task
    one = [np.zeros((1, *a.shape), a.dtype) for a in (x, y)]
    found = jax.eval_shape(lambda p: model.predict(p, Examples(*one)), params)
    whole = np.dtype(y.dtype).kind in "biu"
    if found.shape == (1, *y.shape):
        return ("binary" if whole else "numbers") if not y.shape or not whole else "labels"
    return "classes" if whole and math.prod(found.shape[:-1]) == math.prod(y.shape) else "numbers"
