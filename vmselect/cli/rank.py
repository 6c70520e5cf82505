"""The command ``rank``, which ranks machines by profiles and prices."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from vmselect.cli.options import ProfilesArgument, RankingOptions, TopOption, read_weights, with_ranking_options
from vmselect.cli.output import (
    Format,
    FormatOption,
    emit,
    flag,
    frame_rows,
    print_err,
    print_json,
    print_out,
    print_table,
)
from vmselect.cli.ranking_table import MAX_EXCLUDED, VerboseOption, print_ranking
from vmselect.errors import ArgumentError
from vmselect.ranking.options import OPTIONS

if TYPE_CHECKING:
    from vmselect.ranking import Ranking


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
    running: Annotated[
        bool,
        flag("--running", help="PROFILES is the record of a running training: would it pay to move the rest of it?"),
    ] = False,
    html: Annotated[Path | None, typer.Option(help="Also write the ranking as a page to this HTML file.")] = None,
    relative_to: Annotated[
        str | None, typer.Option(help="Also show price, speed and cost relative to this instance type.")
    ] = None,
    relative: Annotated[
        bool, flag("--relative", help="Also show time and cost at each number of epochs, divided by the lowest.")
    ] = False,
    against: Annotated[
        str | None, typer.Option(help="Also compare the estimates with the complete trainings in this folder.")
    ] = None,
    top: TopOption = 10,
    verbose: VerboseOption = False,
    format: FormatOption = Format.table,  # noqa: A002
    options: RankingOptions,
) -> None:
    """Rank the probed machines by the time and cost of the training, with intervals.

    A candidate is a machine with a batch size and a price. The table shows the candidates at the number of epochs that
    determines the ranking; in a terminal, a bar shows the interval of each time. CSV output contains all numbers of
    epochs, JSON output also the findings and excluded candidates. Warnings are named on standard error, and --verbose
    explains them. Exit code 1 if no candidate meets the limits.

    With --study, pairs of machine and batch size are ranked by the training until the model converges. With --next,
    the command names the machine whose probe improves the choice most per dollar; exit code 1 if none is worth its
    cost.

    Examples:

      vmselect rank profiles/ --epochs 50

      vmselect rank profiles/ --epochs 50 --html report.html

      vmselect rank profiles/ --epochs 5,10,20 --relative --objective time --deadline-hours 4

      vmselect rank profiles/ -e 50 --market all --interruptions 0.05 --checkpoint-minutes 30

      vmselect rank profiles/ -e 50 --machines all --history team/ --max-usd-per-hour 4

      vmselect rank profiles/ -e 50 --next

      vmselect rank profiles/ --study study/ --require val_accuracy=0.97,val_loss=0.2

      vmselect rank profiles/ -e 50 --gpus 1,2,4,8

      vmselect rank profiles/ -e 50 --objective cost=0.8,co2=0.2 --co2-limit-kg 5

      vmselect rank profiles/ -e 50 --against watched/

      vmselect rank --running profiles/g5.xlarge-64.json

      vmselect rank profiles/ -e 50 --json > ranking.json
    """
    from vmselect.records import load_profiles

    tables = {"--relative": relative, "--relative-to": relative_to, "--against": against}
    if running:
        _refuse("--running", {"--study": study, "--require": require, "--next": next_probe, **tables})
        _print_moves(profiles, options, html=html, top=top, format=format)
        return
    if next_probe:
        _refuse("--next", tables)
    ranking = make_ranking(profiles, options, study=study, require=require, unprobed=next_probe)
    if html is not None:
        _write_page(ranking, html, [*profiles, *([against] if against else [])])
    if next_probe:
        _print_next_probe(ranking, format)
        return
    compared = ranking.tables.relative_to(relative_to) if relative_to and ranking else None
    accuracy = ranking.against(load_profiles(against)) if against and ranking else None
    print_ranking(ranking, top=top, format=format, verbose=verbose)
    if relative and format is Format.table:
        _print_relative(ranking, top)
    if ranking and ranking.scaling_verdict:
        print_err([ranking.scaling_verdict])
    if compared is not None:
        for key, ratio in compared.head(top).iterrows():
            name = ", ".join(map(str, key)) if isinstance(key, tuple) else key
            ratios = f"{ratio.price_ratio:.3g} times the price, {ratio.speed_up:.3g} times the speed"
            print_err([f"{name}: {ratios} and {ratio.cost_ratio:.3g} times the cost of {relative_to}."])
    if accuracy is not None:
        print_err([*str(accuracy).splitlines(), *(f"Not compared: {exclusion}." for exclusion in accuracy.excluded)])


def _refuse(mode: str, others: Mapping[str, object]) -> None:
    """Raise an error if one of the options ``others`` is given: it would have no effect with the option ``mode``."""
    names = [option for option, value in others.items() if value not in (None, False)]
    if names:
        raise ArgumentError(f"{', '.join(names)} has no effect with {mode}. Remove one of the two.")


def _print_relative(ranking: Ranking, top: int) -> None:
    """Print a table of time and one of cost: a row per candidate, a column per number of epochs, the lowest is 1."""
    for objective in ("time", "cost"):
        table = ranking.relative(objective).head(top)
        print_out("")
        print_out(f"Relative {objective} by number of epochs; the lowest is 1.00.")
        keys = [key if isinstance(key, tuple) else (key,) for key in table.index]
        columns = [str(name) for name in (*table.index.names, *table.columns)]
        values = table.map(lambda ratio: "" if ratio != ratio else f"{ratio:.2f}").to_numpy().tolist()
        rows = [dict(zip(columns, (*key, *ratios), strict=True)) for key, ratios in zip(keys, values, strict=True)]
        print_table(rows, columns)


def _write_page(ranking: Ranking, path: Path, sources: list[str]) -> None:
    """Write the page of ``ranking``, with the watched trainings and forecasts among the records of ``sources``."""
    from vmselect.records import load_records

    print_err([f"Report: {ranking.report(path, records=load_records(*sources)).resolve().as_uri()}"])


def _print_moves(
    profiles: list[str],
    options: RankingOptions,
    *,
    html: Path | None,
    top: int,
    format: Format,  # noqa: A002
) -> None:
    from vmselect.records import load_profiles
    from vmselect.watching.moves import MoveRow, rank_moves

    names = ("model", "fit", "keep", "recalibrate", "ignore_missing")
    other = {f"--{name.replace('_', '-')}": getattr(options, name) for name in names}
    # A running training has its own workload: only what a move adds can be given.
    owned = (option.name for option in OPTIONS if option.owner == "workload" and option.name != "boot_seconds")
    _refuse("--running", {**other, **{f"--{name.replace('_', '-')}": options.values.get(name) for name in owned}})
    records = load_profiles(profiles)
    if len(records) != 1:
        raise ArgumentError(f"--running takes the record of one training, not {len(records)}. Name its file.")
    chosen = options.arguments()
    workload = chosen.pop("workload", None)
    boot = {"boot_seconds": workload.boot_seconds} if workload and workload.boot_seconds is not None else {}
    epochs = chosen.pop("epochs", None)
    left = {"epochs_left": epochs[-1] if isinstance(epochs, tuple | list) else epochs} if epochs else {}
    moves = rank_moves(records[0], **boot, **left, **chosen)
    if html is not None:
        _write_page(moves.ranking, html, profiles)
    if format is Format.table:
        print_out(moves)
        if moves.suggested is not None and find_spec("sky") is not None:
            print_out(yaml.safe_dump(moves.to_task(), sort_keys=False), raw=True)
    shown = moves.to_frame()
    emit(frame_rows(shown.head(top) if format is Format.table else shown), MoveRow, format=format)
    if moves.suggested is None:
        raise typer.Exit(1)


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
            print_err(f"Excluded: {reason}." for reason in list(reasons)[:MAX_EXCLUDED])
    elif format is Format.json:
        print_json(answer_next_probe(ranking))
    else:
        emit([vars(probe)] if probe else [], NextProbeOutput, format=format)
    if probe is None:
        raise typer.Exit(1)
