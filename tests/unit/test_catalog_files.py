"""Price files that people edit: what is read, what is refused and with which words."""

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


@pytest.mark.parametrize("name", ["all.csv", "all.json"])
def test_save_round_trips(tmp_path, name) -> None:
    catalog = vs.Catalog.embedded()
    path = catalog.save(tmp_path / name)
    assert vs.Catalog.load(path) == catalog
    again = vs.Catalog.load(path).save(tmp_path / f"again-{name}")
    assert again.read_bytes() == path.read_bytes()


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
        (f"{GOOD}\naws,p3.2xlarge,us-east-1,on_demand,-3.06", r"prices\.csv line 3: usd_per_hour -3\.06 is outside"),
        (f"{GOOD}\n\n\naws,p3.2xlarge,us-east-1,on_demand,0", r"prices\.csv line 5: usd_per_hour 0 is outside"),
        ("aws,p3.2xlarge,us-east-1,on_demand,€3.06", r"line 2: usd_per_hour '€3\.06' is not a plain number in US"),
        ("aws,p3.2xlarge,us-east-1,on_demand,inf", r"line 2: usd_per_hour inf is outside"),
        ("aws,p3.2xlarge,us-east-1,on_demand,", r"line 2: usd_per_hour is missing"),
        ("aws,p3.2xlarge,us-east-1,on_demand", r"line 2: usd_per_hour is missing"),
        ("aws,=cmd(),us-east-1,on_demand,3", r"line 2: instance_type '=cmd\(\)' starts like a spreadsheet formula"),
        ("aws,+1,us-east-1,on_demand,3", "formula"),
        ("aws,@SUM(A1),us-east-1,on_demand,3", "formula"),
        ("aws,../../etc/passwd,us-east-1,on_demand,3", r"line 2: instance_type '\.\./\.\./etc/passwd' may hold only"),
        ("aws,C:\\x,us-east-1,on_demand,3", r"may hold only"),
        ("aws,p3.2xlarge,us-east-1,on_demand,=1+1", r"line 2: usd_per_hour '=1\+1' is not a plain number"),
        (f"{GOOD}\n{GOOD}", r"line 3: repeats the price of aws ec2 g4dn\.xlarge .*given by prices\.csv line 2"),
        ("aws,p3.2xlarge,us-east-1,demand,3", r"line 2: market 'demand' is not one of"),
        (f"{GOOD}\naws,p3.2xlarge,us-east-1,on_demand,3,0", r"line 3 has 6 fields, the header 5"),
        ("aws,p3.2xlarge,us-east-1,on_demand,3,06", r"line 2 has 6 fields, the header 5.*write 3\.06"),
        ("aws,a,r,on_demand,3,06\naws,b,r,on_demand,3,07", r"line 2 has 6 fields, the header 5"),
        ("aws,p3.2xlarge,us-east-1,on_demand,3a", r"'3a' is not a plain number in US dollars\. Correct it"),
        ('aws,"p3.2xlarge,us-east-1,on_demand,3', r"open quote"),
        (",,,,", r"provider is empty; instance_type is empty"),
    ],
)  # fmt: skip
def test_a_bad_row_is_named_by_file_and_line(write, rows, fact) -> None:
    with pytest.raises(CatalogError, match=fact):
        vs.Catalog.load(write(f"{HEADER}\n{rows}\n"))


def test_other_currencies(write) -> None:
    path = write(f"{HEADER},currency\n{GOOD},USD\naws,p3.2xlarge,us-east-1,on_demand,3,EUR\n")
    with pytest.raises(CatalogError, match="line 3: is not in USD"):
        vs.Catalog.load(path)


def test_the_other_rows_are_kept_only_when_asked(write) -> None:
    path = write(f"{HEADER}\n{GOOD}\naws,p3.2xlarge,us-east-1,on_demand,-3\n")
    with pytest.raises(CatalogError, match="skip_bad_rows=True"):
        vs.Catalog.load(path)
    catalog = vs.Catalog.load(path, skip_bad_rows=True)
    assert len(catalog) == 1
    assert "line 3" in catalog.findings[0].message


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"", r"no header line"),
        (HEADER.encode(), r"no usable price row"),
        (b"provider,instance_type\naws,x\n", r"region, market, usd_per_hour is not there"),
        (f"{HEADER},gpu_modle\n".encode(), r"'gpu_modle' .*Did you mean 'gpu_model'"),
        (HEADER.replace("usd_per_hour", "price").encode(), r"'price' .*Did you mean 'usd_per_hour'"),
        (HEADER.replace(",", ";").encode(), r"Separate the columns by commas"),
        (f"{HEADER},gpu|modle\n".encode(), r"'gpu\|modle' that a price file does not have\. Did you mean"),
        (f"{HEADER},date\n{GOOD},2026-W34-6\n".encode(), r"'2026-W34-6' is not a day written as"),
        (f"{HEADER},region\n".encode(), r"two columns named 'region'"),
        (HEADER.encode("utf-16"), r"UTF-16"),
        (b"\x00\x01\x02", r"not text"),
        (b"\xff\xfe\xfd garbage\n", r"UTF-16|UTF-8"),
        (f"{HEADER}\n".encode() + b"aws,\xe9,us-east-1,on_demand,3\n", r"not UTF-8"),
        (b"x" * 70_000, r"line of more than 64 KiB"),
    ],
)
def test_a_file_that_is_no_price_file(write, content, fact) -> None:
    with pytest.raises(CatalogError, match=fact):
        vs.Catalog.load(write(content))


