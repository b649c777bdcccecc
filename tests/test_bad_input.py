"""Mistakes get one clear line: what was given, what was expected, what to do."""

import dataclasses

import jax.numpy as jnp
import numpy as np
import optax
import pytest

import holdfast as hf
from tests.problems import QUADRATIC, same_bits, tiny_clients

MODEL = hf.models.mlp([4], classes=3)


def run(**changes):
    settings = {
        "algorithm": hf.algorithms.fedavg(),
        "model": MODEL,
        "clients": tiny_clients(),
        "local": hf.Local(0.1, batch_size=4),
        "rounds": 1,
    }
    return hf.simulate(**(settings | changes))


def with_examples(**changes):
    clients = tiny_clients()
    return dataclasses.replace(clients, examples=clients.examples._replace(**changes))


def spoiled(value):
    x = np.array(tiny_clients().examples.x)
    x[5, 2] = value
    return with_examples(x=x)


def labels(value):
    y = np.array(tiny_clients().examples.y)
    y[3] = value
    return with_examples(y=y)


def run_with_server(source):
    server = hf.Server(source, LOCAL)
    return run(algorithm=hf.algorithms.fedavg_plus(0.1), server=server)


EXAMPLES = tiny_clients().examples
LOCAL = hf.Local(0.1, steps=1)
CASES = {
    "empty population": (lambda: hf.Clients.from_rows(EXAMPLES, []), "the population is empty"),
    "empty list of data sets": (lambda: hf.Clients.from_datasets([]), "the population is empty"),
    "nobody has data": (
        lambda: run(clients=hf.Clients.from_rows(EXAMPLES, [[], []])),
        "none of the 2 clients has data",
    ),
    "cohort too large": (
        lambda: run(cohort=hf.cohorts.fixed(9)),
        "9 clients are asked for but 4 of 4 have data; ask for at most 4",
    ),
    "label too large": (
        lambda: run(clients=labels(3)),
        r"labels: found 0\.\.3 but the model has classes=3, so labels must lie in 0\.\.2",
    ),
    "label negative": (lambda: run(clients=labels(-1)), r"labels: found -1\.\."),
    "labels not whole": (
        lambda: run(clients=with_examples(y=EXAMPLES.y.astype(np.float32))),
        r"their type is float32; give whole numbers 0\.\.2",
    ),
    "nan": (lambda: run(clients=spoiled(np.nan)), "data: x contains NaN, first in row 5; clean"),
    "infinity": (lambda: run(clients=spoiled(np.inf)), "data: x contains infinity, first in row 5"),
    "nan in test data": (
        lambda: run(evaluate=hf.evaluate.on(spoiled(np.nan).examples)),
        "evaluate: x contains NaN",
    ),
    "mask that does not fit": (
        lambda: run(algorithm=hf.algorithms.fedpvr(mask=[True, False, True])),
        "Masked: mask has 3 entries but params has 4 leaves: classifier/bias, .* Give one bool per",
    ),
    "momentum mask that does not fit": (
        lambda: run(local=hf.Local(0.1, momentum=0.9, momentum_on=[True])),
        "Local: momentum_on: mask has 1 entries but params has 4 leaves",
    ),
    "negative step size": (
        lambda: hf.Local(learning_rate=-0.1),
        r"Local: learning_rate=-0\.1; give numbers above 0",
    ),
    "a schedule that falls to zero": (
        lambda: run(local=hf.Local(lambda t: 0.1 - 0.1 * t), rounds=2),
        r"Local: learning_rate=0\.0 in round 2; give numbers above 0",
    ),
    "no steps": (
        lambda: hf.Local(0.1, steps=0),
        "Local: steps=0; give a whole number of at least 1",
    ),
    "epochs and steps": (lambda: hf.Local(0.1, steps=3, epochs=2), "both given; give one"),
    "last batch": (lambda: hf.Local(0.1, last_batch="trim"), "last_batch='trim'; give 'keep' or"),
    "a mean as loss": (
        lambda: run(model=dataclasses.replace(MODEL, loss=lambda p, b: jnp.float32(0.0))),
        r"the loss of a batch of 4 examples has shape \(\); return one value per example, \(4,\)",
    ),
    "a loss per class": (
        lambda: run(model=dataclasses.replace(MODEL, loss=lambda p, b: b.x)),
        r"has shape \(4, 5\); return one value per example",
    ),
    "a loss that fails": (
        lambda: run(model=dataclasses.replace(MODEL, loss=lambda p, b: b.x @ jnp.ones((7, 1)))),
        r"the model's loss cannot take a batch of x float32\(4, 5\), y int32\(4,\): ",
    ),
    "arrays of different length": (
        lambda: with_examples(y=EXAMPLES.y[:-1]),
        "data: x has 33 rows, y has 32 rows; give every array one row per example",
    ),
    "test data of another shape": (
        lambda: run(
            evaluate=hf.evaluate.on(hf.Examples(np.ones((4, 6), np.float32), np.zeros(4, int)))
        ),
        r"evaluate: the model cannot take examples of x float32\(2, 6\)",
    ),
    "params of another model": (
        lambda: run(params={"w": np.zeros(3)}),
        r"params has w float32\(3,\) but the model has classifier/bias",
    ),
    "unknown argument of Local": (
        lambda: hf.Local(learningrate=0.1),
        "Local: unknown argument `learningrate`; did you mean `learning_rate`",
    ),
    "unknown argument of an algorithm": (
        lambda: hf.algorithms.feddyn(alfa=0.1),
        "feddyn: unknown argument `alfa`; did you mean `alpha`",
    ),
    "unknown argument of simulate": (
        lambda: run(round=3),
        "simulate: unknown argument `round`; did you mean `rounds`",
    ),
    "unknown option": (
        lambda: hf.algorithms.scaffold(upload="learn"),
        "scaffold: unknown upload `learn`; did you mean `lean`",
    ),
    "unknown weighting": (
        lambda: hf.algorithms.fedavg(weighting="example"),
        "unknown weighting `example`; did you mean `examples`",
    ),
    "a rule in place of an algorithm": (
        lambda: run(algorithm=hf.rules.Dynamic(0.1)),
        "algorithm is a Dynamic; give a Algorithm",
    ),
    "negative seed": (lambda: run(seed=-1), "seed=-1; give a whole number in 0"),
    "negative rounds": (lambda: run(rounds=-1), "rounds=-1; give a whole number"),
    "too few per-client values": (
        lambda: run(algorithm=hf.algorithms.fedprox(hf.PerClient([0.1]))),
        "a PerClient has 1 values for 4 clients",
    ),
    "concentration": (
        lambda: hf.data.partition.dirichlet(EXAMPLES, clients=3, concentration=0.0),
        r"concentration=0\.0; give a number above 0",
    ),
    "no clients": (lambda: hf.data.partition.iid(EXAMPLES, clients=0), "clients=0; give a whole"),
    "owners": (
        lambda: hf.data.partition.by(EXAMPLES, [0, 1]),
        r"owners of shape \(2,\) for 33 examples",
    ),
    "a state of another method": (
        lambda: run(start=run(rounds=1, algorithm=hf.algorithms.scaffold()).state, rounds=2),
        "start: the state's server is .*; go on with the method and model it came from",
    ),
    "a state of another population": (
        lambda: run(start=run(rounds=1, clients=tiny_clients().pooled()).state, rounds=2),
        "start: the state has 1 clients, the run 4",
    ),
    "unknown argument of a model": (
        lambda: hf.Model(init=None, los=None),
        "Model: unknown argument `los`; did you mean `loss`",
    ),
    # Local: numbers of any library, and what is no number.
    **{
        f"{name} {what}": (
            lambda name=name, v=v: hf.Local(**({"learning_rate": 0.1} | {name: v})),
            says,
        )
        for name, least in (("learning_rate", "above 0"), ("weight_decay", "of at least 0"))
        for what, v, says in (
            ("of numpy below 0", np.float32(-0.5), rf"Local: {name}=-0\.5; give numbers {least}"),
            ("in quotes", "0.1", rf"Local: {name}='0\.1'; give numbers {least}"),
            ("not a number", np.nan, f"Local: {name}=nan; give numbers {least}"),
            ("infinite", np.inf, f"Local: {name}=inf; give numbers {least}"),
            ("in a tuple", (0.1,), rf"Local: {name}=\(0\.1,\); give a number"),
            ("true", True, f"Local: {name}=True; give numbers"),
            ("too large for a float", 10**400, f"Local: {name}=1000.*; give numbers"),
        )
    },
    "no step size": (lambda: hf.Local(None), "Local: learning_rate=None; give numbers above 0"),
    **{
        f"{name}={v!r}": (
            lambda name=name, v=v: hf.Local(0.1, **{name: v}),
            rf"{name}=.*; give a whole",
        )
        for name in ("steps", "epochs", "batch_size")
        for v in (2.0, "2", True, np.nan, (2,))
    },
    "a clip that falls below zero": (
        lambda: run(local=hf.Local(0.1, clip=lambda t: 1.0 - 2 * t), rounds=2),
        r"Local: clip=-1\.0 in round 2; give numbers above 0",
    ),
    "shuffle": (lambda: hf.Local(0.1, shuffle="no"), "shuffle='no'; give True or False"),
    "an optimiser by name": (lambda: hf.Local(0.1, optimizer="adam"), "optimizer is a str; .*adam"),
    "an optimiser already made": (
        lambda: hf.Local(0.1, optimizer=optax.adam(0.1)),
        "optimizer is a GradientTransformation.*; give the function that makes one",
    ),
    "a momentum that grows": (
        lambda: hf.Local(0.1, momentum=2.0),
        r"momentum.*2.*give numbers in \[0, 1\]",
    ),
    "momentum on a name": (
        lambda: hf.Local(0.1, momentum=0.9, momentum_on="bias"),
        "momentum_on='bias'; give one bool per leaf",
    ),
    # Rules.
    "alpha in quotes": (
        lambda: hf.algorithms.feddyn("0.3"),
        r"Dynamic: alpha='0\.3'; give numbers",
    ),
    "no alpha": (lambda: hf.algorithms.feddyn(None), "Dynamic: alpha=None; give numbers"),
    "alpha in a tuple": (lambda: hf.algorithms.feddyn((0.1,)), "give a number, or hf.PerClient"),
    "mu below zero": (lambda: hf.algorithms.fedprox(np.float32(-1)), r"mu=-1\.0; give numbers of"),
    "mu of a client": (
        lambda: hf.algorithms.fedprox(hf.PerClient([0.1, np.nan])),
        r"mu=\[0\.1, nan\]; give numbers of at least 0",
    ),
    "gamma below zero": (lambda: hf.algorithms.fedavg_plus(-1), "gamma=-1; give numbers of at"),
    "gamma of a turn": (lambda: hf.algorithms.scaffold_plus(np.nan), "ServerTurn: gamma=nan; give"),
    "step size of FedSplit": (lambda: hf.algorithms.fedsplit(0), "step_size=0; give numbers above"),
    "quantile": (
        lambda: hf.rules.AdaptiveClip(1.0, quantile=2),
        r"quantile=2; give numbers in \(0, 1",
    ),
    # Cohorts.
    **{
        f"cohort {v!r}": (
            lambda v=v: run(cohort=v),
            "simulate: cohort=.*; .*hf.cohorts",
        )
        for v in ("fixed", 3, 0.5, [0, 1], hf.cohorts.Everyone)
    },
    "size in quotes": (lambda: hf.cohorts.fixed("2"), "cohort: size='2'; give a whole number"),
    "a size that is true": (lambda: hf.cohorts.fixed(True), "size=True; give a whole number"),
    "probability in quotes": (
        lambda: hf.cohorts.bernoulli("0.5"),
        r"='0\.5'; give a number in \(0, 1",
    ),
    "several probabilities": (lambda: hf.cohorts.bernoulli([0.5]), r"\[0\.5\]; give a number in"),
    "a probability that nobody meets": (
        lambda: run(cohort=hf.cohorts.bernoulli(1e-300)),
        "with probability=1e-300 none of the 4 clients .* a million draws; give a larger one",
    ),
    **{
        f"schedule {v!r}": (
            lambda v=v: hf.cohorts.schedule(v),
            "cohort: rounds=.*; give one list of",
        )
        for v in (5, None, "01", [0, 1], [[0.5]], [["0"]], [[np.nan]], [[True, False]])
    },
    "weights in quotes": (lambda: hf.cohorts.weighted(1, ["a", "b"]), "weights must be one finite"),
    # The other arguments of simulate.
    "rounds in quotes": (lambda: run(rounds="5"), "rounds='5'; give a whole number of at least 0"),
    "rounds true": (lambda: run(rounds=True), "rounds=True; give a whole number"),
    "seed true": (lambda: run(seed=True), "seed=True; give a whole number in 0"),
    "a function to evaluate": (
        lambda: run(evaluate=lambda view: {}),
        "evaluate=<function .* is a function; give one or several of hf.evaluate",
    ),
    "nothing among evaluators": (
        lambda: run(evaluate=[hf.evaluate.on(EXAMPLES), None]),
        "evaluate=None is a NoneType; give one or several",
    ),
    "every true": (lambda: hf.evaluate.on(EXAMPLES, every=True), "every=True; give a whole number"),
    "the class of an engine": (
        lambda: run(engine=hf.DebugEngine),
        "is a type; give an engine, such",
    ),
    "data for a server": (lambda: run(server=EXAMPLES), "server=Examples.* give a Server, such as"),
    "storage in words": (lambda: run(storage="1 GB"), "storage='1 GB' is a str; give a Storage"),
    "select in words": (lambda: run(select="yes"), "select='yes'; give True or False"),
    "params that are none": (
        lambda: run(params={"a": "b"}),
        "which are no arrays; give parameters",
    ),
    "a start that is none": (lambda: run(start=3), r"start: a int is given; .*run\.state"),
    "a checkpoint that is none": (
        lambda: run(checkpoint=3),
        "checkpoint=3 is a int; give a Checkp",
    ),
    "on_round": (lambda: run(on_round="print"), "on_round='print'; give a function"),
    # The server.
    "a server without data": (
        lambda: hf.Server(3, LOCAL),
        "data: it is 3 and no array; give arrays",
    ),
    "a server's clients": (
        lambda: hf.Server(tiny_clients(), LOCAL),
        r"its data is a population of clients; give a data set, such as clients\.pooled",
    ),
    "a server's loss": (
        lambda: hf.Server(EXAMPLES, LOCAL, loss="mse"),
        "loss='mse'; give a function",
    ),
    "gradient batch": (
        lambda: hf.Server(EXAMPLES, LOCAL, gradient_batch_size=0),
        "gradient_batch_size=0; give a whole number of at least 1",
    ),
    "a server's arrays": (
        lambda: run_with_server(np.zeros((3, 5))),
        r"Server: the model cannot take examples of ndarray with float64\(3, 5\): .*hf\.Examples",
    ),
    "a server's data of another shape": (
        lambda: run_with_server(hf.Examples(np.ones((3, 7), np.float32), np.zeros(3, np.int32))),
        r"Server: its loss cannot take examples of x float32\(3, 7\)",
    ),
    "a server's loss that is whole": (
        lambda: run_with_server(lambda params: 0),
        "the loss is of type int32; return a floating-point number",
    ),
    # Clients.
    **{
        f"rows {v!r}": (
            lambda v=v: hf.Clients.from_rows(EXAMPLES, v),
            "rows=.*; give one list of row",
        )
        for v in (None, 3, "ab", {0: [1]})
    },
    "rows by a mask": (
        lambda: hf.Clients.from_rows(EXAMPLES, [np.ones(33, bool)]),
        "type bool; give",
    ),
    "rows of nan": (lambda: hf.Clients.from_rows(EXAMPLES, [[np.nan]]), "type float64; give whole"),
    "data sets that are one": (
        lambda: hf.Clients.from_datasets(EXAMPLES),
        "datasets is a Examples; give a list with one data set for each client",
    ),
    "data sets that differ": (
        lambda: hf.Clients.from_datasets([EXAMPLES, EXAMPLES._replace(x=np.ones((33, 7)))]),
        r"examples with x \(5,\), y \(\) beside some with x \(7,\), y \(\)",
    ),
    "examples that are lists": (
        lambda: hf.Clients.from_rows([[1, 2], [3, 4]], [[0], [1]]),
        "data: 0/0 is 1 and no array; give arrays with a row",
    ),
    "offsets": (
        lambda: hf.Clients(EXAMPLES, np.arange(33), np.array([0, 20, 10, 33])),
        "offsets must rise from 0 to the 33 rows",
    ),
    "evaluate every": (lambda: hf.evaluate.on(EXAMPLES, every=0), "every=0; give a whole number"),
}


