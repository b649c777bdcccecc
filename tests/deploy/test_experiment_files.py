"""The experiment file that is simulated is the one that is deployed; with models at every site."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli import app
from holdfast.deploy.task import Task
from holdfast.evaluate.measuring import measure
from holdfast.runs.in_memory import write
from tests.deploy.files import ARRAYS, TABLE, federation_of, file_of, simulated, state_at
from tests.problems import same_bits

HEART = Path(__file__).parents[3] / "shared" / "data" / "heart-disease"
# Both a share to choose rounds by, and local steps before a model is used.
CHOSEN = TABLE.replace("rounds = 2", "rounds = 6").replace(
    "personal = true", "personal = true, validation = 0.25, patience = 2, adapt = { steps = 2 }"
)
CASES = {
    "scaffold on tables": (TABLE, "scaffold"),
    "flix on tables": (TABLE, "flix"),
    "fedavg_plus": (ARRAYS, "fedavg_plus"),
    "one_way_transfer": (ARRAYS, "one_way_transfer"),
}


def check_same(deployed, expected, sites):
    assert same_bits(deployed.params, expected.params)
    assert same_bits(deployed.state.server, expected.state.server)
    for site in sites:
        number, state = state_at(deployed, site)
        assert same_bits(state, expected.client_states[number])
    assert deployed.ledger.entries == expected.ledger.entries


@pytest.mark.parametrize("case", CASES)
def test_the_file_that_is_simulated_is_deployed(case, tmp_path):
    text, method = CASES[case]
    path = file_of(tmp_path / "given", text)
    expected, study = simulated(path, method)
    given, sites = federation_of(tmp_path / "federation", path, method)
    deployed = hf.deploy.run(
        given, hf.deploy.InProcess(sites), rounds=study.rounds, checkpoint=tmp_path / "run", wait=5
    )
    check_same(deployed, expected, sites)
    clients = deployed.simulation.setup.clients
    assert clients.preprocessing == expected.simulation.setup.clients.preprocessing
    # What sites measured together, and each of its own model.
    now = deployed.history.records[-1]
    each = [(measure(expected.experiment.model, expected.params, t), len(t.y)) for t in study.tests]
    for name in ("loss", "accuracy"):
        mean = sum(found[name] * n for found, n in each) / sum(n for _, n in each)
        np.testing.assert_allclose(now[name], mean, rtol=1e-5)
    if text is TABLE:
        then = expected.history.records[-1]
        names = ["loss", "personal_loss", "personal_accuracy_worst_tenth", "personal_auc"]
        np.testing.assert_allclose([now[n] for n in names], [then[n] for n in names], rtol=1e-5)
    results = tmp_path / "run" / "results"
    write({method: (deployed,)}, results)
    about = json.loads(next(results.glob("methods/*/seed-0/clients.json")).read_text())
    assert about["name"] == list(study.clients.names or ("0", "1", "2"))
    assert about["examples"] == study.clients.sizes.tolist()
    assert json.loads((results / "methods.json").read_text())["metric"] == study.metric
    # The models that sites would use, and the server's.
    for number, site in enumerate(sites):
        saved = hf.load(site.folder / deployed.experiment.engine.run / "model.safetensors")
        assert same_bits(saved.params, expected.personal(number))
    assert same_bits(hf.load(results).params, expected.params)
    if text is TABLE:
        rows = str(tmp_path / "federation" / "sites" / "east-test.csv")
        model = str(sites[0].folder / deployed.experiment.engine.run / "model.safetensors")
        done = CliRunner().invoke(app, ["predict", model, rows])
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize("method", ["scaffold", "flix"])
def test_rounds_are_chosen_by_examples_that_sites_set_apart(method, tmp_path):
    path = file_of(tmp_path / "given", CHOSEN)
    expected, study = simulated(path, method)
    assert study.stop is not None
    given, sites = federation_of(tmp_path / "federation", path, method)
    deployed = hf.deploy.run(
        given, hf.deploy.InProcess(sites), rounds=study.rounds, checkpoint=tmp_path / "run", wait=5
    )
    assert deployed.experiment.stop == study.stop
    assert deployed.state.round == expected.state.round
    assert deployed.best_round == expected.best_round
    check_same(deployed, expected, sites)
    names = [n for n in expected.history.columns if n.startswith(("validation_", "personal_"))]
    # Of all sites' examples together nobody has the predictions.
    names.remove("validation_auc")
    assert {"validation_loss", "validation_personal_auc", "personal_accuracy"} <= {*names}
    for ours, theirs in zip(deployed.history, expected.history, strict=True):
        for name in names:
            np.testing.assert_allclose(ours[name], theirs[name], rtol=1e-5)
    # After its own local steps, of the best round.
    for number, site in enumerate(sites):
        saved = hf.load(site.folder / deployed.experiment.engine.run / "model.safetensors")
        assert same_bits(saved.params, expected.personal(number))
        assert saved.description.adapts


@pytest.mark.skipif(not HEART.exists(), reason="the heart disease data is not here")
def test_four_hospitals_are_fitted_and_trained_as_in_the_simulation(tmp_path):
    text = TABLE.replace("rows/site-*.csv", str(HEART / "processed.*.data"))
    columns = ["age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang"]
    columns += ["oldpeak", "slope", "ca", "thal", "num"]
    own = f'label = "num"\ncolumns = {columns}\npositive = [1, 2, 3, 4]'
    text = text.replace('label = "sick"', own).replace("{ dose = 0 }", '{ "*" = "?", chol = 0 }')
    text = text.replace("indicator", 'categorical = ["cp", "restecg", "slope", "thal"]\nindicator')
    text = text.replace('"robust"', '"standard"').replace(', metrics = ["auc"]', "")
    path = file_of(tmp_path / "given", text)
    expected, study = simulated(path, "scaffold")
    given, sites = federation_of(tmp_path / "federation", path, "scaffold")
    assert given.names == ("cleveland", "hungarian", "switzerland", "va")
    deployed = hf.deploy.run(given, hf.deploy.InProcess(sites), rounds=study.rounds, wait=5)
    check_same(deployed, expected, sites)
    clients = deployed.simulation.setup.clients
    assert clients.preprocessing == expected.simulation.setup.clients.preprocessing


def test_nothing_of_a_site_is_in_the_app(tmp_path):
    path = file_of(tmp_path / "given", TABLE)
    made = tmp_path / "federation"
    done = CliRunner().invoke(app, ["deploy", "new", str(made), "--experiment", str(path)])
    assert done.exit_code == 0, done.output
    whole = "".join(p.read_text() for p in (made / "app").rglob("*") if p.is_file())
    assert ".csv" not in whole
    assert "path =" not in whole
    again = CliRunner().invoke(app, ["deploy", "new", str(made), "--experiment", str(path)])
    assert again.exit_code != 0
    assert "exists already" in again.output
    digest = hf.deploy.from_file(made / "app" / "study" / "experiment.toml").digest
    assert digest in "".join(done.output.split())
    # The same file where its simulated data is.
    assert hf.deploy.from_file(path).digest == digest


def test_a_run_goes_on_with_the_columns_it_began_with(tmp_path):
    path = file_of(tmp_path / "given", TABLE)
    whole, _ = simulated(path, "scaffold")
    given, sites = federation_of(tmp_path / "federation", path, "scaffold")
    folder = tmp_path / "run"
    hf.deploy.run(given, hf.deploy.InProcess(sites), 1, folder, wait=5)
    asked = []

    class Watched(hf.deploy.InProcess):
        def send(self, address, data):
            asked.append(data)
            return super().send(address, data)

    given, sites = federation_of(tmp_path / "federation", path, "scaffold")
    deployed = hf.deploy.run(given, Watched(sites), 2, folder, wait=5)
    check_same(deployed, whole, sites)
    assert not any(b'"columns"' in data[:200] or b'"summarise"' in data[:200] for data in asked)
    other = path.parent / "other.toml"
    other.write_text(TABLE.replace("0.01", "0.02"))
    with pytest.raises(hf.HoldfastError, match="is of another experiment file"):
        hf.deploy.run(
            hf.deploy.from_file(other, "scaffold"), hf.deploy.InProcess(sites), 2, folder, wait=5
        )


def rewritten(place, change):
    """The rows of a site, changed."""
    lines = place.read_text().splitlines()
    place.write_text("\n".join(change(lines)) + "\n")


def without_label(lines):
    return [line.rsplit(",", 1)[0] for line in lines]


def of_one_class(lines):
    return [lines[0], *(line[:-1] + "1" for line in lines[1:])]


def in_months(lines):
    """Ages 12 times as large and much alike, as a slip has them."""
    return [
        lines[0],
        *(f"{12 * 50 + i % 3}," + line.split(",", 1)[1] for i, line in enumerate(lines[1:])),
    ]


WRONG = {
    "a column": (without_label, "its table has no column `sick`", "no column `sick`"),
    "no rows": (
        lambda lines: lines[:1],
        "its rows cannot be read; its own log says more",
        "no rows",
    ),
    "empty": (lambda lines: [], "it has no examples", "is empty"),
    "a word": (
        lambda lines: [*lines, "fifty,a,1,0"],
        "holds numbers and 'fifty'",
        "",
    ),
    "a label": (lambda lines: [*lines, "50,a,1,"], "a label is not as", "line"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_mistake_in_a_table_is_said_at_the_site_and_without_data_at_the_server(
    name, tmp_path, caplog
):
    change, at_server, at_site = WRONG[name]
    path = file_of(tmp_path / "given", TABLE)
    given, sites = federation_of(tmp_path / "federation", path, "scaffold")
    rewritten(tmp_path / "federation" / "sites" / "south-train.csv", change)
    if name == "empty":
        (tmp_path / "federation" / "sites" / "south-train.csv").write_text("")
    with caplog.at_level(logging.WARNING, "holdfast"), pytest.raises(hf.HoldfastError) as caught:
        hf.deploy.run(given, hf.deploy.InProcess(sites), 1, wait=0.5)
    said = str(caught.value)
    assert at_server in said
    assert "\n" not in said
    assert str(tmp_path) not in said
    if at_site:
        assert any(at_site in r.getMessage() for r in caplog.records if r.levelname == "ERROR")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (of_one_class, "site south: all its training rows are of one class"),
        (
            in_months,
            "site south: column `age` lies far from that of the other sites; check its units",
        ),
    ],
)
def test_an_odd_site_is_named_and_takes_part(change, words, tmp_path, caplog):
    path = file_of(tmp_path / "given", TABLE)
    given, sites = federation_of(tmp_path / "federation", path, "scaffold")
    rewritten(tmp_path / "federation" / "sites" / "south-train.csv", change)
    with caplog.at_level(logging.WARNING, "holdfast"):
        run = hf.deploy.run(given, hf.deploy.InProcess(sites), 1, wait=5)
    assert run.state.round == 1
    assert [r.getMessage() for r in caplog.records if words in r.getMessage()] == [
        f"deploy: {words}"
    ]


REFUSED = {
    "sweep": (
        "[[algorithm]]",
        '[sweep]\n"local.learning_rate" = [0.1, 0.2]\n[[algorithm]]',
        "one point of",
    ),
    "validation": (
        'label = "sick"',
        'label = "sick"\nvalidation_share = 0.1',
        "say validation = 0.1 under [evaluate] instead",
    ),
    "average": ("personal = true", "personal = true, average = true", "stays at its site"),
    "pooled metric": ("personal = true", "personal = false", "each site measures its own"),
    "unseen": ('label = "sick"', 'label = "sick"\nunseen = 0.4', "train nothing"),
    "theory": (
        "alpha = 0.4",
        'alpha = 0.4\nstep_size = "theory"',
        "constants of all clients' data",
    ),
    "select": ("rounds = 2", "rounds = 2\nselect = true", "are sent in simulations only so far"),
    "evaluator": (
        "personal = true",
        'personal = true, also = [{ name = "drift" }]',
        "`drift` is for simulations only",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_deployed_is_refused_in_a_line(name, tmp_path):
    old, new, words = REFUSED[name]
    folder = tmp_path / "app"
    folder.mkdir()
    text = TABLE.replace('path = "rows/site-*.csv"\n', "").replace(old, new, 1)
    (folder / "experiment.toml").write_text(text)
    (folder / "sites.toml").write_text('sites = ["east", "north", "south"]\n')
    path = file_of(tmp_path / "given", TABLE)
    _, sites = federation_of(tmp_path / "federation", path, "scaffold")
    fitted = fitted_of(sites)
    with pytest.raises(hf.HoldfastError) as caught:
        Task.of(hf.deploy.from_file(folder / "experiment.toml", "flix").at_server(fitted))
    assert words in str(caught.value).splitlines()[0]


def fitted_of(sites):
    from holdfast.data.tables.apart import Together

    tables = [site.rows for site in sites]
    names = tuple(site.name for site in sites)
    together = Together(tables[0].given, tuple(t.there() for t in tables), names)
    return together.fitted([t.answers(together.questions, together.regression) for t in tables])


def test_a_server_without_its_own_data_says_where_to_put_it(tmp_path):
    path = file_of(tmp_path / "given", ARRAYS)
    federation_of(tmp_path / "federation", path, "fedavg_plus")
    given = hf.deploy.from_file(tmp_path / "federation/app/study/experiment.toml", "fedavg_plus")
    with pytest.raises(
        hf.HoldfastError, match=r"server = \"server.toml\" of the run configuration"
    ):
        given.at_server(None)
    with pytest.raises(hf.HoldfastError, match="say method = one of fedavg_plus, one_way_transfer"):
        hf.deploy.from_file(given.file.path).label  # noqa: B018


def test_a_site_keeps_to_the_experiments_it_agreed_to(tmp_path):
    path = file_of(tmp_path / "given", TABLE)
    given, sites = federation_of(tmp_path / "federation", path, "scaffold")
    file = tmp_path / "federation" / "sites" / "south.toml"
    file.write_text(file.read_text() + f'[allow]\nexperiments = ["{"0" * 32}"]\n')
    own = [hf.deploy.site_from_file(file, given)]
    with pytest.raises(hf.HoldfastError, match="is not on this site's list of allowed ones"):
        hf.deploy.run(given, hf.deploy.InProcess([*sites[:2], *own]), 1, wait=0.5)