def test_garbage_of_a_hundred_megabytes_is_refused_at_once(tmp_path) -> None:
    for name, start in (("noise.csv", b""), ("dressed.csv", f"{HEADER}\n".encode())):
        path = tmp_path / name
        with path.open("wb") as file:
            file.write(start)
            for _ in range(100):
                file.write(os.urandom(2**18).hex().encode() * 2)  # one line of 100 MB
        with pytest.raises(CatalogError) as refused:
            vs.Catalog.load(path)
        assert len(str(refused.value)) < 600


def test_large_garbage_in_lines_is_told_by_its_first_rows(tmp_path, monkeypatch) -> None:
    path = tmp_path / "noise.csv"
    line = "17ab,99cd,x,y,zz\n"
    path.write_text(f"{HEADER}\n" + line * (10 * 2**20 // len(line)))
    parsed = []
    parse = files._parse_csv
    monkeypatch.setattr(files, "_parse_csv", lambda *given: parsed.append(parse(*given)) or parsed[-1])
    for skip in (False, True):
        with pytest.raises(CatalogError, match=r"none of its first 1000 rows is a price.*noise\.csv line 2: market"):
            vs.Catalog.load(path, skip_bad_rows=skip)
    assert [len(rows) for rows in parsed] == [1000, 1000]


def test_a_pipe_is_refused_since_it_can_be_read_only_once(write) -> None:
    reader, writer = os.pipe()
    try:
        os.write(writer, f"{HEADER}\n{GOOD}\n".encode())
        with pytest.raises(CatalogError, match="not a plain file"):
            vs.Catalog.load(f"/dev/fd/{reader}")
    finally:
        os.close(reader)
        os.close(writer)


def test_a_new_file_has_the_permissions_that_the_user_gives_to_new_files(tmp_path) -> None:
    before = os.umask(0o077)
    try:
        path = vs.Catalog.embedded("2021-02-28").save(tmp_path / "new.csv")
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600


def test_no_file_and_a_folder(tmp_path) -> None:
    with pytest.raises(CatalogError, match="cannot be read"):
        vs.Catalog.load(tmp_path / "none.csv")
    with pytest.raises(CatalogError, match="cannot be read"):
        vs.Catalog.load(tmp_path)


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        ("{", "not a JSON price file"),
        ("[1]", "no list of offers"),
        ("{}", "no list of offers"),
        ('{"schema": 99, "offers": []}', "schema 99"),
        ("[" * 100_000, "not a JSON price file"),
        ('[\n{"provider": "aws", "price": 3}\n]', r"line 2 has an unknown field 'price'"),
        ('[{"provider": "aws", "usd_per_hour": 1, "usd_per_hour": 2}]', "'usd_per_hour' stands twice in one object"),
        ('{"offers": [\n{"provider": ["aws"]}]}', r"line 2: provider must be one value"),
        ('[{"provider": "aws", "instance_type": "x", "region": "r", "market": "spot",\n"usd_per_hour": 1},\n\n'
         '{"provider": "aws", "instance_type": "y", "region": "r", "market": "spot", "usd_per_hour": NaN}]',
         r"line 4: usd_per_hour 'NaN' is not a plain number"),
    ],
)  # fmt: skip
def test_bad_json(write, content, fact) -> None:
    with pytest.raises(CatalogError, match=fact):
        vs.Catalog.load(write(content, "prices.json"))


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch) -> None:
    path = vs.Catalog.embedded("2021-02-28").save(tmp_path / "mine.csv")
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CatalogError, match="No space left"):
        vs.Catalog.embedded().save(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["mine.csv"]


@pytest.mark.parametrize("name", ["notes.csv", "notes.json"])
def test_prices_replace_prices_and_no_other_file(tmp_path: Path, name: str) -> None:
    path, prices = tmp_path / name, vs.Catalog.embedded("2021-02-28")
    assert len(vs.Catalog.load(prices.save(prices.save(path)))) == len(prices)
    path.write_text("only,copy\nof,this\n")
    with pytest.raises(CatalogError, match="not overwritten"):
        prices.save(path)
    assert path.read_text() == "only,copy\nof,this\n"
