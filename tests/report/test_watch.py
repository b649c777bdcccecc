"""A run is watched while it goes on: by a server that this machine alone can reach."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request

import pytest

from holdfast.errors import HoldfastError
from holdfast.report.live import Watched, server
from tests.report import made_up
from tests.report.browsing import opened, value, wait_for

EXPERIMENT = "rounds = 20\nseeds = 2\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """One method of two seeds, of which none has begun."""
    monkeypatch.setattr(made_up, "EXPERIMENT", EXPERIMENT)
    return made_up.begin(tmp_path / "run", ["fedavg"])


@pytest.fixture
def served():
    """Serve a run; ended with the test."""
    servers = []

    def begin(watched):
        found = server(watched)
        threading.Thread(target=found.serve_forever, daemon=True).start()
        servers.append(found)
        return f"http://127.0.0.1:{found.server_address[1]}/"

    yield begin
    for one in servers:
        one.shutdown()
        one.server_close()


def signed(folder, process):
    about = {"process": process, "machine": socket.gethostname(), "since": "now"}
    (folder.path / "lock").write_text(json.dumps(about))


def read(address):
    with urllib.request.urlopen(address, timeout=30) as answer:
        return answer.status, answer.read().decode()


def test_progress_is_what_the_files_say(folder):
    watched = Watched(folder.path)
    assert watched.progress().in_words().startswith("Stopped: 0 of 2 runs")
    signed(folder, os.getpid())
    assert watched.progress().in_words() == "Running: preparing; 0 of 2 runs are over."
    made_up.add(folder, 0, 0, made_up.rows(0.04, 0), made_up.client_results(0))
    made_up.add(folder, 0, 1, made_up.rows(0.04, 1, rounds=7))
    said = watched.progress().in_words()
    assert said == "Running: FedAvg, seed 1, is in round 7 of 20; 1 of 2 runs are over."
    shutil.rmtree(folder.seed_folder("m0", 0).path)
    made_up.add(folder, 0, 0, made_up.rows(0.04, 0, rounds=3))
    said = watched.progress().in_words()
    assert "FedAvg, seed 1, is in round 7 of 20, FedAvg, seed 0, in round 3; 0 of 2" in said
    shutil.rmtree(folder.seed_folder("m0", 0).path)
    made_up.add(folder, 0, 0, made_up.rows(0.04, 0), made_up.client_results(0))
    shutil.rmtree(folder.seed_folder("m0", 1).path)
    made_up.add(folder, 0, 1, made_up.rows(0.04, 1), failed=True)
    assert watched.progress().in_words() == "Finished: all 2 runs are over."


def test_looking_on_takes_no_lock_and_a_dead_process_runs_nothing(folder):
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    signed(folder, ended.pid)
    before = (folder.path / "lock").read_bytes()
    assert not Watched(folder.path).progress().running
    assert (folder.path / "lock").read_bytes() == before


def test_values_are_sent_when_they_are_new(folder, served):
    address = served(Watched(folder.path))
    status, text = read(address)
    assert status == 200
    assert "no method has run a round yet" in text
    assert 'http-equiv="refresh"' in text
    made_up.add(folder, 0, 0, made_up.rows(0.04, 0, rounds=5))
    assert "holdfast report" in read(address)[1]
    first = json.loads(read(f"{address}values.json?after=")[1])
    assert first["curves"][0]["grids"][0]["rounds"][-1] == 5
    known = f"{address}values.json?after={first['live']['version']}"
    assert read(known) == (204, "")
    shutil.rmtree(folder.seed_folder("m0", 0).path)
    made_up.add(folder, 0, 0, made_up.rows(0.04, 0, rounds=6))
    status, text = read(known)
    assert (status, json.loads(text)["curves"][0]["grids"][0]["rounds"][-1]) == (200, 6)


def test_files_that_are_just_being_written_leave_the_page_as_it_was(folder, served):
    made_up.add(folder, 0, 0, made_up.rows(0.04, 0, rounds=5))
    address = served(Watched(folder.path))
    first = json.loads(read(f"{address}values.json")[1])
    (folder.seed_folder("m0", 0).path / "history.jsonl").write_text('{"round": 2}\n')
    again = json.loads(read(f"{address}values.json")[1])
    assert again == first


def test_only_this_machine_is_answered_and_only_the_page(folder, served):
    made_up.add(folder, 0, 0, made_up.rows(0.04, 0))
    address = served(Watched(folder.path))
    for path, host, code in (("", "elsewhere.example", 403), ("lock", "localhost", 404)):
        asked = urllib.request.Request(address + path, headers={"Host": host})
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(asked, timeout=30)
        assert caught.value.code == code
        caught.value.close()
    port = int(address.split(":")[2].strip("/"))
    with pytest.raises(HoldfastError, match=rf"watch: port {port}: .*--port"):
        server(Watched(folder.path), port)


@pytest.mark.browser
def test_the_page_follows_and_keeps_what_was_chosen(folder, served, browser):
    made_up.add(folder, 0, 0, made_up.rows(0.04, 0, rounds=5))
    signed(folder, os.getpid())
    opened(browser, served(Watched(folder.path, every=0.2)))
    assert "round 5 of 20" in value(browser, "document.getElementById('live').textContent")
    choose = "const s = document.getElementById('metric'); s.value = 'loss'; s.onchange()"
    browser.execute_script(choose)
    shutil.rmtree(folder.seed_folder("m0", 0).path)
    for seed in range(2):
        made_up.add(folder, 0, seed, made_up.rows(0.04, seed), made_up.client_results(seed))
    wait_for(browser, "document.getElementById('live').textContent.startsWith('Finished')")
    curve = "document.getElementById('curves-chart').data.find(t => t.meta === 'line')"
    wait_for(browser, f"{curve}.x.at(-1) === 20")
    assert value(browser, "document.getElementById('metric').value") == "loss"
    assert value(browser, "document.querySelectorAll('.chip').length") == 1
    assert "2 seeds" in value(browser, "document.getElementById('summary').textContent")


def test_the_command_says_where_it_is_and_ends_with_ctrl_c(folder):
    for seed in range(2):
        made_up.add(folder, 0, seed, made_up.rows(0.04, seed), made_up.client_results(seed))
    command = [sys.executable, "-m", "holdfast", "watch", str(folder.path), "--every", "0.2"]
    shown = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    try:
        lines = [shown.stdout.readline() for _ in range(3)]
        assert "http://127.0.0.1:" in lines[1]
        assert lines[2].startswith("Finished")
        assert read(lines[1].split()[1])[0] == 200
        shown.send_signal(2)
        assert "stopped watching" in shown.communicate(timeout=30)[0]
        assert shown.returncode == 0
    finally:
        shown.kill()
