"""Compare two checkouts: estimates, rankings and tests must be bit-identical after a refactoring.

Usage::

    python tests/benchmarks/compare_checkouts.py OLD NEW [--allow KIND ...] [--keep FOLDER]

OLD writes a folder of records: those of tests/data, published times, and synthetic ones from a fixed seed. Both
checkouts then read that folder in a process of their own and compute the same cases through the public API. Floats are
compared by ``float.hex``; names of machines, orders, codes and refusals must be equal too. Text is not compared.
The exit status is 1 if a kind differs that ``--allow`` does not name.
"""

from __future__ import annotations

import argparse
import copy
import csv
import dataclasses
import inspect
import itertools
import json
import math
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "data"
SEED = 22
RENAMED = {
    "between": "interpolated",
    "beyond": "extrapolated",
    "doubt": "warning",
    "note": "info",
    "epochs-beyond": "epochs-extrapolated",
    "batch-size-between": "batch-size-interpolated",
    "batch-size-beyond": "batch-size-extrapolated",
    "fit-left-out": "fit-excluded",
}
"""Words of results that a refactoring renamed on purpose. Both sides are translated before they are compared."""

MACHINES = {
    "p3.2xlarge": "aws", "p3.8xlarge": "aws", "p2.xlarge": "aws", "p2.8xlarge": "aws", "p2.16xlarge": "aws",
    "g4dn.xlarge": "aws", "g4dn.12xlarge": "aws", "g5.xlarge": "aws", "g6.xlarge": "aws", "c5.4xlarge": "aws",
    "Standard_NC6s_v3": "azure", "Standard_NC4as_T4_v3": "azure", "Standard_NC24ads_A100_v4": "azure",
    "a2-highgpu-1g": "gcp", "g2-standard-4": "gcp", "lab-one": "lab", "lab-two": "lab", "lab-none": "lab",
}  # fmt: skip
NAMES = sorted(MACHINES, key=len, reverse=True)
MARKETS = ["on_demand", "spot", "reserved_1y", "reserved_3y"]
DATES = ["2021-02-28", "2026-08-22"]
METHODS = [
    "robust", "malta-epoch", "malta-iteration", "malta-iteration-no-validation", "malta-iteration:second",
    "malta-iteration:mean-2-10", "malta-iteration-no-validation:second", "malta-iteration-no-validation:mean-2-10",
]  # fmt: skip


# -- records, written by the old checkout ------------------------------------------------------------------------------


def write_records(folder: Path) -> None:
    """Write every record that both checkouts read. Runs in the old checkout."""
    import vmselect as vs
    from vmselect.records import InferenceRecord, TransferRecord

    for kind in ("profiles", "convergence", "inference", "transfer"):
        for path in sorted((DATA / kind).glob("*.json")):
            target = folder / "frozen" / f"{kind}-{path.name}"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    pick = random.Random(SEED)
    frozen = json.loads((DATA / "profiles" / "format-3.json").read_text(encoding="utf-8"))
    for number in range(120):
        _write(folder / "varied" / f"{number:03}.json", _vary(frozen, pick, number))
    for machine, provider in MACHINES.items():
        speed = pick.uniform(0.3, 2.0)
        for batch, repetition in itertools.product((32, 128, 512), range(2)):
            made = _steady(frozen, pick, machine, provider, batch, speed)
            _write(folder / "machines" / f"{machine}-{batch}-{repetition}.json", made)
    for nodes, repetition in itertools.product((1, 2, 4), range(2)):
        made = _steady(frozen, pick, "g5.xlarge", "aws", 128, nodes**0.8)
        made["environment"] |= {"workers": nodes, "replicas": nodes}
        made["factors"] = {"nodes": nodes}
        _write(folder / "nodes" / f"{nodes}-{repetition}.json", made)
    for repetition, number in itertools.product(range(2), (1, 2, 3)):
        made = _steady(frozen, pick, "g5.xlarge", "aws", 128, 1.0 / number)
        made["fit"] = {"number": number, "process": f"1-{repetition}", "name": f"stage {number}"}
        made["setup"]["structure"] = f"{number:016x}"
        _write(folder / "fits" / f"{repetition}-{number}.json", made)
    for number in range(40):
        made = _steady(frozen, pick, pick.choice(NAMES), "aws", 128, 1.0)
        _use(made, pick)
        _write(folder / "usage" / f"{number:02}.json", made)
    for number, given in enumerate(_published()):
        path = folder / "published" / f"{number:03}.json"
        path.parent.mkdir(exist_ok=True)
        vs.Profile.from_times(**given).save(path)
    (folder / "inference").mkdir()
    for machine, batch, repetition in itertools.product(NAMES[:12], (1, 32), range(2)):
        mean = pick.uniform(0.002, 0.05) * batch**0.5
        InferenceRecord.from_times(
            instance_type=machine, batch_size=batch, clients=1 + batch // 32, model="served",
            call_seconds=[mean * pick.lognormvariate(0, 0.2) for _ in range(300)],
            first_seconds=pick.choice([None, 2.0]),
        ).save(folder / "inference" / f"{machine}-{batch}-{repetition}.json")  # fmt: skip
    (folder / "transfer").mkdir()
    for machine, repetition in itertools.product(NAMES[:-2], range(2)):
        TransferRecord.from_times(
            instance_type=machine, url="s3://bucket", megabytes=64, provider=MACHINES[machine],
            upload_seconds=[pick.uniform(0.5, 2) for _ in range(6)],
            download_seconds=[pick.uniform(0.3, 1) for _ in range(6)], egress_usd_per_gb=0.09,
        ).save(folder / "transfer" / f"{machine}-{repetition}.json")  # fmt: skip
    for name, patience in (("early", 2), ("late", 5)):
        _write(folder / "studies" / f"{name}.json", _study(pick, patience))


def _write(path: Path, record: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record), encoding="utf-8")


def _identity(pick: random.Random) -> dict[str, Any]:
    return {"id": f"{pick.getrandbits(128):032x}", "created": f"2026-11-{pick.randint(1, 28):02}T00:00:00Z"}


def _place(machine: str, provider: str) -> dict[str, Any]:
    given = {"instance_type": machine, "provider": provider}
    return {name: {"value": value, "source": "argument"} for name, value in given.items()}


