"""A model: how parameters begin, one loss per example, and what to measure."""

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias, cast

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, tree

from holdfast.errors import About, HoldfastError, explain_constructor
from holdfast.metrics.metric import Declared, directions
from holdfast.models.constructor import Constructor
from holdfast.trees import Tree, describe_shapes, paths


@explain_constructor
@dataclasses.dataclass(frozen=True)
class Table:
    """A parameter whose rows are looked up by numbers in the data, such as an embedding.

    Args:
        leaf: path of the parameter, such as `"table"` or `"embedding/kernel"`.
        fields: fields of the examples that hold row numbers, such as `("x", "y")`.
        always: rows every client needs, such as a padding row.
    """

    leaf: str
    fields: tuple[str, ...]
    always: tuple[int, ...] = ()

    def used(self, examples: Tree, rows: Sequence[np.ndarray], size: int) -> list[np.ndarray]:
        """For each client, whose rows of the examples these are, the rows of the table it uses."""
        fields = [np.asarray(getattr(examples, f)) for f in self.fields]
        always = np.asarray(self.always, np.int64)

        def of(mine: np.ndarray) -> np.ndarray:
            return np.unique(np.concatenate([always, *(f[mine].reshape(-1) for f in fields)]))

        return [of(mine) for mine in rows]


@explain_constructor
@dataclasses.dataclass(frozen=True)
class GeneralisedLinear:
    r"""What makes a model linear, so that its curvature is known in closed form (`hf.diagnose.curvature`).

    The loss of an example is a function of one scalar, or of one per class, and a penalty:

    $$ \ell = \phi(a^\top w) + \tfrac{\lambda}{2} \|w\|^2, \qquad
       c \le \phi'' \le C $$

    Args:
        design: `examples -> (n, d)` matrix with rows $a$, in the order of the flat parameters, and
            with their intercept. With several classes each has such a block of parameters.
        max_curvature: $C$, the supremum of $\phi''$, or of its largest eigenvalue.
        min_curvature: $c$, the infimum of $\phi''$, or of its smallest eigenvalue.
        l2: $\lambda$.
    """

    design: Callable[[Tree], np.ndarray]
    max_curvature: float
    min_curvature: float
    l2: float = 0.0


# What a prediction is: a probability for each of several classes, that of label 1, one for each of several
# labels that an example may have at once, or numbers.
Task: TypeAlias = Literal["classes", "binary", "labels", "numbers"]


@explain_constructor
@dataclasses.dataclass(frozen=True)
class Predictor:
    """A model's predictions, which can be averaged with another's, and what is measured of them."""

    predict: Callable[[Tree, Tree], jax.Array]  # (params, batch) -> one prediction per example
    metrics: Callable[[jax.Array, Tree], dict[str, jax.Array]]  # its loss first, per example
    task: Task | None = None  # by the shapes of predictions and labels unless given


def probability_metrics(probabilities: jax.Array, batch: Tree) -> dict[str, jax.Array]:
    """Cross-entropy and accuracy of one row of class probabilities per example."""
    true = jnp.take_along_axis(probabilities, batch.y[:, None], axis=1)[:, 0]
    losses = -jnp.log(jnp.maximum(true, jnp.finfo(true.dtype).tiny))
    correct = jnp.argmax(probabilities, axis=1).astype(batch.y.dtype) == batch.y
    return {"loss": losses, "accuracy": correct.astype(losses.dtype)}


def binary_metrics(probability: jax.Array, batch: Tree) -> dict[str, jax.Array]:
    """The same for the probability of label 1."""
    both = jnp.stack([1 - probability, probability], axis=1)
    return probability_metrics(both, batch._replace(y=batch.y.astype(jnp.int32)))


def regression_metrics(numbers: jax.Array, batch: Tree) -> dict[str, jax.Array]:
    """Half the squared error of one number per example."""
    return {"loss": (numbers - batch.y.astype(numbers.dtype)) ** 2 / 2}


