"""Pages: one HTML file each, which contains its data, script and style, and sends no requests.

The report page ranks in the browser. The comparison page is text, tables and charts of groups, effects, scores and
forecasts; its script only draws charts of numbers that the tables contain, too. :func:`assemble` builds every page, so
that all pages share one style and one content security policy.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import html
import itertools
import json
import os
import zlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import vmselect
from vmselect import _io
from vmselect._checks import list_items, show
from vmselect.comparison.effects import Effects
from vmselect.comparison.groups import Comparison
from vmselect.comparison.requirements import Scores
from vmselect.comparison.speedup import compare_workers
from vmselect.errors import ArgumentError, VmselectError
from vmselect.estimation.runtime import SUMMED
from vmselect.findings import code_html
from vmselect.prediction import estimate_memory
from vmselect.ranking import MethodologyCost, next_probe
from vmselect.ranking.next_probe import UNKNOWN_SCRIPT
from vmselect.ranking.options import NO_LIMITS
from vmselect.ranking.output import ranking_inputs
from vmselect.ranking.probability import ErrorModel
from vmselect.ranking.views import PROVIDER_NAMES
from vmselect.records.forecast import NEVER_PROBED
from vmselect.records.identity import distinct, identify
from vmselect.report.charts import capitalize, check_target, epoch_curve_points, step_points, usage_points
from vmselect.report.comparison_charts import Plot, comparison_plots, effects_plots, reliability_plot
from vmselect.report.notebook import comparison_html, effects_html, score_html, scores_html
from vmselect.report.price_charts import price_section
from vmselect.scoring.score import Score
from vmselect.units import format_count, format_epoch_count, format_seconds, format_usd, list_some
from vmselect.watching.summary import sum_up

if TYPE_CHECKING:
    from vmselect.ranking import Ranking
    from vmselect.records import Profile, Record

SCRIPTS = (
    "numbers", "probability", "model", "limits", "next_probe", "scaling", "verdict_text", "elements", "axes",
    "ranking_charts", "verdict", "decision", "controls", "filters", "table", "sections", "gpu_counts", "batch_sizes",
    "training_charts", "price_history", "this_training",
    "report", "tools", "sliced_work", "app",
)  # fmt: skip
"""The scripts of the report page, in the order in which they are concatenated."""


class Tab(NamedTuple):
    """A link from a report page to another one in the same folder, or to itself."""

    title: str
    file: str
    """Name of the file as in a URL."""
    current: bool


class Stage(NamedTuple):
    """The decision after some probes, as texts."""

    title: str
    machine: str
    gpu: str
    time: str
    interval: str
    cost: str
    chance: str


def write_page(
    ranking: Ranking,
    path: str | os.PathLike[str],
    *,
    tabs: Sequence[Tab] = (),
    stages: Sequence[Stage] = (),
    note: str = "",
    records: Sequence[Record] = (),
    program: str = UNKNOWN_SCRIPT,
) -> Path:
    """Write the report page of ``ranking`` to ``path`` and return the path.

    ``tabs`` link to pages of other trainings. ``stages`` show how the decision changes with probes, with a ``note``.
    Watched trainings of the ranking and among ``records`` are summed up, with forecasts among ``records``. ``program``
    is the training script with its arguments, as in a shell, for the command of the next step.
    """
    page = render_page(ranking, tabs=tabs, stages=stages, note=note, records=records, program=program)
    return _io.write_text(check_target(path), page, error=ArgumentError)


def render_page(
    ranking: Ranking,
    *,
    tabs: Sequence[Tab] = (),
    stages: Sequence[Stage] = (),
    note: str = "",
    records: Sequence[Record] = (),
    program: str = UNKNOWN_SCRIPT,
) -> str:
    """The report page of ``ranking`` as HTML; see :func:`write_page`."""
    main = read_asset("ranking.html").rstrip()
    first = ("ranking", "the ranking") if len(ranking.candidates) else ("excluded", "the excluded candidates")
    data = page_data(ranking, records=records)
    data["page"] |= {
        "tabs": [tab._asdict() for tab in tabs],
        "stages": {"note": note, "rows": [stage._asdict() for stage in stages]},
        "program": program,
    }
    return assemble(data, main=main, scripts=SCRIPTS, first=first)


def assemble(data: Mapping[str, Any], *, main: str, scripts: Sequence[str], first: tuple[str, str]) -> str:
    """A page as HTML with the body ``main``. ``first`` contains the HTML id and the name of its first section."""
    style = read_asset("page.css")
    # A browser decompresses asynchronously, so the scripts are the body of one asynchronous function.
    bodies = "\n".join(read_asset(f"{name}.js") for name in scripts)
    script = f'"use strict";\n(async () => {{\n{bodies}}})();\n'
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return Template(read_asset("page.html")).substitute(
        policy=policy,
        version=vmselect.__version__,
        title=html.escape(data["page"]["title"]),
        first=first[0],
        first_words=first[1],
        main=main,
        style=style,
        script=script,
        data=pack_json(data),
    )


def pack_json(value: Any) -> str:
    """``value`` as JSON, compressed by zlib, in base64.

    Hundreds of machines take a tenth of their JSON, and no string in it can end the script element.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # A lone surrogate, as in a broken name, cannot be written as UTF-8.
    return base64.b64encode(zlib.compress(text.encode("utf-8", "replace"), level=9)).decode()


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def read_asset(name: str) -> str:
    """The text of the file ``name`` in the folder ``assets``."""
    return resources.files("vmselect.report").joinpath("assets", name).read_text(encoding="utf-8")