def _columns(rows: Sequence[tuple[int, int, float, int, str]], *, lost: int = 0) -> dict[str, Any]:
    epoch, batch, seconds, covers, label = map(list, zip(*rows, strict=True)) if rows else ([], [], [], [], [])
    return {
        "epoch": epoch, "batch": batch, "seconds": seconds, "covers": covers, "label": label,
        "readings": len(rows) + lost, "steps": sum(covers) + lost, "total_seconds": sum(seconds),
    }  # fmt: skip


def _vary(frozen: dict[str, Any], pick: random.Random, number: int) -> dict[str, Any]:
    """A profile with some of everything that a probe can record."""
    made = copy.deepcopy(frozen) | _identity(pick)
    made["placement"] = _place("g4dn.xlarge", "aws")
    made["factors"] = {}
    made.pop("fit")
    step, covers = pick.choice([0.001, 0.02, 0.5]), pick.choice([1, 1, 1, 4])
    whole, parts, partial = pick.random() < 0.25, pick.random() < 0.7, pick.choice([0, 0, 52])
    validates, count_epochs = pick.random() < 0.7, pick.choice([1, 2, 2, 3, 6])
    rows: list[tuple[int, int, float, int, str]] = []
    epochs, validations, boundaries = [], [], []
    for epoch in range(count_epochs):
        count = 0 if whole else pick.choice([3, 6, 12, 21, 40])
        taken = []
        for index in range(count):
            seconds, label = step * covers * (1 + abs(pick.gauss(0, 0.1))), "steady"
            if index == 0:
                label = "opening" if epoch else "first"
                seconds = 2 * seconds if epoch else seconds + 3 * pick.random()
            elif index == count - 1 and partial:
                seconds, label = 0.7 * seconds, "partial"
            elif epoch == 0 and index < 4 and pick.random() < 0.5:
                seconds, label = 3 * seconds, pick.choice(["warmup", "steady"])
            elif pick.random() < 0.04:
                seconds *= pick.choice([3, 12])
            taken.append((epoch, (index + 1) * covers - 1, seconds, covers, label))
        rows += taken
        complete = whole or pick.random() < 0.3
        length = sum(row[2] for row in taken) or step * 100 * (1 + abs(pick.gauss(0, 0.1))) + 2 * (epoch == 0)
        epochs.append({"epoch": epoch, "seconds": length, "steps": covers * count or None, "complete": complete})
        if complete and pick.random() < 0.5:
            epochs[-1] |= {"opening_seconds": 0.2 * length, "closing_seconds": 0.1 * length}
        if validates:
            batches = [step * pick.random() for _ in range(pick.choice([1, 5, 9]))]
            validations.append(
                {"epoch": epoch, "seconds": sum(batches) + 0.01, "batches": len(batches), "batch_seconds": batches,
                 "truncated": pick.random() < 0.2}
            )  # fmt: skip
        between = pick.random() * step * pick.choice([1, 5, 200])
        boundaries.append(
            {"epoch": epoch, "seconds": between, "before_validation_seconds": 0.3 * between if parts else None,
             "epoch_end_seconds": 0.2 * between if parts and number % 2 else None, "truncated": not complete,
             "final": epoch == count_epochs - 1}
        )  # fmt: skip
    pauses = [
        {"cause": "garbage collection", "epoch": 0, "batch": index, "seconds": 0.1 / (index + 1) ** 2}
        for index in range(number % 4)
    ]
    made["outcome"], made["probe"] = ("watched", "epoch") if whole else ("stopped", "iteration")
    made["setup"] |= {
        "steps_per_epoch": pick.choice([10, 50, 333]), "examples": pick.choice([None, 5_000]),
        "partial_batch": partial, "steps_per_execution": covers, "validation_freq": pick.choice([1, 1, 2]),
        "self_tuning_input": pick.choice([None, True, False]), "saving": pick.choice([None, "best", "epochs"]),
        "continuous_input": pick.choice([None, True]),
        "validations_per_epoch": pick.choice([None, None, None, 2.0]),
    }  # fmt: skip
    made["environment"] |= {"backend": pick.choice(["tensorflow", "jax", "torch"]), "usable_cores": pick.choice([2, 8])}
    made["timeline"] |= {
        "steps": _columns(rows, lost=pick.choice([0, 0, 9])), "epochs": epochs, "validations": validations,
        "boundaries": boundaries, "pauses": pauses, "wall_seconds": 10.0, "cpu_seconds": pick.choice([2.0, 15.0]),
        "init_seconds": pick.uniform(1, 9),
    }  # fmt: skip
    return made


def _steady(
    frozen: dict[str, Any], pick: random.Random, machine: str, provider: str, batch: int, speed: float
) -> dict[str, Any]:
    """A plain profile of a machine at a batch size: steps with noise, two validations."""
    made = copy.deepcopy(frozen) | _identity(pick)
    made["placement"] = _place(machine, provider)
    made["factors"] = {}
    made.pop("fit")
    step = (0.004 + 0.0002 * batch) / speed
    steps = math.ceil(50_000 / batch)
    rows: list[tuple[int, int, float, int, str]] = []
    for epoch in range(2):
        for index in range(25):
            label = "steady" if index else ("opening" if epoch else "first")
            slow = 1.0 if index else (1.5 if epoch else 40.0)
            rows.append((epoch, index, slow * step * (1 + abs(pick.gauss(0, 0.05))), 1, label))
    made["setup"] |= {
        "batch_size": batch, "worker_batch_size": batch, "steps_per_epoch": steps, "examples": 50_000,
        "partial_batch": 50_000 % batch, "validation_examples": 10_000, "validation_steps": math.ceil(10_000 / batch),
    }  # fmt: skip
    made["environment"]["backend"] = "jax"
    epochs = [
        {"epoch": epoch, "seconds": sum(row[2] for row in rows if row[0] == epoch), "steps": 25, "complete": False}
        for epoch in range(2)
    ]
    made["timeline"] |= {
        "init_seconds": pick.uniform(3, 9), "steps": _columns(rows), "epochs": epochs, "pauses": [],
        "validations": [
            {"epoch": epoch, "seconds": pick.uniform(1, 2) / speed, "batches": made["setup"]["validation_steps"]}
            for epoch in range(2)
        ],
        "boundaries": [
            {"epoch": epoch, "seconds": 0.05, "truncated": True, "final": epoch == 1} for epoch in range(2)
        ],
    }  # fmt: skip
    return made


