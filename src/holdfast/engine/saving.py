"""A run's models as files that predict without it: whose they are, and what is said of them."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax import tree

from holdfast.conformal import Conformal
from holdfast.data.clients import Clients
from holdfast.data.dataset import Dataset
from holdfast.data.grouped import Grouped
from holdfast.data.preprocessing.columns import text
from holdfast.engine.simulation import Simulation
from holdfast.models.model import Model
from holdfast.record.state import RunState
from holdfast.record.versions import versions
from holdfast.saved.calibrated import with_scores
from holdfast.saved.description import ArrayType, Columns, Description
from holdfast.saved.file import Arrays, by_name
from holdfast.saved.model import CLIENTS, SERVER
from holdfast.saved.rebuild import code_digest
from holdfast.saved.task import task_of
from holdfast.trees import Tree, nbytes

# Clients whose names a file lists although their models are not in it.
_MOST_NAMES = 10_000
_LIBRARIES = ("python", "holdfast", "jax", "jaxlib", "flax", "numpy")


@dataclasses.dataclass(frozen=True)
class Saving:
    """The models of a run after a round.

    Args:
        simulation: the run.
        state: after that round.
        method: what people call the method; its own name unless given.
        data: the data set it was trained on, for names and preprocessing.
        table: how the table was read, as the `[data]` of a file says it: `label`, `positive`, `columns`.
        kept: why the state is not the last one, if it is not.
        columns: what inputs and labels are called, if there is no data set to ask.
    """

    simulation: Simulation
    state: RunState
    method: str | None = None
    data: Dataset | None = None
    table: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    kept: str = ""
    columns: Columns | None = None

    @property
    def personal(self) -> bool:
        """Whether clients use other models than the server's."""
        simulation = self.simulation
        return simulation.setup.adapt is not None or not simulation.deploys_server_model

    @property
    def personal_bytes(self) -> int:
        """The size of all clients' own models and the server's."""
        return (len(self._clients) + 1) * nbytes(self.state.params)

    @property
    def _clients(self) -> Clients:
        return self.simulation.setup.clients

    def server(self, not_stored: str = "") -> tuple[Arrays, Description]:
        """The server's model, with what its sets and intervals rest on where the run calibrated it."""
        about = dataclasses.replace(self.description, not_stored=not_stored)
        return by_name(self.state.params), self._calibrated(about)

    def _calibrated(self, about: Description) -> Description:
        """Not of models of clients' own, nor where every client has a threshold of its own."""
        setup = self.simulation.setup
        asked = [e for e in setup.evaluators if isinstance(e, Conformal) and not e.name]
        if not asked or self.personal or about.task is None:
            return about
        found = asked[0].shared(self.simulation.view(self.state))
        scores = None if found is None else found.rounded_up
        if found is None or scores is None:
            return about
        if found.score.of_numbers:
            scores = scores * (unit_of(self.data) / asked[0].unit)
        return with_scores(about, scores, found.score)

    def client(self, client: int | str) -> tuple[Arrays, Description]:
        """The model one client uses."""
        number = self.simulation.experiment.clients.number(client)
        if not self.personal:
            return self.server()
        name = self._clients.name(number)
        about = dataclasses.replace(self.description, stored="client", client=name)
        return by_name(self._model_of(number)), about

    def everybody(self) -> tuple[Arrays, Description]:
        """All clients' own models along a leading axis, and the server's, by names that tell them apart."""
        models = [self._model_of(i) for i in range(len(self._clients))]
        return stacked(models, self._clients, self.state.params, self.description)

    def _model_of(self, client: int) -> Tree:
        # Without data there is nothing of its own.
        if self._clients.sizes[client] == 0:
            return self.state.params
        return self.simulation.view(self.state).personal(client)

    @property
    def description(self) -> Description:
        """What is true of every model of the run."""
        experiment = self.simulation.experiment
        return self.description_of(experiment.model, experiment.clients.examples, self.state.params)

    def description_of(self, model: Model, examples: Tree, params: Tree) -> Description:
        """What is true of another model that the run's is part of."""
        experiment, setup = self.simulation.experiment, self.simulation.setup
        clients = experiment.clients
        few = len(clients) <= _MOST_NAMES
        return described(
            model,
            examples,
            params,
            method=self.method or setup.algorithm.name,
            round=self.state.round,
            seed=experiment.seed,
            columns=self.columns if self.data is None else columns_of(self.data, self.table),
            clients=tuple(clients.name(i) for i in range(len(clients))) if few else (),
            personal=self.personal,
            server_trained=not _equal(self.state.params, setup.params),
            adapts=setup.adapt is not None,
            kept=self.kept,
        )


