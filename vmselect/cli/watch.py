"""The command ``vmselect watch``, which runs a training script and watches its time and money until it ends."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

import typer

from vmselect._io import check_place, default_folder
from vmselect.cli.output import flag, is_quiet
from vmselect.cli.probe import run_script
from vmselect.errors import ArgumentError


def watch(
    context: typer.Context,
    script: Annotated[str, typer.Argument(help="Training script, or with -m a module.", show_default=False)],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="ARGS", help="Arguments for the script.")] = None,
    module: Annotated[bool, flag("-m", help="Run SCRIPT as a module, as python -m does.")] = False,
    budget_usd: Annotated[float | None, typer.Option(help="Money that a training may cost.")] = None,
    deadline_hours: Annotated[float | None, typer.Option(help="Hours that a training may take.")] = None,
    usd_per_hour: Annotated[
        float | None,
        typer.Option(help="Price of all machines together.", show_default="that of this machine in the catalog"),
    ] = None,
    on_limit: Annotated[
        Literal["warn", "stop"],
        typer.Option(help="Warn, or end the training after the last epoch that fits into budget and deadline."),
    ] = "warn",
    chance: Annotated[float, typer.Option(help="Probability with which --on-limit stop keeps the limits.")] = 0.9,
    every_seconds: Annotated[float, typer.Option(help="Seconds between two updates.")] = 30.0,
    market: Annotated[
        Literal["on_demand", "spot", "reserved_1y", "reserved_3y"], typer.Option(help="Market of this machine.")
    ] = "on_demand",
    tracker: Annotated[
        Literal["tensorboard", "mlflow", "wandb"] | None,
        typer.Option(help="Experiment tracker that receives time, money and probabilities as scalars."),
    ] = None,
    study: Annotated[
        str | None, typer.Option(help="Folder of a convergence study of the same work, if the training stops early.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Number of epochs, if the training does not state it, as in a plain loop.")
    ] = None,
    path: Annotated[
        str | None,
        typer.Option(
            help="Folder, URL of a folder, or .json file for the record.",
            show_default="$VMSELECT_FOLDER, else profiles",
        ),
    ] = None,
    sample: Annotated[float, typer.Option(help="Seconds between samples of machine usage; 0 for no samples.")] = 1.0,
    alarm: Annotated[
        str | None, typer.Option(help="Command to run when CPU utilization stays high (message in $VMSELECT_ALARM).")
    ] = None,
    alarm_cpu: Annotated[float, typer.Option(help="CPU utilization (0 to 1) above which --alarm runs.")] = 0.9,
    alarm_when: Annotated[
        str | None, typer.Option(help="Condition for --alarm instead of CPU utilization, as in 'gpu*_busy_share<0.2'.")
    ] = None,
    alarm_seconds: Annotated[
        float, typer.Option(help="Seconds for which the condition must hold before --alarm runs.")
    ] = 10.0,
    batch_size: Annotated[int | None, typer.Option(help="Batch size, if it cannot be detected.")] = None,
    instance_type: Annotated[
        str | None, typer.Option(help="Instance type of this machine, if it cannot be detected.")
    ] = None,
    region: Annotated[str | None, typer.Option(help="Region of this machine, if it cannot be detected.")] = None,
    as_json: Annotated[bool, flag("--json", help="Print what was measured as JSON, in the last line.")] = False,
) -> None:
    """Run a training SCRIPT unchanged to its end, and show remaining time, money so far and final cost.

    Every training of the script is watched, and losses are the same to the last bit. The display is one line that is
    updated in a terminal, and a line every few minutes in a log. With --on-limit stop, a training with Keras, Lightning
    or the Hugging Face Trainer ends after the last epoch that fits; a plain torch loop cannot be ended, so you are
    warned. The record of the whole training is the outcome of earlier forecasts for vmselect score. Give options of
    vmselect before the name of the script.

    Examples:

      vmselect watch train.py

      vmselect watch --budget-usd 20 --on-limit stop train.py --epochs 50

      vmselect watch --usd-per-hour 1.2 --deadline-hours 8 train.py

      vmselect watch --alarm "notify-send vmselect" --alarm-cpu 0.95 train.py
    """
    from vmselect.convergence import ConvergenceStudy
    from vmselect.probe.sampling import Alarm
    from vmselect.probe.script import Choice
    from vmselect.watching.callbacks import Watch

    when = _read_condition(alarm_when) if alarm_when is not None else {}
    if when and alarm is None:
        raise ArgumentError("--alarm-when has no command to run. Add --alarm with a command.")
    notice = Alarm(alarm, cpu=alarm_cpu, seconds=alarm_seconds, **when) if alarm is not None else None
    target = default_folder() if path is None else check_place("--path", path)
    options: dict[str, Any] = {
        "sample": sample or None, "alarm": notice, "batch_size": batch_size, "instance_type": instance_type,
        "region": region, "verbose": int(not is_quiet()),
    }  # fmt: skip
    account = Watch(
        budget_usd=budget_usd, deadline_hours=deadline_hours, usd_per_hour=usd_per_hour, on_limit=on_limit,
        chance=chance, every_seconds=every_seconds, market=market, tracker=tracker,
        epochs=epochs, study=None if study is None else ConvergenceStudy.load(study), path=target, **options,
    )  # fmt: skip
    choice = Choice(watch=True, on_start=account.open_account)
    run_script(
        context, script, arguments or (), target, choice, module=module, as_json=as_json, at_save=None, **options
    )


def _read_condition(text: str) -> dict[str, Any]:
    """Return the arguments ``quantity`` and ``above`` or ``below`` of an alarm for a text such as ``cpu_share>0.9``."""
    condition = re.fullmatch(r"\s*([\w*]+)\s*([<>])\s*(\S+)\s*", text)
    try:
        quantity, sign, number = condition.groups() if condition else ("", "", "")
        return {"quantity": quantity, "above" if sign == ">" else "below": float(number)}
    except ValueError:
        message = f"--alarm-when {text!r} is invalid. Write quantity>number or quantity<number, as in cpu_share>0.9."
        raise ArgumentError(message) from None
