"""JSON Schemas: the files that ship are what the models give, and real records and outputs are valid by them."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator
from typer.main import get_command
from typer.testing import CliRunner

import vmselect as vs
from vmselect.catalog.refresh import Progress
from vmselect.cli import app
from vmselect.cli.describe import _show as show_description
from vmselect.cli.probe import _show_profiles
from vmselect.cli.schema import FOLDER, generate_schema, list_schemas, outputs, schema_file, schema_names
from vmselect.probe.script import ScriptRun
from vmselect.records import InferenceRecord, files
from vmselect.records.files import load_record
from vmselect.records.training import Fit
from vmselect.records.work import Operation, Operations, Work
from vmselect.sweeps.run import Cleaned

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from comparisons import factorial
from comparisons import profile as run_of
from forecasts import make_pair
from profiles import make_gpu_profile, make_profile
from write_schemas import structure

ROOT = Path(__file__).parents[3]
FROZEN = sorted((ROOT / "tests" / "data").glob("*/format-*.json"))
EXAMPLES = sorted((ROOT / "vmselect" / "example_records").glob("*.json"))
NODE_SECONDS = {1: 0.40, 2: 0.25}


def shipped(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / schema_file(name)).read_text(encoding="utf-8"))


def problems(name: str, value: Any) -> list[str]:
    found = Draft202012Validator(shipped(name)).iter_errors(value)
    return [f"{list(one.absolute_path)}: {one.message}" for one in found]


def invoke(*arguments: object) -> str:
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exception is None or isinstance(done.exception, SystemExit), (arguments, done.exception)
    assert done.exit_code in (0, 1), (arguments, done.output)
    return done.stdout


# -- the files that ship -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", schema_names())
def test_a_schema_changes_only_with_its_version(name: str) -> None:
    """After a change, raise the version and run tests/support/write_schemas.py."""
    assert structure(shipped(name)) == structure(generate_schema(name))
    Draft202012Validator.check_schema(shipped(name))


def test_every_file_belongs_to_a_schema() -> None:
    assert set(list_schemas()) == set(schema_names())
    assert {f"record-{kind}" for kind in files.KINDS} <= set(schema_names())


def list_commands() -> Iterator[tuple[str, Any]]:
    waiting: list[tuple[str, Any]] = [("", get_command(app))]
    while waiting:
        name, command = waiting.pop()
        parts = getattr(command, "commands", {})
        waiting += [(f"{name} {part}".strip(), child) for part, child in parts.items()]
        if not parts:
            yield name, command


def test_every_command_prints_json_that_has_a_schema() -> None:
    with_json = {name for name, command in list_commands() if any("--json" in option.opts for option in command.params)}
    described = {command.partition(" --")[0] for output in outputs().values() for command in output.commands}
    assert with_json == described
    # The standard output of the MCP server is a protocol, whose messages are JSON anyway.
    assert {name for name, _ in list_commands()} - with_json == {"mcp"}


# -- records -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*FROZEN, *EXAMPLES], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_records_are_valid(path: Path) -> None:
    """A file of an older format is valid after the upgrade that every reading does."""
    record = load_record(path)
    raw = json.loads(path.read_text(encoding="utf-8"))
    newest = raw["format"] == files.KINDS[record.kind].format
    for value in (json.loads(record.to_json()), *([raw] if newest else [])):
        assert problems(f"record-{record.kind}", value) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.pop("id"),
        lambda data: data.update(speed=1),
        lambda data: data.update(format=4),
        lambda data: data["setup"].update(batch_size="64"),
        lambda data: data["timeline"].update(run_seconds=[-1.0]),
    ],
)
def test_a_schema_rejects_what_reading_rejects(change: Any, tmp_path: Path) -> None:
    data = json.loads(EXAMPLES[0].read_text(encoding="utf-8"))
    change(data)
    (tmp_path / "changed.json").write_text(json.dumps(data))
    with pytest.raises(vs.errors.ProfileError):
        load_record(tmp_path / "changed.json")
    assert problems("record-training", data)


# -- outputs of commands -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of records: machines, groups, factors, nodes, memory, fits, a study, forecasts with outcomes."""
    where = tmp_path_factory.mktemp("records")
    for name, seconds in (("g4dn.xlarge", 0.2), ("g5.xlarge", 0.08), ("not.sold", 0.1)):
        make_profile(name, seconds, environment={"precision": "float32"}).save(where / "machines")
    make_profile("g5.xlarge", 0.08).save(where / "sold")
    make_profile("g4dn.xlarge", 0.08).save(where / "labels")
    rng = np.random.default_rng(0)
    for name, level in (("a", 0.010), ("b", 0.013)):
        for _ in range(4):
            run_of(rng, level=level, instance_type=name, factors={"machine": name}).save(where / "groups")
    for record in factorial("a", "b", runs=2):
        record.save(where / "factorial")
    for nodes, seconds in NODE_SECONDS.items():
        make_profile("m", seconds, factors={"nodes": nodes}).save(where / "nodes")
    for size, peak in ((32, 2.0), (64, 3.5)):
        make_gpu_profile(size, peak).save(where / "memory")
    for number in (1, 2):
        make_profile("g5.xlarge", 0.1 * number, fit=Fit(number=number, process="p"), epochs=3).save(where / "fits")
    for error in (0.05, -0.02, 0.3):
        for record in make_pair(error, ranking="0" * 31 + "1", rank=1):
            record.save(where / "forecasts")
    InferenceRecord.from_times(instance_type="g5.xlarge", batch_size=8, call_seconds=[0.01] * 50).save(
        where / "inference"
    )
    study = vs.ConvergenceStudy.from_epochs({64: [13, 14]}, metrics={64: 0.97})
    study.save(where / "study.json")
    (where / "needs.yaml").write_text("needs: {step_seconds: 2}\n")
    (where / "plan.yaml").write_text(
        "command: python3 -c pass\nrunner: local\nfactors: {machine: [small, big], batch_size: [64, 256]}\n"
        "machines: {small: {cores: 1}, big: {cores: 2}}\nminutes: 1\n"
    )
    (where / "old.csv").write_text(
        "provider,instance_type,region,market,usd_per_hour,date\naws,g5.xlarge,us-east-1,on_demand,0.9,2025-01-01\n"
        "aws,gone.type,us-east-1,on_demand,1,2025-01-01\n"
    )
    shutil.copytree(ROOT / "tests" / "data" / "sweeps", where / "sweep")
    (where / "sweep" / "journal-1.jsonl").rename(where / "sweep" / "journal.jsonl")
    (where / "store").mkdir()
    return where


