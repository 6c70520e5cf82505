"""Reading a report page that a browser has opened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def open_page(browser: Any, path: Path, html: str) -> None:
    path.write_text(html, encoding="utf-8")
    browser.get_log("browser"), browser.get_log("performance")
    browser.get(path.as_uri())


def complaints(browser: Any) -> list[str]:
    return [entry["message"] for entry in browser.get_log("browser")]


def requests(browser: Any) -> list[str]:
    """Addresses that the page asked for; the browser's own start page asks for things of its own."""
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    sent = [event["params"] for event in events if event["method"] == "Network.requestWillBeSent"]
    return [one["request"]["url"] for one in sent if one["documentURL"] == browser.current_url]


def rows(browser: Any) -> list[list[str]]:
    cells = "(row) => [...row.cells].map((cell) => cell.innerText)"
    return list(browser.execute_script(f"return [...document.querySelectorAll('#table tbody tr')].map({cells})"))


def verdict(browser: Any) -> str:
    return str(browser.execute_script("return document.getElementById('verdict').innerText")).replace("\u00a0", " ")
