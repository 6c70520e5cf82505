"""A profile as a person reads it: a few lines of text, or a small table in a notebook."""

from __future__ import annotations

import html
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from vmselect.findings import findings_html
from vmselect.units import format_bytes, format_seconds, printable

if TYPE_CHECKING:
    from vmselect.records.training import Profile


def summarise(profile: Profile) -> dict[str, str]:
    """Name to printable value, in reading order; what is unknown is left out."""
    setup, timeline, environment = profile.setup, profile.timeline, profile.environment
    rows: dict[str, str | None] = {
        "machine": profile.instance_type or "unknown",
        "learnt from": profile.placement.instance_type.source if profile.placement.instance_type else None,
        "region": profile.region,
        "model": setup.model,
        "batch size": _text(setup.batch_size),
        "steps per epoch": _text(setup.steps_per_epoch),
        "backend": _backend(profile),
        "cores": _text(environment.usable_cores or environment.cpu_cores),
        "GPUs": f"{len(environment.gpus)} x {environment.gpus[0].name}" if environment.gpus else None,
        "initialization": _seconds(timeline.init_seconds),
        "first step": _first_step(profile),
        "steady step": _steady_step(profile),
        "validations": ", ".join(format_seconds(v.seconds) for v in timeline.validations[:3]) or None,
        "epochs": ", ".join(format_seconds(e.seconds) for e in timeline.epochs[:3] if e.complete) or None,
        "waits for data": _input_wait(profile),
        "processors": _processors(profile),
        "probe took": _seconds(timeline.wall_seconds),
        "whole training": _seconds(profile.total_seconds),
        "peak memory": format_bytes(environment.peak_memory_bytes) if environment.peak_memory_bytes else None,
        "outcome": profile.outcome.replace("_", " ") + (f": {profile.detail}" if profile.detail else ""),
    }
    rows.update({name: f"{value:g}" for name, value in profile.metrics.items()})
    return {printable(name): printable(value) for name, value in rows.items() if value is not None}


def as_text(profile: Profile) -> str:
    """The summary as aligned lines, then the findings."""
    rows = summarise(profile)
    width = max(len(name) for name in rows)
    lines = [f"{name:<{width}}  {value}" for name, value in rows.items()]
    return "\n".join(lines + [f"! {printable(str(finding))}" for finding in profile.findings])


def as_html(profile: Profile) -> str:
    """The summary as an HTML table; everything in it is escaped."""
    left = 'style="text-align:left"'
    rows = "".join(
        f"<tr><th {left}>{html.escape(name)}</th><td {left}>{html.escape(value)}</td></tr>"
        for name, value in summarise(profile).items()
    )
    return f"<table><tbody>{rows}</tbody></table>{findings_html(profile.findings)}"


COLUMNS = ("machine", "model", "batch size", "steps per epoch", "steady step", "outcome")
"""What a table of several profiles shows of each, if any has it."""

MOST_ROWS = 100


def table_html(profiles: Sequence[Profile], *, most: int = MOST_ROWS) -> str:
    """A row for each profile, as HTML; everything in it is escaped."""
    summaries = [summarise(one) for one in profiles[:most]]
    shown = [name for name in COLUMNS if any(name in row for row in summaries)]
    left = 'style="text-align:left"'
    head = "".join(f"<th {left}>{name}</th>" for name in (*shown, "warnings"))
    body = "".join(
        "<tr>"
        + "".join(f"<td {left}><bdi>{html.escape(row.get(name, ''))}</bdi></td>" for name in shown)
        + f"<td>{sum(finding.severity == 'warning' for finding in one.findings) or ''}</td></tr>"
        for row, one in zip(summaries, profiles, strict=False)
    )
    more = f"<p>The first {most} of {len(profiles):,} profiles.</p>" if len(profiles) > most else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _seconds(value: float | None) -> str | None:
    return None if value is None else format_seconds(value)


def _backend(profile: Profile) -> str | None:
    name = profile.environment.backend
    version = profile.environment.versions.get(name or "")
    return f"{name} {version}" if name and version else name


def _input_wait(profile: Profile) -> str | None:
    wait = profile.timeline.input_wait
    return None if wait is None else f"{wait.share:.0%} of the steps' time"


def _processors(profile: Profile) -> str | None:
    busy = None if profile.usage is None else profile.usage.mean("usable_cpu_share")
    return None if busy is None else f"{busy:.0%} busy in steady steps"


def _first_step(profile: Profile) -> str | None:
    first = profile.timeline.steps.labelled("first")
    return format_seconds(first[0].seconds) if first else None


def _steady_step(profile: Profile) -> str | None:
    steady = profile.timeline.steps.steady_seconds
    if not steady:
        return None
    return f"{format_seconds(statistics.median(steady))} (median of {len(steady)})"
