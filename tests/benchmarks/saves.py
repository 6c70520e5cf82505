"""Runs scripts that save models under ``vmselect probe``, and checks that no model file changes.

Each script trains a tiny model and saves it in its own way: after each epoch, in a thread, in another process, inside
``try`` and ``except``, with each function that :mod:`vmselect.probe.saves` lists. Every folder contains model files
before. Afterwards they must be unchanged, and either a profile was written (exit code 0), or the probe printed which
call saves too early (exit code 2).

    python tests/benchmarks/saves.py            # all scripts, prints the counts; exit code 1 if a file has changed
    python tests/benchmarks/saves.py thread     # the scripts whose names contain "thread"
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

CLI = [sys.executable, "-c", "from vmselect.cli import main; main()"]

MODEL_ENDINGS = (".pt", ".pth", ".ckpt", ".safetensors", ".keras", ".h5", ".index", ".joblib", ".pkl", ".onnx", ".pb")
"""Endings of the files that no script may create or change."""

OWN_FILES = (
    "model.pt",
    "new.pt",
    "model.keras",
    "model.weights.h5",
    "model.safetensors",
    "model.joblib",
    "model.ckpt",
    "out/model.safetensors",
    "out/checkpoint-8/model.safetensors",
    "tf/ckpt-1.index",
)
"""Files that are in the folder of each script before it runs."""

TORCH = """
import os, subprocess, sys, threading, torch
from torch.utils.data import DataLoader, TensorDataset
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x):
        return self.layer(x)
model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = TensorDataset(torch.ones(320, 4), torch.ones(320, 1))
loader = DataLoader(data, batch_size=8)
def step(x, y):
    optimizer.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()
def epoch():
    for x, y in loader:
        step(x, y)
"""
KERAS = """
import os, threading, keras, numpy
x, y = numpy.ones((320, 4)), numpy.ones(320)
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile(loss="mse", optimizer="sgd")
def train(*callbacks):
    model.fit(x, y, batch_size=8, epochs=9, verbose=0, validation_data=(x, y), callbacks=list(callbacks))
"""
LIGHTNING = """
import torch, {package} as lightning
from torch.utils.data import DataLoader, TensorDataset
from {package}.callbacks import ModelCheckpoint
class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def training_step(self, batch, index):
        x, y = batch
        return torch.nn.functional.mse_loss(self.layer(x), y)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.ones(320, 4), torch.ones(320, 1)), batch_size=8)
def make(**options):
    return lightning.Trainer(max_epochs=9, enable_progress_bar=False, logger=False, accelerator="cpu", **options)
"""
TRAINER = """
import torch, transformers
class Net(transformers.PreTrainedModel):
    config_class = transformers.PretrainedConfig
    def __init__(self, config):
        super().__init__(config)
        self.layer = torch.nn.Linear(4, 1)
        self.post_init()
    def forward(self, x=None, labels=None):
        out = self.layer(x)
        return {"loss": torch.nn.functional.mse_loss(out, labels), "logits": out}
model = Net(transformers.PretrainedConfig())
data = [{"x": torch.ones(4), "labels": torch.ones(1)} for _ in range(320)]
def make(callbacks=(), **options):
    arguments = transformers.TrainingArguments(
        "out", num_train_epochs=9, per_device_train_batch_size=8, report_to=[], use_cpu=True, disable_tqdm=True,
        **{"save_strategy": "no", **options})
    return transformers.Trainer(model, arguments, train_dataset=data, callbacks=list(callbacks))
