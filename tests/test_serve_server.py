"""`fei serve` as a whole, in a process of its own, and visitors without a browser, hostile ones too."""

import http.client
import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import zipfile
from contextlib import contextmanager

import pytest
from page_server import page_server, png, require
from waiting import PATIENCE, until

from fei.errors import PackageError

pytestmark = pytest.mark.slow

WORK = ["rise", "extremal-perturbation", "kernel-shap"]


@pytest.fixture(scope="module")
def server(network_file, tmp_path_factory):
    """A running server: its address and its private folder."""
    temporary = tmp_path_factory.mktemp("server")
    limits = {"upload_bytes": 200_000, "pixels": 1_000_000, "seconds": 30, "queue": 2}
    with page_server(temporary, [f"{network_file}:tiny"], **limits) as address:
        (private,) = temporary.iterdir()
        yield Visitor(address), private


def files_of_visits(private):
    """Names of files. A visitor's folder may go while this looks: os.walk passes over it."""
    return {name for _, _, names in os.walk(private / "visits") for name in names}


class Visitor:
    """A program that talks to the server as the page does."""

    def __init__(self, address):
        self.host, self.port = re.fullmatch(r"http://([\d.]+):(\d+)/", address).groups()

    def request(self, method, path, body=None, headers=None):
        connection = http.client.HTTPConnection(self.host, int(self.port), timeout=PATIENCE)
        connection.request(method, path, body, headers or {})
        response = connection.getresponse()
        content = response.read()
        connection.close()
        return response.status, content

    def ask(self, key, what, **said):
        """What the page is answered."""
        status, content = self.request("POST", f"/visits/{key}/{what}", json.dumps(said))
        assert status == 200
        return json.loads(content)

    def order(self, key, **said):
        """Order a run of something quick, but for what is said."""
        usual = {"network": "nets.py:tiny", "targets": None, "methods": ["saliency"], "preset": "default", "seed": 0}
        return self.ask(key, "run", **usual | said)

    @contextmanager
    def here(self, key):
        """The page is open: its stream is, from which what the page shows is read."""
        with socket.create_connection((self.host, int(self.port)), timeout=PATIENCE) as stream:
            stream.sendall(f"GET /visits/{key}/stream HTTP/1.1\r\nHost: {self.host}\r\n\r\n".encode())
            file = stream.makefile("rb")
            assert b" 200 " in file.readline()
            yield (json.loads(line[6:]) for line in file if line.startswith(b"data: "))

    def raw(self, content):
        """All that is answered to some bytes, until the server closes."""
        with socket.create_connection((self.host, int(self.port)), timeout=PATIENCE) as connection:
            connection.sendall(content)
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))

    def upload(self, key, content):
        return self.request("POST", f"/visits/{key}/photo", content)


def last(told):
    """What the page shows in the end."""
    return next(one for one in told if one["run"] and one["run"]["state"] in ("done", "stopped"))


def test_the_page_answers_and_files_of_the_machine_are_not_served(server):
    visitor, private = server
    assert visitor.request("GET", "/")[0] == 200
    secret = private / "lock"
    for path in (
        f"/file={secret}",
        f"/visits/x/files/{secret}",
        "/examples/../../../../etc/passwd",
        "/examples/..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/visits/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "//etc/passwd",
        "/visits/x/files/..%2f..%2flock",
    ):
        status, content = visitor.request("GET", path)
        assert status == 404, path
        assert content == b"There is nothing here."


def test_hostile_orders_get_a_sentence_and_run_nothing(server, tmp_path):
    visitor, _ = server
    marker = tmp_path / "ran"
    evil = tmp_path / "evil.py"
    evil.write_text(f"open({str(marker)!r}, 'w')\ndef factory():\n    pass\n", encoding="utf-8")
    with visitor.here("hostile") as told:
        visitor.ask("hostile", "example", number=0)
        for said in (
            {"network": f"{evil}:factory"},
            {"targets": ["999"]},
            {"methods": [f"{evil}:factory"]},
            {"methods": ["os:system"]},
            {"preset": "../x"},
            {"seed": "__import__('os')"},
            {"network": None},
            {"network": {"path": str(evil)}},
        ):
            answer = visitor.order("hostile", **said)
            assert re.fullmatch(r"(There is no such|The seed is not one).*; .*\.", answer["error"])
            assert answer["run"] is None
        assert not marker.exists()
        assert visitor.order("hostile")["error"] == ""
        assert last(told)["run"]["words"].startswith("Done in")  # so it was not for another reason


