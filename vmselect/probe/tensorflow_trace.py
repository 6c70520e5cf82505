"""How long TensorFlow's steps wait for their data: a few of them under TensorFlow's own profiler.

The fetch is an operation inside the compiled step, so nothing outside sees it. The profiler traces what the host does
(no device, no Python) for a few steps, and the events of the fetching operation are summed up. Without the profiler, or
while another program uses it, the wait is unknown.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vmselect.records.training import InputWait

STEPS = 5
"""Steps that are traced."""

FETCHES = ("IteratorGetNextOp::DoCompute", "IteratorGetNextAsOptionalOp::DoCompute", "MultiDeviceIteratorGetNext")
"""How the names of fetching operations begin in a trace."""

_PROTOBUFS = ("tensorflow.tsl.profiler.protobuf.xplane_pb2", "tensorflow.core.profiler.protobuf.xplane_pb2")

LARGEST_TRACE_BYTES = 200 * 2**20


class TensorFlowTrace:
    """One trace of a few steps: :meth:`begin`, the steps, :meth:`end`."""

    METHOD = "traced steps"

    def __init__(self) -> None:
        self._tensorflow: Any = sys.modules.get("tensorflow")
        self._folder: str | None = None
        self._began = 0.0
        self.result: InputWait | None = None

    def begin(self) -> bool:
        """Trace from now on; False where that is not possible."""
        if self._folder is not None or self.result is not None:
            return False
        try:
            profiler = self._tensorflow.profiler.experimental
            options = profiler.ProfilerOptions(host_tracer_level=2, python_tracer_level=0, device_tracer_level=0)
            self._folder = tempfile.mkdtemp(prefix="vmselect-trace-")
            profiler.start(self._folder, options=options)
        except Exception:  # noqa: BLE001 - whatever the profiler raises, the training must not end with it
            self._forget()
            return False
        self._began = time.perf_counter()
        return True

    def end(self, steps: int) -> InputWait | None:
        """The trace ends after this many steps: what it shows, or None."""
        folder = self._folder
        if folder is None:
            return None
        wall = time.perf_counter() - self._began
        try:
            self._tensorflow.profiler.experimental.stop()
            self.result = self._read(Path(folder), wall, steps)
        except Exception:  # noqa: BLE001 - nor with what protobuf raises about a trace that it cannot read
            self.result = None
        finally:
            self._forget()
        return self.result

    def _read(self, folder: Path, wall: float, steps: int) -> InputWait | None:
        from vmselect.records.training import InputWait

        events = [event for file in folder.rglob("*.xplane.pb") for event in read_fetches(file)]
        if not events or steps < 1 or wall <= 0:
            return None
        return InputWait(seconds=min(wall, length_of_union(events)), wall_seconds=wall, steps=steps, method=self.METHOD)

    def _forget(self) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def read_fetches(file: Path) -> list[tuple[float, float]]:
    """Begin and end, in seconds, of every event of a trace in which data were fetched."""
    if file.stat().st_size > LARGEST_TRACE_BYTES:
        raise ValueError(f"{file.name} is too large")
    space = _load_protobuf().XSpace()
    space.ParseFromString(file.read_bytes())
    spans = []
    for plane in space.planes:
        fetching = {key for key, meta in plane.event_metadata.items() if meta.name.startswith(FETCHES)}
        for line in plane.lines if fetching else ():
            for event in line.events:
                if event.metadata_id in fetching:
                    begin = line.timestamp_ns / 1e9 + event.offset_ps / 1e12
                    spans.append((begin, begin + event.duration_ps / 1e12))
    return spans


def _load_protobuf() -> Any:
    for name in _PROTOBUFS:
        try:
            return import_module(name)
        except ImportError:
            continue
    raise ValueError("TensorFlow ships no description of its traces")


def length_of_union(spans: Iterable[tuple[float, float]]) -> float:
    """How long at least one of the spans lasted: replicas fetch at the same time.

    >>> length_of_union([(0, 2), (1, 3), (5, 6)])
    4.0
    """
    total, reached = 0.0, float("-inf")
    for begin, end in sorted(spans):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total
