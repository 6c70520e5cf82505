"""Documents: links lead somewhere, tables hold what there is, the README's commands are those that are tested."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.main import get_command

import vmselect as vs
from vmselect.cli import app
from vmselect.records.convergence import ConvergenceRecord

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


def test_every_option_of_probe_is_in_its_table() -> None:
    table = (ROOT / "docs/reference/command-line.md").read_text().partition("## Options of `probe`")[2]
    command = get_command(app).commands["probe"]  # type: ignore[attr-defined]
    options = {option.opts[0] for option in command.params if option.opts[0].startswith("-")}
    assert {option for option in options if f"`{option}`" not in table.partition("\n## ")[0]} == set()


def test_the_page_of_studies_lists_the_fields_that_are_written() -> None:
    text = (ROOT / "docs/reference/profile-format.md").read_text().partition("## File format of a study: ")[2]
    number = ConvergenceRecord.model_fields["format"].default
    assert text.startswith(f"{number}\n")
    block = text.partition("```text\n")[2].partition("```")[0]
    assert re.findall(r"^(\w+) ", block, flags=re.MULTILINE) == list(ConvergenceRecord.model_fields)
    assert re.search(rf"^format +{number}$", block, flags=re.MULTILINE)


NAMESPACES = ("energy", "serving", "stats")


def test_every_public_name_is_on_the_api_page() -> None:
    listed = re.findall(r"^\| `([\w.]+)` \|", (ROOT / "docs/reference/api.md").read_text(), flags=re.MULTILINE)
    spaces = {name: getattr(vs, name) for name in vs.__all__ if name in NAMESPACES}
    inner = [f"{name}.{part}" for name, space in spaces.items() for part in space.__all__]
    assert sorted(listed) == sorted([*(set(vs.__all__) - set(spaces)), *inner])


def test_the_readme_prints_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert re.search(r'```\w*\npip install -e "\.\[tensorflow\]" && python examples/quickstart\.py\n```', text)
    assert re.search(r'<!-- test command -->\s*```\w*\npip install -e "\.\[test\]" && pytest\n```', text)
