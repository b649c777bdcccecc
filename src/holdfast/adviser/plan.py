"""What a race decided, so that one that was stopped goes on with the same runs; and the time it has."""

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from holdfast.record.files import write_whole


class Plan:
    """What was decided, kept in a file: how many runs there is time for depends on the machine."""

    def __init__(
        self, file: Path, seconds: float | None, began: float, methods: Sequence[str] = ()
    ) -> None:
        asked = {"seconds": seconds, "methods": list(methods)}
        self._file, self._seconds = file, seconds
        self._known: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        if self._known.get("asked", asked) != asked:
            # What there was time for then says nothing of now; runs that are there are still used.
            self._known = {}
        self._known["asked"] = asked
        self._before = float(self._known.get("seconds", 0.0))
        self._began = began

    @property
    def spent(self) -> float:
        """Seconds, in this and earlier calls."""
        return self._before + time.perf_counter() - self._began

    def decided(self, what: str, decide: Callable[[], Any]) -> Any:
        """A decision, or what was decided before."""
        if what not in self._known:
            self._known[what] = decide()
        self._known["seconds"] = self.spent
        write_whole(self._file, json.dumps(self._known))
        return self._known[what]

    def room(self, share: float, each: float, cores: int) -> int:
        """How many runs of so many seconds there is time for in a stage that may take this share of it."""
        if self._seconds is None:
            return 10**6
        left = share * (self._seconds - self.spent)
        return max(0, int(left * cores / max(each, 1e-6)))
