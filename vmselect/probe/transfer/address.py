"""Addresses of stores, without what must not be written down: passwords, keys, tokens."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from vmselect._checks import check_mapping, check_name
from vmselect.errors import ArgumentError

STORES = {
    "s3": "aws", "s3a": "aws", "az": "azure", "abfs": "azure", "abfss": "azure", "adl": "azure", "gs": "gcp",
    "gcs": "gcp",
}  # fmt: skip
"""Protocol to the cloud that keeps what is written there, unless another server is named."""

FREE = ("file", "local", "memory")
"""Protocols that move nothing over a network."""

_SECRET_NAME = re.compile(r"SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIAL|_KEY|_SAS|CONNECTION_STRING", re.IGNORECASE)
_OPEN_NAMES = ("host", "hostname", "username", "region_name")
"""Options that are no secrets, and that messages must be able to name."""

SHORTEST_SECRET = 4
LONGEST_URL = 2_000


@dataclass(frozen=True)
class Address:
    """A folder in a store: ``text`` opens it, ``shown`` may be printed, ``secrets`` may not."""

    text: str = field(repr=False)
    shown: str
    protocol: str
    options: Mapping[str, Any] = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)

    @property
    def store(self) -> str | None:
        """The cloud that keeps the files, or None if unknown."""
        return None if _names_a_server(self.options) else STORES.get(self.protocol)

    @property
    def is_free(self) -> bool:
        """Whether nothing leaves this machine."""
        return self.protocol in FREE

    def hide(self, text: object) -> str:
        """``text`` on one line, without any secret."""
        line = " ".join(str(text).split())
        for secret in self.secrets:
            line = line.replace(secret, "***")
        return line[:300]


def read_address(url: str, options: Mapping[str, Any] | None = None) -> Address:
    """The address that a user gave, with the options that open it.

    >>> read_address("sftp://me:hush@host/data?token=abc").shown
    'sftp://me@host/data'
    """
    with _hiding_value(f"url must be a text of 1 to {LONGEST_URL} characters, such as protocol://host/folder."):
        text = check_name("url", url, longest=LONGEST_URL)
    with _hiding_value("options must map names to values, such as {'anon': True}."):
        given = check_mapping("options", options) if options is not None else {}
    if "::" in text:
        raise ArgumentError("url chains several file systems (::), of which only one can be measured. Give one.")
    # A file's path may hold any character; only what has a protocol is taken apart.
    if "://" not in text:
        return Address(text, text, "file", given, _as_in_a_line(_find_secrets(given)))
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        raise ArgumentError("url cannot be read as an address. Write it as protocol://host/folder.") from None
    login, _, host = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    shown = f"{parts.scheme}://{user + '@' if user else ''}{host}{parts.path}"
    hidden = [password, unquote(password), parts.query, *(pair.partition("=")[2] for pair in parts.query.split("&"))]
    return Address(text, shown, parts.scheme, given, _as_in_a_line({*_find_secrets(given), *hidden}))


def is_secret_name(name: str) -> bool:
    """Whether what has that name is not for anyone to see."""
    return _SECRET_NAME.search(name) is not None


@contextmanager
def _hiding_value(rule: str) -> Iterator[None]:
    """Report only the ``rule`` of a check, not the refused value: it may hold a secret."""
    try:
        yield
    except ArgumentError:
        raise ArgumentError(rule) from None


def _find_secrets(options: Mapping[str, Any]) -> set[str]:
    """Texts among the options, and in variables named like secrets, that no message may show."""
    found = {value for name, value in os.environ.items() if is_secret_name(name)}
    waiting: list[tuple[str, Any]] = list(options.items())
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [(str(key), item) for key, item in value.items()]
        elif "url" in name or name in _OPEN_NAMES:
            continue
        elif isinstance(value, str) or is_secret_name(name):  # a number can be a password too
            found.add(str(value))
    return found


def _as_in_a_line(secrets: Iterable[str]) -> tuple[str, ...]:
    """``secrets`` as a line of text holds them, plain or with the escapes of a repr; the longest first."""
    lines = {" ".join(form.split()) for secret in secrets for form in (secret, repr(secret)[1:-1])}
    return tuple(sorted((line for line in lines if len(line) >= SHORTEST_SECRET), key=len, reverse=True))


def _names_a_server(options: Mapping[str, Any]) -> bool:
    nested = options.get("client_kwargs")
    named = nested.get("endpoint_url") if isinstance(nested, Mapping) else None
    return bool(named or options.get("endpoint_url") or os.environ.get("AWS_ENDPOINT_URL"))
