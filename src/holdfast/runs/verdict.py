"""Is federating worth it: what sites have alone, together, with pooled data, and with models of their own.

All methods are asked about the same test rows, each client's own by the model it would use there, so
differences are taken row by row. What cannot be told apart is said not to be.
"""

import dataclasses
from collections.abc import Iterator, Sequence

from holdfast.metrics import find
from holdfast.metrics.figures import number
from holdfast.metrics.intervals import LEVEL, MANY, Interval
from holdfast.metrics.spread import Spread, best
from holdfast.runs.differences import Difference, Judged, Score, difference, judged_by, score, value
from holdfast.runs.names import method_name, metric_name
from holdfast.runs.results import MethodResult, Results
from holdfast.runs.sites import names_of_clients

# Below so many test rows a client's own figure says little.
FEW_ROWS = 30
# Of fewer splits the deviation itself is hardly known.
ENOUGH_SPLITS = 5
# So many clients are named; of more they are counted.
_NAMED = 6


@dataclasses.dataclass(frozen=True)
class Site:
    """One client: its test rows, and how much better off it is with the method chosen than alone."""

    client: int
    name: str
    rows: int
    gain: Interval | None  # None where nobody trained alone

    @property
    def harmed(self) -> bool:
        """Whether it is worse off, and the interval leaves out nothing."""
        return self.gain is not None and self.gain.high < 0

    @property
    def helped(self) -> bool:
        """Whether it is better off, and the interval leaves out nothing."""
        return self.gain is not None and self.gain.low > 0


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What to make of a study.

    Args:
        by: the metric, and how clients count in it.
        alone: what sites have without others (`local_only`), if that was run.
        pooled: what one would have with all data in one place (`centralised`), if that was run.
        federated: the best method with one model for all.
        personal: the best method with a model for each.
        chosen: the better of these two: what the verdict is on.
        gain: of the method chosen against alone.
        gap: of pooled data against the method chosen.
        own: of the best personal method against the best federated one.
        allowing: the interval of `gain` that allows for the choice, where it was made on these test rows.
        candidates: how many methods it was chosen from.
        by_validation: whether it was chosen on validation rows, so that its lead here is not flattered.
        sites: every client's own gain.
        untrained: clients that are tested on and train nothing; then nothing is compared with alone.
        sentences: all of it in words, the answer first.
    """

    by: Judged
    alone: Score | None
    pooled: Score | None
    federated: Score | None
    personal: Score | None
    chosen: Score
    gain: Difference | None
    gap: Difference | None
    own: Difference | None
    allowing: Interval | None
    candidates: int
    by_validation: bool
    sites: tuple[Site, ...]
    untrained: tuple[str, ...] = ()
    sentences: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """The answer in one sentence."""
        return self.sentences[0]

    @property
    def text(self) -> str:
        """All sentences."""
        return " ".join(self.sentences)


def verdict(results: Results) -> Verdict | None:
    """What the runs say; None where no method has ended with predictions of test rows (older folders).

    Args:
        results: of one folder, or of several that share their test rows.
    """
    by = judged_by(results)
    if by is None:
        return None
    able = [m for m in results.methods if m.complete and value(m, by) is not None]
    contestants = [m for m in able if not m.is_reference]
    if not contestants:
        return None
    ratio = tested_per_trained(results)
    chosen, by_validation = _chosen(contestants, by, results)
    alone, pooled = (_best_of(able, role, by) for role in ("alone", "pooled"))
    untrained = _untrained(chosen, results)
    # Who has nothing to train on has nothing alone: its model would be the one training begins with.
    alone = None if untrained else alone
    federated, personal = (
        _chosen(own, by, results)[0]
        if (own := [m for m in contestants if m.role == role])
        else None
        for role in ("federated", "personal")
    )
    gain = None if alone is None else difference(chosen, alone, by, ratio)
    allowing = None
    if gain is not None and len(contestants) > 1 and not by_validation:
        # Bonferroni's: holds for all the methods it might have been at once, so for the one it is.
        allowing = gain.at_level(1 - (1 - LEVEL) / len(contestants))
    found = Verdict(
        by=by,
        alone=_score(alone, by),
        pooled=_score(pooled, by),
        federated=_score(federated, by),
        personal=_score(personal, by),
        chosen=_known(chosen, by),
        gain=gain,
        gap=None if pooled is None else difference(pooled, chosen, by, ratio),
        own=None
        if federated is None or personal is None
        else difference(personal, federated, by, ratio),
        allowing=allowing,
        candidates=len(contestants),
        by_validation=by_validation,
        sites=tuple(_sites(chosen, alone, by, results, ratio)),
        untrained=untrained,
    )
    return dataclasses.replace(found, sentences=tuple(_sentences(found)))


def tested_per_trained(results: Results) -> float | None:
    """Test rows per training row, where splits have test rows of their own; None where they share them."""
    about = results.folders[0].description().get("splits", {}) if results.folders else {}
    return about.get("tested_per_trained")


def _known(method: MethodResult, by: Judged) -> Score:
    found = score(method, by)
    assert found is not None
    return found


def _score(method: MethodResult | None, by: Judged) -> Score | None:
    return None if method is None else _known(method, by)


def _best_of(methods: Sequence[MethodResult], role: str, by: Judged) -> MethodResult | None:
    """Of several reference lines of one kind, such as points of a sweep, the best: the hardest to beat."""
    own = [m for m in methods if m.role == role]
    return own[_best(own, by)] if own else None


def _best(methods: Sequence[MethodResult], by: Judged) -> int:
    scores = [Spread((value(m, by),)) for m in methods]
    return best(scores, by.greater_is_better) or 0


def _chosen(
    methods: Sequence[MethodResult], by: Judged, results: Results
) -> tuple[MethodResult, bool]:
    """The best on validation rows where all have measured it there, else on these test rows."""
    metric = results.metric.removeprefix("validation_")
    if any(m.role == "personal" or m.adapt for m in methods):
        # The server's model says nothing of methods whose clients use others.
        metric = f"personal_{metric.removeprefix('personal_')}"
    column = f"validation_{metric}"
    known = all(column in h.columns for m in methods for h in m.histories)
    about = find(column, results.directions)
    if known and about is not None:
        finals = [m.last(column) for m in methods]
        top = best(finals, about.greater_is_better)
        if top is not None:
            return methods[top], True
    return methods[_best(methods, by)], False


def _untrained(chosen: MethodResult, results: Results) -> tuple[str, ...]:
    """Clients with test rows and no training rows, by name."""
    names, found = names_of_clients(results), dict[int, None]()
    for about in chosen.clients:
        pairs = zip(about.get("client", []), about.get("examples", []), strict=False)
        found |= {int(client): None for client, examples in pairs if examples == 0}
    return tuple(names.get(client, f"client {client}") for client in found)


def _sites(
    chosen: MethodResult,
    alone: MethodResult | None,
    by: Judged,
    results: Results,
    ratio: float | None,
) -> Iterator[Site]:
    names = names_of_clients(results)
    some = next(iter(chosen.predictions.values()))
    for client in some.clients:
        rows = int((some.client == client).sum())
        known = names.get(client, "")
        # A number is another client in every draw; a hospital is the same one.
        same = known or len(set(chosen.splits)) < 2
        # A bootstrap for each of many would take longer than the run.
        same = same and (by.of is None or len(some.clients) < MANY)
        found = None
        if alone is not None and same:
            found = difference(chosen, alone, by, ratio, client=client)
        gain = None if found is None else found.gain
        yield Site(client, known or f"client {client}", rows, gain)


def _sentences(found: Verdict) -> Iterator[str]:
    yield _answer(found)
    if found.gain is not None:
        yield from _who(found)
    yield from _choice(found)
    yield from _width(found)
    few = [site for site in found.sites if site.rows < FEW_ROWS]
    if few and len(found.sites) <= 2 * _NAMED:
        yield f"Few test rows: {listed([f'{s.rows} at {s.name}' for s in few])}."
    elif few:
        least = min(s.rows for s in found.sites)
        yield (
            f"{len(few)} of {len(found.sites)} clients have fewer than {FEW_ROWS} test rows (the least "
            f"{least}): their own figures say little."
        )
    if found.by.instead_of:
        yield (
            f"By {metric_name(found.by.metric)}: {found.by.instead_of} cannot be told from predictions alone."
        )


def _answer(found: Verdict) -> str:
    chosen, by = found.chosen, found.by
    kind = "personal" if chosen.role == "personal" else "federated"
    what = f"{kind} ({method_name(chosen.label)}) {figure(chosen.value)} {metric_name(by.metric)}"
    where = f"over {_clients(found)}"
    if found.untrained:
        who = found.untrained
        named = listed(who) if len(who) <= _NAMED else f"{len(who)} clients"
        why = f"{named} trained nothing, so there is no alone to compare with"
        return f"{_capital(what)} {where}; {why}{_pooled(found)}."
    if found.alone is None or found.gain is None:
        add = "add local_only to the file to see what sites have alone"
        return f"{_capital(what)} {where}; {add}{_pooled(found)}."
    gain, alone = found.gain.gain, figure(found.alone.value)
    beside = f"{what}, alone {alone}, {_apart(gain, by)} {where}"
    return f"{_worth(found)}: {beside}{_pooled(found)}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _worth(found: Verdict) -> str:
    """Whether training together is worth it, by the interval that allows for the choice of the method."""
    assert found.gain is not None
    gain = found.gain.gain if found.allowing is None else found.allowing
    if not found.gain.told_apart or gain.includes_zero:
        return "Whether training together is worth it cannot be told from these test rows"
    return f"Training together is {'worth it' if gain.low > 0 else 'not worth it'} here"


def _pooled(found: Verdict) -> str:
    if found.pooled is None or found.gap is None:
        return ""
    value, gap = figure(found.pooled.value), found.gap.gain
    if not found.gap.told_apart:
        return f"; pooled {value} cannot be told apart"
    better = "better" if gap.low > 0 else "worse"
    return f"; pooled {value} is {better}: {_apart(gap, found.by)}"


def _apart(gain: Interval, by: Judged) -> str:
    """A gain as the difference of the two figures, with its sign and interval."""
    raw = gain if by.greater_is_better else -gain
    return f"{signed(raw.estimate)} ({spelt(raw)})"


def _clients(found: Verdict) -> str:
    count = len(found.sites)
    unit = "client" if any(s.name == f"client {s.client}" for s in found.sites) else "site"
    splits = next((d.splits for d in (found.gain, found.gap) if d is not None), 1)
    more = f" and {splits} splits" if splits > 1 else ""
    return f"{count} {unit}{'s' * (count != 1)}{more}"


def _who(found: Verdict) -> Iterator[str]:
    """Whom it helps and whom it harms."""
    known = [site for site in found.sites if site.gain is not None]
    if len(known) < 2:
        return
    harmed, helped = [s for s in known if s.harmed], [s for s in known if s.helped]
    if harmed:
        also = f" and helps {_named(helped, found.by)}" if helped else ""
        yield f"It harms {_named(harmed, found.by)}{also}."
        return
    lower = [s for s in known if s.gain is not None and s.gain.estimate < 0]
    if lower and len(known) > 2 * _NAMED:
        verb = "is" if len(lower) == 1 else "are"
        yield f"{len(lower)} of {len(known)} clients {verb} worse off than alone, within what chance allows."
    elif lower:
        verb = "is" if len(lower) == 1 else "are"
        yield f"{_named(lower, found.by)} {verb} worse off than alone, within what chance allows."


def _named(sites: Sequence[Site], by: Judged) -> str:
    """Clients with their gains, or how many they are."""
    if len(sites) > _NAMED:
        return f"{len(sites)} clients"
    sign = 1 if by.greater_is_better else -1
    gains = [(s, sign * s.gain.estimate) for s in sites if s.gain is not None]
    return listed([f"{s.name} ({signed(gain)}, {s.rows} rows)" for s, gain in gains])


def _choice(found: Verdict) -> Iterator[str]:
    """Whether the method was chosen by what it is judged by."""
    if found.candidates < 2:
        return
    name = method_name(found.chosen.label)
    if found.by_validation:
        yield f"{name} was chosen among {found.candidates} methods on validation rows."
        return
    told = f"{name} is the best of {found.candidates} methods on these same test rows, which flatters it"
    allowing = found.allowing
    if allowing is None or found.gain is None:
        yield f"{told}."
    else:
        raw = allowing if found.by.greater_is_better else -allowing
        cannot = ", which includes 0" if allowing.includes_zero and found.gain.told_apart else ""
        yield f"{told}; an interval that allows for the choice (Bonferroni) is {ends(raw)}{cannot}."


def _width(found: Verdict) -> Iterator[str]:
    """What the interval is over, and what it leaves out."""
    one = found.gain or found.gap
    if one is None:
        return
    if one.splits > 1:
        if one.splits < ENOUGH_SPLITS:
            yield f"{one.splits} splits alone make the interval wide; {ENOUGH_SPLITS} or more narrow it."
        return
    seeds = (
        " Only one seed was run: what other seeds change is not in it." if one.seeds == 1 else ""
    )
    over = f"test rows{' and seeds' if one.seeds > 1 else ''}"
    yield (
        f"The interval is over {over} of one split of the data; other splits may differ by more "
        f"([partition] repeats = {ENOUGH_SPLITS}).{seeds}"
    )


def figure(value: float) -> str:
    """A score in three digits."""
    if number(value) is None:
        return str(value)
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.4g}"


def signed(value: float) -> str:
    """A difference with its sign, in three digits."""
    if abs(value) >= 100:
        return f"{value:+.4g}"
    # A minus before nothing but zeros would be a riddle.
    return f"{value:+.3f}" if value == 0 or abs(value) >= 5e-4 else f"{value:+.1g}"


def ends(found: Interval) -> str:
    """Where an interval begins and ends."""
    return f"{signed(found.low)} to {signed(found.high)}"


def spelt(found: Interval) -> str:
    """An interval in words."""
    return f"{100 * found.level:g} % interval {ends(found)}"


def listed(names: Sequence[str]) -> str:
    """Names as in a sentence."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
