"""Sets and intervals as training goes on: calibrated on some held-out examples, measured on others."""

import dataclasses
import math
from typing import Any, Literal, get_args

import numpy as np

from holdfast.conformal import checks
from holdfast.conformal.calibration import Calibration, check_kappa, from_histograms
from holdfast.conformal.histogram import BITS, histogram
from holdfast.conformal.outcome import KnownRows, Outcome, curve_of, known_rows, together
from holdfast.conformal.rows import PredictedRows, rows_of, rows_of_clients
from holdfast.conformal.scores import Score, as_probabilities, as_score
from holdfast.data.clients import Clients
from holdfast.errors import HoldfastError, did_you_mean, explain_arguments, whole_number
from holdfast.evaluate.protocol import EvaluationView
from holdfast.metrics.metric import Directions
from holdfast.models.model import Model
from holdfast.record.ledger import Sent
from holdfast.trees import Tree

By = Literal["server", "clients", "each client"]
_MOST_CLIENTS = 500  # that are listed one by one
_THRESHOLD_BITS = 64


@dataclasses.dataclass(frozen=True)
class Conformal:
    """Coverage and size of prediction sets or intervals; made by `hf.conformal.evaluate`."""

    calibration: Any
    examples: Any
    kappa: float = 0.1
    score: Score = dataclasses.field(default_factory=Score)
    by: By = "server"
    bins: int = 1000
    largest: float | None = None
    every: int = 1
    name: str = ""
    # Every client's own examples, where those to test on are one data set.
    own: Clients | None = None
    # What one unit of the model's numbers is in the user's, where a table's target was standardised.
    unit: float = 1.0
    keeps_last_models = False

    @property
    def directions(self) -> Directions:
        """Which way what it writes is better."""
        return (("coverage", True), ("interval_width", False), ("set_size", False))

    @property
    def sent(self) -> tuple[Sent, ...]:
        """What travels for it in a round in which it measures: histograms up, the threshold down."""
        if self.by != "clients":
            return ()
        who = tuple(int(i) for i in np.flatnonzero(self.calibration.sizes))
        return (Sent("calibration", who, _THRESHOLD_BITS, BITS * self.bins),)

    def check(self, model: Model, params: Tree, clients: int) -> None:
        """Refuse data, scores and models that do not go together, before the run."""
        checks.check(self, model, params, clients)

    def check_untrained(self, clients: Clients, server: Any) -> None:
        """Refuse examples to calibrate with that clients or the server train on, as far as it can be seen."""
        checks.check_untrained(self, clients, server)

    @property
    def _size(self) -> str:
        return "interval_width" if self.score.of_numbers else "set_size"

    def columns(self, measured: list[str]) -> list[str]:
        """What it writes."""
        plain = ["coverage", self._size]
        if self._has_clients:
            plain.append("coverage_worst_tenth")
        return [f"{self.name}_{name}" if self.name else name for name in plain]

    def __call__(self, view: EvaluationView) -> dict[str, float]:
        parts = self._parts(view)
        names = self.columns([])
        # After training has diverged there is nothing to calibrate.
        if parts is None:
            return dict.fromkeys(names, math.nan)
        found = together(parts, self.kappa)
        values = [found.coverage, found.mean_size]
        if self._has_clients:
            each = np.sort([o.coverage for o in self._each(view, found).values()])
            values.append(float(each[: -(-len(each) // 10)].mean()))
        return dict(zip(names, values, strict=True))

    @property
    def _has_clients(self) -> bool:
        return isinstance(self.examples, Clients) or self.own is not None

    def _each(self, view: EvaluationView, found: Outcome) -> dict[int, Outcome]:
        """Every client's own rows."""
        if self.own is None:
            return found.of_clients()
        parts = dataclasses.replace(self, examples=self.own, own=None)._parts(view)
        assert parts is not None
        return together(parts, self.kappa).of_clients()

    def detail(self, view: EvaluationView) -> dict[str, Any] | None:
        """Everything at one round in plain values: by client, by class and over kappa."""
        parts = self._parts(view)
        if parts is None:
            return None
        found = together(parts, self.kappa)
        known = {id(part.calibration): part.calibration for part in parts}
        about: dict[str, Any] = {
            "name": self.name,
            "by": self.by,
            "score": self.score.name,
            "kappa": self.kappa,
            "sets": not self.score.of_numbers,
            "calibrated_on": sum(c.n for c in known.values()),
            "rows": found.rows,
            "coverage": found.coverage,
            "size": _plain(found.mean_size),
            "empty": found.empty,
            "single": found.single,
            "excess": max(c.excess(self.kappa) for c in known.values()),
            "curve": {n: [_plain(v) for v in vs] for n, vs in curve_of(parts).items()},
            "classes": _listed(found.of_classes(), "label"),
        }
        if self._has_clients:
            about["clients"] = self._clients(view, self._each(view, found))
        return about

    def _clients(self, view: EvaluationView, each: dict[int, Outcome]) -> dict[str, Any]:
        ids = list(each)
        if len(ids) > _MOST_CLIENTS:
            ids = [ids[i] for i in np.linspace(0, len(ids) - 1, _MOST_CLIENTS).astype(int)]
        listed = _listed({i: each[i] for i in ids}, "client")
        if not isinstance(self.calibration, Clients):
            return listed
        listed["calibrated_on"] = [int(self.calibration.sizes[i]) for i in ids]
        if self.by == "clients":
            # What every client would get by its own examples alone.
            mine = dataclasses.replace(self, by="each client")
            own = mine._parts(view)
            assert own is not None
            alone = together(own, self.kappa).of_clients()
            listed["own_coverage"] = [alone[i].coverage for i in ids]
            listed["own_size"] = [_plain(alone[i].mean_size) for i in ids]
        return listed

    def _parts(self, view: EvaluationView) -> list[KnownRows] | None:
        """Rows to test on, each with the calibration that is for them; None of predictions that are no
        numbers."""
        testing = [self._in_units(r) for r in self._testing(view)]
        calibrating = self._calibrating(view)
        if not all(np.isfinite(rows.predicted).all() for rows in (*calibrating, *testing)):
            return None
        if self.by != "each client":
            shared = self._shared(calibrating)
            return [known_rows(shared, r.predicted, r.labels, max(r.client, 0)) for r in testing]
        scores = self._scores(calibrating)
        # Who has no examples to calibrate with can promise nothing: every label is in its sets.
        none = np.zeros(0)
        own = {
            i: Calibration(self.score, np.sort(scores.get(i, none)))
            for i in {rows.client for rows in testing}
        }
        return [known_rows(own[r.client], r.predicted, r.labels, r.client) for r in testing]

    def shared(self, view: EvaluationView) -> Calibration | None:
        """What all rows have one threshold by, in the user's units; None where every client has its own, or
        predictions are no numbers."""
        if self.by == "each client":
            return None
        calibrating = self._calibrating(view)
        if not all(np.isfinite(rows.predicted).all() for rows in calibrating):
            return None
        return self._shared(calibrating)

    def _testing(self, view: EvaluationView) -> list[PredictedRows]:
        return list(rows_of_clients(view, self.examples, server=self.by == "server"))

    def _calibrating(self, view: EvaluationView) -> list[PredictedRows]:
        if self.by == "server":
            found = [rows_of(view, view.state.params, self.calibration, -1)]
        else:
            found = list(rows_of_clients(view, self.calibration))
        return [self._in_units(rows) for rows in found]

    def _in_units(self, rows: PredictedRows) -> PredictedRows:
        """Errors are differences, so that where numbers begin does not matter."""
        if not self.score.of_numbers or self.unit == 1.0:
            return rows
        predicted, labels = (
            np.asarray(a, np.float64) * self.unit for a in (rows.predicted, rows.labels)
        )
        return PredictedRows(rows.client, predicted, labels)

    def _scores(self, calibrating: list[PredictedRows]) -> dict[int, np.ndarray]:
        return {
            rows.client: self.score.of_truth(rows.predicted, rows.labels, max(rows.client, 0))
            for rows in calibrating
        }

    def _shared(self, calibrating: list[PredictedRows]) -> Calibration:
        scores = self._scores(calibrating)
        if self.by == "server":
            return Calibration(self.score, np.sort(scores[-1]))
        most = self._largest(calibrating)
        cells = [histogram(s, self.bins, most) for s in scores.values()]
        return from_histograms(cells, self.score)

    def _largest(self, rows: list[PredictedRows]) -> float:
        if self.largest is not None:
            return self.largest
        most = [self.score.largest(as_probabilities(r.predicted[:1]).shape[1]) for r in rows]
        return max(value for value in most if value is not None)


def _listed(each: dict[int, Outcome], what: str) -> dict[str, list[Any]]:
    return {
        what: list(each),
        "rows": [o.rows for o in each.values()],
        "coverage": [o.coverage for o in each.values()],
        "size": [_plain(o.mean_size) for o in each.values()],
    }


def _plain(size: float) -> float | None:
    """None of an infinite width: JSON has no infinity."""
    return size if math.isfinite(size) else None


@explain_arguments
def evaluate(
    calibration: Any,
    examples: Any,
    kappa: float = 0.1,
    score: Score | str = "lac",
    by: By = "server",
    bins: int = 1000,
    largest: float | None = None,
    every: int = 1,
    name: str = "",
    own: Clients | None = None,
) -> Conformal:
    r"""How often prediction sets hold the right label, and how large they are (`coverage`, `set_size`).

    Sets are calibrated on held-out examples so that at least $1 - \kappa$ of rows like these have their label
    in the set, whatever the model; they are measured on other held-out examples. A regression has intervals
    instead, with `score="residual"` (`coverage`, `interval_width`, in the model's own units).

    Args:
        calibration: examples that are neither trained on, nor chosen by, nor tested on: a data set for
            `by="server"`, else every client's own as `Clients`. `hf.conformal.divide` makes them.
        examples: what is tested on: a data set, or every client's own as `Clients`, which also gives
            `coverage_worst_tenth`, that of the tenth of clients with the least.
        kappa: the share of rows whose label may be outside its set.
        score: `"lac"` (the smallest sets), `"aps"`, `"raps"`, for numbers `"residual"`; or a `Score`.
        by: who calibrates. `"server"`: the server, by examples of its own, its own model. `"clients"`: every
            client counts the scores of its examples by the model it would use and sends a histogram, which
            the ledger counts (4 bytes a cell up, 8 bytes with the threshold down). `"each client"`: every
            client has a threshold of its own, and nothing travels.
        bins: cells of a histogram.
        largest: of `"clients"` with `"residual"`, the largest error that histograms tell from larger ones.
        every: rounds between evaluations.
        name: goes before the names of what is measured.
        own: every client's own test examples, where `examples` are one data set and it is to be said what
            each client gets.

    Example:
        >>> import holdfast as hf
        >>> train, held_out = hf.data.digits()
        >>> calibration, test = hf.conformal.divide(held_out)
        >>> run = hf.simulate(
        ...     hf.algorithms.fedavg(),
        ...     hf.models.softmax_regression(10),
        ...     hf.data.partition.iid(train, clients=4),
        ...     hf.Local(learning_rate=0.1, steps=20, batch_size=10),
        ...     rounds=2,
        ...     evaluate=hf.conformal.evaluate(calibration, test, kappa=0.1),
        ... )
        >>> [name for name in run.history.columns if name in ("coverage", "set_size")]
        ['coverage', 'set_size']

    Reference:
        Li et al., "On the effectiveness of partial variance reduction in federated learning with
        heterogeneous data", CVPR 2023, section 5.2.
    """
    if by not in get_args(By):
        raise HoldfastError(
            f"conformal: by={by!r}; {did_you_mean(str(by), get_args(By))}", about=("by",)
        )
    known = as_score(score)
    # Refuses too few cells before the run.
    histogram([], bins, 1.0 if largest is None else largest)
    return Conformal(
        calibration,
        examples,
        check_kappa(kappa),
        known,
        by,
        bins,
        None if largest is None else float(largest),
        whole_number("evaluate", "every", every),
        name,
        own,
    )
