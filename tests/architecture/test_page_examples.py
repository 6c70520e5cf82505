"""Pages print what they say they print."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SUPPORT = Path(__file__).parents[1] / "support" / "page_examples.py"
spec = importlib.util.spec_from_file_location("page_examples", SUPPORT)
assert spec is not None
assert spec.loader is not None
examples = importlib.util.module_from_spec(spec)
spec.loader.exec_module(examples)


@pytest.mark.parametrize("name", examples.PAGES)
def test_a_page_prints_what_it_says(name: str) -> None:
    ran = list(examples.run_page(name))
    assert ran, "the page has no block with output"
    for block, printed in ran:
        assert block.text == printed, f"{name}: run python tests/support/page_examples.py and read the difference"
