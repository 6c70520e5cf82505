"""Serving: rank machines by throughput, cost and latency under a load, and the rate of data that pass through a model.

Latencies under a load are estimated by simulating a queue. Requests arrive at random (exponential gaps) at the given
rate and take the measured service times, with one queue for all clients of an instance. Gaps and the order of service
times are drawn once for all rates, so that at a higher rate no request has a lower latency.
"""

from __future__ import annotations

import heapq
import json
import math
import statistics
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd

from vmselect._checks import (
    check_choice,
    check_count,
    check_indent,
    check_name,
    check_number,
    maybe,
    several,
    suggest_arguments,
)
from vmselect._imports import hook
from vmselect.catalog import Catalog
from vmselect.comparison.groups import to_frame
from vmselect.comparison.runs import name_levels, read_level, sort_key
from vmselect.errors import ArgumentError, ComparisonError, RankingError
from vmselect.findings import Finding, warnings_first
from vmselect.intervals import Interval
from vmselect.ranking.candidates import exclude_unsold, match_offers
from vmselect.ranking.options import check_markets, check_regions, read_catalog
from vmselect.ranking.rows import Excluded, Floats, Ints, only_finite
from vmselect.records import InferenceRecord, TransferRecord
from vmselect.records.base import NAME_THE_MACHINE
from vmselect.records.identity import read_records
from vmselect.records.inference import percentile_of
from vmselect.units import SECONDS_PER_HOUR, format_count, format_seconds, format_usd, printable_lines

SIMULATED_CALLS = 5_000
"""Number of simulated requests; fifty of them are above the 99th percentile."""
MIN_RELATIVE_WIDTH = 0.01
"""Minimum half-width of the interval of a capacity, as a share of the capacity."""
OBJECTIVES = ("cost", "latency", "throughput")
MAX_INSTANCES = 10_000


@dataclass(frozen=True, kw_only=True)
class Service:
    """A machine with a batch size and a number of clients, and the merged measurements of all its records."""

    instance_type: str
    provider: str | None
    regions: tuple[str, ...]
    batch_size: int
    clients: int
    items_per_second: Interval[float]
    service_seconds: tuple[float, ...]
    records: tuple[InferenceRecord, ...]

    @property
    def title(self) -> str:
        """Short text for messages: instance type, batch size and number of clients."""
        clients = f", {self.clients} clients" if self.clients > 1 else ""
        return f"{self.instance_type}, batch {self.batch_size}{clients}"

    @property
    def gpus_used(self) -> int | None:
        """Smallest number of GPUs that the framework used in a measurement; None if it is not known."""
        seen = [record.environment.framework_gpus for record in self.records if record.outcome != "given"]
        return min((count for count in seen if count is not None), default=None)


class PlainOffer(NamedTuple):
    """An offer of the catalog: where and on which date a machine costs what."""

    provider: str
    region: str
    market: str
    date: str
    usd_per_hour: float


def gather_services(records: Sequence[InferenceRecord]) -> tuple[list[Service], list[Excluded], list[Finding]]:
    """Merge the records of each machine, batch size and number of clients to a service.

    Also returns excluded records and the warnings about all records.
    """
    groups: dict[tuple[str, str, str, int, int], list[InferenceRecord]] = defaultdict(list)
    excluded: list[Excluded] = []
    for record in records:
        if record.instance_type is None:
            reason = f"the record does not name its instance type; {NAME_THE_MACHINE}"
            excluded.append(Excluded(record.title, "unknown_instance_type", reason))
        elif not record.calls.total or not record.calls.service_seconds:
            excluded.append(
                Excluded(record.title, "no_calls", "no call was measured after the warm-up; probe more calls")
            )
        else:
            # Repetitions are merged; another batch size or number of clients is another way to serve.
            where = (record.instance_type, record.provider or "", record.region or "")
            groups[*where, record.batch_size or 1, record.setup.clients].append(record)
    # A saturated machine is no problem here: its capacity is measured by saturating it.
    findings = [finding for record in records for finding in record.list_findings(saturation=False)]
    warnings = [finding for finding in findings if finding.severity == "warning"]
    services = [
        Service(
            instance_type=name, provider=provider or None, regions=(region,) if region else (), batch_size=batch_size,
            clients=clients, items_per_second=_mean_capacity(group), records=tuple(group),
            service_seconds=tuple(sorted(value for record in group for value in record.calls.steady_service)),
        )
        for (name, provider, region, batch_size, clients), group in sorted(groups.items())
    ]  # fmt: skip
    return services, excluded, warnings


