"""An algorithm: a rule, the wire its replies take, and how deltas are weighted."""

import dataclasses
from collections.abc import Callable
from typing import Literal, get_args

from holdfast.core import hyper
from holdfast.core.local import Local
from holdfast.core.mean import PLAIN, Mean
from holdfast.core.rule import Need, Rule, parts_of
from holdfast.core.struct import Struct, static
from holdfast.core.wire import OnSite, Wire
from holdfast.data.clients import Clients
from holdfast.errors import About, HoldfastError, did_you_mean
from holdfast.trees import Tree, paths

NOTHING_OWN = (
    "clients' data is pooled, so that no client has data of its own to adapt to; set adapt to False"
)
Weighting = Literal["examples", "uniform", "processed"]


class Algorithm(Struct):
    """Everything that distinguishes one federated method from another.

    Args:
        rule: what the method does; `Rule()` is FedAvg.
        wire: what happens to replies on their way.
        weighting: deltas are averaged by number of `"examples"` a client has, by number it
            `"processed"` in the round, or `"uniform"`ly; what rules hear by the same weights in the
            objective, but for rules that count heads.
        regroup: turns the population into the one this method trains on (`centralised` pools it).
        name: what tables and messages call it.
        adapt: what a client uses is the model after local steps on its own data: `True`, those of the
            run's `Local`, or a `Local` of their own. The rounds are the same with and without.
        aggregate: how replies become one, from `hf.aggregates`: against clients that lie. The plain mean
            unless given.
    """

    rule: Rule = Rule()
    wire: Wire = Wire()
    weighting: Weighting = static(default="uniform")
    regroup: Callable[[Clients], Clients] | None = static(default=None)
    name: str = static(default="algorithm")
    # Not part of the description by which a run goes on: no round depends on it.
    adapt: Local | bool = static(default=False, repr=False)
    # Runs that were saved before there was such a thing have none.
    aggregate: Mean | None = dataclasses.field(default=None, metadata={"named_if_given": True})

    def __post_init__(self) -> None:
        if self.weighting not in get_args(Weighting):
            hint = did_you_mean(str(self.weighting), get_args(Weighting))
            raise HoldfastError(
                f"{self.name}: unknown weighting `{self.weighting}`; {hint}", about=("weighting",)
            )
        for given, kind in ((self.rule, Rule), (self.wire, Wire)):
            if not isinstance(given, kind):
                raise HoldfastError(
                    f"{self.name}: {given!r} is a {type(given).__name__}; give a {kind.__name__}, such as "
                    f"hf.rules.Dynamic(alpha=0.1) or hf.Wire().",
                    about=("rule",) if kind is Rule else ("wire",),
                )
        if not isinstance(self.adapt, Local | bool):
            raise HoldfastError(
                f"{self.name}: adapt={self.adapt!r}; give True, False or hf.Local(learning_rate, steps=...).",
                about=("adapt",),
            )
        if self.adapt and self.regroup is not None:
            raise HoldfastError(f"{self.name}: {NOTHING_OWN}.", about=("adapt",))
        if not self.wire.lossless:
            self.refuse(
                Need.LOSSLESS_WIRE,
                f"the wire {type(self.wire).__name__} changes them; use hf.Wire()",
                about=("wire",),
            )

        if not self.wire.hears_each:
            self._check_mean_only()
        if self.aggregate is not None:
            self._check_aggregate(self.aggregate)

    @property
    def mean(self) -> Mean:
        """How replies become one."""
        return PLAIN if self.aggregate is None else self.aggregate

    def _check_aggregate(self, aggregate: Mean) -> None:
        """Refuse a mean of replies that this method or its wire cannot have."""
        if not isinstance(aggregate, Mean):
            raise HoldfastError(
                f"{self.name}: aggregate={aggregate!r} is a {type(aggregate).__name__}; give one of "
                f"hf.aggregates, such as hf.aggregates.NormBounded().",
                about=("aggregate",),
            )
        name, wire = type(aggregate).__name__, type(self.wire).__name__
        if type(aggregate) is Mean:
            return
        if isinstance(self.wire, OnSite):
            raise HoldfastError(
                f"{self.name}: aggregate is {name}, and nothing travels in this method; leave it out.",
                about=("aggregate",),
            )
        if not self.wire.hears_each:
            raise HoldfastError(
                f"{self.name}: aggregate is {name}, which looks at every reply, and the wire {wire} tells "
                f"the server only their mean; use hf.wires.Compressed or ErrorFeedback.",
                about=("aggregate",),
            )
        if hyper.varies(aggregate):
            raise HoldfastError(
                f"{self.name}: aggregate is {name} with an hf.PerClient in it, and how replies become one "
                f"is the same for all; give a number or a schedule.",
                about=("aggregate",),
            )
        for part in parts_of(self.rule):
            if part.counts_heads and not part.neutral:
                raise HoldfastError(
                    f"{self.name}: {type(part).__name__} counts clients by what they upload, and {name} "
                    f"makes less of some replies, so that the count would be wrong; leave one of them out.",
                    about=("aggregate",),
                )
        if self.rule.traits.remembers and not aggregate.foreseen:
            keeps = next(p for p in parts_of(self.rule) if p.traits.remembers and _single(p))
            raise HoldfastError(
                f"{self.name}: {type(keeps).__name__} keeps client states whose mean the server's must be, "
                f"and {name} makes another value of them: it would end beside the optimum with nobody "
                f"lying; use hf.aggregates.NormBounded, CenteredClipping or Krum.",
                about=("aggregate",),
            )

    def _check_mean_only(self) -> None:
        """Refuse what needs single replies of a wire that tells only their mean."""
        wire = type(self.wire).__name__
        traits = self.rule.traits
        if not (traits.hears_uploads or (traits.hears_as_sent and self.wire.fixed_mean)):
            raise HoldfastError(
                f"{self.name}: {type(self.rule).__name__} hears every reply, and the wire {wire} "
                f"tells the server only their mean; use hf.Uploaded(rule), which sends what it hears.",
                about=("wire",),
            )
        if self.weighting != "uniform" and not self.wire.fixed_mean:
            raise HoldfastError(
                f"{self.name}: weighting is {self.weighting!r}, and the wire {wire} keeps one mean of "
                f"all clients; use weighting='uniform'.",
                about=("wire",),
            )
        counting = [part for part in parts_of(self.rule) if part.counts_heads]
        if self.weighting != "uniform" and counting:
            raise HoldfastError(
                f"{self.name}: {type(counting[0]).__name__} counts clients alike, and the wire {wire} tells "
                f"one mean by {self.weighting!r}; use weighting='uniform'.",
                about=("wire",),
            )

    def refuse(self, need: Need, because: str, about: About) -> None:
        """Say which part of the rule cannot do without what is not there, if one cannot."""
        for part in parts_of(self.rule):
            if need in part.needs:
                raise HoldfastError(
                    f"{self.name}: {type(part).__name__} needs {need.value}, but {because}.",
                    about=about,
                )

    def check_wire(self, payload: Tree, clients: int, everyone: bool) -> None:
        """Refuse a wire that this rule would diverge or drift with."""
        wire = type(self.wire).__name__
        self.wire.check(payload)
        restless = [p for p in parts_of(self.rule) if Need.CALM_WIRE in p.needs]
        if restless and not self.wire.lossless:
            ids = range(clients if hyper.varies(self.wire) else 1)
            noise = max(hyper.of_client(self.wire, i, float).noise(payload) for i in ids)
            if noise > 0.5:  # measured: see docs/design.md
                raise HoldfastError(
                    f"{self.name}: {type(restless[0]).__name__} needs {Need.CALM_WIRE.value}, but the "
                    f"noise of the wire {wire} is {noise:.3g}: its control variates would grow without "
                    f"bound; give damping={0.5 / (1 + noise):.2g} or less, or compress less.",
                    about=("algorithm", "wire"),
                )
        if self.needs_everyone and not everyone:
            remembering = next(p for p in parts_of(self.rule) if p.traits.remembers and _single(p))
            raise HoldfastError(
                f"{self.name}: {type(remembering).__name__} keeps client states that the server's must "
                f"agree with, and the wire {wire} tells it only a mean over everybody; let everyone "
                f"take part, or use hf.wires.Compressed or ErrorFeedback.",
                about=("algorithm", "wire"),
            )

    @property
    def needs_everyone(self) -> bool:
        """Whether client states and the server's agree only if every client takes part."""
        told_a_mean = not self.wire.hears_each and not self.wire.fixed_mean
        return told_a_mean and self.rule.traits.remembers

    def check(self, params: Tree, local: Local, server_local: Local | None) -> None:
        """Refuse a combination that cannot work, now that model and local training are known."""
        if server_local is None:
            self.refuse(
                Need.SERVER_DATA,
                "the run has none; give simulate(server=hf.Server(data_or_loss, local=...)), or in an "
                "experiment file [server] with examples = 500",
                about=("server",),
            )
        elif server_local.has_momentum or server_local.optimizer is not None:
            self.refuse(
                Need.PLAIN_SERVER_STEPS,
                "the server's Local has momentum or an optimiser; remove it",
                about=(
                    "server",
                    "local",
                    "momentum" if server_local.has_momentum else "optimizer",
                ),
            )
        decay = local.weight_decay
        if decay is not None and (callable(decay) or decay > 0):
            amount = "..." if callable(decay) else f"{decay:g}"
            self.refuse(
                Need.PENALTY_IN_LOSS,
                f"Local has weight_decay={amount}; remove it and give the model an l2, "
                f"hf.models.regularised(model, l2={amount})",
                about=("local", "weight_decay"),
            )
        plain = self.rule.traits.plain_leaves(params)
        if any(plain) and local.optimizer is not None:
            self.refuse(
                Need.PLAIN_STEPS, "Local has an optimizer; remove it", about=("local", "optimizer")
            )
        momentum = local.at(0, params).momentum
        for name, wanted, m in zip(paths(params), plain, momentum, strict=True):
            if wanted and m is not None:
                raise HoldfastError(
                    f"{self.name}: needs {Need.PLAIN_STEPS.value}, but Local has momentum on `{name}`; "
                    f"set momentum=None, or keep it off this leaf with momentum_on.",
                    about=("local", "momentum"),
                )


def _single(rule: Rule) -> bool:
    return len(list(parts_of(rule))) == 1
