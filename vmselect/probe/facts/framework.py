"""Facts about Keras, its backend and the model being trained.

Nothing here imports a framework: the training has imported the one that it uses.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from collections.abc import Callable
from typing import Any, TypeVar

Answer = TypeVar("Answer")

PACKAGES = ("keras", "tensorflow", "jax", "jaxlib", "torch", "numpy")


def read_framework(model: Any, backend: str | None = None) -> dict[str, Any]:
    """The software fields of a profile's environment; ``backend`` where the caller knows what trains."""
    backend = backend or backend_name()
    worker_index, workers = read_worker(model, backend)
    jit = getattr(model, "jit_compile", None)
    return {
        "backend": backend,
        "versions": read_versions(),
        "precision": attempt(lambda: str(model.dtype_policy.name)),
        "jit": jit if isinstance(jit, bool) else None,
        "replicas": count_replicas(model, backend),
        "worker_index": worker_index,
        "workers": workers,
        "workers_per_machine": count_workers_here(workers),
        "framework_gpus": count_framework_gpus(backend),
    }


def backend_name() -> str | None:
    """Name of Keras' backend, or of the framework that a hand-written loop has loaded.

    A program may have Keras and TensorFlow loaded and train with neither: torch's loggers load them.
    """
    keras = sys.modules.get("keras")
    name = attempt(lambda: str(keras.backend.backend())) if keras is not None else None
    return name or next((package for package in ("torch", "jax", "tensorflow") if package in sys.modules), None)


def name_model(model: Any) -> str | None:
    """The model's name, without the number that Keras adds when a program builds the same kind of model again."""
    name = getattr(model, "name", None)
    if not isinstance(name, str) or not name:
        return None
    kind = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(model).__name__).lower()
    return kind if re.fullmatch(rf"{re.escape(kind)}_\d+", name) else name[:200]


def count_parameters(model: Any) -> int | None:
    """How many parameters the model has, or None before it is built."""
    if not getattr(model, "built", False) or not hasattr(model, "count_params"):
        return None
    return int(model.count_params())


def describe_structure(model: Any) -> str | None:
    """A digest of the model's layers, their weights and which of them are trained; None before it is built."""
    if not getattr(model, "built", False):
        return None
    layers = attempt(
        lambda: [
            (type(layer).__name__, bool(layer.trainable), [tuple(weight.shape) for weight in layer.weights])
            for layer in model._flatten_layers()
        ]
    )
    return None if not layers else hashlib.sha256(repr(layers).encode()).hexdigest()[:16]


