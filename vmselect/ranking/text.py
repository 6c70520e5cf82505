"""Verdict and table of a ranking as text, and findings about energy and CO2.

``verdict_text.js`` of the report page writes the same verdict (tested).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vmselect.energy.grids import DEFAULT, regions
from vmselect.energy.power import UnknownPower
from vmselect.findings import Finding, group_by_code, warnings_first
from vmselect.ranking.limits import count_reasons, unknown_co2
from vmselect.ranking.measures import MEASURES, describe_objective
from vmselect.units import count_of, format_chance, format_kg, format_seconds, format_usd

if TYPE_CHECKING:
    from vmselect.ranking.result import Ranking
    from vmselect.ranking.rows import Row

SHOWN = 3
"""Maximum number of rivals that a text describes."""
REASONS = {
    "below_required_metric": "misses the required metric",
    "co2_unknown": "emits an unknown amount of CO2",
    "contradictory_records": "cannot be predicted from contradictory records",
    "energy_unknown": "uses an unknown amount of energy",
    "epochs_unknown": "needs an unknown number of epochs",
    "filtered": "is left out by the filters",
    "input_bound": "cannot be predicted from steps that are limited by CPU or input",
    "metric_unknown": "has an unknown final metric",
    "never_probed": "was never probed",
    "no_estimate": "cannot be estimated",
    "no_gpu": "has no GPU",
    "no_gpu_figures": "has no published GPU figures",
    "no_gpu_probed": "cannot be predicted without a probe on a GPU",
    "no_price": "has no price",
    "no_probe_to_predict_from": "cannot be predicted from these profiles",
    "no_steps": "cannot be predicted without step times",
    "no_transfer": "has no measured transfer time",
    "no_two_node_probe": "was not probed on two nodes",
    "other_batch_size": "was measured at another batch size",
    "other_vendor": "has a GPU of a vendor that was not probed",
    "out_of_memory": "ran out of memory",
    "over_budget": "is over the budget",
    "over_co2_limit": "is over the CO2 limit",
    "over_deadline": "is over the deadline",
    "retired": "can no longer be rented",
    "several_gpus": "cannot be predicted from a probe on several GPUs",
    "share_of_gpu": "has only a share of a GPU",
    "too_disturbed": "was measured under too much disturbance",
    "too_little_gpu_memory": "has too little GPU memory",
    "too_many_gpus": "has too many GPUs to be predicted",
    "too_many_nodes": "has too many nodes to be predicted",
    "unknown_instance_type": "has no instance type in its profile",
    "unused_gpu": "has a GPU that the training did not use",
}
"""Verb phrase that explains the exclusion of one candidate, by reason code; ``verdict_text.js`` has the same table."""
PLURALS = {"emits": "emit", "has": "have", "is": "are", "misses": "miss", "needs": "need", "uses": "use", "was": "were"}
"""Plurals of the verbs with which the texts of :data:`REASONS` begin; other verbs have the same form."""
NEARLY_AS_GOOD, MUCH_LESS = 1.1, 0.8
"""Limits for an alternative: its score is at most 10 % worse than that of the choice, and a measure that is not in the
objective is at least 20 % lower. Chosen by judgement."""
MUCH_CLEANER = 0.8
"""A region is suggested if it causes at most this share of the CO2. Chosen by judgement."""


def _never_probed(ranking: Ranking) -> str:
    return " It was never probed." if ranking.best.basis == "predicted" else ""


def _consumption(ranking: Ranking) -> str:
    """Sentence on energy and CO2 of the choice, if the settings ask for them and they are known."""
    best = ranking.best
    shown = [name for name in ranking.settings.measured if MEASURES[name].optional and best.measures[name] is not None]
    used = [f"{MEASURES[name].verb} {measure_text(best, name)} of {MEASURES[name].title or name}" for name in shown]
    return f" It {' and '.join(used)}." if used else ""


def verdict(ranking: Ranking) -> str:
    """The verdict: the machine to rent with its time and cost, its probability of being best, and alternatives."""
    if not ranking:
        return nothing_feasible(ranking)
    column, result = ranking.deciding_column, ranking.assessment
    order = [int(i) for i in result.order[column]]
    objective = describe_objective(ranking.settings.objective)
    aim = MEASURES[objective].aim if objective in MEASURES else f"best {objective}"
    if len(order) == 1:
        return f"Rent {ranking.best}: the only candidate.{_never_probed(ranking)}{_consumption(ranking)}"
    chance = format_chance(float(result.chance[order[0], column]))
    claim = f"the {aim} of {len(order):,} candidates, best with a probability of {chance}."
    rivals = sorted((i for i in order[1:] if result.tied[i, column]), key=lambda i: -result.chance[i, column])
    others = ""
    if rivals:
        names = [
            f"{_brief(ranking, i)[:-1]}, {format_chance(float(result.chance[i, column]))})" for i in rivals[:SHOWN]
        ]
        more = f" and {len(rivals) - SHOWN:,} more" if len(rivals) > SHOWN else ""
        others = f" It may also be {'; '.join(names)}{more}."
    used = _consumption(ranking)
    return f"Rent {ranking.best}: {claim}{_never_probed(ranking)}{used}{others}{_alternative(ranking, order)}"


def _brief(ranking: Ranking, candidate: int) -> str:
    """Title, cost and time of a candidate."""
    measures = ranking.measures_of(candidate, ranking.deciding_column)
    values = f"{format_usd(measures['cost'].value)} in {format_seconds(measures['time'].value)}"
    return f"{ranking.candidates.title(candidate)} ({values})"


def _alternative(ranking: Ranking, order: Sequence[int]) -> str:
    """Sentence on a candidate that is nearly as good as the choice, and much better in a measure that has no weight."""
    column = ranking.deciding_column
    for name in (name for name, weight in ranking.settings.objective.items() if not weight):
        near = [i for i in order[1:] if ranking.assessment.score[i, column] <= NEARLY_AS_GOOD]
        values = ranking.assessment.measures[name].value[:, column]
        rival = min(near, key=lambda i: values[i], default=order[0])
        if values[rival] <= MUCH_LESS * values[order[0]]:
            less = " instead of ".join(MEASURES[name].format(float(values[i])) for i in (rival, order[0]))
            worse = float(ranking.assessment.score[rival, column] / ranking.assessment.score[order[0], column] - 1)
            return f" {_brief(ranking, rival)} is nearly as good ({worse:.0%} worse) with a {name} of {less}."
    return ""


def as_text(ranking: Ranking, *, shown: int = 10) -> str:
    """Text with verdict, table of the best rows, excluded candidates and findings."""
    if not ranking:
        return verdict(ranking)
    rows = ranking.deciding_rows[:shown]
    more_measures = [name for name in ranking.settings.measured if MEASURES[name].optional]
    heads = [MEASURES[name].title or name for name in more_measures]
    table = [("", "instance type", "where", "market", "batch", "time", "cost", *heads, "score", "best", "")]
    for row in rows:
        table.append(
            (str(row.rank), row.instance_type, f"{row.provider} {row.region}", row.market, str(row.batch_size or "?"),
             row.time_text, row.cost_text, *(measure_text(row, name) for name in more_measures), f"{row.score:.2f}",
             format_chance(row.chance), marks(row))
        )  # fmt: skip
    widths = [max(len(line[k]) for line in table) for k in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
    more = len(ranking.deciding_rows) - len(rows)
    tail = [f"... and {more:,} more"] if more > 0 else []
    study = [f"\n{ranking.study}"] if ranking.study else []
    return "\n".join([verdict(ranking), "", *lines, *tail, *remarks(ranking, rows), *study])


def measure_text(row: Row, name: str) -> str:
    """Text with the measure ``name`` of a row and its interval."""
    spread, write = row.measures[name], MEASURES[name].format
    return "unknown" if spread is None else f"{write(spread.value)} ({write(spread.low)} to {write(spread.high)})"


def marks(row: Row) -> str:
    """Text of the last cell of a row: ``pareto``, ``never probed``, and the largest speed-up by a faster GPU."""
    never = "never probed" if row.basis == "predicted" else ""
    return ", ".join(filter(None, ("pareto" if row.pareto else "", never, row.bound)))


def remarks(ranking: Ranking, rows: Sequence[Row]) -> list[str]:
    """Lines below a table of ``rows``: excluded candidates with reasons, and findings."""
    lines = [f"Next: {ranking.next_probe}"] if ranking.next_probe else []
    lines += [ranking.scaling_verdict] if ranking.scaling_verdict else []
    if ranking.deciding_excluded:
        lines.append(f"Excluded: {_describe_reasons(ranking)}; see ranking.excluded.")
        lines += [f"  {excluded}" for excluded in ranking.deciding_excluded[:SHOWN]]
    return lines + describe_findings(ranking, rows)


def describe_findings(ranking: Ranking, rows: Sequence[Row]) -> list[str]:
    """A line per kind of finding about the ranking or one of ``rows``, with the ranks that it concerns."""
    about: dict[Finding, list[int]] = {finding: [] for finding in ranking.findings}
    for row in rows:
        for finding in row.findings:
            about.setdefault(finding, []).append(row.rank)
    lines = []
    for kind in group_by_code(warnings_first(about)).values():
        # Findings of one kind mostly differ in numbers: that of the best row is printed, and the ranks of the others.
        first, *others = sorted(kind, key=lambda finding: min(about[finding], default=0))
        ranks = about[first]
        more = {rank for other in others for rank in about[other]}.difference(ranks)
        similar = f"; similar: {_join_ranks(more)}" if more else ""
        noun = "row" if len(ranks) == 1 else "rows"
        where = f" ({noun} {_join_ranks(ranks)}{similar})" if ranks and len(ranks) < len(rows) else ""
        lines.append(f"{first.severity.capitalize()}{where}: {first}")
    return lines


def _join_ranks(ranks: Iterable[int]) -> str:
    """Text of ranks, such as "1-3, 7"."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def nothing_feasible(ranking: Ranking) -> str:
    """Verdict if all candidates are excluded: their number for each reason, and the nearest candidate or an example.

    The nearest candidate is the one that exceeds its limits least; the text states by how much. If no candidate was
    excluded because of a limit, the text has an excluded candidate with the most frequent reason instead.
    """
    reasons = count_reasons(ranking)
    if not reasons:
        return "Nothing is feasible: there are no candidates."
    if short := ranking.shortfall:
        return f"Nothing is feasible: {_describe_reasons(ranking)}. {short}"
    most = reasons.most_common(1)[0][0]
    example = next(excluded for excluded in ranking.deciding_excluded if excluded.reason_code == most)
    return f"Nothing is feasible: {_describe_reasons(ranking)}. For example, {example}."


