"""Text: windows of one's own files, and Shakespeare's roles as LEAF prepares them."""

import gzip
import json
import zipfile

import jax
import numpy as np
import pytest

import holdfast as hf
from holdfast.data.shakespeare import ALPHABET, as_leaf, encode, gutenberg_roles, tiny_roles
from holdfast.data.text import windows
from tests.data.real import SHARED, needs

TINY = """First Citizen:
Before we proceed any further, hear me speak.

All:
Speak, speak.

First Citizen:
You are all resolved rather to die than to famish?
Let us kill him: away!

ALL:
Resolved. resolved.
Away, away!
"""

# The layout of Gutenberg's edition of 1994: roles are indented by two blanks, what follows by four.
PLAYS = """A header
of two lines
1609

THE SONNETS

by William Shakespeare

  From. fairest creatures
    we desire increase,

1603

ALLS WELL THAT ENDS WELL

by William Shakespeare

Dramatis Personae

  KING OF FRANCE

ACT I. SCENE 1.
  COUNTESS. In delivering my son from me,
    I bury   a second husband.
  Bertram. And I in going, madam,

<<THIS ELECTRONIC VERSION>>

    weep o'er my father's death anew;
                 Enter PAROLLES
  COUNTESS. Farewell.
  BERTRAM. Adieu.
THE END

1593


THE COMEDY OF ERRORS


by William Shakespeare

ACT I. SCENE 1.

AEGEON. Proceed, Solinus,
to procure my fall.
<<THIS ELECTRONIC VERSION
of nobody>>
DUKE. Merchant of Syracusa,
plead no more.

1609

A POEM

by William Shakespeare

  Alone. it stands
    without a second role.
"""


def test_gutenbergs_roles_by_play():
    assert gutenberg_roles(PLAYS) == {
        "ALLS_WELL_THAT_ENDS_WELL_COUNTESS": [
            "In delivering my son from me,",
            "I bury   a second husband.",
            "Farewell.",
        ],
        "ALLS_WELL_THAT_ENDS_WELL_BERTRAM": [
            "And I in going, madam,",
            "weep o'er my father's death anew;",
            "             Enter PAROLLES",
            "Adieu.",
        ],
        "THE_COMEDY_OF_ERRORS_AEGEON": ["Proceed, Solinus,", "to procure my fall."],
        "THE_COMEDY_OF_ERRORS_DUKE": [
            "Merchant of Syracusa,",
            "plead no more.",
            "",
            "1609",
            "",
            "A POEM",
            "",
        ],
    }


def test_tinyshakespeares_roles():
    assert tiny_roles(TINY) == {
        "FIRST CITIZEN": [
            "Before we proceed any further, hear me speak.",
            "You are all resolved rather to die than to famish?",
            "Let us kill him: away!",
        ],
        "ALL": ["Speak, speak.", "Resolved. resolved.", "Away, away!"],
    }


def test_characters_and_blanks():
    assert len(ALPHABET) == 80
    assert as_leaf(["a  b", "", " c"]) == "a b c "
    assert encode("az\N{EM DASH}").tolist() == [ALPHABET.index("a"), ALPHABET.index("z"), 79]
    assert windows(np.arange(5), 3, 1).tolist() == [[0, 1, 2, 3], [1, 2, 3, 4]]
    assert windows(np.arange(3), 3, 1).shape == (0, 4)


def test_sequences_of_a_role(tmp_path):
    with zipfile.ZipFile(tmp_path / "1994-01-100.zip", "w") as archive:
        archive.writestr("100.txt", PLAYS.replace("\n", "\r\n"))
    data = hf.data.shakespeare(length=5, folder=tmp_path)
    assert (data.vocabulary, data.classes) == (80, 80)
    said = as_leaf(gutenberg_roles(PLAYS)["ALLS_WELL_THAT_ENDS_WELL_COUNTESS"])
    number = 1  # roles of more than two lines: Bertram, the Countess, the Duke
    mine, tested = data.owners == number, data.test_owners == number
    codes, trained = encode(said), int(0.8 * (len(said) - 5))
    assert mine.sum() == trained
    np.testing.assert_array_equal(data.train.x[mine][3], codes[3:8])
    assert data.train.y[mine][3] == codes[8]
    assert tested.sum() == len(said) - 5 - trained - 4  # LEAF leaves a gap of length - 1
    np.testing.assert_array_equal(data.test.x[tested][0], codes[trained + 4 : trained + 9])
    assert np.unique(data.owners).tolist() == np.unique(data.test_owners).tolist() == [0, 1, 2]


def test_sequences_for_a_model_that_answers_at_every_position(tmp_path):
    (tmp_path / "tiny.txt").write_text(TINY * 3)
    data = hf.data.shakespeare(
        "tinyshakespeare", 10, 10, predict="every", roles=1, folder=tmp_path, file="tiny.txt"
    )
    np.testing.assert_array_equal(data.train.x[0, 1:], data.train.y[0, :-1])
    assert data.train.y[0, -1] == data.train.x[1, 0]
    assert len(np.unique(data.owners)) == 1
    model = hf.models.gru(data.vocabulary, embedding=4, width=4)
    model.check(data.train)
    params = jax.eval_shape(model.init, jax.random.key(0), data.train)
    assert jax.eval_shape(model.loss, params, data.train).shape == (len(data.train.y),)