@dataclasses.dataclass(frozen=True)
class Loss:
    """A loss that is called as `(params, batch, key=None)`, whether its function takes a key or not.

    Without a key nothing is drawn, as in evaluation: a network drops no feature, an image stays as
    it is. A function that cannot do without, because its `key` has no default, is not called.
    """

    function: Callable[..., jax.Array]

    def __call__(self, params: Tree, batch: Tree, key: jax.Array | None = None) -> jax.Array:
        if not takes_key(self.function, 3):
            return self.function(params, batch)
        if key is None and self.needs_key:
            raise HoldfastError(
                "loss: the model draws random numbers; give a key as third argument, such as "
                "jax.random.key(0).",
                about=("key",),
            )
        return self.function(params, batch, key)

    @property
    def needs_key(self) -> bool:
        """Whether the function has to be given a key."""
        parameters = list(inspect.signature(self.function).parameters.values())
        return len(parameters) >= 3 and parameters[2].default is inspect.Parameter.empty


@explain_constructor
@dataclasses.dataclass(frozen=True)
class Model:
    """Any differentiable model.

    `model.loss(params, batch, key=None)` is one value per example, whatever the model;
    `model.logits(params, examples)` is what a network puts out and `model.predict(params, examples)`
    what that says: probabilities of a classifier, numbers of a regression.

    Args:
        init: `(key, examples) -> params`.
        loss: `(params, batch) -> one value per example`, or `(params, batch, key)` if it draws
            random numbers; with `key=None` as its default it is evaluated without. One value per
            example, so that short batches are exact.
        metrics: `(params, batch) -> {name: one value per example}`; the loss alone unless given.
        check: raises `HoldfastError` for examples the model cannot take.
        name: what messages and checkpoints call it.
        tables: parameters of which a client needs only the rows its data uses (`hf.Table`).
        linear: how the loss depends on a linear function of the parameters, if it does. It says
            something about the model and changes nothing, so models that differ in it are equal.
        predictor: what the model predicts and what is measured of that, for `predict` and for ensembles
            (`hf.flix.ensemble`).
        output: `(params, batch) -> one output per example`, for `logits`: before a softmax or sigmoid.
        l2: of the penalty that is part of the loss, if there is one (`hf.models.regularised`).
        class_weights: of the classes in the loss, if there are some (`hf.models.class_weighted`).
        greater_is_better: which way metrics are better that `hf.metrics` does not know by their names:
            True or False by name. Kept as sorted pairs, which have a hash.
        constructor: by which function of `hf.models` it was made, noted by that function, so that a saved
            model can be made again.
        engine: which engine runs it, of a model that another framework computes (`holdfast.torch.model`):
            nothing that calls its functions is compiled.

    Example:
        >>> import holdfast as hf
        >>> import jax.numpy as jnp
        >>> import numpy as np
        >>> line = hf.Model(
        ...     init=lambda key, examples: jnp.zeros(()),
        ...     loss=lambda w, batch: (w * batch.x - batch.y) ** 2,
        ... )
        >>> # The loss of the only example is (w - 3)**2.
        >>> clients = hf.Clients.from_datasets([hf.Examples(np.array([1.0]), np.array([3.0]))])
        >>> local = hf.Local(learning_rate=0.25, steps=2)
        >>> run = hf.simulate(hf.algorithms.fedavg(), line, clients, local, rounds=1)
        >>> run.params.item()
        2.25

        One of these metrics does not say by its name which way it is better:

        >>> shop = hf.Model(
        ...     init=lambda key, examples: jnp.zeros(()),
        ...     loss=lambda w, batch: (w * batch.x - batch.y) ** 2,
        ...     metrics=lambda w, batch: {
        ...         "loss": (w * batch.x - batch.y) ** 2,
        ...         "waste": jnp.maximum(w * batch.x - batch.y, 0),
        ...     },
        ...     greater_is_better={"waste": False},
        ... )
        >>> hf.metrics.greater_is_better("personal_waste", shop.greater_is_better)
        False
    """

    init: Callable[[jax.Array, Tree], Tree]
    loss: Callable[..., jax.Array]
    metrics: Callable[[Tree, Tree], dict[str, jax.Array]] | None = None
    check: Callable[[Tree], None] | None = None
    name: str = "model"
    tables: tuple[Table, ...] = ()
    linear: GeneralisedLinear | None = dataclasses.field(default=None, repr=False, compare=False)
    predictor: Predictor | None = dataclasses.field(default=None, repr=False, compare=False)
    # Not in the repr, which checkpoints know a run by: a declaration changes no run.
    greater_is_better: Declared = dataclasses.field(default=None, repr=False)
    output: Callable[[Tree, Tree], jax.Array] | None = dataclasses.field(
        default=None, repr=False, compare=False
    )
    l2: float = dataclasses.field(default=0.0, repr=False, compare=False)
    class_weights: tuple[float, ...] | None = dataclasses.field(
        default=None, repr=False, compare=False
    )
    constructor: Constructor | None = dataclasses.field(default=None, repr=False, compare=False)
    engine: Any = dataclasses.field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "greater_is_better", directions(self.greater_is_better))
        if not isinstance(self.loss, Loss):
            object.__setattr__(self, "loss", Loss(self.loss))
        # A copy with another function is not what the constructor makes.
        if self.constructor is not None and self.constructor.parts != self.parts:
            object.__setattr__(self, "constructor", None)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The functions that training and prediction depend on."""
        return self.init, self.loss, self.metrics, self.predictor, self.output

    def __repr__(self) -> str:
        return f"Model({self.name})"

    def check_examples(self, examples: Tree, owner: str, about: About) -> None:
        """Refuse examples the model cannot take, in the model's own words where it has any."""
        if self.check is None:
            return
        try:
            self.check(examples)
        except HoldfastError:
            raise
        # Whatever comes of examples that have not the fields a model looks at.
        except Exception as error:
            raise HoldfastError(
                f"{owner}: the model cannot take examples of {type(examples).__name__} with "
                f"{describe_shapes(examples)}: {str(error).splitlines()[0]}; give data such as "
                f"hf.Examples(x, y).",
                about=about,
            ) from None

    def losses(self, params: Tree, batch: Tree, key: jax.Array | None = None) -> jax.Array:
        """One loss per example: `loss` by the name that rounds know it by."""
        return self.loss(params, batch, key)

    def measure(self, params: Tree, batch: Tree) -> dict[str, jax.Array]:
        """One value per example and metric."""
        if self.metrics is not None:
            return self.metrics(params, batch)
        loss = cast(Loss, self.loss)
        return {"loss": loss(params, batch, jax.random.key(0) if loss.needs_key else None)}

    def logits(self, params: Tree, examples: Tree) -> jax.Array:
        """What the network puts out for each example: one logit per class, or a regression's number.

        Example:
            >>> import holdfast as hf
            >>> import jax.numpy as jnp
            >>> model = hf.models.logistic_regression(intercept=False)
            >>> examples = hf.Examples(jnp.array([[1.0], [-2.0]]), jnp.array([1, 0]))
            >>> model.logits({"weights": jnp.array([3.0])}, examples).tolist()
            [3.0, -6.0]
        """
        if self.output is None:
            raise HoldfastError(
                f"logits: {self.name} does not say what it puts out; give "
                f"hf.Model(output=lambda params, batch: ...).",
                about=("output",),
            )
        return self.output(params, tree.map(jnp.asarray, examples))

    def predict(self, params: Tree, examples: Tree) -> jax.Array:
        """What the model predicts for each example: probabilities of classes, or a regression's number.

        Example:
            >>> import holdfast as hf
            >>> import jax.numpy as jnp
            >>> model = hf.models.logistic_regression(intercept=False)
            >>> examples = hf.Examples(jnp.array([[0.0], [-2.0]]), jnp.array([1, 0]))
            >>> model.predict({"weights": jnp.array([3.0])}, examples).round(4).tolist()
            [0.5, 0.0024999999441206455]
        """
        if self.predictor is None:
            raise HoldfastError(
                f"predict: {self.name} does not say what it predicts; give "
                f"hf.Model(predictor=hf.models.Predictor(predict, metrics)).",
                about=("predictor",),
            )
        return self.predictor.predict(params, tree.map(jnp.asarray, examples))


