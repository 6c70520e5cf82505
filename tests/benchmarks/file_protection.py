"""Probe generated scripts that change files in many ways, and count the files that are not as they were.

    python tests/benchmarks/file_protection.py [--scripts 240] [--seed 0] [--mechanisms system-calls python-calls]
        [--json counts.json] [--keep folder]

Every script trains a tiny torch model, and saves, copies, moves, replaces, links, appends to, reads back, loads and
deletes files with torch, numpy, pickle, safetensors, h5py, json, sqlite and child processes. A script returns, raises,
calls ``os._exit``, or is ended by SIGTERM or SIGKILL between two operations; after SIGKILL the next command of vmselect
runs. Every fourth script has a loop that the probe does not recognize and that therefore runs to its end.

A script fails the test if a file that existed has another content, mode, time or link than before, if a script that
should succeed does not (it checks what it reads back), if a file of a shortened training or of the protection is left,
or if the result of a whole training is lost. Each script is a child of one process that has imported the libraries.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import shutil
import signal
import stat
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

MECHANISMS = ("system-calls", "python-calls")
ENDINGS = ("return", "raise", "os._exit", "SIGTERM", "SIGKILL", "SIGKILL of the script")

HEAD = """
import json, os, pickle, shutil, signal, sqlite3, subprocess, sys, tempfile, threading
from pathlib import Path
import h5py, numpy, safetensors.torch, torch

HERE, OUTSIDE = Path.cwd(), Path(os.environ["CASE_OUTSIDE"])
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def save_torch(path): torch.save(model.state_dict(), path)
def load_torch(path): return torch.load(path)
def save_numpy(path):
    with open(path, "wb") as file: numpy.save(file, numpy.full(9, 7.0))
def save_pickle(path):
    with open(path, "wb") as file: pickle.dump({"epoch": 3}, file)
def save_json(path): Path(path).write_text(json.dumps({"loss": 0.5}))
def save_safe(path): safetensors.torch.save_file(dict(model.state_dict()), path)
def save_h5(path):
    with h5py.File(path, "w") as file: file["a"] = numpy.arange(5)
def end(how):
    sys.stdout.flush()
    if how == "raise": raise RuntimeError("end of the case")
    if how == "os._exit": os._exit(0)
    if how == "SIGTERM": os.kill(int(os.environ["CASE_PID"]), signal.SIGTERM); signal.pause()
    if how == "SIGKILL": os.kill(int(os.environ["CASE_PID"]), signal.SIGKILL); signal.pause()
    if how == "SIGKILL of the script": os.kill(os.getpid(), signal.SIGKILL)
"""

RECOGNIZED = """
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(320, 4)), 8)
def epochs():
    for epoch in range(6):
        for (x,) in loader:
            optimizer.zero_grad(); model(x).mean().backward(); optimizer.step()
        yield epoch
"""
UNRECOGNIZED = """
def epochs():
    for epoch in range(2):
        for _ in range(5):
            for weight in model.parameters(): weight.data -= 0.01 * weight.data
        yield epoch
