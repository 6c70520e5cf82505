"""Run the blocks of the documentation that need a machine-learning framework, a tracker or a store.

``python tests/support/page_trainings.py keras s3`` runs every block below ``<!-- run with keras -->``, then those below
``<!-- run with s3 -->``: each page in a folder of its own, with the small models, data and stores of this file.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import page_examples

ROOT = page_examples.ROOT


@functools.cache
def keras() -> dict[str, Any]:
    """A small Keras model and its data. All pages share the model, which compiles once."""
    import keras
    import numpy as np

    keras.utils.set_random_seed(0)
    keras.config.disable_interactive_logging()
    x, y = np.random.rand(512, 64).astype("float32"), np.random.randint(0, 10, 512)
    model = keras.Sequential([keras.Input((64,)), keras.layers.Dense(10, "softmax")])
    model.compile("adam", "sparse_categorical_crossentropy", metrics=["accuracy"])
    val = x[:64], y[:64]
    service = {"inputs": x, "ask_the_service": lambda request: request, "requests": list(range(10))}
    return {"model": model, "x": x, "y": y, "val": val, "x_val": val[0], "y_val": val[1], **service}


def jax() -> dict[str, Any]:
    """A training step that JAX compiled, its parameters and its batches."""
    import jax

    return {"jax": jax, "params": jax.numpy.ones(8), "train": jax.jit(lambda p, batch: p * batch), "loader": range(100)}


def lightning() -> dict[str, Any]:
    """A Lightning module and its loaders."""
    import lightning
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    class Line(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(8, 1)

        def training_step(self, batch: Any, _: int) -> Any:
            return ((self.line(batch[0]) - batch[1]) ** 2).mean()

        def validation_step(self, batch: Any, number: int) -> None:
            self.log("val_loss", self.training_step(batch, number))

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    data = TensorDataset(torch.randn(1000, 8), torch.randn(1000, 1))
    return {"model": Line(), "train_loader": DataLoader(data, 16), "validation_loader": DataLoader(data, 100)}


def transformers() -> dict[str, Any]:
    """A model for ``transformers.Trainer``, its data and arguments."""
    import torch
    import transformers

    class Line(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = torch.nn.Linear(8, 1)

        def forward(self, x: Any = None, labels: Any = None) -> dict[str, Any]:
            seen = self.line(x)
            return {"loss": ((seen - labels) ** 2).mean(), "logits": seen}

    data = [{"x": torch.ones(8) * number / 1000, "labels": torch.ones(1)} for number in range(1000)]
    arguments = transformers.TrainingArguments(
        "out", per_device_train_batch_size=16, num_train_epochs=50, report_to=[], disable_tqdm=True, use_cpu=True
    )
    return {"model": Line(), "arguments": arguments, "data": data, "test": data[:100]}


def mlflow() -> dict[str, Any]:
    """MLflow that stores its runs in the folder, and profiles of three machines."""
    import mlflow

    mlflow.set_tracking_uri(f"sqlite:///{Path.cwd() / 'mlflow.db'}")
    page_examples.three_machines(Path.cwd())
    return {}


def s3() -> dict[str, Any]:
    """The model and data of Keras, a profile, and two buckets of an S3 server on this machine."""
    import boto3
    from moto.server import ThreadedMotoServer

    import vmselect as vs

    if "AWS_ENDPOINT_URL" not in os.environ:
        server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        server.start()
        os.environ |= {
            "AWS_ENDPOINT_URL": "http://{}:{}".format(*server.get_host_and_port()), "AWS_ACCESS_KEY_ID": "page",
            "AWS_SECRET_ACCESS_KEY": "page", "AWS_DEFAULT_REGION": "us-east-1",
        }  # fmt: skip
        for bucket in ("team", "my-bucket"):
            boto3.client("s3").create_bucket(Bucket=bucket)
    page_examples.three_machines(Path.cwd())
    profile = vs.Profile.load("profiles/g4dn.xlarge.json")
    profile.save("s3://team/records")
    return {**keras(), "profile": profile}


SETUPS: dict[str, Callable[[], dict[str, Any]]] = {
    "keras": keras,
    "jax": jax,
    "s3": s3,
    "mlflow": mlflow,
    "lightning": lightning,
    "transformers": transformers,
}


@contextlib.contextmanager
def folder_of_its_own() -> Iterator[None]:
    """Work in a new folder that is removed at the end."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def run_blocks(package: str) -> Iterator[str]:
    """Run the blocks that need ``package``; give the name of the page for each block that ran."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        blocks = [block for block in page_examples.find_blocks(path.read_text()) if block.package == package]
        if not blocks:
            continue
        with folder_of_its_own():
            namespace = dict(SETUPS[package]())
            exec("import vmselect as vs", namespace)
            for block in blocks:
                exec(compile(block.text, path.relative_to(ROOT).as_posix(), "exec"), namespace)
                yield path.relative_to(ROOT).as_posix()


if __name__ == "__main__":
    os.environ |= {"VMSELECT_INSTANCE_TYPE": "g4dn.xlarge"}
    os.environ.setdefault("KERAS_BACKEND", "jax")
    for package in sys.argv[1:]:
        for page in run_blocks(package):
            print("\nran", package, page, flush=True)  # on a line of its own: Keras may not have ended its line
