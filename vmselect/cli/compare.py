"""The command ``vmselect compare``: differences between groups of records, effects of factors, changes of the code."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmselect.cli.options import PriceOptions, limit_option, with_price_options
from vmselect.cli.output import (
    Format,
    FormatOption,
    flag,
    frame_rows,
    print_csv,
    print_err,
    print_json,
    print_out,
    print_table,
    working,
)
from vmselect.errors import ArgumentError

if TYPE_CHECKING:
    import pandas as pd

    from vmselect.comparison.effects import Effects
    from vmselect.comparison.groups import Comparison
    from vmselect.comparison.requirements import Scores
    from vmselect.comparison.speedup import Scaling
    from vmselect.records import Record


MAX_CSV_BYTES = 16 * 2**20
DEFAULT_METRIC = "step_seconds"


@with_price_options
def compare(
    paths: Annotated[
        list[str],
        typer.Argument(metavar="RECORD", help="Files, folders or URLs of folders of records; or CSV files of numbers."),
    ],
    by: Annotated[
        str, typer.Option(help="Fields that define the groups, such as backend,batch_size.")
    ] = "instance_type",
    metric: Annotated[str, typer.Option(help="Metrics to compare, as in step_seconds,throughput.")] = DEFAULT_METRIC,
    baseline: Annotated[
        str | None, typer.Option(help="Group to compare the other groups with.", show_default="the first group")
    ] = None,
    within: Annotated[
        str | None,
        typer.Option(
            help="Factors to hold fixed, as in model,batch_size: groups are compared where these factors are equal."
        ),
    ] = None,
    factors: Annotated[
        str | None,
        typer.Option(help="Estimate the effects of these factors, as in machine,batch_size, instead of comparing."),
    ] = None,
    scaling: Annotated[
        bool,
        flag(
            "--scaling",
            help="Estimate the speed-up of several workers over one, instead of comparing groups. Requires --epochs; "
            "--metric val_accuracy shows a metric beside it.",
        ),
    ] = False,
    needs: Annotated[Path | None, typer.Option(help="YAML file of requirements by which to score the groups.")] = None,
    unit: Annotated[str, typer.Option(help="What counts as one sample: runs, or blocks (groups of steps).")] = "runs",
    better: Annotated[str | None, typer.Option(help="For a custom metric: whether less or more is better.")] = None,
    scale: Annotated[str, typer.Option(help="Scale of the effects of --factors: linear, or log (percent).")] = "linear",
    alpha: Annotated[float, typer.Option(help="Significance level of the tests.")] = 0.05,
    confidence: Annotated[float, typer.Option(help="Confidence level of the intervals.")] = 0.95,
    epochs: Annotated[
        int | None,
        typer.Option(
            "--epochs",
            "-e",
            help="Epochs to train, for --before, --scaling and the metrics total_seconds, cost, energy and co2.",
        ),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Use only the records of this model.")] = None,
    before: Annotated[
        str | None,
        typer.Option(
            metavar="OLD",
            help="Profiles before a change of the code: compare time and cost with those, instead of groups.",
        ),
    ] = None,
    limit_percent: Annotated[
        float | None,
        limit_option(help="With --before: exit with code 1 if the total time grows by more than this percentage."),
    ] = None,
    limit_usd: Annotated[
        float | None,
        limit_option(help="With --before: exit with code 1 if the cost of a training grows by more than this (USD)."),
    ] = None,
    markdown: Annotated[
        Path | None,
        typer.Option(help="With --before: also append a Markdown table to this file, such as $GITHUB_STEP_SUMMARY."),
    ] = None,
    html: Annotated[Path | None, typer.Option(help="Also write an HTML page with charts to this file.")] = None,
    format: FormatOption = Format.table,  # noqa: A002
    *,
    prices: PriceOptions,
) -> None:
    """Test whether groups of records differ in a metric, and estimate by how much.

    A sample is a run, or a block of steps with --unit blocks; single steps are no samples. JSON output contains all
    results, CSV output the groups only. Exit code 1 if there are too few samples for a test, or if no group meets the
    requirements of --needs.

    With --before, the time and cost of the same trainings before and after a change of the code are compared.
    Trainings are matched by model, machine type, batch size and factors. A limit is exceeded if the estimated increase
    is above the limit and its whole interval is above zero, so that noise alone does not fail a pull request. Exit code
    1 if a limit is exceeded, 2 if nothing can be compared, or if a limit cannot be checked because the measurement of a
    training was too disturbed.

    Examples:

      vmselect compare records/ --by instance_type --metric step_seconds

      vmselect compare records/ --by provider --metric step_seconds,init_seconds --baseline aws --format csv

      vmselect compare batches.csv --by platform --metric seconds_per_mb --html page.html

      vmselect compare records/ --by provider --within framework,dataset --metric total_seconds

      vmselect compare records/ --factors machine,batch_size,backend --scale log

      vmselect compare records/ --by provider --metric step_seconds,cost -e 50 --needs needs.yaml --html page.html

      vmselect compare sweep/ --scaling -e 50

      vmselect compare profiles/ --before profiles-main/ --epochs 50 --limit-percent 5 --json
    """
    from vmselect.comparison.effects import effects
    from vmselect.comparison.requirements import Requirements
    from vmselect.comparison.speedup import scaling as speedups
    from vmselect.records import Profile, load_records

    if before is not None:
        limits = {"limit_percent": limit_percent, "limit_usd": limit_usd}
        _compare_versions(before, paths, limits, epochs=epochs, markdown=markdown, format=format, prices=prices)
        return
    alone = {"--limit-percent": limit_percent, "--limit-usd": limit_usd, "--markdown": markdown}
    for option, value in alone.items():
        if value is not None:
            raise ArgumentError(
                f"{option} belongs to --before. Add --before with the old profiles, or remove {option}."
            )
    with working("Reading records"):
        records = _read_rows(paths) if all(path.lower().endswith(".csv") for path in paths) else load_records(paths)
    if scaling:
        if epochs is None:
            raise ArgumentError("--scaling requires the number of epochs to train. Add --epochs.")
        trainings = [record for record in records if isinstance(record, Profile)]
        beside = None if metric == DEFAULT_METRIC else split_names(metric, option="--metric")[0]
        speedup = speedups(trainings, epochs=epochs, confidence=confidence, model=model, metric=beside)
        _print_scaling(speedup, format)
        return
    names = split_names(metric, option="--metric")
    common = comparison_options(names, prices, confidence=confidence, epochs=epochs, model=model)
    if factors is not None:
        varied = split_names(factors, option="--factors")
        studies = [effects(records, factors=varied, metric=name, scale=scale, **common) for name in names]
        _print_effects(studies, format)
        _write_page(studies, html)
        return
    compared = compare_groups(
        records, by=by, metrics=names, baseline=baseline, within=within, unit=unit, alpha=alpha, better=better, **common
    )
    if needs is not None:
        scores = Requirements.load(needs).score(compared)
        _write_page([scores, *compared], html)
        _print([scores], format, csv=[scores.parts], tables=[frame_rows(scores.table), frame_rows(scores.side_by_side)])
        print_err(f"Excluded: {name}: {reason}." for name, reason in scores.excluded.items())
        if scores.best is None:
            raise typer.Exit(1)
        return
    _print_groups(compared, format)
    _write_page(compared, html)
    if all(part.test.p_value is None for part in compared):
        raise typer.Exit(1)


def _compare_versions(
    before: str,
    after: list[str],
    limits: Mapping[str, float | None],
    *,
    epochs: int | None,
    markdown: Path | None,
    format: Format,  # noqa: A002
    prices: PriceOptions,
) -> None:
    """Print the changes from the profiles ``before`` to the profiles ``after``, and exit by the limits."""
    from vmselect.comparison.changes import ChangeOutput, find_changes
    from vmselect.records import load_profiles

    if markdown is not None and markdown.is_dir():
        raise ArgumentError(f"--markdown {str(markdown)!r} is a folder. Give the path of a file.")
    with working("Comparing profiles"):
        changes = find_changes(
            load_profiles(before),
            load_profiles(*after),
            epochs=epochs,
            catalog=prices.open(),
            region=prices.region,
            market=prices.market,
            **limits,
        )
    if format is Format.json:
        print_json(changes.to_output())
    elif format is Format.csv:
        print_csv([vars(change.to_output()) for change in changes], [*ChangeOutput.model_fields])
    else:
        for change in changes:
            print_out(f"{change}{' (above the limit)' if change.exceeds else ''}")
    if markdown is not None:
        with markdown.open("a", encoding="utf-8") as file:
            file.write(changes.to_markdown())
    lines = (f"{finding.severity.capitalize()}: {finding}" for finding in changes.findings)
    print_err(lines, always=changes.too_uncertain)
    if changes.exceeds:
        raise typer.Exit(1)
    # A limit that cannot be checked must not pass as one that is kept.
    limited = any(limit is not None for limit in limits.values())
    if not changes or (limited and changes.too_uncertain):
        raise typer.Exit(2)


def _print_scaling(speedups: Scaling, format: Format) -> None:  # noqa: A002
    from vmselect.report import notebook

    _print([speedups], format, csv=[speedups.table], tables=[notebook.scaling_rows(speedups)])


def _print_effects(studies: Sequence[Effects], format: Format) -> None:  # noqa: A002
    from vmselect.report import notebook

    mains = [study.main.assign(metric=study.metric.name)[["metric", *study.main.columns]] for study in studies]
    _print(studies, format, csv=mains, tables=map(notebook.effect_rows, studies))


def _print_groups(compared: Sequence[Comparison], format: Format) -> None:  # noqa: A002
    from vmselect.comparison.groups import group_rows, scenario_rows

    frames = [
        part.groups.assign(metric=part.metric.name, p_value=part.test.p_value, unit=part.metric.unit)
        for part in compared
    ]
    frames = [frame[["metric", *frame.columns.drop("metric")]] for frame in frames]
    tests = [f"Test: {part.test}" for part in compared]
    scenarios = [scenario_rows(part) for part in compared]
    _print(compared, format, csv=frames, tables=map(group_rows, compared), below=tests, more=scenarios)


def compare_groups(
    records: Sequence[Record] | Sequence[Mapping[str, object]],
    *,
    by: str,
    metrics: Sequence[str],
    within: str | None,
    **options: Any,
) -> list[Comparison]:
    """Compare groups of ``records`` in each of ``metrics``. ``by`` and ``within`` are names separated by commas."""
    from vmselect.comparison.groups import compare as compare_runs

    groups = split_names(by, option="--by")
    scenario = split_names(within, option="--within") if within is not None else None
    return [compare_runs(records, by=groups, metric=name, within=scenario, **options) for name in metrics]


def _read_rows(paths: Sequence[str]) -> list[dict[str, object]]:
    """Return the rows of CSV files with a line of column names; cells that are numbers become numbers."""
    from vmselect._io import read_text

    rows: list[dict[str, object]] = []
    for path in paths:
        text = read_text(path, noun="CSV file", limit=MAX_CSV_BYTES, error=ArgumentError)
        reader = csv.DictReader(text.splitlines())
        if not reader.fieldnames or len(set(reader.fieldnames)) < len(reader.fieldnames):
            raise ArgumentError(f"{path} has no line of different column names. Write one, as in provider,seconds.")
        for row in reader:
            if None in row or None in row.values():
                raise ArgumentError(f"Line {reader.line_num} of {path} has not one cell per column. Correct it.")
            rows.append({name: _read_cell(cell) for name, cell in row.items()})
    return rows


def _read_cell(cell: str) -> object:
    for number in (int, float):
        try:
            return number(cell)
        except ValueError:
            continue
    return cell.strip() or None


def comparison_options(metrics: Sequence[str], prices: PriceOptions, **options: Any) -> dict[str, Any]:
    """Return ``options`` with region and market, and with the catalog if one of ``metrics`` needs prices."""
    if "cost" in metrics or "cost_usd" in metrics:
        options["catalog"] = prices.open()
    return {**options, "region": prices.region, "market": prices.market}


def _print(
    parts: Sequence[Any],
    format: Format,  # noqa: A002
    *,
    csv: Sequence[pd.DataFrame],
    tables: Iterable[list[dict[str, Any]]],
    below: Sequence[str] = (),
    more: Sequence[list[dict[str, Any]]] = (),
) -> None:
    """Print ``parts`` as JSON, the frames ``csv`` as CSV, or the verdict and table of each part; then all findings.

    ``below`` contains a line to print below each table, and ``more`` the rows of a second table of each part.
    """
    if format is Format.json:
        outputs = [part.to_output() for part in parts]
        print_json(outputs[0] if len(outputs) == 1 else [output.payload() for output in outputs])
    elif format is Format.csv:
        print_csv([row for frame in csv for row in frame_rows(frame)], list(csv[0].columns))
    else:
        for i, rows in enumerate(tables):
            if i < len(parts):
                print_out(parts[i].verdict)
            print_table(rows, list(rows[0]))
            for others in filter(None, more[i : i + 1]):
                print_table(others, list(others[0]))
            print_err(below[i : i + 1])
    print_err(dict.fromkeys(f"{f.severity.capitalize()}: {f}" for part in parts for f in getattr(part, "findings", ())))


def _write_page(parts: Sequence[Comparison | Effects | Scores], path: Path | None) -> None:
    if path is not None:
        from vmselect.report.page import write_comparisons

        print_err([f"Page: {write_comparisons(parts, path).resolve().as_uri()}"])


def split_names(text: str, *, option: str) -> list[str]:
    """Return the names in ``text``, which are separated by commas."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise ArgumentError(f"{option} {text!r} contains no name. Give one name, or several names with commas.")
    return parts