def design_matrix(examples: Tree, intercept: bool = True) -> np.ndarray:
    """Flattened inputs in 64 bits, after a column of ones for the intercept."""
    x = np.asarray(examples.x, np.float64)
    rows = x.reshape(len(x), math.prod(x.shape[1:]))
    return np.hstack([np.ones((len(x), 1)), rows]) if intercept else rows


@functools.lru_cache(maxsize=256)
def takes_key(loss: Callable[..., Any], arguments: int) -> bool:
    """Whether a loss takes a random key as its last argument."""
    return len(inspect.signature(loss).parameters) >= arguments


@jax.custom_jvp
def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """Softmax cross-entropy of whole-numbered labels, over the last axis."""
    largest, powers = _powers(logits)
    # By comparison: the gradient of looking entries up is a scatter, an operation of its own.
    true = jnp.sum(jnp.where(_is_label(logits, labels), logits, 0), axis=-1)
    return jnp.log(jnp.sum(powers, axis=-1)) + largest[..., 0] - true


@cross_entropy.defjvp
def _cross_entropy_slope(
    given: tuple[jax.Array, jax.Array], slopes: tuple[jax.Array, Any]
) -> tuple[jax.Array, jax.Array]:
    logits, labels = given
    _, powers = _powers(logits)
    odds = powers / jnp.sum(powers, axis=-1, keepdims=True)
    moved = odds - _is_label(logits, labels).astype(odds.dtype)
    return cross_entropy(logits, labels), jnp.sum(moved * slopes[0], axis=-1)


