"""FLIX around the rounds: local optima, constants, budgets, one shot, ensembles, clusters."""

from holdfast.flix.budget import Personalised, personalise
from holdfast.flix.clusters import Shared, cluster, cluster_optima
from holdfast.flix.ensemble import Ensemble, ensemble
from holdfast.flix.optima import Optima, local_optima
from holdfast.flix.start import by_theory
from holdfast.flix.theory import Constants, constants

__all__ = [
    "Constants",
    "Ensemble",
    "Optima",
    "Personalised",
    "Shared",
    "by_theory",
    "cluster",
    "cluster_optima",
    "constants",
    "ensemble",
    "local_optima",
    "personalise",
]
