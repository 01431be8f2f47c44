"""Requests that ``a2store view`` must reject: from other sites and users, malformed, endless, too large, too many."""

from __future__ import annotations

import json
import re
import select
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import a2store
import oracle
from archives import ingested, short_games
from attacks import REFUSED
from test_guard import filled
from threads import eventually
from viewing import UNAUTHORIZED, Answer, Client, Connection, Events, Server

MARKUP = "<script>alert(1)</script>&\"'</style>"
SECRET = "this file belongs to nobody"
MOST_BYTES = 1 << 20
"""The greatest size of a request's body."""
IMPATIENT = {"A2STORE_VIEW_TIMEOUT_SECONDS": "1"}
STATEMENT = {"sql": "SELECT 1 AS x"}
ENDLESS = "SELECT a.board, b.board, c.board FROM steps a, steps b, steps c, steps d, steps e"
"""More rows than any client reads."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with an archive ``games.a2`` and another file. The name of an engine is markup."""
    root = tmp_path_factory.mktemp("view_attacks")
    (root / "runs").mkdir()
    (root / "shown").mkdir()
    for number, game in enumerate(short_games(root / "whole", 8)):
        game = replace(game, engine=MARKUP) if number == 3 else game
        (root / "runs" / f"{number}.a2run2").write_bytes(oracle.encode_a2run2(game))
    ingested(root / "shown" / "games.a2", root / "runs")
    (root / "shown" / "other.csv").write_text(f"a,b\n{SECRET},1\n")
    return root / "shown"


@pytest.fixture(scope="module")
def impatient(folder: Path) -> Iterator[Server]:
    """A server with a short limit on the time of sending a request."""
    with Server(folder / "games.a2", env=IMPATIENT) as server:
        yield server


def reveals_nothing(client: Client, answer: Answer, folder: Path) -> None:
    """Check that an answer has no path of this machine, no token, and no content of other files."""
    text = answer.body.decode() + str([pair for pair in answer.headers if pair[0] != "set-cookie"])
    for secret in (str(folder), str(Path.home()), str(Path(a2store.__file__).parent), client.token, SECRET, "root:"):
        assert secret not in text
    assert not re.search(r"\.rs\b|/src/|panicked", text)


def is_alive(client: Client) -> bool:
    return bool(client.ask("/api/sql", STATEMENT)["rows"] == [[1]])


# Tokens

ADDRESSES = [
    ("GET", "/app.js"),
    ("GET", "/app.css"),
    ("GET", "/api/archive"),
    ("GET", "/api/events"),
    ("GET", "/api/schema"),
    ("GET", "/api/runs/0"),
    ("GET", "/api/runs/0/annotations?from=0&to=1"),
    ("GET", "/report/x"),
    ("POST", "/api/runs"),
    ("POST", "/api/policy"),
    ("POST", "/api/position"),
    ("POST", "/api/sql"),
    ("POST", "/api/download"),
    ("POST", "/api/report"),
]
"""All addresses but the first page."""


@pytest.mark.parametrize(("method", "target"), [*ADDRESSES, ("GET", "/nothing"), ("DELETE", "/api/sql")])
def test_addresses_need_the_token(client: Client, folder: Path, method: str, target: str) -> None:
    body = None if method == "GET" else {"sql": "SELECT 1", "limit": 1}
    bearer = f"Bearer {client.token}"
    asked = f"{target}{'&' if '?' in target else '?'}token={client.token}"
    for answer in (
        client.send(method, target, body, cookie=None),
        client.send(method, target, body, cookie=""),
        client.send(method, asked, body, cookie=None),
        client.send(method, target, body, cookie=None, authorization=bearer, x_token=client.token),
    ):
        assert "token" in answer.refusal(UNAUTHORIZED, "unauthorized")
        assert answer.header("set-cookie") is None
        reveals_nothing(client, answer, folder)