def _mean_capacity(group: Sequence[InferenceRecord]) -> Interval[float]:
    """Mean capacity of an instance in items per second, with an interval of two standard errors on each side.

    The standard error is that over repetitions or, if there is one record, over its requests.
    """
    rates = []
    for record in sorted(group, key=lambda record: record.id):
        # A machine that was always busy shows its capacity; that of others is derived from their service times.
        busy = record.setup.rate is None or record.is_saturated
        measured = record.items_per_second if busy else None
        rates.append(measured or record.calls.items * record.setup.clients / record.calls.service_seconds)
    mean = statistics.fmean(rates)
    sample = rates if len(rates) > 1 else group[0].calls.steady_service
    typical = statistics.fmean(sample) if sample else 0.0
    width = 2 * statistics.stdev(sample) / typical / math.sqrt(len(sample)) if len(sample) > 1 and typical else 0.0
    width = mean * max(MIN_RELATIVE_WIDTH, width)
    return Interval(mean, max(mean - width, 0.0), mean + width)


def simulate_latencies(service_seconds: Sequence[float], calls_per_second: float, *, clients: int = 1) -> list[float]:
    """Simulated latencies of requests that arrive at random; at most ``clients`` requests are served at a time."""
    gaps, order = _draws(len(service_seconds))
    services = np.asarray(sorted(service_seconds), dtype=float)[order]
    arrivals = np.cumsum(gaps) / calls_per_second
    if clients == 1:
        # The waiting time of a single queue as a running maximum, which is much faster than a loop. It is exactly 0 for
        # requests that do not wait.
        ahead = arrivals - (np.cumsum(services) - services)
        return [float(value) for value in services + (np.maximum.accumulate(ahead) - ahead)]
    free = [0.0] * clients
    latencies = []
    for arrival, service in zip(arrivals.tolist(), services.tolist(), strict=True):
        wait = max(0.0, heapq.heappop(free) - arrival)
        heapq.heappush(free, arrival + wait + service)
        latencies.append(wait + service)
    return latencies


@lru_cache(maxsize=64)
def _draws(count: int) -> tuple[Floats, Ints]:
    """Random gaps between requests (mean 1) and the index of each request's service time; the same at all rates."""
    random = np.random.default_rng(0)  # a fixed seed: the same records give the same ranking
    gaps = random.exponential(size=SIMULATED_CALLS)
    # Each measured service time occurs equally often, in random order.
    order = np.arange(SIMULATED_CALLS, dtype=np.intp) % count
    random.shuffle(order)
    return gaps, order


