"""Small problems to ask advice on, and made-up scores."""

import flax.linen as nn
import numpy as np

import holdfast as hf
from holdfast.adviser.problem import problem
from holdfast.adviser.work import Score

MODEL = hf.models.softmax_regression(classes=3)
LOCAL = hf.Local(learning_rate=0.1, epochs=1, batch_size=10)


class Unnamed(nn.Module):
    """A network whose last layer has the name flax gave it."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(3)(nn.relu(nn.Dense(4)(x)))


def population(skewed=True, clients=6, moved=0.0, seed=0):
    """Three classes in the plane; each client has mostly one of them, if they are skewed."""
    rng = np.random.default_rng(seed)
    parts = []
    for i in range(clients):
        mix = np.full(3, 0.05 if skewed else 1 / 3)
        mix[i % 3] += 1 - mix.sum()
        y = rng.choice(3, 40, p=mix)
        centres = 2.0 * np.eye(3)[:, :2]
        x = rng.normal(size=(40, 2)) + centres[y] + moved * rng.normal(size=2)
        parts.append(hf.Examples(x.astype(np.float32), y.astype(np.int32)))
    return hf.Clients.from_datasets(parts)


SHARED = population()


def posed(goal=None, target=None, clients=None, **more):
    settings = {
        "held_out": None,
        "cohort": None,
        "server": None,
        "rounds": 8,
        "megabytes": None,
        **more,
    }
    given = population() if clients is None else clients
    return problem(MODEL, given, LOCAL, goal=goal, target=target, **settings)


def score(quality, clients=None, curve=(), sent=1000):
    values = tuple(clients) if clients is not None else (quality,) * 20
    curve = tuple(curve) or (quality,)
    return Score(
        quality, values, (10,) * len(values), curve, (sent,) * len(curve), (0.1,) * len(curve)
    )
