"""The user's refreshed prices: one file per provider and region, in the platform's cache folder.

A part is replaced in one step, so a refresh that fails, is killed, or runs twice at once leaves every part whole.
"""

from __future__ import annotations

import hashlib
import os
import queue
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pandas as pd

from vmselect._checks import check_callable, check_choice, check_name, check_number, check_seconds, maybe, several, show
from vmselect._files import safe_name
from vmselect.catalog import files, table
from vmselect.catalog.offer import STALE_AFTER_DAYS, age_days
from vmselect.catalog.snapshots import newest_prices, provider_terms
from vmselect.catalog.sources import REGISTRY, VIA, PriceTable, Source, open_source
from vmselect.errors import ArgumentError, CatalogError, RefreshError, VmselectError
from vmselect.findings import Finding
from vmselect.units import list_some

_REMEDY = "Run `vmselect prices refresh`."


def cache_folder() -> Path:
    """The platform's cache folder of vmselect, or the folder in ``VMSELECT_CACHE_DIR``."""
    own = os.environ.get("VMSELECT_CACHE_DIR")
    try:
        return Path(own).expanduser() if own else _platform_folder() / "vmselect"
    except RuntimeError:  # no such user, or one without a home
        place = f"VMSELECT_CACHE_DIR is {show(own)}, whose home" if own else "The user's home"
        raise CatalogError(f"{place} folder is unknown. Set VMSELECT_CACHE_DIR to a folder for prices.") from None


def _platform_folder() -> Path:
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def part_path(provider: str, region: str) -> Path:
    """The file of one provider's prices in one region, whatever a region is called."""
    full_name = f"{provider}_{region}"
    name = safe_name(full_name)
    if name != full_name:  # two regions may have the same safe name
        name += "-" + hashlib.sha256(full_name.encode()).hexdigest()[:12]
    return cache_folder() / "prices" / f"{name}.csv"


def age_hours(provider: str, region: str) -> float | None:
    """Hours since this part was fetched; None when it never was, or is dated in the future."""
    try:
        age = time.time() - part_path(provider, region).stat().st_mtime
    except OSError:
        return None
    return age / 3600 if age >= 0 else None


def write_part(provider: str, region: str, frame: pd.DataFrame) -> None:
    """Keep fresh prices of one provider in one region, in the place of the old ones."""
    files.write(frame, part_path(provider, region))


def read_part(provider: str, region: str) -> pd.DataFrame | None:
    """The stored prices of one provider in one region; None when there are none, or they are damaged."""
    try:
        return files.read(part_path(provider, region))[0]
    except CatalogError:
        return None


def read_parts() -> tuple[list[pd.DataFrame], list[Finding]]:
    """The refreshed prices of each provider and region, and what is old or unreadable."""
    frames: list[pd.DataFrame] = []
    findings: list[Finding] = []
    try:
        paths = sorted((cache_folder() / "prices").glob("[!.]*.csv"))
    except (CatalogError, OSError) as unknown:  # the shipped prices do without it
        return [], [Finding("refreshed-unreadable", f"No refreshed prices: {unknown}", "", "info")]
    for path in paths:
        name = path.stem.replace("_", " ")
        try:
            frame, excluded = files.read(path, skip_bad_rows=True)
        except CatalogError as broken:
            findings.append(
                Finding("refreshed-unreadable", f"Refreshed prices of {name} cannot be read: {broken}", _REMEDY)
            )
            continue
        frames.append(frame)
        findings += excluded
        newest = max(frame["date"].astype(str).unique())
        age = age_days(newest)
        if age > STALE_AFTER_DAYS:
            findings.append(
                Finding("old-prices", f"Refreshed prices of {name} are of {newest}, {age} days old.", _REMEDY)
            )
    return frames, findings


# Fetch fresh prices; a provider or region that fails does not affect the others.


