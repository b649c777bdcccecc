"""What a process is sent to carry out runs of a sweep, and what it does with it."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.engine.experiment import Experiment
from holdfast.jobs.parcel import opened, packed
from holdfast.jobs.reports import Address, reporting
from holdfast.jobs.worker import one_run, use_settings
from holdfast.record.checkpoint import Checkpoint
from holdfast.record.history import Record
from holdfast.record.state import RunState
from holdfast.sweeps.naming import Point
from holdfast.sweeps.paths import at_point
from holdfast.sweeps.run import Result, carry_out, own_folder


@dataclasses.dataclass(frozen=True)
class Work:
    """All runs of a sweep, by number: points one after another, each with all its seeds.

    Args:
        experiment: without the values of a point.
        points: of the sweep.
        seeds: of the sweep.
        rounds: of every run.
        store: where all are saved.
        states: whether somebody asks for the state after every round.
        settings: JAX's configuration.
        address: where processes of this machine say how far they are, if anybody asks.
        hear: in the process of the sweep, what is called instead.
        made: there too, all experiments, which have been checked.
    """

    experiment: Experiment
    points: tuple[Point, ...]
    seeds: tuple[int, ...]
    rounds: int
    store: Checkpoint | None
    states: bool
    settings: dict[str, Any]
    address: Address | None = None
    hear: Callable[[int, RunState], None] | None = None
    made: Sequence[Sequence[Experiment]] | None = None

    def __len__(self) -> int:
        return len(self.points) * len(self.seeds)

    def place(self, number: int) -> tuple[Point, int]:
        """Point and seed of a run."""
        point, seed = divmod(number, len(self.seeds))
        return self.points[point], self.seeds[seed]

    def of(self, number: int) -> Experiment:
        """The experiment of a run."""
        if self.made is not None:
            point, seed = divmod(number, len(self.seeds))
            return self.made[point][seed]
        values, chosen = self.place(number)
        return dataclasses.replace(at_point(self.experiment, values), seed=chosen)

    def to_send(self, address: Address | None = None) -> "Work":
        """As other processes are sent it, wherever their current folder is."""
        store = self.store
        if store is not None:
            store = dataclasses.replace(store, folder=Path(store.folder).absolute())
        given = self.experiment
        if given.storage is not None and given.storage.folder is not None:
            there = Path(given.storage.folder).absolute()
            given = dataclasses.replace(
                given, storage=dataclasses.replace(given.storage, folder=there)
            )
        return dataclasses.replace(
            self, experiment=given, store=store, address=address, hear=None, made=None
        )


class Report(NamedTuple):
    """What a process says of a run after a round; without a record, that it will say no more."""

    number: int
    record: Record | None = None
    total: int = 0  # bytes of all rounds
    state: bytes | None = None


class Answer(NamedTuple):
    """What comes back of a run: its result, its last state if nobody heard of it, and whether reports were
    made from another process."""

    result: Result
    state: RunState | None
    reported: bool


def do(name: str, contents: bytes | Path, number: int) -> bytes:
    """One run, in whatever process: an `Answer`."""
    with one_run:
        work: Work = opened(name, contents)
        use_settings(work.settings)
        last: RunState | None = None
        with _telling(work, number) as tell:

            def seen(state: RunState) -> None:
                nonlocal last
                last = state
                if tell is not None:
                    tell(state)

            store = own_folder(work.store, *work.place(number))
            result = carry_out(work.of(number), work.rounds, store, seen)
        untold = last if work.states and tell is None else None
        reported = tell is not None and work.hear is None
        return packed(Answer(result, untold and without_code(untold), reported))


@contextlib.contextmanager
def _telling(work: Work, number: int) -> Iterator[Callable[[RunState], None] | None]:
    """How a run says that a round is over; None where nobody can hear it."""
    hear = work.hear
    if hear is not None:
        yield lambda state: hear(number, state)
    elif work.address is None:
        yield None
    else:
        with reporting(work.address) as say:

            def tell(state: RunState) -> None:
                whole = packed(without_code(state)) if work.states else None
                say(Report(number, state.history[-1], state.ledger.total, whole))

            yield tell
            say(Report(number))


def without_code(state: RunState) -> RunState:
    """A state for the process of the sweep, which has the algorithm itself: a copy would bring copies of
    its classes."""
    return dataclasses.replace(state, algorithm=None)  # type: ignore[arg-type]
