"""`fei serve` as a whole, in a process of its own, and visitors without a browser, hostile ones too."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest
from page_server import page_server, png, require
from waiting import PATIENCE, until

from fei.app.gate import CALL
from fei.errors import InputError

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server(network_file, tmp_path_factory):
    """A running server: its address and its private folder."""
    temporary = tmp_path_factory.mktemp("server")
    limits = {"upload_bytes": 200_000, "pixels": 1_000_000, "seconds": 30, "queue": 2}
    with page_server(temporary, [f"{network_file}:tiny"], **limits) as address:
        (private,) = temporary.iterdir()
        yield Visitor(address), private


class Visitor:
    """A program that talks to the server as the page does."""

    def __init__(self, address):
        self.host, self.port = re.fullmatch(r"http://([\d.]+):(\d+)/", address).groups()
        self.config = json.loads(self.request("GET", "/config")[1])

    def request(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection(self.host, int(self.port), timeout=PATIENCE)
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, content

    def event(self, kind, number=0):
        """The number of the page's n-th event of a kind."""
        found = [one["id"] for one in self.config["dependencies"] if one["targets"][0][1] == kind]
        return found[number]

    def call(self, event, data, session, event_data=None):
        """What an event is answered with."""
        body = {"data": data, "fn_index": event, "session_hash": session, "event_data": event_data}
        return self.request("POST", CALL, json.dumps(body), {"content-type": "application/json"})[1].decode()

    def run(self, data, session):
        """What the page shows in the end when a run is ordered."""
        shown = self.call(self.event("click"), data, session)
        while not any(end in shown for end in ('"active":false', "fei-error", '{"error"')):  # the clock ticks till then
            time.sleep(0.1)
            shown = self.call(self.event("tick"), [], session)
        return shown

    @contextmanager
    def here(self, session):
        """The page is open: its stream is."""
        with socket.create_connection((self.host, int(self.port))) as stream:
            stream.sendall(f"GET /gradio_api/heartbeat/{session} HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode())
            assert b" 200 " in stream.recv(100)
            yield

    def upload(self, content):
        return self.request("POST", "/photo", content)


def test_the_page_answers_and_files_of_the_machine_are_not_served(server):
    visitor, private = server
    assert visitor.request("GET", "/")[0] == 200
    secret = private / "lock"
    for path in (
        f"/gradio_api/file={secret}",
        "/gradio_api/file=/etc/passwd",
        f"/file={secret}",
        "/static/../../../../etc/passwd",
        "/static/..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/assets/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/svelte//etc/passwd",
        "/results/..%2f..%2flock/x",
    ):
        status, content = visitor.request("GET", path)
        assert status in (403, 404), path
        assert b"root:" not in content
        assert b"process" not in content


def test_hostile_calls_get_a_sentence_and_run_nothing(server, tmp_path):
    visitor, _ = server
    marker = tmp_path / "ran"
    evil = tmp_path / "evil.py"
    evil.write_text(f"open({str(marker)!r}, 'w')\ndef factory():\n    pass\n", encoding="utf-8")
    groups = [[], ["saliency"], [], [], []]
    with visitor.here("hostile"):
        visitor.call(visitor.event("submit"), ["nets.py:tiny"], "hostile", {"example": 0})
        for data in (
            [f"{evil}:factory", None, "fast", 0, *groups],
            ["nets.py:tiny", "999", "fast", 0, *groups],
            ["nets.py:tiny", None, "fast", 0, [f"{evil}:factory"], [], [], [], []],
            ["nets.py:tiny", None, "fast", 0, ["os:system"], [], [], [], []],
            ["nets.py:tiny", None, "../x", 0, *groups],
            ["nets.py:tiny", None, "fast", "__import__('os')", *groups],
            ["nets.py:tiny"],
        ):
            message = visitor.run(data, "hostile")
            assert "Traceback" not in message
            assert "Done in" not in message
        assert not marker.exists()
        done = visitor.run(["nets.py:tiny", None, "fast", 0, *groups], "hostile")
        assert "Done in" in done  # so it was not for another reason


def test_a_run_that_goes_on_is_shown_again_to_who_asks_for_another(server):
    visitor, _ = server
    run = ["nets.py:tiny", None, "fast", 0, [], [], [], ["rise", "extremal-perturbation", "kernel-shap"], []]
    with visitor.here("again"):
        visitor.call(visitor.event("submit"), ["nets.py:tiny"], "again", {"example": 0})
        assert '"active":true' in visitor.call(visitor.event("click"), run, "again")
        again = visitor.call(visitor.event("click"), run, "again")
        assert "Your last run is not over yet; wait for it, or cancel it." in again
        assert '"active":true' in again
        visitor.call(visitor.event("click", 1), [], "again")
        shown = ""
        while '"active":false' not in shown:
            shown = visitor.call(visitor.event("tick"), [], "again")
        assert "The run was cancelled." in shown


def test_files_of_the_machine_cannot_be_had_as_photos(server, tmp_path):
    visitor, private = server
    secret = tmp_path / "secret.png"
    secret.write_bytes(png())
    upload = visitor.event("upload")
    for path in (str(secret), "../../lock", "http://127.0.0.1:1/x", f"file://{secret}"):
        file = {"path": path, "meta": {"_type": "gradio.FileData"}}
        body = {"data": [file], "fn_index": upload, "session_hash": "thief"}
        headers = {"content-type": "application/json"}
        assert visitor.request("POST", CALL, json.dumps(body), headers)[0] == 400
        message = visitor.call(upload, ["nets.py:tiny"], "thief", {"ticket": path})
        assert "No photo has arrived; choose it again." in message
        assert "Your photo" not in message
    assert [path for path in (private / "gradio").rglob("*") if path.is_file()] == []
    status, answer = visitor.upload(png())
    assert status == 200
    message = visitor.call(upload, ["nets.py:tiny"], "thief", {"ticket": json.loads(answer)["ticket"]})
    assert "Your photo" in message


def test_too_large_malformed_and_aborted_uploads_leave_the_server_well(server):
    visitor, private = server
    assert visitor.upload(b"x" * 300_000) == (413, b"The photo has more than 0.2 MB; save it smaller.")
    chunks = (b"x" * 50_000 for _ in range(8))  # which do not say beforehand how many they are
    assert visitor.upload(chunks)[0] == 413
    for _ in range(5):
        with socket.create_connection((visitor.host, int(visitor.port))) as aborted:
            aborted.sendall(b"POST /photo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\nhalf")
    until(lambda: not list((private / "uploads").iterdir()))
    for garbage in (b"\x00\xff\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n"):
        with socket.create_connection((visitor.host, int(visitor.port))) as odd:
            odd.sendall(garbage)
            odd.settimeout(10)
            odd.recv(100)
    assert visitor.request("GET", "/")[0] == 200
    assert visitor.upload(png())[0] == 200
    assert private.is_dir()


def test_what_a_visitor_left_is_gone_soon_after(server):
    visitor, private = server
    visitor.call(visitor.event("submit"), ["nets.py:tiny"], "leaver", {"example": 1})
    assert list((private / "sessions").iterdir())
    until(lambda: not list((private / "sessions").iterdir()))


def test_without_gradio_there_is_one_sentence(monkeypatch):
    from fei.app.server import Options, serving

    monkeypatch.setitem(sys.modules, "gradio", None)
    sentence = r'^Gradio is needed for this and is not installed; run: pip install "fei\[serve\]"$'
    with pytest.raises(InputError, match=sentence), serving(Options()):
        pass


def test_the_command_serves_until_ctrl_c_and_leaves_nothing(network_file, tmp_path):
    require("gradio")
    words = ["serve", "--model", f"{network_file}:tiny", "--port", "0", "--host", "127.0.0.1"]
    environment = os.environ | {"TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        [sys.executable, "-m", "fei", *words],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        try:
            visitor = Visitor(re.search(r"http://\S+", process.stdout.readline())[0])
            assert visitor.request("GET", "/")[0] == 200
            assert "fei-serve-" in {path.name[:10] for path in tmp_path.iterdir()}
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 0
    assert errors == "Stopping.\n"
    assert list(tmp_path.glob("fei-*")) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--max-seconds", "0"], "--max-seconds is 0; give a number of seconds above 0."),
        (["--host", "999.1.1.1"], "'999.1.1.1' is no address of this machine; give --host 127.0.0.1 or another."),
        (["--model", "no-such-network"], "There is no model 'no-such-network'"),
    ],
)
def test_a_wrong_option_is_told_in_one_sentence(words, sentence, capsys):
    require("gradio")
    from fei.cli._app import run

    assert run(["serve", "--port", "0", *words]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert errors[-1].startswith(f"error: {sentence}")


def test_a_port_that_is_taken_is_told(capsys):
    require("gradio")
    from fei.cli._app import run

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert run(["serve", "--port", str(taken.getsockname()[1])]) == 2
    assert "choose another with --port or --host." in capsys.readouterr().err


def test_another_host_is_warned_about(capsys):
    from fei.cli._app import run

    run(["serve", "--host", "0.0.0.0", "--model", "no-such-network", "--port", "0"])
    assert "warning: with --host 0.0.0.0 whoever reaches this machine" in capsys.readouterr().err
