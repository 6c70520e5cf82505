"""Price rows at the edge of what is taken, what changed between two catalogs, and what is old."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from tests.support.priced import OFFER
from vmselect.catalog import compare_prices, files, refresh
from vmselect.catalog.offer import describe_age
from vmselect.errors import CatalogError


def taken(**changes: Any) -> bool:
    """Whether a single offer and a table of them are taken; both keep the same rules."""
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
    [
        ("usd_per_hour", 0.000001, 100_000),
        ("vcpus", 0, 100_000),
        ("memory_gib", 0, 1_000_000),
        ("gpu_count", 0, 100_000),
        ("gpu_memory_gib", 0, 10_000),
    ],
)
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
    assert (offer.age_days(today), offer.is_stale(today)) == (days, old)
    catalog = vs.Catalog.load(_saved([offer]))
    assert catalog.is_stale(today) is old
    finding = describe_age([date], today=today)
    assert (finding is not None) is old
    mixed = describe_age([date, today.isoformat()], today=today)
    assert mixed is not None
    assert mixed.code == ("old-prices" if old else "mixed-price-dates")
    assert f"the oldest is {days} days old" in mixed.message


def _saved(offers: list[vs.Offer]) -> Path:
    import tempfile

    path = Path(tempfile.mkdtemp()) / "prices.csv"
    names = [offer.instance_type for offer in offers]
    frame = vs.Catalog.embedded("2021-02-28").with_offers(offers).offers(instance_type=names, market=None)
    return files.write(frame, path)


def test_a_price_is_gone_only_where_its_market_was_looked_at() -> None:
    here = vs.Offer(**OFFER)
    spot = vs.Offer(**{**OFFER, "market": "spot", "usd_per_hour": 0.5})
    other = vs.Offer(**{**OFFER, "instance_type": "y"})
    before, after = vs.Catalog.load(_saved([here, spot])), vs.Catalog.load(_saved([other]))
    changes = compare_prices(before, after)
    assert [(r.change, r.instance_type, r.market) for r in changes.itertuples()] == [
        ("gone", "x", "on_demand"),
        ("new", "y", "on_demand"),
    ]
    retired = vs.Catalog.load(_saved([vs.Offer(**OFFER, retired=True)]))
    assert [r.change for r in compare_prices(retired, after).itertuples()] == ["new"]


# Files


def csv(tmp_path: Path, *lines: str, header: str = ",".join(OFFER)) -> Path:
    path = tmp_path / "prices.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def refused(path: Path) -> str:
    with pytest.raises(CatalogError) as error:
        vs.Catalog.load(path)
    return str(error.value)


def test_bad_rows_are_counted_named_and_five_of_them_shown(tmp_path: Path) -> None:
    good, bad = "lab,x{},here,on_demand,1", "lab,x{},here,on_demand,-1"
    one = refused(csv(tmp_path, good.format(0), bad.format(1)))
    assert one.startswith("1 bad price row. prices.csv line 3: usd_per_hour -1 is outside")
    assert "Correct it" in one
    five = refused(csv(tmp_path, *(bad.format(n) for n in range(5))))
    assert five.startswith("5 bad price rows. ")
    assert five.count("prices.csv line") == 5
    assert "more)" not in five
    seven = refused(csv(tmp_path, *(bad.format(n) for n in range(7))))
    assert seven.count("prices.csv line") == 5
    assert "(and 2 more)" in seven
    assert "Correct them" in seven


def test_rows_of_json_are_named_by_the_line_on_which_they_begin(tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    rows = [json.dumps({**OFFER, "instance_type": name, "usd_per_hour": usd}) for name, usd in (("x", 1), ("y", -1))]
    path.write_text('{"schema": 1,\n "offers": [\n' + ",\n\n".join(rows) + "]}")
    assert "prices.json line 5: usd_per_hour -1" in refused(path)
    path.write_text("[" + ", ".join(rows) + "]")
    assert "prices.json line 1: usd_per_hour -1" in refused(path)
    path.write_text(json.dumps({"schema": 2, "offers": []}))
    assert "schema 2; this release reads 1" in refused(path)


def test_a_file_of_the_largest_size_is_read_and_no_larger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = csv(tmp_path, "lab,x,here,on_demand,1")
    monkeypatch.setattr(files, "MAX_BYTES", path.stat().st_size)
    assert len(vs.Catalog.load(path)) == 1
    monkeypatch.setattr(files, "MAX_BYTES", path.stat().st_size - 1)
    assert "a price file may be 0 MiB" in refused(path)


def test_a_line_is_too_long_before_it_is_taken_apart(tmp_path: Path) -> None:
    row, header = "lab,x,here,on_demand,1", ",".join([*OFFER, "note"])
    assert "is longer than 300 characters" in refused(csv(tmp_path, f"{row},{'z' * 60_000}", header=header))
    assert "has a line of more than 64 KiB" in refused(csv(tmp_path, f"{row},{'z' * 65_600}", header=header))
    assert len(vs.Catalog.load(csv(tmp_path, f"{row},{'z' * 300}", header=header))) == 1


@pytest.mark.parametrize(
    ("end", "fits"), [("1.5", False), ("1.", False), ("1.5\n", True), ("1.5\r\n", True), ("1.5  ", False)]
)
def test_a_number_at_the_very_end_may_be_cut(tmp_path: Path, end: str, fits: bool) -> None:
    path = tmp_path / "prices.csv"
    path.write_bytes((",".join(OFFER) + f"\nlab,x,here,on_demand,{end}").encode())
    if fits:
        assert vs.Catalog.load(path).price("x") == 1.5
    else:
        assert "which may be cut short" in refused(path)


def test_a_word_at_the_very_end_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("usd_per_hour,provider,instance_type,region,market\n1.5,lab,x,here,on_demand")
    assert vs.Catalog.load(path).price("x") == 1.5
    path.write_text("usd_per_hour,provider,instance_type,region,market\n1.5,lab,x,here")
    assert "ends early, with fewer than 5 fields" in refused(path)


def test_facts_that_a_price_leaves_unknown_come_from_the_same_type() -> None:
    basis = vs.Catalog.embedded("2026-08-22")
    own = {"provider": "aws", "instance_type": "g4dn.xlarge", "region": "us-east-1", "usd_per_hour": 0.1}
    offer = basis.with_offers([own]).offer("g4dn.xlarge")
    assert (offer.vcpus, offer.memory_gib, offer.gpu_model, offer.gpu_count) == (4, 16, "T4", 1)
    said = basis.with_offers([{**own, "vcpus": 2}]).offer("g4dn.xlarge")
    assert (said.vcpus, said.memory_gib, said.gpu_count) == (2, None, None)  # who says something says all
    foreign = basis.with_offers([{**own, "provider": "lab"}]).offer("g4dn.xlarge", provider="lab")
    assert foreign.vcpus is None


@pytest.mark.parametrize(
    ("platform", "variables", "folder"),
    [
        ("linux", {"XDG_CACHE_HOME": "/x/cache"}, "/x/cache/vmselect"),
        ("linux", {"XDG_CACHE_HOME": ""}, "/x/me/.cache/vmselect"),
        ("darwin", {}, "/x/me/Library/Caches/vmselect"),
        ("win32", {"LOCALAPPDATA": "/x/Local"}, "/x/Local/vmselect"),
        ("win32", {"LOCALAPPDATA": ""}, "/x/me/AppData/Local/vmselect"),
        ("linux", {"VMSELECT_CACHE_DIR": "~/own"}, "/x/me/own"),
    ],
)
def test_where_refreshed_prices_are_kept(
    monkeypatch: pytest.MonkeyPatch, platform: str, variables: dict[str, str], folder: str
) -> None:
    monkeypatch.delenv("VMSELECT_CACHE_DIR", raising=False)
    monkeypatch.setenv("HOME", "/x/me")
    monkeypatch.setattr("sys.platform", platform)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert refresh.cache_folder().as_posix() == folder