# -- the comparison page -----------------------------------------------------------------------------------------------

COMPARISON_SCRIPTS = ("numbers", "elements", "axes", "comparison_charts", "tools", "comparison_app")
Part = Comparison | Effects | Scores | Score


def write_comparisons(parts: Sequence[Part], path: str | os.PathLike[str]) -> Path:
    """Write a page of comparisons, effects and scores, in the order of ``parts``, to ``path`` and return the path."""
    return _io.write_text(check_target(path), render_comparisons(parts), error=ArgumentError)


def write_score(score: Score, path: str | os.PathLike[str]) -> Path:
    """Write the page of a score of forecasts to ``path`` and return the path."""
    return write_comparisons([score], path)


def render_comparisons(parts: Sequence[Part]) -> str:
    """The comparison page of ``parts`` as HTML."""
    parts = list_items(parts)
    for part in parts:
        if not isinstance(part, Part):
            raise ArgumentError(f"A page cannot contain {show(part)}. Pass comparisons, effects or scores.")
    if not parts:
        raise ArgumentError("There is nothing to write to the page. Pass at least one comparison, effects or scores.")
    plots: list[Plot] = []
    sections = [_section(number, part, plots) for number, part in enumerate(parts, 1)]
    titles = [_title(part) for part in parts]
    data = {
        "page": {
            "title": f"vmselect comparison: {' · '.join(titles)}",
            "created": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "subject": _subject(parts),
        },
        "plots": plots,
        "parts": [json.loads(part.to_json()) for part in parts],
    }
    main = "\n".join([_hero(parts, titles), *sections, _method(parts)])
    return assemble(data, main=main, scripts=COMPARISON_SCRIPTS, first=("part1", "the comparison"))


def _title(part: Part) -> str:
    if isinstance(part, Scores):
        return part.title
    if isinstance(part, Score):
        return "Forecasts against outcomes"
    words = ", ".join(part.by if isinstance(part, Comparison) else part.names).replace("_", " ")
    how = "by" if isinstance(part, Comparison) else "and its factors:"
    return capitalize(f"{part.metric.noun} {how} {words}")


def _subject(parts: Iterable[Part]) -> list[str]:
    """Texts for the top of the page: model and number of runs."""
    measured = [part.runs for part in parts if not isinstance(part, Scores | Score)]
    count = max((len(runs.runs) for runs in measured), default=0)
    models = {getattr(record, "model", None) for runs in measured for record in runs.records} - {None}
    return [*sorted(map(str, models))[:1], *([format_count(count, "run")] if count else [])]


def _hero(parts: Sequence[Part], titles: Sequence[str]) -> str:
    """The top of the page: the verdict of the first part, and links to all parts if there are several."""
    links = "".join(
        f'<li><a href="#part{number}" dir="auto">{escape(title)}</a></li>' for number, title in enumerate(titles, 1)
    )
    contents = f'<ul class="contents">{links}</ul>' if len(parts) > 1 else ""
    verdict = code_html(capitalize(parts[0].verdict))
    return f'<section class="hero"><h1 id="verdict" dir="auto">{verdict}</h1>{contents}</section>'


