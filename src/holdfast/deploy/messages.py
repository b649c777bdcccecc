"""Every message between server and sites, and what each may say.

    server           site
    columns    ->    there       of a table, before a run: which columns there are, which labels how often
    summarise  ->    summary     then: sums, counts and sketches of its training rows
    ask        ->    facts       before a run: how many examples, of which shape
    begin      ->    begun       once a run: the model it begins with, and what the site counts
    round      ->    reply       a round
    evaluate   ->    measured    counts and sums of the site's own held-out examples
    keep       ->    kept        at the end: the model the site would use is written there
                     refusal     instead of an answer: one line that says why

A header has exactly the fields of its class, each of its type and in its range; nothing else is read. A body
is numbers one behind another, in the order of the receiver's own template.
"""

import dataclasses
import math
import re
from dataclasses import field
from typing import Any, ClassVar, NamedTuple, TypeVar

from holdfast.deploy import frame
from holdfast.deploy.frame import BadMessageError

_HEX = re.compile(r"[0-9a-f]{32}")
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
_MASK = re.compile(r"[01]{0,65536}")
_MOST = 2**53  # whole numbers that JSON keeps
M = TypeVar("M", bound="Message")


class Version(NamedTuple):
    """A state of a client: that after a round, in answer to one message. Round 0 is before the first."""

    round: int = 0
    message: str = ""


FIRST = Version()


def _whole(value: Any, least: int = 0) -> bool:
    return type(value) is int and least <= value <= _MOST


def _number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and abs(value) < 1e300


def _text(value: Any) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _digest(value: Any) -> bool:
    return isinstance(value, str) and _HEX.fullmatch(value) is not None


