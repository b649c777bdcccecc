"""What makes no sense is refused in one sentence, not by whatever NumPy trips over."""

import numpy as np
import pytest

import holdfast as hf

P, S = hf.data.partition, hf.data.split
DATA = hf.Examples(np.zeros((30, 2)), np.arange(30) % 3)
CLIENTS = P.iid(DATA, 5)
NO_LABEL = [None] + ["a"] * 29
WRONG = {
    "negative seed": (lambda: P.iid(DATA, 5, seed=-1), r"seed=-1; give a whole number"),
    "no seed": (lambda: P.dirichlet(DATA, 5, 0.3, seed=None), r"seed=None; give a whole number"),
    "half a seed": (lambda: hf.data.digits(seed=1.5), r"seed=1\.5; give a whole number"),
    "half a class": (lambda: P.by_classes(DATA, 5, 1.5), r"classes=1\.5; give a whole number"),
    "a truth": (lambda: P.stratified(DATA, True), r"clients=True; give a whole number"),
    "text": (lambda: P.dirichlet(DATA, 5, "0.3"), r"concentration='0\.3'; give a number above 0"),
    "a list": (lambda: P.dirichlet_by_class(DATA, 5, [0.3]), r"concentration=\[0\.3\]; give"),
    "half an example": (
        lambda: P.dirichlet(DATA, 2, 0.3, sizes=[1.5, 2]),
        r"sizes=\[1\.5, 2\]; give 2 whole numbers",
    ),
    "one size": (lambda: P.dirichlet(DATA, 2, 0.3, sizes=5), r"sizes=5; give 2 whole numbers"),
    "no sigma": (lambda: P.lognormal(DATA, 2, None), r"sigma=None; give a number"),
    "a share in words": (lambda: hf.data.digits(test_share="a"), r"test_share='a'; give a number"),
    "half at least": (
        lambda: P.dirichlet_by_class(DATA, 3, 0.3, min_examples=1.5),
        r"min_examples=1\.5 with 30 examples for 3 clients; give 0\.\.10",
    ),
    "labels that are missing": (
        lambda: P.dirichlet(DATA, 3, 0.3, labels=[np.nan] * 30),
        r"labels has NaN, first in row 0",
    ),
    "labels of two types": (
        lambda: P.stratified(DATA, 3, labels=np.array(NO_LABEL, object)),
        r"labels has values of types NoneType, str, which have no order",
    ),
    "no examples": (
        lambda: P.by_classes(hf.Examples(np.zeros((0, 2)), np.zeros(0, int)), 2, 1),
        r"the data has no examples; give some",
    ),
    "two owners each": (
        lambda: P.by(DATA, np.zeros((30, 2))),
        r"owners of shape \(30, 2\) for 30 examples; give one per example",
    ),
    "owners of two types": (
        lambda: P.by(DATA, np.array(NO_LABEL, object)),
        r"client_of_row has values of types NoneType, str",
    ),
    "numbers for arrays": (lambda: P.iid([1, 2], 2), r"is 1 and no array; give arrays"),
    "examples for clients": (lambda: S.statistics(DATA), r"Examples is no population; give"),
    "a list of clients": (
        lambda: S.histogram_picture([CLIENTS], "a.png"),
        r"list is no population",
    ),
    "a folder that is not there": (
        lambda: S.histogram_picture(CLIENTS, "nowhere/at/all.png"),
        r"the folder of nowhere/at/all\.png is not there",
    ),
    "sent by nobody": (lambda: hf.data.collect(DATA, 2, 3), r"Examples is no population"),
    "shared in another shape": (
        lambda: hf.data.share(CLIENTS, hf.Examples(np.zeros((3, 4)), np.zeros(3, int))),
        r"examples with x \(2,\), y \(\) beside some with x \(4,\), y \(\); give all the same",
    ),
    "clients of other shapes": (
        lambda: hf.Clients.from_datasets([DATA, hf.Examples(np.zeros((3, 4)), np.zeros(3))]),
        r"from_datasets: examples with x \(2,\), y \(\) beside some with x \(4,\)",
    ),
    "half a row": (lambda: hf.Clients.from_rows(DATA, [[0.5]]), r"rows are of type float64; give"),
    "half a client": (lambda: CLIENTS.subset([0.5]), r"ids are of type float64; give whole"),
    "no client": (lambda: CLIENTS.subset(None), r"ids are of type object; give whole"),
}


@pytest.mark.parametrize("name", WRONG)
def test_it_is_refused_in_one_sentence(name):
    request, message = WRONG[name]
    with pytest.raises(hf.HoldfastError, match=message):
        request()
