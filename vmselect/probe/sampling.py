"""Sampling of machine usage during a measurement, the alarm, and measurement of the input wait of trainings.

A probe starts and stops the :class:`Sampler` and reports to it when a phase begins, such as a validation. The sampler's
thread takes a sample once per interval, and at the first beginnings and ends of each phase, so that short phases are
sampled separately. The thread ends before the process is forked and restarts in the parent process.
"""

from __future__ import annotations

import faulthandler
import fnmatch
import math
import os
import shlex
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from vmselect._checks import check_name, check_number, check_seconds, check_share, maybe, show
from vmselect.errors import ArgumentError
from vmselect.findings import Finding
from vmselect.probe.counters import ContainerReader, GpuReader, MachineReader, RaplReader
from vmselect.probe.environment import Batch, usable_cores
from vmselect.probe.input_wait import FetchClock, TensorFlowTrace, find_epoch_iterator, time_fetches, watch_iterator
from vmselect.units import format_seconds

if TYPE_CHECKING:
    from vmselect.records.training import InputWait
    from vmselect.records.usage import Limits, Phase, Summary, Usage

MAX_ROWS_PER_PHASE = 240
"""Largest number of samples that are kept per phase: four minutes at one sample per second. If a phase takes longer,
every second, fourth, eighth ... sample is kept."""

MIN_SAMPLE_SECONDS = 0.1
"""Least seconds between two samples: shorter ones would be mostly noise, as CPU time is counted in hundredths of a
second."""

MAX_EARLY_SAMPLES = 6
"""How often the beginning or end of a phase causes a sample before the interval has passed, for each phase. Without
this limit, epochs shorter than the interval would cause ten samples per second."""

MAX_CHANGES = 10_000
JOIN_SECONDS = 2.0
"""Longest wait, in seconds, for the end of the sampler's thread: a GPU driver that does not respond must not delay the
training."""