"""
OTHER_PROGRAM = "import torch; torch.save([1], 'new.pt')"


@dataclass(frozen=True)
class Case:
    """A script, how it is probed, and how it must end."""

    name: str
    source: str
    packages: tuple[str, ...] = ("torch",)
    backend: str = "jax"
    ends: Literal["profile", "error"] = "profile"
    options: tuple[str, ...] = ()
    told: str = ""
    """Text that the message must contain, such as the name of the function; empty if the training ends before."""


def _torch_cases() -> Iterator[Case]:
    def case(name: str, source: str, told: str = "torch.save", **options: object) -> Case:
        return Case(f"torch: {name}", TORCH + source, told=told, **options)  # type: ignore[arg-type]

    replace = "    os.replace('new.pt', 'model.pt')\n"
    each = "for _ in range(9):\n    epoch()\n"
    save = "    torch.save(model.state_dict(), 'new.pt')\n"
    yield case("after each epoch", each + "    torch.save(model.state_dict(), 'model.pt')")
    yield case("save then os.replace", each + save + replace)
    yield case(
        "best of a validation",
        "best = 9e9\n"
        + each
        + (
            "    model.eval()\n    with torch.no_grad():\n        loss = sum(float(model(x).mean()) for x, _ in data)\n"
            "    model.train()\n    if loss < best:\n        torch.save(model.state_dict(), 'model.pt')\n"
        ),
    )
    counted = "for number, (x, y) in enumerate(loader, 1):\n    step(x, y)\n    if number % {} == 0:\n    " + save
    yield case("every 10 steps", counted.format(10))
    yield case("after 2 steps", counted.format(2), ends="error")
    yield case(
        "every 10 steps without a loader",
        "for number in range(1, 400):\n    step(*data[:8])\n    if number % 10 == 0:\n    " + save,
    )
    yield case("before the first step", save.strip() + "\n" + each, ends="error")
    yield case("without a training", save.strip(), ends="error")
    yield case("after one epoch", "epoch()\n" + save.strip())
    for handler in ("except:", "except Exception:", "except BaseException:", "finally:"):
        yield case(f"swallowed by {handler}", each + f"    try:\n    {save}    {handler}\n        pass\n" + replace)
    yield case("finally with os.replace", each + f"    try:\n    {save}    finally:\n    " + replace)
    yield case(
        "suppressed",
        "import contextlib\n" + each + "    with contextlib.suppress(BaseException):\n    " + save + replace,
    )
    yield case(
        "context manager",
        "import contextlib\n@contextlib.contextmanager\ndef written():\n    try:\n"
        "        yield 'new.pt'\n    finally:\n    "
        + replace
        + each
        + "    with written() as path:\n        torch.save(model, path)",
    )
    yield case("around the training", f"try:\n    epoch()\n{save}except BaseException:\n{replace}")
    target = "threading.Thread(target=torch.save, args=(model.state_dict(), 'new.pt')"
    yield case("thread", each + f"    thread = {target}); thread.start(); thread.join()\n" + replace)
    yield case(
        "daemon thread", each + f"    thread = {target}, daemon=True); thread.start(); thread.join()\n" + replace
    )
    yield case(
        "thread beside the training",
        f"for _ in range(9):\n    epoch()\n    {target}).start()\n    for _ in range(9):\n        epoch()\n",
    )
    yield case(
        "thread pool",
        "from concurrent.futures import ThreadPoolExecutor\n" + each + "    with ThreadPoolExecutor() as pool:\n"
        "        pool.submit(torch.save, [1], 'new.pt').exception()\n" + replace,
    )
    yield case(
        "two threads",
        each + f"    threads = [{target}) for _ in range(2)]\n"
        "    [thread.start() for thread in threads]; [thread.join() for thread in threads]\n" + replace,
    )
    for method in ("fork", "spawn", "forkserver"):
        main = "import multiprocessing\nif __name__ == '__main__':\n"
        body = (
            f"    epoch()\n    start = multiprocessing.get_context('{method}')\n"
            "    process = start.Process(target=torch.save, args=([1], 'new.pt'))\n"
            "    process.start(); process.join()\n"
        )
        yield case(f"process by {method}", main + body + replace)
    yield case("os.fork", "epoch()\nif not os.fork():\n" + save + "    os._exit(0)\nos.wait()\n" + replace.strip())
    program = f"subprocess.run([sys.executable, '-c', {OTHER_PROGRAM!r}])"
    yield case("another program", each + f"    {program}\n" + replace)
    yield case("another program before the training", program + "\n" + each, ends="error")
    shell = f'{sys.executable} -c "{OTHER_PROGRAM}"; mv new.pt model.pt'
    yield case("a shell that goes on", each + f"    subprocess.run({shell!r}, shell=True)\n")
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {OTHER_PROGRAM!r}])"
    yield case("a program of a program", each + f"    subprocess.run([sys.executable, '-c', {nested!r}])\n" + replace)
    yield case(
        "a program that the script does not wait for",
        each + f"    subprocess.Popen([sys.executable, '-c', {OTHER_PROGRAM!r}])\n",
        told="",
    )
    yield case(
        "opened by the script",
        each + "    with open('model.pt', 'wb') as file:\n        torch.save(model.state_dict(), file)",
        told="open",
    )
    yield case(
        "opened by pathlib",
        "from pathlib import Path\n"
        + each
        + "    with Path('model.pt').open('wb') as file:\n        torch.save(model, file)",
        told="open",
    )
    yield case(
        "a new file opened by the script",
        each + "    with open('other.pt', 'wb') as file:\n        torch.save(model.state_dict(), file)",
    )
    yield case(
        "to memory",
        "import io\n" + each + "    buffer = io.BytesIO()\n    torch.save(model, buffer)\n"
        "    open('model.pt', 'wb').write(buffer.getvalue())",
    )
    yield case(
        "temporary file and move",
        "import shutil, tempfile\n"
        + each
        + "    file = tempfile.NamedTemporaryFile(suffix='.pt', delete=False)\n    torch.save(model, file)\n"
        "    file.close(); shutil.move(file.name, 'model.pt')",
    )
    yield case("imported by name", "from torch import save\n" + each + "    save(model, 'model.pt')")
    yield case(
        "partial function",
        "from functools import partial\nsave = partial(torch.save, f='model.pt')\n" + each + "    save(model)",
    )
    yield case("at exit", "import atexit\natexit.register(torch.save, [1], 'model.pt')\nepoch()\n")
    yield case("after sys.exit", "try:\n    epoch()\n    sys.exit(0)\nfinally:\n    torch.save([1], 'model.pt')")
    yield case(
        "in a handler of a signal",
        "import signal\nsignal.signal(signal.SIGALRM, lambda *_: "
        "torch.save([1], 'model.pt'))\nepoch()\nsignal.raise_signal(signal.SIGALRM)",
    )
    yield case(
        "with loader workers",
        "if __name__ == '__main__':\n    loader = DataLoader(data, batch_size=8, "
        "num_workers=2, persistent_workers=True)\n    epoch()\n    torch.save(model, 'model.pt')",
    )
    yield case(
        "pickled in memory, then saved",
        "import copy, pickle\n"
        + each
        + "    pickle.loads(pickle.dumps(model)); copy.deepcopy(model)\n    torch.save(model, 'model.pt')",
    )
    yield case("torch.jit.save", "epoch()\ntorch.jit.save(torch.jit.script(model), 'model.pt')", "torch.jit.save")
    yield case("ScriptModule.save", "epoch()\ntorch.jit.script(model).save('model.pt')", "ScriptModule.save")
    yield case(
        "torch.export.save",
        "epoch()\nexported = torch.export.export(model, (torch.ones(2, 4),))\ntorch.export.save(exported, 'model.pt')",
        "torch.export.save",
    )
    yield case(
        "torch.onnx.export", "epoch()\ntorch.onnx.export(model, (torch.ones(2, 4),), 'model.pt')", "torch.onnx.export"
    )
    yield case(
        "distributed checkpoint",
        "import torch.distributed.checkpoint as dcp\nepoch()\ndcp.save({'a': torch.ones(2)}, checkpoint_id='out')",
        "torch.distributed.checkpoint.save",
    )
    yield case(
        "two trainings",
        "epoch()\nmodel = Net()\noptimizer = torch.optim.SGD(model.parameters(), lr=1e-3)\n"
        "epoch()\ntorch.save(model, 'model.pt')",
        options=("--fits", "2"),
    )
    own = "import vmselect\nwith vmselect.probe_loop('own.json') as probe:\n    for x, y in probe.steps(loader):\n"
    yield case("inside probe_loop", own + "        step(x, y)\n    torch.save(model, 'model.pt')")


def _library_cases() -> Iterator[Case]:
    def case(name: str, package: str, source: str, told: str) -> Case:
        return Case(f"{package}: {name}", TORCH + source, packages=("torch", package), told=told)

    yield case(
        "save_file",
        "safetensors",
        "import safetensors.torch\nepoch()\nsafetensors.torch.save_file(model.state_dict(), 'model.safetensors')",
        "save_file",
    )
    yield case(
        "save_model",
        "safetensors",
        "from safetensors.torch import save_model\nepoch()\nsave_model(model, 'model.safetensors')",
        "save_model",
    )
    yield case(
        "numpy",
        "safetensors",
        "from safetensors.numpy import save_file\nimport numpy\nepoch()\n"
        "save_file({'a': numpy.ones(2)}, 'model.safetensors')",
        "save_file",
    )
    yield case("dump", "joblib", "import joblib\nepoch()\njoblib.dump([1], 'model.joblib')", "joblib.dump")
    yield case(
        "workers, then dump",
        "joblib",
        "import joblib, numpy\nepoch()\n"
        "joblib.Parallel(2)(joblib.delayed(numpy.sum)(numpy.ones(10**6)) for _ in range(2))\n"
        "joblib.dump([1], 'model.joblib')",
        "joblib.dump",
    )
    for call in ("save_state('out')", "save_model(model, 'out')", "save(model.state_dict(), 'model.pt')"):
        yield case(
            call.partition("(")[0],
            "accelerate",
            "import accelerate\naccelerator = accelerate.Accelerator("
            "cpu=True)\nmodel, optimizer, loader = accelerator.prepare(model, optimizer, loader)\nepoch()\n"
            f"accelerator.{call}",
            "Accelerator.save",
        )
    yield case(
        "Fabric",
        "lightning",
        "from lightning.fabric import Fabric\nfabric = Fabric(accelerator='cpu')\n"
        "epoch()\nfabric.save('model.ckpt', {'model': model})",
        "Fabric.save",
    )


def _trainer_cases() -> Iterator[Case]:
    def hugging_face(name: str, source: str, told: str) -> Case:
        return Case(f"transformers: {name}", TRAINER + source, packages=("torch", "transformers"), told=told)

    yield hugging_face("save_model", "trainer = make()\ntrainer.train()\ntrainer.save_model('out')", "save_model")
    yield hugging_face(
        "checkpoints, then save_pretrained",
        "trainer = make(save_strategy='epoch')\ntrainer.train()\nmodel.save_pretrained('out')",
        "save_pretrained",
    )
    yield hugging_face(
        "checkpoints every 8 steps, best at the end, then save_model",
        "trainer = make(save_strategy='steps', save_steps=8)\ntrainer.train()\ntrainer.save_model()",
        "save_model",
    )
    yield hugging_face(
        "own callback",
        "class Own(transformers.TrainerCallback):\n"
        "    def on_epoch_end(self, args, state, control, **others):\n"
        "        model.save_pretrained('out')\nmake([Own()]).train()",
        "save_pretrained",
    )
    for package in ("lightning.pytorch", "pytorch_lightning"):
        head = LIGHTNING.format(package=package)
        needs = ("torch", package.partition(".")[0])
        yield Case(
            f"{package}: checkpoints, then save_checkpoint",
            head + "trainer = make(callbacks=["
            "ModelCheckpoint('out', every_n_epochs=1)])\ntrainer.fit(Net(), loader)\n"
            "trainer.save_checkpoint('model.ckpt')",
            needs,
            told="save_checkpoint",
        )
    yield Case(
        "lightning: save_checkpoint in a hook",
        head + "class Own(Net):\n    def on_train_epoch_end(self):\n"
        "        self.trainer.save_checkpoint('model.ckpt')\nmake().fit(Own(), loader)",
        needs,
        told="save_checkpoint",
    )
    yield Case(
        "lightning: torch.save every 10 batches",
        head + "class Own(Net):\n"
        "    def on_train_batch_end(self, outputs, batch, index):\n        if index % 10 == 9:\n"
        "            torch.save(self.state_dict(), 'model.pt')\nmake().fit(Own(), loader)",
        needs,
        told="torch.save",
    )


def _keras_cases() -> Iterator[Case]:
    for backend in ("tensorflow", "jax", "torch"):

        def case(name: str, source: str, told: str, backend: str = backend, **options: object) -> Case:
            packages = ("keras", backend)
            return Case(f"keras on {backend}: {name}", KERAS + source, packages, backend, told=told, **options)  # type: ignore[arg-type]

        yield case("save", "train()\nmodel.save('model.keras')", "Model.save")
        yield case(
            "save_weights swallowed",
            "train()\ntry:\n    model.save_weights('model.weights.h5')\nexcept:\n    pass\nos.remove('model.keras')",
            "save_weights",
        )
        yield case(
            "callbacks, then save_model",
            "train(keras.callbacks.ModelCheckpoint('model.keras'), "
            "keras.callbacks.BackupAndRestore('tf'))\nkeras.saving.save_model(model, 'model.keras')",
            "save_model",
        )
        yield case(
            "own callback after each epoch",
            "train(keras.callbacks.LambdaCallback(on_epoch_end=lambda *_: model.save('model.keras')))",
            "Model.save",
        )
        yield case(
            "own callback every 10 batches",
            "train(keras.callbacks.LambdaCallback(on_train_batch_end=lambda "
            "batch, logs: batch % 10 == 9 and model.save_weights('model.weights.h5')))",
            "save_weights",
        )
        yield case(
            "ModelCheckpoint every 10 batches, then save",
            "train(keras.callbacks.ModelCheckpoint("
            "'model.weights.h5', save_weights_only=True, save_freq=10))\nmodel.save('model.keras')",
            "Model.save",
        )
        yield case("before fit", "model.save('model.keras')\ntrain()", "Model.save", ends="error")
    yield case(
        "in a thread",
        "train()\nthread = threading.Thread(target=model.save, args=('model.keras',))\n"
        "thread.start(); thread.join(); os.replace('new.pt', 'model.pt')",
        "Model.save",
    )
    tensorflow = ("keras", "tensorflow")
    head = KERAS + "import tensorflow as tf\ntrain()\nsaved = tf.train.Checkpoint(a=tf.Variable(1.0))\n"
    for name, call in {
        "Model.export": "model.export('out')",
        "Checkpoint.save": "saved.save('tf/ckpt')",
        "Checkpoint.write": "saved.write('tf/ckpt-1')",
        "CheckpointManager.save": "tf.train.CheckpointManager(saved, 'tf', max_to_keep=1).save()",
        "saved_model.save": "tf.saved_model.save(saved, 'out')",
    }.items():
        yield Case(f"tensorflow: {name}", head + call, tensorflow, "tensorflow", told=name)
    tuner = (
        "import keras_tuner\ndef build(hp):\n    hp.Int('a', 1, 9)\n    made = keras.Sequential([keras.Input((4,)),"
        " keras.layers.Dense(1)])\n    made.compile(loss='mse')\n    return made\n"
        "keras_tuner.RandomSearch(build, objective='val_loss', max_trials=2, directory='tuning')"
        ".search(x, y, epochs=5, batch_size=8, verbose=0, validation_data=(x, y))"
    )
    yield Case("keras-tuner", KERAS + tuner, ("keras", "jax", "keras_tuner"), told="keras-tuner")
    orbax = KERAS + "import orbax.checkpoint as ocp, numpy\ntrain()\nhere = os.path.abspath('out')\n"
    for name, call in {
        "Checkpointer": "ocp.PyTreeCheckpointer().save(here, {'a': numpy.ones(2)}, force=True)",
        "StandardCheckpointer": "ocp.StandardCheckpointer().save(here, {'a': numpy.ones(2)}, force=True)",
        "CheckpointManager": "ocp.CheckpointManager(here).save(9, args=ocp.args.StandardSave({'a': numpy.ones(2)}))",
    }.items():
        yield Case(f"orbax: {name}", orbax + call, ("keras", "jax", "orbax"), told="orbax")
    yield Case(
        "orbax: callback, then save",
        KERAS + "train(keras.callbacks.OrbaxCheckpoint(os.path.abspath('out')))\nmodel.save('model.keras')",
        ("keras", "jax", "orbax"),
        told="Model.save",
    )


CASES = (*_torch_cases(), *_library_cases(), *_trainer_cases(), *_keras_cases())


def missing_packages(case: Case) -> list[str]:
    """Return the packages that ``case`` needs and that are not installed."""
    return [package for package in case.packages if importlib.util.find_spec(package) is None]


def hash_files(folder: Path) -> dict[str, str]:
    """Return the hash of each file below ``folder``, except records and caches."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*")
        if path.is_file() and not {"profiles", "__pycache__"} & {*path.relative_to(folder).parts}
    }


