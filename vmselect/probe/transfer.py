"""The probe of data transfer: uploads files to a store, downloads, verifies and removes them, and writes a record.

Size and cost are computed before data is transferred. All files of a probe are in one folder with a unique name. A
marker file in the folder identifies the process that created it. If a process was killed, its folder remains;
:func:`clean_transfers` finds such folders by name and removes them, unless the process is, or may be, still running.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import random
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psutil

from vmselect._checks import check_count, check_flag, check_number, maybe, suggest_arguments
from vmselect._io import S3_PROTOCOLS, Address, open_files, read_address, translating
from vmselect.errors import ArgumentError, TransferError
from vmselect.probe.inference import run_together
from vmselect.probe.options import CommonOptions, Factors, RecordPath, check_target, choose_path
from vmselect.probe.recording import read_facts
from vmselect.probe.sampling import Observation
from vmselect.records.base import new_id
from vmselect.records.egress import egress_price
from vmselect.records.step_times import detect_warmup
from vmselect.records.transfer import MAX_FILES, Direction, Label, TransferRecord, TransferSetup
from vmselect.records.usage import Phase
from vmselect.units import BYTES_PER_GB, BYTES_PER_MB, format_usd

MARKER = "marker.json"
FOLDER = re.compile(r"vmselect-transfer-[0-9a-f]{32}")

MAX_RUN_SECONDS = 24 * 3600.0
"""Time after which a probe on another machine is assumed to have ended."""

JOIN_SECONDS = 10.0
"""Longest wait, in seconds, for each thread that transfers files to end after Ctrl-C."""

MAX_UNPRICED_BYTES = 1 * BYTES_PER_GB
"""Largest number of bytes to transfer in each direction if the egress price is unknown."""

NO_MARKER = "the folder contains no marker file of a probe; everything=True removes it"
"""Reason for keeping a folder. A probe that was killed before it wrote its marker file leaves such a folder."""

CHUNK_BYTES = 1 << 20
Clock = Callable[[], float]


class Content:
    """Test data of a file: ``size`` incompressible bytes, different for every ``run`` and file ``number``.

    A block of random bytes is created once per run. Each chunk of each file is a slice of this block at another
    position, so that creating test data takes no time during the measurement. Downloaded data is compared byte by byte,
    which is many times faster than a checksum.
    """

    def __init__(self, run: str, number: int, size: int) -> None:
        self.size = size
        self._block = _random_block(run)
        self._head = hashlib.sha256(f"{run}/{number}".encode()).digest()
        self._offset = int.from_bytes(self._head[:3], "big")

    def chunks(self) -> Iterator[bytes | memoryview]:
        """Yield the test data in chunks of at most 1 MiB."""
        yield self._head[: self.size]
        left = self.size - len(self._head)
        position = self._offset
        while left > 0:
            length = min(left, CHUNK_BYTES)
            start = position % CHUNK_BYTES
            yield self._block[start : start + length]
            left -= length
            position += 65_537

    def matches(self, pieces: Iterable[bytes]) -> bool:
        """Return whether the concatenated ``pieces`` equal this test data; stop reading at the first difference."""
        chunks = self.chunks()
        expected = memoryview(b"")
        missing = self.size
        for piece in pieces:
            view = memoryview(piece)
            missing -= len(view)
            if missing < 0:
                return False
            while len(view):
                if not len(expected):
                    expected = memoryview(next(chunks))
                size = min(len(view), len(expected))
                if bytes(view[:size]) != bytes(expected[:size]):
                    return False
                view, expected = view[size:], expected[size:]
        return missing == 0


@functools.lru_cache(maxsize=1)
def _random_block(run: str) -> memoryview:
    return memoryview(random.Random(run).randbytes(2 * CHUNK_BYTES))


class Storage:
    """A connection to the folder at ``address``.

    Its methods raise :class:`TransferError`, with messages that contain no secrets. ``parts`` are the names of the
    subfolders and the file below the folder.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        # Each stream needs its own connection: on a shared connection, streams would take turns.
        self.files, self.root = open_files(address, own=True, error=TransferError)

    def close(self) -> None:
        """Close the connection, if the protocol keeps one open."""
        for name in ("ftp", "client") if self.address.is_sftp else ():
            close = getattr(getattr(self.files, name, None), "close", None)
            if close is not None:
                with self.translating("disconnect from"):
                    close()

    def path(self, *parts: str) -> str:
        """Return the path in the store of the file or folder ``parts``."""
        return "/".join([self.root, *parts])

    def make_folder(self, name: str) -> list[str]:
        """Create the folder ``name`` if the store has folders. Return the parent folders that had to be created too."""
        made: list[str] = []
        if not (self.address.is_local or self.address.is_sftp):
            return made  # buckets are never created, and object stores need no folders
        with self.translating("create a folder in"):
            above = self.root
            while above.strip("/") and not self.files.exists(above):
                made.append(above)
                above = above.rpartition("/")[0]
            self.files.makedirs(self.path(name), exist_ok=True)
        return made

    def remove_empty(self, paths: list[str]) -> None:
        """Remove the folders in ``paths`` that are empty. The probe created these folders; the deepest comes first."""
        with self.translating("remove from"):
            for path in paths:
                self.files.invalidate_cache()
                if self.root.startswith(path) and self.files.isdir(path) and not self.files.ls(path, detail=False):
                    self.files.rmdir(path)

    def write(self, content: bytes, *parts: str) -> None:
        """Write ``content`` to the small file ``parts``."""
        with self.translating("write to"):
            self.files.pipe_file(self.path(*parts), content)

    def read(self, *parts: str) -> bytes:
        """Return the content of the small file ``parts``."""
        with self.translating("read from"):
            data: bytes = self.files.cat_file(self.path(*parts))
            return data

    def upload(self, content: Content, *parts: str, stopped: Callable[[], bool] = lambda: False) -> None:
        """Write ``content`` to a file in chunks, until done or ``stopped()`` is true; wait until the store has it."""
        with self.translating("write to"), self.files.open(self.path(*parts), "wb") as file:
            if self.address.is_sftp:
                file.set_pipelined(True)  # otherwise SFTP waits for the response to each of many small packets
            for chunk in content.chunks():
                if stopped():
                    return
                file.write(chunk)

    def download(self, content: Content, *parts: str, stopped: Callable[[], bool] = lambda: False) -> bool:
        """Read a file and return whether it equals ``content``, or True if ``stopped()`` became true before the end."""
        remote = not (self.address.is_local or self.address.is_sftp)
        options = {"cache_type": "readahead", "block_size": 8 * CHUNK_BYTES} if remote else {}
        with self.translating("read from"), self.files.open(self.path(*parts), "rb", **options) as file:
            if self.address.is_sftp:
                file.prefetch(file.stat().st_size)  # requests the whole file at once instead of packet by packet
            pieces = iter(lambda: b"" if stopped() else file.read(CHUNK_BYTES), b"")
            return content.matches(pieces) or stopped()

    def remove(self, *parts: str) -> None:
        """Remove the folder ``parts`` and its contents, including unfinished multipart uploads."""
        path = self.path(*parts)
        with self.translating("remove from"), suppress(FileNotFoundError):  # no bucket, so nothing is left in it
            if self.files.exists(path):
                self.files.rm(path, recursive=True)
            bucket = path.lstrip("/").partition("/")[0]
            for key, upload in self._unfinished(path + "/"):
                self.files.call_s3("abort_multipart_upload", Bucket=bucket, Key=key, UploadId=upload)

    def names(self) -> set[str]:
        """Return the names of all files, folders and unfinished uploads in the folder; empty if it does not exist."""
        names: set[str] = set()
        with self.translating("list"):
            self.files.invalidate_cache()
            with suppress(FileNotFoundError):
                names |= {str(path).rstrip("/").rpartition("/")[2] for path in self.files.ls(self.root, detail=False)}
            prefix = self.root.lstrip("/").partition("/")[2]
            with suppress(FileNotFoundError):
                keys = [key for key, _ in self._unfinished(self.root)]
                names |= {key[len(prefix) :].lstrip("/").partition("/")[0] for key in keys}
        return names

    def _unfinished(self, path: str) -> list[tuple[str, str]]:
        """Return key and ID of each unfinished multipart upload below ``path``. S3 bills but does not list these."""
        if self.address.protocol not in S3_PROTOCOLS:
            return []
        bucket, _, prefix = path.lstrip("/").partition("/")
        answer = self.files.call_s3("list_multipart_uploads", Bucket=bucket, Prefix=prefix)
        return [(upload["Key"], upload["UploadId"]) for upload in answer.get("Uploads", ())]

    def translating(self, doing: str) -> AbstractContextManager[None]:
        """Context manager that converts errors of the store to TransferError; ``doing`` is the verb of the message."""
        return translating(self.address, doing, error=TransferError)


