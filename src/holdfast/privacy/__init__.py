"""Differential privacy: what can be learnt of one client from all that a run releases."""

from holdfast.privacy.account import (
    Account,
    Guarantee,
    Scheme,
    epsilon,
    noise_multiplier,
    scheme_of,
)
from holdfast.privacy.gaussian import Gaussian, Quantile

__all__ = [
    "Account",
    "Gaussian",
    "Guarantee",
    "Quantile",
    "Scheme",
    "epsilon",
    "noise_multiplier",
    "scheme_of",
]
