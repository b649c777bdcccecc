"""`holdfast.testing.check` over every name, and over a user's own rule."""

import dataclasses

import optax
import pytest

import holdfast as hf

SEARCH = hf.solvers.GradientDescent(step=0.2, tolerance=0.5)
ALGORITHMS = {
    "fedavg": hf.algorithms.fedavg(),
    "fedavg, server step": hf.algorithms.fedavg(server_learning_rate=0.8, weighting="uniform"),
    "fedprox": hf.algorithms.fedprox(mu=0.1),
    "fedprox, per client": hf.algorithms.fedprox(mu=hf.PerClient([0.1, 0.2, 0.3, 0.0])),
    "scaffold": hf.algorithms.scaffold(),
    "scaffold, published": hf.algorithms.scaffold(upload="published"),
    "scaffold, option I": hf.algorithms.scaffold(option="I", server_learning_rate=0.9),
    "fedpvr": hf.algorithms.fedpvr(mask=lambda path: path.startswith("classifier")),
    "feddyn": hf.algorithms.feddyn(alpha=0.1),
    "feddc": hf.algorithms.feddc(alpha=0.1),
    "fedsplit": hf.algorithms.fedsplit(step_size=0.5),
    "fedsplit, all": hf.algorithms.fedsplit(step_size=0.5, average="all"),
    "fedadam": hf.algorithms.fedadam(),
    "fedyogi": hf.algorithms.fedyogi(),
    "fedavgm": hf.algorithms.fedavgm(learning_rate=0.7),
    "centralised": hf.algorithms.centralised(),
    "local_only": hf.algorithms.local_only(),
    "fedavg_plus": hf.algorithms.fedavg_plus(gamma=0.5, server_learning_rate=0.9),
    "scaffold_plus": hf.algorithms.scaffold_plus(gamma=0.5),
    "feddyn_plus": hf.algorithms.feddyn_plus(0.1, hf.schedules.exponential(0.3, 0.9)),
    "feddc_plus": hf.algorithms.feddc_plus(alpha=0.1, gamma=0.3),
    "server_as_client": hf.algorithms.server_as_client(),
    "parallel_training": hf.algorithms.parallel_training(
        0.7, 0.3, server_optimizer=optax.sgd(0.9), merge_optimizer=optax.sgd(0.8)
    ),
    "one_way_transfer": hf.algorithms.one_way_transfer(0.7, 0.3),
    "two_way_transfer": hf.algorithms.two_way_transfer(0.7, 0.3),
    "population_transfer": hf.algorithms.population_transfer(1, 0.3),
    "adaptive clipping": hf.Algorithm(
        hf.Chain((hf.rules.OneWayTransfer(), hf.rules.AdaptiveClip(0.2))), weighting="processed"
    ),
    "flix": hf.algorithms.flix(0.3, solver=SEARCH),
    "flix, diana, per client": hf.algorithms.flix(
        hf.PerClient([0.1, 0.5, 0.0, 1.0]),
        hf.algorithms.diana(hf.wires.RandK(k=hf.PerClient([3, 9, 12, 6]))),
        SEARCH,
    ),
    # Of equal budgets the start does not depend: they cancel, but for rounding.
    "flix_one_shot": hf.algorithms.flix_one_shot(
        hf.PerClient([0.1, 0.5, 0.0, 1.0]), hf.PerClient([1.0, 2.0, 3.0, 0.5]), SEARCH
    ),
    "dcgd": hf.algorithms.dcgd(hf.wires.Quantise(levels=7)),
    "diana": hf.algorithms.diana(hf.wires.RandK(k=9, shared_seed=True), beta=0.2),
    "fomaml": hf.algorithms.fomaml(learning_rate=0.3),
    "reptile": hf.algorithms.reptile(learning_rate=0.5),
    "diana from gradients": hf.algorithms.diana(hf.wires.RandK(k=9), start="gradients"),
    "damped scaffold through diana": hf.Algorithm(
        hf.Uploaded(hf.rules.ControlVariate(damping=0.1)), hf.wires.Diana(hf.wires.Natural())
    ),
    "error feedback": hf.Algorithm(
        hf.rules.Dynamic(0.1), hf.wires.ErrorFeedback(hf.wires.TopK(share=0.2))
    ),
    "signs, clipped": hf.Algorithm(
        wire=hf.wires.Clipped(hf.wires.ErrorFeedback(hf.wires.Sign()), bound=0.1)
    ),
    "downlink": hf.Algorithm(
        hf.rules.ControlVariate(),
        hf.wires.Downlink(hf.wires.Compressed(hf.wires.Cast()), hf.wires.TopK(k=9)),
    ),
    "an optax optimiser": hf.Algorithm(hf.rules.ServerOptimizer(optax.adagrad(0.1))),
}


@pytest.mark.parametrize("name", ALGORITHMS)
def test_conforms(name):
    # Most on a model of two leaves, which compiles in half the time.
    model = (
        None if name in ("fedpvr", "feddyn", "scaffold_plus") else hf.models.softmax_regression(3)
    )
    report = hf.testing.check(ALGORITHMS[name], model)
    assert report.passed == tuple(hf.testing.CHECKS)


@pytest.mark.parametrize("name", ["feddc", "scaffold_plus", "adaptive clipping"])
def test_rules_take_a_lossy_wire(name):
    """Every reply is compressed, whatever it carries; through DIANA what is heard is uploaded."""
    algorithm = ALGORITHMS[name]
    plain = dataclasses.replace(algorithm, wire=hf.wires.Compressed(hf.wires.Natural()))
    rule = algorithm.rule if algorithm.rule.traits.hears_uploads else hf.Uploaded(algorithm.rule)
    shifted = hf.Algorithm(rule, hf.wires.Diana(hf.wires.Natural()), name=algorithm.name)
    for lossy in (plain, shifted):
        assert hf.testing.check(lossy, only=["types"]).passed == ("types",)


def test_every_name_is_checked():
    assert {name.split(",")[0] for name in ALGORITHMS} >= set(hf.algorithms.__all__)
