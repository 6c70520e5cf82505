"""SkyPilot the other way round: our times for its optimizer, our prices and plans in its files."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmselect._checks import check_count, check_name, check_path, list_items
from vmselect._files import write_text
from vmselect.errors import ArgumentError, CatalogError, EstimateError, SweepError
from vmselect.records import Profile

if TYPE_CHECKING:
    from vmselect.catalog import Catalog
    from vmselect.sweeps.plan import Plan

COLUMNS = ("InstanceType", "AcceleratorName", "AcceleratorCount", "vCPUs", "MemoryGiB", "GpuInfo", "Price", "SpotPrice",
           "Region", "AvailabilityZone")  # fmt: skip
"""Of SkyPilot's ``vms.csv``, version 8."""

_DIRECTIONS = {"northeast": "ne", "northwest": "nw", "southeast": "se", "southwest": "sw"}
MOST_ZONES = 6
"""As many as us-east-1 has; no region of AWS has more."""


def skypilot_estimator(profiles: Iterable[Profile], *, epochs: int, **workload: Any) -> Callable[[Any], float]:
    """A function for ``sky.Task.set_time_estimator``: seconds that the training takes on a ``sky.Resources``.

    SkyPilot's optimizer then picks by predicted total instead of price per hour. It must run in this process (its API
    server does not carry estimators), and every resource must name an ``instance_type`` that was probed.
    ``workload`` are arguments of :func:`vmselect.estimate`, such as ``batch_size``.

    >>> import types
    >>> profile = Profile.from_times(instance_type="g5.xlarge", batch_size=64, steps_per_epoch=100,
    ...                              init_seconds=1, first_iteration_seconds=1, iteration_seconds=[0.1, 0.1])
    >>> round(skypilot_estimator([profile], epochs=10)(types.SimpleNamespace(instance_type="g5.xlarge")))
    102
    """
    from vmselect.estimation import fit_runtime

    count = check_count("epochs", epochs)
    if isinstance(profiles, Profile):
        profiles = [profiles]
    groups: dict[str, list[Profile]] = {}
    for profile in list_items(profiles):
        if not isinstance(profile, Profile):
            raise ArgumentError("skypilot_estimator needs profiles. Load them with vmselect.load_profiles.")
        if profile.instance_type:
            groups.setdefault(profile.instance_type, []).append(profile)
    if not groups:
        raise EstimateError("No profile names its instance type. Probe with instance_type=, or by a sweep.")
    models = {name: fit_runtime(several, **workload) for name, several in groups.items()}

    def seconds_on(resources: Any) -> float:
        name = getattr(resources, "instance_type", None)
        if name not in models:
            raise EstimateError(
                f"{name or 'A resource without an instance_type'} was not probed; known: {', '.join(sorted(models))}. "
                "Name one of these in each sky.Resources."
            )
        return float(models[name].at(count).seconds)

    return seconds_on


def write_catalog(catalog: Catalog, path: str | os.PathLike[str], *, provider: str) -> Path:
    """Write our prices of ``provider`` in the layout of SkyPilot's ``~/.sky/catalogs/v8/<provider>/vms.csv``.

    For AWS SkyPilot needs zones, which our prices do not name: every zone is written that a region may have. SkyPilot
    drops those that the account does not have, and tries the next where a machine cannot be had.

    >>> from vmselect.catalog import Catalog
    >>> write_catalog(Catalog.embedded(), "vms.csv", provider="aws").name
    'vms.csv'
    """
    target, name = check_path("path", path), check_name("provider", provider)
    offers = catalog.offers(provider=name, market=["on_demand", "spot"], retired=False)
    if not len(offers):
        raise CatalogError(f"The catalog has no price of {name}. Load or refresh one that has.")
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for offer in offers.to_dict("records"):
        key = (str(offer["instance_type"]), str(offer["region"]))
        row = rows.setdefault(key, dict.fromkeys(COLUMNS, ""))
        row |= {"InstanceType": key[0], "Region": key[1], "vCPUs": _number(offer["vcpus"]),
                "MemoryGiB": _number(offer["memory_gib"])}  # fmt: skip
        if offer["gpu_model"]:
            row |= {"AcceleratorName": offer["gpu_model"], "AcceleratorCount": _number(offer["gpu_count"])}
            row["GpuInfo"] = json.dumps({"Gpus": [{"Name": str(offer["gpu_model"]), "Count": offer["gpu_count"]}]})
        row["Price" if offer["market"] == "on_demand" else "SpotPrice"] = _number(offer["usd_per_hour"])
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for (_, region), row in sorted(rows.items()):
        writer.writerows({**row, "AvailabilityZone": zone} for zone in _zones(name, region))
    return write_text(target, text.getvalue(), error=CatalogError)


def write_tasks(plan: Plan, folder: str | os.PathLike[str]) -> list[Path]:
    """Write each trial as a SkyPilot task in YAML, for those who launch themselves: ``sky launch trial-001.yaml``.

    >>> from vmselect.sweeps import Plan
    >>> plan = Plan("python train.py", runner="skypilot", factors={"instance_type": ["g5.xlarge"]}, minutes=30)
    >>> [path.name for path in write_tasks(plan, "tasks")]
    ['trial-001.yaml']
    """
    from vmselect.sweeps.engine import trial_environment
    from vmselect.sweeps.plan_file import as_yaml
    from vmselect.sweeps.runners.skypilot import IDLE_MINUTES, resources_of

    where, locations = check_path("folder", folder), plan.locations()
    written = []
    for trial in sorted(plan.trials, key=lambda one: one.id):
        task = {
            "name": f"vmselect-{trial.id}",
            "workdir": ".",
            "resources": {
                **resources_of(trial, locations.get(trial.offer, "")),
                "autostop": {"idle_minutes": IDLE_MINUTES, "down": True},
            },
            "num_nodes": trial.nodes,
            "envs": {**trial_environment(trial), "VMSELECT_FOLDER": "records"},
            "run": f"timeout --kill-after=30 {round(plan.minutes * 60)} {trial.command}",
        }
        written.append(write_text(where / f"trial-{trial.id}.yaml", as_yaml(task), error=SweepError))
    return written


def _zones(provider: str, region: str) -> list[str]:
    """How AWS names the zones of a region for every account alike.

    >>> _zones("aws", "ap-southeast-2")[0], _zones("azure", "eastus")
    ('apse2-az1', [''])
    """
    if provider != "aws":
        return [""]
    continent, *direction, number = region.split("-")
    letters = "".join(_DIRECTIONS.get(word, word[:1]) for word in direction)
    return [f"{continent}{letters}{number}-az{zone}" for zone in range(1, MOST_ZONES + 1)]


def _number(value: Any) -> Any:
    return "" if value is None or value != value else value
