"""Transfer records: throughput of uploads to a store (such as a bucket) and of downloads from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Annotated, Literal

from pydantic import Field, model_validator

from vmselect._checks import check_factors, check_name, check_number, check_seconds, list_items, maybe
from vmselect.errors import ArgumentError
from vmselect.findings import Finding, warnings_first
from vmselect.records.base import Count, Name, Part, Placement, PositiveCount, Record, Seconds, Text, given_as
from vmselect.records.usage import Usage
from vmselect.units import BYTES_PER_MB

MAX_FILES = 100_000

Usd = Annotated[float, Field(ge=0, le=1e9)]
Label = Literal["warmup", "steady"]


class TransferSetup(Part):
    """The store and the transferred files. ``url`` has no credentials. ``store`` is the cloud provider of the store."""

    url: Text
    protocol: Name
    store: Name | None = None
    files: PositiveCount
    bytes_per_file: PositiveCount
    streams: PositiveCount = 1


class Direction(Part):
    """All uploads or all downloads: total wall time in ``seconds``; start, duration (``taken``) and size per file."""

    seconds: Seconds
    start: tuple[Seconds, ...] = Field(default=(), max_length=MAX_FILES)
    taken: tuple[Seconds, ...] = Field(default=(), max_length=MAX_FILES)
    bytes: tuple[Count, ...] = Field(default=(), max_length=MAX_FILES)
    label: tuple[Label, ...] = Field(default=(), max_length=MAX_FILES)

    @model_validator(mode="after")
    def _columns_agree(self) -> Direction:
        if len({len(column) for column in (self.start, self.taken, self.bytes, self.label)}) != 1:
            raise ValueError("the columns start, taken, bytes and label differ in length")
        return self

    @property
    def total_bytes(self) -> int:
        """Number of bytes that were transferred."""
        return sum(self.bytes)

    @property
    def seconds_per_mb(self) -> float | None:
        """Wall seconds per megabyte (1,000,000 bytes), with all streams together."""
        return self.seconds / self.total_bytes * BYTES_PER_MB if self.total_bytes else None

    @property
    def file_seconds_per_mb(self) -> tuple[float, ...]:
        """Seconds per megabyte of each file after the warm-up."""
        columns = zip(self.taken, self.bytes, self.label, strict=True)
        return tuple(taken / size * BYTES_PER_MB for taken, size, label in columns if size and label == "steady")


class TransferRecord(Record):
    """Measured uploads to a store and downloads from it.

    ``first_upload_seconds`` and ``first_download_seconds`` are the times of a small file that is transferred before
    the others: connection, authentication and DNS lookup. ``egress_usd_per_gb`` is the price of data that leave the
    store.

    >>> record = TransferRecord.from_times(instance_type="t3.micro", url="s3://bucket", megabytes=10,
    ...                                    upload_seconds=18.4, download_seconds=7.8)
    >>> round(record.upload_seconds_per_mb, 6), round(record.download_seconds_per_mb, 6)
    (1.84, 0.78)
    """

    kind: Literal["transfer"] = "transfer"
    format: Literal[1] = 1
    outcome: Literal["whole", "given"] = "whole"
    setup: TransferSetup
    first_upload_seconds: Seconds | None = None
    first_download_seconds: Seconds | None = None
    upload: Direction | None = None
    download: Direction | None = None
    egress_usd_per_gb: Usd | None = None
    cost_usd: Usd | None = None
    """Upper bound of the cost of this measurement in USD; None if no price is known."""
    usage: Usage | None = None

    @classmethod
    @given_as("record of transfers")
    def from_times(
        cls,
        *,
        instance_type: str,
        url: str,
        megabytes: float,
        upload_seconds: float | Sequence[float] | None = None,
        download_seconds: float | Sequence[float] | None = None,
        provider: str | None = None,
        region: str | None = None,
        egress_usd_per_gb: float | None = None,
        factors: Mapping[str, bool | int | float | str] | None = None,
    ) -> TransferRecord:
        """A record from times that another tool measured for sequential transfers of files of ``megabytes`` each."""
        size = round(check_number("megabytes", megabytes, above=0, most=1e9) * BYTES_PER_MB) or 1
        ways: list[Direction | None] = []
        for name, value in (("upload_seconds", upload_seconds), ("download_seconds", download_seconds)):
            many = [] if value is None else [check_seconds(name, seconds) for seconds in list_items(value)][:MAX_FILES]
            if not many:
                ways.append(None)
                continue
            labels: list[Label] = ["steady"] * len(many)
            start, sizes = tuple(accumulate(many[:-1], initial=0.0)), (size,) * len(many)
            ways.append(Direction(seconds=sum(many), start=start, taken=tuple(many), bytes=sizes, label=tuple(labels)))
        files = max((len(way.taken) for way in ways if way is not None), default=0)
        if not files:
            raise ArgumentError("Neither upload_seconds nor download_seconds was given. Pass at least one of them.")
        address = check_name("url", url)
        return cls(
            outcome="given",
            placement=Placement.given(instance_type=instance_type, provider=provider, region=region),
            setup=TransferSetup(
                url=address, protocol=address.partition(":")[0] or "file", files=files, bytes_per_file=size
            ),
            upload=ways[0],
            download=ways[1],
            egress_usd_per_gb=maybe(check_number, "egress_usd_per_gb", egress_usd_per_gb, least=0),
            factors=check_factors("factors", factors),
        )

    @property
    def file_stem(self) -> str:
        """Start of the file name: instance type and protocol."""
        return f"{self.instance_type or 'unknown'}-transfer-{self.setup.protocol}"

    @property
    def title(self) -> str:
        """A short name for messages and tables: instance type, URL and number of files."""
        return f"{self.instance_type or 'unknown machine'}, {self.setup.url}, {self.setup.files} files"

    @property
    def upload_seconds_per_mb(self) -> float | None:
        """Seconds to upload a megabyte."""
        return self.upload.seconds_per_mb if self.upload else None

    @property
    def download_seconds_per_mb(self) -> float | None:
        """Seconds to download a megabyte."""
        return self.download.seconds_per_mb if self.download else None

    @property
    def upload_mb_per_second(self) -> float | None:
        """Upload throughput in megabytes per second."""
        return 1 / each if (each := self.upload_seconds_per_mb) else None

    @property
    def download_mb_per_second(self) -> float | None:
        """Download throughput in megabytes per second."""
        return 1 / each if (each := self.download_seconds_per_mb) else None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Warnings and information about this record, each with a remedy."""
        findings = self.find_unknown_machine()
        brief = any(way is not None and 0 < way.seconds < 1 for way in (self.upload, self.download))
        if brief and self.outcome != "given":
            message = "The transfer took less than a second, too short for a connection to reach its full speed."
            findings.append(Finding("brief-transfer", message, "Transfer more data (megabytes=).", "info"))
        return warnings_first(findings)
