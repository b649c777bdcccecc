"""Stack Overflow: tags of posts from their words, or posts as characters; users own their posts."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.data.cache import (
    Archive,
    File,
    Folder,
    contents,
    home,
    obtain,
    opened_archive,
    optional,
)
from holdfast.data.checks import check_counts, check_limits
from holdfast.data.clients import Examples
from holdfast.data.dataset import Dataset
from holdfast.data.reserve import draw_owners
from holdfast.data.text import numbering, windows
from holdfast.data.unpack import damage_said
from holdfast.errors import HoldfastError, explain_arguments

_AGAIN = "a file of posts in it is damaged: delete it, and it is extracted again"
SITE = "https://storage.googleapis.com/tff-datasets-public"
# Checksums: TensorFlow Federated, simulation/datasets/stackoverflow.py.
POSTS = File(
    "stackoverflow.tar.bz2",
    (f"{SITE}/stackoverflow.tar.bz2",),
    "sha256:99eca2f8b8327a09e5fc123979df2d237acbc5e52322f6d86bf523ee47b961a2",
)
WORDS = Archive(
    File(
        "stackoverflow.word_count.tar.bz2",
        (f"{SITE}/stackoverflow.word_count.tar.bz2",),
        "sha256:1dc00256d6e527c54b9756d968118378ae14e6692c0b3b6cad470cdd3f0c519c",
    ),
    {"stackoverflow.word_count": ""},
)
TAGS = Archive(
    File(
        "stackoverflow.tag_count.tar.bz2",
        (f"{SITE}/stackoverflow.tag_count.tar.bz2",),
        "sha256:6fe281cec490d9384a290d560072438e7e2b377bbb823876ce7bd6f82696772d",
    ),
    {"stackoverflow.tag_count": ""},
)
TRAIN, TEST = "stackoverflow_train.h5", "stackoverflow_test.h5"


@explain_arguments
def stack_overflow(
    users: int | Sequence[str] = 100,
    max_examples: int | None = 100,
    words: int = 10_000,
    tags: int = 500,
    seed: int = 0,
    folder: Folder = None,
    verify: bool = True,
) -> Dataset:
    """Stack Overflow's tag prediction as in TensorFlow Federated: which tags a post has, from its words.

    `x` holds how often each of the most frequent words occurs in a post and its title, divided by
    the number of all words; `y` is 1 for each of the most frequent tags it has. The first part, up
    to 2017, is to train on, later posts of the same users are to test on. One post takes 40 kB, and
    there are 342,477 users: hence the limits. Needs h5py. The archives' checksums are published;
    once the posts are extracted beside the archive, it may be deleted. `hf.models.multi_label` trains on it.

    Args:
        users: only so many, drawn by `seed`; or their ids, such as `["00000267", "00000459"]`, whose
            posts then stand in this order.
        max_examples: only the first so many posts of a user.
        words: how many words are told apart.
        tags: how many tags are to be predicted.
        seed: draws users.
        folder: instead of the cache folder; the archives, or the files extracted from them, lie in
            it or in its subfolder `stack_overflow`.
        verify: compare checksums.
    """
    check_limits("stack_overflow", max_examples=max_examples, words=words, tags=tags)
    _check_users("stack_overflow", users)
    h5py = optional("h5py", "h5py", "stack_overflow")
    (raw_words,) = contents("stack_overflow", WORDS, folder, verify)
    (raw_tags,) = contents("stack_overflow", TAGS, folder, verify)
    word_ids, tag_ids = read_words(raw_words, words), read_tags(raw_tags, tags)
    train_path, test_path = _posts(folder, verify)
    with (
        damage_said("stack_overflow", train_path.parent, _AGAIN, about=("folder",)),
        h5py.File(train_path, "r") as before,
        h5py.File(test_path, "r") as after,
    ):
        drawn = _choose("stack_overflow", before["examples"], users, seed)
        train, owners = read_posts(before["examples"], drawn, max_examples, word_ids, tag_ids)
        test, test_owners = read_posts(after["examples"], drawn, max_examples, word_ids, tag_ids)
    return Dataset(train, test, owners, test_owners, len(tag_ids), len(word_ids))


@explain_arguments
def stack_overflow_text(
    users: int | Sequence[str] = 100,
    max_examples: int | None = 100,
    window: int = 100,
    characters: int = 90,
    alphabet: str | None = None,
    seed: int = 0,
    folder: Folder = None,
    verify: bool = True,
) -> Dataset:
    """Stack Overflow's posts as characters for `hf.models.gru`: at every position the one that follows.

    What a user wrote is put together, a line for each post, and cut into windows that do not overlap,
    as `hf.data.text` does with files; users who wrote less than a window are left out. The first part,
    up to 2017, is to train on, later posts of the same users are to test on. The posts are TensorFlow
    Federated's: words in lower case, with spaces between them. Needs h5py.

    Args:
        users: only so many, drawn by `seed`; or their ids, such as `["00000267", "00000459"]`.
        max_examples: only the first so many posts of a user.
        window: characters that the model reads at once.
        characters: how many different ones are told apart, the most frequent; all others are 0.
        alphabet: the characters to number 1, 2, ... instead, so that another text can be read alike.
        seed: draws users.
        folder: instead of the cache folder; the archive, or the files extracted from it, lie in it or
            in its subfolder `stack_overflow`.
        verify: compare checksums.
    """
    of = "stack_overflow_text"
    check_counts(of, window=window)
    check_limits(of, max_examples=max_examples, characters=characters)
    _check_users(of, users)
    h5py = optional("h5py", "h5py", of)
    paths = _posts(folder, verify)
    with (
        damage_said(of, paths[0].parent, _AGAIN, about=("folder",)),
        h5py.File(paths[0], "r") as before,
        h5py.File(paths[1], "r") as after,
    ):
        drawn = _choose(of, before["examples"], users, seed)
        texts = [
            {user: _written(part["examples"], user, max_examples) for user in drawn}
            for part in (before, after)
        ]
    kept = [user for user in drawn if len(texts[0][user]) > window]
    if not kept:
        raise HoldfastError(
            f"{of}: none of {len(drawn)} users wrote more than {window} characters; lower `window`.",
            about=("window",),
        )
    code, vocabulary = numbering([texts[0][user] for user in kept], characters, alphabet, of)
    (train, owners), (test, test_owners) = (_windows(part, kept, code, window) for part in texts)
    return Dataset(train, test, owners, test_owners, vocabulary=vocabulary)


def _windows(
    texts: Mapping[str, bytes], users: Sequence[str], code: np.ndarray, window: int
) -> tuple[Examples, np.ndarray]:
    cut = [
        windows(code[np.frombuffer(texts[user], np.uint8)], window, window + 1) for user in users
    ]
    together = np.concatenate(cut)
    owners = np.repeat(np.asarray(users), [len(part) for part in cut])
    return Examples(together[:, :-1], together[:, 1:]), owners


def _written(posts: Mapping[str, Any], user: str, max_examples: int | None) -> bytes:
    """What a user wrote, a line for each post; nothing where there is none."""
    return b"\n".join(posts[user]["tokens"][:max_examples]) if user in posts else b""


def _check_users(of: str, users: int | Sequence[str]) -> None:
    if not isinstance(users, Sequence):
        return check_counts(of, users=users)
    named = not isinstance(users, str) and all(isinstance(user, str) for user in users)
    if not named or not users or len(set(users)) < len(users):
        raise HoldfastError(
            f"{of}: users={users!r}; give how many, or a list of ids in quotes, each once.",
            about=("users",),
        )


def _choose(of: str, posts: Mapping[str, Any], users: int | Sequence[str], seed: int) -> list[str]:
    """So many users, drawn by the seed, or those with these ids."""
    if not isinstance(users, Sequence):
        return draw_owners(sorted(posts), users, seed)
    unknown = [user for user in users if user not in posts]
    if unknown:
        raise HoldfastError(
            f"{of}: nobody among the {len(posts)} users has the id {unknown[0]!r}; give ids of the "
            f"training part, such as {min(posts)!r}.",
            about=("users",),
        )
    return list(users)


def _posts(folder: Folder, verify: bool) -> list[Path]:
    place = home("stack_overflow", folder, [TRAIN, TEST, POSTS.name])
    paths = [place / TRAIN, place / TEST]
    missing = [path for path in paths if not path.exists()]
    if missing:
        (archive,) = obtain("stack_overflow", [POSTS], folder, verify)
        with opened_archive("stack_overflow", archive) as inside:
            for path in missing:
                inside.extract(path.name, path)
    return paths


def read_words(raw: bytes, words: int) -> dict[str, int]:
    """The number of each of the most frequent words, from lines of a word and its count.

    Example:
        >>> read_words(b"the 30\\na 20\\nrare 1\\n", 2)
        {'the': 0, 'a': 1}
    """
    lines = raw.decode().splitlines()[:words]
    return {line.split()[0]: k for k, line in enumerate(lines)}


def read_tags(raw: bytes, tags: int) -> dict[str, int]:
    """The number of each of the most frequent tags, from a JSON object of counts.

    Example:
        >>> read_tags(b'{"css": 2, "python": 9, "git": 1}', 2)
        {'python': 0, 'css': 1}
    """
    counts = json.loads(raw)
    often = sorted(counts, key=lambda tag: -counts[tag])[:tags]
    return {tag: k for k, tag in enumerate(often)}


def read_posts(
    posts: Mapping[str, Any],
    users: Sequence[str],
    max_examples: int | None,
    words: dict[str, int],
    tags: dict[str, int],
) -> tuple[Examples, np.ndarray]:
    """Users' posts as bags of words and of tags, and whose they are; some may have none.

    Example:
        >>> post = {"tokens": [b"how to how"], "title": [b"help"], "tags": [b"git|svn"]}
        >>> bags, owners = read_posts({"7": post}, ["7", "8"], None, {"how": 0, "to": 1}, {"git": 0})
        >>> bags.x.tolist(), bags.y.tolist(), owners.tolist()
        ([[0.5, 0.25]], [[1.0]], ['7'])
    """
    read = [
        (user, *post)
        for user in users
        if user in posts
        for post in zip(
            *(posts[user][field][:max_examples] for field in ("tokens", "title", "tags")),
            strict=True,
        )
    ]
    x = np.zeros((len(read), len(words)), np.float32)
    y = np.zeros((len(read), len(tags)), np.float32)
    for row, (_, tokens, title, tagged) in enumerate(read):
        said = f"{tokens.decode()} {title.decode()}".split()
        for word in _known(said, words):
            x[row, word] += 1
        x[row] /= max(len(said), 1)
        y[row, _known(tagged.decode().split("|"), tags)] = 1
    return Examples(x, y), np.asarray([user for user, *_ in read], dtype=str)


def _known(names: Iterable[str], numbers: dict[str, int]) -> list[int]:
    return [numbers[name] for name in names if name in numbers]
