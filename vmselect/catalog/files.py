"""Price files: reads CSV and JSON of vmselect and CSV of SkyPilot and gpuhunt; writes CSV and JSON.

There is one way in: the text of a file becomes a table of cells, the cells of other tools' files are renamed and
converted, and :func:`vmselect.catalog.offer.build_frame` validates the rows. A file that cannot be read as a table is
an error; an invalid row is an error with its line, or is excluded.
"""

from __future__ import annotations

import csv
import datetime as dt
import functools
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from vmselect import _io
from vmselect._checks import check_path, show
from vmselect.catalog.dates import keep_dates
from vmselect.catalog.gpu_names import name_gpu
from vmselect.catalog.offer import (
    COLUMNS,
    NUMBERS,
    OWN_PRICE,
    SCHEMA_VERSION,
    build_frame,
    describe_column,
)
from vmselect.catalog.shipped import known_machines, shipped_from
from vmselect.errors import CatalogError
from vmselect.findings import Finding
from vmselect.units import list_some

MAX_BYTES = 256 * 1024**2
MAX_LINE = 64 * 1024  # a file of one line is no list of prices, and its millions of fields would fill the memory
_JSON_FIELDS = ("schema", "currency", "offers")
DERIVED = ("stale", "usd_per_gpu_hour", "regions_compared")
"""Columns that `prices show` prints and that follow from others; they are ignored in a file."""
_FIELDS = (*COLUMNS, "currency", *DERIVED)


class Cells(NamedTuple):
    """The content of a file: a row of cells per price, a function that finds their lines, and problems by row."""

    frame: pd.DataFrame
    find_lines: Callable[[], Sequence[int]]
    problems: dict[int, str]


class _RowNames:
    """Names rows by file and line. The lines are found at the first problem: most files have none."""

    def __init__(self, file: str, find_lines: Callable[[], Sequence[int]]) -> None:
        self.file, self.find_lines = file, find_lines

    @functools.cached_property
    def lines(self) -> Sequence[int]:
        """The line of each row."""
        return self.find_lines()

    def __call__(self, row: int) -> str:
        return f"{self.file} line {self.lines[row] if row < len(self.lines) else '?'}"


def read(
    path: str | Path, *, provider: str | None = None, skip_bad_rows: bool = False
) -> tuple[pd.DataFrame, list[Finding]]:
    """Return the validated rows of a price file, and findings about excluded rows.

    An invalid row raises an error; with ``skip_bad_rows=True`` it is excluded. ``provider`` is used for files that do
    not contain the provider.
    """
    path = check_path("path", path)
    data = _io.read_bytes(path, noun="price file", limit=MAX_BYTES, error=CatalogError)
    modified = dt.datetime.fromtimestamp(path.stat().st_mtime, dt.UTC).date()
    return parse(data, path, date=modified, provider=provider, skip_bad_rows=skip_bad_rows)


def parse(
    data: bytes, path: Path, *, date: dt.date, provider: str | None = None, skip_bad_rows: bool = False
) -> tuple[pd.DataFrame, list[Finding]]:
    """Return the validated rows of ``data``, the content of the price file ``path``; see :func:`read`.

    ``date`` is the date of prices that have none. Prices of another tool that are the shipped ones keep their dates.
    """
    text = _decode(data, path.name)
    findings: list[Finding] = []
    source = "user"
    if path.suffix.lower() == ".json":
        cells = _read_json(text, path.name)
    else:
        cells = _read_csv(text, path.name)
        header = set(cells.frame.columns)
        layout = next((name for name, columns in LAYOUTS.items() if columns <= header), None)
        if layout is None:
            _check_header(path.name, list(cells.frame.columns))
        else:
            convert = _convert_skypilot if layout == "skypilot" else _convert_gpuhunt
            rows, origin, findings = convert(cells.frame, provider or _find_provider(path))
            _mark_retired(rows)
            problems = {at: cells.problems[row] for at, row in enumerate(origin) if row in cells.problems}
            lines = cells.find_lines
            cells = Cells(rows, lambda: [lines()[row] for row in origin], problems)
            source = layout
    raw, find_lines, problems = cells
    name_row = _RowNames(path.name, find_lines)
    if provider is not None and "provider" not in raw.columns:
        raw["provider"] = provider
    if "provider" in raw.columns:
        raw["provider"] = raw["provider"].replace(ALIASES)
    if "currency" in raw.columns:
        for row in np.flatnonzero(~raw.pop("currency").fillna("").isin(["USD", ""])):
            problems[int(row)] = "the currency is not USD; convert the price to US dollars"
    frame, excluded = build_frame(
        raw, name_row=name_row, default_date=date.isoformat(), default_source=source, skip_bad_rows=skip_bad_rows,
        problems=problems,
    )  # fmt: skip
    if not len(frame):
        raise CatalogError(f"{path.name} contains no valid price. Add at least one row with a price.")
    if source in LAYOUTS:
        frame = keep_dates(frame, shipped_from(source, list(frame["provider"].cat.categories)), complete=False)
    return frame, [*findings, *excluded]


