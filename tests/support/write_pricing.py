"""Write the manifest of the folder ``pricing`` and the tables of its README from the files in it.

Run ``python -m tests.support.write_pricing`` after a change of a file there. A test checks that this was done.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd

from vmselect.catalog.age import aging_of
from vmselect.catalog.snapshots import update_manifest
from vmselect.units import format_count

FOLDER = Path(__file__).parents[2] / "pricing"
Z_90 = 1.6449
"""Standard deviations from the middle of a normal distribution to the ends of its 90 % interval."""


def read_latest(folder: Path) -> pd.DataFrame:
    """All newest prices, one file after the other."""
    files = sorted((folder / "latest").glob("*.csv"))
    return pd.concat([pd.read_csv(file, keep_default_na=False, na_values={"gpu_count": [""]}) for file in files])


def table(header: list[str], rows: list[list[object]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return (
        "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)
        .replace("| ---", "|---")
        .replace("--- |", "---|")
    )


def span(dates: pd.Series) -> str:
    """The oldest and the newest of ``dates``, or the only one."""
    first, last = dates.min(), dates.max()
    return first if first == last else f"{first} to {last}"


def describe_providers(folder: Path) -> str:
    """Prices, regions, types with a GPU, dates and sources of each provider."""
    rows = []
    for provider, prices in read_latest(folder).groupby("provider"):
        gpus = prices[prices["gpu_count"] > 0]
        rows.append(
            [
                f"`{provider}`", f"{len(prices):,}", prices["region"].nunique(), gpus["instance_type"].nunique(),
                span(prices["date"]), ", ".join(sorted(prices["source"].unique())),
            ]
        )  # fmt: skip
    return table(["provider", "prices", "regions", "types with a GPU", "dates", "source"], rows)


def describe_markets(folder: Path) -> str:
    """Number of prices in each market."""
    counts = read_latest(folder).groupby("market").agg(prices=("provider", "size"), providers=("provider", "unique"))
    rows = [
        [f"`{market}`", f"{row.prices:,}", ", ".join(sorted(row.providers)) if len(row.providers) < 9 else "all"]
        for market, row in counts.iterrows()
    ]
    return table(["market", "prices", "providers"], rows)


def describe_billing(folder: Path) -> str:
    """Billing rules of each provider."""
    terms = json.loads((folder / "providers.json").read_text(encoding="utf-8"))
    known = [entry for entry in terms if entry["billing_increment_seconds"] is not None]
    rows = [
        [
            f"`{entry['provider']}` {entry['service']}", f"{entry['billing_increment_seconds']} s",
            f"{entry['billing_minimum_seconds']} s", entry["billing_source"],
        ]
        for entry in known
    ]  # fmt: skip
    unknown = ", ".join(entry["provider"] for entry in terms if entry not in known)
    return table(["service", "increment", "minimum", "source"], rows) + f"\n\nUnknown: {unknown}."


CONTENTS = {
    "latest/PROVIDER.csv": "the newest prices, one file per provider",
    "2021-02-01.csv": "prices printed in a dissertation, to reproduce its results",
    "gpu-specs.csv": "peak rates of GPU and accelerator models",
    "unpriced.csv": "machine types without a dated public price; `basis` names the source of each description",
    "price-history.csv": "median and lowest price per GPU-hour by month",
    "price-moves.csv": "mean monthly move of list and spot prices by provider, and the age at which they are stale",
    "spot-interruptions.csv": "interruption classes of AWS accelerator machines by region, each with its date",
    "boot-times.csv": "seconds from the request of a machine to its first command, by provider",
    "providers.json": "billing rules, promised availability and reference region of each provider's services",
    "egress.json": "price of a gigabyte that leaves a cloud, with date and source",
    "grids.csv": "CO2 per kWh of power grids, with year and source",
    "regions.csv": "grid, PUE and share of carbon-free energy of cloud regions, with year and source",
    "region-countries.csv": "the country of each region of each provider",
}
"""What each file of the folder contains."""


def describe_files(folder: Path) -> str:
    """Contents and number of rows of each file."""
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    snapshots = manifest["snapshots"]
    entries = [entry for snapshot in snapshots[:-1] for entry in snapshot["files"]] + manifest["tables"]
    counts = {entry["file"]: entry["rows"] for entry in entries}
    counts["latest/PROVIDER.csv"] = sum(entry["rows"] for entry in snapshots[-1]["files"])
    names = [*CONTENTS, *sorted(set(counts) - set(CONTENTS))]
    rows: list[list[object]] = [[f"`{name}`", f"{counts[name]:,}", CONTENTS.get(name, "")] for name in names]
    return table(["file", "rows", "contents"], rows)


SOURCES = {
    "skypilot": ("skypilot-org/skypilot-catalog: all clouds except Azure on demand", "Apache-2.0"),
    "karpenter-provider-azure": (
        "Azure/karpenter-provider-azure, generated 2026-06-18: Azure on demand", "Apache-2.0"
    ),
    "google-cloud-pricing-cost-calculator": (
        "Cyclenerd/google-cloud-pricing-cost-calculator, 2026-07-30: commitments of Google Cloud, only where its "
        "on-demand price agrees within 2 %", "Apache-2.0",
    ),
    "list price": ("price lists of the providers: retired types, SageMaker", "facts"),
    "spot market": ("spot markets of the providers: retired types", "facts"),
}  # fmt: skip
"""Where the prices of each source are from, and their licence."""


def describe_sources(folder: Path) -> str:
    """Number of prices of each source, where they are from, and their licence."""
    counts = read_latest(folder)["source"].value_counts()
    rows: list[list[object]] = [[f"`{name}`", f"{count:,}", *SOURCES[name]] for name, count in counts.items()]
    return table(["source", "prices", "from", "licence"], rows)


MONTHS = (1, 3, 6, 12)
"""Months after which the intervals of prices are compared with the price history."""


def describe_coverage(folder: Path) -> str:
    """Share of the monthly prices that are in the 90 % interval of the price some months before."""
    history = pd.read_csv(folder / "price-history.csv")
    month = pd.PeriodIndex(history["month"], freq="M").astype("int64")
    history = history.assign(month=month, log=np.log(history["median_usd"]))
    rows: list[list[object]] = []
    for (provider, market), prices in history.groupby(["provider", "market"]):
        move = aging_of(str(provider), str(market)).monthly_move
        shares = []
        for months in MONTHS:
            later = prices.assign(month=prices["month"] - months)
            pairs = prices.merge(later, on=["gpu_model", "month"], suffixes=("", "_later"))
            inside = (pairs["log_later"] - pairs["log"]).abs() <= Z_90 * move * months**0.5 + 1e-9
            shares.append(f"{100 * inside.mean():.0f} %")
        rows.append([f"`{provider}` {market}", f"{100 * move:g} %", *shares])
    return table(["prices", "mean move", *(f"after {format_count(months, 'month')}" for months in MONTHS)], rows)


TABLES = {
    "files": describe_files,
    "providers": describe_providers,
    "markets": describe_markets,
    "sources": describe_sources,
    "coverage": describe_coverage,
    "billing": describe_billing,
}


def fill(text: str, folder: Path) -> str:
    """``text`` with each table between its marks written anew."""
    for name, describe in TABLES.items():
        pattern = rf"(<!-- {name} -->\n).*?(\n<!-- end -->)"
        text, count = re.subn(pattern, lambda marks, new=describe: marks[1] + new(folder) + marks[2], text, flags=re.S)
        assert count == 1, f"README.md has no place for the table {name}"
    return text


def main() -> None:
    """Write the manifest, then the README."""
    update_manifest(FOLDER)
    readme = FOLDER / "README.md"
    readme.write_text(fill(readme.read_text(encoding="utf-8"), FOLDER), encoding="utf-8")


if __name__ == "__main__":
    main()
