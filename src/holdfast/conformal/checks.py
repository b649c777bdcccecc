"""What an evaluator of sets refuses before the run: data, scores and models that do not go together."""

from typing import TYPE_CHECKING, Any, Literal

import jax
import numpy as np
from jax import tree

from holdfast.conformal.divide import check_unshared
from holdfast.data.clients import Clients
from holdfast.errors import HoldfastError
from holdfast.evaluate.measuring import check_examples
from holdfast.evaluate.predictions import labels_of
from holdfast.models.model import Model
from holdfast.trees import Tree

if TYPE_CHECKING:
    from holdfast.conformal.evaluator import Conformal

Kind = Literal["labels", "numbers"]


def check(asked: "Conformal", model: Model, params: Tree, clients: int) -> None:
    """Refuse what cannot work, in one line."""
    if asked.by == "server" and isinstance(asked.calibration, Clients):
        raise HoldfastError(
            "conformal: calibration is every client's own, and by=\"server\" calibrates with the server's; "
            'give one data set, or by="clients" or "each client".',
            about=("by",),
        )
    if asked.by != "server" and not isinstance(asked.calibration, Clients):
        raise HoldfastError(
            f'conformal: by="{asked.by}" and one data set to calibrate with; give every client\'s own as '
            f'hf.Clients, or by="server".',
            about=("by",),
        )
    if asked.by != "server" and not isinstance(asked.examples, Clients):
        raise HoldfastError(
            f'conformal: by="{asked.by}" calibrates the model that each client would use, and one data set '
            f"to test on says for no client which; give every client's own as hf.Clients.",
            about=("examples",),
        )
    sets = [("calibrate with", asked.calibration), ("test on", asked.examples)]
    if asked.own is not None:
        if isinstance(asked.examples, Clients) or not isinstance(asked.own, Clients):
            raise HoldfastError(
                "conformal: own is every client's test examples as hf.Clients, beside one data set to test "
                "on; leave it out, or give that.",
                about=("own",),
            )
        sets.append(("test on", asked.own))
    for what, given in sets:
        _check_given(given, what, clients)
        _check_kind(asked, given, what, model, params)
    _check_apart(asked)
    if asked.by == "clients":
        check_unshared(asked.calibration, "evaluate")
        if asked.score.of_numbers and asked.largest is None:
            raise HoldfastError(
                "conformal: errors of numbers have no largest value that a histogram could end at; give "
                'largest=..., or by="each client".',
                about=("largest",),
            )


def _check_given(given: Any, what: str, clients: int) -> None:
    if not isinstance(given, Clients):
        if labels_of(given) is None:
            raise HoldfastError(
                f"conformal: the examples to {what} have no labels; give hf.Examples(x, y).",
                about=("data",),
            )
        if not len(tree.leaves(given)[0]):
            raise HoldfastError(
                f"conformal: no examples to {what}; give at least one.", about=("data",)
            )
        return
    if len(given) != clients:
        raise HoldfastError(
            f"conformal: {len(given)} clients have examples to {what} but the population has {clients}; "
            f"give every client its own, if only an empty one.",
            about=("data",),
        )
    if not given.sizes.any():
        raise HoldfastError(
            f"conformal: no client has examples to {what}; give at least one some.",
            about=("data",),
        )


def _check_kind(asked: "Conformal", given: Any, what: str, model: Model, params: Tree) -> None:
    """Refuse a model that predicts something else than the score is of."""
    if model.predictor is None:
        raise HoldfastError(
            f"conformal: {model.name} does not say what it predicts; give "
            f"hf.Model(predictor=hf.models.Predictor(predict, metrics)).",
            about=("model",),
        )
    wanted: Kind = "numbers" if asked.score.of_numbers else "labels"
    whole = given.examples if isinstance(given, Clients) else given
    check_examples(whole, model, params)
    for examples in _samples(given):
        found = _kind(model, params, examples)
        if found is None:
            raise HoldfastError(
                f"conformal: {model.name} predicts neither one label nor one number for each row to {what}; "
                f"leave it out.",
                about=("score",),
            )
        if found != wanted:
            use = '"residual", for intervals' if found == "numbers" else '"lac", "aps" or "raps"'
            raise HoldfastError(
                f"conformal: score `{asked.score.name}` is of {wanted}, and {model.name} predicts {found}; "
                f"use {use}.",
                about=("score",),
            )


