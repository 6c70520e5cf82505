"""Several nodes: the address of each worker, and its environment variables for every framework.

A standalone program too, which needs nothing but Python's standard library, because it is sent to hosts that have no
vmselect. ``address`` prints what the other workers must know of a host. ``run FOLDER TOKEN`` makes the request of one
worker from ``FOLDER/workers.json`` and from the variables of Slurm or SkyPilot, and becomes its supervisor.
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

Address = dict[str, Any]
"""A worker's ``host``, two free ``ports`` of it, and its ``boot``, the same for workers that share a loopback."""

PORTS = (29500, 29501)
"""On rented machines, where nothing else uses ports."""

MEET_SECONDS = 300.0
"""How long workers wait for each other: a cluster starts them together, and a shared disk shows files late."""


def main(arguments: Sequence[str]) -> int:
    """Run as a program."""
    if len(arguments) == 3 and arguments[0] == "run":
        return become_supervisor(Path(arguments[1]), arguments[2])
    if list(arguments) == ["address"]:
        sys.stdout.write(json.dumps(find_address(socket.gethostname())) + "\n")
        return 0
    sys.stderr.write("usage: run FOLDER TOKEN | address\n")
    return 2


def worker_environments(locations: Sequence[Address]) -> list[dict[str, str]]:
    """The variables of each worker, the chief first; none for a single one.

    TensorFlow reads ``TF_CONFIG``, torch ``MASTER_ADDR`` and its like, JAX and ``keras.distribution`` the others.

    >>> pair = [{"host": "a", "ports": [29500, 29501]}, {"host": "b", "ports": [29500, 29501]}]
    >>> [(worker["RANK"], worker["LOCAL_RANK"], worker["MASTER_ADDR"]) for worker in worker_environments(pair)]
    [('0', '0', 'a'), ('1', '0', 'a')]
    >>> worker_environments(pair[:1])
    [{}]
    """
    count = len(locations)
    if count == 1:
        return [{}]
    boots = [location.get("boot") for location in locations]
    alone = bool(boots[0]) and len(set(boots)) == 1  # all on one machine, whatever it is called
    hosts = ["127.0.0.1" if alone else str(location["host"]) for location in locations]
    addresses = [_address(hosts[index], location["ports"][1]) for index, location in enumerate(locations)]
    port = locations[0]["ports"][0]
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


def find_address(host: str) -> Address:
    """What other workers must know of this machine, whose name for them is ``host``."""
    try:  # containers of one machine may have networks of their own
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip() + str(Path("/proc/self/ns/net").readlink())
    except OSError:
        boot = ""
    return {"host": host, "boot": boot, "ports": free_ports(2)}


def free_ports(count: int) -> list[int]:
    """Unused ports of this machine."""
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
    """The folder of one worker's supervisor; the chief's is the trial's folder."""
    return Path(folder, f"worker-{rank}") if rank else Path(folder)


def become_supervisor(folder: Path, token: str) -> int:
    """Determine which worker this is and the addresses of the others, and run its command under a supervisor."""
    given = json.loads((folder / "workers.json").read_text(encoding="utf-8"))
    count = int(given["count"])
    patience = min(MEET_SECONDS, float(given["request"]["cap_seconds"]))
    if given["ports"]:
        rank, hosts = int(os.environ["SKYPILOT_NODE_RANK"]), os.environ["SKYPILOT_NODE_IPS"].split()
        locations: list[Address] = [{"host": host, "ports": given["ports"]} for host in hosts]
    else:
        rank, locations = _meet(folder, count, patience)
    if len(locations) != count:
        sys.stderr.write(f"{count} workers were planned and {len(locations)} are here\n")
        return 1
    own = worker_folder(folder, rank)
    (own / "records").mkdir(parents=True, exist_ok=True)
    worker = given["request"]["workers"][0]
    worker["env"] |= worker_environments(locations)[rank] | {"VMSELECT_FOLDER": str(own / "records")}
    _write(own / "request.json", {**given["request"], "strict": True})
    os.execv(sys.executable, [sys.executable, str(folder / given["program"]), "run", str(own), token])


def _meet(folder: Path, count: int, patience: float) -> tuple[int, list[Address]]:
    """Take the number from Slurm, write the own address to the shared disk, and wait for the others."""
    rank = int(os.environ["SLURM_PROCID"])
    _write(folder / f"place-{rank}.json", find_address(_reachable_name()))
    until = time.monotonic() + patience
    while time.monotonic() < until:
        there = {path.name for path in folder.iterdir()}  # a listing shows new files sooner than asking for each
        files = [f"place-{other}.json" for other in range(count)]
        if there.issuperset(files):
            return rank, [json.loads((folder / file).read_text(encoding="utf-8")) for file in files]
        time.sleep(0.2)
    return rank, []


def _reachable_name() -> str:
    """A name of this machine that the network resolves: its name in the cluster if possible."""
    for name in filter(None, (os.environ.get("SLURMD_NODENAME"), socket.gethostname())):
        try:
            socket.getaddrinfo(name, None)
        except OSError:
            continue
        return name
    return socket.gethostname()


def _write(path: Path, content: Mapping[str, Any]) -> None:
    """Write atomically: others wait for the file."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content), encoding="utf-8")
    part.replace(path)


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