def test_a_run_that_goes_on_is_shown_again_to_who_asks_for_another(server):
    visitor, _ = server
    with visitor.here("again") as told:
        visitor.ask("again", "example", number=0)
        first = visitor.order("again", methods=WORK)
        assert first["run"]["state"] in ("waiting", "running")
        again = visitor.order("again", methods=WORK)
        assert again["error"] == "Your last run is not over yet; wait for it, or cancel it."
        assert again["run"]["token"] == first["run"]["token"]
        assert again["number"] > first["number"]
        visitor.ask("again", "cancel")
        assert last(told)["run"]["words"] == "The run was cancelled."


def test_who_leaves_needs_no_run_any_more(server):
    visitor, _ = server
    with visitor.here("gone"):
        visitor.ask("gone", "example", number=0)
        visitor.order("gone", methods=WORK)
    with visitor.here("next") as told:
        visitor.ask("next", "example", number=0)
        visitor.order("next")
        assert last(told)["run"]["words"].startswith("Done in")


def test_only_photos_are_taken_as_photos(server, tmp_path):
    visitor, private = server
    until(lambda: not list((private / "visits").iterdir()))  # those before have gone
    secret = tmp_path / "secret.png"
    secret.write_bytes(png())
    for path in (str(secret), "../../lock", "http://127.0.0.1:1/x", f"file://{secret}"):
        answer = json.loads(visitor.upload("thief", path.encode())[1])
        assert answer["error"].startswith("The photo cannot be read as an image")
        assert answer["photo"] is None
    assert files_of_visits(private) == set()
    status, answer = visitor.upload("thief", png())
    assert (status, json.loads(answer)["error"]) == (200, "")
    assert json.loads(answer)["photo"]["classes"]["nets.py:tiny"]


def test_too_large_malformed_and_aborted_uploads_leave_the_server_well(server):
    visitor, private = server
    head = b"POST /visits/large/photo HTTP/1.1\r\nHost: 127.0.0.1\r\n"
    chunks = [b"x" * 50_000] * 4 + [b"x"]  # which do not say beforehand how many they are
    said = b"Content-Length: 300000\r\n\r\n"
    unsaid = b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in chunks)
    for body in (said, unsaid):
        answer = visitor.raw(head + body)
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert answer.endswith(b"The photo has more than 0.2 MB; save it smaller.")
    for _ in range(5):
        with socket.create_connection((visitor.host, int(visitor.port))) as aborted:
            aborted.sendall(b"POST /visits/a/photo HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 100000\r\n\r\nhalf")
    for garbage in (b"\x00\xff\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n"):
        with socket.create_connection((visitor.host, int(visitor.port))) as odd:
            odd.sendall(garbage)
            odd.settimeout(10)
            odd.recv(100)
    assert visitor.request("GET", "/")[0] == 200
    until(lambda: visitor.upload("well", png())[0] == 200)  # the places of those who left are free again
    until(lambda: files_of_visits(private) <= {"photo.png"})


def test_what_a_visitor_left_is_gone_soon_after(server):
    visitor, private = server
    visitor.ask("leaver", "example", number=1)
    assert list((private / "visits").iterdir())
    until(lambda: not list((private / "visits").iterdir()))


def test_who_says_nothing_is_hung_up_on_and_who_listens_is_not(server):
    visitor, _ = server
    with visitor.here("patient") as told, socket.create_connection((visitor.host, int(visitor.port))) as silent:
        silent.settimeout(PATIENCE)
        begun = time.monotonic()
        assert silent.recv(100) == b""
        assert time.monotonic() - begun > 1
        next(told)
        visitor.ask("patient", "example", number=0)
        assert next(told)["photo"] is not None


