"""What stands between the network and `fei serve`: what is let through, and how much of it."""

import asyncio
import json

import pytest
from page_server import png, require

pytestmark = pytest.mark.slow

require("starlette", "uvicorn")

from fei.app import web  # noqa: E402 (after what it needs was found)
from fei.app.desk import Desk, Visits  # noqa: E402
from fei.app.limits import Limits  # noqa: E402
from fei.app.runs import Lane  # noqa: E402
from fei.app.web import Gate, build_application  # noqa: E402
from fei.errors import InputError  # noqa: E402

HOSTS = ("127.0.0.1", "localhost")


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


def asked(gate, path, method="GET", body=(b"",), headers=(), pause=0.0):
    """Send a request through a gate; the status, the headers and the text of what comes back."""
    parts, sent = list(body), []

    async def receive():
        await asyncio.sleep(pause)
        if not parts:
            await asyncio.sleep(60)  # until the browser leaves
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1:7860"), *headers],
    }
    asyncio.run(gate(scope, receive, send))
    text = b"".join(message.get("body", b"") for message in sent).decode(errors="replace")
    return sent[0]["status"], dict(sent[0]["headers"]), text


def ask(*arguments, **options):
    status, _, text = asked(*arguments, **options)
    return status, text


@pytest.fixture
def behind():
    return Behind()


@pytest.fixture
def desk(tmp_path):
    lane = Lane(0)
    yield Desk({}, [("cat", png(), b"a picture")], Limits(upload_bytes=1000, uploads=2), Visits(tmp_path, 4, 20), lane)
    lane.close()


@pytest.fixture
def gate(desk):
    """The gate before the page itself."""
    return Gate(build_application(desk), desk.limits, HOSTS)


@pytest.fixture
def bare(behind, desk):
    """The gate before something that takes everything."""
    return Gate(behind, desk.limits, HOSTS)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/file=/etc/passwd"),
        ("GET", "/static/../../etc/passwd"),
        ("GET", "/examples/../../etc/passwd"),
        ("GET", "/examples/1.jpg"),
        ("GET", "/examples/-1.jpg"),
        ("GET", "/visits/abc/files/../../x"),
        ("GET", "/visits/abc/files/a/b"),
        ("GET", "/visits/abc/files/photo.jpg"),
        ("GET", "/visits/../files/x"),
        ("GET", "//etc/passwd"),
        ("GET", "/visits"),
        ("GET", "/visits/abc"),
        ("GET", "/visits/abc/photo"),
        ("GET", "/visits/abc/run"),
        ("GET", "/docs"),
        ("GET", "/openapi.json"),
        ("POST", "/"),
        ("POST", "/login"),
        ("POST", "/upload"),
        ("POST", "/visits/abc/stream"),
        ("POST", "/visits/abc/files/explorer.html"),
        ("POST", "/visits/abc/take_photo"),
        ("POST", "/visits/a/b/run"),
        ("PUT", "/visits/abc/photo"),
        ("DELETE", "/visits/abc/files/explorer.html"),
        ("OPTIONS", "/"),
    ],
)
def test_what_the_page_does_not_need_is_not_there(gate, tmp_path, method, path):
    assert ask(gate, path, method) == (404, "There is nothing here.")
    assert list(tmp_path.iterdir()) == []


def test_a_server_called_by_another_name_or_page_does_not_answer(bare):
    assert ask(bare, "/")[0] == 200
    for host in (b"evil.example:7860", b"127.0.0.2", b"[::2]:7860"):
        assert ask(bare, "/", headers=[(b"host", host)])[0] == 200  # the first header counts
        status, text = ask(_called(bare, host), "/")
        assert (status, text) == (421, "This server does not go by that name.")
    for origin in (b"http://evil.example", b"null", b"http://127.0.0.1:9999", b"http://[::1]"):
        answer = ask(bare, "/visits/a/photo", "POST", headers=[(b"origin", origin)])
        assert answer == (403, "Only the page itself may ask for this.")
    assert ask(bare, "/visits/a/photo", "POST", headers=[(b"origin", b"http://127.0.0.1:7860")])[0] == 200


@pytest.mark.parametrize("host", [b"", b"[::1", b"a b", b"a@b", b"a/b", b"127.0.0.1:x", b"\xff", b"a" * 300, b"[g]"])
def test_malformed_names_are_told_so(bare, host):
    assert ask(_called(bare, host), "/") == (400, "This is no request of a browser.")
    answer = ask(bare, "/visits/a/photo", "POST", headers=[(b"origin", b"http://" + host)])
    assert answer == (400, "This is no request of a browser.")


