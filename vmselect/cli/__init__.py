"""The command ``vmselect`` and its subcommands."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Annotated

import typer
from typer.core import TyperGroup

from vmselect import __version__
from vmselect.cli import history, prices, score, serve, sweep
from vmselect.cli.check import check
from vmselect.cli.compare import compare
from vmselect.cli.demo import demo
from vmselect.cli.describe import describe
from vmselect.cli.estimate import estimate
from vmselect.cli.export import export
from vmselect.cli.mcp import mcp
from vmselect.cli.output import QuietOption, add_common_options, flag, print_err, set_quiet, write_options
from vmselect.cli.probe import CONTEXT, probe
from vmselect.cli.rank import rank
from vmselect.cli.recommend import recommend
from vmselect.cli.schema import schema
from vmselect.cli.watch import watch
from vmselect.errors import VmselectError
from vmselect.probe.script import Interrupted

ORDER = (
    "recommend", "describe", "probe", "watch", "rank", "estimate", "check", "compare", "score", "prices", "sweep",
    "history", "serve", "export", "mcp", "schema", "demo",
)  # fmt: skip
"""The commands in the order of the help text: in the order in which they are used."""


STOPPED = "vmselect: stopped by Ctrl-C."


class _Commands(TyperGroup):
    """The commands of vmselect, listed in :data:`ORDER`."""

    def list_commands(self, ctx: object) -> list[str]:
        """Names of all commands."""
        return sorted(self.commands, key=ORDER.index)


app = typer.Typer(
    name="vmselect",
    cls=_Commands,
    help="Find out which cloud VM to rent to train a model, how long the training takes there, and what it costs.\n\n"
    "On a computer without a GPU, rank the machines of all clouds: vmselect recommend train.py\n\n"
    "On a machine with a GPU, measure the training for a few seconds: vmselect probe train.py\n\n"
    "Then rank again, anywhere, with what was measured: vmselect recommend --epochs 50\n\n"
    "Findings show options as arguments of the Python library: batch_size= means the option --batch-size.\n\n"
    "Every command prints JSON with --json; vmselect schema describes it.\n\n"
    "Exit codes: 0 success, 1 a warning was found or no machine meets the limits, 2 error, 130 Ctrl-C.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(demo)
app.command(context_settings=CONTEXT)(describe)
app.command(context_settings=CONTEXT)(probe)
app.command(context_settings=CONTEXT)(watch)
app.command(context_settings=CONTEXT)(recommend)
app.command()(check)
app.command()(estimate)
app.command()(rank)
app.command()(compare)
app.command()(export)
app.command()(mcp)
app.command()(schema)
app.add_typer(score.app, name="score")
app.add_typer(prices.app, name="prices")
app.add_typer(sweep.app, name="sweep")
app.add_typer(serve.app, name="serve")
app.add_typer(history.app, name="history")
add_common_options(app)


def main() -> None:
    """Run the command line.

    An error of vmselect or of a file is printed as a message, and the exit code is 2. After Ctrl-C, it is 130.
    """
    try:
        app()
    except SystemExit as end:
        # Typer exits silently.
        if isinstance(getattr(end.__context__, "__cause__", None), KeyboardInterrupt):
            print_err([STOPPED], always=True)
        raise
    except KeyboardInterrupt:
        print_err([STOPPED], always=True)
        sys.exit(130)
    except (VmselectError, OSError) as error:
        print_err(f"vmselect: {_name_options(str(error), sys.argv[1:])}".splitlines(), always=True)
        sys.exit(2)
    except Interrupted as interrupted:
        # Exit by the signal, as any Python script does on Ctrl-C, so that a loop in a shell stops too. The traceback of
        # the script has been printed.
        if interrupted.note is not None:
            print_err([f"{STOPPED}{interrupted.note}"], always=True)
        sys.excepthook = lambda *_: None
        raise KeyboardInterrupt from None


def _name_options(message: str, words: Sequence[str]) -> str:
    """``message`` with options of the command in ``words`` instead of arguments: ``--model`` instead of ``model=``."""
    command = typer.main.get_command(app)
    for word in words:
        if word in (commands := getattr(command, "commands", {})):
            command = commands[word]
    options = {name for option in command.params for name in option.opts}

    def replace(match: re.Match[str]) -> str:
        option = f"--{match[1].replace('_', '-')}"
        return option if option in options else match[0]

    # An argument without a value, such as "Pass epochs=."
    return re.sub(r"(?<![\w.-])([a-z][a-z0-9_]*)=(?=[,;.)]?(?:\s|$))", replace, write_options(message))


def _print_version(is_set: bool) -> None:
    if is_set:
        typer.echo(f"vmselect {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    context: typer.Context,
    version: Annotated[
        bool, flag("--version", help="Print the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Before any command, handle the options of ``vmselect`` itself."""
    set_quiet(quiet)
    context.call_on_close(lambda: set_quiet(False))
