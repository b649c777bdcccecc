"""Rooms: imports go one way, no function of the engine passes untyped dictionaries, no reflection."""

import ast
from pathlib import Path

import pytest

import holdfast

PACKAGE = Path(holdfast.__file__).parent
# From the ground up: a room imports from those before it, and within itself.
ORDER = (
    ("errors", "markup"),
    ("origin",),
    ("trees", "jobs"),
    ("core.struct", "core.keys", "core.debug"),
    ("core.hyper",),
    ("metrics",),
    ("data", "models", "cohorts", "schedules", "processes"),
    ("core",),
    ("solvers", "wires"),
    ("aggregates", "attacks", "privacy"),
    ("rules",),
    ("algorithms",),
    ("client_states",),
    ("record",),
    ("evaluate",),
    ("conformal",),
    ("config.own_code",),
    ("saved",),
    ("engine",),
    ("torch",),
    ("sweeps", "testing"),
    ("diagnose",),
    ("flix",),
    ("deploy",),
    ("config.catalogue",),
    ("config",),
    ("runs",),
    ("flower",),
    ("report",),
    ("comparison", "adviser"),
    ("public",),
    ("cli",),
    ("__main__",),
)


def modules():
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = ast.parse(path.read_text())
    found.pop("__init__", None)
    return found


MODULES = modules()


def level(module):
    """The place of its room; the longest prefix that is listed counts."""
    levels = {room: i for i, rooms in enumerate(ORDER) for room in rooms}
    words = module.split(".")
    for length in range(len(words), 0, -1):
        room = ".".join(words[:length])
        if room in levels:
            return levels[room], room
    raise AssertionError(f"{module} is in no room that is listed; add it to ORDER")


def imports(tree):
    """Modules of the package that are imported when this one is."""
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast"):
            base = node.module.removeprefix("holdfast").removeprefix(".")
            for alias in node.names:
                inside = f"{base}.{alias.name}".removeprefix(".")
                yield inside if inside in MODULES else base


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_down(module):
    mine, room = level(module)
    for wanted in imports(MODULES[module]):
        if not wanted:
            continue
        theirs, other = level(wanted)
        assert theirs < mine or other == room, f"{module} imports {wanted}, which is above it"


def test_no_import_cycle_within_a_room():
    wanted = {module: set(imports(tree)) & MODULES.keys() for module, tree in MODULES.items()}
    done, open_ = set(), []

    def visit(module):
        if module in done:
            return
        assert module not in open_, f"cycle: {' -> '.join([*open_, module])}"
        open_.append(module)
        for other in sorted(wanted[module]):
            # A package's own listing of its modules is no cycle.
            if not module.startswith(f"{other}."):
                visit(other)
        open_.pop()
        done.add(module)

    for module in sorted(MODULES):
        visit(module)


def functions(room):
    for module, tree in MODULES.items():
        if module.split(".")[0] == room:
            for node in ast.walk(tree):
                if isinstance(node, ast.FunctionDef):
                    yield module, node


def test_no_function_of_the_engine_passes_an_untyped_dictionary():
    """But for what a user's evaluator measures, by names that only it knows."""
    loose = [
        f"{module}.{node.name}"
        for room in ("core", "engine")
        for module, node in functions(room)
        for hint in [*(a.annotation for a in node.args.args), node.returns]
        if hint is not None and "dict[str, Any]" in ast.unparse(hint)
    ]
    assert set(loose) <= {
        "engine.simulation._evaluate",
        "core.debug.__init__",
        "core.debug._plain",
    }


def test_nobody_compares_the_functions_of_classes():
    """`type(x).m is Y.m` is how a wrapper that forgot a member went unnoticed."""
    for module, tree in MODULES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare):
                sides = [ast.unparse(side) for side in (node.left, *node.comparators)]
                attributes = [
                    s for s in sides if s.startswith("type(") and ")." in s and ").__" not in s
                ]
                assert not attributes, f"{module}: {ast.unparse(node)}"
