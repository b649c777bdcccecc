"""What was predicted of every client's own test rows by the model it would use: `predictions.safetensors`.

Every method of a study is asked about the same rows, so that methods can be compared row by row.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
from jax import tree

from holdfast.data.clients import Clients
from holdfast.evaluate.measuring import each_example
from holdfast.models.model import Model
from holdfast.trees import Tree

# A file is not larger than this, by much: beyond it outputs are left out, then rows.
MOST_BYTES = 10_000_000
_METRIC = "metric/"
_ABOUT = "predictions"  # one key: the order of several is not the same in every process


@dataclasses.dataclass(frozen=True)
class Predictions:
    """Test rows one after the other: whose they are, their labels, and what was predicted of them.

    Args:
        client: the number of the client that each row is a test row of.
        row: its number in the test set; the same row may be a test row of several clients.
        label: the label, or what was to be predicted; None where it is not one value per row.
        output: what the model of this client says (`model.predict`): probabilities of classes, or a number.
            None where the model has no prediction, or there was no room.
        metrics: every metric of the model, one value per row.
        about: what was left out: `kept` is `everything`, `metrics` or `some rows`; of how many `rows`.
    """

    client: np.ndarray
    row: np.ndarray
    label: np.ndarray | None
    output: np.ndarray | None
    metrics: dict[str, np.ndarray]
    about: dict[str, Any]

    def __len__(self) -> int:
        return len(self.client)

    @property
    def clients(self) -> list[int]:
        """The numbers of the clients that have test rows."""
        return [int(i) for i in np.unique(self.client)]

    @property
    def predicted(self) -> np.ndarray | None:
        """The class of each row that the model holds for the likeliest; None where it predicts no classes."""
        if self.output is None or self.label is None or self.label.dtype.kind not in "iu":
            return None
        if self.output.ndim == 2:
            return self.output.argmax(axis=1)
        return (self.output > 0.5).astype(np.int64) if self.output.ndim == 1 else None

    def mean(self, metric: str) -> float:
        """A metric's mean over all rows."""
        return float(self.metrics[metric].mean(dtype=np.float64))

    def by_client(self, metric: str) -> dict[int, float]:
        """A metric's mean over each client's rows."""
        values = self.metrics[metric].astype(np.float64)
        return {i: float(values[self.client == i].mean()) for i in self.clients}

    def to_bytes(self) -> bytes:
        """As a file; the same bits whenever it is written."""
        arrays: dict[str, Any] = {"client": self.client, "row": self.row}
        arrays |= {"label": self.label, "output": self.output}
        arrays |= {f"{_METRIC}{name}": values for name, values in self.metrics.items()}
        kept = {n: np.ascontiguousarray(a) for n, a in arrays.items() if a is not None}
        return safetensors.numpy.save(kept, {_ABOUT: json.dumps(self.about, sort_keys=True)})


def read(path: Path) -> Predictions:
    """From a file."""
    with safetensors.safe_open(path, "np") as file:
        about = json.loads((file.metadata() or {}).get(_ABOUT, "{}"))
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    metrics = {n.removeprefix(_METRIC): a for n, a in arrays.items() if n.startswith(_METRIC)}
    return Predictions(
        arrays["client"],
        arrays["row"],
        arrays.get("label"),
        arrays.get("output"),
        metrics,
        about,
    )


class Predicting:
    """Predictions as they are made, one client after the other; which rows are asked for depends on the data
    and the model, never on the method.

    Args:
        model: the model.
        tests: every client's own test rows.
        clients: the number of clients that will be asked.
        most_bytes: how large a file may be.
    """

    def __init__(
        self, model: Model, tests: Clients, clients: int, most_bytes: int = MOST_BYTES
    ) -> None:
        self._model, self._tests, self._most = model, tests, most_bytes
        asked = int(np.count_nonzero(tests.sizes))
        # Those that are left out of many are spread evenly, and about as large.
        self._rows = int(tests.sizes.sum() * min(1.0, clients / max(asked, 1)))
        self._parts: list[tuple[np.ndarray | None, ...]] = []
        self._measured: list[dict[str, np.ndarray]] = []
        self._kept: str | None = None
        self._share = 1.0

    def add(self, client: int, params: Tree, examples: Tree) -> None:
        """What this client's model says of its own test rows."""
        rows = self._tests.rows(client)
        if self._kept is None:
            self._decide(params, examples)
        chosen = self._chosen(client, len(rows))
        some = tree.map(lambda a: np.asarray(a)[chosen], examples)
        measured, output = each_example(self._model, params, some, self._kept == "everything")
        label = _labels(some)
        self._measured.append(measured)
        self._parts.append((np.full(len(chosen), client), rows[chosen], label, output))

    def _decide(self, params: Tree, examples: Tree) -> None:
        """What there is room for, from what one row takes."""
        first = tree.map(lambda a: np.asarray(a)[:1], examples)
        measured, output = each_example(self._model, params, first, True)
        least = 4 * (3 + len(measured))
        whole = least + (0 if output is None else output.nbytes)
        if output is not None and self._rows * whole <= self._most:
            self._kept = "everything"
        elif self._rows * least <= self._most:
            self._kept = "metrics"
        else:
            self._kept = "some rows"
            self._share = self._most / (self._rows * least)

    def _chosen(self, client: int, size: int) -> np.ndarray:
        few = max(1, int(self._share * size))
        if few >= size:
            return np.arange(size)
        return np.sort(np.random.default_rng([0, client]).choice(size, few, replace=False))

    def done(self) -> Predictions:
        """All of them."""
        names = [n for n in self._measured[0] if all(n in other for other in self._measured)]
        client, row, label, output = (_together(part) for part in zip(*self._parts, strict=True))
        assert client is not None
        assert row is not None
        about = {"kept": self._kept, "rows": int(self._tests.sizes.sum())}
        return Predictions(
            client.astype(np.int32),
            row.astype(np.int32),
            label,
            output,
            {name: np.concatenate([m[name] for m in self._measured]) for name in names},
            about,
        )


def _labels(examples: Any) -> np.ndarray | None:
    """One label per row, in 32 bits."""
    label = np.asarray(getattr(examples, "y", np.zeros((0, 0))))
    if label.ndim != 1:
        return None
    return label.astype(np.int32 if label.dtype.kind in "iub" else np.float32)


def _together(parts: tuple[np.ndarray | None, ...]) -> np.ndarray | None:
    """One after the other; None where not everybody has it, or not alike."""
    known = [part for part in parts if part is not None]
    alike = len({(part.shape[1:], part.dtype) for part in known}) == 1
    return np.concatenate(known) if alike and len(known) == len(parts) else None
