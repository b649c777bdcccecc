"""Data sets and populations of clients."""

from typing import TYPE_CHECKING, NoReturn

from holdfast.data import partition, split
from holdfast.data.activity import hapt, window_features
from holdfast.data.adapters import (
    from_arrays,
    from_flower_partitions,
    from_hugging_face,
)
from holdfast.data.balance import balance
from holdfast.data.bundled import breast_cancer, digits
from holdfast.data.clients import Clients, Examples
from holdfast.data.dataset import Dataset
from holdfast.data.faces import celeba
from holdfast.data.files import arrays, mapped
from holdfast.data.held_out import matched_test
from holdfast.data.images import cifar10, cifar100, emnist, fashion_mnist, mnist
from holdfast.data.libsvm import libsvm
from holdfast.data.libsvm_sets import libsvm_set
from holdfast.data.ratings import movielens_1m, movielens_100k
from holdfast.data.read_only import read_only
from holdfast.data.rendered import rendered_characters
from holdfast.data.shakespeare import shakespeare
from holdfast.data.share import collect, share
from holdfast.data.stack_overflow import stack_overflow, stack_overflow_text
from holdfast.data.stand_in import hospitals
from holdfast.data.stl10 import stl10
from holdfast.data.synthetic import (
    least_squares_optimum,
    quadratics,
    sine,
    synthetic_logistic,
)
from holdfast.data.tables import from_table, table
from holdfast.data.text import text
from holdfast.data.validation import set_apart
from holdfast.errors import HoldfastError

__all__ = [
    "Clients",
    "Dataset",
    "Examples",
    "arrays",
    "balance",
    "breast_cancer",
    "celeba",
    "cifar10",
    "cifar100",
    "collect",
    "digits",
    "emnist",
    "fashion_mnist",
    "from_arrays",
    "from_flower_partitions",
    "from_hugging_face",
    "from_table",
    "hapt",
    "hospitals",
    "least_squares_optimum",
    "libsvm",
    "libsvm_set",
    "mapped",
    "matched_test",
    "mnist",
    "movielens_1m",
    "movielens_100k",
    "partition",
    "quadratics",
    "read_only",
    "rendered_characters",
    "set_apart",
    "shakespeare",
    "share",
    "sine",
    "split",
    "stack_overflow",
    "stack_overflow_text",
    "stl10",
    "synthetic_logistic",
    "table",
    "text",
    "window_features",
]

# Type checkers would believe in any name of a module that has this function.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        # No AttributeError: of that, `from holdfast.data import like` would show nothing.
        if name == "like":
            raise HoldfastError("hf.data.like is called hf.data.matched_test now; write that.")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
