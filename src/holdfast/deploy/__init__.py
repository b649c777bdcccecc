"""The same experiment at real sites: messages in bytes, the site's half, the server's half.

Nothing here knows how bytes travel: that is a `Transport`.
"""

import importlib.util
from typing import TYPE_CHECKING, Any

__all__ = [
    "Arrival",
    "InProcess",
    "Limits",
    "NoQuorumError",
    "Patience",
    "Site",
    "Transport",
    "from_file",
    "population",
    "run",
    "site_from_file",
]

# Imported when first asked for: Flower starts a process for every message, which needs no JAX.
if TYPE_CHECKING:
    from holdfast.deploy.collect import NoQuorumError, Patience
    from holdfast.deploy.federate import population, run
    from holdfast.deploy.replies import Limits
    from holdfast.deploy.site import Site
    from holdfast.deploy.site_file import from_file, site_from_file
    from holdfast.deploy.transport import Arrival, InProcess, Transport
else:
    _FROM = {
        "Arrival": "transport",
        "InProcess": "transport",
        "Limits": "replies",
        "NoQuorumError": "collect",
        "Patience": "collect",
        "Site": "site",
        "Transport": "transport",
        "from_file": "site_file",
        "population": "federate",
        "run": "federate",
        "site_from_file": "site_file",
    }

    def __getattr__(name: str) -> Any:
        if not name.startswith("_") and importlib.util.find_spec(f"holdfast.deploy.{name}"):
            return importlib.import_module(f"holdfast.deploy.{name}")
        if name not in _FROM:
            raise AttributeError(f"module `holdfast.deploy` has no attribute `{name}`", name=name)
        return getattr(importlib.import_module(f"holdfast.deploy.{_FROM[name]}"), name)

    def __dir__() -> list[str]:
        return sorted({*globals(), *_FROM})