def _section(number: int, part: Part, plots: list[Plot]) -> str:
    """The HTML of ``part``. The data of its charts is appended to ``plots``."""
    verdict = number > 1  # the first is at the top of the page
    if isinstance(part, Comparison):
        body = comparison_html(part, pictures=_pictures(comparison_plots(part), plots), verdict=verdict)
    elif isinstance(part, Effects):
        body = effects_html(part, pictures=_pictures(effects_plots(part), plots), verdict=verdict)
    elif isinstance(part, Score):
        plot = [reliability_plot(part)] if part else []
        body = score_html(part, pictures=_pictures(plot, plots), verdict=verdict)
    else:
        body = scores_html(part, verdict=verdict)
    title = f"part{number}-title"
    head = f'<h2 id="{title}" dir="auto">{escape(_title(part))}</h2>'
    return f'<section class="section tables" id="part{number}" aria-labelledby="{title}">{head}{body}</section>'


def _pictures(own: list[Plot], plots: list[Plot]) -> str:
    """Empty HTML elements for the charts ``own``, which are appended to ``plots``; the page's script draws them."""
    places = []
    for number, plot in enumerate(own, len(plots)):
        title = f'<h3 dir="auto">{escape(plot["title"])}</h3>'
        lede = f'<p class="lede" dir="auto">{escape(plot["lede"])}</p>' if plot["lede"] else ""
        wide = "" if plot.get("narrow") else ' class="wide"'
        places.append(f'<div{wide}>{title}{lede}<div class="chart-host" data-plot="{number}"></div></div>')
    plots += own
    return f'<div class="plots">{"".join(places)}</div>'


def _method(parts: Iterable[Part]) -> str:
    facts: list[tuple[str, str]] = []
    for part in parts:
        if isinstance(part, Comparison):
            facts += [
                ("Compared", "runs" if part.unit == "runs" else f"{part.unit} of runs, corrected for correlation"),
                ("Test", f"{part.test.name}; pairs: {_pair_test(part)}, Holm-corrected; alpha {part.test.alpha:g}"),
                ("Intervals", f"{part.confidence:.0%} {_interval_method(part)}"),
            ]
        elif isinstance(part, Effects):
            scale = "percentages (log scale)" if part.scale == "log" else "differences (linear scale)"
            facts.append(("Effects", f"{scale} with {part.fit.confidence:.0%} intervals"))
        elif isinstance(part, Score):
            facts += [
                ("Error", "forecast minus real time, in percent of the real time; bias is the mean with its sign"),
                ("Coverage", "share of the real times inside their interval, with a 90% Wilson interval"),
                ("Levels", "other confidence levels scale the interval of a forecast as a normal distribution"),
            ]
        else:
            facts.append(("Scores", "sum over the requirements of fulfilment (0 to 1) × share of the weights × 100"))
    rows = "".join(f'<dt>{escape(name)}</dt><dd dir="auto">{escape(fact)}</dd>' for name, fact in dict.fromkeys(facts))
    body = f'<h2 id="method-title">How this was computed</h2><dl class="facts">{rows}</dl>'
    return f'<section class="section" id="method" aria-labelledby="method-title">{body}</section>'


def _pair_test(part: Comparison) -> str:
    return "the same test" if part.within else "Mann-Whitney"


def _interval_method(part: Comparison) -> str:
    if part.within:
        return "Student t intervals of the geometric mean of the ratios in all scenarios"
    return "bootstrap intervals of the ratio of means"


# -- the data of the report page ---------------------------------------------------------------------------------------

