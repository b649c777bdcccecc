"""Data drawn from a seed, whose heterogeneity is known."""

import math
from typing import Any

import numpy as np

from holdfast.data.checks import check_counts, generator
from holdfast.data.clients import Clients, Examples
from holdfast.data.dataset import Dataset
from holdfast.errors import HoldfastError, did_you_mean, explain_arguments

_KINDS = ("homogeneous", "type1", "type2", "type3")


@explain_arguments
def synthetic_logistic(
    kind: str = "homogeneous",
    clients: int = 20,
    features: int = 30,
    classes: int = 5,
    examples: int = 200,
    seed: int = 0,
    gamma: float = 1.0,
    test_share: float = 0.2,
) -> Dataset:
    r"""FedDyn's synthetic classification, in which clients differ in one way at a time.

    Client $i$ has labels $y = \arg\max(\theta_i x + b_i)$ of inputs $x \sim N(\nu_i, \Sigma)$,
    $\Sigma = \mathrm{diag}(j^{-1.2})$. Unless the kind says otherwise all clients have the same
    $\theta, b \sim N(0, 1)$, $\nu_i = 0$ and `examples` examples.

    - `type1`, different optima: elements of $\theta_i, b_i \sim N(\mu_i, 1)$, $\mu_i \sim N(0, \gamma^2)$.
    - `type2`, different inputs: elements of $\nu_i \sim N(\beta_i, 1)$, $\beta_i \sim N(0, \gamma^2)$.
    - `type3`, different sizes: lognormal, with `examples` as median and $\gamma$ as the deviation of the
      logarithm; their mean is $e^{\gamma^2 / 2}$ times as large.

    In `type1`, $\mu_i$ shifts the scores of all classes alike and so changes no label, whatever
    $\gamma$ is: clients differ because each draws a $\theta_i$ of its own.

    The paper prints no values of $\gamma$; its code has them as deviations, as here. The authors test on
    the training examples; here every client has test examples of its own from the same distribution.

    Args:
        kind: `homogeneous`, `type1`, `type2` or `type3`.
        clients: number of clients, who are the owners.
        features: numbers in an input.
        classes: number of labels.
        examples: training examples of a client.
        seed: the data are a function of it.
        gamma: how different the clients of `type2` and `type3` are.
        test_share: test examples of a client, for each training example; at least one test example.

    Example:
        >>> import holdfast as hf
        >>> data = hf.data.synthetic_logistic("type2")
        >>> train, test = data.natural()
        >>> train
        Clients(20 with 200 to 200 examples, 4000 in all)

    Reference: Acar et al., "Federated learning based on dynamic regularization", 2021, appendix A.1.1;
    Li et al., "Federated optimization in heterogeneous networks", 2020.
    """
    who = "synthetic_logistic"
    if kind not in _KINDS:
        raise HoldfastError(
            f"{who}: kind={kind!r}; {did_you_mean(str(kind), _KINDS)}", about=("kind",)
        )
    check_counts(who, clients=clients, features=features, classes=classes, examples=examples)
    _check_not_negative(who, gamma=gamma, test_share=test_share)
    rng = generator(seed)
    spread = {"type1": 0.0, "type2": 0.0, "type3": 0.0, kind: gamma}
    sizes = examples * np.exp(spread["type3"] * rng.standard_normal(clients))
    sizes = np.maximum(1, sizes.astype(np.int64))
    theta, b = _optima(rng, kind == "type1", spread["type1"], (clients, classes, features))
    centres = np.zeros((clients, features))
    if kind == "type2":
        beta = rng.normal(0, spread["type2"], (clients, 1))
        centres = rng.normal(beta, 1, (clients, features))
    # Their squares are the variances j^-1.2.
    deviation = np.arange(1, features + 1) ** -0.6

    def draw(amounts: np.ndarray) -> tuple[Examples, np.ndarray]:
        owner = np.repeat(np.arange(clients), amounts)
        x = (centres[owner] + deviation * rng.standard_normal((len(owner), features))).astype(
            np.float32
        )
        y = np.empty(len(owner), np.int32)
        for i, rows in enumerate(np.split(np.arange(len(owner)), np.cumsum(amounts)[:-1])):
            y[rows] = np.argmax(x[rows] @ theta[i].T + b[i], axis=1)
        return Examples(x, y), owner

    (train, owners), (test, test_owners) = draw(sizes), draw(_test_sizes(sizes, test_share))
    return Dataset(train, test, owners, test_owners, classes=classes)


