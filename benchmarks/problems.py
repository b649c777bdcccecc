"""The problems that are timed: shapes, synthetic data, initial weights. Numpy only, for every environment."""

import dataclasses

import numpy as np

Arrays = dict[str, np.ndarray]
SIZES = ("balanced", "lognormal")


@dataclasses.dataclass(frozen=True)
class Problem:
    """One model on one federation; sizes are chosen so that a round takes a few seconds at most."""

    name: str
    title: str
    population: int
    cohort: int
    mean_size: int
    batch_size: int
    epochs: int
    learning_rate: float
    rounds: int
    layers: dict[str, tuple[int, ...]]  # leaf -> shape, named as holdfast names them
    inputs: tuple[int, ...]
    classes: int
    alpha: float = 0.01  # of FedDyn
    sides: tuple[str, ...] = ()  # that have this model; all if empty
    mu: float = 0.1  # of FedProx

    @property
    def words(self) -> bool:
        """Inputs are ids of characters."""
        return "characters/embedding" in self.layers


def dense(name: str, wide: int, out: int) -> dict[str, tuple[int, ...]]:
    """Leaves of one dense layer."""
    return {f"{name}/kernel": (wide, out), f"{name}/bias": (out,)}


def _lstm(layer: int, wide: int, width: int) -> dict[str, tuple[int, ...]]:
    kernel = dense(f"lstm_{layer}/input", wide, 4 * width)
    return {**kernel, f"lstm_{layer}/recurrent": (width, 4 * width)}


