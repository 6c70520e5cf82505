"""The command ``vmselect export``, which writes estimates, rankings and scores to an experiment tracker."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import Annotated

import typer

from vmselect.cli.options import ProfilesArgument, RankingOptions, with_ranking_options
from vmselect.cli.output import JsonOption, print_err, print_written
from vmselect.errors import ArgumentError


class Tracker(enum.StrEnum):
    """Experiment trackers to which results can be exported."""

    tensorboard = "tensorboard"
    mlflow = "mlflow"
    wandb = "wandb"


class Result(enum.StrEnum):
    """Kinds of results that can be exported."""

    ranking = "ranking"
    estimates = "estimates"
    score = "score"


@with_ranking_options
def export(
    profiles: ProfilesArgument,
    to: Annotated[Tracker, typer.Option(help="Experiment tracker to export to.", show_default=False)],
    result: Annotated[
        Result, typer.Option(help="Results to export: the ranking, an estimate per machine, or the score of forecasts.")
    ] = Result.ranking,
    folder: Annotated[
        Path | None, typer.Option(help="Folder for the tracker's files.", show_default="runs, mlruns or wandb")
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the run in the tracker.")] = None,
    as_json: JsonOption = False,
    *,
    options: RankingOptions,
) -> None:
    """Write a ranking, estimates or a score to TensorBoard, MLflow or Weights & Biases, as local files.

    Nothing is sent to a server; Weights & Biases runs in offline mode. The folder is printed to standard output.

    Examples:

      vmselect export profiles/ --to tensorboard --epochs 50

      vmselect export records/ --to mlflow --result score --folder mlruns
    """
    from vmselect.estimation import estimate
    from vmselect.records import load_profiles, load_records
    from vmselect.records.identity import group_repetitions
    from vmselect.scoring.score import score
    from vmselect.trackers import FOLDERS, export

    target = folder or Path(FOLDERS[to])
    counts = options.values["epochs"]
    if result is Result.score:
        export(score(load_records(profiles)), to=to, folder=target, name=name)
    elif result is Result.estimates:
        if counts is None:
            raise ArgumentError("--result estimates requires the number of epochs. Add --epochs.")
        for group in group_repetitions(load_profiles(profiles)).values():
            estimated = estimate(group, epochs=counts[-1])
            print_err([estimated])
            export(estimated, to=to, folder=target, name=name)
    else:
        ranking = options.rank(profiles)
        print_err([ranking.verdict])
        export(ranking, to=to, folder=target, name=name)
    print_written([target], as_json=as_json)
