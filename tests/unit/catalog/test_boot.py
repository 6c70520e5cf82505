"""Boot times of providers."""

from __future__ import annotations

from vmselect.catalog import boot_time
from vmselect.catalog.boot import _boot_times


def test_every_measured_boot_time_is_plausible() -> None:
    assert len(_boot_times()) == 14
    for boot in _boot_times().values():
        assert 10 <= boot.median_seconds <= boot.p90_seconds <= 600
        assert boot.starts >= 1


def test_machines_with_and_without_a_gpu_differ() -> None:
    with_gpu, without = boot_time("gcp"), boot_time("gcp", gpu=False)
    assert with_gpu is not None
    assert without is not None
    assert (with_gpu.median_seconds, without.median_seconds, without.starts) == (53.0, 41.0, 572)
    assert boot_time("nobody") is None