class Alarm:
    """Calls a function or command when a sampled quantity stays beyond a threshold for some ``seconds``.

    It is called again only after the quantity has returned to the other side of the threshold.

    Args:
        notify: a function that takes the :class:`Finding`, or a command as a list of words or as one line,
            which is split as by a shell. The command gets the finding as text in the environment variable
            ``VMSELECT_ALARM``. It runs in the background: the training does not wait for it and does not fail if the
            command fails.
        cpu: upper threshold from 0 to 1: the alarm is raised above this utilization of the CPU cores that the process
            may use, or of its container's CPU quota if that is lower. Ignored if ``quantity`` is given.
        seconds: how long the quantity must stay beyond the threshold.
        quantity: name of another sampled quantity, such as ``disk_read_bytes_per_second``. An asterisk stands for any
            text: ``gpu*_memory_used_share`` is the share of used memory of any GPU.
        above, below: threshold of ``quantity``. Pass one of the two.

    >>> import vmselect as vs
    >>> probe = vs.IterationProbe("records/", stop=False, alarm=Alarm(print, cpu=0.95, seconds=60))
    >>> idle = Alarm(print, quantity="gpu*_busy_share", below=0.2, seconds=60)
    """

    def __init__(
        self,
        notify: Callable[[Finding], object] | str | Sequence[str],
        *,
        cpu: float = 0.9,
        seconds: float = 10.0,
        quantity: str | None = None,
        above: float | None = None,
        below: float | None = None,
    ) -> None:
        self.cpu = check_share("cpu", cpu)
        self.seconds = check_seconds("seconds", seconds)
        self.notify = _check_notify(notify)
        self.quantity = maybe(check_name, "quantity", quantity)
        self.above, self.below = maybe(check_number, "above", above), maybe(check_number, "below", below)
        if (self.above is None) == (self.below is None) if self.quantity else (self.above, self.below) != (None, None):
            raise ArgumentError(
                "quantity= needs a threshold, and a threshold needs quantity=. Pass quantity= with above= or below=."
            )
        self.reset()

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_beyond_since": None, "_raised": False}

    def reset(self) -> None:
        """Forget earlier samples. Called at the start of a training."""
        self._beyond_since: float | None = None
        self._raised = False

    def check(self, now: float, values: Mapping[str, float], limits: Limits | None) -> None:
        """Check the sample ``values``, taken ``now`` seconds after the start, and call ``notify`` if necessary."""
        state = self._check_quantity(values) if self.quantity else self._check_cpu(values, limits)
        if state is None:
            return
        beyond, finding = state
        if not beyond:
            self.reset()
            return
        if self._beyond_since is None:
            self._beyond_since = now
        if not self._raised and now - self._beyond_since >= self.seconds:
            self._raised = True
            threading.Thread(target=_notify, args=(self.notify, finding), name="vmselect-alarm", daemon=True).start()

    def _check_quantity(self, values: Mapping[str, float]) -> tuple[bool, Finding] | None:
        """Return a pair: whether ``quantity`` is beyond its threshold, and a finding. None if it was not sampled."""
        seen = {name: value for name, value in values.items() if fnmatch.fnmatchcase(name, self.quantity or "")}
        if not seen:
            return None
        extreme, threshold = (min, self.below) if self.above is None else (max, self.above)
        assert threshold is not None
        name = extreme(seen, key=lambda quantity: seen[quantity])
        side, beyond = ("below", seen[name] < threshold) if self.above is None else ("above", seen[name] > threshold)
        message = f"{name} has been {side} {threshold:g} for {format_seconds(self.seconds)}, now {seen[name]:.4g}."
        remedy = "Check the machine now, or pass the record to vmselect.diagnose() after the training."
        return beyond, Finding("quantity-alarm", message, remedy, "info")

    def _check_cpu(self, values: Mapping[str, float], limits: Limits | None) -> tuple[bool, Finding] | None:
        """Return a pair: whether CPU utilization is above its threshold, and a finding. None if it was not sampled."""
        share, subject = values.get("usable_cpu_share"), "The CPU has"
        allowed = None if limits is None else limits.container_cores
        if limits is not None and allowed is not None and (limits.cores is None or allowed < limits.cores):
            subject = f"The container's {allowed:g} CPU core{' has' if allowed == 1 else 's have'}"
            share = min(1.0, values["process_cores"] / allowed) if "process_cores" in values else None
        if share is None:
            return None
        message = f"{subject} been more than {self.cpu:.0%} busy for {format_seconds(self.seconds)}, now {share:.0%}."
        remedy = "Use a machine with more CPU cores, end other programs, or simplify the preprocessing."
        return share > self.cpu, Finding("cpu-saturated", message, remedy, "info")


def _notify(notify: Callable[[Finding], object] | tuple[str, ...], finding: Finding) -> None:
    try:
        if callable(notify):
            notify(finding)
        else:
            environment = {**os.environ, "VMSELECT_ALARM": str(finding)}
            subprocess.run(notify, env=environment, stdin=subprocess.DEVNULL, check=False)
    except Exception as problem:  # noqa: BLE001 - the function is the caller's; the training must not end with it
        sys.stderr.write(f"vmselect: the alarm's notify function failed ({problem}). The alarm was: {finding}\n")


def _check_notify(notify: Any) -> Callable[[Finding], object] | tuple[str, ...]:
    if callable(notify):
        return notify  # type: ignore[no-any-return]
    try:
        words = shlex.split(notify) if isinstance(notify, str) else list(notify)
    except (TypeError, ValueError):
        words = []
    if not words or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise ArgumentError(f"notify must be a function, or a command as a text or a list, not {show(notify)}.")
    return tuple(words)


