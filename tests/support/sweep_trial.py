"""A trial that fails as VMSELECT_FACTOR_FAULT names; it uses only the standard library, to start fast."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

fault, mark, log = os.environ["VMSELECT_FACTOR_FAULT"], sys.argv[1], Path(sys.argv[2])
folder = Path(os.environ["VMSELECT_FOLDER"])
folder.mkdir(parents=True, exist_ok=True)  # as a probe does


def note(event: str) -> None:
    with log.open("a") as file:
        file.write(json.dumps([event, os.environ["VMSELECT_TRIAL"], os.getpid()]) + "\n")


def write_record(cut: int | None = None) -> None:
    record = json.loads(Path(sys.argv[3]).read_text()) | {"id": uuid.uuid4().hex}
    text = json.dumps(record)
    if cut is not None:
        (folder / "record.json").write_text(text[:cut])
        return
    part = folder / ".record.part"
    part.write_text(text)
    part.replace(folder / "record.json")
    note("wrote")


def linger(*prefix: str) -> None:
    subprocess.Popen([*prefix, "sleep", mark], stdin=subprocess.DEVNULL, close_fds=False)


note("began")
if Path("ballast").exists():  # what makes copying it back take a while
    (folder / "ballast.bin").write_bytes(Path("ballast").read_bytes())
time.sleep(0.05)
match fault:
    case "ok" | "slow":
        time.sleep(0.3 if fault == "slow" else 0)
        write_record()
    case "fail":
        sys.exit(3)
    case "hang":
        time.sleep(1000)
    case "deaf":  # and its child is, too
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        linger()
        time.sleep(1000)
    case "garbage":
        for _ in range(50):
            os.write(1, os.urandom(1 << 16))
        (folder / "noise.json").write_bytes(os.urandom(5000))
    case "half":
        write_record(cut=200)
    case "full":  # the disk takes no more in the middle of a record
        import resource

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
        write_record(cut=400)
    case "fork":
        linger()
        write_record()
    case "setsid":
        linger("setsid")
        linger("env", "-i", "setsid")
        write_record()
    case "setsid-hang":
        linger("env", "-i", "setsid")
        time.sleep(1000)
    case "record-fail":
        write_record()
        sys.exit(1)
    case "record-hang":
        write_record()
        time.sleep(1000)
    case _:
        raise SystemExit(f"unknown fault {fault}")
