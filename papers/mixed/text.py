"""Two sources of text: posts by author on clients, Wikipedia at the server.

The paper's language model (section 4.2) in small: a gated recurrent unit predicts the next character
and should be good at both sources. Without the files, two generated sources stand in.
"""

import collections
import dataclasses
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

import holdfast as hf
from papers.mixed import common, report
from papers.mixed.common import CENTRAL, FEDERATED, MIXED, ORACLE, Watch, silent

POSTS, WIKIPEDIA = "text/stackexchange-posts.jsonl.gz", "text/enwik8-first-5MB.gz"
WINDOW, CHARACTERS = 40, 90  # the most frequent bytes; all others are 0, unknown
ENOUGH = 4000  # bytes that an author must have written
AUTHORS, UNSEEN_AUTHORS, WINDOWS = 300, 100, 90  # training and test clients; windows of a client
TEST_WINDOWS = 800
EMBEDDING, WIDTH = 16, 64
COHORT, BATCH_SIZE, STEPS = 8, 8, 8
CENTRAL_BATCH_SIZE = COHORT * BATCH_SIZE
LEARNING_RATE = 2.0
ROUNDS = 100
METHODS = (FEDERATED, CENTRAL, *MIXED, ORACLE)
PAPER = (0.03, 1.34)  # largest G~^2 and B~^2 of its language model, table 4
SOURCES = ("posts", "wikipedia")

# The stand-in's two sources: random walks over pairs of letters, each seeded with its own sentences.
SENTENCES = {
    "posts": "how do i fix this error? thanks, it works now. what does your code do when you run it? ",
    "wikipedia": "The Kingdom was founded in 1066 and, by 1204, had become a republic of [[Europe]]. ",
}


@dataclasses.dataclass(frozen=True)
class World:
    """Both sources, cut into windows of characters."""

    clients: hf.Clients
    own: hf.Examples  # the server's, as many windows as the clients have together
    test: dict[str, hf.Examples]
    note: str

    @property
    def everything(self) -> hf.Clients:
        """Both sources in one place."""
        both = zip(self.clients.examples, self.own, strict=True)
        return hf.Clients.from_datasets([hf.Examples(*(np.concatenate(p) for p in both))])


@dataclasses.dataclass(frozen=True)
class Result:
    """Accuracy on each source, as (points,) per method, and where it was measured."""

    rounds: np.ndarray
    accuracy: dict[str, dict[str, np.ndarray]]  # by source, by method
    dissimilarity: dict[str, float]
    note: str


class Named:
    """An evaluator whose numbers carry the name of the data set, so that there can be two."""

    keeps_last_models = False

    def __init__(self, name: str, examples: hf.Examples, every: int) -> None:
        self.name, self.inner, self.every = name, hf.evaluate.on(examples), every

    def check(self, model: hf.Model, params: Any, clients: int) -> None:
        """As the one inside."""
        self.inner.check(model, params, clients)

    def __call__(self, view: Any) -> dict[str, float]:
        """Accuracy of the next character."""
        return {self.name: self.inner(view)["accuracy"]}


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


