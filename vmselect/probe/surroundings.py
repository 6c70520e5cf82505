"""What probes that watch no training put into their records beside the times: machine, software, place, factors."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from vmselect.errors import ArgumentError
from vmselect.records.base import Environment, Placement


class MachineFacts(TypedDict):
    """The fields of a record that do not depend on what was measured."""

    environment: Environment
    placement: Placement
    factors: Mapping[str, Any]


def read_facts(*, instance_type: str | None = None, region: str | None = None, model: Any = None) -> MachineFacts:
    """All that can be known of the machine, before anything is timed."""
    from vmselect.probe.framework import read_framework
    from vmselect.probe.hardware import read_machine
    from vmselect.probe.placement import locate
    from vmselect.probe.start import in_notebook

    return {
        "environment": Environment(**{**read_framework(model), **read_machine(), "notebook": in_notebook()}),
        "placement": locate(instance_type=instance_type, region=region),
        "factors": read_factors(os.environ),
    }


def read_factors(variables: Mapping[str, str]) -> dict[str, Any]:
    """What a sweep says it varied, from ``VMSELECT_FACTORS``."""
    text = variables.get("VMSELECT_FACTORS", "").strip()
    try:
        factors = json.loads(text) if text else {}
    except ValueError:
        factors = None
    if not isinstance(factors, dict) or not all(isinstance(v, (bool, int, float, str)) for v in factors.values()):
        raise ArgumentError(
            'VMSELECT_FACTORS must be a JSON object of plain values, such as {"batch_size": 64}. Correct or unset it.'
        )
    return factors


def destination(path: Path | None) -> str | None:
    """Where a record goes: the path given, else the folder that ``VMSELECT_FOLDER`` names, else nowhere."""
    return str(path) if path is not None else os.environ.get("VMSELECT_FOLDER") or None


def check_destination(path: str | None) -> None:
    """Find out now, before anything is measured, whether the record can be written later."""
    from vmselect._files import check_writable, is_folder
    from vmselect.records.folder import check_replaceable

    if path is not None:
        check_writable(path)
        if not is_folder(Path(path)):
            check_replaceable(Path(path))
