"""The problems' models in PyTorch, and their weights in the names and layouts of the task file."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
import torch
from problems import Arrays, Problem
from torch import Tensor, nn
from torch.nn import functional


class Dense(nn.Module):
    """Dense layers with ReLU between them: logistic regression and the MLP."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        shapes = [s for name, s in problem.layers.items() if name.endswith("kernel")]
        self.layers = nn.ModuleList(nn.Linear(*shape) for shape in shapes)

    def forward(self, x: Tensor) -> Tensor:
        *hidden, last = self.layers
        for layer in hidden:
            x = functional.relu(layer(x))
        return last(x)


class CNN(nn.Module):
    """Two convolutions with pooling, then dense layers."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.convolutions = nn.ModuleList([nn.Conv2d(3, 64, 5), nn.Conv2d(64, 64, 5)])
        widths = (1600, 384, 192, problem.classes)
        self.layers = nn.ModuleList(map(nn.Linear, widths[:-1], widths[1:]))

    def forward(self, x: Tensor) -> Tensor:
        for convolution in self.convolutions:
            x = functional.max_pool2d(functional.relu(convolution(x)), 2)
        x = x.flatten(1)
        *hidden, last = self.layers
        for layer in hidden:
            x = functional.relu(layer(x))
        return last(x)


class Residual(nn.Module):
    """Two 3 x 3 convolutions, added to what came in."""

    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        stride = 1 if wide == out else 2
        self.convolution_0 = nn.Conv2d(wide, out, 3, stride, 1, bias=False)
        self.norm_0 = nn.GroupNorm(2, out)
        self.convolution_1 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm_1 = nn.GroupNorm(2, out)
        if wide != out:
            self.shortcut = nn.Conv2d(wide, out, 1, stride, bias=False)
            self.shortcut_norm = nn.GroupNorm(2, out)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norm_0(self.convolution_0(x)))
        y = self.norm_1(self.convolution_1(y))
        if hasattr(self, "shortcut"):
            x = self.shortcut_norm(self.shortcut(x))
        return functional.relu(x + y)


class ResNet(nn.Module):
    """ResNet-8 with two groups in each normalisation."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.convolution_0 = nn.Conv2d(3, 16, 3, 1, 1, bias=False)
        self.norm_0 = nn.GroupNorm(2, 16)
        self.stage_0_block_0 = Residual(16, 16)
        self.stage_1_block_0 = Residual(16, 32)
        self.stage_2_block_0 = Residual(32, 64)
        self.classifier = nn.Linear(64, problem.classes)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.relu(self.norm_0(self.convolution_0(x)))
        for stage in (self.stage_0_block_0, self.stage_1_block_0, self.stage_2_block_0):
            x = stage(x)
        return self.classifier(x.mean((2, 3)))


class VGG(nn.Module):
    """VGG-11 without normalisation or dropout; of 32 x 32 pixels one is left."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        widths = [s[-1] for n, s in problem.layers.items() if n.endswith("kernel") and len(s) == 4]
        for i, (wide, out) in enumerate(zip([3, *widths[:-1]], widths, strict=True)):
            setattr(self, f"convolution_{i}", nn.Conv2d(wide, out, 3, 1, 1))
        self.dense_0, self.dense_1 = nn.Linear(512, 512), nn.Linear(512, 512)
        self.classifier = nn.Linear(512, problem.classes)

    def forward(self, x: Tensor) -> Tensor:
        for i in range(8):
            x = functional.relu(getattr(self, f"convolution_{i}")(x))
            x = functional.max_pool2d(x, 2) if i in (0, 1, 3, 5, 7) else x
        x = functional.relu(self.dense_0(x.flatten(1)))
        return self.classifier(functional.relu(self.dense_1(x)))


class LSTM(nn.Module):
    """Two stacked LSTMs over embedded characters; PyTorch's second bias stays zero, the model has one."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        vocabulary, embedding = problem.layers["characters/embedding"]
        self.width = problem.layers["lstm_0/recurrent"][0]
        self.characters = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, self.width, num_layers=2, batch_first=True)
        self.classifier = nn.Linear(self.width, vocabulary)
        for bias in (self.lstm.bias_hh_l0, self.lstm.bias_hh_l1):
            nn.init.zeros_(bias)
            bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.classifier(self.states(self.characters(x))[:, -1])

    def states(self, x: Tensor) -> Tensor:
        """States of the upper LSTM."""
        return self.lstm(x)[0]


class PlainLSTM(LSTM):
    """The same by hand, since `nn.LSTM` cannot be vmapped: one product for all inputs, then the loop."""

    def states(self, x: Tensor) -> Tensor:
        for layer in range(2):
            w, u, b = (
                getattr(self.lstm, f"{name}_l{layer}")
                for name in ("weight_ih", "weight_hh", "bias_ih")
            )
            inputs = functional.linear(x, w, b)
            hidden = cell = torch.zeros_like(inputs[:, 0, : self.width])
            states = []
            for here in inputs.unbind(1):
                let_in, keep, new, let_out = (here + functional.linear(hidden, u)).chunk(4, dim=1)
                cell = keep.sigmoid() * cell + let_in.sigmoid() * new.tanh()
                hidden = let_out.sigmoid() * cell.tanh()
                states.append(hidden)
            x = torch.stack(states, 1)
        return x


def build(problem: Problem, by_hand: bool = False) -> nn.Module:
    """The module of a problem; `by_hand` where it is to be vmapped."""
    images = {"cnn": CNN, "resnet": ResNet, "vgg": VGG}
    if problem.name in images:
        return images[problem.name](problem)
    if problem.words:
        return PlainLSTM(problem) if by_hand else LSTM(problem)
    return Dense(problem)