def _use(made: dict[str, Any], pick: random.Random) -> None:
    """Add sampled utilization and input waits, so that every diagnosis has something to report."""

    def summary(mean: float) -> dict[str, float]:
        return {"count": 40, "seconds": 20.0, "mean": mean, "maximum": 1.2 * mean, "p50": mean, "p95": 1.1 * mean}

    def share() -> float:
        return pick.choice([0.02, 0.2, 0.5, 0.9, 0.99])

    quantities = {
        name: summary(share())
        for name in (
            "usable_cpu_share", "cpu_pressure_share", "steal_share", "memory_available_share",
            "memory_pressure_share", "container_memory_share", "container_throttled_share", "io_pressure_share",
            "gpu0_busy_share", "gpu0_throttled_by_heat_share", "gpu0_throttled_by_power_share",
        )
    }  # fmt: skip
    quantities["process_cores"] = summary(pick.choice([0.3, 1.0, 1.9, 7.5]))
    quantities["other_cores"] = summary(pick.choice([0.0, 0.5, 1.8]))
    quantities["gpu0_temperature_celsius"] = summary(80.0)
    for name in ("swap_bytes_per_second", "disk_bytes_per_second", "process_bytes_per_second"):
        quantities[name] = summary(pick.choice([0.0, 1e8]))
    cores = pick.choice([1, 2, 8])
    limits = {"cores": cores, "container_cores": pick.choice([None, 1.0]), "container_memory_bytes": None}
    made["usage"] = {"interval_seconds": 0.5, "limits": limits, "phases": {"steady_steps": quantities}}
    made["environment"] |= {"usable_cores": cores, "cpu_cores": cores}
    made["environment"]["peak_gpu_memory_bytes"] = pick.choice([1_000_000_000, 17_000_000_000])
    waited = pick.choice([0.0, 0.05, 0.2, 0.6, 0.95])
    made["timeline"]["input_wait"] = {"seconds": 20 * waited, "wall_seconds": 20.0, "steps": 50, "method": "iterator"}


def _published() -> Iterator[dict[str, Any]]:
    """Times of the dissertation and of other studies, as arguments of ``Profile.from_times``."""
    for row in _rows(DATA / "malta" / "malta-estimates.csv"):
        times = {
            "instance_type": row["instance_type"], "batch_size": int(row["batch_size"]), "model": row["application"],
            "init_seconds": float(row["init_s"]), "epochs": int(row["epochs"] or 13),
            "total_seconds": float(row["real_s"]) if row["real_s"] else None,
        }  # fmt: skip
        if row["first_epoch_s"]:
            times |= {"first_epoch_seconds": float(row["first_epoch_s"])}
            times |= {"later_epoch_seconds": [float(row["epoch_s"])]}
        else:
            times |= {"first_iteration_seconds": float(row["first_iteration_s"]), "steps_per_epoch": 159}
            times |= {"iteration_seconds": [float(row["iteration_s"])] * 9}
            times |= {"validation_seconds": [float(row[name]) for name in ("val1_s", "val2_s") if row[name]] or None}
        yield times
    for row in _rows(DATA / "malta" / "malta-runtimes.csv"):
        mean, spread = float(row["mean_s"]), float(row["std_s"] or 0)
        yield {
            "instance_type": row["instance_type"], "batch_size": int(row["batch_size"]), "model": row["application"],
            "init_seconds": 1.0, "first_epoch_seconds": mean / 8,
            "later_epoch_seconds": [mean / 13, (mean + spread) / 13, max(0.1, mean - spread) / 13],
        }  # fmt: skip
    for row in _rows(DATA / "studies" / "published.csv"):
        if row["study"] == "frameworks" and row["unit"] in ("s", "h") and float(row["value"]) > 0:
            seconds = float(row["value"]) * (3600 if row["unit"] == "h" else 1)
            yield {
                "instance_type": row["machine"] or "lab-one", "provider": row["provider"].lower() or None,
                "model": row["item"] or "framework", "init_seconds": 0.0,
                "first_epoch_seconds": seconds / 9, "later_epoch_seconds": [seconds / 10],
            }  # fmt: skip


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _study(pick: random.Random, patience: int) -> dict[str, Any]:
    runs = []
    for batch, _ in itertools.product((32, 128, 512), range(3)):
        length = pick.randint(9, 25)
        curve = [1 - math.exp(-(epoch + 1) * pick.uniform(0.15, 0.3)) for epoch in range(length)]
        ends = pick.random() < 0.75
        runs.append(
            {"created": f"2026-11-{pick.randint(1, 28):02}T00:00:00Z", "batch_size": batch, "model": "small_cnn",
             "rule": {"monitor": "val_accuracy", "mode": "max", "patience": patience, "min_delta": 0.0,
                      "start_from_epoch": 0},
             "parameters": 1234, "epochs_run": float(length), "ended": True,
             "curve": {"epoch": list(range(1, length + 1)), "value": curve},
             "metrics": {"val_accuracy": curve[-1]}, "fit_seconds": 30.0 * length, "instance_type": "g4dn.xlarge",
             "initial_epoch": 0, **({"stabilised_after": float(length - pick.randint(0, 3))} if ends else {})}
        )  # fmt: skip
    return {"kind": "convergence", "format": 2, **_identity(pick), "writer": "vmselect 0.1.0", "environment": {},
            "placement": {}, "factors": {}, "runs": runs}  # fmt: skip


# -- cases, computed by both checkouts ---------------------------------------------------------------------------------


def _tables(ranking: Any) -> Any:
    """Further tables of a ranking, which older checkouts have as its own methods."""
    return getattr(ranking, "tables", ranking)


CATALOG_OPTIONS = ("gpu_memory_gib", "max_usd_per_hour", "billing", "service", "retired")
WORKLOAD_OPTIONS = ("examples", "validation_examples", "steps_per_epoch", "boot_seconds")
OLD_NAMES = {"retired": "include_retired", "service": "services"}