OpenStorage = Callable[[Address], Storage]


def folder_name(run: str) -> str:
    """Return the name of the folder that contains the files of the probe with the ID ``run``."""
    return f"vmselect-transfer-{run}"


@dataclass(frozen=True)
class Leftover:
    """A folder that a killed probe did not remove: its name, whether it was removed now, and if not, the reason."""

    name: str
    removed: bool
    reason: str = ""


@suggest_arguments()
def clean_transfers(
    url: str, *, options: Mapping[str, Any] | None = None, everything: bool = False
) -> tuple[Leftover, ...]:
    """Remove the folders of killed transfer probes from the folder ``url``.

    Folders of running probes are kept, as are folders of probes on other machines that are less than a day old, and
    folders without the marker file of a probe. ``everything=True`` removes these as well.
    """
    everything = check_flag("everything", everything)
    storage = Storage(read_address(url, options))
    try:
        names = sorted(name for name in storage.names() if FOLDER.fullmatch(name))
        return tuple(_clean(storage, name, everything) for name in names)
    finally:
        storage.close()


def _clean(storage: Storage, name: str, everything: bool) -> Leftover:
    try:
        marker = json.loads(storage.read(name, MARKER))
    except (TransferError, ValueError, RecursionError):
        marker = None
    if not isinstance(marker, dict):
        marker = {}
    reason = "" if everything else _reason_to_keep(marker) if "host" in marker else NO_MARKER
    if reason:
        return Leftover(name, False, reason)
    storage.remove(name)
    made = marker.get("made")
    if isinstance(made, list) and all(isinstance(path, str) for path in made):
        storage.remove_empty(made)
    return Leftover(name, True)


