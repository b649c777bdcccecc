"""How far clients disagree with each other, and the server's own loss with them."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from holdfast.core.client import local_objective
from holdfast.core.keys import Purpose, client_key
from holdfast.core.round_types import HasLoss, Slot
from holdfast.errors import HoldfastError, explain_arguments
from holdfast.evaluate.protocol import EvaluationView
from holdfast.models.foreign import uncompiled
from holdfast.models.model import Model
from holdfast.trees import Tree, add, axpy, float_type, layers, scale, sub, zeros

# Clients whose gradients one call of the program adds up.
_TOGETHER = 64


class Weights(NamedTuple):
    """What a client counts: in the objective, as one head of all, in the mean of the cohort's deltas."""

    objective: Any
    head: Any
    cohort: Any


class Sums(NamedTuple):
    """Over clients with gradients g and weights p and q, those of the objective and of heads."""

    objective: Tree  # of p g
    head: Tree  # of q g
    cohort: Tree  # of g by the cohort's weights
    # One number for every leaf of the model.
    squares: jax.Array  # of q |g|^2
    objective_objective: jax.Array  # of p p |g|^2
    objective_head: jax.Array  # of p q |g|^2


def _dot(u: Tree, v: Tree) -> jax.Array:
    """The product of every two leaves."""
    pairs = zip(jax.tree.leaves(u), jax.tree.leaves(v), strict=True)
    return jnp.stack([jnp.vdot(p, q) for p, q in pairs]).astype(float_type(u))


def _client_gradients(
    model: HasLoss, x: Tree, examples: Tree, slots: Slot, weights: Weights, key: jax.Array
) -> Sums:
    """What some clients' gradients add to the sums; an empty slot adds nothing."""

    def one(so_far: Sums, client: tuple[Slot, Weights]) -> tuple[Sums, None]:
        slot, (p, q, c) = client
        own_key = client_key(key, slot.client, Purpose.GRADIENT)
        _, grad = local_objective(model, examples, slot, own_key)
        g = jax.tree.map(lambda g: jnp.where(slot.steps > 0, g, 0), grad(x))
        square = _dot(g, g)
        parts = (scale(p, g), scale(q, g), scale(c, g))
        return add(so_far, Sums(*parts, q * square, p * p * square, p * q * square)), None

    return lax.scan(one, _no_sums(x), (slots, weights))[0]


def _no_sums(x: Tree) -> Sums:
    none, zero = zeros(x), jnp.zeros(len(jax.tree.leaves(x)), float_type(x))
    return Sums(none, none, none, zero, zero, zero)


_gradients = jax.jit(_client_gradients, static_argnums=0)


def _central_gradient(
    loss: Any, model: Model, x: Tree, examples: Tree, rows: Any, key: Any
) -> Tree:
    return jax.grad(lambda z: loss(model, z, examples, rows, key))(x)


_server_gradient = jax.jit(_central_gradient, static_argnums=(0, 1))


