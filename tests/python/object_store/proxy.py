"""A proxy in front of the S3 server that loses requests and responses on demand."""

from __future__ import annotations

import os
import re
import socket
import struct
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal, TypeAlias

BUCKET = "a2store-tests"
HOST = "127.0.0.1"
PER_HOP = {"connection", "content-length", "date", "server", "transfer-encoding"}
"""Headers that the proxy writes itself, or does not need."""


End: TypeAlias = Literal["403", "500", "503", "close", "reset", "cut", "kill"]


@dataclass(frozen=True)
class Fault:
    """The effect on a request, instead of its normal response."""

    end: End
    """A response with that status, no response, the first half of the real one, or a killed client."""
    performed: bool = True
    """Whether the server still receives the request."""


Faults: TypeAlias = Callable[[str], Fault | None]
"""The fault of a request, given as its method and path."""


def once(pattern: str, fault: Fault) -> Faults:
    """Return a function that gives this fault to the first matching request."""
    left = [fault]
    return lambda request: left.pop() if left and re.search(pattern, request) else None


class Proxy(ThreadingHTTPServer):
    """A proxy that forwards requests to the server, except those with a fault."""

    daemon_threads = True

    def __init__(self, server: int, faults: Faults) -> None:
        super().__init__((HOST, 0), Handler)
        self.target, self.faults = server, faults
        self.requests: list[str] = []
        self.sent: Counter[str] = Counter()
        """The numbers of bytes that were sent for each path."""
        self.made: list[Fault] = []
        self.client: subprocess.Popen[str] | None = None
        """The client to kill."""
        self._lock = threading.Lock()

    def fault(self, request: str) -> Fault | None:
        with self._lock:
            self.requests.append(request)
            fault = self.faults(request)
            if fault:
                self.made.append(fault)
            return fault

    def handle_error(self, request: object, client_address: object) -> None:
        # The tests expect clients that disconnect or are killed.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Otherwise the content waits until the client acknowledges the headers, 40 ms later.
    disable_nagle_algorithm = True
    server: Proxy

    def pass_on(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return
        fault = self.server.fault(f"{self.command} {self.path}")
        status, headers, content = 200, {"Content-Length": "0"}, b""
        if fault is None or fault.performed:
            status, headers, content = self._ask(body)
        if fault is None:
            self._answer(status, headers, content)
        elif fault.end == "cut":
            self.close_connection = True
            self._answer(status, headers, content, len(content) // 2)
        elif fault.end.isdigit():
            self._answer(int(fault.end), {}, b"")
        else:
            self.close_connection = True
            if fault.end == "kill":
                assert self.server.client is not None
                self.server.client.kill()
            elif fault.end == "reset":
                # A socket that is closed without lingering resets the connection.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                os.close(self.connection.detach())

    do_DELETE = do_GET = do_HEAD = do_POST = do_PUT = pass_on  # noqa: N815

    def _ask(self, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = HTTPConnection(HOST, self.server.target, timeout=60)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "connection"}
            connection.request(self.command, self.path, body, headers)
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def _answer(self, status: int, headers: dict[str, str], content: bytes, sent: int | None = None) -> None:
        self.send_response_only(status)
        length = str(len(content))
        for name, value in headers.items():
            if name.lower() not in PER_HOP:
                self.send_header(name, value)
            elif name.lower() == "content-length" and self.command == "HEAD":
                length = value
        if status != 204:
            self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(content[:sent])
        if self.command != "HEAD":
            self.server.sent[self.path] += len(content[:sent])


@contextmanager
def running(proxy: Proxy) -> Iterator[Proxy]:
    with proxy:
        thread = threading.Thread(target=proxy.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield proxy
        finally:
            proxy.shutdown()
            thread.join()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def endpoint(port: int) -> str:
    return f"http://{HOST}:{port}"
