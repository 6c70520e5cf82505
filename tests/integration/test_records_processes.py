"""Records that several processes write and read at once, and writers that are killed in the middle."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import vmselect as vs
from vmselect.records import Profile
from vmselect.records.files import RecordFile


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


SAVE = """
import sys, vmselect as vs
profile = vs.Profile.from_times(instance_type="m", batch_size=8, iteration_seconds=[0.1] * 3)
print("ready", flush=True); sys.stdin.readline()
for _ in range(15):
    profile.model_copy(update={"id": vs.Profile.from_times(iteration_seconds=1.0).id}).save(sys.argv[1])
"""


def test_eight_processes_in_one_second_lose_no_profile(tmp_path: Path) -> None:
    folder = tmp_path / "records"
    children = [
        subprocess.Popen([sys.executable, "-c", SAVE, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for _ in range(8)
    ]
    for child in children:
        assert child.stdout is not None
        child.stdout.readline()
    for child in children:  # all are told before any is waited for, or they would save one after the other
        assert child.stdin is not None
        child.stdin.write(b"go\n")
        child.stdin.flush()
    for child in children:
        child.communicate()
        assert child.returncode == 0
    assert len({profile.id for profile in vs.load_profiles(folder)}) == 120
    assert all(name.endswith(".json") for name in names(folder))


SAVE_FOR_EVER = """
import sys
from vmselect.records import Profile
profiles = [Profile.from_times(iteration_seconds=[float(n)] * 3000, instance_type="m") for n in (1, 2)]
print("ready", flush=True)
while True:
    for profile in profiles:
        profile.save(sys.argv[1])
"""


def test_kill_9_while_saving_leaves_a_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    for pause in (0.0, 0.003, 0.011, 0.02, 0.037):
        child = subprocess.Popen([sys.executable, "-c", SAVE_FOR_EVER, str(path)], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        deadline = time.monotonic() + 30
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.001)
        time.sleep(pause)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        assert set(Profile.load(path).timeline.steps.seconds) in ({1.0}, {2.0})


SAVE_AND_DIE = """
import os, signal, sys
from vmselect.records import Profile

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

os.replace = os.rename = os.link = die
Profile.from_times(iteration_seconds=1.0).save(sys.argv[1])
"""


def test_what_a_killed_writer_left_does_not_stay_for_ever(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", SAVE_AND_DIE, str(tmp_path / "a.json")], check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    os.utime(left, (time.time() - 2 * 3600,) * 2)
    Profile.from_times(iteration_seconds=1.0).save(tmp_path / "b.json")
    assert names(tmp_path) == ["b.json"]


def write_and_wait(folder: str, results) -> None:
    record = vs.Profile.from_times(instance_type="box", batch_size=8, iteration_seconds=0.1)
    RecordFile(Path(folder)).write(record)
    results.put(record.id)
    time.sleep(600)


def test_many_killed_writers_leave_a_record_each(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    writers = [context.Process(target=write_and_wait, args=(str(tmp_path), results)) for _ in range(6)]
    for writer in writers:
        writer.start()
    written = {results.get(timeout=120) for _ in writers}
    for writer in writers:
        writer.kill()
        writer.join()
    assert {profile.id for profile in vs.load_profiles(tmp_path)} == written
    assert len(names(tmp_path)) == len(written) == 6
