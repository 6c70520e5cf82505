"""The user's command: split once, completed per trial, never interpreted by a shell."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from vmselect._checks import show
from vmselect._files import has_file
from vmselect.errors import PlanError

PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
SHELLS = {"sh", "bash", "dash", "zsh", "ksh", "fish"}
_OPERATORS = "|&;<>`"
_LONGEST = 4096


def split_command(command: Any) -> tuple[str, ...]:
    """The arguments of a command: a text is split as a shell would, a list is taken as it is.

    >>> split_command("python train.py --name 'two words' --batch {batch_size}")
    ('python', 'train.py', '--name', 'two words', '--batch', '{batch_size}')
    """
    if isinstance(command, str):
        _refuse_shell_syntax(command)
        try:
            arguments = tuple(shlex.split(command))
        except ValueError as unfinished:
            raise PlanError(f"The command {show(command)} cannot be split: {unfinished}. Close the quote.") from None
    elif isinstance(command, Sequence) and all(isinstance(part, str) for part in command):
        arguments = tuple(command)
    else:
        raise PlanError(f"The command must be a text or a list of texts, not {show(command)}.")
    if not arguments or not arguments[0].strip():
        raise PlanError("The command is empty. Give the command that trains, such as 'python train.py'.")
    for argument in arguments:
        if "\0" in argument or len(argument) > _LONGEST:
            raise PlanError(f"The argument {show(argument)} holds a NUL or is too long. Put it into a file.")
    if PurePath(arguments[0]).name in SHELLS and (named := _in_shell_text(arguments)):
        raise PlanError(
            f"{{{named}}} stands inside a text that {arguments[0]} would read as a program. "
            f'Write "$VMSELECT_FACTOR_{named.upper()}" there, in double quotes.'
        )
    return arguments


def placeholders(texts: Iterable[str]) -> list[str]:
    """The names in braces."""
    return [name for text in texts for name in PLACEHOLDER.findall(text)]


def fill(text: str, factors: Mapping[str, Any]) -> str:
    """``text`` with each ``{factor}`` replaced by its level; other braces stay.

    >>> fill('--batch={batch_size} {"a": 1}', {"batch_size": 64})
    '--batch=64 {"a": 1}'
    """
    return PLACEHOLDER.sub(lambda found: as_text(factors[found[1]]), text)


def as_text(level: Any) -> str:
    """A level as an argument.

    >>> [as_text(level) for level in (64, 0.001, True, "T4")]
    ['64', '0.001', 'true', 'T4']
    """
    return str(level).lower() if isinstance(level, bool) else str(level)


def check_text(what: str, text: str) -> str:
    """A level or a name without characters that a shell would interpret."""
    bad = next((mark for mark in ("$(", "${", *_OPERATORS) if mark in text), None)
    if bad is None and not text.isprintable():
        bad = "a control character"
    if bad is not None or len(text) > _LONGEST:
        raise PlanError(
            f"{what} {show(text)} holds {bad or 'too many characters'}. Values must be plain text; "
            "put anything else into a file and name the file."
        )
    return text


def script_of(arguments: Sequence[str]) -> str | None:
    """The script that a command names, where it names one by its path."""
    for argument in arguments:
        if argument in ("-m", "-c"):
            return None
        if argument.endswith((".py", ".sh")) and not argument.startswith("-"):
            return argument
    return None


def check_script(arguments: Sequence[str], folder: Path) -> None:
    """Raise where the command's script is not in ``folder``, from which it will run."""
    script = script_of(arguments)
    if script is not None and not has_file(folder / script):
        raise PlanError(f"The script {script} is not in {folder}, or is not readable. Start the sweep in its folder.")


def _in_shell_text(arguments: Sequence[str]) -> str | None:
    for option, text in itertools.pairwise(arguments):
        if re.fullmatch(r"-\w*c", option) and (found := PLACEHOLDER.search(text)):
            return found[1]
    return None


def _refuse_shell_syntax(command: str) -> None:
    quote = ""
    for position, mark in enumerate(command):
        if quote:
            quote = "" if mark == quote else quote
            continue
        if mark in "'\"":
            quote = mark
            continue
        variable = mark == "$" and re.match(r"\$[A-Za-z_({]", command[position:])
        if mark in _OPERATORS or mark in "\n\r" or variable:
            raise PlanError(
                f"The command holds {mark!r}, which only a shell understands, and no shell reads it. "
                "Quote it where it belongs to an argument, or put the line into a script."
            )
