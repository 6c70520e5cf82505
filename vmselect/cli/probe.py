"""``vmselect probe``: run the user's own script, unchanged, with a probe in every ``fit`` it calls."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from vmselect.cli.output import say
from vmselect.errors import ArgumentError

MODEL_MODULE = "keras.src.models.model"
"""Where Keras defines the class whose ``fit`` every model calls."""

CONTEXT = {"allow_interspersed_args": False, "ignore_unknown_options": True}
"""Everything after the script's name belongs to the script."""


class Interrupted(BaseException):
    """Ctrl-C in the script, by a name of our own: typer would make an exit code of a KeyboardInterrupt."""


def probe(
    script: Annotated[Path, typer.Argument(help="Your training script.", show_default=False)],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="[ARGS]...", help="Handed to the script as they are.")
    ] = None,
    path: Annotated[Path, typer.Option(help="Folder or .json file for the profile.")] = Path("profiles"),
    steps: Annotated[int, typer.Option(help="Steady steps to measure in each of two epochs.")] = 20,
    validations: Annotated[int, typer.Option(help="Validations to measure: 0, 1 or 2.")] = 2,
    validation_steps: Annotated[int | None, typer.Option(help="Cut later validations to so many batches.")] = None,
    seconds: Annotated[float | None, typer.Option(help="Stop after so many seconds at the latest.")] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Measure the whole training instead of stopping it.")] = False,
    batch_size: Annotated[int | None, typer.Option(help="If the probe cannot learn it from the data.")] = None,
    instance_type: Annotated[str | None, typer.Option(help="If the machine cannot tell.")] = None,
    region: Annotated[str | None, typer.Option(help="If the machine cannot tell.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="Print nothing of our own.")] = False,
) -> None:
    """Run SCRIPT with an IterationProbe added to every Keras fit it calls.

    The script is not changed and does not need to know vmselect. Our options stand before its name; everything after
    it is the script's own. Each fit stops after a few seconds of measuring, unless --watch is given. The exit code is
    the script's; where that is 0 and no fit was measured, it is 1.

    Examples:

      vmselect probe train.py --batch-size 64

      vmselect probe --path profiles/ --instance-type g4dn.xlarge train.py --data /mnt/images

      vmselect probe --watch --path truth.json train.py
    """
    import vmselect

    if not script.is_file():
        raise ArgumentError(f"{script} is not a file; give the path of a Python script.")

    probes: list[Any] = []

    def new_probe() -> Any:
        made = vmselect.IterationProbe(
            path, steps=steps, validations=validations, validation_steps=validation_steps, seconds=seconds,
            stop=not watch, batch_size=batch_size, instance_type=instance_type, region=region, verbose=int(not quiet),
        )  # fmt: skip
        probes.append(made)
        return made

    new_probe()  # wrong options should fail now, not after the script has loaded its data
    probes.clear()
    add_to_every_fit(new_probe)
    try:
        run_script(script, arguments or (), before=vmselect.mark_start)
    except SystemExit as ended:
        if ended.code not in (None, 0):
            raise
    measured = sum(one.profile is not None for one in probes)
    if measured > 1 and path.suffix == ".json":
        say([f"vmselect: {measured} fits wrote to {path}, which now holds the last. Give a folder to keep them all."])
    if not measured:
        say(["vmselect: no Keras fit was measured. For a training loop of your own, see vmselect.probe_loop."])
        raise typer.Exit(1)


def add_to_every_fit(new_probe: Callable[[], Any]) -> None:
    """Have every ``keras.Model.fit`` of this process carry a new probe, whenever Keras comes to be imported.

    Keras is not imported here: the script may still want to choose its backend.
    """

    def wrap(module: Any) -> None:
        module.Model.fit = _probed(module.Model.fit, new_probe)

    if MODEL_MODULE in sys.modules:
        wrap(sys.modules[MODEL_MODULE])
    else:
        sys.meta_path.insert(0, _AfterImport(MODEL_MODULE, wrap))


def run_script(script: Path, arguments: Sequence[str], *, before: Callable[[], None] = lambda: None) -> None:
    """Run a script as ``python script arguments`` would, in this process."""
    sys.argv = [str(script), *arguments]
    sys.path[0] = str(script.resolve().parent)
    before()
    try:
        runpy.run_path(str(script), run_name="__main__")
    except (Exception, KeyboardInterrupt) as wrong:  # noqa: BLE001  # any error ends the script as it would have alone
        inside = wrong.__traceback__
        while inside and inside.tb_frame.f_code.co_filename != str(script):
            inside = inside.tb_next
        sys.excepthook(type(wrong), wrong.with_traceback(inside), inside)
        raise (Interrupted if isinstance(wrong, KeyboardInterrupt) else SystemExit(1)) from None


def _probed(fit: Callable[..., Any], new_probe: Callable[[], Any]) -> Callable[..., Any]:
    @functools.wraps(fit)
    def fit_with_probe(self: Any, *args: Any, **options: Any) -> Any:
        import inspect

        bound = inspect.signature(fit).bind(self, *args, **options)
        given = bound.arguments.get("callbacks")
        # A CallbackList of the caller's own takes the probe itself; anything else is a callback or a list of them.
        if given is not None and not isinstance(given, list) and hasattr(given, "append"):
            given.append(new_probe())
        else:
            callbacks = list(given) if isinstance(given, (list, tuple)) else [given] if given is not None else []
            bound.arguments["callbacks"] = [*callbacks, new_probe()]
        return fit(*bound.args, **bound.kwargs)

    return fit_with_probe


class _AfterImport(importlib.abc.MetaPathFinder):
    """Calls ``then`` with a module right after it has been imported for the first time."""

    def __init__(self, name: str, then: Callable[[Any], None]) -> None:
        self._name, self._then = name, then

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> Any:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path)
        if spec and spec.loader:
            load = spec.loader.exec_module

            def load_then_call(module: Any) -> None:
                load(module)
                self._then(module)

            spec.loader.exec_module = load_then_call  # type: ignore[method-assign]
        return spec
