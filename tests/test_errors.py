"""Errors say what they are about, for whoever shows them; names that changed are told."""

import pickle

import numpy as np
import pytest

import holdfast as hf
from holdfast.errors import RENAMED, explain_arguments, first_wrong
from tests.test_bad_input import EXAMPLES, labels, run, spoiled

MODEL, CLIENTS = hf.models.softmax_regression(3), hf.Clients.from_datasets([EXAMPLES])

RAND = hf.wires.RandK(share=0.01)
PERSONAL = hf.PerClient([0.1])
# of a function or constructor its own argument, of a run the part of the experiment
ABOUT = {
    "an unknown argument": (lambda: hf.Local(learningrate=0.1), ("learningrate",)),
    "a value of Local": (lambda: hf.Local(learning_rate=-0.1), ("learning_rate",)),
    "one value per client": (lambda: hf.Local(0.1, clip=PERSONAL), ("clip",)),
    "an option of a method": (lambda: hf.algorithms.scaffold(upload="no"), ("upload",)),
    "a method's number": (lambda: hf.algorithms.flix(alpha=2.0), ("alpha",)),
    "a wire": (lambda: hf.wires.Clipped(hf.Wire(), bound=0.0), ("bound",)),
    "a compressor": (lambda: hf.wires.RandK(k=0), ("k",)),
    "a solver": (lambda: hf.solvers.LBFGS(tolerance=0.0), ("tolerance",)),
    "a cohort": (lambda: hf.cohorts.bernoulli(2.0), ("probability",)),
    "a partition": (lambda: hf.data.partition.iid(EXAMPLES, clients=0), ("clients",)),
    "a data set": (lambda: hf.data.arrays("none.npz"), ("path",)),
    "a model": (lambda: hf.models.mlp([4], classes=1), ("classes",)),
    "an engine": (lambda: hf.Engine(devices=3), ("devices",)),
    "a storage": (lambda: hf.Storage(memory="much"), ("memory",)),
    "an evaluation": (lambda: hf.evaluate.on(EXAMPLES, every=0), ("every",)),
    "a population": (lambda: hf.Population(CLIENTS, MODEL, weight=0.0), ("weight",)),
    "a server": (lambda: hf.Server(EXAMPLES, local=None), ("local",)),
    "a wire that a rule cannot have": (
        lambda: hf.Algorithm(hf.rules.Dynamic(0.1), hf.wires.Diana(RAND)),
        ("wire",),
    ),
    "the run's cohort": (lambda: run(cohort=hf.cohorts.fixed(9)), ("cohort", "size")),
    "the run's data": (lambda: run(clients=spoiled(np.nan)), ("data",)),
    "the run's model": (lambda: run(clients=labels(3)), ("model", "classes")),
    "the run's clients": (
        lambda: run(clients=hf.Clients.from_rows(EXAMPLES, [[]])),
        ("partition",),
    ),
    "the run's local training": (
        lambda: run(algorithm=hf.algorithms.scaffold(), local=hf.Local(0.1, momentum=0.9)),
        ("local", "momentum"),
    ),
    "the run's schedule": (lambda: run(local=hf.Local(lambda t: 0.0)), ("local", "learning_rate")),
    "the run's server": (lambda: run(algorithm=hf.algorithms.fedavg_plus(0.5)), ("server",)),
    "the server's training": (
        lambda: run(
            algorithm=hf.algorithms.two_way_transfer(),
            server=hf.Server(EXAMPLES, hf.Local(0.1, momentum=0.9)),
        ),
        ("server", "local", "momentum"),
    ),
    "the method's number": (
        lambda: run(algorithm=hf.algorithms.feddc(alpha=PERSONAL)),
        ("algorithm", "alpha"),
    ),
    "the method's compressor": (
        lambda: run(algorithm=hf.algorithms.dcgd(hf.wires.Quantise(hf.PerClient([2, 3])))),
        ("algorithm", "wire", "compressor", "levels"),
    ),
    "the method's wire": (
        lambda: run(
            algorithm=hf.Algorithm(hf.rules.ControlVariate(), hf.wires.Compressed(RAND)),
        ),
        ("algorithm", "wire"),
    ),
}


@pytest.mark.parametrize("name", ABOUT)
def test_an_error_says_what_it_is_about(name):
    call, about = ABOUT[name]
    with pytest.raises(hf.HoldfastError) as caught:
        call()
    assert caught.value.about == about
    assert pickle.loads(pickle.dumps(caught.value)).about == about


def test_an_error_may_be_about_nothing_in_particular():
    assert hf.HoldfastError("no").about == ()


def test_the_first_of_several_arguments_that_is_wrong():
    assert first_wrong(a=True, b=False, c=False) == ("b",)
    assert first_wrong(a=True) == ()


def test_an_argument_that_was_renamed():
    @explain_arguments
    def bent(curvature=1.0, most=1):
        return curvature + most

    assert RENAMED["bends"] == ("curvature",)
    with pytest.raises(
        TypeError, match="bent: unknown argument `bends`; it is called `curvature` now"
    ):
        bent(bends=2.0)
    # Only where the new name is an argument; an old one that is still in use is left alone.
    with pytest.raises(TypeError, match="unknown argument `optimum`; known are curvature, most"):
        bent(optimum=2.0)
    assert bent(most=2) == 3.0
