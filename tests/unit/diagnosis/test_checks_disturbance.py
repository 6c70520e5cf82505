"""Known disturbances widen the interval of an estimate and never narrow it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vmselect as vs
from tests.support.descriptions import make_work
from tests.support.priced import prices
from tests.support.profiles import make_profile
from vmselect.estimation import RuntimeEstimate
from vmselect.records import InputWait, Profile
from vmselect.records.usage import Limits, Summary, Usage

STEPS = [0.1, 0.11, 0.1, 0.09] * 5
shares = st.floats(0.0, 1.0)


def usage(**means: float) -> Usage:
    """Usage with these means during steady steps."""
    summaries = {
        name: Summary(count=10, seconds=5.0, mean=mean, maximum=mean, p50=mean, p95=mean)
        for name, mean in means.items()
    }
    return Usage(interval_seconds=1.0, limits=Limits(cores=4), phases={"steady_steps": summaries})


def disturbed(wait: float = 0.0, steps: list[float] = STEPS, gpus: int = 0, **means: float) -> Profile:
    timeline: dict[str, Any] = {}
    if wait:
        timeline["input_wait"] = InputWait(seconds=wait, wall_seconds=1.0, steps=10, method="test")
    return make_profile(
        step_seconds=steps,
        timeline=timeline,
        usage=usage(**means) if means else None,
        environment={"framework_gpus": gpus, "usable_cores": 4},
    )


def codes(found: RuntimeEstimate) -> list[str]:
    return [finding.code for finding in found.findings]


QUIET = vs.estimate(disturbed(), epochs=20)


@pytest.mark.parametrize(
    ("disturbance", "below", "above"),
    [
        ({"steal_share": 0.2}, True, True),
        ({"other_cores": 2.0, "usable_cpu_share": 1.0}, True, False),
        ({"container_throttled_share": 0.3}, True, False),
        ({"gpus": 1, "gpu0_busy_share": 1.0, "gpu0_throttled_by_heat_share": 0.5}, True, True),
        ({"wait": 0.6}, True, True),
        ({"gpus": 1, "gpu0_busy_share": 1.0, "gpu0_throttled_by_power_share": 0.5}, False, False),  # as always
        ({"other_cores": 0.1, "usable_cpu_share": 0.9}, False, False),  # the system's own work
    ],
)
def test_a_disturbance_widens_the_side_that_it_affects(disturbance: Any, below: bool, above: bool) -> None:
    profile = disturbed(**disturbance)
    if "container_throttled_share" in disturbance:
        limits = Limits(cores=4, container_cores=2.0)
        profile = profile.model_copy(update={"usage": profile.usage.model_copy(update={"limits": limits})})  # type: ignore[union-attr]
    found = vs.estimate(profile, epochs=20)
    assert found.seconds == pytest.approx(QUIET.seconds)
    assert (found.low < QUIET.low * 0.99) is below
    assert (found.high > QUIET.high * 1.01) is above
    code = "input-wait" if "wait" in disturbance else "disturbed"  # the input is the training's own
    assert codes(found).count(code) == len({"disturbed", "input-wait"} & {*codes(found)}) == (below or above)


def test_an_estimate_beside_busy_programs_says_nothing() -> None:
    """A training of 12 s was predicted as 195 s while other programs used 74 % of the cores."""
    found = vs.estimate(disturbed(other_cores=0.74 * 4, usable_cpu_share=1.0), epochs=20)
    assert "too-disturbed" in codes(found)
    assert found.low < found.seconds * 12 / 195
    profiles = [disturbed(other_cores=0.74 * 4, usable_cpu_share=1.0), make_profile("b", STEPS)]
    catalog = vs.Catalog.embedded().with_offers([
        {"provider": "x", "instance_type": name, "region": "here", "market": "on_demand", "usd_per_hour": 1.0}
        for name in "ab"
    ])  # fmt: skip
    ranking = vs.rank(profiles, epochs=20, catalog=catalog)
    assert [row.instance_type for row in ranking.rows] == ["b"]
    assert [one.reason_code for one in ranking.excluded] == ["too_disturbed"]


def test_a_description_answers_for_all_machines_if_every_probe_was_too_disturbed() -> None:
    loud = disturbed(gpus=1, other_cores=0.74 * 4, usable_cpu_share=1.0)
    size = loud.batch_size or 0
    described = loud.model_copy(update={"work": make_work(size)})
    catalog = prices(("a", 1.0), ("g", 1.0), gpu_model="T4", gpu_count=1, gpu_memory_gib=16).where(provider="lab")
    for profile, ranked in ((loud, []), (described, ["g"])):
        ranking = vs.rank(profile, epochs=20, catalog=catalog, machines="all")
        assert [row.instance_type for row in ranking.rows] == ranked
        assert ("a", "too_disturbed") in [(one.candidate.split(",")[0], one.reason_code) for one in ranking.excluded]
        assert ("no-usable-probe" in [finding.code for finding in ranking.findings]) is bool(ranked)
    assert ranking.best.basis == "described"
    assert "too_disturbed" in {one.reason_code for one in vs.rank(described, epochs=20, catalog=catalog).excluded}
    usable = vs.rank([described, make_profile("g", STEPS)], epochs=20, catalog=catalog, machines="all")
    assert {row.basis for row in usable.rows} == {"measured"}
    assert "no-usable-probe" not in [finding.code for finding in usable.findings]


def two_sizes() -> list[vs.Profile]:
    """A machine at batch size 64, and at 128 beside other programs."""
    loud = make_profile(
        "a", STEPS, batch_size=128, usage=usage(other_cores=0.74 * 4, usable_cpu_share=1.0),
        environment={"framework_gpus": 0, "usable_cores": 4},
    )  # fmt: skip
    return [make_profile("a", STEPS), loud]


def test_no_batch_size_is_ranked_by_a_probe_that_was_too_disturbed() -> None:
    ranking = vs.rank(two_sizes(), epochs=20, catalog=prices(("a", 1.0)), batch_size=[64, 128])
    assert [row.batch_size for row in ranking.rows] == [64]
    assert {excluded.reason_code for excluded in ranking.excluded} <= {"too_disturbed", "other_batch_size"}
    assert len(ranking.excluded) == len(set(ranking.excluded)) > 0


@pytest.mark.parametrize("sizes", [[96], [64, 96, 128]])
def test_no_batch_size_is_interpolated_from_a_probe_that_was_too_disturbed(sizes: list[int]) -> None:
    with pytest.raises(vs.errors.MissingNamesError) as raised:
        vs.rank(two_sizes(), epochs=20, catalog=prices(("a", 1.0)), batch_size=sizes)
    assert (raised.value.argument, raised.value.names) == ("batch_size", (96,))


@settings(deadline=None)
@given(shares, shares, shares, shares, st.integers(1, 300), st.lists(st.floats(0.01, 10), min_size=1, max_size=30))
def test_a_disturbance_never_narrows_the_interval(
    steal: float, others: float, heat: float, wait: float, n: int, steps: list[float]
) -> None:
    quiet = vs.estimate(disturbed(steps=steps, gpus=1), epochs=n)
    for share in (0.5, 1.0):  # more of it widens more
        noisy = vs.estimate(
            disturbed(
                wait=share * wait,
                steps=steps,
                gpus=1,
                steal_share=share * steal,
                other_cores=4 * share * others,
                usable_cpu_share=1.0,
                gpu0_busy_share=1.0,
                gpu0_throttled_by_heat_share=share * heat,
            ),
            epochs=n,
        )
        assert noisy.seconds == pytest.approx(quiet.seconds)
        assert 0 < noisy.low <= quiet.low * (1 + 1e-9)
        assert noisy.high >= quiet.high * (1 - 1e-9)
        quiet = noisy
