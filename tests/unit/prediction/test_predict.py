"""The table of measured and predicted step times."""

from __future__ import annotations

import pytest

import vmselect as vs
from vmselect.errors import ArgumentError, EstimateError

CATALOG = vs.Catalog.embedded("2026-08-22")


def profile(instance_type="g4dn.xlarge", seconds=0.2, **given) -> vs.Profile:
    times = {"batch_size": 64, "model": "net", "iteration_seconds": [seconds] * 10, **given}
    return vs.Profile.from_times(instance_type=instance_type, **times)


def test_probed_machines_keep_their_measurement_and_others_are_predicted() -> None:
    names = ["g5.xlarge", "g4dn.xlarge", "c5.large", "nowhere"]
    frame = vs.predict(profile(), machines=names, catalog=CATALOG)
    assert list(frame.columns) == ["instance_type", "step_seconds", "low", "high", "basis", "reason"]
    assert list(frame["instance_type"]) == names
    assert list(frame["basis"]) == ["predicted", "measured", None, None]
    assert frame["step_seconds"][1] == pytest.approx(0.2)
    assert frame["low"][0] < frame["step_seconds"][0] < frame["high"][0]
    assert list(frame["reason"].notna()) == [False, False, True, True]


def test_a_predicted_interval_is_wider_than_a_measured_one() -> None:
    both = vs.predict([profile(), profile("g5.xlarge", 0.09)], machines=["g5.xlarge"], catalog=CATALOG)
    one = vs.predict(profile(), machines=["g5.xlarge", "g4dn.2xlarge"], catalog=CATALOG)
    width = both["high"] / both["low"]
    assert (one["high"] / one["low"] > width[0]).all()


def test_the_order_of_profiles_and_history_does_not_matter() -> None:
    probes = [profile(), profile("p3.2xlarge", 0.08)]
    history = [
        profile(name, s, model=f"m{k}") for k in range(3) for name, s in (("g4dn.xlarge", 1), ("g6.xlarge", 0.6))
    ]
    names = ["g5.xlarge", "g6.xlarge"]
    first = vs.predict(probes, machines=names, history=history, catalog=CATALOG)
    again = vs.predict(probes[::-1], machines=names[::-1], history=history[::-1], catalog=CATALOG)
    assert first["step_seconds"].to_numpy() == pytest.approx(again["step_seconds"].to_numpy()[::-1], rel=1e-9)
    assert first["high"].to_numpy() == pytest.approx(again["high"].to_numpy()[::-1], rel=1e-9)


def test_the_whole_catalog_by_default() -> None:
    frame = vs.predict(profile(), catalog=CATALOG)
    assert len(frame) > 150
    assert frame["instance_type"].is_unique
    assert (frame["step_seconds"].isna() == frame["reason"].notna()).all()


def test_wrong_arguments() -> None:
    with pytest.raises(ArgumentError):
        vs.predict(profile(), history="folder", catalog=CATALOG)
    with pytest.raises(ArgumentError):
        vs.predict([profile(), profile("g5.xlarge", batch_size=32)], catalog=CATALOG)
    with pytest.raises(EstimateError):
        vs.predict(profile(), batch_size=32, catalog=CATALOG)
    with pytest.raises(EstimateError):
        vs.predict(profile(None), catalog=CATALOG)
