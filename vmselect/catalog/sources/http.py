"""JSON over HTTP with bounded patience: timeouts, retries with backoff and jitter, a limit on size."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import requests
from urllib3.exceptions import HTTPError, ReadTimeoutError

from vmselect.errors import RefreshError

_TRY_AGAIN = {408, 429, 500, 502, 503, 504}
_MAX_ANSWER_BYTES = 64 * 1024**2


class _TryAgainError(Exception):
    """A fault that may pass; ``wait_seconds`` is what the server asked for."""

    def __init__(self, reason: str, wait_seconds: float = 0.0) -> None:
        super().__init__(reason)
        self.wait_seconds = wait_seconds


@dataclass
class JsonClient:
    """GETs JSON objects; the same client may serve several threads."""

    attempts: int = 5
    timeout_seconds: float = 30.0
    answer_seconds: float = 120.0
    backoff_seconds: float = 1.0
    longest_wait_seconds: float = 60.0
    sleep: Callable[[float], None] = time.sleep
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def get(self, url: str, params: Mapping[str, str] | None = None) -> dict[str, Any]:
        """The JSON object at ``url``; RefreshError when it cannot be had in the attempts allowed."""
        for attempt in range(1, self.attempts + 1):
            try:
                return self._get_once(url, params)
            except _TryAgainError as fault:
                if attempt == self.attempts:
                    raise RefreshError(f"{_place(url)} {fault}, {attempt} times over. Try again later.") from None
                # Jitter keeps regions that were throttled together from coming back together.
                wait = self.backoff_seconds * 2 ** (attempt - 1) * random.uniform(0.5, 1.5)
                self.sleep(min(max(wait, fault.wait_seconds), self.longest_wait_seconds))
        raise AssertionError("unreachable")

    def _get_once(self, url: str, params: Mapping[str, str] | None) -> dict[str, Any]:
        # Messages name the place and never the query or the headers, which may carry a key.
        try:
            with requests.get(
                url, params=params, headers=dict(self.headers), timeout=self.timeout_seconds,
                stream=True, allow_redirects=False,
            ) as answer:  # fmt: skip
                if answer.status_code in _TRY_AGAIN:
                    raise _TryAgainError(f"answered {answer.status_code}", _retry_after(answer))
                if answer.status_code != 200:
                    raise RefreshError(
                        f"{_place(url)} answered {answer.status_code} {answer.reason}. "
                        "Check the region, the credentials and their permissions."
                    )
                body = self._read(answer)
        except (requests.Timeout, ReadTimeoutError):
            raise _TryAgainError("did not answer in time") from None
        except (requests.ConnectionError, HTTPError):
            raise _TryAgainError("broke the connection") from None
        except requests.RequestException as fault:
            raise RefreshError(f"{_place(url)} could not be asked ({type(fault).__name__}).") from None
        try:
            page = json.loads(body)
        except ValueError:
            raise _TryAgainError("answered something that is not JSON") from None
        if not isinstance(page, dict):
            raise RefreshError(f"{_place(url)} answered JSON of an unknown shape. Update vmselect.")
        return page

    def _read(self, answer: requests.Response) -> bytes:
        started, body = time.monotonic(), bytearray()
        # One read of the socket at a time: a server that drips would fill a chunk of any size in hours.
        while chunk := answer.raw.read1(64 * 1024, decode_content=True):
            body += chunk
            if len(body) > _MAX_ANSWER_BYTES:
                raise RefreshError(f"{_place(answer.url)} answered more than {_MAX_ANSWER_BYTES // 1024**2} MiB.")
            if time.monotonic() - started > self.answer_seconds:
                raise _TryAgainError("did not finish its answer in time")
        return bytes(body)


def follow_pages(
    read_page: Callable[[str], dict[str, Any]], *, link: str, most: int = 5000
) -> Iterator[dict[str, Any]]:
    """Every page of an answer; each names the next in its field ``link``, and "" asks ``read_page`` for the first."""
    following, seen = "", set()
    for _ in range(most):
        page = read_page(following)
        yield page
        following = str(page.get(link) or "")  # the last page says "", null or nothing
        if not following:
            return
        if following in seen:
            raise RefreshError("The answer goes in circles: a page links back. Try again later.")
        seen.add(following)
    raise RefreshError(f"The answer had more than {most} pages. Ask for fewer regions.")


def _place(url: str) -> str:
    return url.partition("?")[0]


def _retry_after(answer: requests.Response) -> float:
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else 0.0
