"""Several nodes: what each worker is told, in the words of every framework."""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence

from vmselect.errors import SweepError

DEFAULT_PORT = 29500


def worker_environments(hosts: Sequence[str], *, port: int | None = None) -> list[dict[str, str]]:
    """The variables of each of the workers on ``hosts``, the chief first; none for a single one.

    TensorFlow reads ``TF_CONFIG``, torch ``MASTER_ADDR`` and its like, JAX and ``keras.distribution`` the others.

    >>> [worker["RANK"] for worker in worker_environments(["a", "b"], port=29500)]
    ['0', '1']
    >>> worker_environments(["a"])
    [{}]
    """
    count = len(hosts)
    if count == 1:
        return [{}]
    together = len(set(hosts)) == 1
    ports = (
        free_ports(count + 1) if together and port is None else [(port or DEFAULT_PORT) + i for i in range(count + 1)]
    )
    # On one machine every worker needs a port of its own; on several the same will do.
    addresses = [f"{host}:{ports[1 + index] if together else ports[1]}" for index, host in enumerate(hosts)]
    coordinator = f"{hosts[0]}:{ports[0]}"
    return [
        {
            "TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}),
            "MASTER_ADDR": hosts[0], "MASTER_PORT": str(ports[0]), "RANK": str(index), "WORLD_SIZE": str(count),
            "LOCAL_RANK": str(index if together else 0),
            "JAX_COORDINATOR_ADDRESS": coordinator, "JAX_NUM_PROCESSES": str(count), "JAX_PROCESS_ID": str(index),
            "KERAS_DISTRIBUTION_JOB_ADDRESSES": ",".join([coordinator, *addresses[1:]]),
            "KERAS_DISTRIBUTION_NUM_PROCESSES": str(count), "KERAS_DISTRIBUTION_PROCESS_ID": str(index),
            "VMSELECT_NODES": str(count), "VMSELECT_NODE": str(index),
        }
        for index in range(count)
    ]  # fmt: skip


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody uses now."""
    sockets = []
    try:
        for _ in range(count):
            one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            sockets.append(one)
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    except OSError as cannot:
        raise SweepError(f"No {count} free ports could be had on this machine: {cannot}.") from cannot
    finally:
        for one in sockets:
            one.close()