class PhaseTally:
    """Statistics of the samples of a phase: exact sums over all samples, and a subset of bounded size for percentiles.

    When the subset is full, every second sample of it is dropped.
    """

    def __init__(self) -> None:
        self.sums: dict[str, tuple[int, float, float, float]] = {}
        """Maps each quantity to four numbers: samples, seconds, sum of value times seconds, and maximum."""
        self.rows: list[tuple[float, Mapping[str, float]]] = []
        self._stride = 1
        self._seen = 0

    def add(self, at: float, seconds: float, values: Mapping[str, float]) -> None:
        """Add a sample of the ``seconds`` that ended at the time ``at``, in seconds since the start of sampling."""
        for name, value in values.items():
            count, total, weighted, maximum = self.sums.get(name, (0, 0.0, 0.0, -math.inf))
            self.sums[name] = (count + 1, total + seconds, weighted + seconds * value, max(maximum, value))
        if self._seen % self._stride == 0:
            self.rows.append((at, values))
            if len(self.rows) > MAX_ROWS_PER_PHASE:
                self.rows = self.rows[::2]
                self._stride *= 2
        self._seen += 1

    def summaries(self) -> dict[str, Summary]:
        """Return count, seconds, mean, maximum, median and 95th percentile of each quantity in this phase."""
        from vmselect.records.usage import Summary

        summaries = {}
        for name, (count, seconds, weighted, maximum) in self.sums.items():
            kept = sorted(values[name] for _, values in self.rows if name in values) or [maximum]
            summaries[name] = Summary(
                count=count,
                seconds=_round(seconds),
                mean=_round(weighted / seconds),
                maximum=_round(maximum),
                p50=_round(_percentile(kept, 0.5)),
                p95=_round(_percentile(kept, 0.95)),
            )
        return summaries


class Tally:
    """All samples of a measurement, grouped by phase.

    A thread may call :meth:`add` while another thread calls :meth:`build`.
    """

    def __init__(self) -> None:
        self._phases: dict[Phase, PhaseTally] = {}
        self._lock, self._process = threading.RLock(), os.getpid()

    def add(self, phase: Phase, at: float, seconds: float, values: Mapping[str, float]) -> None:
        """Add the finite ``values`` of a sample of ``phase``; see :meth:`PhaseTally.add`."""
        finite = {name: float(value) for name, value in values.items() if math.isfinite(value)}
        if seconds > 0 and finite:
            with self._locked():
                self._phases.setdefault(phase, PhaseTally()).add(at, seconds, finite)

    def build(self, interval: float, limits: Limits | None, power_sources: Mapping[str, str] | None = None) -> Usage:
        """Return all samples as the ``usage`` of a record: statistics per phase, and a series of values per quantity.

        There is no series for single CPU cores, of which a large machine has hundreds.
        """
        from vmselect.records.usage import PHASES, Limits, Usage

        with self._locked():
            rows = sorted(
                ((at, phase, values) for phase, tally in self._phases.items() for at, values in tally.rows),
                key=lambda row: row[0],
            )
            phases = {phase: self._phases[phase].summaries() for phase in PHASES if phase in self._phases}
        names = dict.fromkeys(name for *_, values in rows for name in values if not name.startswith("core"))
        return Usage(
            interval_seconds=interval,
            limits=limits or Limits(),
            power_sources=dict(power_sources) if power_sources else None,
            phases=phases,
            seconds=tuple(round(at, 3) for at, *_ in rows),
            phase=tuple(phase for _, phase, _ in rows),
            series={
                name: tuple(_round(values[name]) if name in values else None for *_, values in rows) for name in names
            },
        )

    def _locked(self) -> threading.RLock:
        """Return the lock of the samples.

        It is reentrant: a signal handler may build a record in the thread that holds the lock.
        """
        if self._process != os.getpid():  # a forked child: the thread that held the lock does not exist here
            self._lock, self._process = threading.RLock(), os.getpid()
        return self._lock


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


def _round(value: float) -> float:
    """Round ``value`` to four significant digits."""
    return float(f"{value:.4g}")