def _convolution(name: str, side: int, wide: int, out: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/kernel": (side, side, wide, out)}


def _norm(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}/scale": (width,), f"{name}/bias": (width,)}


def _residual(name: str, wide: int, out: int) -> dict[str, tuple[int, ...]]:
    found = {
        **_convolution(f"{name}/convolution_0", 3, wide, out),
        **_norm(f"{name}/norm_0", out),
        **_convolution(f"{name}/convolution_1", 3, out, out),
        **_norm(f"{name}/norm_1", out),
    }
    if wide != out:
        found |= _convolution(f"{name}/shortcut", 1, wide, out)
        found |= _norm(f"{name}/shortcut_norm", out)
    return found


def _vgg(widths: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for i, (wide, out) in enumerate(zip((3, *widths[:-1]), widths, strict=True)):
        found |= _convolution(f"convolution_{i}", 3, wide, out)
        found[f"convolution_{i}/bias"] = (out,)
    return found


PROBLEMS = {
    p.name: p
    for p in (
        Problem(
            name="lr",
            title="logistic regression 30-5",
            population=20,
            cohort=20,
            mean_size=200,
            batch_size=10,
            epochs=10,
            learning_rate=0.05,
            rounds=6,
            layers=dense("classifier", 30, 5),
            inputs=(30,),
            classes=5,
        ),
        Problem(
            name="mlp",
            title="MLP 784-200-200-10",
            population=100,
            cohort=10,
            mean_size=600,
            batch_size=50,
            epochs=2,
            learning_rate=0.002,
            rounds=5,
            layers={
                **dense("hidden_0", 784, 200),
                **dense("hidden_1", 200, 200),
                **dense("classifier", 200, 10),
            },
            inputs=(784,),
            classes=10,
        ),
        Problem(
            name="cnn",
            title="CNN 64-64-384-192",
            population=20,
            cohort=6,
            mean_size=200,
            batch_size=50,
            epochs=1,
            learning_rate=0.0005,
            rounds=3,
            layers={
                "convolution_0/kernel": (5, 5, 3, 64),
                "convolution_0/bias": (64,),
                "convolution_1/kernel": (5, 5, 64, 64),
                "convolution_1/bias": (64,),
                **dense("dense_0", 1600, 384),
                **dense("dense_1", 384, 192),
                **dense("classifier", 192, 10),
            },
            inputs=(32, 32, 3),
            classes=10,
        ),
        Problem(
            name="resnet",
            title="ResNet-8",
            population=8,
            cohort=2,
            mean_size=150,
            batch_size=50,
            epochs=1,
            learning_rate=0.0005,
            rounds=3,
            layers={
                **_convolution("convolution_0", 3, 3, 16),
                **_norm("norm_0", 16),
                **_residual("stage_0_block_0", 16, 16),
                **_residual("stage_1_block_0", 16, 32),
                **_residual("stage_2_block_0", 32, 64),
                **dense("classifier", 64, 10),
            },
            inputs=(32, 32, 3),
            classes=10,
            sides=("holdfast", "torch"),
        ),
        Problem(
            name="vgg",
            title="VGG-11",
            population=8,
            cohort=2,
            mean_size=100,
            batch_size=50,
            epochs=1,
            learning_rate=0.0005,
            rounds=3,
            layers={
                **_vgg((64, 128, 256, 256, 512, 512, 512, 512)),
                **dense("dense_0", 512, 512),
                **dense("dense_1", 512, 512),
                **dense("classifier", 512, 10),
            },
            inputs=(32, 32, 3),
            classes=10,
            sides=("holdfast", "torch"),
        ),
        Problem(
            name="lstm",
            title="LSTM 2 x 100, 80 steps",
            population=20,
            cohort=6,
            mean_size=300,
            batch_size=100,
            epochs=1,
            learning_rate=0.5,
            rounds=3,
            layers={
                "characters/embedding": (80, 8),
                **_lstm(0, 8, 100),
                **_lstm(1, 100, 100),
                **dense("classifier", 100, 80),
            },
            inputs=(80,),
            classes=80,
        ),
    )
}


# Of the whole comparison: real data, so its file comes from an experiment (comparison.py).
DIGITS = Problem(
    name="digits",
    title="MLP 64-64-10 on digits",
    population=50,
    cohort=10,
    mean_size=28,
    batch_size=20,
    epochs=5,
    learning_rate=0.1,
    rounds=60,
    layers={**dense("hidden_0", 64, 64), **dense("classifier", 64, 10)},
    inputs=(64,),
    classes=10,
    alpha=0.1,
)


def sizes(problem: Problem, lognormal: bool, seed: int = 0) -> np.ndarray:
    """Examples of each client: all the same, or lognormal(0.6) with the same mean."""
    if not lognormal:
        return np.full(problem.population, problem.mean_size)
    drawn = np.random.default_rng((seed, 1)).lognormal(0.0, 0.6, problem.population)
    return np.maximum(1, np.round(drawn / drawn.mean() * problem.mean_size)).astype(np.int64)


def data(problem: Problem, examples: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Inputs, and labels that a linear model could predict (of a text: its last character)."""
    rng = np.random.default_rng((seed, 2))
    if problem.words:
        x = rng.integers(0, problem.classes, (examples, *problem.inputs), dtype=np.int32)
        return x, np.ascontiguousarray(x[:, -1])
    x = rng.standard_normal((examples, *problem.inputs), dtype=np.float32)
    teacher = rng.standard_normal((int(np.prod(problem.inputs)), problem.classes), np.float32)
    return x, np.argmax(x.reshape(examples, -1) @ teacher, axis=1).astype(np.int32)


def initial(problem: Problem, seed: int = 0) -> Arrays:
    """Weights with the variance 1 / inputs, small biases.

    Biases are not zero, and steps are small, because a ReLU that flips by rounding moves a bias by far
    more than rounding does: sides that do the same would differ by more than 1e-4 of a small bias.
    """
    rng = np.random.default_rng((seed, 3))
    return {
        name: (rng.standard_normal(shape) * _spread(name, shape) + name.endswith("scale")).astype(
            np.float32
        )
        for name, shape in problem.layers.items()
    }


def _spread(name: str, shape: tuple[int, ...]) -> float:
    return 0.1 if len(shape) == 1 else float(1 / np.sqrt(np.prod(shape[:-1])))


@dataclasses.dataclass(frozen=True)
class Product:
    """A matrix product (m, k) x (k, n), so many times in one local step."""

    m: int
    k: int
    n: int
    times: int = 1

    @property
    def flop(self) -> int:
        """Operations of all of them."""
        return 2 * self.m * self.k * self.n * self.times


def products(problem: Problem) -> tuple[Product, ...]:
    """The matrix products that one local step needs: forwards, dW, and dX but for the data's layer."""
    b = problem.batch_size
    if problem.words:
        return _lstm_products(problem)
    found: list[Product] = []
    side = problem.inputs[0]
    for name, shape in problem.layers.items():
        if not name.endswith("kernel"):
            continue
        rows, wide, out = b, int(np.prod(shape[:-1])), shape[-1]
        if len(shape) == 4:  # a convolution is a product over patches, without padding; pooled by 2
            side = side - shape[0] + 1
            rows, side = b * side**2, side // 2
        found += [Product(rows, wide, out), Product(wide, rows, out)]
        if len(found) > 2:
            found.append(Product(rows, out, wide))
    return tuple(found)


def _lstm_products(problem: Problem) -> tuple[Product, ...]:
    """Inputs of all positions at once, the recurrence position by position."""
    b, long = problem.batch_size, problem.inputs[0]
    found: list[Product] = []
    for name, shape in problem.layers.items():
        wide, out = shape[0], shape[-1]
        if name.endswith("input/kernel"):
            every = b * long
            found += [Product(every, wide, out), Product(wide, every, out)]
            found.append(Product(every, out, wide))  # the embedding learns, so layer 0 has a dX too
        elif name.endswith("recurrent"):
            found += [Product(b, wide, out, long), Product(wide, b, out, long)]
            found.append(Product(b, out, wide, long))
        elif name.endswith("kernel"):
            found += [Product(b, wide, out), Product(wide, b, out), Product(b, out, wide)]
    return tuple(found)
