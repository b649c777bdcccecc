"""What a method minimises, in a word."""

import numpy as np

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
