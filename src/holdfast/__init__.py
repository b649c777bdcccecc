"""holdfast: federated learning for data that disagrees."""

import importlib.util
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# What is public is listed in public.py and imported when the first of it is asked for, so that
# `holdfast --version`, `--help` and shell completion need not wait for JAX.
if TYPE_CHECKING:
    from holdfast.public import *  # noqa: F403
else:
    # Functions that have the name of a room.
    _NO_ROOM = ("report",)

    def __getattr__(name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        # A room is imported alone: whoever asks may be one that all that is public needs.
        if name not in _NO_ROOM and importlib.util.find_spec(f"holdfast.{name}") is not None:
            return importlib.import_module(f"holdfast.{name}")
        public = importlib.import_module("holdfast.public")
        if name != "__all__" and name not in public.__all__:
            raise AttributeError(f"module `holdfast` has no attribute `{name}`", name=name)
        globals().update({n: getattr(public, n) for n in ("__all__", *public.__all__)})
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *importlib.import_module("holdfast.public").__all__})
