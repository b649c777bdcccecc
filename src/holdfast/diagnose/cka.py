"""How alike the features of clients' models are, layer by layer: centred kernel alignment."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.diagnose.features import Features, features_of, grams
from holdfast.errors import HoldfastError, explain_arguments, whole_number
from holdfast.evaluate.protocol import EvaluationView
from holdfast.models.model import Model
from holdfast.trees import Tree

NAME = "cka"
TO_SERVER = "cka_server"
CLIENTS = "cka_clients"


@explain_arguments
def linear_cka(a: Any, b: Any) -> float:
    r"""Linear centred kernel alignment of two sets of features of the same examples.

    With $A$ and $B$ the features, centred to mean 0 over the examples, one row per example,

    $$ \mathrm{CKA} = \frac{\|B^\top A\|_F^2}{\|A^\top A\|_F\, \|B^\top B\|_F} $$

    1 if one is a rotated and scaled copy of the other, near 0 if they have nothing to do with each
    other and there are many more examples than features. NaN if either is the same for all examples.

    Args:
        a: an array with one row per example; further axes count as features.
        b: another for the same examples, of any width.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> a = np.random.default_rng(0).normal(size=(500, 3))
        >>> turned = 2 * a @ np.array([[0, 1, 0], [-1, 0, 0], [0, 0, 1]])
        >>> other = np.random.default_rng(1).normal(size=(500, 4))
        >>> round(hf.diagnose.linear_cka(a, turned), 6), hf.diagnose.linear_cka(a, other) < 0.02
        (1.0, True)

    Reference: Kornblith et al., "Similarity of neural network representations revisited", ICML 2019.
    """
    both = [np.asarray(side, np.float64) for side in (a, b)]
    if any(side.ndim < 1 for side in both) or len(both[0]) != len(both[1]):
        raise HoldfastError(
            f"linear_cka: features of shapes {both[0].shape} and {both[1].shape}; give one row per example, "
            f"of the same examples.",
            about=("b",),
        )
    flat = [side.reshape(len(side), -1) for side in both]
    centred = [side - side.mean(axis=0, keepdims=True) for side in flat]
    k, m = (_products(side) for side in centred)
    return float(_alignment(np.stack([k, m]))[0, 1])


def _products(centred: np.ndarray) -> np.ndarray:
    """Products of every two examples, in blocks of features: none is copied as a whole."""
    found = np.zeros((len(centred), len(centred)))
    for begin in range(0, centred.shape[1], 4096):
        block = centred[:, begin : begin + 4096]
        found += block @ block.T
    return found


def _alignment(several: np.ndarray) -> np.ndarray:
    """The matrix of alignments, of n x n products of centred features."""
    flat = several.reshape(len(several), -1).astype(np.float64)
    inner = flat @ flat.T
    sizes = np.sqrt(np.diag(inner))
    with np.errstate(invalid="ignore", divide="ignore"):
        found = inner / np.outer(sizes, sizes)
    known = sizes > 0
    # Of one with itself it is 1, whatever the rounding.
    np.fill_diagonal(found, np.where(known, 1.0, np.nan))
    return found


@dataclasses.dataclass(frozen=True)
class ModelAlignment:
    """Alignment of the features of the models that a round's clients have trained."""

    examples: Any
    every: int = 10
    rows: int = 256
    clients: int = 20
    features: Features | None = None
    keeps_last_models = True

    def check(self, model: Model, params: Tree, clients: int) -> None:
        """Refuse examples the model cannot take, and a model whose layers nobody knows."""
        batch = self._batch()
        if len(tree.leaves(batch)[0]) < 3:
            raise HoldfastError(
                f"cka: {len(tree.leaves(batch)[0])} examples; give at least 3, and better some hundred.",
                about=("examples",),
            )
        model.check_examples(batch, "cka", ("evaluate",))
        shapes = jax.eval_shape(self._features(model, params, batch), params, batch)
        if not isinstance(shapes, Mapping) or not all(
            getattr(a, "shape", ())[:1] == (len(tree.leaves(batch)[0]),) for a in shapes.values()
        ):
            raise HoldfastError(
                "cka: `features` must return arrays by name, each with one row per example.",
                about=("features",),
            )

    def columns(self, measured: list[str]) -> list[str]:
        """Nothing of any model: what it writes has the names of layers in it."""
        return []

    def _batch(self) -> Tree:
        size = len(tree.leaves(self.examples)[0])
        chosen = np.unique(np.linspace(0, size - 1, min(self.rows, size)).astype(int))
        return tree.map(lambda a: jnp.asarray(np.asarray(a)[chosen]), self.examples)

    def _features(self, model: Model, params: Tree, batch: Tree) -> Features:
        return self.features or features_of(model, params, batch)

    def __call__(self, view: EvaluationView) -> dict[str, Any]:
        entry = view.state.ledger.entries[-1]
        ids = np.setdiff1d(entry.clients, entry.left_out).astype(np.int64)
        if len(ids) > self.clients:
            ids = ids[np.linspace(0, len(ids) - 1, self.clients).astype(int)]
        if len(ids) < 2:
            return {}
        batch = self._batch()
        features = self._features(view.model, view.state.params, batch)
        models = [view.latest(int(i)) for i in ids]
        found = [grams(features, params, batch) for params in (*models, view.state.params)]
        out: dict[str, Any] = {}
        others = ~np.eye(len(ids), dtype=bool)
        for layer in found[0]:
            matrix = _alignment(np.stack([f[layer] for f in found]))
            # The last row is the server's model after the round.
            means = {NAME: matrix[:-1, :-1][others], TO_SERVER: matrix[-1, :-1]}
            for name, values in means.items():
                if not np.isnan(values).all():
                    out[f"{name}/{layer}"] = float(np.nanmean(values))
            out[f"{NAME}_matrix/{layer}"] = matrix
        return out | {CLIENTS: ids}


