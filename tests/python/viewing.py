"""Servers of ``a2store view`` for tests, and a client that speaks HTTP over plain sockets.

A plain socket can send requests that libraries prevent: other hosts, broken headers, bodies that never end.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any, Self

import numpy as np

from archives import command
from threads import HANGS

ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/\?token=(\S+)")
SEE_OTHER, UNAUTHORIZED = 303, 401


def short(value: Any) -> Any:
    """Return the number that a page reads: the float64 with the shortest text of a float32."""
    return None if value is None else float(str(np.float32(value)))


@dataclass(frozen=True)
class Answer:
    """A server's answer to a request."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        """Return the value of a header that occurs at most once."""
        found = [value for key, value in self.headers if key == name.lower()]
        assert len(found) <= 1, (name, found)
        return found[0] if found else None

    def json(self) -> Any:
        assert self.header("content-type") == "application/json", (self.status, self.body[:300])
        return json.loads(self.body)

    def refusal(self, status: int, kind: str) -> str:
        """Check that the answer is a refusal of this kind, and return its message."""
        assert (self.status, self.json().get("kind")) == (status, kind), self.body[:300]
        assert set(self.json()) == {"error", "kind"}
        message: str = self.json()["error"]
        assert message
        assert "panicked" not in message
        return message


class ClosedError(Exception):
    """The server closed the connection before the end of an answer."""


class Connection:
    """A connection to a server."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=HANGS)
        self.file = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def line(self) -> bytes:
        """Return the next line, without its end."""
        try:
            line = self.file.readline()
        except ConnectionError as error:
            raise ClosedError from error
        if not line.endswith(b"\n"):
            raise ClosedError(line)
        return line.rstrip(b"\r\n")

    def exactly(self, size: int) -> bytes:
        try:
            data = self.file.read(size)
        except ConnectionError as error:
            raise ClosedError from error
        if len(data) < size:
            raise ClosedError
        return data

    def head(self) -> Answer:
        """Return the status and the headers of the next answer."""
        version, status, *_ = self.line().split(b" ")
        assert version in (b"HTTP/1.1", b"HTTP/1.0")
        headers = []
        while line := self.line():
            name, _, value = line.decode("latin-1").partition(":")
            headers.append((name.lower(), value.strip()))
        return Answer(int(status), headers, b"")

    def chunk(self) -> bytes:
        """Return the next piece of a body of unknown length; empty at its end."""
        data = self.exactly(int(self.line(), 16))
        assert self.line() == b""
        return data

    def answer(self, method: str = "GET") -> Answer:
        """Return the next answer."""
        head = self.head()
        if method == "HEAD":
            return head
        if head.header("transfer-encoding") == "chunked":
            pieces = []
            while piece := self.chunk():
                pieces.append(piece)
            return Answer(head.status, head.headers, b"".join(pieces))
        length = head.header("content-length")
        if length is not None:
            return Answer(head.status, head.headers, self.exactly(int(length)))
        return Answer(head.status, head.headers, self.rest())

    def rest(self) -> bytes:
        """Return all bytes that arrive until the server closes the connection."""
        try:
            return self.file.read()
        except ConnectionResetError:
            return b""

    def close(self) -> None:
        self.file.close()
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def request(method: str, target: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """Return the bytes of a request with exactly these headers."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


class Client:
    """A client with the cookie that a server sets."""

    def __init__(self, url: str) -> None:
        found = ADDRESS.fullmatch(url)
        assert found is not None, url
        self.port, self.token = int(found[1]), found[2]
        self.host = f"127.0.0.1:{self.port}"

    @cached_property
    def cookie(self) -> str:
        """The cookie, from the address that the server printed."""
        answer = self.raw(request("GET", f"/?token={self.token}", {"Host": self.host, "Connection": "close"}))
        assert (answer.status, answer.header("location")) == (SEE_OTHER, "/")
        return (answer.header("set-cookie") or "").partition(";")[0]

    def raw(self, data: bytes, method: str = "GET") -> Answer:
        """Send these bytes on a new connection, and return the answer."""
        with Connection(self.port) as connection:
            connection.send(data)
            return connection.answer(method)

    def bytes_of(self, method: str, target: str, body: Any = None, **headers: str | None) -> bytes:
        """Return the request of the page; a header that is ``None`` is left out."""
        data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        usual: dict[str, str | None] = {"host": self.host, "connection": "close", "cookie": self.cookie}
        if body is not None:
            usual |= {"content-type": "application/json", "content-length": str(len(data))}
        usual |= {name.replace("_", "-"): value for name, value in headers.items()}
        kept = {name: value for name, value in usual.items() if value is not None}
        return request(method, target, kept, data)

    def send(self, method: str, target: str, body: Any = None, **headers: str | None) -> Answer:
        return self.raw(self.bytes_of(method, target, body, **headers), method)

    def get(self, target: str, **headers: str | None) -> Answer:
        return self.send("GET", target, **headers)

    def post(self, target: str, body: Any, **headers: str | None) -> Answer:
        return self.send("POST", target, body, **headers)

    def ask(self, target: str, body: Any = None) -> Any:
        """Return the content of an answer that is not a refusal. A request with a body uses POST."""
        answer = self.get(target) if body is None else self.post(target, body)
        assert answer.status == 200, (target, answer.status, answer.body[:500])
        return answer.json()

    def download(self, body: Any) -> Answer:
        """Return a result as a file."""
        answer = self.post("/api/download", body)
        assert answer.status == 200
        return answer


class Events:
    """The stream of a server's events."""

    def __init__(self, client: Client) -> None:
        self.connection = Connection(client.port)
        self.connection.send(client.bytes_of("GET", "/api/events", accept="text/event-stream", connection=None))
        head = self.connection.head()
        assert (head.status, head.header("content-type")) == (200, "text/event-stream")
        assert head.header("transfer-encoding") == "chunked"
        self.text = b""

    def next(self) -> tuple[str, Any]:
        """Wait for the next event, and return its name and its data."""
        while True:
            while b"\n\n" not in self.text:
                piece = self.connection.chunk()
                if not piece:
                    raise ClosedError
                self.text += piece
            text, _, self.text = self.text.partition(b"\n\n")
            lines = [line.split(": ", 1) for line in text.decode().split("\n")]
            if all(line[0] == "" for line in lines):
                continue
            fields = dict(lines)
            return fields["event"], json.loads(fields["data"])

    def next_of(self, name: str) -> Any:
        """Wait for the next event of this name, and return its data."""
        while True:
            found, data = self.next()
            if found == name:
                return data

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()


class Server:
    """A running ``a2store view`` without a browser, on a free port unless the arguments name one."""

    def __init__(self, archive: str | os.PathLike[str], *args: object, env: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            command("view", os.fspath(archive), "--no-browser", *args),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(env or {})},
        )
        assert self.process.stdout is not None
        self.printed: list[str] = []
        found = None
        for line in self.process.stdout:
            self.printed.append(line)
            if found := ADDRESS.search(line):
                break
        assert found is not None, (self.process.wait(HANGS), self.printed)
        self.url = found[0]
        self.origin, self.port = f"http://127.0.0.1:{found[1]}", int(found[1])
        self.client = Client(self.url)

    def stop(self, number: signal.Signals = signal.SIGINT) -> int:
        """Stop the server as Ctrl-C does, and return its exit status. It must have printed nothing but its address."""
        if self.process.stdout is not None and not self.process.stdout.closed:
            self.process.send_signal(number)
            self.printed += self.process.stdout
            self.process.stdout.close()
            assert len(self.printed) == 2, self.printed
        return self.process.wait(HANGS)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.stop()
