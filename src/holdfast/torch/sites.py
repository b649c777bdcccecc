"""A site that trains by PyTorch: its model, its data, and its half of the round."""

import dataclasses
import functools
from typing import Any

import numpy as np

from holdfast.core.client import Preparation
from holdfast.core.round_types import ClientRound
from holdfast.data.clients import Examples, count
from holdfast.errors import HoldfastError, explain_arguments, explain_constructor
from holdfast.models.model import Model
from holdfast.torch.library import library
from holdfast.torch.models import Loss, model
from holdfast.torch.rounds import prepare, round_by
from holdfast.trees import Tree


@explain_constructor
@dataclasses.dataclass(frozen=True, eq=False)
class Site:
    """One client's side of a federation, with PyTorch: its data stays here.

    `client_round` and `prepare` have the arguments and the result of the library's own (`client_round` and
    `prepare_cohort` of `core/client.py`): whoever runs a client's half runs these instead.

    Args:
        model: of `holdfast.torch.model`, or of `holdfast.torch.like` beside sites with JAX.
        examples: the site's own data.
    """

    model: Model
    examples: Tree

    def __post_init__(self) -> None:
        if getattr(self.model, "engine", None) is None:
            raise HoldfastError(
                "Site: the model is not one of PyTorch; give what holdfast.torch.model or "
                "holdfast.torch.like returns.",
                about=("model",),
            )
        if count(self.examples) == 0:
            raise HoldfastError(
                "Site: its data set is empty; give at least one example.", about=("examples",)
            )
        self.model.check_examples(self.examples, "Site", ("examples",))

    @functools.cached_property
    def client_round(self) -> ClientRound:
        """`(shared, mine, state, slot) -> Reply`: tilt and reply by JAX, the local steps by PyTorch."""
        return round_by(self.model)

    def prepare(self, inputs: Preparation) -> Tree:
        """What its method does here before the first round: the rule's client states."""
        return prepare(dataclasses.replace(inputs, model=self.model))


@explain_arguments
def site(
    module: Any, loss: Loss = "cross_entropy", loader: Any = None, classes: int | None = None
) -> Site:
    """A site that trains an `nn.Module` on its own data.

    Which examples are in which batch, and how many steps there are, is what the experiment says
    (`hf.Local`), as at every other site; of a loader only the data set is used, in its own order.

    Args:
        module: as of `holdfast.torch.model`; or a model that `holdfast.torch.like` returned.
        loss: as of `holdfast.torch.model`.
        loader: a `torch.utils.data.DataLoader` or data set of pairs `(x, y)`, or `hf.Examples`.
        classes: number of classes, if predictions are logits.

    Example:
        >>> import holdfast.torch
        >>> import torch
        >>> data = torch.utils.data.TensorDataset(torch.zeros(6, 4), torch.zeros(6, dtype=torch.int64))
        >>> loader = torch.utils.data.DataLoader(data, batch_size=2)
        >>> hospital = holdfast.torch.site(torch.nn.Linear(4, 3), loader=loader, classes=3)
        >>> hospital.examples.x.shape
        (6, 4)
    """
    made = module if isinstance(module, Model) else model(module, loss, classes)
    return Site(made, examples(loader))


@explain_arguments
def examples(data: Any) -> Examples:
    """Data of PyTorch's as arrays: one row for every pair `(x, y)`.

    Every example is asked for once, in order; what a data set draws at random is drawn that once.

    Args:
        data: a `torch.utils.data.Dataset` or `DataLoader` of pairs, or `hf.Examples`.

    Example:
        >>> import holdfast.torch
        >>> import torch
        >>> pairs = torch.utils.data.TensorDataset(torch.ones(2, 3), torch.tensor([0, 1]))
        >>> holdfast.torch.examples(pairs).y.tolist()
        [0, 1]
    """
    torch = library()
    if isinstance(data, Examples):
        return data
    source = data.dataset if isinstance(data, torch.utils.data.DataLoader) else data
    if not isinstance(source, torch.utils.data.Dataset):
        raise HoldfastError(
            f"examples: a {type(data).__name__} is given; give a torch.utils.data.Dataset or DataLoader of "
            f"pairs (x, y), or hf.Examples.",
            about=("data",),
        )
    iterable = isinstance(source, torch.utils.data.IterableDataset)
    pairs = list(source) if iterable else [source[i] for i in range(len(source))]
    if not pairs:
        raise HoldfastError("examples: the data set is empty.", about=("data",))
    if any(not isinstance(pair, tuple | list) or len(pair) != 2 for pair in pairs):
        raise HoldfastError(
            "examples: the data set has other things than pairs; let it return (x, y).",
            about=("data",),
        )
    return Examples(
        *(np.stack([np.asarray(part) for part in parts]) for parts in zip(*pairs, strict=True))
    )