def rank(profiles: Any, **options: Any) -> Any:
    """Call ``vmselect.rank`` with the options of this script, in the form that the checkout takes.

    An option of the catalog or of the workload is a plain argument in checkouts that have no ``Catalog.where``.
    """
    import vmselect as vs

    deciding = options.pop("decide_at", None)
    required = options.pop("minimum_metric", None)
    if not hasattr(vs.Catalog, "where"):
        options = {OLD_NAMES.get(name, name): value for name, value in options.items()}
        options |= options.pop("scale", {})
        chance = options.pop("chance", None)
        chances = {"deadline_chance": chance, "budget_chance": chance} if chance else {}
        options |= chances | ({"minimum_metric": required} if required is not None else {})
        return vs.rank(profiles, **options, **({"decide_at": deciding} if deciding else {}), recalibrate=False)
    if deciding:  # the last number decides
        options["epochs"] = [*(count for count in options["epochs"] if count != deciding), deciding]
    if required is not None:
        options["epochs"] = options["epochs"].require(required)
    selected = {name: options.pop(name) for name in CATALOG_OPTIONS if name in options}
    if selected:
        options["catalog"] = options["catalog"].where(**selected)
    changed = {name: options.pop(name) for name in WORKLOAD_OPTIONS if name in options}
    if changed:
        options["workload"] = vs.Workload(**changed)
    if "scale" in options:
        options["scale"] = vs.Scale(**options["scale"])
    for name, kind in (("interruptions", vs.Interruptions), ("transfer", vs.serving.Transfer)):
        if isinstance(options.get(name), Mapping):
            options[name] = kind(**options[name])
    return vs.rank(profiles, **options)


def rank_inference(records: Any, **options: Any) -> Any:
    """Rank inference records in the form that the checkout takes."""
    function = public("serving.rank_inference", "rank_inference")
    retired = options.pop("retired", False)
    if retired and "include_retired" in inspect.signature(function).parameters:
        options["include_retired"] = True
    elif retired:
        options["catalog"] = options["catalog"].where(retired=True)
    return function(records, **options)


def estimate(profile: Any, **options: Any) -> Any:
    """Call ``vmselect.estimate`` in the form that the checkout takes."""
    import vmselect as vs

    if "boot_seconds" in options and "boot_seconds" not in inspect.signature(vs.estimate).parameters:
        options["workload"] = vs.Workload(boot_seconds=options.pop("boot_seconds"))
    if "steps_per_epoch" in options and "steps_per_epoch" not in inspect.signature(vs.estimate).parameters:
        options["workload"] = vs.Workload(steps_per_epoch=options.pop("steps_per_epoch"))
    return vs.estimate(profile, **options)


def public(*names: str) -> Any:
    """The first public function of vmselect that exists, as in ``public("stats.effects", "effects")``."""
    import operator

    import vmselect as vs

    for name in names:
        try:
            return operator.attrgetter(name)(vs)
        except AttributeError:
            continue
    raise AttributeError(names[0])