REGIONS_AT_ONCE = 4  # per provider: more gets throttled, not faster
LONGEST_SECONDS = 3600.0  # of a whole refresh, whatever the servers do
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
    providers: str | Sequence[str] | None = None,
    *,
    regions: str | Sequence[str] | None = None,
    progress: Callable[[Progress], None] | None = None,
    max_age_hours: float = 6.0,
    source: str = "api",
    most_seconds: float = LONGEST_SECONDS,
    sources: Mapping[str, Source] | None = None,
) -> RefreshOutcome:
    """Fetch prices and keep each part that succeeds; an error only when nothing at all could be had.

    ``source`` is ``api``, the clouds themselves, or ``skypilot``, the catalog that SkyPilot publishes; of that one
    ``regions`` may be ``all``. After ``most_seconds`` the parts that are still being fetched are given up.

    A part that fails keeps the prices fetched earlier. ``sources`` replaces the clouds' own APIs, for a mirror or a
    test.
    """
    report = maybe(check_callable, "progress", progress) or (lambda _: None)
    providers = None if providers is None else several(check_name, "providers", providers)
    regions = None if regions is None else several(check_name, "regions", regions)
    max_age_hours = check_number("max_age_hours", max_age_hours, least=0)
    most_seconds = check_seconds("most_seconds", most_seconds)
    via = check_choice("source", source, VIA)
    opened = dict(sources) if sources is not None else {name: open_source(name, via) for name in providers or REGISTRY}
    wanted = list(dict.fromkeys(providers or opened))
    for name in wanted:
        if name not in opened:
            raise ArgumentError(f"No price source for {show(name)}. Known: {', '.join(opened)}.")
    tasks = _plan(wanted, regions, opened)
    ended: list[Progress] = []
    findings: list[Finding] = []
    fresh: list[pd.DataFrame] = []
    old: list[pd.DataFrame] = []
    waiting: list[tuple[str, str]] = []

    def end(part: Progress) -> None:
        ended.append(part)
        report(part)

    for name in wanted:
        if reason := opened[name].missing():
            if providers is not None:
                raise RefreshError(f"{name} prices cannot be fetched. {reason}")
            findings.append(Finding("provider-left-out", f"{name} prices were not fetched.", reason, "info"))
            end(Progress(name, "", "skipped", reason))
            tasks = [task for task in tasks if task[0] != name]
    for name, region in tasks:
        age = age_hours(name, region)
        kept = read_part(name, region) if age is not None and age < max_age_hours else None
        if kept is not None and _is_from(kept, via):
            fresh.append(kept)
            end(Progress(name, region, "reused", f"fetched {age:.1f} h ago", len(kept)))
        else:
            report(Progress(name, region, "waiting"))
            waiting.append((name, region))
    for name, region, answer in _fetch_all(waiting, opened, report, most_seconds):
        kept = read_part(name, region)
        try:
            if isinstance(answer, VmselectError):
                raise answer
            frame, excluded = answer
            write_part(name, region, frame)
        except VmselectError as failure:
            old += [kept] if kept is not None else []
            stays = _describe_what_stays(name, region, kept)
            findings.append(Finding("not-refreshed", f"{name} {region} was not refreshed: {failure}", stays))
            end(Progress(name, region, "failed", str(failure)))
        else:
            fresh.append(frame)
            before = kept if kept is not None and _is_from(kept, via) else None
            findings += [*excluded, *_describe_losses(name, region, before, frame)]
            findings += _describe_unpriced(opened[name], region, frame)
            end(Progress(name, region, "fetched", "", len(frame)))
    if not fresh:
        raise RefreshError(
            " ".join(map(str, findings)) or "There was nothing to refresh. Name a provider and a region."
        )
    return RefreshOutcome(table.concat([*fresh, *old]), tuple(ended), tuple(findings))


def _plan(
    providers: Sequence[str], regions: Sequence[str] | None, sources: Mapping[str, Source]
) -> list[tuple[str, str]]:
    tasks = []
    unclaimed = dict.fromkeys(regions or ())
    for name in providers:
        terms = provider_terms(name)
        if regions is None and terms is not None:
            mine = [terms.reference_region]
        elif regions is None or "all" in regions:
            mine = _list_regions(sources[name])
            unclaimed.pop("all", None)
        else:
            mine = [r for r in dict.fromkeys(regions) if re.fullmatch(sources[name].region_pattern, r)]
        tasks += [(name, region) for region in mine]
        for region in mine:
            unclaimed.pop(region, None)
    if unclaimed:
        raise ArgumentError(
            f"{', '.join(unclaimed)} does not look like a region of {', '.join(providers)}. "
            "Write us-east-1 (aws), eastus (azure) or us-central1 (gcp)."
        )
    return tasks