@pytest.mark.parametrize("absent", ["starlette", "uvicorn"])
def test_without_what_it_needs_there_is_one_sentence(monkeypatch, absent):
    from fei.app.server import ServeOptions, serving

    monkeypatch.setitem(sys.modules, absent, None)
    sentence = rf'^The page needs {absent}, which is not installed; run pip install "fei\[serve\]"\.$'
    with pytest.raises(PackageError, match=sentence), serving(ServeOptions()):
        pass


def test_the_command_serves_until_ctrl_c_and_leaves_nothing(network_file, tmp_path):
    require("starlette", "uvicorn")
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
    loading, stopping = errors.splitlines()  # a word at start-up, since a large network takes a while
    assert loading.startswith("Loading ")
    assert stopping == "Stopping."
    assert list(tmp_path.glob("fei-*")) == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--max-seconds", "0"], "The option --max-seconds is 0; give a number of seconds above 0."),
        (["--host", "999.1.1.1"], "'999.1.1.1' is no address of this machine; give --host 127.0.0.1 or another."),
        (["--model", "no-such-network"], "There is no model 'no-such-network'"),
    ],
)
def test_a_wrong_option_is_told_in_one_sentence(words, sentence, capsys):
    require("starlette", "uvicorn")
    from fei.cli._app import run

    assert run(["serve", "--port", "0", *words]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert errors[-1].startswith(f"error: {sentence}")


def test_a_port_that_is_taken_is_told(capsys):
    require("starlette", "uvicorn")
    from fei.cli._app import run

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert run(["serve", "--port", str(taken.getsockname()[1])]) == 2
    assert "choose another with --port or --host." in capsys.readouterr().err


def test_another_host_is_warned_about(capsys):
    from fei.cli._app import run

    run(["serve", "--host", "0.0.0.0", "--model", "no-such-network", "--port", "0"])
    assert (
        "warning: with --host 0.0.0.0 whoever has the address below and reaches this machine" in capsys.readouterr().err
    )


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere this machine has one address of its own")
def test_one_client_does_not_shut_out_others_who_get_an_answer(server):
    visitor, _ = server
    held, answers = [], []
    try:
        for _ in range(256):
            one = socket.create_connection((visitor.host, int(visitor.port)), PATIENCE, ("127.0.0.2", 0))
            held.append(one)
        assert visitor.request("GET", "/")[0] == 200
        one = socket.create_connection((visitor.host, int(visitor.port)), PATIENCE, ("127.0.0.2", 0))
        held.append(one)
        answers.append(one.recv(1000))
    finally:
        for one in held:
            one.close()
    assert answers[0].startswith(b"HTTP/1.1 503 ")
    assert answers[0].endswith(b"Too many connections are open; try again in a while.")


def test_no_page_and_no_record_names_a_folder_of_the_machine(server, network_file):
    visitor, private = server
    with visitor.here("private") as told:
        visitor.ask("private", "example", number=0)
        visitor.order("private", methods=["saliency"])
        assert last(told)["run"]["words"].startswith("Done in")
        texts = [visitor.request("GET", "/")[1], visitor.request("GET", "/visits/private/files/explorer.html")[1]]
        archive = zipfile.ZipFile(io.BytesIO(visitor.request("GET", "/visits/private/files/fei-results.zip")[1]))
        texts += [archive.read(name) for name in archive.namelist() if name.endswith((".json", ".html"))]
        assert len(texts) == 4
        for text in texts:
            assert b"nets.py:tiny" in text
            for folder in (network_file.parent, private):
                assert str(folder).encode() not in text


def test_others_need_the_token_and_a_name_that_is_allowed(network_file, tmp_path):
    more = {"host": "0.0.0.0", "allowed_hosts": ["proxy.example"]}
    with page_server(tmp_path, [f"{network_file}:tiny"], more) as address:
        port, token = re.fullmatch(r"http://.+:(\d+)/\?token=([\w-]{20,})", address).groups()
        visitor = Visitor(f"http://127.0.0.1:{port}/")
        assert visitor.request("GET", "/")[0] == 401
        assert visitor.request("GET", f"/?token={token}")[0] == 303
        for host, status in (("proxy.example", 200), ("127.0.0.1", 200), ("10.1.2.3:80", 200), ("evil.example", 421)):
            assert visitor.request("GET", "/", headers={"Host": host, "Cookie": f"fei_token={token}"})[0] == status
