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
    "fsl/table1",
    "fsl/cifar10",
    "fsl/gamma",
    "fsl/distance",
    "fsl/classes",
    "fsl/source",
    "flix/figure2",
    "flix/figure7",
    "flix/figure9",
    "flix/figure11",
    "flix/figure13",
    "flix/figure4",
    "flix/figure1",
)


def study(name: str) -> Study:
    """One study, by the name of its paper's folder and its module."""
    found = importlib.import_module(f"papers.{name.replace('/', '.')}").STUDY
    assert isinstance(found, Study)
    return found
