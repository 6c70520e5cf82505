"""Damaged files, hostile names and hostile servers, and whether anything but a clear error comes of them.

``python tests/benchmarks/adversarial.py [--seed N] [--attempts N] [--only CLASS]`` prints one row per class.
An attempt holds if vmselect accepts the input or raises one of its own errors, whose text is printable. Everything
else, such as a traceback, an executed name or a response without end, is a failure. Exit code 1 if there is a failure.
Nothing is contacted but a server on loopback.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import vmselect as vs
from vmselect.catalog.sources.azure import AzurePrices
from vmselect.catalog.sources.gcp import GcpPrices
from vmselect.catalog.sources.http import JsonClient
from vmselect.catalog.sources.skypilot import SkyPilotPrices
from vmselect.errors import SweepError, VmselectError

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.contract.prices.conftest import Answer, Cloud
from tests.support import sinks
from tests.support.damage import ODD, places, put
from tests.support.journal_mutations import Counts, run_mutated

ROOT = Path(__file__).resolve().parents[2]
Attempt = tuple[str, Callable[[], object]]
"""A description, and a function that makes the attempt; it raises a VmselectError to refuse the input."""
SLOWEST_SECONDS = 60.0
"""An attempt that takes longer is a failure."""
PLAN = """\
command: [python, train.py, --lr, "{lr}"]
factors:
  lr: [0.1, 0.01]
  machine: [small, large]
machines:
  small: {instance_type: g4dn.xlarge, cores: 2, usd_per_hour: 0.5}
  large: {instance_type: g5.xlarge, usd_per_hour: 1.0}
exclude:
  - {machine: small, lr: 0.01}
environment: {MODE: fast}
repetitions: 2
minutes: 5
seed: 1
"""


def main() -> int:
    """Make all attempts and print a row per class."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--attempts", type=int, default=1000, help="Attempts of each class of damaged files.")
    parser.add_argument("--only", choices=CLASSES, help="Make only the attempts of this class.")
    given = parser.parse_args()
    failures: list[str] = []
    print("| class | attempts | accepted | refused | failures |\n|---|---|---|---|---|", flush=True)
    for name in [given.only] if given.only else CLASSES:
        with tempfile.TemporaryDirectory() as folder:
            rng = random.Random(f"{given.seed} {name}")
            counts = dict.fromkeys(("accepted", "refused", "failures"), 0)
            for done, (what, act) in enumerate(CLASSES[name](rng, Path(folder), given.attempts), 1):
                outcome, detail = judge(act)
                counts[outcome] += 1
                if outcome == "failures":
                    failures.append(f"{name}, {what}: {detail}")
                if done % 100 == 0:
                    print(f"{name}: {done}", end="\r", file=sys.stderr, flush=True)
        row = [name, sum(counts.values()), *counts.values()]
        print(f"| {' | '.join(f'{cell:,}' if isinstance(cell, int) else cell for cell in row)} |", flush=True)
    for failure in failures[:20]:
        print(failure.encode("unicode_escape").decode()[:400])
    return 1 if failures else 0


def judge(act: Callable[[], object]) -> tuple[str, str]:
    """How an attempt ends, and for a failure what happened."""
    began = time.monotonic()
    try:
        act()
        outcome = "accepted", ""
    except VmselectError as refused:
        plain = str(refused).replace("\n", "").isprintable()
        outcome = ("refused", "") if plain else ("failures", f"unprintable message {refused}")
    except Exception as error:  # noqa: BLE001 - any other exception is what is sought
        outcome = "failures", f"{type(error).__name__}: {error}"
    if (seconds := time.monotonic() - began) > SLOWEST_SECONDS:
        return "failures", f"took {seconds:.0f} s"
    return outcome


