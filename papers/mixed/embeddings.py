"""Embeddings regularised at the server: clients pull related items together, the server pushes all apart.

The paper's movie recommendation (section 4.3): a dual encoder with a hinge loss on clients, spreadout
of the whole table at the server, and federated select, so that a client receives only the rows of
items it knows. MovieLens-1M may not be passed on; without its file a generated stand-in is used.
"""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import optax

import holdfast as hf
from papers.mixed import common, report
from papers.mixed.common import HALF, ONE_WAY, PARALLEL, Watch, silent

CONTEXT, WIDTH = 10, 16
EXAMPLES = 160  # the last ones of a user, the paper's average
TEST_EXAMPLES = 8  # the last ones of a user who is nobody's client
MOVIES, ITEMS = 3953, 1001  # rows of the table: MovieLens and the stand-in, row 0 is padding
USERS, SERIES = 300, 50  # of the stand-in
ROUNDS = 240
COHORT, BATCH_SIZE, STEPS, LEARNING_RATE = 20, 16, 10, 0.5
SERVER_RATE = 0.01  # of Adam at the server, as in the paper's appendix B.4.4
FULL, PLAIN = f"{PARALLEL}, full table", "no regularisation + select"
ONE_WAY_FULL = f"{ONE_WAY}, full table"
PARALLEL_SELECT, ONE_WAY_SELECT = f"{PARALLEL} + select", f"{ONE_WAY} + select"
METHODS = (FULL, PARALLEL_SELECT, ONE_WAY_FULL, ONE_WAY_SELECT, PLAIN)
STRENGTH = 0.01
PAPER_KB = {FULL: 494, PARALLEL_SELECT: 20, ONE_WAY_SELECT: 30}
PAPER = (0.03, 1.50)  # largest G~^2 and B~^2 of its movie recommendation, table 4
COLOURS = {
    FULL: "#000000",
    PARALLEL_SELECT: report.COLOURS[PARALLEL],
    ONE_WAY_SELECT: report.COLOURS[ONE_WAY],
    ONE_WAY_FULL: "#009E73",
    PLAIN: "#D55E00",
}


@dataclasses.dataclass(frozen=True)
class World:
    """Users as clients, and the next items of others."""

    clients: hf.Clients
    test: hf.Examples
    items: int  # rows of the table
    note: str


@dataclasses.dataclass(frozen=True)
class Result:
    """Recall round by round; spreadout and traffic at the end."""

    rounds: np.ndarray
    recall: dict[str, np.ndarray]
    spreadout: dict[str, float]
    kilobytes: dict[str, tuple[float, float]]  # per client and round, down and up
    dissimilarity: dict[str, float]
    note: str
    generated: bool


def read(file: Path) -> list[np.ndarray]:
    """Each user's movies in the order of rating."""
    lines = file.read_text(encoding="latin-1").split()
    user, movie, _, when = np.array([line.split("::") for line in lines], np.int64).T
    order = np.lexsort((when, user))  # stable, so ratings of one second keep the file's order
    return np.split(movie[order], np.flatnonzero(np.diff(user[order])) + 1)


def generate(users: int, seed: int = 0) -> list[np.ndarray]:
    """Users who like five of fifty series and stay with one for about ten items."""
    rng = np.random.default_rng(seed)
    per_series = (ITEMS - 1) // SERIES

    def one_user() -> np.ndarray:
        liked, length = rng.choice(SERIES, 5, replace=False), int(rng.integers(40, EXAMPLES))
        switches = np.cumsum(rng.random(length) < 0.1)
        series = liked[rng.integers(5, size=length)[switches]]
        return 1 + per_series * series + rng.integers(per_series, size=length)

    return [one_user() for _ in range(users)]


def as_examples(sequence: np.ndarray, max_examples: int) -> hf.Examples:
    """The last items of a sequence, each with up to ten before it."""
    first = max(1, len(sequence) - max_examples)
    context = np.zeros((len(sequence) - first, CONTEXT), np.int32)
    for row, k in zip(context, range(first, len(sequence)), strict=True):
        before = sequence[max(0, k - CONTEXT) : k]
        row[: len(before)] = before
    return hf.Examples(context, sequence[first:].astype(np.int32))


def world(movielens: Path | None, users: int = USERS, seed: int = 0) -> World:
    """Clients, and other users whose last items are to be predicted."""
    if movielens is None:
        sequences, items = generate(2 * users, seed), ITEMS
        note = f"A GENERATED STAND-IN, not MovieLens: {users} clients, {ITEMS - 1} items."
    else:
        sequences, items = read(movielens), MOVIES
        users = len(sequences) * 4 // 5
        note = f"MovieLens-1M: {users} users as clients."
    order = np.random.default_rng(seed).permutation(len(sequences))
    train = [as_examples(sequences[i], EXAMPLES) for i in order[:users]]
    test = [as_examples(sequences[i], TEST_EXAMPLES) for i in order[users:]]
    together = hf.Examples(*(np.concatenate(field) for field in zip(*test, strict=True)))
    return World(hf.Clients.from_datasets(train), together, items, note)


