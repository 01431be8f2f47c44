"""Fixtures of the object store tests: an S3 server on this machine.

The server is ministack. Its conditional put is atomic, so exactly one of several concurrent writers gets a key.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from .proxy import BUCKET, HOST, Faults, Proxy, endpoint, free_port, running

WITHOUT = "ministack, the S3 server, is not installed"
KEY, SECRET, REGION = "a2store", "not-a-secret", "us-east-1"


def answers(port: int) -> bool:
    connection = HTTPConnection(HOST, port, timeout=10)
    try:
        connection.request("GET", "/")
        connection.getresponse().read()
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
    return True


def start(port: int, folder: Path) -> subprocess.Popen[bytes] | None:
    """Start the server; return ``None`` if it ended at once, for example because the port is in use."""
    settings = {"AUTH": "true", "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "SERVICES": "s3"}
    settings |= {"BIND_HOST": HOST, "GATEWAY_PORT": str(port), "LOG_LEVEL": "WARNING", "TMPDIR": str(folder)}
    # Keeps the server from looking for Docker containers to clean up.
    settings["DOCKER_HOST"] = f"unix://{folder}/no-docker"
    with (folder / "log").open("ab") as log:
        command = [sys.executable, "-m", "ministack"]
        process = subprocess.Popen(command, cwd=folder, env=os.environ | settings, stdout=log, stderr=log)
    for _ in range(600):
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
            return None
        if answers(port):
            return process
    process.kill()
    process.wait()
    return None


@contextmanager
def serve(folder: Path) -> Iterator[int]:
    """Start the server with its files in a folder; return its port."""
    for _ in range(3):
        port = free_port()
        process = start(port, folder)
        if process is not None:
            break
    else:
        raise RuntimeError(f"the S3 server does not start: {(folder / 'log').read_text()}")
    try:
        yield port
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def create_bucket(port: int) -> fs.S3FileSystem:
    """Create the bucket, and return the server as a file system of pyarrow."""
    filesystem = fs.S3FileSystem(
        access_key=KEY,
        secret_key=SECRET,
        region=REGION,
        scheme="http",
        endpoint_override=f"{HOST}:{port}",
        allow_bucket_creation=True,
    )
    filesystem.create_dir(BUCKET)
    return filesystem


def variables(port: int) -> dict[str, str]:
    """Return the environment variables for connections to the server."""
    found = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": REGION}
    return found | {"AWS_ENDPOINT_URL": endpoint(port), "AWS_ALLOW_HTTP": "true", "NO_PROXY": HOST}


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Return the server's port."""
    if importlib.util.find_spec("ministack") is None:
        pytest.skip(WITHOUT)
    with serve(tmp_path_factory.mktemp("server")) as port:
        yield port


@pytest.fixture(scope="session")
def filesystem(server: int) -> Any:
    """Return the server as a file system of pyarrow, with the bucket."""
    return create_bucket(server)


@pytest.fixture
def url(filesystem: object, server: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a URL for an archive, and set the environment variables for the connection."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    for name, value in variables(server).items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{tmp_path.name}/games.a2"


@pytest.fixture
def through(url: str, server: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Faults], Proxy]]:
    """Return a function that puts a proxy between later connections and the server."""
    with ExitStack() as stack:

        def put(faults: Faults) -> Proxy:
            proxy = stack.enter_context(running(Proxy(server, faults)))
            monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint(proxy.server_port))
            return proxy

        yield put


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(WITHOUT in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_line(f"{count} tests were skipped because {WITHOUT}")
