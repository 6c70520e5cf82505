"""Reading pages: as a file, and in a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html import unescape
from pathlib import Path
from typing import Any


def blocks(page: str) -> dict[str, str]:
    """Script, style and data of a page."""
    found = re.findall(r"<(script|style)([^>]*)>(.*?)</\1>", page, re.DOTALL)
    return {"data" if "json" in attributes else tag: body for tag, attributes, body in found}


def read_policy(page: str) -> dict[str, str]:
    """The parts of the content security policy, which must allow the page's script and style."""
    policy = unescape(re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1])  # type: ignore[index]
    parts = dict(part.strip().split(" ", 1) for part in policy.split(";"))
    for tag in ("script", "style"):
        digest = base64.b64encode(hashlib.sha256(blocks(page)[tag].encode()).digest()).decode()
        assert parts[f"{tag}-src"] == f"'sha256-{digest}'"
    return parts


def open_page(browser: Any, path: Path, html: str) -> None:
    path.write_text(html, encoding="utf-8")
    browser.get_log("browser"), browser.get_log("performance")
    browser.get(path.as_uri())


def complaints(browser: Any) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser")]


def requests(browser: Any) -> list[str]:
    """Addresses that the page requested, without those of the browser's start page."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    return [one["request"]["url"] for one in sent if one["documentURL"] == browser.current_url]


def rows(browser: Any) -> list[list[str]]:
    cells = "(row) => [...row.cells].map((cell) => cell.innerText)"
    return list(browser.execute_script(f"return [...document.querySelectorAll('#table tbody tr')].map({cells})"))


def verdict(browser: Any) -> str:
    return str(browser.execute_script("return document.getElementById('verdict').innerText")).replace("\u00a0", " ")
