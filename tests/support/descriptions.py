"""Descriptions for tests: a network like ResNet-50, without a framework.

>>> make_description(batch_size=64).work.batch_size
64
"""

from __future__ import annotations

from typing import Any

from vmselect.records import Profile, Setup, Timeline
from vmselect.records.work import Operation, Operations, Work

STAGES = ((56, 64, 3), (28, 128, 4), (14, 256, 6), (7, 512, 3))
"""Image size, channels and number of blocks of each stage."""


def make_work(batch_size: int = 64, **facts: Any) -> Work:
    """The operations of a step of a residual network at ``batch_size``; ``facts`` are other fields."""
    rows: list[Operation] = []

    def convolve(pixels: int, inner: int, outer: int, kernel: int, count: int) -> None:
        m, k = batch_size * pixels**2, inner * kernel**2
        flops, numbers = 2.0 * m * outer * k, 4.0 * (m * inner + m * outer + k * outer)
        rows.append(Operation("conv", flops, numbers, m, outer, k, 1, count))
        rows.append(Operation("conv", flops, numbers, m, k, outer, 1, count))
        rows.append(Operation("convw", flops, numbers, outer, k, m, 1, count))
        for kind, passes in (("norm", 3), ("norm", 5), ("elem", 2), ("elem", 3)):
            rows.append(Operation(kind, 1.0 * m * outer, 4.0 * passes * m * outer, 0, 0, 0, 1, count))  # type: ignore[arg-type]

    convolve(112, 3, 64, 7, 1)
    for pixels, channels, blocks in STAGES:
        convolve(pixels, 4 * channels, channels, 1, blocks)
        convolve(pixels, channels, channels, 3, blocks)
        convolve(pixels, channels, 4 * channels, 1, blocks)
    known = {"parameters": 25_600_000, "parameter_tensors": 161, "optimizer": "adam", "method": "given"}
    return Work(**{"batch_size": batch_size, "operations": Operations.of(rows), **known, **facts})


def make_description(
    batch_size: int = 64, *, examples: int | None = 50_000, work: Work | None = None, **setup: Any
) -> Profile:
    """A profile without times, as ``vs.describe`` makes it."""
    steps = {} if examples is None else {"examples": examples, "steps_per_epoch": -(-examples // batch_size)}
    known = {"model": "net", "batch_size": batch_size, "batch_size_source": "given", **steps}
    described = make_work(batch_size) if work is None else work
    return Profile(outcome="described", setup=Setup(**{**known, **setup}), timeline=Timeline(), work=described)
