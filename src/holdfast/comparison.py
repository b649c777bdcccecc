"""Runs beside each other in Python: `hf.compare`, `hf.report` and `hf.figures`, as the command has them."""

import dataclasses
import io
import re
import shutil
import tempfile
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import finalize

# Loaded before `hf.report` has its name, which Python would give to the folder when it is first imported.
import holdfast.report  # noqa: F401
from holdfast import markup
from holdfast.engine.simulate import Run
from holdfast.errors import HoldfastError, brief, did_you_mean, explain_arguments
from holdfast.record.frame import frame

if TYPE_CHECKING:
    from pandas import DataFrame
    from plotly.graph_objects import Figure

    from holdfast.runs.results import Results
    from holdfast.runs.verdict import Verdict

# Results of `simulate`, run folders, or a list of either; or results by the label they are to have.
Runs: TypeAlias = Run | str | Path | Sequence[Run | str | Path] | Mapping[str, Run | Sequence[Run]]


@dataclasses.dataclass(frozen=True, eq=False)
class ComparisonTable:
    """The table of a comparison: prints as `holdfast compare` does, and is HTML in a notebook."""

    comparison: "Comparison"

    def __repr__(self) -> str:
        from rich.console import Console

        from holdfast.runs.compare import table

        # In a notebook rich would show what it is to write.
        paper = Console(file=io.StringIO(), width=120, color_system=None, force_jupyter=False)
        paper.print(table(self.comparison.results, self.comparison.baseline, paper))
        return paper.file.getvalue().rstrip()  # type: ignore[attr-defined]

    def _repr_html_(self) -> str:
        from holdfast.runs.compare import notes
        from holdfast.runs.export import in_cells
        from holdfast.runs.flags import flags
        from holdfast.runs.offenders import offenders

        results = self.comparison.results
        against = results.baseline(self.comparison.baseline)
        names, rows = in_cells(results, self.comparison.baseline)
        count = len(results.methods)
        aim = "by" if results.target is None else "to"
        return markup.card(
            f"{count} method{'s' * (count > 1)}",
            f"{aim} {results.goal}",
            markup.table(names, rows),
            *(markup.line(flag.text) for flag in (*flags(results), *offenders(results))),
            *map(markup.line, notes(results, against)),
        )


