"""The mask that a run chose after its first round, with what it was chosen by."""

import dataclasses
import json
from typing import Any


@dataclasses.dataclass(frozen=True)
class ChosenMask:
    """Which layers `mask="auto"` came to, and why; in a save as it is here.

    Args:
        layers: names of all layers, from the first that examples meet to the last.
        diversity: the drift diversity of each in the first round.
        first: the number of the first masked layer, from 0; as many as there are: none is.
        parameters: one bool for each leaf of the model, a mask for `hf.Masked` and `fedpvr`.
        share: of the model's parameters that are masked.
    """

    layers: tuple[str, ...]
    diversity: tuple[float, ...]
    first: int
    parameters: tuple[bool, ...]
    share: float

    @property
    def masked(self) -> tuple[str, ...]:
        """Names of the masked layers."""
        return self.layers[self.first :]

    def __str__(self) -> str:
        if not self.masked:
            return "no layer is masked"
        return f"masked from {self.masked[0]} on, {self.share:.1%} of the parameters"

    def to_json(self) -> str:
        """As a save keeps it."""
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "ChosenMask":
        """The same again."""
        found: dict[str, Any] = json.loads(text)
        lists = {name: tuple(found[name]) for name in ("layers", "diversity", "parameters")}
        return cls(first=found["first"], share=found["share"], **lists)
