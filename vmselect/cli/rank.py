"""The commands ``rank``, ``next``, ``report`` and ``select``, which rank machines by their profiles and prices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmselect.cli.options import (
    DecideAtOption,
    EpochsOption,
    ProfilesArgument,
    RankingOptions,
    TopOption,
    read_numbers,
    read_weights,
    with_ranking_options,
)
from vmselect.cli.output import (
    Format,
    FormatOption,
    emit,
    frame_rows,
    print_csv,
    print_err,
    print_json,
    print_out,
    print_table,
)

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
"""Number of excluded candidates that ``vmselect next`` prints if it recommends no probe."""
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
    epochs: EpochsOption = None,
    decide_at: DecideAtOption = None,
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

    Examples:

      vmselect rank profiles/ --epochs 50

      vmselect rank profiles/ --epochs 5,10,20 --objective time --deadline-hours 4

      vmselect rank profiles/ -e 50 --market all --interruptions-per-hour 0.05 --checkpoint-minutes 30

      vmselect rank profiles/ -e 50 --machines all --history team/ --max-usd-per-hour 4

      vmselect rank profiles/ -e 50 --gpus 1,2,4,8

      vmselect rank profiles/ -e 50 --objective cost=0.8,co2=0.2 --co2-limit-kg 5

      vmselect rank profiles/ -e 50 --relative-to g4dn.xlarge

      vmselect rank profiles/ -e 50 --against watched/

      vmselect rank profiles/ -e 50 --keep forecasts/

      vmselect rank profiles/ -e 50 --format json > ranking.json
    """
    from vmselect.records import load_profiles

    ranking = options.rank(profiles, **read_epochs(epochs), decide_at=decide_at)
    compared = ranking.relative_to(relative_to) if relative_to and ranking else None
    accuracy = ranking.against(load_profiles(against)) if against and ranking else None
    print_ranking(ranking, top=top, format=format)
    if ranking and ranking.scaling_verdict:
        print_err([ranking.scaling_verdict])
    if compared is not None:
        for who, ratio in compared.head(top).iterrows():
            name = ", ".join(map(str, who)) if isinstance(who, tuple) else who
            ratios = f"{ratio.price_ratio:.3g} times the price, {ratio.speed_up:.3g} times the speed"
            print_err([f"{name}: {ratios} and {ratio.cost_ratio:.3g} times the cost of {relative_to}."])
    if accuracy is not None:
        print_err([*str(accuracy).splitlines(), *(f"Not compared: {one}." for one in accuracy.excluded)])


@with_ranking_options
def next_probe(
    profiles: ProfilesArgument,
    *,
    epochs: EpochsOption = None,
    decide_at: DecideAtOption = None,
    format: FormatOption = Format.table,  # noqa: A002
    options: RankingOptions,
) -> None:
    """Recommend the machine to probe next: the one whose probe improves the choice most per dollar.

    All GPU machines of the catalog are considered, unless --machines lists others. Exit code 1 if no probe is worth
    its cost for this training.

    Examples:

      vmselect next profiles/ --epochs 50

      vmselect next profiles/ --epochs 50 --history team/ --objective time --format json
    """
    from vmselect.ranking.next_probe import explain_no_probe
    from vmselect.ranking.output import NextProbeOutput

    ranking = rank_unprobed(profiles, epochs, decide_at, options)
    probe = ranking.next_probe
    if format is Format.table:
        print_out(probe or explain_no_probe(ranking))
        print_err([ranking.verdict])
        if probe is None:
            reasons = dict.fromkeys(str(one) for one in ranking.excluded)
            print_err(f"Excluded: {reason}." for reason in list(reasons)[:MAX_REASONS])
    else:
        emit([vars(probe)] if probe else [], NextProbeOutput, format=format)
    if probe is None:
        raise typer.Exit(1)


@with_ranking_options
def report(
    profiles: ProfilesArgument,
    *,
    epochs: EpochsOption = None,
    decide_at: DecideAtOption = None,
    output: Annotated[Path, typer.Option("--output", help="HTML file to write.")] = Path("report.html"),
    options: RankingOptions,
) -> None:
    """Write the ranking as one self-contained HTML page, in which objective and limits can be changed.

    The URL of the page is printed to standard output. Exit code 1 if no candidate meets the limits; the page then
    states why.

    Examples:

      vmselect report profiles/ --epochs 5,10,20 --output report.html

      vmselect report profiles/ --epochs 50 --market all --batch-size all
    """
    ranking = options.rank(profiles, **read_epochs(epochs), decide_at=decide_at)
    page = ranking.report(output)
    print_err([ranking.verdict])
    print_out(page.resolve().as_uri())
    if not ranking:
        raise typer.Exit(1)


