"""A split in numbers."""

import dataclasses
from typing import Any

import numpy as np

from holdfast.data.clients import Clients
from holdfast.data.split.table import nonzero_counts, owned_labels, owners
from holdfast.errors import explain_arguments


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Labels:
    r"""Label skew of a split.

    With $p_i$ the label distribution of client $i$ and $p$ that of all owned examples, entropies are
    $H(p_i)$ and distances the total variation $\tfrac{1}{2} \sum_c |p_i(c) - p(c)|$. A client without
    examples has neither: NaN.

    Args:
        classes: number of different labels of all clients.
        global_entropy: $H(p)$, in bits.
        held: number of different labels of each client.
        entropies: of each client, in bits.
        distances: of each client, from 0 (labels as everybody's) to 1.
    """

    classes: int
    global_entropy: float
    held: np.ndarray
    entropies: np.ndarray
    distances: np.ndarray


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Statistics:
    """Sizes and label skew of a split; prints as a few lines.

    Args:
        sizes: number of examples of each client.
        labels: label skew, where there are labels.
    """

    sizes: np.ndarray
    labels: Labels | None = None

    def numbers(self) -> dict[str, float]:
        """Everything as plain numbers; means, least and most are over clients that own something."""
        sizes = self.sizes
        found = {
            "clients": len(sizes),
            "examples": int(sizes.sum()),
            "empty": int((sizes == 0).sum()),
            "size_least": int(sizes.min()),
            "size_median": float(np.median(sizes)),
            "size_most": int(sizes.max()),
            "size_gini": _gini(sizes),
        }
        return found if self.labels is None else found | _skew(self.labels, sizes > 0)

    def summary(self) -> str:
        """The split in a few lines."""
        n = self.numbers()
        lines = [
            f"{n['clients']:,} clients own {n['examples']:,} examples; {n['empty']:,} own none",
            f"examples per client: {n['size_least']:,} to {n['size_most']:,}, "
            f"median {n['size_median']:,g} (Gini {n['size_gini']:.2f})",
        ]
        if self.labels is not None:
            lines += [
                f"classes per client: {n['classes_least']:,} to {n['classes_most']:,} of "
                f"{n['classes']:,}, mean {n['classes_mean']:.1f}",
                f"label entropy: mean {n['entropy_mean']:.2f} of {n['entropy_global']:.2f} bits "
                f"({n['entropy_relative']:.0%})",
                f"distance to everybody's labels: mean {n['distance_mean']:.2f}, "
                f"most {n['distance_most']:.2f} (total variation)",
            ]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return self.summary()


@explain_arguments
def statistics(clients: Clients, labels: Any = None) -> Statistics:
    """Sizes and label skew of a split, in memory that grows with examples, not with classes.

    Args:
        clients: the population.
        labels: one per example of `clients.examples`; its `.y` unless given, where it holds whole
            numbers or names.

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> clients = hf.data.partition.dirichlet(train, clients=50, concentration=0.1)
        >>> hf.data.split.statistics(clients)
        50 clients own 1,438 examples; 0 own none
        examples per client: 28 to 29, median 29 (Gini 0.01)
        classes per client: 2 to 6 of 10, mean 3.7
        label entropy: mean 1.41 of 3.32 bits (42%)
        distance to everybody's labels: mean 0.69, most 0.86 (total variation)
        >>> hf.data.split.statistics(clients).numbers()["classes_most"]
        6
    """
    found = owned_labels(clients, labels)
    sizes = clients.sizes
    if found is None or not len(clients.order):
        return Statistics(sizes)
    names, y = found
    total = np.bincount(y, minlength=len(names))
    client, label, amount = nonzero_counts(owners(clients), y, len(names))
    share, overall = amount / sizes[client], total / len(y)

    def per_client(terms: np.ndarray) -> np.ndarray:
        sums = np.bincount(client, terms, minlength=len(sizes))
        return np.where(sizes > 0, sums, np.nan)

    skew = Labels(
        classes=int((total > 0).sum()),
        global_entropy=float(_entropy_terms(overall[total > 0]).sum()),
        held=np.bincount(client, minlength=len(sizes)),
        entropies=per_client(_entropy_terms(share)),
        # The positive parts of p_i - p are half of all, and lie where the client has examples.
        distances=per_client(np.maximum(share - overall[label], 0)),
    )
    return Statistics(sizes, skew)


def _entropy_terms(share: np.ndarray) -> np.ndarray:
    return share * np.log2(1 / share)


def _skew(labels: Labels, owning: np.ndarray) -> dict[str, float]:
    held, entropies = labels.held[owning], labels.entropies[owning]
    distances, whole = labels.distances[owning], labels.global_entropy
    return {
        "classes": labels.classes,
        "classes_least": int(held.min()),
        "classes_mean": float(held.mean()),
        "classes_most": int(held.max()),
        "entropy_mean": float(entropies.mean()),
        "entropy_global": whole,
        "entropy_relative": float(entropies.mean()) / whole if whole else 1.0,
        "distance_mean": float(distances.mean()),
        "distance_most": float(distances.max()),
    }


def _gini(sizes: np.ndarray) -> float:
    """0 where all sizes are equal; nearly 1 where one client owns everything."""
    n, total = len(sizes), int(sizes.sum())
    if not total:
        return 0.0
    rank = np.arange(1, n + 1)
    return float((2 * rank - n - 1) @ np.sort(sizes) / (n * total))
