"""Facts about the machine, the framework, the model, the cloud and the start of the process.

Nothing here imports a framework: the training has imported the one that it uses. Facts that a system or a version of a
framework does not provide are None.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import platform
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from vmselect.records.record import Fact, Gpu, Placement

PACKAGES = ("keras", "tensorflow", "jax", "jaxlib", "torch", "numpy")

DMI_FOLDER = Path("/sys/class/dmi/id")
METADATA_URL = "http://169.254.169.254"
"""The same address on AWS, Azure and Google Cloud."""
METADATA_SECONDS = 1.0
AZURE_ASSET_TAG = "7783-7084-3265-9085-8269-3286-77"
"""Identifies an Azure VM among Hyper-V machines."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_EC2_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")

InitSource = Literal["process start", "mark_start"]
Answer = TypeVar("Answer")


def attempt(ask: Callable[[], Answer]) -> Answer | None:
    """The result of ``ask``, or None where this version of the framework does not provide it."""
    try:
        return ask()
    except (AttributeError, TypeError, ValueError, KeyError, IndexError, RuntimeError):
        return None


# -- machine -----------------------------------------------------------------------------------------------------------


def read_machine() -> dict[str, Any]:
    """The hardware fields of a profile's environment."""
    import psutil

    return {
        "operating_system": platform.platform()[:200],
        "cpu_model": read_cpu_model(),
        "cpu_cores": os.cpu_count(),
        "usable_cores": len(usable_cores()),
        "memory_bytes": int(psutil.virtual_memory().total),
        "gpus": read_gpus(),
    }


def read_cpu_model(cpuinfo: Path = Path("/proc/cpuinfo")) -> str | None:
    """The name of the processor."""
    try:
        text = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        text = ""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "Hardware") and value.strip():
            return value.strip()[:200]
    return platform.processor()[:200] or None


def usable_cores() -> frozenset[int]:
    """The cores that this process may run on, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def read_peak_memory() -> int | None:
    """The peak main memory of this process so far, in bytes."""
    try:
        import resource
    except ImportError:
        return None  # not on Windows
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def open_nvml() -> Any:
    """NVIDIA's management library, initialized; None where the library or the driver is missing."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError, OSError):
        return None
    return pynvml


def query_nvml(pynvml: Any, function: str, *arguments: Any) -> Any:
    """The result of an NVML function, or None: virtual GPUs and old drivers do not support all of them."""
    try:
        return getattr(pynvml, function)(*arguments)
    except (pynvml.NVMLError, AttributeError, OSError):
        return None


def read_gpus() -> tuple[Gpu, ...]:
    """Every NVIDIA GPU of the machine as its driver describes it."""
    pynvml = open_nvml()
    if pynvml is None:
        return ()
    try:
        driver = query_nvml(pynvml, "nvmlSystemGetDriverVersion")
        count = query_nvml(pynvml, "nvmlDeviceGetCount") or 0
        return tuple(gpu for gpu in (_read_gpu(pynvml, index, driver) for index in range(count)) if gpu)
    finally:
        query_nvml(pynvml, "nvmlShutdown")


def _read_gpu(pynvml: Any, index: int, driver: Any) -> Gpu | None:
    from vmselect.records.record import Gpu

    handle = query_nvml(pynvml, "nvmlDeviceGetHandleByIndex", index)
    if handle is None:
        return None
    memory = query_nvml(pynvml, "nvmlDeviceGetMemoryInfo", handle)
    milliwatts = query_nvml(pynvml, "nvmlDeviceGetPowerManagementLimit", handle)
    return Gpu(
        name=_text(query_nvml(pynvml, "nvmlDeviceGetName", handle)) or "unknown GPU",
        memory_bytes=None if memory is None else int(memory.total),
        driver=_text(driver),
        power_limit_watts=None if milliwatts is None else milliwatts / 1000,
    )


def _text(value: Any) -> str | None:
    # Older bindings return bytes.
    return (value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))[:200] if value else None


# -- framework ---------------------------------------------------------------------------------------------------------


def read_framework(model: Any, backend: str | None = None) -> dict[str, Any]:
    """The software fields of a profile's environment; ``backend`` where the caller knows what trains."""
    backend = backend or backend_name()
    worker_index, workers = read_worker(model, backend)
    jit = getattr(model, "jit_compile", None)
    local = attempt(lambda: int(os.environ["LOCAL_WORLD_SIZE"]))  # torchrun sets it
    return {
        "backend": backend,
        "versions": read_versions(),
        "precision": attempt(lambda: str(model.dtype_policy.name)),
        "jit": jit if isinstance(jit, bool) else None,
        "replicas": count_replicas(model, backend),
        "worker_index": worker_index,
        "workers": workers,
        "workers_per_machine": local if local is not None and 1 <= local <= workers else None,
        "framework_gpus": count_framework_gpus(backend),
    }


