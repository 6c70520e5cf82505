"""The mark that a probe leaves in a store before it writes anything else there, so that all of it can be found again.

Everything that one probe writes lies in one folder whose name no other program uses. The marker in it names
the process at work. A process that was killed leaves folder and marker; :func:`clean_transfers` finds them by name and
removes them, unless their process is, or may be, still running.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import psutil

from vmselect._checks import check_count, check_flag, check_name, check_number, check_path, maybe
from vmselect.egress import egress_price
from vmselect.errors import ArgumentError, TransferError
from vmselect.probe.load_generator import run_together
from vmselect.probe.monitoring import Observation, check_sample
from vmselect.probe.options import Factors, check_factors, check_target, choose_path
from vmselect.probe.recording import read_facts
from vmselect.probe.storage import Address, Content, Storage, read_address
from vmselect.records.record import new_id
from vmselect.records.transfer import MAX_FILES, Direction, Label, TransferRecord, TransferSetup
from vmselect.records.usage import Phase
from vmselect.records.warmup import detect_warmup
from vmselect.units import BYTES_PER_GB, BYTES_PER_MB, format_usd

MARKER = "marker.json"
FOLDER = re.compile(r"vmselect-transfer-[0-9a-f]{32}")
PATIENCE_SECONDS = 24 * 3600.0
"""A probe on another machine is taken to have ended after this time."""


def folder_name(run: str) -> str:
    """The folder of one probe."""
    return f"vmselect-transfer-{run}"


def make_marker(made: list[str]) -> bytes:
    """The content of a marker: who is at work here, since when, and which folders above had to be made."""
    process = psutil.Process()
    content = {
        "host": platform.node(), "pid": os.getpid(), "process_started": process.create_time(),
        "written": time.time(), "made": made,
    }  # fmt: skip
    return json.dumps(content).encode()


@dataclass(frozen=True)
class Leftover:
    """A folder that a probe left: its name, whether it was removed, and why not."""

    name: str
    removed: bool
    reason: str = ""


def clean_transfers(
    url: str, *, options: Mapping[str, Any] | None = None, everything: bool = False
) -> tuple[Leftover, ...]:
    """Remove what killed probes left at ``url``.

    Folders of probes that are still running are kept, as are those of other machines that are less than a day old;
    ``everything`` removes these as well.
    """
    take_all = check_flag("everything", everything)
    address = read_address(url, options)
    storage = Storage(address)
    try:
        parts = [key[len(storage.root.lstrip("/").partition("/")[2]) :].lstrip("/") for key in storage.unfinished()]
        names = {*storage.names(), *(part.partition("/")[0] for part in parts)}
        return tuple(_clean(storage, name, take_all) for name in sorted(names) if FOLDER.fullmatch(name))
    finally:
        storage.close()


def _clean(storage: Storage, name: str, everything: bool) -> Leftover:
    marker = _read_marker(storage, name)
    reason = "" if everything else _why_keep(marker)
    if reason:
        return Leftover(name, False, reason)
    storage.remove(name)
    made = marker.get("made")
    if isinstance(made, list) and all(isinstance(path, str) for path in made):
        storage.remove_empty(made)
    return Leftover(name, True)


def _read_marker(storage: Storage, name: str) -> dict[str, Any]:
    try:
        content = json.loads(storage.read(name, MARKER))
    except (TransferError, ValueError):  # killed before it was written
        return {}
    return content if isinstance(content, dict) else {}


def _why_keep(marker: dict[str, Any]) -> str:
    if not marker:
        return ""
    if marker.get("host") == platform.node():
        return "its probe is still running" if _is_running(marker) else ""
    written = marker.get("written")
    recent = isinstance(written, (int, float)) and time.time() - written < PATIENCE_SECONDS
    return f"written less than a day ago by {marker.get('host')}, where its probe may be running" if recent else ""


def _is_running(marker: dict[str, Any]) -> bool:
    try:
        process = psutil.Process(marker["pid"])
        # Process numbers are used again: only one that started at the same moment is the same.
        return process.status() != psutil.STATUS_ZOMBIE and abs(process.create_time() - marker["process_started"]) < 1.0
    except (KeyError, TypeError, ValueError, psutil.Error):
        return False


# Moves files to a store and back, several at a time, and removes them whatever happens.


JOIN_SECONDS = 10.0
"""How long a stream is waited for after a stop."""

Clock = Callable[[], float]
OpenStorage = Callable[[Address], Storage]


@dataclass
class Moved:
    """What a transfer took, in seconds."""

    first_upload_seconds: float
    first_download_seconds: float
    upload: Direction
    download: Direction


@dataclass
class Engine:
    """One transfer of ``sizes`` bytes in as many files, by ``streams`` at a time."""

    address: Address
    run: str
    sizes: list[int]
    streams: int
    clock: Clock = time.perf_counter
    open_storage: OpenStorage = Storage
    enter: Callable[[Phase], None] = lambda _: None
    """Called with each phase that begins."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _made: list[str] = field(default_factory=list)

    def move(self) -> Moved:
        """Everything: connect, mark, upload, download and verify, remove."""
        begun = False
        Content(self.run, 0, 1)  # makes the random block, which takes longer than writing it
        try:
            start = self.clock()
            storage = self.open_storage(self.address)
            folder = folder_name(self.run)
            begun = True  # from here on something may be there, even if making it fails half-way
            self._made = storage.make_folder(folder)
            marker = make_marker(self._made)
            storage.write(marker, folder, MARKER)
            uploaded = self.clock()
            if storage.read(folder, MARKER) != marker:
                raise TransferError(self._different(MARKER))
            downloaded = self.clock()
            storages = [storage, *(self.open_storage(self.address) for _ in range(self.streams - 1))]
            self.enter("upload")
            upload = self._all(storages, self._upload)
            self.enter("download")
            download = self._all(storages, self._download)
        except BaseException:
            self._stop.set()
            if begun:
                self._remove(raising=False)
            raise
        self._remove(raising=True)
        for each in storages:
            each.close()
        return Moved(uploaded - start, downloaded - uploaded, upload, download)

    # -- one way -----------------------------------------------------------------------------------------------------

    def _all(self, storages: list[Storage], move: Callable[[Storage, int], None]) -> Direction:
        waiting = iter(range(len(self.sizes)))
        lock = threading.Lock()
        times: dict[int, tuple[float, float]] = {}

        def stream(storage: Storage) -> None:
            while not self._stop.is_set():
                with lock:
                    number = next(waiting, None)
                if number is None:
                    return
                start = self.clock()
                move(storage, number)
                times[number] = (start, self.clock())

        begin = self.clock()
        tasks = [partial(stream, storage) for storage in storages]
        run_together(tasks, stop=self._stop, name="stream", patience=JOIN_SECONDS)
        return self._direction(begin, [times[number] for number in range(len(self.sizes))])

    def _upload(self, storage: Storage, number: int) -> None:
        content = Content(self.run, number, self.sizes[number])
        storage.upload(content, folder_name(self.run), file_name(number), stopped=self._stop.is_set)

    def _download(self, storage: Storage, number: int) -> None:
        content, name = Content(self.run, number, self.sizes[number]), file_name(number)
        if not storage.download(content, folder_name(self.run), name, stopped=self._stop.is_set):
            raise TransferError(self._different(name))

    def _direction(self, begin: float, times: list[tuple[float, float]]) -> Direction:
        taken = [max(0.0, end - start) for start, end in times]
        per_byte = [seconds / size for seconds, size in zip(taken, self.sizes, strict=True)]
        # Streams that share a connection have no warm-up of their own.
        warm = detect_warmup(per_byte) if self.streams == 1 else 0
        labels: list[Label] = ["warmup" if number < warm else "steady" for number in range(len(taken))]
        return Direction(
            seconds=max(end for _, end in times) - begin,
            start=tuple(max(0.0, start - begin) for start, _ in times),
            taken=tuple(taken),
            bytes=tuple(self.sizes),
            label=tuple(labels),
        )

    # -- the end -----------------------------------------------------------------------------------------------------

    def _remove(self, *, raising: bool) -> None:
        """Remove the folder, over a new connection: the old one may be the trouble."""
        last: TransferError | None = None
        for _ in range(2):
            try:
                storage = self.open_storage(self.address)
                storage.remove(folder_name(self.run))
                storage.remove_empty(self._made)
                storage.close()
            except TransferError as cannot:
                last = cannot
            else:
                return
        note = f"{self.address.shown}/{folder_name(self.run)} may be left. Remove it with vmselect transfer --clean."
        if raising:
            raise TransferError(f"{last} {note}") from None
        sys.stderr.write(f"vmselect: {last} {note}\n")

    def _different(self, name: str) -> str:
        return (
            f"{name} came back from {self.address.shown} with another content than was written. "
            "Look for a cache or a faulty disk on the way; the times would mean nothing."
        )


def file_name(number: int) -> str:
    """The name of one of the files that are moved."""
    return f"part-{number:06d}.bin"


# The probe of moving data: to a store and back, with its size and cost printed before anything moves.


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
