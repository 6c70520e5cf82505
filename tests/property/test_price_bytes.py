"""Price files that were cut, flipped or made to hurt: read, or refused with a CatalogError, and soon.

``VMSELECT_FUZZ`` sets how many files of each kind are tried.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

import pytest

import vmselect as vs
from vmselect.errors import CatalogError

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from damage import write_anew

COUNT = int(os.environ.get("VMSELECT_FUZZ", "60"))
OFFERS = [
    {"provider": "aws", "service": "ec2", "instance_type": f"g{i}.xlarge", "region": "us-east-1", "market": market,
     "usd_per_hour": 0.526 + i, "date": "2026-08-22", "vcpus": 4, "memory_gib": 16, "gpu_model": "T4", "gpu_count": 1,
     "gpu_memory_gib": 16, "note": 'a "note", with é'}
    for i in range(4) for market in ("on_demand", "spot")
]  # fmt: skip
PIECES = (
    b"", b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n\n", b'"', b"'", b",", b";", b"\\", b"{", b"}", b"[", b"]", b":",
    b"null", b"NaN", b"-Infinity", b"1e999", b"-1", b"true", b"\\u0000", b"\\ud800", b"9" * 5000, b"\xed\xa0\x80",
)  # fmt: skip
HOSTILE = {
    "deep lists": b"[" * 200_000,
    "deep objects": b'{"a":' * 100_000,
    "deep offers": b'{"offers": ' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    "deep cell": b'{"offers": [{"provider": ' + b"[" * 5_000 + b"]" * 5_000 + b"}]}",
    "repeated keys": b'{"offers": [{' + b'"provider": "a", ' * 50_000 + b'"region": "r"}]}',
    "escapes": b'{"offers": [{"note": "' + b'\\"' * 100_000,
    "digits": b'{"offers": [{"usd_per_hour": ' + b"1" * 100_000 + b"}]}",
    "open quote": b'provider,instance_type,region,market,usd_per_hour\n"' + b"a,\n" * 50_000,
    "wide row": b"provider,instance_type,region,market,usd_per_hour\n" + b"a," * 100_000,
    "many columns": b",".join(b"c%d" % i for i in range(20_000)) + b"\n",
    "quotes": b'provider,instance_type,region,market,usd_per_hour\n' + b'"' * 200_001,
}  # fmt: skip


def damage(data: bytes, chance: random.Random) -> bytes:
    """The same bytes with one to four faults: cut, flipped, doubled, or with something put in."""
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1)
        kind = chance.choice(("cut", "flip", "put", "put", "drop", "double"))
        if kind == "cut":
            data = data[:at]
        elif kind == "flip" and at < len(data):
            data = data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
        elif kind == "put":
            data = data[:at] + chance.choice(PIECES) + data[at:]
        elif kind == "drop":
            data = data[:at] + data[at + chance.randrange(40) :]
        else:
            data += data[at : at + 200]
    return data


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_damaged_files_are_read_or_refused(ending, tmp_path) -> None:
    whole = vs.Catalog.embedded("2021-02-28").with_offers(OFFERS).save(tmp_path / f"whole.{ending}").read_bytes()
    path, chance = tmp_path / f"prices.{ending}", random.Random(11)
    refused: list[str] = []
    for number in range(COUNT):
        write_anew(path, damage(whole, chance))
        try:
            catalog = vs.Catalog.load(path, skip_bad_rows=chance.random() < 0.5)
        except CatalogError as error:
            refused.append(str(error))
        else:
            assert (catalog.offers(market=None)["usd_per_hour"] > 0).all(), number
    assert len(refused) > COUNT / 4  # else nothing was tried
    assert max(map(len, refused)) < 2_000
    assert all(line.isprintable() for message in refused for line in message.split("\n"))


@pytest.mark.parametrize("ending", ["csv", "json"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name, ending, tmp_path) -> None:
    path = tmp_path / f"prices.{ending}"
    path.write_bytes(HOSTILE[name])
    for skip in (False, True):
        with pytest.raises(CatalogError):
            vs.Catalog.load(path, skip_bad_rows=skip)


def test_every_cut_of_a_json_file_is_refused(tmp_path) -> None:
    whole = json.dumps({"offers": OFFERS[:1]}).encode()
    path = tmp_path / "prices.json"
    for end in range(len(whole) - 1):
        write_anew(path, whole[:end])
        with pytest.raises(CatalogError):
            vs.Catalog.load(path)


@pytest.mark.parametrize("ending", ["csv", "json"])
def test_a_pipe_is_refused_at_once(ending, tmp_path) -> None:
    path = tmp_path / f"prices.{ending}"
    os.mkfifo(path)  # nobody writes: whoever opens it waits for ever
    with pytest.raises(CatalogError):
        vs.Catalog.load(path)