def _version(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 2 or not _whole(value[0]):
        return False
    return value[1] == "" if value[0] == 0 else _digest(value[1])


def _sums(value: Any) -> bool:
    """By the name of a metric: sum and count."""
    return isinstance(value, dict) and all(
        _text(name)
        and isinstance(pair, list)
        and len(pair) == 2
        and _number(pair[0])
        and _whole(pair[1])
        for name, pair in value.items()
    )


def is_name(value: Any) -> bool:
    """Whether it may be the name of a site, or of a column."""
    return _text(value)


def is_digest(value: Any) -> bool:
    """Whether it is 32 hexadecimal digits."""
    return _digest(value)


def is_count(value: Any) -> bool:
    """Whether it is a whole number of things."""
    return _whole(value)


def is_number(value: Any) -> bool:
    """Whether it is a finite number."""
    return _number(value)


_KINDS = {
    "whole": _whole,
    "number": _number,
    "text": _text,
    "label": lambda value: value == "" or _text(value),
    "mask": lambda value: isinstance(value, str) and _MASK.fullmatch(value) is not None,
    "digest": _digest,
    "version": _version,
    "flag": lambda value: type(value) is bool,
    "sums": _sums,
}


# What a field of a header is.
WHOLE, NUMBER, TEXT, LABEL, MASK, DIGEST, VERSION, FLAG, SUMS = ({"kind": kind} for kind in _KINDS)


@dataclasses.dataclass(frozen=True)
class Message:
    """What all have in common: the words of the header, and a body."""

    kind: ClassVar[str] = ""
    body: bytes = field(default=b"", kw_only=True)

    def pack(self) -> bytes:
        """As bytes."""
        header = {f.name: getattr(self, f.name) for f in _headed(type(self))}
        return frame.pack({"kind": self.kind, **header}, self.body)

    @classmethod
    def read(cls: type[M], found: frame.Frame) -> M:
        """From a frame; refuses a header that has not exactly these fields, in their ranges."""
        fields = _headed(cls)
        header = found.header
        if header.get("kind") != cls.kind:
            raise BadMessageError(f"it is no `{cls.kind}`")
        names = {"kind", *(f.name for f in fields)}
        if header.keys() != names:
            raise BadMessageError(f"its header has other fields than a `{cls.kind}` has")
        for one in fields:
            if not _KINDS[one.metadata["kind"]](header[one.name]):
                raise BadMessageError(f"`{one.name}` of its header is no {one.metadata['kind']}")
        values = {
            f.name: Version(*header[f.name]) if f.metadata["kind"] == "version" else header[f.name]
            for f in fields
        }
        return cls(**values, body=found.body)


def _headed(cls: type[Message]) -> list[Any]:
    return [f for f in dataclasses.fields(cls) if "kind" in f.metadata]


@dataclasses.dataclass(frozen=True)
class Columns(Message):
    """Server: which columns does your table have, for the experiment of this digest?"""

    kind = "columns"
    study: str = field(metadata=DIGEST)


@dataclasses.dataclass(frozen=True)
class There(Message):
    """Site: its name. The body is JSON: columns, and training rows by label."""

    kind = "there"
    name: str = field(metadata=TEXT)


@dataclasses.dataclass(frozen=True)
class Summarise(Message):
    """Server: sums, counts and sketches of your columns. The body is JSON: which columns hold words at some
    site, and whether a number is predicted."""

    kind = "summarise"
    study: str = field(metadata=DIGEST)


@dataclasses.dataclass(frozen=True)
class Summary(Message):
    """Site: its name. The body is JSON: its answer."""

    kind = "summary"
    name: str = field(metadata=TEXT)


@dataclasses.dataclass(frozen=True)
class Ask(Message):
    """Server: what do you have, for this method? The body says what became of all sites' columns, if they
    have tables."""

    kind = "ask"
    method: str = field(default="", metadata=LABEL)


@dataclasses.dataclass(frozen=True)
class Facts(Message):
    """Site: its name, how many examples it trains on, and a digest of the shape of one."""

    kind = "facts"
    name: str = field(metadata=TEXT)
    examples: int = field(metadata=WHOLE)
    shape: str = field(metadata=DIGEST)
    algorithm: str = field(metadata=DIGEST)
    model: str = field(metadata=DIGEST)


@dataclasses.dataclass(frozen=True)
class Begin(Message):
    """Server: a run begins. The body is the model it begins with."""

    kind = "begin"
    run: str = field(metadata=DIGEST)
    part: str = field(metadata=LABEL)  # that it is only the first round, by another method
    mask: str = field(metadata=MASK)  # that the run has chosen: a digit for every parameter
    method: str = field(metadata=LABEL)  # as the experiment file calls it
    table: str = field(
        metadata=LABEL
    )  # digest of what became of the sites' columns, if they have tables
    algorithm: str = field(metadata=DIGEST)
    model: str = field(metadata=DIGEST)
    local: str = field(metadata=DIGEST)
    seed: int = field(metadata=WHOLE)
    client: int = field(metadata=WHOLE)
    clients: int = field(metadata=WHOLE)
    examples: int = field(metadata=WHOLE)  # as the site said
    largest: int = field(metadata=WHOLE)  # of all sites: batches are as wide as the widest
    weight: float = field(metadata=NUMBER)  # n_i / mean(n)


@dataclasses.dataclass(frozen=True)
class Begun(Message):
    """Site: it will take part."""

    kind = "begun"
    run: str = field(metadata=DIGEST)


@dataclasses.dataclass(frozen=True)
class Round(Message):
    """Server: take this round, from this version of your state. The body is model and message; or what
    changed, `changes` of them, since the copy that you have beside that state, which is then `copy`.

    `kept` is the version in the server's last save: those before it are needed no more, but for that of the
    best round, `best`, if early stopping keeps it.
    """

    kind = "round"
    run: str = field(metadata=DIGEST)
    round: int = field(metadata=WHOLE)  # from 0
    base: Version = field(metadata=VERSION)
    kept: Version = field(metadata=VERSION)
    best: Version = field(default=FIRST, metadata=VERSION)
    changes: int = field(default=0, metadata=WHOLE)
    copy: str = field(default="", metadata=LABEL)


@dataclasses.dataclass(frozen=True)
class Reply(Message):
    """Site: its reply, packed by the wire; whether every number was finite before that too."""

    kind = "reply"
    run: str = field(metadata=DIGEST)
    round: int = field(metadata=WHOLE)
    message: str = field(metadata=DIGEST)  # that it answers
    examples: int = field(metadata=WHOLE)
    finite: bool = field(metadata=FLAG)


@dataclasses.dataclass(frozen=True)
class Evaluate(Message):
    """Server: measure on your own held-out examples. The body is model and message.

    `models` says which: the server's, the site's own, or both; `sets` on which: test examples, those to
    choose by, or both.
    """

    kind = "evaluate"
    run: str = field(metadata=DIGEST)
    round: int = field(metadata=WHOLE)
    base: Version = field(metadata=VERSION)
    models: str = field(metadata=TEXT)
    sets: str = field(metadata=TEXT)
    metrics: str = field(
        default="", metadata=LABEL
    )  # of the whole set, by name, with commas between


@dataclasses.dataclass(frozen=True)
class Measured(Message):
    """Site: sums over its held-out examples and their number, by set, model and metric."""

    kind = "measured"
    run: str = field(metadata=DIGEST)
    message: str = field(metadata=DIGEST)
    sums: dict[str, list[float]] = field(metadata=SUMS)


@dataclasses.dataclass(frozen=True)
class Keep(Message):
    """Server: the run is over; keep the model you would use. The body is model and message."""

    kind = "keep"
    run: str = field(metadata=DIGEST)
    round: int = field(metadata=WHOLE)
    base: Version = field(metadata=VERSION)


@dataclasses.dataclass(frozen=True)
class Kept(Message):
    """Site: it has written its model to its disk."""

    kind = "kept"
    run: str = field(metadata=DIGEST)
    message: str = field(metadata=DIGEST)


@dataclasses.dataclass(frozen=True)
class Refusal(Message):
    """Site: why there is no answer. `lost`: it has not the state that is asked for, or not the run."""

    kind = "refusal"
    why: str = field(metadata=TEXT)
    message: str = field(metadata=DIGEST)
    lost: bool = field(metadata=FLAG)