@dataclass(frozen=True, kw_only=True)
class ServingRow:
    """A machine at one price under one load. ``latency_seconds`` is the chosen percentile of latency at that load.

    ``usd_per_million_items`` is the cost of the rented instances while they answer a million items at that load. Its
    lower bound is the cost of the instances needed if the capacity is at its upper bound, and vice versa. Without a
    load, it is the cost on machines that are always busy, the latency is the measured one, and ``instances`` is the
    minimum number that the user allows.
    """

    rank: int
    instance_type: str
    provider: str
    region: str
    market: str
    batch_size: int
    clients: int
    items_per_second: float
    items_per_second_low: float
    items_per_second_high: float
    usd_per_hour: float
    usd_per_million_items: float
    usd_per_million_low: float
    usd_per_million_high: float
    items_per_usd: float
    load: float | None
    instances: int
    hourly_usd: float
    hourly_low: float
    hourly_high: float
    latency_seconds: float
    score: float
    tied_with_best: bool
    price_date: str
    findings: tuple[Finding, ...] = ()

    @property
    def key(self) -> tuple[str | int, ...]:
        """Instance type, provider, region, market, batch size and number of clients."""
        return self.instance_type, self.provider, self.region, self.market, self.batch_size, self.clients

    def cost_usd(self, items: float) -> Interval[float]:
        """Cost in USD of answering ``items`` items at the load; without a load, on machines that are always busy."""
        millions = check_number("items", items, least=0) / 1e6
        per_million = (self.usd_per_million_items, self.usd_per_million_low, self.usd_per_million_high)
        return Interval(*(usd * millions for usd in per_million))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ServingRanking:
    """Machines in order of the objective, best first, for each load; made by :func:`rank_inference`.

    With several loads, ``rows`` starts with the rows of the last load, which decides. Each load has its own ranks.
    """

    rows: tuple[ServingRow, ...]
    excluded: tuple[Excluded, ...]
    objective: str
    percentile: float
    instances: tuple[int, int]
    findings: tuple[Finding, ...]

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[ServingRow]:
        return iter(self.rows)

    @property
    def best(self) -> ServingRow:
        """Best row at the deciding load. Raises :class:`RankingError` if no machine is feasible."""
        if not self.rows:
            why = "; ".join(map(str, self.excluded[:3]))
            raise RankingError(f"No machine can serve the load: {why}. Relax the limits, or measure other machines.")
        return self.rows[0]

    @property
    def verdict(self) -> str:
        """Text with the machines to rent, their cost and latency."""
        best = self.best
        many = f"{best.instances} x " if best.instances > 1 else ""
        load = f" for {best.load:,.4g} items/s" if best.load is not None else ""
        rivals = sum(row.tied_with_best for row in self.rows if row.load == best.load) - 1
        tie = f"; {rivals} more within its interval" if rivals else ""
        return (
            f"{many}{best.instance_type} at batch {best.batch_size}{load}: "
            f"{format_usd(best.usd_per_million_items)} per million items, {format_usd(best.hourly_usd)} per hour, "
            f"p{self.percentile:g} {format_seconds(best.latency_seconds)}{tie}"
        )

    def __str__(self) -> str:
        return printable_lines(self.verdict) if self.rows else "No machine can serve the load."

    def __repr__(self) -> str:
        return f"<ServingRanking of {format_count(len(self), 'row')}: {self}>"

    def cost_range(self) -> pd.DataFrame:
        """Hourly cost and throughput of each machine with the minimum and maximum of the argument ``instances``."""
        fewest, most = self.instances
        machine = ("instance_type", "provider", "region", "market", "batch_size")
        by_machine = {
            row.key: {name: getattr(row, name) for name in machine} | {
                "fewest": fewest, "most": most,
                "hourly_usd_low": fewest * row.usd_per_hour, "hourly_usd_high": most * row.usd_per_hour,
                "items_per_second_low": fewest * row.items_per_second,
                "items_per_second_high": most * row.items_per_second,
            }
            for row in self.rows
        }  # fmt: skip
        return pd.DataFrame(list(by_machine.values()))

    def to_frame(self) -> pd.DataFrame:
        """The rows as a DataFrame, with the fields of :class:`ServingRow` as columns."""
        return pd.DataFrame([{k: v for k, v in vars(row).items() if k != "findings"} for row in self.rows])

    def to_json(self, *, indent: int | None = None) -> str:
        """The ranking as JSON text; an infinite upper bound of a cost is null."""
        plain = {
            "objective": self.objective,
            "percentile": self.percentile,
            "instances": list(self.instances),
            "rows": [only_finite(asdict(row)) for row in self.rows],
            "excluded": [{"candidate": e.candidate, "reason_code": e.reason_code, "reason": e.reason}
                         for e in self.excluded],
            "findings": [asdict(finding) for finding in self.findings],
        }  # fmt: skip
        return json.dumps(plain, indent=check_indent(indent), ensure_ascii=False, allow_nan=False)

    def chart(self, kind: str = "cost-load", **options: Any) -> Any:
        """An Altair chart of cost (``cost-load``) or latency (``latency-load``) by load."""
        return hook("serving_chart")(self, kind, **options)


