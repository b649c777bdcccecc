"""Pages of the API reference: every public name, by what it is for; mkdocstrings draws the docstrings."""

import ast
import functools
import inspect
import types
from pathlib import Path
from typing import Any

import holdfast as hf
import holdfast.public
import holdfast.torch

# What is at the top, by what it is for. A name that is in no list stands on the page of the last.
TOP = {
    "run": (
        "Running",
        "Run a method: `hf.simulate` for a number of rounds, `hf.rounds` for the state after each, "
        "`hf.sweep` for many hyper-parameters and seeds, `hf.advise` to find out which method to run.",
        [
            "simulate", "rounds", "sweep", "advise", "Advice", "Budget", "pretrain", "Experiment", "Local",
            "Server", "Population", "join", "Checkpoint", "Storage", "Engine", "CompiledEngine",
            "DebugEngine",
        ],
    ),
    "results": (
        "Results",
        "What a run has measured, sent and learnt; runs beside each other, as a table, a figure or a page.",
        [
            "Run", "RunState", "History", "Ledger", "Sweep", "load", "SavedModel", "compare", "Comparison",
            "report", "figures",
        ],
    ),
    "write": (
        "Rules of your own",
        "What a method is made of: see [Write your own rule](../own_rule.md) and [Extend it](../extend.md).",
        [
            "Algorithm", "Rule", "Tilt", "ClientView", "ServerView", "Traits", "Need", "State", "static",
            "Hyper", "PerClient", "Chain", "Masked", "ServerTurn", "Uploaded", "Wire", "OnSite",
        ],
    ),
    "more": (
        "Data, models and errors",
        "What runs are made from, and what is raised where something cannot work.",
        [
            "Clients", "Examples", "Model", "Table", "HoldfastError", "HoldfastWarning", "RoundFailedError",
            "DebugError",
        ],
    ),
}  # fmt: skip


def modules() -> dict[str, types.ModuleType]:
    """Public modules and those within them that they list, by the name they have in `hf`."""
    found: dict[str, types.ModuleType] = {}

    def add(name: str, module: types.ModuleType) -> None:
        found[name] = module
        for inner in getattr(module, "__all__", ()):
            if isinstance(getattr(module, inner), types.ModuleType):
                add(f"{name}.{inner}", getattr(module, inner))

    for name in hf.__all__:
        if isinstance(getattr(hf, name), types.ModuleType):
            add(name, getattr(hf, name))
    # Not in `__all__`: `from holdfast import *` would take the place of PyTorch's own `torch`.
    add("torch", holdfast.torch)
    return found


def public() -> dict[str, list[str]]:
    """Names by the page they are on."""
    top = [n for n in hf.__all__ if not isinstance(getattr(hf, n), types.ModuleType)]
    pages = {page: [n for n in names if n in top] for page, (_, _, names) in TOP.items()}
    listed = {name for names in pages.values() for name in names}
    pages[next(reversed(TOP))] += [name for name in top if name not in listed]
    for name, module in modules().items():
        inside = [n for n in module.__all__ if not isinstance(getattr(module, n), types.ModuleType)]
        pages[name] = [f"{name}.{n}" for n in inside]
    return pages


def titles() -> dict[str, str]:
    """What pages are called in the navigation."""
    return {page: title for page, (title, _, _) in TOP.items()} | {
        name: f"hf.{name}" for name in modules()
    }


def pages() -> dict[str, str]:
    """The pages by their address."""
    made = {"api/index.md": index()}
    for page, names in public().items():
        made[f"api/{page}.md"] = page_of(page, names)
    return made


@functools.cache
def homes() -> dict[str, str]:
    """The page on which each thing is drawn, by where it is defined: some are public under two names."""
    found: dict[str, str] = {}
    for page, names in public().items():
        for name in names:
            found.setdefault(target(name), page)
    return found


def page_of(page: str, names: list[str]) -> str:
    """One page: a line for each name, then each with its docstring where it is not on another page."""
    home = {name: homes()[target(name)] for name in names}
    about = TOP[page][1] if page in TOP else first_line(modules()[page])
    lines = [f"# {titles()[page]}", "", about, "", "| | |", "|---|---|"]
    lines += [f"| [`hf.{n}`]({home[n]}.md#{target(n)}) | {summary(n)} |" for n in names]
    for name in (name for name in names if home[name] == page):
        lines += [
            "",
            f"::: {target(name)}",
            "    options:",
            f'      heading: "hf.{name}"',
            # In quotes: `on` is a truth value in YAML.
            f'      toc_label: "{name.rpartition(".")[2]}"',
        ]
    return "\n".join(lines) + "\n"


def index() -> str:
    """Every public name in one list."""
    lines = [
        "# API reference",
        "",
        "Every public name with its docstring, after `import holdfast as hf`. What an experiment file may "
        "ask for by name is in [Methods](../methods/index.md) and [Names](../reference/index.md).",
    ]
    for page, names in public().items():
        lines += ["", f"## [{titles()[page]}]({page}.md)", ""]
        links = [f"[`{n.rpartition('.')[2]}`]({homes()[target(n)]}.md#{target(n)})" for n in names]
        lines.append(", ".join(links))
    return "\n".join(lines) + "\n"


def value(name: str) -> Any:
    """What a name stands for."""
    found: Any = hf
    for word in name.split("."):
        found = getattr(found, word)
    return found


def target(name: str) -> str:
    """Where a name is defined, for static analysis: followed through the files that hand it on."""
    inside, _, last = name.rpartition(".")
    module = holdfast.public if not inside else modules()[inside]
    while True:
        source = _imported(module).get(last)
        if source is None:
            return f"{module.__name__}.{last}"
        other, last = source
        module = __import__(other, fromlist=["_"])


def _imported(module: types.ModuleType) -> dict[str, tuple[str, str]]:
    """Names that a module has from another of the package: whose they are, and what they are called there."""
    tree = ast.parse(Path(inspect.getfile(module)).read_text("utf-8"))
    return {
        alias.asname or alias.name: (node.module, alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast.")
        for alias in node.names
    }


def first_line(of: Any) -> str:
    """The first sentence of a docstring."""
    return (inspect.getdoc(of) or "").partition("\n\n")[0].replace("\n", " ")


def summary(name: str) -> str:
    """The same for a table, where a bar would end the cell; nothing for what has no docstring of its own."""
    found = value(name)
    own = inspect.isclass(found) or inspect.isroutine(found) or hasattr(found, "__wrapped__")
    return first_line(found).replace("|", r"\|") if own else ""