def _list_regions(source: Source) -> list[str]:
    listing = getattr(source, "list_regions", None)
    if listing is None:
        raise ArgumentError(f"{source.provider} has no list of its regions. Name them, or refresh from skypilot.")
    try:
        return list(listing())
    except RefreshError:
        return ["all"]  # fails later, as a part of its own


def _fetch_all(
    tasks: Collection[tuple[str, str]],
    sources: Mapping[str, Source],
    report: Callable[[Progress], None],
    most_seconds: float,
) -> Iterator[tuple[str, str, PriceTable | VmselectError]]:
    """The answer to each task in order of arrival, or its error; a few regions of each provider at a time.

    The threads only read. They are daemons, so Ctrl-C does not wait for a server that hangs.
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
    ends, open_tasks = time.monotonic() + most_seconds, dict.fromkeys(tasks)
    try:
        while open_tasks:
            answer = answers.get(timeout=max(0.0, ends - time.monotonic()))
            del open_tasks[answer[:2]]
            yield answer
    except queue.Empty:
        for name, region in open_tasks:
            yield name, region, RefreshError(f"It did not end within {most_seconds:g} s. Ask for fewer regions.")
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
    except Exception as surprise:  # noqa: BLE001  # an answer of any shape must fail this part alone
        # The exception's own text may repeat the request, and so a credential.
        return RefreshError(f"The answer has an unknown shape ({type(surprise).__name__}). Update vmselect.")


def _is_from(kept: pd.DataFrame, via: str) -> bool:
    """Whether these prices are SkyPilot's where it is asked, and where the clouds are asked none of its."""
    return bool(((kept["source"] == "skypilot") == (via == "skypilot")).all())


def _describe_losses(provider: str, region: str, before: pd.DataFrame | None, now: pd.DataFrame) -> Iterator[Finding]:
    """A finding for each market of which more than half is gone: an answer may come empty and still look fine."""
    if before is None:
        return
    had, has = (Counter(zip(f["service"], f["market"], strict=True)) for f in (before, now))
    for (service, market), count in had.items():
        left = has[service, market]
        if left < count / 2:
            yield Finding(
                "prices-lost",
                f"{provider} {region} now lists {left} {market} prices of {service}, {count} before.",
                "If this is unlikely, run `vmselect prices refresh --max-age-hours 0`.",
            )


def _describe_unpriced(source: Source, region: str, now: pd.DataFrame) -> Iterator[Finding]:
    """A finding that names the types that ship with a price on demand and got none now, with the reasons."""
    shipped = newest_prices()
    here = shipped[(shipped["provider"] == source.provider) & (shipped["region"] == region) & ~shipped["retired"]]
    wanted = here[here["service"].isin(set(now["service"])) & (here["market"] == "on_demand")]
    priced = now[now["market"] == "on_demand"]
    missing = sorted(set(wanted["instance_type"].astype(str)) - set(priced["instance_type"].astype(str)))
    if not missing:
        return
    explain = getattr(source, "explain_missing", lambda name, region: "not in the answer")
    reasons: dict[str, list[str]] = {}
    for name in missing:
        reasons.setdefault(explain(name, region), []).append(name)
    listed = "; ".join(f"{list_some(names, 6)} ({why})" for why, names in reasons.items())
    yield Finding(
        "types-without-price",
        f"{source.provider} {region} gave no price on demand of {len(missing)} types that ship with one: {listed}.",
        "The older prices of these stay in use.",
        "info",
    )


def _describe_what_stays(provider: str, region: str, kept: pd.DataFrame | None) -> str:
    if kept is not None:
        return f"Its prices of {max(kept['date'].astype(str).unique())} stay."
    shipped = newest_prices()
    here = (shipped["provider"] == provider) & (shipped["region"] == region)
    return "The embedded prices stay." if here.any() else "There are no older ones."
