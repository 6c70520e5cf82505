"""Import of optional packages, and import of the public names of a package when they are first used."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

from vmselect.errors import MissingPackageError


def require(module: str, *, extra: str, needed_by: str) -> ModuleType:
    """Import and return the optional package ``module``. If it is missing, the error names the extra to install.

    ``needed_by`` is the feature that needs the package, as the subject of the message.
    """
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise MissingPackageError(
            f"{needed_by} needs the package {module!r}, which is not installed ({missing}). "
            f'Install it with: pip install "vmselect[{extra}]"'
        ) from missing


def load_on_use(package: str, homes: Mapping[str, Sequence[str]]) -> tuple[list[str], Callable[[str], Any]]:
    """Return the public names of ``package``, and a ``__getattr__`` that imports each of them on first use.

    ``homes`` maps each module to the public names that it defines. A name that equals the end of its module's name is
    that module itself, a namespace.
    """
    home = {name: module for module, names in homes.items() for name in names}

    def load(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(home[name])
        value = module if home[name] == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return sorted(home), load
