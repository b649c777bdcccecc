"""A trained model that predicts: what `hf.load` returns."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from jax import tree

from holdfast.conformal import Calibration, Score
from holdfast.conformal.scores import as_score
from holdfast.core.keys import host_key
from holdfast.data.clients import Examples
from holdfast.errors import HoldfastError, did_you_mean
from holdfast.models.foreign import uncompiled
from holdfast.models.model import Model
from holdfast.saved import file, rows
from holdfast.saved.calibrated import calibration_of, kappa_of, with_calibration
from holdfast.saved.description import Description
from holdfast.saved.labels import label_numbers
from holdfast.trees import Tree, paths

_MOST_NAMED = 12
_ROWS_AT_ONCE = 4096
SERVER, CLIENTS = (
    "server/",
    "clients/",
)  # before the names of parameters, where both are in one file


@dataclasses.dataclass(frozen=True, eq=False)
class SavedModel:
    """A trained model with all that it needs to predict: preprocessing, names of columns and labels.

    Made by `hf.load`. `predict` takes a data frame, a dictionary of columns or an array, with columns as
    they were before any preprocessing.

    Example:
        >>> import holdfast as hf
        >>> import tempfile
        >>> data = hf.data.digits()
        >>> clients = hf.data.partition.iid(data.train, clients=4)
        >>> model = hf.models.softmax_regression(classes=10)
        >>> local = hf.Local(learning_rate=0.1, steps=20, batch_size=10)
        >>> run = hf.simulate(hf.algorithms.fedavg(), model, clients, local, rounds=5)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     saved = hf.load(run.save(f"{folder}/digits.safetensors", data=data))
        >>> saved
        SavedModel(fedavg, round 5: softmax_regression, 64 inputs, 10 classes)
        >>> rows = data.test.x[::100]
        >>> saved.predict(rows).tolist(), data.test.y[::100].tolist()
        ([6, 1, 9, 2], [6, 1, 9, 2])
        >>> saved.predict_proba(rows).shape
        (4, 10)
    """

    description: Description
    model: Model
    arrays: file.Arrays = dataclasses.field(repr=False)
    path: Path

    def __post_init__(self) -> None:
        if self.description.stored != "clients":
            _ = self.params  # refuses parameters that are not this model's

    def __repr__(self) -> str:
        about = self.description
        made = about.constructor["name"] if about.constructor else self.model.name
        size = " x ".join(map(str, about.x.shape)) or "1"
        many = f", {self.classes} classes" if self.classes else ""
        return f"SavedModel({about.title}: {made}, {size} inputs{many})"

    @property
    def classes(self) -> int | None:
        """How many labels there are; None of numbers."""
        columns = self.description.columns
        if columns is not None and columns.labels:
            return len(columns.labels)
        if self.description.task in ("classes", "labels"):
            return int(self._output.shape[-1])
        return 2 if self.description.task == "binary" else None

    @property
    def clients(self) -> tuple[str, ...]:
        """Names of the clients that took part in training, or whose own models these are."""
        return self.description.clients

    @property
    def label_names(self) -> tuple[str, ...] | None:
        """What label 0, 1, ... is called, where the data had names."""
        return None if self.description.columns is None else self.description.columns.labels

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """The columns a table must have, in their order, where they have names."""
        if self.preprocessing is not None:
            return tuple(self.preprocessing.columns)
        return None if self.description.columns is None else self.description.columns.features

    @functools.cached_property
    def preprocessing(self) -> Any:
        """What turns columns into inputs, as it was fitted in training; None if nothing does."""
        columns = self.description.columns
        if columns is None or columns.preprocessing is None:
            return None
        from holdfast.data.preprocessing import Preprocessing

        return Preprocessing.from_dict(columns.preprocessing)

    @functools.cached_property
    def params(self) -> Tree:
        """The parameters, as the model has them."""
        if self.description.stored == "clients":
            raise HoldfastError(f"{self.path}: {self._which()}", about=("client",))
        leaves, names = self.shapes
        if sorted(self.arrays) != sorted(names):
            raise self._other(", ".join(sorted(self.arrays)), ", ".join(sorted(names)))
        found = []
        for name, like in zip(names, tree.leaves(leaves), strict=True):
            given = self.arrays[name]
            # Files of before had an axis where a number alone has none.
            given = given.reshape(()) if like.shape == () and given.shape == (1,) else given
            if given.shape != like.shape:
                raise self._other(f"{name} {given.shape}", f"{name} {like.shape}")
            found.append(given)
        return tree.unflatten(tree.structure(leaves), found)

    @functools.cached_property
    def shapes(self) -> tuple[Tree, list[str]]:
        """Shapes and types of the model's parameters, and their names."""
        about = self.description
        few = Examples(*(jax.ShapeDtypeStruct((1, *a.shape), a.dtype) for a in (about.x, about.y)))
        like = jax.eval_shape(self.model.init, host_key(0), few)
        return like, [name or "params" for name in paths(like)]

    def _other(self, given: str, wanted: str) -> HoldfastError:
        return HoldfastError(
            f"{self.path}: its parameters are {given}, and {self.model.name} has {wanted}; give the model "
            f"they were trained with.",
            about=("model",),
        )

    def _which(self) -> str:
        named = ", ".join(self.clients[:_MOST_NAMED])
        more = len(self.clients) - _MOST_NAMED
        named += f" and {more} more" if more > 0 else ""
        return (
            f"{self.description.method} has a model for each client; say whose, by client= (--client): "
            f"{named}. {self._for_a_new_one()}"
        )

    def _for_a_new_one(self) -> str:
        about = self.description
        if not about.server_trained:
            return f"A new site has none: {about.method} trains no common model; train one for it."
        after = " after local steps on its own data" if about.adapts else ""
        return f"A new site begins with the server's{after}: model.server (--server)."

    def for_client(self, name: str | int) -> "SavedModel":
        """The model one client uses, by its name or number; the server's where methods are not personal."""
        about = self.description
        wanted = str(name)
        if isinstance(name, int | np.integer) and 0 <= name < len(self.clients):
            wanted = self.clients[name]
            # people called 1, 2, 3, ... are numbered 0, 1, 2, ...
            if str(name) in self.clients and wanted != str(name):
                raise HoldfastError(
                    f"{self.path}: client number {name} is called `{wanted}`, and another one `{name}`; give "
                    f'the name as text, "{wanted}" or "{name}".',
                    about=("client",),
                )
        if wanted not in self.clients:
            hint = did_you_mean(str(name), self.clients)
            new = "" if not about.personal else f" {self._for_a_new_one()}"
            raise HoldfastError(
                f"{self.path}: no client is called `{name}`; {hint}{new}", about=("client",)
            )
        if about.not_stored and about.stored == "server":
            raise HoldfastError(f"{self.path}: {about.not_stored}", about=("client",))
        if about.stored == "client" and about.client != wanted:
            raise HoldfastError(
                f"{self.path} holds the model of client {about.client} alone, not of {wanted}.",
                about=("client",),
            )
        if about.stored != "clients":
            return self
        number = self.clients.index(wanted)
        return self._with(CLIENTS, "client", wanted, number)

    @property
    def server(self) -> "SavedModel":
        """The server's model, where clients have models of their own."""
        about = self.description
        if about.stored == "client":
            raise HoldfastError(f"{self.path} holds the model of client {about.client} alone.")
        if not about.server_trained:
            raise HoldfastError(
                f"{self.path}: {about.method} trains no common model, the server's is as it began; use a "
                f"client's: {', '.join(self.clients[:_MOST_NAMED])}."
            )
        return self if about.stored == "server" else self._with(SERVER, "server", None, None)

    def _with(self, prefix: str, stored: Any, client: str | None, row: int | None) -> "SavedModel":
        arrays = {
            name.removeprefix(prefix): array if row is None else np.asarray(array[row])
            for name, array in self.arrays.items()
            if name.startswith(prefix)
        }
        about = dataclasses.replace(self.description, stored=stored, client=client)
        return dataclasses.replace(self, description=about, arrays=arrays)

    def save(self, path: str | Path) -> Path:
        """Write it to a file of its own, such as one client's model out of a run's."""
        return file.write(Path(path), self.arrays, self.description)

    def export(self, path: str | Path, format: Literal["stablehlo", "onnx"] = "stablehlo") -> Path:
        """Write it as a program that needs no holdfast; what goes in and out is in `.json` beside it.

        Args:
            path: the file to write.
            format: `"stablehlo"`, which `jax.export.deserialize` reads, or `"onnx"`, which needs jax2onnx.
        """
        from holdfast.saved.export import export

        return export(self, path, format)[0]

    def inputs(self, table: Any) -> np.ndarray:
        """What the model computes with: new rows after preprocessing, in the order of its inputs."""
        about = self.description
        found = rows.inputs(table, about.x, about.columns, self.preprocessing)
        if found.shape[1:] != about.x.shape:
            found = found.reshape(len(found), *about.x.shape)
        labels = np.zeros((len(found), *about.y.shape), about.y.dtype)
        self.model.check_examples(Examples(found, labels), "predict", ("data",))
        return found

    def outputs(self, table: Any) -> np.ndarray:
        """What the model says of each row, as `hf.Model.predict`: probabilities, or numbers."""
        params, x = self.params, self.inputs(table)
        if not len(x):
            return np.zeros((0, *self._output.shape[1:]), self._output.dtype)
        parts = [x[i : i + _ROWS_AT_ONCE] for i in range(0, len(x), _ROWS_AT_ONCE)]
        # As precise as it was trained, whatever this process computes with.
        with jax.enable_x64(self.wide), uncompiled(self.model):
            return np.concatenate([np.asarray(self._predict(params, part)) for part in parts])

    @property
    def wide(self) -> bool:
        """Whether it was trained in 64 bits."""
        wide = any(a.dtype.itemsize == 8 for a in self.arrays.values())
        return wide or bool(jax.config.read("jax_enable_x64"))

    @functools.cached_property
    def _predict(self) -> Any:
        return jax.jit(lambda params, x: self.says(params, Examples(x, None)))

    @property
    def says(self) -> Callable[[Tree, Tree], Any]:
        """The function of parameters and examples that predicts."""
        model = self.model
        if model.predictor is None and model.output is None:
            raise HoldfastError(
                f"{self.path}: {model.name} does not say what it predicts; make it with a `predictor` or an "
                f"`output` and give hf.load(path, model=...).",
                about=("model",),
            )
        return model.logits if model.predictor is None else model.predict

    @functools.cached_property
    def _output(self) -> Any:
        one = jax.ShapeDtypeStruct((1, *self.description.x.shape), self.description.x.dtype)
        return jax.eval_shape(self._predict, self.shapes[0], one)

    def predict_proba(self, table: Any) -> np.ndarray:
        """The probability of each label, a column each in the order of `label_names`.

        Of several labels at once, the probability that a row has it; not of regressions.
        """
        task = self.description.task
        if task == "numbers":
            raise HoldfastError(
                f"predict_proba: {self.model.name} predicts numbers, which have no probabilities; use "
                f"predict."
            )
        found = self.outputs(table)
        return np.stack([1 - found, found], axis=-1) if task == "binary" else found

    def predict(self, table: Any) -> np.ndarray:
        """The most probable label of each row, by its name where labels have names; or a number.

        Of several labels at once, a column of truth values for each.
        """
        if self.description.task == "numbers":
            found = self.outputs(table)
            return found if self.preprocessing is None else self.preprocessing.restore(found)
        found = self.predict_proba(table)
        if self.description.task == "labels":
            return found > 0.5
        return self.named(found.argmax(axis=-1))

    def calibrate(self, table: Any, labels: Any, score: Score | str | None = None) -> "SavedModel":
        """The model with what `sets` and `intervals` rest on: how wrong it is on rows it has never seen.

        Args:
            table: rows that were neither trained on nor chosen by, as for `predict`.
            labels: their labels, by name where labels have names; or their numbers.
            score: `"lac"`, `"aps"`, `"raps"` or an `hf.conformal.Score`; `"lac"` unless given, and of numbers
                `"residual"`.

        Example:
            >>> import holdfast as hf
            >>> import numpy as np, tempfile
            >>> x = np.linspace(0, 1, 40)[:, None]
            >>> y = 3 * x[:, 0] + np.where(np.arange(40) % 2, 0.1, -0.1)
            >>> train = hf.Clients.from_datasets([hf.Examples(x[:20], y[:20])])
            >>> model, local = hf.models.least_squares(), hf.Local(learning_rate=0.5, steps=400)
            >>> run = hf.simulate(hf.algorithms.fedavg(), model, train, local, rounds=1)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     saved = hf.load(run.save(f"{folder}/line.safetensors"))
            >>> sure = saved.calibrate(x[20:], y[20:])
            >>> low, high = sure.intervals(np.array([[0.5]]), coverage=0.9)[0]
            >>> bool(low < 1.5 < high)
            True
        """
        columns, task = self.description.columns, self.description.task
        known_score = as_score(score or ("residual" if task == "numbers" else "lac"))
        if known_score.of_numbers != (task == "numbers"):
            raise HoldfastError(
                f"calibrate: score `{known_score.name}`, and {self.model.name} predicts "
                + ("numbers; use `residual`." if task == "numbers" else "labels; use `lac`."),
                about=("score",),
            )
        if task == "numbers":
            numbers = np.asarray(labels, np.float64)
            predicted = self.predict(table)
            if numbers.shape != predicted.shape or not np.isfinite(numbers).all():
                raise HoldfastError(
                    f"calibrate: labels of shape {numbers.shape} for predictions of {predicted.shape}; give "
                    f"a finite number for each row.",
                    about=("labels",),
                )
            about = with_calibration(self.description, predicted, numbers, known_score)
        else:
            found = self._one_label("calibrate", table)
            known = label_numbers(labels, columns, self.classes, "calibrate")
            if len(known) != len(found):
                raise HoldfastError(
                    f"calibrate: {len(known)} labels for {len(found)} rows; give one for each.",
                    about=("labels",),
                )
            about = with_calibration(self.description, found, known, known_score)
        return dataclasses.replace(self, description=about)

    @property
    def calibration(self) -> Calibration:
        """What it was calibrated with: scores of rows, for the functions of `hf.conformal`."""
        return calibration_of(self.description, "calibration")

    def sets(self, table: Any, coverage: float = 0.9) -> np.ndarray:
        """Which labels a row may have, a truth value for each: the right one among them as often as asked.

        Needs `calibrate`, and holds of rows like those it was calibrated with, all together.
        """
        found = calibration_of(self.description, "sets")
        kappa = kappa_of(coverage, "sets")
        return found.sets(self._one_label("sets", table), kappa)

    def intervals(self, table: Any, coverage: float = 0.9) -> np.ndarray:
        """From where to where a row's number may be, as often as `coverage`; needs `calibrate`."""
        if self.description.task != "numbers":
            raise HoldfastError(
                f"intervals: {self.model.name} predicts labels; use sets.", about=("table",)
            )
        known = calibration_of(self.description, "intervals")
        kappa = kappa_of(coverage, "intervals")
        return known.intervals(self.predict(table), kappa)

    def _one_label(self, what: str, table: Any) -> np.ndarray:
        """Probabilities of a model that gives every row one label."""
        if self.description.task not in ("classes", "binary"):
            raise HoldfastError(
                f"{what}: {self.model.name} does not predict one label for each row; "
                + ("use intervals." if self.description.task == "numbers" else "use predict_proba.")
            )
        found = self.predict_proba(table)
        if found.ndim != 2:
            raise HoldfastError(
                f"{what}: {self.model.name} predicts {found.shape[1:]} for each row; use predict_proba."
            )
        return found

    def named(self, labels: np.ndarray) -> np.ndarray:
        """Labels by their names, where they have names."""
        return labels if self.label_names is None else np.asarray(self.label_names)[labels]