def check_replaceable(path: str | Path) -> Path:
    """Return ``path``. Raise an error if it is an existing file other than a price file, which must not be replaced."""
    target = check_path("path", path)
    if _io.has_file(target) and target.stat().st_size:
        try:
            read(target, skip_bad_rows=True)
        except CatalogError:
            raise CatalogError(
                f"{target} exists and is not a price file, so it is not replaced. Choose another path."
            ) from None
    return target


def write(frame: pd.DataFrame, path: str | Path) -> Path:
    """Write ``frame`` as CSV, or as JSON if ``path`` ends in ``.json``."""
    path = check_path("path", path)
    texts = pd.DataFrame({name: _as_cells(frame[name]) for name in COLUMNS})
    if path.suffix.lower() == ".json":
        rows = [
            {name: float(text) if name in NUMBERS else text for name, text in row.items() if text != ""}
            for row in texts.to_dict("records")
        ]
        lines = ",\n".join("  " + json.dumps(row, ensure_ascii=False) for row in rows)
        content = f'{{"schema": {SCHEMA_VERSION}, "offers": [\n{lines}\n]}}\n'
    else:
        content = texts.to_csv(index=False, lineterminator="\n")
    return _io.write_text(path, content, error=CatalogError)


def _as_cells(values: pd.Series) -> object:
    if values.dtype == bool:
        return np.where(values, "yes", "no")
    if isinstance(values.dtype, pd.CategoricalDtype):
        return values
    codes, numbers = pd.factorize(values.to_numpy(), use_na_sentinel=False)
    texts = ["" if np.isnan(number) else repr(float(number)).removesuffix(".0") for number in numbers]
    return pd.Categorical.from_codes(codes, pd.Index(texts))


# -- CSV and JSON ------------------------------------------------------------------------------------------------------


def _decode(data: bytes, name: str) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise CatalogError(f"{name} is UTF-16 text. Save it as CSV UTF-8.")
    if b"\0" in data:
        raise CatalogError(f"{name} is a binary file. Give a CSV or JSON price file.")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as broken:
        line = data.count(b"\n", 0, broken.start) + 1
        raise CatalogError(f"{name} line {line} is not UTF-8 text ({broken.reason}). Save it as CSV UTF-8.") from broken


def _read_csv(text: str, name: str) -> Cells:
    if any(len(line) > MAX_LINE for line in text.splitlines()):
        raise CatalogError(f"{name} has a line of more than 64 KiB, so it is not a CSV price file. Pass another file.")
    first, last = (re.split(r"[\r\n]", part)[end] for part, end in ((text[:MAX_LINE], 0), (text[-MAX_LINE:], -1)))
    header = [cell.strip() for cell in next(csv.reader([first]), [])]
    if not any(header):
        raise CatalogError(f"{name} has an empty first line. Write the names of the columns there.")
    if twice := [column for column, count in Counter(header).items() if count > 1]:
        raise CatalogError(f"{name} has two columns named {twice[0][:40]!r}. Remove one of them.")
    # A row of one more empty cell in place of the header: pandas takes the number of fields from the first row, and a
    # later row with more fields is an error with its line.
    first_row = "," * len(header)
    try:
        # As objects, equal texts share their memory, and names such as 007 stay as they are.
        frame = pd.read_csv(
            io.StringIO(first_row + text[len(first) :]), header=None, index_col=False, dtype=object, na_filter=False,
            low_memory=False,
        )  # fmt: skip
    except (ValueError, OverflowError) as broken:  # among them pandas' ParserError, which names the line
        raise CatalogError(
            f"{name} is not valid CSV ({str(broken).strip()[-120:]}). Check for a missing closing quote, put text that "
            "contains a comma in quotes, and write 3.06 instead of 3,06."
        ) from broken
    surplus = frame.iloc[1:, -1] != ""
    frame = frame.iloc[1:, :-1].reset_index(drop=True).set_axis(header, axis="columns")
    problems = dict.fromkeys(
        map(int, np.flatnonzero(surplus)),
        f"the line has {len(header) + 1} fields, but the header has {len(header)}; put text that contains a comma in "
        "quotes, and write 3.06 instead of 3,06",
    )
    if len(frame) and last.strip() and (reason := _describe_cut(last, len(header))):
        problems[len(frame) - 1] = reason
    return Cells(frame, lambda: _find_lines(text), problems)


