"""What `holdfast deploy` shows of a run that goes on elsewhere."""

import io
import time

import pytest
from rich.console import Console

import holdfast as hf
from holdfast.cli import following
from holdfast.deploy.starting import PROJECT, run_config

LINE = "holdfast round=2 loss=0.44 accuracy=0.83 personal_loss=0.46 personal_accuracy=0.81 bytes_down=300"


def test_a_line_of_a_server_is_read():
    found = following.of_round(LINE)
    assert found["round"] == 2
    assert found["personal_accuracy"] == 0.81
    for other in ("", "holdfast: nothing was measured", "INFO : round=2", "holdfast loss=1"):
        assert following.of_round(other) == {}


def test_a_bar_of_80_columns_has_room_for_what_is_measured(monkeypatch):
    said = io.StringIO()
    console = Console(file=said, width=80, force_terminal=True, color_system=None)
    monkeypatch.setattr(following, "err", console)

    def lines():
        time.sleep(0.3)
        yield LINE
        time.sleep(0.3)  # the bar is drawn eight times a second

    following.show(lines(), "federation", 3)
    assert "0/3 waiting for sites" in said.getvalue()
    assert "2/3 personal_accuracy 0.810  0.0 MB" in said.getvalue()


def test_rounds_and_method_are_the_app_s_unless_given(tmp_path):
    path = tmp_path / "pyproject.toml"
    path.write_text(PROJECT.format(rounds=7, more='method = "fedavg"\n'))
    assert run_config(tmp_path, None, None) == {"rounds": 7}
    assert run_config(tmp_path, 2, "scaffold") == {"rounds": 2, "method": "scaffold"}
    path.write_text(PROJECT.format(rounds=7, more=""))
    with pytest.raises(hf.HoldfastError, match="is no app of an experiment file"):
        run_config(tmp_path, None, "scaffold")
    path.write_text("[project]\n")
    with pytest.raises(hf.HoldfastError, match="has no `rounds` under"):
        run_config(tmp_path, None, None)
