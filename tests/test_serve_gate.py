"""What stands between the network and `fei serve`: what is let through, and how much of it."""

import asyncio
import json

import pytest

from fei.app import gate as gate_module
from fei.app.gate import CALL, Gate
from fei.app.limits import Limits
from fei.app.sessions import Sessions


class Behind:
    """An application that reads its body and says how long it was."""

    def __init__(self):
        self.scopes = []

    async def __call__(self, scope, receive, send):
        self.scopes.append(scope)
        length, more = 0, True
        while more:
            message = await receive()
            length += len(message.get("body", b""))
            more = message.get("more_body", False)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": str(length).encode()})


def ask(gate, path, method="GET", body=(b"",), headers=(), pause=0.0, query=b""):
    """Send a request through a gate; the status and the text of what comes back."""
    parts, sent = list(body), []

    async def receive():
        await asyncio.sleep(pause)
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query,
        "headers": [(b"host", b"127.0.0.1:7860"), *headers],
    }
    asyncio.run(gate(scope, receive, send))
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent).decode()


@pytest.fixture
def behind():
    return Behind()


@pytest.fixture
def gate(behind, tmp_path):
    (tmp_path / "sessions").mkdir()
    (tmp_path / "uploads").mkdir()
    limits = Limits(upload_bytes=1000, uploads=2)
    return Gate(behind, limits, Sessions(tmp_path / "sessions", 4), tmp_path / "uploads", ("127.0.0.1", "localhost"))


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/gradio_api/file=/etc/passwd"),
        ("GET", "/file=/etc/passwd"),
        ("GET", "/gradio_api/file/etc/passwd"),
        ("GET", "/gradio_api/proxy=http://example.com"),
        ("GET", "/gradio_api/stream/a/b/c/playlist-file"),
        ("GET", "/static/../../etc/passwd"),
        ("GET", "/assets/..%2f..%2fetc/passwd"),
        ("GET", "/results/abc/../../x"),
        ("GET", "/results/abc/a/b"),
        ("GET", "//etc/passwd"),
        ("GET", "/monitoring"),
        ("GET", "/gradio_api/deep_link"),
        ("POST", "/gradio_api/process_recording"),
        ("POST", "/gradio_api/vibe-edit"),
        ("POST", "/gradio_api/component_server"),
        ("POST", "/gradio_api/run/upload"),
        ("POST", "/gradio_api/run/predict/"),
        ("POST", "/gradio_api/api/predict"),
        ("POST", "/gradio_api/queue/join"),
        ("GET", "/gradio_api/queue/data"),
        ("POST", "/gradio_api/call/run"),
        ("POST", "/login"),
        ("POST", "/gradio_api/upload"),
        ("POST", "/gradio_api/cancel"),
        ("PUT", "/photo"),
        ("OPTIONS", "/"),
    ],
)
def test_what_the_page_does_not_need_is_not_there(gate, behind, method, path):
    assert ask(gate, path, method) == (404, "There is nothing here.")
    assert behind.scopes == []


def test_a_server_called_by_another_name_or_page_does_not_answer(gate):
    assert ask(gate, "/")[0] == 200
    scope_host = [(b"host", b"evil.example:7860")]
    assert ask(gate, "/", headers=scope_host) == (421, "This server is not called so.")
    for origin in (b"http://evil.example", b"null", b"http://127.0.0.1:9999"):
        answer = ask(gate, "/photo", "POST", headers=[(b"origin", origin)])
        assert answer == (403, "Only the page itself may ask for this.")
    assert ask(gate, "/photo", "POST", headers=[(b"origin", b"http://127.0.0.1:7860")])[0] == 200


def test_nobody_can_claim_to_stand_in_front_of_the_server(gate, behind):
    ask(gate, "/", headers=[(b"x-forwarded-host", b"evil.example"), (b"accept", b"*/*")])
    assert dict(behind.scopes[0]["headers"]) == {b"host": b"127.0.0.1:7860", b"accept": b"*/*"}


def test_bodies_are_of_bounded_size_said_or_not(gate):
    upload = "/photo"
    too_large = (413, "The photo has more than 0.001 MB; save it smaller.")
    assert ask(gate, upload, "POST", [b"x" * 1000]) == (200, "1000")
    assert ask(gate, upload, "POST", headers=[(b"content-length", b"99999")]) == too_large
    assert ask(gate, upload, "POST", [b"x" * 1000] * 9) == too_large
    assert ask(gate, upload, "POST", headers=[(b"content-length", b"-5")]) == too_large
    assert ask(gate, CALL, "POST", [b"x" * 70_000]) == (413, "Too long.")


def test_events_carry_words_and_numbers_and_no_files(gate, behind):
    file = {"path": "/etc/passwd", "meta": {"_type": "gradio.FileData"}}
    said = json.dumps({"data": ["a", 1.5, None, True, ["b"]], "event_data": {"example": 0}, "fn_index": 3}).encode()
    assert ask(gate, CALL, "POST", [said[:20], said[20:]]) == (200, str(len(said)))
    for wrong in (
        {"data": [file]},
        {"data": [["a", file]]},
        {"data": [[["a"]]]},
        {"data": file},
        {"data": None},
        {"data": [], "event_data": {"ticket": file}},
        {"data": [], "event_data": [file]},
        {},
        [],
    ):
        body = json.dumps(wrong).encode()
        assert ask(gate, CALL, "POST", [body]) == (400, "This is not what the page would say.")
    for odd in (b"", b"{", b"\xff", b"[" * 60_000):
        assert ask(gate, CALL, "POST", [odd])[0] == 400
    assert len(behind.scopes) == 1


def test_a_body_that_comes_too_slowly_is_given_up(gate, monkeypatch):
    monkeypatch.setattr(gate_module, "_PAUSE_SECONDS", 0.05)
    assert ask(gate, "/photo", "POST", [b"x", b"x"], pause=0.2) == (408, "The request came too slowly.")
    monkeypatch.setattr(gate_module, "_PAUSE_SECONDS", 15)
    monkeypatch.setattr(gate_module, "_BODY_SECONDS", 0.1)  # drop by drop is no better
    assert ask(gate, "/photo", "POST", [b"x"] * 50, pause=0.02)[0] == 408


def test_only_so_many_upload_at_a_time_and_only_so_much_lies_around(gate, tmp_path):
    async def several():
        release = asyncio.Event()
        statuses = []

        async def one():
            async def receive():
                await release.wait()
                return {"type": "http.request", "body": b"", "more_body": False}

            async def send(message):
                if message["type"] == "http.response.start":
                    statuses.append(message["status"])
                    release.set()

            scope = {"type": "http", "method": "POST", "path": "/photo", "query_string": b""}
            await gate({**scope, "headers": [(b"host", b"localhost")]}, receive, send)

        await asyncio.gather(one(), one(), one())
        return statuses

    assert asyncio.run(several()) == [503, 200, 200]
    assert ask(gate, "/photo", "POST")[0] == 200  # their places are free again
    (tmp_path / "uploads" / "left").write_bytes(b"x" * 16_001)
    assert ask(gate, "/photo", "POST") == (503, "Others are uploading; try again in a moment.")


def test_every_answer_keeps_the_browser_to_this_server(gate, behind):
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "http.request", "body": b""}

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": [(b"host", b"localhost")]}
    asyncio.run(gate(scope, receive, send))
    headers = dict(sent[0]["headers"])
    assert headers[b"content-security-policy"].startswith(b"default-src 'self'; ")
    assert headers[b"x-content-type-options"] == b"nosniff"
