"""`aggregate` of an [[algorithm]] and [attack]: what Python would be given, or refused by the line."""

import pytest

import holdfast as hf
from holdfast.config import sections
from holdfast.config.build import study
from holdfast.config.file import ExperimentFileError, read

FILE = """
rounds = 2
[data]
name = "digits"
[partition]
name = "iid"
clients = 5
[model]
name = "softmax_regression"
[local]
learning_rate = 0.1
steps = 1
[attack]
name = "Boosted"
times = -10.0
clients = [0, 3]
[[algorithm]]
name = "feddyn"
alpha = 0.1
aggregate = "NormBounded"
[[algorithm]]
name = "fedavg"
aggregate = { name = "TrimmedMean", share = 0.3 }
[[algorithm]]
name = "fedprox"
mu = 0.1
"""


def written(folder, old="", new=""):
    path = folder / "experiment.toml"
    path.write_text(FILE.replace(old, new, 1) if old else FILE)
    return read(path)


def test_a_file_says_what_python_would(tmp_path):
    made = study(written(tmp_path))
    means = [method.algorithm.aggregate for method in made.methods]
    assert means == [hf.aggregates.NormBounded(), hf.aggregates.TrimmedMean(share=0.3), None]
    attack = made.experiment(made.methods[0], 0).attack
    assert attack == hf.attacks.Boosted(times=-10.0, clients=[0, 3])
    assert made.methods[0].label != made.methods[1].label


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('"NormBounded"', '"NormBound"', 20, "unknown aggregate `NormBound`"),
        ("share = 0.3 }", "shares = 0.3 }", 23, "unknown key `shares`"),
        ('"NormBounded"', '"CoordinateMedian"', 20, "beside the optimum"),
        ('name = "Boosted"', 'name = "Boost"', 14, "unknown attack `Boost`"),
        ("clients = [0, 3]", "clients = [0, 7]", 16, "Boosted: client=7"),
        ("clients = [0, 3]", "", 13, "give who lies"),
    ],
)
def test_mistakes_have_their_line(old, new, line, words, tmp_path):
    with pytest.raises((ExperimentFileError, hf.HoldfastError), match=words) as wrong:
        study(written(tmp_path, old, new))
    assert f"line {line}" in str(wrong.value)


def test_names_are_refused_before_anything_is_imported(tmp_path):
    with pytest.raises(ExperimentFileError, match="unknown aggregate"):
        sections.refuse_mistakes(written(tmp_path, '"NormBounded"', '"Median"'))
    with pytest.raises(ExperimentFileError, match="unknown attack"):
        sections.refuse_mistakes(written(tmp_path, '"Boosted"', '"Boost"'))
