"""Documents: links lead somewhere, and the README's commands are those that are tested."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "pricing" / "README.md"]


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            continue
        assert (path.parent / target.split("#")[0]).exists(), f"{path.name} links to {target}"


def test_every_page_is_reachable_from_the_index() -> None:
    seen: set[Path] = set()
    waiting = [ROOT / "README.md"]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        for target in re.findall(r"\]\(([^)\s#]+)", page.read_text()):
            linked = (page.parent / target).resolve()
            if not re.match(r"[a-z]+:", target) and linked.is_file():
                waiting.append(linked)
    assert set(DOCUMENTS) <= seen


def test_the_readme_prints_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert 'pip install -e ".[tensorflow,plots]" && python examples/quickstart.py' in text
    assert re.search(r'<!-- test command -->\s*```\w*\npip install -e "\.\[dev\]" && pytest\n```', text)