@pytest.mark.parametrize("name", CASES)
def test_one_clear_line(name):
    call, message = CASES[name]
    with pytest.raises(hf.HoldfastError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None or caught.value.__suppress_context__


def exploding(clients_that_explode):
    """A quadratic whose gradient is NaN for some clients (marked by their centre)."""
    clients = hf.Clients.from_rows(
        hf.Examples(
            np.ones((4, 2), np.float32),
            np.array([[1], [2], [3], [4]], np.float32).repeat(2, axis=1),
        ),
        [[i] for i in range(4)],
    )

    def loss(w, batch):
        sick = jnp.isin(batch.y[:, 0], jnp.asarray(clients_that_explode, jnp.float32) + 1)
        return QUADRATIC.loss(w, batch) * jnp.where(sick, jnp.nan, 1.0)

    return clients, dataclasses.replace(QUADRATIC, loss=loss)


def test_a_client_that_is_not_finite_is_left_out_counted_and_keeps_its_row():
    clients, model = exploding([2])
    settings = {"model": model, "clients": clients, "local": hf.Local(0.5)}
    sick = run(algorithm=hf.algorithms.scaffold(), rounds=3, **settings)
    assert sick.history["left_out"].tolist() == [1, 1, 1]
    assert sick.history["clients"].tolist() == [4, 4, 4]
    assert np.isfinite(sick.params).all()
    assert same_bits(sick.client_states[2], sick.client_states.first)
    assert 2 not in sick.client_states.touched
    without = run(
        algorithm=hf.algorithms.scaffold(),
        rounds=3,
        cohort=hf.cohorts.schedule([[0, 1, 3]]),
        **settings,
    )
    np.testing.assert_allclose(sick.params, without.params, rtol=1e-6)


def test_a_round_without_one_finite_reply_fails_and_says_what_to_try():
    clients, model = exploding([0, 1, 2, 3])
    with pytest.raises(hf.RoundFailedError, match=r"round 1: not one of 4 .*smaller learning_rate"):
        run(model=model, clients=clients, rounds=3)


def test_divergence_is_a_sentence_too():
    clients, model = exploding([])
    with pytest.raises(hf.RoundFailedError, match="DebugEngine"):
        run(model=model, clients=clients, local=hf.Local(1e9, steps=50), rounds=3)
