"""Profiles as text and as tables."""

from __future__ import annotations

import pytest

from tests.support.profiles import make_profile
from vmselect.records import (
    Environment,
    Epoch,
    Gpu,
    Placement,
    Profile,
    Setup,
    Step,
    Steps,
    Timeline,
    Validation,
)
from vmselect.records.files import Profiles
from vmselect.records.summary import summarize

EMPTY = Profile(outcome="stopped", timeline=Timeline())


def test_summary_has_a_row_for_everything_known() -> None:
    rows = [Step(0, 0, 3.0, 1, "first"), *(Step(0, n, 0.1 * n, 1, "steady") for n in (1, 2, 3))]
    profile = Profile(
        outcome="out_of_memory",
        detail="no room",
        timeline=Timeline(
            init_seconds=2.5,
            init_source="given",
            steps=Steps.of(rows),
            epochs=tuple(Epoch(epoch=n, seconds=n + 1.0, complete=n != 1) for n in range(5)),
            validations=tuple(Validation(epoch=n, seconds=n + 0.5) for n in range(5)),
            wall_seconds=90.0,
        ),
        environment=Environment(
            backend="jax",
            versions={"jax": "0.7"},
            cpu_cores=8,
            usable_cores=4,
            gpus=(Gpu(name="T4"), Gpu(name="A100")),
            peak_memory_bytes=2_000_000_000,
        ),
        setup=Setup(model="net", batch_size=8, steps_per_epoch=20),
        placement=Placement.given(instance_type="box", region="north"),
        metrics={"accuracy": 0.25},
    )
    assert summarize(profile) == {
        "machine": "box",
        "machine from": "given",
        "region": "north",
        "model": "net",
        "batch size": "8",
        "steps per epoch": "20",
        "backend": "jax 0.7",
        "cores": "4",
        "GPUs": "2 x T4",
        "initialization": "2.5 s",
        "first step": "3 s",
        "second step": "100 ms",
        "mean of steps 2-10": "200 ms",
        "seconds per step": "200 ms",
        "first validation": "500 ms",
        "second validation": "1.5 s",
        "first epoch": "1.5 s",
        "probe took": "1 min 30 s",
        "peak memory": "1.9 GiB",
        "outcome": "out of memory: no room",
        "accuracy": "0.25",
    }


def test_summary_without_what_is_unknown() -> None:
    assert summarize(EMPTY) == {"machine": "unknown", "outcome": "stopped"}
    assert str(EMPTY).splitlines()[:2] == ["machine  unknown", "outcome  stopped"]
    without_version = EMPTY.model_copy(update={"environment": Environment(backend="jax", cpu_cores=8)})
    assert summarize(without_version)["backend"] == "jax"
    assert summarize(without_version)["cores"] == "8"


def test_a_notebook_shows_tables_without_markup_of_the_user() -> None:
    profile = make_profile(model="<script>", metrics={"<b>": 1.0})
    for page in (profile._repr_html_(), Profiles([profile])._repr_html_()):
        assert "&lt;script&gt;" in page
        assert "<script>" not in page
        assert "<b>" not in page


@pytest.mark.parametrize(("count", "rows", "more"), [(2, 2, False), (100, 100, False), (101, 100, True)])
def test_a_table_shows_a_hundred_profiles(count: int, rows: int, more: bool) -> None:
    page = Profiles([EMPTY] * count)._repr_html_()
    assert page.count("<tr>") == 1 + rows
    assert ("<p>" in page) is more
    warnings = sum(finding.severity == "warning" for finding in EMPTY.findings)
    assert page.count(f"<bdi>{warnings}</bdi>") == rows