@pytest.fixture(autouse=True)
def no_refreshed_prices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("VMSELECT_CACHE_DIR", str(tmp_path / "cache"))


OUTPUT_OF = {
    "check": ["check {}/machines"],
    "compare": [
        "compare {}/groups", "compare {}/groups --metric step_seconds,init_seconds --within model",
        "compare {}/factorial --factors machine,batch_size", "compare {}/nodes --scaling -e 5",
        "compare {}/groups --needs {}/needs.yaml",
    ],
    "compare-before": ["compare {}/sold --before {}/machines -e 5 --limit-percent 1"],
    "estimate": ["estimate {}/machines -e 5", "estimate {}/machines -e 5 --terms", "estimate {}/fits"],
    "estimate-memory": ["estimate {}/memory --memory"],
    "history-compact": ["history compact {}/groups"],
    "history-list": ["history list {}/machines"],
    "rank-running": ["rank --running {}/sold -e 5 --machines g6.xlarge,g6e.xlarge"],
    "rank-next": [
        "rank {}/machines -e 5000 --next --machines g6.xlarge,g6e.xlarge",
        "rank {}/machines -e 1 --next --machines g6.xlarge",
    ],
    "prices": ["prices show --gpu T4", "prices show g4dn.xlarge --market all", "prices show --all --top 3"],
    "prices-gpus": ["prices show", "prices show --region eu --provider aws"],
    "prices-check": ["prices check {}/new.csv --before {}/old.csv"],
    "prices-check-flagged": ["prices check {}/new.csv --flagged"],
    "ranking": [
        "rank {}/machines -e 5,50 --market all --interruptions 0.1 --deadline-hours 1",
        "rank {}/machines -e 50 --budget-usd 0.0001", "rank {}/machines -e 50 --machines g6.xlarge,g5.xlarge",
        "rank {}/sold --study {}/study.json", "demo --out {}/demo.html",
    ],
    "schema": ["schema"],
    "score": ["score {}/forecasts", "score {}/machines"],
    "written": ["history label {}/labels --instance-type g5.xlarge --replace"],
    "sweep-plan": ["sweep plan {}/plan.yaml"],
    "sweep-status": ["sweep status {}/sweep"],
    "serve-inference": ["serve inference {}/inference", "serve inference {}/inference --load 100"],
    "serve-transfer": ["serve transfer file://{}/store --megabytes 1 --files 2 --yes"],
}  # fmt: skip
"""Commands whose JSON is validated, by schema; the others have tests of their own."""


