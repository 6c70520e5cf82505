"""Fetches prices from the providers and stores them ("refreshed prices").

The prices of each provider and region (a *part* of a refresh) are one file in the platform's cache folder. Files are
replaced atomically: a refresh that fails, is killed, or runs twice at the same time leaves every file complete.
"""

from __future__ import annotations

import hashlib
import queue
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd

from vmselect import _io
from vmselect._checks import (
    check_callable,
    check_choice,
    check_name,
    check_number,
    check_seconds,
    maybe,
    several,
    show,
)
from vmselect._io import cache_folder as cache_folder
from vmselect.catalog import files
from vmselect.catalog.age import today
from vmselect.catalog.guards import flag_prices
from vmselect.catalog.interruptions import write_classes
from vmselect.catalog.offer import (
    KEY,
    OLD_AFTER_DAYS,
    OWN_PRICE,
    SHOWN_PROBLEMS,
    age_days,
    concat_frames,
    merge_frames,
)
from vmselect.catalog.regions import is_group, is_within
from vmselect.catalog.shipped import newest_prices, provider_terms
from vmselect.catalog.sources import VIA, PriceTable, Source, api_sources, choose_via, open_source
from vmselect.errors import ArgumentError, CatalogError, RefreshError, VmselectError
from vmselect.findings import Finding
from vmselect.units import format_count, list_some

REFUSED = 20
"""Number of refused prices of a region that a finding lists."""
REGIONS_AT_ONCE = 4  # per provider: more are throttled
MAX_SECONDS = 3600.0  # of a whole refresh
EVERYWHERE = "all"
"""Region that means all regions of a provider; also the name of the part of a provider that cannot list them."""
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


def _read_all_parts(provider: str) -> pd.DataFrame | None:
    """Return the stored prices of ``provider`` in all regions; None if there are none."""
    frames = [frame for frame in read_parts()[0] if (frame["provider"] == provider).all()]
    return concat_frames(frames) if frames else None


