"""Each doubt is raised by the measurement that deserves it, and by no other."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from vmselect.records import Environment, Fact, Gpu, Placement, Profile, Setup, Steps, Timeline, Validation


def measured(
    *,
    seconds: list[float] | None = None,
    timeline: dict[str, Any] | None = None,
    setup: dict[str, Any] | None = None,
    environment: dict[str, Any] | None = None,
    **top: Any,
) -> Profile:
    """A profile without a single doubt, unless a change brings one."""
    steady = seconds if seconds is not None else [0.1] * 20
    steps = Steps(
        epoch=(0,) * len(steady),
        batch=tuple(range(len(steady))),
        seconds=tuple(steady),
        covers=(1,) * len(steady),
        label=("steady",) * len(steady),
        readings=len(steady),
        steps=len(steady),
        total_seconds=sum(steady),
    )
    times: dict[str, Any] = {
        "init_seconds": 1.0,
        "init_source": "process start",
        "steps": steps,
        "validations": (Validation(epoch=0, seconds=1.0),),
        "wall_seconds": 10.0,
        "cpu_seconds": 12.0,
    }
    record: dict[str, Any] = {
        "created": datetime(2026, 1, 1, tzinfo=UTC),
        "writer": "test",
        "probe": "iteration",
        "outcome": "stopped",
        "setup": Setup(**{"batch_size": 32, "steps_per_epoch": 100, **(setup or {})}),
        "timeline": Timeline(**{**times, **(timeline or {})}),
        "environment": Environment(**(environment or {})),
        "placement": Placement(instance_type=Fact(value="g4dn.xlarge", source="argument")),
    }
    return Profile(**{**record, **top})


def codes(profile: Profile) -> set[str]:
    return {finding.code for finding in profile.findings}


def test_a_clean_measurement_raises_no_doubt() -> None:
    assert codes(measured()) == set()


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("unknown-batch-size", {"setup": {"batch_size": None}}),
        ("unknown-steps", {"setup": {"steps_per_epoch": None}}),
        ("unstable-steps", {"seconds": [0.1, 0.2] * 10}),
        ("few-steps", {"seconds": [0.1, 0.1]}),
        ("contention", {"timeline": {"cpu_seconds": 3.0}}),
        ("threaded-dispatch", {"environment": {"dispatch": "threaded"}}),
        ("direct-dispatch", {"seconds": [0.002] * 20, "environment": {"dispatch": "direct", "backend": "jax"}}),
        ("unknown-initialization", {"timeline": {"init_seconds": None, "init_source": None}}),
        ("no-validation", {"timeline": {"validations": ()}}),
        ("unused-gpu", {"environment": {"gpus": (Gpu(name="Tesla T4"),), "framework_gpus": 0}}),
        ("unknown-instance-type", {"placement": Placement()}),
        ("interrupted", {"outcome": "interrupted", "detail": "KeyboardInterrupt"}),
        ("out-of-memory", {"outcome": "out_of_memory"}),
    ],
)
def test_each_cause_raises_exactly_its_doubt(code: str, change: dict[str, Any]) -> None:
    profile = measured(**change)
    assert codes(profile) == {code}
    finding = profile.findings[0]
    assert finding.message.endswith(".")
    assert finding.remedy.endswith(".")


def test_a_gpu_at_work_is_not_contention() -> None:
    profile = measured(timeline={"cpu_seconds": 3.0}, environment={"framework_gpus": 1})
    assert "contention" not in codes(profile)


def test_doubts_come_before_notes() -> None:
    profile = measured(timeline={"validations": ()}, setup={"batch_size": None})
    assert [finding.severity for finding in profile.findings] == ["doubt", "note"]


def test_a_notebook_is_told_about_mark_start() -> None:
    profile = measured(timeline={"init_seconds": None, "init_source": None}, environment={"notebook": True})
    assert "notebook" in profile.findings[0].message
    assert "mark_start" in profile.findings[0].remedy
