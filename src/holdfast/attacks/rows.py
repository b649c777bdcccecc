"""Attacks on the data that liars train on."""

import dataclasses
from typing import ClassVar

import numpy as np

from holdfast.attacks.attack import Attack
from holdfast.data.clients import Clients
from holdfast.errors import HoldfastError, explain_constructor


@explain_constructor
@dataclasses.dataclass(frozen=True, kw_only=True)
class LabelFlip(Attack):
    r"""Liars train, honestly, on labels that are turned round: the last class for the first, and so on.

    $$ y \leftarrow C - 1 - y $$

    Examples that a liar shares with an honest client would be changed for both, and are refused.

    Args:
        clients: who lies, by number or name; or give a share.
        share: of the clients, drawn at random by the run's seed.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> data = hf.Examples(np.zeros((4, 1)), np.array([0, 1, 2, 0]))
        >>> clients = hf.data.partition.in_order(data, clients=2)
        >>> attack = hf.attacks.LabelFlip(clients=[1])
        >>> attack.poisoned(clients, (1,)).examples.y.tolist()
        [0, 1, 0, 2]
    """

    on_replies: ClassVar[bool] = False

    def poisoned(self, clients: Clients, liars: tuple[int, ...]) -> Clients:
        examples = clients.examples
        labels = np.asarray(getattr(examples, "y", None))
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise HoldfastError(
                "LabelFlip: the examples have no whole-number labels `y`, one per example; use another "
                "attack.",
                about=("attack",),
            )
        mine = [clients.rows(i) for i in range(len(clients))]
        theirs = np.concatenate([np.zeros(0, int), *(mine[i] for i in liars)])
        others = np.concatenate(
            [np.zeros(0, int), *(rows for i, rows in enumerate(mine) if i not in liars)]
        )
        if len(np.intersect1d(theirs, others)):
            raise HoldfastError(
                "LabelFlip: a liar shares examples with an honest client, who would train on false labels "
                "too; give every client examples of its own.",
                about=("attack",),
            )
        flipped = labels.copy()
        flipped[theirs] = labels.max() - labels[theirs]
        return dataclasses.replace(clients, examples=examples._replace(y=flipped))
