"""Pages of the documentation that are run: every block of Python and every vmselect command, and what they print.

A page takes part when it is named in :data:`PAGES` with what must lie in the folder before its first block. A ``text``
block that follows a command or Python is what that prints. ``python tests/support/page_examples.py`` writes what they
print today into the pages; the tests compare.
"""

from __future__ import annotations

import ast
import contextlib
import io
import itertools
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PRICES_OF = "2026-08-22"
"""The day on which pages are run and the snapshot of their prices, whatever has been shipped since."""


def three_machines(folder: Path) -> None:
    """The profiles of ``examples/call_from_another_tool.py`` in ``profiles/``."""
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        import call_from_another_tool as tool
    finally:
        sys.path.pop(0)
    import vmselect as vs

    for name, (init_seconds, first, others) in tool.MEASURED.items():
        vs.Profile.from_times(
            instance_type=name, batch_size=64, steps_per_epoch=500, init_seconds=init_seconds,
            first_iteration_seconds=first, iteration_seconds=others, model="resnet",
        ).save(folder / "profiles" / f"{name}.json")  # fmt: skip


def one_and_three_machines(folder: Path) -> None:
    """A profile of a g4dn.xlarge in ``probe/``, and those of three machines in ``profiles/``."""
    import vmselect as vs

    three_machines(folder)
    vs.Profile.from_times(
        instance_type="g4dn.xlarge", batch_size=64, steps_per_epoch=1000, init_seconds=20.0, first_iteration_seconds=4,
        iteration_seconds=[0.41, 0.4, 0.4, 0.39, 0.4] * 4, model="resnet",
    ).save(folder / "probe" / "g4dn.xlarge.json")  # fmt: skip


