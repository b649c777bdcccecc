"""MovieLens in its official formats, as sequences."""

import zipfile

import jax
import numpy as np
import pytest

import holdfast as hf
from holdfast.data.ratings import sequences
from tests.data.real import SHARED, needs

# Users 7 and 2; user 7's ratings are not in the order of time, and two are of the same second.
RATINGS = [
    (7, 30, 5, 300),
    (7, 10, 1, 100),
    (2, 5, 4, 50),
    (7, 20, 2, 200),
    (7, 25, 2, 200),
    (2, 6, 4, 60),
    (2, 5, 3, 40),
]


def write_1m(folder):
    (folder / "ml-1m").mkdir()
    text = "\n".join("::".join(map(str, row)) for row in RATINGS)
    (folder / "ml-1m" / "ratings.dat").write_text(text + "\n")


def test_movies_before_and_the_next(tmp_path):
    write_1m(tmp_path)
    data = hf.data.movielens_1m(context=2, test_share=0, folder=tmp_path)
    assert data.train.x.tolist() == [[5, 0], [5, 5], [10, 0], [10, 20], [20, 25]]
    assert data.train.y.tolist() == [5, 6, 20, 25, 30]
    assert data.owners.tolist() == [2, 2, 7, 7, 7]
    assert (data.vocabulary, data.train.x.dtype, data.train.y.dtype) == (3953, np.int32, np.int32)
    few = hf.data.movielens_1m(context=2, max_examples=1, test_share=0, folder=tmp_path)
    assert few.train.y.tolist() == [6, 30]


def test_what_is_kept_for_testing(tmp_path):
    write_1m(tmp_path)
    later = hf.data.movielens_1m(test_share=0.4, folder=tmp_path)
    assert (later.train.y.tolist(), later.test.y.tolist()) == ([5, 20], [6, 25, 30])
    assert (later.owners.tolist(), later.test_owners.tolist()) == ([2, 7], [2, 7, 7])
    others = hf.data.movielens_1m(test="others", test_share=0.5, folder=tmp_path)
    assert sorted([len(others.train.y), len(others.test.y)]) == [2, 3]
    clients, tests = others.natural()
    assert (len(clients), len(tests)) == (1, 1)


def test_the_archive_of_100k(tmp_path):
    text = "\n".join("\t".join(map(str, row)) for row in RATINGS)
    with zipfile.ZipFile(tmp_path / "ml-100k.zip", "w") as archive:
        archive.writestr("ml-100k/u.data", text)
    data = hf.data.movielens_100k(folder=tmp_path, verify=False)
    assert (data.vocabulary, data.train.x.shape[1]) == (1683, 10)
    with pytest.raises(hf.HoldfastError, match=r"ml-100k.zip has sha256:\w+ but sha256:50d2a982"):
        hf.data.movielens_100k(folder=tmp_path)


def test_the_dual_encoder_takes_them(tmp_path):
    write_1m(tmp_path)
    data = hf.data.movielens_1m(folder=tmp_path)
    model = hf.models.dual_encoder(data.vocabulary)
    model.check(data.train)
    params = jax.eval_shape(model.init, jax.random.key(0), data.train)
    assert jax.eval_shape(model.loss, params, data.train).shape == (len(data.train.y),)


def test_sequences_agree_with_a_loop():
    rng = np.random.default_rng(0)
    owner = np.sort(rng.integers(0, 20, 300))
    item = rng.integers(1, 50, 300)
    rows = []
    for who in np.unique(owner):
        mine = item[owner == who]
        for k in range(max(1, len(mine) - 8), len(mine)):
            before = mine[max(0, k - 4) : k].tolist()
            rows.append((before + [0] * (4 - len(before)), mine[k], who))
    x, y, owners = sequences(owner, item, context=4, max_examples=8)
    assert [(a.tolist(), b, c) for a, b, c in zip(x, y, owners, strict=True)] == rows


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("1::2::3", "lines must be user, movie, rating and time"),
        ("1::x::3::4", "lines must be user"),
        ("1::4000::3::4", "movies must be numbered 1..3952"),
        ("", "movies must be numbered"),
    ],
)
def test_other_files_are_refused(text, says, tmp_path):
    (tmp_path / "ratings.dat").write_text(text)
    with pytest.raises(hf.HoldfastError, match=says):
        hf.data.movielens_1m(folder=tmp_path)
    with pytest.raises(hf.HoldfastError, match="context=0"):
        hf.data.movielens_1m(context=0, folder=tmp_path)


@needs("movielens_1m")
def test_the_real_movielens():
    data = hf.data.movielens_1m(folder=SHARED)  # its checksum is compared
    assert len(np.unique(data.owners)) == 6040
    assert len(data.train.y) + len(data.test.y) == 1_000_209 - 6040  # all ratings but the first
    assert data.train.y.max() == 3952
