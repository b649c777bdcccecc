"""Populations whose examples have other fields and shapes, and losses that take them: one model."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import holdfast as hf
from tests.problems import largest_difference, same_bits

ROWS, WIDTH = 12, 3


class Words(NamedTuple):
    ids: Any
    y: Any


class Pictures(NamedTuple):
    image: Any
    y: Any  # in whole numbers like the words' ids, and no row of any table


def init(key, examples):
    a, b, c = jax.random.split(key, 3)
    return {
        "kernel": jax.random.normal(a, (4, WIDTH), float),
        "shared": jax.random.normal(b, (WIDTH,), float),
        "table": jax.random.normal(c, (ROWS, WIDTH), float),
    }


def read(params, batch):
    score = jnp.mean(params["table"][batch.ids], axis=1) @ params["shared"]
    return (score - batch.y[:, 0].astype(score.dtype)) ** 2


def look(params, batch):
    score = batch.image.reshape(-1, 4) @ params["kernel"] @ params["shared"]
    return (score - batch.y[:, 0].astype(score.dtype)) ** 2


TEXT = hf.Model(init, read, name="text", tables=(hf.Table("table", ("ids",), always=(0,)),))
IMAGES = hf.Model(
    init,
    look,
    metrics=lambda p, b: {"loss": look(p, b), "error": jnp.sqrt(look(p, b))},
    name="images",
    tables=(hf.Table("table", ()),),
)


def readers(seed=0, sizes=(5, 3, 4)):
    rng = np.random.default_rng(seed)
    own = [rng.choice(ROWS, 3, replace=False) for _ in sizes]
    return hf.Clients.from_datasets(
        [
            Words(rng.choice(ids, (n, 2)).astype(np.int32), rng.integers(0, 3, (n, 1), np.int32))
            for n, ids in zip(sizes, own, strict=True)
        ]
    )


def viewers(seed=1, sizes=(4, 6)):
    rng = np.random.default_rng(seed)
    return hf.Clients.from_datasets(
        [Pictures(rng.normal(size=(n, 2, 2)), rng.integers(0, 2, (n, 1), np.int32)) for n in sizes]
    )


def joined(**settings):
    local = {"text": hf.Local(0.05, steps=2, batch_size=2), "images": hf.Local(0.1, epochs=1)}
    return hf.join(
        [
            hf.Population(readers(), TEXT, name="text", local=local["text"], **settings),
            hf.Population(viewers(), IMAGES, weight=2.0, name="images", local=local["images"]),
        ]
    )


def test_each_has_its_own_loss_of_its_own_examples(x64):
    """Two runs of one population each, merged by hand."""
    both, text = joined(), readers()
    examples = viewers()
    # The numbers of its clients begin after the others', and so do their orders of examples.
    later = hf.Clients(examples.examples, examples.order, np.append([0, 0, 0], examples.offsets))
    start = init(jax.random.key(7), None)
    ends = [
        hf.simulate(hf.algorithms.fedavg(), m, c, local, 1, params=start, seed=2).params
        for m, c, local in zip((TEXT, IMAGES), (text, later), both.local, strict=True)
    ]
    run = hf.simulate(hf.algorithms.fedavg(), **both, rounds=1, params=start, seed=2)
    merged = jax.tree.map(lambda a, b: (a + 2 * b) / 3, *ends)
    assert largest_difference(run.params, merged) < 1e-12


@pytest.mark.parametrize(
    ("algorithm", "server"),
    [
        (hf.algorithms.fedavg(), False),
        (hf.algorithms.scaffold(), False),
        (hf.algorithms.one_way_transfer(), True),
    ],
    ids=lambda a: getattr(a, "name", ""),
)
def test_select_equals_the_full_table(algorithm, server, x64):
    both = joined()
    own = hf.Server(both.of("text", readers(5).examples), hf.Local(0.05, steps=1))
    settings = {"seed": 2, "server": own if server else None, "rounds": 3}
    small, full = (hf.simulate(algorithm, **both, select=s, **settings) for s in (True, False))
    assert largest_difference(small.params, full.params) < 1e-12
    for i in range(5):
        assert largest_difference(small.client_states[i], full.client_states[i]) < 1e-12
    # Readers have their own rows and row 0; viewers none, as their model says.
    rows = [len(np.unique(np.append(mine.ids, 0))) for mine in readers()] + [0, 0]
    rest, copies = 8 * (4 * WIDTH + WIDTH), small.ledger.entries[0].down[3] // (8 * 5 * WIDTH)
    expected = tuple(copies * (8 * WIDTH * n + rest) for n in rows)
    assert small.ledger.entries[0].down == expected


def test_a_model_that_declares_no_table_gets_all_of_it(x64):
    plain = dataclasses.replace(IMAGES, tables=())
    both = hf.join([hf.Population(readers(), TEXT), hf.Population(viewers(), plain)])
    local = hf.Local(0.05, steps=2)
    algorithm = hf.algorithms.fedavg()
    small, full = (
        hf.simulate(algorithm, **both, local=local, rounds=2, select=s) for s in (True, False)
    )
    assert largest_difference(small.params, full.params) < 1e-12
    assert small.ledger.entries[0].down[3:] == (full.ledger.entries[0].down,) * 2


def test_each_is_measured_on_its_own_test_set(x64):
    both, text, images = joined(), readers(8), viewers(9)
    run = hf.simulate(
        hf.algorithms.fedavg(),
        **both,
        rounds=2,
        evaluate=[
            hf.evaluate.on(both.of("text", text.examples), name="text"),
            hf.evaluate.on(both.of("images", images.examples), name="images"),
            hf.evaluate.personal(both.tests([text, images])),
        ],
    )
    last = run.history[-1]
    for name, model, tests in (("text", TEXT, text), ("images", IMAGES, images)):
        found = hf.evaluate.measure(model, run.params, tests.examples)
        assert last[f"{name}_loss"] == pytest.approx(found["loss"])
    assert "images_error" in last
    assert "text_error" not in last
    losses = [
        hf.evaluate.measure(m, run.params, mine)["loss"]
        for m, tests in ((TEXT, text), (IMAGES, images))
        for mine in tests
    ]
    assert last["personal_loss"] == pytest.approx(np.mean(losses))
    tested = hf.evaluate.on(text.examples)
    with pytest.raises(hf.HoldfastError, match="do not say whose they are"):
        hf.simulate(hf.algorithms.fedavg(), **both, rounds=1, evaluate=tested)


def test_a_run_that_is_interrupted_goes_on_to_the_same_bits(tmp_path):
    both = joined(cohort=hf.cohorts.fixed(2))
    settings = {**both, "seed": 3}
    whole = hf.simulate(hf.algorithms.scaffold(), **settings, rounds=3)
    hf.simulate(hf.algorithms.scaffold(), **settings, rounds=2, checkpoint=tmp_path)
    again = hf.simulate(hf.algorithms.scaffold(), **settings, rounds=3, checkpoint=tmp_path)
    assert same_bits((whole.params, whole.state.server), (again.params, again.state.server))


def test_transfer_with_select_moves_rows_that_were_not_sent(x64):
    both, algorithm = joined(), hf.algorithms.population_transfer()
    small, full = (hf.simulate(algorithm, **both, rounds=3, select=s) for s in (True, False))
    assert largest_difference(small.params, full.params) < 1e-12
    assert largest_difference(small.state.server, full.state.server) < 1e-12
    assert small.ledger.total < 0.5 * full.ledger.total
