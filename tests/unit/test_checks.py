"""Checks of arguments: accepted forms, and errors with the name of the argument."""

from __future__ import annotations

import inspect
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vmselect as vs
from vmselect import _checks
from vmselect.errors import ArgumentError


class Hostile:
    """Has no text form."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


NONSENSE: list[Any] = [
    None, True, np.True_, "12", b"12", "", float("nan"), float("inf"), np.float64("nan"), 10**400, -(10**400), 1j, [],
    {}, object(), Hostile(), Decimal("NaN"), np.array([1, 2]), np.datetime64("2020"), "x" * 10_000,
]  # fmt: skip


@pytest.mark.parametrize("value", [64, 64.0, np.int32(64), np.float32(64), np.uint8(64), Fraction(64)])
def test_whole_numbers_of_any_type(value: Any) -> None:
    count = _checks.check_count("batch_size", value)
    assert count == 64
    assert type(count) is int


@pytest.mark.parametrize("value", NONSENSE, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    "check",
    [_checks.check_count, _checks.check_number, _checks.check_seconds, _checks.check_share, _checks.check_mapping],
    ids=lambda check: check.__name__,
)
def test_invalid_values_are_errors_with_the_name(check: Any, value: Any) -> None:
    if check is _checks.check_mapping and isinstance(value, dict):
        return
    with pytest.raises(ArgumentError, match="steps") as refused:
        check("steps", value)
    assert len(str(refused.value)) < 250
    assert str(refused.value).isprintable()


@pytest.mark.parametrize("value", [None, 3, b"a", "", "  ", "a" * 201, [], Hostile()], ids=lambda v: type(v).__name__)
def test_invalid_names(value: Any) -> None:
    with pytest.raises(ArgumentError, match="monitor"):
        _checks.check_name("monitor", value)


@pytest.mark.parametrize("value", [None, 3, b"a", "", "a\0b", [], Hostile()], ids=lambda value: type(value).__name__)
def test_invalid_paths(value: Any) -> None:
    with pytest.raises(ArgumentError, match="path"):
        _checks.check_path("path", value)
    assert _checks.check_path("path", Path("a")) == Path("a")


@pytest.mark.parametrize(
    ("bounds", "below", "words"),
    [
        ({"least": 0}, -1, " 0"),
        ({"least": 0, "most": 1}, 2, "0 .* 1"),
        ({"above": 0}, 0, " 0"),
        ({"most": 5}, 6, " 5"),
        ({}, float("nan"), "finite"),
    ],
)
def test_messages_contain_the_bounds(bounds: dict[str, float], below: float, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        _checks.check_number("x", below, **bounds)


def test_flags() -> None:
    assert [_checks.check_flag("stop", value) for value in (True, np.False_, 0)] == [True, False, False]
    for value in ("no", "False", 2, None, [], 0.5):
        with pytest.raises(ArgumentError, match="stop"):
            _checks.check_flag("stop", value)


def test_choices() -> None:
    assert _checks.check_choice("billing", "exact", ("exact", "provider")) == "exact"
    for value in ("Exact", None, ["exact"], Hostile()):
        with pytest.raises(ArgumentError, match="exact, provider"):
            _checks.check_choice("billing", value, ("exact", "provider"))


def test_one_value_or_several() -> None:
    assert _checks.several(_checks.check_count, "epochs", np.array([5, 10, 5])) == (5, 10)
    assert _checks.maybe(_checks.check_count, "epochs", None) is None
    with pytest.raises(ArgumentError):
        _checks.several(_checks.check_count, "epochs", [])


def test_values_in_messages_are_short_and_printable() -> None:
    assert _checks.show("\x1b[31mred\n") == r"'\x1b[31mred\n'"
    assert len(_checks.show("a" * 10_000)) < 70
    assert _checks.show(Hostile()) == "<Hostile>"


@pytest.mark.parametrize("value", ["gpu1", "me@gpu1.lab.org", "a_b", "10.0.0.1", "::1", "fe80::1%eth0", "me@::1", "a."])
def test_hosts(value: str) -> None:
    assert _checks.check_host("host", value) == value


@pytest.mark.parametrize(
    "value", ["-oProxyCommand=x", "me@-oX=y", "-", "", "a b", "a;b", "a\nb", "a$(b)", "@a", "a@", "a@b@c", "é", "%"]
)
def test_invalid_hosts(value: str) -> None:
    with pytest.raises(ArgumentError):
        _checks.check_host("host", value)


CALLABLES: list[Any] = [
    vs.compare, vs.describe, vs.diagnose, vs.energy.load_emissions, vs.energy.save_emissions, vs.estimate,
    vs.estimate_memory, vs.history, vs.load_profiles, vs.load_records, vs.predict, vs.rank, vs.score, vs.sweep,
    vs.serving.clean_transfers, vs.serving.probe_transfer, vs.serving.rank_inference, vs.serving.retrieve_and_infer,
    vs.stats.effects, vs.stats.scaling, vs.Profile.from_times, vs.ConvergenceProbe, vs.EpochProbe, vs.HuggingFaceProbe,
    vs.Interruptions, vs.IterationProbe, vs.LightningProbe, vs.Plan, vs.Scale, vs.Workload, vs.probe_loop,
    vs.energy.Emissions, vs.serving.InferenceProbe, vs.serving.Transfer, vs.serving.probe_inference,
]  # fmt: skip


@pytest.mark.parametrize("function", CALLABLES, ids=lambda function: function.__qualname__)
def test_an_unknown_keyword_names_the_nearest_argument(function: Any) -> None:
    parameters = inspect.signature(function).parameters.values()
    names = [parameter.name for parameter in parameters if parameter.kind is not parameter.VAR_POSITIONAL]
    with pytest.raises(ArgumentError, match="arguments are" if names else "no argument by name"):
        function(zzqqxx=None)
    for name in names:
        with pytest.raises(ArgumentError, match=rf"Did you mean {name}\?"):
            function(**{f"{name}x": None})


def test_constructors_keep_their_signature_and_name() -> None:
    assert "steps" in inspect.signature(vs.IterationProbe).parameters
    with pytest.raises(ArgumentError, match="LightningProbe has no argument step"):
        vs.LightningProbe(step=3)  # type: ignore[call-arg]