def damage(rng: random.Random, data: bytes) -> bytes:
    """``data`` with a few bytes changed, removed, repeated or cut off."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at, size = rng.randrange(len(changed) or 1), rng.randrange(1, 40)
        kind = rng.randrange(5)
        if kind == 0:
            changed[at : at + 1] = bytes([rng.randrange(256)])
        elif kind == 1:
            del changed[at : at + size]
        elif kind == 2:
            changed[at:at] = changed[at : at + size] * rng.randrange(1, 4)
        elif kind == 3:
            changed[at:at] = rng.choice(
                (b"\0", b"\xff", b"-1e400", b"NaN", b'"', b"{", b"]", b"\n", b": &a [*a]", b"9" * 400)
            )
        else:
            del changed[at:]
    return bytes(changed)


def damage_json(rng: random.Random, data: bytes) -> bytes:
    """The JSON object ``data`` with one field replaced by an odd value or a hostile name, or with damaged bytes."""
    content = json.loads(data)
    ways = list(places(content))
    if not ways or rng.random() < 0.4:
        return damage(rng, data)
    put(content, rng.choice(ways), rng.choice((*ODD, *sinks.FRAGMENTS)))
    return json.dumps(content).encode("utf-8", "surrogatepass")


def make_name(rng: random.Random) -> str:
    """A name of some hostile fragments."""
    return "".join(rng.choices(sinks.FRAGMENTS, k=rng.randrange(1, 5))).strip() or "name"


def damaged_records(rng: random.Random, folder: Path, attempts: int) -> Iterator[Attempt]:
    """Records of every kind and format. What can be read is then estimated or shown."""
    originals = [path.read_bytes() for path in sorted((ROOT / "tests" / "data").glob("*/format-*.json"))]
    path = folder / "record.json"

    def read() -> None:
        for record in vs.load_records(path):
            assert str(record).replace("\n", "").isprintable()
            getattr(record, "_repr_html_", str)()
            if isinstance(record, vs.Profile):
                vs.estimate(record, epochs=5)

    for number in range(2 * attempts):
        path.unlink(missing_ok=True)
        path.write_bytes(damage_json(rng, originals[number % len(originals)]))
        yield f"record {number}", read


def damaged_plans(rng: random.Random, folder: Path, attempts: int) -> Iterator[Attempt]:
    """Plans of sweeps as YAML. What can be read is then tabulated with prices."""
    path = folder / "plan.yaml"
    for number in range(attempts):
        path.write_bytes(damage(rng, PLAN.encode()))
        yield f"plan {number}", lambda: vs.Plan.load(path).to_frame()


def mutated_journals(rng: random.Random, folder: Path, attempts: int) -> Iterator[Attempt]:
    """Journals of a killed sweep whose trials still run, shown, sometimes resumed, and cleaned."""

    def act(seed: int) -> None:
        counts = Counts()
        with contextlib.chdir(folder):
            run_mutated(seed, folder / str(seed), counts)
        shutil.rmtree(folder / str(seed))
        if counts.wrong:
            raise AssertionError(counts.wrong[0])
        if counts.refused:
            raise SweepError("refused")

    for _ in range(attempts):
        seed = rng.randrange(10**9)
        yield f"seed {seed}", partial(act, seed)


def hostile_names(sink: str) -> Callable[[random.Random, Path, int], Iterator[Attempt]]:
    """Attempts of one sink. Every kind of chart is an attempt of its own, so fewer names are drawn for charts."""

    def attempts(rng: random.Random, folder: Path, count: int) -> Iterator[Attempt]:
        for _ in range(max(1, count // (500 if sink == "chart JSON" else 10))):
            name = make_name(rng)
            if sink == "chart JSON":
                yield from ((f"{name} in {kind}", partial(sinks.check_one_chart, kind, name)) for kind in sinks.CHARTS)
            else:
                yield name, partial(sinks.SINKS[sink], name, folder)

    return attempts


def hostile_servers(rng: random.Random, folder: Path, _: int) -> Iterator[Attempt]:
    """Servers that answer price requests with garbage, too much, too slowly, or for ever."""
    os.environ["VMSELECT_CACHE_DIR"] = str(folder / "cache")
    cloud = Cloud()
    deep = b'{"Items": ' + b"[" * 100_000
    item = {"armRegionName": "eastus", "armSkuName": "x", "retailPrice": 1.0, "currencyCode": "USD",
            "unitOfMeasure": "1 Hour", "serviceName": "Virtual Machines", "type": "Consumption"}  # fmt: skip
    head = b"InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price"
    head += b",SpotPrice\n"
    endless = {"Items": [item], "NextPageLink": f"{cloud.url}/again", "skus": [{}], "nextPageToken": "again"}
    packed = {"Content-Encoding": "gzip"}
    answers = {
        "nothing": Answer(b""),
        "a page": Answer(b"<html></html>"),
        "random bytes": Answer(rng.randbytes(10_000)),
        "a list": Answer([1]),
        "a text": Answer(b'"text"'),
        "NaN": Answer(b'{"Items": NaN, "skus": NaN}'),
        "deep nesting": Answer(deep),
        "half a page": Answer({"Items": [item] * 100}, cut_after=100),
        "endless pages": Answer(endless),
        "a link elsewhere": Answer({"Items": [item], "NextPageLink": "http://203.0.113.9/", "nextPageToken": 5}),
        "a link to a file": Answer({"Items": [item], "NextPageLink": "file:///etc/passwd"}),
        "no rows": Answer({"Items": [], "skus": []}),
        "rows of other types": Answer({"Items": [1, None, "x", {}], "skus": [1, None, "x", {}]}),
        "odd fields": Answer({"Items": [dict.fromkeys(item, odd) for odd in ODD[:6]], "skus": [{"category": 1}]}),
        "hostile names": Answer({"Items": [{**item, "armSkuName": one} for one in sinks.FRAGMENTS]}),
        "a hostile table": Answer(
            head + b"".join(f"{json.dumps(one)},1,1,,,,us-east-1,z,1,1\n".encode() for one in sinks.FRAGMENTS)
        ),
        "a damaged table": Answer(damage(rng, head * 50)),
        "compressed zeros": Answer(gzip.compress(b"0" * 200_000_000), headers=packed),
        "not compressed": Answer(b"{}", headers=packed),
        "a redirect": Answer(status=302, headers={"Location": "http://203.0.113.9/"}),
        "an error": Answer(b"hidden-text", status=500),
        "a long wait": Answer(status=503, headers={"Retry-After": "999999999"}),
        "no answer": Answer({}, hang_seconds=1.0),
        "a slow answer": Answer({"Items": "x" * 500}, drip_seconds=0.02),
    }
    client = JsonClient(attempts=2, timeout_seconds=0.3, answer_seconds=0.6, sleep=lambda _: None)
    try:
        for what, answer in answers.items():
            cloud.reply = lambda _, answer=answer: answer  # type: ignore[misc]
            for region, source in (
                ("eastus", AzurePrices(base_url=cloud.url, client=client)),
                ("us-central1", GcpPrices(base_url=cloud.url, api_key="a-key", client=client)),
                ("us-east-1", SkyPilotPrices("aws", base_url=cloud.url, client=client)),
            ):
                fetch = partial(source.fetch, region, progress=lambda _: None)
                yield f"{what} to {type(source).__name__}", fetch
    finally:
        cloud.close()
        shutil.rmtree(folder / "cache", ignore_errors=True)


CLASSES: dict[str, Callable[[random.Random, Path, int], Iterator[Attempt]]] = {
    "damaged records": damaged_records,
    "damaged plans": damaged_plans,
    "mutated journals": mutated_journals,
    **{f"names in {sink}": hostile_names(sink) for sink in sinks.SINKS},
    "hostile price servers": hostile_servers,
}

if __name__ == "__main__":
    sys.exit(main())
