"""PyTorch itself, imported when the first thing of it is needed: it is an extra."""

import importlib
from typing import Any

from holdfast.errors import HoldfastError


def library() -> Any:
    """The package `torch`; refuses where it is not installed."""
    try:
        return importlib.import_module("torch")
    except ImportError:
        raise HoldfastError(
            "holdfast.torch: PyTorch is not installed; install it with `pip install holdfast[torch]`."
        ) from None
