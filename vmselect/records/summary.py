"""Profiles as text and as tables for notebooks.

The tables are made here and not in the report package, because that would import pandas and all charts into a training
program that prints its profile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from vmselect.findings import findings_html, table_html
from vmselect.records.step_times import step_seconds
from vmselect.units import format_bytes, format_seconds, list_all, printable

if TYPE_CHECKING:
    from vmselect.records.base import Environment
    from vmselect.records.training import Profile
    from vmselect.records.usage import MeasuredEnergy

METHOD_TIMES = {
    "init_seconds": "initialization",
    "first_iteration_seconds": "first step",
    "second_iteration_seconds": "second step",
    "mean_2_10_seconds": "mean of steps 2-10",
    "first_validation_seconds": "first validation",
    "second_validation_seconds": "second validation",
    "first_epoch_seconds": "first epoch",
    "second_epoch_seconds": "second epoch",
}
"""Properties of a profile that contain the times of the dissertation's equations, and their printed names."""

LIST_COLUMNS = ("machine", "model", "batch size", "steps per epoch", "seconds per step", "outcome")
"""Columns of a table of several profiles. A column without any value is not shown."""

MAX_LISTED = 100


def summarize(profile: Profile) -> dict[str, str]:
    """Names and printable values of the main fields of ``profile``, without unknown values."""
    setup, timeline, environment, usage = profile.setup, profile.timeline, profile.environment, profile.usage
    backend, wait, runs = environment.backend, timeline.input_wait, len(timeline.run_seconds)
    times = {title: _format(getattr(profile, name)) for name, title in METHOD_TIMES.items()}
    before, after = dict([*times.items()][:4]), dict([*times.items()][4:])
    busy = None if usage is None else usage.mean("usable_cpu_share")
    rows: dict[str, object] = {
        "machine": profile.instance_type or "unknown",
        "machine from": profile.placement.instance_type.source if profile.placement.instance_type else None,
        "region": profile.region,
        "model": setup.model,
        "batch size": setup.batch_size,
        "steps per epoch": setup.steps_per_epoch,
        "backend": f"{backend} {environment.versions.get(backend, '')}".strip() if backend else backend,
        "cores": environment.usable_cores or environment.cpu_cores,
        "GPUs": f"{len(environment.gpus)} x {environment.gpus[0].name}" if environment.gpus else None,
        **before,
        "seconds per step": _format(step_seconds(profile)),
        **after,
        "waits for data": None if wait is None else f"{wait.share:.0%} of the steps' time",
        "processors": None if busy is None else f"{busy:.0%} busy in steady steps",
        "measured power": _format_power(profile.energy),
        "probe took": _format(timeline.wall_seconds),
        "whole training": _join(
            _format(profile.total_seconds),
            f"mean of {runs} runs" if runs > 1 else None,
            f"{setup.epochs} epochs" if runs and setup.epochs else None,
        ),
        "peak memory": format_bytes(environment.peak_memory_bytes) if environment.peak_memory_bytes else None,
        "peak GPU memory": _format_gpu_memory(environment),
        "outcome": profile.outcome.replace("_", " ") + (f": {profile.detail}" if profile.detail else ""),
        **{name: f"{value:g}" for name, value in profile.metrics.items()},
    }
    return {printable(name): printable(str(value)) for name, value in rows.items() if value is not None}


def to_text(profile: Profile) -> str:
    """The main fields of ``profile``, one per line, followed by its findings."""
    rows = summarize(profile)
    width = max(len(name) for name in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows.items()]
    return "\n".join(lines + [f"! {printable(str(finding))}" for finding in profile.findings])


def to_html(profile: Profile) -> str:
    """The main fields of ``profile`` as an HTML table, followed by its findings."""
    return table_html(summarize(profile).items()) + findings_html(profile.findings)


def list_html(profiles: Sequence[Profile]) -> str:
    """An HTML table with a row per profile, of at most :data:`MAX_LISTED` profiles."""
    listed = profiles[:MAX_LISTED]
    summaries = [summarize(profile) for profile in listed]
    columns = [name for name in LIST_COLUMNS if any(name in row for row in summaries)]
    rows = (
        [*(row.get(name, "") for name in columns), sum(finding.severity == "warning" for finding in profile.findings)]
        for row, profile in zip(summaries, listed, strict=True)
    )
    more = f"<p>The first {MAX_LISTED} of {len(profiles):,} profiles.</p>" if len(profiles) > MAX_LISTED else ""
    return table_html(rows, (*columns, "warnings")) + more


def _format_power(energy: MeasuredEnergy | None) -> str | None:
    watts = energy.watts if energy else None
    if energy is None or watts is None:
        return None
    return f"{watts:.3g} W in steady steps ({list_all([part.name for part in energy.parts])})"


def _format(seconds: float | None) -> str | None:
    return None if seconds is None else format_seconds(seconds)


def _format_gpu_memory(environment: Environment) -> str | None:
    peak, details = environment.peak_gpu_memory_bytes, environment.gpu_memory
    if not peak:
        return None
    reserved = details.reserved_bytes if details else None
    sampled = "all programs, sampled" if details and details.source == "nvml" else None
    return _join(format_bytes(peak), f"{format_bytes(reserved)} reserved" if reserved else None, sampled)


def _join(*parts: str | None) -> str | None:
    """All ``parts`` that are not None, separated by commas; None if there are none."""
    return ", ".join(filter(None, parts)) or None
