"""The command ``vmselect recommend``: from a training script on a laptop to the machine to rent."""

from __future__ import annotations

import functools
import itertools
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from vmselect._checks import maybe
from vmselect._io import check_place, default_folder
from vmselect.cli.describe import PRECISION_HELP
from vmselect.cli.options import RankingOptions, TopOption, check_script, note_misplaced, with_ranking_options
from vmselect.cli.output import Format, FormatOption, flag, is_quiet, print_err
from vmselect.cli.ranking_table import VerboseOption, print_ranking, probe_line
from vmselect.errors import ArgumentError
from vmselect.records.training import check_precision
from vmselect.units import format_count, list_some

if TYPE_CHECKING:
    from vmselect._io import Place
    from vmselect.ranking import Ranking
    from vmselect.records import Profile

INTERRUPTED = (130, -signal.SIGINT)
"""Codes of a process that was ended by Ctrl-C: by its exit code, or by the signal itself."""
OWN_SECONDS, END_SECONDS = 3.0, 30.0
"""Seconds after Ctrl-C until it is passed on to the process of the script, which ignores a second one, and from then on
until this process is killed. To end its processes and remove its files takes it seconds on a busy computer."""


@with_ranking_options
def recommend(
    context: typer.Context,
    script: Annotated[
        str | None,
        typer.Argument(help="Training script, or with -m a module.", show_default="the records in --path"),
    ] = None,
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Arguments for the script.")] = None,
    *,
    module: Annotated[bool, flag("-m", help="Run SCRIPT as a module, as python -m does.")] = False,
    path: Annotated[
        str | None,
        typer.Option(help="Folder of the records.", show_default="$VMSELECT_FOLDER, else profiles"),
    ] = None,
    precision: Annotated[str | None, typer.Option(help=PRECISION_HELP)] = None,
    html: Annotated[Path | None, typer.Option(help="Also write the ranking as a page to this HTML file.")] = None,
    top: TopOption = 10,
    verbose: VerboseOption = False,
    format: FormatOption = Format.table,  # noqa: A002
    options: RankingOptions,
) -> None:
    """Recommend the machine to rent for a training SCRIPT, without a GPU and without an account.

    The script runs unchanged on this computer up to its first training, which is described and not trained: seconds, no
    file of yours is changed. Every machine of the catalog is ranked by the predicted time and cost. Then one line says
    whether the batch fits into GPU memory, and one names the first probe worth its price, with commands that run
    it. After a probe, run the command again: records of the same training in --path sharpen the answer, also without
    SCRIPT. Give options of vmselect before the name of the script; --epochs after it is passed to the script, and is
    also the number to rank. Exit code 1 if no machine meets the limits.

    Examples:

      vmselect recommend --epochs 50 train.py

      vmselect recommend --epochs 50 --region eu --deadline-hours 8 train.py --data images/

      vmselect recommend --epochs 50 --html report.html
    """
    from vmselect.estimation import Workload
    from vmselect.ranking.next_probe import UNKNOWN_SCRIPT
    from vmselect.recommendation import (
        explain_memory,
        is_same_training,
        load_own,
        newest_description,
        rank_training,
    )
    from vmselect.report import write_page

    target = default_folder() if path is None else check_place("--path", path)
    chosen = {"machines": "all"} | options.arguments()
    options.check_names(chosen)  # the script may take minutes up to its first training
    if script is None and precision is not None:
        raise ArgumentError("--precision is of a script that is described, and there is no script. Name the script.")
    maybe(check_precision, "--precision", precision)
    if script is not None:
        check_script("recommend", script, module=module)
        note_misplaced(context, script, arguments or [])
        if options.chooses:
            raise ArgumentError(
                "--model and --fit choose among the records of a folder, but a script determines the training that is "
                "ranked. Omit the script, or these options."
            )
        _describe(script, arguments or [], target, precision, module=module)
    records = load_own(str(target)) if Path(str(target)).exists() else []
    if options.chooses:
        records = options.choose(records)
    described = newest_description(records)
    if script is None:
        print_err([_name_training(described, records)])
    same = [profile for profile in records if is_same_training(described, profile)]
    print_err(_name_left_out(described, records))
    if "epochs" not in chosen:
        chosen.update(_choose_epochs([described, *same], arguments or []))
    workload = chosen.get("workload") or Workload()
    if (workload.steps_per_epoch or workload.examples or Workload.of(described).steps_per_epoch) is None:
        raise ArgumentError(
            "The training does not state its length, as with a loop that ends by a condition, or data of unknown size. "
            "Pass --examples N, or --steps-per-epoch N: the number of batches, also of those whose gradients are "
            "accumulated."
        )
    ranking = options.rank_by(functools.partial(rank_training, described, records), chosen)
    options.keep_forecasts(ranking)
    words = [*(["-m"] * module), script or UNKNOWN_SCRIPT, *(arguments or [])]
    if html is not None:
        page = write_page(ranking, html, program=shlex.join(words))
        print_err([f"Report: {page.resolve().as_uri()}"])
    steps = [explain_memory(ranking, described), *_next_steps(ranking, words)]
    print_ranking(ranking, top=top, format=format, verbose=verbose, next_steps=steps)


