"""What probes put into their records beside the times: machine and software, place, factors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from vmselect.probe.options import Factors, read_factors
from vmselect.records.base import Environment, Placement


class MachineFacts(TypedDict):
    """The fields of a record that do not depend on what was measured."""

    environment: Environment
    placement: Placement
    factors: Mapping[str, Any]


def read_environment(model: Any = None, backend: str | None = None) -> Environment:
    """The machine and its software, as they are now; ``backend`` where the caller knows what trains."""
    from vmselect.probe.facts.framework import read_framework
    from vmselect.probe.facts.hardware import read_machine
    from vmselect.probe.facts.process import in_notebook

    return Environment(**read_framework(model, backend), **read_machine(), notebook=in_notebook())


def read_facts(
    *, instance_type: str | None = None, region: str | None = None, model: Any = None, factors: Factors | None = None
) -> MachineFacts:
    """All that can be known of the machine, before anything is timed."""
    from vmselect.probe.facts.placement import locate

    return {
        "environment": read_environment(model),
        "placement": locate(instance_type=instance_type, region=region),
        "factors": read_factors(factors or {}),
    }