@suggest_arguments()
def rank_inference(
    records: InferenceRecord | Iterable[InferenceRecord],
    *,
    load: float | Iterable[float] | None = None,
    latency_limit_seconds: float | None = None,
    percentile: float = 99,
    instances: int | tuple[int, int] = (1, 10),
    objective: Literal["cost", "latency", "throughput"] = "cost",
    catalog: Catalog | None = None,
    region: str | Iterable[str] | None = None,
    market: str | Iterable[str] | None = "on_demand",
) -> ServingRanking:
    """Rank machines for serving a model.

    Args:
        records: inference records of one model, on any machines, at any batch sizes and numbers of clients.
        load: items per second to answer. Several loads are ranked separately; the last load determines ``best``.
        latency_limit_seconds: maximum of the chosen percentile of latency.
        percentile: percentile of latency to rank and limit, such as 99.
        instances: minimum and maximum number of machines to rent at a time, or a fixed number.
        objective: ``"cost"`` (per hour at a load, else per million items), ``"latency"`` or ``"throughput"``.

    >>> records = [InferenceRecord.from_times(instance_type=name, batch_size=32, call_seconds=[seconds] * 200)
    ...            for name, seconds in (("g4dn.xlarge", 0.02), ("g5.xlarge", 0.008))]
    >>> ranking = rank_inference(records, load=3000, catalog=Catalog.embedded("2026-08-22"))
    >>> ranking.best.instance_type, ranking.best.instances
    ('g5.xlarge', 1)
    """
    chosen = read_records(records, InferenceRecord, error=RankingError)
    models = sorted({record.model for record in chosen if record.model})
    if len(models) > 1:
        raise RankingError(
            f"The records are of different models ({', '.join(models[:4])}). Rank the records of each model separately."
        )
    loads = several(check_number, "load", load, above=0, most=1e12) if load is not None else (None,)
    limit = maybe(check_number, "latency_limit_seconds", latency_limit_seconds, above=0)
    share = check_number("percentile", percentile, above=0, most=100)
    aim = check_choice("objective", objective, OBJECTIVES)
    pair = instances if isinstance(instances, (tuple, list)) and len(instances) == 2 else (instances, instances)
    fewest, most = (check_count("instances", value, most=MAX_INSTANCES) for value in pair)
    if fewest > most:
        raise ArgumentError(f"instances is ({fewest}, {most}), a minimum above the maximum. Pass the minimum first.")
    services, excluded, findings = gather_services(chosen)
    prices = read_catalog(catalog)
    findings += [prices.outdated] if prices.outdated else []
    priced, unpriced = _price(services, prices, region=region, market=market)
    excluded += unpriced
    rows: list[ServingRow] = []
    for rate in reversed(loads):  # the last load decides, so its rows come first
        needs = [(*pair, _count_with_bounds(pair[0], rate, limit, share, (fewest, most))) for pair in priced]
        excluded += dict.fromkeys(need for *_, need in needs if isinstance(need, Excluded))
        made = [
            _make_row(service, offer, rate, *need)
            for service, offers, need in needs
            for offer in offers
            if not isinstance(need, Excluded)
        ]
        rows += _order(made, aim)
    return ServingRanking(
        rows=tuple(rows), excluded=tuple(excluded), objective=aim, percentile=share, instances=(fewest, most),
        findings=warnings_first(findings),
    )  # fmt: skip


