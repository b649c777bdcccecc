"""holdfast: federated learning for data that disagrees."""

import copyreg
import importlib.util
import sys
import types
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# What is public is listed in public.py. It is imported when a name is first asked for: so that
# `holdfast --version`, `--help` and shell completion need not wait for JAX, and a run not for what compares
# runs, draws them and advises, whose libraries take longer to import than all a run needs.
if TYPE_CHECKING:
    from holdfast.public import *  # noqa: F403
else:
    # Functions that have the name of a room.
    _NO_ROOM = ("report",)
    # Names that a run is written with, by where they are. For any other all of public.py is imported.
    _OF_A_RUN = {
        "client_states.storage": ("Storage",),
        "core.algorithm": ("Algorithm",),
        "core.hyper": ("Hyper", "PerClient"),
        "core.local": ("Local",),
        "core.rule": ("ClientView", "Need", "Rule", "ServerView", "State", "Tilt", "Traits"),
        "core.struct": ("static",),
        "core.wire": ("OnSite", "Wire"),
        "data": ("Clients", "Examples"),
        "engine.compiled": ("CompiledEngine",),
        "engine.debug": ("DebugEngine",),
        "engine.experiment": ("Experiment",),
        "engine.populations": ("Population", "join"),
        "engine.protocol": ("Engine",),
        "engine.server": ("Server",),
        "engine.simulate": ("Run", "pretrain", "rounds", "simulate"),
        "engine.stopping": ("EarlyStopping",),
        "errors": ("HoldfastError", "HoldfastWarning", "RoundFailedError"),
        "models": ("Model", "Table"),
        "record.checkpoint": ("Checkpoint",),
        "record.history": ("History",),
        "record.ledger": ("Ledger",),
        "record.state": ("RunState",),
    }
    _HOME = {name: module for module, names in _OF_A_RUN.items() for name in names}

    class _Package(types.ModuleType):
        """Whose `report` is the function, whoever has imported the room of that name."""

        @property
        def report(self) -> Any:
            return importlib.import_module("holdfast.comparison").report

        @report.setter
        def report(self, room: Any) -> None:
            """What importing the room would do."""

    sys.modules[__name__].__class__ = _Package
    # As modules travel to other processes: by name.
    copyreg.pickle(_Package, lambda package: (importlib.import_module, (package.__name__,)))

    def __getattr__(name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(name)
        # A room is imported alone: whoever asks may be one that all that is public needs.
        if name not in _NO_ROOM and importlib.util.find_spec(f"holdfast.{name}") is not None:
            return importlib.import_module(f"holdfast.{name}")
        if name in _HOME:
            found = getattr(importlib.import_module(f"holdfast.{_HOME[name]}"), name)
            globals()[name] = found
            return found
        public = importlib.import_module("holdfast.public")
        if name != "__all__" and name not in public.__all__:
            raise AttributeError(f"module `holdfast` has no attribute `{name}`", name=name)
        globals().update({n: getattr(public, n) for n in ("__all__", *public.__all__)})
        return globals()[name]

    def __dir__() -> list[str]:
        return sorted({*globals(), *importlib.import_module("holdfast.public").__all__})
