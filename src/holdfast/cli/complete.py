"""What the shell offers when Tab is pressed: names, templates, run folders and what is in them.

Nothing here may import JAX, for which nobody waits at a prompt.
"""

import contextlib
import itertools
import json
import textwrap
from collections.abc import Iterator
from pathlib import Path

import typer

# Where to look for what was typed; what is deeper, or among more, is found when more of it is typed.
_DEPTH = 3
_MOST_FOLDERS = 500
Offers = list[tuple[str, str]]


def _beginning(offers: dict[str, str], typed: str) -> Offers:
    # One line each, which shells show beside the word.
    return [
        (word, textwrap.shorten(about, 60, placeholder=" ..."))
        for word, about in offers.items()
        if word.startswith(typed)
    ]


def templates(incomplete: str) -> Offers:
    """Experiment files that `holdfast new` can write."""
    from holdfast.config import examples

    return _beginning({name: examples.title(name) for name in examples.names()}, incomplete)


def kinds(incomplete: str) -> Offers:
    """What `holdfast list` can be asked for."""
    from holdfast.config import described

    return _beginning(described.titles(), incomplete)


def names(incomplete: str) -> Offers:
    """What `holdfast show` can explain."""
    from holdfast.config import described

    every = [described.names(kind) for kind in described.titles()]
    return _beginning({n: about for known in every for n, about in known.items()}, incomplete)


def studies(incomplete: str) -> list[str]:
    """Studies of the papers, where there is a clone of the repository."""
    from holdfast.cli import checkout
    from holdfast.errors import HoldfastError

    with contextlib.suppress(HoldfastError):  # none is here: no offers
        return [n for n in checkout.module("studies").NAMES if n.startswith(incomplete)]
    return []


def sinks(incomplete: str) -> Offers:
    """Where `--track` can send rounds."""
    about = {"tensorboard": "files in the run folder", "mlflow": "", "wandb": "Weights & Biases"}
    return _beginning(about, incomplete)


def experiment_files(incomplete: str) -> list[str]:
    """Files for `holdfast run`, here and a little below; not those that runs keep."""
    return [
        str(path)
        for path in _below(incomplete)
        if path.suffix == ".toml" and not _is_run(path.parent)
    ]


def run_folders(incomplete: str) -> list[str]:
    """Folders that `holdfast run` made, here and a little below."""
    return [str(path) for path in _below(incomplete) if _is_run(path)]


def methods(ctx: typer.Context, incomplete: str) -> list[str]:
    """Methods of the folders given before."""
    found: dict[str, None] = {}
    for folder in _given(ctx):
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # damaged: no offers
            listed = json.loads((folder / "methods.json").read_text("utf-8"))["methods"]
            found |= {str(method["name"]): None for method in listed}
    return [name for name in found if name.startswith(incomplete)]


def clients(ctx: typer.Context, incomplete: str) -> list[str]:
    """Clients of the folders given before, by the names they have there."""
    found: dict[str, None] = {}
    for folder in _given(ctx):
        with contextlib.suppress(OSError, ValueError, TypeError):  # damaged: no offers
            about = json.loads((folder / "split.json").read_text("utf-8"))
            found |= dict.fromkeys(map(str, about.get("names") or ()))
    return [name for name in found if name.startswith(incomplete)]


def metrics(ctx: typer.Context, incomplete: str) -> list[str]:
    """What was measured in the folders given before."""
    found: dict[str, None] = {}
    for folder in _given(ctx):
        for history in folder.glob("methods/**/history.jsonl"):
            with contextlib.suppress(OSError, ValueError), open(history, encoding="utf-8") as file:
                found |= dict.fromkeys(json.loads(file.readline()))
    return sorted(name for name in found if name.startswith(incomplete) and name != "round")


def _given(ctx: typer.Context) -> list[Path]:
    # Before an option that waits for its value, folders have not been told from other words yet.
    one = ctx.params.get("source")
    words = ctx.params.get("folders") or ([one] if one else ctx.args)
    return [Path(word) for word in words if _is_run(Path(word))]


def _is_run(path: Path) -> bool:
    return (path / "experiment.toml").exists() and (path / "methods.json").exists()


def _below(typed: str) -> Iterator[Path]:
    """Files and folders whose names begin with what was typed, and what is in them, nearest first."""
    last = typed.rpartition("/")[2]
    parent = Path(typed[: len(typed) - len(last)])
    level = [p for p in _inside(parent) if p.name.startswith(last)]
    for _ in range(_DEPTH):
        yield from level
        folders = (p for p in level if p.is_dir() and not _is_run(p))
        level = [p for folder in itertools.islice(folders, _MOST_FOLDERS) for p in _inside(folder)]


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(p for p in folder.iterdir() if not p.name.startswith("."))
    except OSError:  # it is not there, or may not be read: nothing to offer
        return []