def _price(
    services: Sequence[Service],
    catalog: Catalog,
    *,
    region: str | Iterable[str] | None,
    market: str | Iterable[str] | None,
) -> tuple[list[tuple[Service, list[PlainOffer]]], list[Excluded]]:
    """Measured machines (services) with their offers in the chosen markets, and exclusions of those without."""
    regions, markets = check_regions("region", region), check_markets("market", market)
    offers, matched, excluded = match_offers(services, catalog, regions=regions)
    sold_in = offers["market"].to_numpy(dtype=str)
    texts = ["provider", "region", "market", "date"]
    plain = offers[[*texts, "usd_per_hour"]].astype(dict.fromkeys(texts, str))
    priced: list[tuple[Service, list[PlainOffer]]] = []
    for service, mine in zip(services, matched, strict=True):
        in_markets = mine[np.isin(sold_in[mine], markets)] if markets else mine
        if len(in_markets):
            rows = plain.iloc[in_markets].to_dict("records")
            priced.append((service, [PlainOffer(**{str(name): value for name, value in row.items()}) for row in rows]))
        elif len(mine):
            excluded.append(exclude_unsold(service, markets, sold_in[mine]))
    return priced, excluded


Need: TypeAlias = tuple[Interval[int], float]
"""Number of instances with its bounds, and their latency in seconds."""


def _make_row(
    service: Service, offer: PlainOffer, load: float | None, count: Interval[int], latency: float
) -> ServingRow:
    price, capacity = offer.usd_per_hour, service.items_per_second
    hourly = count.map(lambda instances: instances * price)
    # At a load, idle time is paid for too; without one, the machine is taken to be always busy.
    if load is not None:
        rates = hourly.map(lambda usd: usd / SECONDS_PER_HOUR / load * 1e6)
    else:
        rates = Interval(*(
            price / SECONDS_PER_HOUR / rate * 1e6 if rate else float("inf")
            for rate in (capacity.value, capacity.high, capacity.low)
        ))  # fmt: skip
    findings = [f for record in service.records for f in record.findings if f.severity == "warning"]
    if load is not None and load >= count.high * capacity.low:
        most = f"{count.high} instance{'s' * (count.high > 1)}"
        message = f"{service.title}: {most} (the maximum) cannot serve the load if the capacity is at its lower bound."
        remedy = "Allow more instances with instances=, or measure more calls to narrow the interval."
        findings.append(Finding("may-exceed-capacity", message, remedy))
    elif count.high > count.low:
        findings.append(
            Finding(
                "uncertain-instances",
                f"{service.title}: the load may require {count.low} to {count.high} instances.",
                "Measure more calls, so that the interval of the capacity becomes narrower.",
                "info",
            )
        )
    return ServingRow(
        rank=0, instance_type=service.instance_type, provider=offer.provider, region=offer.region,
        market=offer.market, batch_size=service.batch_size, clients=service.clients,
        items_per_second=capacity.value, items_per_second_low=capacity.low, items_per_second_high=capacity.high,
        usd_per_hour=price, usd_per_million_items=rates.value, usd_per_million_low=rates.low,
        usd_per_million_high=rates.high, items_per_usd=1e6 / rates.value if rates.value else float("inf"), load=load,
        instances=count.value, hourly_usd=hourly.value, hourly_low=hourly.low, hourly_high=hourly.high,
        latency_seconds=latency, score=0.0, tied_with_best=False, price_date=offer.date, findings=tuple(findings),
    )  # fmt: skip


def _count_with_bounds(
    service: Service, load: float | None, limit: float | None, percentile: float, bounds: tuple[int, int]
) -> Need | Excluded:
    """Number of instances for the load, and their latency; or an exclusion if no allowed number suffices.

    The lower bound is the number of instances needed if the capacity is at its upper bound, and vice versa. No bound is
    above the maximum allowed number.
    """
    need = _count_instances(service, load, limit, percentile, bounds)
    if isinstance(need, Excluded) or load is None:
        return need if isinstance(need, Excluded) else (Interval.exact(need[0]), need[1])
    counts = []
    for capacity in (service.items_per_second.high, service.items_per_second.low):
        # A machine of less capacity takes longer for each request, in the same proportion.
        factor = service.items_per_second.value / capacity if capacity else float("inf")
        if math.isinf(factor):
            counts.append(bounds[1])
            continue
        scaled = replace(
            service,
            items_per_second=Interval.exact(capacity),
            service_seconds=tuple(seconds * factor for seconds in service.service_seconds),
        )
        scaled_need = _count_instances(scaled, load, limit, percentile, bounds)
        counts.append(bounds[1] if isinstance(scaled_need, Excluded) else scaled_need[0])
    return Interval(need[0], min(need[0], counts[0]), max(need[0], counts[1])), need[1]


