"""How well does it do on scripts as people write them? Each probed unchanged, then trained whole in another process.

    python tests/benchmarks/corpus.py [--only NAME ...] [--rounds N] [--out FOLDER] [--again] [--read FOLDER]

The scripts in ``corpus/`` know nothing of vmselect, except a loop that calls ``probe_loop``.
For each, in folders of its own:

1. files stand where the script would write its own, and a snapshot of all of them is taken;
2. ``vmselect probe SCRIPT`` runs, after which every file must be as it was, byte for byte;
3. the profiles say what the script's fits take together (their steps, validations and so on; not the imports before);
4. the script runs again in another process, with nothing of vmselect in it, and a clock around each fit says the truth.

``--rounds`` does all of that several times, all scripts in turn, because no two trainings of one script take the same
time: a prediction is judged by the training that follows it and by the median of all, and the trainings by one another.

``--out`` keeps one small file and the profiles of each script and round, and what is there is not run again: a run that
was broken off goes on where it was. How much of its cores other programs took meanwhile is written down too: where
that was over a tenth, the row says so and counts for nothing, and ``--again`` makes it anew. ``--read`` prints the
table of an earlier run, predicted anew from its profiles; ``--markdown`` as it stands in the docs; ``--probe-only``
leaves out the whole trainings.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import itertools
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = Path(__file__).resolve().parent / "corpus"
CLOCK = Path(__file__).resolve().parent / "corpus_clock.py"
CLI = [sys.executable, "-c", "from vmselect.cli import main; main()"]
LIMIT_SECONDS = 300
LONG_SECONDS = 10.0
"""A fit shorter than this does not count for the mean error."""

FAR = 0.1
"""A training this far outside its interval, as a share of its time, is one that a finding has to explain."""

DISTURBED = 0.1
"""Share of the usable cores that other programs may take while a script runs; more, and its times mean nothing."""

LEFT_FROM_BEFORE = {
    "keras_checkpoint": ("models/best.keras", "models/last.keras"),
    "keras_weights_every_epoch": ("weights/01.weights.h5", "weights/02.weights.h5"),
    "keras_backup": ("backup/latest.weights.h5", "backup/training_metadata.json"),
    "keras_csv_log": ("history.csv",),
    "keras_tensorboard": ("logs/train/events.out.tfevents.1", "logs.csv"),
    "keras_gan": ("generator.keras",),
    "keras_vae": ("vae.weights.h5",),
    "keras_two_phases": ("flowers.keras",),
    "keras_fit_by_fit": ("field.keras",),
    "keras_multi_input": ("tickets.keras",),
    "keras_torch_loader": ("epoch-1.keras", "epoch-2.keras", "log.csv"),
    "keras_tf_data": ("best.weights.h5",),
    "keras_transformer": ("encoder.keras",),
    "torch_validation": ("best.pt",),
    "torch_accumulation": ("speaker.pt",),
    "torch_stream": ("stream-0.pt",),
    "torch_gan": ("gan.pt",),
    "lightning_classifier": ("checkpoints/last.ckpt", "lightning_logs/version_0/hparams.yaml"),
    "lightning_accumulation": ("runs/forecast/version_0/metrics.csv",),
    "hf_trainer": ("reviews/checkpoint-75/model.safetensors", "final/model.safetensors"),
    "hf_accumulation": (),
}
"""What earlier trainings of a script have left, which a probe must not touch."""

Results = dict[str, list[dict[str, Any]]]
"""What came out, by script, round by round."""


def main() -> None:
    """Run, read, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = sorted(path.stem for path in SCRIPTS.glob("*.py"))
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--rounds", type=int, default=1, help="how often each is probed and trained, in turn (1)")
    parser.add_argument("--out", type=Path, help="folder for the results; those that are there are not made again")
    parser.add_argument("--read", type=Path, help="print the table of the results in this folder")
    parser.add_argument("--markdown", action="store_true", help="print the table as it stands in the docs")
    parser.add_argument("--again", action="store_true", help="make those anew that other programs disturbed")
    parser.add_argument("--probe-only", action="store_true", help="leave out the whole trainings")
    given = parser.parse_args()
    folder = given.read or given.out
    results: Results = {name: [] for name in given.only}
    try:
        for round_, name in itertools.product(range(1, given.rounds + 1), given.only):
            where = f"[round {round_} of {given.rounds}] {name}"
            kept = folder / str(round_) / f"{name}.json" if folder else None
            if kept is not None and kept.is_file():
                result = json.loads(kept.read_text(encoding="utf-8"))
                if "failed" not in result:
                    result |= predict(name, kept.with_suffix(""))
                if given.read or not (given.again and out_of_order(result)):
                    results[name].append(result)
                    continue
            if given.read:
                continue
            say(f"{where}: probing ...")
            result = run(name, whole=not given.probe_only, keep=kept and kept.with_suffix(""))
            say(f"{where}: {describe(result)}")
            results[name].append(result)
            if kept is not None and not given.probe_only:
                kept.parent.mkdir(parents=True, exist_ok=True)
                beside = kept.with_suffix(".part")
                beside.write_text(json.dumps(result, indent=1), encoding="utf-8")
                beside.replace(kept)
    except KeyboardInterrupt:
        say("broken off; what was finished is kept where --out says, and the same command goes on from there")
    print_table({name: rounds for name, rounds in results.items() if rounds}, markdown=given.markdown)
    if folder and given.rounds > 1:
        print(judge_together(results, folder))