@dataclasses.dataclass(frozen=True, eq=False)
class Comparison:
    """What `hf.compare` found: `table()`, `plot()`, `to_frame()`, `report()` and `figures()`.

    Args:
        results: methods with their histories, one per seed.
        baseline: the label of the method that others are compared with; the first unless given.
    """

    results: "Results"
    baseline: str | None = None

    def table(self) -> ComparisonTable:
        """Rounds, megabytes and seconds to the target, and where methods ended, over seeds."""
        return ComparisonTable(self)

    @property
    def verdict(self) -> "Verdict | None":
        """Is it worth it: the best federated method beside training alone and on everybody's data, on the
        same test rows; `print(comparison.verdict.text)`. None where no test rows were predicted."""
        from holdfast.runs.verdict import verdict

        return verdict(self.results)

    def __repr__(self) -> str:
        found = self.verdict
        said = [] if found is None else textwrap.wrap(found.text, 120)
        return "\n".join([repr(self.table()), *said])

    def _repr_html_(self) -> str:
        found = self.verdict
        said = [] if found is None else [markup.line(found.text)]
        return "".join([*(line.markup for line in said), self.table()._repr_html_()])

    def to_frame(self, each_round: bool = False) -> "DataFrame":
        """A pandas frame: one row per method, with mean and deviation over seeds.

        Args:
            each_round: one row per method, seed and round instead, with everything measured.
        """
        if each_round:
            return frame(self._rounds(), "compare.to_frame")
        from holdfast.runs.compare import records

        return frame(records(self.results, self.baseline), "compare.to_frame")

    def _rounds(self) -> Iterable[dict[str, Any]]:
        for method in self.results.methods:
            for number, history in enumerate(method.histories):
                for record in history:
                    yield {"method": method.label, "run": number, **record}

    def to_latex(self) -> str:
        """The table for a paper, with the rules of LaTeX's booktabs."""
        from holdfast.runs.export import to_latex

        return to_latex(self.results, self.baseline)

    def plot(self, metric: str | None = None, x: str = "rounds") -> "Figure":
        """A plotly figure: means over seeds, with a band of one standard deviation.

        Args:
            metric: what is drawn; what is compared unless given.
            x: `rounds`, `megabytes` or `seconds`.
        """
        from holdfast.report.plots import plot

        compared = metric in (None, self.results.metric)
        target = self.results.target if compared else None
        return plot(self.results.methods, metric or self.results.metric, x, target)

    def report(
        self,
        path: str | Path = "report.html",
        names: Mapping[str, str] | None = None,
        range: tuple[float, float] | None = None,
    ) -> Path:
        """Write the page that `holdfast report` makes; returns where it is.

        Args:
            path: the page.
            names: what methods (by label) and metrics (by column) are to be called.
            range: lowest and highest value on the axis of the metric; where lines differ unless given.
        """
        from holdfast.report.appearance import Appearance
        from holdfast.report.page import write

        return write(self.results, Path(path), Appearance(self._names(names), range))

    def figures(
        self,
        folder: str | Path = "figures",
        names: Mapping[str, str] | None = None,
        range: tuple[float, float] | None = None,
        width: float | None = None,
        height: float | None = None,
    ) -> list[Path]:
        """Write figures fit for a paper, PDF and PNG; returns where they are.

        Args:
            folder: where they go.
            names: what methods (by label) and metrics (by column) are to be called.
            range: lowest and highest value on the axis of the metric; where lines differ unless given.
            width: in inches; a column of a two-column page, 3.33, unless given.
            height: in inches, without the names below; 0.72 of the width unless given.
        """
        from holdfast.report.appearance import COLUMN, Appearance
        from holdfast.report.figures import write

        wide = COLUMN if width is None else width
        return write(
            self.results, Path(folder), Appearance(self._names(names), range, wide, height)
        )

    def _names(self, given: Mapping[str, str] | None) -> dict[str, str]:
        methods = self.results.methods
        columns = (c for m in methods for h in m.histories for c in h.columns)
        known = list(dict.fromkeys([*(m.label for m in methods), *columns]))
        wrong = next((name for name in given or () if name not in known), None)
        if wrong is not None:
            raise HoldfastError(
                f"names: no method and no metric is called `{wrong}`; {did_you_mean(wrong, known)}",
                about=("names",),
            )
        return dict(given or {})


@explain_arguments
def compare(
    runs: Runs,
    target: float | None = None,
    metric: str | None = None,
    window: int | None = None,
    baseline: str | None = None,
    name: str = "runs",
) -> Comparison:
    """Set runs beside each other: what it took each method to reach a target, and where it ended.

    The numbers are those of `holdfast compare`, whether runs come from `simulate` or from folders.

    Args:
        runs: results of `simulate`, run folders, or a list of both. Runs of one name that differ in
            nothing but seed and split of the data are one method. A dictionary gives labels: each names a
            run, or a list of runs with seeds or splits of their own.
        target: the value to reach.
        metric: what is compared; accuracy unless given, or the first that was measured.
        window: evaluations whose mean must be at the target; 1 unless given.
        baseline: the label of the method that others are compared with; the first unless given.
        name: what runs that are in no folder are called on the page.

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> clients = hf.data.partition.dirichlet(train, clients=10, concentration=0.3)
        >>> model, local = hf.models.softmax_regression(classes=10), hf.Local(0.1, batch_size=32)
        >>> both = [
        ...     hf.simulate(algorithm, model, clients, local, rounds=5, evaluate=hf.evaluate.on(test))
        ...     for algorithm in (hf.algorithms.fedavg(), hf.algorithms.scaffold())
        ... ]
        >>> found = hf.compare(both, target=0.5)
        >>> found.to_frame()[["method", "rounds"]]
             method  rounds
        0    fedavg     5.0
        1  scaffold     5.0
    """
    made, folders = _in_folders(runs, "compare", name)
    from holdfast.runs import results

    found = results.load(folders, target, metric, window)
    if baseline is not None:
        found.baseline(baseline)
    comparison = Comparison(found, baseline)
    if made is not None:
        # What was only in memory is there for as long as somebody looks at it.
        finalize(comparison, shutil.rmtree, made, ignore_errors=True)
    return comparison


