"""A run in which clients protect their examples: what is refused, and what follows from their batches."""

import dataclasses
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import tree

from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.client import answer, no_objective
from holdfast.core.local import Local
from holdfast.core.rule import ClientView, addressed
from holdfast.core.template import Template
from holdfast.engine.compiled import CompiledEngine
from holdfast.engine.debug import DebugEngine
from holdfast.engine.experiment import Experiment
from holdfast.engine.protocol import Engine
from holdfast.errors import HoldfastError
from holdfast.evaluate.protocol import Evaluator
from holdfast.models.model import Model
from holdfast.privacy.account import Scheme, noise_multiplier
from holdfast.privacy.asked import check_real
from holdfast.privacy.example import ExampleLevel
from holdfast.privacy.guarantee import Account
from holdfast.record.identity import describe
from holdfast.trees import Tree, float_type

if TYPE_CHECKING:
    from holdfast.engine.batches import BatchPlanner

Locals = Local | tuple[Local, ...]


def _each(local: Locals) -> tuple[Local, ...]:
    return (local,) if isinstance(local, Local) else tuple(local)


def _with(local: Locals, private: Any) -> Locals:
    if isinstance(local, Local):
        return dataclasses.replace(local, private=private)
    return tuple(dataclasses.replace(own, private=private) for own in local)


def noise_in(local: Locals) -> ExampleLevel | None:
    """What keeps clients' examples private, if anything does; one thing for all populations."""
    each = [own.private for own in _each(local)]
    if all(own is None for own in each):
        return None
    if len({describe(own) for own in each}) > 1:
        raise HoldfastError(
            "simulate: local trainings of several populations have different `private`, and a run has one "
            "account; give all of them the same.",
            about=("local", "private"),
        )
    if not isinstance(each[0], ExampleLevel):
        raise HoldfastError(
            f"Local: private is a {type(each[0]).__name__}; give hf.privacy.ExampleLevel(clip=1.0, "
            f"epsilon=8, delta=1e-5).",
            about=("local", "private"),
        )
    return each[0]


def with_rounds(given: Experiment, rounds: int) -> Experiment:
    """The experiment with so many rounds to find noise for, if it leaves that open."""
    if not all(isinstance(own, Local) for own in _each(given.local)):
        return given
    own = noise_in(given.local)
    if own is None or own.noise_multiplier is not None or own.rounds or rounds == 0:
        return given
    planned = dataclasses.replace(own, rounds=rounds)
    return dataclasses.replace(given, local=_with(given.local, planned))


def settled(given: Experiment, batches: "BatchPlanner") -> tuple[Locals, Account | None]:
    """Local training with its noise, and the account of the client that goes over its data most often."""
    own = noise_in(given.local)
    if own is None:
        return given.local, None
    largest, passes = batches.largest[0], int(batches.passes.max())
    if not own.delta < 1 / largest:
        raise HoldfastError(
            f"ExampleLevel: delta={own.delta:g}, and a client has {largest} examples: to publish one of them "
            f"chosen by lot is as private as one over their number; give less than {1 / largest:.2g}, such "
            f"as 1e-5.",
            about=("local", "private", "delta"),
        )
    scheme = Scheme("example", len(batches.able))
    accountant = own.accountant or scheme.accountant
    z: Any = own.noise_multiplier
    planned = None
    if z is None:
        assert own.epsilon is not None
        if own.rounds is None:
            raise HoldfastError(
                "ExampleLevel: epsilon is given, and not for how many rounds; give rounds=100, or "
                "simulate(rounds=...).",
                about=("local", "private", "rounds"),
            )
        planned = own.rounds * passes
        z = noise_multiplier(scheme, own.epsilon, planned, own.delta, accountant)
    account = Account(
        scheme, float(z), own.delta, accountant, own.epsilon, planned, per_round=passes
    )
    if account.spent(0) is not None:
        raise HoldfastError(
            f"ExampleLevel: one round, of {passes} passes over a client's data with noise_multiplier={z:g}, "
            f"spends epsilon {account.epsilon(passes):.3g}, and the budget is {own.epsilon:g}; give more "
            f"noise, more epsilon or fewer epochs.",
            about=("local", "private", "noise_multiplier"),
        )
    return _with(given.local, dataclasses.replace(own, noise_multiplier=float(z))), account


def noise_in_step(local: Locals, batches: "BatchPlanner") -> tuple[float, float]:
    """The bound of the first round, and the noise in every number of the gradient of a whole batch."""
    own = noise_in(hyper.at_round(local, 0))
    assert own is not None
    return float(own.clip), float(own.deviation / batches.batch_size)


