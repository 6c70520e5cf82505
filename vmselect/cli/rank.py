"""The commands ``rank``, which ranks machines by profiles and prices, and ``demo``, which ranks example records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmselect.cli.options import ProfilesArgument, RankingOptions, TopOption, read_weights, with_ranking_options
from vmselect.cli.output import (
    Format,
    FormatOption,
    emit,
    flag,
    frame_rows,
    print_csv,
    print_err,
    print_json,
    print_out,
    print_table,
)
from vmselect.errors import ArgumentError

if TYPE_CHECKING:
    from vmselect.ranking import Ranking, Row

TABLE = (
    "rank",
    "instance_type",
    "provider",
    "region",
    "market",
    "batch",
    "epochs",
    "time",
    "cost",
    "score",
    "best",
    "",
)
MAX_REASONS = 3
"""Number of excluded candidates that ``vmselect rank --next`` prints if it recommends no probe."""
SPARE = ("provider", "region", "market", "batch", "epochs")
COLUMNS = (
    "rank", "instance_type", "provider", "service", "region", "market", "batch_size", "epochs",
    "seconds", "seconds_low", "seconds_high", "usd_per_hour", "price_date", "cost_usd", "cost_low", "cost_high",
    "score", "chance", "tied_with_best", "pareto", "gpu_model", "gpu_count", "vcpus", "memory_gib", "method",
)  # fmt: skip


@with_ranking_options
def rank(
    profiles: ProfilesArgument,
    *,
    study: Annotated[
        list[str] | None,
        typer.Option("--study", "-s", help="Convergence study (file or folder) with the epochs; may be repeated."),
    ] = None,
    require: Annotated[
        str | None, typer.Option(help="With --study: final metric to reach, as in 0.97 or val_loss=0.2.")
    ] = None,
    next_probe: Annotated[
        bool, flag("--next", help="Recommend the machine to probe next instead, of all machines or --machines.")
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Also write the ranking as a page to this HTML file.")] = None,
    relative_to: Annotated[
        str | None, typer.Option(help="Also show price, speed and cost relative to this instance type.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Also compare the estimates with the complete trainings in this folder.")
    ] = None,
    top: TopOption = 20,
    format: FormatOption = Format.table,  # noqa: A002
    options: RankingOptions,
) -> None:
    """Rank the probed machines by the time and cost of the training, with intervals.

    A candidate is a machine with a batch size and a price. The table shows the candidates at the number of epochs that
    determines the ranking. CSV output contains all numbers of epochs, JSON output also the findings and excluded
    candidates. Findings are printed to standard error. Exit code 1 if no candidate meets the limits.

    With --study, pairs of machine and batch size are ranked by the training until the model converges. With --next,
    the command names the machine whose probe improves the choice most per dollar; exit code 1 if none is worth its
    cost.

    Examples:

      vmselect rank profiles/ --epochs 50

      vmselect rank profiles/ --epochs 50 --html report.html

      vmselect rank profiles/ --epochs 5,10,20 --objective time --deadline-hours 4

      vmselect rank profiles/ -e 50 --market all --interruptions 0.05 --checkpoint-minutes 30

      vmselect rank profiles/ -e 50 --machines all --history team/ --max-usd-per-hour 4

      vmselect rank profiles/ -e 50 --next

      vmselect rank profiles/ --study study/ --require val_accuracy=0.97,val_loss=0.2

      vmselect rank profiles/ -e 50 --gpus 1,2,4,8

      vmselect rank profiles/ -e 50 --objective cost=0.8,co2=0.2 --co2-limit-kg 5

      vmselect rank profiles/ -e 50 --against watched/

      vmselect rank profiles/ -e 50 --json > ranking.json
    """
    from vmselect.records import load_profiles

    ranking = make_ranking(profiles, options, study=study, require=require, unprobed=next_probe)
    if html is not None:
        print_err([f"Report: {ranking.report(html).resolve().as_uri()}"])
    if next_probe:
        _print_next_probe(ranking, format)
        return
    compared = ranking.tables.relative_to(relative_to) if relative_to and ranking else None
    accuracy = ranking.against(load_profiles(against)) if against and ranking else None
    print_ranking(ranking, top=top, format=format)
    if ranking and ranking.scaling_verdict:
        print_err([ranking.scaling_verdict])
    if compared is not None:
        for key, ratio in compared.head(top).iterrows():
            name = ", ".join(map(str, key)) if isinstance(key, tuple) else key
            ratios = f"{ratio.price_ratio:.3g} times the price, {ratio.speed_up:.3g} times the speed"
            print_err([f"{name}: {ratios} and {ratio.cost_ratio:.3g} times the cost of {relative_to}."])
    if accuracy is not None:
        print_err([*str(accuracy).splitlines(), *(f"Not compared: {exclusion}." for exclusion in accuracy.excluded)])


def make_ranking(
    profiles: list[str],
    options: RankingOptions,
    *,
    study: list[str] | None = None,
    require: str | None = None,
    unprobed: bool = False,
) -> Ranking:
    """Rank the machines of ``profiles``, with the epochs of a ``study`` if there is one.

    With ``unprobed``, all machines of the catalog are added, unless ``--machines`` lists some of them.
    """
    from vmselect.convergence import ConvergenceStudy

    more: dict[str, Any] = {"machines": options.values.get("machines") or "all"} if unprobed else {}
    if study:
        if options.values.get("epochs"):
            raise ArgumentError("--study and --epochs both give the number of epochs. Pass only one of them.")
        runs = ConvergenceStudy.load(study)
        more["epochs"] = runs.require(read_weights(require, option="--require", single=float)) if require else runs
    elif require:
        raise ArgumentError("--require states a metric that a study has to reach. Pass --study too.")
    return options.rank(profiles, **more)


def _print_next_probe(ranking: Ranking, format: Format) -> None:  # noqa: A002
    from vmselect.ranking.next_probe import explain_no_probe
    from vmselect.ranking.output import NextProbeOutput, answer_next_probe

    probe = ranking.next_probe
    if format is Format.table:
        print_out(probe or explain_no_probe(ranking))
        print_err([ranking.verdict])
        if probe is None:
            reasons = dict.fromkeys(map(str, ranking.excluded))
            print_err(f"Excluded: {reason}." for reason in list(reasons)[:MAX_REASONS])
    elif format is Format.json:
        print_json(answer_next_probe(ranking))
    else:
        emit([vars(probe)] if probe else [], NextProbeOutput, format=format)
    if probe is None:
        raise typer.Exit(1)


def print_ranking(
    ranking: Ranking,
    *,
    top: int,
    format: Format,  # noqa: A002
) -> None:
    """Print ``ranking`` to standard output and its findings to standard error.

    A table has at most ``top`` rows. With a study, its final metric is a column after the epochs.
    """
    from vmselect.ranking.measures import MEASURES
    from vmselect.ranking.output import ranking_output

    names = (ranking.study.monitor,) if ranking.study else ()

    def more(row: Row) -> dict[str, Any]:
        return {name: ranking.studied.metric(row.batch_size) for name in names} if ranking.studied else {}

    if format is Format.json:
        print_json(ranking_output(ranking))
    elif format is Format.csv:
        frame = ranking.to_frame()  # also has the columns of all measures
        measured = [MEASURES[name] for name in ranking.settings.measured]
        others = [name for measure in measured for name in measure.fields if name not in COLUMNS]
        rows = [line | more(row) for line, row in zip(frame_rows(frame), ranking, strict=True)]
        print_csv(rows, (*COLUMNS, *others, *names))
    else:
        print_out(ranking.verdict)
    if format is Format.table and ranking:
        best = ranking.deciding_rows[:top]
        at = TABLE.index("epochs") + 1
        shown = [_shown(row) | more(row) for row in best]
        others = [name for name in ranking.settings.measured if name not in TABLE]
        print_table(shown, (*TABLE[:at], *names, *TABLE[at:-3], *others, *TABLE[-3:]), spare=SPARE)
    print_err(_remarks(ranking, top) if format is Format.table else ranking.findings)
    if not ranking:
        raise typer.Exit(1)


def _shown(row: Row) -> dict[str, Any]:
    from vmselect.ranking.views import marks, measure_text
    from vmselect.units import format_chance

    texts: dict[str, Any] = {"batch": row.batch_size, "epochs": round(row.epochs, 1), "score": f"{row.score:.2f}"}
    texts |= {name: measure_text(row, name) for name in row.measures}
    return vars(row) | texts | {"best": format_chance(row.chance), "": marks(row)}


def _remarks(ranking: Ranking, top: int) -> list[str]:
    """Return the lines to print below the table: next probe, crossovers, excluded candidates, findings."""
    from vmselect.ranking.views import describe_findings

    lines = [f"Next: {ranking.next_probe}"] if ranking.next_probe else []
    for name in ranking.settings.measured if len(ranking.settings.epochs) > 1 and ranking else ():
        lines += [f"By {name}: {change}." for change in ranking.crossovers(name)[:5]]
    lines += [f"Excluded: {excluded}." for excluded in ranking.deciding_excluded[:top]]
    if len(ranking.deciding_excluded) > top:
        lines.append(f"Excluded: {len(ranking.deciding_excluded) - top:,} more. List all with --json.")
    return lines + describe_findings(ranking, ranking.deciding_rows[:top])


EXAMPLE_RECORDS = Path(__file__).parents[1] / "example_records"
"""Folder of the example records: published training times of six GPU machines, one profile each."""
PRICE_DATE = "2021-02-28"
DEADLINE_HOURS = 0.5


def demo(
    out: Annotated[Path, typer.Option("--out", help="HTML file for the report page.")] = Path("demo.html"),
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Rank six GPU machines by example records that ship with vmselect, and write the report page.

    The times were published: ResNet-50 on CIFAR-10 at batch size 512, means of three runs (Malta, 2021, Table 4.2).
    The prices are those of February 2021, and the deadline is half an hour. Nothing is measured, rented or downloaded.
    The URL of the page is printed to standard error.

    Examples:

      vmselect demo

      vmselect demo --out page.html --json
    """
    ranking = rank_example()
    page = ranking.report(out)
    print_ranking(ranking, top=len(ranking), format=format)
    print_err([f"Report: {page.resolve().as_uri()}"])


def rank_example() -> Ranking:
    """Rank the machines of the example records at the prices of 2021, with a finding that this is an example."""
    from vmselect.catalog import Catalog
    from vmselect.findings import Finding
    from vmselect.ranking import rank
    from vmselect.records import load_profiles

    example = Finding(
        "example",
        "This is an example: published times of ResNet-50 on CIFAR-10 (Malta, 2021, Table 4.2) at prices of February "
        "2021.",
        "To rank machines for your own training, start with: vmselect probe train.py",
        "info",
    )
    catalog = Catalog.embedded(date=PRICE_DATE)
    ranking = rank(load_profiles(EXAMPLE_RECORDS), catalog=catalog, deadline_hours=DEADLINE_HOURS)
    return ranking.with_findings([example], example=True)