def test_a_server_for_others_is_called_by_address_or_an_allowed_name_and_wants_a_token():
    gate = Gate(Behind(), Limits(), ("localhost", "Proxy.example"), addresses=True, token="secret")
    cookie = [(b"cookie", b"other=1; fei_token=secret")]
    for host in (b"192.0.2.7:7860", b"[2001:db8::1]", b"localhost", b"proxy.example"):
        assert ask(_called(gate, host), "/", headers=cookie) == (200, "0")
        assert ask(_called(gate, host), "/")[0] == 401
    assert ask(_called(gate, b"rebound.example"), "/", headers=cookie)[0] == 421
    for wrong in (
        b"fei_token=secre",
        b"fei_token=secret2",
        b"xfei_token=secret",
        b"fei_token",
        b"\xff=\xff",
        b"token=secret",
    ):
        assert ask(gate, "/", headers=[(b"cookie", wrong)])[0] == 401
    status, headers, _ = asked(_with_query(gate, b"token=secret"), "/")
    assert (status, headers[b"location"]) == (303, b"/")
    assert headers[b"set-cookie"] == b"fei_token=secret; HttpOnly; Path=/; SameSite=strict"
    for query in (b"token=other", b"token=", b"tokens=secret", b"a=token=secret"):
        assert asked(_with_query(gate, query), "/")[0] == 401
    assert asked(_with_query(gate, b"token=secret"), "/visits/a/run", "POST")[0] == 401


def test_one_address_does_not_take_all(tmp_path):
    limits = Limits(visits=8, uploads=4, queue=7)
    assert [limits.quota(8, client) for client in ("192.0.2.1", "127.0.0.1", "::1", "")] == [2, 6, 6, 6]
    visits = Visits(tmp_path, 8, 20)
    for key in ("a", "b"):
        visits.admit(key, "192.0.2.1", 2)
    visits.admit("a", "192.0.2.1", 2)  # it is here already
    with pytest.raises(InputError, match="2 visitors of your address are here already"):
        visits.admit("c", "192.0.2.1", 2)
    visits.admit("c", "192.0.2.2", 2)
    assert [visits.enter(key).client for key in "ac"] == ["192.0.2.1", "192.0.2.2"]


def _with_query(gate, query):
    async def changed(scope, receive, send):
        await gate(scope | {"query_string": query}, receive, send)

    return changed


def _called(gate, host):
    async def renamed(scope, receive, send):
        await gate({**scope, "headers": [(b"host", host), *scope["headers"][1:]]}, receive, send)

    return renamed


def test_nobody_can_claim_to_stand_in_front_of_the_server(bare, behind):
    ask(bare, "/", headers=[(b"x-forwarded-host", b"evil.example"), (b"accept", b"*/*")])
    assert dict(behind.scopes[0]["headers"]) == {b"host": b"127.0.0.1:7860", b"accept": b"*/*"}


def test_bodies_are_of_bounded_size_said_or_not(gate, bare):
    upload = "/visits/a/photo"
    too_large = (413, "The photo has more than 0.001 MB; save it smaller.")
    assert ask(bare, upload, "POST", [b"x" * 1000]) == (200, "1000")
    for length in (b"99999", b"-5", b"1e3", "٣".encode(), b"9" * 5000):
        assert ask(bare, upload, "POST", headers=[(b"content-length", length)]) == too_large
    assert ask(gate, upload, "POST", [b"x" * 1000] * 9) == too_large
    assert ask(gate, "/visits/a/run", "POST", [b"x" * 40_000] * 2) == (413, "Too long.")
    assert ask(gate, "/visits/a/run", "POST", headers=[(b"content-length", b"70000")]) == (413, "Too long.")


def test_orders_are_words_and_numbers_by_name(gate, tmp_path):
    assert json.loads(ask(gate, "/visits/a/cancel", "POST", [b"{", b"}"])[1])["error"] == ""
    for odd in (b"", b"{", b"\xff", b"[" * 60_000, b"[]", b"null", b"3", b'"number"'):
        answer = ask(gate, "/visits/a/example", "POST", [odd])
        assert answer == (400, "This is not what the page would say.")
    file = {"path": "/etc/passwd", "url": "http://127.0.0.1:1/x"}
    for said in ({"number": file}, {"number": [0]}, {"number": True}, {}, {"number": 1e400}):
        status, text = ask(gate, "/visits/a/example", "POST", [json.dumps(said).encode()])
        assert status == 200
        assert json.loads(text)["error"].endswith("give a whole number from 0 to 0.")
        assert json.loads(text)["photo"] is None
    assert list(tmp_path.iterdir()) == []


