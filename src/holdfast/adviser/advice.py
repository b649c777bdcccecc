"""What comes of asking: which method, how sure, why, and an experiment that is ready to run."""

import dataclasses
import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holdfast.adviser import words
from holdfast.adviser.candidates import Candidate, Contestant
from holdfast.adviser.facts import Facts
from holdfast.adviser.gaps import Gap
from holdfast.adviser.problem import Problem
from holdfast.adviser.race import Race
from holdfast.adviser.ranking import Place
from holdfast.adviser.work import ALONE
from holdfast.engine.experiment import Experiment


@dataclasses.dataclass(frozen=True, eq=False)
class Advice:
    """Which method the data needs; made by `hf.advise`.

    Args:
        verdict: whether federating is worth it, in a sentence.
        recommended: the method and its hyper-parameters.
        places: all methods that were tried, best first; empty without a race.
        facts: what was measured of the data.
        reasons: why this method.
        ties: which others cannot be told from it.
        changes: what would change the advice.
        tried: what was tried, how long, and what there was no time for.
        gain: of federating, on the metric; None without a race.
    """

    problem: Problem
    verdict: str
    recommended: Contestant
    places: tuple[Place, ...]
    facts: Facts
    reasons: tuple[str, ...]
    ties: str
    changes: tuple[str, ...]
    tried: tuple[str, ...]
    gain: Gap | None
    candidates: tuple[Candidate, ...]
    race: Race | None

    @property
    def raced(self) -> bool:
        """Whether methods were run; if not, it is advice by facts alone."""
        return self.race is not None

    @property
    def rounds(self) -> int:
        """Of a real run of the recommended method: those that were asked for, or that its megabytes allow."""
        ended = {} if self.race is None else self.race.ended
        return ended.get(self.recommended, self.problem.rounds)

    @property
    def experiment(self) -> Experiment:
        """The recommended method, ready for `hf.simulate(advice.experiment, rounds=...)`; it trains on all
        examples but those that were held out."""
        chosen, problem = self.recommended, self.problem
        return problem.experiment(chosen.algorithm(), chosen.local(problem.local), 0)

    @property
    def entries(self) -> list[dict[str, Any]]:
        """For an experiment file: the recommended method, FedAvg, and the two ends of the scale."""
        best = [self.recommended]
        if self.recommended.name != "fedavg" or self.recommended.adapt:
            best += [p.contestant for p in self.places if p.contestant.method == "fedavg"][:1]
        rate = self.recommended.learning_rate
        ends = [Contestant(name, (), rate) for name in (ALONE, "centralised")]
        return [c.entry() for c in dict.fromkeys([*best, *ends])]

    def summary(self) -> list[str]:
        """The answer, a sentence each."""
        raced = "" if self.raced else "By facts alone, nothing was trained: "
        advised = f"{raced}advised: {self.recommended.label}."
        return [
            self.verdict,
            advised[:1].upper() + advised[1:],
            *self.reasons,
            self.ties,
            *self.changes,
        ]

    def table(self) -> list[Mapping[str, str]]:
        """The ranking, a row for every method."""
        return [_row(self.problem, place, self.recommended) for place in self.places]

    def save(self, path: str | Path) -> Path:
        """Write the page; returns where it is."""
        from holdfast.adviser.page import write

        return write(self, Path(path))

    def __repr__(self) -> str:
        return f"Advice({self.recommended.label}: {self.verdict})"

    def _repr_html_(self) -> str:
        lines = "".join(f"<p>{html.escape(line)}</p>" for line in self.summary() if line)
        return lines + _as_html(self.table())


def _row(problem: Problem, place: Place, chosen: Contestant) -> Mapping[str, str]:
    gap = place.behind
    if not place.final:
        over = place.rounds >= problem.rounds
        note = "left before the final" if over else f"left the race after {place.rounds} rounds"
    elif place.contestant == chosen:
        note = "advised"
    elif gap is None and chosen.name == ALONE:
        note = "the best of those that federate"
    elif gap is None:
        note = "ahead, but cannot be told from the advised"
    elif gap.is_tie:
        note = "cannot be told from the best"
    else:
        note = "behind"
    return {
        "method": words.called(place),
        "hyper-parameters": place.contestant.label.removeprefix(place.contestant.method).strip(),
        problem.goal.replace("_", " "): words.of_goal(problem, place) if place.final else "",
        problem.metric: "" if place.failed else words.shown(problem, place.quality),
        "worst tenth": "" if place.failed else words.shown(problem, place.worst_tenth),
        "MB a round": "" if place.failed else f"{place.megabytes:.3g}",
        "": place.failed.split(";")[0] if place.failed else note,
    }


def _as_html(rows: Sequence[Mapping[str, str]]) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{html.escape(name)}</th>" for name in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row.values()) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
