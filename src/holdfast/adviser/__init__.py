"""Which method does this data need, and is federating worth it: facts, a race, and what they come to."""

from holdfast.adviser.advice import Advice
from holdfast.adviser.advise import advise
from holdfast.adviser.budget import Budget

__all__ = ["Advice", "Budget", "advise"]
