"""HTTP requests with timeouts, retries with backoff and jitter, and a size limit.

Messages contain the URL without its query, and no part of the response, because query and response may contain a
credential.
"""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import urlsplit

import requests
from urllib3.exceptions import HTTPError, NewConnectionError, ProxyError, ReadTimeoutError

from vmselect.catalog.sources import Json
from vmselect.errors import RefreshError

_RETRYABLE = {408, 429, 500, 502, 503, 504}
_MAX_ANSWER_BYTES = 64 * 1024**2
Answer = TypeVar("Answer")


class _RetryableError(Exception):
    """A temporary failure of a request, which is then repeated. ``wait_seconds`` is the delay the server requires.

    ``unreachable`` is True if there was no connection at all.
    """

    def __init__(self, reason: str, wait_seconds: float = 0.0, *, unreachable: bool = False) -> None:
        super().__init__(reason)
        self.wait_seconds, self.unreachable = wait_seconds, unreachable


CONNECT_SECONDS = 5.0
"""Longest wait for a connection."""


@dataclass
class JsonClient:
    """An HTTP client that gets JSON objects or bytes. Several threads may share a client.

    ``timeout_seconds`` is the longest wait for the next byte, ``answer_seconds`` the longest time of a whole response.
    ``attempts`` is the largest number of requests for the same URL.
    """

    attempts: int = 5
    timeout_seconds: float = 30.0
    answer_seconds: float = 120.0
    backoff_seconds: float = 1.0
    max_wait_seconds: float = 60.0
    unreachable_seconds: float = 10.0
    """Without any connection, such as without a network, no request starts after this time."""
    sleep: Callable[[float], None] = time.sleep
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def get(self, url: str, params: Mapping[str, str] | None = None) -> Json:
        """Get the JSON object at ``url``. Raise a RefreshError if all attempts fail."""
        return self._retry(url, lambda: _parse(url, self._get_once(url, params)))

    def get_bytes(self, url: str) -> bytes:
        """Get the content at ``url``. Raise a RefreshError if all attempts fail."""
        return self._retry(url, lambda: self._get_once(url, None))

    def _retry(self, url: str, request: Callable[[], Answer]) -> Answer:
        waited = 0.0
        for attempt in range(1, self.attempts + 1):
            began = time.monotonic()
            try:
                return request()
            except _RetryableError as fault:
                # Jitter spreads the retries of regions that were throttled together.
                wait = self.backoff_seconds * 2 ** (attempt - 1) * random.uniform(0.5, 1.5)
                wait = min(max(wait, fault.wait_seconds), self.max_wait_seconds)
                waited += time.monotonic() - began + wait
                if attempt == self.attempts or (fault.unreachable and waited > self.unreachable_seconds):
                    raise RefreshError(
                        f"{_hide_secrets(url)}: {fault} ({attempt} attempts). Try again later."
                    ) from None
                self.sleep(wait)
        raise AssertionError("unreachable")

    def _get_once(self, url: str, params: Mapping[str, str] | None) -> bytes:
        """Request ``url`` once and return the content of the response.

        A daemon thread reads it, because the timeout of a socket restarts with every byte received.
        """
        answer: Future[bytes] = Future()

        def read() -> None:
            try:
                answer.set_result(self._request(url, params, ends=time.monotonic() + self.answer_seconds))
            except BaseException as fault:  # noqa: BLE001 - raised again by the thread that waits
                answer.set_exception(fault)

        threading.Thread(target=read, name="price-answer", daemon=True).start()
        try:
            return answer.result(self.answer_seconds)
        except TimeoutError:
            raise _RetryableError("the server did not finish its response in time") from None

    def _request(self, url: str, params: Mapping[str, str] | None, *, ends: float) -> bytes:
        try:
            with requests.get(
                url, params=params, headers=dict(self.headers),
                timeout=(min(CONNECT_SECONDS, self.timeout_seconds), self.timeout_seconds),
                stream=True, allow_redirects=False,
            ) as answer:  # fmt: skip
                if answer.status_code in _RETRYABLE:
                    wait = answer.headers.get("Retry-After", "")
                    seconds = float(wait) if wait.isdecimal() else 0.0
                    raise _RetryableError(f"the server returned {_describe_status(answer.status_code)}", seconds)
                if answer.status_code != 200:
                    raise RefreshError(
                        f"{_hide_secrets(url)} returned {_describe_status(answer.status_code)}. "
                        "Check the region, the credentials and their permissions."
                    )
                body = bytearray()
                while chunk := answer.raw.read1(64 * 1024, decode_content=True):
                    body += chunk
                    if len(body) > _MAX_ANSWER_BYTES:
                        limit = f"{_MAX_ANSWER_BYTES // 1024**2} MiB"
                        raise RefreshError(f"{_hide_secrets(url)} returned more than {limit}. Try again later.")
                    if time.monotonic() > ends:
                        raise _RetryableError("the server did not finish its response in time")
                return bytes(body)
        except requests.ConnectTimeout:
            raise _RetryableError("the server could not be reached", unreachable=True) from None
        except (requests.Timeout, ReadTimeoutError):
            raise _RetryableError("the server did not respond in time") from None
        except (requests.ConnectionError, HTTPError) as fault:
            # A connection that was refused or has no address, unlike one that was closed.
            reason = getattr(fault.args[0] if fault.args else None, "reason", None)
            unreachable = isinstance(reason, (NewConnectionError, ProxyError))
            problem = "the server could not be reached, or closed the connection"
            raise _RetryableError(problem, unreachable=unreachable) from None
        except (requests.RequestException, ValueError, TypeError):  # an invalid address or header
            raise RefreshError(
                f"The request to {_hide_secrets(url)} is invalid. Check the API key for blanks and line breaks."
            ) from None


