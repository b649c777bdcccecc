"""How far clients disagree with each other, and the server's own loss with them."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from holdfast.core.keys import Purpose, client_key
from holdfast.core.round import HasLoss, Slot, local_objective
from holdfast.errors import HoldfastError, explain_arguments
from holdfast.evaluate.protocol import EvaluationView
from holdfast.models.model import Model
from holdfast.trees import Tree, add, axpy, float_type, norm, scale, sub, zeros


def _square(u: Tree) -> jax.Array:
    return norm(u) ** 2


def _client_gradients(
    model: HasLoss, x: Tree, examples: Tree, slots: Slot, key: jax.Array
) -> tuple[Tree, jax.Array]:
    """Mean gradient of a cohort, and mean squared norm of its clients' gradients."""

    def one(sums: tuple[Tree, Any, Any], slot: Slot) -> tuple[tuple[Tree, Any, Any], None]:
        total, squares, heads = sums
        own_key = client_key(key, slot.client, Purpose.GRADIENT)
        _, grad = local_objective(model, examples, slot, own_key)
        gradient = grad(x)
        present = (slot.steps > 0).astype(squares.dtype)
        gradient = jax.tree.map(lambda g: jnp.where(slot.steps > 0, g, 0), gradient)
        return (add(total, gradient), squares + _square(gradient), heads + present), None

    zero = jnp.zeros((), float_type(x))
    (total, squares, heads), _ = lax.scan(one, (zeros(x), zero, zero), slots)
    return scale(1 / heads, total), squares / heads


_gradients = jax.jit(_client_gradients, static_argnums=0)


def _central_gradient(
    loss: Any, model: Model, x: Tree, examples: Tree, rows: Any, key: Any
) -> Tree:
    return jax.grad(lambda z: loss(model, z, examples, rows, key))(x)


_server_gradient = jax.jit(_central_gradient, static_argnums=(0, 1))


@dataclasses.dataclass(frozen=True)
class Dissimilarity:
    """Gradient dissimilarity at the server's model, over the cohort of the coming round."""

    federated: float = 0.5
    central: float = 0.5
    every: int = 1
    keeps_last_models = False

    def check(self, model: Model, params: Tree, clients: int) -> None:
        """Nothing about the model can be wrong."""

    def __call__(self, view: EvaluationView) -> dict[str, float]:
        x, clients = view.state.params, view.coming_cohort()
        if not (clients >= 0).any():
            return {}
        slots, examples = view.data_of(clients)
        mean, mean_square = _gradients(view.model, x, examples, slots, view.key)
        found = {"G2_clients": mean_square - _square(mean)}
        server = view.server_data()
        if server is not None:
            own = _server_gradient(
                server.loss, view.model, x, server.examples, server.rows, view.key
            )
            found["xi2_server"] = _square(sub(own, mean))
            parts = _square(mean) * self.federated + _square(own) * self.central
            both = _square(axpy(self.federated, mean, scale(self.central, own)))
            found["G2_mixed"] = parts - both
            found["B2_mixed"] = parts / both
        return {name: float(value) for name, value in found.items()}


@explain_arguments
def dissimilarity(federated: float = 0.5, central: float = 0.5, every: int = 1) -> Dissimilarity:
    r"""Into the history every round: do clients disagree, and does the server's data help?

    Gradients are taken at the server's model over all data of the coming round's clients, and over
    the server's data (one batch of `gradient_batch_size`, if that is given). With $\nabla f_f$ their
    mean and $\nabla f_c$ the server's own:

    - `G2_clients` $= \overline{\|\nabla f_i - \nabla f_f\|^2}$, how far clients disagree;
    - `xi2_server` $= \|\nabla f_c - \nabla f_f\|^2$, how far the server's data is from theirs: server
      learning helps where it is much smaller than `G2_clients`;
    - `G2_mixed` $= w_f\|\nabla f_f\|^2 + w_c\|\nabla f_c\|^2 - \|w_f \nabla f_f + w_c \nabla f_c\|^2$
      and `B2_mixed`, the quotient of the same two terms: where they are large, parallel training is
      slower than gradient transfer.

    Costs about one epoch of the cohort. Pass it to `simulate(evaluate=...)`.

    Args:
        federated: $w_f$, weight of the clients' loss in the mixture.
        central: $w_c$, weight of the server's loss; the two should add up to 1.
        every: rounds between measurements.

    Example:
        >>> import holdfast as hf
        >>> measured = [hf.diagnose.dissimilarity(every=5)]

    Reference: Augenstein et al., "Mixed federated learning", 2022, equation 7; Mai, La and Zhang,
    "Federated learning with server learning", 2022.
    """
    if not (federated > 0 and central > 0):
        raise HoldfastError(
            f"dissimilarity: federated={federated}, central={central}; give weights above 0."
        )
    return Dissimilarity(float(federated), float(central), every)
