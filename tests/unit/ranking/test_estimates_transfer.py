"""Moving data in and the model out, as terms of a ranking's time and cost."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vmselect as vs
from tests.support.priced import prices
from tests.support.profiles import make_epoch_profile
from tests.support.rankings import rank_epochs
from vmselect.records import TransferRecord

CATALOG = prices(("near", 3.6), ("far", 1.8))
PROFILES = [make_epoch_profile(name, 100.0, provider="lab") for name in ("near", "far")]


def moved(name: str, down: float, up: float = 0.05, *, store: str | None = None, **more: Any) -> TransferRecord:
    """A record of transfers at these seconds per megabyte."""
    record = TransferRecord.from_times(
        instance_type=name, url="sftp://host/data", megabytes=100, download_seconds=100 * down,
        upload_seconds=100 * up, **more,
    )  # fmt: skip
    return record.model_copy(update={"setup": record.setup.model_copy(update={"store": store})})


RECORDS = [moved("near", 0.01), moved("far", 0.5)]


def rank(profiles: Any = PROFILES, **options: Any) -> vs.Ranking:
    return rank_epochs(profiles, CATALOG, **options)


def test_moving_is_a_term_of_time_and_changes_the_winner() -> None:
    assert rank().best.instance_type == "far"
    ranking = rank(transfer=vs.serving.Transfer(data_gb=10, model_gb=1, records=RECORDS))
    near, far = sorted(ranking, key=lambda row: row.seconds)
    assert (near.terms["data_in"], near.terms["model_out"], far.terms["data_in"]) == pytest.approx((100, 50, 5000))
    assert near.seconds == pytest.approx(sum(near.terms.values())) == pytest.approx(1150)
    assert near.cost_usd == pytest.approx(1.15)
    assert ranking.best.instance_type == near.instance_type == "near"


@pytest.mark.parametrize(
    ("rates", "half_width"),
    [
        ((0.01,), 20.0),  # a fifth of it, before a second record shows more
        ((0.009, 0.011), 20.0),
        ((0.005, 0.015), 50.0),  # half of what lies between them
    ],
)
def test_the_interval_of_the_time_of_moving(rates: tuple[float, ...], half_width: float) -> None:
    records = [moved("near", rate) for rate in rates]
    row = rank(PROFILES[:1], transfer=vs.serving.Transfer(data_gb=10, records=records)).best
    assert row.terms["data_in"] == pytest.approx(100.0)
    assert (row.seconds - row.seconds_low, row.seconds_high - row.seconds) == pytest.approx((half_width, half_width))


def test_half_widths_of_both_ways_add_as_squares() -> None:
    way = {"download_seconds_per_mb": 0.03, "upload_seconds_per_mb": 0.04}
    row = rank(transfer={"data_gb": 5, "model_gb": 5, **way}).best
    assert (row.terms["data_in"], row.terms["model_out"]) == pytest.approx((150, 200))
    assert row.seconds_high - row.seconds == pytest.approx(0.2 * math.hypot(150, 200))


@pytest.mark.parametrize(
    ("usd_per_gb", "records", "usd"),
    [
        (None, [moved("near", 0.01)], 0.0),
        (None, [moved("near", 0.01, egress_usd_per_gb=0.3)], 3.0),
        (None, [moved("near", 0.01, egress_usd_per_gb=0.3, store="elsewhere")], 3.0),
        (None, [moved("near", 0.01, egress_usd_per_gb=0.3, store="lab")], 0.0),  # free within one cloud
        (None, [moved("near", 0.01, egress_usd_per_gb=usd) for usd in (0.1, 0.3, 0.2)], 3.0),  # the highest
        (0.5, [moved("near", 0.01, egress_usd_per_gb=0.3)], 5.0),  # a given price goes first
        (0.0, [moved("near", 0.01, egress_usd_per_gb=0.3)], 0.0),
    ],
)
def test_data_that_leave_a_store_cost_money(usd_per_gb: float | None, records: Any, usd: float) -> None:
    ranking = rank(PROFILES[:1], transfer=vs.serving.Transfer(data_gb=10, records=records, usd_per_gb=usd_per_gb))
    assert ranking.best.cost_usd == pytest.approx((1000 + 100) / 3600 * 3.6 + usd)
    assert json.loads(ranking.to_json())["candidates"][0]["moving_usd"] == pytest.approx(usd)


def test_a_machine_without_a_record_is_excluded() -> None:
    ranking = rank(transfer=vs.serving.Transfer(data_gb=10, records=RECORDS[:1]))
    assert [row.instance_type for row in ranking] == ["near"]
    assert [excluded.reason_code for excluded in ranking.excluded] == ["no_transfer"]
    general = vs.serving.Transfer(data_gb=10, records=RECORDS[:1], download_seconds_per_mb=0.02)
    assert len(rank(transfer=general)) == 2
    assert len(rank(transfer=vs.serving.Transfer(records=RECORDS[:1]))) == 2  # nothing is moved
    assert len(rank(transfer={"model_gb": 5, "upload_seconds_per_mb": 0.04})) == 2  # data in is not needed


@pytest.mark.parametrize(
    ("recorded", "measured", "fits"),
    [("lab", "lab", True), ("other", "lab", False), (None, "lab", True), ("other", None, True), (None, None, True)],
)
def test_a_record_counts_for_machines_of_its_provider(recorded: str | None, measured: str | None, fits: bool) -> None:
    transfer = vs.serving.Transfer(data_gb=10, records=[moved("near", 0.01, provider=recorded)])
    assert bool(rank([make_epoch_profile("near", 360.0, provider=measured)], transfer=transfer)) is fits


@pytest.mark.parametrize(
    "call",
    [
        lambda: rank(transfer="s3://bucket"),
        lambda: rank(transfer={"gigabytes": 3}),
        lambda: vs.serving.Transfer(data_gb=-0.001),
        lambda: vs.serving.Transfer(model_gb=1.000001e9),
        lambda: vs.serving.Transfer(download_seconds_per_mb=-0.001),
        lambda: vs.serving.Transfer(data_gb=1, records=PROFILES),
        lambda: vs.serving.Transfer(data_gb=1, usd_per_gb=float("nan")),
    ],
)
def test_an_invalid_transfer_is_refused(call: Callable[[], Any]) -> None:
    with pytest.raises(vs.errors.ArgumentError):
        call()


def test_the_bounds_of_a_transfer_are_allowed() -> None:
    bounds = vs.serving.Transfer(
        data_gb=1e9, model_gb=0, download_seconds_per_mb=0, upload_seconds_per_mb=0, usd_per_gb=0
    )
    assert (bounds.data_gb, bounds.usd_per_gb) == (1e9, 0.0)


@settings(deadline=None, max_examples=25)
@given(st.floats(0, 1000), st.floats(1, 10), st.permutations(range(4)))
def test_more_data_never_take_less_and_order_changes_nothing(size: float, factor: float, order: list[int]) -> None:
    records = [*RECORDS, moved("near", 0.02), moved("far", 0.6)]
    less, more, other = (
        {row.instance_type: row for row in rank(transfer=vs.serving.Transfer(data_gb=gb, records=rs, usd_per_gb=0.1))}
        for gb, rs in ((size, records), (size * factor, records), (size, [records[i] for i in order]))
    )
    for name, row in less.items():
        assert more[name].seconds >= row.seconds
        assert more[name].cost_usd >= row.cost_usd
        assert other[name].seconds == pytest.approx(row.seconds)


WORLD = vs.Catalog.embedded("2026-08-22")


def rank_from(**data: Any) -> vs.Ranking:
    """A ranking of one machine type in two regions and of one of another cloud, with 100 GB in a store."""
    profiles = [make_epoch_profile(name, 3600.0) for name in ("g4dn.xlarge", "n1-standard-4+1xT4")]
    transfer = {"data_gb": 100, "download_seconds_per_mb": 0.01, **data}
    regions = ["us-east-1", "us-west-2", "us-central1"]
    return vs.rank(profiles, epochs=1, region=regions, catalog=WORLD, transfer=transfer)


def costs(ranking: vs.Ranking) -> dict[str, float]:
    """What moving the data to each region costs: the cost beyond time and price."""
    return {row.region: round(row.cost_usd - row.usd_per_hour * row.seconds / 3600, 6) for row in ranking}


def test_data_in_a_cloud_cost_its_price_to_other_clouds_and_regions() -> None:
    nothing = {"us-east-1": 0.0, "us-west-2": 0.0, "us-central1": 0.0}
    assert costs(rank_from()) == nothing
    assert costs(rank_from(provider="aws", region="us-east-1")) == nothing | {"us-west-2": 2.0, "us-central1": 9.0}
    assert costs(rank_from(provider="aws")) == nothing | {"us-central1": 9.0}
    assert costs(rank_from(provider="gcp", region="us-central1")) == nothing | {"us-east-1": 12.0, "us-west-2": 12.0}
    assert costs(rank_from(provider="runpod", region="US")) == nothing
    given = rank_from(provider="aws", region="us-east-1", usd_per_gb=0.5)
    assert costs(given) == {"us-east-1": 0.0, "us-west-2": 50.0, "us-central1": 50.0}
    assert set(costs(rank_from(usd_per_gb=0.5)).values()) == {50.0}  # nobody knows where the data are


@pytest.mark.parametrize(
    ("place", "similar"),
    [
        ({"provider": "gcp", "region": "europe-west4"}, None), ({"provider": "gcp"}, None),
        ({"provider": "gcp", "region": "europe-wets4"}, "europe-west4"),
        ({"provider": "own", "region": "office"}, None),
    ],
)  # fmt: skip
def test_data_in_an_unknown_region_of_a_provider_have_a_finding(place: dict[str, str], similar: str | None) -> None:
    profiles = [make_epoch_profile("g2-standard-4", 3600.0, provider=None, region=None)]
    moves = {"data_gb": 9, "download_seconds_per_mb": 0.01} | place
    # Restrictions say where to rent, not where the data are.
    ranking = vs.rank(profiles, epochs=1, catalog=WORLD, region="us", transfer=moves)
    remedies = [finding.remedy for finding in ranking.findings if finding.code == "data-place-unknown"]
    assert [str(similar) in remedy for remedy in remedies] == ([True] if similar else [])


def test_a_model_goes_back_at_the_price_of_the_cloud_of_the_machine() -> None:
    nothing = {"us-east-1": 0.0, "us-west-2": 0.0, "us-central1": 0.0}
    model = {"model_gb": 100, "upload_seconds_per_mb": 0.01}
    back = costs(rank_from(data_gb=0, provider="aws", region="us-east-1", **model))
    assert back == nothing | {"us-west-2": 2.0, "us-central1": 12.0}
    both = costs(rank_from(provider="aws", region="us-east-1", **model))
    assert both == nothing | {"us-west-2": 4.0, "us-central1": 21.0}
    given = costs(rank_from(provider="lab", region="here", usd_per_gb=0.5, **model))
    assert given == {"us-east-1": 59.0, "us-west-2": 59.0, "us-central1": 62.0}


def test_a_finding_names_the_cloud_without_a_price_for_the_model() -> None:
    catalog = vs.Catalog.embedded("2026-08-22").with_offers(
        [{"provider": "lab", "instance_type": "box", "region": "here", "usd_per_hour": 1.0}]
    )
    profiles = [make_epoch_profile("box", 3600.0, provider="lab", region="here")]
    moves = {"model_gb": 10, "upload_seconds_per_mb": 0.01, "provider": "aws", "region": "us-east-1"}

    def find(**data: Any) -> vs.findings.Finding:
        row = vs.rank(profiles, epochs=1, catalog=catalog, transfer={**moves, **data}).best
        return next(finding for finding in row.findings if finding.code == "data-elsewhere")

    assert "lab" in find().remedy
    assert "$0.90" in find(data_gb=10, download_seconds_per_mb=0.01).message  # of the data alone
    assert "lab" in find(data_gb=10, download_seconds_per_mb=0.01).remedy


def test_the_region_of_the_data_is_ranked_beside_the_cheapest_one() -> None:
    profiles = [make_epoch_profile("g2-standard-4", 3600.0, provider=None, region=None)]

    def places(size: float, region: Any = None) -> list[tuple[str, bool]]:
        moves = {"data_gb": size, "download_seconds_per_mb": 0.01, "provider": "gcp", "region": "europe-west4"}
        ranking = vs.rank(profiles, epochs=1, region=region, catalog=WORLD, transfer=moves)
        return [(row.region, row.regions_compared > 1) for row in ranking]

    cheapest = vs.rank(profiles, epochs=1, catalog=WORLD).best.region
    assert cheapest != "europe-west4"
    assert places(0) == [(cheapest, True)]
    assert places(0.001) == [(cheapest, True), ("europe-west4", False)]
    assert places(100) == [("europe-west4", False), (cheapest, True)]
    assert places(100, "us") == [(cheapest, True)]  # a restriction goes first
    assert places(100, "europe-west4") == [("europe-west4", False)]


def test_a_machine_away_from_the_data_has_a_finding() -> None:
    rows = {row.region: row for row in rank_from(provider="aws", region="us-east-1")}
    codes = {region: {finding.code for finding in row.findings} for region, row in rows.items()}
    assert "data-elsewhere" not in codes["us-east-1"]
    assert "data-elsewhere" in codes["us-west-2"] & codes["us-central1"]
    (finding,) = [finding for finding in rows["us-west-2"].findings if finding.code == "data-elsewhere"]
    assert "aws us-east-1" in finding.message
    assert "$2.00" in finding.message
    (unknown,) = [
        finding
        for finding in rank_from(provider="lab", region="here").best.findings
        if finding.code == "data-elsewhere"
    ]
    assert "usd_per_gb" in unknown.remedy
    assert not [f for row in rank_from() for f in row.findings if f.code == "data-elsewhere"]


def test_a_region_of_the_data_needs_a_provider() -> None:
    with pytest.raises(vs.errors.ArgumentError, match="provider"):
        vs.serving.Transfer(data_gb=1, region="us-east-1")