def _samples(given: Any) -> list[Any]:
    """Examples of each population: one data set, or one client's of each."""
    if not isinstance(given, Clients):
        return [given]
    some = np.flatnonzero(given.sizes)
    if given.populations is None:
        return [given[int(some[0])]]
    whose = given.populations.of[some]
    return [given[int(some[np.argmax(whose == p)])] for p in np.unique(whose)]


def _kind(model: Model, params: Tree, examples: Any) -> Kind | None:
    """What is predicted, as the model says or by the shapes of predictions and labels."""
    labels = labels_of(examples)
    assert labels is not None
    assert model.predictor is not None
    batch = tree.map(lambda a: jax.ShapeDtypeStruct((2, *np.shape(a)[1:]), a.dtype), examples)
    shape = jax.eval_shape(model.predict, params, batch).shape[1:]
    if labels.ndim != 1 or len(shape) > 1:
        return None
    if model.predictor.task is not None:
        return "numbers" if model.predictor.task == "numbers" else "labels"
    classifies = "accuracy" in jax.eval_shape(model.measure, params, batch)
    return "labels" if classifies else "numbers" if not shape else None


def _check_apart(asked: "Conformal") -> None:
    """Refuse rows that would be calibrated with and tested on, as far as it can be seen."""
    one, other = asked.calibration, asked.examples
    if one is other or same_arrays(one, other):
        raise _both(len(tree.leaves(getattr(one, "examples", one))[0]))
    if not isinstance(one, Clients):
        # Clients' examples may be rows of the very arrays.
        tested = [t for t in (other, asked.own) if isinstance(t, Clients)]
        twice = max((len(t.order) for t in tested if same_arrays(one, t.examples)), default=0)
        if twice:
            raise _both(twice)
        return
    if not same_arrays(one.examples, other.examples):
        return
    if asked.by == "each client":
        twice = sum(
            len(np.intersect1d(one.rows(i), other.rows(i)))
            for i in range(min(len(one), len(other)))
        )
    else:
        twice = len(np.intersect1d(one.order, other.order))
    if twice:
        raise _both(twice)


def check_untrained(asked: "Conformal", clients: Clients, server: Any) -> None:
    """Refuse to calibrate with rows that are trained on; copies of them cannot be told from others."""
    held = asked.calibration
    own = held.examples if isinstance(held, Clients) else held
    rows = held.order if isinstance(held, Clients) else np.arange(len(tree.leaves(own)[0]))
    trained = len(np.intersect1d(rows, clients.order)) if same_arrays(own, clients.examples) else 0
    if trained or same_arrays(own, server):
        raise HoldfastError(
            f"conformal: {trained or len(rows)} examples are trained on and calibrated with, so that sets "
            f"would be too small; give others, such as by hf.conformal.divide of held-out ones.",
            about=("calibration",),
        )


def same_arrays(one: Any, other: Any) -> bool:
    """Whether two data sets are the same arrays."""
    leaves = [tree.leaves(one), tree.leaves(other)]
    alike = len(leaves[0]) == len(leaves[1]) > 0 and not isinstance(other, Clients)
    return alike and all(a is b for a, b in zip(*leaves, strict=True))


def _both(count: int) -> HoldfastError:
    return HoldfastError(
        f"conformal: {count} examples are calibrated with and tested on, so that coverage would look better "
        f"than it is; take them apart, such as by hf.conformal.divide.",
        about=("calibration",),
    )
