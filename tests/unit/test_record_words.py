"""A record as people read it: the rows of its summary, its JSON, and what is said of a wrong value."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import vmselect as vs
from vmselect.errors import ArgumentError, ProfileError
from vmselect.records import Environment, Epoch, Profile, Setup, Steps, Timeline, Validation
from vmselect.records.convergence import Patience, StoppingRule
from vmselect.records.record import Gpu, Placement, describe_invalid, given_as
from vmselect.records.registry import parse_record
from vmselect.records.store import name_record
from vmselect.records.training import Step, as_text, summarise, table_html
from vmselect.records.warmup import detect_warmup, find_warmup


def summary(**parts: Any) -> dict[str, str]:
    return summarise(Profile(**{"outcome": "stopped", "timeline": Timeline(), **parts}))


def test_every_row_of_a_summary() -> None:
    rows = [Step(0, 0, 3.0, 1, "first"), *(Step(0, n, 0.1 * n, 1, "steady") for n in (1, 2, 3))]
    timeline = Timeline(
        init_seconds=2.5,
        init_source="given",
        steps=Steps.of(rows),
        epochs=tuple(Epoch(epoch=n, seconds=n + 1.0, complete=n != 1) for n in range(5)),
        validations=tuple(Validation(epoch=n, seconds=n + 0.5) for n in range(5)),
        wall_seconds=90.0,
    )
    machine = Environment(
        backend="jax", versions={"jax": "0.7"}, cpu_cores=8, usable_cores=4, gpus=(Gpu(name="T4"), Gpu(name="A100")),
        peak_memory_bytes=2_000_000_000,
    )  # fmt: skip
    found = summary(
        outcome="out_of_memory",
        detail="no room",
        timeline=timeline,
        environment=machine,
        setup=Setup(model="net", batch_size=8, steps_per_epoch=20),
        placement=Placement.given(instance_type="box", region="north"),
        metrics={"accuracy": 0.25},
    )
    assert found == {
        "machine": "box",
        "learnt from": "given",
        "region": "north",
        "model": "net",
        "batch size": "8",
        "steps per epoch": "20",
        "backend": "jax 0.7",
        "cores": "4",
        "GPUs": "2 x T4",
        "initialization": "2.5 s",
        "first step": "3 s",
        "steady step": "200 ms (median of 3)",
        "validations": "500 ms, 1.5 s, 2.5 s",
        "epochs": "1 s, 3 s",
        "probe took": "1 min 30 s",
        "peak memory": "1.9 GiB",
        "outcome": "out of memory: no room",
        "accuracy": "0.25",
    }


def test_what_is_unknown_is_left_out() -> None:
    assert summary() == {"machine": "unknown", "outcome": "stopped"}
    lines = as_text(Profile(outcome="stopped", timeline=Timeline())).splitlines()
    assert lines[:2] == ["machine  unknown", "outcome  stopped"]
    assert lines[2].startswith("! The instance type of this machine is not known")


@pytest.mark.parametrize(
    ("backend", "versions", "said"),
    [
        ("jax", {"jax": "0.7", "keras": "3"}, "jax 0.7"),
        ("jax", {"keras": "3"}, "jax"),
        (None, {"": "1"}, None),
        (None, {}, None),
    ],
)
def test_a_backend_and_its_version(backend: str | None, versions: dict[str, str], said: str | None) -> None:
    assert summary(environment=Environment(backend=backend, versions=versions)).get("backend") == said


def test_cores_are_those_that_may_be_used() -> None:
    assert summary(environment=Environment(cpu_cores=8))["cores"] == "8"
    assert summary(environment=Environment(cpu_cores=8, usable_cores=2))["cores"] == "2"


@pytest.mark.parametrize(("count", "more"), [(2, ""), (3, "<p>The first 2 of 3 profiles.</p>")])
def test_so_many_rows_of_a_table(count: int, more: str) -> None:
    page = table_html([Profile(outcome="stopped", timeline=Timeline())] * count, most=2)
    assert page.count("<tr>") == 1 + 2
    assert page.endswith(f"</table>{more}")


def test_a_table_of_a_hundred_rows() -> None:
    profiles = [Profile(outcome="stopped", timeline=Timeline())] * 101
    assert "<p>The first 100 of 101 profiles.</p>" in table_html(profiles)
    assert "The first" not in table_html(profiles[:100])


# Records


def test_lists_of_plain_values_stand_on_one_line() -> None:
    text = vs.Profile.from_times(instance_type="x\n[1,\n2]", iteration_seconds=[0.1, 0.2]).to_json()
    assert '"seconds": [ 0.1, 0.2 ]' in text
    assert text.startswith('{\n "kind": ')
    assert text.endswith("}\n")
    assert json.loads(text)["placement"]["instance_type"]["value"] == "x\n[1,\n2]"


def test_a_moment_without_a_zone_is_utc() -> None:
    def created(moment: datetime) -> datetime:
        return Profile(outcome="stopped", timeline=Timeline(), created=moment).created

    east = datetime(2026, 1, 2, 3, tzinfo=timezone(timedelta(hours=2)))
    assert created(datetime(2026, 1, 2, 3)) == datetime(2026, 1, 2, 3, tzinfo=UTC)
    assert created(east) == datetime(2026, 1, 2, 1, tzinfo=UTC)


def test_what_a_file_is_called() -> None:
    record = Profile(outcome="stopped", timeline=Timeline(), created=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert record.file_stem.startswith("unknown")
    assert name_record(record).endswith("-20260102T030405")


def test_a_complaint_names_the_field_or_the_record() -> None:
    assert describe_invalid({"loc": ("a", 0, "b"), "msg": "is wrong"}) == "field a.0.b: is wrong"
    assert describe_invalid({"loc": (), "msg": "is wrong"}) == "field the record: is wrong"
    with (
        pytest.raises(
            ArgumentError, match=r"^These times make no profile: field batch_size: .*\. Correct the value\.$"
        ),
        given_as("profile"),
    ):
        Setup(batch_size=0)


# Times that were given


@pytest.mark.parametrize(
    ("said", "steps"),
    [
        ({"examples": 100, "batch_size": 32}, 4),
        ({"examples": 96, "batch_size": 32}, 3),
        ({"examples": 100, "batch_size": 32, "steps_per_epoch": 3}, 3),
        ({"examples": 100}, None),
        ({"batch_size": 32}, None),
    ],
)
def test_steps_of_an_epoch_from_its_examples(said: dict[str, int], steps: int | None) -> None:
    assert vs.Profile.from_times(iteration_seconds=0.1, **said).setup.steps_per_epoch == steps  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("total", "init", "fit"), [(5.0, 2.0, 3.0), (2.0, 2.0, 0.0), (5.0, None, 5.0), (None, 2.0, None)]
)
def test_what_of_the_whole_time_was_fit(total: float | None, init: float | None, fit: float | None) -> None:
    made = vs.Profile.from_times(iteration_seconds=0.1, total_seconds=total, init_seconds=init)
    assert (made.timeline.fit_seconds, made.timeline.init_seconds) == (fit, init)
    assert made.timeline.init_source == (None if init is None else "given")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({}, "No steady time was given"),
        ({"first_iteration_seconds": 1.0, "first_epoch_seconds": 1.0}, "No steady time was given"),
        ({"later_epoch_seconds": 1.0}, "needs first_epoch_seconds= beside it"),
        (
            {"iteration_seconds": 1.0, "total_seconds": 1.9, "init_seconds": 2.0},
            "total_seconds is less than init_seconds",
        ),
    ],
)
def test_times_that_make_no_profile(said: dict[str, float], words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        vs.Profile.from_times(**said)  # type: ignore[arg-type]


def test_epochs_and_validations_are_numbered_from_nothing() -> None:
    made = vs.Profile.from_times(first_epoch_seconds=3.0, later_epoch_seconds=[2.0, 1.0], validation_seconds=[5.0, 4.0])
    assert [(one.epoch, one.seconds) for one in made.timeline.epochs] == [(0, 3.0), (1, 2.0), (2, 1.0)]
    assert [(one.epoch, one.seconds) for one in made.timeline.validations] == [(0, 5.0), (1, 4.0)]
    assert made.created.microsecond == 0


# Warming up and stopping


@pytest.mark.parametrize(
    ("seconds", "warm"),
    [
        ([9.0, 1.0, 1.0], 0),  # too few to tell
        ([9.0, 1.0, 1.0, 1.0], 1),
        ([9.0, 9.0, 1.0, 1.0], 2),
        ([9.0, 9.0, 9.0, 1.0, 1.0, 1.0, 1.0], 3),  # at most half
        ([1.25, 1.0, 1.0, 1.0], 1),
        ([1.19, 1.0, 1.0, 1.0], 0),  # less than a fifth
        ([0.75, 1.0, 1.0, 1.0], 1),
        ([1.6, 1.0, 1.0, 1.0, 0.9, 1.0, 1.1, 1.0], 1),  # the noise is 0.05 times 1.4826
        ([1.25, 1.0, 1.0, 1.0, 0.9, 1.0, 1.1, 1.0], 0),
    ],
)
def test_where_warming_up_ends(seconds: list[float], warm: int) -> None:
    assert detect_warmup(seconds) == warm
    count = len(seconds)
    columns = (
        [0] + [1] * count,
        [5.0, *(2 * one for one in seconds)],
        [1] + [2] * count,
        ["first"] + ["steady"] * count,
    )
    assert find_warmup(*columns) == set(range(1, warm + 1))


@pytest.mark.parametrize(
    ("curve", "said", "after"),
    [
        ([0.5, 0.7, 0.7, 0.7], {"patience": 2}, 4),
        ([0.5, 0.7, 0.7], {"patience": 2}, None),
        ([0.5, 0.6, 0.7, 0.8], {"patience": 1, "min_delta": 0.25}, 2),
        ([0.5, 0.75, 0.8], {"patience": 1, "min_delta": 0.25}, 2),  # as much is not more
        ([0.5, 0.8, 0.9], {"patience": 1, "min_delta": 0.25}, 3),
        ([0.9, 0.5, 0.4, 0.3], {"patience": 1, "start_from_epoch": 1}, 3),
        ([0.9, 0.5, 0.4, 0.3], {"patience": 0}, 2),
        ([0.9] * 6, {}, 6),
        ([0.9] * 5, {}, None),
    ],
)
def test_when_a_rule_stops(curve: list[float], said: dict[str, Any], after: int | None) -> None:
    assert StoppingRule(monitor="m", mode="max", **said).stop_after(enumerate(curve, 1)) == after
    falling = [(epoch, -value) for epoch, value in enumerate(curve, 1)]
    assert StoppingRule(monitor="m", mode="min", **said).stop_after(falling) == after


def test_the_best_of_values() -> None:
    values = [float("nan"), 2.0, 1.0, 3.0]
    assert StoppingRule(monitor="m", mode="max").best_of(values) == 3.0
    assert StoppingRule(monitor="m", mode="min").best_of(values) == 1.0
    assert StoppingRule(monitor="m", mode="min").best_of(values[:1]) is None


# Files that are no record


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"[1]", "not a record: it has no format number"),
        (b'{"format": true}', "not a record: it has no format number"),
        (b'{"format": 3, "kind": "other"}', "it is of the kind 'other', which this version of vmselect does not know"),
        (b'{"format": 4}', "this profile has format 4, and this version of vmselect reads up to 3"),
        (b'{"format": 0}', "unknown profile format 0"),
        (b'{"format": 3, "kind": "training"}', r"invalid profile: field \w+: Field required \(and 1 more\)"),
        (b'{"format": 3, "kind": "training", "outcome": "given"}', "field timeline: Field required. Correct the field"),
    ],
)
def test_what_is_said_of_a_file_that_is_no_record(text: bytes, words: str) -> None:
    with pytest.raises(ProfileError, match=words):
        parse_record(text, source="a.json")


def test_a_first_epoch_is_never_the_last_however_little_patience_there_is() -> None:
    rule = StoppingRule(monitor="loss", mode="min", patience=0)
    known = Patience(best=0.5)
    assert not known.after(rule, 1, 1.0).stopped
    assert known.after(rule, 2, 1.0).stopped


def test_the_name_of_a_kind_that_is_not_known_is_cut_to_sixty_characters() -> None:
    with pytest.raises(ProfileError) as refused:
        parse_record(json.dumps({"kind": "k" * 70, "format": 1}).encode(), source="file.json")
    assert f"'{'k' * 60}'" in str(refused.value)
