"""Energy and CO2 of candidates: power of machine estimates, emission factors of offers, and cleaner regions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from vmselect.energy.grids import DEFAULT, Emissions, regions
from vmselect.energy.power import (
    NO_RAPL,
    Power,
    UnknownPower,
    measured_power,
    predict_fraction,
    predict_power,
    tdp_fraction,
)
from vmselect.findings import Finding
from vmselect.intervals import Interval
from vmselect.ranking.rows import Floats, Ints
from vmselect.units import JOULES_PER_KWH, format_kg, format_usd

if TYPE_CHECKING:
    from vmselect.ranking.candidates import Candidates
    from vmselect.ranking.estimates import MachineEstimate
    from vmselect.ranking.options import Settings
    from vmselect.ranking.result import Ranking

MUCH_CLEANER = 0.8
"""A region is suggested if it causes at most this share of the CO2. Chosen by judgement."""


@dataclass(frozen=True)
class PowerTable:
    """Power of each machine estimate, all of its nodes together; NaN if it is unknown.

    ``deviation`` is the standard deviation of its log. Machine estimates with the same ``group`` share that error.
    """

    watts: Floats
    deviation: Floats
    group: Ints
    found: tuple[Power | UnknownPower, ...]

    def to_dict(self, position: int) -> dict[str, Any]:
        """Power of the machine estimate at ``position`` as plain values for JSON, or why it is unknown."""
        power = self.found[position]
        if isinstance(power, UnknownPower):
            return {"watts": None, "unknown": power.reason}
        watts, deviation = float(self.watts[position]), float(self.deviation[position])
        return {"watts": watts, "deviation": deviation, "group": int(self.group[position]), "basis": power.basis}


def estimate_power(machine_estimates: Sequence[MachineEstimate], offers: pd.DataFrame) -> PowerTable:
    """Power of all machine estimates, measured or predicted from those that were measured.

    ``offers`` is sorted by instance type and states the GPUs of machines whose records do not.
    """
    sold = _sold_gpus(machine_estimates, offers)
    fractions = [
        fraction
        for one, (gpu, _) in zip(machine_estimates, sold, strict=True)
        for record in one.records
        if (fraction := tdp_fraction(record, gpu=gpu)) is not None
    ]
    fraction = predict_fraction(fractions)
    found = [_power_of(one, fraction, *gpus) for one, gpus in zip(machine_estimates, sold, strict=True)]
    known = [power if isinstance(power, Power) else Power(np.nan, 0.0, "predicted", "") for power in found]
    nodes = np.array([one.nodes for one in machine_estimates], dtype=float)
    groups = dict.fromkeys(power.group for power in known)
    numbers = {group: number for number, group in enumerate(groups)}
    return PowerTable(
        watts=np.array([power.watts for power in known], dtype=float) * nodes,
        deviation=np.array([power.deviation for power in known], dtype=float),
        group=np.array([numbers[power.group] for power in known], dtype=np.intp),
        found=tuple(found),
    )


def _power_of(one: MachineEstimate, fraction: float | None, gpu: str | None, count: float) -> Power | UnknownPower:
    measured = measured_power(one.records, name=one.title, other_batch=one.basis != "measured")
    if measured is not None:
        return measured
    used = min(one.gpus_used or count, count)
    if one.prediction is not None:
        gpu, count = one.prediction.machine.gpu_model, one.prediction.machine.gpu_count
        used = float(one.prediction.gpus)
    if not gpu or not count:
        return NO_RAPL
    return predict_power(fraction, gpu, used=used, count=count)


def _sold_gpus(machine_estimates: Sequence[MachineEstimate], offers: pd.DataFrame) -> list[tuple[str | None, float]]:
    """Return the GPU model and GPU count of each machine estimate, by its first offer; None and 0 without a GPU."""
    names = offers["instance_type"]
    codes = names.cat.codes.to_numpy()
    first = np.flatnonzero(np.diff(codes, prepend=-1))
    rows = offers.iloc[first][["instance_type", "gpu_model", "gpu_count"]].itertuples(index=False)
    sold = {str(name): (str(model), float(count)) for name, model, count in rows if count > 0}
    return [sold.get(one.instance_type, (None, 0.0)) for one in machine_estimates]


def kg_per_kwh(offers: pd.DataFrame, chosen: Emissions) -> Floats:
    """Kilograms of CO2 per kilowatt-hour at the machine, for each offer; NaN if the grid is unknown."""
    places = [offers[name] for name in ("provider", "region")]
    first, second = (column.cat.codes.to_numpy(dtype=np.intp) for column in places)
    provider_names, region_names = (list(map(str, column.cat.categories)) for column in places)
    table = np.full((len(provider_names), len(region_names)), np.nan)
    there_are = np.zeros(table.shape, dtype=bool)
    there_are[first, second] = True
    for at in np.argwhere(there_are):
        factor = chosen.factor(provider_names[at[0]], region_names[at[1]])
        table[tuple(at)] = factor.kg_per_kwh if factor else np.nan
    return np.asarray(table[first, second])


def energy_of(candidates: Candidates, settings: Settings, time: Interval[Floats]) -> Interval[Floats]:
    """Energy of the machines in kWh: time multiplied by power. The errors of the two are independent."""
    power = candidates.power
    watts = power.watts[candidates.machine_estimate][:, None] / JOULES_PER_KWH
    value = time.value * watts
    if time.low is time.value and time.high is time.value:
        return Interval.exact(value)
    spread = float(ndtri(0.5 + settings.confidence / 2)) * power.deviation[candidates.machine_estimate][:, None]
    low, high = (np.exp(np.hypot(side, spread)) for side in time.log_widths())
    return Interval(value, value / low, value * high)


def co2_of(candidates: Candidates, settings: Settings, time: Interval[Floats]) -> Interval[Floats]:
    """CO2 of the energy in kg, with the emission factor of the place of each candidate, taken as exact."""
    chosen = settings.emissions or DEFAULT
    factor = candidates.kg_per_kwh(chosen)[:, None]
    energy = energy_of(candidates, settings, time)
    if not chosen.hours:
        return energy.map(lambda part: part * factor)
    # Energy at the ends of the time interval is used at other hours than energy at its middle.
    return Interval(*(part * factor * chosen.hourly_ratio(end) for part, end in zip(energy, time, strict=True)))


def explain_unknown(candidates: Candidates, settings: Settings, candidate: int) -> str:
    """Why energy or CO2 of a candidate is unknown; ``model.js`` of the page writes the same text."""
    power = candidates.power.found[int(candidates.machine_estimate[candidate])]
    if isinstance(power, UnknownPower):
        return f"its energy is unknown: {power.reason}"
    who = candidates.identity(candidate)
    chosen = settings.emissions or DEFAULT
    what = "share of carbon-free energy" if chosen.basis == "market" else "grid intensity"
    remedy = "pass emissions= with grid_g_per_kwh or country (--grid-g-per-kwh, --country)"
    return f"its CO2 is unknown: no {what} of {who['provider']} {who['region']} is known; {remedy}"


def energy_findings(ranking: Ranking) -> list[Finding]:
    """Findings about the energy and CO2 of the best candidate: what the numbers contain, and a cleaner region."""
    candidates, settings, column = ranking.candidates, ranking.settings, ranking.deciding_column
    best = int(ranking.assessment.order[column][0])
    power = candidates.power.found[int(candidates.machine_estimate[best])]
    found = []
    if isinstance(power, UnknownPower):
        message = f"The energy of {candidates.title(best)} is unknown: {power.reason.partition(';')[0]}."
        remedy = power.reason.partition("; ")[2]
        remedy = f"{remedy[0].upper()}{remedy[1:]}."
        return [Finding("energy-unknown", message, remedy, "info")]
    if power.basis == "predicted":
        message = f"The energy of {candidates.title(best)} is predicted from the fraction of TDP on other GPUs."
        remedy = "Probe this machine: its power is then measured, if its driver reports it."
        found.append(Finding("energy-predicted", message, remedy, "info"))
    who, chosen = candidates.identity(best), settings.emissions or DEFAULT
    factor = chosen.factor(who["provider"], who["region"])
    if factor is None:
        message, _, remedy = explain_unknown(candidates, settings, best).partition("; ")
        return [
            *found,
            Finding("co2-unknown", f"{message[0].upper()}{message[1:]}.", f"{remedy[0].upper()}{remedy[1:]}.", "info"),
        ]
    which = "market-based" if chosen.basis == "market" else "location-based"
    message = (
        f"CO2 is that of the electricity of the training ({which}, {factor.grid_g_per_kwh:.3g} g per kWh, "
        f"{factor.source}). Making the hardware (embodied carbon) is excluded."
    )
    remedy = "Pass emissions= to use your own grid intensity or PUE."
    found.append(Finding("co2-scope", message, remedy, "info"))
    cleaner = _cleaner_region(ranking, best, who, factor.kg_per_kwh)
    return [*found, cleaner] if cleaner else found


def _cleaner_region(ranking: Ranking, best: int, who: dict[str, Any], now: float) -> Finding | None:
    """The region of the same provider in which the same machine causes least CO2, if it is much less."""
    chosen, candidates = ranking.settings.emissions or DEFAULT, ranking.candidates
    if chosen.grid_g_per_kwh is not None or chosen.hourly is not None or now <= 0:
        return None
    factors = {
        place.region: found.kg_per_kwh
        for place in regions().values()
        if place.provider == who["provider"] and (found := chosen.factor(place.provider, place.region))
    }
    offers = candidates.offers
    same = offers[
        (offers["instance_type"] == who["instance_type"]) & (offers["provider"] == who["provider"])
        & (offers["market"] == who["market"]) & ~offers["retired"].astype(bool)
    ]  # fmt: skip
    prices = dict(zip(same["region"].astype(str), same["usd_per_hour"].astype(float), strict=True))
    sold = {region: factor for region, factor in factors.items() if region in prices}
    # Without a price in another region, the cleanest region of the provider is named.
    named = min(sold or factors, key=lambda region: (factors[region], region), default=None)
    if named is not None and factors[named] > MUCH_CLEANER * now:
        named = min(factors, key=lambda region: (factors[region], region))
    if named is None or factors[named] > MUCH_CLEANER * now:
        return None
    co2 = ranking.measures_of(best, ranking.deciding_column)["co2"]
    assert co2 is not None
    there = f"{format_kg(co2.value * factors[named] / now)} instead of {format_kg(co2.value)} of CO2"
    if named in prices:
        cost = f"at {format_usd(prices[named])} per hour instead of {format_usd(prices.get(who['region'], np.nan))}"
        remedy = f"Pass region={named!r} (--region {named}) to rank there."
    else:
        cost = "at a price that the catalog does not have"
        remedy = f"Run `vmselect prices refresh --source skypilot --region {named}`, then rank in {named}."
    message = f"{who['instance_type']} in {named} would cause {there}, {cost}."
    return Finding("cleaner-region", message, remedy, "info")
