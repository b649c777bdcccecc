"""The repository of holdfast, whose folder `papers` has what no wheel has: the studies of the papers."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import holdfast
from holdfast.errors import HoldfastError

# What tells the folder from others that are called so.
_MARK = Path("papers") / "studies.py"


def find() -> Path:
    """The current folder, else the one that has holdfast's sources."""
    sources = Path(holdfast.__file__).resolve().parents[2]
    for folder in (Path.cwd(), sources):
        if (folder / _MARK).is_file():
            return folder
    raise HoldfastError(
        "papers: the studies are in holdfast's repository and not in the installed package; give the command "
        "in the folder of a clone."
    )


def module(name: str) -> ModuleType:
    """A module of the repository's folder `papers`, such as `studies`."""
    folder = str(find())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return importlib.import_module(f"papers.{name}")