METHODS = {
    "robust": "robust: the time of a steady step after the warm-up, with start-up times added separately",
    "malta-epoch": "the dissertation's equation 5.1, from two epochs",
    "malta-iteration": "the dissertation's equation 5.3, from iterations and validations",
    "malta-iteration-no-validation": "the dissertation's equation 5.4, from iterations",
}
ENERGY = "time × power of the machine in steady steps: measured, or by the fraction of TDP (of other GPUs, or assumed)"
SCOPE = "Making the hardware (embodied carbon) is excluded."
LOCATION = f"energy × PUE × mean intensity of the local grid. {SCOPE}"
MARKET = f"energy × PUE × intensity of the grid without the carbon-free energy that the provider buys. {SCOPE}"
MAX_CANDIDATES = 1000
"""Largest number of candidates on the page: each takes about 2 KB, and a page of 2 MB opens fast and fits in mails. All
machines of the catalog in one market are about 650."""
MAX_STEPS = 600
MAX_PROFILES = 60
MAX_SPEEDUPS = 20
MAX_SAMPLED = 20


def page_data(ranking: Ranking, *, most: int = MAX_CANDIDATES, records: Sequence[Record] = ()) -> dict[str, Any]:
    """The ranking as values for JSON, and further data under the key ``page``. The page computes the rows itself."""
    kept = _choose_candidates(ranking, most)
    data = ranking_inputs(ranking, kept).payload()
    subject, profiles = _ranking_subject(ranking), _profiles(ranking)
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
        "providers": _provider_names(ranking),
        "memory": _memory(ranking, kept),
        "restated_findings": _find_restated(ranking, data["findings"]),
        "omitted_candidates": len(ranking.candidates) - len(kept),
        "steps": [step_points(profile, most=MAX_STEPS) for profile in stepped[:MAX_PROFILES]],
        "usage": [usage_points(title, usage) for title, usage in sampled[:MAX_SAMPLED]],
        "prices": price_section(ranking),
        "trainings": [training.to_dict() for training in sum_up(ranking, profiles, records)],
        "epoch_curves": epoch_curve_points(profiles, runs=ranking.study.runs if ranking.study else ()),
    }
    if len(kept) < len(ranking.candidates):
        # The number of a machine determines its random errors, so machines without a candidate leave a gap.
        used = {candidate["machine"] for candidate in data["candidates"]}
        for table in (data, data["page"]["error_model"]):
            table["machines"] = [row if number in used else None for number, row in enumerate(table["machines"])]
    return data


