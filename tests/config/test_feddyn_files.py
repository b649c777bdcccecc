"""FedDyn's experiment files have the values that its README says, and the commands there work."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from holdfast.config.build import sections
from holdfast.config.file import read

FOLDER = Path(__file__).parents[2] / "papers" / "feddyn"
README = (FOLDER / "README.md").read_text("utf-8")


def table() -> dict[str, dict[str, str]]:
    lines = [line for line in README.splitlines() if line.startswith("|")]
    start = next(i for i, line in enumerate(lines) if line.startswith("| file |"))
    columns = [cell.strip() for cell in lines[start].split("|")[1:-1]]
    rows = {}
    for line in lines[start + 2 :]:
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) != len(columns):
            break
        rows[cells[0].strip("`")] = dict(zip(columns, cells, strict=True))
    return rows


TABLE = table()


def test_every_file_is_in_the_table():
    assert set(TABLE) == {path.stem for path in FOLDER.glob("*.toml")}


@pytest.mark.parametrize("name", TABLE)
def test_a_file_has_the_values_of_the_table(name):
    row, file = TABLE[name], tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))
    local, partition, data = file["local"], file["partition"], file["data"]
    methods = {m["name"]: m for m in file["algorithm"]}
    rate = local["learning_rate"]
    rate = rate if isinstance(rate, dict) else {"value": rate, "decay": 1}
    split = "natural"
    if partition["name"] == "dirichlet":
        split = f"Dirichlet {partition['concentration']}"
        split += f", sigma {partition['sigma']}" if "sigma" in partition else ""
    assert row["split"] == split
    found = {
        "devices": partition.get("clients") or data.get("roles") or 20,
        "share a round": file["cohort"].get("probability", 1),
        "rounds": file["rounds"],
        "learning rate": rate["value"],
        "decay": rate["decay"],
        "epochs": local["epochs"],
        "FedAvg's epochs": methods["fedavg"].get("local", local).get("epochs"),
        "SCAFFOLD's K": methods["scaffold"]["local"]["steps"],
        "alpha": methods["feddyn"]["alpha"],
        "mu": methods["fedprox"]["mu"],
        "batch": local["batch_size"],
        "weight decay": local["weight_decay"],
    }
    assert {key: float(row[key].replace(",", "")) for key in found} == found
    assert float(row["targets"].split(",")[0]) == file["target"]
    assert file["model"]["init"] == ("zeros" if name == "synthetic" else "torch")
    assert file["evaluate"]["average"]
    first = (FOLDER / f"{name}.toml").read_text("utf-8").splitlines()[0]
    assert f"table {row['table']}:" in first


def test_commands_are_valid():
    commands = re.findall(r"`holdfast run (papers/feddyn/\S+ --set [^`]+)`", README)
    assert commands
    comments = [
        f"papers/feddyn/{path.name} {options}"
        for path in FOLDER.glob("*.toml")
        for options in re.findall(r"^#.*?(--set data\S+(?: --set \S+)*)", path.read_text(), re.M)
    ]
    assert len(comments) == 5
    for command in commands + comments:
        path, *options = shlex.split(command.rstrip("."))
        changes = [o.rstrip(".") for o in options if o != "--set"]
        assert sections(read(FOLDER.parents[1] / path, changes)).algorithm
