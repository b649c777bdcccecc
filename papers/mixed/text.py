"""Two sources of text: posts by author on clients, Wikipedia at the server (4.2, B.2.2, B.4)."""

import collections
import functools
import gzip
import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import holdfast as hf
from papers import figures
from papers.mixed import runs
from papers.mixed.runs import (
    CENTRAL,
    FEDERATED,
    METHODS,
    MIXED,
    NAMES,
    ONE_WAY,
    ORACLE,
    PARALLEL,
    TWO_WAY,
)
from papers.study import Asked, Cell, Found, Row, Study, Values, Verdict

POSTS, WIKIPEDIA = "text/stackexchange-posts.jsonl.gz", "text/enwik8-first-5MB.gz"
WINDOW, CHARACTERS = 40, 90  # the most frequent bytes; all others are 0, unknown
ENOUGH = 4000  # bytes that an author must have written
AUTHORS, UNSEEN_AUTHORS, WINDOWS = 300, 100, 90  # training and test clients; windows of a client
TEST_WINDOWS = 800
EMBEDDING, WIDTH = 16, 64
ROUNDS, COHORT, BATCH, STEPS = 100, 8, 8, 8
CENTRAL_BATCH = COHORT * BATCH
DRAWS = (0, 1, 2)
WEIGHTS = (0.75, 0.25)  # table 1, and what the test is made of
# Searched for each mixed method, which the paper did: it took 2, and 1 for 2-way transfer. The others have
# what parallel training has.
RATES = (1.0, 2.0, 4.0, 8.0)
SEARCH_ROUNDS = 50
RATE = {PARALLEL: 4.0, ONE_WAY: 4.0, TWO_WAY: 4.0}
STEPS_TRIED = (4, 8, 16)
SWITCH = ROUNDS // 2
FIRST_CENTRAL, FIRST_FEDERATED = "first_central", "first_federated"
TRANSFERS = {
    FIRST_CENTRAL: "central, then federated",
    FIRST_FEDERATED: "federated, then central",
}
SOURCES = ("posts", "wikipedia")
PAPER = (0.03, 1.34)  # table 4
NEAR = 0.01  # of accuracy
DATA = "Stack Exchange posts by author and the first 5 MB of enwik8, in place of Stack Overflow and Wikipedia"
SCALE = (
    f"{ROUNDS} rounds of {COHORT} clients for 3,000 of 100, a GRU of {WIDTH} for 1,024, "
    f"{STEPS} steps for 16"
)
# The stand-in's two sources: random walks over pairs of letters, each seeded with its own sentences.
SENTENCES = {
    "posts": "how do i fix this error? thanks, it works now. what does your code do when you run it? ",
    "wikipedia": "The Kingdom was founded in 1066 and, by 1204, had become a republic of [[Europe]]. ",
}
Settings = dict[str, Any]


def read(folder: Path) -> tuple[list[bytes], bytes]:
    """What each author with enough text wrote, and Wikipedia."""
    posts: dict[Any, list[str]] = collections.defaultdict(list)
    with gzip.open(folder / POSTS, "rt", encoding="utf-8") as lines:
        for line in lines:
            post = json.loads(line)
            posts[post["site"], post["author"]].append(post["text"])
    authors = ["\n".join(texts).encode() for texts in posts.values()]
    with gzip.open(folder / WIKIPEDIA) as file:
        return [a for a in authors if len(a) >= ENOUGH], file.read()


def generate(authors: int, seed: int = 0) -> tuple[list[bytes], bytes]:
    """Stand-ins for both sources: each letter follows the two before it as in a few sentences."""
    rng = np.random.default_rng(seed)

    def walk(sentences: str, length: int) -> bytes:
        follows = collections.defaultdict(list)
        around = sentences + sentences[:2]
        for k in range(len(sentences)):
            follows[around[k : k + 2]].append(around[k + 2])
        text = sentences[:2]
        while len(text) < length:
            after = follows[text[-2:]]
            text += after[rng.integers(len(after))]
        return text.encode()

    size = WINDOWS * (WINDOW + 1)
    posts = [walk(SENTENCES["posts"], size) for _ in range(authors)]
    return posts, walk(SENTENCES["wikipedia"], size * authors)


