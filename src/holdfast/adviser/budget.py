"""What advice may cost, and what a real run may."""

import dataclasses
import math
import re

from holdfast.errors import HoldfastError, explain_constructor

_UNITS = {
    "s": 1.0,
    "second": 1.0,
    "min": 60.0,
    "minute": 60.0,
    "m": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
}
_WORDS = {
    "a": 1.0,
    "an": 1.0,
    "one": 1.0,
    "two": 2.0,
    "three": 3.0,
    "four": 4.0,
    "five": 5.0,
    "ten": 10.0,
}
_WORDS |= {"half an": 0.5, "fifteen": 15.0, "twenty": 20.0, "thirty": 30.0}


@explain_constructor
@dataclasses.dataclass(frozen=True)
class Budget:
    """What finding out may cost, and what a run of the advised method may.

    Args:
        seconds: how long the race may take; None takes the time it needs.
        rounds: of a real run: methods are judged by what they reach within so many.
        megabytes: of a real run, both ways and over all clients: a method that sends more in a round
            has fewer of them. None is no bound.

    Example:
        >>> Budget.of("two minutes"), Budget.of("90 s").seconds
        (Budget(seconds=120.0, rounds=None, megabytes=None), 90.0)
    """

    seconds: float | None = None
    rounds: int | None = None
    megabytes: float | None = None

    def __post_init__(self) -> None:
        for name in ("seconds", "megabytes"):
            value = getattr(self, name)
            if value is not None and not (math.isfinite(value) and value > 0):
                raise HoldfastError(
                    f"Budget: {name}={value}; give more than 0, or leave it out.", about=(name,)
                )
        if self.rounds is not None and (not isinstance(self.rounds, int) or self.rounds < 1):
            raise HoldfastError(
                f"Budget: rounds={self.rounds!r}; give a whole number of at least 1.",
                about=("rounds",),
            )

    @classmethod
    def of(cls, given: "Budget | str | float | None") -> "Budget":
        """A budget as people say it: `"two minutes"`, `"90 s"`, seconds as a number, or None: no limit."""
        if given is None or isinstance(given, Budget):
            return given or cls()
        if isinstance(given, int | float) and not isinstance(given, bool):
            return cls(seconds=float(given))
        words = re.fullmatch(r"\s*([\d.]+|[a-z ]+?)\s*([a-z]+?)s?\s*\.?", str(given).lower())
        if words is not None:
            amount, unit = words[1].strip(), _UNITS.get(words[2], _UNITS.get(words[2][:-1]))
            number = _WORDS.get(amount)
            if number is None and re.fullmatch(r"\d+(\.\d*)?|\.\d+", amount):
                number = float(amount)
            if number is not None and unit is not None:
                return cls(seconds=number * unit)
        raise HoldfastError(
            f'budget: {given!r} is no time; give one such as "2 minutes" or "90 s", or '
            f"hf.Budget(rounds=100, megabytes=50).",
            about=("budget",),
        )