@with_ranking_options
def select(
    profiles: ProfilesArgument,
    *,
    study: Annotated[
        list[str],
        typer.Option("--study", "-s", help="Convergence study (file or folder); may be repeated.", show_default=False),
    ],
    minimum_metric: Annotated[
        str | None, typer.Option(help="Final metric that a batch size must reach, as in 0.97 or val_loss=0.2.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Also write the report page to this HTML file.")] = None,
    top: TopOption = 20,
    format: FormatOption = Format.table,  # noqa: A002
    options: RankingOptions,
) -> None:
    """Rank pairs of VM type and batch size by the time and cost of training until the model converges.

    The number of epochs of each batch size comes from a convergence study, the time per epoch from the profiles.
    Findings are printed to standard error. Exit code 1 if no pair meets the limits.

    Examples:

      vmselect select profiles/ --study study/

      vmselect select profiles/ --study study/ --minimum-metric val_accuracy=0.97,val_loss=0.2 --objective time

      vmselect select profiles/ -s study/ --batch-size 64,128,256 --report report.html
    """
    from vmselect.convergence import ConvergenceStudy

    required = minimum_metric and read_weights(minimum_metric, option="--minimum-metric", single=float)
    selection = options.rank(profiles, study=ConvergenceStudy.load(study), minimum_metric=required)
    if report is not None:
        print_err([f"Report: {selection.report(report).resolve().as_uri()}"])

    def metric(row: Row) -> dict[str, Any]:
        return {selection.study.monitor: selection.metric(row.batch_size)} if selection.study else {}

    print_ranking(selection, top=top, format=format, more=metric)


def rank_unprobed(profiles: list[str], epochs: str | None, decide_at: int | None, options: RankingOptions) -> Ranking:
    """Rank the probed machines, and all other machines of the catalog unless ``--machines`` lists some of them."""
    options.machines = options.machines or "all"
    return options.rank(profiles, **read_epochs(epochs), decide_at=decide_at)


def read_epochs(epochs: str | None) -> dict[str, Any]:
    """Return the argument ``epochs`` of a ranking as a dict; empty if the option is not given."""
    return {} if epochs is None else {"epochs": read_numbers(epochs, option="--epochs")}


def print_ranking(
    ranking: Ranking,
    *,
    top: int,
    format: Format,  # noqa: A002
    more: Callable[[Row], dict[str, Any]] = lambda _: {},
) -> None:
    """Print ``ranking`` to standard output and its findings to standard error.

    A table has at most ``top`` rows. ``more(row)`` returns columns to add after the epochs.
    """
    from vmselect.ranking.measures import MEASURES
    from vmselect.ranking.output import ranking_output

    names = tuple(more(ranking.best)) if ranking else ()
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
    from vmselect.ranking.text import marks, measure_text
    from vmselect.units import format_chance

    texts: dict[str, Any] = {"batch": row.batch_size, "epochs": round(row.epochs, 1), "score": f"{row.score:.2f}"}
    texts |= {name: measure_text(row, name) for name in row.measures}
    return vars(row) | texts | {"best": format_chance(row.chance), "": marks(row)}


def _remarks(ranking: Ranking, top: int) -> list[str]:
    """Return the lines to print below the table: next probe, crossovers, excluded candidates, findings."""
    from vmselect.ranking.text import describe_findings

    lines = [f"Next: {ranking.next_probe}"] if ranking.next_probe else []
    for name in ranking.settings.measured if len(ranking.settings.epochs) > 1 and ranking else ():
        lines += [f"By {name}: {change}." for change in ranking.crossovers(name)[:5]]
    lines += [f"Excluded: {excluded}." for excluded in ranking.deciding_excluded[:top]]
    if len(ranking.deciding_excluded) > top:
        lines.append(f"Excluded: {len(ranking.deciding_excluded) - top:,} more. List all with --format json.")
    return lines + describe_findings(ranking, ranking.deciding_rows[:top])
