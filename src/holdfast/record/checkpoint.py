"""A run on disk: written whole or not at all, and read back only if not a bit has changed."""

import dataclasses
import functools
import hashlib
import json
import shutil
import warnings
from pathlib import Path
from typing import Any

import jax
import numpy as np
import safetensors.numpy
from jax import tree

from holdfast import processes
from holdfast.client_states.disk import FOLDER, DiskStore
from holdfast.client_states.inspect import DamagedStatesError
from holdfast.client_states.shared import SharedStore
from holdfast.client_states.states import ClientStates
from holdfast.errors import (
    HoldfastError,
    HoldfastWarning,
    explain_constructor,
    file_errors_said,
    first_wrong,
)
from holdfast.record import journal
from holdfast.record.chosen_mask import ChosenMask
from holdfast.record.files import write_whole
from holdfast.record.history import Record
from holdfast.record.identity import first_difference
from holdfast.record.journal import Extent, Journal, JournalError
from holdfast.record.state import Kept, RunState
from holdfast.record.versions import differences, versions
from holdfast.trees import Tree

_SUFFIX = ".holdfast"
# How a run is described and its states are laid out; saves before it named none.
_FORMAT = "3"
_DIGEST = 32  # bytes of sha256 at the end of the file


def to_bytes(arrays: Tree, about: dict[str, str] | None = None) -> bytes:
    """A tree's leaves as safetensors; its structure is not stored."""
    leaves = tree.leaves(jax.device_get(arrays))
    named = {f"{i:06d}": np.asarray(a, order="C") for i, a in enumerate(leaves)}
    return safetensors.numpy.save(named, metadata=about)


def from_bytes(content: bytes, like: Tree) -> Tree:
    """The tree again, in the structure of `like`."""
    named = safetensors.numpy.load(content)
    return tree.unflatten(tree.structure(like), [named[name] for name in sorted(named)])


