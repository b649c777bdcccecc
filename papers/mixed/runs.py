"""What the studies of mixed federated learning share: methods, runs that go on, and rules."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.flatten_util
import numpy as np

import holdfast as hf
from papers.study import Found, Row, Values, Verdict

FEDERATED, CENTRAL, ORACLE = "federated", "central", "oracle"
PARALLEL, ONE_WAY, TWO_WAY = "parallel", "one_way", "two_way"
MIXED = (PARALLEL, ONE_WAY, TWO_WAY)
METHODS = (FEDERATED, CENTRAL, *MIXED, ORACLE)
NAMES = {
    FEDERATED: "federated only",
    CENTRAL: "central only",
    PARALLEL: "parallel training",
    ONE_WAY: "1-way transfer",
    TWO_WAY: "2-way transfer",
    ORACLE: "oracle, all data in one place",
}
# Okabe and Ito's palette, which colour-blind people can tell apart; dashes for what is no mixed method.
COLOURS = {
    FEDERATED: "#D55E00",
    CENTRAL: "#CC79A7",
    PARALLEL: "#E69F00",
    ONE_WAY: "#0072B2",
    TWO_WAY: "#009E73",
    ORACLE: "#000000",
}
HALF = (0.5, 0.5)


def mixed(method: str, weights: tuple[float, float] = HALF) -> hf.Algorithm:
    """One of the paper's three methods."""
    made: dict[str, Any] = {
        PARALLEL: hf.algorithms.parallel_training,
        ONE_WAY: hf.algorithms.one_way_transfer,
        TWO_WAY: hf.algorithms.two_way_transfer,
    }
    algorithm = made[method](*weights)
    assert isinstance(algorithm, hf.Algorithm)
    return algorithm