def _transposed(a: np.ndarray) -> np.ndarray:
    return a.T


def _same(a: np.ndarray) -> np.ndarray:
    return a


def _channels_first(a: np.ndarray) -> np.ndarray:
    return a.transpose(3, 2, 0, 1)


def _channels_last(a: np.ndarray) -> np.ndarray:
    return a.transpose(2, 3, 1, 0)


# The first dense layer after convolutions: pixels are numbered channels first in PyTorch.
def _flattened_first(a: np.ndarray) -> np.ndarray:
    return a.reshape(5, 5, 64, -1).transpose(3, 2, 0, 1).reshape(a.shape[1], -1)


def _flattened_last(a: np.ndarray) -> np.ndarray:
    return a.reshape(-1, 64, 5, 5).transpose(2, 3, 1, 0).reshape(-1, a.shape[0])


Change = Callable[[np.ndarray], np.ndarray]


def _named_alike(name: str, shape: tuple[int, ...]) -> tuple[str, Change, Change]:
    there = name.replace("/kernel", "/weight").replace("/scale", "/weight").replace("/", ".")
    changes = {1: (_same, _same), 2: (_transposed, _transposed)}
    return (there, *changes.get(len(shape), (_channels_first, _channels_last)))


def _names(problem: Problem) -> dict[str, tuple[str, Change, Change]]:
    """Leaf of the task -> PyTorch's name, there and back."""
    if problem.name in ("resnet", "vgg"):
        return {name: _named_alike(name, shape) for name, shape in problem.layers.items()}
    dense = [n.removesuffix("/kernel") for n in problem.layers if n.endswith("kernel")]
    found: dict[str, tuple[str, Change, Change]] = {}
    if problem.words:
        found["characters/embedding"] = ("characters.weight", _same, _same)
        for i in range(2):
            for ours, theirs, change in (
                ("input/kernel", "weight_ih", _transposed),
                ("recurrent", "weight_hh", _transposed),
                ("input/bias", "bias_ih", _same),
            ):
                found[f"lstm_{i}/{ours}"] = (f"lstm.{theirs}_l{i}", change, change)
        dense = ["classifier"]
    if problem.name == "cnn":
        for i in range(2):
            there = f"convolutions.{i}"
            found[f"convolution_{i}/kernel"] = (f"{there}.weight", _channels_first, _channels_last)
            found[f"convolution_{i}/bias"] = (f"{there}.bias", _same, _same)
        dense = dense[2:]
    for i, name in enumerate(dense):
        there = "classifier" if problem.words else f"layers.{i}"
        after_pixels = problem.name == "cnn" and i == 0
        change = (_flattened_first, _flattened_last) if after_pixels else (_transposed, _transposed)
        found[f"{name}/kernel"] = (f"{there}.weight", *change)
        found[f"{name}/bias"] = (f"{there}.bias", _same, _same)
    return found


def to_torch(problem: Problem, params: Arrays) -> dict[str, Tensor]:
    """Weights of the task as PyTorch's."""
    return {
        there: torch.from_numpy(np.ascontiguousarray(change(params[name])))
        for name, (there, change, _) in _names(problem).items()
    }


def from_torch(problem: Problem, state: dict[str, Tensor]) -> Arrays:
    """And back."""
    return {
        name: np.ascontiguousarray(back(state[there].detach().numpy()))
        for name, (there, _, back) in _names(problem).items()
    }


def loaded(problem: Problem, params: Arrays, by_hand: bool = False) -> nn.Module:
    """The module with the task's weights."""
    module = build(problem, by_hand)
    module.load_state_dict(to_torch(problem, params), strict=False)
    return module


def learnt(module: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters that are trained."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def tensors(x: np.ndarray, y: np.ndarray) -> tuple[Tensor, Tensor]:
    """Data as PyTorch wants it: images channels first, labels and characters as 64-bit numbers."""
    if x.ndim == 4:
        x = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    inputs = torch.from_numpy(x)
    return inputs if inputs.is_floating_point() else inputs.long(), torch.from_numpy(y).long()


def index(rows: Iterable[np.ndarray]) -> Iterator[Tensor]:
    """Row numbers as PyTorch indexes by them."""
    return (torch.from_numpy(r).long() for r in rows)


class Trainer:
    """One client's local steps, as anybody would write them; with what a method adds to the gradient."""

    def __init__(self, module: nn.Module, problem: Problem) -> None:
        self.module = module
        self.params = list(learnt(module).values())
        self.optimizer = torch.optim.SGD(self.params, lr=problem.learning_rate)

    def train(
        self,
        server: list[Tensor],
        batches: Iterable[tuple[Tensor, Tensor]],
        linear: list[Tensor],
        pull: float,
    ) -> list[Tensor]:
        """The way from the server's model, in steps over the batches."""
        with torch.no_grad():
            for p, s in zip(self.params, server, strict=True):
                p.copy_(s)
        for x, y in batches:
            self.optimizer.zero_grad()
            functional.cross_entropy(self.module(x), y).backward()
            tilt(self.params, server, linear, pull)
            self.optimizer.step()
        with torch.no_grad():
            return [p - s for p, s in zip(self.params, server, strict=True)]


@torch.no_grad()
def tilt(
    params: Iterable[nn.Parameter], server: Iterable[Tensor], linear: list[Tensor], pull: float
) -> None:
    """Add what a method adds to the gradient: linear + pull (y - x)."""
    if linear:
        for p, term in zip(params, linear, strict=True):
            p.grad += term
    if pull:
        for p, s in zip(params, server, strict=True):
            p.grad.add_(p - s, alpha=pull)
