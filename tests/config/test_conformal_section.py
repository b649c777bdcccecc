"""`[conformal]` in a file: which examples calibrate, what is measured, and what is refused with its line."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli import app
from holdfast.config.build import study
from holdfast.config.file import ExperimentFileError, read
from holdfast.runs.folder import RunFolder

FILE = """\
rounds = 2
data = "breast_cancer"

[partition]
name = "dirichlet"
clients = 4
concentration = 0.5

[model]
name = "logistic_regression"

[local]
learning_rate = 0.3
steps = 5

[conformal]
share = 0.4
kappa = 0.2
by = "clients"
bins = 50

[[algorithm]]
name = "fedavg"

[[algorithm]]
name = "local_only"
"""


def made(tmp_path, text=FILE, changes=()):
    (tmp_path / "e.toml").write_text(text)
    return study(read(tmp_path / "e.toml", list(changes)))


def holdfast(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    place = tmp_path_factory.mktemp("conformal")
    (place / "e.toml").write_text(FILE)
    holdfast("run", place / "e.toml", "--out", place / "out", "--no-report")
    return place / "out"


def rows_of(examples):
    return {tuple(row) for row in np.asarray(examples.x).tolist()}


def test_examples_to_calibrate_with_are_used_for_nothing_else(tmp_path):
    given = made(tmp_path)
    whole = hf.data.breast_cancer()
    (evaluator,) = [e for e in given.evaluators if isinstance(e, hf.conformal.Conformal)]
    calibration, test = evaluator.calibration, given.datasets[0].test
    # Each belongs to one client, and the rest is what everything is tested on.
    for own in (calibration, evaluator.examples):
        assert len(np.unique(own.order)) == len(own.order)
    assert len(calibration.order) + len(test.y) == len(whole.test.y)
    assert evaluator.examples.examples is test
    assert not rows_of(calibration.examples) & rows_of(test)
    assert not rows_of(calibration.examples) & rows_of(given.tests.examples)
    assert not rows_of(calibration.examples) & rows_of(given.clients.examples)
    # In the clients' own mix of labels, whichever part they are in.
    for i in range(4):
        both = np.concatenate([calibration[i].y, evaluator.examples[i].y])
        assert abs(np.mean(both) - np.mean(given.clients[i].y)) < 0.06
    for seed in (0, 1):
        again = made(tmp_path, changes=[f"conformal.seed={seed}"])
        same = rows_of(again.datasets[0].test) == rows_of(test)
        assert same == (seed == 0)


def test_a_run_says_what_python_does(run, tmp_path):
    given = made(tmp_path)
    for method in given.methods:
        python = hf.simulate(given.experiment(method, 0), given.rounds)
        (files,) = RunFolder.open(run).seeds(method.folder)
        (about,) = files.confidence()
        (evaluator,) = [e for e in given.evaluators if isinstance(e, hf.conformal.Conformal)]
        assert about == json.loads(json.dumps(evaluator.detail(python.view)))
        last = files.history()[-1]
        assert (last["coverage"], last["set_size"]) == (about["coverage"], about["size"])

        # By NumPy: what clients use, pooled scores, up to the end of a cell.
        def scores(i, examples, python=python):
            p = np.asarray(given.model.predict(python.personal(i), examples), np.float64)
            return 1 - np.where(examples.y == 1, p, 1 - p), p

        held = np.sort(np.concatenate([scores(i, evaluator.calibration[i])[0] for i in range(4)]))
        q = np.ceil(held[int(np.ceil((len(held) + 1) * 0.8)) - 1] * 50 - 1e-9) / 50
        found = [scores(i, evaluator.examples[i]) for i in range(4)]
        covered = np.concatenate([own <= q for own, _ in found])
        sizes = np.concatenate([(p <= q + 0.0) * 1.0 + (1 - p <= q) for _, p in found])
        assert about["coverage"] == pytest.approx(covered.mean(), abs=1e-6)
        assert about["size"] == pytest.approx(sizes.mean(), abs=1e-6)
        assert files.ledger() == list(python.ledger.entries)
        beside = [entry.beside[0] for entry in files.ledger()]
        assert [(s.clients, s.bits_up) for s in beside] == [((0, 1, 2, 3), 32 * 50)] * 2


def test_written_again_to_the_bit(run):
    files = [
        p for p in run.glob("methods/*/seed-0/*") if p.name in ("confidence.json", "ledger.jsonl")
    ]
    assert len(files) == 4
    before = {p: p.read_bytes() for p in files}
    files[0].write_text("{}")
    files[-1].unlink()
    said = holdfast("resume", run)
    assert "missing or damaged" in said
    assert {p: p.read_bytes() for p in files} == before


def test_at_the_server_and_each_client(tmp_path):
    text = FILE.replace('[[algorithm]]\nname = "local_only"\n', "")
    server = made(tmp_path, text.replace('by = "clients"', 'score = "aps"'))
    (evaluator,) = [e for e in server.evaluators if isinstance(e, hf.conformal.Conformal)]
    assert evaluator.by == "server"
    assert evaluator.score == hf.conformal.Score("aps")
    assert evaluator.examples is server.datasets[0].test
    assert evaluator.own.sizes.sum() == len(evaluator.examples.y)
    python = hf.simulate(server.experiment(server.methods[0], 0), 1)
    assert {"coverage", "set_size", "coverage_worst_tenth"} <= set(python.history.columns)
    own = made(tmp_path, text, ['conformal.by="each client"', "conformal.every=2"])
    (evaluator,) = [e for e in own.evaluators if isinstance(e, hf.conformal.Conformal)]
    assert (evaluator.by, evaluator.every, evaluator.sent) == ("each client", 2, ())


def test_rows_of_owners_are_theirs(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["a,b,site,sick"]
    lines += [
        f"{x:.3f},{z:.3f},{'basel' if k % 3 else 'bern'},{int(x + z > 0)}"
        for k, (x, z) in enumerate(rng.normal(size=(90, 2)))
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    text = FILE.replace('data = "breast_cancer"\n', "").replace(
        'name = "dirichlet"\nclients = 4\nconcentration = 0.5', 'name = "natural"'
    )
    text += '\n[data]\nname = "table"\npath = "t.csv"\nlabel = "sick"\nclient = "site"\ntest_share = 0.4\n'
    given = made(tmp_path, text)
    (evaluator,) = [e for e in given.evaluators if isinstance(e, hf.conformal.Conformal)]
    assert evaluator.calibration.names == given.clients.names == ("basel", "bern")
    for i in range(2):
        # Those of the site that are left are what it is tested on.
        assert rows_of(evaluator.examples[i]) == rows_of(given.tests[i])
        assert not rows_of(evaluator.calibration[i]) & rows_of(given.tests[i])
    assert evaluator.calibration.sizes.all()


def test_several_populations(tmp_path):
    text = FILE.replace('[[algorithm]]\nname = "local_only"\n', "")
    text += '\n[[population]]\nname = "a"\n\n[[population]]\nname = "b"\n'
    joined = made(tmp_path, text)
    (evaluator,) = [e for e in joined.evaluators if isinstance(e, hf.conformal.Conformal)]
    assert len(evaluator.calibration) == 8
    run = hf.simulate(joined.experiment(joined.methods[0], 0), 1)
    assert 0 < run.history[-1]["coverage"] <= 1
    server = made(tmp_path, text, ['conformal.by="server"'])
    run = hf.simulate(server.experiment(server.methods[0], 0), 1)
    assert {"a_coverage", "b_coverage", "a_set_size"} <= set(run.history.columns)


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        (("share = 0.4\n", ""), 16, "`share` is missing in [conformal]"),
        (("share = 0.4", "share = 0.001"), 17, "leave some to calibrate with"),
        (("kappa = 0.2", "kappa = 1.0"), 18, "`kappa` is 1.0"),
        (("kappa = 0.2", "kapa = 0.2"), 18, "unknown key `kapa`"),
        (('by = "clients"', 'by = "client"'), 19, "`by` is"),
        (('by = "clients"', 'by = "server"'), 19, "clients of local_only use models of their own"),
        (("bins = 50", "bins = 1"), 20, "tells no score from another"),
        (("bins = 50", 'score = "residual"'), 20, "predicts labels; use"),
        (("bins = 50", "every = 3"), 20, "`every` is 3 with 2 rounds"),
        (("bins = 50", "penalty = -1"), 20, "penalty=-1"),
    ],
)
def test_what_cannot_work_is_refused_with_its_line(tmp_path, change, line, message):
    assert change[0] in FILE
    with pytest.raises(ExperimentFileError) as error:
        made(tmp_path, FILE.replace(*change))
    assert message in str(error.value)
    assert f"line {line}:" in str(error.value)


def test_the_saved_model_has_the_sets_of_the_run(run, tmp_path):
    measured = json.loads(
        (RunFolder.open(run).seed_folder("fedavg", 0).path / "confidence.json").read_text()
    )["measured"][0]
    saved = hf.load(run, method="fedavg")
    assert saved.calibration.n == measured["calibrated_on"]
    (evaluator,) = [e for e in made(tmp_path).evaluators if isinstance(e, hf.conformal.Conformal)]
    test = evaluator.examples
    rows = hf.Examples(*(np.asarray(a)[test.order] for a in test.examples))
    # Histograms say less than scores, and the file has no more than they say.
    assert len(set(saved.description.scores)) <= 50
    sets = saved.sets(saved_inputs(rows.x), coverage=0.8)
    assert sets[np.arange(len(rows.y)), rows.y].mean() == pytest.approx(measured["coverage"])
    assert sets.sum(1).mean() == pytest.approx(measured["size"])
    # Of models of clients' own the file says nothing.
    assert not hf.load(run, method="local_only", client="0").description.scores


def saved_inputs(x):
    """Columns as they were before they were standardised."""
    made = hf.data.breast_cancer().preprocessing
    if made is None:
        return x
    parts = {i.name: x[:, n].astype(np.float64) for n, i in enumerate(made.inputs)}
    return {i.name: parts[i.name] * i.scale + i.centre for i in made.inputs}


TABLE = """\
rounds = 3
model = "least_squares"
local = { learning_rate = 0.3, steps = 20 }
partition = { name = "iid", clients = 3 }
algorithm = [{ name = "fedavg" }]

