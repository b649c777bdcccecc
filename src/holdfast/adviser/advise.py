"""`hf.advise`: from data, model and a budget to a method."""

import contextlib
import hashlib
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

from holdfast import algorithms, processes
from holdfast.adviser import words
from holdfast.adviser.advice import Advice
from holdfast.adviser.budget import Budget
from holdfast.adviser.candidates import Candidate, Contestant, candidates, common, rates
from holdfast.adviser.course import Say
from holdfast.adviser.facts import Facts, facts
from holdfast.adviser.problem import TO_TARGET, Problem, problem
from holdfast.adviser.race import Race, race
from holdfast.adviser.ranking import ranking, recommended
from holdfast.adviser.work import ALONE
from holdfast.cohorts import Cohort
from holdfast.core.local import Local
from holdfast.data.clients import Clients
from holdfast.engine.server import Server
from holdfast.engine.setup import checked
from holdfast.errors import HoldfastError, explain_arguments, file_errors_said
from holdfast.models.model import Model
from holdfast.record.identity import digest
from holdfast.record.progress import of_stages
from holdfast.trees import Tree

_ROUNDS = 100


@explain_arguments
def advise(
    model: Model,
    clients: Clients,
    local: Local,
    budget: Budget | str | float | None = "2 minutes",
    *,
    goal: Literal["quality", "worst_tenth", "rounds", "megabytes", "seconds"] | None = None,
    target: float | None = None,
    held_out: Clients | float | None = None,
    cohort: Cohort | None = None,
    server: Server | None = None,
    params: Tree = None,
    methods: Sequence[str] | None = None,
    race: bool = True,
    folder: str | Path | None = None,
    jobs: int | None = None,
    progress: bool | None = None,
) -> Advice:
    """Which method does this data need, and is federating worth it?

    Facts about the data choose candidates; these race on examples that are held out of every client's own,
    FedAvg always among them, by successive halving over their step sizes and strengths; training alone and
    in one place are the two ends. Test data is never looked at. Differences that the race cannot tell are
    called ties.

    Args:
        model: the model.
        clients: the population, whose examples have labels.
        local: what a client does in a round; step sizes from a tenth to ten times its own are tried.
        budget: how long finding out may take, such as `"2 minutes"` or seconds, or an `hf.Budget`, which also
            says how many rounds and megabytes a real run may have (100 rounds unless given).
        goal: what is best: `"quality"` after all rounds, that of the `"worst_tenth"` of clients, or the
            fewest `"rounds"`, `"megabytes"` or `"seconds"` to the target; rounds if there is a target.
        target: value of the metric (accuracy, else loss) on held-out examples.
        held_out: what to judge by: a share of every client's examples (0.2 unless given), or examples of
            every client's own that `clients` does not have.
        cohort: who takes part, from `hf.cohorts`; everyone unless given.
        server: the server's own data or loss.
        params: initial parameters; the model's own unless given.
        methods: names of those that may be advised, besides FedAvg; all that fit unless given. Without
            `scaffold`, `feddyn`, `feddc` and `fedpvr` clients need not keep anything.
        race: False gives advice by facts alone, without a run but a few rounds of FedAvg.
        folder: where runs are saved; called again with it, advice that was stopped goes on.
        jobs: how many runs at once; as many as there are cores unless given.
        progress: a progress bar; unless given, only where someone is looking.

    Example:
        >>> import holdfast as hf
        >>> train, _ = hf.data.digits()
        >>> clients = hf.data.partition.by_classes(train, clients=10, classes=2)
        >>> advice = hf.advise(
        ...     hf.models.softmax_regression(classes=10),
        ...     clients,
        ...     hf.Local(learning_rate=0.1, epochs=1, batch_size=20),
        ...     race=False,
        ... )
        >>> advice.facts.classes, advice.facts.labels_each, advice.raced
        (10, 2.0, False)
    """
    given = Budget.of(budget)
    if processes.count() > 1:
        raise HoldfastError(
            f"advise: this is one of {processes.count()} processes of a run; ask in a process of its own."
        )
    posed = problem(
        model,
        clients,
        local,
        held_out=held_out,
        cohort=cohort,
        server=server,
        rounds=given.rounds or _ROUNDS,
        goal=goal,
        target=target,
        megabytes=given.megabytes,
        params=params,
    )
    with _folder(folder, posed) as place, of_stages("advise", progress) as bar:
        return _answer(posed, given, methods, race, place, jobs, bar)