def test_a_body_that_comes_too_slowly_is_given_up(gate, monkeypatch):
    monkeypatch.setattr(web, "_PAUSE_SECONDS", 0.05)
    slow = (408, "The request came too slowly.")
    assert ask(gate, "/visits/a/photo", "POST", [b"x", b"x"], pause=0.2) == slow
    monkeypatch.setattr(web, "_PAUSE_SECONDS", 15)
    monkeypatch.setattr(web, "_BODY_SECONDS", 0.1)  # drop by drop is no better
    assert ask(gate, "/visits/a/photo", "POST", [b"x"] * 50, pause=0.02) == slow


def test_an_answer_that_nobody_reads_is_given_up(bare, monkeypatch):
    monkeypatch.setattr(web, "_SEND_SECONDS", 0.05)

    async def receive():
        return {"type": "http.request", "body": b""}

    async def send(message):
        await asyncio.sleep(60)

    scope = {"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": [(b"host", b"localhost")]}
    with pytest.raises(ConnectionError, match="reads too slowly"):
        asyncio.run(bare(scope, receive, send))


def test_only_so_many_upload_at_a_time(gate):
    async def several():
        release = asyncio.Event()
        statuses = []

        async def one(key):
            async def receive():
                await release.wait()
                return {"type": "http.request", "body": b"", "more_body": False}

            async def send(message):
                if message["type"] == "http.response.start":
                    statuses.append(message["status"])
                    release.set()

            scope = {"type": "http", "method": "POST", "path": f"/visits/{key}/photo", "query_string": b""}
            await gate({**scope, "root_path": "", "headers": [(b"host", b"localhost")]}, receive, send)

        await asyncio.gather(one("a"), one("b"), one("c"))
        return statuses

    assert asyncio.run(several()) == [503, 200, 200]
    assert ask(gate, "/visits/a/photo", "POST")[0] == 200  # their places are free again


def test_only_so_many_wait_for_others_at_a_time(gate, monkeypatch):
    monkeypatch.setattr(web, "_PLACES", 0)
    answer = ask(gate, "/visits/a/cancel", "POST", [b"{}"])
    assert answer == (503, "Too many visitors want something at the same moment; try again in a moment.")


def test_every_answer_keeps_the_browser_to_this_server(gate, bare):
    for door, path, method in ((bare, "/", "GET"), (gate, "/nothing", "GET"), (gate, "/examples/0.jpg", "GET")):
        headers = asked(door, path, method)[1]
        assert headers[b"content-security-policy"] == b"default-src 'none'; frame-ancestors 'none'; sandbox"
        assert headers[b"x-content-type-options"] == b"nosniff"
        assert headers[b"referrer-policy"] == b"no-referrer"
        assert headers[b"cross-origin-opener-policy"] == b"same-origin"
        assert headers[b"cross-origin-resource-policy"] == b"same-origin"


def test_the_page_runs_its_own_code_alone_and_asks_its_own_server_alone(gate):
    status, headers, text = asked(gate, "/")
    rules = dict(rule.strip().split(" ", 1) for rule in headers[b"content-security-policy"].decode().split(";"))
    assert status == 200
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert rules["img-src"] == "'self' data: blob:"
    assert rules["frame-ancestors"] == "'none'"
    for kind in ("script-src", "style-src"):
        assert rules[kind].startswith("'sha256-")
        assert " " not in rules[kind]
    assert text.count("<script") == 2  # the data and the code
    assert " src=" not in text.partition("<script")[0].replace("<img", "")


def test_a_page_of_its_own_for_every_visitor(gate):
    texts = [asked(gate, "/")[2] for _ in range(2)]
    keys = {json.loads(text.partition(' id="data">')[2].partition("</script>")[0])["visit"] for text in texts}
    assert len(keys) == 2
    assert all(len(key) == 32 for key in keys)


@pytest.mark.parametrize(
    "headers",
    [
        [(b"content-length", b"2"), (b"transfer-encoding", b"chunked")],
        [(b"origin", b"http://127.0.0.1:7860"), (b"origin", b"http://evil.example")],
    ],
    ids=["lengths", "origins"],
)
def test_what_can_be_read_in_two_ways_is_refused(behind, headers):
    """A proxy before this server may read it in the other way, and let another visitor's request through."""
    assert ask(Gate(behind, Limits(), HOSTS), "/", "POST", headers=headers)[0] == 400
    assert not behind.scopes


@pytest.mark.parametrize("number", ["1", "9" * 30, "9" * 5000, "-1", "x", "٠"])
def test_examples_that_are_not_there(number):
    desk = Desk({}, [("cat", b"file", b"small")], Limits(), None, None)
    gate = Gate(build_application(desk), Limits(), HOSTS)
    assert ask(gate, f"/examples/{number}.jpg") == (404, "There is nothing here.")
    assert ask(gate, "/examples/0.jpg") == (200, "small")
