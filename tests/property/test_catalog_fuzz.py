"""Whatever a price file holds, it is read whole or refused with a CatalogError; what is written is read back."""

from __future__ import annotations

import contextlib
import csv
import io
import sys
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import vmselect as vs
from vmselect.catalog import COLUMNS, MARKETS
from vmselect.errors import CatalogError

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from damage import write_anew

quick = settings(
    max_examples=40,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # shrinking through files takes minutes
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,12}", fullmatch=True)
amounts = st.floats(1e-6, 1e5, allow_nan=False)
unknown_or = st.none() | st.floats(0, 1000, allow_nan=False)
rows = st.fixed_dictionaries(
    {
        "provider": names,
        "instance_type": names,
        "region": names,
        "market": st.sampled_from(MARKETS),
        "usd_per_hour": amounts,
        "vcpus": unknown_or,
        "gpu_count": unknown_or,
        "retired": st.booleans(),
        "note": st.text(st.characters(categories=("L", "N")), max_size=20),
        "date": st.dates().map(str),
    }
)


def key_of(row: dict[str, object]) -> tuple[object, ...]:
    return row["provider"], row["instance_type"], row["region"], row["market"]


@settings(quick, max_examples=15)  # of many rows each: a file takes as long for twenty as for one
@given(offers=st.lists(rows, min_size=1, max_size=20, unique_by=key_of))
def test_what_is_saved_is_loaded_again(offers, tmp_path) -> None:
    catalog = vs.Catalog.embedded("2021-02-28").with_offers(offers)
    for name in ("a.csv", "a.json"):
        assert vs.Catalog.load(catalog.save(tmp_path / name)) == catalog
    for row in offers:
        found = catalog.offer(
            row["instance_type"], region=row["region"], market=row["market"], provider=row["provider"]
        )
        assert found.usd_per_hour == row["usd_per_hour"]


@quick
@given(content=st.binary(max_size=400) | st.text(max_size=400).map(str.encode))
def test_garbage_is_refused_and_never_breaks(content, tmp_path) -> None:
    for name, start in (("a.csv", b""), ("b.csv", ",".join(COLUMNS).encode() + b"\n"), ("c.json", b"")):
        path = tmp_path / name
        write_anew(path, start + content)
        for skip in (False, True):
            with contextlib.suppress(CatalogError):
                vs.Catalog.load(path, skip_bad_rows=skip)


@quick
@given(cells=st.lists(st.text(max_size=12), min_size=15, max_size=15), data=st.data())
def test_a_line_of_anything_is_refused_or_kept_whole(cells, data, tmp_path) -> None:
    path = tmp_path / "a.csv"
    good = ["aws", "ec2", "x.large", "r1", "spot", "1.5", "2026-01-01", "4", "16", "T4", "1", "16", "no", "me", ""]
    mixed = [data.draw(st.sampled_from(pair)) for pair in zip(cells, good, strict=True)]
    text = io.StringIO(newline="")
    csv.writer(text).writerows([COLUMNS, mixed])
    write_anew(path, text.getvalue().encode("utf-8"))
    with contextlib.suppress(CatalogError):
        catalog = vs.Catalog.load(path)
        assert catalog == vs.Catalog.load(catalog.save(tmp_path / "b.csv"))
