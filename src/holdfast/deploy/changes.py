"""What sites' copies of the model have missed: the codes of changes, as a wire sends them, round by round.

They are kept beside the run's saves, so that a site that was away catches up after a restart of the server
too.
"""

import hashlib
from pathlib import Path

from holdfast.record.files import write_whole

_DIGEST = 32


class Changes:
    """The codes of a run.

    Args:
        folder: where they are kept; in memory alone unless given.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known: dict[int, bytes] = {}

    def keep(self, t: int, code: bytes) -> None:
        """The code of round `t`, on the disk when this returns."""
        self._known[t] = code
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)
            write_whole(self._path(t), code, hashlib.sha256(code).digest())

    def between(self, first: int, last: int) -> list[bytes] | None:
        """Those of these rounds, both included; None if one is not known, as of a round without anybody."""
        found = [self._of(t) for t in range(first, last + 1)]
        return None if any(code is None for code in found) else [c for c in found if c is not None]

    def forget_before(self, t: int) -> None:
        """Remove those of rounds before this one: whoever missed as many is sent the whole model."""
        for old in [known for known in self._known if known < t]:
            del self._known[old]
            if self._folder is not None:
                self._path(old).unlink(missing_ok=True)

    def _of(self, t: int) -> bytes | None:
        if t not in self._known and self._folder is not None:
            try:
                whole = self._path(t).read_bytes()
            except FileNotFoundError:
                return None
            code, check = whole[:-_DIGEST], whole[-_DIGEST:]
            if hashlib.sha256(code).digest() == check:
                self._known[t] = code
        return self._known.get(t)

    def _path(self, t: int) -> Path:
        assert self._folder is not None
        return self._folder / f"round-{t:08d}.change"
