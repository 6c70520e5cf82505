"""Fetch fresh prices: every provider and region on its own, so that one that fails costs only itself."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from vmselect.catalog import store, table
from vmselect.catalog.schema import KEY
from vmselect.catalog.snapshot import provider_terms
from vmselect.catalog.sources import REGISTRY, Row, Source, open_source
from vmselect.errors import ArgumentError, CatalogError, RefreshError, VmselectError
from vmselect.profile import Finding

REGIONS_AT_ONCE = 4  # per provider: more gets throttled, not faster
State = Literal["waiting", "fetching", "fetched", "reused", "failed", "skipped"]


@dataclass(frozen=True)
class Progress:
    """What happens to one provider's prices in one region; ``region`` is empty for a provider left out whole."""

    provider: str
    region: str
    state: State
    detail: str = ""
    rows: int = 0


@dataclass(frozen=True)
class RefreshOutcome:
    """The prices that a refresh gave, and how each part of it ended."""

    frame: pd.DataFrame
    parts: tuple[Progress, ...]
    findings: tuple[Finding, ...]


def refresh_prices(
    providers: Sequence[str] | None = None,
    *,
    regions: Sequence[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
    max_age_hours: float = 6.0,
    sources: Mapping[str, Source] | None = None,
) -> RefreshOutcome:
    """Fetch prices and keep each part that succeeds; an error only when nothing at all could be had.

    ``sources`` replaces the clouds' own APIs, for a mirror or a test.
    """
    report = progress or (lambda _: None)
    opened = dict(sources) if sources is not None else {name: open_source(name) for name in providers or REGISTRY}
    wanted = list(dict.fromkeys(providers or opened))
    for name in wanted:
        if name not in opened:
            raise ArgumentError(f"No price source for {name!r}. Known: {', '.join(opened)}.")
    ended: list[Progress] = []
    findings: list[Finding] = []

    def end(part: Progress) -> None:
        ended.append(part)
        report(part)

    usable = []
    for name in wanted:
        reason = opened[name].missing()
        if reason is None:
            usable.append(name)
        elif providers is not None:
            raise RefreshError(f"{name} prices cannot be fetched. {reason}")
        else:
            findings.append(Finding("provider-left-out", f"{name} prices were not fetched.", reason, "note"))
            end(Progress(name, "", "skipped", reason))
    tasks = _plan(usable, regions, opened)
    frames: list[pd.DataFrame] = []
    with ExitStack() as stack:
        pools = {name: ThreadPoolExecutor(REGIONS_AT_ONCE, f"prices-{name}") for name in usable}
        for pool in pools.values():
            stack.callback(pool.shutdown, wait=True, cancel_futures=True)
        futures: dict[Future[list[Row]], tuple[str, str]] = {}
        for name, region in tasks:
            age = store.age_hours(name, region)
            if age is not None and age < max_age_hours and (kept := _read_kept(name, region)) is not None:
                frames.append(kept)
                end(Progress(name, region, "reused", f"fetched {age:.1f} h ago", len(kept)))
                continue
            report(Progress(name, region, "waiting"))
            futures[pools[name].submit(_fetch, opened[name], region, report)] = (name, region)
        for future in as_completed(futures):
            name, region = futures[future]
            try:
                frame, left_out = _check(future.result(), name, region)
                store.write_part(name, region, frame)
            except VmselectError as failure:
                findings.append(
                    Finding("not-refreshed", f"{name} {region} was not refreshed: {failure}", _what_stays(name, region))
                )
                end(Progress(name, region, "failed", str(failure)))
            else:
                frames.append(frame)
                findings += left_out
                end(Progress(name, region, "fetched", "", len(frame)))
    if not frames:
        raise RefreshError(
            " ".join(map(str, findings)) or "There was nothing to refresh. Name a provider and a region."
        )
    return RefreshOutcome(table.concat(frames), tuple(ended), tuple(findings))


def _plan(
    providers: Sequence[str], regions: Sequence[str] | None, sources: Mapping[str, Source]
) -> list[tuple[str, str]]:
    tasks = []
    unclaimed = dict.fromkeys(regions or ())
    for name in providers:
        if regions is None:
            terms = provider_terms(name)
            mine = [terms.reference_region] if terms else []
        else:
            mine = [r for r in dict.fromkeys(regions) if re.fullmatch(sources[name].region_pattern, r)]
        tasks += [(name, region) for region in mine]
        for region in mine:
            unclaimed.pop(region, None)
    if unclaimed:
        raise ArgumentError(
            f"{', '.join(unclaimed)} does not look like a region of {', '.join(providers) or 'any provider asked'}. "
            "Write us-east-1 (aws), eastus (azure) or us-central1 (gcp)."
        )
    return tasks


def _fetch(source: Source, region: str, report: Callable[[Progress], None]) -> list[Row]:
    def tell(detail: str = "") -> None:
        report(Progress(source.provider, region, "fetching", detail))

    tell()
    try:
        return source.fetch(region, progress=tell)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as surprise:
        # An answer of a shape nobody foresaw costs this part alone.
        raise RefreshError(f"The answer has an unknown shape ({surprise!r:.80}). Update vmselect.") from surprise


def _check(rows: list[Row], provider: str, region: str) -> tuple[pd.DataFrame, list[Finding]]:
    """The rows of an answer, typed; a zero, negative or absurd price is left out by name."""
    if not rows:
        raise RefreshError("The answer held no VM price at all.")
    raw = pd.DataFrame(rows, dtype=object)
    raw = raw.drop_duplicates([c for c in (*KEY, "usd_per_hour") if c in raw.columns], ignore_index=True)
    names = (raw["instance_type"].astype(str) + " " + raw["market"].astype(str)).tolist()
    frame, left_out = table.build(
        raw,
        name_row=lambda positions: [f"{provider} {region} {names[p]}" for p in positions],
        default_date=dt.datetime.now(dt.UTC).date().isoformat(),
        default_source=f"{provider} API",
        skip_bad_rows=True,
    )
    if not len(frame):
        raise RefreshError(f"No price of the answer was usable. {left_out[0]}")
    return frame, left_out


def _read_kept(provider: str, region: str) -> pd.DataFrame | None:
    try:
        return store.read_part(provider, region)
    except CatalogError:
        return None  # a damaged part is simply fetched again


def _what_stays(provider: str, region: str) -> str:
    kept = _read_kept(provider, region)
    if kept is None:
        return "The embedded prices stay."
    return f"Its prices of {max(kept['date'].astype(str).unique())} stay."