"""

TORCH_FILES = ("best.pt", "last.pt", "ckpt.pt", "hard.pt", "link.pt", "ckpts/step-3.pt", "deep/er/model.pt")
OTHERS = {
    "save_numpy": ("array.npy", "deep/array.npy"),
    "save_pickle": ("state.pkl",),
    "save_json": ("metrics.json", "deep/er/config.json"),
    "save_safe": ("model.safetensors",),
    "save_h5": ("weights.h5",),
}
EVERYTHING = (*TORCH_FILES, *(name for names in OTHERS.values() for name in names), "log.csv", "notes.txt", "ckpt.tmp")


class Case(NamedTuple):
    """A generated script, how it ends, and whether a child process changes files outside the working folder."""

    number: int
    source: str
    ending: str
    whole: bool
    child_outside: bool
    operations: tuple[str, ...]


def generate(number: int, seed: int) -> Case:
    """Script ``number``."""
    draw = random.Random(f"{seed}-{number}")
    ending, whole = ENDINGS[number % len(ENDINGS)], number % 4 == 3
    names = list(OPERATIONS)
    # Every operation occurs equally often, each in other company.
    chosen = [names[number % len(names)], *draw.choices(names, k=draw.randint(2, 6))]
    outside = False
    lines = []

    def place(name: str) -> str:
        nonlocal outside
        kind = draw.choice(("relative", "relative", "absolute", "outside"))
        outside = kind == "outside"
        if kind == "relative":
            return repr(name)
        return f"str({'HERE' if kind == 'absolute' else 'OUTSIDE'} / {name!r})"

    child_outside = False
    stop_at = draw.randint(1, len(chosen)) if ending != "return" else len(chosen) + 1
    for position, operation in enumerate(chosen, 1):
        lines += OPERATIONS[operation](draw, place)
        child_outside |= operation.startswith("child") and "OUTSIDE" in lines[-1]
        if position == stop_at:
            lines.append(f"if epoch >= {0 if whole else draw.randint(0, 1)}: end({ending!r})")
    first = draw.choice(
        ("save_torch('early.pt')", "os.makedirs('data', exist_ok=True); save_json('data/set.json')", "")
    )
    body = "\n".join(f"    {line}" for line in lines)
    source = f"{HEAD}{UNRECOGNIZED if whole else RECOGNIZED}\n{first}\nfor epoch in epochs():\n{body}\n"
    source += "    torch.save({'epoch': epoch}, 'finished.pt')\n    torch.save({'epoch': epoch}, 'best.pt')\n"
    return Case(number, source, ending, whole, child_outside, tuple(chosen))


def _torch(draw: random.Random, place: Any) -> str:
    return place(draw.choice(TORCH_FILES))


def _any(draw: random.Random, place: Any) -> str:
    return place(draw.choice(EVERYTHING))


def _save(draw: random.Random, place: Any) -> list[str]:
    save = draw.choice(list(OTHERS))
    return [f"{save}({place(draw.choice(OTHERS[save]))})"]


def _read_back(draw: random.Random, place: Any) -> list[str]:
    path = _torch(draw, place)
    return [f"save_torch({path})", f"assert torch.equal(load_torch({path})['bias'], model.bias)"]


def _atomic(draw: random.Random, place: Any) -> list[str]:
    temporary, path = place(draw.choice(("ckpt.tmp", "new.tmp", "deep/er/x.tmp"))), place("ckpt.pt")
    return [f"save_torch({temporary})", f"os.replace({temporary}, {path})", f"load_torch({path})",
            f"assert not os.path.exists({temporary})"]  # fmt: skip


def _named_temporary(draw: random.Random, place: Any) -> list[str]:
    path = _torch(draw, place)
    return ["handle, name = tempfile.mkstemp(dir='deep'); os.close(handle)", "save_torch(name)",
            f"os.replace(name, {path})"]  # fmt: skip


def _keep_five(draw: random.Random, place: Any) -> list[str]:
    folder = place("ckpts")
    return [f"save_torch(os.path.join({folder}, f'step-{{epoch + 8}}.pt'))",
            f"for old in sorted(Path({folder}).glob('step-*.pt'), key=lambda one: (len(one.name), one.name))[:-5]: "
            "old.unlink()", f"assert len(list(Path({folder}).glob('step-*.pt'))) <= 5"]  # fmt: skip


def _child(command: str) -> Any:
    def make(draw: random.Random, place: Any) -> list[str]:
        path = _any(draw, place)
        shell = {
            "append": 'echo more >> "$0"',
            "move": 'mv "$0" "$0.moved"',
            "remove": 'rm -f "$0"',
            "overwrite": 'echo other > "$0"',
            "copy": 'cp -f "$0" "$0.2" && cp -f "$0.2" "$0"',
        }[command]
        return [f"Path({path}).touch(); subprocess.run(['sh', '-c', {shell!r}, {path}], check=True)"]

    return make


def _child_python(draw: random.Random, place: Any) -> list[str]:
    path = _any(draw, place)
    code = "import sys; open(sys.argv[1], 'w').write('child'); print(open(sys.argv[1]).read())"
    return [f"assert b'child' in subprocess.check_output([sys.executable, '-S', '-c', {code!r}, {path}])"]


def _forked(draw: random.Random, place: Any) -> list[str]:
    path = _any(draw, place)
    return [f"forked = os.fork() or (Path({path}).write_text('forked'), os._exit(0))", "os.waitpid(forked, 0)",
            f"assert Path({path}).read_text() == 'forked'"]  # fmt: skip


OPERATIONS: dict[str, Any] = {
    "save": lambda draw, place: [f"save_torch({_torch(draw, place)})"],
    "save others": _save,
    "read back": _read_back,
    "save and copy": lambda draw, place: [
        f"save_torch({(last := place('last.pt'))}); shutil.copy({last}, {(best := place('best.pt'))})",
        f"assert Path({last}).read_bytes() == Path({best}).read_bytes()",
    ],
    "copy2": lambda draw, place: [f"save_torch('x.pt'); shutil.copy2('x.pt', {_any(draw, place)})"],
    "atomic": _atomic,
    "named temporary": _named_temporary,
    "move": lambda draw, place: [f"save_torch('y.pt'); shutil.move('y.pt', {_any(draw, place)})"],
    "move existing": lambda draw, place: [
        f"if os.path.exists({(path := place('notes.txt'))}): shutil.move({path}, {place('old-notes.txt')})"
    ],
    "rename over": lambda draw, place: [f"save_torch('z.pt'); os.rename('z.pt', {_any(draw, place)})"],
    "rename existing over": lambda draw, place: [
        f"if os.path.exists('state.pkl'): os.replace('state.pkl', {_torch(draw, place)})"
    ],
    "link": lambda draw, place: [
        f"Path('named.pt').unlink(missing_ok=True); save_torch('best.pt'); os.link({place('best.pt')}, 'named.pt')"
        " if not OUTSIDE.is_mount() else None",
        "save_torch('named.pt')",
    ],
    "symbolic link": lambda draw, place: [
        f"Path('latest').unlink(missing_ok=True); os.symlink({place('ckpts/step-3.pt')}, 'latest')",
        "Path('latest').parent.mkdir(exist_ok=True); save_torch('latest')",
    ],
    "relink": lambda draw, place: [
        "Path('link.pt').unlink(missing_ok=True); os.symlink('last.pt', 'link.pt'); save_torch('link.pt')"
    ],
    "append": lambda draw, place: [f"open({place('log.csv')}, 'a').write('1,2\\n')"],
    "change in place": lambda draw, place: [
        f"file = open({(path := place('array.npy'))}, 'r+b' if os.path.exists({path}) else 'w+b'); file.seek(90); "
        "file.write(b'12345678'); file.close()"
    ],
    "memory map": lambda draw, place: [
        f"save_numpy({(path := place('array.npy'))}); mapped = numpy.load({path}, mmap_mode='r+'); mapped[2] = 9; "
        "mapped.flush(); del mapped"
    ],
    "truncate": lambda draw, place: [f"Path({(path := _any(draw, place))}).touch(); os.truncate({path}, 3)"],
    "h5 append": lambda draw, place: [
        f"save_h5({(path := place('weights.h5'))})",
        f"with h5py.File({path}, 'a') as file: file['b'] = numpy.ones(3)",
        f"with h5py.File({path}) as file: assert sorted(file) == ['a', 'b']",
    ],
    "sqlite": lambda draw, place: [
        f"base = sqlite3.connect({place('runs.db')}); base.execute('create table if not exists t (a)'); "
        "base.execute('insert into t values (1)'); base.commit(); base.close()"
    ],
    "resume": lambda draw, place: [
        f"model.load_state_dict(load_torch({(path := place('resume.pt'))})); save_torch({path}); load_torch({path})"
    ],
    "keep five": _keep_five,
    "folders": lambda draw, place: [
        f"os.makedirs({(path := place('made/in/depth'))}, exist_ok=True); save_torch(os.path.join({path}, 'a.pt'))"
    ],
    "remove folder": lambda draw, place: [
        f"shutil.rmtree({(path := place('deep'))}, ignore_errors=True); os.makedirs({path} + '/er'); "
        f"save_torch({path} + '/er/model.pt')"
    ],
    "rename folder": lambda draw, place: [
        f"folder = {place('ckpts')}",
        "if not os.path.exists(folder + '.old') and os.path.isdir(folder): "
        "os.rename(folder, folder + '.old'); os.mkdir(folder); save_torch(folder + '/step-3.pt'); "
        "save_torch(folder + '.old/step-2.pt')",
    ],
    "delete": lambda draw, place: [f"Path({_any(draw, place)}).unlink(missing_ok=True)"],
    "permissions": lambda draw, place: [
        f"Path({(path := _any(draw, place))}).touch(); os.chmod({path}, 0o600); os.utime({path}, (1, 1))"
    ],
    "thread": lambda draw, place: [
        f"writer = threading.Thread(target=save_torch, args=({_torch(draw, place)},)); writer.start(); writer.join()"
    ],
    "child appends": _child("append"),
    "child moves": _child("move"),
    "child removes": _child("remove"),
    "child overwrites": _child("overwrite"),
    "child copies": _child("copy"),
    "child python": _child_python,
    "forked": _forked,
}


def prepare(folder: Path) -> None:
    """Files that earlier trainings have left."""
    import h5py
    import numpy
    import safetensors.torch
    import torch

    for name in ("ckpts", "deep/er"):
        (folder / name).mkdir(parents=True)
    weights = {"weight": torch.ones(2, 4), "bias": torch.ones(2)}
    steps = [f"ckpts/step-{number}.pt" for number in range(1, 8)]
    for number, name in enumerate(["best.pt", "last.pt", "ckpt.pt", "resume.pt", "deep/er/model.pt", *steps]):
        torch.save({**weights, "bias": torch.full((2,), float(number))}, folder / name)
    os.link(folder / "last.pt", folder / "hard.pt")
    (folder / "link.pt").symlink_to("best.pt")
    numpy.save(folder / "array.npy", numpy.arange(30.0))
    numpy.save(folder / "deep/array.npy", numpy.arange(20.0))
    safetensors.torch.save_file(weights, folder / "model.safetensors")
    with h5py.File(folder / "weights.h5", "w") as file:
        file["old"] = numpy.arange(3)
    for name in ("state.pkl", "metrics.json", "deep/er/config.json", "log.csv", "notes.txt", "ckpt.tmp"):
        (folder / name).write_text(f"{name} of an earlier training\n")
    (folder / "notes.txt").chmod(0o640)
    for path in folder.rglob("*"):
        os.utime(path, (10**9, 10**9), follow_symlinks=False)


def look(folder: Path) -> dict[str, Any]:
    """State of all files: kind, content, mode, time of change, and which names are one file."""
    found: dict[str, Any] = {}
    groups = collections.defaultdict(list)
    for path in sorted(folder.rglob("*")):
        name, state = str(path.relative_to(folder)), path.lstat()
        if stat.S_ISLNK(state.st_mode):
            found[name] = ("link", str(path.readlink()))
        elif stat.S_ISDIR(state.st_mode):
            found[name] = ("folder", stat.S_IMODE(state.st_mode))
        else:
            groups[state.st_ino].append(name)
            found[name] = ("file", path.read_bytes(), stat.S_IMODE(state.st_mode), state.st_mtime_ns)
    for names in groups.values():
        for name in names:
            found[name] += (tuple(names),)
    return found


def run_command(arguments: list[str], folder: Path, output: Path, environment: dict[str, str]) -> int:
    """Run a command of vmselect in a child of this process and wait for it and its forked children."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        os.set_inheritable(writing, False)
        handle = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        os.chdir(folder)
        os.environ.update(environment, CASE_PID=str(os.getpid()))
        sys.argv = ["vmselect", *arguments]
        code = 1
        try:
            from vmselect.cli import main

            main()
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    os.read(reading, 1)
    os.close(reading)
    return os.waitstatus_to_exitcode(status)