def trained(folder: Path, rounds: int, **arguments: Any) -> hf.Run:
    """A run that goes on where it was stopped."""
    return hf.simulate(
        rounds=rounds,
        progress=False,
        checkpoint=hf.Checkpoint(folder, every=max(1, rounds // 10)),
        **arguments,
    )


def curve(run: hf.Run, name: str, digits: int = 4) -> list[float | None]:
    """What was measured of one thing, in the rounds in which it was; None where it is not finite."""
    return [
        round(float(record[name]), digits) if np.isfinite(record[name]) else None
        for record in run.history.records
        if name in record
    ]


def style(method: str) -> dict[str, Any]:
    """Colour and dashes of a method, the same in all figures."""
    line = "-" if method in MIXED else "--"
    return {"color": COLOURS[method], "linestyle": line, "linewidth": 1.4}


def mean(values: Sequence[float | None]) -> float:
    """Over draws; NaN is what was not finite."""
    return float(np.mean([np.nan if v is None else v for v in values]))


def told(values: Sequence[float | None], digits: int = 3) -> str:
    """Mean over draws, and their deviation where there are several."""
    numbers = [np.nan if v is None else v for v in values]
    if not np.isfinite(numbers).all():
        return f"diverged ({sum(not np.isfinite(n) for n in numbers)} of {len(numbers)} draws)"
    text = f"{np.mean(numbers):.{digits}f}"
    return f"{text} ± {np.std(numbers, ddof=1):.{digits}f}" if len(numbers) > 1 else text


def of_methods(found: Mapping[str, Sequence[float | None]], digits: int = 3) -> str:
    """The same of every method that was run, in a line; how many draws at the end."""
    parts = [f"{NAMES.get(m, m)} {told(v, digits)}" for m, v in found.items() if v]
    most = max((len(v) for v in found.values()), default=0)
    return f"{' / '.join(parts)} ({count(most)})" if parts else ""


def count(draws: int) -> str:
    """So many draws, in words."""
    return "1 draw" if draws == 1 else f"{draws} draws"


def draws(found: Found, start: str, field: str) -> list[Any]:
    """A field of the cells `<start>-0`, `<start>-1`, ... that were run."""
    names = sorted(n for n in found if n.rpartition("-")[0] == start)
    return [found[n][field] for n in names]


def ends(found: Found, names: Sequence[str], field: str) -> dict[str, list[float]]:
    """The last value of each draw, by the name of its cells."""
    return {n: [curve[-1] for curve in draws(found, n, field)] for n in names}


def areas(found: Found, names: Sequence[str], field: str = "loss") -> dict[str, list[float]]:
    """The mean over all rounds of each draw: how fast it came down."""
    return {n: [mean(curve) for curve in draws(found, n, field)] for n in names}


def rounds_of(run: hf.Run, name: str) -> list[int]:
    """After which rounds something was measured."""
    return [int(record["round"]) for record in run.history.records if name in record]


class Sampled:
    """An evaluator: eq. 7 on batches, as the paper samples it, each round anew.

    Args:
        clients: from whom a cohort is drawn, and of each of them a batch.
        cohort: how many.
        batch: how many examples of each.
        central: the server's examples, of which `central_batch` are drawn, or its loss.
        central_batch: how many.
        weights: of the two losses.
    """

    keeps_last_models = False
    every = 1

    def __init__(
        self,
        clients: hf.Clients,
        cohort: int,
        batch: int,
        central: Any,
        central_batch: int = 0,
        weights: tuple[float, float] = HALF,
    ) -> None:
        self.clients, self.cohort, self.batch = clients, min(cohort, len(clients)), batch
        self.central, self.central_batch, self.weights = central, central_batch, weights

    def check(self, model: hf.Model, params: Any, clients: int) -> None:
        """The model is trained on the same examples."""

    def __call__(self, view: Any) -> dict[str, float]:
        """Both numbers, squared as in table 4."""
        rng = np.random.default_rng([view.state.round, 17])
        people = rng.choice(len(self.clients), self.cohort, replace=False)
        rows = np.concatenate([rng.choice(self.clients.rows(i), self.batch) for i in people])
        params, gradient = view.state.params, _gradient(view.model)
        federated = gradient(params, _rows(self.clients.examples, rows))
        if callable(self.central):
            central = jax.grad(self.central)(params)
        else:
            drawn = rng.integers(len(self.central.y), size=self.central_batch)
            central = gradient(params, _rows(self.central, drawn))
        f, c = (jax.flatten_util.ravel_pytree(g)[0] for g in (federated, central))
        w_f, w_c = self.weights
        apart = float(w_f * (f @ f) + w_c * (c @ c))
        together = w_f * f + w_c * c
        square = float(together @ together)
        return {"G2": apart - square, "B2": apart / square}


@functools.lru_cache(maxsize=8)
def _gradient(model: hf.Model) -> Any:
    return jax.jit(jax.grad(lambda params, batch: model.loss(params, batch).mean()))


def _rows(examples: hf.Examples, rows: np.ndarray) -> hf.Examples:
    return hf.Examples(*(np.asarray(field)[rows] for field in examples))


def largest(found: Values, name: str, first: int = 10) -> float:
    """The largest from a round on, as table 4 has it of rounds 10 to 100."""
    values = [v for v in found[name][first - 1 :] or found[name] if v is not None]
    return float(max(values))


def dissimilarity_row(
    found: Sequence[Values], task: str, paper: tuple[float, float], **told: str
) -> Row:
    """A column of table 4: agrees where both are within a factor of two of the paper's, order where they
    tell the same."""
    what = f"{task}: max G̃² and B̃² of rounds 10 to 100, one step a round"
    printed = f"G̃² {paper[0]:g}, B̃² {paper[1]:g}"
    if not found:
        return Row("table 4", what, printed)
    ours = [max(largest(one, name) for one in found) for name in ("G2", "B2")]
    near = [0.5 <= mine / theirs <= 2 for mine, theirs in zip(ours, paper, strict=True)]
    # What the paper concludes from them is whether G̃² is near 0 and B̃² near 1.
    same = (ours[0] < 1) == (paper[0] < 1) and (ours[1] < 2) == (paper[1] < 2)
    verdict = Verdict.AGREES if all(near) else Verdict.ORDER if same else Verdict.DISAGREES
    said = f"G̃² {ours[0]:.3g}, B̃² {ours[1]:.3g} (largest of {count(len(found))})"
    return Row("table 4", what, printed, said, verdict=verdict, **told)


def values_of(found: Mapping[str, Values], start: str) -> list[Values]:
    """The cells `<start>-0`, `<start>-1`, ... that were run."""
    return [found[n] for n in sorted(found) if n.rpartition("-")[0] == start]


def dissimilarity_curves(found: Sequence[Values], task: str, table: Row) -> Row:
    """Figure 4, of which table 4 has the maxima."""
    what = f"{task}: G̃² and B̃² by round, one step a round"
    if not found:
        return Row("figure 4", what, "curves; their maxima are in table 4")
    ends = {
        name: [np.mean([one[name][k] for one in found]) for k in (9, 49, 99) if k < len(one[name])]
        for name in ("G2", "B2")
        for one in found[:1]
    }
    told = {name: " / ".join(f"{v:.3g}" for v in values) for name, values in ends.items()}
    said = f"in rounds 10, 50 and 100: G̃² {told['G2']}; B̃² {told['B2']} ({count(len(found))})"
    return dataclasses.replace(
        table, place="figure 4", what=what, paper="curves; their maxima are in table 4", ours=said
    )
