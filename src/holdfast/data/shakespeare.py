"""Shakespeare's plays by role, prepared as LEAF does."""

import collections
import itertools
import re
from collections.abc import Iterator

import numpy as np

from holdfast.data.cache import Archive, File, Folder, check, contents, home, obtain
from holdfast.data.checks import check_counts, check_limits
from holdfast.data.dataset import Dataset
from holdfast.data.reserve import Reserve, draw_owners
from holdfast.data.text import windows
from holdfast.errors import HoldfastError, did_you_mean, explain_arguments

# LEAF's.
ALPHABET = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
GUTENBERG = Archive(
    File(
        "1994-01-100.zip",
        (
            "https://www.gutenberg.org/files/100/old/old/1994-01-100.zip",
            "https://www.gutenberg.org/files/100/old/1994-01-100.zip",
        ),
    ),
    {"100.txt": ""},
)
# TensorFlow Datasets, tiny_shakespeare/checksums.tsv.
TINY = File(
    "tinyshakespeare_input.txt",
    ("https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",),
    "sha256:86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    size=1115394,
)
SOURCES = ("gutenberg", "tinyshakespeare")
# With so many or fewer, a role is left out.
FEW_LINES = 2

_BY = "by William Shakespeare"
# The line where the plays end in the file of 1994, by LEAF's count.
_END = 124195
_SPEAKS, _GOES_ON = re.compile(r"  ([a-zA-Z][a-zA-Z ]*)\. (.*)"), re.compile(r"    (.*)")
# One play is not indented in the file.
_UNINDENTED = "THE COMEDY OF ERRORS"
_SPEAKS_UNINDENTED, _GOES_ON_UNINDENTED = (
    re.compile(r"([a-zA-Z][a-zA-Z ]*)\. (.*)"),
    re.compile("(.*)"),
)

Roles = dict[str, list[str]]  # what each says, line by line