def _describe_reasons(ranking: Ranking) -> str:
    """Text with the number of excluded candidates for each reason."""
    return ", ".join(describe_reason(code, count) for code, count in count_reasons(ranking).most_common())


def describe_reason(code: str, count: int) -> str:
    """Text: that ``count`` candidates are excluded with the reason ``code``.

    >>> describe_reason("no_price", 1), describe_reason("over_deadline", 2)
    ('1 candidate has no price', '2 candidates are over the deadline')
    """
    verb, _, rest = REASONS.get(code, f"is excluded ({code.replace('_', ' ')})").partition(" ")
    return f"{count_of(count, 'candidate')} {verb if count == 1 else PLURALS.get(verb, verb)} {rest}"


def energy_findings(ranking: Ranking) -> list[Finding]:
    """Findings about the energy and CO2 of the best candidate: what the numbers contain, and a cleaner region."""
    candidates, settings, column = ranking.candidates, ranking.settings, ranking.deciding_column
    best = int(ranking.assessment.order[column][0])
    power = candidates.power.powers[int(candidates.machine_estimate[best])]
    if isinstance(power, UnknownPower):
        message = f"The energy of {candidates.title(best)} is unknown: {power.problem}."
        return [Finding("energy-unknown", message, _sentence(power.remedy), "info")]
    findings = []
    if power.basis == "predicted":
        message = f"The energy of {candidates.title(best)} is predicted from the fraction of TDP on other GPUs."
        remedy = "Probe this machine: its power is then measured, if its driver reports it."
        findings.append(Finding("energy-predicted", message, remedy, "info"))
    offer, emissions = candidates.identity(best), settings.emissions or DEFAULT
    factor = emissions.factor(offer["provider"], offer["region"])
    if factor is None:
        problem, remedy = unknown_co2(settings, offer)
        return [*findings, Finding("co2-unknown", _sentence(problem), _sentence(remedy), "info")]
    basis = "market-based" if emissions.basis == "market" else "location-based"
    message = (
        f"CO2 is that of the electricity of the training ({basis}, {factor.grid_g_per_kwh:.3g} g per kWh, "
        f"{factor.source}). Making the hardware (embodied carbon) is excluded."
    )
    remedy = "Pass emissions= to use your own grid intensity or PUE."
    findings.append(Finding("co2-scope", message, remedy, "info"))
    cleaner = _cleaner_region(ranking, best, offer, factor.kg_per_kwh)
    return [*findings, cleaner] if cleaner else findings


