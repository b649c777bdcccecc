"""Characters drawn with fonts: labels, upright and turned, sizes, and what a file says."""

import sys

import numpy as np
import pytest

import holdfast as hf
from holdfast.config.build import study
from holdfast.config.file import ExperimentFileError, read

rendered = hf.data.rendered_characters


def one(character="7", **how):
    how = {"angles": [0.0], "points": [100.0]} | how
    return rendered(character, **how).train.x[0, ..., 0]


def test_fifteen_pictures_of_each_character_as_in_the_paper():
    """675 of EMNIST's first 45 classes: five angles and three sizes."""
    data = rendered(hf.data.rendered.BALANCED[:45])
    assert data.train.x.shape == (675, 28, 28, 1)
    assert data.train.x.dtype == np.float32
    assert np.bincount(data.train.y).tolist() == [15] * 45
    assert (data.classes, len(data.test.y)) == (45, 0)
    assert data.train.x.min() == 0
    assert data.train.x.max() <= 1
    # No picture is empty, hardly any reaches the edge, and no two are alike.
    assert (data.train.x.max(axis=(1, 2, 3)) > 0.5).all()
    edges = np.concatenate([data.train.x[:, [0, -1]], data.train.x[:, :, [0, -1]].swapaxes(1, 2)])
    assert (edges > 0).mean() < 0.001
    assert len(np.unique(data.train.x, axis=0)) == 675


def test_the_balanced_split_of_emnist_is_in_this_order():
    """The mapping that comes with EMNIST: digits, capitals, then the small letters that differ."""
    assert len(hf.data.rendered.BALANCED) == 47
    order = [ord(character) for character in hf.data.rendered.BALANCED]
    assert order == sorted(order)
    assert hf.data.rendered.BALANCED[36:] == "abdefghnqrt"


def test_characters_are_upright_and_turn_counter_clockwise():
    bar = one("7", fonts=["DejaVu Sans"])
    assert bar[:14].sum() > bar[14:].sum()  # the bar of a seven is above
    rows, columns = np.indices((28, 28)) - 13.5

    def slope(image):
        return float((image * rows * columns).sum() / (image * columns**2).sum())

    stroke = [slope(one("-", fonts=["DejaVu Sans"], angles=[angle])) for angle in (-20, 0, 20)]
    np.testing.assert_allclose(stroke, np.tan(np.radians([20, 0, -20])), atol=0.12)


def test_larger_points_are_larger_characters():
    ink = [one("0", points=[points]).sum() for points in (60.0, 120.0)]
    assert 2.5 < ink[1] / ink[0] < 5


def test_other_settings():
    assert one(size=32).shape == (32, 32)
    plain, scaled = one(), one(normalise=True)
    np.testing.assert_allclose(scaled, (plain - 0.1751) / 0.3332, atol=1e-5)
    data = rendered("01", test_share=0.2)
    assert (len(data.train.y), len(data.test.y)) == (24, 6)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"characters": ""}, r"characters=''; give them as text"),
        ({"characters": "a b"}, r"without spaces"),
        ({"characters": "abca"}, r"give each once"),
        ({"fonts": ["No Such Font"]}, r"there is no font 'No Such Font'; give a family"),
        ({"fonts": ["missing.ttf"]}, r"there is no font 'missing.ttf'"),
        ({"fonts": "DejaVu Sans"}, r"fonts='DejaVu Sans'; give a list"),
        ({"angles": []}, r"angles=\[\]; give a list"),
        ({"angles": [float("nan")]}, r"angles=\[nan\]; give a list of numbers"),
        ({"characters": "中"}, r"the font .* has no .* give another font"),
        ({"points": [0.0]}, r"points=\[0\.0\]; give sizes above 0"),
        ({"size": 0}, r"size=0; give a whole number"),
        ({"test_share": 1.0}, r"test_share=1\.0; give a number"),
    ],
)
def test_what_cannot_be_drawn_is_refused(how, message):
    with pytest.raises(hf.HoldfastError, match=message):
        rendered(**{"characters": "01", "points": [100.0]} | how)


def test_without_matplotlib(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(hf.HoldfastError, match=r'pip install "holdfast\[figures\]"'):
        rendered("01")


FILE = """
rounds = 1
[data]
name = "rendered_characters"
characters = "0123"
test_share = 0.2
[partition]
name = "iid"
clients = 3
[model]
name = "softmax_regression"
[local]
learning_rate = 0.1
batch_size = 20
[server]
balance = true
[server.data]
name = "rendered_characters"
characters = "0123"
fonts = ["DejaVu Sans"]
angles = [0]
train_labels = [0, 3]
[[algorithm]]
name = "fedavg_plus"
gamma = 1.0
"""


def test_a_file_gives_them_to_the_server(tmp_path):
    (tmp_path / "e.toml").write_text(FILE)
    made = study(read(tmp_path / "e.toml"))
    assert np.asarray(made.server.source.x).shape == (6, 28, 28, 1)
    assert set(made.server.source.y) == {0, 3}
    with pytest.raises(ExperimentFileError, match=r"there is no font 'No Such'"):
        study(read(tmp_path / "e.toml", ['server.data.fonts=["No Such"]']))
