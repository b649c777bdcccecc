"""What to measure during training, on which model, and how often."""

from holdfast.evaluate.evaluators import Evaluator, client_average, on, personal

__all__ = ["Evaluator", "client_average", "on", "personal"]