def _find_lines(text: str) -> list[int]:
    """Return the number of the line on which each row ends, without the header and blank lines, which pandas skips."""
    reader = csv.reader(io.StringIO(text, newline=""))
    lines = [reader.line_num for cells in reader if len(cells) > 1 or (cells and cells[0].strip(" \t"))]
    return lines[1:]


def _check_header(name: str, header: Sequence[str]) -> None:
    for column in header:
        if column not in _FIELDS:
            one_column = len(header) == 1 and re.search(r"[;\t|]", column)
            hint = "Separate the columns by commas." if one_column else describe_column(column)
            raise CatalogError(f"{name} has the unknown column {column[:40]!r}. {hint}")


def _describe_cut(line: str, fields: int) -> str | None:
    """Return why a last line without a line break may be incomplete, as after an interrupted download, or None."""
    cells = next(csv.reader([line]), [])
    if len(cells) < fields:
        return f"the line has fewer than {fields} fields; the file may be incomplete"
    if re.search(r"[0-9.]\s*$", cells[-1]):
        # 3.0 may be a part of 3.06; only a line break shows that the number is complete.
        return f"the line may be cut off after {show(cells[-1])}; if the file is complete, add a line break at its end"
    return None


def _read_json(text: str, name: str) -> Cells:
    try:
        rows, lines = _find_offers(text)
    except (ValueError, RecursionError) as failure:
        raise CatalogError(
            f'{name} is not a valid JSON price file: {str(failure)[:160]}. Expected: {{"offers": [{{...}}, ...]}}.'
        ) from failure
    for row, line in zip(rows, lines, strict=True):
        for field, value in row.items():
            if field not in _FIELDS:
                raise CatalogError(f"{name} line {line} has the unknown field {field[:40]!r}. {describe_column(field)}")
            if isinstance(value, list | dict):
                raise CatalogError(f"{name} line {line}: {field} must be one value, not a list or object.")
    columns = [field for field in _FIELDS if any(field in row for row in rows)]
    return Cells(pd.DataFrame(rows, columns=columns, dtype=object), lambda: lines, {})


def _find_offers(text: str) -> tuple[list[dict[str, object]], list[int]]:
    """Return the objects of the list ``offers`` in a JSON text, and the line number on which each object begins."""
    # NaN and Infinity stay words, which are not numbers.
    decoder = json.JSONDecoder(parse_constant=str, object_pairs_hook=_as_unique)
    whole = decoder.decode(text)
    if isinstance(whole, dict):
        for field in whole:
            if field not in _JSON_FIELDS:
                raise ValueError(f"unknown field {show(field)}; known fields are {', '.join(_JSON_FIELDS)}")
        if whole.get("currency", "USD") != "USD":
            raise ValueError(f"the currency is {show(whole['currency'])}; convert the prices to US dollars")
        version = whole.get("schema", SCHEMA_VERSION)
        if version != SCHEMA_VERSION or isinstance(version, bool):
            raise ValueError(f"the schema is {show(version)}, but this version of vmselect reads {SCHEMA_VERSION}")
        rows = whole.get("offers")
        at = text.index("[", text.index('"offers"')) + 1 if isinstance(rows, list) else 0
    else:
        rows, at = whole, text.find("[") + 1
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("the file contains no list of offers")
    lines, line, counted = [], 1, 0
    for _ in rows:
        at = text.index("{", at)
        line, counted = line + text.count("\n", counted, at), at
        lines.append(line)
        _, at = decoder.raw_decode(text, at)
    return rows, lines


def _as_unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the field {show(twice)} appears twice in one object")
    return fields


# -- files of SkyPilot (vms.csv, v7 and v8) and gpuhunt ----------------------------------------------------------------

