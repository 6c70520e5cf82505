"""The data of the report page: ranking, measurements, and facts about the computation."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vmselect.comparison.speedup import compare_workers
from vmselect.estimation.runtime import SUMMED
from vmselect.ranking import MethodologyCost, next_probe
from vmselect.ranking.options import NO_LIMITS
from vmselect.ranking.output import ranking_inputs
from vmselect.ranking.probability import ErrorModel
from vmselect.records.identity import distinct, identify
from vmselect.report.charts import epoch_curve_points, step_points, usage_points
from vmselect.units import count_epochs, count_of, format_seconds, format_usd

if TYPE_CHECKING:
    from vmselect.ranking import Ranking
    from vmselect.records import Profile

METHODS = {
    "robust": "robust: the time of a steady step after the warm-up, with start-up times added separately",
    "malta-epoch": "the dissertation's equation 5.1, from two epochs",
    "malta-iteration": "the dissertation's equation 5.3, from iterations and validations",
    "malta-iteration-no-validation": "the dissertation's equation 5.4, from iterations",
}
ENERGY = "time × power of the machine in steady steps, measured or predicted from the fraction of TDP"
SCOPE = "Making the hardware (embodied carbon) is excluded."
LOCATION = f"energy × PUE × mean intensity of the local grid. {SCOPE}"
MARKET = f"energy × PUE × intensity of the grid without the carbon-free energy that the provider buys. {SCOPE}"
# A candidate takes about 0.5 kB of the page, so that the page stays small enough to be sent by e-mail.
MAX_CANDIDATES = 10_000
MAX_STEPS = 600
MAX_PROFILES = 60
MAX_SPEEDUPS = 20
MAX_SAMPLED = 20


def page_data(ranking: Ranking, *, most: int = MAX_CANDIDATES) -> dict[str, Any]:
    """The ranking as values for JSON, and further data under the key ``page``. The page computes the rows itself."""
    kept = _choose_candidates(ranking, most)
    data = ranking_inputs(ranking, kept).payload()
    subject, profiles = _subject(ranking), _profiles(ranking)
    stepped = [profile for profile in profiles if len(profile.timeline.steps)]
    sampled = [
        (profile.title, profile.usage) for profile in profiles if profile.usage is not None and profile.usage.seconds
    ]
    data["page"] = {
        "title": f"vmselect report: {' · '.join(subject)}",
        "created": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "subject": subject,
        "facts": _facts(ranking),
        "coefficients": [{"name": part.name, "multiplies": part.multiplies[0]} for part in SUMMED],
        "error_model": ErrorModel.of(ranking.candidates.machine_estimates, ranking.settings.confidence).to_dict(),
        "probe": next_probe.to_dict(ranking),
        "restated_findings": _find_restated(ranking, data["findings"]),
        "omitted_candidates": len(ranking.candidates) - len(kept),
        "steps": [step_points(profile, most=MAX_STEPS) for profile in stepped[:MAX_PROFILES]],
        "usage": [usage_points(title, usage) for title, usage in sampled[:MAX_SAMPLED]],
        "epoch_curves": epoch_curve_points(profiles, runs=ranking.study.runs if ranking.study else ()),
    }
    return data


def _choose_candidates(ranking: Ranking, most: int) -> list[int]:
    """Indices of the candidates on the page: all, or, if there are more than ``most``, at most ``most``.

    These are the best by each measure (such as cost and time) at each number of epochs.
    """
    if len(ranking.candidates) <= most:
        return list(range(len(ranking.candidates)))
    kept: set[int] = set()
    measured = ranking.settings.measured
    for objective in measured:
        everyone = ranking.rerank(objective=objective, market="all", **NO_LIMITS)
        orders = everyone.assessment.order
        for order in orders:
            kept.update(order[: most // (len(measured) * len(orders))].tolist())
    return sorted(kept)


def _find_restated(ranking: Ranking, findings: Sequence[Mapping[str, Any]]) -> list[int]:
    """Positions of findings about the best candidate that the ranking states again for its number of epochs."""
    if not ranking:
        return []
    stated = ranking.best.findings
    general = [vars(finding) for finding in ranking.findings_of(int(ranking.positions[0][0])) if finding not in stated]
    return [position for position, finding in enumerate(findings) if finding in general]


def _subject(ranking: Ranking) -> list[str]:
    """Texts for the top of the page: model, batch sizes and number of machines."""
    machines = ranking.candidates.machine_estimates
    models = {profile.model for machine in machines for profile in machine.records if profile.model}
    batches = sorted({machine.batch_size for machine in machines if machine.batch_size})
    measured = len({machine.instance_type for machine in machines if machine.basis != "predicted"})
    predicted = len({machine.instance_type for machine in machines if machine.basis == "predicted"})
    parts = [*sorted(models)[:1]]
    if batches:
        parts.append("batch " + ", ".join(map(str, batches)))
    parts += [f"{count_of(measured, 'machine')} measured"] if measured or predicted else []
    parts += [f"{predicted} predicted"] if predicted else []
    return parts or ["no machine can be ranked"]


def _facts(ranking: Ranking) -> list[list[str]]:
    """Names and values for the section "How this was computed"."""
    settings, candidates = ranking.settings, ranking.candidates
    dates = sorted({str(date) for date in candidates.column("date") if date})
    sources = sorted({str(source) for source in candidates.column("source") if source == source and source})
    sources = ["given by the user" if source == "user" else source for source in sources]
    facts = [
        ["Method", METHODS.get(settings.method, settings.method)],
        ["Intervals", f"{settings.confidence:.0%} of runs are expected to lie within their interval"],
        ["Measured", _measured(ranking)],
        ["Prices", f"{', '.join(sources[:4]) or 'unknown source'}; dates: {_span(dates) or 'unknown'}"],
        ["Billing", "time × price" if settings.billing == "exact" else "time rounded up as the provider bills it"],
    ]
    if settings.interruptions:
        factor = settings.interruptions.factor
        facts.append(["Spot interruptions", f"expected time is {factor:.3g} times the uninterrupted time"])
    if settings.asks_for("co2"):
        facts.append(["Energy", ENERGY])
        market = settings.emissions is not None and settings.emissions.basis == "market"
        facts.append(["CO2", MARKET if market else LOCATION])
    return [*facts, *_speedups(ranking), *_cost_of_choosing(ranking)]


def _speedups(ranking: Ranking) -> list[list[str]]:
    """Facts about the speed-up of several workers over one worker, if both were measured.

    Empty if the number of epochs comes from a convergence study.
    """
    if not ranking.settings.epochs:
        return []
    epochs = ranking.settings.epochs[-1]
    estimates = ranking.candidates.machine_estimates
    measured = [machine for machine in estimates if machine.records and machine.basis == "measured"]
    times = {identify(machine.records[0]): (machine.runtime.at(epochs), len(machine.records)) for machine in measured}
    rows = compare_workers(times)
    return [["Several workers", f"{row}, in {count_epochs(epochs)}"] for row in rows[:MAX_SPEEDUPS]]


def _cost_of_choosing(ranking: Ranking) -> list[list[str]]:
    cost = ranking.selection_cost()
    if not cost.probe_seconds or not cost.exhaustive_usd:
        return []
    spent = f"{format_usd(cost.probe_usd)} for {format_seconds(cost.probe_seconds)} of probes"
    if isinstance(cost, MethodologyCost) and cost.study_seconds:
        spent += f" and {format_usd(cost.study_usd)} for {format_seconds(cost.study_seconds)} of the convergence study"
    saved = f"instead of {format_usd(cost.exhaustive_usd)} for training on every candidate to the end"
    return [["Cost of choosing", f"{spent}, {saved}"]]


def _measured(ranking: Ranking) -> str:
    profiles = _profiles(ranking)
    days = sorted({profile.created.date().isoformat() for profile in profiles if profile.outcome != "given"})
    imported = sum(profile.outcome == "given" for profile in profiles)
    parts = [count_of(len(profiles), "profile")]
    if days:
        parts.append(f"made {_span(days)}")
    if imported:
        which = "all" if imported == len(profiles) else f"{imported} of them"
        parts.append(f"{which} imported from other measurements")
    return ", ".join(parts)


def _profiles(ranking: Ranking) -> list[Profile]:
    """The distinct profiles of all machine estimates, starting with those of the best candidate."""
    machine_estimates = ranking.candidates.machine_estimates
    ranked = ranking.candidates.machine_estimate[ranking.assessment.order[ranking.deciding_column]]
    order = dict.fromkeys([*ranked.tolist(), *range(len(machine_estimates))])
    return distinct(record for position in order for record in machine_estimates[position].records)


def _span(days: Sequence[str]) -> str:
    return days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}" if days else ""