@explain_arguments
def report(
    runs: Runs,
    path: str | Path = "report.html",
    target: float | None = None,
    metric: str | None = None,
    window: int | None = None,
    name: str = "runs",
    names: Mapping[str, str] | None = None,
    range: tuple[float, float] | None = None,
) -> Path:
    """Write one self-contained HTML page of runs, as `holdfast report` does; returns where it is.

    Args:
        runs: as `hf.compare` takes them.
        path: the page.
        target: the value to reach.
        metric: what is compared; accuracy unless given, or the first that was measured.
        window: evaluations whose mean must be at the target; 1 unless given.
        name: the title of runs that are in no folder.
        names: what methods (by label) and metrics (by column) are to be called.
        range: lowest and highest value on the axis of the metric; where lines differ unless given.
    """
    return compare(runs, target, metric, window, name=name).report(path, names, range)


@explain_arguments
def figures(
    runs: Runs,
    folder: str | Path = "figures",
    target: float | None = None,
    metric: str | None = None,
    window: int | None = None,
    names: Mapping[str, str] | None = None,
    range: tuple[float, float] | None = None,
    width: float | None = None,
    height: float | None = None,
) -> list[Path]:
    """Write figures of runs fit for a paper, each as PDF and PNG; returns where they are.

    Args:
        runs: as `hf.compare` takes them.
        folder: where they go.
        target: the value to reach.
        metric: what is drawn; accuracy unless given, or the first that was measured.
        window: evaluations whose mean must be at the target; 1 unless given.
        names: what methods (by label) and metrics (by column) are to be called.
        range: lowest and highest value on the axis of the metric; where lines differ unless given.
        width: in inches; a column of a two-column page, 3.33, unless given.
        height: in inches, without the names below; 0.72 of the width unless given.
    """
    found = compare(runs, target, metric, window)
    return found.figures(folder, names, range, width, height)


def _in_folders(runs: Runs, of: str, name: str) -> tuple[Path | None, list[str | Path]]:
    """Run folders as they are, and results of `simulate` in one that is made for them, within the first."""
    from holdfast.runs import in_memory

    given: Any = [runs] if isinstance(runs, Run | str | Path) else runs
    _check_kinds(given, of)
    folders = [] if isinstance(given, Mapping) else [r for r in given if not isinstance(r, Run)]
    results = given if isinstance(given, Mapping) else [r for r in given if isinstance(r, Run)]
    if not results:
        return None, folders
    methods = in_memory.by_label(results, of)
    made = Path(tempfile.mkdtemp(prefix="holdfast-"))
    # The page takes its title from the folder.
    title = re.sub(r"[/\\\0]", "-", str(name)).strip(". ")[:100] or "runs"
    written = in_memory.write(methods, made / title)
    return made, [written.path, *folders]


def _check_kinds(given: Any, of: str) -> None:
    several = isinstance(given, Iterable) and not isinstance(given, str)
    values = list(given.values() if isinstance(given, Mapping) else given) if several else [given]
    if isinstance(given, Mapping):
        lists = [v if isinstance(v, list | tuple) else [v] for v in values]
        values, kinds = [run for runs in lists for run in runs], (Run,)
    else:
        kinds = (Run, str, Path)  # type: ignore[assignment]
    if several and not values:
        raise HoldfastError(f"{of}: no runs are given; give at least one.", about=("runs",))
    wrong = next((value for value in values if not isinstance(value, kinds)), None)
    if wrong is not None or not several:
        shown = given if not several else wrong
        raise HoldfastError(
            f"{of}: {brief(shown)} is a {type(shown).__name__}; give results of hf.simulate or run folders, "
            f'such as [run, other] or {{"label": [run, run]}}.',
            about=("runs",),
        )