def _reason_to_keep(marker: dict[str, Any]) -> str:
    host, written = marker.get("host"), marker.get("written")
    if host == platform.node():
        return "the probe that created the folder is still running" if _is_running(marker) else ""
    recent = isinstance(written, (int, float)) and time.time() - written < MAX_RUN_SECONDS
    return f"the folder was created less than a day ago by a probe that may still run on {host}" if recent else ""


def _is_running(marker: dict[str, Any]) -> bool:
    try:
        process = psutil.Process(marker["pid"])
        # Process IDs are reused: it is the same process only if it started at the same time.
        return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - marker["process_started"]) < 1.0
    except (KeyError, TypeError, ValueError, psutil.Error):
        return False


@dataclass
class Engine:
    """Transfers files with these ``sizes`` in bytes to a store and back, ``streams`` files at a time."""

    address: Address
    run: str
    sizes: list[int]
    streams: int
    clock: Clock = time.perf_counter
    open_storage: OpenStorage = Storage
    enter: Callable[[Phase], None] = lambda _: None
    """Function that is called with the name of each phase when it begins, such as "upload"."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _made: list[str] = field(default_factory=list)

    def move(self) -> dict[str, Any]:
        """Upload, download, verify and remove the files. Return the measured times as fields of a record."""
        begun = False
        Content(self.run, 0, 1)  # creates the random block, which takes longer than writing it
        try:
            start = self.clock()
            storage = self.open_storage(self.address)
            folder = folder_name(self.run)
            begun = True  # from here on the folder may exist, even if its creation fails
            self._made = storage.make_folder(folder)
            content = {
                "host": platform.node(),
                "pid": os.getpid(),
                "process_started": psutil.Process().create_time(),
                "written": time.time(),
                "made": self._made,
            }
            marker = json.dumps(content).encode()
            storage.write(marker, folder, MARKER)
            uploaded = self.clock()
            self._verify(storage.read(folder, MARKER) == marker, MARKER)
            downloaded = self.clock()
            storages = [storage, *(self.open_storage(self.address) for _ in range(self.streams - 1))]
            self.enter("upload")
            upload = self._move_all(storages, self._upload)
            self.enter("download")
            download = self._move_all(storages, self._download)
        except BaseException:
            self._stop.set()
            if begun:
                self._remove(raising=False)
            raise
        self._remove(raising=True)
        for each in storages:
            each.close()
        return {
            "first_upload_seconds": uploaded - start,
            "first_download_seconds": downloaded - uploaded,
            "upload": upload,
            "download": download,
        }

    def _move_all(self, storages: list[Storage], move: Callable[[Storage, Content, str], None]) -> Direction:
        waiting = iter(range(len(self.sizes)))
        lock = threading.Lock()
        times: dict[int, tuple[float, float]] = {}

        def stream(storage: Storage) -> None:
            while not self._stop.is_set():
                with lock:
                    number = next(waiting, None)
                if number is None:
                    return
                content, name = Content(self.run, number, self.sizes[number]), f"part-{number:06d}.bin"
                start = self.clock()
                move(storage, content, name)
                times[number] = (start, self.clock())

        begin = self.clock()
        tasks = [partial(stream, storage) for storage in storages]
        run_together(tasks, stop=self._stop, name="stream", patience=JOIN_SECONDS)
        spans = [times[number] for number in range(len(self.sizes))]
        taken = [max(0.0, end - start) for start, end in spans]
        per_byte = [seconds / size for seconds, size in zip(taken, self.sizes, strict=True)]
        # Parallel streams share the network connection, so a stream has no warm-up of its own.
        warm = detect_warmup(per_byte) if self.streams == 1 else 0
        labels: list[Label] = ["warmup" if number < warm else "steady" for number in range(len(taken))]
        return Direction(
            seconds=max(end for _, end in spans) - begin,
            start=tuple(max(0.0, start - begin) for start, _ in spans),
            taken=tuple(taken),
            bytes=tuple(self.sizes),
            label=tuple(labels),
        )

    def _upload(self, storage: Storage, content: Content, name: str) -> None:
        storage.upload(content, folder_name(self.run), name, stopped=self._stop.is_set)

    def _download(self, storage: Storage, content: Content, name: str) -> None:
        self._verify(storage.download(content, folder_name(self.run), name, stopped=self._stop.is_set), name)

    def _verify(self, same: bool, name: str) -> None:
        if not same:
            raise TransferError(
                f"{name} was downloaded from {self.address.shown} with different content than uploaded. "
                "Check for a faulty cache, proxy or disk between this machine and the store."
            )

    def _remove(self, *, raising: bool) -> None:
        """Remove the folder, over a new connection because the previous one may have failed.

        If that fails, raise an error if ``raising`` is True, otherwise print it.
        """
        last: TransferError | None = None
        for _ in range(2):
            try:
                storage = self.open_storage(self.address)
                storage.remove(folder_name(self.run))
                storage.remove_empty(self._made)
                storage.close()
            except TransferError as error:
                last = error
            else:
                return
        folder = f"{self.address.shown}/{folder_name(self.run)}"
        note = f"Remove the remaining folder {folder} with vmselect serve transfer --clean."
        if raising:
            raise TransferError(f"{last} {note}") from None
        sys.stderr.write(f"vmselect: {last} {note}\n")


@dataclass(frozen=True)
class TransferPlan:
    """Size and cost of a transfer, computed before it starts."""

    address: Address
    files: int
    bytes_per_file: int
    streams: int
    usd_per_gb: float | None
    basis: str
    """Source of the egress price, or the reason why it is unknown."""

    @property
    def total_bytes(self) -> int:
        """Number of bytes to upload. The same bytes are downloaded again."""
        return self.files * self.bytes_per_file

    @property
    def cost_usd(self) -> float | None:
        """Largest cost in USD of downloading the data from the store (egress), or None if the price is unknown."""
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
    """Return size and cost of a transfer by :func:`probe_transfer` with these arguments, without transferring data."""
    address = read_address(url, options)
    count = check_count("files", files, most=MAX_FILES)
    total = check_number("megabytes", megabytes, above=0, most=1e9) * BYTES_PER_MB
    if total < count:
        raise ArgumentError(
            f"megabytes={megabytes} is less than one byte for each of {files} files. Raise megabytes=, or lower files=."
        )
    price = maybe(check_number, "usd_per_gb", usd_per_gb, least=0)
    listed = egress_price(address.cloud) if address.cloud else None
    if price is not None:
        basis = "with the given usd_per_gb"
    elif address.is_local:
        price, basis = 0.0, "the data does not leave this machine"
    elif listed is not None:
        price = listed.usd_per_gb
        basis = f"egress price of {listed.provider}: {format_usd(price)} per GB on {listed.date}"
    else:
        basis = "the egress price of this store is unknown; pass usd_per_gb="
    return TransferPlan(address, count, round(total / count), check_count("streams", streams, most=256), price, basis)


@suggest_arguments()
def probe_transfer(
    url: str,
    path: RecordPath = None,
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
    """Upload files to a store, download, verify and remove them; return a record of the transfer times.

    Args:
        url: URL of a folder, with a protocol that fsspec supports, such as file, s3, az, gs or sftp.
        path: file for the record, or folder in which to write it.
        megabytes: total size of all files, which are transferred in both directions (1 MB = 1,000,000 bytes).
        files: number of files to transfer.
        streams: number of files to transfer at the same time, each over its own connection.
        usd_per_gb: egress price of the store in USD per GB; by default the shipped list price of its cloud.
        budget_usd: largest cost in USD. A transfer that could cost more is refused. If the price is unknown, a transfer
            of more than 1 GB is refused.
        options: options with which fsspec opens the store, such as keys; never recorded or printed.
        sample: seconds between two samples of machine usage; with None, usage is not sampled.

    >>> record = probe_transfer("memory://doc", False, megabytes=1, files=2, streams=1, instance_type="here", verbose=0)
    >>> record.setup.files, record.upload.total_bytes, record.cost_usd
    (2, 1000000, 0.0)
    """
    plan = plan_transfer(url, megabytes=megabytes, files=files, streams=streams, usd_per_gb=usd_per_gb, options=options)
    budget = check_number("budget_usd", budget_usd, least=0)
    common = CommonOptions(
        path, instance_type=instance_type, region=region, factors=factors, sample=sample, verbose=verbose
    )
    observation, target = Observation(common.sample), choose_path(common.path)
    if plan.cost_usd is not None and plan.cost_usd > budget:
        raise ArgumentError(
            f"The transfer exceeds budget_usd={budget:g}: {plan}. Lower megabytes=, or raise budget_usd=."
        )
    if plan.cost_usd is None and plan.total_bytes > MAX_UNPRICED_BYTES:
        raise ArgumentError(f"The cost of the transfer is unknown: {plan}. Pass usd_per_gb=, or transfer at most 1 GB.")
    check_target(target, "transfer")
    facts = read_facts(instance_type=common.instance_type, region=common.region, factors=common.factors)
    common.print_line(str(plan))
    sizes = [plan.bytes_per_file] * plan.files
    streams = min(plan.streams, plan.files)
    engine = Engine(plan.address, new_id(), sizes, streams, clock, open_storage, observation.enter)
    observation.start()
    try:
        times = engine.move()
    finally:
        observation.end()
    record = TransferRecord(
        setup=TransferSetup(
            url=plan.address.shown[:1_000],
            protocol=plan.address.protocol,
            store=plan.address.cloud,
            files=plan.files,
            bytes_per_file=plan.bytes_per_file,
            streams=streams,
        ),
        egress_usd_per_gb=plan.usd_per_gb,
        cost_usd=plan.cost_usd,
        usage=observation.usage,
        **times,
        **facts,
    )
    where = f"; record in {record.save(target)}" if target is not None else ""
    rates = (record.upload_mb_per_second or 0.0, record.download_mb_per_second or 0.0)
    up, down = (f"{rate:,.0f} MB/s" if rate >= 100 else f"{rate:.3g} MB/s" for rate in rates)
    common.print_line(f"upload {up}, download {down}, all files removed{where}")
    return record
