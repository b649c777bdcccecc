"""What a run that is kept private must not have: each refusal says what it would tell."""

from holdfast.core.algorithm import Algorithm
from holdfast.core.rule import Need, parts_of
from holdfast.core.wire import Wire
from holdfast.engine.experiment import Experiment
from holdfast.engine.protocol import RemoteEngine
from holdfast.errors import HoldfastError
from holdfast.privacy.gaussian import Gaussian, read_secret
from holdfast.privacy.local import LocalGaussian
from holdfast.wires import Clipped, Compressed, Downlink


def check_local(given: Experiment, algorithm: Algorithm, own: LocalGaussian, waiting: bool) -> None:
    """Refuse what would tell a reply before the client's noise, or the noise itself."""
    outside = algorithm.wire
    while isinstance(outside, Downlink | Clipped):
        outside = outside.inner
    # Of classes that are known: another may keep, and tell, what a reply was before its noise.
    if outside is not own:
        raise HoldfastError(
            f"{algorithm.name}: the wire {type(outside).__name__} around LocalGaussian may tell what replies "
            f"were before their noise; put it inside: LocalGaussian(..., inner=...).",
            about=("wire",),
        )
    check_rounds(given, algorithm, type(own).__name__, waiting)
    if isinstance(given.engine, RemoteEngine):
        raise HoldfastError(
            "LocalGaussian: sites draw from the server's seed, so that it would know their noise; use it in "
            "simulations alone.",
            about=("wire",),
        )


def check_method(given: Experiment, algorithm: Algorithm, own: Gaussian, waiting: bool) -> None:
    """Refuse what would tell more than the noised mean of bounded replies."""
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
    check_rounds(given, algorithm, type(own).__name__, waiting)
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


def check_rounds(given: Experiment, algorithm: Algorithm, own: str, waiting: bool) -> None:
    """Refuse what tells something of a client without noise, and clients that are none."""
    if given.select:
        raise HoldfastError(
            f"{algorithm.name}: select asks for the table rows that a client uses, which tells the server of "
            f"its data without noise; leave it out.",
            about=("select",),
        )
    if given.first_round is not None or waiting:
        raise HoldfastError(
            f"{algorithm.name}: a first round of another kind (`first_round`, such as FLIX's one shot, which "
            f"sends local optima, or a mask that it chooses) has replies without noise; leave it out, or "
            f"give the mask.",
            about=("first_round",),
        )
    if given.algorithm.regroup is not None:
        raise HoldfastError(
            f"{algorithm.name}: clients' data is pooled, and no client is left to protect; leave "
            f"{own} out.",
            about=("wire",),
        )


def check_weighting(algorithm: Algorithm, own: Gaussian) -> None:
    """Refuse weights without a bound, and bounds without weights."""
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


def check_deployed(own: Gaussian, kind: str) -> None:
    """Sites are told the seed, so nothing may rest on it."""
    if own.correlated is not None:
        raise HoldfastError(
            "Gaussian: sites are not told of correlated noise; use it in simulations alone.",
            about=("correlated",),
        )
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


def check_quantile(own: Gaussian) -> None:
    """Refuse a count that costs more than the whole budget."""
    if own.quantile is None or not isinstance(own.noise_multiplier, int | float):
        return
    if own.noise_multiplier >= 2 * own.count_noise:
        raise HoldfastError(
            f"Gaussian: the count of the quantile with noise {own.count_noise:.3g} alone spends more than "
            f"noise_multiplier={own.noise_multiplier:g} in all allows; give Quantile(noise=) above "
            f"{own.noise_multiplier / 2:.3g}.",
            about=("quantile",),
        )
