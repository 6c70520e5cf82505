"""Offers: limits of their columns, defaults, names of GPUs, and ages of prices."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import vmselect as vs
from tests.support.priced import OFFER
from vmselect.catalog.gpu_names import name_gpu
from vmselect.catalog.offer import COLUMNS, SCHEMA, describe_age, describe_nearest, find_nearest
from vmselect.errors import CatalogError, VmselectError


def taken(**changes: Any) -> bool:
    """Whether a single offer and a table accept the values; both have the same rules."""
    answers = set()
    for make in (lambda row: vs.Offer(**row), lambda row: vs.Catalog.embedded("2021-02-28").with_offers([row])):
        try:
            make({**OFFER, **changes})
        except CatalogError:
            answers.add(False)
        else:
            answers.add(True)
    assert len(answers) == 1, f"an offer and a table disagree on {changes}"
    return answers.pop()


@pytest.mark.parametrize(
    ("column", "least", "most"),
    [("usd_per_hour", 0.000001, 100_000), ("vcpus", 0, 100_000), ("memory_gib", 0, 1_000_000),
     ("gpu_count", 0, 100_000), ("gpu_memory_gib", 0, 10_000)],
)  # fmt: skip
def test_numbers_from_the_least_to_the_most(column: str, least: float, most: float) -> None:
    assert taken(**{column: least})
    assert taken(**{column: most})
    assert not taken(**{column: least - 1e-9})
    assert not taken(**{column: most * 1.000001})


@pytest.mark.parametrize(
    ("column", "most"),
    [("provider", 128), ("instance_type", 128), ("region", 128), ("gpu_model", 128), ("source", 128), ("note", 300)],
)
def test_texts_up_to_their_length(column: str, most: int) -> None:
    assert taken(**{column: "x" * most})
    assert not taken(**{column: "x" * (most + 1)})


@pytest.mark.parametrize(("days", "old"), [(90, False), (91, True)])
def test_a_price_is_old_after_ninety_days(days: int, old: bool) -> None:
    today = dt.date(2026, 9, 1)
    date = (today - dt.timedelta(days=days)).isoformat()
    offer = vs.Offer(**OFFER, date=date)
    assert offer.age_days(today) == days
    assert (describe_age([date], today=today) is not None) is old
    mixed = describe_age([date, today.isoformat()], today=today)
    assert mixed is not None
    assert mixed.code == ("old-prices" if old else "mixed-price-dates")


@pytest.mark.parametrize(
    ("provider", "name", "service"),
    [("aws", "ml.g5.xlarge", "sagemaker"), ("aws", "g5.xlarge", "ec2"), ("azure", "ml.x", "vm"),
     ("gcp", "ml.x", "gce"), ("lab", "ml.x", "vm")],
)  # fmt: skip
def test_the_default_service(provider: str, name: str, service: str) -> None:
    row = {**OFFER, "provider": provider, "instance_type": name}
    assert vs.Offer(**row).service == service
    assert vs.Catalog.embedded("2021-02-28").with_offers([row]).offer(name, provider=provider).service == service


@pytest.mark.parametrize(
    ("name", "memory_gib", "model"),
    [("A100", 80, "A100-80GB"), ("A100", 40, "A100"), ("A100", None, "A100"), ("V100", 32, "V100-32GB"),
     ("t4g", None, "T4G"), ("RTXPRO6000", 96, "RTX-PRO-6000"), ("Big New", 80, "Big-New")],
)  # fmt: skip
def test_names_of_gpus(name: str, memory_gib: float | None, model: str) -> None:
    assert name_gpu(name, memory_gib) == model


def test_a_numpy_bool_is_not_a_price() -> None:
    with pytest.raises(CatalogError):
        vs.Offer(**{**OFFER, "usd_per_hour": np.True_})


@pytest.mark.parametrize("text", [chr(0xD800), f"a{chr(0xDFFF)}", f"{chr(0xDC80)}b"])
@pytest.mark.parametrize("column", COLUMNS)
def test_half_of_a_surrogate_pair_is_refused(column: str, text: str) -> None:
    assert not taken(**{column: text})
    frame = pd.DataFrame([OFFER | {column: text}], dtype=object)
    with pytest.raises(CatalogError):
        vs.Catalog.embedded("2021-02-28").with_offers(frame)


@pytest.mark.parametrize("name", [chr(0xD800), chr(0xDC80)])
def test_half_of_a_surrogate_pair_is_no_field(name: str) -> None:
    with pytest.raises(VmselectError):
        vs.Catalog.embedded("2021-02-28").with_offers([{**OFFER, name: 1}])


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("NC6", ["Standard_NC6"]), ("g4dn.xlage", ["g4dn.xlarge", "g4ad.xlarge"]), ("G4DN.XLARGE", None), ("my-pc", [])],
)
def test_the_nearest_names(name: str, nearest: list[str] | None) -> None:
    names = ["", "Standard_NC6", "g4dn.xlarge", "g4ad.xlarge", "ND96"]
    near_names = find_nearest(name, names)
    assert near_names == nearest if nearest is not None else near_names[0] == "g4dn.xlarge"
    assert all(near in describe_nearest(name, names) for near in near_names or ["ND96"])


def test_the_documentation_lists_the_columns() -> None:
    pages = (Path(__file__).parents[3] / "docs").rglob("*.md")
    header = "| column | contents | if omitted |\n|---|---|---|\n"
    (table,) = (text.partition(header)[2] for page in pages if header in (text := page.read_text(encoding="utf-8")))
    rows = [f"| `{name}` | {column.about} | {column.omitted} |" for name, column in SCHEMA.items()]
    assert table.splitlines()[: len(rows)] == rows


def test_of_many_names_none_of_which_is_similar_those_of_the_same_form_are_listed() -> None:
    names = [*(f"{count}x_A40_SECURE" for count in range(40)), "c5.large", "t2.xlarge", "Standard_NC6"]
    text = describe_nearest("t3.nanoo", names)
    assert text.index("t2.xlarge") < text.index("c5.large")
    assert "A40" not in text
    assert "A40" not in describe_nearest("laptop", names)
