"""Counters of NVIDIA GPUs, read from their driver (NVML) at every sample.

A counter that a card does not support is not read again. A card that is lost is skipped, and the others go on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from vmselect.probe.facts.hardware import open_nvml, query_nvml

HEAT = 0x20 | 0x40
"""Bits of the reasons why clocks are held down: slowed in software, in hardware, because of heat."""
POWER = 0x04 | 0x80
"""The same because of power: the power cap, the power brake."""
HARDWARE, ITS_CAUSES = 0x08, HEAT | 0x80
"""The hardware's slowdown: because of heat or power, which have bits of their own, or of neither."""

GONE = ("NVMLError_GpuIsLost", "NVMLError_Uninitialized", "NVMLError_InvalidArgument", "NVMLError_NotFound")


class GpuReader:
    """Reads every card of the machine; nothing where there is no driver. :meth:`close` lets go of the driver."""

    def __init__(self) -> None:
        self._nvml: Any = open_nvml()
        self._unsupported: set[tuple[int, str]] = set()
        self._cards: dict[int, Any] = {}
        for index in range((self._nvml and query_nvml(self._nvml, "nvmlDeviceGetCount")) or 0):
            card = query_nvml(self._nvml, "nvmlDeviceGetHandleByIndex", index)
            if card is not None:
                self._cards[index] = card

    def read(self, seconds: float) -> dict[str, float]:
        """Every quantity of every card now."""
        values: dict[str, float] = {}
        for index in list(self._cards):
            values |= {f"gpu{index}_{name}": value for name, value in self._read_card(index).items()}
        return values

    def close(self) -> None:
        """Let go of the driver; later readings are empty."""
        if self._nvml is not None:
            query_nvml(self._nvml, "nvmlShutdown")
        self._nvml, self._cards = None, {}

    def _read_card(self, index: int) -> dict[str, float]:
        values: dict[str, float] = {}
        for question, name, shape in _QUESTIONS:
            answer = self._ask(index, question, name)
            if answer is not None:
                values[name] = shape(answer)
        reasons = self._ask(index, _reasons, "reasons")
        if reasons is not None:
            values["throttled_by_heat_share"] = float(bool(reasons & HEAT))
            values["throttled_by_power_share"] = float(bool(reasons & POWER))
            values["throttled_by_hardware_share"] = float(bool(reasons & HARDWARE and not reasons & ITS_CAUSES))
        return values

    def _ask(self, index: int, question: Callable[[Any, Any], Any], name: str) -> Any:
        if index not in self._cards or (index, name) in self._unsupported:
            return None
        try:
            return question(self._nvml, self._cards[index])
        except (self._nvml.NVMLError, AttributeError, OSError) as refusal:
            if type(refusal).__name__ in GONE:
                del self._cards[index]
            else:  # not supported, no such function, no permission
                self._unsupported.add((index, name))
            return None


def _either(nvml: Any, card: Any, names: tuple[str, str], *arguments: Any) -> Any:
    """The answer to a question that has two names, of which a driver may know only one."""
    try:
        return getattr(nvml, names[0])(card, *arguments)
    except (AttributeError, nvml.NVMLError) as refusal:
        if type(refusal).__name__ in GONE:
            raise
    return getattr(nvml, names[1])(card, *arguments)


def _reasons(nvml: Any, card: Any) -> Any:
    names = ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons")
    return _either(nvml, card, names)


def _temperature(nvml: Any, card: Any) -> Any:
    names = ("nvmlDeviceGetTemperature", "nvmlDeviceGetTemperatureV")
    return _either(nvml, card, names, nvml.NVML_TEMPERATURE_GPU)


_QUESTIONS: tuple[tuple[Callable[[Any, Any], Any], str, Callable[[Any], float]], ...] = (
    (lambda nvml, card: nvml.nvmlDeviceGetUtilizationRates(card).gpu, "busy_share", lambda percent: percent / 100),
    (lambda nvml, card: nvml.nvmlDeviceGetMemoryInfo(card).used, "memory_used_bytes", float),
    (lambda nvml, card: nvml.nvmlDeviceGetPowerUsage(card), "power_watts", lambda milliwatts: milliwatts / 1000),
    (_temperature, "temperature_celsius", float),
    (lambda nvml, card: nvml.nvmlDeviceGetClockInfo(card, nvml.NVML_CLOCK_SM), "clock_megahertz", float),
    (lambda nvml, card: nvml.nvmlDeviceGetClockInfo(card, nvml.NVML_CLOCK_MEM), "memory_clock_megahertz", float),
)
