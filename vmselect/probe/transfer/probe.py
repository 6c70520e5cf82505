"""The probe of moving data: to a store and back, with its size and cost printed before anything moves."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from vmselect._checks import check_count, check_name, check_number, check_path, maybe
from vmselect.egress import egress_price
from vmselect.errors import ArgumentError
from vmselect.probe.observation import Observation, check_sample
from vmselect.probe.options import Factors, check_factors, check_target, choose_path
from vmselect.probe.surroundings import read_facts
from vmselect.probe.transfer.address import Address, read_address
from vmselect.probe.transfer.engine import Clock, Engine, OpenStorage
from vmselect.probe.transfer.storage import Storage
from vmselect.records.base import new_id
from vmselect.records.transfer import MAX_FILES, TransferRecord, TransferSetup
from vmselect.units import BYTES_PER_GB, BYTES_PER_MB, format_usd

UNPRICED_BYTES = 1 * BYTES_PER_GB
"""So much is moved at most where no price is known."""


@dataclass(frozen=True)
class TransferPlan:
    """What a transfer would move and cost, before it does."""

    address: Address
    files: int
    bytes_per_file: int
    streams: int
    usd_per_gb: float | None
    basis: str
    """Where the price comes from, or why there is none."""

    @property
    def total_bytes(self) -> int:
        """Bytes each way."""
        return self.files * self.bytes_per_file

    @property
    def cost_usd(self) -> float | None:
        """At most this is paid for the data that come back from the store; None where no price is known."""
        return None if self.usd_per_gb is None else self.total_bytes / BYTES_PER_GB * self.usd_per_gb

    def __str__(self) -> str:
        size = f"{self.total_bytes / BYTES_PER_MB:,.6g} MB"
        cost = "cost unknown" if self.cost_usd is None else f"at most {format_usd(self.cost_usd)}"
        plural = "s" * (self.files != 1)
        return f"{size} in {self.files:,} file{plural} to {self.address.shown} and back: {cost} ({self.basis})"


def plan_transfer(
    url: str,
    *,
    megabytes: float = 64,
    files: int = 8,
    streams: int = 4,
    usd_per_gb: float | None = None,
    options: Mapping[str, Any] | None = None,
) -> TransferPlan:
    """What :func:`probe_transfer` would do, and what it would cost.

    >>> str(plan_transfer("s3://bucket/folder", megabytes=1000, options={}))
    '1,000 MB in 8 files to s3://bucket/folder and back: at most $0.09 (aws, $0.09 per GB out, 2026-01-01)'
    """
    address = read_address(url, options)
    count = check_count("files", files, most=MAX_FILES)
    total = check_number("megabytes", megabytes, above=0, most=1e9) * BYTES_PER_MB
    if total < count:
        raise ArgumentError(f"{files} files cannot share {megabytes} MB: each needs a byte. Raise megabytes=.")
    price = maybe(check_number, "usd_per_gb", usd_per_gb, least=0)
    basis = "price given"
    if price is None:
        known = egress_price(address.store) if address.store else None
        if address.is_free:
            price, basis = 0.0, "nothing leaves this machine"
        elif known is not None:
            price, basis = (
                known.usd_per_gb,
                f"{known.provider}, {format_usd(known.usd_per_gb)} per GB out, {known.date}",
            )
        else:
            basis = "no egress price is known for it; pass usd_per_gb="
    return TransferPlan(address, count, round(total / count), check_count("streams", streams, most=256), price, basis)


def probe_transfer(
    url: str,
    path: str | os.PathLike[str] | None = None,
    *,
    megabytes: float = 64,
    files: int = 8,
    streams: int = 4,
    usd_per_gb: float | None = None,
    budget_usd: float = 1.0,
    options: Mapping[str, Any] | None = None,
    instance_type: str | None = None,
    region: str | None = None,
    factors: Factors | None = None,
    sample: float | None = 1.0,
    verbose: int = 1,
    clock: Clock = time.perf_counter,
    open_storage: OpenStorage = Storage,
) -> TransferRecord:
    """Move files to a store and back, verify them, remove them, and leave a record of what it took.

    Args:
        url: a folder at any address that fsspec knows: file, memory, s3, az, gs, sftp.
        path: a file, or a folder, in which the record is written.
        megabytes: moved each way, all files together (1 MB = 1,000,000 bytes).
        files: how many files they are spread over.
        streams: files moved at the same time, each over a connection of its own.
        usd_per_gb: what the store charges for a GB that leaves it; without it, the shipped list price of its cloud.
        budget_usd: nothing is moved if that could cost more, nor over 1 GB where the price is not known.
        options: what fsspec needs to open the store, such as keys; never recorded or printed.
        sample: seconds between two samples of machine usage; None takes no samples.

    >>> record = probe_transfer("memory://doc", megabytes=1, files=2, streams=1, instance_type="here", verbose=0)
    >>> record.setup.files, record.upload.total_bytes, record.cost_usd
    (2, 1000000, 0.0)
    """
    plan = plan_transfer(url, megabytes=megabytes, files=files, streams=streams, usd_per_gb=usd_per_gb, options=options)
    budget = check_number("budget_usd", budget_usd, least=0)
    names = {"instance_type": instance_type, "region": region}
    given = {name: maybe(check_name, name, value) for name, value in names.items()}
    varied = check_factors("factors", factors)
    interval, _ = check_sample(sample, None)
    talk = check_count("verbose", verbose, least=0)
    where = choose_path(maybe(check_path, "path", path))
    if plan.cost_usd is not None and plan.cost_usd > budget:
        raise ArgumentError(f"This transfer is above budget_usd={budget:g}: {plan}. Move less, or raise budget_usd=.")
    if plan.cost_usd is None and plan.total_bytes > UNPRICED_BYTES:
        raise ArgumentError(
            f"What this transfer costs is not known, so budget_usd={budget:g} cannot hold: {plan}. Pass usd_per_gb= "
            "(0 where nothing is charged), or move at most 1 GB."
        )
    check_target(where, "transfer")
    facts = read_facts(**given, factors=varied)
    if talk:
        _print_line(f"vmselect: {plan}")
    sizes = [plan.bytes_per_file] * plan.files
    observation = Observation(interval)
    streams = min(plan.streams, plan.files)
    engine = Engine(plan.address, new_id(), sizes, streams, clock, open_storage, observation.enter)
    observation.start()
    try:
        moved = engine.move()
    finally:
        observation.end()
    record = TransferRecord(
        setup=TransferSetup(
            url=plan.address.shown[:1_000],
            protocol=plan.address.protocol,
            store=plan.address.store,
            files=plan.files,
            bytes_per_file=plan.bytes_per_file,
            streams=engine.streams,
        ),
        first_upload_seconds=moved.first_upload_seconds,
        first_download_seconds=moved.first_download_seconds,
        upload=moved.upload,
        download=moved.download,
        egress_usd_per_gb=plan.usd_per_gb,
        cost_usd=plan.cost_usd,
        usage=observation.usage,
        **facts,
    )
    written = record.save(where) if where is not None else None
    if talk:
        _print_line(f"vmselect: {describe(record)}" + (f"; record in {written}" if written else ""))
    return record


def describe(record: TransferRecord) -> str:
    """One line about a transfer."""
    rates = (record.upload_mb_per_second or 0.0, record.download_mb_per_second or 0.0)
    up, down = (f"{rate:,.0f} MB/s" if rate >= 100 else f"{rate:.3g} MB/s" for rate in rates)
    return f"up {up}, down {down}, all removed"


def _print_line(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
