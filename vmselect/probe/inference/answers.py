"""When an answer is there: frameworks hand out answers that they are still computing."""

from __future__ import annotations

import sys
from typing import Any


def settle(answer: Any) -> None:
    """Wait until ``answer`` has been computed, whichever framework computes it."""
    jax, torch = sys.modules.get("jax"), sys.modules.get("torch")
    ready = getattr(jax, "block_until_ready", None)
    if ready is not None:
        ready(answer)
    cuda = getattr(torch, "cuda", None)
    if cuda is not None and cuda.is_initialized():
        cuda.synchronize()
    numpy = getattr(answer, "numpy", None)
    if numpy is not None and type(answer).__module__.startswith("tensorflow"):
        numpy()  # an eager tensor on a GPU is there once it can be copied