@dataclass(eq=False)
class Sampler:
    """Samples machine usage in a thread every ``interval`` seconds, from :meth:`start` to :meth:`stop`."""

    interval: float = 1.0
    _: KW_ONLY
    readers: Sequence[Any] | None = None
    alarm: Alarm | None = None
    alive: Callable[[], bool] | None = None
    """Function that is called before each sample. Sampling ends when it returns False."""
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._readers: Sequence[Any] = ()
        self._tally = Tally()
        self._limits: Limits | None = None
        self._power_sources: dict[str, str] = {}
        """How the power of each part was measured, by name of the part."""
        self._result: Usage | None = None
        self._phase: Phase = "initialization"
        self._phase_read: Phase = "initialization"
        """Phase at the time of the last sample."""
        self._changes: deque[tuple[float, Phase]] = deque(maxlen=MAX_CHANGES)
        self._early: dict[Phase, int] = {}
        self._due = False
        """Whether the next sample is to be taken before the interval has passed."""
        self._began = self._read_at = 0.0
        self._wake = threading.Event()
        self._ending = False
        self._thread: threading.Thread | None = None
        self._process = 0

    def start(self) -> None:
        """Start sampling machine usage in a thread."""
        from vmselect.records.usage import Limits

        self._process = os.getpid()
        self._limits = None
        self._result = None
        if self.readers is None:
            container = ContainerReader()
            self._limits = Limits(
                cores=len(usable_cores()),
                container_cores=container.cores,
                container_memory_bytes=container.memory_bytes,
            )
            self._readers = (MachineReader(), container, RaplReader(), GpuReader())
        else:
            self._readers = self.readers
        if self.alarm is not None:
            self.alarm.reset()
        self._began = self._read_at = self.clock()
        self._start_thread()
        _RUNNING.add(self)

    def enter(self, phase: Phase) -> None:
        """Record that ``phase`` begins now, and wake the sampler's thread if the phase needs a sample of its own."""
        if phase == self._phase:
            return
        now = self.clock()
        self._changes.append((now, phase))
        both = (self._phase, phase)
        self._phase = phase
        if self._due or now - self._read_at < MIN_SAMPLE_SECONDS:
            return
        if any(self._early.get(either, 0) < MAX_EARLY_SAMPLES for either in both):
            for either in both:
                self._early[either] = self._early.get(either, 0) + 1
            self._due = True
            self._wake.set()

    def usage(self) -> Usage:
        """Return the usage from the start until now, or until :meth:`stop`."""
        return self._result or self._tally.build(self.interval, self._limits, self._power_sources)

    def stop(self) -> Usage | None:
        """Take a last sample, stop sampling, and return the usage, or None if there are no samples. Idempotent."""
        if self._process == os.getpid():
            _RUNNING.discard(self)
            self._end_thread()
            self._close()
        self._result = self.usage()
        return self._result if self._result.phases else None

    def _close(self) -> None:
        for reader in self._readers:
            close = getattr(reader, "close", None)
            if close is not None:
                close()
        self._readers = ()

    def _start_thread(self) -> None:
        self._ending = False
        self._wake.clear()
        # The thread holds no reference to its sampler while it waits: an abandoned sampler ends.
        thread = threading.Thread(
            target=_run, args=(weakref.ref(self), self._wake), name="vmselect-sampler", daemon=True
        )
        thread.start()
        self._thread = thread  # not before: another thread that ends the program joins it

    def _end_thread(self) -> None:
        thread, self._thread = self._thread, None
        self._ending = True
        self._wake.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(JOIN_SECONDS)

    def _tick(self) -> float | None:
        """Take a sample if it is due. Return the seconds until the next call, or None if sampling has ended."""
        if self.alive is not None and not self.alive():
            _RUNNING.discard(self)
            self._close()
            return None
        now = self.clock()
        since = now - self._read_at
        if since >= self.interval or (since >= MIN_SAMPLE_SECONDS and (self._due or self._ending)):
            self._due = False
            self._read(now, since)
            since = 0.0
        if self._ending:
            return None
        # A phase that began during the last sample gets its own sample as soon as MIN_SAMPLE_SECONDS have passed.
        return max(0.01, (MIN_SAMPLE_SECONDS if self._due else self.interval) - since)

    def _read(self, now: float, since: float) -> None:
        phase = self._longest_phase(now)
        values: dict[str, float] = {}
        for reader in self._readers:
            values |= reader.read(since)
            self._power_sources |= getattr(reader, "sources", {})
        self._read_at = now
        self._tally.add(phase, now - self._began, since, values)
        if self.alarm is not None:
            self.alarm.check(now - self._began, values, self._limits)

    def _longest_phase(self, now: float) -> Phase:
        """Return the phase that took most of the time since the last sample, and forget the phase changes so far."""
        taken: dict[Phase, float] = {}
        current, since = self._phase_read, self._read_at
        while self._changes and self._changes[0][0] <= now:
            at, phase = self._changes.popleft()
            taken[current] = taken.get(current, 0.0) + at - since
            current, since = phase, at
        taken[current] = taken.get(current, 0.0) + now - since
        self._phase_read = current
        return max(taken, key=lambda phase: taken[phase])


