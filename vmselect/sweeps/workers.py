"""Several nodes: where each worker is, and what it is told, in the words of every framework.

A program too, which needs nothing but Python's standard library, because it is sent to machines that have no vmselect.
``workers.py place`` says what the other workers must know of a machine. ``workers.py run FOLDER TOKEN`` makes of
``FOLDER/workers.json`` what one worker is asked, from what Slurm or SkyPilot told it about its number and the others,
and becomes the guard that runs it.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Place = dict[str, Any]
"""A worker's ``host``, two free ``ports`` of it, and its ``boot``, the same for workers that share a loopback."""

PORTS = (29500, 29501)
"""Of machines that are nobody else's, so that any ports will do."""

MEET_SECONDS = 300.0
"""How long workers wait for each other: a cluster starts them together, and a shared disk shows files late."""


def main(arguments: Sequence[str]) -> int:
    """Run as a program."""
    if len(arguments) == 3 and arguments[0] == "run":
        return become_guard(Path(arguments[1]), arguments[2])
    if list(arguments) == ["place"]:
        sys.stdout.write(json.dumps(find_place(socket.gethostname())) + "\n")
        return 0
    sys.stderr.write("usage: workers.py run FOLDER TOKEN | workers.py place\n")
    return 2


def worker_environments(places: Sequence[Place]) -> list[dict[str, str]]:
    """The variables of each worker, the chief first; none for a single one.

    TensorFlow reads ``TF_CONFIG``, torch ``MASTER_ADDR`` and its like, JAX and ``keras.distribution`` the others.

    >>> pair = [{"host": "a", "ports": [29500, 29501]}, {"host": "b", "ports": [29500, 29501]}]
    >>> [(worker["RANK"], worker["LOCAL_RANK"], worker["MASTER_ADDR"]) for worker in worker_environments(pair)]
    [('0', '0', 'a'), ('1', '0', 'a')]
    >>> worker_environments(pair[:1])
    [{}]
    """
    count = len(places)
    if count == 1:
        return [{}]
    boots = [place.get("boot") for place in places]
    alone = bool(boots[0]) and len(set(boots)) == 1  # all on one machine, whatever it is called
    hosts = ["127.0.0.1" if alone else str(place["host"]) for place in places]
    addresses = [_address(hosts[index], place["ports"][1]) for index, place in enumerate(places)]
    port = places[0]["ports"][0]
    coordinator = _address(hosts[0], port)
    return [
        {
            "TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}),
            "MASTER_ADDR": hosts[0], "MASTER_PORT": str(port), "RANK": str(index), "WORLD_SIZE": str(count),
            "LOCAL_RANK": str(boots[:index].count(boots[index]) if boots[index] else 0),
            "JAX_COORDINATOR_ADDRESS": coordinator, "JAX_NUM_PROCESSES": str(count), "JAX_PROCESS_ID": str(index),
            "KERAS_DISTRIBUTION_JOB_ADDRESSES": ",".join([coordinator, *addresses[1:]]),
            "KERAS_DISTRIBUTION_NUM_PROCESSES": str(count), "KERAS_DISTRIBUTION_PROCESS_ID": str(index),
            "VMSELECT_NODES": str(count), "VMSELECT_NODE": str(index),
        }
        for index in range(count)
    ]  # fmt: skip


def find_place(host: str) -> Place:
    """What other workers must know of this machine, which they call ``host``."""
    try:  # containers of one machine may have networks of their own
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip() + str(Path("/proc/self/ns/net").readlink())
    except OSError:
        boot = ""
    return {"host": host, "boot": boot, "ports": free_ports(2)}


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody uses now."""
    sockets: list[socket.socket] = []
    try:
        for _ in range(count):
            one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            sockets.append(one)
            one.bind(("", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def worker_folder(folder: str | Path, rank: int) -> Path:
    """Where the guard of one worker writes, if it has one of its own: the chief's is the trial's folder."""
    return Path(folder, f"worker-{rank}") if rank else Path(folder)


def become_guard(folder: Path, token: str) -> int:
    """Find out which worker this is and who the others are, and run its command under a guard."""
    asked = json.loads((folder / "workers.json").read_text(encoding="utf-8"))
    count = int(asked["count"])
    patience = min(MEET_SECONDS, float(asked["request"]["cap_seconds"]))
    if asked["ports"]:
        rank, hosts = int(os.environ["SKYPILOT_NODE_RANK"]), os.environ["SKYPILOT_NODE_IPS"].split()
        places: list[Place] = [{"host": host, "ports": asked["ports"]} for host in hosts]
    else:
        rank, places = _meet(folder, count, patience)
    if len(places) != count:
        sys.stderr.write(f"{count} workers were planned and {len(places)} are here\n")
        return 1
    own = worker_folder(folder, rank)
    (own / "records").mkdir(parents=True, exist_ok=True)
    worker = asked["request"]["workers"][0]
    worker["env"] |= worker_environments(places)[rank] | {"VMSELECT_FOLDER": str(own / "records")}
    _write(own / "request.json", {**asked["request"], "strict": True})
    guard = str(folder / "guard.py")
    os.execv(sys.executable, [sys.executable, guard, "run", str(own), token])


def _meet(folder: Path, count: int, patience: float) -> tuple[int, list[Place]]:
    """Slurm says the number; each says on the shared disk where it is, and waits for the others."""
    rank = int(os.environ["SLURM_PROCID"])
    _write(folder / f"place-{rank}.json", find_place(_reachable_name()))
    until = time.monotonic() + patience
    while time.monotonic() < until:
        there = {path.name for path in folder.iterdir()}  # a listing shows new files sooner than asking for each
        files = [f"place-{other}.json" for other in range(count)]
        if there.issuperset(files):
            return rank, [json.loads((folder / file).read_text(encoding="utf-8")) for file in files]
        time.sleep(0.2)
    return rank, []


def _reachable_name() -> str:
    """What others may call this machine: its name in the cluster where that is one of the network, too."""
    for name in filter(None, (os.environ.get("SLURMD_NODENAME"), socket.gethostname())):
        try:
            socket.getaddrinfo(name, None)
        except OSError:
            continue
        return name
    return socket.gethostname()


def _write(path: Path, content: Mapping[str, Any]) -> None:
    """Whole or not at all: others wait for it."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content), encoding="utf-8")
    part.replace(path)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
