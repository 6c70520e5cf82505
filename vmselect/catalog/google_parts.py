"""Google's machines in SkyPilot's files: the host in one row, its accelerators in another, here put together."""

from __future__ import annotations

import pandas as pd

# A3 Mega has its own GPU, which our table calls as the chip is called.
_SKYPILOT_GPUS = {"a3-megagpu": "H100-MEGA"}
# A B200 is sold as a slice of its machine, cores and memory included.
_WHOLE_SLICES = ("a4-",)
# What SkyPilot writes where it knows no price of a TPU v6e.
_NO_PRICE_OF_V6E = 700.0


def assemble(rows: pd.DataFrame, *, market: str, prices: pd.Series) -> pd.DataFrame:
    """Whole machines of ``market`` out of ``rows``, of which those without an instance type are accelerators.

    Host and accelerators are priced in the same zone. Only machines are assembled of which we know what they are made
    of; ``row`` of a machine is that of its accelerators.
    """
    from vmselect.catalog.sources.machines import known_machines  # which reads a snapshot through this package

    priced = rows.assign(market=market, usd_per_hour=pd.to_numeric(prices, errors="coerce"))
    priced = priced[priced["usd_per_hour"] > 0]
    accelerators = priced[priced["instance_type"] == ""]
    by_gpu = dict(tuple(accelerators.groupby(["gpu_model", "gpu_count"])))
    by_host = dict(tuple(priced[priced["instance_type"] != ""].groupby("instance_type")[["zone", "usd_per_hour"]]))
    machines = []
    for name, facts in known_machines("gcp").items():
        if not facts.get("gpu_count"):
            continue
        if name.startswith("tpu"):
            tpus = by_gpu.get((name, 1.0))
            found = None if tpus is None else tpus[tpus["usd_per_hour"] != _NO_PRICE_OF_V6E]
        else:
            gpu = _SKYPILOT_GPUS.get(name.rpartition("-")[0], facts["gpu_model"])
            found = by_gpu.get((gpu, facts["gpu_count"]))
            if found is not None and not name.startswith(_WHOLE_SLICES):
                found = _add_host(found, by_host.get(name.partition("+")[0]))
        if found is not None and len(found):
            machines.append(found.assign(instance_type=name, **facts))
    return pd.concat(machines) if machines else priced.iloc[:0]


def _add_host(gpus: pd.DataFrame, hosts: pd.DataFrame | None) -> pd.DataFrame | None:
    if hosts is None:
        return None
    host_usd = gpus["zone"].map(hosts.drop_duplicates("zone").set_index("zone")["usd_per_hour"])
    return gpus.assign(usd_per_hour=(gpus["usd_per_hour"] + host_usd).round(6))[host_usd.notna()]