# The columns by which the files of other tools are recognized.
LAYOUTS = {
    "skypilot": {"InstanceType", "AcceleratorName", "Price", "SpotPrice", "Region"},
    "gpuhunt": {"instance_name", "location", "price", "gpu_name", "spot"},
}
# Names of SkyPilot's folders and gpuhunt's files. Other names do not identify a provider.
PROVIDERS = re.compile(
    r"""
    aws|azure|cloudrift|crusoe|cudo|datacrunch|daytona|digitalocean|do|fluidstack|gcp|hotaisle|hyperbolic|
    hyperstack|ibm|jarvislabs|lambda|lambdalabs|lium|mithril|nebius|oci|ovhcloud|paperspace|primeintellect|
    runpod|scaleway|scp|seeweb|shadeform|simplepod|spheron|tensordock|vast|vastai|verda|vsphere|vultr|yotta
    """,
    re.X,
)
# Names of gpuhunt's files of providers that have another name in the catalog.
GPUHUNT_NAMES = {"do": "digitalocean", "lambda": "lambdalabs", "vast": "vastai"}
# Other names of providers: those of gpuhunt, and earlier ones.
ALIASES = {**{theirs: ours for ours, theirs in GPUHUNT_NAMES.items()}, "datacrunch": "verda"}
# Families of Google Cloud whose hosts SkyPilot prices without their GPUs.
_GCP_HOST_ONLY = r"(?:a2|a3|a4|a4x|g2|g4)-"
# SkyPilot's name for the GPU of A3 Mega; our table uses the name of the chip.
_SKYPILOT_GPUS = {"a3-megagpu": "H100-MEGA"}
# Families whose GPU price includes cores and memory.
_WHOLE_SLICES = ("a4-",)
# SkyPilot's placeholder for an unknown price of a TPU v6e.
_NO_PRICE_OF_V6E = 700.0

# Rows with the columns of the catalog, the position of each row in the file, and findings.
Converted = tuple[pd.DataFrame, npt.NDArray[np.intp], list[Finding]]


def _find_provider(path: Path) -> str:
    """Return the provider whose prices the file ``path`` contains, according to the name of the file or its folder."""
    # SkyPilot keeps <provider>/vms.csv, gpuhunt keeps <provider>.csv.
    resolved = path.resolve()
    name = resolved.parent.name if resolved.stem in ("vms", "instances") else resolved.stem
    if not PROVIDERS.fullmatch(name):
        raise CatalogError(f"The provider of the prices in {path.name} is unknown. Pass it, as in provider='aws'.")
    return name


def _convert_skypilot(raw: pd.DataFrame, provider: str) -> Converted:
    rows = pd.DataFrame(
        {
            "provider": provider,
            "instance_type": raw["InstanceType"].astype(str),
            "region": raw["Region"].astype(str).str.strip(" ,"),  # Vast writes ", US, NA" where it knows no city
            "vcpus": _floats(raw, "vCPUs"),
            "memory_gib": _floats(raw, "MemoryGiB"),
            "gpu_count": _floats(raw, "AcceleratorCount"),
            "gpu_memory_gib": _read_gpu_memory(raw),
            "zone": raw["AvailabilityZone"].astype(str) if "AvailabilityZone" in raw.columns else "",
            "row": np.arange(len(raw)),
        }
    )
    rows["gpu_model"] = _name_gpus(raw, provider, rows["gpu_memory_gib"].tolist())
    _use_known_gpus(rows, provider)
    findings = []
    # Rows that are only a part of a machine: an accelerator, or a host of Google's that is sold with accelerators.
    parts = rows["instance_type"] == ""
    if provider == "gcp":
        parts |= rows["instance_type"].str.match(_GCP_HOST_ONLY)
    elif parts.any():
        message = f"{int(parts.sum())} rows of SkyPilot that contain an accelerator without a host were excluded."
        remedy = f"To rank these machines, add your own prices ({OWN_PRICE})."
        findings.append(Finding("price-rows-excluded", message, remedy))
    rows.loc[rows["gpu_model"] == "", "gpu_count"] = rows["gpu_count"].fillna(0)
    markets = []
    for market, column in (("on_demand", "Price"), ("spot", "SpotPrice")):
        # A cell that is not a number stays unchanged, so that the check of the rows can name it.
        priced = rows.assign(market=market, usd_per_hour=raw[column].astype(str).to_numpy())
        absent = ["", "nan", "0", "0.0", "0.00"] if market == "spot" else ["", "nan"]  # no spot market may be 0, too
        markets.append(_keep_cheapest(priced[~parts & ~priced["usd_per_hour"].isin(absent)]))
        if provider == "gcp":
            markets.append(_keep_cheapest(_assemble(priced)))
    joined = pd.concat(markets).sort_values(["row", "market"], kind="stable", ignore_index=True)
    if provider == "gcp":
        findings += _describe_unused(rows[parts], joined)
    return joined.drop(columns=["row", "zone"]), joined["row"].to_numpy(dtype=np.intp), findings


