"""Access to a store whose transfer speed is measured, through fsspec, and the test data that is transferred."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from functools import lru_cache

from vmselect._stores import S3_PROTOCOLS, Address, open_files, translating
from vmselect._stores import read_address as read_address
from vmselect.errors import TransferError

CHUNK_BYTES = 1 << 20


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


@lru_cache(maxsize=1)
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
        found: set[str] = set()
        with self.translating("list"):
            self.files.invalidate_cache()
            with suppress(FileNotFoundError):
                found |= {str(path).rstrip("/").rpartition("/")[2] for path in self.files.ls(self.root, detail=False)}
            prefix = self.root.lstrip("/").partition("/")[2]
            with suppress(FileNotFoundError):
                keys = [key for key, _ in self._unfinished(self.root)]
                found |= {key[len(prefix) :].lstrip("/").partition("/")[0] for key in keys}
        return found

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