@explain_arguments
def cka(
    examples: Tree,
    every: int = 10,
    rows: int = 256,
    clients: int = 20,
    features: Features | None = None,
) -> ModelAlignment:
    r"""Into the history: how alike the clients' models see the same examples, layer by layer.

    Linear centred kernel alignment (`hf.diagnose.linear_cka`) of what a layer puts out, before the
    activation function, on a batch that every model is given:

    - `cka/<layer>`, the mean over pairs of clients of the models they trained in the round, before they
      are averaged: what FedPVR's figures show;
    - `cka_server/<layer>`, the mean over clients of the same between the model a client trained and the
      server's model after the round.

    Near 1 clients have learnt the same features, and averaging their models is harmless; where a
    layer's falls towards 0 they see the batch in different ways. Matrices over pairs are in
    `run.history.details`, as `cka_matrix/<layer>` with the server's model in the last row and column, of the
    clients `cka_clients`.

    Layers are the Flax modules with parameters, in the order in which they are called. Clients keep the model
    they trained last. Costs a pass of each client's model over the batch, and memory for one matrix of
    `rows` x `rows` numbers per layer and client. Write `[[evaluate.also]]` with `name = "cka"` into an
    experiment file, and which test set in `on`.

    Args:
        examples: the batch: a data set, of which rows are taken.
        every: rounds between measurements.
        rows: of the examples at most, spread evenly.
        clients: of the round's at most, spread evenly.
        features: `(params, batch) -> {name: array}` with one row per example, for models that are not of
            Flax, or for other features than layers' outputs.

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.digits()
        >>> clients = hf.data.partition.dirichlet(train, clients=5, concentration=0.1)
        >>> run = hf.simulate(
        ...     hf.algorithms.fedavg(),
        ...     hf.models.mlp([32], classes=10),
        ...     clients,
        ...     hf.Local(learning_rate=0.1, epochs=1, batch_size=20),
        ...     rounds=1,
        ...     evaluate=hf.diagnose.cka(test, every=1),
        ... )
        >>> hidden, last = (run.history[f"cka/{name}"][0] for name in ("hidden_0", "classifier"))
        >>> bool(hidden > last)
        True

    Reference: Kornblith et al., "Similarity of neural network representations revisited", ICML 2019;
    Li et al., "On the effectiveness of partial variance reduction in federated learning with heterogeneous
    data", CVPR 2023, figure 2.
    """
    if features is not None and not callable(features):
        raise HoldfastError(
            f"cka: features={features!r}; give a function (params, batch) -> {{name: array}}.",
            about=("features",),
        )
    return ModelAlignment(
        examples,
        whole_number("cka", "every", every),
        whole_number("cka", "rows", rows, least=3),
        whole_number("cka", "clients", clients, least=2),
        features,
    )
