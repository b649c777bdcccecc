"""What is said of a SuperLink that cannot be spoken to, and runs that are followed. Stand-ins play Flower."""

import http.server
import socket
import ssl
import sys
import threading

import pytest
from typer.testing import CliRunner

import holdfast as hf
from holdfast.cli import app
from holdfast.deploy.connection import Connection
from holdfast.deploy.keys import write_keys


class _Healthy(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def superlink():
    """A function that starts one, with a certificate or without; its address."""
    servers = []

    def start(keys=None):
        server = http.server.HTTPServer(("127.0.0.1", 0), _Healthy)
        server.handle_error = lambda *_: None
        if keys is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(keys / "server.crt", keys / "server.key")
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"127.0.0.1:{server.server_port}"

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def stand_in(monkeypatch, tmp_path):
    """Flower's commands are scripts in this folder."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setattr(
        "holdfast.deploy.connection.command", lambda name: str(tmp_path / "bin" / name)
    )
    monkeypatch.setattr("holdfast.deploy.connection._AGAIN", 0.01)
    return tmp_path / "bin"


def test_nobody_there(tmp_path):
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{one.getsockname()[1]}"
    with pytest.raises(
        hf.HoldfastError, match=rf"no SuperLink answers at {address} \(Connection ref"
    ):
        Connection(tmp_path, address, None).check()


@pytest.mark.parametrize("address", ["fed.example.org", "fed:http", ":8000"])
def test_no_address(address, tmp_path):
    with pytest.raises(hf.HoldfastError, match="is no host and port"):
        Connection(tmp_path, address, None)


def test_without_tls_is_for_this_machine_only(tmp_path):
    with pytest.raises(hf.HoldfastError, match="without TLS is not on this machine"):
        Connection(tmp_path, "192.0.2.1:8000", None)
    for address in ("127.0.0.1:8000", "localhost:8000", "[::1]:8000"):
        Connection(tmp_path, address, None)


def test_certificates(tmp_path, superlink):
    pytest.importorskip("cryptography")
    write_keys(tmp_path / "keys", [])
    write_keys(tmp_path / "others", [])
    write_keys(tmp_path / "elsewhere", [], ["fed.example.org"])
    address = superlink(tmp_path / "keys")
    Connection(tmp_path, address, tmp_path / "keys" / "ca.crt").check()
    with pytest.raises(
        hf.HoldfastError, match=r"does not fit .*others/ca\.crt: unable to get local"
    ):
        Connection(tmp_path, address, tmp_path / "others" / "ca.crt").check()
    with pytest.raises(hf.HoldfastError, match="not as a SuperLink without TLS does"):
        Connection(tmp_path, address, None).check()
    other = superlink(tmp_path / "elsewhere")
    with pytest.raises(hf.HoldfastError, match=r"certificate is not valid for '127\.0\.0\.1'"):
        Connection(tmp_path, other, tmp_path / "elsewhere" / "ca.crt").check()
    plain = superlink()
    Connection(tmp_path, plain, None).check()
    with pytest.raises(hf.HoldfastError, match="not as a SuperLink with TLS does"):
        Connection(tmp_path, plain, tmp_path / "keys" / "ca.crt").check()
    with pytest.raises(hf.HoldfastError, match="has no certificate that can be read"):
        Connection(tmp_path, address, tmp_path / "keys" / "server.key").check()
    with pytest.raises(hf.HoldfastError, match="there is no certificate"):
        Connection(tmp_path, address, tmp_path / "ca.crt")


def test_a_certificate_fits_what_sites_and_the_server_itself_reach_it_by(tmp_path):
    x509 = pytest.importorskip("cryptography.x509")
    keys = tmp_path / "keys"
    words = ["deploy", "keys", str(keys), "--site", "north", "--host", "fed.example.org"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    found = x509.load_pem_x509_certificate((keys / "server.crt").read_bytes())
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["fed.example.org", "localhost"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


# A run whose stream of lines breaks twice, and whose SuperLink does not answer once.
_FLWR = """\
#!{python}
import json, sys
from pathlib import Path
calls = Path(__file__).with_name("calls")
with calls.open("a") as f:
    f.write(sys.argv[1] + "\\n")
count = calls.read_text().split().count(sys.argv[1])
if sys.argv[1] == "run":
    assert sys.argv[3] == "holdfast"
    print("Success\\n" + json.dumps({{"success": True, "run-id": "17"}}))
elif sys.argv[1] == "log":
    assert sys.argv[2:] == ["17", "holdfast", "--stream"]
    for t in range(2 * count):
        print(f"holdfast round={{t + 1}}")
    if {failure!r} and count == 3:
        print({failure!r})
elif count == 1:
    sys.exit("Connection refused")
else:
    status = "running" if count == 2 else {status!r}
    run = {{"run-id": "17", "status": status, "status-details": {why!r}}}
    print(json.dumps({{"success": True, "runs": [run]}}))
"""


def followed(stand_in, tmp_path, status, why="", failure=""):
    said = []
    script = _FLWR.format(python=sys.executable, status=status, why=why, failure=failure)
    (stand_in / "flwr").write_text(script)
    (stand_in / "flwr").chmod(0o755)
    try:
        for line in Connection(tmp_path, "127.0.0.1:1", None).run(tmp_path, rounds=6):
            said.append(line)
    except hf.HoldfastError as error:
        return said, str(error)
    return said, ""


def test_a_run_is_followed_over_breaks_and_no_line_comes_twice(stand_in, tmp_path):
    said, error = followed(stand_in, tmp_path, "finished:completed")
    # The last lines are asked for after it was over.
    assert said == [f"holdfast round={t}" for t in range(1, 9)]
    assert error == ""


def test_why_a_run_failed_is_said(stand_in, tmp_path):
    failure = "holdfast.errors.HoldfastError: run: no."
    said, error = followed(stand_in, tmp_path, "finished:failed", "ServerApp failed", failure)
    assert said[-1] == failure
    assert error == "deploy: the run ended: run: no."


def test_a_server_that_is_gone_is_said(stand_in, tmp_path):
    why = "No heartbeat received from the task"
    _, error = followed(stand_in, tmp_path, "finished:failed", why)
    assert "submit it again (holdfast deploy resume), and it goes on from its folder" in error


_NODES = """\
#!{python}
import json, sys
if sys.argv[1:3] == ["supernode", "register"]:
    if sys.argv[3].endswith("again.pub"):
        print(json.dumps({{"success": False, "error-message": "Using it\\n\\n[code: 23] In use."}}))
        sys.exit(1)
    number = 7 if sys.argv[3].endswith("north.pub") else 8
    print("done\\n" + json.dumps({{"success": True, "node-id": number}}))
else:
    nodes = [{{"node-id": str(n), "status": "online"}} for n in (8, 9)]
    print(json.dumps({{"success": True, "nodes": nodes}}))
"""


def test_sites_are_listed_by_the_names_of_their_keys(stand_in, tmp_path):
    (stand_in / "flwr").write_text(_NODES.format(python=sys.executable))
    (stand_in / "flwr").chmod(0o755)
    link = Connection(tmp_path, "127.0.0.1:1", None)
    for name in ("north", "south"):
        link.register(tmp_path / f"{name}.pub")
    # A site that somebody else registered has no name here.
    again = Connection(tmp_path, "127.0.0.1:1", None)
    assert [(s["node-id"], s["name"]) for s in again.sites()] == [("8", "south"), ("9", "")]
    with pytest.raises(
        hf.HoldfastError, match=r"^deploy: flwr supernode register failed: \[code: 23\] In use\.$"
    ):
        link.register(tmp_path / "again.pub")
