"""Files of codecarbon (``emissions.csv``): reading its runs, and writing measured trainings in its format.

Energy is in kWh, CO2 in kg, power in watts. codecarbon estimates what it cannot measure and does not mark it; vmselect
leaves the cells of parts that were not measured empty.
"""

from __future__ import annotations

import csv
import io
import math
import os
import platform
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vmselect import __version__, _io
from vmselect._checks import check_dataclass, check_path, list_items, maybe, show, suggest_arguments
from vmselect.energy.grids import DEFAULT, Emissions
from vmselect.energy.power import measured_power
from vmselect.errors import ArgumentError
from vmselect.records import Profile
from vmselect.units import JOULES_PER_KWH, printable

COLUMNS = (
    "timestamp", "project_name", "run_id", "experiment_id", "duration", "emissions", "emissions_rate", "cpu_power",
    "gpu_power", "ram_power", "cpu_energy", "gpu_energy", "ram_energy", "energy_consumed", "country_name",
    "country_iso_code", "region", "cloud_provider", "cloud_region", "os", "python_version", "codecarbon_version",
    "cpu_count", "cpu_model", "gpu_count", "gpu_model", "longitude", "latitude", "ram_total_size", "tracking_mode",
    "on_cloud", "pue",
)  # fmt: skip
"""Columns that vmselect writes, in the order of codecarbon."""
NEEDED = ("timestamp", "run_id", "duration", "emissions", "energy_consumed")
MAX_FILE_BYTES = 64 * 2**20
NOUN = "file of codecarbon"


@dataclass(frozen=True, kw_only=True)
class EmissionsRun:
    """One run in a file of codecarbon. Numbers are None if their cell is empty or the column is missing.

    Energies include the overhead of the data centre: they are those of the machine multiplied by ``pue``.
    """

    timestamp: str
    run_id: str
    project_name: str = ""
    seconds: float
    energy_kwh: float
    co2_kg: float
    cpu_kwh: float | None = None
    gpu_kwh: float | None = None
    memory_kwh: float | None = None
    gpu_count: int = 0
    gpu_model: str = ""
    country: str = ""
    """Country code of three letters, as codecarbon writes it."""
    provider: str = ""
    region: str = ""
    pue: float = 1.0

    @property
    def gpu_watts(self) -> float | None:
        """Mean power of all GPUs during the run; None without a GPU."""
        if self.gpu_kwh is None or self.gpu_count <= 0 or self.seconds <= 0:
            return None
        return self.gpu_kwh * JOULES_PER_KWH / self.pue / self.seconds

    def add_to(self, profile: Profile) -> Profile:
        """A copy of ``profile`` with the mean power of the GPUs in this run, which codecarbon read from their driver.

        CPU and memory are left out, because codecarbon may have assumed their power.
        """
        if self.gpu_watts is None:
            raise ArgumentError(f"Run {self.run_id} has no energy of a GPU. Choose a run on a machine with a GPU.")
        each = self.gpu_watts / self.gpu_count
        power = Profile.from_times(iteration_seconds=1.0, gpu_watts=[each] * self.gpu_count).usage
        if profile.usage is None:
            return profile.model_copy(update={"usage": power})
        assert power is not None
        # Power of the GPUs comes from the run; everything else that the probe sampled stays.
        phases = {**profile.usage.phases}
        phases["steady_steps"] = {**phases.get("steady_steps", {}), **power.phases["steady_steps"]}
        sources = {**(profile.usage.power_sources or {}), **(power.power_sources or {})}
        return profile.model_copy(
            update={"usage": profile.usage.model_copy(update={"phases": phases, "power_sources": sources})}
        )


@suggest_arguments()
def load_emissions(path: str | os.PathLike[str]) -> list[EmissionsRun]:
    """Read the runs of ``path``, an ``emissions.csv`` that codecarbon or :func:`save_emissions` wrote.

    >>> import tempfile
    >>> import vmselect as vs
    >>> path = tempfile.mkdtemp() + "/emissions.csv"
    >>> profile = vs.Profile.from_times(instance_type="g4dn.xlarge", provider="aws", region="us-east-1", batch_size=64,
    ...                                 total_seconds=3600, epochs=10, gpu_watts=60)
    >>> file = vs.energy.save_emissions(profile, path)
    >>> run = vs.energy.load_emissions(path)[0]
    >>> round(run.gpu_watts), round(run.energy_kwh / run.pue, 2)
    (60, 0.1)
    """
    file = check_path("path", path)
    return [_read_run(file, number, row) for number, row in enumerate(_read_rows(file)[1], start=2)]


@suggest_arguments()
def save_emissions(
    profiles: Profile | Iterable[Profile],
    path: str | os.PathLike[str],
    *,
    emissions: Emissions | dict[str, Any] | None = None,
) -> Path:
    """Add a row for each profile to ``path``, in the format of codecarbon; return the path.

    ``energy_consumed`` is the energy of the whole machine during the training (or during the probe, if the training was
    not watched to its end), times PUE. The energy of parts that were not measured is assumed from that of the measured
    parts (documented under "How energy is computed"). ``emissions`` states how CO2 is computed. If a profile has no
    measured power, or is from a place whose grid is unknown, :class:`ArgumentError` is raised and no row is written.
    """
    chosen = maybe(check_dataclass, "emissions", emissions, kind=Emissions) or DEFAULT
    listed = [profiles] if isinstance(profiles, Profile) else list_items(profiles)
    if not listed or not all(isinstance(profile, Profile) for profile in listed):
        raise ArgumentError(f"profiles is {show(profiles)}. Pass a profile, or several.")
    # All rows are made before the file is opened, so that a profile without power leaves it unchanged.
    new = [_write_row(profile, chosen) for profile in listed]
    file = check_path("path", path)
    # codecarbon of another version has other columns: an existing file keeps its header.
    header, rows = _read_rows(file) if _io.has_file(file) else (list(COLUMNS), [])
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, header, extrasaction="ignore", restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows([*rows, *new])
    return _io.write_text(file, text.getvalue(), error=ArgumentError)


