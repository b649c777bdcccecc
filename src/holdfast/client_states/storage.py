"""How much memory a run may use, and where it goes on from there."""

import dataclasses
import os
import re
from pathlib import Path
from typing import Any

import jax

from holdfast import processes
from holdfast.client_states.device import DeviceStore
from holdfast.client_states.disk import DiskStore
from holdfast.client_states.memory import MemoryStore
from holdfast.client_states.shared import SharedStore
from holdfast.client_states.store import Store
from holdfast.errors import HoldfastError, explain_constructor
from holdfast.jobs import share
from holdfast.trees import Tree, nbytes

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_STORES: tuple[Any, ...] = (DeviceStore, MemoryStore, DiskStore)  # from the fastest to the largest
_UNITS |= {f"{unit}i": 1024**power for power, unit in enumerate("kmgt", start=1)}


@explain_constructor
@dataclasses.dataclass(frozen=True)
class Storage:
    """Where clients' states and examples are kept, by their size. Results do not depend on it, to the bit.

    States of clients that took part are on the device, if it is an accelerator (or `device` is given) and
    has room for them; else in memory; and beyond its limit in a database on disk. Clients never seen
    cost nothing. Examples are on every device if they fit, and otherwise (or if a cohort has less than
    one in fifty of them) gathered for each cohort one round ahead, from memory or from memory-mapped
    files.

    Args:
        memory: the most bytes of states in memory, as a number or such as `"2 GB"`; a quarter of the
            machine's unless given. Runs side by side share it.
        device: the most bytes of states, and of examples, on a device; a quarter of its memory unless
            given.
        folder: for states on disk; that of the checkpoint or a temporary one unless given.
        personal: the most bytes of clients' own models that a run folder keeps at the end, all together;
            larger ones are left out, and the run says so.

    Example:
        >>> import holdfast as hf
        >>> hf.Storage(memory="2 GB").memory_bytes
        2000000000
    """

    memory: int | str | None = None
    device: int | str | None = None
    folder: str | Path | None = None
    personal: int | str = "1 GB"

    def __post_init__(self) -> None:
        _ = self.memory_bytes, self.device_bytes, self.personal_bytes  # refuses what is not a size

    @property
    def memory_bytes(self) -> int:
        """The most bytes of states in memory; of runs side by side, each one's part."""
        return self.machine_bytes // share.count()

    @property
    def machine_bytes(self) -> int:
        """The most bytes of states in memory, of all runs of this machine together."""
        return machine_memory() // 4 if self.memory is None else _size("memory", self.memory)

    @property
    def personal_bytes(self) -> int:
        """The most bytes of clients' own models in a run folder."""
        return _size("personal", self.personal)

    @property
    def device_bytes(self) -> int:
        """The most bytes of states, and of examples, on a device.

        Of runs side by side each has a device of its own; on a CPU, all have the same memory.
        """
        sharing = share.count() if jax.default_backend() == "cpu" else 1
        if self.device is not None:
            return _size("device", self.device) // sharing
        stats = jax.local_devices()[0].memory_stats() or {}
        return int(stats.get("bytes_limit", machine_memory())) // 4 // sharing

    def open(self, first: Tree, clients: int, states: int = 0) -> Store:
        """A place for a population's states, with room for so many at each process."""
        kind = self._kind(states * nbytes(first))
        mine = (
            DiskStore.new(first, clients, self.folder)
            if kind is DiskStore
            else kind(first, clients)
        )
        return mine if processes.count() == 1 else SharedStore(mine, first, clients)

    def fits(self, store: Store) -> bool:
        """Whether states may stay where they are; the answer is the same at all processes."""
        mine: Store = store.mine if isinstance(store, SharedStore) else store
        held = store.most_held if isinstance(store, SharedStore) else len(store)
        # They do not go back: processes share them in other ways from round to round.
        return _STORES.index(type(mine)) >= _STORES.index(self._kind(held * store.state_bytes))

    def _kind(self, size: int) -> Any:
        # On a CPU, host memory is the device's: a store there would only copy more.
        wanted = self.device is not None or jax.default_backend() != "cpu"
        if wanted and size <= self.device_bytes:
            return DeviceStore
        return MemoryStore if size <= self.memory_bytes else DiskStore

    def beside(self, folder: Path) -> "Storage":
        """With states on disk in this folder, unless another one was given."""
        return self if self.folder is not None else dataclasses.replace(self, folder=folder)


def _size(name: str, given: int | str) -> int:
    if isinstance(given, int) and given >= 0:
        return given
    match = re.fullmatch(r"\s*([\d.]+)\s*([kmgt]?i?)b?\s*", str(given), re.IGNORECASE)
    if isinstance(given, str) and match and match[2].lower() in _UNITS:
        try:
            return int(float(match[1]) * _UNITS[match[2].lower()])
        except ValueError:
            pass
    raise HoldfastError(
        f'Storage: {name}={given!r} is not a size; give bytes, or such as "500 MB" or "2 GB".',
        about=(name,),
    )


def machine_memory() -> int:
    """Bytes of memory this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
