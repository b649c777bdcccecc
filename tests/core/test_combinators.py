"""Rules made of rules: nothing of a rule inside can be forgotten."""

import dataclasses

import numpy as np
import pytest

import holdfast as hf
from holdfast.core.combinators import Combinator, Wrapper
from holdfast.core.rule import MOMENTS, parts_of


def test_a_combinator_that_forgets_a_moment_cannot_be_defined():
    def forgetful(name):
        body = {
            m: getattr(Wrapper, m)
            for m in (*MOMENTS, "heard_weights", "traits", "inside")
            if m != name
        }
        return type("Forgetful", (Combinator,), body)

    for name in (*MOMENTS, "heard_weights", "traits", "inside"):
        with pytest.raises(TypeError, match=f"Forgetful: .* forgets {name}; define it"):
            forgetful(name)


def test_traits_follow_from_what_a_class_defines():
    class Remembering(hf.Rule):
        def settle(self, delta, heard, at):
            return delta

    class More(Remembering):
        tilt = hf.rules.Proximal.tilt

    assert Remembering().traits.remembers
    assert not Remembering().traits.tilts
    assert More().traits.remembers
    assert More().traits.tilts
    assert not hf.Rule().traits.remembers


def test_every_wrapper_has_the_traits_of_the_rule_inside():
    flix = hf.rules.Flix(alpha=hf.PerClient([0.0, 0.5]))
    inner = flix.traits
    wrapped = (hf.Uploaded(flix), hf.ServerTurn(flix, 0.1), hf.rules.OneShot(flix, 1.0))
    for outer in wrapped:
        assert outer.traits.prepares
        assert outer.traits.quiet(2).tolist() == [True, False]
        assert outer.traits.doubt == inner.doubt
    masked = hf.Masked(hf.rules.ControlVariate(), [True, False]).traits
    assert masked.plain_leaves({"a": np.zeros(1), "b": np.zeros(1)}) == (True, False)
    same = {f.name for f in dataclasses.fields(masked)} - {"plain_leaves"}
    plain = hf.rules.ControlVariate().traits
    assert all(getattr(masked, name) == getattr(plain, name) for name in same)


def test_a_chain_has_the_traits_of_all():
    rules = (hf.rules.Flix(alpha=hf.PerClient([0.0, 0.5])), hf.rules.Dynamic(0.1))
    traits = hf.Chain(rules).traits
    assert traits.prepares
    assert traits.remembers
    assert not traits.hears_uploads
    # Beside a rule that tilts, a client with alpha 0 moves with the others.
    assert traits.quiet(2).tolist() == [False, False]
    assert hf.Need.HONEST_DELTA in traits.needs


def test_the_rules_inside_are_found_in_the_fields():
    rule = hf.Chain((hf.Masked(hf.rules.ControlVariate(), [True]), hf.rules.Proximal(0.1)))
    names = [type(part).__name__ for part in parts_of(rule)]
    assert names == ["Chain", "Masked", "ControlVariate", "Proximal"]


def test_what_rules_said_before_they_had_traits_is_refused():
    with pytest.raises(hf.HoldfastError, match=r"Quiet: `quiet` is no longer .* `traits`"):

        class Quiet(hf.Rule):
            def quiet(self, clients):
                return np.ones(clients, bool)

    with pytest.raises(hf.HoldfastError, match="`prepares` is no longer"):

        class Prepares(hf.Rule):
            @property
            def prepares(self):
                return True