@explain_arguments
def shakespeare(
    source: str = "gutenberg",
    length: int = 80,
    stride: int = 1,
    predict: str = "last",
    roles: int | None = None,
    test: str = "later",
    test_share: float = 0.2,
    seed: int = 0,
    folder: Folder = None,
    verify: bool = True,
    file: str | None = None,
) -> Dataset:
    """Shakespeare's plays as sequences of 80 characters and the next; every role of a play owns its own.

    As LEAF prepares them: the complete works of Project Gutenberg in the edition of 1994, roles by
    play, without those of two lines or fewer; LEAF's alphabet of 80 characters, any other counting
    as the last of them; all sequences one character apart, in order, the first ones to train on.
    No sequence to test on overlaps one to train on, and roles too short for both are left out.

    Owners are numbers of roles in the order of their names: millions of names would not fit.
    LEAF's labels suit models that read a sequence and answer once. For `hf.models.gru`, which
    answers at every position, give `predict="every", stride=80`.

    The edition's checksum is not published: that of the first download is kept in `CHECKSUMS`
    beside it. That of tinyshakespeare is.

    Args:
        source: `gutenberg` for `1994-01-100.zip` or the `100.txt` in it, or `tinyshakespeare` for
            the first million characters as by Karpathy, where roles are not told apart by play.
        length: characters in a sequence.
        stride: characters from one sequence to the next.
        predict: `last` for the character after the sequence, `every` for the one after each.
        roles: only so many, drawn by `seed`.
        test: `later` keeps the end of every role's sequences for testing, `others` all sequences of
            some roles.
        test_share: how much is kept, of the sequences or of the roles.
        seed: draws roles.
        folder: instead of the cache folder; the files lie in it or in its subfolder `shakespeare`.
        verify: compare checksums.
        file: another file in the folder in the source's format.
    """
    if source not in SOURCES:
        raise HoldfastError(
            f"shakespeare: source `{source}`; {did_you_mean(str(source), SOURCES)}",
            about=("source",),
        )
    if predict not in ("last", "every"):
        raise HoldfastError(
            f"shakespeare: predict={predict!r}; give `last` or `every`.", about=("predict",)
        )
    check_counts("shakespeare", length=length, stride=stride)
    check_limits("shakespeare", roles=roles)
    reserve = Reserve(test, test_share, seed)
    reserve.check("shakespeare")
    text = _text(source, folder, verify, file)
    spoken = gutenberg_roles(text) if source == "gutenberg" else tiny_roles(text)
    names = sorted(name for name, lines in spoken.items() if len(lines) > FEW_LINES)
    names = draw_owners(names, roles, seed)
    parts = [windows(encode(as_leaf(spoken[name])), length, stride) for name in names]
    if not sum(map(len, parts)):
        raise _nobody(length, source)
    owners = np.repeat(np.arange(len(names), dtype=np.int32), [len(part) for part in parts])
    together = np.concatenate(parts)
    labels = together[:, -1] if predict == "last" else together[:, 1:]
    data = reserve.split(
        together[:, :-1],
        labels,
        owners,
        gap=-(-length // stride) - 1,
        everyone_tests=True,
        classes=len(ALPHABET),
        vocabulary=len(ALPHABET),
    )
    if not len(data.train.y):
        raise _nobody(length, source)
    return data


def _nobody(length: int, source: str) -> HoldfastError:
    return HoldfastError(
        f"shakespeare: no role says enough for sequences of {length} characters; give a file in the "
        f"format of {source}, or a smaller `length`.",
        about=("length",),
    )


def _text(source: str, folder: Folder, verify: bool, file: str | None) -> str:
    if file is not None:
        path = home("shakespeare", folder, [file]) / file
        if not path.exists():
            raise HoldfastError(
                f"shakespeare: {path} is missing; give the name of a file in that folder.",
                about=("file",),
            )
        check("shakespeare", path, File(file), verify)
        raw = path.read_bytes()
    elif source == "gutenberg":
        (raw,) = contents("shakespeare", GUTENBERG, folder, verify)
    else:
        raw = obtain("shakespeare", [TINY], folder, verify)[0].read_bytes()
    return raw.decode("utf-8", errors="replace").replace("\r\n", "\n")


def encode(text: str) -> np.ndarray:
    """Numbers of characters in LEAF's alphabet; others become its last.

    Example:
        >>> encode("\\n !~}").tolist()
        [0, 1, 2, 79, 79]
    """
    code = np.full(128, len(ALPHABET) - 1, np.int32)
    code[[ord(letter) for letter in ALPHABET]] = np.arange(len(ALPHABET))
    return code[np.minimum(np.frombuffer(text.encode("utf-32-le"), np.uint32), 127)]


def as_leaf(lines: list[str]) -> str:
    """A role's lines as one text, blanks that follow one another as one."""
    return re.sub("  +", " ", "".join(f"{line} " for line in lines))


def gutenberg_roles(text: str) -> Roles:
    """What every role says in each play of Gutenberg's edition of 1994; the key is PLAY_ROLE."""
    lines = text.splitlines()[1:]
    # The first are the sonnets.
    works = [k for k, line in enumerate(lines) if _BY in line][1:]
    said: Roles = collections.defaultdict(list)
    for begin, end in itertools.pairwise([*works, min(len(lines), _END + 1)]):
        title = next((t for line in lines[begin - 2 : begin - 8 : -1] if (t := line.strip())), "")
        speeches = list(_speeches(lines[begin + 1 : end], title == _UNINDENTED))
        # With one voice it is no play.
        if len({role for role, _ in speeches}) > 1:
            for role, line in speeches:
                said[re.sub(r"\W+", "_", f"{title}_{role}".replace(" ", "_"))].append(line)
    return dict(said)


def _speeches(lines: list[str], unindented: bool) -> Iterator[tuple[str, str]]:
    speaks = _SPEAKS_UNINDENTED if unindented else _SPEAKS
    goes_on = _GOES_ON_UNINDENTED if unindented else _GOES_ON
    role = ""
    for line in lines:
        if match := speaks.match(line):
            # The file is not consistent about case.
            role = match[1].upper()
            if unindented and role.startswith("ACT "):
                role = ""
            else:
                yield role, match[2]
        elif role and (match := goes_on.match(line)):
            # A licence between two acts.
            if unindented and match[1].startswith("<"):
                role = ""
            else:
                yield role, match[1]


def tiny_roles(text: str) -> Roles:
    """What every role says in tinyshakespeare, where a speech is a name with a colon and its lines."""
    said: Roles = collections.defaultdict(list)
    for speech in re.split(r"\n\n+", text.strip()):
        name, _, lines = speech.partition("\n")
        if name.endswith(":"):
            said[name[:-1].upper()].extend(lines.splitlines())
    return dict(said)
