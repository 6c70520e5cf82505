"""``vmselect compare``: whether groups of records really differ, and which factor matters."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmselect.cli.options import CatalogOption, DateOption, OwnPricesOption, open_catalog
from vmselect.cli.output import Format, FormatOption, emit, flag, say, tell
from vmselect.errors import ArgumentError

if TYPE_CHECKING:
    from vmselect.comparison import Comparison, Effects, Scaling, Scores

COLUMNS = (
    "metric", "group", "count", "mean", "sd", "median", "quartile_1", "quartile_3", "minimum", "maximum",
    "ratio", "ratio_low", "ratio_high", "percent", "percent_low", "percent_high", "baseline", "p_value", "unit",
)  # fmt: skip
TABLE = ("group", "runs", "mean", "sd", "median", "quartiles", "difference")
EFFECT_COLUMNS = (
    "metric", "factor", "level", "count", "mean", "effect", "low", "high", "percent", "percent_low", "percent_high",
    "p_value", "share",
)  # fmt: skip
SCALING_TABLE = ("setup", "nodes", "unit", "batch per worker", "runs", "base", "time", "speed-up", "efficiency", "cost")
EFFECT_TABLE = ("factor", "level", "runs", "mean", "effect", "share", "p")


def compare(
    paths: Annotated[list[Path], typer.Argument(metavar="RECORD...", help="Record files, or folders of them.")],
    by: Annotated[
        str, typer.Option(help="What the groups differ in; several as backend,batch_size.")
    ] = "instance_type",
    metric: Annotated[str, typer.Option(help="What to compare; several as step_seconds,throughput.")] = "step_seconds",
    baseline: Annotated[str | None, typer.Option(help="The group that the others are compared with.")] = None,
    factors: Annotated[
        str | None, typer.Option(help="Effects of these factors instead, as machine,batch_size.")
    ] = None,
    scaling: Annotated[
        bool, flag("--scaling", help="What several workers give against one, for --epochs, instead.")
    ] = False,
    needs: Annotated[Path | None, typer.Option(help="Score the groups by this requirements file instead.")] = None,
    unit: Annotated[str, typer.Option(help="runs, or blocks of steps where each group has one run.")] = "runs",
    better: Annotated[str | None, typer.Option(help="less or more, for a metric of your own.")] = None,
    scale: Annotated[str, typer.Option(help="Of effects: linear, or log for percentages.")] = "linear",
    alpha: Annotated[float, typer.Option(help="False alarms that are acceptable.")] = 0.05,
    confidence: Annotated[float, typer.Option(help="Of the intervals.")] = 0.95,
    epochs: Annotated[int | None, typer.Option("--epochs", "-e", help="For predicted totals and costs.")] = None,
    model: Annotated[str | None, typer.Option(help="Take only the records of this model.")] = None,
    region: Annotated[str | None, typer.Option(help="Price in this region.")] = None,
    market: Annotated[str, typer.Option(help="on_demand, spot, reserved_1y or reserved_3y.")] = "on_demand",
    catalog: CatalogOption = None,
    own_prices: OwnPricesOption = None,
    date: DateOption = None,
    html: Annotated[Path | None, typer.Option(help="Write it as a page with charts, too.")] = None,
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Say whether groups of records really differ: by how much, and how sure that is.

    A repetition is a run, not a step. JSON holds everything (a list of them for several metrics), CSV every group. Exit
    code 1 when there are too few runs for a test, or nobody meets the requirements.

    Examples:

      vmselect compare records/ --by instance_type --metric step_seconds

      vmselect compare records/ --by provider --metric step_seconds,init_seconds --baseline aws --format csv

      vmselect compare records/ --factors machine,batch_size,backend --scale log

      vmselect compare records/ --by provider --metric step_seconds,cost -e 50 --needs needs.yaml --html page.html

      vmselect compare sweep/ --scaling -e 50
    """
    from vmselect import comparison
    from vmselect.records import load_records

    records = load_records(paths)
    if scaling:
        if epochs is None:
            raise ArgumentError(
                "--scaling needs --epochs: start-up weighs more in a short training than in a long one."
            )
        trainings = [record for record in records if record.kind == "training"]
        _print_scaling(comparison.scaling(trainings, epochs=epochs, confidence=confidence, model=model), format)
        return
    names = _split(metric, option="--metric")
    common: dict[str, Any] = {
        "confidence": confidence,
        "epochs": epochs,
        "model": model,
        "region": region,
        "market": market,
    }
    if "cost" in names or "cost_usd" in names:
        common["catalog"] = open_catalog(catalog, date=date, own_prices=own_prices)
    if factors is not None:
        wanted = _split(factors, option="--factors")
        studies = [comparison.effects(records, factors=wanted, metric=name, scale=scale, **common) for name in names]
        _print_effects(studies, format)
        _write_page(studies, html)
        return
    groups = _split(by, option="--by")
    compared = [
        comparison.compare(
            records, by=groups, metric=name, baseline=baseline, unit=unit, alpha=alpha, better=better, **common
        )
        for name in names
    ]
    if needs is not None:
        scores = comparison.Requirements.load(needs).score(compared)
        _write_page([scores, *compared], html)
        _print_scores(scores, format)
        return
    _print_comparisons(compared, format)
    _write_page(compared, html)
    if all(one.test.p_value is None for one in compared):
        raise typer.Exit(1)