def _powers(logits: jax.Array) -> tuple[jax.Array, jax.Array]:
    """The largest logit, and of each the exponential relative to it."""
    largest = lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    largest = jnp.where(jnp.isfinite(largest), largest, 0)
    return largest, jnp.exp(logits - largest)


def _is_label(logits: jax.Array, labels: jax.Array) -> jax.Array:
    return labels[..., None] == lax.broadcasted_iota(labels.dtype, logits.shape, logits.ndim - 1)


def supervised(
    init: Callable[[jax.Array, jax.Array], Tree],
    predict: Callable[[Tree, jax.Array, jax.Array | None], jax.Array],
    name: str,
    classes: int | None,
    loss_of: Callable[[jax.Array, jax.Array], jax.Array] = cross_entropy,
) -> Model:
    """A model of `y` given `x`.

    Args:
        init: `(key, first inputs) -> params`.
        predict: `(params, inputs, key) -> one prediction per example`; in evaluation the key is None.
        name: what messages and checkpoints call it.
        classes: number of classes if predictions are logits, whose accuracy is then measured.
        loss_of: `(predictions, y) -> one value per example`.
    """

    def scores(params: Tree, batch: Tree, key: jax.Array | None = None) -> jax.Array:
        found = predict(params, batch.x, key)
        if classes is not None and (found.ndim < 2 or found.shape[-1] != classes):
            raise HoldfastError(
                f"{name}: its output has shape {found.shape} but classes={classes}; give one logit "
                f"per class, in the last axis.",
                about=("classes",),
            )
        return found

    def loss(params: Tree, batch: Tree, key: jax.Array | None = None) -> jax.Array:
        return loss_of(scores(params, batch, key), batch.y)

    def metrics(params: Tree, batch: Tree) -> dict[str, jax.Array]:
        found = scores(params, batch)
        losses = loss_of(found, batch.y)
        if classes is None:
            return {"loss": losses}
        correct = jnp.argmax(found, axis=-1).astype(batch.y.dtype) == batch.y
        return {"loss": losses, "accuracy": correct.astype(losses.dtype)}

    def check(examples: Tree) -> None:
        y = np.asarray(examples.y)
        if classes is None:
            return
        if not np.issubdtype(y.dtype, np.integer):
            raise HoldfastError(
                f"labels: their type is {y.dtype}; give whole numbers 0..{classes - 1}.",
                about=("data",),
            )
        if len(y) and (y.min() < 0 or y.max() >= classes):
            raise HoldfastError(
                f"labels: found {y.min()}..{y.max()} but the model has classes={classes}, so labels "
                f"must lie in 0..{classes - 1}; relabel the data or raise `classes`.",
                about=("model", "classes"),
            )

    predictor = Predictor(
        lambda params, batch: jax.nn.softmax(scores(params, batch)), probability_metrics, "classes"
    )
    return Model(
        lambda key, examples: init(key, jnp.asarray(examples.x[:1])),
        loss,
        metrics,
        check,
        name,
        predictor=None if classes is None else predictor,
        output=scores,
    )