def _read_gpu_memory(raw: pd.DataFrame) -> npt.NDArray[np.floating]:
    """Return the memory of one GPU in GiB according to the column GpuInfo; NaN where it states none."""
    if "GpuInfo" not in raw.columns:
        return np.full(len(raw), np.nan)
    codes, texts = pd.factorize(raw["GpuInfo"].astype(str))
    matches = [re.search(r"TotalGpuMemoryInMiB\W{1,4}([0-9.]+)", text) for text in texts]
    total = np.array([float(match[1]) if match and match[1].count(".") < 2 else np.nan for match in matches])[codes]
    count = _floats(raw, "AcceleratorCount")
    # The memory of a share of a GPU is that of the share. Values below 1024 are in GiB, whatever the name says.
    each = np.divide(total, np.maximum(count, 1), out=np.full(len(raw), np.nan), where=total > 0)
    memory: npt.NDArray[np.floating] = np.where(each < 1024, each, each / 1024)
    return memory


def _name_gpus(raw: pd.DataFrame, provider: str, memory: Sequence[float]) -> list[str]:
    names, machines = (raw[column].astype(str).replace("nan", "") for column in ("AcceleratorName", "InstanceType"))
    about = raw["GpuInfo"].astype(str) if "GpuInfo" in raw.columns else machines
    models = []
    for name, machine, info, gib in zip(names, machines, about, memory, strict=True):
        # Vast drops the variant from the name of the GPU, but not from that of the machine: 4x-RTX_4070S_Ti-32-65536.
        full = re.fullmatch(r"\d+x-(\w+)-\d+-\d+", machine) if provider == "vast" and name else None
        label = re.search(r"'Name': '([^']{1,60})'", info)
        model = name_gpu(full[1] if full else name, gib, provider=provider, machine=f"{machine} {label and label[1]}")
        models.append(model)
    return models


def _use_known_gpus(rows: pd.DataFrame, provider: str) -> None:
    """Replace the GPU of machine types that ship with prices: theirs were checked by hand."""
    machines = known_machines(provider)
    facts = [machines.get(name, {}) for name in rows["instance_type"]]
    same = np.array([fact.get("gpu_count", 0) for fact in facts], dtype=float) == rows["gpu_count"].to_numpy()
    same &= rows["gpu_count"].to_numpy() > 0
    for column, unknown in (("gpu_model", ""), ("gpu_memory_gib", np.nan)):
        rows[column] = rows[column].where(~same, [fact.get(column, unknown) for fact in facts])


def _mark_retired(rows: pd.DataFrame) -> None:
    """Mark the machine types that are retired in the shipped prices: catalogs list some of them for years."""
    names = zip(rows["provider"].astype(str), rows["instance_type"].astype(str), strict=True)
    retired = [bool(known_machines(provider).get(name, {}).get("retired")) for provider, name in names]
    rows["retired"] = np.where(retired, "yes", "no")


