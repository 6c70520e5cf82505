"""Real stores on loopback for tests of transfers: an S3 server, and OpenSSH with sftp."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SSHD = shutil.which("sshd") or "/usr/sbin/sshd"
SFTP_SERVER = next((p for p in ("/usr/lib/openssh/sftp-server", "/usr/libexec/sftp-server") if Path(p).exists()), None)
SECRET = "wJalrXUtnFEMI-not-a-real-secret"


@contextlib.contextmanager
def s3_store() -> Iterator[tuple[str, dict[str, Any]]]:
    """A server that speaks S3 over real HTTP, with a bucket; gives the bucket's address and its options."""
    import boto3
    import requests
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        endpoint = "http://{}:{}".format(*server.get_host_and_port())
        requests.post(f"{endpoint}/moto-api/reset", timeout=30).raise_for_status()  # servers of one process share state
        keys = {"aws_access_key_id": "AKIATESTTESTTEST", "aws_secret_access_key": SECRET}
        boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", **keys).create_bucket(Bucket="bucket")
        options = {"key": "AKIATESTTESTTEST", "secret": SECRET, "client_kwargs": {"endpoint_url": endpoint}}
        yield "s3://bucket/folder", options
    finally:
        server.stop()


@contextlib.contextmanager
def sftp_store(
    folder: Path, *, server_options: str = ""
) -> Iterator[tuple[str, dict[str, Any], subprocess.Popen[bytes]]]:
    """An OpenSSH server on a free port that lets this user in by a key; gives address, options and process."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    (folder / "authorized").write_bytes((folder / "user.pub").read_bytes())
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    (folder / "config").write_text(
        f"ListenAddress 127.0.0.1:{port}\nHostKey {folder / 'host'}\nPidFile none\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {folder / 'authorized'}\nPasswordAuthentication no\nPermitRootLogin yes\n"
        f"Subsystem sftp {SFTP_SERVER} {server_options}\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)  # where it gives up its rights
    command = [SSHD, "-D", "-e", "-f", str(folder / "config")]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        for _ in range(100):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        options = {
            "username": getpass.getuser(), "port": port, "key_filename": str(folder / "user"),
            "look_for_keys": False, "allow_agent": False,
        }  # fmt: skip
        yield f"sftp://127.0.0.1{folder / 'data'}", options, process
    finally:
        process.terminate()
        process.wait(10)


class CuttingProxy:
    """Stands before a server and cuts every connection that has carried more than ``limit`` bytes upwards."""

    def __init__(self, port: int, limit: int) -> None:
        self._target, self._limit = port, limit
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._socket.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._socket.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                for one, other, limit in ((client, server, self._limit), (server, client, None)):
                    threading.Thread(target=self._carry, args=(one, other, limit), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket, limit: int | None) -> None:
        carried = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                carried += len(data)
                if limit is not None and carried > limit:
                    self.cuts += 1
                    break
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()
