"""Ways to split a data set over clients: deterministic from a seed, without replacement, always ending.

A split may have empty clients, for example when there are more clients than examples;
`hf.data.split.statistics` counts them.
"""

from holdfast.data.partition.by_label import by_classes, shards, stratified
from holdfast.data.partition.class_to_clients import dirichlet_by_class
from holdfast.data.partition.client_to_classes import dirichlet
from holdfast.data.partition.natural import natural
from holdfast.data.partition.plain import by, iid, in_order, lognormal

__all__ = [
    "by",
    "by_classes",
    "dirichlet",
    "dirichlet_by_class",
    "iid",
    "in_order",
    "lognormal",
    "natural",
    "shards",
    "stratified",
]
