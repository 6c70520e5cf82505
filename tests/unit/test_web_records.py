"""Records of web servers: reading ends at a limit, and redirects do not leave the server. Only loopback is used."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import vmselect as vs
from tests.support.profiles import make_profile
from vmselect import _io
from vmselect.errors import ProfileError

pytest.importorskip("aiohttp")
RECORD = make_profile("g4dn.xlarge").to_json().encode()


class Server(ThreadingHTTPServer):
    """A server with a record, an endless file, an endless folder, and redirects."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.redirects: dict[str, str] = {}
        self.requests: list[str] = []
        self.sent_bytes = 0
        self.url = f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_GET(self) -> None:
        self.server.requests.append(self.path)
        if self.path in self.server.redirects:
            self.send_response(302)
            self.send_header("Location", self.server.redirects[self.path])
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html" if "folder" in self.path else "application/json")
        self.end_headers()
        if "endless" not in self.path:
            self.wfile.write(RECORD)
            return
        try:
            # Without a limit in the reader, the test ends here and fails by the number of bytes.
            while self.server.sent_bytes < 40 * 2**20:
                self.server.sent_bytes += self.wfile.write(b" " * 2**16)
        except OSError:
            pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def other() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def test_a_record_without_a_length_is_read(server: Server) -> None:
    (profile,) = vs.load_profiles(f"{server.url}/record.json")
    assert profile.instance_type == "g4dn.xlarge"


@pytest.mark.parametrize("path", ["endless.json", "endless-folder"])
def test_reading_ends_at_the_limit(server: Server, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_io, "WEB_LIMIT_BYTES", 2**20)
    with pytest.raises(ProfileError, match="larger than 1 MiB"):
        vs.load_profiles(f"{server.url}/{path}")
    # What the sockets buffer was sent too.
    assert server.sent_bytes < 20 * 2**20


def test_a_redirect_within_the_server_is_followed(server: Server) -> None:
    server.redirects["/old.json"] = "/record.json"
    (profile,) = vs.load_profiles(f"{server.url}/old.json")
    assert profile.instance_type == "g4dn.xlarge"


def test_a_redirect_to_another_server_is_followed_only_if_allowed(
    server: Server, other: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.redirects["/old.json"] = f"{other.url}/record.json"
    with pytest.raises(ProfileError, match="VMSELECT_REDIRECT_HOSTS"):
        vs.load_profiles(f"{server.url}/old.json")
    assert other.requests == []
    monkeypatch.setenv("VMSELECT_REDIRECT_HOSTS", "example.org, 127.0.0.1")
    assert len(vs.load_profiles(f"{server.url}/old.json")) == 1
    assert other.requests == ["/record.json"]


@pytest.mark.parametrize(
    "target", ["http://169.254.169.254/latest", "//[fe80::1]/x", "https://127.0.0.1:1/x", "ftp://a/x"]
)
def test_addresses_of_the_local_network_are_not_contacted(server: Server, target: str) -> None:
    server.redirects["/old.json"] = target
    with pytest.raises(ProfileError):
        vs.load_profiles(f"{server.url}/old.json")


@pytest.mark.parametrize(
    ("asked", "target", "refused"),
    [
        ("http://a/x", "https://a/x", False),
        ("https://a/x", "http://a/x", True),
        ("http://a:8000/x", "https://a/x", True),
        ("https://a/x", "https://A:443/y", False),
        ("https://a/x", "https://b/x", True),
    ],
)
def test_only_the_same_server_is_trusted(asked: str, target: str, refused: bool) -> None:
    try:
        _io._check_redirect(_io.urlsplit(asked), _io.urlsplit(target))
    except ProfileError:
        assert refused
    else:
        assert not refused