def read_parts() -> tuple[list[pd.DataFrame], list[Finding]]:
    """Return the refreshed prices of each provider and region, and findings about old prices and unreadable files."""
    frames: list[pd.DataFrame] = []
    findings: list[Finding] = []
    try:
        paths = sorted((cache_folder() / "prices").glob("[!.]*.csv"))
    except (CatalogError, OSError) as unknown:  # the shipped prices need no cache folder
        return [], [Finding("refreshed-unreadable", f"Refreshed prices cannot be used: {unknown}", "", "info")]
    old: dict[tuple[str, str], list[str]] = {}
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
        if age_days(newest) > OLD_AFTER_DAYS:
            old.setdefault((str(frame["provider"].iloc[0]), newest), []).append(name)
    for (provider, newest), names in old.items():
        name = names[0] if len(names) == 1 else f"{provider} in {len(names)} regions"
        message = f"The refreshed prices of {name} are from {newest}, {age_days(newest)} days ago."
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
    source: str = "auto",
    max_seconds: float = MAX_SECONDS,
    sources: Mapping[str, Source] | None = None,
) -> RefreshOutcome:
    """Fetch prices of each provider and region, and store them. If a region fails, its earlier prices stay in use.

    ``source`` is "api" (the price APIs of AWS, Azure and Google Cloud), "skypilot" or "gpuhunt" (catalogs that they
    publish), or "auto": the price API if there is one, else SkyPilot. Prices that were fetched less than
    ``max_age_hours`` ago are reused. Implausible prices are refused, see :mod:`vmselect.catalog.guards`. Regions that
    are not complete after ``max_seconds`` fail. If all regions fail, an error is raised. ``progress`` is called with
    the progress of each region. ``sources`` replaces the price APIs, for a mirror or a test.
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
    # A mirror that replaces the price APIs is one, too.
    outcome = _Outcome(report, {name: "api" if sources and via == "auto" else choose_via(name, via) for name in opened})
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

    def __init__(self, report: Callable[[Progress], None], via: Mapping[str, str]) -> None:
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
        if stored is None or not self._is_same_source(provider, stored):
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
            fetched, excluded = answer
            # Prices are compared with those fetched before, and with the shipped ones.
            reference = newest_prices() if stored is None else merge_frames(newest_prices(), stored)
            frame, refused = _refuse_implausible(provider, region, fetched, stored, reference)
            write_part(provider, region, frame)
        except VmselectError as failure:
            stored = stored if region != EVERYWHERE else _read_all_parts(provider)
            self.old += [stored] if stored is not None else []
            stays = _describe_what_stays(provider, region, stored)
            message = f"Prices of {provider} {region} were not fetched: {failure}"
            self.end(Progress(provider, region, "failed", str(failure)), [Finding("not-refreshed", message, stays)])
            return
        self.fresh.append(frame)
        before = stored if stored is not None and self._is_same_source(provider, stored) else None
        losses = _describe_losses(provider, region, before, fetched)
        missing = _describe_unpriced(source, region, fetched)
        self.end(Progress(provider, region, "fetched", "", len(frame)), [*excluded, *refused, *losses, *missing])

    def _is_same_source(self, provider: str, stored: pd.DataFrame) -> bool:
        """Return whether all ``stored`` prices were fetched from the source of this refresh."""
        via = self.via[provider]
        published = stored["source"].isin(["skypilot", "gpuhunt"])
        return bool((stored["source"] == via).all() if via != "api" else ~published.any())


def refresh_interruptions() -> Progress:
    """Fetch the interruption classes of AWS spot machines and store them. Raise a RefreshError if that fails."""
    from vmselect.catalog.sources.spot_advisor import NAME, fetch_classes  # on use: it imports requests

    classes = fetch_classes()
    path = write_classes(classes, date=today(), source=NAME)
    return Progress("aws", "", "fetched", f"interruption classes in {path}", len(classes))


def _plan(
    providers: Sequence[str], regions: Sequence[str] | None, sources: Mapping[str, Source]
) -> list[tuple[str, str]]:
    tasks = []
    unclaimed = set(regions or ())
    for name in providers:
        terms = provider_terms(name)
        if regions is None and terms is not None and terms.reference_region:
            places = [terms.reference_region]
        elif regions is None or EVERYWHERE in regions:
            places = _list_regions(sources[name])
            unclaimed -= {EVERYWHERE, *places}
        else:
            claimed = {region: _claim(sources[name], region) for region in regions}
            places = [place for places_of_region in claimed.values() for place in places_of_region]
            unclaimed -= {region for region, places_of_region in claimed.items() if places_of_region}
        tasks += [(name, place) for place in dict.fromkeys(places)]
    if unclaimed:
        raise ArgumentError(
            f"{', '.join(sorted(unclaimed))} is not the name of a region of {', '.join(providers)}. Give names such as "
            "us-east-1 (aws), eastus (azure) or us-central1 (gcp), countries such as de, or eu, europe or us."
        )
    return tasks


def _claim(source: Source, region: str) -> list[str]:
    """Return the regions of a source that ``region`` means: those in a country or a group of countries, or itself."""
    if not is_group(region):
        return [region] if re.fullmatch(source.region_pattern, region) else []
    listed = _list_regions(source)
    return [name for name in listed if name == EVERYWHERE or is_within(source.provider, name, region)]


def _list_regions(source: Source) -> list[str]:
    listing = getattr(source, "list_regions", None)
    try:
        if listing is not None:
            return list(listing())
    except RefreshError:
        return [EVERYWHERE]  # fails later, as one part
    # A price API that cannot list its regions is asked for those of the shipped prices.
    shipped = newest_prices()
    return sorted(shipped.loc[shipped["provider"] == source.provider, "region"].astype(str).unique())


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


def _refuse_implausible(
    provider: str, region: str, frame: pd.DataFrame, stored: pd.DataFrame | None, reference: pd.DataFrame
) -> tuple[pd.DataFrame, list[Finding]]:
    """Return the fetched prices without implausible ones, whose earlier prices are kept, and a finding that lists them.

    Prices are compared with ``reference``. ``stored`` are those of them that were fetched for this part.
    """
    flagged = flag_prices(frame, reference)
    rows = np.flatnonzero(flagged.implausible)
    if not len(rows):
        return frame, []
    usd = frame["usd_per_hour"].to_numpy(dtype=float)
    listed = [
        f"{offer.instance_type} {offer.market} ({flagged.reason(row, float(usd[row]), str(offer.date))})"
        for row, offer in zip(rows.tolist(), frame.iloc[rows].itertuples(), strict=True)
    ]
    verb = "was" if len(rows) == 1 else "were"
    message = f"{format_count(len(rows), 'price')} of {provider} {region} {verb} refused: {list_some(listed, REFUSED)}."
    remedy = f"Their earlier prices stay in use. If the new ones are right, add them as your own ({OWN_PRICE})."
    kept = frame[~flagged.implausible].reset_index(drop=True)
    if stored is not None:
        names = pd.MultiIndex.from_frame(frame.iloc[rows][list(KEY)].astype(str))
        earlier = stored[pd.MultiIndex.from_frame(stored[list(KEY)].astype(str)).isin(names)]
        kept = concat_frames([kept, earlier]) if len(earlier) else kept
    if not len(kept):
        raise RefreshError(f"All prices were refused: {list_some(listed, SHOWN_PROBLEMS)}. Try again later.")
    return kept, [Finding("prices-refused", message, remedy)]


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
    here = shipped["provider"] == provider
    here = here if region == EVERYWHERE else here & (shipped["region"] == region)
    return "The prices that ship with vmselect are used." if here.any() else "There are no older prices of this region."
