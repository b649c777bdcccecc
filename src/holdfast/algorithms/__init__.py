"""The names people search for, each a few lines over the rules."""

from holdfast.algorithms.baselines import (
    centralised,
    fedadam,
    fedavg,
    fedavgm,
    fedprox,
    fedyogi,
    local_only,
)
from holdfast.algorithms.drift import feddc, feddyn, fedpvr, fedsplit, scaffold
from holdfast.algorithms.mixed import (
    one_way_transfer,
    parallel_training,
    population_transfer,
    two_way_transfer,
)
from holdfast.algorithms.personal import dcgd, diana, flix, flix_one_shot, fomaml, reptile
from holdfast.algorithms.server_learning import (
    fedavg_plus,
    feddc_plus,
    feddyn_plus,
    scaffold_plus,
    server_as_client,
)

__all__ = [
    "centralised",
    "dcgd",
    "diana",
    "fedadam",
    "fedavg",
    "fedavg_plus",
    "fedavgm",
    "feddc",
    "feddc_plus",
    "feddyn",
    "feddyn_plus",
    "fedprox",
    "fedpvr",
    "fedsplit",
    "fedyogi",
    "flix",
    "flix_one_shot",
    "fomaml",
    "local_only",
    "one_way_transfer",
    "parallel_training",
    "population_transfer",
    "reptile",
    "scaffold",
    "scaffold_plus",
    "server_as_client",
    "two_way_transfer",
]
