"""Frozen dataclasses as pytrees: what is traced, what is structure, and who is who."""

import itertools

import jax
import pytest
from jax import tree

import holdfast as hf
from holdfast.core.struct import Struct, static


class Left(Struct):
    number: float
    name: str = static(default="a")


class Right(Struct):
    number: float
    name: str = static(default="a")


def test_two_classes_are_two_structures():
    assert tree.structure(Left(1.0)) == tree.structure(Left(2.0))
    assert tree.structure(Left(1.0)) != tree.structure(Right(1.0))
    assert tree.structure(Left(1.0)) != tree.structure(Left(1.0, name="b"))


def test_methods_with_as_many_numbers_are_told_apart():
    alike = [
        hf.algorithms.fedsplit(step_size=0.5),
        hf.algorithms.fedsplit(step_size=0.5, average="all"),
        hf.Algorithm(hf.rules.Proximal(mu=0.5), name="fedsplit"),
        hf.Algorithm(hf.rules.Dynamic(alpha=0.5), name="fedsplit"),
    ]
    for one, other in itertools.combinations(alike, 2):
        assert tree.structure(one) != tree.structure(other)


def test_numbers_are_leaves_with_names_and_come_back():
    (path, leaf), *rest = tree.flatten_with_path(Left(3.0, name="b"))[0]
    assert (jax.tree_util.keystr(path), leaf, rest) == (".number", 3.0, [])
    assert tree.map(lambda n: n + 1, Left(3.0, name="b")) == Left(4.0, name="b")


def test_what_is_no_rule_or_wire_is_refused():
    with pytest.raises(hf.HoldfastError, match=r"0\.5 is a float; give a Rule"):
        hf.Algorithm(0.5)
    with pytest.raises(hf.HoldfastError, match="is a str; give a Wire"):
        hf.Algorithm(hf.rules.Dynamic(0.1), wire="plain")
    with pytest.raises(hf.HoldfastError, match="Chain: 1 is a int; give rules"):
        hf.Chain((hf.rules.Dynamic(0.1), 1))
