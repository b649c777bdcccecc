"""How strongly each client's loss bends: what step sizes and rates of convergence depend on."""

import sys
from collections.abc import Callable, Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree
from jax.flatten_util import ravel_pytree

from holdfast.core.keys import Purpose
from holdfast.data.clients import Clients, check_finite
from holdfast.errors import HoldfastError, explain_arguments
from holdfast.models.model import GeneralisedLinear, Model
from holdfast.record.identity import digest
from holdfast.trees import Tree, describe_shapes

# Up to here all eigenvalues cost less than a few of them,
_DENSE_DESIGN = 256
# and up to here, where every column costs a pass over the sample.
_DENSE_HESSIAN = 32
# Of estimates, relative to the width of the spectrum.
_TOLERANCE = 1e-5
_RESTARTS = 500

Ends = tuple[float, float]  # the largest and the smallest eigenvalue


class Curvature(NamedTuple):
    """Constants of each client's mean loss; 0 for clients without data."""

    smoothness: np.ndarray  # L_i, a bound on the eigenvalues of the Hessian from above
    convexity: np.ndarray  # mu_i, from below
    exact: bool  # whether the bounds hold and are sharp over all parameters
    of: str | None = None  # a checksum of the clients, where it was found on some

    @property
    def mean_smoothness(self) -> float:
        """The mean of L_i over clients, each counting the same."""
        return float(self.smoothness.mean())

    @property
    def mean_convexity(self) -> float:
        """The mean of mu_i over clients, each counting the same."""
        return float(self.convexity.mean())


@explain_arguments
def curvature(
    model: Model,
    clients: Clients,
    params: Tree = None,
    *,
    examples: int | None = None,
    points: int = 2,
    radius: float = 1.0,
    seed: int = 0,
    progress: bool | None = None,
) -> Curvature:
    r"""Smoothness $L_i$ and strong convexity $\mu_i$ of each client's mean loss $f_i$.

    $$ \mu_i I \preceq \nabla^2 f_i(w) \preceq L_i I $$

    For a model with `linear` set, such as `logistic_regression`, they are exact: with the design
    matrix $A_i$ of the client's $n_i$ examples, and curvature between $c$ and $C$ of the scalar loss,

    $$ L_i = \frac{C}{n_i} \lambda_{\max}(A_i^\top A_i) + \lambda, \qquad
       \mu_i = \frac{c}{n_i} \lambda_{\min}(A_i^\top A_i) + \lambda $$

    For any other model they are estimates: the extreme eigenvalues of the Hessian on a sample of the
    client's examples, at `params` and at a few random points around it, the largest of these and the
    smallest. Elsewhere the loss may bend more. Where it is not convex, $\mu_i$ is negative.

    A client without data gets 0 for both.

    Args:
        model: the model.
        clients: the population.
        params: where to estimate; the model's initial parameters unless given.
        examples: of each client at most, drawn without replacement, for an estimate; 512 unless given.
        points: random points beside `params`, the same for every client, for an estimate.
        radius: their distance from `params`.
        seed: of initial parameters, points and samples.
        progress: show a progress bar; by default in a terminal.

    Example:
        >>> import holdfast as hf
        >>> train, _ = hf.data.digits()
        >>> clients = hf.data.partition.iid(hf.Examples(train.x, train.y % 2), clients=4)
        >>> bent = hf.diagnose.curvature(hf.models.logistic_regression(l2=0.1), clients)
        >>> bent.smoothness.round(1).tolist(), bent.convexity.tolist(), bent.exact
        ([3.0, 2.9, 3.0, 2.9], [0.1, 0.1, 0.1, 0.1], True)
    """
    max_examples = 512 if examples is None else examples
    if max_examples < 1 or points < 0 or not radius > 0:
        raise HoldfastError(
            f"curvature: examples={max_examples}, points={points}, radius={radius}; give at least 1 example, "
            f"0 points and a radius above 0."
        )
    check_finite(clients.examples, "curvature")
    if model.check is not None:
        model.check(clients.examples)
    if model.engine is not None and model.linear is None:
        raise HoldfastError(
            f"curvature: another framework computes {model.name}, whose gradients JAX cannot differentiate "
            f"again; use the same network as a model of JAX's.",
            about=("model",),
        )
    if model.linear is not None:
        find = _closed_form(model.linear, clients)
    else:
        find = _estimate(
            model, clients, params, min(max_examples, clients.sizes.max()), points, radius, seed
        )
    ends = np.zeros((len(clients), 2))
    for i in _watched(np.flatnonzero(clients.sizes).tolist(), progress):
        ends[i] = find(i)
    return Curvature(ends[:, 0], ends[:, 1], model.linear is not None, digest(clients.contents))


def _closed_form(linear: GeneralisedLinear, clients: Clients) -> Callable[[int], Ends]:
    def find(client: int) -> Ends:
        design = linear.design(clients[client])
        largest, smallest = _design_ends(design, linear.min_curvature > 0)
        return (
            linear.max_curvature * largest / len(design) + linear.l2,
            linear.min_curvature * smallest / len(design) + linear.l2,
        )

    return find