def described(model: Model, examples: Tree, params: Tree, **known: Any) -> Description:
    """What is true of a model that takes such examples, with what is known of it besides."""
    x, y, odd = _types(examples)
    noted = model.constructor
    constructor = None if noted is None or odd else noted.to_dict()
    why = odd or f"{model.name} was not made by a function of hf.models with plain values"
    return Description(
        task=None if odd else task_of(model, params, x, y),
        x=x,
        y=y,
        versions={n: v for n, v in versions().items() if n in _LIBRARIES},
        constructor=constructor,
        code=code_digest(constructor),
        unbuildable="" if constructor else why,
        **known,
    )


def stacked(
    models: Sequence[Tree], clients: Clients, server: Tree, about: Description
) -> tuple[Arrays, Description]:
    """Models of all clients in one file, beside the server's."""
    named = [by_name(model) for model in models]
    arrays = {CLIENTS + name: np.stack([m[name] for m in named]) for name in named[0]}
    names = tuple(clients.name(i) for i in range(len(clients)))
    about = dataclasses.replace(about, stored="clients", clients=names, personal=True)
    return arrays | by_name(server, SERVER), about


def unit_of(data: Dataset | None) -> float:
    """What one unit of a model's numbers is in those of the table it was trained on."""
    target = None if data is None or data.preprocessing is None else data.preprocessing.target
    return 1.0 if target is None else float(target.scale)


def columns_of(data: Dataset, table: Mapping[str, Any]) -> Columns:
    """What inputs and labels are called, and how a table became inputs."""
    made = data.preprocessing
    if made is None:  # no table: what it is read with may have keys of the same names
        return Columns(data.feature_names, data.label_names)
    positive, names = table.get("positive"), table.get("columns")
    if positive is not None:
        listed = positive if isinstance(positive, list | tuple) else [positive]
        positive = tuple(str(text(value)) for value in listed)
    return Columns(
        features=data.feature_names,
        labels=data.label_names,
        preprocessing=made.to_dict(),
        target=table.get("label"),
        positive=positive,
        names=None if names is None else tuple(names),
        separator=table.get("separator"),
    )


def _types(examples: Any) -> tuple[ArrayType, ArrayType, str]:
    """What an example's parts are; and why they cannot be predicted from, if so."""
    odd = ""
    if isinstance(examples, Grouped):
        odd = f"its clients are of {len(examples.whose)} populations, each with a model of its own"
        examples = examples.of(0)
    fields = getattr(examples, "_fields", ())
    if not odd and set(fields) != {"x", "y"}:
        odd = f"its examples have the fields {', '.join(fields) or 'of none'}, not x and y alone"
    if {"x", "y"} <= set(fields):
        return _type(examples.x), _type(examples.y), odd
    return ArrayType((), "float32"), ArrayType((), "float32"), odd


def _type(array: Any) -> ArrayType:
    return ArrayType(
        tuple(int(n) for n in np.shape(array)[1:]), str(jax.numpy.asarray(array[:1]).dtype)
    )


def _equal(a: Tree, b: Tree) -> bool:
    pairs = zip(tree.leaves(a), tree.leaves(b), strict=True)
    return all(np.array_equal(np.asarray(p), np.asarray(q), equal_nan=True) for p, q in pairs)
