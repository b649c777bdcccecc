"""Data sets and populations of clients."""

from holdfast.data import partition
from holdfast.data.bundled import digits
from holdfast.data.clients import Clients, Examples
from holdfast.data.dataset import Dataset
from holdfast.data.libsvm import libsvm
from holdfast.data.share import share

__all__ = ["Clients", "Dataset", "Examples", "digits", "libsvm", "partition", "share"]
