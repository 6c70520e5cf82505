"""Knees: the number of epochs from which starting is negligible, and the batch size from which steps stop scaling."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pandas as pd

from vmselect.findings import Finding
from vmselect.records.step_times import step_seconds
from vmselect.units import format_epoch_count, format_seconds

if TYPE_CHECKING:
    from vmselect.estimation.runtime import RuntimeModel
    from vmselect.ranking.estimates import MachineEstimate

STARTUP_TERMS = ("initialization", "first_iteration")
MAX_EPOCHS = 10_000_000
LITTLE_GAIN = 0.1
"""Relative increase of the examples per second by twice the batch below which steps stop scaling. By judgement."""
LONG_START = 0.1
"""Share of the time from which on initialization and first iteration are named. By judgement."""
NEGLIGIBLE = 0.01
KNEE_COLUMNS = ("machine", "batch_size", "examples_per_second", "gain_per_doubling", "knee")


def startup_seconds(runtime: RuntimeModel) -> float:
    """Seconds of initialization and first iteration; NaN if neither is known.

    Of times of whole epochs, it is the excess of the first epoch over the later ones that counts as first iteration.

    >>> from vmselect.estimation.runtime import RuntimeModel
    >>> by_epochs = {"initialization": (4.0, 0.0), "first_iteration": (9.0, 0.0), "steady_iterations": (-7.0, 7.0)}
    >>> startup_seconds(RuntimeModel("a", "robust", 0.9, by_epochs))
    6.0
    """
    seconds = [runtime.terms[name][0] for name in STARTUP_TERMS if name in runtime.terms]
    once, per_epoch = runtime.terms.get("steady_iterations", (0.0, 0.0))
    # The steady steps lack the place of the first one, or that of the first epoch if only whole epochs were measured.
    if "first_iteration" in runtime.terms and 0 < (1 - 1e-9) * per_epoch <= -once:
        seconds.append(max(once, -runtime.terms["first_iteration"][0]))
    return math.fsum(seconds) if seconds else math.nan


def epochs_until_negligible(runtime: RuntimeModel, share: float) -> int | None:
    """Smallest number of epochs of which initialization and first iteration are less than ``share``; None if none is.

    >>> from vmselect.estimation.runtime import RuntimeModel
    >>> model = RuntimeModel("a", "robust", 0.9, {"initialization": (20.0, 0.0), "steady_iterations": (0.0, 10.0)})
    >>> epochs_until_negligible(model, 0.01)
    199
    """
    start = startup_seconds(runtime)
    if not start < share * runtime.seconds(float(MAX_EPOCHS)):
        return None
    low, high = 0, MAX_EPOCHS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if start < share * runtime.seconds(float(middle)) else (middle, high)
    return high


def describe_start(runtime: RuntimeModel, epochs: float) -> list[Finding]:
    """A finding about a start that is a large part of ``epochs`` epochs: from how many on it is negligible."""
    start, total = startup_seconds(runtime), runtime.seconds(epochs)
    least = epochs_until_negligible(runtime, NEGLIGIBLE)
    if least is None or not start > LONG_START * total:
        return []
    message = (
        f"{runtime.title}: initialization and first iteration take {format_seconds(start)}, "
        f"{start / total:.0%} of the time of {format_epoch_count(epochs)}. They are below 1 % from {least:,} epochs on."
    )
    remedy = "Rank by the number of epochs that you will really train: for few, the machine that starts fastest wins."
    return [Finding("long-start", message, remedy, "info")]


def find_knee(rates: Mapping[int, float]) -> int | None:
    """The batch size from which on no larger one has 10 % more examples per second for each doubling; None without one.

    ``rates`` maps batch sizes to examples per second. A size that a larger one still overtakes is no knee.

    >>> find_knee({256: 1033.0, 512: 1137.0, 1024: 953.0}), find_knee({64: 100.0, 128: 180.0})
    (512, None)
    >>> find_knee({256: 3427.0, 512: 3259.0, 1024: 4501.0, 2048: 4561.0})
    1024
    """
    sizes = sorted(rates)
    for number, size in enumerate(sizes[:-1]):
        if all(gain_per_doubling(rates, size, larger) < LITTLE_GAIN for larger in sizes[number + 1 :]):
            return size
    return None


def gain_per_doubling(rates: Mapping[int, float], smaller: int, larger: int) -> float:
    """Relative increase of the examples per second for each doubling between two batch sizes."""
    return float((rates[larger] / rates[smaller]) ** (1 / math.log2(larger / smaller)) - 1)


def measure_rates(machines: Sequence[MachineEstimate]) -> dict[str, dict[int, float]]:
    """Examples per second by batch size of each machine that was probed at several batch sizes."""
    rates: dict[str, dict[int, list[float]]] = {}
    for machine in machines:
        others = {name: level for name, level in machine.factors.items() if name != "batch_size"}
        name = ", ".join([machine.instance_type, *(f"{key} {level}" for key, level in others.items())])
        for profile in machine.records:
            seconds = step_seconds(profile)
            if seconds and profile.batch_size:
                rates.setdefault(name, {}).setdefault(profile.batch_size, []).append(profile.batch_size / seconds)
    means = {name: {size: math.fsum(v) / len(v) for size, v in sizes.items()} for name, sizes in rates.items()}
    return {name: dict(sorted(sizes.items())) for name, sizes in means.items() if len(sizes) > 1}


def tabulate_knees(machines: Sequence[MachineEstimate]) -> pd.DataFrame:
    """A row per machine and batch size: examples per second, gain per doubling to the next size, and the knee."""
    rows = []
    for name, rates in measure_rates(machines).items():
        sizes, knee = list(rates), find_knee(rates)
        for size, larger in zip(sizes, [*sizes[1:], None], strict=True):
            gain = math.nan if larger is None else gain_per_doubling(rates, size, larger)
            rows.append((name, size, rates[size], gain, size == knee))
    return pd.DataFrame(rows, columns=list(KNEE_COLUMNS))


def describe_knee(machines: Sequence[MachineEstimate], instance_type: str) -> list[Finding]:
    """A finding that names the knee of ``instance_type``, if it was probed at several batch sizes and reaches one."""
    findings = []
    for name, rates in measure_rates([m for m in machines if m.instance_type == instance_type]).items():
        knee = find_knee(rates)
        if knee is not None:
            larger = min(size for size in rates if size > knee)
            gain = gain_per_doubling(rates, knee, larger)
            message = (
                f"{name}: from batch size {knee} on, steps stop scaling: twice the batch changes the examples per "
                f"second by {gain:+.0%} ({rates[knee]:.4g} at {knee}, {rates[larger]:.4g} at {larger})."
            )
            remedy = f"A batch size above {knee} saves little time here, and may need more epochs."
            findings.append(Finding("batch-size-knee", message, remedy, "info"))
    return findings
