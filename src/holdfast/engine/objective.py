"""What a method minimises and what its clients use, in words."""

import numpy as np

from holdfast.core.algorithm import Algorithm
from holdfast.core.local import Local
from holdfast.core.wire import OnSite
from holdfast.engine import weights
from holdfast.engine.setup import Setup


def averages_over(setup: Setup) -> str:
    """What its objective is a mean over: `clients`, `examples` or `examples processed`.

    Clients where all weigh alike, to a twentieth: a remainder that some have one example more of is no
    other objective. Nothing for a method that averages nobody.
    """
    algorithm, given = setup.algorithm, setup.experiment.clients
    if algorithm.regroup is not None:
        sizes = given.sizes[given.sizes > 0]
        each = sizes
    elif isinstance(algorithm.wire, OnSite):
        return ""
    else:
        able = setup.batches.able
        sizes = setup.clients.sizes[able]
        each = weights.of_clients(algorithm.weighting, setup.batches)[able]
    if np.ptp(each) <= 0.05 * each.mean():
        return "clients"
    share = each / each.sum()
    return "examples" if np.allclose(share, sizes / sizes.sum()) else "examples processed"


def adapts_by(algorithm: Algorithm, local: Local | tuple[Local, ...]) -> str:
    """The local steps after which clients use a model; empty without."""
    steps = local if algorithm.adapt is True else algorithm.adapt
    if not steps:
        return ""
    if not isinstance(steps, Local):
        return "those of its population"
    count = steps.epochs or 1 if steps.steps is None else steps.steps
    unit = "epoch" if steps.steps is None else "step"
    rate = steps.learning_rate
    size = f" of {rate:g}" if isinstance(rate, int | float) else ""
    return f"{count} {unit}{'s' * (count > 1)}{size}"