def try_case(case: Case, mechanism: str, folder: Path, template: Path) -> list[str]:
    """Probe the script of ``case`` in ``folder`` and return what was wrong."""
    work, outside, state = folder / "work", folder / "outside", folder / "state"
    for copy in (work, outside):
        shutil.copytree(template, copy, symlinks=True)
        (copy / "hard.pt").unlink()
        os.link(copy / "last.pt", copy / "hard.pt")
    (work / "train.py").write_text(case.source)
    before = {place: look(place) for place in (work, outside)}
    environment = {"VMSELECT_PROTECTION": mechanism, "XDG_STATE_HOME": str(state), "CASE_OUTSIDE": str(outside)}
    output = folder / "output.txt"
    command = ["probe", "--path", "out", "--steps", "2", "--steady-seconds", "0", "--sample", "0",
               "--instance-type", "box", "--region", "here", "train.py"]  # fmt: skip
    code = run_command(command, work, output, environment)
    wrong = []
    if case.ending == "SIGKILL":
        run_command(["check", "nothing-here"], folder, output, environment)
    after = {place: look(place) for place in (work, outside)}
    for place, files in before.items():
        for name, state_before in files.items():
            if after[place].get(name) != state_before:
                wrong.append(f"changed {place.name}/{name}")
    expected = {"raise": 1, "SIGTERM": -signal.SIGTERM, "SIGKILL": -signal.SIGKILL,
                "SIGKILL of the script": -signal.SIGKILL}  # fmt: skip
    wanted = expected.get(case.ending, 1 if case.whole and case.ending == "return" else 0)
    if code != wanted:
        wrong.append(f"exit code {code} instead of {wanted}")
    new = [name for name, what in after[work].items() if name not in before[work] and what[0] == "file"]
    if case.whole and case.ending == "return":
        kept = [name for name in new if name.startswith("vmselect-kept-") and name.endswith("/best.pt")]
        if "finished.pt" not in new or not kept:
            wrong.append("lost the result of a whole training")
    elif case.ending == "return" and mechanism == "system-calls":
        allowed = ("out/", "early.pt", "data/", "train.py")
        wrong += [f"left {name}" for name in new if not name.startswith(allowed)]
    left = [*(state / "vmselect" / "protected").glob("*/*"), *folder.rglob(".vmselect-*")]
    wrong += [f"left {path.relative_to(folder)}" for path in left if ".draft" not in path.name]
    return wrong


