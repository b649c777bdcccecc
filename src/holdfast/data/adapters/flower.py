"""Clients from the partitions of `flwr-datasets`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from holdfast.data.adapters.arrays import as_labels
from holdfast.data.adapters.hugging_face import Columns
from holdfast.data.clients import Clients, Examples
from holdfast.errors import HoldfastError, did_you_mean, explain_arguments

_WHO = "from_flower_partitions"


@explain_arguments
def from_flower_partitions(
    source: Any, features: str | Sequence[str], label: str, split: str = "train"
) -> Clients:
    """Flower's partitions as a population: partition i is client i.

    Columns are read as by `from_hugging_face`. For a test set that all share, give that function the
    split itself: `from_hugging_face(federated.load_split("test"), ..., test_share=0.0).train`.

    Args:
        source: a `flwr_datasets.FederatedDataset`, or a partitioner whose `dataset` is set.
        features: the column, or columns, with inputs.
        label: the column with labels or targets.
        split: which split of a `FederatedDataset` to take.

    Example:
        >>> import holdfast as hf
        >>> class Columns(dict):  # stands for a datasets.Dataset
        ...     column_names = property(list)
        >>> class Partitioner:  # stands for one of flwr_datasets.partitioner
        ...     num_partitions = 2
        ...
        ...     def load_partition(self, i):
        ...         return Columns(size=[[1.0], [2.0]], kind=["a", "b"])
        >>> hf.data.from_flower_partitions(Partitioner(), features="size", label="kind")
        Clients(2 with 2 to 2 examples, 4 in all)
    """
    names = [features] if isinstance(features, str) else list(features)
    parts = [Columns(part, names, label, None, _WHO) for part in _partitions(source, split)]
    filled = [part for part in parts if len(part.y)]
    if not filled:
        raise HoldfastError(
            f"{_WHO}: all {len(parts)} partitions are empty; check the partitioner."
        )
    x = np.concatenate([part.x for part in filled])
    y, _ = as_labels(np.concatenate([part.y for part in filled]), _WHO)
    offsets = np.concatenate([[0], np.cumsum([len(part.y) for part in parts], dtype=np.int64)])
    return Clients(Examples(x, y), np.arange(len(y)), offsets)


def _partitions(source: Any, split: str) -> list[Any]:
    if not hasattr(source, "load_partition"):
        raise HoldfastError(
            f"{_WHO}: a {type(source).__name__} has no partitions; give a FederatedDataset or a "
            f"partitioner.",
            about=("source",),
        )
    if not hasattr(source, "partitioners"):
        return [source.load_partition(i) for i in range(source.num_partitions)]
    partitioners = source.partitioners
    if split not in partitioners:
        hint = did_you_mean(split, partitioners)
        raise HoldfastError(f"{_WHO}: split `{split}` is not partitioned; {hint}", about=("split",))
    return [source.load_partition(i, split) for i in range(partitioners[split].num_partitions)]
