"""Clients of ``a2store view`` that keep connections open. The server must still answer other clients."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from archives import ingested, short_runs
from threads import eventually
from viewing import Client, Connection, Server, request

MANY = 300
"""More connections than a server has places for."""
DOWNLOADS = 4
"""The downloads that a server sends at once."""
LARGE = "SELECT a.* FROM steps a, runs b"
"""A statement whose rows exceed all buffers of a connection."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a short timeout."""
    root = tmp_path_factory.mktemp("connections")
    archive = ingested(root / "games.a2", short_runs(root / "runs", 200, steps=40))
    with Server(archive.path, env={"A2STORE_VIEW_TIMEOUT_SECONDS": "0.5"}) as server:
        yield server


@contextmanager
def many(server: Server, start: Callable[[Connection], None]) -> Iterator[list[Connection]]:
    """Open many connections and start a request on each."""
    with ExitStack() as stack:
        opened = []
        for _ in range(MANY):
            connection = stack.enter_context(Connection(server.port))
            start(connection)
            opened.append(connection)
        yield opened


def assert_answers(client: Client) -> None:
    assert client.ask("/api/sql", {"sql": "SELECT count(*) AS n FROM steps"})["rows"] == [[8000]]


@pytest.mark.parametrize("kind", ["idle", "headers", "body"])
def test_requests_that_never_end(server: Server, kind: str) -> None:
    client = server.client
    start = {
        "idle": b"",
        "headers": client.bytes_of("GET", "/api/archive")[:-2],
        "body": client.bytes_of("POST", "/api/runs", b"{", content_length="1000", connection="keep-alive"),
    }[kind]
    with many(server, lambda connection: connection.send(start)) as opened:
        assert_answers(client)
        if kind == "body":
            assert "time limit" in opened[0].answer().refusal(408, "argument")
        # Some servers say why they close a connection.
        assert b"200" not in opened[0].rest()
        assert kind == "body" or b"200" not in opened[-1].rest()


def test_a_connection_after_its_answer(server: Server) -> None:
    data = server.client.bytes_of("GET", "/api/archive", connection="keep-alive")
    with Connection(server.port) as connection:
        for _ in range(3):
            connection.send(data)
            assert connection.answer().status == 200
        assert connection.rest() == b""


def test_clients_without_a_token_that_never_read(server: Server) -> None:
    """Without a timeout, each client would keep its place, because the server waits until it can send its answers."""
    client = server.client
    refused = request("GET", "/", {"Host": client.host}) * 4000

    def fill(connection: Connection) -> None:
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        connection.socket.setblocking(False)
        with suppress(BlockingIOError, ConnectionError):
            while True:
                connection.send(refused)

    with many(server, fill):
        assert_answers(client)


def test_downloads_that_no_client_reads(server: Server) -> None:
    client = server.client
    with ExitStack() as stack:
        opened = []
        for _ in range(DOWNLOADS):
            opened.append(stack.enter_context(Connection(server.port)))
            opened[-1].send(client.bytes_of("POST", "/api/download", {"sql": LARGE, "format": "jsonl"}))
            assert opened[-1].head().status == 200
        # Statements have their own places.
        assert_answers(client)
        assert client.ask("/api/runs", {"limit": 1})["total"] == 200
        small = {"sql": "SELECT count(*) AS n FROM steps", "format": "csv"}
        client.post("/api/download", small).refusal(503, "busy")
        opened[0].close()
        eventually(lambda: client.post("/api/download", small).body.split() == [b"n", b"8000"])


def test_a_client_that_leaves_in_the_middle_of_a_download(server: Server) -> None:
    client = server.client
    for _ in range(2 * DOWNLOADS):
        with Connection(server.port) as download:
            download.send(client.bytes_of("POST", "/api/download", {"sql": LARGE, "format": "csv"}))
            assert download.head().status == 200
            assert download.chunk()
    assert_answers(client)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files are counted on Linux only")
def test_closed_connections_leave_no_open_file(server: Server) -> None:
    folder = Path("/proc") / str(server.process.pid) / "fd"
    with many(server, lambda connection: connection.send(b"GET")):
        assert_answers(server.client)
    # The server itself has far fewer files open.
    eventually(lambda: len(list(folder.iterdir())) < 50)
