"""A run whose wire keeps what it releases private: what is refused, and what follows from the cohort."""

import dataclasses
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.cohorts import Bernoulli, Cohort
from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.rule import Need, parts_of
from holdfast.core.wire import Wire
from holdfast.engine.experiment import Experiment
from holdfast.engine.protocol import RemoteEngine
from holdfast.errors import HoldfastError
from holdfast.privacy.account import Account, Guarantee, noise_multiplier, scheme_of
from holdfast.privacy.gaussian import Gaussian, read_secret
from holdfast.record.identity import describe
from holdfast.record.state import RunState
from holdfast.wires import Clipped, Compressed, Downlink
from holdfast.wires.wrapper import WireWrapper

if TYPE_CHECKING:
    from holdfast.engine.batches import BatchPlanner


def found(wire: Wire) -> Gaussian | None:
    """The part of a wire that keeps a run private, if there is one."""
    while isinstance(wire, WireWrapper) and not isinstance(wire, Gaussian):
        wire = wire.inner
    return wire if isinstance(wire, Gaussian) else None


def _replaced(wire: Wire, by: Gaussian) -> Wire:
    if isinstance(wire, Gaussian):
        return by
    assert isinstance(wire, WireWrapper)
    return dataclasses.replace(wire, inner=_replaced(wire.inner, by))


def with_rounds(given: Experiment, rounds: int) -> Experiment:
    """The experiment with so many rounds to find noise for, if it leaves that open."""
    algorithm = given.algorithm
    own = found(algorithm.wire) if isinstance(algorithm, Algorithm) else None
    if own is None or own.noise_multiplier is not None or own.rounds is not None or rounds == 0:
        return given
    wire = _replaced(algorithm.wire, dataclasses.replace(own, rounds=rounds))
    return dataclasses.replace(given, algorithm=dataclasses.replace(algorithm, wire=wire))


def settled(
    given: Experiment,
    algorithm: Algorithm,
    cohort: Cohort,
    batches: "BatchPlanner",
    waiting: bool,
) -> tuple[Algorithm, Cohort, Account | None]:
    """The method with its noise, cohorts as they are accounted for, and the account."""
    own = found(algorithm.wire)
    if own is None:
        return algorithm, cohort, None
    _check_method(given, algorithm, own, waiting)
    _check_weighting(algorithm, own)
    population = len(batches.able)
    scheme = scheme_of(cohort, population)
    if not own.delta < 1 / population:
        raise HoldfastError(
            f"Gaussian: delta={own.delta:g} for {population} clients, and to publish all of a client "
            f"chosen by lot is as private as one over their number; give less than {1 / population:.2g}, "
            f"such as 1e-5.",
            about=("delta",),
        )
    if isinstance(given.engine, RemoteEngine):
        _check_deployed(own, scheme.kind)
    accountant = own.accountant or scheme.accountant
    z, planned = own.noise_multiplier, None
    if z is None:
        assert own.epsilon is not None
        if own.rounds is None:
            raise HoldfastError(
                "Gaussian: epsilon is given, and not for how many rounds; give rounds=100, or "
                "simulate(rounds=...).",
                about=("rounds",),
            )
        planned = own.rounds
        z = noise_multiplier(scheme, own.epsilon, planned, own.delta, accountant)
    expected = scheme.expected
    whole = dataclasses.replace(own, noise_multiplier=z, clients=expected)
    _check_quantile(whole)
    if isinstance(cohort, Bernoulli):
        cohort = dataclasses.replace(cohort, may_be_empty=True)
    account = Account(scheme, float(z), own.delta, accountant, own.epsilon, planned)
    if account.rounds == 0:
        raise HoldfastError(
            f"Gaussian: one round with noise_multiplier={z:g} spends epsilon {account.epsilon(1):.3g}, and "
            f"the budget is {own.epsilon:g}; give more noise or more epsilon.",
            about=("noise_multiplier",),
        )
    return dataclasses.replace(algorithm, wire=_replaced(algorithm.wire, whole)), cohort, account


