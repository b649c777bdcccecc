"""What a study is: cells that are run, and rows that put what came of them beside the paper's numbers.

A module of a study, such as `papers/feddyn/table2.py`, has a `STUDY`; `papers/studies.py` lists them all.
`holdfast papers run feddyn/table2` runs its cells, several at once, and keeps each in
`papers/feddyn/results/table2.json` as it ends, so that a study that was stopped goes on.
"""

import dataclasses
import enum
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
# Beside the repository, in the official formats; another folder by `--data`.
DATA = ROOT.parent / "shared" / "data"

Values = dict[str, Any]  # what a cell returns: JSON
Found = Mapping[str, Values]  # by the name of the cell, those that were run


@dataclasses.dataclass(frozen=True)
class Asked:
    """How a study is run.

    Args:
        quick: in small, on data that everybody has, in seconds: shows that it runs, and nothing else.
        data: the folder with the real data sets.
    """

    quick: bool = False
    data: Path = DATA


@dataclasses.dataclass(frozen=True)
class Cell:
    """One run, or several that belong together: a call that returns JSON.

    Args:
        name: what it is kept under, such as `dirichlet03-feddyn-0`; it names all that tells cells apart.
        function: a function of a module, called as `function(*args, asked=asked, folder=folder)`. Into
            the folder, its own, go saves (`hf.simulate(checkpoint=folder)`), so that it goes on after a kill.
        args: what it is called with: small values that are kept beside the result as its settings.
        minutes: how long it takes on one quiet core, about. Longest cells are begun first.
    """

    name: str
    function: Callable[..., Values]
    args: tuple[Any, ...] = ()
    minutes: float = 1.0


class Verdict(enum.StrEnum):
    """What a row comes to."""

    AGREES = "agrees"
    ORDER = "order agrees"
    DISAGREES = "disagrees"
    NOT_RUN = "not run"


@dataclasses.dataclass(frozen=True)
class Row:
    """One row of the dossier: a table or figure of the paper, or a column of one.

    Args:
        place: where the paper has it, such as `table 2`.
        what: what is measured there, in which setting.
        paper: the paper's numbers, as it prints them.
        ours: ours, with deviation over seeds and data draws and how many of each.
        scale: `full`, or what is smaller than in the paper.
        data: on which data, of which size.
        verdict: whether they agree.
        why: where they do not agree, why, by which experiment; what else must be known.
    """

    place: str
    what: str
    paper: str
    ours: str = ""
    scale: str = ""
    data: str = ""
    verdict: Verdict = Verdict.NOT_RUN
    why: str = ""


@dataclasses.dataclass(frozen=True)
class Place:
    """A table or figure of a paper, or a column of one, that no study covers.

    `papers/<paper>/places.py` has them as `PLACES`.

    Args:
        place: where the paper has it, such as `table 2`.
        what: what is measured there, in which setting.
        paper: the paper's numbers, as it prints them.
        command: what runs it.
        hours: how long that takes on two quiet cores, about.
        why: why it was not run, and what else must be known.
    """

    place: str
    what: str
    paper: str
    command: str
    hours: float
    why: str = ""

    @property
    def row(self) -> Row:
        """What the dossier has of it."""
        return Row(self.place, self.what, self.paper, why=self.why)


@dataclasses.dataclass(frozen=True)
class Study:
    """What is run for one or several places of a paper, and what comes of it.

    Args:
        name: the paper's folder and the study's module, such as `feddyn/table2`.
        title: one line.
        needs: real data sets it reads from `Asked.data`, by the names of `hf.data` loaders, or of the folder
            where there is no loader; none of them when it is quick.
        searched: what was searched for each method, over which values, judged on which data.
        cells: what is run; making the list must cost nothing, since the list of studies asks for it.
        rows: the dossier's rows of what was found. With cells missing it has the same rows: what is told of
            those that are there, `Verdict.NOT_RUN` where nothing can.
        table: the study's own table, in Markdown.
        figure: draws into a file (PNG), if there is something to look at.
    """

    name: str
    title: str
    needs: tuple[str, ...]
    searched: str
    cells: Callable[[Asked], Sequence[Cell]]
    rows: Callable[[Found], Sequence[Row]]
    table: Callable[[Found], str]
    figure: Callable[[Found, Path], None] | None = None

    @property
    def paper(self) -> str:
        """The folder of the paper."""
        return self.name.partition("/")[0]

    @property
    def results(self) -> Path:
        """Where what was found is kept."""
        folder, _, name = self.name.partition("/")
        return ROOT / "papers" / folder / "results" / f"{name}.json"

    def hours(self, asked: Asked = Asked()) -> float:  # noqa: B008 - a frozen value
        """How long all cells take on one quiet core, about."""
        return sum(cell.minutes for cell in self.cells(asked)) / 60