def read_versions() -> dict[str, str]:
    """Versions of Python and of the frameworks that are loaded."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        version = getattr(sys.modules.get(package), "__version__", None)
        if isinstance(version, str):
            found[package] = version[:100]
    return found


def read_worker(model: Any, backend: str | None = None) -> tuple[int, int]:
    """Index of this process among the workers of a distributed training, and their number; the chief has 0."""
    resolver = attempt(lambda: model.distribute_strategy.cluster_resolver)
    if resolver is not None:
        found = attempt(lambda: _read_cluster(resolver))
        if found is not None:
            return found
    jax, torch = sys.modules.get("jax"), sys.modules.get("torch")
    backend = backend or backend_name()
    if backend == "jax" and jax is not None:
        return int(jax.process_index()), int(jax.process_count())
    if backend == "torch" and torch is not None:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank()), int(distributed.get_world_size())
    return 0, 1


def count_workers_here(workers: int) -> int | None:
    """How many of the workers share this machine, or None if unknown; torchrun sets it."""
    count = attempt(lambda: int(os.environ["LOCAL_WORLD_SIZE"]))
    return count if count is not None and 1 <= count <= workers else None


def _read_cluster(resolver: Any) -> tuple[int, int] | None:
    cluster = resolver.cluster_spec()
    counts = {job: cluster.num_tasks(job) for job in cluster.jobs if job in ("chief", "worker")}
    if not counts or resolver.task_type not in counts:
        return None
    # A "chief" comes before the workers; without one, worker 0 is the chief.
    before = counts.get("chief", 0) if resolver.task_type == "worker" else 0
    return before + int(resolver.task_id), sum(counts.values())


def count_replicas(model: Any, backend: str | None = None) -> int:
    """Over how many devices every batch is spread."""
    replicas = attempt(lambda: int(model.distribute_strategy.num_replicas_in_sync))
    if replicas is None and (backend or backend_name()) == "torch":
        replicas = read_worker(model, backend)[1]
    if replicas is None:
        keras = sys.modules.get("keras")
        distribution = attempt(lambda: keras.distribution.distribution()) if keras is not None else None
        shape = attempt(lambda: distribution.device_mesh.shape[0]) if distribution is not None else None
        replicas = shape if isinstance(shape, int) else 1
    return max(1, replicas)


def count_feeders(workers: int, backend: str | None) -> tuple[int, int]:
    """How many workers bring a batch of their own to every step, and how many count examples each for itself.

    TensorFlow's strategies are given the batch of all workers and split it. JAX' workers bring a batch each, unless
    Keras splits a dataset for them, and count together. torch's bring a batch each and count it alone.
    """
    if workers == 1 or backend not in ("jax", "torch"):
        return 1, 1
    keras = sys.modules.get("keras")
    splits = backend == "jax" and attempt(lambda: keras.distribution.distribution().auto_shard_dataset)  # type: ignore[union-attr]
    return 1 if splits else workers, workers if backend == "torch" else 1


def count_framework_gpus(backend: str | None = None) -> int | None:
    """GPUs that the framework uses in this process, or None where it does not report them."""
    name = backend or backend_name()
    framework = sys.modules.get(name or "")
    if framework is None:
        return None
    if name == "tensorflow":
        return attempt(lambda: len(framework.config.list_logical_devices("GPU")))
    if name == "jax":
        return attempt(lambda: sum(device.platform == "gpu" for device in framework.local_devices()))
    if name == "torch":
        # Keras and most loops place a model on one device; other GPUs stay idle without a distributed launch.
        return attempt(lambda: 1 if framework.cuda.is_available() else 0)
    return None


def read_peak_gpu_memory(backend: str | None = None) -> int | None:
    """The most memory that the framework has held on one GPU so far, in bytes."""
    if not count_framework_gpus(backend):
        return None
    name = backend or backend_name()
    framework: Any = sys.modules.get(name or "")
    peaks: dict[str, Callable[[], int]] = {
        "tensorflow": lambda: int(framework.config.experimental.get_memory_info("GPU:0")["peak"]),
        "jax": lambda: max(int(d.memory_stats()["peak_bytes_in_use"]) for d in framework.local_devices()),
        "torch": lambda: int(framework.cuda.max_memory_allocated()),
    }
    return attempt(peaks[name]) if name in peaks else None


def synchronize_devices(model: Any = None) -> None:
    """Wait until the device has finished all work; torch's device too, whichever backend Keras uses."""
    jax, torch, tensorflow = (sys.modules.get(name) for name in ("jax", "torch", "tensorflow"))
    name = backend_name()
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    if name == "jax" and jax is not None:
        pending = getattr(model, "_jax_state", None) or [a for a in jax.live_arrays() if not a.is_deleted()]
        jax.block_until_ready(pending)
    elif name == "tensorflow" and tensorflow is not None:
        tensorflow.test.experimental.sync_devices()


def count_examples(model: Any, *, steps: int | None = None) -> int | None:
    """Examples that the model has seen since its metrics were last reset, ``steps`` ago if that is known.

    Keras weighs each batch's loss by its number of examples, so its running mean of the loss has counted them.
    None when the model keeps no such count (a training step of its own), or when it may have counted batches.
    """
    tracker = getattr(model, "_loss_tracker", None)
    count = getattr(tracker, "count", None)
    if count is None:
        return None
    value = attempt(lambda: float(_read_variable(model, count)))
    if value is None or not value > (steps or 0) or value != int(value):
        return None
    return int(value)


def count_validation_batches(model: Any) -> int | None:
    """Batches in the validation that ``fit`` is running, where its data has a known length."""
    batches = attempt(lambda: model._eval_epoch_iterator.num_batches)
    return batches if isinstance(batches, int) and batches > 0 else None


def _read_variable(model: Any, variable: Any) -> Any:
    # On JAX, values inside an epoch live in the trainer's state: asking the variable would force a costly sync.
    state = getattr(model, "_jax_state", None)
    if state and not getattr(model, "_jax_state_synced", True):
        for own, value in zip(model.metrics_variables, state["metrics_variables"], strict=True):
            if own is variable:
                return value
    return variable.numpy() if hasattr(variable, "numpy") else variable.value


def length_of(data: Any) -> int | None:
    """The length of data or of a loader; None if empty or unknown."""
    try:
        return len(data) or None
    except (TypeError, AttributeError):
        return None


def attempt(ask: Callable[[], Answer]) -> Answer | None:
    """The result of ``ask``, or None where this version of the framework does not provide it."""
    try:
        return ask()
    except (AttributeError, TypeError, ValueError, KeyError, IndexError, RuntimeError):
        return None
