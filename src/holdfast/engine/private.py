"""A run whose wire keeps what it releases private: what is refused, and what follows from the cohort."""

import dataclasses
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from holdfast.cohorts import Bernoulli, Cohort
from holdfast.core import hyper
from holdfast.core.algorithm import Algorithm
from holdfast.core.wire import Wire
from holdfast.engine import private_examples
from holdfast.engine.experiment import Experiment
from holdfast.engine.private_checks import (
    check_deployed,
    check_local,
    check_method,
    check_quantile,
    check_weighting,
)
from holdfast.engine.protocol import RemoteEngine
from holdfast.errors import HoldfastError
from holdfast.privacy.account import Scheme, known_cohorts, noise_multiplier, scheme_of
from holdfast.privacy.banded import Banded, coefficients_for, moved, separation_of
from holdfast.privacy.gaussian import Gaussian
from holdfast.privacy.guarantee import Account, Guarantee
from holdfast.privacy.local import LocalGaussian
from holdfast.record.identity import describe
from holdfast.record.ledger import Entry, Ledger
from holdfast.record.state import RunState
from holdfast.wires.wrapper import WireWrapper

if TYPE_CHECKING:
    from holdfast.engine.batches import BatchPlanner
    from holdfast.engine.setup import Setup


def noise_in(wire: Wire) -> Gaussian | LocalGaussian | None:
    """The part of a wire that keeps a run private, if there is one."""
    while isinstance(wire, WireWrapper) and not isinstance(wire, Gaussian | LocalGaussian):
        wire = wire.inner
    return wire if isinstance(wire, Gaussian | LocalGaussian) else None


def found(wire: Wire) -> Gaussian | None:
    """The same where it is the server that adds the noise."""
    own = noise_in(wire)
    return own if isinstance(own, Gaussian) else None


def _replaced(wire: Wire, by: Gaussian | LocalGaussian) -> Wire:
    if isinstance(wire, Gaussian | LocalGaussian):
        return by
    assert isinstance(wire, WireWrapper)
    return dataclasses.replace(wire, inner=_replaced(wire.inner, by))


def with_rounds(given: Experiment, rounds: int) -> Experiment:
    """The experiment with so many rounds to find noise for, if it leaves that open."""
    given = private_examples.with_rounds(given, rounds)
    algorithm = given.algorithm
    own = noise_in(algorithm.wire) if isinstance(algorithm, Algorithm) else None
    correlated = isinstance(own, Gaussian) and own.correlated is not None
    if own is None or rounds == 0 or (own.noise_multiplier is not None and not correlated):
        return given
    if isinstance(own, LocalGaussian):
        planned: Any = own if own.replies else dataclasses.replace(own, replies=rounds)
    else:
        planned = own if own.rounds else dataclasses.replace(own, rounds=rounds)
    if planned is own:
        return given
    wire = _replaced(algorithm.wire, planned)
    return dataclasses.replace(given, algorithm=dataclasses.replace(algorithm, wire=wire))


def settled(
    given: Experiment,
    algorithm: Algorithm,
    cohort: Cohort,
    batches: "BatchPlanner",
    waiting: bool,
) -> tuple[Algorithm, Cohort, Account | None]:
    """The method with its noise, cohorts as they are accounted for, and the account."""
    own = noise_in(algorithm.wire)
    if own is None:
        return algorithm, cohort, None
    population = len(batches.able)
    if not own.delta < 1 / population:
        raise HoldfastError(
            f"{type(own).__name__}: delta={own.delta:g} for {population} clients, and to publish all of a "
            f"client chosen by lot is as private as one over their number; give less than "
            f"{1 / population:.2g}, such as 1e-5.",
            about=("delta",),
        )
    if isinstance(own, LocalGaussian):
        check_local(given, algorithm, own, waiting)
        scheme, planned = Scheme("local", population), own.replies
        account = _account(own, scheme, planned)
        whole: Any = dataclasses.replace(own, noise_multiplier=account.noise_multiplier)
        return _with(algorithm, whole), cohort, account
    check_method(given, algorithm, own, waiting)
    check_weighting(algorithm, own)
    if own.correlated is None:
        scheme = scheme_of(cohort, population)
    else:
        own, scheme = _correlated(own, own.correlated, cohort, batches.able)
    if isinstance(given.engine, RemoteEngine):
        check_deployed(own, scheme.kind)
    account = _account(own, scheme, own.rounds)
    whole = dataclasses.replace(
        own, noise_multiplier=account.noise_multiplier, clients=scheme.expected
    )
    check_quantile(whole)
    if isinstance(cohort, Bernoulli):
        cohort = dataclasses.replace(cohort, may_be_empty=True)
    return _with(algorithm, whole), cohort, account


