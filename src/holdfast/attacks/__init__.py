"""Clients that lie, to find out in a simulation what a method stands."""

from holdfast.attacks.attack import Attack
from holdfast.attacks.replies import Boosted, Gaussian, Huge, NotANumber, SignFlip
from holdfast.attacks.rows import LabelFlip

__all__ = ["Attack", "Boosted", "Gaussian", "Huge", "LabelFlip", "NotANumber", "SignFlip"]