def _name_training(described: Profile, records: Sequence[Profile]) -> str:
    """A line that names the training that is ranked, and says so if ``records`` describe others."""
    line = f"Training: {described.model or 'unnamed'}, batch {described.batch_size}"
    others = {profile.model for profile in records if profile.work is not None} - {described.model}
    if not others:
        return f"{line}."
    names = ", ".join(sorted(name or "unnamed" for name in others))
    return f"{line}, the newest description; --model chooses another ({names})."


def _name_left_out(described: Profile, records: Sequence[Profile]) -> list[str]:
    """A line on measurements of the same model at another batch size; an empty list if there is none."""
    structure = described.setup.structure
    sizes = [
        profile.batch_size
        for profile in records
        if structure and profile.setup.structure == structure and profile.outcome != "described"
        and profile.batch_size != described.batch_size
    ]  # fmt: skip
    if not sizes:
        return []
    counted = f"{format_count(len(sizes), 'record')} of this model"
    listed = list_some([*sorted(filter(None, set(sizes))), *(["unknown"] if None in sizes else [])], 5)
    return [f"{counted} not used: batch size {listed}, not {described.batch_size}."]


def _describe(script: str, arguments: list[str], target: Place, precision: str | None, *, module: bool) -> None:
    """Run ``script`` up to its first training, and write its description to ``target``.

    The script runs in a process of its own, so that what it imports and changes does not meet the ranking.
    """
    command = [sys.executable, "-m", "vmselect", "describe", "--path", str(target), "--brief"]
    command += ["--quiet"] * is_quiet() + ["-m"] * module + (["--precision", precision] if precision else [])
    print_err([f"Running {script} up to its first training ..."])
    # TensorFlow reports its instruction sets and oneDNN on standard error, which has nothing to do with the answer; no
    # step is computed that would need them.
    environment = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"} | os.environ
    child = subprocess.Popen([*command, script, *arguments], stdout=sys.stderr, env=environment)
    stopped = False
    try:
        child.wait()
    except KeyboardInterrupt:
        stopped = True
        _end(child)
    if stopped or child.returncode in INTERRUPTED:
        raise KeyboardInterrupt
    print_err([""])
    if child.returncode:
        raise ArgumentError(
            f"{script} could not be described (exit code {child.returncode}, see above). Mend that, describe the model "
            "in Python with vmselect.recommend(model, ...), or measure the script with vmselect probe on a machine "
            "with a GPU."
        )


def _choose_epochs(profiles: Sequence[Profile], arguments: Sequence[str]) -> dict[str, int]:
    """The number of epochs to rank, if it is not that of the ``profiles``: that in the arguments of the script, or one.

    A script may ignore its arguments, or begin with a training of fewer epochs, and the user has stated the number.
    """
    stated = {profile.setup.epochs for profile in profiles} - {None}
    asked = _read_epochs(arguments)
    if stated and asked and asked not in stated:
        have = format_count(max(filter(None, stated)), "epoch")
        print_err([f"The training has {have}, but its script was given --epochs {asked}: this is for {asked}."])
    if asked:
        return {"epochs": asked}
    if stated:
        return {}
    print_err(["The training does not state its number of epochs: this is for one epoch. Pass --epochs N for all."])
    return {"epochs": 1}


def _read_epochs(arguments: Sequence[str]) -> int:
    """The number of epochs in the ``arguments`` of a script; 0 without one. Of several, the last one counts there, too.

    >>> _read_epochs(["--note", "a --epochs 5 b", "--epochs", "3", "--epochs=9"])
    9
    """
    last = ""
    for word, following in itertools.pairwise([*arguments, ""]):
        name, separator, text = word.partition("=")
        if name == "--epochs":
            last = text if separator else following
    return int(last) if re.fullmatch(r"[0-9]{1,6}", last) else 0


def _end(child: subprocess.Popen[bytes]) -> None:
    """Wait until ``child`` has removed its files and ended its processes after Ctrl-C, which a terminal sends to both.

    If only this process got the signal, it is passed on. A second Ctrl-C kills ``child``.
    """
    try:
        with suppress(subprocess.TimeoutExpired):
            child.wait(OWN_SECONDS)
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
        child.wait(END_SECONDS)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        child.kill()
        child.wait()


def _next_steps(ranking: Ranking, words: list[str]) -> list[str]:
    """Lines with the commands of the next step, which can be copied, with the ``words`` that name the script."""
    from vmselect.recommendation import probe_commands

    if not ranking:
        return []
    program = shlex.join(words)
    if ranking.next_probe is None:
        check = f"vmselect probe --instance-type {shlex.quote(ranking.best.instance_type)} {program}"
        return ["Next:  rent it and train; no probe is recommended.", f"Check: {check}  # the time on that machine"]
    _, *others = probe_commands(ranking.next_probe, words)
    lines = [probe_line(ranking, program), *(f"Or:    {command}" for command in others)]
    return [*lines, "Then:  vmselect recommend  # here, with the new record in the folder of the records"]