@explain_arguments
def sine(
    clients: int = 40,
    first_share: float = 0.45,
    examples: int = 50,
    test_examples: int = 2000,
    noise: float = 0.0,
    seed: int = 0,
) -> Dataset:
    r"""FLIX's regression: two groups of clients, each with a sine of its own.

    Group $k$ has $y = a_k \sin(x + b_k)$ with $a_k \in [0.1, 0.5]$ and $b_k \in [0, 2\pi]$ drawn
    uniformly, and inputs uniform on $[-5, 5]$. Clients $0, 1, \dots$ up to the first share are of the
    first group, the others of the second. One model cannot fit both; a client alone has few points.

    Args:
        clients: number of clients, who are the owners.
        first_share: share of the clients in the first group; the paper's are 0.15, 0.25, 0.35 and 0.45.
        examples: training points of a client.
        test_examples: test points of a client.
        noise: deviation of what is added to training targets; the paper has none.
        seed: the data are a function of it.

    Example:
        >>> import holdfast as hf
        >>> train, test = hf.data.sine(examples=10).natural()
        >>> train
        Clients(40 with 10 to 10 examples, 400 in all)

    Reference: Gasanov, Khaled, Horváth and Richtárik, "FLIX: a simple and communication-efficient
    alternative to local methods in federated learning", 2022.
    """
    check_counts("sine", clients=clients, examples=examples, test_examples=test_examples)
    _check_not_negative("sine", noise=noise)
    if not 0 <= first_share <= 1:
        raise HoldfastError(
            f"sine: first_share={first_share}; give a number from 0 to 1.", about=("first_share",)
        )
    rng = generator(seed)
    amplitudes, phases = rng.uniform(0.1, 0.5, 2), rng.uniform(0, 2 * np.pi, 2)
    group = (np.arange(clients) >= round(first_share * clients)).astype(np.int64)

    def draw(amount: int, deviation: float) -> tuple[Examples, np.ndarray]:
        owner = np.repeat(np.arange(clients), amount)
        x = rng.uniform(-5, 5, (len(owner), 1))
        y = amplitudes[group[owner]] * np.sin(x[:, 0] + phases[group[owner]])
        y = y + deviation * rng.standard_normal(len(owner))
        return Examples(x.astype(np.float32), y.astype(np.float32)), owner

    (train, owners), (test, test_owners) = draw(examples, noise), draw(test_examples, 0.0)
    return Dataset(train, test, owners, test_owners)


@explain_arguments
def quadratics(
    clients: int = 10,
    dimension: int = 5,
    condition: float = 10.0,
    heterogeneity: float = 1.0,
    seed: int = 0,
) -> Dataset:
    r"""Quadratics that disagree, posed as least squares, to see whether a method reaches the optimum.

    Client $i$ has `dimension` examples such that the mean of its losses
    $\tfrac{1}{2} (w^\top x - y)^2$ is

    $$ f_i(w) = \tfrac{1}{2} (w - c_i)^\top A_i (w - c_i) $$

    where $A_i$ has random axes and eigenvalues in $[1, \kappa]$, and $c_i$ is drawn around a common
    centre. Train `hf.models.least_squares(intercept=False)` with whole batches;
    `hf.data.least_squares_optimum` is where all should end. Testing is on the training examples, so
    that the loss there is the objective.

    Args:
        clients: number of clients, who are the owners.
        dimension: numbers in $w$, and examples of a client.
        condition: $\kappa$, the ratio of the largest to the smallest curvature.
        heterogeneity: deviation of the clients' own optima $c_i$; 0 makes them the same.
        seed: the data are a function of it.

    Example:
        >>> import holdfast as hf
        >>> clients, _ = hf.data.quadratics(clients=4, dimension=2).natural()
        >>> run = hf.simulate(
        ...     hf.algorithms.scaffold(),
        ...     hf.models.least_squares(intercept=False),
        ...     clients,
        ...     hf.Local(learning_rate=0.05, steps=5),
        ...     rounds=100,
        ... )
        >>> off = run.params["weights"] - hf.data.least_squares_optimum(clients)["weights"]
        >>> bool(abs(off).max() < 1e-4)
        True
    """
    check_counts("quadratics", clients=clients, dimension=dimension)
    _check_not_negative("quadratics", heterogeneity=heterogeneity)
    if not 1 <= condition < math.inf:
        raise HoldfastError(
            f"quadratics: condition={condition}; give a number of at least 1.", about=("condition",)
        )
    rng = generator(seed)
    axes = np.linalg.qr(rng.standard_normal((clients, dimension, dimension)))[0]
    eigenvalues = condition ** rng.uniform(0, 1, (clients, dimension, 1))
    centres = rng.standard_normal(dimension) + heterogeneity * rng.standard_normal(
        (clients, dimension)
    )
    # Rows whose mean outer product is A_i, and targets that the client's own centre meets exactly.
    x = np.sqrt(dimension * eigenvalues) * axes.swapaxes(1, 2)
    y = np.einsum("ijk,ik->ij", x, centres)
    rows = Examples(x.reshape(-1, dimension).astype(np.float32), y.reshape(-1).astype(np.float32))
    owners = np.repeat(np.arange(clients), dimension)
    return Dataset(rows, rows, owners, owners)