@dataclasses.dataclass(frozen=True)
class Dissimilarity:
    """Gradient dissimilarity at the server's model: over all clients, and over the coming cohort."""

    federated: float = 0.5
    central: float = 0.5
    every: int = 1
    clients: int | None = None
    layers: bool = False
    keeps_last_models = False
    # Their gradients, as they are.
    asks_examples = True

    def check(self, model: Model, params: Tree, clients: int) -> None:
        """Nothing about the model can be wrong."""

    def columns(self, measured: list[str]) -> list[str]:
        """What it writes; all but the first where the server has data or a loss."""
        return ["G2_clients", "xi2_server", "G2_mixed", "B2_mixed"]

    def __call__(self, view: EvaluationView) -> dict[str, float]:
        able = np.flatnonzero(view.weights)
        drawn = able
        if self.clients is not None and self.clients < len(able):
            bits = jax.random.key_data(jax.random.fold_in(view.key, Purpose.SAMPLE))
            drawn = np.random.default_rng(np.asarray(bits)).choice(able, self.clients, False)
        server, cohort = view.server_data(), view.coming_cohort()
        cohort = cohort[cohort >= 0]
        sums = self._sums(view, able, drawn, cohort[:0] if server is None else cohort)
        ours, found = _Estimates(sums, len(drawn), len(able)), {}
        squared_mean = ours.product(sums.objective, sums.objective, sums.objective_objective)
        across = ours.product(sums.objective, sums.head, sums.objective_head)
        found["G2_clients"] = ours.total(sums.squares) - 2 * across + squared_mean
        parts = both = None
        if server is not None:
            with uncompiled(view.model):
                own = _server_gradient(
                    server.loss,
                    view.model,
                    view.state.params,
                    server.examples,
                    server.rows,
                    view.key,
                )
            mean = scale(ours.total(1.0), sums.objective)
            away = sub(own, mean)
            found["xi2_server"] = _dot(away, away) + squared_mean - _dot(mean, mean)
        if server is not None and len(cohort):
            mean = sums.cohort
            parts = _dot(mean, mean) * self.federated + _dot(own, own) * self.central
            mixed = axpy(self.federated, mean, scale(self.central, own))
            both = _dot(mixed, mixed)
            found["G2_mixed"] = parts - both
        out: dict[str, float] = {}
        groups = {"": tuple(range(len(squared_mean)))}
        if self.layers:
            groups |= {f"/{n}": numbers for n, numbers in layers(view.state.params).items()}
        for name, numbers in groups.items():
            of = np.array(numbers)
            out |= {f"{n}{name}": float(np.asarray(v)[of].sum()) for n, v in found.items()}
            if parts is not None and both is not None:
                above, below = (float(np.asarray(v)[of].sum()) for v in (parts, both))
                if below > 0:
                    out[f"B2_mixed{name}"] = above / below
                elif above > 0:
                    out[f"B2_mixed{name}"] = float("inf")
        return out

    def _sums(
        self, view: EvaluationView, able: np.ndarray, drawn: np.ndarray, cohort: np.ndarray
    ) -> Sums:
        x, count = view.state.params, len(view.weights)

        def spread(clients: np.ndarray, weights: np.ndarray) -> np.ndarray:
            each = np.zeros(count)
            each[clients] = weights
            return each

        heads = spread(able, view.votes(able))
        taken = spread(drawn, np.ones(len(drawn)))
        coming = view.weights_of(cohort)
        weights = Weights(
            taken * view.weights / view.weights.sum(),
            taken * heads / heads.sum(),
            spread(cohort, coming / coming.sum() if len(cohort) else coming),
        )
        everybody = np.union1d(drawn, cohort)
        room = min(_TOGETHER, len(everybody))
        everybody = np.append(everybody, np.full(-len(everybody) % room, -1))
        sums = _no_sums(x)
        for clients in everybody.reshape(-1, room):
            slots, examples = view.data_of(clients)
            chosen = Weights(*(w[clients].astype(float_type(x)) for w in weights))
            with uncompiled(view.model):
                found = _gradients(view.model, x, examples, slots, chosen, view.key)
            sums = add(sums, found)
        return sums


class _Estimates(NamedTuple):
    """Unbiased estimates of sums over all clients, from some drawn without replacement.

    They are exact if all are drawn. One client is drawn with probability n/N, a pair of two with
    n(n-1)/(N(N-1)).
    """

    sums: Sums
    drawn: int
    all: int

    def total(self, of_drawn: Any) -> Any:
        """Of a sum over clients."""
        return of_drawn * (self.all / self.drawn)

    def product(self, u: Tree, v: Tree, diagonal: jax.Array) -> jax.Array:
        """Of the product of two sums, whose terms of one client with itself add up to `diagonal`."""
        if self.drawn == self.all:
            return _dot(u, v)
        pairs = self.all * (self.all - 1) / (self.drawn * (self.drawn - 1))
        return self.total(diagonal) + pairs * (_dot(u, v) - diagonal)


