"""Docstrings as Markdown: roles become code, examples and literal blocks become fenced blocks."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`~?([^`]+)`")


class Markdown(griffe.Extension):
    """Rewrites every docstring before mkdocstrings reads it."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of ``obj``."""
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)


def to_markdown(text: str) -> str:
    """A docstring of this package as Markdown.

    >>> to_markdown("See :class:`~vmselect.Catalog`::\\n\\n    code()")
    'See `vmselect.Catalog`:\\n\\n```text\\ncode()\\n```'
    >>> to_markdown(">>> 1 + 1\\n2")
    '```pycon\\n>>> 1 + 1\\n2\\n```'
    """
    blocks = re.split(r"\n[ \t]*\n", ROLE.sub(r"`\1`", text).strip("\n"))
    found: list[str] = []
    literal = ""
    for block in blocks:
        if literal and block.startswith(" "):
            # Blank lines inside a literal block have split it.
            previous = found.pop().removesuffix("\n```") + "\n\n" if found and literal == "open" else "```text\n"
            found.append(previous + _dedent(block) + "\n```")
            literal = "open"
            continue
        literal = ""
        if block.lstrip().startswith(">>>"):
            found.append(f"```pycon\n{_dedent(block)}\n```")
        elif block.endswith("::"):
            literal = "expected"
            if block != "::":
                found.append(block.removesuffix(":"))
        else:
            found.append(block)
    return "\n\n".join(found)


def _dedent(block: str) -> str:
    lines = block.splitlines()
    margin = min(len(line) - len(line.lstrip()) for line in lines)
    return "\n".join(line[margin:] for line in lines)