class Answers:
    """Results by kind and case, as plain values that JSON holds without loss."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, Any]] = defaultdict(dict)

    def add(self, kind: str, case: str, compute: Callable[[], Any]) -> Any:
        """Keep what ``compute`` returns; that it was refused is a result as well."""
        from vmselect.errors import VmselectError

        try:
            value = compute()
            plain = _plain(value)
        except VmselectError:
            value, plain = None, "refused"
        except Exception as wrong:  # noqa: BLE001
            value, plain = None, f"crashed: {type(wrong).__name__}: {wrong}"
        if case in self.found[kind]:
            raise ValueError(f"two cases are called {case}")
        self.found[kind][case] = plain
        return value


def _plain(value: Any) -> Any:
    """Floats as hex, words translated, containers as lists and objects; anything else is text and left out."""
    import numpy as np
    import pandas as pd

    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, float, np.integer, np.floating)):
        return float(value).hex()
    if value is None or value is pd.NaT:
        return None
    if isinstance(value, str):
        return RENAMED.get(value, value)
    if isinstance(value, pd.DataFrame):
        index = [] if isinstance(value.index, pd.RangeIndex) else list(value.index)
        return {"index": _plain(index), **{str(name): _plain(list(value[name])) for name in value.columns}}
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, (Sequence, np.ndarray, Iterator)):
        return [_plain(item) for item in value]
    raise TypeError(f"no plain form of {type(value).__name__}")


def _numbers(value: Any) -> list[Any]:
    """The numbers of an object in the order of its fields, whatever their names and however they are nested."""
    if isinstance(value, str):
        return []
    if value is None or isinstance(value, (bool, int, float)):
        return [value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [n for field in dataclasses.fields(value) for n in _numbers(getattr(value, field.name))]
    if isinstance(value, Mapping):
        return [number for item in value.values() for number in _numbers(item)]
    if isinstance(value, Iterable):
        return [number for item in value for number in _numbers(item)]
    return []


def _machine(text: Any) -> str:
    """The machine that a title names."""
    return next((name for name in NAMES if name in str(text)), "")


def _codes(findings: Iterable[Any]) -> list[list[str]]:
    return sorted([RENAMED.get(word, word) for word in (finding.code, finding.severity)] for finding in findings)


def _first(holder: Any, *names: str) -> Any:
    """The first of these attributes that exists: names that were changed have the new one first."""
    return next(getattr(holder, name) for name in names if hasattr(holder, name))


def _estimate(found: Any) -> dict[str, Any]:
    return {
        "seconds": [found.seconds, found.low, found.high], "terms": dict(found.terms), "codes": _codes(found.findings)
    }  # fmt: skip


ROW = (
    "rank", "instance_type", "provider", "service", "region", "market", "batch_size", "epochs", "seconds",
    "seconds_low", "seconds_high", "usd_per_hour", "price_date", "cost_usd", "cost_low", "cost_high", "score",
    "tied_with_best", "pareto", "gpu_model", "gpu_count", "vcpus", "memory_gib", "basis",
)  # fmt: skip
SERVING_ROW = (
    "rank", "instance_type", "provider", "region", "market", "batch_size", "clients", "items_per_second",
    "items_per_second_low", "items_per_second_high", "usd_per_hour", "usd_per_million_items", "usd_per_million_low",
    "usd_per_million_high", "items_per_usd", "load", "instances", "hourly_usd", "latency_seconds", "score",
    "tied_with_best", "price_date",
)  # fmt: skip


def _ranking(ranking: Any) -> dict[str, Any]:
    return {
        "rows": [
            [getattr(row, name) for name in ROW]
            + [
                dict(row.terms),
                {name: measure and list(measure) for name, measure in row.measures.items()},
                dict(row.factors),
            ]
            for row in ranking.rows[:150]
        ],
        "count": len(ranking),
        "pareto": [row.instance_type for row in ranking.pareto],
        "excluded": [[_machine(one.candidate), one.reason_code, one.epochs] for one in ranking.excluded[:150]],
        "excluded count": len(ranking.excluded),
    }


def compute(folder: Path) -> dict[str, dict[str, Any]]:
    """Every case, by kind."""
    import vmselect as vs

    answers = Answers()
    load = {
        part.name: [(path.stem, vs.load_records(path)[0]) for path in sorted(part.glob("*.json"))]
        for part in sorted(folder.iterdir())
        if part.is_dir() and part.name != "studies"
    }
    catalogs = {date: vs.Catalog.embedded(date) for date in DATES}
    own = [
        {"provider": "lab", "instance_type": name, "region": "here", "market": market, "usd_per_hour": price}
        for name, price in (("lab-one", 1.5), ("lab-two", 0.75))
        for market in MARKETS[:2]
    ]
    catalogs["own"] = catalogs[DATES[1]].with_offers(own)
    machines = [one for _, one in load["machines"]]
    _equations(answers)
    _catalogs(answers, catalogs)
    _estimates(answers, load)
    _rankings(answers, machines, catalogs, load)
    _unprobed(answers, machines, catalogs[DATES[1]])
    _studies(answers, machines, catalogs, folder)
    _serving(answers, [one for _, one in load["inference"]], catalogs)
    _comparisons(answers, load, catalogs)
    for group in ("frozen", "varied", "machines", "usage"):
        for name, record in load[group]:
            if record.kind != "convergence":
                answers.add("finding codes", f"{group} {name}", lambda record=record: _codes(record.findings))
            if record.kind == "training":
                answers.add(
                    "diagnosis",
                    f"{group} {name}",
                    lambda record=record: [
                        [cause.code, RENAMED.get(cause.severity, cause.severity), dict(cause.evidence)]
                        for cause in vs.diagnose(record)
                    ],
                )
    return answers.found


def _equations(answers: Answers) -> None:
    from vmselect import equations

    pick = random.Random(SEED)
    for name in (
        "epoch_runtime", "epoch_runtime_with_init", "epoch_time", "iteration_runtime",
        "iteration_runtime_without_validation",
    ):  # fmt: skip
        function = getattr(equations, name)
        for number in range(20):
            given = {
                argument: pick.randint(1, 300) if argument in ("epochs", "iterations_per_epoch") else pick.random() * 9
                for argument in inspect.signature(function).parameters
            }
            answers.add("equations", f"{name} {number}", lambda given=given, function=function: function(**given))


def _catalogs(answers: Answers, catalogs: Mapping[str, Any]) -> None:
    for name, catalog in catalogs.items():
        for market, gpu in itertools.product(MARKETS, (None, "T4", "V100", "A100")):
            answers.add(
                "prices",
                f"{name} {market} {gpu}",
                lambda catalog=catalog, market=market, gpu=gpu: [
                    list(frame[column])
                    for frame in [catalog.offers(market=market, gpu=gpu).head(2_000)]
                    for column in ("provider", "instance_type", "region", "usd_per_hour")
                ],
            )


def _estimates(answers: Answers, load: Mapping[str, Any]) -> None:
    import vmselect as vs

    profiles = [
        (f"{group} {name}", one)
        for group in ("frozen", "varied", "published", "usage", "nodes")
        for name, one in load[group]
        if one.kind == "training"
    ]
    for (name, profile), method in itertools.product(profiles, METHODS):
        for epochs in (1, 2, 50):
            answers.add(
                "estimates",
                f"{name} {method} {epochs}",
                lambda p=profile, m=method, e=epochs: _estimate(estimate(p, epochs=e, method=m)),
            )
    changes: list[dict[str, Any]] = [
        {"examples": 7_777}, {"validation_examples": 99}, {"steps_per_epoch": 17.5}, {"confidence": 0.99},
        {"confidence": 0.5, "boot_seconds": 60.0}, {"examples": 123, "validation_examples": 0},
        {"workload": {"validation_steps": 3, "validation_freq": 2}}, {"workload": {"partial_batch": 7}},
    ]  # fmt: skip
    for (name, profile), (number, change) in itertools.product(profiles, enumerate(changes)):
        options = dict(change)
        if "workload" in options:
            options["workload"] = vs.Workload(**options["workload"])
        answers.add(
            "estimates of other workloads",
            f"{name} {number}",
            lambda p=profile, o=options: _estimate(estimate(p, epochs=13, **o)),
        )
    by_machine: dict[str, list[Any]] = defaultdict(list)
    for _, one in load["machines"]:
        by_machine[one.instance_type].append(one)
    for (name, some), size, epochs in itertools.product(
        by_machine.items(), (16, 32, 100, 128, 300, 512, 1024), (1, 30)
    ):
        answers.add(
            "estimates of batch sizes",
            f"{name} {size} {epochs}",
            lambda some=some, size=size, epochs=epochs: _estimate(estimate(some, epochs=epochs, batch_size=size)),
        )
    for name, some in by_machine.items():
        small, large = ([one for one in some if one.batch_size == size] for size in (32, 512))
        for number, phases in enumerate([[(3, small[0]), (9, large[0])], [(5, small[0]), (2, 0.5), (1, 2.0)]]):
            answers.add(
                "estimates of phases",
                f"{name} {number}",
                lambda small=small, phases=phases: _estimate(estimate(small[0], phases=phases)),
            )
    import vmselect.estimation as estimation

    fits = _first(estimation, "estimate_program", "estimate_fits")
    runs = [one for _, one in load["fits"]]
    for number, some in enumerate((runs, runs[:3], runs[:2])):
        for epochs in (None, 1, 20):
            answers.add(
                "estimates of several fits",
                f"{number} {epochs}",
                lambda some=some, epochs=epochs: [
                    [found.seconds, found.low, found.high, [_estimate(fit.estimate) for fit in found.fits]]
                    for found in [fits(some, epochs=epochs)]
                ],
            )


def _rankings(answers: Answers, machines: list[Any], catalogs: Mapping[str, Any], load: Mapping[str, Any]) -> None:

    objectives: list[Any] = ["cost", "time", {"cost": 0.7, "time": 0.3}, {"cost": 0.1, "time": 0.9}]
    moved = {"data_gb": 18, "model_gb": 0.5}
    records = [one for _, one in load["transfer"]]
    options: list[dict[str, Any]] = [
        {"batch_size": 128},
        {"batch_size": "all", "epochs": 20},
        {"batch_size": [64, 256, 1024], "epochs": 20},
        {"batch_size": 128, "epochs": [1, 5, 50], "decide_at": 5},
        {"batch_size": 128, "market": MARKETS, "region": "us-east-1"},
        {"batch_size": 128, "deadline_hours": 0.3},
        {"batch_size": 128, "budget_usd": 0.2},
        {"batch_size": 128, "deadline_hours": 0.5, "budget_usd": 0.3, "epochs": [1, 10, 100]},
        {"batch_size": 128, "market": "spot", "interruptions": {"per_hour": 0.2, "checkpoint_minutes": 20}},
        {"batch_size": 128, "market": MARKETS, "billing": "provider",
         "interruptions": {"mean_uptime_hours": 3, "checkpoint_minutes": 30, "restart_minutes": 7}},
        {"batch_size": 128, "transfer": {**moved, "records": records}},
        {"batch_size": 128,
         "transfer": {**moved, "download_seconds_per_mb": 0.01, "upload_seconds_per_mb": 0.02, "usd_per_gb": 0.05}},
        {"batch_size": 128, "confidence": 0.6, "boot_seconds": 90.0, "examples": 20_000},
        {"batch_size": 128, "method": "malta-iteration", "retired": True},
        {"batch_size": 128, "region": ["us-east-1", "eu-west-1"], "validation_examples": 0},
    ]  # fmt: skip
    for (name, catalog), (number, option), objective in itertools.product(
        catalogs.items(), enumerate(options), objectives
    ):
        if name != DATES[1] and objective not in ("cost", "time"):
            continue
        case = f"{name} {number} {objective}"
        given = {"epochs": 40, "catalog": catalog, "objective": objective, **option}
        found: list[Any] = []
        answers.add(
            "rankings",
            case,
            lambda given=given, found=found: _ranking(found.append(rank(machines, **given)) or found[0]),
        )
        if not found or objective == "time":
            continue
        ranking = found[0]
        answers.add(
            "ranking codes", case, lambda r=ranking: [_codes(r.findings), [_codes(w.findings) for w in r.rows[:50]]]
        )
        for measure in ("cost", "time"):
            answers.add(
                "ranking views", f"{case} relative {measure}", lambda r=ranking, m=measure: _values(r.relative(m))
            )
            answers.add(
                "ranking views",
                f"{case} strategies {measure}",
                lambda r=ranking, m=measure: _values(_tables(r).strategies(m)),
            )
            answers.add(
                "ranking views",
                f"{case} crossovers {measure}",
                lambda r=ranking, m=measure: [
                    [one.epochs, _machine(one.previous), _machine(one.winner)] for one in r.crossovers(m)
                ],
            )
            answers.add(
                "ranking views",
                f"{case} settled {measure}",
                lambda r=ranking, m=measure: _tables(r).settled_from(m),
            )
        answers.add(
            "ranking views",
            f"{case} against",
            lambda r=ranking: _values(_tables(r).relative_to("g4dn.xlarge")),
        )
        answers.add("ranking views", f"{case} selection cost", lambda r=ranking: _numbers(r.selection_cost()))
        answers.add(
            "rankings",
            f"{case} again",
            lambda r=ranking: _ranking(r.rerank(epochs=[3, 300], objective="time", deadline_hours=2)),
        )
    nodes = [one for _, one in load["nodes"]]
    for epochs, objective in itertools.product((5, [10, 100]), objectives[:3]):
        answers.add(
            "rankings of several nodes",
            f"{epochs} {objective}",
            lambda e=epochs, o=objective: _ranking(rank(nodes, epochs=e, objective=o, catalog=catalogs[DATES[1]])),
        )
    answers.add(
        "rankings of several nodes",
        "scaling",
        lambda: [_numbers(row) for row in public("stats.scaling", "scaling")(nodes, epochs=20).rows],
    )
    published: dict[Any, list[Any]] = defaultdict(list)
    for _, one in load["published"]:
        published[one.model, one.batch_size, bool(one.timeline.epochs)].append(one)
    for (model, size, whole), some in published.items():
        answers.add(
            "rankings of published times",
            f"{model} {size} {whole}",
            lambda some=some, whole=whole: _ranking(
                rank(
                    some, epochs=[5, 10, 20], catalog=catalogs[DATES[0]],
                    method="malta-epoch" if whole else "malta-iteration",
                )
            ),
        )  # fmt: skip


JSON_TEXTS = ("title", "findings", "candidate", "verdict", "reason")
PAGE_ROW = ("epochs", "seconds", "seconds_low", "seconds_high", "cost_usd", "cost_low", "cost_high", "score", "chance")

PAGE_SCRIPT = """(() => {
    const report = readReport(payload);
    const view = rank(report.candidates, { ...report.initial }, report.excluded);
    return view.rows.map((row) => [row.candidate.instance_type, ...names.map((name) => row[name])]);
})()"""


def _unprobed(answers: Answers, machines: list[Any], catalog: Any) -> None:
    """Rankings with machines that were never probed: their JSON, and what the script of the page computes from it."""
    probed = [profile for profile in machines if profile.instance_type in ("g4dn.xlarge", "p3.2xlarge", "g5.xlarge")]
    one_probe = [profile for profile in probed if profile.instance_type == "g4dn.xlarge"]
    options: list[dict[str, Any]] = [
        {},
        {"objective": "time"},
        {"objective": {"cost": 0.6, "time": 0.4}, "deadline_hours": 0.5},
        {"epochs": [5, 50], "budget_usd": 0.5, "chance": 0.8},
        {"market": ["on_demand", "spot"], "interruptions": {"per_hour": 0.1, "checkpoint_minutes": 20}},
        {"history": machines, "max_usd_per_hour": 4.0},
        {"gpu_memory_gib": 20.0, "billing": "provider"},
        {"scale": {"gpus": [1, 2, 4, 8]}},
    ]  # fmt: skip
    for (name, profiles), (number, option) in itertools.product(
        {"three probes": probed, "one probe": one_probe}.items(), enumerate(options)
    ):
        given = {"epochs": 40, "batch_size": 128, "catalog": catalog, "machines": "all", **option}
        made: list[Any] = []
        case = f"{name} {number}"
        answers.add(
            "JSON of unprobed machines",
            case,
            lambda p=profiles, g=given, made=made: _json(made.append(rank(p, **g)) or made[0]),
        )
        if made:
            answers.add("page of unprobed machines", case, lambda made=made: _page(made[0]))


def _json(ranking: Any) -> dict[str, Any]:
    data = json.loads(ranking.to_json())
    rows = [{name: value for name, value in row.items() if name not in JSON_TEXTS} for row in data["rows"]]
    return {
        "rows": rows,
        "excluded": [[_machine(item["candidate"]), item["reason_code"]] for item in data["excluded"]],
        "regret": data["expected_regret"],
        "next probe": _numbers(data["next_probe"]),
        "scaling": [_numbers(row) for row in data["scaling"]["rows"]],
        "codes": sorted(finding["code"] for finding in data["findings"]),
    }


def _page(ranking: Any) -> list[Any]:
    """The rows of the report page, computed by its own script."""
    support = str(Path(sys.argv[2]) / "tests" / "support")
    if support not in sys.path:
        sys.path.insert(0, support)
    from scripts import Scripts

    from vmselect.report.page import page_data

    engine = Scripts()
    try:
        found = engine.call(PAGE_SCRIPT, payload=page_data(ranking), names=PAGE_ROW)
    finally:
        engine.close()
    return list(found)


def _values(frame: Any) -> list[Any]:
    """The numbers of a table and the machines of its index; its other words are text."""
    return [[_machine(name) for name in frame.index], [[*map(float, row)] for row in frame.to_numpy()]]


def _studies(answers: Answers, machines: list[Any], catalogs: Mapping[str, Any], folder: Path) -> None:
    import vmselect as vs

    studies = {path.stem: vs.ConvergenceStudy.load(path) for path in sorted((folder / "studies").glob("*.json"))}
    studies["counts"] = vs.ConvergenceStudy.from_epochs(
        {32: [11, 12], 128: [13, 15, 14], 512: 24}, metrics={32: 0.95, 128: 0.97, 512: 0.9}, model="small_cnn"
    )
    for name, study in studies.items():
        for size, confidence in itertools.product((16, 32, 48, 128, 300, 512, 1000, 9000), (0.5, 0.9)):
            answers.add("epochs of a study", f"{name} {size} {confidence}", lambda s=study, b=size, c=confidence: [
                [*found, _first(found, "basis", "source")] for found in [s.epochs(b, confidence=c)]
            ])  # fmt: skip
            answers.add("epochs of a study", f"{name} {size} {confidence} metric", lambda s=study, b=size: s.metric(b))
        for number, run in enumerate(study.runs):
            answers.add("epoch forecasts", f"{name} {number}", lambda r=run: _numbers(r.forecast()))
        options: list[dict[str, Any]] = [
            {}, {"objective": "time"}, {"minimum_metric": 0.9}, {"batch_size": [64, 200, 1024]},
            {"objective": {"cost": 0.5, "time": 0.5}, "deadline_hours": 0.4},
        ]  # fmt: skip
        for date, (number, option) in itertools.product(DATES, enumerate(options)):
            answers.add(
                "selections",
                f"{name} {date} {number}",
                lambda s=study, d=date, o=option: _ranking(rank(machines, epochs=s, catalog=catalogs[d], **o)),
            )
        answers.add(
            "selections",
            f"{name} cost",
            lambda s=study: _numbers(rank(machines, epochs=s, catalog=catalogs["own"]).selection_cost()),
        )


def _serving(answers: Answers, records: list[Any], catalogs: Mapping[str, Any]) -> None:

    percentile = (
        "percentile"
        if "percentile" in inspect.signature(public("serving.rank_inference", "rank_inference")).parameters
        else "percent"
    )
    options: list[dict[str, Any]] = [
        {}, {"load": 50}, {"load": [10, 500, 5_000]}, {"load": 300, "latency_limit_seconds": 0.2},
        {"load": 300, "instances": (1, 100), percentile: 95}, {"market": MARKETS, percentile: 50},
        {"latency_limit_seconds": 0.05, "retired": True}, {"region": "us-east-1", "load": 1_000},
    ]  # fmt: skip
    for (name, catalog), (number, option), objective in itertools.product(
        catalogs.items(), enumerate(options), ("cost", "latency", "throughput")
    ):
        answers.add(
            "rankings for inference",
            f"{name} {number} {objective}",
            lambda c=catalog, o=option, a=objective: [
                [
                    [[getattr(row, field) for field in SERVING_ROW] for row in found.rows[:300]],
                    [[_machine(one.candidate), one.reason_code] for one in found.excluded],
                ]
                for found in [rank_inference(records, catalog=c, objective=a, **o)]
            ],
        )


def _comparisons(answers: Answers, load: Mapping[str, Any], catalogs: Mapping[str, Any]) -> None:
    import vmselect as vs

    def compared(found: Any) -> list[Any]:
        test = [found.test.statistic, found.test.p_value, found.winner, found.baseline]
        return [_numeric(found.groups), _numeric(found.pairs), test]

    def effects(found: Any) -> list[Any]:
        tables = (found.main, found.interactions, found.cells, found.factors)
        return [found.average, *(_numeric(table) for table in tables)]

    pick = random.Random(SEED)
    for number in range(25):
        groups = {
            name: [pick.lognormvariate(pick.random() * 0.3, 0.1) for _ in range(pick.choice([2, 5, 9]))]
            for name in "abcd"[: pick.choice([2, 3, 4])]
        }
        answers.add("comparisons of numbers", f"{number}", lambda g=groups: compared(vs.compare(g, metric="seconds")))
    for number, scale in itertools.product(range(10), ("linear", "log")):
        rows = [
            {"cores": cores, "batch": batch, "data": data, "seconds": 8 / cores + batch / 64 + pick.random()}
            for cores, batch, data, _ in itertools.product((1, 2, 4), (64, 128), ("a", "b"), range(3))
            if pick.random() < 0.95
        ]
        for factors in (["cores"], ["cores", "batch"], ["cores", "batch", "data"]):
            answers.add(
                "effects of numbers",
                f"{number} {scale} {factors}",
                lambda rows=rows, f=factors, s=scale: effects(
                    public("stats.effects", "effects")(rows, factors=f, metric="seconds", scale=s)
                ),
            )
    machines = [one for _, one in load["machines"]]
    for size in (32, 128, 512):
        some = [one for one in machines if one.batch_size == size and one.instance_type in NAMES[:6]]
        for metric, unit in itertools.product(("step_seconds", "total_seconds", "cost_usd"), ("runs", "blocks")):
            options: dict[str, Any] = {} if metric == "step_seconds" else {"epochs": 20}
            if metric == "cost_usd":
                options["catalog"] = catalogs["own"]
            answers.add(
                "comparisons of records",
                f"{size} {metric} {unit}",
                lambda some=some, m=metric, u=unit, o=options: compared(vs.compare(some, metric=m, unit=u, **o)),
            )
    few = [one for one in machines if one.instance_type in NAMES[:4]]
    for scale in ("linear", "log"):
        answers.add(
            "comparisons of records",
            f"effects {scale}",
            lambda s=scale: effects(
                public("stats.effects", "effects")(
                    few, factors=["instance_type", "batch_size"], metric="step_seconds", scale=s
                )
            ),
        )


def _numeric(frame: Any) -> dict[str, Any]:
    """The columns of numbers of a table, by name."""
    return {
        str(name): [None if value is None else float(value) for value in frame[name]]
        for name in frame.columns
        if frame[name].dtype.kind in "biuf"
    }


# -- comparison --------------------------------------------------------------------------------------------------------


def differences(old: Any, new: Any, where: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Every place where two plain values differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(name for name in new if name not in old)]:
            yield from differences(old.get(name, "missing"), new.get(name, "missing"), f"{where}/{name}")
    elif isinstance(old, list) and isinstance(new, list):
        if len(old) != len(new):
            yield f"{where}/length", len(old), len(new)
        for number, (one, other) in enumerate(zip(old, new, strict=False)):
            yield from differences(one, other, f"{where}[{number}]")
    elif old != new:
        yield where, old, new


def count_numbers(value: Any) -> int:
    """How many numbers and words a plain value holds."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 1 if items is None else sum(map(count_numbers, items))


