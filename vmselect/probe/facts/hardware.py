"""What the machine is made of, asked of the operating system and the GPU driver."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path
from typing import Any

from vmselect.records.base import Gpu


def read_machine() -> dict[str, Any]:
    """The hardware fields of a profile's environment."""
    import psutil

    return {
        "operating_system": platform.platform()[:200],
        "cpu_model": read_cpu_model(),
        "cpu_cores": os.cpu_count(),
        "usable_cores": len(usable_cores()),
        "memory_bytes": int(psutil.virtual_memory().total),
        "gpus": read_gpus(),
    }


def read_cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """The processor's name, or None where the system does not report it."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        text = ""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "Hardware") and value.strip():
            return value.strip()[:200]
    return platform.processor()[:200] or None


def usable_cores() -> frozenset[int]:
    """The cores that this process may run on, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def read_peak_memory() -> int | None:
    """The most main memory that this process has held so far, in bytes."""
    try:
        import resource
    except ImportError:
        return None  # not on Windows
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def open_nvml() -> Any:
    """NVIDIA's management library, initialized; None where the library or the driver is missing."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError, OSError):
        return None
    return pynvml


def read_gpus() -> tuple[Gpu, ...]:
    """Every NVIDIA GPU of the machine as its driver describes it; none where there is no driver."""
    pynvml = open_nvml()
    if pynvml is None:
        return ()
    try:
        driver = query_nvml(pynvml, "nvmlSystemGetDriverVersion")
        count = query_nvml(pynvml, "nvmlDeviceGetCount") or 0
        return tuple(gpu for gpu in (_read_gpu(pynvml, index, driver) for index in range(count)) if gpu)
    finally:
        query_nvml(pynvml, "nvmlShutdown")


def _read_gpu(pynvml: Any, index: int, driver: Any) -> Gpu | None:
    handle = query_nvml(pynvml, "nvmlDeviceGetHandleByIndex", index)
    if handle is None:
        return None
    memory = query_nvml(pynvml, "nvmlDeviceGetMemoryInfo", handle)
    milliwatts = query_nvml(pynvml, "nvmlDeviceGetPowerManagementLimit", handle)
    return Gpu(
        name=_text(query_nvml(pynvml, "nvmlDeviceGetName", handle)) or "unknown GPU",
        memory_bytes=None if memory is None else int(memory.total),
        driver=_text(driver),
        power_limit_watts=None if milliwatts is None else milliwatts / 1000,
    )


def query_nvml(pynvml: Any, function: str, *arguments: Any) -> Any:
    """The result of an NVML function, or None: virtual GPUs and old drivers do not support all of them."""
    try:
        return getattr(pynvml, function)(*arguments)
    except (pynvml.NVMLError, AttributeError, OSError):
        return None


def _text(value: Any) -> str | None:
    # Older bindings return bytes.
    return (value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))[:200] if value else None
