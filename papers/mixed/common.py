"""Of runs that tell how far they are."""

from collections.abc import Callable

Watch = Callable[[str, int, int], None]  # told (what is running, round, of how many) every round


def silent(what: str, now: int, rounds: int) -> None:
    """Tell nobody."""