def _run(reference: weakref.ref[Sampler], wake: threading.Event) -> None:
    while (sampler := reference()) is not None:
        pause = sampler._tick()
        del sampler
        if pause is None:
            return
        wake.wait(pause)
        wake.clear()


_RUNNING: weakref.WeakSet[Sampler] = weakref.WeakSet()


def _before_fork() -> None:
    for sampler in list(_RUNNING):
        sampler._end_thread()


def _after_fork_in_parent() -> None:
    for sampler in list(_RUNNING):
        sampler._start_thread()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_RUNNING.clear)


def check_sample(sample: object, alarm: object) -> tuple[float | None, Alarm | None]:
    """Check and return two arguments of a probe: ``sample`` (seconds between two usage samples) and ``alarm``."""
    interval = maybe(check_number, "sample", sample, least=MIN_SAMPLE_SECONDS, most=3600)
    if alarm is not None and not isinstance(alarm, Alarm):
        raise ArgumentError(f"alarm must be a vmselect.probe.sampling.Alarm, not {show(alarm)}.")
    if alarm is not None and interval is None:
        raise ArgumentError("alarm= requires usage samples. Set sample= to the seconds between two samples.")
    return interval, alarm


def watch_call(frame: FrameType, name: str = "fit") -> Callable[[], bool] | None:
    """Return a function that checks whether the function ``name``, which called ``frame``, is still running.

    Return None if no caller has that name. Keras calls no callback when ``fit`` raises, and a program that keeps the
    exception (a notebook, a hyperparameter search) keeps all objects of ``fit`` alive. The end is then detected by the
    thread's stack: it contains fewer calls of ``name`` than when ``watch_call`` was called. The stack is read from the
    output of ``faulthandler``, because reading the frames of a running thread from another thread
    (``sys._current_frames``) crashes Python 3.11.7.
    """
    calls = 0
    above: FrameType | None = frame
    while above is not None:
        calls += above.f_code.co_name == name
        above = above.f_back
    if not calls:
        return None
    heading, ending = f" 0x{threading.get_ident():016x} ", f" in {name}"

    def is_running() -> bool:
        with tempfile.TemporaryFile() as dump:
            faulthandler.dump_traceback(dump, all_threads=True)
            dump.seek(0)
            stacks = dump.read().decode("ascii", "replace").split("\n\n")
        # faulthandler lists at most 100 threads and 100 calls of each, and writes "..." for what it leaves out.
        is_cut = "..." in stacks[-1]
        own_stack = next((stack for stack in stacks if heading in stack), "..." if is_cut else "")
        lines = own_stack.splitlines()
        # What was left out may contain the call, so the call then counts as running.
        return sum(line.endswith(ending) for line in lines) >= calls or any(line.strip() == "..." for line in lines)

    return is_running


