"""What one run measured, and the numbers read off it."""

import dataclasses

import numpy as np

WINDOW = 5  # rounds; the paper takes 10, with runs several times as long


@dataclasses.dataclass(frozen=True, eq=False)
class Curve:
    """Test accuracy after each round of one run."""

    group: str  # what is compared with what: "C = 1"
    method: str
    seed: int
    accuracy: np.ndarray

    @property
    def smooth(self) -> np.ndarray:
        """Mean of the last `WINDOW` rounds, as far as there are so many."""
        total = np.concatenate([[0.0], np.cumsum(self.accuracy)])
        end = np.arange(1, len(total))
        begin = np.maximum(end - WINDOW, 0)
        return np.asarray((total[end] - total[begin]) / (end - begin))

    @property
    def final(self) -> float:
        """Accuracy at the end."""
        return float(self.smooth[-1])

    @property
    def swing(self) -> float:
        """How much accuracy goes up and down from round to round: its deviation in the last quarter."""
        return float(self.accuracy[-max(1, len(self.accuracy) // 4) :].std())

    def rounds_to(self, target: float) -> int | None:
        """The first round with smoothed accuracy of at least `target`; None if there is none."""
        reached = np.flatnonzero(self.smooth >= target)
        return int(reached[0]) + 1 if len(reached) else None
