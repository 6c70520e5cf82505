"""Price files: what is read, which files and rows are errors, and which file is replaced."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import vmselect as vs
from vmselect.catalog import files
from vmselect.errors import CatalogError

HEADER = "provider,instance_type,region,market,usd_per_hour"

GOOD = "aws,g4dn.xlarge,us-east-1,on_demand,0.4"
ROW = {"provider": "aws", "instance_type": "x.large", "region": "r1", "market": "on_demand", "usd_per_hour": 3.06}


@pytest.fixture
def write(tmp_path):
    def write(content: str | bytes, name: str = "prices.csv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


def test_five_columns_suffice(write) -> None:
    path = write(f"{HEADER}\n{GOOD}\nazure,Standard_D8s_v3,eastus,spot,0.05\n")
    os.utime(path, (1_700_000_000, 1_700_000_000))
    catalog = vs.Catalog.load(path)
    assert catalog.price("g4dn.xlarge") == 0.4
    offer = catalog.offer("Standard_D8s_v3", market="spot")
    assert (offer.service, offer.source, offer.date) == ("vm", "user", "2023-11-14")
    assert offer.vcpus is None


def test_a_byte_order_mark_blanks_quotes_and_empty_lines_are_fine(write) -> None:
    path = write(
        f'\ufeff{HEADER},note\r\n\r\n aws , "g4dn.xlarge",us-east-1,on_demand,0.4,"a, b"\r\n'.replace(' "g', '"g')
    )
    assert vs.Catalog.load(path).offer("g4dn.xlarge").note == "a, b"


def test_names_that_look_like_numbers_stay_as_they_are(write) -> None:
    path = write(f"{HEADER}\nlab,007,1.50,on_demand,0.4\nlab,08,1.50,on_demand,0.5\n")
    assert vs.Catalog.load(path).price("007", region="1.50") == 0.4


def test_json_as_a_list_or_with_a_schema(write) -> None:
    row = dict(zip(HEADER.split(","), GOOD.split(","), strict=True))
    assert vs.Catalog.load(write(json.dumps([row]), "a.json")).price("g4dn.xlarge") == 0.4
    whole = {"schema": 1, "offers": [{**row, "usd_per_hour": 0.4, "retired": True}]}
    assert vs.Catalog.load(write(json.dumps(whole), "b.json")).offer("g4dn.xlarge").retired


@pytest.mark.parametrize(
    ("rows", "fact"),
    [
        (f"{GOOD}\naws,p3.2xlarge,us-east-1,on_demand,-3.06", r"prices\.csv line 3: usd_per_hour"),
        (f"{GOOD}\n\n\naws,p3.2xlarge,us-east-1,on_demand,0", r"prices\.csv line 5: usd_per_hour"),
        *((f"aws,p3.2xlarge,us-east-1,on_demand,{usd}", "line 2: usd_per_hour")
          for usd in ("€3.06", "inf", "", "=1+1", "3a", "True", "TRUE")),
        ("aws,p3.2xlarge,us-east-1,on_demand", "line 2: usd_per_hour"),
        *((f"aws,{name},us-east-1,on_demand,3", "line 2: instance_type")
          for name in ("=cmd()", "+1", "@SUM(A1)", "../../etc/passwd", "C:\\x")),
        (f"{GOOD}\n{GOOD}", r"line 3: .* prices\.csv line 2"),
        ("aws,p3.2xlarge,us-east-1,demand,3", "line 2: market"),
        (f"{GOOD}\naws,p3.2xlarge,us-east-1,on_demand,3,0", "line 3.* 6 "),
        ("aws,a,r,on_demand,3,06\naws,b,r,on_demand,3,07", "line 2.* 6 "),
        ('aws,"p3.2xlarge,us-east-1,on_demand,3', "CSV"),
        (",,,,", "provider.*instance_type"),
    ],
)  # fmt: skip
def test_a_bad_row_is_an_error_with_file_and_line(write, rows, fact) -> None:
    with pytest.raises(CatalogError, match=fact):
        vs.Catalog.load(write(f"{HEADER}\n{rows}\n"))


def test_bad_rows_can_be_skipped(write) -> None:
    path = write(f"{HEADER}\n{GOOD}\naws,p3.2xlarge,us-east-1,on_demand,-3\n")
    with pytest.raises(CatalogError, match=r"remove.* In Python.*skip_bad_rows"):  # the command line has no such option
        vs.Catalog.load(path)
    catalog = vs.Catalog.load(path, skip_bad_rows=True)
    assert len(catalog) == 1
    assert "line 3" in catalog.findings[0].message


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"", "prices"),
        (HEADER.encode(), "prices"),
        (b"provider,instance_type\naws,x\n", "region, market, usd_per_hour"),
        (f"{HEADER},gpu_modle\n".encode(), "'gpu_model'"),
        (HEADER.replace("usd_per_hour", "price").encode(), "'usd_per_hour'"),
        (HEADER.replace(",", ";").encode(), "commas"),
        (f"{HEADER},gpu|modle\n".encode(), "'gpu_model'"),
        (f"{HEADER},date\n{GOOD},2026-W34-6\n".encode(), "2026-W34-6"),
        (f"{HEADER},region\n".encode(), "'region'"),
        (HEADER.encode("utf-16"), "UTF-16"),
        (b"\x00\x01\x02", "binary"),
        (f"{HEADER}\n".encode() + b"aws,\xe9,us-east-1,on_demand,3\n", "UTF-8"),
        (b"x" * 70_000, "64 KiB"),
    ],
)
def test_an_unusable_csv_file_is_an_error(write, content, fact) -> None:
    with pytest.raises(CatalogError, match=fact):
        vs.Catalog.load(write(content))


def test_a_missing_file_and_a_folder_are_errors(tmp_path) -> None:
    for path in (tmp_path / "none.csv", tmp_path):
        with pytest.raises(CatalogError):
            vs.Catalog.load(path)


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        ("{", "JSON"),
        ("[1]", "JSON"),
        ("{}", "JSON"),
        ("[" * 100_000, "JSON"),
        ('{"schema": 99, "offers": []}', "99"),
        (json.dumps({"schema": True, "offers": [ROW]}), "True"),
        (json.dumps({"unit": "cents", "offers": [ROW]}), "unit"),
        (json.dumps({"currency": "EUR", "offers": [ROW]}), "EUR"),
        (json.dumps([{**ROW, "currency": "EUR"}]), "line 1: .*USD"),
        ('[\n{"provider": "aws", "price": 3}\n]', "line 2 .*'price'"),
        ('[{"provider": "aws", "usd_per_hour": 1, "usd_per_hour": 2}]', "'usd_per_hour'"),
        ('{"offers": [\n{"provider": ["aws"]}]}', "line 2: provider"),
        ('[{"provider": "aws", "instance_type": "x", "region": "r", "market": "spot",\n"usd_per_hour": 1},\n\n'
         '{"provider": "aws", "instance_type": "y", "region": "r", "market": "spot", "usd_per_hour": NaN}]',
         "line 4: usd_per_hour"),
        ('[{"provider": "x", "instance_type": "\\ud800", "region": "r", "market": "spot", "usd_per_hour": 1}]',
         "line 1: instance_type"),
    ],
)  # fmt: skip
def test_an_unusable_json_file_is_an_error(write, content, fact) -> None:
    with pytest.raises(CatalogError, match=fact):
        vs.Catalog.load(write(content, "prices.json"))


@pytest.mark.parametrize("name", ["notes.csv", "notes.json"])
def test_prices_replace_prices_and_no_other_file(tmp_path: Path, name: str) -> None:
    path, prices = tmp_path / name, vs.Catalog.embedded("2021-02-28")
    assert len(vs.Catalog.load(prices.save(prices.save(path)))) == len(prices)
    path.write_text("only,copy\nof,this\n")
    with pytest.raises(CatalogError, match="notes"):
        prices.save(path)
    assert path.read_text() == "only,copy\nof,this\n"


def csv(tmp_path: Path, *lines: str, header: str = HEADER) -> Path:
    path = tmp_path / "prices.csv"
    path.write_text("\n".join([header, *lines]) + "\n")
    return path


def refused(path: Path) -> str:
    with pytest.raises(CatalogError) as error:
        vs.Catalog.load(path)
    return str(error.value)


@pytest.mark.parametrize(("count", "shown"), [(1, 1), (5, 5), (7, 5)])
def test_bad_rows_are_counted_and_five_of_them_shown(tmp_path: Path, count: int, shown: int) -> None:
    message = refused(csv(tmp_path, *(f"lab,x{n},here,on_demand,-1" for n in range(count))))
    assert message.startswith(f"{count} ")
    assert message.count("prices.csv") == shown


def test_a_file_of_the_largest_size_is_read_and_no_larger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = csv(tmp_path, "lab,x,here,on_demand,1")
    monkeypatch.setattr(files, "MAX_BYTES", path.stat().st_size)
    assert len(vs.Catalog.load(path)) == 1
    monkeypatch.setattr(files, "MAX_BYTES", path.stat().st_size - 1)
    assert "0 MiB" in refused(path)


@pytest.mark.parametrize(
    ("end", "fits"), [("1.5", False), ("1.", False), ("1.5\n", True), ("1.5\r\n", True), ("1.5  ", False)]
)
def test_a_number_at_the_very_end_may_be_cut(tmp_path: Path, end: str, fits: bool) -> None:
    path = tmp_path / "prices.csv"
    path.write_bytes((HEADER + f"\nlab,x,here,on_demand,{end}").encode())
    if fits:
        assert vs.Catalog.load(path).price("x") == 1.5
    else:
        assert end in refused(path)


def test_a_word_at_the_very_end_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("usd_per_hour,provider,instance_type,region,market\n1.5,lab,x,here,on_demand")
    assert vs.Catalog.load(path).price("x") == 1.5
    path.write_text("usd_per_hour,provider,instance_type,region,market\n1.5,lab,x,here")
    assert "5 fields" in refused(path)


def test_prices_in_dollars_may_name_their_currency(tmp_path: Path) -> None:
    path = csv(tmp_path, "lab,x,here,on_demand,1,", "lab,y,here,on_demand,2,USD", header=f"{HEADER},currency")
    assert len(vs.Catalog.load(path)) == 2
