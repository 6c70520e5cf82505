"""Moves files to a store and back, several at a time, and removes them whatever happens."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from vmselect.errors import TransferError
from vmselect.probe.threads import run_together
from vmselect.probe.transfer.address import Address
from vmselect.probe.transfer.content import Content
from vmselect.probe.transfer.marker import MARKER, folder_name, make_marker
from vmselect.probe.transfer.storage import Storage
from vmselect.records.transfer import Direction, Label
from vmselect.records.usage import Phase
from vmselect.records.warmup import detect_warmup

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
