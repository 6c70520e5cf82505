"""Reading pages: as a file, and in a browser."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

from vmselect.report.page import pack_json


def blocks(page: str) -> dict[str, str]:
    """Script, style and data of a page."""
    found = re.findall(r"<(script|style)([^>]*)>(.*?)</\1>", page, re.DOTALL)
    parts = {"data" if "text/plain" in attributes else tag: body for tag, attributes, body in found}
    return parts | {"data": zlib.decompress(base64.b64decode(parts["data"])).decode()}


def replace_data(page: str, change: Callable[[str], str]) -> str:
    """The page with its data, as JSON, changed by ``change``."""
    packed = pack_json(json.loads(change(blocks(page)["data"])))
    return re.sub(r'(id="data">)[^<]*', lambda match: match[1] + packed, page)


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
    load(browser, path)
    unfold(browser)


def load(browser: Any, path: Path) -> None:
    """Open a page, and wait until its script has run: it decompresses the data first."""
    browser.get(path.as_uri())
    browser.execute_async_script(
        "const done = arguments[0]; const wait = () => (window.vmselect ? done() : setTimeout(wait, 5)); wait()"
    )


def unfold(browser: Any) -> None:
    """Open all sections, and wait until they are drawn."""
    browser.execute_async_script(
        "document.querySelectorAll('details.fold').forEach((fold) => (fold.open = true)); setTimeout(arguments[0])"
    )
    settle(browser)


def settle(browser: Any) -> None:
    """Wait until changes are drawn and the probabilities of a report page are computed."""
    browser.execute_async_script(
        "const done = arguments[0];"
        "const wait = () => (window.vmselect?.chances?.busy ? setTimeout(wait, 5) : requestAnimationFrame(done));"
        "requestAnimationFrame(() => requestAnimationFrame(wait))"
    )


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
    """The verdict that a report page computes; its headline is the title of the page."""
    text, headline = browser.execute_script(
        "return [vmselect.verdict(), document.getElementById('verdict').innerText.replace(/\\u00a0/g, ' ')]"
    )
    assert text.replace("`", "").startswith(headline.rstrip("."))
    return str(text)
