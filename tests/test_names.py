"""Public names: a namespace lists what it offers, and what was renamed says its new name."""

import ast
import inspect
from types import ModuleType

import pytest

import holdfast as hf
from holdfast import errors


def namespaces(module: ModuleType) -> list[ModuleType]:
    inside = [getattr(module, name, None) for name in getattr(module, "__all__", ())]
    return [module, *(n for m in inside if isinstance(m, ModuleType) for n in namespaces(m))]


def defined(module: ModuleType) -> set[str]:
    """Public names that a module makes itself, or a package takes from its own modules."""
    found = set()
    for node in ast.parse(inspect.getsource(module)).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {
                name.id for t in targets for name in ast.walk(t) if isinstance(name, ast.Name)
            }
    if hasattr(module, "__path__"):
        own = f"{module.__name__}."
        found |= {
            n for n, v in vars(module).items() if getattr(v, "__module__", "").startswith(own)
        }
    return {name for name in found if not name.startswith("_")}


@pytest.mark.parametrize("module", namespaces(hf), ids=lambda module: module.__name__)
def test_a_namespace_lists_all_that_is_public_and_nothing_else(module):
    listed = module.__all__
    assert len(set(listed)) == len(listed)
    assert [name for name in listed if not hasattr(module, name)] == []
    assert defined(module) - set(listed) == set()


def test_all_public_namespaces_are_walked():
    names = {module.__name__.removeprefix("holdfast.") for module in namespaces(hf)}
    assert names >= {"data.partition", "data.split", "flix", "solvers", "trees", "wires"}


# Functions and classes with an argument that was called otherwise, and the two words.
RENAMED = [
    (hf.flix.constants, "bends", "curvature"),
    (hf.flix.personalise, "bends", "curvature"),
    (hf.flix.local_optima, "optimum", "solver"),
    (hf.algorithms.flix, "optimum", "solver"),
    (hf.algorithms.flix_one_shot, "optimum", "solver"),
    (hf.rules.Flix, "optimum", "solver"),
    (hf.solvers.GradientDescent, "most", "max_steps"),
    (hf.solvers.LineSearch, "most", "max_steps"),
    (hf.solvers.LBFGS, "most", "max_steps"),
    (hf.data.movielens_100k, "most", "max_examples"),
    (hf.data.movielens_1m, "most", "max_examples"),
    (hf.data.stack_overflow, "most", "max_examples"),
    (hf.data.celeba, "least", "min_examples"),
    (hf.data.text, "least", "min_bytes"),
    (hf.data.partition.dirichlet_by_class, "smallest", "min_examples"),
    (hf.models.GeneralisedLinear, "steepest", "max_curvature"),
    (hf.models.GeneralisedLinear, "flattest", "min_curvature"),
    (hf.models.Predictor, "judge", "metrics"),
]


@pytest.mark.parametrize(
    ("made", "old", "new"), RENAMED, ids=[f"{f.__qualname__}({old})" for f, old, _ in RENAMED]
)
def test_the_old_name_of_an_argument_says_the_new_one(made, old, new):
    assert new in inspect.signature(made).parameters
    with pytest.raises(errors.UnknownArgumentError, match=f"`{old}`.*`{new}`") as caught:
        made(**{old: 1})
    assert "\n" not in str(caught.value)


def test_the_old_name_of_matched_test_says_the_new_one():
    with pytest.raises(hf.HoldfastError, match=r"hf\.data\.matched_test"):
        _ = hf.data.like
    with pytest.raises(hf.HoldfastError, match=r"hf\.data\.matched_test"):
        from holdfast.data import like  # noqa: F401
    with pytest.raises(AttributeError, match="nothing_of_this_name"):
        _ = hf.data.nothing_of_this_name