def run_all(
    mechanism: str, numbers: list[int], seed: int, keep: Path | None, template: Path, *, verbose: bool = True
) -> dict[str, Any]:
    """Probe the scripts and count."""
    counts: dict[str, Any] = {"mechanism": mechanism, "scripts": 0, "held": 0, "not held": [], "by ending": {}}
    covered = collections.Counter(), collections.Counter()
    began = time.monotonic()
    for number in numbers:
        case = generate(number, seed)
        with tempfile.TemporaryDirectory(prefix="files-", dir=keep) as scratch:
            wrong = try_case(case, mechanism, Path(scratch).resolve(), template)
            if wrong and keep is not None:
                shutil.copytree(scratch, keep / f"{mechanism}-{number}", symlinks=True, dirs_exist_ok=True)
        counts["scripts"] += 1
        counts["held"] += not wrong
        covered[0][case.ending] += 1
        covered[1][case.ending] += not wrong
        if wrong:
            limit = "a child process outside the working folder" if case.child_outside else None
            counts["not held"].append({"script": number, "ending": case.ending, "wrong": wrong, "limit": limit})
        if verbose and sys.stderr.isatty():
            sys.stderr.write(f"\r{mechanism}: {counts['scripts']}/{len(numbers)}, {counts['held']} held")
    counts["by ending"] = {ending: f"{covered[1][ending]} of {total}" for ending, total in covered[0].items()}
    counts["seconds"] = round(time.monotonic() - began)
    return counts


