"""Patience with a server that throttles, breaks off, hangs or lies: bounded, and said plainly."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
import traceback
from collections.abc import Iterator

import pytest

from vmselect.catalog.sources.http import JsonClient, follow_pages
from vmselect.errors import RefreshError


def test_throttling_is_waited_out_with_growing_pauses(cloud, answer, client, waits) -> None:
    replies = [answer(status=429), answer(status=503), answer({"fine": True})]
    cloud.reply = lambda _: replies.pop(0)
    assert client.get(cloud.url) == {"fine": True}
    assert 0.5 <= waits[0] <= 1.5
    assert 1.0 <= waits[1] <= 3.0


def test_the_server_may_ask_for_a_longer_pause_but_not_for_ever(cloud, answer, client, waits) -> None:
    replies = [
        answer(status=429, headers={"Retry-After": "7"}),
        answer(status=429, headers={"Retry-After": "86400"}),
        answer({"fine": True}),
    ]
    cloud.reply = lambda _: replies.pop(0)
    client.get(cloud.url)
    assert waits == [7.0, 60.0]


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_status_that_may_pass_is_retried(cloud, answer, client, status) -> None:
    replies = [answer(status=status), answer({"fine": True})]
    cloud.reply = lambda _: replies.pop(0)
    assert client.get(cloud.url) == {"fine": True}


@pytest.mark.parametrize("requested", ["0", "soon", "-5"])
def test_an_unusable_request_for_a_pause_is_ignored(cloud, answer, client, waits, requested) -> None:
    replies = [answer(status=503, headers={"Retry-After": requested}), answer({"fine": True})]
    cloud.reply = lambda _: replies.pop(0)
    client.get(cloud.url)
    assert 0.5 <= waits[0] <= 1.5


def test_attempts_are_bounded(cloud, answer, client, waits) -> None:
    cloud.reply = lambda _: answer(status=429)
    with pytest.raises(RefreshError, match="429"):
        client.get(cloud.url)
    assert len(cloud.asked) == 4
    assert len(waits) == 3


def test_a_page_that_breaks_in_the_middle_is_asked_for_again(cloud, answer, client) -> None:
    replies = [answer({"rows": list(range(1000))}, cut_after=500), answer(b'{"half": '), answer({"rows": [1]})]
    cloud.reply = lambda _: replies.pop(0)
    assert client.get(cloud.url) == {"rows": [1]}


def test_a_server_that_hangs_is_given_up(cloud, answer, waits) -> None:
    client = JsonClient(attempts=2, timeout_seconds=0.1, sleep=waits.append)
    cloud.reply = lambda _: answer({}, hang_seconds=0.5)
    with pytest.raises(RefreshError, match="2 attempts"):
        client.get(cloud.url)


def test_a_server_that_drips_is_given_up(cloud, answer, waits) -> None:
    client = JsonClient(attempts=2, timeout_seconds=1.0, answer_seconds=0.2, sleep=waits.append)
    cloud.reply = lambda _: answer({"rows": "x" * 1000}, drip_seconds=0.02)
    with pytest.raises(RefreshError, match="2 attempts"):
        client.get(cloud.url)


def test_a_compressed_answer(cloud, answer, client) -> None:
    packed = gzip.compress(json.dumps({"rows": list(range(100_000))}).encode())
    cloud.reply = lambda _: answer(packed, headers={"Content-Encoding": "gzip"})
    assert client.get(cloud.url) == {"rows": list(range(100_000))}


def test_no_server(waits) -> None:
    client = JsonClient(attempts=2, timeout_seconds=0.5, sleep=waits.append)
    with pytest.raises(RefreshError):
        client.get("http://127.0.0.1:1/")


@pytest.mark.parametrize("status", [201, 299, 301, 400, 401, 403, 404])
def test_a_refusal_is_final_and_redirects_are_not_followed(cloud, answer, client, waits, status) -> None:
    cloud.reply = lambda _: answer(status=status, headers={"Location": "http://203.0.113.9/"})
    with pytest.raises(RefreshError, match=str(status)):
        client.get(cloud.url)
    assert waits == []


def test_json_of_another_shape(cloud, answer, client) -> None:
    cloud.reply = lambda _: answer([1, 2])
    with pytest.raises(RefreshError):
        client.get(cloud.url)


def test_no_message_shows_a_key(cloud, answer, client, waits) -> None:
    client.headers = {"X-Goog-Api-Key": "hidden-key"}
    cloud.reply = lambda _: answer(status=403)
    with pytest.raises(RefreshError) as refused:
        client.get(cloud.url, {"key": "hidden-key"})
    assert "hidden-key" not in str(refused.value)
    assert "hidden-key" not in repr(client)


def test_an_answer_may_not_be_endless(cloud, answer, client, monkeypatch) -> None:
    monkeypatch.setattr("vmselect.catalog.sources.http._MAX_ANSWER_BYTES", 1000)
    cloud.reply = lambda _: answer({"rows": "x" * 5000})
    with pytest.raises(RefreshError):
        client.get(cloud.url)


def test_pages_may_not_be_endless() -> None:
    with pytest.raises(RefreshError):
        list(follow_pages(lambda link: {"next": f"{link}+"}, link="next", max_pages=3))


class Dripper:
    """Sends ``start`` at once and then one of ``drops`` every few milliseconds, for ever."""

    def __init__(self, start: bytes, drops: bytes) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/"
        self.ended = threading.Event()
        self.start, self.drops = start, drops
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._drip, args=(connection,), daemon=True).start()

    def _drip(self, connection: socket.socket) -> None:
        with connection:
            try:
                connection.recv(4096)
                connection.sendall(self.start)
                while not self.ended.is_set():
                    connection.sendall(self.drops)
                    time.sleep(0.01)
            except OSError:
                return

    def close(self) -> None:
        self.ended.set()
        self.listener.close()


STATUS = b"HTTP/1.1 200 OK\r\n"
DRIPS = {
    "status line": (b"HTTP/1.1 200 ", b"O"),
    "header": (STATUS + b"X-Name: ", b"v"),
    "headers": (STATUS, b""),
    "length": (STATUS + b"Content-Length: 9999999\r\n\r\n", b" "),
    "no length": (STATUS + b"\r\n", b" "),
    "chunk size": (STATUS + b"Transfer-Encoding: chunked\r\n\r\n", b"0"),
    "chunk": (STATUS + b"Transfer-Encoding: chunked\r\n\r\nffffff\r\n", b" "),
    "trailer": (STATUS + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: ", b"y"),
}


@pytest.fixture(params=DRIPS, ids=lambda name: name.replace(" ", "-"))
def dripper(request) -> Iterator[Dripper]:
    started = Dripper(*DRIPS[request.param])
    yield started
    started.close()


def test_no_drip_outlasts_the_limit(dripper, waits) -> None:
    client = JsonClient(attempts=2, timeout_seconds=0.3, answer_seconds=0.3, sleep=waits.append)
    with pytest.raises(RefreshError, match="2 attempts"):
        client.get(dripper.url)
    assert len(waits) == 1


def test_a_reader_that_was_given_up_ends_with_its_server(dripper, waits) -> None:
    client = JsonClient(attempts=1, timeout_seconds=0.3, answer_seconds=0.2, sleep=waits.append)
    with pytest.raises(RefreshError):
        client.get(dripper.url)
    dripper.close()
    for reader in [thread for thread in threading.enumerate() if thread.name == "price-answer"]:
        assert reader.daemon
        reader.join(10)
        assert not reader.is_alive()


def test_pages_may_not_take_for_ever() -> None:
    now = iter(range(0, 10_000, 400))
    pages = follow_pages(lambda link: {"next": f"{link}+"}, link="next", clock=lambda: float(next(now)))
    with pytest.raises(RefreshError):
        list(pages)


@pytest.mark.parametrize(
    "key", ["hidden-key\u200b", "hidden-key\n", "hidden\x00key", "hidden-key\ud800", " hidden-key\xa0"]
)
def test_a_key_with_an_odd_character_is_never_shown(cloud, answer, waits, key) -> None:
    cloud.reply = lambda _: answer(status=403)
    client = JsonClient(attempts=1, sleep=waits.append, headers={"X-Goog-Api-Key": key})
    with pytest.raises(RefreshError) as refused:
        client.get(cloud.url)
    assert "hidden" not in "".join(traceback.format_exception(refused.value))


def test_a_server_that_repeats_the_key_is_not_quoted(waits) -> None:
    echo = Dripper(b"HTTP/1.1 403 hidden-key is wrong\r\nContent-Length: 0\r\n\r\n", b"")
    client = JsonClient(attempts=1, timeout_seconds=1, sleep=waits.append)
    with pytest.raises(RefreshError, match="403 Forbidden") as refused:
        client.get(echo.url.replace("http://", "http://me:hidden-key@"))
    echo.close()
    assert "hidden-key" not in str(refused.value)
