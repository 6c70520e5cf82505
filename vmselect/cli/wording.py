"""What the library says, in the words of the command line: its errors and findings name arguments of Python."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Any

import typer

PHRASES = {
    "catalog.with_offers": "--own-prices FILE",
    "with_offers": "--own-prices FILE",
    "interruptions= with a rate, a checkpoint interval and a restart time": (
        "--interruptions-per-hour, --checkpoint-minutes and --restart-minutes"
    ),
    "epochs= (on the command line --epochs)": "--epochs",
    "phases=[(epochs, profile), ...]": "--phase EPOCHS:PROFILE for each",
    "phases=": "--phase",
    "IterationProbe(batch_size=...)": "vmselect probe --batch-size",
    "IterationProbe(steps=20)": "vmselect probe --steps 20",
    "steps_per_epoch= to fit": "steps_per_epoch= to fit",  # of the script
    "stop=False": "--watch",
    "validations=2": "--validations 2",
    "skip_bad_rows=True": "them through vmselect.Catalog.load in Python, with skip_bad_rows=True,",
    "vmselect.estimate": "vmselect estimate",
    "vmselect.select": "vmselect select",
}
"""What no option is called like."""


def in_options(text: str) -> str:
    """A message of the library in the words of the command line: ``batch_size="all"`` is ``--batch-size all``.

    >>> in_options('Pass region= or batch_size="all"; budget_usd must be a number above 0, not -1.')
    'Pass --region or --batch-size all; --budget-usd must be a number above 0, not -1.'
    >>> in_options("Probe with validations=2, or add a price with with_offers.")
    'Probe with --validations 2, or add a price with --own-prices FILE.'
    """
    return _arguments().sub(_name_option, text)


def _name_option(found: re.Match[str]) -> str:
    if found["phrase"]:
        return PHRASES[found["phrase"]]
    value = (found["value"] or "").strip('"')
    option = f"--{(found['given'] or found['subject']).replace('_', '-')}"
    return f"{option} {value}" if value and value != "True" else option


@functools.cache
def _arguments() -> re.Pattern[str]:
    """Arguments of Python that options stand for.

    A name with a number is a factor of a trial or a group (``batch_size=64``), and may be part of a path.
    """
    from vmselect.cli import app

    names = "|".join(sorted(set(_list_options(typer.main.get_command(app))), key=len, reverse=True))
    phrases = "|".join(re.escape(phrase) for phrase in sorted(PHRASES, key=len, reverse=True))
    value = r'(?P<value>True|"[\w-]+")'
    return re.compile(
        rf"(?<![\w/.=-])(?:(?P<phrase>{phrases})(?!\w)"
        rf"|(?P<given>{names})=(?:{value}(?![\w/])|(?=[\s,.;:)]|$))"
        rf"|(?P<subject>{names})(?= must be | is empty))"
    )


def _list_options(command: Any) -> Iterator[str]:
    """The options of a command and of those below it, as Python writes their names."""
    for one in getattr(command, "commands", {}).values():
        yield from _list_options(one)
    for parameter in command.params:
        for option in parameter.opts if parameter.param_type_name == "option" else ():
            if option.startswith("--"):
                yield option.removeprefix("--").replace("-", "_")