def _count_instances(
    service: Service, load: float | None, limit: float | None, percentile: float, bounds: tuple[int, int]
) -> tuple[int, float] | Excluded:
    """Minimum number of instances that can serve the load, and their latency; or an exclusion if there is none."""
    (fewest, most), capacity = bounds, service.items_per_second.value
    measure = f"its {percentile:g}th percentile of latency"
    if load is None:
        latency = statistics.median(record.calls.percentile(percentile) or 0.0 for record in service.records)
        if limit is not None and latency > limit:
            reason = f"{measure} is {format_seconds(latency)}, over the limit of {format_seconds(limit)}"
            return Excluded(service.title, "over_latency", reason)
        return fewest, latency

    def latency_of(count: int) -> float:
        if load / count >= capacity:
            return float("inf")  # the queue grows without end
        calls_per_second = load / count / service.batch_size
        latencies = simulate_latencies(service.service_seconds, calls_per_second, clients=service.clients)
        return percentile_of(latencies, percentile)

    def suffices(count: int) -> bool:
        latency = latency_of(count)
        return latency < float("inf") if limit is None else latency <= limit

    if not suffices(most):
        at_most = f"with {most} instance{'s' * (most > 1)}, the most allowed,"
        if load / most >= capacity:
            reason = f"{at_most} its capacity is {most * capacity:,.4g} items/s, not above the load of {load:,.4g}"
            return Excluded(service.title, "over_capacity", reason)
        reason = f"{at_most} {measure} is {format_seconds(latency_of(most))} at {load:,.4g} items/s, over the limit"
        return Excluded(service.title, "over_latency", reason)
    # More instances never increase the latency, so bisection finds the smallest number that suffices.
    count = fewest + bisect_left(range(fewest, most), True, key=suffices)
    return count, latency_of(count)


def _order(rows: list[ServingRow], objective: str) -> list[ServingRow]:
    """Order the rows of one load, best first, and set their rank, score and ties."""

    def span(row: ServingRow) -> Interval[float]:
        if objective == "throughput":
            slowest = 1 / (row.items_per_second_low or 1e-300)
            return Interval(1 / row.items_per_second, 1 / row.items_per_second_high, slowest)
        if objective == "cost" and row.load is None:
            return Interval(row.usd_per_million_items, row.usd_per_million_low, row.usd_per_million_high)
        if objective == "cost":
            return Interval(row.hourly_usd, row.hourly_low, row.hourly_high)
        return Interval.exact(row.latency_seconds)

    ordered = sorted(rows, key=lambda row: (span(row).value, row.usd_per_million_items, row.latency_seconds, row.key))
    if not ordered:
        return []
    spans = [span(row) for row in ordered]
    best, _, best_high = spans[0]
    return [
        replace(row, rank=position, score=value / best if best else 1.0, tied_with_best=low <= best_high)
        for position, (row, (value, low, _)) in enumerate(zip(ordered, spans, strict=True), start=1)
    ]


# -- download followed by inference ------------------------------------------------------------------------------------


RETRIEVAL_COLUMNS = (
    "group", "downloads", "inferences", "download_seconds_per_mb", "inference_seconds_per_mb",
    "mb_per_second", "mb_per_second_low", "mb_per_second_high", "overlapped_mb_per_second",
)  # fmt: skip


