"""The table at every width, into a pipe, and as files for other programs."""

import io
import json
import re

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from holdfast.cli import app
from holdfast.record.history import History
from holdfast.runs import export
from holdfast.runs.compare import columns, table
from holdfast.runs.results import MethodResult, Results

LABELS = ("fedavg", "feddyn alpha=0.01, local.learning_rate=0.05", "a|b & c_d")


def method(label, slope, role="federated", megabytes=1.5):
    def history(seed):
        return History(
            tuple(
                {
                    "round": r,
                    "accuracy": min(1.0, slope * r + 0.01 * seed),
                    "bytes_down": int(megabytes * 1e6),
                    "bytes_up": int(megabytes * 1e6),
                    "models": float(megabytes > 0),
                    "seconds": 0.25,
                }
                for r in range(1, 21)
            )
        )

    return MethodResult(label, tuple(map(history, range(3))), (), True, role=role)


RESULTS = Results(
    (
        method("local_only", 0.01, "alone", 0.0),
        *(method(label, 0.04 + i / 100) for i, label in enumerate(LABELS)),
        method("centralised", 0.09, "pooled", 0.0),
    ),
    "accuracy",
    0.5,
    (),
)


def rendered(width):
    file = io.StringIO()
    console = Console(width=width, file=file)
    console.print(table(RESULTS, console=console))
    return file.getvalue()


@pytest.mark.parametrize("width", [50, 60, 80, 120, 10_000])
def test_no_figure_and_no_name_is_lost_at_any_width(width):
    text = rendered(width)
    assert all(len(line) <= width for line in text.splitlines())
    heads = [line for line in text.splitlines() if line.strip().startswith("method ")]
    assert heads
    shown = [line.split() for line in text.splitlines()]
    # As many rows that begin with a method as there are tables.
    assert sum(words[:1] == ["fedavg"] for words in shown) >= len(heads)
    assert len(re.findall(r"^  centralised ", text, re.M)) == len(heads)
    for _, cells in columns(RESULTS, RESULTS.baseline()):
        for cell in cells:
            assert cell in text, cell
    assert "…" not in text


def test_columns_come_by_priority():
    first = next(
        line for line in rendered(80).splitlines() if "method" in line and "rounds" in line
    )
    assert first.split()[:6] == ["method", "rounds", "saving", "MB", "saving", "final"]
    assert rendered(10_000).count("method ") == 1


def test_ends_of_the_comparison_come_last_and_save_nothing():
    text = rendered(10_000)
    places = [text.index(f"\n  {label} ") for label in ("fedavg", "local_only", "centralised")]
    assert places == sorted(places)
    line = next(line for line in text.splitlines() if line.startswith("  centralised"))
    assert line.split()[1:6] == ["6±0", "-", "0", "-", "1.000±0.000"]
    assert "local_only, centralised: ends of the comparison" in text


def test_markdown_has_a_row_for_each_method_and_escapes_pipes():
    lines = export.to_markdown(RESULTS).splitlines()
    assert len(lines) == 2 + len(RESULTS.methods)
    assert lines[4].startswith(r"| a\|b & c_d |")
    # Pipes that are not escaped.
    assert len({len(re.findall(r"(?<!\\)\|", line)) for line in lines}) == 1


def test_latex_is_booktabs_with_everything_escaped():
    text = export.to_latex(RESULTS)
    for rule in (r"\toprule", r"\bottomrule", r"\end{tabular}"):
        assert text.count(rule) == 1
    assert text.count(r"\midrule") == 2
    assert r"a|b \& c\_d" in text
    body = [line for line in text.splitlines() if line.endswith(r"\\")]
    count = text[text.index("{l") + 1 :].index("}")
    assert {len(re.findall(r"(?<!\\)&", line)) for line in body} == {count - 1}
    assert not re.search(r"(?<!\\)[_%#]", "\n".join(body))
    assert "±" not in text
    assert r"1.000$\pm$0.000" in text


def test_json_is_plain_and_complete():
    found = json.loads(export.to_json(RESULTS))
    assert [row["method"] for row in found["methods"]] == [m.label for m in RESULTS.methods]
    assert found["methods"][0]["role"] == "alone"
    assert found["methods"][1]["final"] == pytest.approx(np.mean([0.8, 0.81, 0.82]))
    assert found["verdict"] is None  # nothing was predicted
    assert found["differences"] == []


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("tables")
    (place / "e.toml").write_text(
        'rounds = 3\nseeds = 2\n[data]\nname = "digits"\n[partition]\nname = "iid"\nclients = 3\n'
        '[model]\nname = "softmax_regression"\n[local]\nlearning_rate = 0.1\n'
        '[[algorithm]]\nname = "fedavg"\n[[algorithm]]\nname = "local_only"\n'
    )
    said = CliRunner().invoke(app, ["run", str(place / "e.toml"), "--out", str(place / "run")])
    assert said.exit_code == 0, said.output
    return place / "run", said.output


def test_run_ends_with_the_verdict_and_compare_has_it_too(folder):
    path, said = folder
    verdict = next(line for line in said.splitlines() if "federated (FedAvg)" in line)
    assert said.index(verdict) > said.index("report ")
    again = CliRunner().invoke(app, ["compare", str(path)], env={"COLUMNS": "40"}).output
    # Into a pipe lines are whole, whatever the terminal.
    assert verdict in again.splitlines()
    assert "Accuracy on every client's own test rows" in again
    assert "against fedavg" in again


def test_compare_writes_and_prints_what_it_is_asked_for(folder, tmp_path):
    path, _ = folder
    asked = [f"--{kind}={tmp_path / kind}" for kind in ("csv", "json", "latex", "markdown")]
    said = CliRunner().invoke(app, ["compare", str(path), *asked])
    assert said.exit_code == 0, said.output
    assert said.output.count("figures   ") == 4
    found = json.loads((tmp_path / "json").read_text())
    assert found["verdict"]["sentences"][0].count("federated (FedAvg)") == 1
    (one,) = found["differences"]
    assert (one["first"], one["second"]) == ("local_only", "fedavg")
    assert one["low"] <= one["estimate"] <= one["high"]
    assert (tmp_path / "latex").read_text().count(r"\\") == 3
    alone = CliRunner().invoke(app, ["compare", str(path), "--json", "-"])
    assert json.loads(alone.output) == found