def run_case(case: Case, folder: Path, *, probes: int = 1) -> list[str]:
    """Probe the script of ``case`` in ``folder``, ``probes`` times at once. Return what is wrong with the result."""
    for name in OWN_FILES:
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text(f"my {name}")
    (folder / "train.py").write_text(case.source)
    before = hash_files(folder)
    environment = {
        **os.environ,
        "KERAS_BACKEND": case.backend,
        "TMPDIR": str(folder / "profiles"),
        "HF_HUB_OFFLINE": "1",
    }
    (folder / "profiles").mkdir(exist_ok=True)
    command = [*CLI, "probe", "--path", "records", "--steady-seconds", "0.2", *case.options, "train.py"]
    running = [
        subprocess.Popen(
            command, cwd=folder, env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(probes)
    ]
    wrong = []
    for process in running:
        out, told = process.communicate(timeout=400)
        expected = {"profile": 0, "error": 2}[case.ends]
        if process.returncode != expected:
            wrong.append(f"exit code {process.returncode} instead of {expected}: {(out + told)[-1500:]}")
        if case.told and not all(text in told for text in (case.told, "line", "--allow-saves")):
            wrong.append(f"the message lacks {case.told!r}: {told[-500:]}")
    after = hash_files(folder)
    wrong += [f"{name} has changed" for name, content in before.items() if after.get(name) != content]
    wrong += [f"{name} is new" for name in after if name not in before and name.endswith(MODEL_ENDINGS)]
    if left := [path.name for path in (folder / "profiles").iterdir() if "vmselect" in path.name]:
        wrong.append(f"{left} are left")
    records = len(list(folder.glob("records/*.json"))) + len(list(folder.glob("own.json")))
    if (records >= probes) != (case.ends == "profile"):
        wrong.append(f"there are {records} records")
    return wrong


def main(words: Sequence[str]) -> int:
    """Run all cases whose names contain each of ``words``; print failures and counts. Return the exit code."""
    chosen = [(case, 1) for case in CASES if all(word in case.name for word in words)]
    chosen += [(case, 2) for case, _ in chosen if case.name.endswith(("os.replace", "thread", ": save"))]
    runnable = [(case, probes) for case, probes in chosen if not missing_packages(case)]

    def run(item: tuple[Case, int]) -> list[str]:
        with tempfile.TemporaryDirectory() as folder:
            wrong = run_case(item[0], Path(folder), probes=item[1])
        label = item[0].name + (", two probes at once" if item[1] > 1 else "")
        print("FAILED" if wrong else "ok    ", label, *wrong, sep="\n  " if wrong else " ", flush=True)
        return wrong

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        failed = sum(map(bool, pool.map(run, runnable)))
    errors = sum(case.ends == "error" for case, _ in runnable)
    print(
        f"{len(runnable)} runs: {len(runnable) - errors} must end with a profile, {errors} with the error; "
        f"{failed} failed, {len(chosen) - len(runnable)} left out for want of a package"
    )
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
