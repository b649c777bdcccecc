"""What to measure during training, on which model, and how often."""

from holdfast.evaluate.evaluators import active_average, client_average, on, personal
from holdfast.evaluate.measuring import measure
from holdfast.evaluate.populations import populations
from holdfast.evaluate.protocol import EvaluationView, Evaluator

__all__ = [
    "EvaluationView",
    "Evaluator",
    "active_average",
    "client_average",
    "measure",
    "on",
    "personal",
    "populations",
]
