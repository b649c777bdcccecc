"""Examples in docstrings that need an extra are run where it is installed."""

import importlib.util

_NEEDS = {"torch": "src/holdfast/torch/*", "flwr": "src/holdfast/flower.py"}
collect_ignore_glob = [
    path for package, path in _NEEDS.items() if importlib.util.find_spec(package) is None
]
