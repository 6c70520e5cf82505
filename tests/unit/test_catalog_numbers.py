"""The numbers of the catalog: how much is shown, how much is read, how long is waited, and the words beside them."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

import vmselect as vs
from vmselect.catalog import compare_prices, files, json_file, publication, refresh, schema, store, table
from vmselect.catalog.snapshot import describe_unpriced, fold_gpu, snapshot_at, unpriced, unpriced_with
from vmselect.catalog.sources import azure, http
from vmselect.errors import ArgumentError, CatalogError

ROW = {"provider": "lab", "instance_type": "x", "region": "here", "market": "on_demand", "usd_per_hour": 1.0}
HEADER = ",".join(ROW)


def refused(path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(CatalogError) as error:
        vs.Catalog.load(path)
    return str(error.value)


@pytest.mark.parametrize(
    ("provider", "name", "service"),
    [
        ("aws", "ml.g5.xlarge", "sagemaker"),
        ("aws", "g5.xlarge", "ec2"),
        ("azure", "ml.x", "vm"),
        ("gcp", "ml.x", "gce"),
        ("lab", "ml.x", "vm"),
    ],
)
def test_the_service_that_a_row_leaves_out(provider: str, name: str, service: str) -> None:
    assert schema.default_service(provider, name) == service
    row = {**ROW, "provider": provider, "instance_type": name}
    assert vs.Offer(**row).service == service
    assert vs.Catalog.embedded("2021-02-28").with_offers([row]).offer(name, provider=provider).service == service


def test_two_bad_rows_are_several(tmp_path: Path) -> None:
    said = refused(tmp_path / "a.csv", f"{HEADER}\nlab,x,here,on_demand,-1\nlab,y,here,on_demand,-2\n")
    assert said.startswith("2 bad price rows. a.csv line 2: usd_per_hour -1 is outside 1e-06 to 100000 | a.csv line 3:")
    assert said.endswith("to 100000. Correct them, or pass skip_bad_rows=True to keep only the other rows.")
    with pytest.raises(CatalogError, match=r"1 bad price row\. offer 2: usd_per_hour -1 .* 100000\. Correct it\.$"):
        vs.Catalog.embedded("2021-02-28").with_offers([ROW, {**ROW, "instance_type": "y", "usd_per_hour": -1}])


@pytest.mark.parametrize(("more", "looked_at"), [(0, False), (1, True)])
def test_only_the_top_of_a_file_above_the_size_is_looked_at_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: int, looked_at: bool
) -> None:
    text = f"{HEADER}\n" + "lab,x,here,never,1\n" * 3
    monkeypatch.setattr(files, "_LARGE_BYTES", len(text) - more)
    assert ("none of its first 3 rows is a price" in refused(tmp_path / "a.csv", text)) is looked_at


@pytest.mark.parametrize(("before", "line"), [("", 1), ("\n", 2), ("\n\n\n", 4)])
def test_lines_of_json_are_counted_from_the_very_first(before: str, line: int) -> None:
    _, lines = json_file._json_offers(before + '[{"a": 1},\n{"a": "{\\n"}, {"a": 3}]')
    assert lines == [line, line + 1, line + 1]
    _, lines = json_file._json_offers(before + '{"offers":\n[{"a": 1}]}')
    assert lines == [line + 1]


def test_how_much_of_a_strange_word_is_shown(tmp_path: Path) -> None:
    csv, long = tmp_path / "a.csv", "z" * 60
    assert f"has a column '{'z' * 40}' that" in refused(csv, f"{HEADER},{long}\n")
    assert f"usd_per_hour '{'z' * 40}' is not a plain number in US dollars." in refused(
        csv, f"{HEADER}\nlab,x,here,on_demand,{long}\n"
    )
    assert "vcpus 'many' is not a plain number." in refused(csv, f"{HEADER},vcpus\nlab,x,here,on_demand,1,many\n")
    assert f"unknown field '{'z' * 40}'. The columns" in refused(tmp_path / "a.json", json.dumps([{long: 1}]))


def test_how_many_names_are_proposed() -> None:
    names = [f"n{n:02}" for n in range(15)]
    assert schema.describe_nearest("qqqq", names) == f"Known: {', '.join(names[:12])}."
    assert schema.describe_nearest("east-0", ["east-1", "east-2", "east-3", "east-4"]).count("east") == 3
    assert schema.describe_nearest("abcde", ["abcxy"]) == "Nearest: abcxy."  # six letters of ten are the same
    assert schema.describe_nearest("abcde", ["abxyz"]) == "Known: abxyz."
    assert schema.describe_column("regoin") == "Did you mean 'region'?"


@pytest.mark.parametrize(
    ("name", "memory_gib", "model"),
    [
        ("A100", 80, "A100-80GB"),
        ("A100", 40, "A100"),
        ("A100", None, "A100"),
        ("V100", 32, "V100-32GB"),
        ("V100", 16, "V100"),
        ("t4g", None, "T4G"),
        ("RTXPRO6000", 96, "RTX-PRO-6000"),
        ("Gaudi HL-205", None, "Gaudi"),
        ("Big New", 80, "Big-New"),
    ],
)
def test_what_a_gpu_is_called(name: str, memory_gib: float | None, model: str) -> None:
    assert schema.name_gpu(name, memory_gib) == model


def test_limits_and_waits() -> None:
    client = http.JsonClient()
    assert (client.attempts, client.timeout_seconds, client.answer_seconds) == (5, 30.0, 120.0)
    assert (client.backoff_seconds, client.longest_wait_seconds) == (1.0, 60.0)
    assert {408, 429, 500, 502, 503, 504} == http._TRY_AGAIN
    assert http._MAX_ANSWER_BYTES == 67_108_864
    pages = inspect.signature(http.follow_pages).parameters
    assert (pages["most"].default, pages["most_seconds"].default) == (5000, 900.0)
    assert (files.MAX_BYTES, files._BLOCK_BYTES, files._LARGE_BYTES) == (268_435_456, 65_536, 8_388_608)
    assert (files._ROWS_AT_ONCE, files._ROWS_LOOKED_AT, table.SHOWN_PROBLEMS) == (100_000, 1000, 5)
    given = inspect.signature(refresh.refresh_prices).parameters
    assert (given["max_age_hours"].default, given["most_seconds"].default) == (6.0, 3600.0)
    assert inspect.signature(vs.Catalog.refresh).parameters["max_age_hours"].default == 6.0
    assert (refresh.REGIONS_AT_ONCE, azure._HOURS_PER_YEAR) == (4, 8760)
    assert publication.MARKETS == ("on_demand", "spot")
    assert refresh.Progress("lab", "here", "waiting").rows == 0


def test_a_connection_to_aws_waits_ten_and_thirty_seconds() -> None:
    pytest.importorskip("botocore", reason="boto3 is not installed: AWS prices were not tested")
    from vmselect.catalog.sources.aws import AwsPrices

    class Session:
        def client(self, service: str, **options: Any) -> Any:
            return service, options

    service, options = AwsPrices(session=Session())._client("ec2", "eu-west-1")
    assert (service, options["region_name"], options["endpoint_url"]) == ("ec2", "eu-west-1", None)
    config = options["config"]
    assert (config.connect_timeout, config.read_timeout) == (10, 30)
    assert (config.retries["mode"], config.retries["total_max_attempts"]) == ("standard", 6)


@pytest.mark.parametrize(("seconds", "hours"), [(0.0, 0.0), (-1.0, None), (1800.0, 0.5), (7200.0, 2.0)])
def test_the_age_of_a_part_to_the_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, hours: float | None
) -> None:
    monkeypatch.setenv("VMSELECT_CACHE_DIR", str(tmp_path))
    store.write_part("lab", "here", vs.Catalog.embedded("2021-02-28").offers())
    written = store.part_path("lab", "here").stat().st_mtime
    monkeypatch.setattr("vmselect.catalog.store.time.time", lambda: written + seconds)
    assert store.age_hours("lab", "here") == hours


def test_the_snapshot_in_force_on_its_own_day_and_the_day_before() -> None:
    assert snapshot_at("2021-02-01").date == "2021-02-01"
    with pytest.raises(CatalogError, match="No prices of 2021-01-31 or before; the earliest snapshot is of 2021-02-01"):
        snapshot_at("2021-01-31")
    assert snapshot_at("2999-01-01") == snapshot_at()


def test_a_change_of_price_in_percent() -> None:
    def priced(usd: float) -> vs.Catalog:
        return vs.Catalog.embedded("2021-02-28").with_offers([{**ROW, "usd_per_hour": usd, "date": "2026-01-01"}])

    (row,) = compare_prices(priced(4.0), priced(5.0)).itertuples()
    assert (row.change, row.percent, row.old_usd_per_hour, row.new_usd_per_hour) == ("higher", 25.0, 4.0, 5.0)
    (row,) = compare_prices(priced(4.0), priced(1.0)).itertuples()
    assert (row.change, row.percent, row.old_date) == ("lower", -75.0, "2026-01-01")
    assert not len(compare_prices(priced(4.0), priced(4.0)))


def test_a_machine_without_a_price_is_described_by_its_own_numbers() -> None:
    first = next(unpriced().itertuples())
    told = f"{first.gpu_count:g} x {first.gpu_model}, {first.vcpus:g} vCPUs, {first.memory_gib:g} GiB"
    assert describe_unpriced(str(first.instance_type)) == told
    assert str(first.instance_type) in unpriced_with(str(first.gpu_model).lower())
    assert fold_gpu("TPU _v4") == fold_gpu("tpu-v4") == "tpu-v4"


def test_twenty_prices_of_a_catalog_are_shown() -> None:
    assert vs.Catalog.embedded()._repr_html_().count("<tr") == 1 + 20


def test_eight_places_that_sell_a_type_are_named() -> None:
    rows = [{**ROW, "region": f"place-{n}"} for n in range(10)]
    with pytest.raises(CatalogError, match=r"x is sold in several places \(lab vm place-0, ") as several:
        vs.Catalog.embedded("2021-02-28").with_offers(rows).price("x")
    assert str(several.value).count("lab vm place-") == 8


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("https://a.example/x", ("https", "a.example", 443)),
        ("http://a.example/x", ("http", "a.example", 80)),
        ("http://a.example:81/x", ("http", "a.example", 81)),
    ],
)
def test_where_an_address_leads(url: str, place: tuple[str, str, int]) -> None:
    assert http.destination(url) == place


def test_an_address_is_shown_without_its_secrets() -> None:
    assert http._place("https://me:word@a.example/x/y?key=1") == "https://a.example/x/y"
    assert http._describe_status(404) == "404 Not Found"
    assert http._describe_status(299) == "299"


def test_a_catalog_holds_at_least_one_price_and_a_name_of_its_origin() -> None:
    frame = vs.Catalog.embedded("2021-02-28").offers()
    assert len(vs.Catalog(frame.iloc[:1], origin="o" * 2000)) == 1
    with pytest.raises(ArgumentError, match="A catalog is made by"):
        vs.Catalog(frame.iloc[:0], origin="o")
    with pytest.raises(ArgumentError):
        vs.Catalog(frame, origin="o" * 2001)


def test_a_currency_left_blank_is_dollars(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{HEADER},currency\nlab,x,here,on_demand,1,\nlab,y,here,on_demand,2,USD\n")
    assert len(vs.Catalog.load(path)) == 2


def test_keys_are_equal_only_where_all_their_parts_are() -> None:
    basis = vs.Catalog.embedded("2021-02-28")
    changes = [{}, {"region": "there"}, {"market": "spot"}, {"instance_type": "y"}, {"service": "s"}, {"provider": "p"}]
    frame = basis.with_offers([{**ROW, **change} for change in changes]).offers(market=None)
    whole, part = table.key_codes([frame, frame.iloc[::-1].iloc[:3]])
    assert len(set(whole.tolist())) == len(frame)
    assert part.tolist() == whole[::-1][:3].tolist()


def test_changes_stand_by_size_and_what_came_or_went_last(tmp_path: Path) -> None:
    def load(name: str, **usd: float) -> vs.Catalog:
        rows = [f"lab,{kind},here,on_demand,{price}" for kind, price in usd.items()]
        (tmp_path / name).write_text("\n".join(["provider,instance_type,region,market,usd_per_hour", *rows, ""]))
        return vs.Catalog.load(tmp_path / name)

    old, new = load("old.csv", a=1.0, b=1.0, gone=1.0), load("new.csv", a=1.005, b=2.0, came=1.0)
    assert [*compare_prices(old, new)["instance_type"]] == ["b", "a", "came", "gone"]