def algorithm(method: str) -> hf.Algorithm:
    """The method, with Adam at the server."""
    adam = optax.adam(SERVER_RATE, b2=0.99, eps=1e-4)
    if method == PLAIN:
        return hf.algorithms.fedadam(SERVER_RATE, eps=1e-4)
    if method in (ONE_WAY_FULL, ONE_WAY_SELECT):
        return hf.algorithms.one_way_transfer(*HALF, server_optimizer=adam)
    return hf.algorithms.parallel_training(*HALF, merge_optimizer=adam)


def server(strength: float, steps: int = STEPS) -> hf.Server:
    """Spreadout of the whole table."""
    return hf.Server(hf.models.spreadout(strength), hf.Local(LEARNING_RATE, steps=steps))


def per_client(run: hf.Run) -> tuple[float, float]:
    """Kilobytes a client receives and returns in one round, on average."""
    turns = sum(len(entry.clients) for entry in run.ledger.entries)
    return run.ledger.bytes_down / turns / 1024, run.ledger.bytes_up / turns / 1024


def compare(
    movielens: Path | None = None,
    rounds: int = ROUNDS,
    users: int = USERS,
    seed: int = 0,
    watch: Watch = silent,
) -> Result:
    """All methods on the same users, and how far the two losses disagree."""
    around = world(movielens, users, seed)
    every = max(1, rounds // 15)
    recall, spreadout, kilobytes = {}, {}, {}
    shared: dict[str, Any] = {
        "model": hf.models.dual_encoder(around.items, WIDTH),
        "clients": around.clients,
        "cohort": hf.cohorts.fixed(min(COHORT, len(around.clients))),
    }
    for method in METHODS:
        run = common.simulate(
            watch,
            f"embeddings, {method}",
            algorithm=algorithm(method),
            local=hf.Local(LEARNING_RATE, steps=STEPS, batch_size=BATCH_SIZE),
            rounds=rounds,
            seed=seed,
            evaluate=hf.evaluate.on(around.test, every=every),
            select=method not in (FULL, ONE_WAY_FULL),
            server=None if method == PLAIN else server(STRENGTH),
            **shared,
        )
        at, recall[method] = common.column(run, "recall_at_10")
        # Of all possible pairs of items, the root of the mean squared cosine.
        pairs = around.items * (around.items - 1)
        spreadout[method] = float(hf.models.spreadout(1.0)(run.params)) / pairs**0.5
        kilobytes[method] = per_client(run)
    measured = common.largest_dissimilarity(
        watch,
        "embeddings",
        seeds=1,
        rounds=min(rounds, 100),
        first=min(10, rounds),
        every=min(5, rounds),
        local=hf.Local(LEARNING_RATE, steps=1, batch_size=BATCH_SIZE),
        server=server(STRENGTH, steps=1),
        **shared,
    )
    return Result(at, recall, spreadout, kilobytes, measured, around.note, movielens is None)


def write(result: Result, folder: Path = report.RESULTS) -> None:
    """A table and a figure; those of MovieLens have a name of their own."""
    name = "embeddings" if result.generated else "embeddings-movielens"
    quality = [
        (
            m,
            f"{result.recall[m][-1]:.3f}",
            f"{result.spreadout[m]:.3f}",
            "-" if m == PLAIN else STRENGTH,
        )
        for m in METHODS
    ]
    traffic = [
        (
            m,
            *(f"{v:.1f}" for v in (*result.kilobytes[m], sum(result.kilobytes[m]))),
            PAPER_KB.get(m, "-"),
        )
        for m in METHODS
    ]
    report.write(
        folder,
        name,
        result.note,
        report.markdown(
            [
                f"after round {result.rounds[-1]}",
                "recall@10",
                "rms cosine of two items",
                "strength λ",
            ],
            quality,
        ),
        report.markdown(
            ["KB per client and round", "down", "up", "total", "paper, table 2 (table alone)"],
            traffic,
        ),
        report.sampled_dissimilarity(result.dissimilarity, PAPER),
    )
    figure, (left, right) = report.panels(2)
    for method, curve in result.recall.items():
        thick = (
            4.0 if method == FULL else 1.8
        )  # it agrees with parallel training, which lies upon it
        line = "--" if method == PLAIN else "-"
        left.plot(result.rounds, curve, label=method, color=COLOURS[method], lw=thick, ls=line)
    left.set(
        title="Next item among the ten nearest (colours as right)",
        xlabel="round",
        ylabel="recall@10",
        ylim=(0, None),
    )
    totals = [sum(result.kilobytes[m]) for m in METHODS]
    right.barh(METHODS, totals, color=[COLOURS[m] for m in METHODS])
    for k, total in enumerate(totals):
        right.text(total * 1.05, k, f"{total:.1f} KB", va="center", fontsize=9)
    right.set(title="Traffic of a client in one round", xlabel="KB", xscale="log")
    right.set_xlim(min(totals) / 2, max(totals) * 4)
    right.invert_yaxis()
    right.grid(visible=False, axis="y")
    report.save(figure, folder, name)
