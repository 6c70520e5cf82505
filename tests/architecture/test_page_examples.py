"""Pages print what they say they print."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import operator
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

import vmselect as vs
from vmselect.cli import app

SUPPORT = Path(__file__).parents[1] / "support" / "page_examples.py"
spec = importlib.util.spec_from_file_location("page_examples", SUPPORT)
assert spec is not None
assert spec.loader is not None
examples = importlib.util.module_from_spec(spec)
spec.loader.exec_module(examples)


@pytest.mark.parametrize("name", examples.PAGES)
def test_a_page_prints_what_it_says(name: str) -> None:
    for block, printed in examples.run_page(name):
        if not examples.agrees(block.text, printed):
            # The comparison of the texts shows where they differ.
            assert block.text == printed, f"{name}: run python tests/support/page_examples.py and read the difference"


@pytest.mark.parametrize(
    ("printed", "same"),
    [
        ("T4 $3.66 ($1.54) 18%, 3 notes", True),
        ("T4 $3.67  ($1.54) 17%, 3 notes", True),
        ("T4 $3.7 ($1.54) 18%, 3 notes", True),
        ("T4 $3.68 ($1.54) 18%, 3 notes", False),
        ("T4 $3.66 ($1.54) 20%, 3 notes", False),
        ("T4 $3.66 ($1.54) 18%, 4 notes", False),
        ("T5 $3.66 ($1.54) 18%, 3 notes", False),
        ("T4 $3.66 ($1,540) 18%, 3 notes", False),
    ],
)
def test_pages_may_differ_in_the_last_digit_of_a_number_only(printed: str, same: bool) -> None:
    assert examples.agrees("T4 $3.66 ($1.54) 18%, 3 notes", printed) is same


ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "pricing" / "README.md"]
OTHER_TESTS = {"docs/tutorials/choose-vm-and-batch-size.md": "tests/integration/test_selection_tutorial.py"}
"""Pages whose blocks another test runs."""


def test_every_block_of_python_is_run_or_says_why_not() -> None:
    assert all((ROOT / page).exists() and (ROOT / test).exists() for page, test in OTHER_TESTS.items())
    for path in DOCUMENTS:
        name = path.relative_to(ROOT).as_posix()
        if name not in examples.PAGES and name not in OTHER_TESTS:
            blocks = examples.find_blocks(path.read_text(encoding="utf-8"))
            assert all(block.skipped for block in blocks if block.language == "python"), f"{name}: add it to PAGES"


# Blocks that are not run are checked without running them.

BLOCKS = [
    pytest.param(block, id=f"{path.relative_to(ROOT)}-{number}")
    for path in DOCUMENTS
    for number, block in enumerate(examples.find_blocks(path.read_text(encoding="utf-8")))
]
PROGRAM = get_command(app)
COMMAND = re.compile(r"(?:^|[;&|]|\bdo)\s*vmselect ([a-z][^;&|>\n]*)", re.MULTILINE)


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.values[0].language == "python"])
def test_python_on_pages_uses_names_and_arguments_that_exist(block: Any) -> None:
    for node in ast.walk(ast.parse(block.text)):
        call = node if isinstance(node, ast.Call) else None
        name = ast.unparse(call.func if call else node) if isinstance(node, ast.Call | ast.Attribute) else ""
        if not re.fullmatch(r"vs(\.\w+)+", name):
            continue
        parts = name.split(".")[1:]
        assert parts[0] in vs.__all__, name
        value = operator.attrgetter(".".join(parts))(vs)
        if call:
            parameters = inspect.signature(value).parameters
            if not any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
                assert {word.arg for word in call.keywords if word.arg} <= set(parameters), name


@pytest.mark.parametrize("block", [block for block in BLOCKS if block.values[0].language in ("", "bash")])
def test_commands_on_pages_have_options_that_exist(block: Any) -> None:
    for line in COMMAND.findall(block.text.replace("\\\n", " ")):
        words = shlex.split(line, comments=True)
        command: Any = PROGRAM
        while hasattr(command, "commands"):
            command = command.commands[words.pop(0)]
        options = {name: one for one in command.params for name in (*one.opts, *one.secondary_opts)}
        while words:
            name, _, value = words.pop(0).partition("=")
            if not name.startswith("-"):
                if command.name == "probe":
                    break  # what follows is the script's
                continue
            assert name in options, line
            if not value and not options[name].is_flag:
                words.pop(0)