def batch_sizes(folder: Path) -> None:
    """Profiles of a machine at two batch sizes, repetitions, two phases, and a study."""
    import vmselect as vs

    def profile(batch_size: int, seconds: float, **settings: Any) -> vs.Profile:
        return vs.Profile.from_times(
            instance_type="g4dn.xlarge", batch_size=batch_size, steps_per_epoch=-(-32_000 // batch_size),
            init_seconds=20.0, first_iteration_seconds=4, iteration_seconds=[seconds] * 20, model="resnet", **settings,
        )  # fmt: skip

    for batch_size, seconds, peak_gib in ((64, 0.4, 3.5), (128, 0.7, 6)):
        made = profile(batch_size, seconds)
        gpu = {
            "backend": "torch", "framework_gpus": 1, "gpus": ({"name": "Tesla T4", "memory_bytes": 15 * 2**30},),
            "peak_gpu_memory_bytes": int(peak_gib * 2**30), "gpu_memory": {"source": "torch"},
        }  # fmt: skip
        made = made.model_copy(update={"environment": type(made.environment)(**{**dict(made.environment), **gpu})})
        made.save(folder / "profiles" / f"g4dn.xlarge-{batch_size}.json")
    for number, seconds in enumerate((0.4, 0.41, 0.39)):
        profile(64, seconds).save(folder / "repetitions" / f"{number}.json")
    for size, seconds in (("128px", 0.2), ("224px", 0.5)):
        profile(64, seconds).save(folder / "phases" / f"{size}.json")
    vs.ConvergenceStudy.from_epochs({64: [12, 13], 128: [15, 17]}, model="resnet").save(folder / "study" / "study.json")


def services(folder: Path) -> None:
    """Trainings in ``profiles/``, and records of training, inference and transfer in ``records/``."""
    import vmselect as vs
    from vmselect.records import InferenceRecord, TransferRecord

    three_machines(folder)
    for name, seconds in (("g4dn.xlarge", 0.05), ("g5.xlarge", 0.02)):
        times = [seconds * (1 + 0.1 * (call % 3)) for call in range(200)]
        InferenceRecord.from_times(
            instance_type=name, provider="aws", batch_size=32, call_seconds=times, first_seconds=1.5,
            bytes_per_item=1e5, model="resnet",
        ).save(folder / "records" / f"{name}-inference.json")  # fmt: skip
        moved = TransferRecord.from_times(
            instance_type=name, provider="aws", url="s3://data", megabytes=100, upload_seconds=2, download_seconds=1
        )
        moved.model_copy(update={"cost_usd": 0.009}).save(folder / "records" / f"{name}-transfer.json")
        vs.Profile.load(folder / "profiles" / f"{name}.json").save(folder / "records" / f"{name}.json")


def own_prices(folder: Path) -> None:
    """The profiles of three machines, and the prices that the page on prices writes into a file."""
    three_machines(folder)
    (block,) = (block for block in find_blocks((ROOT / "docs/how-to/prices.md").read_text()) if "lab," in block.text)
    (folder / "prices.csv").write_text(block.text)


def groups(folder: Path) -> None:
    """Repeated measurements: of two machines, of scenarios, of combinations of factors, and of several nodes."""
    import vmselect as vs

    def save(name: str, instance_type: str, seconds: float, **settings: Any) -> None:
        settings = {"batch_size": 64, "iteration_seconds": [seconds, 1.01 * seconds] * 5, **settings}
        vs.Profile.from_times(
            instance_type=instance_type, steps_per_epoch=500, init_seconds=20, first_iteration_seconds=4,
            model="resnet", **settings,
        ).save(folder / f"{name}.json")  # fmt: skip

    three_machines(folder)
    machines = {"g4dn.xlarge": 0.4, "Standard_NC4as_T4_v3": 0.45}
    for run in range(3):
        for name, seconds in machines.items():
            taken = seconds * (1 + 0.01 * run)
            cloud = "aws" if name.startswith("g4") else "azure"
            save(f"records/{name}-{run}", name, taken, provider=cloud)
            for framework, data in (("keras", "cifar10"), ("torch", "imagenet")):
                totals = {"total_seconds": 1000 * taken, "epochs": 50, "iteration_seconds": None}
                factors = {"framework": framework, "dataset": data}
                save(f"scenarios/{name}-{framework}-{run}", name, taken, provider=cloud, factors=factors, **totals)
            for size, backend in itertools.product((64, 128), ("jax", "torch")):
                factors = {"machine": name, "batch_size": size, "backend": backend}
                save(f"folder/{name}-{size}-{backend}-{run}", name, taken * size / 64, batch_size=size, factors=factors)
        for nodes in (1, 2):
            save(f"nodes/{nodes}-{run}", "g4dn.xlarge", 0.4 / nodes + 0.01 * run, factors={"nodes": nodes})
    blocks = [
        one.text
        for one in find_blocks((ROOT / "docs/how-to/compare-machines.md").read_text())
        if one.language == "yaml"
    ]
    for name, text in zip(("needs.yaml", "metrics.yaml"), blocks, strict=True):
        (folder / name).write_text(text)


def sampled(folder: Path) -> None:
    """A profile with samples of the machine, in ``profiles/`` and in ``records/``."""
    import vmselect as vs
    from vmselect.records.usage import Limits, Usage

    usage = Usage(
        interval_seconds=1.0, limits=Limits(cores=2), seconds=(0.5, 2.0, 3.0, 4.0, 5.0),
        phase=("initialization", "first_step", "steady_steps", "steady_steps", "validation"),
        series={"usable_cpu_share": (0.2, 0.6, 0.99, 0.98, 0.7), "gpu0_busy_share": (0.0, 0.1, 0.2, 0.3, 0.5)},
    )  # fmt: skip
    made = vs.Profile.from_times(
        instance_type="g4dn.xlarge", batch_size=64, first_epoch_seconds=40, later_epoch_seconds=[30, 31], model="resnet"
    )
    profile = made.model_copy(update={"usage": usage})
    profile.save(folder / "profiles" / "g4dn.xlarge-64-20260901T101500.json")
    profile.save(folder / "records" / "g4dn.xlarge.json")


def small_sweep(folder: Path) -> None:
    """The sweep of the examples with one machine, one batch size and one repetition."""
    import yaml

    three_machines(folder)
    for name in ("train.py", "prices.csv"):
        shutil.copy(ROOT / "examples" / "sweep" / name, folder)
    plan = yaml.safe_load((ROOT / "examples" / "sweep" / "plan.yaml").read_text())
    plan |= {"factors": {"machine": ["small"], "batch_size": [64]}, "repetitions": 1}
    plan["machines"] = {"small": plan["machines"]["small"]}
    (folder / "plan.yaml").write_text(yaml.safe_dump(plan))
    repeated_sweep(folder / "history")


def repeated_sweep(folder: Path) -> None:
    """A record of the same training in a folder per week, as a repeated sweep leaves them."""
    import vmselect as vs

    for week in range(4):
        record = vs.Profile.from_times(batch_size=64, iteration_seconds=[0.1] * 5, factors={"machine": "small"})
        moment = datetime(2026, 3, 1 + 7 * week, 4, tzinfo=UTC)
        record.model_copy(update={"created": moment}).save(folder / f"{moment:%Y-%m-%dT%H%M}" / "001.json")


def before_and_after(folder: Path) -> None:
    """The small sweep, and two runs of each of its profiles in ``records/``."""
    small_sweep(folder)
    (folder / "records").mkdir()
    for number in ("1", "2"):
        three_machines(folder / number)
        for path in (folder / number / "profiles").iterdir():
            shutil.copy(path, folder / "records" / f"{path.stem}-{number}.json")


def own_loop(_: Path) -> dict[str, Any]:
    """The parts of a training loop that computes nothing."""
    return {"loader": range(100), "train": lambda batch: None, "validate": lambda: None}


def described_training(folder: Path) -> None:
    """A described training, like that of ResNet-50, in ``records/``."""
    sys.path.insert(0, str(ROOT))
    try:
        from tests.support.descriptions import make_description
    finally:
        sys.path.pop(0)
    make_description(model="resnet50", epochs=90, validation_examples=5_000).save(folder / "records" / "resnet50.json")


PAGES: dict[str, Callable[[Path], dict[str, Any] | None]] = {
    "docs/agents/SKILL.md": before_and_after,
    "docs/how-to/compare-machines.md": groups,
    "docs/how-to/diagnosis.md": sampled,
    "docs/how-to/energy-and-co2.md": three_machines,
    "docs/how-to/no-gpu.md": described_training,
    "docs/how-to/prices.md": own_prices,
    "docs/how-to/probe-a-training.md": own_loop,
    "docs/how-to/rank.md": one_and_three_machines,
    "docs/how-to/read-the-report.md": three_machines,
    "docs/how-to/serve-and-move-data.md": services,
    "docs/how-to/sweeps.md": small_sweep,
    "docs/how-to/work-in-a-team.md": three_machines,
    "docs/reference/agents-and-programs.md": three_machines,
    "docs/reference/estimates.md": batch_sizes,
    "docs/tutorials/from-a-laptop-to-a-decision.md": three_machines,
}


class Block(NamedTuple):
    """A fenced block: its language, its text, and where that text lies in the page."""

    language: str
    text: str
    start: int
    end: int
    skipped: bool = False
    package: str | None = None


def find_blocks(page: str) -> list[Block]:
    """The fenced blocks of a page, in order.

    A block below a comment ``<!-- not run: why -->`` is skipped. A block below ``<!-- run with keras -->`` is skipped
    here and run by ``page_trainings.py``, with a model and data of that package.
    """
    found = re.finditer(
        r"^(<!-- (?:not run: [^\n]*|run with (\w+)) -->\n)?```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE
    )
    return [Block(one[3], one[4], one.start(4), one.end(4), one[1] is not None, one[2]) for one in found]


def run_page(name: str) -> Iterator[tuple[Block, str]]:
    """Run a page in a folder of its own: each expected block, and what was printed in its place."""
    blocks = find_blocks((ROOT / name).read_text())
    namespace: dict[str, Any] = {}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, _as_on_a_users_machine():
        os.chdir(folder)
        try:
            namespace |= PAGES[name](Path(folder)) or {}
            exec("import vmselect as vs", namespace)
            if Path("profiles").exists():
                exec("profiles = vs.load_profiles('profiles')", namespace)
            printed = None
            for block in blocks:
                if block.skipped:
                    printed = None
                elif block.language == "text" and printed is not None:
                    yield block, printed
                    printed = None
                elif block.language == "python":
                    printed = _run_python(block.text, namespace)
                elif block.language == "bash":
                    printed = "".join(_run_command(line) for line in block.text.splitlines())
        finally:
            os.chdir(before)


def _run_python(text: str, namespace: dict[str, Any]) -> str:
    """Run statements; a last line that is an expression shows its value, as at a prompt."""
    body = ast.parse(text).body
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        shown = bool(body) and isinstance(body[-1], ast.Expr)
        if shown:
            body[-1] = ast.Assign([ast.Name("shown", ast.Store())], body[-1].value, lineno=1)  # type: ignore[attr-defined]
        exec(compile(ast.fix_missing_locations(ast.Module(body, [])), "page", "exec"), namespace)
        value = namespace["shown"] if shown else None
        if value is not None:
            print(value.round(2) if hasattr(value, "columns") else value)
    return _tidy(out.getvalue())


def _run_command(line: str) -> str:
    from typer.testing import CliRunner

    from vmselect.cli import app

    words = shlex.split(line, comments=True)
    if not words or words[0] == "cd":  # the page's setup put the files of that folder into this one
        return ""
    assert words[0] == "vmselect", f"only vmselect commands are run, not: {line}"
    if words[1:3] in (["sweep", "run"], ["sweep", "resume"]):
        words.append("--yes")  # instead of the confirmation at a terminal
    done = CliRunner().invoke(app, words[1:], catch_exceptions=False)
    assert done.exit_code in (0, 1), done.output
    return _tidy(done.output)


@contextlib.contextmanager
def _as_on_a_users_machine() -> Iterator[None]:
    """Prices of one date and none that were refreshed here; lines of a fixed width."""
    import vmselect as vs

    default = vs.Catalog.default
    before = {name: os.environ.get(name) for name in ("COLUMNS", "PATH", "VMSELECT_TODAY")}
    vs.Catalog.default = classmethod(lambda cls: cls.embedded(date=PRICES_OF))  # type: ignore[method-assign,assignment]
    # The commands of a plan say python: the one that runs this, also where its environment is not activated.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    os.environ.update({"COLUMNS": "160", "PATH": path, "VMSELECT_TODAY": PRICES_OF})
    try:
        yield
    finally:
        vs.Catalog.default = default  # type: ignore[method-assign]
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _tidy(text: str) -> str:
    return "\n".join(line.rstrip() for line in text.strip("\n").splitlines()) + "\n"


ROUNDED = re.compile(r"(?<![\w.-])\d[\d,]*(?:\.\d+|(?=%| (?:s|min|h|days)\b))")
"""A number with decimals, a share or a duration: neither a count nor a part of a name."""


def agrees(text: str, printed: str) -> bool:
    """Whether two texts differ only in spaces and in the last digit of rounded numbers, which depends on the CPU."""
    if ROUNDED.sub("#", text).split() != ROUNDED.sub("#", printed).split():
        return False
    pairs = zip(ROUNDED.findall(text), ROUNDED.findall(printed), strict=True)
    return all(abs(_value(number) - _value(other)) <= max(_unit(number), _unit(other)) for number, other in pairs)


def _value(number: str) -> Decimal:
    return Decimal(number.replace(",", ""))


def _unit(number: str) -> Decimal:
    """One unit in the last digit of a number."""
    return Decimal(1).scaleb(min(0, int(_value(number).as_tuple().exponent)))


def rewrite(name: str) -> bool:
    """Put what a page prints today into it where it does not agree; whether that changed anything."""
    path = ROOT / name
    text = before = path.read_text()
    for block, printed in reversed(list(run_page(name))):
        if not agrees(block.text, printed):
            text = text[: block.start] + printed + text[block.end :]
    path.write_text(text)
    return text != before


if __name__ == "__main__":
    for page in PAGES:
        print(page, "rewritten" if rewrite(page) else "is as it was")