def check_experiment(
    given: Experiment, private: bool, adapt: Locals | None, waiting: bool, engine: Engine
) -> None:
    """Refuse what would tell of examples without noise, or noise where nothing counts it."""
    name = given.algorithm.name

    def refuse(because: str, *about: str) -> None:
        raise HoldfastError(f"{name}: {because}.", about=about)

    if given.server is not None and given.server.local.private is not None:
        refuse(
            "the server's Local has `private`, which protects examples of clients; leave it out there",
            "server", "local", "private",
        )  # fmt: skip
    own = () if adapt is None or adapt is given.local else _each(adapt)
    if any(local.private is not None for local in own):
        refuse(
            "`adapt` has `private`, and no account counts steps that a client takes for itself; leave it out "
            "there", "algorithm", "adapt",
        )  # fmt: skip
    if not private:
        return
    if adapt is not None:
        refuse(
            "`adapt` takes further steps on clients' examples, which no account counts and figures of a run "
            "would show; set adapt to False", "algorithm", "adapt",
        )  # fmt: skip
    if given.select:
        refuse(
            "select asks for the table rows that a client's examples use, which tells of them without noise; "
            "leave it out", "select",
        )  # fmt: skip
    if waiting or given.first_round is not None:
        refuse(
            "a first round of another kind (`first_round`, or one that chooses a mask) has an account of its "
            "own, and a run has one; leave it out, or give the mask", "first_round",
        )  # fmt: skip
    if given.model.engine is not None or not isinstance(engine, CompiledEngine | DebugEngine):
        refuse(
            "ExampleLevel takes gradients of single examples in local steps of hf.Engine or hf.DebugEngine, "
            "and this run has its steps elsewhere; leave `private` out of Local, or simulate it",
            "local", "private",
        )  # fmt: skip


def check_method(algorithm: Algorithm, begun: Template, params: Tree) -> None:
    """Refuse a method that asks clients for more than their local steps. It is traced, never run."""
    check_real("ExampleLevel", params)
    if algorithm.rule.traits.prepares:
        raise HoldfastError(
            f"{algorithm.name}: clients work something out of their examples before their first round (FLIX: "
            f"their own optimum), without noise; use a method of local steps alone, or leave `private` out "
            f"of Local.",
            about=("algorithm",),
        )
    dtype = float_type(params)
    mine = hyper.of_client(algorithm, 0, dtype)

    def client(x: Tree, msg: Tree, y: Tree, number: Any) -> Any:
        state = jax.tree.map(jnp.asarray, begun.client)
        own = addressed(msg, None)
        at = ClientView(x, own, state.rule, no_objective, number, number, y, no_objective)
        return mine.rule.tilt(at), answer(mine, y, at, state, jax.random.key(0))

    number = jax.ShapeDtypeStruct((), dtype)
    x, msg = begun.broadcast
    try:
        jax.eval_shape(client, x, msg, x, number)
    except HoldfastError as error:
        raise HoldfastError(f"{algorithm.name}: {error}", about=("algorithm",)) from None


def check_loss(model: Model, params: Tree, examples: Tree) -> None:
    """Refuse a loss in which examples of a batch look at each other: of one alone it would be another."""
    count = len(tree.leaves(examples)[0])
    if count < 3:
        return
    # The first example among others, and among others again. Not at zeros, where they may look alike.
    leaves: list[Any] = tree.leaves(params)
    keys = jax.random.split(jax.random.key(1), len(leaves))
    moved = [
        p + 0.1 * jax.random.normal(k, np.shape(p), p.dtype)
        for p, k in zip(leaves, keys, strict=True)
    ]
    at = tree.unflatten(tree.structure(params), moved)
    losses = jax.jit(model.losses)

    def first(others: list[int]) -> float:
        batch = tree.map(lambda a: jnp.asarray(np.asarray(a)[[0, *others]]), examples)
        return float(losses(at, batch, jax.random.key(0))[0])

    some, rest = first([1, 2]), first([count - 1, count - 2])
    if not np.isclose(some, rest, rtol=1e-4, atol=1e-6, equal_nan=True):
        raise HoldfastError(
            f"ExampleLevel: the loss of an example of {model.name} depends on who else is in its batch "
            f"({some:.4g} and {rest:.4g}), and gradients are of single examples; use a model without losses "
            f"over pairs or statistics over batches.",
            about=("model",),
        )


def check_evaluators(evaluators: tuple[Evaluator, ...]) -> None:
    """Refuse evaluators that look at what is protected."""
    for evaluator in evaluators:
        who = type(evaluator).__name__
        if getattr(evaluator, "adapt", None) is not None:
            raise HoldfastError(
                f"{who}: it measures models after further steps on clients' examples, which no account "
                f"counts; leave `adapt` out.",
                about=("evaluate",),
            )
        if getattr(evaluator, "asks_examples", False):
            raise HoldfastError(
                f"{who}: it looks at clients' examples, which are protected (ExampleLevel); leave it out, or "
                f"measure it in a run without `private`.",
                about=("evaluate",),
            )
