"""Other machines for sweeps, on loopback: an sshd and a Slurm cluster, started for a test."""

from __future__ import annotations

import getpass
import os
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sweep_faults import KILLS, Tally, run_case

import vmselect.sweeps.runners.ssh as ssh_runner
from vmselect.sweeps.runners.runner import SUPERVISOR
from vmselect.sweeps.runners.supervisor import free_ports

BALLAST_BYTES = 120_000
COPIES = ("cut", "late", "late and cut")
"""Faults of the copies that tar makes over ssh."""

SSH = """
# The next file of faults, if there is one, determines the fault of this copy.
fault=pass
case "$*" in *"tar -"*)
    for next in "$0".fault.*; do
        mv "$next" "$0.taken.$$" 2>/dev/null || continue
        fault=$(cat "$0.taken.$$"); rm "$0.taken.$$"; break
    done
    echo "$fault" >> "$0.log";;
esac
case $fault in late*) sleep 2;; esac
case $fault in
    *cut) head -c 60000 | {real} -F {config} "$@" | head -c 60000; exit 255;;
    *) exec {real} -F {config} "$@";;
esac
"""


def missing_sshd() -> str:
    """Why no sshd can be started here; empty if one can."""
    for program in ("sshd", "ssh", "ssh-keygen"):
        if not shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin"):
            return f"{program} is not installed (Debian: openssh-server, openssh-client)"
    return ""