def test_the_page_needs_the_token(client: Client, folder: Path) -> None:
    page = client.get("/")
    assert page.status == 200
    for target in (
        "/",
        "/?token=x",
        f"/?token={client.token}x",
        f"/?token={client.token[:-1]}",
        f"/?token=x&token={client.token}",
        f"/?token={client.token.swapcase()}",
    ):
        answer = client.get(target, cookie=None)
        assert (answer.status, answer.header("set-cookie")) == (UNAUTHORIZED, None), target
        assert answer.body != page.body
        assert b"<script" not in answer.body
        reveals_nothing(client, answer, folder)
    for method in ("POST", "PUT", "HEAD", "DELETE", "OPTIONS"):
        answer = client.send(method, f"/?token={client.token}", cookie=None)
        assert (answer.status, answer.header("set-cookie")) == (UNAUTHORIZED, None), method
    # A script or an image of a page cannot log in.
    for mode in ("cors", "no-cors", "same-origin", "websocket"):
        answer = client.get(f"/?token={client.token}", cookie=None, sec_fetch_mode=mode)
        assert (answer.status, answer.header("set-cookie")) == (UNAUTHORIZED, None), mode


def test_wrong_cookies(client: Client, impatient: Server) -> None:
    name, _, token = client.cookie.partition("=")
    assert (name, token) == (f"a2store-{client.port}", client.token)
    for cookie in (
        name,
        f"{name}={token}x",
        f"{name}={token[:-1]}",
        f"{name}={token.swapcase()}",
        f"x{name}={token}",
        f"a2store={token}",
        f"a2store-{client.port + 1}={token}",
        f"{name}={impatient.client.token}",
        impatient.client.cookie,
        f"{name}=x, {name}={token}",
    ):
        client.get("/api/archive", cookie=cookie).refusal(UNAUTHORIZED, "unauthorized")
    # Other programs on this machine set cookies for all ports.
    for cookie in (
        f"a=b; {name}={token}",
        f"{name}=old; {impatient.client.cookie};{name}={token} ;a",
        f"x=\xff\xfe; {name}={token}; y=\xe9",
    ):
        assert client.get("/api/archive", cookie=cookie).status == 200, cookie
    lines = f"GET /api/archive HTTP/1.1\r\nHost: {client.host}\r\nConnection: close\r\nCookie: a=b\r\n"
    assert client.raw(f"{lines}Cookie: {client.cookie}\r\n\r\n".encode()).status == 200


def test_the_cookie(client: Client, folder: Path) -> None:
    answers = [
        client.get(f"/?token={client.token}", cookie=None),
        client.get(f"/?a=b&token={client.token}", cookie=None, sec_fetch_mode="navigate", sec_fetch_site="cross-site"),
    ]
    for answer in answers:
        parts = [part.strip() for part in (answer.header("set-cookie") or "").split(";")]
        assert parts[0] == client.cookie
        assert sorted(parts[1:]) == ["HttpOnly", "Path=/", "SameSite=Strict"]
        reveals_nothing(client, answer, folder)
    # After a redirect that another site began, browsers would not send the cookie.
    assert (answers[0].status, answers[0].header("location")) == (303, "/")
    assert (answers[1].status, answers[1].header("location")) == (200, None)
    assert b'content="0; url=/"' in answers[1].body
    # No other answer sets one.
    for method, target in ADDRESSES:
        if target != "/api/events":
            assert client.send(method, target).header("set-cookie") is None


# Hosts, origins and sites

WRONG_HOSTS = [
    "evil.example",
    "127.0.0.1.evil.example",
    "127.0.0.1:PORT@evil.example",
    "evil.example@127.0.0.1:PORT",
    "127.0.0.1:PORT,evil.example",
    "127.0.0.1:x",
    "127.0.0.1:PORT:PORT",
    "127.0.0.2:PORT",
    "0.0.0.0:PORT",
    "[::1]:PORT",
    "localhost.:PORT",
    "localhost\xff:PORT",
    "",
    "http://127.0.0.1:PORT",
]


@pytest.mark.parametrize("host", WRONG_HOSTS)
def test_wrong_hosts(client: Client, folder: Path, host: str) -> None:
    host = host.replace("PORT", str(client.port))
    answers = [
        client.get("/", host=host),
        client.get("/api/archive", host=host),
        client.get("/api/archive", host=host, origin=f"http://{host}"),
        client.post("/api/sql", STATEMENT, host=host),
        client.get(f"/?token={client.token}", host=host, cookie=None),
        client.get(f"/?token={client.token}", host=host),
    ]
    for answer in answers:
        answer.refusal(403, "forbidden")
        assert answer.header("set-cookie") is None
        reveals_nothing(client, answer, folder)


