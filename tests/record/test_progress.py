"""Bars where someone is looking, lines of the command anywhere, and silence otherwise."""

import io
from types import SimpleNamespace
from typing import Any

from rich.console import Console

import holdfast as hf
from holdfast.record import progress


def at(t: int) -> Any:
    """As much of a state as is shown."""
    history = hf.History(({"loss": 0.25, "accuracy": 0.5},))
    return SimpleNamespace(round=t, history=history, ledger=SimpleNamespace(total=1_200_000))


def told(shown: progress.Progress) -> None:
    with shown:
        for label in ("fedavg, seed 0", "fedavg, seed 1"):
            shown.begin(label)
            for t in (1, 2, 3):
                shown.advance(at(t))
            shown.end("accuracy 0.5000")


def test_nobody_is_looking(capsys):
    told(progress.of_run("fedavg", 3))
    told(progress.of_sweep("fedavg", 2, 3))
    told(progress.of_sweep("fedavg", 2, 3, wanted=False))
    assert capsys.readouterr() == ("", "")


def test_a_bar_for_a_run(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with progress.of_run("fedavg", 20, wanted=True) as shown:
        shown.advance(at(20))
    said = capsys.readouterr().err
    assert said.startswith("fedavg       ━")
    assert "20/20 loss 0.250  accuracy 0.500  1.2 MB" in said


def test_a_bar_for_a_sweep(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with progress.of_sweep("fedprox", 2, 3, wanted=True) as shown:
        shown.begin("mu=0, seed 0")
        shown.advance(at(1))
        shown.end()
        shown.begin("mu=0.1, seed 0")
        shown.advance(at(2))
    said = capsys.readouterr().err
    assert said.startswith("fedprox ━")
    assert "5/6 mu=0.1, seed 0" in said


def test_only_the_first_of_several_processes_shows_one(capsys, monkeypatch):
    monkeypatch.setattr(progress.processes, "is_first", lambda: False)
    told(progress.of_sweep("fedavg", 2, 3, wanted=True))
    assert capsys.readouterr().err == ""


def test_lines_of_the_command_without_a_terminal():
    console = Console(file=io.StringIO(), width=80)
    told(progress.of_command(console, 2, 3, "accuracy"))
    assert console.file.getvalue().splitlines() == [
        "[1/2] fedavg, seed 0           accuracy 0.5000",
        "[2/2] fedavg, seed 1           accuracy 0.5000",
    ]


def test_two_bars_of_the_command_in_a_terminal(monkeypatch):
    monkeypatch.setattr(progress, "_LEAST", 0.0)
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    shown = progress.of_command(console, 2, 3, "accuracy")
    with shown:
        shown.begin("fedavg, seed 0")
        shown.advance(at(1))
        shown.advance(at(2))
    said = console.file.getvalue()
    assert "/s  accuracy 0.500  1.2 MB" in said
    assert "all runs" in said
    assert "33%" in said


def test_several_runs_at_once_in_a_terminal():
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    with progress.of_command(console, 2, 4, "accuracy") as shown:
        for label in ("fedavg, seed 0", "feddyn, seed 0"):
            shown.begin(label)
        for label, t in (("fedavg, seed 0", 1), ("feddyn, seed 0", 3)):
            shown.hear(label, t, {"round": t, "accuracy": 0.5}, 1_200_000)
        shown.say("a client was left out", "fedavg, seed 0")
        shown.end("accuracy 0.5000", "feddyn, seed 0")
    said = console.file.getvalue()
    last = said[said.index("[1/2]") :]
    assert "fedavg, seed 0: a client was left out" in said
    assert "feddyn, seed 0" in said
    # One is over, and of the other a quarter.
    assert "62%" in last
