"""An engine that visits clients one by one, and lets PyTorch take their local steps."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from holdfast import processes
from holdfast.core.algorithm import Algorithm
from holdfast.core.client import Preparation
from holdfast.core.round import federated_round
from holdfast.core.round_types import ClientState, Reply, RoundInputs, RoundResult, Shared, Slot
from holdfast.engine.experiment import Experiment
from holdfast.engine.layout import SlotLayout
from holdfast.engine.protocol import Placement
from holdfast.errors import HoldfastError, explain_constructor
from holdfast.models.model import Model
from holdfast.torch.rounds import prepare, round_by, visit
from holdfast.trees import Tree, describe_shapes


@explain_constructor
@dataclasses.dataclass(frozen=True)
class Engine:
    """Clients one after another, with PyTorch at them; the rest of the round is computed by JAX.

    Models of `holdfast.torch.model` are run by it without being asked for. Ask for it to let some
    clients of a run be sites with PyTorch, and the others with JAX.

    Args:
        model: by which clients train, made by `holdfast.torch.like`; the run's own unless given.
        clients: the numbers of those that do; all unless given.

    Example:
        >>> import holdfast as hf
        >>> import holdfast.torch
        >>> import torch
        >>> train, _ = hf.data.digits()
        >>> clients = hf.data.partition.iid(train, clients=3)
        >>> reference = hf.models.mlp([8], classes=10)
        >>> module = torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.ReLU(), torch.nn.Linear(8, 10))
        >>> same = holdfast.torch.like(reference, train, module, classes=10)
        >>> local = hf.Local(learning_rate=0.1, steps=2)
        >>> runs = [
        ...     hf.simulate(hf.algorithms.fedavg(), reference, clients, local, 2, engine=engine)
        ...     for engine in (None, holdfast.torch.Engine(same, clients=[0, 2]))
        ... ]
        >>> a, b = (run.params["classifier"]["kernel"] for run in runs)
        >>> bool(abs(a - b).max() < 1e-6)
        True
    """

    model: Model | None = None
    clients: Sequence[int] | None = None

    def __post_init__(self) -> None:
        if self.clients is not None:
            if self.model is None:
                raise HoldfastError(
                    "Engine: clients are given and no model; give the one they train by, "
                    "Engine(holdfast.torch.like(...), clients=...).",
                    about=("clients",),
                )
            object.__setattr__(self, "clients", tuple(int(i) for i in self.clients))
        if self.model is not None and getattr(self.model, "engine", None) is None:
            raise HoldfastError(
                "Engine: the model is not one of PyTorch; give what holdfast.torch.like or "
                "holdfast.torch.model returns.",
                about=("model",),
            )

    @property
    def local_devices(self) -> int:
        """There is one device."""
        return 1

    def check(self, experiment: Experiment, params: Tree) -> None:
        """Refuse what cannot be run client by client in another framework."""
        if self.model is None and experiment.model.engine is None:
            raise HoldfastError(
                f"Engine: {experiment.model.name} is not a model of PyTorch; give "
                f"Engine(holdfast.torch.like(...)), or simulate with holdfast.torch.model(...).",
                about=("engine",),
            )
        whole = "leave simulate(engine=...) out and use a model of JAX's"
        refused = {
            "select cuts tables that PyTorch has whole": experiment.select,
            "populations that were joined have losses of their own": (
                experiment.clients.populations is not None
            ),
            "a run of several processes shares clients among them": processes.count() > 1,
        }
        for why, found in refused.items():
            if found:
                raise HoldfastError(f"holdfast.torch: {why}; {whole}.", about=("engine",))
        self._check_clients(experiment, params)

    def _check_clients(self, experiment: Experiment, params: Tree) -> None:
        if self.model is None:
            return
        count = len(experiment.clients)
        if self.clients is not None and experiment.algorithm.regroup is not None:
            raise HoldfastError(
                f"Engine: clients are given, and {experiment.algorithm.name} pools their data; leave clients "
                f"out.",
                about=("clients",),
            )
        odd = [i for i in self.clients or () if not 0 <= i < count]
        if odd:
            raise HoldfastError(
                f"Engine: client {odd[0]} of {count}; give numbers in 0..{count - 1}.",
                about=("clients",),
            )
        shapes = jax.eval_shape(self.model.init, jax.random.key(0), experiment.clients.examples)
        if describe_shapes(shapes) != describe_shapes(params):
            raise HoldfastError(
                f"Engine: its model has {describe_shapes(shapes)}, the run's {describe_shapes(params)}; give "
                f"what holdfast.torch.like makes of the run's model.",
                about=("model",),
            )

    def layout(self, clients: int, steady: bool, uniform: bool, tiny: bool) -> SlotLayout:
        """No empty slots."""
        return SlotLayout(clients, uniform=True)

    def here(self, slots: int) -> slice:
        """There is one process."""
        return slice(0, slots)

    def everywhere(self, arrays: Tree) -> Tree:
        """There is one device."""
        return jax.device_put(arrays)

    def prepare(self, t: int, inputs: Preparation) -> Tree:
        """Clients' work before their first round."""
        own, ours = self.model or inputs.model, self._ours(inputs.slots)
        fresh: Any = np.asarray(inputs.fresh)
        states = prepare(dataclasses.replace(inputs, model=own, fresh=fresh & ours))
        if ours.all():
            return states
        return prepare(dataclasses.replace(inputs, states=states, fresh=fresh & ~ours))

    def _ours(self, slots: Slot) -> np.ndarray:
        """Which of the slots train by PyTorch."""
        numbers = np.asarray(slots.client)
        return np.isin(numbers, numbers if self.clients is None else self.clients)

    def round(self, t: int, inputs: RoundInputs, placement: Placement) -> RoundResult:
        """One round."""
        own, ours = self.model or inputs.model, self.clients
        by_torch, by_jax = round_by(own), round_by(inputs.model)

        def run(shared: Shared, mine: Algorithm, state: ClientState, slot: Slot) -> Reply:
            here = ours is None or int(slot.client) in ours
            return (by_torch if here else by_jax)(shared, mine, state, slot)

        with jax.disable_jit():
            return federated_round(dataclasses.replace(inputs, client_round=run), visit)
