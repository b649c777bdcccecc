"""Clients that lie, to find out in a simulation what a method stands."""

from holdfast.attacks.attack import Attack
from holdfast.attacks.conspiring import ALittleIsEnough, InnerProductManipulation
from holdfast.attacks.replies import Boosted, GaussianNoise, Huge, NotANumber, SignFlip
from holdfast.attacks.rows import LabelFlip

__all__ = [
    "ALittleIsEnough",
    "Attack",
    "Boosted",
    "GaussianNoise",
    "Huge",
    "InnerProductManipulation",
    "LabelFlip",
    "NotANumber",
    "SignFlip",
]
