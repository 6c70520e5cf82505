"""What is moved: bytes that no compression shrinks, different for every file, recognised when they come back."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from functools import lru_cache

CHUNK_BYTES = 1 << 20


class Content:
    """``size`` bytes that only this ``run`` and file ``number`` have.

    A block of random bytes is made once; each chunk of each file begins at another place in it, so that making them
    costs nothing while the clock runs.
    """

    def __init__(self, run: str, number: int, size: int) -> None:
        self.size = size
        self._block = _block(run)
        self._head = hashlib.sha256(f"{run}/{number}".encode()).digest()
        self._offset = int.from_bytes(self._head[:3], "big")

    def chunks(self) -> Iterator[bytes | memoryview]:
        """The bytes, in pieces."""
        yield self._head[: self.size]
        left = self.size - len(self._head)
        position = self._offset
        while left > 0:
            piece = min(left, CHUNK_BYTES)
            start = position % CHUNK_BYTES
            yield self._block[start : start + piece]
            left -= piece
            position += 65_537

    def expect(self) -> Expectation:
        """A check of bytes that come back."""
        return Expectation(self)


class Expectation:
    """Compares what is fed to it, in pieces of any length, with what a :class:`Content` holds.

    Comparing is many times faster than a checksum, so that checking does not become part of what is measured.

    >>> expected = Content("run", 1, 100).expect()
    >>> expected.feed(b"something else"), expected.is_whole
    (False, False)
    """

    def __init__(self, content: Content) -> None:
        self._chunks = content.chunks()
        self._left = memoryview(b"")
        self._missing = content.size

    @property
    def is_whole(self) -> bool:
        """Whether all bytes have come, and only they."""
        return self._missing == 0

    def feed(self, data: bytes) -> bool:
        """Whether ``data`` is what should have come next."""
        view = memoryview(data)
        if len(view) > self._missing:
            return False
        while len(view):
            if not len(self._left):
                self._left = memoryview(next(self._chunks))
            size = min(len(view), len(self._left))
            if bytes(view[:size]) != bytes(self._left[:size]):
                return False
            view, self._left = view[size:], self._left[size:]
            self._missing -= size
        return True


@lru_cache(maxsize=1)
def _block(run: str) -> memoryview:
    return memoryview(random.Random(run).randbytes(2 * CHUNK_BYTES))
