"""Mixing predictions instead of weights, for models whose weights do not mix."""

import dataclasses
import functools
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.data.clients import Clients
from holdfast.data.dataset import Dataset
from holdfast.engine.saving import Saving, stacked
from holdfast.engine.simulate import Run
from holdfast.errors import HoldfastError, explain_arguments
from holdfast.flix.optima import Optima
from holdfast.flix.theory import alpha_values
from holdfast.models.mixture import mixture
from holdfast.models.model import Model
from holdfast.saved import file
from holdfast.saved.model import SavedModel
from holdfast.trees import Tree


class Mixed(NamedTuple):
    """Examples, with what their client's own model predicts for them."""

    own: Tree
    local: Any  # predictions of the client's own model
    alpha: Any  # weight of the global model's prediction

    @property
    def y(self) -> Any:
        """The labels of the examples."""
        return self.own.y


@dataclasses.dataclass(frozen=True, eq=False)
class Ensemble:
    """A model whose predictions are mixed with each client's own, and data to train it on."""

    model: Model
    base: Model
    optima: Optima
    alpha: np.ndarray

    def attach(self, clients: Clients) -> Clients:
        """The same clients, with their own models' predictions beside their examples.

        For training data and for test data alike; predictions stay on the client as data do.
        """
        predictor = self.base.predictor
        assert predictor is not None
        if len(clients) != len(self.alpha):
            raise HoldfastError(
                f"ensemble: {len(clients)} clients, but optima of {len(self.alpha)}; "
                f"give data of the same population.",
                about=("clients",),
            )
        predict = jax.jit(predictor.predict)
        rows = [clients.rows(i) for i in range(len(clients))]
        own = [tree.map(lambda a, r=r: np.asarray(a)[r], clients.examples) for r in rows]
        models = [tree.map(lambda a, i=i: a[i], self.optima.x) for i in range(len(clients))]
        local = [
            np.asarray(predict(x, batch))
            for x, batch, r in zip(models, own, rows, strict=True)
            if len(r)
        ]
        dtype = local[0].dtype
        alpha = np.repeat(self.alpha, [len(r) for r in rows]).astype(dtype)
        examples = tree.map(lambda *parts: np.concatenate(parts), *own)
        mixed = Mixed(examples, np.concatenate(local), alpha)
        return Clients(mixed, np.arange(len(alpha)), clients.offsets, names=clients.names)

    def save(
        self,
        run: Run,
        path: str | Path,
        client: int | str | None = None,
        data: Dataset | None = None,
    ) -> Path:
        """Write what every client predicts with to one file for `hf.load`: both models and their shares.

        Args:
            run: of `simulate` with this ensemble's model.
            path: the file.
            client: one client, by name or number, whose ensemble is written alone.
            data: the data set that was trained on, as for `run.save`.
        """
        if run.experiment.model != self.model:
            raise HoldfastError(
                f"ensemble: the run trained {run.experiment.model.name}; give one of this ensemble's model.",
                about=("run",),
            )
        clients = run.experiment.clients
        models = [
            {
                "alpha": np.asarray(self.alpha[i], np.float32),
                "own": tree.map(lambda a, i=i: np.asarray(a[i]), self.optima.x),
                "server": run.personal(i) if clients.sizes[i] else run.params,
            }
            for i in range(len(clients))
        ]
        saving = Saving(run.simulation, run.deployed, data=data, kept=run.kept)
        model = mixture(self.base)
        about = saving.description_of(model, clients.examples.own, models[0])
        # Of the server's model alone the ensemble is the one at alpha 1.
        server = {"alpha": np.ones((), np.float32), "own": run.params, "server": run.params}
        arrays, about = stacked(models, clients, server, about)
        if client is None:
            return file.write(Path(path), arrays, about)
        return SavedModel(about, model, arrays, Path(path)).for_client(client).save(path)


@explain_arguments
def ensemble(model: Model, optima: Optima, alpha: Any) -> Ensemble:
    r"""FLIX for models whose weights do not mix: the ensemble of two predictions.

    $$ \min_x \tfrac1n \sum_i \ell\big(\alpha_i h(x) + (1 - \alpha_i) h(x_i)\big) $$

    The authors' answer to models with more than one local optimum. Every method of holdfast trains
    it, on `ensemble.attach(clients)`; the personal prediction is that of `ensemble.model` on test
    data that went through `attach` too. Classifiers mix probabilities, regressions numbers; penalties
    of parameters are not part of a prediction and left out.

    Args:
        model: one with a `predictor`, as all of `hf.models` that classify or regress.
        optima: `hf.flix.local_optima`, or those of clusters.
        alpha: $\alpha_i$ in [0, 1]: a number or one per client.

    Reduces to: the model alone at `alpha=1`.

    Example:
        >>> import holdfast as hf
        >>> train, _ = hf.data.digits()
        >>> clients = hf.data.partition.iid(train, clients=2)
        >>> model = hf.models.softmax_regression(10)
        >>> optima = hf.flix.local_optima(model, clients, hf.solvers.LBFGS(tolerance=0.1))
        >>> both = hf.flix.ensemble(model, optima, alpha=0.5)
        >>> local = hf.Local(0.1, steps=2, batch_size=10)
        >>> run = hf.simulate(
        ...     hf.algorithms.fedavg(), both.model, both.attach(clients), local, rounds=1
        ... )

    Reference: Gasanov et al., "FLIX", AISTATS 2022, section 11.
    """
    if model.predictor is None:
        raise HoldfastError(
            f"ensemble: {model.name} does not say what it predicts; "
            f"give hf.Model(predictor=hf.models.Predictor(predict, metrics)).",
            about=("model",),
        )
    if model.engine is not None:
        raise HoldfastError(
            f"ensemble: another framework computes {model.name}, whose predictions JAX cannot differentiate; "
            f"use the same network as a model of JAX's.",
            about=("model",),
        )
    if model.class_weights is not None:
        raise HoldfastError(
            "ensemble: the loss of the model weights classes, and that of mixed predictions does not; give "
            "the model without weights.",
            about=("model",),
        )
    values = alpha_values("ensemble", alpha, len(optima.gradient_norms))
    return Ensemble(_mixed_model(model), model, optima, values)


@functools.lru_cache(maxsize=64)
def _mixed_model(model: Model) -> Model:
    predictor: Any = model.predictor

    def metrics(params: Tree, batch: Mixed) -> dict[str, jax.Array]:
        predicted = predictor.predict(params, batch.own)
        alpha = batch.alpha.reshape(batch.alpha.shape + (1,) * (predicted.ndim - 1))
        return predictor.metrics(alpha * predicted + (1 - alpha) * batch.local, batch.own)

    def check(examples: Mixed) -> None:
        if not isinstance(examples, Mixed):
            raise HoldfastError(
                "ensemble: the data has no predictions of the clients' own models; "
                "give ensemble.attach(clients)."
            )
        if model.check is not None:
            model.check(examples.own)

    def init(key: jax.Array, examples: Mixed) -> Tree:
        return model.init(key, examples.own)

    def loss(params: Tree, batch: Mixed) -> jnp.ndarray:
        return metrics(params, batch)["loss"]

    name, up = f"ensemble of {model.name}", model.greater_is_better
    return Model(init, loss, metrics, check, name, greater_is_better=up)