def _show(value: Any) -> str:
    try:
        return repr(float.fromhex(value))
    except (TypeError, ValueError):
        return repr(value)[:200]


def compare_answers(old: dict[str, Any], new: dict[str, Any], *, allowed: Sequence[str], shown: int) -> int:
    """Print a line per kind and the first differences of each. The result is the exit status."""
    failed = False
    total: Counter[str] = Counter()
    for kind in [*old, *(kind for kind in new if kind not in old)]:
        mine, other = old.get(kind, {}), new.get(kind, {})
        numbers = count_numbers(mine)
        refused = sum(value == "refused" for value in mine.values())
        crashed = sum(isinstance(value, str) and value.startswith("crashed") for value in mine.values())
        found = list(differences(mine, other))
        total += Counter(cases=len(mine), values=numbers, differences=len(found))
        verdict = "identical" if not found else f"{len(found)} DIFFER" + (" (allowed)" if kind in allowed else "")
        print(f"{kind:32} {len(mine):6,} cases {numbers:9,} values {refused:5,} refused {crashed:3} crashed  {verdict}")
        for where, before, after in found[:shown]:
            print(f"    {where}: {_show(before)} -> {_show(after)}")
        failed |= bool(found) and kind not in allowed
    print(f"{'total':32} {total['cases']:6,} cases {total['values']:9,} values {total['differences']:,} differences")
    return int(failed)


