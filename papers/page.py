"""The dossier, `docs/papers.md`, and what the papers' READMEs quote, written from the results there are."""

import collections
import dataclasses
import importlib
import re
from pathlib import Path

from holdfast.record.files import write_whole
from papers import studies
from papers.running import Results
from papers.study import ROOT, Asked, Place, Row, Study, Verdict

DOSSIER = ROOT / "docs" / "papers.md"
# In a README, around what is written from a study's results.
BLOCK = re.compile(r"<!-- study (\S+) -->\n.*?<!-- end -->", re.DOTALL)
PAPERS = {
    "feddyn": (
        "FedDyn",
        "Acar et al., *Federated learning based on dynamic regularization*, ICLR 2021",
    ),
    "fsl": (
        "FSL",
        "Mai, La and Zhang, *A study of enhancing federated learning on non-IID data with server "
        "learning*, 2022",
    ),
    "fedpvr": (
        "FedPVR",
        "Li et al., *On the effectiveness of partial variance reduction in federated learning with "
        "heterogeneous data*, CVPR 2023",
    ),
    "flix": (
        "FLIX",
        "Gasanov et al., *FLIX: a simple and communication-efficient alternative to local methods in "
        "federated learning*, 2022",
    ),
    "mixed": (
        "MixedFL",
        "Augenstein et al., *Mixed federated learning: joint decentralized and centralized learning*, 2022",
    ),
}
INTRODUCTION = """\
# The papers, reproduced

Every table and figure of the five papers that holdfast implements, a row each: what the paper prints, what
is measured here, and whether they agree. `holdfast papers page` writes this page from the results in the
repository, no number by hand. A row that was not run says so, with the command that runs it and about how
many hours of one quiet core that takes.

*Agrees* means numbers near the paper's. *Order agrees* means that the methods stand in the paper's order,
with other numbers. A row that *disagrees* says what was found out about why. Deviations are over seeds and
draws of the split, which vary together. What was searched for each method, and each study's own table and
figure, are on the papers' pages. What was run of a paper comes first."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """A row of the dossier, and what runs it."""

    row: Row
    command: str
    hours: float

    @property
    def order(self) -> tuple[int, int, str]:
        """Tables before figures before the rest, each by number."""
        kind = next((k for k, word in enumerate(("table", "figure")) if word in self.row.place), 2)
        number = re.search(r"\d+", self.row.place)
        return kind, int(number[0]) if number else 0, self.row.place


def entries(paper: str) -> list[Entry]:
    """All rows of a paper, in the order of its tables and figures."""
    found = []
    for name in studies.NAMES:
        if name.startswith(f"{paper}/"):
            one = studies.study(name)
            rows = one.rows(Results(one.results).found)
            found += [Entry(row, f"holdfast papers run {name}", one.hours()) for row in rows]
    found += [Entry(place.row, place.command, place.hours) for place in places(paper)]
    return sorted(found, key=lambda entry: entry.order)


def places(paper: str) -> tuple[Place, ...]:
    """What of a paper has no study."""
    if not (ROOT / "papers" / paper / "places.py").exists():
        return ()
    return importlib.import_module(f"papers.{paper}.places").PLACES


def dossier() -> str:
    """The page, in Markdown."""
    of = {paper: entries(paper) for paper in PAPERS}
    lines = [INTRODUCTION, "", "| paper | " + " | ".join(Verdict) + " |", "|---" * 5 + "|"]
    for paper, (title, _) in PAPERS.items():
        count = collections.Counter(entry.row.verdict for entry in of[paper])
        cells = " | ".join(str(count[verdict]) for verdict in Verdict)
        lines.append(f"| [{title}](#{title.lower()}) | {cells} |")
    for paper, (title, reference) in PAPERS.items():
        lines += [
            "",
            f"## {title}",
            "",
            f"{reference}. [The study's page](../papers/{paper}/README.md).",
        ]
        there = [entry for entry in of[paper] if entry.row.verdict is not Verdict.NOT_RUN]
        left = [entry for entry in of[paper] if entry.row.verdict is Verdict.NOT_RUN]
        if there:
            lines += _table(there)
        if left:
            lines += ["", f"### {title}: not run", *_table(left)]
    return "\n".join(lines) + "\n"


def _table(entries: list[Entry]) -> list[str]:
    """Rows in a class by which a narrow screen shows each as a card (docs/stylesheets/extra.css)."""
    head = ["", '<div class="dossier" markdown>', "", "| where | the paper | here | verdict |"]
    return [*head, "|---|---|---|---|", *map(_line, entries), "", "</div>"]


def _line(entry: Entry) -> str:
    row = entry.row
    here = [row.ours, *(part for part in (row.scale, row.data) if part)]
    verdict = [f"**{row.verdict}**", row.why]
    if row.verdict is Verdict.NOT_RUN:
        here = [f"`{entry.command}`", f"about {_hours(entry.hours)}"]
    cells = [[f"**{row.place}**", row.what], [row.paper], here, verdict]
    return "| " + " | ".join(_cell(parts) for parts in cells) + " |"


def _cell(parts: list[str]) -> str:
    text = "<br>".join(part for part in parts if part)
    return re.sub(r"\s*\n\s*", " ", text).replace("|", "\\|")


def _hours(hours: float) -> str:
    return f"{hours:.1f} hours" if hours < 10 else f"{hours:.0f} hours"


def quoted(study: Study) -> str:
    """What a README has of a study: its table, its figure, and with what it was run."""
    results = Results(study.results)
    kept = results.read()
    cells = study.cells(Asked())
    lines = [study.table(results.found).strip()] if kept else []
    picture = study.results.with_suffix(".png")
    if kept and picture.exists():
        lines += ["", f"![{study.title}](results/{picture.name})"]
    there = len(cells) - len(results.missing(cells))
    said = f"`holdfast papers run {study.name}`: {there} of {len(cells)} cells, in all about "
    said += f"{_hours(study.hours())} of one quiet core. Searched: {study.searched}"
    return "\n".join([*lines, "", f"{said.rstrip('.')}.{_made_with(kept)}"]).strip()


def _made_with(kept: dict[str, dict[str, object]]) -> str:
    """When, with which versions and on what machines the cells were run."""
    if not kept:
        return ""
    days = sorted({str(cell["on"]) for cell in kept.values()})
    made = {f"{name} {v}" for cell in kept.values() for name, v in _versions(cell).items()}
    machines = sorted({str(cell["machine"]) for cell in kept.values()})
    when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}"
    return f" Run {when} with {', '.join(sorted(made))} on {' and '.join(machines)}."


def _versions(cell: dict[str, object]) -> dict[str, str]:
    known = cell["versions"]
    assert isinstance(known, dict)
    return {name: known[name] for name in ("python", "holdfast", "jax", "numpy") if name in known}


def files() -> dict[Path, str]:
    """Every file that is written from results, and what it should have in it."""
    made = {DOSSIER: dossier()}
    for readme in sorted(ROOT.glob("papers/*/README.md")):
        text = readme.read_text("utf-8")
        made[readme] = BLOCK.sub(lambda found: _block(found[1]), text)
    for name in studies.NAMES:
        study = studies.study(name)
        found = Results(study.results).found
        if found:
            made[study.results.with_suffix(".md")] = study.table(found).rstrip() + "\n"
    return made


def _block(name: str) -> str:
    return f"<!-- study {name} -->\n{quoted(studies.study(name))}\n<!-- end -->"


def stale() -> list[Path]:
    """Files that are not what the results give."""
    return [
        path
        for path, text in files().items()
        if not path.exists() or path.read_text("utf-8") != text
    ]


def write() -> None:
    """All of them; and figures that are missing."""
    for name in studies.NAMES:
        study = studies.study(name)
        found, picture = Results(study.results).found, study.results.with_suffix(".png")
        if study.figure is not None and found and not picture.exists():
            study.figure(found, picture)
    for path, text in files().items():
        write_whole(path, text)
