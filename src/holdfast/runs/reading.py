"""Files of a run folder, read with the doubt that somebody has damaged them."""

import json
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.record.history import Record


def damage(path: Path, what: str, remedy: str) -> HoldfastError:
    """A file is not what was written."""
    return HoldfastError(f"{path} is damaged ({what}); {remedy}.")


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """A table; refuses what is none."""
    try:
        found = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise HoldfastError(f"{path} is missing; {remedy}.") from None
    except ValueError as error:  # no JSON, or no text
        raise damage(path, str(error), remedy) from None
    if not isinstance(found, dict):
        raise damage(path, "it is no table", remedy)
    return found


def read_lines(path: Path, remedy: str, every_round: bool = True) -> list[Record]:
    """The lines of a file, one a round, or of some rounds in their order; a last one cut short by a kill is
    not one."""
    if not path.exists():
        return []
    found: list[Record] = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            record = json.loads(line)
        except ValueError as error:
            raise damage(path, f"line {number}: {error}", remedy) from None
        round = record.get("round") if isinstance(record, dict) else None
        last = found[-1]["round"] if found else 0
        if round != number if every_round else not isinstance(round, int) or round <= last:
            raise damage(path, f"line {number} is not round {number}", remedy)
        found.append(record)
    return found