def world(folder: Path | None, authors: int = AUTHORS, seed: int = 0) -> World:
    """Clients, the server's text and test windows of both; test authors are nobody's client."""
    there = folder is not None and all((folder / f).exists() for f in (POSTS, WIKIPEDIA))
    unseen = min(UNSEEN_AUTHORS, authors)
    if there:
        assert folder is not None
        texts, wikipedia = read(folder)
        note = "Stack Exchange posts by author, and the first 5 MB of enwik8."
    else:
        texts, wikipedia = generate(authors + unseen, seed)
        note = "Generated stand-ins: the text files are not in the folder."
    code = alphabet(b"".join(texts) + wikipedia)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(texts))
    train, test = order[:authors], order[authors : authors + unseen]
    clients = [cut(texts[i], code)[:WINDOWS] for i in train]
    per_author = -(-TEST_WINDOWS // len(test))
    articles = rng.permutation(cut(wikipedia, code))
    few = min(TEST_WINDOWS, len(articles) // 4)
    return World(
        hf.Clients.from_datasets([as_examples(w) for w in clients]),
        as_examples(articles[few : few + sum(map(len, clients))]),
        {
            "posts": as_examples(np.concatenate([cut(texts[i], code)[:per_author] for i in test])),
            "wikipedia": as_examples(articles[:few]),
        },
        note,
    )


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


def model() -> hf.Model:
    """A small gated recurrent unit."""
    return hf.models.gru(CHARACTERS + 1, EMBEDDING, WIDTH)


def arguments(method: str, around: World, steps: int = STEPS) -> dict[str, Any]:
    """What distinguishes one method's run from another's."""
    central = hf.Local(LEARNING_RATE, steps=steps, batch_size=CENTRAL_BATCH_SIZE)
    pooled: dict[str, Any] = {"algorithm": hf.algorithms.centralised(), "local": central}
    # 1-way transfer sees half as many Wikipedia windows as the others do in all steps: the paper's ratio.
    at_once = CENTRAL_BATCH_SIZE * max(steps // 2, 4)
    server = hf.Server(around.own, central, gradient_batch_size=min(at_once, len(around.own.y)))
    if method == CENTRAL:
        return pooled | {"clients": server.as_clients()}
    if method == ORACLE:
        both = hf.Local(LEARNING_RATE, steps=steps, batch_size=2 * CENTRAL_BATCH_SIZE)
        return pooled | {"clients": around.everything, "local": both}
    federated: dict[str, Any] = {
        "clients": around.clients,
        "local": hf.Local(LEARNING_RATE, steps=steps, batch_size=BATCH_SIZE),
        "cohort": hf.cohorts.fixed(COHORT),
    }
    if method == FEDERATED:
        return federated | {"algorithm": hf.algorithms.fedavg()}
    return federated | {"algorithm": MIXED[method], "server": server}


def compare(
    folder: Path | None = None,
    rounds: int = ROUNDS,
    authors: int = AUTHORS,
    seed: int = 0,
    watch: Watch = silent,
) -> Result:
    """All methods on the same text, and how far the two sources disagree."""
    around = world(folder, authors, seed)
    every = max(1, rounds // 20)
    accuracy: dict[str, dict[str, np.ndarray]] = {source: {} for source in SOURCES}
    for method in METHODS:
        run = common.simulate(
            watch,
            f"text, {method}",
            model=model(),
            rounds=rounds,
            seed=seed,
            evaluate=[Named(s, around.test[s], every) for s in SOURCES],
            **arguments(method, around),
        )
        for source in SOURCES:
            at, accuracy[source][method] = common.column(run, source)
    alike = arguments(next(iter(MIXED)), around, steps=1)
    alike.pop("algorithm")
    measured = common.largest_dissimilarity(
        watch,
        "text",
        seeds=1,
        rounds=rounds,
        first=min(10, rounds),
        every=min(10, rounds),
        model=model(),
        **alike,
    )
    return Result(at, accuracy, measured, around.note)


def write(result: Result, folder: Path = report.RESULTS) -> None:
    """`text.md` and `text.png`."""
    last = {s: {m: curve[-1] for m, curve in result.accuracy[s].items()} for s in SOURCES}
    rows = [
        (
            m,
            *(f"{last[s][m]:.3f}" for s in SOURCES),
            f"{np.mean([last[s][m] for s in SOURCES]):.3f}",
        )
        for m in METHODS
    ]
    report.write(
        folder,
        "text",
        result.note,
        report.markdown(
            [f"accuracy after round {result.rounds[-1]}", *SOURCES, "mean of both"], rows
        ),
        report.sampled_dissimilarity(result.dissimilarity, PAPER),
    )
    figure, axes = report.panels(2)
    titles = ("On posts (the clients' source)", "On Wikipedia (the server's source)")
    for one, source, title in zip(axes, SOURCES, titles, strict=True):
        for method, curve in result.accuracy[source].items():
            report.band(one, result.rounds, curve[None], method)
        one.set(title=title, xlabel="round")
    low = min(min(c.min() for c in result.accuracy[s].values()) for s in SOURCES)
    high = max(max(c.max() for c in result.accuracy[s].values()) for s in SOURCES)
    for one in axes:
        one.set_ylim(low - 0.01, high + 0.02)  # the same, so that the two can be compared
    axes[0].set_ylabel("accuracy of the next character")
    axes[1].legend(frameon=False, fontsize=9, loc="lower right")
    report.save(figure, folder, "text")