def start_in(checkout: Path, *arguments: str) -> subprocess.Popen[bytes]:
    """Run this script with the package of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout), "PYTHONHASHSEED": "0"}
    return subprocess.Popen([sys.executable, "-P", Path(__file__).resolve(), *arguments], env=environment, cwd=checkout)


def wait_for(*processes: subprocess.Popen[bytes]) -> None:
    """Wait for all; stop if one failed."""
    statuses = [process.wait() for process in processes]
    if any(statuses):
        raise SystemExit("One of the checkouts could not compute the cases.")


def check_package(checkout: str) -> None:
    """Stop if another vmselect than that of the checkout was imported."""
    import vmselect

    if not Path(vmselect.__file__).resolve().is_relative_to(Path(checkout).resolve()):
        raise SystemExit(f"{vmselect.__file__} is not the package of {checkout}.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--allow", nargs="*", default=[], help="kinds that may differ")
    parser.add_argument(
        "--keep",
        type=Path,
        help="folder for records and results (default: a temporary one); OLD is computed only once there",
    )
    parser.add_argument("--shown", type=int, default=5, help="differences printed per kind")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.keep or Path(scratch)).resolve()
        records = folder / "records"
        old, new = options.old.resolve(), options.new.resolve()
        if not records.exists():
            records.mkdir(parents=True)
            wait_for(start_in(old, "--write", str(old), str(records)))
        targets = {folder / "old.json": old, folder / "new.json": new}
        # Results of the old checkout that were kept by an earlier run are used again.
        wait_for(
            *(
                start_in(checkout, "--dump", str(checkout), str(records), str(target))
                for target, checkout in targets.items()
                if target.name == "new.json" or not target.exists()
            )
        )
        results = [json.loads(target.read_text(encoding="utf-8")) for target in targets]
        return compare_answers(*results, allowed=options.allow, shown=options.shown)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        check_package(sys.argv[2])
        write_records(Path(sys.argv[3]))
    elif sys.argv[1:2] == ["--dump"]:
        check_package(sys.argv[2])
        Path(sys.argv[4]).write_text(json.dumps(compute(Path(sys.argv[3]))), encoding="utf-8")
    else:
        sys.exit(main())
