"""The founding study of two clouds, from its printed numbers to its conclusions.

The study (Applied Sciences) moved the COCO images to AWS and Azure in 116 batches of 1,024, let YOLOv8 find objects in
them there, and timed upload, download and inference in seconds per megabyte. It prints mean, standard deviation and
median of each, no single times. ``spread`` below makes 116 values with exactly that mean and deviation and nearly that
median; they are a stand-in, of which only these three numbers are the study's.
"""

from __future__ import annotations

import math

import vmselect as vs
from vmselect.records import InferenceRecord, TransferRecord

BATCHES, IMAGES, DATASET_GB = 116, 1024, 18
MB_PER_BATCH = DATASET_GB * 1000 / BATCHES

# Tables 2 to 4: mean, standard deviation, median, in seconds per MB.
TIMES = {
    "download": {"AWS": (0.78, 0.02, 0.78), "Azure": (0.49, 0.17, 0.40)},
    "upload": {"AWS": (1.84, 0.12, 1.82), "Azure": (3.26, 0.68, 2.85)},
    "inference": {"AWS": (0.63, 0.04, 0.615), "Azure": (0.60, 0.01, 0.60)},
}
# Tables 6 and 7: USD per hour. The endpoint of Azure is scaled from 1 to 10 instances.
PRICES = {
    "AWS": {"storage": 0.0, "client": 0.0104, "endpoint": 0.526},
    "Azure": {"storage": 0.0, "client": 0.0115, "endpoint": 0.184},
}
ENDPOINTS = {"AWS": "ml.g4dn.xlarge", "Azure": "App Service S1"}
INSTANCES = {"AWS": 1, "Azure": 10}
# A made-up day, in images per second by hour: the study does not state its load.
DAY_LOADS = [1, 1, 1, 1, 2, 4, 8, 14, 22, 30, 34, 35, 34, 32, 30, 28, 26, 24, 20, 14, 9, 5, 3, 2]
UPTIME_PERCENT = {"AWS": 99.99, "Azure": 99.95}


def spread(mean: float, deviation: float, median: float, count: int = BATCHES) -> list[float]:
    """``count`` values with this mean and deviation: most at the median's side, the others far enough to balance."""
    # A share of the values lies at one level, the rest at another; the median is that of the larger group.
    skew = (mean - median) / deviation
    share = min(max(1 / (1 + skew * skew), 0.5), 0.98) if skew else 0.5
    low = deviation * math.sqrt((1 - share) / share)
    high = deviation * math.sqrt(share / (1 - share))
    sign = 1 if skew >= 0 else -1
    many = round(share * count)
    values = [mean - sign * low] * many + [mean + sign * high] * (count - many)
    # A little ripple, so that no two are equal; then brought to the exact mean and deviation.
    values = [value + deviation * 0.05 * math.sin(number) for number, value in enumerate(values)]
    center = sum(values) / count
    scale = deviation / math.sqrt(sum((value - center) ** 2 for value in values) / (count - 1))
    return [mean + (value - center) * scale for value in values]


def transfer_records() -> list[TransferRecord]:
    """A record per batch and cloud: its upload and its download."""
    records = []
    for cloud in ("AWS", "Azure"):
        ups, downs = (spread(*TIMES[way][cloud]) for way in ("upload", "download"))
        records += [
            TransferRecord.from_times(
                instance_type="client", provider=cloud.lower(), url=f"{cloud.lower()}://coco", megabytes=MB_PER_BATCH,
                upload_seconds=up * MB_PER_BATCH, download_seconds=down * MB_PER_BATCH, factors={"cloud": cloud},
            )
            for up, down in zip(ups, downs, strict=True)
        ]  # fmt: skip
    return records


def inference_records() -> list[InferenceRecord]:
    """A record per batch and cloud, of one call of 1,024 images."""
    return [
        InferenceRecord.from_times(
            instance_type=ENDPOINTS[cloud], provider=cloud.lower(), batch_size=IMAGES, model="YOLOv8",
            bytes_per_item=MB_PER_BATCH * 1e6 / IMAGES, call_seconds=seconds * MB_PER_BATCH, factors={"cloud": cloud},
        )
        for cloud in ("AWS", "Azure")
        for seconds in spread(*TIMES["inference"][cloud])
    ]  # fmt: skip


def catalog() -> vs.Catalog:
    """The study's prices of the two endpoints."""
    return vs.Catalog.embedded().with_offers([
        {"provider": cloud.lower(), "instance_type": ENDPOINTS[cloud], "region": "study", "market": "on_demand",
         "usd_per_hour": PRICES[cloud]["endpoint"]}
        for cloud in PRICES
    ])  # fmt: skip


def main() -> dict[str, str]:
    """Print the study's conclusions and return who wins what."""
    transfers, calls = transfer_records(), inference_records()
    winners = {}
    print("Tests of stand-ins for the single times, which are not printed: their p-values are no reproduction.")
    for what, records, metric in (
        ("upload", transfers, "upload_seconds_per_mb"),
        ("download", transfers, "download_seconds_per_mb"),
        ("inference", calls, "seconds_per_mb"),
    ):
        found = vs.compare(records, by="cloud", metric=metric)
        fastest = found.groups.sort_values("mean").iloc[0]["group"]
        winners[what] = str(fastest)
        print(f"{what:10} {fastest} is faster; {found.test['name']}: p = {found.test['p_value']:.2g}")

    ranking = vs.serving.rank_inference(calls, catalog=catalog(), region="study", instances=(1, 10))
    print(f"\nServing: {ranking.verdict}")
    print("\nOne bill per cloud, for an hour:")
    bills = {}
    for cloud, prices in PRICES.items():
        most = INSTANCES[cloud]
        endpoint = (prices["endpoint"], prices["endpoint"], prices["endpoint"] * most)
        bills[cloud] = vs.serving.Bill.of(storage=prices["storage"], client=prices["client"], endpoint=endpoint)
        print(f"{cloud:6} {bills[cloud]}; a day: {vs.serving.Bill(bills[cloud].parts).times(24)}")
    winners["cost, 1 instance"] = min(bills, key=lambda cloud: bills[cloud].total)
    winners["cost, scaled out"] = min(bills, key=lambda cloud: bills[cloud].high)
    winners["availability"] = max(UPTIME_PERCENT, key=lambda cloud: UPTIME_PERCENT[cloud])
    print("\nDowntime that the service-level agreements allow, at 100 USD per hour of downtime:")
    for cloud, percent in UPTIME_PERCENT.items():
        print(f"{cloud:6} {vs.serving.Downtime.of(percent, usd_per_hour=100)}")
    print("\nAzure's endpoint, autoscaled under a load that changes over the day:")
    (azure,) = [row for row in ranking if row.instance_type == ENDPOINTS["Azure"]]
    print(vs.serving.simulate_day(azure, DAY_LOADS, start_seconds=120, instances=(1, INSTANCES["Azure"])))
    print()
    for what, cloud in winners.items():
        print(f"{what}: {cloud}")
    return winners


if __name__ == "__main__":
    main()
