"""What is moved: bytes that no compression shrinks, different for every file, recognized when they come back."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Iterator
from functools import lru_cache

CHUNK_BYTES = 1 << 20


class Content:
    """``size`` bytes that only this ``run`` and file ``number`` have.

    A block of random bytes is created once per run. Each chunk of each file begins at another place in it, so creating
    chunks costs no time while the clock runs. Comparing bytes is many times faster than a checksum, so verification
    does not become part of what is measured.
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

    def matches(self, pieces: Iterable[bytes]) -> bool:
        """Whether ``pieces``, of any length, together are this content; reads no further than the first difference.

        >>> Content("run", 1, 100).matches([b"something else"])
        False
        """
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
def _block(run: str) -> memoryview:
    return memoryview(random.Random(run).randbytes(2 * CHUNK_BYTES))
