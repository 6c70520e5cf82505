"""Each doubt is raised by the measurement that deserves it, and by no other."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from vmselect.records import Environment, Fact, Gpu, Placement, Profile, Setup, Steps, Timeline, Validation
from vmselect.records.training import InputWait


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
    assert [finding.severity for finding in profile.findings] == ["warning", "info"]


def test_a_notebook_is_told_about_mark_start() -> None:
    profile = measured(timeline={"init_seconds": None, "init_source": None}, environment={"notebook": True})
    assert "notebook" in profile.findings[0].message
    assert "mark_start" in profile.findings[0].remedy


def spread_over(share: float) -> list[float]:
    """Steps whose quartiles lie this share of the median apart: the third and the ninth of eleven are the quartiles."""
    low, high = 1 - share / 2, 1 + share / 2
    return [1.0] * 3 + [low, high] * 4  # in an order in which none is a warm-up


@pytest.mark.parametrize(
    ("code", "below", "above"),
    [
        ("few-steps", {"seconds": [0.1] * 5}, {"seconds": [0.1] * 4}),
        ("unstable-steps", {"seconds": spread_over(0.24)}, {"seconds": spread_over(0.26)}),
        ("contention", {"timeline": {"cpu_seconds": 6.0}}, {"timeline": {"cpu_seconds": 5.9}}),
        (
            "contention",
            {"timeline": {"wall_seconds": 0.99, "cpu_seconds": 0.1}},
            {"timeline": {"wall_seconds": 1.0, "cpu_seconds": 0.1}},
        ),
        (
            "direct-dispatch",
            {"seconds": [0.005] * 20, "environment": {"dispatch": "direct", "backend": "torch"}},
            {"seconds": [0.0049] * 20, "environment": {"dispatch": "direct", "backend": "torch"}},
        ),
    ],
)
def test_threshold_of_each_finding(code: str, below: dict[str, Any], above: dict[str, Any]) -> None:
    assert code not in codes(measured(**below))
    assert codes(measured(**above)) == {code}


def test_contention_is_not_told_twice_where_the_steps_waited_for_data() -> None:
    def found(share: float) -> set[str]:
        wait = InputWait(seconds=share * 10.0, wall_seconds=10.0, steps=20, method="test")
        return codes(measured(timeline={"cpu_seconds": 3.0, "input_wait": wait}))

    assert "contention" in found(0.3)
    assert "contention" not in found(0.5)


def test_numbers_in_messages() -> None:
    (unstable,) = measured(seconds=spread_over(0.5)).findings
    assert "spreads over 50% of the median" in unstable.message
    (contended,) = measured(timeline={"cpu_seconds": 3.0}).findings
    assert "had a CPU for 30% of the probe's wall time" in contended.message
    (few,) = measured(seconds=[0.1] * 4).findings
    assert few.message == "Only 4 steady steps were seen."
    (unused,) = measured(environment={"gpus": (Gpu(name="Tesla T4"),) * 3, "framework_gpus": 0}).findings
    assert "has 3 x Tesla T4, but the framework uses none" in unused.message


@pytest.mark.parametrize(("probe", "found"), [("iteration", True), ("loop", True), ("epoch", False)])
def test_a_probe_of_whole_epochs_needs_neither_steps_nor_validation(probe: str, found: bool) -> None:
    seen = codes(measured(probe=probe, seconds=[], timeline={"validations": ()}))
    assert {"few-steps", "no-validation"} & seen == ({"few-steps", "no-validation"} if found else set())


def test_steps_that_took_no_time_at_all_are_not_unstable() -> None:
    assert codes(measured(seconds=[0.0] * 20)) == set()