def _print_comparisons(compared: list[Comparison], format: Format) -> None:  # noqa: A002
    from vmselect.comparison.wording import group_rows

    if format is Format.json:
        _write_json([one.payload() for one in compared])
    elif format is Format.csv:
        rows = [
            {**row, "metric": one.metric.name, "p_value": one.test.p_value, "unit": one.metric.unit}
            for one in compared
            for row in _records(one.groups)
        ]
        emit(rows, COLUMNS, format=format)
    for one in compared if format is Format.table else ():
        tell(one.verdict)
        emit(group_rows(one), TABLE, format=format)
        say([f"Test: {one.test}"])
    say(dict.fromkeys(f"{f.severity.capitalize()}: {f}" for one in compared for f in one.findings))


def _print_effects(studies: list[Effects], format: Format) -> None:  # noqa: A002
    from vmselect.comparison.significance import format_p
    from vmselect.comparison.wording import format_percent, format_value

    if format is Format.json:
        _write_json([one.payload() for one in studies])
    elif format is Format.csv:
        rows = [{**row, "metric": one.metric.name} for one in studies for row in _records(one.main)]
        emit(rows, EFFECT_COLUMNS, format=format)
    for one in studies if format is Format.table else ():
        tell(one.verdict)
        shown = [
            {
                "factor": row["factor"],
                "level": str(row["level"]),
                "runs": row["count"],
                "mean": format_value(row["mean"], one.metric.unit),
                "effect": format_percent(row),
                "share": f"{100 * row['share']:.1f} %",
                "p": "" if row["p_value"] != row["p_value"] else format_p(row["p_value"]),
            }
            for row in one.main.to_dict("records")
        ]
        emit(shown, EFFECT_TABLE, format=format)
    say(dict.fromkeys(f"{f.severity.capitalize()}: {f}" for one in studies for f in one.findings))


def _print_scaling(found: Scaling, format: Format) -> None:  # noqa: A002
    from vmselect.units import format_seconds

    if format is Format.json:
        _write_json([found.payload()])
    elif format is Format.csv:
        emit(_records(found.table), list(found.table.columns), format=format)
    else:
        tell(found.verdict)
        shown = [
            {
                "setup": row.setup,
                "nodes": row.nodes,
                "unit": row.unit,
                "batch per worker": row.worker_batch_size,
                "runs": row.runs,
                "base": row.base,
                "time": format_seconds(row.seconds),
                "speed-up": f"{row.speedup:.2f} ({row.speedup_low:.2f} to {row.speedup_high:.2f})",
                "efficiency": f"{row.efficiency:.0%} ({row.efficiency_low:.0%} to {row.efficiency_high:.0%})",
                "cost": f"{row.cost_ratio:.2f} ({row.cost_ratio_low:.2f} to {row.cost_ratio_high:.2f}) times",
            }
            for row in found.rows
        ]
        emit(shown, SCALING_TABLE, format=format)
    say(f"{finding.severity.capitalize()}: {finding}" for finding in found.findings)


def _print_scores(scores: Scores, format: Format) -> None:  # noqa: A002
    if format is Format.json:
        _write_json([scores.payload()])
    elif format is Format.csv:
        emit(_records(scores.parts), list(scores.parts.columns), format=format)
    else:
        tell(scores.verdict)
        emit(_records(scores.table), list(scores.table.columns), format=format)
        emit(_records(scores.side_by_side), list(scores.side_by_side.columns), format=format)
    say(f"Left out: {name}: {reason}." for name, reason in scores.excluded.items())
    if scores.best is None:
        raise typer.Exit(1)


def _write_page(parts: Sequence[Comparison | Effects | Scores], path: Path | None) -> None:
    if path is not None:
        from vmselect.report.comparisons import write_comparisons

        say([f"Page: {write_comparisons(parts, path).resolve().as_uri()}"])


def _records(frame: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = frame.to_dict("records")
    return rows


def _write_json(payloads: list[dict[str, Any]]) -> None:
    """One object, or a list of several."""
    answer = payloads[0] if len(payloads) == 1 else payloads
    sys.stdout.write(json.dumps(answer, indent=1, allow_nan=False) + "\n")


def _split(text: str, *, option: str) -> list[str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ArgumentError(f"{option} {text!r} names nothing. Give a name, or several separated by commas.")
    return parts
