"""Where pages and charts are written to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vmselect.errors import ArgumentError


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Make the folder of ``target``; what the file system refuses inside is said by name, with the remedy."""
    try:
        if target.is_dir():
            raise ArgumentError(f"{target} is a folder. Give the path of a file, such as {target / 'report.html'}.")
        target.parent.mkdir(parents=True, exist_ok=True)
        yield
    except OSError as refused:
        raise ArgumentError(
            f"{target} cannot be written ({refused.strerror or refused}). Give a path where you may write."
        ) from refused
