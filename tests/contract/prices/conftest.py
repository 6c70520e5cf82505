"""A real HTTP server on loopback that plays the clouds, and a guard that lets nothing leave the machine."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from vmselect.catalog.sources.http import JsonClient


@dataclass
class Request:
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass
class Answer:
    body: Any = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    hang_seconds: float = 0.0
    cut_after: int | None = None  # bytes actually sent, though more were promised
    drip_seconds: float = 0.0  # pause after every byte

    def encoded(self) -> bytes:
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class Cloud:
    """Answers every request with what ``reply`` returns, and remembers what was asked."""

    def __init__(self) -> None:
        self.asked: list[Request] = []
        self.reply: Callable[[Request], Answer] = lambda _: Answer(status=404)
        cloud = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                url = urlsplit(self.path)
                query = {k: v[0] for k, v in parse_qs(url.query).items()}
                request = Request(url.path, query, dict(self.headers), self.rfile.read(size))
                cloud.asked.append(request)
                answer = cloud.reply(request)
                time.sleep(answer.hang_seconds)
                content = answer.encoded()
                try:
                    self.send_response(answer.status)
                    for name, value in answer.headers.items():
                        self.send_header(name, value)
                    self.send_header("Content-Length", str(len(content)))
                    self.end_headers()
                    if not answer.drip_seconds:
                        self.wfile.write(content[: answer.cut_after])
                        return
                    for byte in content:
                        self.wfile.write(bytes([byte]))
                        time.sleep(answer.drip_seconds)
                except OSError:
                    self.close_connection = True  # the client gave up waiting, as a test wanted

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    started = Cloud()
    yield started
    started.close()


@pytest.fixture
def answer() -> type[Answer]:
    return Answer


@pytest.fixture
def waits() -> list[float]:
    """The seconds that ``client`` was told to wait between attempts."""
    return []


@pytest.fixture
def client(waits: list[float]) -> JsonClient:
    return JsonClient(attempts=4, timeout_seconds=0.5, sleep=waits.append)


@pytest.fixture(autouse=True)
def only_loopback(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VMSELECT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "no-config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "no-credentials"))
    for name in ("AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "GOOGLE_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    connect = socket.socket.connect

    def guarded(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and address[0] not in ("127.0.0.1", "::1", "localhost"):
            raise AssertionError(f"a test tried to reach {address[0]}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded)
