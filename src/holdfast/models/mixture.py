"""Two predictions of one model, mixed: what a client of an ensemble uses."""

import functools

import jax
import jax.numpy as jnp

from holdfast.errors import HoldfastError, explain_arguments
from holdfast.models.constructor import rebuildable
from holdfast.models.model import Model, Predictor
from holdfast.trees import Tree


@explain_arguments
@rebuildable
def mixture(model: Model) -> Model:
    r"""A model whose parameters are two of the given one's and a share, and whose prediction is the mixture.

    $$ \alpha\, h(x) + (1 - \alpha)\, h(z) $$

    `hf.flix.ensemble(...).save` writes such models: $x$ is what was trained together, $z$ the client's own.
    Parameters: `server` $x$, `own` $z$, `alpha`.

    Args:
        model: one with a `predictor`, as all of `hf.models` that classify or regress.

    Example:
        >>> import holdfast as hf
        >>> import jax.numpy as jnp
        >>> both = hf.models.mixture(hf.models.least_squares(intercept=False))
        >>> params = {"alpha": 0.25, "own": {"weights": jnp.ones(1)}, "server": {"weights": jnp.zeros(1)}}
        >>> both.predict(params, hf.Examples(jnp.array([[4.0]]), None)).tolist()
        [3.0]
    """
    if model.predictor is None:
        raise HoldfastError(
            f"mixture: {model.name} does not say what it predicts; give "
            f"hf.Model(predictor=hf.models.Predictor(predict, metrics)).",
            about=("model",),
        )
    return _mixture(model, model.predictor)


@functools.lru_cache(maxsize=64)
def _mixture(model: Model, predictor: Predictor) -> Model:
    def init(key: jax.Array, examples: Tree) -> Tree:
        begun = model.init(key, examples)
        return {"alpha": jnp.ones((), jnp.float32), "own": begun, "server": begun}

    def predict(params: Tree, batch: Tree) -> jax.Array:
        server, own = (predictor.predict(params[part], batch) for part in ("server", "own"))
        alpha = jnp.asarray(params["alpha"], server.dtype)
        return alpha * server + (1 - alpha) * own

    def metrics(params: Tree, batch: Tree) -> dict[str, jax.Array]:
        return predictor.metrics(predict(params, batch), batch)

    return Model(
        init,
        lambda params, batch: metrics(params, batch)["loss"],
        metrics,
        model.check,
        f"mixture({model.name})",
        predictor=Predictor(predict, predictor.metrics, predictor.task),
        greater_is_better=model.greater_is_better,
    )
