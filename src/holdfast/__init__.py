"""holdfast: federated learning for data that disagrees."""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# What is public is listed in public.py and imported when the first of it is asked for, so that
# `holdfast --version`, `--help` and shell completion need not wait for JAX.
if TYPE_CHECKING:
    from holdfast.public import *  # noqa: F403
else:

    def __getattr__(name: str) -> Any:
        # A room is imported alone: whoever asks may be one that all that is public needs.
        if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}"):
            return importlib.import_module(f"{__name__}.{name}")
        if not name.startswith("__") or name == "__all__":
            public = importlib.import_module("holdfast.public")
            # While that is being imported it lists nothing yet, and Python goes on to look for a module.
            if hasattr(public, "__all__"):
                globals().update({n: getattr(public, n) for n in ("__all__", *public.__all__)})
        if name not in globals():
            raise AttributeError(f"module `holdfast` has no attribute `{name}`", name=name)
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *importlib.import_module("holdfast.public").__all__})