[data]
name = "table"
path = "rows.csv"
label = "price"
test_share = 0.5

[conformal]
share = 0.5
kappa = 0.2
score = "residual"
"""


@pytest.mark.parametrize("by", ["server", "clients"])
def test_intervals_of_a_table_are_in_its_units(tmp_path, monkeypatch, by):
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    price = 300_000 + 50_000 * x + rng.normal(size=200) * 8_000
    lines = [f"{a:.6f},{p:.2f}" for a, p in zip(x, price, strict=True)]
    (tmp_path / "rows.csv").write_text("\n".join(["size,price", *lines]))
    largest = "largest = 60_000.0\nbins = 4000\n" if by == "clients" else ""
    (tmp_path / "e.toml").write_text(f'{TABLE}by = "{by}"\n{largest}')
    monkeypatch.chdir(tmp_path)
    holdfast("run", "e.toml", "--out", "out", "--no-report")
    width = RunFolder.open("out").seed_folder("fedavg", 0).history()["interval_width"][-1]
    # 80 % of a normal error of 8,000: 2.56 deviations wide.
    assert 14_000 < width < 32_000
    saved = hf.load("out")
    found = saved.intervals({"size": x[:5]}, coverage=0.8)
    np.testing.assert_allclose(np.diff(found)[:, 0], width, rtol=1e-5)
    # Again by hand: what the model says of the rows it was calibrated with, in the table's units.
    given = study(read("e.toml"))
    (held,) = [e for e in given.evaluators if isinstance(e, hf.conformal.Conformal)]
    rows = held.calibration if by == "server" else held.calibration.examples
    fitted = given.datasets[0].preprocessing
    (column,) = fitted.inputs
    sizes = np.asarray(rows.x, np.float64)[:, 0] * column.scale + column.centre
    apart = np.abs(saved.predict({"size": sizes}) - fitted.restore(rows.y))
    exact = 2 * hf.conformal.calibrate(apart, np.zeros(len(apart)), "residual").threshold(0.2)
    assert width == pytest.approx(exact, rel=1e-5, abs=0.0 if by == "server" else 2 * 60_000 / 4000)
    holdfast("predict", "out", "rows.csv", "--kappa", "0.2", "--out", "sure.csv")
    assert len((tmp_path / "sure.csv").read_text().splitlines()) == 201