def test_right_hosts(client: Client) -> None:
    # A tunnel may have another port.
    for host in ("127.0.0.1", "localhost", f"localhost:{client.port}", f"LocalHost:{client.port}", "127.0.0.1:1"):
        assert client.get("/api/archive", host=host).status == 200
        assert client.get("/api/archive", host=host, origin=f"http://{host}").status == 200


def test_no_host_and_two_hosts(client: Client) -> None:
    rest = f"Connection: close\r\nCookie: {client.cookie}\r\n\r\n"
    for version in ("1.0", "1.1"):
        for hosts in (
            [],
            [client.host, "evil.example"],
            ["evil.example", client.host],
            [client.host, client.host],
        ):
            lines = "".join(f"Host: {host}\r\n" for host in hosts)
            client.raw(f"GET /api/archive HTTP/{version}\r\n{lines}{rest}".encode()).refusal(403, "forbidden")
        line = f"GET /api/archive HTTP/{version}\r\nHost: {client.host}\r\n"
        assert client.raw(f"{line}{rest}".encode()).status == 200


def test_targets_with_another_host(client: Client) -> None:
    assert client.get(f"http://{client.host}/api/archive").status == 200
    for target in (
        "http://evil.example/api/archive",
        f"http://evil.example/?token={client.token}",
        f"http://evil.example:{client.port}/api/archive",
        f"http://{client.host}@evil.example/api/archive",
    ):
        for cookie in (client.cookie, None):
            answer = client.get(target, cookie=cookie)
            answer.refusal(403, "forbidden")
            assert answer.header("set-cookie") is None
        # The host of the target counts too if the header names another one.
        client.get(target, host="evil.example").refusal(403, "forbidden")
    client.send("CONNECT", "evil.example:80").refusal(403, "forbidden")


def test_other_origins(client: Client, folder: Path) -> None:
    for origin in (
        "null",
        "",
        "http://evil.example",
        f"http://evil.example:{client.port}",
        f"http://{client.host}.evil.example",
        f"http://{client.host}@evil.example",
        f"https://{client.host}",
        f"http://127.0.0.1:{client.port + 1}",
        "http://127.0.0.1",
        f"http://localhost:{client.port}",
        f"http://{client.host}/",
        f"http://{client.host} http://evil.example",
        f"HTTP://{client.host}",
        client.host,
        "file://",
        "chrome-extension://abc",
        "http://\xff",
    ):
        for answer in (
            client.get("/", origin=origin),
            client.get("/api/archive", origin=origin),
            client.post("/api/sql", STATEMENT, origin=origin),
            client.send("OPTIONS", "/api/sql", origin=origin, access_control_request_method="POST"),
            client.get(f"/?token={client.token}", origin=origin, cookie=None),
        ):
            answer.refusal(403, "forbidden")
            assert not [name for name, _ in answer.headers if name.startswith("access-control-allow")]
            assert answer.header("set-cookie") is None
            reveals_nothing(client, answer, folder)
    assert client.get("/api/archive", origin=f"http://{client.host}").status == 200


def test_other_sites(client: Client) -> None:
    for site in ("cross-site", "same-site", "", "Same-Origin, cross-site"):
        for method, target in ADDRESSES:
            body = None if method == "GET" else {"limit": 1}
            client.send(method, target, body, sec_fetch_site=site).refusal(403, "forbidden")
        # A link on another site may open the page, because the page is the same for all links.
        assert client.get("/", sec_fetch_site=site, sec_fetch_mode="navigate").status == 200
    for site in ("none", "same-origin"):
        assert client.get("/api/archive", sec_fetch_site=site).status == 200
        assert client.post("/api/sql", STATEMENT, sec_fetch_site=site).status == 200


def test_the_server_listens_on_the_loopback_interface_only(client: Client) -> None:
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    lines += [line.split() for line in Path("/proc/net/tcp6").read_text().splitlines()[1:]]
    listens = "0A"
    found = [line[1] for line in lines if line[3] == listens and line[1].endswith(f":{client.port:04X}")]
    assert found == [f"0100007F:{client.port:04X}"]


# Addresses