def _read_rows(path: str | os.PathLike[str]) -> tuple[list[str], list[dict[str, str]]]:
    text = _io.read_text(path, noun=NOUN, limit=MAX_FILE_BYTES, error=ArgumentError)
    try:
        reader = csv.DictReader(io.StringIO(text, newline=""))
        header, rows = list(reader.fieldnames or ()), list(reader)
    except csv.Error as broken:
        raise ArgumentError(f"{path} is not a {NOUN}: {broken}. Check the path.") from None
    missing = [name for name in NEEDED if name not in header]
    if missing:
        raise ArgumentError(f"{path} is not a {NOUN}: it has no column {missing[0]}. Check the path.")
    return header, rows


def _read_run(path: str | os.PathLike[str], line: int, row: dict[str, str]) -> EmissionsRun:
    def number(name: str) -> float | None:
        text = (row.get(name) or "").strip()
        try:
            value = float(text) if text else None
        except ValueError:
            value = math.nan
        if value is not None and not 0 <= value < math.inf:
            raise ArgumentError(
                f"{path}, line {line}: {name} is {show(text)}, not a number of at least 0. Correct or remove the line."
            )
        return value

    def text(name: str) -> str:
        return printable((row.get(name) or "").strip()[:200])

    needed = {name: number(name) for name in ("duration", "energy_consumed", "emissions")}
    absent = next((name for name, value in needed.items() if value is None), None)
    if absent is not None:
        raise ArgumentError(f"{path}, line {line}: {absent} is empty. Correct or remove the line.")
    return EmissionsRun(
        timestamp=text("timestamp"), run_id=text("run_id"), project_name=text("project_name"),
        seconds=needed["duration"] or 0.0, energy_kwh=needed["energy_consumed"] or 0.0,
        co2_kg=needed["emissions"] or 0.0, cpu_kwh=number("cpu_energy"), gpu_kwh=number("gpu_energy"),
        memory_kwh=number("ram_energy"), gpu_count=int(number("gpu_count") or 0), gpu_model=text("gpu_model"),
        country=text("country_iso_code"), provider=text("cloud_provider"), region=text("cloud_region"),
        pue=number("pue") or 1.0,
    )  # fmt: skip


def _write_row(profile: Profile, emissions: Emissions) -> dict[str, Any]:
    """The row of a profile. Cells of parts that were not measured stay empty."""
    power, measured = measured_power([profile], name=profile.title), profile.energy
    if power is None or measured is None:
        raise ArgumentError(
            f"{profile.title} has no measured power. Probe with sample= on a machine whose driver reports power."
        )
    factor = emissions.factor(profile.provider or "", profile.region or "")
    if factor is None:
        raise ArgumentError(
            f"{profile.title}: the grid of its region is unknown. Pass emissions= with grid_g_per_kwh or country."
        )
    seconds = profile.total_seconds or profile.timeline.wall_seconds or measured.seconds
    energy = power.watts * seconds / JOULES_PER_KWH
    co2 = energy * factor.kg_per_kwh
    seen = profile.environment
    watts_of = {part.name: part.watts for part in measured.parts}
    parts = {"cpu": watts_of.get("cpu"), "gpu": measured.gpu_watts, "ram": watts_of.get("memory")}
    row: dict[str, Any] = {
        "timestamp": profile.created.strftime("%Y-%m-%dT%H:%M:%S"), "project_name": _plain(profile.model or ""),
        "run_id": profile.id, "duration": seconds, "emissions": co2,
        "emissions_rate": co2 / seconds if seconds else 0.0,
        "energy_consumed": energy * factor.pue, "cloud_provider": _plain(profile.provider or ""),
        "cloud_region": _plain(profile.region or ""), "os": _plain(seen.operating_system or ""),
        "python_version": platform.python_version(), "codecarbon_version": f"vmselect {__version__}",
        "cpu_count": seen.cpu_cores, "cpu_model": _plain(seen.cpu_model or ""),
        "gpu_count": sum(part.name.startswith("gpu") for part in measured.parts) or None,
        "gpu_model": _plain(f"{len(seen.gpus)} x {seen.gpus[0].name}") if seen.gpus else "",
        "ram_total_size": seen.memory_bytes / 2**30 if seen.memory_bytes else None, "tracking_mode": "machine",
        "on_cloud": "Y" if profile.provider else "N", "pue": factor.pue,
    }  # fmt: skip
    for name, watts in parts.items():
        row[f"{name}_power"] = watts
        # codecarbon counts the overhead of the data centre in the energy of each part.
        row[f"{name}_energy"] = None if watts is None else watts * seconds / JOULES_PER_KWH * factor.pue
    return row


def _plain(text: str) -> str:
    """``text`` for a cell: printable, and with an apostrophe before a character that begins a formula."""
    safe = printable(text)
    return f"'{safe}" if safe[:1] in ("=", "+", "-", "@") else safe