def backend_name() -> str | None:
    """Name of Keras' backend, or of the framework that a hand-written loop has loaded.

    A program may have Keras and TensorFlow loaded and train with neither: torch's loggers load them.
    """
    keras = sys.modules.get("keras")
    name = attempt(lambda: str(keras.backend.backend())) if keras is not None else None
    return name or next((package for package in ("torch", "jax", "tensorflow") if package in sys.modules), None)


def read_versions() -> dict[str, str]:
    """Versions of Python and of the loaded frameworks."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        version = getattr(sys.modules.get(package), "__version__", None)
        if isinstance(version, str):
            found[package] = version[:100]
    return found


def read_worker(model: Any, backend: str | None = None) -> tuple[int, int]:
    """Index of this process among the workers of a distributed training, and their number; the chief has 0."""
    found = attempt(lambda: _read_cluster(model.distribute_strategy.cluster_resolver))
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


def _read_cluster(resolver: Any) -> tuple[int, int] | None:
    cluster = resolver.cluster_spec()
    counts = {job: cluster.num_tasks(job) for job in cluster.jobs if job in ("chief", "worker")}
    if not counts or resolver.task_type not in counts:
        return None
    # A "chief" comes before the workers; without one, worker 0 is the chief.
    before = counts.get("chief", 0) if resolver.task_type == "worker" else 0
    return before + int(resolver.task_id), sum(counts.values())


def count_replicas(model: Any, backend: str | None = None) -> int:
    """Number of devices that share every batch."""
    replicas = attempt(lambda: int(model.distribute_strategy.num_replicas_in_sync))
    if replicas is None and (backend or backend_name()) == "torch":
        replicas = read_worker(model, backend)[1]
    if replicas is None:
        keras: Any = sys.modules.get("keras")
        shape = attempt(lambda: keras.distribution.distribution().device_mesh.shape[0])
        replicas = shape if isinstance(shape, int) else 1
    return max(1, replicas)


def count_feeders(workers: int, backend: str | None) -> tuple[int, int]:
    """How many workers contribute their own batch to every step, and how many count examples separately.

    TensorFlow's strategies get the batch of all workers and split it. JAX' workers contribute a batch each, unless
    Keras splits a dataset for them, and count together. torch's contribute a batch each and count only their own.
    """
    if workers == 1 or backend not in ("jax", "torch"):
        return 1, 1
    keras: Any = sys.modules.get("keras")
    splits = backend == "jax" and attempt(lambda: keras.distribution.distribution().auto_shard_dataset)
    return 1 if splits else workers, workers if backend == "torch" else 1


def count_framework_gpus(backend: str | None = None) -> int | None:
    """GPUs that the framework uses in this process."""
    name = backend or backend_name() or ""
    framework: Any = sys.modules.get(name)
    counts: dict[str, Callable[[], int]] = {
        "tensorflow": lambda: len(framework.config.list_logical_devices("GPU")),
        "jax": lambda: sum(device.platform == "gpu" for device in framework.local_devices()),
        # Keras and most loops place a model on one device; other GPUs stay idle without a distributed launch.
        "torch": lambda: int(bool(framework.cuda.is_available())),
    }
    return attempt(counts[name]) if name in counts and framework is not None else None


def read_peak_gpu_memory(backend: str | None = None) -> int | None:
    """The peak memory of the framework on one GPU so far, in bytes."""
    if not count_framework_gpus(backend):
        return None
    name = backend or backend_name() or ""
    framework: Any = sys.modules.get(name)
    peaks: dict[str, Callable[[], int]] = {
        "tensorflow": lambda: int(framework.config.experimental.get_memory_info("GPU:0")["peak"]),
        "jax": lambda: max(int(d.memory_stats()["peak_bytes_in_use"]) for d in framework.local_devices()),
        "torch": lambda: int(framework.cuda.max_memory_allocated()),
    }
    return attempt(peaks[name])


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


# -- model and data ----------------------------------------------------------------------------------------------------


def name_model(model: Any) -> str | None:
    """The model's name, without the number that Keras adds when a program builds the same kind of model again."""
    name = getattr(model, "name", None)
    if not isinstance(name, str) or not name:
        return None
    kind = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(model).__name__).lower()
    return kind if re.fullmatch(rf"{re.escape(kind)}_\d+", name) else name[:200]