def say(line: str) -> None:
    """A line about how far it is, away from the table."""
    print(line, file=sys.stderr, flush=True)


def run(name: str, *, whole: bool, keep: Path | None = None) -> dict[str, Any]:
    """Probe one script, predict, and train it whole; ``keep`` is where its profiles go."""
    result: dict[str, Any] = {"name": name, "about": read_about(name)}
    with tempfile.TemporaryDirectory(prefix="corpus-") as made:
        home = Path(made)
        result |= probe(name, home)
        if keep is not None and (home / "profiles").is_dir():
            shutil.copytree(home / "profiles", keep, dirs_exist_ok=True)
        if whole and "failed" not in result:
            result |= train(name, home)
    return result


def probe(name: str, home: Path) -> dict[str, Any]:
    """What the probe took, what it changed, and what follows from its profiles."""
    work, profiles = home / "probed", home / "profiles"
    scratch = prepare(name, work, home / "scratch")
    for left in LEFT_FROM_BEFORE.get(name, ()):
        (work / left).parent.mkdir(parents=True, exist_ok=True)
        (work / left).write_bytes(b"of last night's training: " + left.encode())
    before = snapshot(work)
    began = time.perf_counter()
    command = ["probe", "--path", str(profiles), "--instance-type", "here", "--region", "here"]
    if name == "keras_tuner_search":  # a probe ends at the first result that a search saves
        command.append("--allow-saves")
    done = start([*CLI, *command, f"{name}.py"], work, scratch)
    took = time.perf_counter() - began
    disturbance = done.others
    done = done.process
    if done.returncode:
        return {"failed": f"probe: exit code {done.returncode}: {last_words(done)}"}
    after = snapshot(work)
    touched = sorted(path for path, content in before.items() if after.get(path) != content)
    left = sorted(path.name for path in scratch.glob(".vmselect-scratch-*"))
    try:
        return {"probe_seconds": took, "probe_others": disturbance, "touched": touched, "scratch_left": left} | predict(
            name, profiles
        )
    except Exception as wrong:  # noqa: BLE001 - whatever it is, it belongs into the table
        return {"failed": f"estimate: {type(wrong).__name__}: {wrong}"}


def predict(name: str, *profiles: Path) -> dict[str, Any]:
    """What the fits take together, as ``vmselect estimate`` says of one or several probes, without what was before."""
    import vmselect as vs
    from vmselect.estimation import estimate_fits

    measured = vs.load_profiles(*profiles)
    asked = read_constants(name)
    options: dict[str, Any] = {}
    # What cannot be seen from outside is asked of the user, who looks into the script.
    if any(one.setup.epochs is None for one in measured):
        options["epochs"] = asked["EPOCHS"]
    if any(one.steps_per_epoch is None for one in measured):
        options["steps_per_epoch"] = asked["STEPS_PER_EPOCH"]
    expected = estimate_fits(measured, **options)
    before = sum(fit.estimate.terms.get("initialization", 0.0) for fit in expected.fits)
    return {
        "fits": sum(fit.times for fit in expected.fits),
        "predicted": expected.seconds - before,
        "low": expected.low - before,
        "high": expected.high - before,
        "cpu_share": sum(one.timeline.cpu_seconds or 0.0 for one in measured)
        / max(1e-9, sum(one.timeline.wall_seconds or 0.0 for one in measured)),
        "backend": measured[0].environment.backend,
        "asked": options,
        "findings": sorted({finding.code for finding in expected.findings}),
        "messages": [str(finding) for finding in expected.findings],
        "parts": [
            {
                "number": fit.number,
                "times": fit.times,
                "seconds": fit.estimate.seconds,
                "terms": dict(fit.estimate.terms),
            }
            for fit in expected.fits
        ],
    }


