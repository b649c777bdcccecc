"""A sequence that only grows, as a value: with one more entry it is another, and nothing is copied."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class Log(Sequence[T], Generic[T]):
    """Versions share one list; each knows how much of it is its own."""

    def __init__(self, entries: Iterable[T] = ()) -> None:
        self._shared = list(entries)
        self._length = len(self._shared)

    def with_one_more(self, entry: T) -> "Log[T]":
        """Another log, that ends with this entry."""
        if len(self._shared) != self._length:  # somebody else has gone on from here
            return Log([*self, entry])
        self._shared.append(entry)
        longer: Log[T] = Log.__new__(Log)
        longer._shared, longer._length = self._shared, self._length + 1
        return longer

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return (self._shared[i] for i in range(self._length))

    @overload
    def __getitem__(self, which: int) -> T: ...
    @overload
    def __getitem__(self, which: slice) -> Sequence[T]: ...
    def __getitem__(self, which: Any) -> Any:
        if isinstance(which, slice):
            return self._shared[: self._length][which]
        return self._shared[range(self._length)[which]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(list(self))