def count_parameters(model: Any) -> int | None:
    """The number of parameters, or None before the model is built."""
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


def count_examples(model: Any, *, steps: int | None = None) -> int | None:
    """Examples that the model has seen since its metrics were last reset, ``steps`` ago if known.

    Keras weighs each batch's loss by its number of examples, so its running mean of the loss has counted them.
    None when the model keeps no such count (a custom training step), or may have counted batches.
    """
    count = getattr(getattr(model, "_loss_tracker", None), "count", None)
    value = None if count is None else attempt(lambda: float(_read_variable(model, count)))
    if value is None or not value > (steps or 0) or value != int(value):
        return None
    return int(value)


def _read_variable(model: Any, variable: Any) -> Any:
    # On JAX, values inside an epoch live in the trainer's state: reading the variable would force a costly sync.
    state = getattr(model, "_jax_state", None)
    if state and not getattr(model, "_jax_state_synced", True):
        for own, value in zip(model.metrics_variables, state["metrics_variables"], strict=True):
            if own is variable:
                return value
    return variable.numpy() if hasattr(variable, "numpy") else variable.value


def count_validation_batches(model: Any) -> int | None:
    """Batches in the validation that ``fit`` is running, where its data has a known length."""
    batches = attempt(lambda: model._eval_epoch_iterator.num_batches)
    return batches if isinstance(batches, int) and batches > 0 else None


def length_of(data: Any) -> int | None:
    """The length of data or of a loader; None if empty or unknown."""
    try:
        return len(data) or None
    except (TypeError, AttributeError):
        return None


# -- cloud -------------------------------------------------------------------------------------------------------------


def locate(*, instance_type: str | None = None, region: str | None = None) -> Placement:
    """Instance type, region and cloud of this machine, each with its source.

    The sources, in this order: the caller, the environment variables ``VMSELECT_INSTANCE_TYPE`` and
    ``VMSELECT_REGION``, the firmware (DMI), and the cloud's metadata service. The service is queried only if the
    firmware identifies a cloud, so that no other machine sends a packet.
    """
    from vmselect.records.record import Fact, Placement

    kind = _given(instance_type, "argument") or _given(os.environ.get("VMSELECT_INSTANCE_TYPE"), "environment")
    place = _given(region, "argument") or _given(os.environ.get("VMSELECT_REGION"), "environment")
    firmware = read_dmi()
    cloud = name_cloud(firmware)
    if kind is None and cloud == "aws" and _EC2_TYPE.fullmatch(firmware.get("product_name", "")):
        kind = Fact(value=firmware["product_name"], source="dmi")
    if cloud is not None and (kind is None or place is None):
        # What answers at that address is not trusted to be a name.
        names = {
            fact: Fact(value=value, source="metadata")
            for fact, value in query_metadata(cloud).items()
            if isinstance(value, str) and _NAME.fullmatch(value)
        }
        kind, place = kind or names.get("instance_type"), place or names.get("region")
    provider = Fact(value=cloud, source="dmi") if cloud is not None else None
    return Placement(instance_type=kind, region=place, provider=provider)


def _given(value: str | None, source: str) -> Fact | None:
    from vmselect.records.record import Fact

    text = (value or "").strip()
    return Fact.model_validate({"value": text[:200], "source": source}) if text else None


def read_dmi() -> dict[str, str]:
    """The firmware's facts that identify a cloud; absent in containers and on other systems."""
    facts: dict[str, str] = {}
    for name in ("sys_vendor", "bios_vendor", "bios_version", "product_name", "chassis_asset_tag"):
        try:
            with (DMI_FOLDER / name).open(encoding="utf-8", errors="replace") as file:
                facts[name] = file.read(1_000).strip()
        except OSError:
            continue
    return facts


def name_cloud(firmware: Mapping[str, str]) -> str | None:
    """The cloud with these facts in its firmware: aws, azure, gcp, or None."""
    if firmware.get("sys_vendor") == "Amazon EC2" or "amazon" in firmware.get("bios_version", "").lower():
        return "aws"  # the second holds for the older Xen machines
    if firmware.get("chassis_asset_tag") == AZURE_ASSET_TAG:
        return "azure"
    if firmware.get("product_name") == "Google Compute Engine":
        return "gcp"
    return None