def follow_pages(
    read_page: Callable[[str], Json],
    *,
    link: str,
    max_pages: int = 5000,
    max_seconds: float = 900.0,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Json]:
    """Yield every page of a response that consists of several pages.

    ``read_page("")`` reads the first page. The field ``link`` of a page contains the argument of ``read_page`` for the
    next page.
    """
    following, seen, started = "", set(), clock()
    for _ in range(max_pages):
        if clock() - started > max_seconds:
            raise RefreshError(
                f"The response of the price API was not complete after {max_seconds / 60:g} minutes. Try again later."
            )
        page = read_page(following)
        yield page
        following = str(page.get(link) or "")  # "", null or absent on the last page
        if not following:
            return
        if following in seen:
            raise RefreshError("A page of the price API's response links back to an earlier page. Try again later.")
        seen.add(following)
    raise RefreshError(f"The response of the price API has more than {max_pages} pages. Give fewer regions.")


def destination(url: str) -> tuple[str, str | None, int | None]:
    """Return scheme, host and port to which a request for ``url`` connects, as the package ``requests`` parses them."""
    try:
        parts = urlsplit(str(requests.Request("GET", url).prepare().url))
        port = parts.port or {"https": 443, "http": 80}.get(parts.scheme)
    except (requests.RequestException, ValueError):
        raise RefreshError("The price API's link to the next page is not a valid URL. Try again later.") from None
    if "@" in parts.netloc or "\\" in url:
        raise RefreshError(
            "The price API's link to the next page contains a user name or a backslash, and was not followed. "
            "Try again later."
        )
    return parts.scheme, parts.hostname, port


def read_items(page: Json, name: str) -> list[Json]:
    """Return the JSON objects in the field ``name`` of a page. Raise a RefreshError if it is not a list of objects."""
    items = page.get(name)
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise RefreshError(
            f"A page of the price API's response has no list of objects in the field {name!r}. Update vmselect."
        )
    return items


def _parse(url: str, body: bytes) -> Json:
    try:
        page = json.loads(body)
    except (ValueError, RecursionError):
        raise _RetryableError("the response is not JSON") from None
    if not isinstance(page, dict):
        raise RefreshError(f"{_hide_secrets(url)} returned JSON of an unknown format. Update vmselect.")
    return page


def _hide_secrets(url: str) -> str:
    """Return ``url`` for a message: without its query, user name and password."""
    scheme, _, rest = url.partition("://")
    login_and_host, *tail = re.split("(?=[/?#])", rest, maxsplit=1)
    if any("@" in part for part in tail):
        # A password that contains an unescaped / or ? looks like a path, so nothing of the rest is shown.
        return f"{scheme}://***"
    path = re.split("[?#]", "".join(tail), maxsplit=1)[0]
    return f"{scheme}://{login_and_host.rpartition('@')[2]}{path}"


def _describe_status(status: int) -> str:
    # The server's reason phrase could contain the request.
    return f"HTTP status {status} {HTTPStatus(status).phrase if status in list(HTTPStatus) else ''}".rstrip()
