"""All studies, by name; a study's module is imported when it is asked for."""

import importlib

from papers.study import Study

# In the order of the papers' pages.
NAMES: tuple[str, ...] = (
    "feddyn/table2",
    "feddyn/table2_everyone",
    "feddyn/table5",
    "feddyn/table6",
    "feddyn/massive",
    "feddyn/unbalanced",
    "feddyn/figure1",
    "feddyn/figure2",
    "feddyn/figure3",
    "fedpvr/rates",
    "fedpvr/table2",
    "fedpvr/drift",
    "fedpvr/conformal",
    "fedpvr/first_layer",
    "fedpvr/resnet8",
    "fedpvr/splits",
)


def study(name: str) -> Study:
    """One study, by the name of its paper's folder and its module."""
    found = importlib.import_module(f"papers.{name.replace('/', '.')}").STUDY
    assert isinstance(found, Study)
    return found
