"""Check of GPU memory: exclude machine estimates whose batch size does not fit, and warn if it barely fits.

A machine that was measured at its batch size is not checked, because the training ran there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from vmselect.catalog import Catalog
from vmselect.findings import Finding
from vmselect.gpu_memory import read_peak, reported_bytes
from vmselect.prediction.hardware import Machine, MachineTypes, Refusal
from vmselect.prediction.memory import UNKNOWN_MEMORY, MemoryCheck
from vmselect.ranking.estimates import MachineEstimate
from vmselect.ranking.rows import Excluded
from vmselect.records import Profile
from vmselect.records.identity import count_nodes, identify, other_settings


def check_gpu_memory(
    estimates: Sequence[MachineEstimate], profiles: Sequence[Profile], catalog: Catalog
) -> tuple[list[MachineEstimate], list[Excluded], tuple[Finding, ...]]:
    """Estimates that fit into GPU memory, exclusions, and a finding if the required memory is unknown."""
    if all(one.basis == "measured" for one in estimates):
        return list(estimates), [], ()
    predicted = any(one.prediction is not None for one in estimates)
    if not any(read_peak(profile) or profile.outcome == "out_of_memory" for profile in profiles):
        return list(estimates), [], (UNKNOWN_MEMORY,) if predicted else ()
    types = MachineTypes(catalog)
    works: dict[Any, list[Profile]] = {}
    for profile in profiles:
        works.setdefault(other_settings(identify(profile).settings), []).append(profile)
    checks = {work: MemoryCheck(some, types) for work, some in works.items()}
    kept: list[MachineEstimate] = []
    excluded: list[Excluded] = []
    for one in estimates:
        check = checks.get(other_settings(one.factors))
        found = None if check is None or one.basis == "measured" else _check(one, check, types)
        if isinstance(found, Refusal):
            excluded.append(Excluded(one.title, found.code, found.reason))
        else:
            kept.append(replace(one, findings=(*one.findings, found)) if found else one)
    unknown = predicted and all(check.model is None for check in checks.values())
    return kept, excluded, (UNKNOWN_MEMORY,) if unknown else ()


def _check(one: MachineEstimate, check: MemoryCheck, types: MachineTypes) -> Refusal | Finding | None:
    if not one.batch_size:
        return None
    if one.prediction is not None:
        return check.check(one.prediction.machine, one.batch_size // one.prediction.gpus)
    if one.gpus_used == 0:
        return None
    whole = next(filter(None, map(reported_bytes, one.records)), None)
    machine = types.find(one.instance_type, one.provider) or Machine(one.instance_type, one.provider or "", "", 0.0)
    replicas = max(record.environment.replicas * one.nodes // count_nodes(record) for record in one.records)
    size = max(1, one.batch_size // replicas)
    return check.check(machine, size, gpu_bytes=whole)
