"""What a site remembers, on its disk: a file for each version of its state, named by what it answers.

A version is written, with its checksum, before the reply that belongs to it leaves. The server says with
its next message from which version to go on: the one whose reply it has accepted. So a reply that is lost,
comes late or comes twice leaves a file that nobody asks for, and two servers' lives never meet in one file.
"""

import contextlib
import hashlib
import re
import struct
from pathlib import Path

import safetensors

from holdfast.deploy.messages import FIRST, Version
from holdfast.errors import HoldfastError
from holdfast.record.checkpoint import from_bytes, to_bytes
from holdfast.record.files import PARTIAL, write_whole
from holdfast.trees import Tree, signature

_SUFFIX = ".state"
_DIGEST = 32
_FILE = re.compile(r"round-(\d{8})-([0-9a-f]{32}|first)\.state")


class LostStateError(HoldfastError):
    """A state that was written is not there, or not as it was written."""


class StateVersions:
    """The versions of one site's state in one run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, version: Version) -> Path:
        return self.folder / f"round-{version.round:08d}-{version.message or 'first'}{_SUFFIX}"

    def __contains__(self, version: Version) -> bool:
        return self._path(version).exists()

    def versions(self) -> list[Version]:
        """Those there are, oldest first."""
        found = (_FILE.fullmatch(path.name) for path in sorted(self.folder.glob(f"*{_SUFFIX}")))
        return [Version(int(m[1]), "" if m[2] == "first" else m[2]) for m in found if m is not None]

    def write(self, version: Version, state: Tree) -> None:
        """On the disk when this returns."""
        content = to_bytes(state)
        write_whole(self._path(version), content, hashlib.sha256(content).digest())

    def read(self, version: Version, like: Tree) -> Tree:
        """A version; refuses one that is not there, damaged, or of another method or model."""
        path = self._path(version)
        try:
            whole = path.read_bytes()
        except FileNotFoundError:
            raise LostStateError(
                f"the state after round {version.round} is not on this site's disk"
            ) from None
        content, check = whole[:-_DIGEST], whole[-_DIGEST:]
        if hashlib.sha256(content).digest() != check:
            raise LostStateError(
                f"the state after round {version.round} is damaged on this site's disk"
            )
        try:
            found = from_bytes(content, like)
            fits = signature(found) == signature(like)
        except (ValueError, struct.error, safetensors.SafetensorError):
            fits = False
        if not fits:
            raise LostStateError(
                f"the state after round {version.round} on this site's disk is of another method or model"
            )
        return found

    def forget_before(self, kept: Version, best: Version = FIRST) -> None:
        """Remove what came before a version that the server has saved, but for that of the best round, and
        files never finished."""
        for version in self.versions():
            if version == best:
                continue
            older = version.round < kept.round and version != FIRST
            beside = version.round == kept.round and version != kept
            if older or beside:
                self._path(version).unlink(missing_ok=True)
        for path in self.folder.glob(f"*{_SUFFIX}{PARTIAL}"):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()