def _choose_candidates(ranking: Ranking, most: int) -> list[int]:
    """Indices of the candidates on the page: all, or, if there are more than ``most``, the ``most`` best.

    A quarter of these are the first ones of the ranking itself, and up to a quarter are measured machines. The others
    are the best by the ranking and by each measure (such as cost and time) without limits, in turn: at each number of
    epochs, in the markets of the ranking and in all markets.
    """
    if len(ranking.candidates) <= most:
        return list(range(len(ranking.candidates)))
    orders = list(ranking.assessment.order)
    kept = set(orders[ranking.deciding_column][: most // 4].tolist())
    probed = np.flatnonzero(ranking.candidates.per_machine_estimate(lambda machine: bool(machine.records)))
    kept.update(probed[: most // 4].tolist())
    markets = dict.fromkeys((ranking.settings.market, None))
    for objective, market in itertools.product(ranking.settings.measured, markets):
        orders += ranking.rerank(objective=objective, market=market or "all", **NO_LIMITS).assessment.order
    for place in range(max(map(len, orders))):
        for order in orders:
            if len(kept) == most:
                return sorted(kept)
            kept.update(order[place : place + 1].tolist())
    return sorted(kept)


def _provider_names(ranking: Ranking) -> dict[str, str]:
    """Names of the providers of ``ranking`` as they spell them, by name in vmselect, where these differ."""
    used = {str(provider) for provider in ranking.candidates.column("provider")}
    return {provider: PROVIDER_NAMES[provider] for provider in sorted(used & PROVIDER_NAMES.keys())}


def _memory(ranking: Ranking, kept: Sequence[int]) -> dict[str, Any] | None:
    """GPU memory in GiB that the training needs by examples per GPU, and that a GPU of each machine type has."""
    candidates, estimates = ranking.candidates, ranking.candidates.machine_estimates
    described = distinct(machine.description for machine in estimates if machine.description)
    sizes = {
        size // max(1, int(candidates.gpus[candidate]))
        for candidate in kept
        if (size := candidates.of(candidate).batch_size)
    }
    try:
        table = estimate_memory([*_profiles(ranking), *described], batch_size=sorted(sizes - {0}), gpu="T4")
    except VmselectError:  # no record contains a peak or a description
        return None
    peaks = table[(table["answer"] == "peak") & table["peak_gib"].notna()].drop_duplicates("batch_size")
    needs = {
        str(int(row["batch_size"])): [row["peak_gib"], row["low_gib"], row["high_gib"]]
        for row in peaks.to_dict("records")
    }
    types, sold = candidates.column("instance_type"), candidates.column("gpu_memory_gib")
    memory = {str(types[i]): float(sold[i]) for i in kept if sold[i] == sold[i] and sold[i]}
    return {"needs": needs, "gpus": memory} if needs else None


def _find_restated(ranking: Ranking, findings: Sequence[Mapping[str, Any]]) -> list[int]:
    """Positions of findings about the best candidate that the ranking states again for its number of epochs."""
    if not ranking:
        return []
    stated = ranking.best.findings
    general = [vars(finding) for finding in ranking.findings_of(int(ranking.positions[0][0])) if finding not in stated]
    return [position for position, finding in enumerate(findings) if finding in general]


def _ranking_subject(ranking: Ranking) -> list[str]:
    """Texts for the top of the page: model, batch sizes and number of machines."""
    candidates = ranking.candidates
    # A machine that was excluded, such as by a training that did not use its GPU, does not count.
    machines = [candidates.machine_estimates[number] for number in np.unique(candidates.machine_estimate)]
    machines = machines or list(candidates.machine_estimates)
    models = {profile.model for machine in machines for profile in machine.records if profile.model}
    batches = sorted({machine.batch_size for machine in machines if machine.batch_size})
    models |= {machine.description.model for machine in machines if machine.description and machine.description.model}
    measured = len({machine.instance_type for machine in machines if machine.basis not in NEVER_PROBED})
    predicted, described = (
        len({machine.instance_type for machine in machines if machine.basis == basis}) for basis in NEVER_PROBED
    )
    parts = [*sorted(models)[:1]]
    if batches:
        parts.append("batch " + ", ".join(map(str, batches)))
    kinds = [(measured, "measured"), (predicted, "predicted"), (described, "described")]
    counts = [f"{number} {basis}" for number, basis in kinds if number]
    if counts:
        number, basis = next(kind for kind in kinds if kind[0])
        parts += [f"{format_count(number, 'machine')} {basis}", *counts[1:]]
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
    if settings.interruptions and settings.interruptions.by_type:
        facts.append(["Spot interruptions", "published rates of each machine type and region, where they are known"])
    elif settings.interruptions:
        factor = settings.interruptions.factor
        facts.append(
            ["Spot interruptions", f"expected time on one machine is {factor:.3g} times the uninterrupted time"]
        )
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
    return [["Several workers", f"{row}, in {format_epoch_count(epochs)}"] for row in rows[:MAX_SPEEDUPS]]


def _cost_of_choosing(ranking: Ranking) -> list[list[str]]:
    # Published times and watched trainings are whole runs, which nobody made in order to choose.
    if any(profile.outcome in ("given", "watched") for profile in _profiles(ranking)):
        return []
    cost = ranking.selection_cost()
    if not cost.probe_seconds or not cost.exhaustive_usd:
        return []
    spent = f"{format_usd(cost.probe_usd)} for {format_seconds(cost.probe_seconds)} of probes"
    if isinstance(cost, MethodologyCost) and cost.study_seconds:
        spent += f" and {format_usd(cost.study_usd)} for {format_seconds(cost.study_seconds)} of the convergence study"
    if cost.without_times:
        spent += f" (without {list_some(cost.without_times, 2)}: time or price unknown)"
    saved = f"instead of {format_usd(cost.exhaustive_usd)} for training on every candidate to the end"
    return [["Cost of choosing", f"{spent}, {saved}"]]


def _measured(ranking: Ranking) -> str:
    profiles = _profiles(ranking)
    if not profiles:
        return "nothing; the times follow from the description of the training"
    days = sorted({profile.created.date().isoformat() for profile in profiles if profile.outcome != "given"})
    imported = sum(profile.outcome == "given" for profile in profiles)
    parts = [format_count(len(profiles), "profile")]
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
