"""Optional packages: they fail when used, by name, with the command that installs them."""

from __future__ import annotations

import importlib
from types import ModuleType

from vmselect.errors import MissingPackageError


def require(module: str, *, extra: str, needed_by: str) -> ModuleType:
    """Import ``module``, or say which extra brings it and what needed it.

    >>> require("json", extra="plots", needed_by="charts").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise MissingPackageError(
            f"{needed_by} needs the package {module!r}, which is not installed ({missing}). "
            f'Install it with: pip install "vmselect[{extra}]"'
        ) from missing
