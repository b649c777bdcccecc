"""The same small networks in both frameworks; whoever imports it is skipped where PyTorch is not there."""

import functools

import pytest

import holdfast as hf
import holdfast.torch
from tests.problems import tiny_clients

torch = pytest.importorskip("torch", reason="PyTorch is an extra: pip install holdfast[torch]")

# Threads of PyTorch's wait for each other by spinning, which takes longer than these networks.
torch.set_num_threads(1)

CLASSES, FEATURES = 3, 5
CLIENTS = tiny_clients()
DATA = CLIENTS.examples
LINEAR = hf.models.softmax_regression(CLASSES)
NETWORK = hf.models.mlp([4], classes=CLASSES)


def network():
    return torch.nn.Sequential(
        torch.nn.Linear(FEATURES, 4), torch.nn.ReLU(), torch.nn.Linear(4, CLASSES)
    )


@functools.cache
def linear_in_torch():
    module = torch.nn.Sequential(torch.nn.Linear(FEATURES, CLASSES))
    return holdfast.torch.like(LINEAR, DATA, module, classes=CLASSES)


@functools.cache
def network_in_torch():
    return holdfast.torch.like(NETWORK, DATA, network(), classes=CLASSES)