def query_metadata(cloud: str) -> dict[str, Any]:
    """The answers of the cloud's metadata service, queried for at most a second altogether."""
    answers: dict[str, Any] = {}

    def query() -> None:
        try:
            for fact, answer in _query_service(cloud):
                answers[fact] = answer
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError):
            return  # no service, or an unexpected answer: earlier answers are kept

    # The timeout of a socket applies to each read; joining a thread limits all of them together.
    thread = threading.Thread(target=query, name="vmselect-metadata", daemon=True)
    thread.start()
    thread.join(METADATA_SECONDS)
    return dict(answers)


def _request(path: str, headers: Mapping[str, str], method: str = "GET") -> str:
    """A plain request to the metadata service, without proxy or redirect."""
    connection = http.client.HTTPConnection(urlsplit(METADATA_URL).netloc, timeout=METADATA_SECONDS)
    try:
        connection.request(method, path, headers=dict(headers))
        response = connection.getresponse()
        if response.status != 200:
            raise ValueError(f"status {response.status}")
        return response.read(100_000).decode("utf-8").strip()
    finally:
        connection.close()


def _query_service(cloud: str) -> Iterator[tuple[str, Any]]:
    if cloud == "aws":
        token = _request("/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT")
        headers = {"X-aws-ec2-metadata-token": token}
        yield "instance_type", _request("/latest/meta-data/instance-type", headers)
        yield "region", _request("/latest/meta-data/placement/region", headers)
    elif cloud == "azure":
        machine = json.loads(_request("/metadata/instance/compute?api-version=2021-02-01", {"Metadata": "true"}))
        yield "instance_type", machine["vmSize"]
        yield "region", machine["location"]
    else:
        headers = {"Metadata-Flavor": "Google"}
        # The answers read "projects/1234/machineTypes/n1-standard-4" and "projects/1234/zones/us-central1-a".
        yield "instance_type", _request("/computeMetadata/v1/instance/machine-type", headers).rpartition("/")[2]
        yield "region", _request("/computeMetadata/v1/instance/zone", headers).rpartition("/")[2].rpartition("-")[0]


# -- start of the process ----------------------------------------------------------------------------------------------

_marked_ns: int | None = None
_marked_before: int | None = None
_fits = 0
_token: tuple[int, str] | None = None


def mark_start() -> None:
    """Mark where the program's own work begins, so that initialization counts from this line.

    Needed where the start of the process is not the start of the program (in a notebook), or where a process trains
    more than once. It applies to the next training.

    >>> mark_start()
    """
    global _marked_ns
    _marked_ns = time.perf_counter_ns()


def take_initialization() -> tuple[float, InitSource] | None:
    """Seconds of initialization until now and where they count from; None if unknown.

    Only the first training of a process began with the process, so this also counts the training that begins.
    """
    global _marked_ns, _marked_before, _fits
    marked = _marked_before = _marked_ns
    _marked_ns = None
    _fits += 1
    if marked is not None:
        return (time.perf_counter_ns() - marked) / 1e9, "mark_start"
    if _fits > 1 or in_notebook():
        return None
    age = process_age_seconds()
    return (age, "process start") if age is not None else None


def give_back_initialization() -> None:
    """Undo :func:`take_initialization` after what turned out not to be a training."""
    global _marked_ns, _fits
    _marked_ns, _fits = _marked_before, max(0, _fits - 1)


def number_fit() -> tuple[int, str]:
    """The number of the training that began last in this process, and a unique name of the process."""
    global _token
    if _token is None or _token[0] != os.getpid():  # a forked child is another process
        _token = os.getpid(), secrets.token_hex(4)
    return max(1, _fits), f"{_token[0]}-{_token[1]}"


def in_notebook() -> bool:
    """Whether the program runs interactively: a notebook, IPython, or Python's own prompt."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return hasattr(sys, "ps1") or (shell is not None and shell() is not None)


def process_age_seconds(stat: Path = Path("/proc/self/stat")) -> float | None:
    """Seconds since this process was created.

    On Linux the kernel's own count is exact to 10 ms, while a start time by the wall clock can be a second off.
    """
    try:
        # The command's name may hold spaces and brackets: count the fields after its last bracket.
        started = int(stat.read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
    except (OSError, IndexError, ValueError, AttributeError):
        import psutil
    try:
        return max(0.0, time.time() - float(psutil.Process().create_time()))
    except psutil.Error:
        return None
