"""The command ``demo``: a present-day decision from a shipped description, without a GPU, an account or a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal
from urllib.parse import quote

import typer

from vmselect.cli.output import Format, FormatOption, print_err, print_table
from vmselect.cli.ranking_table import print_ranking
from vmselect.units import format_brief_seconds, format_chance, format_usd

if TYPE_CHECKING:
    from vmselect.ranking import Ranking, Row
    from vmselect.records import Profile

Model = Literal["resnet50", "transformer"]
MODELS: dict[Model, str] = {"resnet50": "ResNet-50 on ImageNet", "transformer": "Small transformer"}
PACKAGE = Path(__file__).parents[1]
DESCRIPTIONS = PACKAGE / "example_descriptions"
"""Folder of the described trainings, a record each."""
FOUNDING_RECORDS = PACKAGE / "example_records"
"""Folder of the founding example: published training times of six GPU machines in 2021, one profile each."""
FOUNDING_DATE, FOUNDING_DEADLINE_HOURS = "2021-02-28", 0.5
PROBES = 2
"""Number of probes that the demo assumes."""
ASSUMED = (
    "Nothing here was measured: every time is predicted from the description of the model. The lines below assume "
    "probes that measure exactly the predicted time; real ones will differ, within the intervals."
)


def demo(
    model: Annotated[Model, typer.Argument(help="The training to rank machines for.")] = "resnet50",
    out: Annotated[Path, typer.Option("--out", help="HTML file for the report page.")] = Path("demo.html"),
    format: FormatOption = Format.table,  # noqa: A002
) -> None:
    """Rank the machines of all clouds for a training that ships as a description, and write the report page.

    resnet50 is ResNet-50 on ImageNet: 90 epochs of 1.28 million images, batch size 256, mixed precision. transformer
    is a small one: six layers, 10 epochs of a million sentences. All times are predicted from the operations
    of a training step; nothing was measured, and nothing is rented or downloaded. The last lines show what two probes
    would change. The page has a tab with the other training, which is written next to it. Its URL is printed to
    standard error.

    Examples:

      vmselect demo

      vmselect demo transformer --out page.html --json
    """
    from vmselect.report.charts import check_target
    from vmselect.report.page import Stage, Tab, write_page

    check_target(out)
    ranking = rank_example(model)
    files = {name: out if name == model else out.with_stem(f"{out.stem}-{name}") for name in MODELS}
    for name, file in files.items():
        shown = ranking if name == model else rank_example(name)
        tabs = [Tab(title, quote(files[other].name), current=other == name) for other, title in MODELS.items()]
        decisions = probe_stages(shown)
        stages = [Stage(stage.title, *_texts(stage)) for stage in decisions]
        write_page(shown, file, tabs=tabs, stages=stages, note=ASSUMED)
        if name == model and format is Format.table:
            print_ranking(ranking, top=10, format=format, next_steps=(), remarks=False)
            _print_stages(decisions)
    if format is not Format.table:
        print_ranking(ranking, top=10, format=format)
    else:
        print_err(["Next:  vmselect recommend train.py  # the same for your own training"])
    print_err([f"Report: {out.resolve().as_uri()}"])


def _texts(stage: Decision) -> tuple[str, str, str, str, str, str]:
    """Machine, GPU, time, its interval, cost and chance of a decision."""
    best = stage.best
    interval = f"{format_brief_seconds(best.seconds_low)} to {format_brief_seconds(best.seconds_high)}"
    return (
        best.instance_type, best.gpu_model or "none", format_brief_seconds(best.seconds), interval,
        format_usd(best.cost_usd), format_chance(stage.chance),
    )  # fmt: skip


def _print_stages(stages: Sequence[Decision]) -> None:
    """Print how the decision changes with each probe."""
    names = ("rent", "GPU", "time", "interval", "cost", "best")
    rows = [{"after": stage.title} | dict(zip(names, _texts(stage), strict=True)) for stage in stages]
    print_err(["", ASSUMED])
    print_table(rows, list(rows[0]), wrapped=("after",))


@dataclass(frozen=True)
class Decision:
    """The decision after a number of probes: the choice, and the probability that it has the best GPU."""

    title: str
    best: Row
    chance: float


def probe_stages(ranking: Ranking, probes: int = PROBES) -> list[Decision]:
    """The decision from the description, and after each of ``probes`` that measures exactly the predicted time.

    Each is the next probe that the ranking suggests, else one of the recommended machine.
    """
    from vmselect.ranking import rank
    from vmselect.ranking.next_probe import chance_of_choice

    described = next(machine.description for machine in ranking.candidates.machine_estimates if machine.description)
    records: list[Profile] = []
    stages = [Decision("the description", ranking.best, chance_of_choice(ranking))]
    for number in range(probes):
        probe = ranking.next_probe
        # A probe that is not worth its price still shows what it would change.
        rows = [row for row in ranking.deciding_rows if row.basis in ("described", "predicted")]
        row = next((row for row in rows if probe is not None and row.instance_type == probe.instance_type), rows[0])
        records.append(assumed_probe(described, ranking, row))
        ranking = rank([*records, described], machines="all")
        title = f"{number + 1}. a probe of {row.instance_type}"
        stages.append(Decision(title, ranking.best, chance_of_choice(ranking)))
    return stages


def assumed_probe(described: Profile, ranking: Ranking, row: Row) -> Profile:
    """A record of a probe on the machine of ``row`` whose steps take exactly the predicted time."""
    from vmselect.records import Profile
    from vmselect.records.base import Gpu

    steps = described.setup.steps_per_epoch or 1
    seconds = row.terms["steady_iterations"] / row.epochs / steps
    times = Profile.from_times(
        instance_type=row.instance_type, provider=row.provider, region=row.region, batch_size=described.batch_size,
        steps_per_epoch=steps, iteration_seconds=[seconds, 1.005 * seconds, 0.995 * seconds] * 8,
        init_seconds=row.terms.get("initialization"), precision=described.environment.precision,
    )  # fmt: skip
    gpu = Gpu(name=row.gpu_model or "", memory_bytes=None)
    environment = times.environment.model_copy(update={"gpus": (gpu,), "framework_gpus": 1})
    return times.model_copy(update={"environment": environment, "setup": described.setup, "work": described.work})


def rank_example(model: Model = "resnet50") -> Ranking:
    """Rank all machines for a described training that ships with vmselect, with a finding that this is an example."""
    from vmselect.catalog import Catalog
    from vmselect.findings import Finding
    from vmselect.ranking import rank
    from vmselect.records import Profile

    catalog = Catalog.default()
    example = Finding(
        "example",
        f"This is an example: {MODELS[model]}, described and not measured. Prices: {catalog.origin}.",
        "To rank machines for your own training: vmselect recommend train.py",
        "info",
    )
    ranking = rank(Profile.load(DESCRIPTIONS / f"{model}.json"), machines="all", catalog=catalog)
    return ranking.with_findings([example], example=True)


def rank_founding_example() -> Ranking:
    """Rank the six machines of the founding example at the prices of 2021, with a finding that this is an example."""
    from vmselect.catalog import Catalog
    from vmselect.findings import Finding
    from vmselect.ranking import rank
    from vmselect.records import load_profiles

    example = Finding(
        "example",
        "This is an example: published times of ResNet-50 on CIFAR-10 (Malta, 2021, Table 4.2) at prices of February "
        "2021.",
        "To rank machines for your own training, start with: vmselect recommend train.py",
        "info",
    )
    catalog = Catalog.embedded(date=FOUNDING_DATE)
    ranking = rank(load_profiles(FOUNDING_RECORDS), catalog=catalog, deadline_hours=FOUNDING_DEADLINE_HOURS)
    return ranking.with_findings([example], example=True)