@pytest.mark.parametrize(
    ("name", "command"), [(name, command) for name, commands in OUTPUT_OF.items() for command in commands]
)
def test_output_is_valid(name: str, command: str, folder: Path) -> None:
    if name == "prices-check-flagged":
        columns = "provider,instance_type,region,market,usd_per_hour,gpu_model,gpu_count"
        (folder / "new.csv").write_text(f"{columns}\ncloud,cheap,here,on_demand,0.01,T4,1\n")
    elif name == "prices-check":
        (folder / "new.csv").write_text(
            (folder / "old.csv").read_text().replace(",0.9,", ",1.1,").replace("gone", "new")
        )
    if name == "serve-transfer":
        pytest.importorskip("fsspec", reason="fsspec is not installed: nothing is transferred")
    words = [word.replace("{}", str(folder)) for word in command.split()]
    value = json.loads(invoke(*words, "--json"))
    assert value or "--next" in command
    assert problems(name, value) == []


def test_the_lines_of_a_sweep_are_valid(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("")
    plan = vs.Plan(f"{sys.executable} {tmp_path / 'train.py'}", minutes=1).save(tmp_path / "plan.yaml")
    lines = invoke("sweep", "run", plan, tmp_path / "sweep", "--yes", "--format", "json").splitlines()
    assert json.loads(lines[-1])["event"] == "summary"
    assert [problems("sweep-line", json.loads(line)) for line in lines] == [[] for _ in lines]


def test_rows_that_need_a_network_are_valid() -> None:
    part, ended = Progress("aws", "us-east-1", "failed", "no answer", 0), Cleaned("001", 1, False, "no answer")
    assert problems("prices-refresh", [asdict(part)]) == problems("sweep-clean", [asdict(ended)]) == []
    assert problems("prices-refresh", [asdict(part) | {"state": "lost"}])
    assert problems("sweep-clean", [asdict(ended) | {"gone": "no"}])


def test_what_a_probe_prints_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    profiles = [make_profile("g5.xlarge", 0.1), vs.Profile.from_times(batch_size=8, total_seconds=9, epochs=2)]
    _show_profiles(ScriptRun(2, 2, profiles), Path("profiles"), as_json=True)
    value = json.loads(capsys.readouterr().out)
    assert problems("probe", value) == []
    assert [training["step_seconds"] for training in value["trainings"]] == [pytest.approx(0.1), None]


def test_what_a_description_prints_is_valid(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    product = Operation("mm", 2e6, 3e4, 100, 100, 100, 1, 3)
    work = Work(
        batch_size=8, operations=Operations.of([product]), parameters=5, parameter_tensors=1, saved_bytes=1e3,
        method="layers",
    )  # fmt: skip
    profile = make_profile("g5.xlarge", 0.1).model_copy(update={"work": work})
    assert show_description(ScriptRun(1, 1, [profile]), tmp_path, as_json=True) == 0
    value = json.loads(capsys.readouterr().out)
    assert problems("describe", value) == []
    assert (value["product_flops"], value["moved_bytes"], value["operations"]) == (6e6, 9e4, 3)
    assert vs.Profile.load(value["path"]).outcome == "described"


def test_every_output_is_tested() -> None:
    assert {*OUTPUT_OF, "sweep-line", "prices-refresh", "sweep-clean", "probe", "describe"} == set(outputs())


def test_another_field_and_a_missing_field_are_invalid(folder: Path) -> None:
    ranking = json.loads(invoke("rank", folder / "machines", "-e", "50", "--format", "json"))
    assert problems("ranking", ranking | {"speed": 1})
    assert problems("ranking", {name: value for name, value in ranking.items() if name != "rows"})


# -- the command -------------------------------------------------------------------------------------------------------


def test_the_command_prints_a_schema() -> None:
    assert json.loads(invoke("schema", "ranking")) == shipped("ranking")
    assert json.loads(invoke("schema", "record-training", "--version", "3"))["$id"] == "urn:vmselect:record-training:3"


@pytest.mark.parametrize("arguments", [["../pyproject"], ["ranking", "--version", "99"]])
def test_an_unknown_schema_is_an_error(arguments: list[str]) -> None:
    assert isinstance(CliRunner().invoke(app, ["schema", *arguments]).exception, vs.errors.ArgumentError)
