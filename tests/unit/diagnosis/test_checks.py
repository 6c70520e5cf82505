"""Every finding about a profile appears where it applies, and nowhere else."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.profiles import make_profile
from vmselect.records import Gpu, InputWait, Profile, Step, Steps, Validation

WITHOUT_INIT = {"init_seconds": None, "init_source": None}
SHORT = {"dispatch": "direct", "backend": "torch"}


def measured(*, seconds: list[float] | None = None, timeline: dict[str, Any] | None = None, **changes: Any) -> Profile:
    """A profile without findings, unless a change causes one."""
    rows = [Step(0, n, one, 1, "steady") for n, one in enumerate([0.1] * 20 if seconds is None else seconds)]
    times: dict[str, Any] = {
        "init_source": "process start",
        "steps": Steps.of(rows),
        "validations": (Validation(epoch=0, seconds=1.0),),
        "wall_seconds": 10.0,
        "cpu_seconds": 12.0,
    }
    return make_profile(
        **{"probe": "iteration", "outcome": "stopped", "timeline": {**times, **(timeline or {})}, **changes}
    )


def codes(**changes: Any) -> set[str]:
    return {finding.code for finding in measured(**changes).findings}


def spread_over(share: float) -> list[float]:
    """Eleven steps whose quartiles lie this share of the median apart, in an order without warm-up."""
    return [1.0] * 3 + [1 - share / 2, 1 + share / 2] * 4


@pytest.mark.parametrize(
    ("code", "change"),
    [
        (None, {}),
        ("unknown-batch-size", {"setup": {"batch_size": None}}),
        ("unknown-steps", {"setup": {"steps_per_epoch": None}}),
        ("unstable-steps", {"seconds": spread_over(0.26)}),
        (None, {"seconds": spread_over(0.24)}),
        (None, {"seconds": [0.0] * 20}),
        ("few-steps", {"seconds": [0.1] * 4}),
        (None, {"seconds": [0.1] * 5}),
        ("contention", {"timeline": {"cpu_seconds": 5.9}}),
        (None, {"timeline": {"cpu_seconds": 6.0}}),
        ("contention", {"timeline": {"wall_seconds": 1.0, "cpu_seconds": 0.1}}),
        (None, {"timeline": {"wall_seconds": 0.99, "cpu_seconds": 0.1}}),
        (None, {"timeline": {"cpu_seconds": 3.0}, "environment": {"framework_gpus": 1}}),
        ("threaded-dispatch", {"environment": {"dispatch": "threaded"}}),
        ("early-stopping", {"setup": {"early_stopping": 6}}),
        ("direct-dispatch", {"seconds": [0.0049] * 20, "environment": SHORT}),
        (None, {"seconds": [0.005] * 20, "environment": SHORT}),
        ("unknown-initialization", {"timeline": WITHOUT_INIT}),
        ("no-validation", {"timeline": {"validations": ()}}),
        (None, {"timeline": {"validations": ()}, "probe": "epoch", "seconds": []}),
        ("unused-gpu", {"environment": {"gpus": (Gpu(name="Tesla T4"),), "framework_gpus": 0}}),
        ("unknown-instance-type", {"instance_type": None}),
        ("interrupted", {"outcome": "interrupted", "detail": "KeyboardInterrupt"}),
        ("out-of-memory", {"outcome": "out_of_memory"}),
    ],
)
def test_each_cause_has_its_finding(code: str | None, change: dict[str, Any]) -> None:
    assert codes(**change) == ({code} if code else set())


def test_a_loop_needs_steps_and_validation() -> None:
    assert codes(probe="loop", seconds=[], timeline={"validations": ()}) == {"few-steps", "no-validation"}


def test_warnings_come_before_information() -> None:
    findings = measured(timeline={"validations": ()}, setup={"batch_size": None}).findings
    assert [finding.severity for finding in findings] == ["warning", "info"]


def test_a_notebook_needs_mark_start() -> None:
    (finding,) = measured(timeline=WITHOUT_INIT, environment={"notebook": True}).findings
    assert "notebook" in finding.message
    assert "mark_start" in finding.remedy


@pytest.mark.parametrize(("share", "found"), [(0.3, True), (0.5, False)])
def test_no_contention_where_steps_waited_for_data(share: float, found: bool) -> None:
    wait = InputWait(seconds=share * 10.0, wall_seconds=10.0, steps=20, method="test")
    assert ("contention" in codes(timeline={"cpu_seconds": 3.0, "input_wait": wait})) is found
