"""Why a training script failed before its first training, as far as its error shows: what to do about it."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from traceback import extract_tb

PACKAGES = {
    "keras": "keras tensorflow",
    "tensorflow": "tensorflow",
    "jax": "jax",
    "torch": "torch",
    "lightning": "lightning",
    "transformers": "transformers[torch]",
}
"""Maps each framework that a script may import to the arguments of ``pip install`` that install it."""

DOWNLOADS = frozenset({
    "URLError", "gaierror", "ConnectionRefusedError", "ConnectionError", "ConnectError", "ConnectTimeout",
    "MaxRetryError", "LocalEntryNotFoundError", "OfflineModeIsEnabled",
})  # fmt: skip
"""Classes of errors without a connection to a server: of Python, requests, urllib3, httpx and huggingface_hub.

Python's own ConnectionError is none of them: workers of a loader that end raise it, too.
"""
DEMANDS_GPU = re.compile(r"\b(?:CUDA|NVIDIA|NCCL|NVML|accelerator device)\b|(?<!-)\bGPUs?\b", re.IGNORECASE)
"""What errors of torch, TensorFlow and scripts contain that demand of a GPU what the CPU cannot do for it."""
ASKS_GPU = re.compile(r"\btorch\.(?:cuda|accelerator)\.|\bcuda\.\w+\(|\.is_cuda\b")
"""What a line of a script contains that asks for more than tensors, if its error does not say so."""


def explain_failure(script: str, error: BaseException, *, describes: bool = False) -> str | None:
    """A line with the remedy for the ``error`` that ended ``script``; None if the traceback has to be enough.

    Without trained weights and without a GPU a training cannot be measured, but a script that ``describes`` one can
    do without them.
    """
    # What lacks a name is there, in another version or as a file of the user, and the traceback names it.
    if isinstance(error, ModuleNotFoundError) or (isinstance(error, ImportError) and error.name is None):
        package = (error.name or "").partition(".")[0]
        if isinstance(error, ModuleNotFoundError) and package in PACKAGES:
            fact = f"{script} imports {package}, which is not installed in {sys.prefix}"
            return f"{fact}. Run: pip install {_quote(PACKAGES[package])}"
        return f"Install what {script} imports in the environment of vmselect ({sys.prefix}), such as with pip."
    if not describes:
        return None
    kinds = {kind for part in _chain(error) for kind in type(part).__mro__} - {ConnectionError}
    if any(kind.__name__ in DOWNLOADS for kind in kinds):
        return (
            f"{script} downloads something, and there was no connection. A description needs no trained weights: build "
            "the model without them, as with weights=None or from_config(config), or run the script where it can "
            "download."
        )
    # Files that are not there are missing on every computer.
    if not isinstance(error, OSError) and (DEMANDS_GPU.search(str(error)) or ASKS_GPU.search(_failed_line(error))):
        return demand_gpu(script)
    return None


def demand_gpu(script: str) -> str:
    """The remedy for a ``script`` that ends without a GPU."""
    return (
        f"{script} needs a GPU for more than its tensors. Let it do without one (if torch.cuda.is_available(): ...), "
        "call vmselect.describe(model, batch_size=..., inputs=...) in it, or run vmselect probe where there is a GPU."
    )


def _failed_line(error: BaseException) -> str:
    """The line of the program of the user in which ``error`` was raised, or from which a library was called."""
    lines = [frame.line or "" for frame in extract_tb(error.__traceback__) if "site-packages" not in frame.filename]
    return lines[-1] if lines else ""


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """The ``error`` and those that led to it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _quote(packages: str) -> str:
    return f'"{packages}"' if "[" in packages else packages