@explain_constructor
@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """Where and how often to save a run; an existing run in the folder is gone on with.

    Args:
        folder: one run per folder.
        every: rounds between saves; the last round is always saved.
        keep: how many of the newest saves to keep, so that a damaged one has a predecessor.
    """

    folder: str | Path
    every: int = 10
    keep: int = 2

    def __post_init__(self) -> None:
        wrong = first_wrong(every=self.every >= 1, keep=self.keep >= 1)
        if wrong:
            raise HoldfastError(
                f"Checkpoint: every={self.every}, keep={self.keep}; give whole numbers of at least 1.",
                about=wrong,
            )

    @functools.cached_property
    def _journal(self) -> Journal:
        return Journal(Path(self.folder))

    def files(self) -> list[Path]:
        """Saves in the folder, oldest first."""
        return sorted(Path(self.folder).glob(f"round-*{_SUFFIX}"))

    @file_errors_said("; the saves before are good")
    def save(self, state: RunState, identity: dict[str, str]) -> Path:
        """Write a state; a kill at any moment leaves the previous saves as they were."""
        folder = Path(self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        store = _own(state.client_states)
        if isinstance(store, DiskStore):
            # Stopped within the next round (Ctrl-C), which has written its states already.
            store = _own(state.client_states.newest())
        touched: list[int] = []
        stacked: Any = ()
        database = None
        if isinstance(store, DiskStore):
            # Client states first: what the file will speak of is on the disk before it is.
            store.commit()
            database = {
                "folder": _relative(store.folder.parent, folder),
                "version": store.version,
                "processes": processes.count(),
                "contents": _contents(store),
            }
        else:
            touched = list(state.client_states.touched)
            stacked = state.client_states.read(np.array(touched, np.int64)) if touched else ()
        processes.wait_for_all("client states are saved")
        path = folder / f"round-{state.round:08d}{_SUFFIX}"
        if processes.is_first():
            about = {
                "format": _FORMAT,
                "identity": json.dumps(identity),
                "round": str(state.round),
                "touched": json.dumps(touched),
                "database": json.dumps(database),
                "journal": json.dumps(self._journal.extend(state)),
                "versions": json.dumps(versions()),
            }
            if state.chosen_mask is not None:
                about["chosen_mask"] = state.chosen_mask.to_json()
            best: Any = ()
            if state.best is not None:
                kept = state.best
                best = kept.params, kept.server, kept.stacked
                about["best"] = json.dumps([kept.round, kept.touched.tolist()])
            content = to_bytes((state.params, state.server, stacked, best), about)
            write_whole(path, content, hashlib.sha256(content).digest())
            for old in self.files()[: -self.keep]:
                old.unlink()
        processes.wait_for_all("the state is saved")
        self._keep_what_saves_need(store)
        return path

    def _keep_what_saves_need(self, store: Any) -> None:
        """Client states and journals that a save refers to stay; those of no save go."""
        folder = Path(self.folder)
        headers = [header(path) for path in self.files()]
        found = [json.loads(about.get("database", "null")) for about in headers]
        needed = [d for d in found if d is not None]
        if processes.is_first():
            journals = {json.loads(about["journal"])[0] for about in headers if "journal" in about}
            journal.remove_others(folder, journals)
        live = store.folder.parent.resolve() if isinstance(store, DiskStore) else None
        if live is not None:
            mine = _relative(live, folder)
            store.pinned = tuple(d["version"] for d in needed if d["folder"] == mine)
        for path in folder.glob(f"{FOLDER}*") if processes.is_first() else ():
            if path.resolve() != live and all(d["folder"] != path.name for d in needed):
                shutil.rmtree(path)

    def refuse_another(self, identity: dict[str, str]) -> None:
        """Refuse saves of another run, by their description alone: client states are not opened."""
        about = header(self.files()[-1])
        if "identity" in about:  # if damaged, there may be an older one, and loading says so
            _refuse_another(self.files()[-1], about, identity)

    @file_errors_said()
    def chosen_mask(self) -> ChosenMask | None:
        """The mask that the run in the folder has chosen; None without a save, or if it chose none."""
        for path in reversed(self.files()):
            try:
                found = _about(_whole(path)).get("chosen_mask")
            except _DamagedSaveError:  # there may be an older one, and loading says so
                continue
            return None if found is None else ChosenMask.from_json(found)
        return None

    @file_errors_said()
    def load(self, fresh: RunState, identity: dict[str, str]) -> RunState | None:
        """The newest undamaged state, or None in an empty folder; refuses another run's."""
        damaged: list[str] = []
        for path in reversed(self.files()):
            try:
                state, extent = _restore(path, fresh, identity)
            except (_DamagedSaveError, DamagedStatesError, JournalError) as error:
                damaged.append(f"{path.name}: {error}")
                continue
            if damaged:
                warnings.warn(
                    f"a save in {self.folder} cannot be used ({'; '.join(damaged)}); going on from "
                    f"{path.name}.",
                    HoldfastWarning,
                    stacklevel=2,
                )
            _warn_of_versions(path)
            if processes.is_first():
                self._journal.go_on(extent, state)
            self._keep_what_saves_need(_own(state.client_states))
            return state
        if damaged:
            raise HoldfastError(
                f"{self.folder}: not one save can be used ({'; '.join(damaged)}); restore its files, or "
                f"delete the folder to start again."
            )
        return None


def _warn_of_versions(path: Path) -> None:
    changed = differences(json.loads(header(path).get("versions", "{}")), versions())
    if changed:
        warnings.warn(
            f"{path} was saved with {changed}: what follows may differ in its last bits from an "
            f"uninterrupted run; go on with those versions for the same bits.",
            HoldfastWarning,
            stacklevel=3,
        )


class _DamagedSaveError(HoldfastError):
    """The file of a save is not what was written."""


def _contents(store: DiskStore) -> list[tuple[int, int]]:
    """How many states every process has, and their fingerprints."""
    count, fingerprint = store.contents
    if processes.count() == 1:
        return [(count, fingerprint)]
    # In halves: JAX takes no whole numbers of 64 bits.
    mine = np.array([count, fingerprint >> 32, fingerprint & 0xFFFFFFFF], np.uint32)
    return [(int(n), int(high) << 32 | int(low)) for n, high, low in processes.gathered(mine)]


def _own(states: ClientStates) -> Any:
    """Where this process keeps its client states."""
    return states.store.mine if isinstance(states.store, SharedStore) else states.store


def header(path: Path) -> dict[str, Any]:
    """What a save says of itself; nothing if it is damaged."""
    with open(path, "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        found = file.read(size) if size < path.stat().st_size else b""
    try:
        about: dict[str, Any] = json.loads(found)["__metadata__"]
        # What is read of it without its checksum can be read.
        if "journal" in about:
            Extent(*json.loads(about["journal"]))
        database = json.loads(about.get("database", "null"))
        _ = database and (database["folder"], database["version"])
        json.loads(about.get("identity", "{}"))
        return about
    except (ValueError, KeyError, TypeError, AttributeError):  # damaged; `load` says so
        return {}


def saved_rounds(folder: Path) -> list[Record]:
    """The rounds of the newest save whose journal is whole; none without one."""
    for path in reversed(Checkpoint(folder).files()):
        about = header(path)
        try:
            if "journal" in about:
                return journal.records(folder, Extent(*json.loads(about["journal"])))
        except JournalError:
            continue
    return []


def _relative(path: Path, folder: Path) -> str:
    """A name inside the folder, so that it may be moved; the whole path elsewhere."""
    inside = path.resolve().parent == folder.resolve()
    return path.name if inside else str(path.resolve())


def _refuse_another(path: Path, about: dict[str, Any], identity: dict[str, str]) -> None:
    if about.get("format") != _FORMAT:
        raise HoldfastError(
            f"cannot go on from {path}: another version of holdfast wrote it, in format "
            f"{about.get('format', '1')} where this one has {_FORMAT}. Finish it with that version, or begin "
            f"again in another folder."
        )
    difference = first_difference(json.loads(about["identity"]), identity)
    if difference:
        raise HoldfastError(
            f"cannot go on from {path}: it belongs to a run with {difference}. "
            f"Use the same settings, or another folder."
        )


def _refuse_another_mask(path: Path, about: dict[str, Any], fresh: RunState) -> None:
    """States are laid out by the mask: what goes on must have that of the save."""
    own = fresh.chosen_mask
    if about.get("chosen_mask") != (None if own is None else own.to_json()):
        raise HoldfastError(
            f"cannot go on from {path}: it has another mask than the first round has chosen now. Another "
            f"process may have written it meanwhile; try again."
        )


def _whole(path: Path) -> bytes:
    """The bytes of a save, if they are as they were written."""
    content = path.read_bytes()
    content, check = content[:-_DIGEST], content[-_DIGEST:]
    if hashlib.sha256(content).digest() != check:
        raise _DamagedSaveError("it is damaged (its checksum does not fit)")
    return content


def _about(content: bytes) -> dict[str, Any]:
    """What a whole save says of itself."""
    length = int.from_bytes(content[:8], "little")
    about: dict[str, Any] = json.loads(content[8 : 8 + length])["__metadata__"]
    return about


def _restore(path: Path, fresh: RunState, identity: dict[str, str]) -> tuple[RunState, Extent]:
    content = _whole(path)
    about = _about(content)
    _refuse_another(path, about, identity)
    _refuse_another_mask(path, about, fresh)
    extent = Extent(*json.loads(about["journal"]))
    history, ledger = journal.read(path.parent, extent, fresh)
    touched = json.loads(about["touched"])
    first = fresh.client_states.first
    like = (fresh.params, fresh.server, first if touched else ())
    kept = json.loads(about.get("best", "null"))
    also = () if kept is None else (fresh.params, fresh.server, first if kept[1] else ())
    params, server, stacked, best = from_bytes(content, (*like, also))
    states = fresh.client_states
    database = json.loads(about["database"])
    if database is not None:
        states = _open_states(path, database, states)
    elif touched:
        states = states.write(np.array(touched), stacked, np.ones(len(touched), bool))
    found = RunState(
        round=int(about["round"]),
        params=params,
        server=server,
        client_states=states,
        ledger=ledger,
        history=history,
        algorithm=fresh.algorithm,
        best=_kept(kept, best),
        chosen_mask=fresh.chosen_mask,
    )
    return found, extent


def _kept(about: list[Any] | None, arrays: Any) -> Kept | None:
    """The best round, as a save has it."""
    if about is None:
        return None
    params, server, stacked = arrays
    return Kept(about[0], params, server, np.array(about[1], np.int64), stacked)


def _open_states(path: Path, database: dict[str, Any], like: ClientStates) -> ClientStates:
    """Client states on disk, as they were when the run was saved."""
    if database["processes"] != processes.count():
        raise HoldfastError(
            f"cannot go on from {path}: its client states are on disk in {database['processes']} part(s), "
            f"one for each process, and now there are {processes.count()} process(es). Go on with as many."
        )
    folder = path.parent / database["folder"] / str(processes.rank())
    count, fingerprint = database["contents"][processes.rank()]
    mine = DiskStore.open_at(
        like.first, len(like), folder, database["version"], (count, fingerprint)
    )
    if processes.count() == 1:
        return ClientStates(like.first, len(like), like.storage, mine)
    shared = SharedStore(mine, like.first, len(like))
    seen = np.zeros(len(like), np.uint8)
    seen[mine.ids()] = 1
    at = processes.gathered(seen)
    ids = np.flatnonzero(at.any(axis=0))
    shared.note(ids, at[:, ids].argmax(axis=0))
    return ClientStates(like.first, len(like), like.storage, shared)
