"""Fetches prices from the providers and stores them ("refreshed prices"); writes them as a new snapshot.

The prices of each provider and region (a *part* of a refresh) are one file in the platform's cache folder. Files are
replaced atomically: a refresh that fails, is killed, or runs twice at the same time leaves every file complete.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import queue
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from vmselect import _io
from vmselect._checks import (
    check_callable,
    check_choice,
    check_name,
    check_number,
    check_path,
    check_seconds,
    maybe,
    several,
    show,
)
from vmselect._io import cache_folder as cache_folder
from vmselect.catalog import files
from vmselect.catalog.files import newest_prices, provider_terms, snapshot_at, unpriced
from vmselect.catalog.offer import KEY, STALE_AFTER_DAYS, age_days, concat_frames, inherit_facts, merge_frames
from vmselect.catalog.sources import VIA, PriceTable, Source, api_sources, open_source
from vmselect.errors import ArgumentError, CatalogError, RefreshError, VmselectError
from vmselect.findings import Finding
from vmselect.units import format_count, list_some

REGIONS_AT_ONCE = 4  # per provider: more are throttled
MAX_SECONDS = 3600.0  # of a whole refresh
SNAPSHOT_MARKETS = ("on_demand", "spot")  # reserved prices differ by contract
State = Literal["waiting", "fetching", "fetched", "reused", "failed", "skipped"]
_REMEDY = "Run `vmselect prices refresh`."


def part_path(provider: str, region: str) -> Path:
    """Return the path of the file with the refreshed prices of ``provider`` in ``region``."""
    full_name = f"{provider}_{region}"
    name = _io.safe_name(full_name)
    if name != full_name:  # two regions may have the same safe name
        name += "-" + hashlib.sha256(full_name.encode()).hexdigest()[:12]
    return cache_folder() / "prices" / f"{name}.csv"


def age_hours(provider: str, region: str) -> float | None:
    """Return the hours since prices of ``provider`` in ``region`` were stored; None if they never were.

    Return None also if the file's time is in the future, because the clock was changed.
    """
    try:
        age = time.time() - part_path(provider, region).stat().st_mtime
    except OSError:
        return None
    return age / 3600 if age >= 0 else None


def write_part(provider: str, region: str, frame: pd.DataFrame) -> None:
    """Store fetched prices of ``provider`` in ``region``."""
    files.write(frame, part_path(provider, region))


def read_part(provider: str, region: str) -> pd.DataFrame | None:
    """Return the stored prices of ``provider`` in ``region``; None if they are missing or damaged."""
    try:
        return files.read(part_path(provider, region))[0]
    except CatalogError:
        return None


def read_parts() -> tuple[list[pd.DataFrame], list[Finding]]:
    """Return the refreshed prices of each provider and region, and findings about old prices and unreadable files."""
    frames: list[pd.DataFrame] = []
    findings: list[Finding] = []
    try:
        paths = sorted((cache_folder() / "prices").glob("[!.]*.csv"))
    except (CatalogError, OSError) as unknown:  # the shipped prices need no cache folder
        return [], [Finding("refreshed-unreadable", f"Refreshed prices cannot be used: {unknown}", "", "info")]
    for path in paths:
        name = path.stem.replace("_", " ")
        try:
            frame, excluded = files.read(path, skip_bad_rows=True)
        except CatalogError as broken:
            message = f"The refreshed prices of {name} cannot be read: {broken}"
            findings.append(Finding("refreshed-unreadable", message, _REMEDY))
            continue
        frames.append(frame)
        findings += excluded
        newest = max(frame["date"].astype(str).unique())
        age = age_days(newest)
        if age > STALE_AFTER_DAYS:
            message = f"The refreshed prices of {name} are from {newest}, {age} days ago."
            findings.append(Finding("old-prices", message, _REMEDY))
    return frames, findings


@dataclass(frozen=True)
class Progress:
    """Progress of fetching the prices of ``provider`` in ``region``, which is empty if the provider is skipped.

    ``rows`` is the number of fetched prices.
    """

    provider: str
    region: str
    state: State
    detail: str = ""
    rows: int = 0


@dataclass(frozen=True)
class RefreshOutcome:
    """The result of a refresh: all prices, and the final state of each part (one provider in one region)."""

    frame: pd.DataFrame
    parts: tuple[Progress, ...]
    findings: tuple[Finding, ...]


def refresh_prices(
    providers: str | Sequence[str] | None = None,
    *,
    regions: str | Sequence[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
    max_age_hours: float = 6.0,
    source: str = "api",
    max_seconds: float = MAX_SECONDS,
    sources: Mapping[str, Source] | None = None,
) -> RefreshOutcome:
    """Fetch prices of each provider and region, and store them. If a region fails, its earlier prices stay in use.

    ``source`` is "api" (the price APIs of the providers) or "skypilot" (the catalog that SkyPilot publishes). Only
    "skypilot" accepts ``regions="all"``. Prices that were fetched less than ``max_age_hours`` ago are reused. Regions
    that are not complete after ``max_seconds`` fail. If all regions fail, an error is raised. ``progress`` is called
    with the progress of each region. ``sources`` replaces the price APIs, for a mirror or a test.
    """
    report = maybe(check_callable, "progress", progress) or (lambda _: None)
    names = None if providers is None else several(check_name, "providers", providers)
    regions = None if regions is None else several(check_name, "regions", regions)
    max_age_hours = check_number("max_age_hours", max_age_hours, least=0)
    max_seconds = check_seconds("max_seconds", max_seconds)
    via = check_choice("source", source, VIA)
    opened = sources or {name: open_source(name, via) for name in names or api_sources()}
    for name in names or ():
        if name not in opened:
            raise ArgumentError(f"Prices of provider {show(name)} cannot be fetched. Choose from: {', '.join(opened)}.")
    tasks = _plan(names or list(opened), regions, opened)
    outcome = _Outcome(report, via)
    for name in names or opened:
        if reason := opened[name].missing():
            if names is not None:
                raise RefreshError(f"Prices of {name} cannot be fetched. {reason}")
            finding = Finding("provider-excluded", f"Prices of {name} were not fetched.", reason, "info")
            outcome.end(Progress(name, "", "skipped", reason), [finding])
            tasks = [task for task in tasks if task[0] != name]
    waiting = [task for task in tasks if not outcome.reuse(*task, max_age_hours)]
    for name, region, answer in _fetch_all(waiting, opened, report, max_seconds):
        outcome.take(opened[name], region, answer)
    if not outcome.fresh:
        nothing = "There is no region to refresh. Give at least one provider and one region."
        raise RefreshError("\n".join(map(str, outcome.findings)) or nothing)
    frame = concat_frames([*outcome.fresh, *outcome.old])
    return RefreshOutcome(frame, tuple(outcome.parts), tuple(outcome.findings))


class _Outcome:
    """What a running refresh has so far: fresh prices, earlier prices of failed parts, states and findings."""

    def __init__(self, report: Callable[[Progress], None], via: str) -> None:
        self.report, self.via = report, via
        self.parts: list[Progress] = []
        self.findings: list[Finding] = []
        self.fresh: list[pd.DataFrame] = []
        self.old: list[pd.DataFrame] = []

    def end(self, part: Progress, findings: Iterable[Finding] = ()) -> None:
        """Note the final state of a part."""
        self.parts.append(part)
        self.findings += findings
        self.report(part)

    def reuse(self, provider: str, region: str, max_age_hours: float) -> bool:
        """Return whether stored prices of the same source are recent enough, and take them if so."""
        age = age_hours(provider, region)
        stored = read_part(provider, region) if age is not None and age < max_age_hours else None
        if stored is None or not _is_from(stored, self.via):
            self.report(Progress(provider, region, "waiting"))
            return False
        self.fresh.append(stored)
        self.end(Progress(provider, region, "reused", f"fetched {age:.1f} h ago", len(stored)))
        return True

    def take(self, source: Source, region: str, answer: PriceTable | VmselectError) -> None:
        """Store the fetched prices of a part, or keep its earlier prices if it failed."""
        provider = source.provider
        stored = read_part(provider, region)
        try:
            if isinstance(answer, VmselectError):
                raise answer
            frame, excluded = answer
            write_part(provider, region, frame)
        except VmselectError as failure:
            self.old += [stored] if stored is not None else []
            stays = _describe_what_stays(provider, region, stored)
            message = f"Prices of {provider} {region} were not fetched: {failure}"
            self.end(Progress(provider, region, "failed", str(failure)), [Finding("not-refreshed", message, stays)])
            return
        self.fresh.append(frame)
        before = stored if stored is not None and _is_from(stored, self.via) else None
        losses = _describe_losses(provider, region, before, frame)
        missing = _describe_unpriced(source, region, frame)
        self.end(Progress(provider, region, "fetched", "", len(frame)), [*excluded, *losses, *missing])


def _plan(
    providers: Sequence[str], regions: Sequence[str] | None, sources: Mapping[str, Source]
) -> list[tuple[str, str]]:
    tasks = []
    unclaimed = dict.fromkeys(regions or ())
    for name in providers:
        terms = provider_terms(name)
        if regions is None and terms is not None:
            places = [terms.reference_region]
        elif regions is None or "all" in regions:
            places = _list_regions(sources[name])
            unclaimed.pop("all", None)
        else:
            pattern = sources[name].region_pattern
            places = [region for region in dict.fromkeys(regions) if re.fullmatch(pattern, region)]
        tasks += [(name, region) for region in places]
        for region in places:
            unclaimed.pop(region, None)
    if unclaimed:
        raise ArgumentError(
            f"{', '.join(unclaimed)} is not the name of a region of {', '.join(providers)}. "
            "Give names such as us-east-1 (aws), eastus (azure) or us-central1 (gcp)."
        )
    return tasks


def _list_regions(source: Source) -> list[str]:
    listing = getattr(source, "list_regions", None)
    if listing is None:
        raise ArgumentError(
            f"The price API of {source.provider} cannot list its regions. Give the regions, or use source='skypilot'."
        )
    try:
        return list(listing())
    except RefreshError:
        return ["all"]  # fails later, as one part


def _fetch_all(
    tasks: Collection[tuple[str, str]],
    sources: Mapping[str, Source],
    report: Callable[[Progress], None],
    max_seconds: float,
) -> Iterator[tuple[str, str, PriceTable | VmselectError]]:
    """Fetch each (provider, region) of ``tasks``, and yield its prices or its error as soon as it is complete.

    A few regions of each provider are fetched at a time. The fetching threads are daemon threads, so that Ctrl-C does
    not wait for a server that does not respond.
    """
    answers: queue.SimpleQueue[tuple[str, str, PriceTable | VmselectError]] = queue.SimpleQueue()
    turns = {name: threading.Semaphore(REGIONS_AT_ONCE) for name, _ in tasks}
    abandoned = threading.Event()

    def fetch(name: str, region: str) -> None:
        with turns[name]:
            if not abandoned.is_set():
                answers.put((name, region, _fetch(sources[name], region, report)))

    for name, region in tasks:
        threading.Thread(target=fetch, args=(name, region), name=f"prices-{name}-{region}", daemon=True).start()
    ends, open_tasks = time.monotonic() + max_seconds, dict.fromkeys(tasks)
    try:
        while open_tasks:
            answer = answers.get(timeout=max(0.0, ends - time.monotonic()))
            del open_tasks[answer[:2]]
            yield answer
    except queue.Empty:
        for name, region in open_tasks:
            yield name, region, RefreshError(f"The refresh took longer than {max_seconds:g} s. Give fewer regions.")
    finally:
        abandoned.set()


def _fetch(source: Source, region: str, report: Callable[[Progress], None]) -> PriceTable | VmselectError:
    def report_detail(detail: str = "") -> None:
        report(Progress(source.provider, region, "fetching", detail))

    try:
        report_detail()
        return source.fetch(region, progress=report_detail)
    except VmselectError as failure:
        return failure
    except Exception as surprise:  # noqa: BLE001  # an answer of any form must fail this part only
        # The exception's text may contain the request, and so a credential.
        return RefreshError(
            f"The response of the price API has an unknown format ({type(surprise).__name__}). Update vmselect."
        )


def _is_from(kept: pd.DataFrame, via: str) -> bool:
    """Return whether all prices in ``kept`` were fetched from the source ``via``, "api" or "skypilot"."""
    return bool(((kept["source"] == "skypilot") == (via == "skypilot")).all())


def _describe_losses(provider: str, region: str, before: pd.DataFrame | None, now: pd.DataFrame) -> Iterator[Finding]:
    """Yield a finding for each market with less than half as many prices as before: the response may be incomplete."""
    if before is None:
        return
    had, has = (Counter(zip(f["service"], f["market"], strict=True)) for f in (before, now))
    for (service, market), count in had.items():
        left = has[service, market]
        if left < count / 2:
            now_has = format_count(left, f"{market} price")
            message = f"{provider} {region} now has {now_has} of {service}, and had {count} before."
            yield Finding("prices-lost", message, "Fetch them again with `vmselect prices refresh --max-age-hours 0`.")


def _describe_unpriced(source: Source, region: str, now: pd.DataFrame) -> Iterator[Finding]:
    """Yield a finding about instance types that have an on-demand price in the snapshot, but no fetched price."""
    shipped = newest_prices()
    here = shipped[(shipped["provider"] == source.provider) & (shipped["region"] == region) & ~shipped["retired"]]
    expected = here[here["service"].isin(set(now["service"])) & (here["market"] == "on_demand")]
    priced = now[now["market"] == "on_demand"]
    missing = sorted(set(expected["instance_type"].astype(str)) - set(priced["instance_type"].astype(str)))
    if not missing:
        return
    explain = getattr(source, "explain_missing", lambda name, region: "not in the fetched prices")
    reasons: dict[str, list[str]] = {}
    for name in missing:
        reasons.setdefault(explain(name, region), []).append(name)
    listed = "; ".join(f"{list_some(names, 6)} ({why})" for why, names in reasons.items())
    types = format_count(len(missing), "known instance type")
    message = f"{source.provider} {region} has no on-demand price of {types}: {listed}."
    yield Finding("types-without-price", message, "The older prices of these instance types stay in use.", "info")


def _describe_what_stays(provider: str, region: str, kept: pd.DataFrame | None) -> str:
    if kept is not None:
        return f"The prices of {max(kept['date'].astype(str).unique())} stay in use."
    shipped = newest_prices()
    here = (shipped["provider"] == provider) & (shipped["region"] == region)
    return "The prices that ship with vmselect are used." if here.any() else "There are no older prices of this region."


# -- snapshots ---------------------------------------------------------------------------------------------------------


def write_snapshot(folder: str | os.PathLike[str] = "pricing") -> Path:
    """Write a new snapshot to ``folder``: the newest snapshot, updated with refreshed prices of the reference regions.

    It contains the instance types of the newest snapshot, known types that had no price yet, and new types with an
    accelerator. CPU cores, memory and GPUs of types in the newest snapshot do not change. The manifest is updated.
    """
    place = check_path("folder", folder)
    if not _io.has_file(place / "manifest.json"):
        raise CatalogError(f"{place} has no manifest.json. Give the folder pricing/ in the source code of vmselect.")
    shipped, newest = newest_prices(), snapshot_at().date
    parts, _ = read_parts()
    fresh = [part for part in map(_select, parts) if len(part)]
    if not fresh:
        raise CatalogError(f"No refreshed prices were found for the regions that a snapshot contains. {_REMEDY}")
    above = inherit_facts(_with_shipped_facts(concat_frames(fresh), shipped), unpriced())
    rows = merge_frames(shipped, above, newest=True)
    order = rows[list(KEY)].astype(str).sort_values(list(KEY)).index
    rows = rows.loc[order].reset_index(drop=True)
    date = max(rows["date"].astype(str).unique())
    if date <= newest:
        raise CatalogError(f"No refreshed price is newer than the snapshot of {newest}. {_REMEDY}")
    path = files.write(rows, place / f"{date}.csv")
    _drop_priced(place / "unpriced.csv", rows)
    _update_manifest(place, date)
    return path


def _select(part: pd.DataFrame) -> pd.DataFrame:
    """Return the refreshed prices in ``part`` that belong in a snapshot."""
    provider = str(part["provider"].iloc[0])
    terms = provider_terms(provider)
    if terms is None:
        return part.iloc[:0]
    shipped = newest_prices()
    listed = {*shipped["instance_type"].astype(str), *unpriced()["instance_type"].astype(str)}
    # New types without an accelerator are left out: the clouds sell hundreds of them.
    useful = part["instance_type"].astype(str).isin(listed) | (part["gpu_count"] > 0)
    here = (part["region"] == terms.reference_region) & part["market"].isin(SNAPSHOT_MARKETS)
    return part[useful & here].reset_index(drop=True)


def _with_shipped_facts(above: pd.DataFrame, shipped: pd.DataFrame) -> pd.DataFrame:
    # Shipped facts were checked by hand; those of an API may name another GPU.
    types = pd.MultiIndex.from_frame(shipped[["provider", "instance_type"]].astype(str))
    listed = pd.MultiIndex.from_frame(above[["provider", "instance_type"]].astype(str)).isin(types)
    above = above.copy()
    above.loc[listed, ["vcpus", "memory_gib", "gpu_count"]] = np.nan
    return inherit_facts(above, shipped)


def _drop_priced(path: Path, rows: pd.DataFrame) -> None:
    lines = pd.read_csv(path, dtype=str, keep_default_na=False)
    left = lines[~lines["instance_type"].isin(rows["instance_type"].astype(str))]
    _io.write_text(path, left.to_csv(index=False, lineterminator="\n"), error=CatalogError)


def _update_manifest(place: Path, date: str) -> None:
    path = place / "manifest.json"
    manifest: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if all(entry["date"] != date for entry in manifest["snapshots"]):
        about = "list and spot prices of one reference region per cloud; each row carries its own date"
        manifest["snapshots"].append(
            {"date": date, "file": f"{date}.csv", "rows": 0, "sha256": "", "description": about}
        )
    for entry in [*manifest["snapshots"], *manifest["tables"]]:
        content = (place / entry["file"]).read_bytes()
        entry["sha256"] = hashlib.sha256(content).hexdigest()
        if entry["file"].endswith(".csv"):
            entry["rows"] = len(list(csv.reader(content.decode().splitlines()))) - 1
    _io.write_text(path, json.dumps(manifest, indent=2) + "\n", error=CatalogError)