@pytest.mark.parametrize(
    "target",
    [
        "/../../../../../../etc/passwd",
        "/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/..%2f..%2f..%2fetc%2fpasswd",
        "/%2e%2e%2f%2e%2e%2fetc%2fpasswd",
        "/..%5c..%5cetc%5cpasswd",
        "/..\\..\\etc\\passwd",
        "/%252e%252e%252fetc%252fpasswd",
        "/%c0%ae%c0%ae/etc/passwd",
        "/....//....//etc/passwd",
        "//etc/passwd",
        "/etc/passwd",
        "/app.js/../../../etc/passwd",
        "/app.js/..",
        "/./app.js",
        "/app.js%00",
        "/app.js%2f",
        "/app.js/",
        "/APP.JS",
        "/%00",
        "/\xff",
        "/other.csv",
        "/games.a2/_versions/18446744073709551614.json",
        "/api/../other.csv",
        "/api/archive/",
        "/api//archive",
        "/api/archive%00",
        "/api/runs/..%2fschema",
        "/api/runs/0%2fannotations",
        "/api/runs/%00",
        "/api/runs/%ff",
        "/api/runs/0/annotations/..",
        "/api/runs/" + "9" * 10_000,
        "/api/runs/%2e%2e",
        "/api/runs/%ff/annotations?from=0&to=1",
        "/report/..%2f..%2f..%2fetc%2fpasswd",
        "/report/%2fetc%2fpasswd",
        "/report/%ff",
        "/report/",
    ],
)
def test_paths_outside(client: Client, folder: Path, target: str) -> None:
    answer = client.get(target)
    assert answer.status in (400, 404)
    # A target with other bytes is not valid HTTP. Its answer has no body.
    if target.isascii():
        answer.refusal(answer.status, "not_found" if answer.status == 404 else "argument")
    reveals_nothing(client, answer, folder)


def test_types_of_bodies(client: Client) -> None:
    for kind in (
        None,
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/jsonx",
        "text/plain, application/json",
    ):
        for method, target in ADDRESSES:
            if method != "GET" and target != "/api/policy":
                answer = client.send(method, target, STATEMENT, content_type=kind)
                answer.refusal(415, "argument")
    for kind in ("application/json", "application/json; charset=utf-8", "application/json ;x=y"):
        assert client.post("/api/sql", STATEMENT, content_type=kind).status == 200


def padded(size: int) -> bytes:
    """Return a statement as JSON with this many bytes."""
    text = json.dumps(STATEMENT).encode()
    return text + b" " * (size - len(text))


def chunked(*pieces: bytes) -> bytes:
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


CHUNKED: dict[str, str | None] = {"transfer_encoding": "chunked", "content_length": None}


def test_sizes_of_bodies(client: Client) -> None:
    assert client.post("/api/sql", padded(MOST_BYTES)).status == 200
    head = client.bytes_of("POST", "/api/sql", b"", **CHUNKED)
    end = b"0\r\n\r\n"
    halves = [padded(MOST_BYTES // 2), *[b" " * 1024] * 512]
    assert client.raw(head + chunked(*halves) + end).status == 200
    client.raw(head + chunked(*halves, b" ") + end).refusal(413, "argument")

    # The announced length is enough for the refusal, before any of the body arrives.
    for length in (MOST_BYTES + 1, 10 * MOST_BYTES, 2**31, 2**32, 2**63 - 1):
        answer = client.raw(client.bytes_of("POST", "/api/sql", b"", content_length=str(length)))
        assert str(MOST_BYTES) in answer.refusal(413, "argument")
    # Without a length, the received bytes count. The server may close the connection while the client sends more.
    for size in (MOST_BYTES + 1, 5 * MOST_BYTES):
        with Connection(client.port) as connection:
            connection.send(head)
            with suppress(ConnectionError):
                connection.send(chunked(b" " * size))
            assert str(MOST_BYTES) in connection.answer().refusal(413, "argument")
    assert is_alive(client)


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"sql":' * 100_000,
        b'{"sql": "SELECT 1", "params": {"a": ' + b"[" * 10_000 + b"]" * 10_000 + b"}}",
        b'{"sql": "SELECT 1", "params": {"a": 1e999}}',
        b'{"sql": "SELECT 1", "params": {"a": ' + b"9" * 100_000 + b"}}",
        b'{"sql": "SELECT 1", "limit": 1e999}',
        b'{"sql": "SELECT 1", "limit": 18446744073709551616}',
        b'{"sql": "SELECT 1", "limit": -1}',
        b'{"sql": "\\ud800"}',
        b'{"sql": "SELECT 1"} {"sql": "SELECT 1"}',
        b'{"sql": "SELECT 1", "sql": "SELECT 2"}',
        b"\xef\xbb\xbf{}",
        b"\x00" * 1000,
        b"NaN",
        b"sql=SELECT+1",
        b"null",
        b"",
    ],
    ids=range(17),
)
def test_broken_bodies(client: Client, folder: Path, body: bytes) -> None:
    for target in ("/api/sql", "/api/download", "/api/runs", "/api/position", "/api/report"):
        answer = client.post(target, body)
        answer.refusal(400, "argument")
        assert len(answer.body) < 2000
        reveals_nothing(client, answer, folder)


