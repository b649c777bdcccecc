"""Differential privacy: what can be learnt of one client from all that a run releases."""

from holdfast.privacy.account import Scheme, epsilon, noise_multiplier, scheme_of
from holdfast.privacy.banded import Banded
from holdfast.privacy.example import ExampleLevel
from holdfast.privacy.gaussian import Gaussian, Quantile
from holdfast.privacy.guarantee import Account, Guarantee
from holdfast.privacy.local import LocalGaussian

__all__ = [
    "Account",
    "Banded",
    "ExampleLevel",
    "Gaussian",
    "Guarantee",
    "LocalGaussian",
    "Quantile",
    "Scheme",
    "epsilon",
    "noise_multiplier",
    "scheme_of",
]
