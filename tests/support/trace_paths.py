"""Write to the architecture page which modules a step time and a price pass: ``python -m tests.support.trace_paths``.

The run probes a loop, saves and loads the profile, ranks it with prices from a file and makes the data of the page.
``sys.setprofile`` sees every return of a function of vmselect. A module is on the path of a value if one of its
functions returns the value (not: an object that holds it more than three levels deep) or, if it returns nothing,
stores it in its object. The value changes
on its way: a reading becomes the level of a step, the time of an epoch and the time of a training; a price becomes a
cost.
"""

from __future__ import annotations

import math
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import partial
from itertools import accumulate, count
from pathlib import Path
from types import FrameType
from unittest.mock import patch

import numpy as np
import pandas as pd

import vmselect as vs
from vmselect.probe import recording
from vmselect.report.page import page_data

PACKAGE = Path(vs.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "architecture.md"
STEP_TITLE, PRICE_TITLE = "A step time, from the callback to the page", "A price, from the provider to the page"
STEPS, STEPS_PER_EPOCH, EPOCHS, USD_PER_HOUR = 25, 100, 7, 1.2345678
MOST_NUMBERS = 400
"""Numbers of a value that are looked at; the values of this run have fewer."""
SHARED = ("_checks.py", "_imports.py", "_io.py", "_models.py", "findings.py", "intervals.py", "units.py")
"""Modules that any other module uses, and that are no station of a value."""


@dataclass
class Trace:
    """The numbers that functions of vmselect returned or stored, in order, by module."""

    events: list[tuple[str, frozenset[float]]] = field(default_factory=list)

    def __call__(self, frame: FrameType, event: str, value: object) -> None:
        """Note the numbers of a function that ends. Called by Python for every event of every function."""
        file = frame.f_code.co_filename
        if event != "return" or not file.startswith(str(PACKAGE)):
            return
        module = Path(file).relative_to(PACKAGE).as_posix()
        if module in SHARED or module.endswith("__init__.py"):
            return
        numbers = frozenset(list_numbers(frame.f_locals.get("self") if value is None else value))
        if numbers:
            self.events.append((module, numbers))

    def path_of(self, stages: Iterable[float]) -> list[str]:
        """The modules that one of the numbers ``stages`` passes, in the order of the first time."""
        stages = list(stages)
        passed = (
            module
            for module, numbers in self.events
            if any(math.isclose(number, stage, rel_tol=1e-9) for number in numbers for stage in stages)
        )
        return list(dict.fromkeys(passed))


def list_numbers(value: object, depth: int = 3) -> Iterator[float]:
    """Yield the numbers in ``value``: in containers, fields and arrays, at most ``depth`` levels deep."""
    if isinstance(value, bool | str | bytes | type(None)) or depth < 0:
        return
    if isinstance(value, int | float | np.floating):
        yield float(value)
    elif isinstance(value, np.ndarray):
        if value.dtype.kind in "fi":
            yield from map(float, value.ravel()[:MOST_NUMBERS])
    elif isinstance(value, pd.DataFrame):
        for column in value.columns:
            yield from list_numbers(value[column].to_numpy(), depth - 1)
    elif isinstance(value, Mapping):
        for part in list(value.values())[:MOST_NUMBERS]:
            yield from list_numbers(part, depth - 1)
    elif isinstance(value, list | tuple | set | frozenset):
        for part in list(value)[:MOST_NUMBERS]:
            yield from list_numbers(part, depth - 1)
    elif is_dataclass(value) and not isinstance(value, type):
        for part in fields(value):
            yield from list_numbers(getattr(value, part.name, None), depth - 1)
    elif type(value).__module__.startswith("vmselect") and hasattr(value, "__dict__"):
        for part in list(vars(value).values()):
            yield from list_numbers(part, depth - 1)


def run(folder: Path) -> tuple[vs.Profile, vs.Ranking]:
    """Probe a loop, and rank its profile by prices from a file; then make the data of the page."""
    (folder / "prices.csv").write_text(
        "provider,instance_type,region,market,usd_per_hour,date\n"
        f"aws,g5.xlarge,us-east-1,on_demand,{USD_PER_HOUR},2026-01-01\n"
    )
    about = {"batch_size": 64, "examples": 64 * STEPS_PER_EPOCH, "instance_type": "g5.xlarge", "verbose": 0}
    # A clock of its own, because a disturbed step takes other paths on a busy machine. Only steps take time: how often
    # the clock is read differs between runs. All steps differ.
    ends = accumulate(40_000_000 + number * 79_190 % 500_021 for number in count())
    now = next(ends)
    timer = partial(recording.StepTimer, clock=lambda: now, cpu_clock=lambda: 0)
    with (
        patch.object(recording, "StepTimer", timer),
        vs.probe_loop(folder / "profiles", sample=None, **about) as probe,  # type: ignore[arg-type]
    ):
        for _ in probe.steps(range(STEPS)):
            now = next(ends)
    catalog = vs.Catalog.load(folder / "prices.csv")
    ranking = vs.rank(vs.load_profiles(folder / "profiles"), epochs=EPOCHS, catalog=catalog)
    page_data(ranking)
    return probe.profile, ranking


def trace_paths() -> dict[str, list[str]]:
    """The modules on the path of a step time and of a price, by the title of the section on the page."""
    trace = Trace()
    with tempfile.TemporaryDirectory() as folder:
        sys.setprofile(trace)
        try:
            profile, ranking = run(Path(folder))
        finally:
            sys.setprofile(None)
    row, model = ranking.best, ranking.candidates.machine_estimates[0].runtime
    reading = profile.timeline.steps.rows[-1].each
    level = model.terms["steady_iterations"][1] / STEPS_PER_EPOCH
    step = [reading, round(reading * 1e9), level, model.epoch_seconds, row.seconds]
    return {STEP_TITLE: trace.path_of(step), PRICE_TITLE: trace.path_of([USD_PER_HOUR, row.cost_usd])}


def describe(modules: Iterable[str]) -> str:
    """The line of the architecture page for a path."""
    names = [f"`{module}`" for module in modules]
    return f"Measured, {len(names)} modules: {', '.join(names)}."


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8")
    for title, modules in trace_paths().items():
        head, section, rest = text.partition(f"## {title}\n")
        text = head + section + re.sub(r"Measured, \d+ modules: .*", lambda _, m=modules: describe(m), rest, count=1)
    PAGE.write_text(text, encoding="utf-8")