class Observation:
    """Samples machine usage and measures the input wait of one training or load, until :meth:`end` is called.

    ``sample`` is the number of seconds between two samples. With ``sample=None``, nothing is sampled or measured.
    """

    def __init__(self, sample: float | None, alarm: Alarm | None = None) -> None:
        self._sampler = None if sample is None else Sampler(sample, alarm=alarm)
        self._fetches: FetchClock | None = None
        self._method = "loop"  # how the input wait is measured, as it is recorded: loop, trainer or epoch iterator
        self._undo: Callable[[], None] | None = None
        self._input_wait: InputWait | None = None
        self.trace: TensorFlowTrace | None = None
        """TensorFlow profiler trace of a few steps, from which the input wait is read; None for other backends."""

    def start(self, alive: Callable[[], bool] | None = None) -> None:
        """Start sampling usage, without measuring the input wait. Sampling ends when ``alive()`` returns False."""
        if self._sampler is not None:
            self._sampler.alive = alive
            self._sampler.start()

    def begin(
        self,
        *,
        backend: str | None,
        frame: FrameType | None,
        waited_for: bool,
        alive: Callable[[], bool] | None = None,
    ) -> None:
        """Start observing the Keras ``fit`` call among the callers of ``frame``.

        If ``frame`` is None, a training loop without Keras is observed until ``alive()`` returns False. ``waited_for``
        is True if the probe waits for the end of every step.
        """
        if self._sampler is None:
            return
        if frame is None:
            self._fetches = FetchClock()
        elif backend == "tensorflow":
            self.trace = TensorFlowTrace() if waited_for else None
        elif waited_for:
            # Otherwise a device may compute while the next batch is fetched, and nothing waits for that batch.
            clock = FetchClock()
            self._undo = watch_iterator(clock, find_epoch_iterator(frame))
            if self._undo is not None:
                self._fetches, self._method = clock, "epoch iterator"
        self.start(alive if frame is None else watch_call(frame))

    def enter(self, phase: Phase) -> None:
        """Record that ``phase`` begins now."""
        if self._sampler is not None:
            self._sampler.enter(phase)
        if self._fetches is not None and phase not in ("first_step", "steady_steps"):
            self._fetches.pause()

    def drained(self, nanoseconds: int) -> None:
        """Record that the probe waited ``nanoseconds`` for the device to finish the steps submitted before."""
        if self._fetches is not None:
            self._fetches.subtract(nanoseconds)

    def watch(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the ``batches`` of a training loop, and measure how long each of them takes to fetch."""
        return iter(batches) if self._fetches is None else self._fetches.watch(batches)

    def time_fetches(self, owner: object, first: str, last: str) -> None:
        """Measure each batch fetch from the call of ``owner``'s method ``first`` to the end of its method ``last``.

        If ``owner``, a part of a trainer, has no such methods, fetches are measured only where the training loop itself
        calls :meth:`watch` or :meth:`fetcher`.
        """
        if self._fetches is not None:
            self._undo = time_fetches(self._fetches, owner, first, last)
            self._method = "loop" if self._undo is None else "trainer"

    def fetcher(self) -> Callable[[Iterator[Batch]], Batch]:
        """Return a function that fetches the next batch of an iterator, and measures the input wait if requested."""
        if self._fetches is None:
            return next
        self._fetches.pause()
        return self._fetches.fetch

    def end(self) -> None:
        """Stop sampling usage and measuring the input wait. Idempotent."""
        if self._fetches is not None:
            self._input_wait, self._fetches = self._fetches.result(self._method), None
        if self._undo is not None:
            self._undo()
            self._undo = None  # it refers to the watched object
        if self._sampler is not None:
            self._sampler.stop()

    @property
    def usage(self) -> Usage | None:
        """Machine usage until now, or None if it was not sampled."""
        usage = None if self._sampler is None else self._sampler.usage()
        return usage if usage is not None and usage.phases else None

    @property
    def input_wait(self) -> InputWait | None:
        """Time that steps waited for their batches; None if it is unknown."""
        return self._input_wait or (None if self.trace is None else self.trace.result)
