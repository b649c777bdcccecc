"""What a file may give for an argument is said by the argument's type."""

import pytest

import holdfast as hf
from holdfast.config.build import study
from holdfast.config.file import ExperimentFileError, read
from tests.config.test_wrong_files import GOOD, folder

__all__ = ["folder"]  # a fixture

OWN = """\
from collections.abc import Callable, Sequence

import numpy as np
import optax

import holdfast as hf


def varies(strength: hf.Hyper, pull: hf.Hyper | None = None):
    return hf.algorithms.fedprox(strength)


def fixed(strength: float):
    return hf.algorithms.fedprox(strength)


def untyped(strength):
    return hf.algorithms.fedprox(strength)


def pair(both: tuple[hf.Hyper, hf.Hyper], more: Sequence[hf.Hyper] = ()):
    return hf.Algorithm(hf.Chain(tuple(hf.rules.Proximal(mu) for mu in (*both, *more))))


def parts(
    sender: hf.wires.RandK,
    way: hf.Wire,
    method: hf.Algorithm,
    search: hf.solvers.Solver,
    on: Callable[[str], bool],
    move: optax.GradientTransformation,
    steps: Callable[[float], optax.GradientTransformation],
):
    assert isinstance(sender, hf.wires.RandK)
    assert isinstance(way, hf.wires.Compressed)
    assert isinstance(search, hf.solvers.LBFGS)
    assert on("classifier/bias")
    assert isinstance(move, optax.GradientTransformation)
    assert isinstance(steps(0.1), optax.GradientTransformation)
    return method


def arrays(weights: np.ndarray | Sequence[float], table: np.ndarray | None = None):
    return hf.algorithms.fedprox(sum(weights))


def only_python(weights: np.ndarray):
    return hf.algorithms.fedavg()


def renamed(curvature: hf.Hyper):
    return hf.algorithms.fedprox(curvature)
"""
SCHEDULE = '{ schedule = "exponential", value = 0.5, decay = 0.5 }'


def made(folder, entry: str) -> hf.Algorithm:
    """The second method of a file, by a function of one's own."""
    (folder / "own_types.py").write_text(OWN)
    text = GOOD.replace('name = "feddyn"\nalpha = 0.1', f'name = "own_types.py:{entry}')
    (folder / "experiment.toml").write_text(text)
    return study(read("experiment.toml")).methods[1].algorithm


@pytest.mark.parametrize("function", ["varies", "untyped"])
def test_a_hyper_parameter_is_a_number_a_schedule_or_one_per_client(folder, function):
    assert made(folder, f'{function}"\nstrength = 0.5').rule.mu == 0.5
    assert made(folder, f'{function}"\nstrength = {SCHEDULE}').rule.mu(1) == 0.25
    each = made(folder, f'{function}"\nstrength = [1, 2, 3, 4]').rule.mu
    assert isinstance(each, hf.PerClient)
    with pytest.raises(ExperimentFileError, match=r"line 27: `strength` is \"x\".*expected a num"):
        made(folder, f'{function}"\nstrength = "x"')


@pytest.mark.parametrize("value", [SCHEDULE, "[1, 2, 3, 4]"])
def test_a_float_is_a_number_and_nothing_else(folder, value):
    assert made(folder, 'fixed"\nstrength = 0.5').rule.mu == 0.5
    with pytest.raises(
        ExperimentFileError, match=r"line 27: `strength` is .*; expected a number\."
    ):
        made(folder, f'fixed"\nstrength = {value}')


def test_hyper_parameters_in_a_list(folder):
    rules = made(folder, f'pair"\nboth = [1, {SCHEDULE}]\nmore = [{SCHEDULE}, 2]').rule.rules
    assert [r.mu if isinstance(r.mu, int) else r.mu(0) for r in rules] == [1, 0.5, 0.5, 2]


def test_tables_are_of_the_kind_that_the_type_says(folder):
    entry = """parts"
sender = { name = "RandK", share = 0.5 }
way = { name = "Compressed", compressor = "Cast" }
method = { name = "fedprox", mu = 0.25 }
search = "LBFGS"
on = "classifier"
move = { name = "adam", learning_rate = 0.1 }
steps = "adam\""""
    assert made(folder, entry).rule.mu == 0.25
    with pytest.raises(ExperimentFileError, match="line 27: unknown compressor `Randk`"):
        made(folder, entry.replace('"RandK"', '"Randk"'))


def test_what_a_file_cannot_write_is_left_to_python(folder):
    assert made(folder, 'arrays"\nweights = [0.5, 0.25]').rule.mu == 0.75
    with pytest.raises(ExperimentFileError, match="line 28: unknown key `table`"):
        made(folder, 'arrays"\nweights = [0.5]\ntable = [1]')
    with pytest.raises(
        ExperimentFileError, match=r"line 26: its argument `weights` is a .*ndarray"
    ):
        made(folder, 'only_python"\nweights = [0.5]')


def test_one_value_per_client_is_refused_where_all_are_alike(folder):
    given = GOOD.replace("learning_rate = 0.1", "learning_rate = [1, 2, 3, 4]")
    (folder / "experiment.toml").write_text(given)
    with pytest.raises(ExperimentFileError, match="line 15: Local: learning_rate is one value per"):
        study(read("experiment.toml"))


def test_weights_of_a_cohort(folder):
    weighted = 'name = "weighted"\nsize = 2\nweights = [0, 1, 2, 3]'
    (folder / "experiment.toml").write_text(GOOD.replace('name = "fixed"\nsize = 2', weighted))
    assert study(read("experiment.toml")).cohort == hf.cohorts.weighted(2, [0, 1, 2, 3])


def test_a_key_that_was_renamed(folder):
    with pytest.raises(
        ExperimentFileError,
        match=r"line 27: unknown key `bends` in \[algorithm\]; it is called `curvature` now",
    ):
        made(folder, 'renamed"\nbends = 0.5')