def _correlated(
    own: Gaussian, banded: Banded, cohort: Cohort, able: np.ndarray
) -> tuple[Gaussian, Scheme]:
    """The noise with its coefficients, and how much a client moves of these cohorts."""
    if own.rounds is None:
        raise HoldfastError(
            "Gaussian: noise is correlated, and not for how many rounds; give rounds=100, or "
            "simulate(rounds=...).",
            about=("rounds",),
        )
    if own.accountant == "rdp":
        raise HoldfastError(
            "Gaussian: accountant='rdp', and all rounds of correlated noise are one Gaussian mechanism, "
            "whose curve is known; leave it out.",
            about=("accountant",),
        )
    cohorts = known_cohorts(cohort, able, own.rounds)
    found, client = separation_of(cohorts)
    bands = banded.bands_for(found)
    least = max(bands, banded.separation or 1)
    if client is not None and found < least:
        asked = "bands" if least == bands else "separation"
        raise HoldfastError(
            f"Banded: {asked}={least}, and client {client} comes back after {found} "
            f"{'round' if found == 1 else 'rounds'}; give at most {found}, or cohorts in which clients come "
            f"back later.",
            about=(asked,),
        )
    coefficients = banded.coefficients or coefficients_for(bands, own.rounds)
    whole = dataclasses.replace(banded, bands=len(coefficients), coefficients=coefficients)
    size = len(cohorts[0])
    scheme = Scheme("planned", len(able), size / len(able), moved(coefficients, cohorts))
    return dataclasses.replace(own, correlated=whole), scheme


def _with(algorithm: Algorithm, noise: Gaussian | LocalGaussian) -> Algorithm:
    return dataclasses.replace(algorithm, wire=_replaced(algorithm.wire, noise))


def _account(own: Gaussian | LocalGaussian, scheme: Scheme, planned: int | None) -> Account:
    """With the noise that is given, or that is found for so many rounds or replies."""
    accountant = own.accountant or scheme.accountant
    who, local = type(own).__name__, scheme.kind == "local"
    z: Any = own.noise_multiplier
    if z is None:
        assert own.epsilon is not None
        if planned is None:
            raise HoldfastError(
                f"{who}: epsilon is given, and not for how many {'replies' if local else 'rounds'}; give "
                f"{'replies' if local else 'rounds'}=100, or simulate(rounds=...).",
                about=("replies" if local else "rounds",),
            )
        z = noise_multiplier(scheme, own.epsilon, planned, own.delta, accountant)
    else:
        planned = None
    account = Account(scheme, float(z), own.delta, accountant, own.epsilon, planned)
    if account.rounds == 0:
        raise HoldfastError(
            f"{who}: one {'reply' if local else 'round'} with noise_multiplier={z:g} spends epsilon "
            f"{account.epsilon(1):.3g}, and the budget is {own.epsilon:g}; give more noise or more epsilon.",
            about=("noise_multiplier",),
        )
    return account


def weights_of(wire: Wire, sizes: np.ndarray) -> np.ndarray | None:
    """What clients count for by how many examples they have; None where the wire keeps nothing private."""
    own = found(wire)
    if own is None:
        return None
    if own.max_examples is None:
        return (sizes > 0).astype(float)
    most, mean = (np.float64(n) for n in (own.max_examples, own.mean_examples))
    return np.minimum(sizes, most) / mean


class Spent:
    """How many rounds or replies an account counts after a state; soon found after the one before."""

    def __init__(self, account: Account, each: np.ndarray) -> None:
        self._account = account
        # What a round adds for each client.
        self._each = each
        self._replies = np.zeros(len(each) if account.by_client else 0, int)
        self._seen, self._last = 0, cast(Entry | None, None)

    def so_far(self, state: RunState) -> int:
        """Rounds, or replies or passes of the client of which there are most, whether they arrived or not."""
        return self._of_clients(state.ledger) if self._account.by_client else state.round

    def _of_clients(self, ledger: Ledger) -> int:
        entries = ledger.entries
        gone_on = self._seen <= len(entries) and (
            self._seen == 0 or entries[self._seen - 1] is self._last
        )
        if not gone_on:
            self._replies[:] = 0
            self._seen = 0
        for entry in entries[self._seen :]:
            asked = list(entry.clients)
            self._replies[asked] += self._each[asked]
        self._seen = len(entries)
        self._last = entries[-1] if self._seen else None
        return int(self._replies.max(initial=0))


def guarantee(wire: Wire, account: Account, count: int) -> Guarantee:
    """What so many rounds or replies guarantee, and the noise it took; of a clip that changes, the first."""
    own: Any = hyper.at_round(noise_in(wire), 0)
    over = 1.0 if account.by_client else own.clients
    if account.scheme.kind == "planned":
        over = over * own.correlated.coefficients[0]
    return account.guarantee(count, float(own.clip), float(own.deviation / over))


def check_start(setup: "Setup", start: RunState, spent: Spent) -> None:
    """Refuse to go on from rounds that the account knows nothing of."""
    if start.round == 0:
        return
    algorithm, account = setup.algorithm, setup.account
    assert account is not None
    if account.scheme.kind == "example":
        # Local steps are no part of a state; what it has spent is.
        told = start.history[-1].get("epsilon") if len(start.history) else None
        if told != account.at_most(spent.so_far(start)):
            raise HoldfastError(
                f"start: the state's {start.round} rounds spent epsilon {told}, which is not what this noise "
                f"spends, and the account would be wrong; begin at the first round, or go on with the same "
                f"Local.",
                about=("start",),
            )
        return
    then = None if start.algorithm is None else noise_in(start.algorithm.wire)
    if then is None or describe(then) != describe(noise_in(algorithm.wire)):
        raise HoldfastError(
            f"start: the state's {start.round} rounds were run with "
            f"{'no noise' if then is None else 'other noise'}, and the account would be wrong; begin at the "
            f"first round, or go on with the same noise.",
            about=("start",),
        )