def _answer(
    posed: Problem,
    budget: Budget,
    methods: Sequence[str] | None,
    wanted: bool,
    folder: Path,
    jobs: int | None,
    say: Say,
) -> Advice:
    began = time.perf_counter()
    say("facts", 0, 1)
    known = facts(posed)
    chosen, left_out = candidates(posed, known, methods)
    say("facts", 1, 1)
    if not wanted:
        return by_facts(posed, known, chosen, left_out)
    run = race(posed, known, chosen, folder, budget.seconds, jobs, say, began)
    return concluded(posed, known, chosen, left_out, run)


def concluded(
    posed: Problem, known: Facts, tried: list[Candidate], left_out: list[str], run: Race
) -> Advice:
    """What a race comes to."""
    places = ranking(posed, run)
    best = recommended(posed, places)
    verdict, gain = words.first_sentence(posed, run, best)
    personal = words.about_personal(posed, places)
    advised = best.contestant
    # A target is one of the server's model, which nobody has who trains alone.
    apart = gain is not None and gain.value < 0 and not gain.is_tie
    lonely = apart and posed.goal not in TO_TARGET
    if lonely:
        advised = Contestant(ALONE, (), run.rate)
    lengths: dict[int, set[Contestant]] = {}
    for _, rounds, who in run.stages:
        lengths.setdefault(rounds, set()).update(who)
    stages = ", ".join(f"{len(who)} for {rounds} rounds" for rounds, who in lengths.items())
    most = max(place.seeds for place in places)
    return Advice(
        posed,
        verdict if not personal else f"{verdict} {personal}",
        advised,
        tuple(places),
        known,
        () if lonely else tuple(words.reasons(posed, known, tried, places, best)),
        words.nearest(best) if lonely else words.about_ties(places, best),
        tuple(words.changes(posed, known, run, places, best)),
        (
            f"{len(run.scores)} runs in {run.seconds:.0f} s: methods and values of theirs, {stages}, the "
            f"last with up to {most} seeds; alone and in one place besides.",
            _judged_on(posed, most),
            *(f"No time: {line}." for line in run.short),
            *(f"Not tried: {line}." for line in left_out),
        ),
        gain,
        tuple(tried),
        run,
    )


def _judged_on(posed: Problem, seeds: int) -> str:
    held = int(posed.held_out.sizes.sum())
    draws = min(posed.draws, seeds)
    turns = "" if draws == 1 else f" in each of {draws} draws"
    return f"Judged on {held:,} examples held out of the clients' own{turns}; no test data was looked at."


def by_facts(posed: Problem, known: Facts, tried: list[Candidate], left_out: list[str]) -> Advice:
    """What facts alone speak for."""
    first = tried[0]
    advised = first.contestants(rates(posed, (1.0,)), common(known))[0]
    return Advice(
        posed,
        "Whether federating is worth it cannot be told without a race.",
        advised,
        (),
        known,
        tuple(f"{words.called(c.name)}: {c.reason}." for c in tried[:4]),
        "Which of them is better here cannot be told without a race.",
        (),
        ("No method was run to its end.", *(f"Not tried: {line}." for line in left_out)),
        None,
        tuple(tried),
        None,
    )


@contextlib.contextmanager
def _folder(given: str | Path | None, posed: Problem) -> Iterator[Path]:
    """Where runs are saved; a folder of another problem is refused."""
    if given is None:
        with tempfile.TemporaryDirectory(prefix="holdfast-advise-") as made:
            yield Path(made)
        return
    path = Path(given)
    with file_errors_said():
        path.mkdir(parents=True, exist_ok=True)
        note, own = path / "problem.sha256", _identity(posed)
        if note.exists() and note.read_text().strip() != own:
            raise HoldfastError(
                f"advise: {path} has a race on other data, model, local steps or goal; give another folder.",
                about=("folder",),
            )
        note.write_text(own + "\n")
    yield path


def _identity(posed: Problem) -> str:
    """What the scores of a race are a function of, but for the methods."""
    own = checked(posed.experiment(algorithms.fedavg(), posed.local, 0)).identity()
    asked = {
        "held out": digest(posed.held_out.contents),
        "goal": posed.goal,
        "rounds": posed.rounds,
    }
    asked["draws"] = posed.draws
    bounds = {"target": posed.target, "megabytes": posed.megabytes}
    text = json.dumps({**own, **asked, **bounds}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
