"""MovieLens as sequences: the movies a user rated before, and the next."""

import warnings

import numpy as np

from holdfast.data.cache import Archive, File, Folder, contents
from holdfast.data.checks import check_counts, check_limits
from holdfast.data.dataset import Dataset
from holdfast.data.reserve import Reserve, owner_runs
from holdfast.errors import HoldfastError, explain_arguments

# GroupLens publishes MD5 sums beside the archives; these are TensorFlow Datasets', of the same files.
ML_100K = File(
    "ml-100k.zip",
    ("https://files.grouplens.org/datasets/movielens/ml-100k.zip",),
    "sha256:50d2a982c66986937beb9ffb3aa76efe955bf3d5c6b761f4e3a7cd717c6a3229",
    size=4924029,
)
ML_1M = File(
    "ml-1m.zip",
    ("https://files.grouplens.org/datasets/movielens/ml-1m.zip",),
    "sha256:a6898adb50b9ca05aa231689da44c217cb524e7ebd39d264c56e2832f2c54e20",
    size=5917549,
)


@explain_arguments
def movielens_100k(
    context: int = 10,
    max_examples: int | None = None,
    test: str = "later",
    test_share: float = 0.2,
    seed: int = 0,
    folder: Folder = None,
    verify: bool = True,
) -> Dataset:
    """MovieLens-100K for `hf.models.dual_encoder(items=1683)`; its 943 users own the examples.

    Each user's movies are put in the order of rating. An example is a movie, `y`, and up to
    `context` movies rated before it, `x`, first the earliest; 0 stands for no movie.

    Args:
        context: how many movies an example looks back.
        max_examples: only the last so many examples of a user.
        test: `later` keeps the end of every user's examples for testing, `others` all examples of
            some users.
        test_share: how much is kept, of the examples or of the users.
        seed: draws those users.
        folder: instead of the cache folder; `ml-100k.zip`, or the `ml-100k` extracted from it, lies
            in it or in its subfolder `movielens_100k`.
        verify: compare the archive's checksum, which is published.
    """
    archive = Archive(ML_100K, {"ml-100k/u.data": ""})
    reserve = Reserve(test, test_share, seed)
    return _movielens(
        "movielens_100k", archive, b"\t", 1683, context, max_examples, reserve, folder, verify
    )


@explain_arguments
def movielens_1m(
    context: int = 10,
    max_examples: int | None = None,
    test: str = "later",
    test_share: float = 0.2,
    seed: int = 0,
    folder: Folder = None,
    verify: bool = True,
) -> Dataset:
    """MovieLens-1M for `hf.models.dual_encoder(items=3953)`; its 6,040 users own the examples.

    Each user's movies are put in the order of rating. An example is a movie, `y`, and up to
    `context` movies rated before it, `x`, first the earliest; 0 stands for no movie. With
    `test="others", test_share=0.08` 483 users are tested, as in the mixed federated learning paper.

    Args:
        context: how many movies an example looks back.
        max_examples: only the last so many examples of a user.
        test: `later` keeps the end of every user's examples for testing, `others` all examples of
            some users.
        test_share: how much is kept, of the examples or of the users.
        seed: draws those users.
        folder: instead of the cache folder; `ml-1m.zip`, or the `ml-1m` extracted from it, lies in
            it or in its subfolder `movielens_1m`.
        verify: compare the archive's checksum, which is published.
    """
    archive = Archive(ML_1M, {"ml-1m/ratings.dat": ""})
    reserve = Reserve(test, test_share, seed)
    return _movielens(
        "movielens_1m", archive, b"::", 3953, context, max_examples, reserve, folder, verify
    )


def _movielens(
    of: str,
    archive: Archive,
    separator: bytes,
    items: int,
    context: int,
    max_examples: int | None,
    reserve: Reserve,
    folder: Folder,
    verify: bool,
) -> Dataset:
    check_counts(of, context=context)
    check_limits(of, max_examples=max_examples)
    reserve.check(of)
    (raw,) = contents(of, archive, folder, verify)
    user, movie, _, when = read_ratings(raw, separator, of).T
    if len(movie) == 0 or movie.min() < 1 or movie.max() >= items:
        raise HoldfastError(
            f"{of}: movies must be numbered 1..{items - 1}; give the official file."
        )
    # Stable, so ratings of one second keep the file's order.
    order = np.lexsort((when, user))
    x, y, owners = sequences(user[order], movie[order], context, max_examples)
    return reserve.split(x, y, owners, classes=items, vocabulary=items)


def read_ratings(raw: bytes, separator: bytes, what: str = "ratings") -> np.ndarray:
    """Lines of user, movie, rating and time, as four columns of whole numbers.

    Example:
        >>> read_ratings(b"1::1193::5::978300760", b"::").tolist()
        [[1, 1193, 5, 978300760]]
    """
    try:
        with warnings.catch_warnings():
            # NumPy stops at what is no number, and only warns.
            warnings.simplefilter("error")
            numbers = np.fromstring(raw.replace(separator, b" "), np.int64, sep=" ")
    except (ValueError, DeprecationWarning):
        numbers = np.zeros(1, np.int64)
    if len(numbers) % 4:
        raise HoldfastError(
            f"{what}: lines must be user, movie, rating and time, separated by {separator!r}; "
            f"give the official file."
        )
    return numbers.reshape(-1, 4)


def sequences(
    owner: np.ndarray, item: np.ndarray, context: int, max_examples: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Every item but an owner's first, with the items before it; rows are sorted by owner, then time.

    Example:
        >>> import numpy as np
        >>> x, y, owners = sequences(np.array([1, 1, 1, 2, 2]), np.array([5, 6, 7, 8, 9]), context=2)
        >>> x.tolist(), y.tolist(), owners.tolist()
        ([[5, 0], [5, 6], [8, 0]], [6, 7, 9], [1, 1, 2])
    """
    sizes, place = owner_runs(owner)
    behind = np.repeat(sizes, sizes) - place  # 1 for the owner's last
    rows = np.flatnonzero((place > 0) & (behind <= (max_examples or len(owner))))
    length = np.minimum(place[rows], context)[:, None]
    column = np.arange(context)[None]
    before = np.minimum(rows[:, None] - length + column, len(owner) - 1)
    x = np.where(column < length, item[before], 0)
    return x.astype(np.int32), item[rows].astype(np.int32), owner[rows]
