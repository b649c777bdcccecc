"""Examples set apart from every client's own, to choose rounds and hyper-parameters by."""

import dataclasses

import numpy as np

from holdfast.data.clients import Clients, check_clients
from holdfast.errors import HoldfastError, explain_arguments


@explain_arguments
def set_apart(clients: Clients, share: float = 0.1, seed: int = 0) -> tuple[Clients, Clients]:
    """Every client's examples in two: to train on, and to choose by.

    Of each label about that share, where labels are classes. Every client keeps at least one example to
    train on; one with too few for the share has none to choose by.

    Args:
        clients: the population.
        share: of every client's examples that are set apart.
        seed: the choice is a function of it.

    Example:
        >>> import holdfast as hf
        >>> train, _ = hf.data.digits()
        >>> clients, validation = hf.data.set_apart(hf.data.partition.iid(train, clients=5), 0.2)
        >>> clients.sizes.tolist(), validation.sizes.tolist()
        ([230, 230, 230, 230, 230], [58, 58, 58, 57, 57])
    """
    return set_apart_in_turn(clients, share, seed, 0.0)


def set_apart_in_turn(
    clients: Clients, share: float, seed: int, turn: float
) -> tuple[Clients, Clients]:
    """As `set_apart`; with turns 0, share, 2 share, ... below 1 about every example is set apart once, and
    clients have as many set apart in each."""
    check_clients("set_apart", clients, joined=False)
    if not 0 < share < 1:
        raise HoldfastError(
            f"set_apart: share={share}; give more than 0 and less than 1, such as 0.1.",
            about=("share",),
        )
    labels = getattr(clients.examples, "y", None)
    known = None if labels is None else np.asarray(labels)
    classes = known is not None and known.ndim == 1 and known.dtype.kind in "iub"
    kept, chosen = [], []
    for i in range(len(clients)):
        rows = clients.rows(i)
        few = min(round(share * len(rows)), max(len(rows) - 1, 0))
        rng = np.random.default_rng([seed, i])
        places = rng.permutation(len(rows))
        if classes and known is not None:
            # Sorted by label, a step of even size passes each label as often as it is there.
            places = places[np.argsort(known[rows[places]], kind="stable")]
        begin = (rng.random() + turn) % 1.0
        taken = places[np.floor((np.arange(few) + begin) * len(rows) / max(few, 1)).astype(int)]
        mask = np.zeros(len(rows), bool)
        mask[taken] = True
        kept.append(rows[~mask])
        chosen.append(rows[mask])
    if not any(map(len, chosen)):
        raise HoldfastError(
            f"set_apart: share={share} of at most {clients.sizes.max()} examples is none at any client; give "
            f"a larger one.",
            about=("share",),
        )
    parts = [Clients.from_rows(clients.examples, rows) for rows in (kept, chosen)]
    train, validation = (
        dataclasses.replace(clients, order=part.order, offsets=part.offsets) for part in parts
    )
    return train, validation