def _sentence(phrase: str) -> str:
    return f"{phrase[0].upper()}{phrase[1:]}."


def _cleaner_region(ranking: Ranking, best: int, offer: Mapping[str, Any], now: float) -> Finding | None:
    """The region of the same provider in which the same machine causes least CO2, if it is much less."""
    emissions = ranking.settings.emissions or DEFAULT
    # With an intensity for all machines, no region is cleaner than another.
    if emissions.grid_g_per_kwh is not None or emissions.hourly is not None or now <= 0:
        return None
    factors = {
        place.region: factor.kg_per_kwh
        for place in regions().values()
        if place.provider == offer["provider"] and (factor := emissions.factor(place.provider, place.region))
    }
    offers = ranking.candidates.offers
    same = offers[
        (offers["instance_type"] == offer["instance_type"]) & (offers["provider"] == offer["provider"])
        & (offers["market"] == offer["market"]) & ~offers["retired"].astype(bool)
    ]  # fmt: skip
    prices = dict(zip(same["region"].astype(str), same["usd_per_hour"].astype(float), strict=True))
    sold = [region for region in factors if region in prices]
    # Without a price in another region, the cleanest region of the provider is named.
    cleanest = min(sold or factors, key=lambda region: (factors[region], region), default=None)
    if cleanest is not None and factors[cleanest] > MUCH_CLEANER * now:
        cleanest = min(factors, key=lambda region: (factors[region], region))
    if cleanest is None or factors[cleanest] > MUCH_CLEANER * now:
        return None
    co2 = ranking.measures_of(best, ranking.deciding_column)["co2"]
    assert co2 is not None
    there = f"{format_kg(co2.value * factors[cleanest] / now)} instead of {format_kg(co2.value)} of CO2"
    if cleanest in prices:
        here = format_usd(prices.get(offer["region"], math.nan))
        cost = f"at {format_usd(prices[cleanest])} per hour instead of {here}"
        remedy = f"Pass region={cleanest!r} (--region {cleanest}) to rank there."
    else:
        cost = "at a price that the catalog does not have"
        remedy = f"Run `vmselect prices refresh --source skypilot --region {cleanest}`, then rank in {cleanest}."
    message = f"{offer['instance_type']} in {cleanest} would cause {there}, {cost}."
    return Finding("cleaner-region", message, remedy, "info")
