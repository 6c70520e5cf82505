"""Sweeps on this machine: documented guarantees, with trials that misbehave and programs that are killed."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import vmselect as vs
from vmselect.errors import PlanError
from vmselect.sweeps import clean, read_state
from vmselect.sweeps.journal import Journal, read_journal
from vmselect.sweeps.runners import supervisor
from vmselect.sweeps.runners.runner import LocalRunner

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from sweep_faults import KILLS, SURVIVE, is_alive, run_case

PYTHON = sys.executable
RECORD = """
import os, sys
import vmselect as vs
vs.Profile.from_times(instance_type=os.environ.get("VMSELECT_INSTANCE_TYPE"), batch_size=int(sys.argv[1]),
                      iteration_seconds=[0.1, 0.1], steps_per_epoch=10).save(os.environ["VMSELECT_FOLDER"])
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which the sweep is started, with a script that leaves a record."""
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text(RECORD)
    monkeypatch.chdir(folder)
    return folder


def plan_of(*batch_sizes: int, **given: object) -> vs.Plan:
    facts: dict[str, object] = {"machines": {"small": {"usd_per_hour": 6.0}}, "minutes": 1}
    return vs.Plan([PYTHON, "train.py", "{batch_size}"],
                   factors={"machine": ["small"], "batch_size": list(batch_sizes)}, **(facts | given))  # type: ignore[arg-type]  # fmt: skip


def test_records_have_their_factors_and_a_second_call_runs_nothing(work: Path) -> None:
    result = vs.sweep(plan_of(64, 256), work / "out", budget_usd=5.0, parallel=2, yes=True)
    assert [(r.instance_type, dict(r.factors)) for r in result.records] == [
        ("small", {"machine": "small", "batch_size": 64}),
        ("small", {"machine": "small", "batch_size": 256}),
    ]
    assert not result.failed
    assert not result.skipped
    assert 0 < result.spent_usd < result.worst_usd == pytest.approx(0.2)
    starts = len([e for e in read_journal(work / "out") if e["event"] == "start"])
    again = vs.sweep(plan_of(64, 256), work / "out", yes=True)
    assert [r.id for r in again.records] == [r.id for r in result.records]
    assert len([e for e in read_journal(work / "out") if e["event"] == "start"]) == starts == 2
    assert {r.batch_size for r in vs.load_profiles(work / "out")} == {64, 256}


def test_every_start_is_in_the_journal_before_it_happens(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from vmselect.sweeps.runners.runner import LocalRunner

    start = LocalRunner.start
    seen: list[list[str]] = []

    def spy(self: LocalRunner, job: object, handle: object) -> object:
        seen.append([e["event"] for e in read_journal(work / "out")])
        return start(self, job, handle)  # type: ignore[arg-type]

    monkeypatch.setattr(LocalRunner, "start", spy)
    vs.sweep(plan_of(64), work / "out", yes=True)
    assert seen == [["sweep", "session", "start"]]


def test_nothing_starts_unconfirmed_or_above_the_budget(work: Path) -> None:
    with pytest.raises(vs.errors.SweepError, match="yes=True"):
        vs.sweep(plan_of(64), work / "a")
    with pytest.raises(vs.errors.SweepError, match=r"\$0\.20 .*\$0\.19"):
        vs.sweep(plan_of(64, 256), work / "b", budget_usd=0.19, yes=True)
    assert not (work / "a").exists()
    assert not (work / "b").exists()
    shown = []
    vs.sweep(plan_of(64), work / "a", confirm=lambda proposal: shown.append(proposal.worst_usd) or True)  # type: ignore[func-returns-value]
    assert shown == [pytest.approx(0.1)]


def test_failed_script_is_reported_and_run_again_on_resume(work: Path) -> None:
    good = (work / "train.py").read_text()
    (work / "train.py").write_text("raise SystemExit(3)")
    result = vs.sweep(plan_of(64), work / "out", yes=True)
    (failed,) = result.failed
    assert (failed.id, dict(failed.trial.factors)) == ("001", {"machine": "small", "batch_size": 64})
    assert read_state(work / "out").attempts["001"][0].exit == 3
    (work / "train.py").write_text(good)
    assert len(vs.sweep(plan_of(64), work / "out", yes=True).records) == 1
    assert len(read_state(work / "out").attempts["001"]) == 2


def test_commands_run_in_the_folder_of_the_sweep_with_its_variables(work: Path) -> None:
    (work / "train.py").write_text(
        RECORD + "\nimport json\nopen('seen.json', 'w').write(json.dumps([os.getcwd(), dict(os.environ)]))\n"
    )
    vs.sweep(plan_of(64, environment={"BACKEND": "x {batch_size}"}), work / "out", yes=True)
    where, environment = json.loads((work / "seen.json").read_text())
    assert Path(where) == work
    assert json.loads(environment["VMSELECT_FACTORS"]) == {"machine": "small", "batch_size": 64}
    assert environment["VMSELECT_INSTANCE_TYPE"] == "small"
    assert environment["VMSELECT_FACTOR_BATCH_SIZE"] == "64"
    assert environment["BACKEND"] == "x 64"


LIMITED = """
import json, os, resource, sys
facts = {"cores": len(os.sched_getaffinity(0)), "data": resource.getrlimit(resource.RLIMIT_DATA)[0]}
try:
    bytearray(600 * 2**20)
    facts["fits"] = True