def train(name: str, home: Path) -> dict[str, Any]:
    """What the fits of the script really take."""
    work = home / "trained"
    scratch = prepare(name, work, home / "scratch")
    told = home / "clock.json"
    ended = start([sys.executable, str(CLOCK), str(told), f"{name}.py"], work, scratch)
    done = ended.process
    if done.returncode or not told.is_file():
        return {"failed": f"training: exit code {done.returncode}: {last_words(done)}"}
    seconds = json.loads(told.read_text(encoding="utf-8"))
    return {"true": sum(seconds), "true_others": ended.others, "true_fits": len(seconds), "each": seconds}


def prepare(name: str, work: Path, scratch: Path) -> Path:
    """An empty folder with the script, and one for temporary files."""
    work.mkdir()
    scratch.mkdir(exist_ok=True)
    (work / f"{name}.py").write_bytes((SCRIPTS / f"{name}.py").read_bytes())
    return scratch


class Ended(NamedTuple):
    """A process that has ended, and the share of its cores that others took meanwhile."""

    process: subprocess.CompletedProcess[str]
    others: float


def start(command: list[str], work: Path, scratch: Path) -> Ended:
    """Run a command in ``work`` to its end, or to the limit, and see who else was busy."""
    cores = os.sched_getaffinity(0)
    began, busy, own = time.perf_counter(), read_busy(cores), read_children()
    process = run_limited(command, work, scratch)
    taken = time.perf_counter() - began
    return Ended(process, max(0.0, (read_busy(cores) - busy) - (read_children() - own)) / taken / len(cores))


def read_busy(cores: set[int]) -> float:
    """Seconds that these cores have worked until now, for whomever; stolen ones included."""
    import psutil

    times = psutil.cpu_times(percpu=True)
    return sum(sum(times[core]) - times[core].idle - getattr(times[core], "iowait", 0.0) for core in cores)


def read_children() -> float:
    """Seconds of processor time of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def out_of_order(result: dict[str, Any]) -> bool:
    """Whether a result failed, or other programs disturbed it."""
    return "failed" in result or max(result.get("probe_others", 0.0), result.get("true_others", 0.0)) > DISTURBED


def run_limited(command: list[str], work: Path, scratch: Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, or to the limit."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HF_HUB_OFFLINE": "1",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TMPDIR": str(scratch),
    }
    try:
        return subprocess.run(
            command, cwd=work, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS
        )
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"not done after {LIMIT_SECONDS} s")


def snapshot(folder: Path) -> dict[str, str]:
    """Every file and folder below ``folder``, and what is in it."""
    return {
        str(path.relative_to(folder)): "folder" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
    }


def read_constants(name: str) -> dict[str, Any]:
    """The numbers that the script gives names to."""
    found: dict[str, Any] = {}
    for node in ast.parse((SCRIPTS / f"{name}.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            names, values = (getattr(side, "elts", [side]) for side in (node.targets[0], node.value))
            for one, what in zip(names, values, strict=False):
                if isinstance(one, ast.Name) and isinstance(what, ast.Constant):
                    found[one.id] = what.value
    return found


def read_about(name: str) -> str:
    """What the script does, in its own words."""
    text = ast.get_docstring(ast.parse((SCRIPTS / f"{name}.py").read_text(encoding="utf-8"))) or name
    return text.splitlines()[0].rstrip(".")


def last_words(done: subprocess.CompletedProcess[str]) -> str:
    """The end of what a process said about what went wrong."""
    return " / ".join((done.stderr.strip().splitlines() or ["no word"])[-3:])[-400:]


def describe(result: dict[str, Any]) -> str:
    """One script's outcome in a line."""
    if "failed" in result:
        return "FAILED " + result["failed"]
    line = f"probed in {result['probe_seconds']:.1f} s, predicted {result['predicted']:.1f} s"
    line += f" ({result['low']:.1f} to {result['high']:.1f}) for {result['fits']} fits, "
    line += f"{result['cpu_share']:.2f} cores busy"
    if "true" in result:
        line += f", true {result['true']:.1f} s ({error(result):+.1%}) in {result['true_fits']} fits"
    if out_of_order(result):
        line += "; DISTURBED by other programs"
    if result["touched"] or result["scratch_left"]:
        line += f"; TOUCHED {result['touched'] + result['scratch_left']}"
    return line + f"; {', '.join(result['findings']) or 'no findings'}"


def error(result: dict[str, Any], true: float | None = None) -> float:
    """How far the prediction is from its own training, or from what is ``true``, as a share of that."""
    return float(result["predicted"] / (true or result["true"]) - 1)


def outside(result: dict[str, Any]) -> float:
    """How far the truth lies outside the interval, as a share of the truth; 0 where it is inside."""
    return float(max(0.0, result["true"] - result["high"], result["low"] - result["true"]) / result["true"])


HEADS = ("script", "backend", "fits", "probe s", "predicted s", "interval s", "true s", "error", "inside", "findings")