@explain_arguments
def dissimilarity(
    federated: float = 0.5,
    central: float = 0.5,
    every: int = 1,
    clients: int | None = None,
    layers: bool = False,
) -> Dissimilarity:
    r"""Into the history every round: do clients disagree, and does the server's data help?

    Gradients are taken at the server's model over all data of a client, and over the server's data
    (one batch of `gradient_batch_size`, if that is given). With $F = \sum_i p_i f_i$ the objective of
    the run, where $p_i$ is what a client's delta counts if everybody takes part, and $f_0$ the
    server's own loss, over all N clients:

    - `G2_clients` $= \frac1N \sum_i \|\nabla f_i - \nabla F\|^2$, how far clients disagree (clients
      of joined populations count by $w_p / N_p$);
    - `xi2_server` $= \|\nabla f_0 - \nabla F\|^2$, how far the server's data is from theirs: server
      learning helps where it is much smaller than `G2_clients`.

    And as mixed federated learning samples them, with $\nabla f_f$ the mean gradient of the coming
    round's clients, weighted as their deltas are, and $\nabla f_c$ the server's:

    - `G2_mixed` $= w_f\|\nabla f_f\|^2 + w_c\|\nabla f_c\|^2 - \|w_f \nabla f_f + w_c \nabla f_c\|^2$
      and `B2_mixed`, the quotient of the same two terms: where they are large, parallel training is
      slower than gradient transfer.

    Costs about one epoch of all clients. With `clients=n` it costs that of n clients drawn at random,
    and `G2_clients` and `xi2_server` are unbiased estimates: right on average over rounds, noisy
    in each, and below 0 where the noise is larger than they are. Pass it to `simulate(evaluate=...)`.

    Args:
        federated: $w_f$, weight of the clients' loss in the mixture.
        central: $w_c$, weight of the server's loss; the two should add up to 1.
        every: rounds between measurements.
        clients: how many clients to draw; all unless given, at least 2.
        layers: the same of each layer too, as `G2_clients/<layer>`. Those of `G2_clients`, `xi2_server`
            and `G2_mixed` add up to that of the whole model; `B2_mixed` is the layer's own quotient.

    Example:
        >>> import holdfast as hf
        >>> import numpy as np
        >>> # Optima 1 and 2 of the same curvature; the server's is 1.6, theirs together 1.5.
        >>> clients = hf.data.partition.in_order(hf.Examples(np.ones((2, 1)), np.array([1.0, 2.0])), 2)
        >>> server = hf.Server(hf.Examples(np.ones((1, 1)), np.array([1.6])), hf.Local(0.1, steps=1))
        >>> run = hf.simulate(
        ...     hf.algorithms.fedavg_plus(gamma=1.0),
        ...     hf.models.least_squares(intercept=False),
        ...     clients,
        ...     hf.Local(0.1, steps=1),
        ...     rounds=1,
        ...     cohort=hf.cohorts.fixed(1),
        ...     server=server,
        ...     evaluate=hf.diagnose.dissimilarity(),
        ... )
        >>> {name: round(float(run.history[name][0]), 3) for name in ("G2_clients", "xi2_server")}
        {'G2_clients': 0.25, 'xi2_server': 0.01}

    Reference: Mai, La and Zhang, "Federated learning with server learning", 2022, appendix C-B1;
    Augenstein et al., "Mixed federated learning", 2022, equation 7.
    """
    if not (federated > 0 and central > 0):
        raise HoldfastError(
            f"dissimilarity: federated={federated}, central={central}; give weights above 0."
        )
    if clients is not None and (not isinstance(clients, int) or clients < 2):
        raise HoldfastError(
            f"dissimilarity: clients={clients!r}; give a whole number of at least 2, or None for all.",
            about=("clients",),
        )
    if not isinstance(layers, bool):
        raise HoldfastError(
            f"dissimilarity: layers={layers!r}; give True or False.", about=("layers",)
        )
    return Dissimilarity(float(federated), float(central), every, clients, layers)