def _design_ends(design: np.ndarray, both: bool) -> Ends:
    """Extreme eigenvalues of A'A; the smallest only if it is asked for, else 0."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    n, d = design.shape
    # With fewer rows than columns there is a direction without curvature.
    both = both and n >= d
    # The small end by Lanczos may take longer than all eigenvalues, or for ever.
    if both or min(n, d) <= _DENSE_DESIGN:
        ends = np.linalg.eigvalsh(design.T @ design if d <= n else design @ design.T)
        return max(ends[-1], 0.0), max(ends[0], 0.0) if both else 0.0
    if not design.any():
        return 0.0, 0.0
    square = LinearOperator((d, d), matvec=lambda v: design.T @ (design @ v), dtype=np.float64)
    start = np.random.default_rng(0).normal(size=d)
    return eigsh(square, k=1, which="LA", v0=start, return_eigenvectors=False)[0], 0.0


def _estimate(
    model: Model,
    clients: Clients,
    params: Tree,
    max_examples: int,
    points: int,
    radius: float,
    seed: int,
) -> Callable[[int], Ends]:
    centre, unravel = ravel_pytree(_parameters(model, clients, params, seed))
    rng = np.random.default_rng(seed)
    steps = rng.normal(size=(points, centre.size))
    steps *= radius / np.linalg.norm(steps, axis=1, keepdims=True)
    flat = np.asarray(centre)
    places = [
        unravel(jnp.asarray(p)) for p in (flat, *(flat + s.astype(flat.dtype) for s in steps))
    ]
    start = rng.normal(size=centre.size)
    key = jax.random.key(seed)

    def find(client: int) -> Ends:
        own = clients.rows(client)
        few = min(max_examples, len(own))
        # A stream of its own for each client: its estimate does not depend on the others.
        rows = np.random.default_rng([seed, client]).choice(own, few, replace=False)
        # One shape for all clients, so that one program is compiled.
        rows = np.concatenate([rows, np.repeat(rows[:1], max_examples - few)])
        batch = tree.map(lambda a: jnp.asarray(np.asarray(a)[rows]), clients.examples)
        keep = jnp.arange(max_examples) < few
        found = []
        for place in places:

            def times(v: np.ndarray, place: Tree = place) -> np.ndarray:
                direction = jnp.asarray(v.reshape(-1).astype(flat.dtype))
                product = _hessian_times(model, place, direction, batch, keep, key)
                return np.asarray(product, np.float64)

            if not np.isfinite(times(start)).all():
                raise HoldfastError(
                    f"curvature: the Hessian of client {client} is not finite; give other params, or "
                    f"a smaller radius."
                )
            found.append(_hessian_ends(times, start))
        return max(largest for largest, _ in found), min(smallest for _, smallest in found)

    return find


def _parameters(model: Model, clients: Clients, given: Tree, seed: int) -> Tree:
    # The parameters a run with this seed begins with.
    key = jax.random.fold_in(jax.random.key(seed), Purpose.INIT)
    examples = tree.map(jnp.asarray, clients.examples)
    if given is None:
        return model.init(key, examples)
    wanted, params = jax.eval_shape(model.init, key, examples), tree.map(jnp.asarray, given)
    if describe_shapes(params) != describe_shapes(wanted):
        raise HoldfastError(
            f"curvature: params has {describe_shapes(params)} but the model has "
            f"{describe_shapes(wanted)}; give parameters of this model.",
            about=("params",),
        )
    return params


def _product(
    model: Model, params: Tree, direction: jax.Array, batch: Tree, keep: jax.Array, key: jax.Array
) -> jax.Array:
    flat, unravel = ravel_pytree(params)

    def mean_loss(z: jax.Array) -> jax.Array:
        losses = model.losses(unravel(z), batch, key)
        return jnp.sum(jnp.where(keep, losses, 0)) / jnp.sum(keep).astype(losses.dtype)

    return jax.jvp(jax.grad(mean_loss), (flat,), (direction,))[1]


_hessian_times = jax.jit(_product, static_argnums=0)


def _hessian_ends(times: Callable[[np.ndarray], np.ndarray], start: np.ndarray) -> Ends:
    if len(start) <= _DENSE_HESSIAN:
        matrix = np.stack([times(column) for column in np.eye(len(start))])
        ends = np.linalg.eigvalsh((matrix + matrix.T) / 2)
        return ends[-1], ends[0]
    one = _furthest_from_zero(times, start)
    # Seen from one end the other is the furthest: found to a tolerance relative to the width of the
    # spectrum, also where it is 0, which Lanczos would never reach to one relative to itself.
    other = one + _furthest_from_zero(lambda v: times(v) - one * v.reshape(-1), start)
    return max(one, other), min(one, other)


def _furthest_from_zero(times: Callable[[np.ndarray], np.ndarray], start: np.ndarray) -> float:
    from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

    if not times(start).any():
        return 0.0
    operator = LinearOperator((len(start), len(start)), matvec=times, dtype=np.float64)
    try:
        found = eigsh(
            operator,
            k=1,
            which="LM",
            v0=start,
            tol=_TOLERANCE,
            maxiter=_RESTARTS,
            return_eigenvectors=False,
        )
    except ArpackNoConvergence:
        raise HoldfastError(
            "curvature: the eigenvalues of the Hessian do not settle; give other params, or more "
            "examples, or run in 64 bits."
        ) from None
    return float(found[0])


def _watched(clients: list[int], wanted: bool | None) -> Iterable[int]:
    if not (sys.stderr.isatty() if wanted is None else wanted):
        return clients
    from rich.console import Console
    from rich.progress import track

    return track(clients, "curvature", console=Console(stderr=True))