# Malformed requests


def is_closed(connection: Connection) -> bool:
    """Read all received bytes, and return whether the server has closed the connection."""
    while select.select([connection.socket], [], [], 0)[0]:
        try:
            if not connection.socket.recv(65_536):
                return True
        except ConnectionError:
            return True
    return False


def test_slow_clients(impatient: Server) -> None:
    """Clients that send a byte now and then do not keep their connections; test_view_connections.py has silent ones."""
    client = impatient.client
    slow = {
        "first line": (b"GET /", b" "),
        "headers": (b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ", b" "),
        "body": (client.bytes_of("POST", "/api/sql", b"", content_length="100000"), b" "),
        "chunks": (client.bytes_of("POST", "/api/sql", b"", **CHUNKED), b"1\r\n \r\n"),
    }
    with ExitStack() as stack:
        connections = {name: stack.enter_context(Connection(client.port)) for name in slow}
        for name, (head, _) in slow.items():
            connections[name].send(head)

        def all_end() -> bool:
            for name, connection in list(connections.items()):
                try:
                    connection.send(slow[name][1])
                except ConnectionError:
                    del connections[name]
                    continue
                if is_closed(connection):
                    del connections[name]
            return connections == {}

        eventually(all_end, "the end of all connections")


# Downloads


@pytest.fixture(scope="module")
def archive(folder: Path) -> a2store.Archive:
    return a2store.Archive.open(folder / "games.a2")


def entries(folder: Path) -> dict[str, bytes | None]:
    """Return the content of each file in a folder, and the names of the folders in it."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


@pytest.mark.parametrize("group", REFUSED)
def test_refused_statements(client: Client, archive: a2store.Archive, folder: Path, group: str) -> None:
    before = entries(folder)
    for number, (template, _) in enumerate(REFUSED[group]):
        sql = filled(archive, template)
        answers = [client.post("/api/sql", {"sql": sql})]
        if number % 5 == 0:
            answers += [
                client.post("/api/download", {"sql": sql, "format": "csv"}),
                client.post("/api/runs", {"limit": 1, "where": f"run_id IN ({sql})"}),
            ]
        for answer in answers:
            assert answer.status in (400, 403), sql[:200]
            answer.refusal(answer.status, "query" if answer.status == 400 else "query_refused")
            assert SECRET not in answer.body.decode()
            assert "root:" not in answer.body.decode()
            assert str(folder) not in answer.body.decode() or str(folder) in sql
    assert entries(folder) == before


def test_statements_that_take_too_much(client: Client) -> None:
    # Ten thousand rows of ten thousand letters are more than an answer may have.
    long = " || ".join(["lpad('x', 1000)"] * 10)
    sql = f"SELECT {long} AS x FROM ({ENDLESS})"
    assert "limit of bytes" in client.post("/api/sql", {"sql": sql}).refusal(422, "query_limit")
    sql = f"SELECT lpad('x', 100000) AS x FROM ({ENDLESS})"
    client.post("/api/sql", {"sql": sql}).refusal(403, "query_refused")
    assert is_alive(client)


def test_markup_is_text(client: Client, folder: Path) -> None:
    with Server(folder / "games.a2") as server:
        client = server.client
        answers = {
            "/api/archive": client.get("/api/archive"),
            "/api/runs/3": client.get("/api/runs/3"),
            "/api/runs": client.post("/api/runs", {"limit": 500, "filter": {"engines": [MARKUP]}}),
            "/api/sql": client.post("/api/sql", {"sql": "SELECT engine FROM runs"}),
            "error": client.post("/api/sql", {"sql": f'SELECT "{MARKUP.replace(chr(34), "")}" FROM runs'}),
        }
        for name, answer in answers.items():
            assert "<script>" in json.dumps(answer.json()), name
            assert answer.header("content-type") == "application/json"
            check_headers(answer)
        assert answers["/api/runs"].json()["total"] == 1

        page = client.get(client.ask("/api/report", {})["url"])
        assert b"alert(1)" in page.body
        assert b"<script>alert(1)" not in page.body
        assert b"</style>&" not in page.body
        check_headers(page)
        failed = client.post("/api/report", {"where": f"'{MARKUP.replace(chr(39), '')}' = 3 AND nope"})
        assert failed.status == 400


# Headers and files


def check_headers(answer: Answer) -> None:
    """Check the headers that every answer has."""
    assert answer.header("x-content-type-options") == "nosniff"
    assert answer.header("referrer-policy") == "no-referrer"
    assert answer.header("cache-control") == "no-store"
    assert answer.header("cross-origin-resource-policy") == "same-origin"
    assert answer.header("cross-origin-opener-policy") == "same-origin"
    policy = (answer.header("content-security-policy") or "").split(";")
    rules = {name: values for name, *values in map(str.split, policy)}
    assert rules["default-src"] == ["'none'"]
    assert rules["frame-ancestors"] == ["'self'"]
    scripts = rules["script-src"]
    assert scripts == ["'self'"] or (len(scripts) == 1 and scripts[0].startswith("'sha256-"))
    assert not [
        value for values in rules.values() for value in values if value.startswith(("'unsafe-eval", "*", "http"))
    ]
    if scripts == ["'self'"]:
        assert rules["base-uri"] == rules["form-action"] == ["'none'"]
        assert "unsafe" not in str(policy)
    for name, value in answer.headers:
        assert not name.startswith(("server", "x-powered-by", "access-control-")), (name, value)


def test_headers_of_all_answers(client: Client) -> None:
    statuses = set()
    for method, target in [
        ("GET", "/"),
        ("GET", f"/?token={client.token}"),
        *ADDRESSES,
        ("GET", "/nothing"),
        ("DELETE", "/"),
    ]:
        if target == "/api/events":
            continue
        for headers in (
            {},
            {"cookie": None},
            {"host": "evil.example"},
            {"origin": "null"},
            {"content_type": "text/plain"},
            {"content_length": str(2**40)},
        ):
            bodies: list[Any] = [None] if method in ("GET", "DELETE") else [STATEMENT, {"limit": 1}, b"x"]
            for body in bodies:
                if "content_length" in headers and body is None:
                    continue
                answer = client.send(method, target, body, **headers)
                statuses.add(answer.status)
                check_headers(answer)
    assert statuses >= {200, 303, 400, 401, 403, 404, 405, 413, 415}
    with Events(client) as events, Connection(client.port) as connection:
        events.next()
        connection.send(client.bytes_of("GET", "/api/events"))
        check_headers(connection.head())


def test_nothing_is_written(folder: Path, tmp_path: Path) -> None:
    before = entries(folder)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with Server(folder / "games.a2", env={"TMPDIR": str(temporary)}) as server:
        client = server.client
        for target in ("/", "/app.js", "/api/archive", "/api/schema", "/api/runs/0"):
            assert client.get(target).status == 200
        client.ask("/api/runs", {"limit": 5, "where": "max_score > 3", "sort": "engine"})
        client.ask("/api/position", {"board": "0" * 16, "limit": 5})
        client.ask("/api/sql", {"sql": "SELECT * FROM steps ORDER BY board"})
        client.download({"sql": "SELECT * FROM steps", "format": "parquet"})
        client.ask("/api/report", {})
        assert client.post("/api/sql", {"sql": "COPY runs TO 'written.csv'"}).status in (400, 403)
    assert entries(folder) == before
    assert entries(temporary) == {}
