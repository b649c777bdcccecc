"""An algorithm: a rule, the wire its replies take, and how deltas are weighted."""

from collections.abc import Callable
from typing import Literal

from holdfast.data.clients import Clients
from holdfast.errors import HoldfastError, did_you_mean
from holdfast.local import Local
from holdfast.rule import Need, Rule
from holdfast.struct import Struct, static
from holdfast.trees import Tree, paths
from holdfast.wire import Wire

Weighting = Literal["examples", "uniform"]


class Algorithm(Struct):
    """Everything that distinguishes one federated method from another.

    Args:
        rule: what the method does; `Rule()` is FedAvg.
        wire: what happens to replies on their way.
        weighting: deltas are averaged by number of `"examples"` or `"uniform"`ly; what rules hear is
            always averaged uniformly.
        regroup: turns the population into the one this method trains on (`centralised` pools it).
        name: what tables and messages call it.
    """

    rule: Rule = Rule()
    wire: Wire = Wire()
    weighting: Weighting = static(default="uniform")
    regroup: Callable[[Clients], Clients] | None = static(default=None)
    name: str = static(default="algorithm")

    def __post_init__(self) -> None:
        if self.weighting not in ("examples", "uniform"):
            hint = did_you_mean(str(self.weighting), ["examples", "uniform"])
            raise HoldfastError(f"{self.name}: unknown weighting `{self.weighting}`; {hint}")
        if not isinstance(self.rule, Rule) or not isinstance(self.wire, Wire):
            return  # a pytree being rebuilt around placeholders
        if not self.wire.lossless:
            self._refuse(Need.LOSSLESS_WIRE, f"the wire {type(self.wire).__name__} changes them")

    def _refuse(self, need: Need, because: str) -> None:
        for part in self.rule.parts():
            if need in part.needs:
                raise HoldfastError(
                    f"{self.name}: {type(part).__name__} needs {need.value}, but {because}."
                )

    def check(self, params: Tree, local: Local, server_data: bool) -> None:
        """Refuse a combination that cannot work, now that model and local training are known."""
        if not server_data:
            self._refuse(Need.SERVER_DATA, "the run has none")
        steps = local.at(0, params)
        leaves = zip(paths(params), self.rule.plain_leaves(params), steps.momentum, strict=True)
        for name, plain, momentum in leaves:
            if plain and momentum is not None:
                raise HoldfastError(
                    f"{self.name}: needs {Need.PLAIN_STEPS.value}, but Local has momentum on `{name}`; "
                    f"set momentum=None, or keep it off this leaf with momentum_on."
                )