def _check_method(given: Experiment, algorithm: Algorithm, own: Gaussian, waiting: bool) -> None:
    name = algorithm.name

    def refuse(because: str, *about: str) -> None:
        raise HoldfastError(f"{name}: {because}.", about=about)

    outside = algorithm.wire
    while isinstance(outside, Downlink | Clipped):
        outside = outside.inner
    inside = own.inner
    while isinstance(inside, Downlink | Clipped):
        inside = inside.inner
    # Of classes that are known, not of subclasses, which may tell something else.
    if outside is not own or type(inside) not in (Wire, Compressed):
        refuse(
            f"the wire {type(inside if outside is own else outside).__name__} beside Gaussian keeps, or may "
            f"keep, what replies were before they were bounded; use hf.Wire(), hf.wires.Compressed, Clipped "
            f"or Downlink",
            "wire",
        )
    if given.first_round is not None or waiting:
        refuse(
            "a first round of another kind (`first_round`, or a mask that it chooses) has replies without "
            "noise; leave it out, or give the mask",
            "first_round",
        )
    if given.algorithm.regroup is not None:
        refuse(
            "clients' data is pooled, and no client is left to protect; leave Gaussian out", "wire"
        )
    if given.clients.populations is not None and len(given.clients.populations) > 1:
        refuse(
            "several populations are weighed by who of them came, which is no fixed number; run them apart",
            "wire",
        )
    for part in parts_of(algorithm.rule):
        if Need.SERVER_EXAMPLES in part.needs:
            refuse(
                f"{type(part).__name__} weighs the server by the mean size of clients, which is told without "
                f"noise; give the server's weight as a number (gamma)",
                "algorithm",
            )


def _check_weighting(algorithm: Algorithm, own: Gaussian) -> None:
    given = own.max_examples is not None, own.mean_examples is not None
    if algorithm.weighting == "processed":
        raise HoldfastError(
            f"{algorithm.name}: weighting='processed' counts clients by their work, which has no bound; use "
            f"'uniform', or 'examples' with Gaussian(max_examples=..., mean_examples=...).",
            about=("weighting",),
        )
    if algorithm.weighting == "examples" and not all(given):
        raise HoldfastError(
            f"{algorithm.name}: weighting='examples', and without a cap one client may count for any number "
            f"of others; give Gaussian(max_examples=..., mean_examples=...), numbers that need not be "
            f"secret, or weighting='uniform'.",
            about=("weighting",),
        )
    if algorithm.weighting == "uniform" and any(given):
        raise HoldfastError(
            f"{algorithm.name}: max_examples and mean_examples are for weighting='examples', and it is "
            f"'uniform'; leave them out.",
            about=("max_examples",),
        )


def _check_deployed(own: Gaussian, kind: str) -> None:
    """Sites are told the seed, so nothing may rest on it."""
    if kind != "everyone":
        raise HoldfastError(
            "Gaussian: sites are told the seed, from which they know who takes part in a round, so that "
            "drawing clients protects none of them; let everyone take part.",
            about=("cohort",),
        )
    if own.quantile is not None:
        raise HoldfastError(
            "Gaussian: a clip that follows a quantile is not told to sites; give a clip alone.",
            about=("quantile",),
        )
    if own.secret is None:
        raise HoldfastError(
            "Gaussian: sites are told the seed, from which they would know the noise; give secret= a file of "
            "random bytes that only the server has.",
            about=("secret",),
        )
    read_secret(own.secret)


def _check_quantile(own: Gaussian) -> None:
    if own.quantile is None or not isinstance(own.noise_multiplier, int | float):
        return
    if own.noise_multiplier >= 2 * own.count_noise:
        raise HoldfastError(
            f"Gaussian: the count of the quantile with noise {own.count_noise:.3g} alone spends more than "
            f"noise_multiplier={own.noise_multiplier:g} in all allows; give Quantile(noise=) above "
            f"{own.noise_multiplier / 2:.3g}.",
            about=("quantile",),
        )


def weights_of(wire: Wire, sizes: np.ndarray) -> np.ndarray | None:
    """What clients count for by how many examples they have; None where the wire keeps nothing private."""
    own = found(wire)
    if own is None:
        return None
    if own.max_examples is None:
        return (sizes > 0).astype(float)
    most, mean = (np.float64(n) for n in (own.max_examples, own.mean_examples))
    return np.minimum(sizes, most) / mean


def guarantee(wire: Wire, account: Account, rounds: int) -> Guarantee:
    """What so many rounds guarantee, and the noise it took; of a clip that changes, with the first."""
    own: Any = hyper.at_round(found(wire), 0)
    return account.guarantee(rounds, float(own.clip), float(own.deviation / own.clients))


def check_start(algorithm: Algorithm, start: RunState) -> None:
    """Refuse to go on from rounds that the account knows nothing of."""
    if start.round == 0:
        return
    then = None if start.algorithm is None else found(start.algorithm.wire)
    if then is None or describe(then) != describe(found(algorithm.wire)):
        raise HoldfastError(
            f"start: the state's {start.round} rounds were run with "
            f"{'no noise' if then is None else 'other noise'}, and the account would be wrong; begin at the "
            f"first round, or go on with the same Gaussian.",
            about=("start",),
        )
