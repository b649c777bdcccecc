"""How many processes work beside each other on this machine, so that each takes its part of the memory."""

_count = 1


def count() -> int:
    """Processes that share this machine's memory, this one included."""
    return _count


def among(processes: int) -> None:
    """From now on this process is one of so many."""
    global _count
    _count = max(1, processes)