def print_table(results: Results, *, markdown: bool) -> None:
    """A row for each script, and what follows from them all."""
    rows = [HEADS, *(describe_script(name, rounds) for name, rounds in results.items())]
    if markdown:
        print("| " + " | ".join(HEADS) + " |\n|" + "---|" * len(HEADS))
        for row in rows[1:]:
            print("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
        print()
    else:
        widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    sum_up(results)


def describe_script(name: str, rounds: list[dict[str, Any]]) -> tuple[str, ...]:
    """The row of one script: what each round gave, in their order."""
    failed = [one["failed"] for one in rounds if "failed" in one]
    if failed:
        return (name, *[""] * (len(HEADS) - 2), failed[0])

    def each(write: Callable[[dict[str, Any]], str], of: list[dict[str, Any]] = rounds) -> str:
        return ", ".join(map(write, of))

    trained = [one for one in rounds if "true" in one]
    return (
        name,
        rounds[0]["backend"] or "",
        str(rounds[0]["fits"]),
        each(lambda one: f"{one['probe_seconds']:.0f}"),
        each(lambda one: f"{one['predicted']:.1f}"),
        each(lambda one: f"{one['low']:.1f} to {one['high']:.1f}"),
        each(lambda one: f"{one['true']:.1f}", trained),
        each(lambda one: f"{error(one):+.1%}", trained),
        each(judge, trained),
        ", ".join(sorted({code for one in rounds for code in one["findings"]})),
    )


def judge(result: dict[str, Any]) -> str:
    """Whether the truth is inside the interval, where that can be said."""
    if out_of_order(result):
        return f"disturbed: {max(result['probe_others'], result['true_others']):.0%} of the core was others'"
    return f"no, by {outside(result):.1%}" if outside(result) else "yes"


def sum_up(results: Results) -> None:
    """The numbers that the whole is judged by."""
    everything = [one for rounds in results.values() for one in rounds]
    trained = [one for one in everything if "true" in one]
    if disturbed := [one["name"] for one in trained if out_of_order(one)]:
        print(f"Disturbed by other programs, and left out below: {', '.join(disturbed)}.")
    known = [one for one in trained if not out_of_order(one) and one["true"] > LONG_SECONDS]
    trainings = {one["name"]: [other["true"] for other in known if other["name"] == one["name"]] for one in known}
    if known:
        inside = sum(not outside(one) for one in known)
        print(f"{len(known)} probes of {len(trainings)} scripts whose fits take longer than {LONG_SECONDS:g} s.")
        print(f"Against the training that followed: {describe_errors([error(one) for one in known])}; {inside} inside.")
    if any(len(seconds) > 1 for seconds in trainings.values()):
        middle = {name: statistics.median(seconds) for name, seconds in trainings.items()}
        errors = [error(one, middle[one["name"]]) for one in known]
        print(f"Against the median training of the script: {describe_errors(errors)}.")
        pairs = [pair for seconds in trainings.values() for pair in itertools.permutations(seconds, 2)]
        print(f"One training against another of the same script: {describe_errors([a / b - 1 for a, b in pairs])}.")
    far = [f"{one['name']} ({', '.join(one['findings']) or 'no finding'})" for one in known if outside(one) > FAR]
    touched = [one["name"] for one in everything if one.get("touched") or one.get("scratch_left")]
    counts = [one["name"] for one in known if one["fits"] != one["true_fits"]]
    print(f"Outside by more than {FAR:.0%}: {', '.join(far) or 'none'}. Files touched: {', '.join(touched) or 'none'}.")
    if counts:
        print(f"Fits counted differently by the probe and by the clock: {', '.join(counts)}.")
    if failed := sum("failed" in one for one in everything):
        print(f"Failed: {failed}.")


def judge_together(results: Results, folder: Path) -> str:
    """How far off the estimate from all probes of a script is, where each of its rounds counts."""
    whole = {
        name: rounds
        for name, rounds in results.items()
        if rounds and not any("true" not in one or out_of_order(one) for one in rounds)
    }
    errors = []
    for name, rounds in whole.items():
        kept = [folder / str(number) / name for number in range(1, len(rounds) + 1)]
        errors.append(error(predict(name, *kept), statistics.median(one["true"] for one in rounds)))
    return f"All probes of a script together, against its median training: {describe_errors(errors)}."


def describe_errors(errors: list[float]) -> str:
    """How large they are, whatever their sign."""
    sizes = sorted(map(abs, errors))
    mean, median = statistics.fmean(sizes), statistics.median(sizes)
    return f"mean error {mean:.1%}, median {median:.1%}, largest {sizes[-1]:.1%}"


if __name__ == "__main__":
    main()
