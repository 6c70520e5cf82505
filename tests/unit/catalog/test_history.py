"""Price history: its table, and sentences about trends."""

from __future__ import annotations

import pandas as pd
import pytest

from vmselect.catalog import MARKETS, gpu_specs
from vmselect.catalog.history import describe_trends, price_history
from vmselect.catalog.shipped import newest_prices, pricing_folder

ROWS = pd.read_csv(pricing_folder() / "price-history.csv")


def test_the_shipped_history_is_plausible() -> None:
    assert set(ROWS["gpu_model"]) <= set(gpu_specs().index)
    assert set(ROWS["provider"]) <= set(newest_prices()["provider"].astype(str))
    assert set(ROWS["market"]) <= set(MARKETS)
    assert ROWS["month"].str.fullmatch(r"20\d\d-(0[1-9]|1[0-2])").all()
    assert not ROWS.duplicated(["provider", "gpu_model", "market", "month"]).any()
    assert ROWS["median_usd"].between(0.02, 20).all()
    assert not (ROWS["lowest_usd"] > ROWS["median_usd"]).any()


def test_months_in_which_the_source_had_half_of_the_price_are_left_out() -> None:
    google = ROWS[(ROWS["provider"] == "gcp") & (ROWS["market"] == "on_demand")]
    for gpu in ("H100", "A100-80GB"):
        months = google.loc[google["gpu_model"] == gpu, "month"]
        assert not months.between("2025-02", "2026-07").any()
        assert "2026-08" in set(months)


def test_a_history_is_restricted_by_gpu_market_and_months() -> None:
    rows = price_history("h100", market="spot", months=6)
    assert set(rows["gpu_model"]) == {"H100"}
    assert set(rows["market"]) == {"spot"}
    assert rows["month"].nunique() <= 6
    assert rows["month"].max() == ROWS["month"].max()
    assert price_history("no such GPU").empty


@pytest.mark.parametrize(
    ("prices", "words"),
    [
        ([2.0, 2.5, 3.0], ["+50 %", "2026-01 to 2026-03", "between $2.00 and $3.00"]),
        ([2.0, 1.0], ["-50 %", "2026-01 to 2026-02"]),
        ([2.0, 2.0], ["unchanged", "at $2.00"]),
        ([2.0], ["in 2026-01", "at $2.00"]),
    ],
)
def test_a_trend_states_change_and_spread(prices, words) -> None:
    rows = pd.DataFrame(
        {
            "provider": "aws",
            "market": "on_demand",
            "month": [f"2026-0{number + 1}" for number in range(len(prices))],
            "median_usd": prices,
        }
    )
    (sentence,) = describe_trends(rows.iloc[::-1])
    assert sentence.startswith("aws on demand: ")
    assert all(word in sentence for word in words)