def begun_in_32_bits(build: Callable[[jax.Array, jax.Array], Tree]) -> Callable[..., Tree]:
    """Parameters drawn in 32 bits and then in the type of the data: the same start in any precision."""

    def draw(key: jax.Array, x: jax.Array) -> Tree:
        if not jnp.issubdtype(x.dtype, jnp.floating):
            return build(key, x)
        params = build(key, x.astype(jnp.float32))
        return tree.map(lambda p: p.astype(x.dtype), params)

    # A program that runs once: to optimise it took longer than to compile the round. Same bits.
    compiled = jax.jit(draw, compiler_options={"xla_backend_optimization_level": 1})

    def begin(key: jax.Array, x: jax.Array) -> Tree:
        traced = isinstance(key, jax.core.Tracer) or isinstance(x, jax.core.Tracer)
        return draw(key, x) if traced else compiled(key, x)

    return begin


def settings_of(module: nn.Module) -> str:
    """A flax module's name and settings."""
    fields = (f for f in dataclasses.fields(module) if f.repr and f.name != "name")
    settings = ", ".join(f"{f.name}={getattr(module, f.name)!r}" for f in fields)
    return f"{type(module).__name__}({settings})"


def mode_arguments(function: Callable[..., Any], training: bool) -> dict[str, Any]:
    """Arguments by which a function may ask whether it is called in training."""
    meanings = {
        "train": training,
        "training": training,
        "is_training": training,
        "deterministic": not training,
    }
    asked = inspect.signature(function).parameters
    return {name: value for name, value in meanings.items() if name in asked}


def refuse_state(owner: str, names: Sequence[str]) -> None:
    """Refuse a module that keeps more than parameters, such as batch normalisation does."""
    if names:
        raise HoldfastError(
            f"{owner}: it keeps state beside its parameters, {', '.join(names)}, which clients could "
            f"not agree on; use GroupNorm or LayerNorm instead of BatchNorm."
        )


@functools.lru_cache(maxsize=64)
def linen_model(
    module: nn.Module,
    classes: int | None,
    loss_of: Callable[[jax.Array, jax.Array], jax.Array],
) -> Model:
    """A flax module and a loss; in training it has a random stream `dropout`, in evaluation none."""
    name = settings_of(module)
    call = type(module).__call__

    def build(key: jax.Array, x: jax.Array) -> Tree:
        variables = dict(module.init(key, x, **mode_arguments(call, training=False)))
        params = variables.pop("params", {})
        refuse_state(name, paths(variables))
        return params

    def predict(params: Tree, x: jax.Array, key: jax.Array | None) -> Any:
        rngs = None if key is None else {"dropout": key}
        mode = mode_arguments(call, training=key is not None)
        return module.apply({"params": params}, x, rngs=rngs, **mode)

    return supervised(begun_in_32_bits(build), predict, name, classes, loss_of)


def classifier(module: nn.Module, classes: int) -> Model:
    """A flax module that maps inputs to `classes` logits, trained by cross-entropy.

    Equal modules give the same model, so that asking twice does not compile twice.
    """
    return linen_model(module, classes, cross_entropy)