def preload() -> Path:
    """Import what the scripts need, and create the files that exist before each."""
    import h5py  # noqa: F401
    import safetensors.torch  # noqa: F401
    import torch

    import vmselect.cli
    import vmselect.probe.script  # noqa: F401

    torch.set_num_threads(1)  # threads do not survive a fork
    weight = torch.ones(1, requires_grad=True)
    weight.grad = torch.ones(1)
    torch.optim.SGD([weight], lr=0.1).step()  # imports much
    next(iter(torch.utils.data.DataLoader([1])))
    os.fdatasync = lambda handle: None  # the power is not cut here
    template = Path(tempfile.mkdtemp(prefix="template-")).resolve()
    prepare(template)
    return template


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", type=int, default=240)
    parser.add_argument("--only", type=int, nargs="*", help="numbers of the scripts to run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mechanisms", nargs="*", choices=MECHANISMS, default=MECHANISMS)
    parser.add_argument("--keep", type=Path, help="folder in which failed scripts stay")
    parser.add_argument("--json", type=Path, help="file for the counts")
    options = parser.parse_args()
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
    template = preload()
    results = []
    try:
        for mechanism in options.mechanisms:
            numbers = options.only if options.only else list(range(options.scripts))
            counts = run_all(mechanism, numbers, options.seed, options.keep, template)
            results.append(counts)
            print(f"{mechanism}: {counts['held']} of {counts['scripts']} scripts, {counts['seconds']} s")
            for ending, share in counts["by ending"].items():
                print(f"  {ending}: {share}")
            for one in counts["not held"]:
                print(f"  script {one['script']} ({one['ending']}; {one['limit'] or 'covered'}): {one['wrong'][:4]}")
    finally:
        shutil.rmtree(template)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    if any(one["limit"] is None for counts in results for one in counts["not held"]):
        sys.exit(1)


if __name__ == "__main__":
    main()
