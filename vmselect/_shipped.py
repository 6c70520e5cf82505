"""Where the data that ship with the package lie."""

from __future__ import annotations

from pathlib import Path

from vmselect.errors import CatalogError


def pricing_folder() -> Path:
    """Where the shipped prices lie: inside an installed package, or beside it in a checkout."""
    package = Path(__file__).resolve().parent
    for folder in (package / "_pricing", package.parent / "pricing"):
        if (folder / "manifest.json").is_file():
            return folder
    raise CatalogError("The prices that ship with vmselect are not there. Install vmselect again.")