except MemoryError:
    facts["fits"] = False
with open(f"limits-{os.environ['VMSELECT_FACTOR_MEMORY_GIB']}.json", "w") as file:
    json.dump(facts, file)
"""


def test_factors_limit_cores_and_memory(work: Path) -> None:
    (work / "train.py").write_text(LIMITED + RECORD)
    plan = vs.Plan(
        [PYTHON, "train.py", "8"], factors={"machine": ["small"], "cores": [1], "memory_gib": [0.5, 4]},
        machines={"small": {"usd_per_hour": 1.0}}, minutes=2,
    )  # fmt: skip
    result = vs.sweep(plan, work / "out", budget_usd=5.0, yes=True)
    assert {record.factors["memory_gib"] for record in result.records} == {0.5, 4}
    small, large = (json.loads((work / f"limits-{gib}.json").read_text()) for gib in ("0.5", "4"))
    assert small == {"cores": 1, "data": 2**29, "fits": False}
    assert large == {"cores": 1, "data": 4 * 2**30, "fits": True}


def test_a_limit_above_the_memory_of_the_machine_is_refused(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = vs.Plan([PYTHON, "-c", "pass"], factors={"memory_gib": [65536]}, minutes=1)
    with pytest.raises(PlanError, match="65536 GiB"):
        vs.sweep(plan, work / "out", yes=True)
    monkeypatch.setattr(LocalRunner, "check", lambda *_: None)  # as other runners, which ask the host
    vs.sweep(plan, work / "out", yes=True)
    (attempt,) = read_state(work / "out").all_attempts
    assert attempt.error is not None
    assert "65536 GiB" in attempt.error


def test_the_worker_that_failed_is_named_in_the_message(work: Path) -> None:
    (work / "train.py").write_text("import os, sys, time\nif os.environ['RANK'] == '1': sys.exit(7)\ntime.sleep(60)\n")
    plan = vs.Plan([PYTHON, "train.py"], factors={"machine": ["m"], "nodes": [3]}, machines={"m": {}}, minutes=1)
    vs.sweep(plan, work / "out", yes=True)
    state = read_state(work / "out")
    (attempt,) = state.all_attempts
    assert (attempt.why, attempt.error) == ("worker", "worker 1 of 3 ended with exit code 7")


def test_cores_and_threads_are_pinned(work: Path) -> None:
    (work / "train.py").write_text(
        RECORD + "\nopen('cores', 'w').write(f'{len(os.sched_getaffinity(0))} {os.environ[\"OMP_NUM_THREADS\"]}')\n"
    )
    vs.sweep(plan_of(64, machines={"small": {"cores": 1, "threads": 3}}), work / "out", yes=True)
    assert (work / "cores").read_text() == "1 3"


def test_values_reach_the_command_unchanged(work: Path) -> None:
    (work / "train.py").write_text(RECORD.replace("int(sys.argv[1])", "8") + "\nopen('value', 'w').write(sys.argv[1])")
    value = "a 'b' \"c\" $HOME * ~ \\ (d) #e"
    plan = vs.Plan([PYTHON, "train.py", "{value}"], factors={"value": [value]}, minutes=1)
    assert not vs.sweep(plan, work / "out", yes=True).failed
    assert (work / "value").read_text() == value


def test_a_lost_worker_ends_the_others_and_fails_the_trial(work: Path) -> None:
    (work / "train.py").write_text(
        "import os, time\nif os.environ['RANK'] == '1':\n    raise SystemExit(4)\n" + RECORD + "time.sleep(600)\n"
    )
    plan = vs.Plan([PYTHON, "train.py", "8"], factors={"nodes": [3]}, minutes=5)
    began = time.monotonic()
    result = vs.sweep(plan, work / "out", yes=True)
    assert time.monotonic() - began < 300 * 0.9
    assert not result.records
    assert [attempt.why for attempt in read_state(work / "out").all_attempts] == ["worker"]


def test_workers_get_the_addresses_of_all_and_every_node_is_priced(work: Path) -> None:
    (work / "train.py").write_text(
        "import json, os\nrank = os.environ['RANK']\nkeys = ('TF_CONFIG', 'MASTER_ADDR', 'MASTER_PORT', 'WORLD_SIZE',"
        "'JAX_COORDINATOR_ADDRESS', 'JAX_PROCESS_ID')\n"
        "open(f'rank{rank}', 'w').write(json.dumps({k: os.environ[k] for k in keys}))\n" + RECORD
    )
    plan = vs.Plan([PYTHON, "train.py", "8"], factors={"nodes": [2], "machine": ["m"]}, minutes=6,
                   machines={"m": {"usd_per_hour": 1.0}})  # fmt: skip
    assert plan.to_frame()["worst_usd"][0] == pytest.approx(0.2)
    result = vs.sweep(plan, work / "out", yes=True)
    assert len(result.records) == 1
    variables = [json.loads((work / f"rank{rank}").read_text()) for rank in (0, 1)]
    assert variables[0]["JAX_COORDINATOR_ADDRESS"] == variables[1]["JAX_COORDINATOR_ADDRESS"]
    assert [json.loads(one["TF_CONFIG"])["task"]["index"] for one in variables] == [0, 1]
    assert variables[0]["WORLD_SIZE"] == "2"


def test_two_sweeps_do_not_share_a_folder(work: Path) -> None:
    vs.sweep(plan_of(64), work / "out", yes=True)
    with pytest.raises(vs.errors.SweepError, match=r"/out\b"):
        vs.sweep(plan_of(256), work / "out", yes=True)
    with Journal(work / "out").opened(), pytest.raises(vs.errors.SweepError, match=r"/out\b"):
        clean(work / "out")


def test_incomplete_line_in_the_journal_is_ignored(work: Path) -> None:
    vs.sweep(plan_of(64), work / "out", yes=True)
    with (work / "out" / "journal.jsonl").open("a") as file:
        file.write('{"event": "gon')
    assert len(vs.sweep(plan_of(64), work / "out", yes=True).records) == 1
    assert read_journal(work / "out")[-1]["event"] == "session"


def test_the_commands_run_show_resume_and_clean(work: Path) -> None:
    plan_of(64, 256).save(work / "plan.yaml")
    env = {**os.environ, "COLUMNS": "200"}

    def vmselect(*words: str) -> subprocess.CompletedProcess[str]:
        command = [PYTHON, "-c", "from vmselect.cli import main; main()", "sweep", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=env, stdin=subprocess.DEVNULL)

    planned = vmselect("plan", "plan.yaml", "--format", "json")
    assert [row["worst_usd"] for row in json.loads(planned.stdout)] == [pytest.approx(0.1)] * 2
    assert vmselect("plan", "plan.yaml", "--budget-usd", "0.19").returncode == 1
    unconfirmed = vmselect("run", "plan.yaml", "out")
    assert unconfirmed.returncode == 2
    assert unconfirmed.stderr.count("yes") == unconfirmed.stderr.count("--yes") == 1
    assert not (work / "out").exists()
    done = vmselect("run", "plan.yaml", "out", "--budget-usd", "5", "--yes", "--format", "json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines[-1]["records"] == 2
    assert "token" not in done.stdout
    assert [row["status"] for row in json.loads(vmselect("status", "out", "--format", "json").stdout)] == ["done"] * 2
    assert vmselect("resume", "out", "--yes").returncode == 0
    cleaned = vmselect("clean", "out", "--yes")
    assert cleaned.returncode == 0, cleaned.stderr
    bad = vmselect("plan", "nowhere.yaml")
    assert bad.returncode == 2
    assert "nowhere.yaml" in bad.stderr


def test_next_command_works_as_printed(work: Path) -> None:
    plan_of(64).save(work / "plan.yaml")

    def vmselect(*words: str) -> subprocess.CompletedProcess[str]:
        command = [PYTHON, "-c", "from vmselect.cli import main; main()", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)

    done = vmselect("sweep", "run", "plan.yaml", "my results", "--yes")
    line = next(line for line in done.stderr.splitlines() if line.startswith("Next: "))
    again = vmselect(*shlex.split(line.removeprefix("Next: vmselect ")))
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize("seed", range(6))
def test_after_any_kill_nothing_runs_and_no_record_is_lost(seed: int, tmp_path: Path) -> None:
    tally = run_case(seed, tmp_path, kills=(KILLS[seed % len(KILLS)],))
    assert not tally.violations


needs_cgroups = pytest.mark.skipif(
    not supervisor.remove_cgroup(supervisor.make_cgroup("test")), reason="no control group can be created here"
)


@needs_cgroups
def test_process_that_killed_both_supervisors_is_ended_by_its_control_group(work: Path) -> None:
    (work / "train.py").write_text(SURVIVE)
    result = vs.sweep(vs.Plan([PYTHON, "train.py", "pid"], minutes=1), work / "out", yes=True)
    assert not is_alive(int((work / "pid").read_text()))
    assert not result.unproved
    (attempt,) = read_state(work / "out").all_attempts
    assert (attempt.open, attempt.why) == (False, "guard")
    status = json.loads((work / "out" / "trials" / "001" / "1" / "status.json").read_text())
    assert not Path(status["cgroup"]).exists()


def test_end_is_unproved_if_both_supervisors_were_killed_without_a_control_group(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = work / "supervisor.py"  # where no control group can be created
    source = Path(supervisor.__file__).read_text()
    copy.write_text(source.replace('kind.startswith("cgroup2 ")', "False"))
    assert copy.read_text() != source
    monkeypatch.setattr("vmselect.sweeps.runners.runner.SUPERVISOR", copy)
    monkeypatch.setattr(supervisor, "SCOPE", ("no-such-program",))
    (work / "train.py").write_text(SURVIVE)
    plan = vs.Plan([PYTHON, "train.py", "pid"], factors={"machine": ["m"]}, machines={"m": {"cores": 1}}, minutes=1)
    try:
        result = vs.sweep(plan, work / "out", yes=True)
        survivor = int((work / "pid").read_text())
        assert is_alive(survivor)
        assert [one.id for one in result.unproved] == ["001"]
        assert [one.gone for one in clean(work / "out")] == [False]
        again = vs.sweep(plan, work / "out", yes=True)
        assert [one.id for one in again.unproved] == ["001"]
        assert len(read_state(work / "out").all_attempts) == 1
        with pytest.raises(vs.errors.ArgumentError, match="001"):
            clean(work / "out", accept=["002"])
    finally:
        os.kill(int((work / "pid").read_text()), signal.SIGKILL)  # as the user does
    assert [one.gone for one in clean(work / "out")] == [False]
    (accepted,) = clean(work / "out", accept="001")
    assert accepted.gone
    state = read_state(work / "out")
    assert (state.status_of("001"), state.all_attempts[0].why) == ("failed", "accepted")
    assert clean(work / "out") == []
    (work / "train.py").write_text(RECORD.replace("sys.argv[1]", "'8'"))
    assert len(vs.sweep(plan, work / "out", yes=True).records) == 1