@contextmanager
def sshd(folder: Path) -> Iterator[Path]:
    """An sshd on a loopback port with a throwaway key; yields the client configuration, whose host is ``remote``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    shutil.copy(folder / "user.pub", folder / "authorized")
    (folder / "authorized").chmod(0o600)
    home = folder / "home"
    home.mkdir()
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    (folder / "session").write_text(f'#!/bin/sh\ncd {home}\neval "$SSH_ORIGINAL_COMMAND"\n')
    (folder / "session").chmod(0o755)
    (folder / "sshd_config").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\nUsePAM no\nStrictModes no\n"
        f"AuthorizedKeysFile {folder}/authorized\nPasswordAuthentication no\nPermitRootLogin yes\n"
        f"MaxStartups 100:30:200\nMaxSessions 100\n"
        f"ForceCommand {folder}/session\n"
    )
    (folder / "config").write_text(
        f"Host remote remote2\n HostName 127.0.0.1\n Port {port}\n User {getpass.getuser()}\n"
        f" IdentityFile {folder}/user\n StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n LogLevel ERROR\n"
    )
    program = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    assert program
    server = subprocess.Popen([program, "-D", "-e", "-f", str(folder / "sshd_config")], stderr=subprocess.DEVNULL,
                              start_new_session=True)  # fmt: skip
    try:
        for _ in range(100):
            with socket.socket() as attempt:
                if attempt.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield folder / "config"
    finally:
        server.terminate()
        server.wait()


@contextmanager
def ssh_config(config: Path) -> Iterator[None]:
    """Have ssh read ``config``: put a program of the same name before it on the PATH."""
    programs = config.parent / "bin"
    programs.mkdir(exist_ok=True)
    real = shutil.which("ssh", path=os.environ.get("VMSELECT_TEST_PATH", os.environ["PATH"]))
    (programs / "ssh").write_text("#!/bin/sh\n" + SSH.replace("{real}", f"{real}").replace("{config}", str(config)))
    (programs / "ssh").chmod(0o755)
    before, quiet = os.environ["PATH"], ssh_runner.SILENCE_SECONDS
    os.environ["PATH"] = f"{programs}:{before}"
    ssh_runner.SILENCE_SECONDS = 5.0
    try:
        yield
    finally:
        os.environ["PATH"], ssh_runner.SILENCE_SECONDS = before, quiet


def missing_slurm() -> str:
    """Why no Slurm can be started here; empty if one can."""
    for program in ("slurmctld", "slurmd", "munged", "sbatch"):
        if not shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin"):
            return f"{program} is not installed (Debian: slurmctld, slurmd, slurm-client, munge)"
    return "" if os.geteuid() == 0 else "only root can start a slurmd"


@contextmanager
def slurm(*, nodes: int = 1) -> Iterator[None]:
    """A Slurm cluster on this machine with separate daemons, keys and ports; SLURM_CONF names it.

    Each of ``nodes`` has its own slurmd.
    """
    # A short path: slurmd makes a socket below it for each job, and the path of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="slurm-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)  # munge wants its socket's folders to be passable
        with _slurm_in(Path(folder), nodes):
            yield


@contextmanager
def _slurm_in(folder: Path, nodes: int) -> Iterator[None]:
    for name in ("state", "run", "log"):
        (folder / name).mkdir()
    (folder / "key").write_bytes(os.urandom(1024))
    (folder / "key").chmod(0o600)
    host, ports = socket.gethostname().split(".")[0], free_ports(1 + nodes)
    names = [host] if nodes == 1 else [f"{host}-{number}" for number in range(1, nodes + 1)]
    lines = [
        "ClusterName=test", f"SlurmctldHost={host}(127.0.0.1)", "SlurmUser=root", "SlurmdUser=root",
        f"AuthInfo=socket={folder}/run/munge", f"SlurmctldPort={ports[0]}",
        f"StateSaveLocation={folder}/state", f"SlurmdSpoolDir={folder}/spool-%n",
        f"SlurmctldPidFile={folder}/run/c.pid", f"SlurmdPidFile={folder}/run/%n.pid",
        f"SlurmctldLogFile={folder}/log/c", f"SlurmdLogFile={folder}/log/%n", "ProctrackType=proctrack/linuxproc",
        "TaskPlugin=task/none", "SelectType=select/cons_tres", "KillWait=10", "MinJobAge=10", "ReturnToService=2",
        "SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1", "MpiDefault=none",
        *(f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={os.cpu_count()} State=UNKNOWN"
          for name, port in zip(names, ports[1:], strict=True)),
        "PartitionName=all Nodes=ALL Default=YES State=UP OverSubscribe=FORCE:8",
    ]  # fmt: skip
    (folder / "slurm.conf").write_text("\n".join(lines) + "\n")
    commands = [
        ["munged", "--foreground", "--force", f"--key-file={folder}/key", f"--socket={folder}/run/munge",
         f"--pid-file={folder}/run/m.pid", f"--log-file={folder}/log/m", f"--seed-file={folder}/run/seed"],
        ["slurmctld", "-D", "-f", f"{folder}/slurm.conf"],
        *(["slurmd", "-D", "-N", name, "-f", f"{folder}/slurm.conf"] for name in names),
    ]  # fmt: skip
    os.environ["SLURM_CONF"] = str(folder / "slurm.conf")
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        for command in commands:
            daemons.append(subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                            start_new_session=True))  # fmt: skip
            time.sleep(0.5)
        for _ in range(120):
            seen = subprocess.run(["sinfo", "-h", "-o", "%T %D"], capture_output=True, text=True, check=False)
            if seen.stdout.strip() in (f"idle {nodes}", f"mixed {nodes}"):
                break
            time.sleep(0.5)
        else:
            raise RuntimeError(f"Slurm did not come up: {(folder / 'log' / 'c').read_text()[-500:]}")
        yield
    finally:
        del os.environ["SLURM_CONF"]
        for daemon in reversed(daemons):
            daemon.terminate()
            try:
                daemon.wait(timeout=20)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()


def run_remote_case(runner: str, seed: int, folder: Path) -> Tally:
    """One seeded run of faults over ssh or on Slurm."""
    folder.mkdir(parents=True)
    (folder / "work").mkdir()
    os.chdir(folder / "work")
    if runner == "slurm":
        with slurm():
            return run_case(
                seed, folder, runner="slurm", minutes=4 / 60, slack=3.0, kills=KILLS,
                machines={"node": {"usd_per_hour": 36.0}}, factors={"machine": ["node"]},
            )  # fmt: skip
    (folder / "work" / "ballast").write_bytes(os.urandom(BALLAST_BYTES))
    with sshd(folder / "sshd") as config, ssh_config(config):
        tally, program = Tally(), config.parent / "bin" / "ssh"
        chance = random.Random(seed * 104_729)
        faults = ["pass"] * chance.choice((0, 1, 1, 2, 3)) + chance.choices(COPIES, k=chance.choice((0, 1, 2, 3, 4)))
        for number, fault in enumerate(faults):
            program.with_name(f"ssh.fault.{number}").write_text(fault)

        def disturb(chance: random.Random) -> None:
            act = chance.choice(("nothing", "nothing", "cut", "silent", "long silent", "slow"))
            until = time.monotonic() + 20
            while act != "nothing" and not _sessions(folder / "sshd") and time.monotonic() < until:
                time.sleep(0.1)
            time.sleep(chance.uniform(0.0, 1.5))
            tally.connections[act if _sessions(folder / "sshd") else "nothing"] += 1
            disturb_connections(folder / "sshd", act)

        def settle() -> None:
            for left in program.parent.glob("ssh.fault.*"):  # the resumed sweep has a network that works
                left.unlink(missing_ok=True)

        run_case(
            seed, folder, runner="ssh", minutes=6 / 60, slack=5.0, disturb=disturb, settle=settle, tally=tally,
            machines={"remote": {"usd_per_hour": 36.0}}, factors={"machine": ["remote"]},
        )  # fmt: skip
        if (log := program.with_name("ssh.log")).exists():
            tally.copies.update(log.read_text().splitlines())
        return tally


def disturb_connections(folder: Path, act: str) -> None:
    """Cut, silence or slow down the connections over which trials are watched."""

    def signal_all(number: int) -> None:
        for pid in _sessions(folder):
            with suppress(OSError):
                os.kill(pid, number)

    if act == "cut":
        signal_all(signal.SIGKILL)
    elif act in ("silent", "long silent"):  # the supervisor gives up after five seconds
        signal_all(signal.SIGSTOP)
        time.sleep(1.0 if act == "silent" else 7.0)
        signal_all(signal.SIGCONT)
    elif act == "slow":
        for _ in range(6):
            signal_all(signal.SIGSTOP)
            time.sleep(0.5)
            signal_all(signal.SIGCONT)
            time.sleep(0.05)


def _sessions(folder: Path) -> list[int]:
    """Clients' ssh processes that read our configuration."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            words = (path / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if str(folder / "config").encode() in words and SUPERVISOR.name.encode() in b" ".join(words):
            found.append(int(path.name))
    return found
