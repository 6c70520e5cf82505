"""Writes estimates, rankings and scores to experiment trackers: TensorBoard, MLflow and Weights & Biases.

A run that the user has started in this process receives the values. Otherwise a local run is made in a folder, without
any connection to a server.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from vmselect._checks import check_choice, check_count, check_name, check_path, maybe, show
from vmselect._imports import require
from vmselect._io import write_bytes
from vmselect.errors import ArgumentError
from vmselect.estimation import RuntimeEstimate, estimate
from vmselect.probe.keras import PlainCallback
from vmselect.ranking import Ranking, Row
from vmselect.scoring.score import Score
from vmselect.units import hours, printable

if TYPE_CHECKING:
    from vmselect.probe.recording import CallbackProbe

Tracker: TypeAlias = Any
"""A module, a run or a message of an optional tracking package."""

TRACKERS = ("tensorboard", "mlflow", "wandb")
FOLDERS = {"tensorboard": "runs", "mlflow": "mlruns", "wandb": "wandb"}
"""Default folder of each tracker."""
ROWS = 50
"""Largest number of candidates in an exported table."""


@dataclass(frozen=True)
class Entry:
    """What a tracker stores: numbers and texts by name, a table of rows with equal keys, and the result as JSON."""

    kind: str
    text: str
    numbers: Mapping[str, float]
    texts: Mapping[str, str]
    rows: Sequence[Mapping[str, object]]
    json: str

    def table(self) -> str:
        """The verdict and the rows as Markdown text."""
        from vmselect.comparison.changes import escape_markdown

        lines = [escape_markdown(self.text), ""]
        if self.rows:
            names = list(self.rows[0])
            lines += [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
            lines += [f"| {' | '.join(escape_markdown(_shown(row[name])) for name in names)} |" for row in self.rows]
        return "\n".join(lines)


class TrackerCallback(PlainCallback):
    """A Keras callback that writes the estimate of ``probe`` to a tracker when the training ends.

    Place it after the probe: ``callbacks=[probe, TrackerCallback(probe, to="mlflow", epochs=50)]``. The arguments
    ``folder`` and ``name`` are those of :func:`export`.
    """

    def __init__(
        self,
        probe: CallbackProbe,
        *,
        to: str,
        epochs: int,
        folder: str | os.PathLike[str] | None = None,
        name: str | None = None,
    ) -> None:
        self._probe = probe
        self._epochs = check_count("epochs", epochs)
        self._to = check_choice("to", to, TRACKERS)
        self._folder = folder
        self._name = name

    def on_train_end(self, logs: object = None) -> None:
        """Write the estimate. Called by Keras."""
        if self._probe.measured:
            result = estimate(self._probe.profile, epochs=self._epochs)
            export(result, to=self._to, folder=self._folder, name=self._name)


def export(
    result: RuntimeEstimate | Ranking | Score,
    *,
    to: str,
    folder: str | os.PathLike[str] | None = None,
    name: str | None = None,
) -> Path | None:
    """Write ``result`` to the tracker ``to``: "tensorboard", "mlflow" or "wandb".

    Without ``folder``, a run of MLflow or Weights & Biases that is active in this process receives the values, and None
    is returned. Otherwise a new local run called ``name`` is made in ``folder``, and the folder is returned.
    """
    to = check_choice("to", to, TRACKERS)
    name = maybe(check_name, "name", name)
    entry = summarize(result)
    # Values belong to the run that trains the model, if there is one; a second run would be hard to relate to it.
    active = _find_active(to) if folder is None else None
    if active is not None:
        _ACTIVE_WRITERS[to](entry, active)
        return None
    target = check_path("folder", folder if folder is not None else FOLDERS[to])
    if target.exists() and not target.is_dir():
        raise ArgumentError(f"{str(target)!r} is not a folder. Give the path of a folder.")
    _WRITERS[to](entry, target, name)
    return target


def summarize(result: RuntimeEstimate | Ranking | Score) -> Entry:
    """The values of ``result`` that are written to a tracker."""
    if isinstance(result, RuntimeEstimate):
        return _summarize_estimate(result)
    if isinstance(result, Ranking):
        return _summarize_ranking(result)
    if isinstance(result, Score):
        return _summarize_score(result)
    raise ArgumentError(f"{show(result)} is neither an estimate, a ranking nor a score. Pass one of them.")


def _summarize_estimate(estimate: RuntimeEstimate) -> Entry:
    return Entry(
        kind="estimate",
        text=str(estimate),
        numbers={
            "hours": hours(estimate.seconds), "hours_low": hours(estimate.low), "hours_high": hours(estimate.high),
        },
        texts={"method": estimate.method, "epochs": str(estimate.epochs), "title": estimate.title},
        rows=[{"term": term, "seconds": seconds} for term, seconds in estimate.terms.items()],
        json=json.dumps(estimate.to_dict(), allow_nan=False),
    )  # fmt: skip


def _summarize_ranking(ranking: Ranking) -> Entry:
    rows = [_ranking_row(row) for row in ranking.deciding_rows[:ROWS]]
    numbers: dict[str, float] = {}
    texts: dict[str, str] = {}
    if rows:
        best = rows[0]
        numbers = {f"best_{name}": value for name, value in best.items() if isinstance(value, float)}
        texts = {"best": str(best["title"]), "best_basis": str(best["basis"])}
    return Entry("ranking", ranking.verdict, numbers, texts, rows, ranking.to_json())


def _ranking_row(row: Row) -> dict[str, object]:
    return {
        "rank": row.rank,
        "title": row.title,
        "basis": row.basis,
        "hours": hours(row.seconds),
        "hours_low": hours(row.seconds_low),
        "hours_high": hours(row.seconds_high),
        "cost_usd": row.cost_usd,
        "cost_low": row.cost_low,
        "cost_high": row.cost_high,
        "chance": row.chance,
    }


def _summarize_score(score: Score) -> Entry:
    names = ("mean_error_percent", "bias_percent", "coverage", "width_percent")
    numbers = {name: value for name in names if (value := getattr(score, name)) is not None}
    groups = [{str(name): value for name, value in row.items()} for row in score.groups.to_dict("records")]
    return Entry("score", score.verdict, {"outcomes": len(score), **numbers}, {}, groups, score.to_json())


def open_scalars(
    to: str, *, folder: str | os.PathLike[str] | None = None
) -> Callable[[Mapping[str, float], int], None]:
    """A function that writes scalars (numbers by name, at a step) to the tracker ``to`` while a training runs.

    As for :func:`export`, a run that is active in this process receives them, else a new local run in ``folder``.
    """
    to = check_choice("to", to, TRACKERS)
    active = _find_active(to) if folder is None else None
    target = check_path("folder", folder if folder is not None else FOLDERS[to])
    return _SCALARS[to](active, target)


def _tensorboard_scalars(active: Tracker, folder: Path) -> Callable[[Mapping[str, float], int], None]:
    records = _require("tensorboard.summary.writer.record_writer", "tensorboard")
    event, summary = (_require(f"tensorboard.compat.proto.{part}_pb2", "tensorboard") for part in ("event", "summary"))
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"events.out.tfevents.{int(time.time())}.vmselect.{uuid.uuid4().hex}"

    def append(message: Tracker) -> None:
        content = io.BytesIO()
        records.RecordWriter(content).write(message.SerializeToString())
        with path.open("ab") as file:
            file.write(content.getvalue())

    def write(scalars: Mapping[str, float], step: int) -> None:
        values = [summary.Summary.Value(tag=tag, simple_value=number) for tag, number in scalars.items()]
        append(event.Event(wall_time=time.time(), step=step, summary=summary.Summary(value=values)))

    append(event.Event(wall_time=time.time(), file_version="brain.Event:2"))
    return write


def _mlflow_scalars(active: Tracker, folder: Path) -> Callable[[Mapping[str, float], int], None]:
    if active is not None:
        client, run_id = _require("mlflow").MlflowClient(), active.info.run_id
    else:
        client, run_id = _create_mlflow_run(folder, None)
        atexit.register(client.set_terminated, run_id)

    def write(scalars: Mapping[str, float], step: int) -> None:
        for tag, number in scalars.items():
            client.log_metric(run_id, tag, number, step=step)

    return write


def _wandb_scalars(active: Tracker, folder: Path) -> Callable[[Mapping[str, float], int], None]:
    run = active
    if run is None:
        folder.mkdir(parents=True, exist_ok=True)
        with _quiet_wandb():
            run = _require("wandb").init(project="vmselect", dir=str(folder), mode="offline")
        atexit.register(run.finish)

    def write(scalars: Mapping[str, float], step: int) -> None:
        # In a run of the user, the scalars join the next call of log: a call of our own would count as a step.
        run.log(dict(scalars), commit=active is None)
        run.summary.update(dict(scalars))

    return write


_SCALARS = {"tensorboard": _tensorboard_scalars, "mlflow": _mlflow_scalars, "wandb": _wandb_scalars}


# -- writers -----------------------------------------------------------------------------------------------------------


def _find_active(to: str) -> Tracker:
    """The run of MLflow or Weights & Biases that this process has started, or None."""
    if to == "mlflow":
        return _require("mlflow").active_run()
    if to == "wandb":
        return _require("wandb").run
    return None


def _write_tensorboard(entry: Entry, folder: Path, name: str | None) -> None:
    # TensorBoard's own writer of event files would import TensorFlow, which takes seconds.
    records = _require("tensorboard.summary.writer.record_writer", "tensorboard")
    event, summary, tensor, tensor_shape, types = (
        _require(f"tensorboard.compat.proto.{part}_pb2", "tensorboard")
        for part in ("event", "summary", "tensor", "tensor_shape", "types")
    )

    def text_value(tag: str, text: str) -> Tracker:
        shape = tensor_shape.TensorShapeProto(dim=[tensor_shape.TensorShapeProto.Dim(size=1)])
        content = tensor.TensorProto(dtype=types.DT_STRING, string_val=[text.encode()], tensor_shape=shape)
        plugin = summary.SummaryMetadata.PluginData(plugin_name="text")
        return summary.Summary.Value(tag=tag, metadata=summary.SummaryMetadata(plugin_data=plugin), tensor=content)

    values = [summary.Summary.Value(tag=tag, simple_value=number) for tag, number in _tagged(entry)]
    values += [text_value(f"vmselect/{entry.kind}/{key}", text) for key, text in entry.texts.items()]
    values.append(text_value(f"vmselect/{entry.kind}/table", entry.table()))
    target = folder / name if name else folder
    target.mkdir(parents=True, exist_ok=True)
    now = time.time()
    events = (
        event.Event(wall_time=now, file_version="brain.Event:2"),
        event.Event(wall_time=now, step=0, summary=summary.Summary(value=values)),
    )
    content = io.BytesIO()
    writer = records.RecordWriter(content)
    for message in events:
        writer.write(message.SerializeToString())
    write_bytes(target / f"events.out.tfevents.{int(now)}.vmselect.{uuid.uuid4().hex}", content.getvalue())


def _write_mlflow_run(entry: Entry, client: Tracker, run_id: str) -> None:
    for tag, number in _tagged(entry):
        client.log_metric(run_id, tag, number)
    for key, text in entry.texts.items():
        client.set_tag(run_id, f"vmselect.{entry.kind}.{key}", text)
    client.log_text(run_id, entry.json, f"vmselect/{entry.kind}.json")
    client.log_text(run_id, entry.table(), f"vmselect/{entry.kind}.md")


def _write_mlflow_active(entry: Entry, run: Tracker) -> None:
    _write_mlflow_run(entry, _require("mlflow").MlflowClient(), run.info.run_id)


def mlflow_uri(folder: Path) -> str:
    """Tracking URI of the local runs in ``folder``, for ``mlflow ui --backend-store-uri``."""
    return f"sqlite:///{folder.resolve() / 'mlflow.db'}"


def _create_mlflow_run(folder: Path, name: str | None) -> tuple[Tracker, str]:
    """A client of the local runs in ``folder``, and the ID of a new run."""
    mlflow = _require("mlflow")
    folder.mkdir(parents=True, exist_ok=True)
    for package in ("sqlalchemy", "alembic"):  # MLflow stores local runs in a database
        require(package, extra="trackers", needed_by="Export to mlflow")
    client = mlflow.MlflowClient(tracking_uri=mlflow_uri(folder))
    experiment = client.get_experiment_by_name("vmselect")
    if experiment is not None:
        experiment_id = experiment.experiment_id
    else:
        experiment_id = client.create_experiment(
            "vmselect", artifact_location=(folder.resolve() / "artifacts").as_uri()
        )
    return client, client.create_run(experiment_id, run_name=name).info.run_id


def _write_mlflow(entry: Entry, folder: Path, name: str | None) -> None:
    client, run_id = _create_mlflow_run(folder, name)
    status = "FAILED"
    try:
        _write_mlflow_run(entry, client, run_id)
        status = "FINISHED"
    finally:
        client.set_terminated(run_id, status)


def _write_wandb_run(entry: Entry, run: Tracker) -> None:
    wandb = _require("wandb")
    run.summary.update(dict(_tagged(entry)))
    run.summary.update({f"vmselect/{entry.kind}/{key}": text for key, text in entry.texts.items()})
    if entry.rows:
        names = list(entry.rows[0])
        data = [
            [_shown(row[name]) if isinstance(row[name], str) else row[name] for name in names] for row in entry.rows
        ]
        run.log({f"vmselect/{entry.kind}/table": wandb.Table(columns=names, data=data)})


def _write_wandb(entry: Entry, folder: Path, name: str | None) -> None:
    wandb = _require("wandb")
    folder.mkdir(parents=True, exist_ok=True)
    with _quiet_wandb(), wandb.init(project="vmselect", name=name, dir=str(folder), mode="offline") as run:
        _write_wandb_run(entry, run)
    wandb.teardown()  # ends the background process of wandb


@contextlib.contextmanager
def _quiet_wandb() -> Iterator[None]:
    """Keep Weights & Biases from printing to the terminal, unless the user has set its variable."""
    before = os.environ.get("WANDB_SILENT")
    os.environ.setdefault("WANDB_SILENT", "true")
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("WANDB_SILENT", None)


_WRITERS = {"tensorboard": _write_tensorboard, "mlflow": _write_mlflow, "wandb": _write_wandb}
_ACTIVE_WRITERS = {"mlflow": _write_mlflow_active, "wandb": _write_wandb_run}


def _require(module: str, name: str | None = None) -> Tracker:
    return require(module, extra="trackers", needed_by=f"Export to {name or module}")


def _tagged(entry: Entry) -> Iterator[tuple[str, float]]:
    return ((f"vmselect/{entry.kind}/{key}", float(number)) for key, number in entry.numbers.items())


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else printable(str(value))