def test_others_may_be_kept_for_testing(tmp_path):
    (tmp_path / "tiny.txt").write_text(TINY)
    data = hf.data.shakespeare(
        "tinyshakespeare", 5, test="others", test_share=0.5, folder=tmp_path, file="tiny.txt"
    )
    assert len(np.unique(data.owners)) == 1
    assert data.test_owners is None
    everything = hf.data.shakespeare(
        "tinyshakespeare", 5, test_share=0, folder=tmp_path, file="tiny.txt"
    )
    assert (len(np.unique(everything.owners)), len(everything.test.y)) == (2, 0)
    with pytest.raises(hf.HoldfastError, match="no role says enough"):  # for both parts
        hf.data.shakespeare("tinyshakespeare", 60, folder=tmp_path, file="tiny.txt")
    lengths = {len(as_leaf(lines)) - 5 for lines in tiny_roles(TINY).values()}
    assert {len(data.train.y), len(data.test.y)} == lengths


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"source": "gutenburg"}, "did you mean `gutenberg`"),
        ({"predict": "all"}, "give `last` or `every`"),
        ({"length": 0}, "length=0; give"),
        ({"roles": 2.5}, "roles=2.5; give a whole number"),
        ({"test": "later on"}, "give `later` or `others`"),
        ({"test_share": 1.0}, "test_share=1.0; give"),
        ({"file": "nowhere"}, "nowhere is missing"),
        ({"file": "no.txt"}, "no role says enough for sequences of 80 characters"),
    ],
)
def test_mistakes_about_shakespeare(arguments, says, tmp_path):
    (tmp_path / "no.txt").write_text("Nothing to be seen here.")
    with pytest.raises(hf.HoldfastError, match=says):
        hf.data.shakespeare(folder=tmp_path, **arguments)


@needs("shakespeare")
def test_the_real_tinyshakespeare():
    data = hf.data.shakespeare(
        "tinyshakespeare", stride=80, predict="every", folder=SHARED
    )  # its checksum is compared
    assert data.train.x.shape == data.train.y.shape == (10052, 80)
    assert data.test.x.shape == (2622, 80)
    assert len(np.unique(data.owners)) == 230
    clients, tests = data.natural()
    assert (len(clients), tests.sizes.min()) == (230, 1)


def test_windows_of_a_plain_file(tmp_path):
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(b"aab" * 100))
    data = hf.data.text(tmp_path / "a.txt.gz", window=5, characters=1, test_share=0.1)
    assert (data.train.x.shape, data.test.x.shape) == ((45, 5), (5, 5))
    assert data.train.x[0].tolist() == [1, 1, 0, 1, 1]
    assert data.train.y[0].tolist() == [1, 0, 1, 1, 0]
    assert (data.vocabulary, data.owners, data.train.x.dtype) == (2, None, np.int32)
    named = hf.data.text(tmp_path / "a.txt.gz", window=5, alphabet="xb")
    assert named.train.x[0].tolist() == [0, 0, 2, 0, 0]
    assert named.vocabulary == 3


def test_authors_own_their_windows(tmp_path):
    posts = [
        ("s", "ann", "x" * 30),
        ("s", "bob", "y"),
        ("t", "ann", "z" * 50),
        ("s", "ann", "w" * 9),
    ]
    lines = [json.dumps({"site": s, "who": a, "post": p}) for s, a, p in posts]
    (tmp_path / "posts.jsonl").write_text("\n".join(lines) + "\n\n")

    def read(**arguments):
        return hf.data.text(tmp_path / "posts.jsonl", window=4, column="post", **arguments)

    data = read(author="site,who", test_share=0.5)
    assert data.owners.tolist() == ["s/ann"] * 4 + ["t/ann"] * 5
    assert data.test_owners.tolist() == ["s/ann"] * 4 + ["t/ann"] * 5
    assert len(read(author="who").train.y) == 14  # 18 windows, of which floor(0.8 n) are kept
    assert np.unique(read(author="site,who", min_bytes=45).owners).tolist() == ["t/ann"]
    assert len(np.unique(read(author="site,who", authors=1).owners)) == 1
    others = read(author="site,who", test="others", test_share=0.5)
    assert (len(np.unique(others.owners)), others.test_owners) == (1, None)
    with pytest.raises(hf.HoldfastError, match=r"line 1: KeyError 'author'; give JSON objects"):
        read()
    with pytest.raises(hf.HoldfastError, match="nobody with 500 bytes"):
        read(author="who", min_bytes=500)


def test_mistakes_about_text(tmp_path):
    (tmp_path / "a.txt").write_text("abc" * 50)
    (tmp_path / "b.gz").write_text("no gzip")
    with pytest.raises(hf.HoldfastError, match="nowhere is missing"):
        hf.data.text(tmp_path / "nowhere")
    with pytest.raises(hf.HoldfastError, match="cannot be read"):
        hf.data.text(tmp_path / "b.gz")
    with pytest.raises(hf.HoldfastError, match="no authors to keep apart"):
        hf.data.text(tmp_path / "a.txt", test="others")
    with pytest.raises(hf.HoldfastError, match="give ASCII characters"):
        hf.data.text(tmp_path / "a.txt", alphabet="\N{EM DASH}")
    with pytest.raises(hf.HoldfastError, match="window=0"):
        hf.data.text(tmp_path / "a.txt", window=0)
    with pytest.raises(hf.HoldfastError, match="lower `min_bytes` or `window`"):
        hf.data.text(tmp_path / "a.txt", window=150)


@needs("text")
def test_real_posts_and_articles():
    posts = hf.data.text(
        SHARED / "text" / "stackexchange-posts.jsonl.gz", author="site,author", min_bytes=4000
    )
    assert len(np.unique(posts.owners)) == 466
    assert posts.vocabulary == 91
    articles = hf.data.text(SHARED / "text" / "enwik8-first-5MB.gz")
    windows_there = 5_000_000 // 41
    assert len(articles.train.y) + len(articles.test.y) == windows_there
    assert (articles.train.x == 0).mean() < 0.01  # nearly all characters have a number
