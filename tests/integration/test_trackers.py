"""Export of estimates, rankings and scores to the real TensorBoard, MLflow and Weights & Biases, read back by them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner

import vmselect as vs
from vmselect import trackers
from vmselect.cli import app
from vmselect.errors import ArgumentError

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from forecasts import make_pair

# MLflow uses deprecated features of SQLAlchemy.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
HOSTILE = "a|b <script>`x` @user"


def probe(name: str = "g5.xlarge", step: float = 0.1) -> vs.Profile:
    return vs.Profile.from_times(
        instance_type=name, batch_size=64, steps_per_epoch=100, iteration_seconds=[step] * 9, model=HOSTILE
    )


@pytest.fixture(scope="module")
def results() -> dict[str, Any]:
    profiles = [probe(), probe("g6.xlarge", 0.2)]
    pairs = [record for i in range(3) for record in make_pair(0.05 * i)]
    return {
        "estimate": vs.estimate(profiles[0], epochs=5),
        "ranking": vs.rank(profiles, epochs=5),
        "score": vs.score(pairs),
    }


@pytest.mark.parametrize("kind", ["estimate", "ranking", "score"])
def test_tensorboard(results: dict[str, Any], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    # TensorBoard then reads with its own code and does not import TensorFlow, which takes seconds.
    monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", ModuleType("notf"))
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    assert trackers.export(results[kind], to="tensorboard", folder=tmp_path, name="first") == tmp_path
    stored = EventAccumulator(str(tmp_path / "first"))
    stored.Reload()
    entry = trackers.summarize(results[kind])
    for name, number in entry.numbers.items():
        (event,) = stored.Scalars(f"vmselect/{kind}/{name}")
        assert event.value == pytest.approx(number, rel=1e-6)
    (table,) = stored.Tensors(f"vmselect/{kind}/table")
    assert table.tensor_proto.string_val[0].decode() == entry.table()


def test_mlflow(results: dict[str, Any], tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed")
    client = mlflow.MlflowClient(tracking_uri=trackers.mlflow_uri(tmp_path))
    for kind, result in results.items():
        trackers.export(result, to="mlflow", folder=tmp_path, name=kind)
        experiment = client.get_experiment_by_name("vmselect").experiment_id
        (run,) = client.search_runs([experiment], filter_string=f"attributes.run_name = '{kind}'")
        entry = trackers.summarize(result)
        assert run.info.status == "FINISHED"
        assert run.data.metrics == pytest.approx({f"vmselect/{kind}/{key}": one for key, one in entry.numbers.items()})
        text = client.download_artifacts(run.info.run_id, f"vmselect/{kind}.json", str(tmp_path))
        assert Path(text).read_text(encoding="utf-8") == entry.json

    # A run that is active in this process receives the values.
    before = mlflow.get_tracking_uri()
    mlflow.set_tracking_uri(trackers.mlflow_uri(tmp_path))
    try:
        with mlflow.start_run(experiment_id=experiment) as active:
            assert trackers.export(results["estimate"], to="mlflow") is None
        stored = mlflow.get_run(active.info.run_id).data.metrics
        assert stored["vmselect/estimate/hours"] == pytest.approx(results["estimate"].seconds / 3600)
    finally:
        mlflow.set_tracking_uri(before)


def test_weights_and_biases(results: dict[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="Weights & Biases is not installed")
    trackers.export(results["ranking"], to="wandb", folder=tmp_path, name="first")
    (file,) = tmp_path.rglob("run-*.wandb")
    stored = file.read_bytes()
    best = trackers.summarize(results["ranking"]).numbers
    for name, number in best.items():
        assert f"vmselect/ranking/{name}".encode() in stored
        assert repr(number).encode() in stored
    assert list(tmp_path.rglob("*.table.json"))


def test_the_command_writes_the_same(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    probe().save(tmp_path / "profiles")
    for result in ("ranking", "estimates"):
        options = ["--to", "tensorboard", "--folder", str(tmp_path / result), "--epochs", "5", "--result", result]
        done = CliRunner().invoke(app, ["export", str(tmp_path / "profiles"), *options])
        assert (done.exit_code, done.stdout.strip()) == (0, str(tmp_path / result))
        assert list((tmp_path / result).glob("events.out.tfevents.*"))


def test_the_callback_exports_the_estimate_of_its_probe(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")

    class Measured:
        measured, profile = True, probe()

    callback = trackers.TrackerCallback(Measured(), to="tensorboard", epochs=5, folder=tmp_path)  # type: ignore[arg-type]
    callback.on_train_end()
    assert list(tmp_path.glob("events.out.tfevents.*"))


def test_names_have_no_meaning_in_a_table(results: dict[str, Any]) -> None:
    table = trackers.summarize(results["estimate"]).table()
    assert "<script" not in table
    assert "@" not in table


def test_wrong_arguments_are_refused(results: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for wrong in ({"to": "excel"}, {"to": "tensorboard", "folder": tmp_path / "file"}, {"to": "mlflow", "name": ""}):
        with pytest.raises(ArgumentError):
            trackers.export(results["estimate"], **wrong)
    with pytest.raises(ArgumentError):
        trackers.export("estimate", to="tensorboard", folder=tmp_path)  # type: ignore[arg-type]


@pytest.mark.parametrize("to", ["tensorboard", "mlflow"])
def test_scalars_of_a_running_training(to: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip(to, reason=f"{to} is not installed")
    write = trackers.open_scalars(to, folder=tmp_path)
    for step in (10, 20):
        write({"vmselect/usd": step / 4}, step)
    if to == "tensorboard":
        monkeypatch.setitem(sys.modules, "tensorboard.compat.notf", ModuleType("notf"))
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        events = EventAccumulator(str(tmp_path)).Reload().Scalars("vmselect/usd")
    else:
        import mlflow

        client = mlflow.MlflowClient(tracking_uri=trackers.mlflow_uri(tmp_path))
        (run,) = client.search_runs([client.get_experiment_by_name("vmselect").experiment_id])
        events = client.get_metric_history(run.info.run_id, "vmselect/usd")
    assert [(event.step, event.value) for event in events] == [(10, 2.5), (20, 5.0)]