@explain_arguments
def least_squares_optimum(
    clients: Clients, weighting: str = "examples", l2: float = 0.0, intercept: bool = False
) -> dict[str, Any]:
    r"""Where the clients' losses together are least, as parameters of `hf.models.least_squares`.

    $$ \arg\min_{w, b} \sum_i p_i \frac{1}{n_i} \sum_{j \in i} \tfrac{1}{2} (w^\top x_j + b - y_j)^2
       + \tfrac{\lambda}{2} \big(\|w\|^2 + b^2\big) $$

    Where several points are equally good it is the shortest.

    Args:
        clients: the population, of examples `x` and `y`.
        weighting: what $p_i$ is: the client's share of the `examples`, or `uniform`.
        l2: $\lambda$, as given to the model.
        intercept: whether there is a $b$, as given to the model.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> data = hf.Examples(np.array([[1.0], [1.0], [1.0]]), np.array([0.0, 0.0, 3.0]))
        >>> clients = hf.data.partition.by(data, ["a", "a", "b"])
        >>> for weighting in ("examples", "uniform"):
        ...     hf.data.least_squares_optimum(clients, weighting)["weights"].round(4)
        array([1.])
        array([1.5])
    """
    if weighting not in ("examples", "uniform"):
        raise HoldfastError(
            f"least_squares_optimum: weighting={weighting!r}; give `examples` or `uniform`.",
            about=("weighting",),
        )
    _check_not_negative("least_squares_optimum", l2=l2)
    x = np.asarray(clients.examples.x, np.float64)[clients.order]
    y = np.asarray(clients.examples.y, np.float64)[clients.order]
    x = x.reshape(len(x), -1)
    design = np.column_stack([x, np.ones(len(x))]) if intercept else x
    sizes = clients.sizes
    owning = max(1, int((sizes > 0).sum()))
    uniform = 1 / (np.repeat(sizes, sizes) * owning)
    weight = uniform if weighting == "uniform" else np.full(len(y), 1 / max(1, len(y)))
    root = np.sqrt(weight)[:, None]
    penalty = math.sqrt(l2) * np.eye(design.shape[1])
    rows = np.concatenate([root * design, penalty])
    targets = np.concatenate([root[:, 0] * y, np.zeros(len(penalty))])
    found = np.linalg.lstsq(rows, targets)[0]
    return {"weights": found[:-1], "intercept": found[-1]} if intercept else {"weights": found}


def _optima(
    rng: np.random.Generator, differ: bool, deviation: float, shape: tuple[int, int, int]
) -> tuple[np.ndarray, np.ndarray]:
    clients, classes, features = shape
    if differ:
        mu = rng.normal(0, deviation, (clients, 1, 1))
        own = rng.normal(mu, 1, (clients, classes, features + 1))
    else:
        own = np.broadcast_to(
            rng.standard_normal((classes, features + 1)), (clients, classes, features + 1)
        )
    return own[:, :, :-1], own[:, :, -1]


def _test_sizes(sizes: np.ndarray, share: float) -> np.ndarray:
    return np.maximum(1, np.round(sizes * share).astype(np.int64))


def _check_not_negative(who: str, **numbers: float) -> None:
    for name, value in numbers.items():
        if not 0 <= value < math.inf:
            raise HoldfastError(
                f"{who}: {name}={value}; give a number of at least 0.", about=(name,)
            )