def _assemble(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the known Google machines: a host and its accelerators in the same zone, with the sum of their prices.

    In ``rows``, accelerators have no instance type. In the result, the column ``row`` of a machine is the row of its
    accelerators.
    """
    priced = rows.assign(usd_per_hour=pd.to_numeric(rows["usd_per_hour"], errors="coerce"))
    priced = priced[priced["usd_per_hour"] > 0]
    accelerators = priced[priced["instance_type"] == ""]
    by_gpu = dict(tuple(accelerators.groupby(["gpu_model", "gpu_count"])))
    by_host = dict(tuple(priced[priced["instance_type"] != ""].groupby("instance_type")[["zone", "usd_per_hour"]]))
    machines = []
    for name, facts in known_machines("gcp").items():
        if not facts.get("gpu_count"):
            continue
        if name.startswith("tpu"):
            offers = by_gpu.get((name, 1.0))
            offers = None if offers is None else offers[offers["usd_per_hour"] != _NO_PRICE_OF_V6E]
        else:
            gpu = _SKYPILOT_GPUS.get(name.rpartition("-")[0], str(facts["gpu_model"]))
            offers = by_gpu.get((gpu, facts["gpu_count"]))
            if offers is not None and not name.startswith(_WHOLE_SLICES):
                offers = _add_host(offers, by_host.get(name.partition("+")[0]))
        if offers is not None and len(offers):
            machines.append(offers.assign(instance_type=name, **facts))
    return pd.concat(machines) if machines else priced.iloc[:0]


def _add_host(gpus: pd.DataFrame, hosts: pd.DataFrame | None) -> pd.DataFrame | None:
    if hosts is None:
        return None
    host_usd = gpus["zone"].map(hosts.drop_duplicates("zone").set_index("zone")["usd_per_hour"])
    return gpus.assign(usd_per_hour=(gpus["usd_per_hour"] + host_usd).round(6))[host_usd.notna()]


def _describe_unused(parts: pd.DataFrame, joined: pd.DataFrame) -> list[Finding]:
    """Return a finding about the accelerators and hosts in ``parts`` that belong to no known machine."""
    gpus = parts[parts["instance_type"] == ""]
    counts = gpus["gpu_count"].map("{:g} x ".format) + gpus["gpu_model"]
    used = gpus["row"].isin(joined["row"])
    names = sorted(set(counts[~used]) - set(counts[used]))
    names += sorted(set(parts["instance_type"]) - {""} - set(joined["instance_type"]))
    if not names:
        return []
    message = f"Prices of accelerators or hosts that are part of no known machine were excluded: {list_some(names, 8)}."
    remedy = f"To rank such machines, add your own prices ({OWN_PRICE})."
    return [Finding("price-rows-excluded", message, remedy, "info")]


def _convert_gpuhunt(raw: pd.DataFrame, provider: str) -> Converted:
    memory = _floats(raw, "gpu_memory")
    spot = raw["spot"].astype(str).str.lower()
    rows = pd.DataFrame(
        {
            "provider": raw["provider"].astype(str) if "provider" in raw.columns else provider,
            "instance_type": raw["instance_name"].astype(str),
            "region": raw["location"].astype(str),
            "market": np.where(spot == "true", "spot", np.where(spot == "false", "on_demand", spot)),
            "usd_per_hour": raw["price"].astype(str),
            "vcpus": _floats(raw, "cpu"),
            "memory_gib": _floats(raw, "memory"),
            "gpu_model": _name_gpuhunt(raw, memory.tolist()),
            "gpu_count": _floats(raw, "gpu_count"),
            "gpu_memory_gib": memory,
        }
    )
    # Prices of the Dynamic Workload Scheduler are not on demand: a machine is reserved for later.
    flags = raw["flags"].astype(str) if "flags" in raw.columns else pd.Series("", index=raw.index)
    rows = rows[~flags.str.contains("dws", case=False).to_numpy()]
    google = rows["provider"] == "gcp"
    # gpuhunt gives an N1 host with added GPUs the name of the host.
    added = google & rows["instance_type"].str.startswith("n1-") & (rows["gpu_count"] > 0)
    gpus = rows["gpu_count"].map("+{:g}x".format) + rows["gpu_model"]
    rows["instance_type"] = rows["instance_type"].where(~added, rows["instance_type"] + gpus)
    rows["region"] = rows["region"].mask(google, rows["region"].str.replace(r"-[a-z]$", "", regex=True))
    kept = pd.concat([rows[~google], _keep_cheapest(rows[google])]).sort_index()
    return kept.reset_index(drop=True), kept.index.to_numpy(dtype=np.intp), []


def _name_gpuhunt(raw: pd.DataFrame, memory: Sequence[float]) -> list[str]:
    names, machines = raw["gpu_name"].astype(str).replace("nan", ""), raw["instance_name"].astype(str)
    return [name_gpu(name, gib, machine=machine) for name, gib, machine in zip(names, memory, machines, strict=True)]


def _keep_cheapest(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the row of the cheapest zone for each region, instance type and market.

    If the price of a zone is not a number, the row of that zone is returned instead, so that validation reports it.
    """
    rank = pd.to_numeric(rows["usd_per_hour"], errors="coerce").fillna(-1)
    return rows.loc[rank.sort_values(kind="stable").index].drop_duplicates(["instance_type", "region", "market"])


def _floats(raw: pd.DataFrame, column: str) -> npt.NDArray[np.floating]:
    """Return a column of facts as numbers; NaN where it has none, because a price is usable without them."""
    if column not in raw.columns:
        return np.full(len(raw), np.nan)
    return pd.to_numeric(raw[column].astype(object), errors="coerce").astype(np.float64).to_numpy()