@suggest_arguments()
def retrieve_and_infer(
    transfers: Any, inferences: Any, *, by: str | Sequence[str] = "provider", confidence: float = 0.95
) -> pd.DataFrame:
    """Megabytes per second if each batch is downloaded and then passed to the model: a table with a row per group.

    ``mb_per_second`` is 1 / (``download_seconds_per_mb`` + ``inference_seconds_per_mb``), with an interval from the
    spread of the records (nan for single records). ``overlapped_mb_per_second`` is the rate of the slower of download
    and inference, which is reached if the next batch is downloaded during inference. ``by`` names factors that both
    kinds of records contain. The inference records must contain ``bytes_per_item``.

    >>> moved = TransferRecord.from_times(instance_type="g5.xlarge", provider="aws", url="s3://data", megabytes=100,
    ...                                      download_seconds=78)
    >>> calls = InferenceRecord.from_times(instance_type="g5.xlarge", provider="aws", batch_size=10,
    ...                                       bytes_per_item=1e6, call_seconds=[6.3] * 9)
    >>> retrieve_and_infer(moved, calls)["mb_per_second"].round(2).tolist()
    [0.71]
    """
    names = several(check_name, "by", by)
    confidence = check_number("confidence", confidence, least=0.5, most=0.999)
    downloads: dict[tuple[Any, ...], list[float]] = {}
    calls: dict[tuple[Any, ...], list[float]] = {}
    for transfer in read_records(transfers, TransferRecord):
        if transfer.download_seconds_per_mb is not None:
            levels = tuple(read_level(transfer, name) for name in names)
            downloads.setdefault(levels, []).append(transfer.download_seconds_per_mb)
    inferred = read_records(inferences, InferenceRecord)
    models = sorted({call.model for call in inferred if call.model})
    if len(models) > 1:
        raise ComparisonError(
            f"The inference records are of different models ({', '.join(models[:4])}). Pass those of one model."
        )
    for call in inferred:
        if call.seconds_per_mb is not None:
            calls.setdefault(tuple(read_level(call, name) for name in names), []).append(call.seconds_per_mb)
    both = sorted(downloads.keys() & calls.keys(), key=sort_key)
    if not both:
        raise ComparisonError(
            f"No {', '.join(names)} has both a download record and an inference record with a known size of its items. "
            "Pass bytes_per_item= to the inference probe, or group by another factor."
        )
    rows = []
    for levels in both:
        download, inference = (statistics.fmean(times) for times in (downloads[levels], calls[levels]))
        rate = _invert(downloads[levels], calls[levels], confidence)
        slowest = max(download, inference)
        rows.append(
            (
                name_levels(levels), len(downloads[levels]), len(calls[levels]), download, inference, *rate,
                1 / slowest if slowest else math.inf,
            )
        )  # fmt: skip
    named = [dict(zip(RETRIEVAL_COLUMNS, row, strict=True)) for row in rows]
    return to_frame(named, RETRIEVAL_COLUMNS, other_types=("group", "downloads", "inferences"))


def _invert(downloads: Sequence[float], calls: Sequence[float], confidence: float) -> Interval[float]:
    """1 / (mean of ``downloads`` + mean of ``calls``), with Welch's interval."""
    total = statistics.fmean(downloads) + statistics.fmean(calls)
    if not total:
        return Interval(math.inf, math.nan, math.nan)
    if min(len(downloads), len(calls)) < 2:
        return Interval(1 / total, math.nan, math.nan)
    parts = [statistics.variance(values) / len(values) for values in (downloads, calls)]
    spread = math.fsum(parts)
    if not spread:
        return Interval.exact(1 / total)
    from scipy.special import stdtrit

    freedom = spread**2 / math.fsum(p * p / (len(v) - 1) for p, v in zip(parts, (downloads, calls), strict=True))
    width = float(stdtrit(freedom, 0.5 + confidence / 2)) * math.sqrt(spread)
    return Interval(1 / total, 1 / (total + width), 1 / (total - width) if total > width else math.inf)