@functools.lru_cache(maxsize=1)
def sources(asked: Asked) -> tuple[list[bytes], bytes]:
    """What authors wrote, and Wikipedia; quick: generated."""
    if asked.quick:
        return generate(30)
    for file in (POSTS, WIKIPEDIA):
        if not (asked.data / file).exists():
            raise hf.HoldfastError(
                f"mixed/text: {asked.data / file} is not there; it takes posts as JSON lines with site, "
                f"author and text, and the beginning of enwik8 (mattmahoney.net/dc/enwik8.zip), "
                f"both compressed by gzip."
            )
    return read(asked.data)


def world(settings: Settings, asked: Asked) -> dict[str, Any]:
    """Clients, the server's text, and windows of both to validate and test on; their authors do not train."""
    texts, wikipedia = sources(asked)
    code = alphabet(b"".join(texts) + wikipedia)
    rng = np.random.default_rng(settings["draw"])
    order = rng.permutation(len(texts))
    authors = min(AUTHORS, len(texts) // 3)
    unseen = min(UNSEEN_AUTHORS, len(texts) // 3)
    clients = [cut(texts[i], code)[:WINDOWS] for i in order[:authors]]
    articles = rng.permutation(cut(wikipedia, code))
    few = min(TEST_WINDOWS, len(articles) // 4)

    def held_out(number: int) -> dict[str, hf.Examples]:
        begin = authors + number * unseen
        posts = [cut(texts[i], code)[: few // unseen] for i in order[begin : begin + unseen]]
        return {
            "posts": as_examples(np.concatenate(posts)),
            "wikipedia": as_examples(articles[number * few : (number + 1) * few]),
        }

    own = as_examples(articles[2 * few :][: sum(map(len, clients))])
    population = hf.Clients.from_datasets([as_examples(w) for w in clients])
    # Three of four windows are posts, as in the test.
    kept = len(own.y) // 3
    both = zip(population.examples, own, strict=True)
    return {
        "clients": population,
        "own": own,
        "everything": hf.Clients.from_datasets(
            [hf.Examples(*(np.concatenate([posts, of[:kept]]) for posts, of in both))]
        ),
        "test": held_out(0),
        "validation": held_out(1),
    }


def alphabet(text: bytes) -> np.ndarray:
    """The number of every byte: 1, 2, ... for the most frequent, 0 for all others."""
    often = np.argsort(-np.bincount(np.frombuffer(text, np.uint8), minlength=256), kind="stable")
    code = np.zeros(256, np.int32)
    code[often[:CHARACTERS]] = np.arange(1, CHARACTERS + 1)
    return code


def cut(text: bytes, code: np.ndarray) -> np.ndarray:
    """Windows of characters, one more than the model reads: the last is only predicted."""
    numbers = code[np.frombuffer(text, np.uint8)]
    count = len(numbers) // (WINDOW + 1)
    return numbers[: count * (WINDOW + 1)].reshape(count, WINDOW + 1)


def as_examples(windows: np.ndarray) -> hf.Examples:
    """Characters and those that follow."""
    return hf.Examples(np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:]))


def arguments(settings: Settings, around: Mapping[str, Any]) -> dict[str, Any]:
    """What distinguishes one method's run from another's."""
    method, rate, steps = settings["method"], settings["rate"], settings["steps"]
    central = hf.Local(rate, steps=steps, batch_size=CENTRAL_BATCH)
    pooled: dict[str, Any] = {"algorithm": hf.algorithms.centralised(), "local": central}
    if method == CENTRAL:
        return pooled | {"clients": hf.Clients.from_datasets([around["own"]])}
    if method == ORACLE:
        both = hf.Local(rate, steps=steps, batch_size=2 * CENTRAL_BATCH)
        return pooled | {"clients": around["everything"], "local": both}
    federated: dict[str, Any] = {
        "clients": around["clients"],
        "local": hf.Local(rate, steps=steps, batch_size=BATCH),
        "cohort": hf.cohorts.fixed(min(COHORT, len(around["clients"]))),
    }
    if method == FEDERATED:
        return federated | {"algorithm": hf.algorithms.fedavg(weighting="processed")}
    # 1-way transfer sees half as many windows as the others do in all steps: the paper's proportion.
    at_once = min(CENTRAL_BATCH * max(steps // 2, 1), len(around["own"].y))
    server = hf.Server(around["own"], central, gradient_batch_size=at_once)
    return federated | {"algorithm": runs.mixed(method, WEIGHTS), "server": server}


def trained(
    settings: Settings, around: Mapping[str, Any], folder: Path, rounds: int, **more: Any
) -> hf.Run:
    """A run measured on both sources."""
    return runs.trained(
        folder,
        rounds,
        model=hf.models.gru(CHARACTERS + 1, EMBEDDING, WIDTH),
        seed=settings["draw"],
        **{
            "evaluate": [
                hf.evaluate.on(examples, settings["every"], name=source)
                for source, examples in around[settings["measured"]].items()
            ],
            **arguments(settings, around),
            **more,
        },
    )


def measured(done: hf.Run) -> Values:
    """Accuracy and loss by round, of each source and of both as the test has them."""
    found: Values = {"rounds": runs.rounds_of(done, f"{SOURCES[0]}_accuracy")}
    for field in ("accuracy", "loss"):
        for source in SOURCES:
            found[f"{source}_{field}"] = runs.curve(done, f"{source}_{field}")
        pairs = zip(*(found[f"{source}_{field}"] for source in SOURCES), strict=True)
        found[field] = [
            None if None in pair else round(float(np.dot(WEIGHTS, pair)), 4) for pair in pairs
        ]
    return found


def run(settings: Settings, *, asked: Asked, folder: Path) -> Values:
    """Accuracy and loss by round."""
    return measured(trained(settings, world(settings, asked), folder, settings["rounds"]))


def transferred(settings: Settings, *, asked: Asked, folder: Path) -> Values:
    """Training on one source, and from the middle on the other alone (B.4.5)."""
    around = world(settings, asked)
    order = (CENTRAL, FEDERATED) if settings["method"] == FIRST_CENTRAL else (FEDERATED, CENTRAL)
    half = settings["rounds"] // 2
    first = trained(settings | {"method": order[0]}, around, folder / "first", half)
    later = settings | {"method": order[1]}
    second = trained(later, around, folder / "second", half, params=first.params)
    before, after = measured(first), measured(second)
    after["rounds"] = [half + number for number in after["rounds"]]
    return {name: before[name] + after[name] for name in before}


def dissimilar(settings: Settings, *, asked: Asked, folder: Path) -> Values:
    """Eq. 7 by round, with one step a round."""
    around = world(settings, asked)
    sampled = runs.Sampled(around["clients"], COHORT, BATCH, around["own"], CENTRAL_BATCH, WEIGHTS)
    done = trained(settings, around, folder, settings["rounds"], evaluate=sampled)
    return {name: runs.curve(done, name, 6) for name in ("G2", "B2")}


def settings_of(method: str, draw: int, **changes: Any) -> Settings:
    """Those of the comparison, but for what is changed."""
    made: Settings = {
        "method": method,
        "draw": draw,
        "rate": RATE.get(method, RATE[PARALLEL]),
        "steps": STEPS,
        "rounds": ROUNDS,
        "every": 5,
        "measured": "test",
    }
    return made | changes


def cells(asked: Asked) -> list[Cell]:
    """The search, then a draw of everything before the next."""
    if asked.quick:
        return [Cell("parallel-0", run, (settings_of(PARALLEL, 0, rounds=1, every=1),))]
    changes = {"rounds": SEARCH_ROUNDS, "measured": "validation", "every": 10}
    made = [
        Cell(f"search-{m}-{r:g}", run, (settings_of(m, 0, rate=r, **changes),), 0.3)
        for m, r in itertools.product(MIXED, RATES)
    ]
    for draw in DRAWS:
        made += [Cell(f"{m}-{draw}", run, (settings_of(m, draw),), 0.6) for m in METHODS]
        made += [Cell(f"{m}-{draw}", transferred, (settings_of(m, draw),), 0.6) for m in TRANSFERS]
        apart = settings_of(PARALLEL, draw, steps=1)
        made.append(Cell(f"dissimilarity-{draw}", dissimilar, (apart,), 0.4))
        made += [_steps(m, s, draw) for m in MIXED for s in STEPS_TRIED if s != STEPS]
        # Figure 11: three times 2-way transfer's step size.
        made += [
            Cell(f"{m}_faster-{draw}", run, (settings_of(m, draw, rate=3 * RATE[TWO_WAY]),), 0.6)
            for m in (PARALLEL, ONE_WAY)
        ]
    return made


def _steps(method: str, steps: int, draw: int) -> Cell:
    made = settings_of(method, draw, steps=steps, rate=RATE[method] * STEPS / steps)
    return Cell(f"{method}_steps{steps}-{draw}", run, (made,), minutes=0.6)


def chosen(found: Found, method: str) -> float | None:
    """The step size with the best accuracy on validation data, of those that were run."""
    there = [r for r in RATES if f"search-{method}-{r:g}" in found]
    return max(
        there, key=lambda r: found[f"search-{method}-{r:g}"]["accuracy"][-1] or 0, default=None
    )


def _row(what: tuple[str, str, str], told: str, verdict: Verdict, why: str = "") -> Row:
    return Row(*what, told, SCALE, DATA, verdict, why) if told else Row(*what)


def rows(found: Found) -> list[Row]:
    """Figures 1, 2, 4, 5, 10, 11 and 13, and table 4."""
    return [
        _mixture(found),
        _alike(found),
        *_dissimilarity(found),
        *(_source(found, source) for source in SOURCES),
        _trade(found),
        _faster(found),
        _forgets(found),
    ]


def _mixture(found: Found) -> Row:
    """Order agrees where the three are within `NEAR` of the oracle and federated training alone is not."""
    last = runs.ends(found, METHODS, "accuracy")
    what = (
        "figure 1",
        "language model, accuracy on both sources at the end",
        "the three and the oracle 0.66, federated only 0.60",
    )
    if not all(last[m] for m in (FEDERATED, *MIXED, ORACLE)):
        return Row(*what)
    oracle = runs.mean(last[ORACLE])
    behind = [NAMES[m] for m in MIXED if runs.mean(last[m]) < oracle - NEAR]
    below = runs.mean(last[FEDERATED]) < oracle - NEAR
    verdict = Verdict.ORDER if below and not behind else Verdict.DISAGREES
    why = f"More than {NEAR} behind the oracle: {', '.join(behind)}. " if behind else ""
    if not below:
        gap = oracle - runs.mean(last[FEDERATED])
        why += f"Federated training alone is {gap:.3f} behind; what it loses is on Wikipedia (figure 5)."
    return _row(what, runs.of_methods(last), verdict, why.strip())


def _alike(found: Found) -> Row:
    """Order agrees where the mean losses of the three are within 3 % of each other."""
    area = runs.areas(found, MIXED)
    what = ("figure 2", "language model, loss by round", "all three converge the same")
    if not all(area.values()):
        return Row(*what)
    means = {m: runs.mean(v) for m, v in area.items()}
    same = max(means.values()) < 1.03 * min(means.values())
    slowest = max(means, key=lambda m: means[m])
    why = "" if same else f"{NAMES[slowest]} is behind."
    told = f"mean loss of all rounds: {runs.of_methods(area)}"
    return _row(what, told, Verdict.ORDER if same else Verdict.DISAGREES, why)


def _dissimilarity(found: Found) -> list[Row]:
    values = runs.values_of(found, "dissimilarity")
    table = runs.dissimilarity_row(values, "language model", PAPER, scale=SCALE, data=DATA)
    return [table, runs.dissimilarity_curves(values, "language model", table)]


def _source(found: Found, source: str) -> Row:
    """Order agrees where all three beat federated training alone on Wikipedia; on posts, are within 0.03."""
    last = runs.ends(found, METHODS, f"{source}_accuracy")
    own = source == "posts"
    what = (
        "figure 5",
        f"language model, accuracy on {source} alone, which the {'clients have' if own else 'server has'}",
        "federated only as good as the three" if own else "the three ahead of federated only",
    )
    if not all(last[m] for m in (FEDERATED, *MIXED)):
        return Row(*what)
    alone = runs.mean(last[FEDERATED])
    right = all(
        abs(runs.mean(last[m]) - alone) < 0.03 if own else runs.mean(last[m]) > alone + NEAR
        for m in MIXED
    )
    return _row(what, runs.of_methods(last), Verdict.ORDER if right else Verdict.DISAGREES)


def _trade(found: Found) -> Row:
    """Order agrees where more and smaller steps never have a higher mean loss by over a hundredth of it."""
    what = (
        "figure 10",
        "language model, more steps of a smaller size: mean loss of all rounds",
        "more and smaller steps never hurt, and often help",
    )
    by = {
        m: {s: runs.areas(found, [n])[n] for s in STEPS_TRIED for n in [_steps_name(m, s)]}
        for m in MIXED
    }
    if not all(value for one in by.values() for value in one.values()):
        return Row(*what)
    hurt = [
        f"{NAMES[m]} from K = {a} to {b}"
        for m, one in by.items()
        for a, b in itertools.pairwise(STEPS_TRIED)
        if not runs.mean(one[b]) <= 1.01 * runs.mean(one[a])
    ]
    told = "; ".join(
        f"{NAMES[m]} {' / '.join(f'K = {s}: {runs.told(v)}' for s, v in one.items())}"
        for m, one in by.items()
    )
    why = f"It hurts {', '.join(hurt)}." if hurt else ""
    return _row(what, told, Verdict.DISAGREES if hurt else Verdict.ORDER, why)


def _steps_name(method: str, steps: int) -> str:
    return method if steps == STEPS else f"{method}_steps{steps}"


def _faster(found: Found) -> Row:
    """Order agrees where the three end within 0.02 of each other."""
    names = {f"{PARALLEL}_faster": PARALLEL, f"{ONE_WAY}_faster": ONE_WAY, TWO_WAY: TWO_WAY}
    last = runs.ends(found, list(names), "accuracy")
    what = (
        "figure 11",
        "language model, parallel training and 1-way transfer with three times 2-way's step size: accuracy",
        "a little faster early, the same at the end",
    )
    if not all(last.values()):
        return Row(*what)
    means = [runs.mean(v) for v in last.values()]
    same = bool(max(means) - min(means) < 0.02)
    told = runs.of_methods({names[n]: v for n, v in last.items()})
    return _row(what, told, Verdict.ORDER if same else Verdict.DISAGREES)


def _forgets(found: Found) -> Row:
    """Order agrees where both orders lose accuracy on their first source after the switch, and parallel
    training is better on both sources together than either."""
    what = (
        "figure 13",
        "transfer learning, switched in the middle: accuracy on both sources at the end",
        "the source trained on first is forgotten; parallel training is ahead",
    )
    last = runs.ends(found, [*TRANSFERS, PARALLEL], "accuracy")
    if not all(last.values()):
        return Row(*what)
    lost = {}
    for method, source in ((FIRST_CENTRAL, "wikipedia"), (FIRST_FEDERATED, "posts")):
        curves = np.array(runs.draws(found, method, f"{source}_accuracy"), float).mean(0)
        half = len(curves) // 2
        lost[source] = float(curves[half - 1] - curves[-1])
    ahead = all(runs.mean(last[PARALLEL]) > runs.mean(last[m]) for m in TRANSFERS)
    forgets = all(value > NEAR for value in lost.values())
    told = runs.of_methods({(TRANSFERS | NAMES)[m]: values for m, values in last.items()})
    why = (
        f"Accuracy lost after the switch: {', '.join(f'{v:.3f} on {s}' for s, v in lost.items())}."
    )
    return _row(what, told, Verdict.ORDER if ahead and forgets else Verdict.DISAGREES, why)


def table(found: Found) -> str:
    """Accuracy on each source, and what the search gave."""
    lines = [
        "| method | step size | posts | wikipedia | both, 3 to 1 | loss of both |",
        "|---" * 6 + "|",
    ]
    for method in (*METHODS, *TRANSFERS):
        if runs.draws(found, method, "accuracy"):
            fields = ("posts_accuracy", "wikipedia_accuracy", "accuracy", "loss")
            told = [runs.told(runs.ends(found, [method], field)[method]) for field in fields]
            rate = f"{RATE.get(method, RATE[PARALLEL]):g}"
            lines.append(f"| {(TRANSFERS | NAMES)[method]} | {rate} | {' | '.join(told)} |")
    there = [m for m in MIXED if chosen(found, m) is not None]
    if there:
        lines += [
            "",
            f"Accuracy on validation data after {SEARCH_ROUNDS} rounds, by step size:",
            "",
        ]
        lines += ["| method | " + " | ".join(f"{r:g}" for r in RATES) + " |", "|---" * 5 + "|"]
        for m in there:
            values = [found.get(f"search-{m}-{r:g}") for r in RATES]
            told = ["not run" if v is None else runs.told([v["accuracy"][-1]]) for v in values]
            lines.append(f"| {NAMES[m]} | {' | '.join(told)} |")
        other = [f"{NAMES[m]} {chosen(found, m):g}" for m in there if chosen(found, m) != RATE[m]]
        if other:
            lines += ["", f"The search prefers other step sizes than were run: {', '.join(other)}."]
    return "\n".join(lines)


def figure(found: Found, path: Path) -> None:
    """Accuracy on both sources, on each, and with transfer learning."""
    with figures.panels(path, 4, most=2) as axes:
        fields = ("accuracy", "posts_accuracy", "wikipedia_accuracy", "accuracy")
        titles = ("figure 1b: both", "figure 5a: posts", "figure 5b: Wikipedia", "figure 13")
        for axis, field, title in zip(axes, fields, titles, strict=True):
            shown = METHODS if title != "figure 13" else (PARALLEL, *TRANSFERS)
            for method in shown:
                names = [n for n in sorted(found) if n.rpartition("-")[0] == method]
                if names:
                    values = np.array([found[n][field] for n in names], float).mean(0)
                    look = {} if method in TRANSFERS else runs.style(method)
                    label = (TRANSFERS | NAMES)[method]
                    axis.plot(found[names[0]]["rounds"], values, label=label, **look)
            axis.set(title=title, xlabel="round", ylabel="accuracy", ylim=(0.2, None))
            if axis.lines and field == "accuracy":
                axis.legend(fontsize="x-small")


STUDY = Study(
    "mixed/text",
    "Posts on clients, Wikipedia at the server: the next character",
    needs=("text",),
    searched="the step size of each mixed method, 1, 2, 4 and 8, by accuracy on validation authors and "
    f"articles after {SEARCH_ROUNDS} rounds of the first draw; the others have parallel training's. "
    "Gradients are not clipped; the paper clips them.",
    cells=cells,
    rows=rows,
    table=table,
    figure=figure,
)
