"""Reads properties of the machine, the framework, the model and the cloud, and the start time of the process.

This module imports no framework: it reads the framework that the training has imported. Properties that the operating
system or this version of the framework does not provide are None.
"""

from __future__ import annotations

import hashlib
import http.client
import json
import math
import os
import platform
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from vmselect.records.base import Fact, Gpu, Parallelism, Placement

PACKAGES = ("keras", "tensorflow", "jax", "jaxlib", "torch", "numpy")

DMI_FOLDER = Path("/sys/class/dmi/id")
METADATA_URL = "http://169.254.169.254"
"""Address of the service from which a VM can read its instance type; the same on AWS, Azure and Google Cloud."""
METADATA_SECONDS = 1.0
AZURE_ASSET_TAG = "7783-7084-3265-9085-8269-3286-77"
"""Asset tag in the firmware of Azure VMs, which other Hyper-V machines do not have."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_EC2_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")

PEAK_OF_JAX = "peak_bytes_in_use"

InitSource = Literal["process start", "mark_start"]
Answer = TypeVar("Answer")

# Objects of frameworks. Only the user's program imports a framework, so their types are unknown here: the names say
# what an argument is.
Framework: TypeAlias = Any
Model: TypeAlias = Any
Tensor: TypeAlias = Any
Optimizer: TypeAlias = Any
Loader: TypeAlias = Any
Batch: TypeAlias = Any
Trainer: TypeAlias = Any
Callback: TypeAlias = Any
CallbackList: TypeAlias = Any
Nvml: TypeAlias = Any
GpuHandle: TypeAlias = Any


def attempt(ask: Callable[[], Answer]) -> Answer | None:
    """Return the result of ``ask()``, or None if it fails because this version of the framework does not support it."""
    try:
        return ask()
    except (AttributeError, TypeError, ValueError, KeyError, IndexError, RuntimeError):
        return None


# -- machine -----------------------------------------------------------------------------------------------------------


def read_machine() -> dict[str, Any]:
    """Return the hardware fields of a record's environment."""
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
    """Return the model name of the CPU, or None if unknown."""
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
    """Return the IDs of the CPU cores that this process may use, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def read_peak_memory() -> int | None:
    """Return the peak main memory (RAM) of this process so far in bytes, or None if unknown.

    On Linux, ``getrusage`` also counts the peak of the process that started this one, so ``/proc`` is read first.
    """
    try:
        with Path("/proc/self/status").open(encoding="ascii", errors="replace") as status:
            for line in status:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        import resource
    except ImportError:
        return None  # not on Windows
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak if sys.platform == "darwin" else peak * 1024)


def open_nvml() -> Nvml:
    """Initialize and return NVIDIA's management library (NVML); None if the library or the driver is missing."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except (pynvml.NVMLError, OSError):
        return None
    return pynvml


def query_nvml(pynvml: Nvml, function: str, *arguments: object) -> Any:
    """Call an NVML function; return None if it fails, for example because a virtual GPU does not support it."""
    try:
        return getattr(pynvml, function)(*arguments)
    except (pynvml.NVMLError, AttributeError, OSError):
        return None


def read_gpus() -> tuple[Gpu, ...]:
    """Return all NVIDIA GPUs of the machine, as described by their driver."""
    pynvml = open_nvml()
    if pynvml is None:
        return ()
    try:
        driver = query_nvml(pynvml, "nvmlSystemGetDriverVersion")
        count = query_nvml(pynvml, "nvmlDeviceGetCount") or 0
        return tuple(gpu for gpu in (_read_gpu(pynvml, index, driver) for index in range(count)) if gpu)
    finally:
        query_nvml(pynvml, "nvmlShutdown")


def _read_gpu(pynvml: Nvml, index: int, driver: object) -> Gpu | None:
    from vmselect.records.base import Gpu

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


def _text(value: object) -> str | None:
    # Older bindings return bytes.
    return (value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))[:200] if value else None


# -- framework ---------------------------------------------------------------------------------------------------------


def read_framework(model: Model, backend: str | None = None) -> dict[str, Any]:
    """Return the software fields of a record's environment. ``backend`` is the framework, by default detected."""
    backend = backend or backend_name()
    worker_index, workers = read_worker(model, backend)
    jit = getattr(model, "jit_compile", None)
    local = attempt(lambda: int(os.environ["LOCAL_WORLD_SIZE"]))  # torchrun sets it
    return {
        "backend": backend,
        "versions": read_versions(),
        "precision": attempt(lambda: str(model.dtype_policy.name)),
        **read_tf32(backend),
        "jit": jit if isinstance(jit, bool) else None,
        "replicas": count_replicas(model, backend),
        "parallelism": read_parallelism(model, backend),
        "worker_index": worker_index,
        "workers": workers,
        "workers_per_machine": local if local is not None and 1 <= local <= workers else None,
        # torch's DataParallel is the one way in which a process of torch uses several GPUs.
        "framework_gpus": _count_wrapped(model) or count_framework_gpus(backend),
    }


def read_tf32(backend: str | None) -> dict[str, bool | None]:
    """Whether torch computes float32 in TF32 where it can: convolutions by default, other products of matrices not.

    None for other frameworks, as fields of a record's environment.
    """
    torch = sys.modules.get("torch")
    if backend != "torch" or torch is None:
        return {}
    # Older versions have settings of other names, which raise an error in newer ones if the new ones were changed.
    products = attempt(lambda: str(torch.backends.cuda.matmul.fp32_precision))
    products = products or attempt(lambda: str(torch.get_float32_matmul_precision()))
    convolutions = attempt(lambda: str(torch.backends.cudnn.conv.fp32_precision))
    return {
        "tf32": None if products is None else products in ("tf32", "high", "medium"),
        "convolution_tf32": (
            attempt(lambda: bool(torch.backends.cudnn.allow_tf32)) if convolutions is None else convolutions == "tf32"
        ),
    }


def backend_name() -> str | None:
    """Return the name of Keras' backend, or of the imported framework if Keras is not imported; None if unknown.

    Another framework may do the training: the loggers of torch import Keras and TensorFlow.
    """
    keras = sys.modules.get("keras")
    name = attempt(lambda: str(keras.backend.backend())) if keras is not None else None
    return name or next((package for package in ("torch", "jax", "tensorflow") if package in sys.modules), None)


def read_versions() -> dict[str, str]:
    """Return the versions of Python and of the imported frameworks, by package."""
    loaded = {package: getattr(sys.modules.get(package), "__version__", None) for package in PACKAGES}
    versions = {package: version[:100] for package, version in loaded.items() if isinstance(version, str)}
    return {"python": platform.python_version()} | versions


def read_worker(model: Model, backend: str | None = None) -> tuple[int, int]:
    """Return the index of this process among the workers of a training (0 is the chief), and the number of workers."""
    place = attempt(lambda: _read_cluster(model.distribute_strategy.cluster_resolver))
    if place is not None:
        return place
    jax, torch = sys.modules.get("jax"), sys.modules.get("torch")
    backend = backend or backend_name()
    if backend == "jax" and jax is not None:
        return int(jax.process_index()), int(jax.process_count())
    if backend == "torch" and torch is not None:
        distributed = torch.distributed
        if distributed.is_available() and distributed.is_initialized():
            return int(distributed.get_rank()), int(distributed.get_world_size())
    return 0, 1


def _read_cluster(resolver: Framework) -> tuple[int, int] | None:
    cluster = resolver.cluster_spec()
    counts = {job: cluster.num_tasks(job) for job in cluster.jobs if job in ("chief", "worker")}
    if not counts or resolver.task_type not in counts:
        return None
    # A "chief" precedes the workers. Without a "chief", worker 0 is the chief.
    before = counts.get("chief", 0) if resolver.task_type == "worker" else 0
    return before + int(resolver.task_id), sum(counts.values())


def count_replicas(model: Model, backend: str | None = None) -> int:
    """Return the number of devices among which each batch is divided."""
    replicas = attempt(lambda: int(model.distribute_strategy.num_replicas_in_sync))
    replicas = _count_wrapped(model) or replicas
    if replicas is None and (backend or backend_name()) == "torch":
        replicas = read_worker(model, backend)[1]
    if replicas is None:
        keras: Framework = sys.modules.get("keras")
        shape = attempt(lambda: keras.distribution.distribution().device_mesh.shape[0])
        replicas = shape if isinstance(shape, int) else 1
    return max(1, replicas)


def read_parallelism(model: Model, backend: str | None = None) -> Parallelism | None:
    """Return how the devices of a training train together; None for a single device, or if unknown."""
    strategy = attempt(lambda: type(model.distribute_strategy).__name__) or ""
    if _count_wrapped(model):
        return "data_parallel"
    if strategy.endswith("MirroredStrategy"):
        return "all_reduce" if strategy.startswith("MultiWorker") else "mirrored"
    # Processes of torch and JAX, and devices of a compiled program of JAX, sum their gradients.
    several = count_replicas(model, backend) > 1
    return "all_reduce" if several and (backend or backend_name()) in ("torch", "jax") else None


def _count_wrapped(model: Model) -> int:
    """Return the number of GPUs among which torch's ``DataParallel`` splits each batch; 0 without it, or on a CPU."""
    torch: Framework = sys.modules.get("torch")
    wrapped = torch is not None and attempt(lambda: isinstance(model, torch.nn.DataParallel))
    return attempt(lambda: len(model.device_ids)) or 0 if wrapped else 0


def count_feeders(workers: int, backend: str | None) -> tuple[int, int]:
    """Return the factors by which to multiply the batch size and the example count of this process.

    Both products then cover all workers. TensorFlow: a batch is split among the workers, so both factors are 1. JAX:
    each worker has its own batch, unless Keras splits the dataset; the example count always covers all workers. torch:
    each worker has its own batch and counts only its own examples.
    """
    if workers == 1 or backend not in ("jax", "torch"):
        return 1, 1
    keras: Framework = sys.modules.get("keras")
    splits = backend == "jax" and attempt(lambda: keras.distribution.distribution().auto_shard_dataset)
    return 1 if splits else workers, workers if backend == "torch" else 1


def count_framework_gpus(backend: str | None = None) -> int | None:
    """Return the number of GPUs that the framework uses in this process, or None if unknown."""
    name = backend or backend_name() or ""
    framework: Framework = sys.modules.get(name)
    counts: dict[str, Callable[[], int]] = {
        "tensorflow": lambda: len(framework.config.list_logical_devices("GPU")),
        "jax": lambda: sum(device.platform == "gpu" for device in framework.local_devices()),
        # Keras and most loops place a model on one device; other GPUs stay idle without a distributed launch.
        "torch": lambda: int(bool(framework.cuda.is_available())),
    }
    return attempt(counts[name]) if name in counts and framework is not None else None


def read_gpu_memory(backend: str | None = None) -> tuple[int, dict[str, Any]] | None:
    """Return the peak memory of one GPU so far in bytes, by the framework's counter, and other fields of ``GpuMemory``.

    Return None if the framework has no such counter or uses no GPU. Of several GPUs, the highest peak is returned.
    Frameworks keep these counters in main memory, so reading them does not wait for a GPU.
    """
    count, name = count_framework_gpus(backend), backend or backend_name() or ""
    framework: Framework = sys.modules.get(name)
    if not count:
        return None

    def read_jax() -> tuple[int, dict[str, Any]]:
        stats = max((device.memory_stats() for device in framework.local_devices()), key=lambda s: s[PEAK_OF_JAX])
        return int(stats[PEAK_OF_JAX]), {"limit_bytes": attempt(lambda: int(stats["bytes_limit"]))}

    def read_tensorflow() -> tuple[int, dict[str, Any]]:
        read = framework.config.experimental.get_memory_info
        return max(int(read(f"GPU:{index}")["peak"]) for index in range(count)), {}

    def read_torch() -> tuple[int, dict[str, Any]]:
        reserved = attempt(lambda: int(framework.cuda.max_memory_reserved()))
        return int(framework.cuda.max_memory_allocated()), {"reserved_bytes": reserved}

    readers = {"tensorflow": read_tensorflow, "jax": read_jax, "torch": read_torch}
    reading = attempt(readers[name])
    return None if reading is None or reading[0] <= 0 else (reading[0], {"source": name, **reading[1]})


def read_fixed_bytes(model: Model) -> dict[str, int]:
    """Return the bytes of weights, gradients and optimizer state of a Keras model; an empty dict if unknown."""
    sizes = attempt(
        lambda: {
            "weights_bytes": _count_bytes(model.weights),
            "gradients_bytes": _count_bytes(model.trainable_weights),
            "optimizer_bytes": _count_bytes(model.optimizer.variables),
        }
    )
    # The optimizer gets its variables at the first step.
    return sizes if sizes and sizes["weights_bytes"] and sizes["optimizer_bytes"] else {}


def read_torch_bytes(state: Callable[[], tuple[Iterable[Tensor], Iterable[Optimizer]]]) -> dict[str, int]:
    """Return the bytes of weights, gradients and optimizer state of a torch training; an empty dict if unknown.

    ``state`` returns the tensors of its model and its optimizers. Called after a step.
    """

    def count(tensors: Iterable[Tensor]) -> int:
        return sum(
            tensor.numel() * tensor.element_size() for tensor in {id(tensor): tensor for tensor in tensors}.values()
        )

    def read() -> dict[str, int]:
        weights, optimizers = state()
        kept, slots = list(weights), [slot for optimizer in optimizers for slot in optimizer.state.values()]
        values = [value for slot in slots for value in slot.values() if hasattr(value, "element_size")]
        trained = [weight for weight in kept if weight.requires_grad]
        return {"weights_bytes": count(kept), "gradients_bytes": count(trained), "optimizer_bytes": count(values)}

    sizes = attempt(read)
    return sizes if sizes and sizes["weights_bytes"] else {}


def _count_bytes(variables: Iterable[Tensor]) -> int:
    return sum(
        math.prod(variable.shape) * int(re.findall(r"\d+", str(variable.dtype))[0]) // 8 for variable in variables
    )


def synchronize_devices(model: Model = None) -> None:
    """Wait until the device has finished all work of torch and of JAX.

    If JAX is not used and TensorFlow is the backend, wait for TensorFlow: a program that trains with JAX may use
    TensorFlow only to read its data.
    """
    jax, torch, tensorflow = (sys.modules.get(name) for name in ("jax", "torch", "tensorflow"))
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    # Keras wraps the state in its own dict and lists, in which JAX does not find the arrays.
    state = getattr(model, "_jax_state", None) or {}
    pending = [array for part in state.values() for array in part or ()] or live_arrays()
    if jax is not None and pending:
        jax.block_until_ready(pending)
    elif tensorflow is not None and backend_name() == "tensorflow":
        tensorflow.test.experimental.sync_devices()


def live_arrays() -> list[Tensor]:
    """Return all existing arrays of JAX; an empty list if the program has not used JAX."""
    jax = sys.modules.get("jax")
    # Without this check, the query would initialize JAX, which reserves the memory of a GPU.
    bridge = sys.modules.get("jax._src.xla_bridge")
    if jax is None or attempt(lambda: bool(bridge.backends_are_initialized())) is False:  # type: ignore[union-attr]
        return []
    return [array for array in jax.live_arrays() if not array.is_deleted()]


def name_loop_backend() -> str | None:
    """Return the name of the framework that a training loop uses, which is JAX if JAX arrays exist.

    Called after the first step.
    """
    return "jax" if live_arrays() else backend_name()


# -- model and data ----------------------------------------------------------------------------------------------------


def name_model(model: Model) -> str | None:
    """Return the name of ``model``, without the number that Keras appends if a program builds several of a class."""
    name = getattr(model, "name", None)
    if not isinstance(name, str) or not name:
        return None
    kind = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(model).__name__).lower()
    return kind if re.fullmatch(rf"{re.escape(kind)}_\d+", name) else name[:200]


def count_parameters(model: Model) -> int | None:
    """Return the number of parameters of ``model``, or None before the model is built."""
    if not getattr(model, "built", False) or not hasattr(model, "count_params"):
        return None
    return int(model.count_params())


def describe_structure(model: Model) -> str | None:
    """Return a hash of classes, weight shapes and trainable flags of all layers; None before the model is built."""
    if not getattr(model, "built", False):
        return None
    layers = attempt(
        lambda: [
            (type(layer).__name__, bool(layer.trainable), [tuple(weight.shape) for weight in layer.weights])
            for layer in model._flatten_layers()
        ]
    )
    return None if not layers else hashlib.sha256(repr(layers).encode()).hexdigest()[:16]


def count_examples(model: Model, *, steps: int | None = None) -> int | None:
    """Return the number of examples that the model has processed in this epoch or validation, in ``steps`` steps.

    Keras weights the loss of each batch by its number of examples, so its running mean of the loss counts examples.
    Return None if the model has no such count (a custom training step), or may have counted batches, not examples.
    """
    count = getattr(getattr(model, "_loss_tracker", None), "count", None)
    value = None if count is None else attempt(lambda: float(_read_variable(model, count)))
    if value is None or not value > (steps or 0) or value != int(value):
        return None
    return int(value)


def _read_variable(model: Model, variable: Tensor) -> Tensor:
    # On JAX, current values are in the trainer's state during an epoch: reading the variable would force a costly sync.
    state = getattr(model, "_jax_state", None)
    if state and not getattr(model, "_jax_state_synced", True):
        for own, value in zip(model.metrics_variables, state["metrics_variables"], strict=True):
            if own is variable:
                return value
    return variable.numpy() if hasattr(variable, "numpy") else variable.value


def count_validation_batches(model: Model) -> int | None:
    """Return the number of batches in the validation that ``fit`` is running, or None if unknown."""
    batches = attempt(lambda: model._eval_epoch_iterator.num_batches)
    return batches if isinstance(batches, int) and batches > 0 else None


def length_of(data: Any) -> int | None:
    """Return the length of a dataset or data loader, or None if it is empty or has no length."""
    try:
        return len(data) or None
    except (TypeError, AttributeError):
        return None


# -- cloud -------------------------------------------------------------------------------------------------------------


def locate(*, instance_type: str | None = None, region: str | None = None) -> Placement:
    """Determine instance type, region and cloud of this machine, each with its source.

    The sources, in order of precedence: the arguments, the environment variables ``VMSELECT_INSTANCE_TYPE`` and
    ``VMSELECT_REGION``, the firmware (DMI), and the cloud's metadata service. The service is queried only if the
    firmware identifies a cloud, so that a machine outside the clouds sends no request.
    """
    from vmselect.records.base import Fact, Placement

    kind = _given(instance_type, "argument") or _given(os.environ.get("VMSELECT_INSTANCE_TYPE"), "environment")
    place = _given(region, "argument") or _given(os.environ.get("VMSELECT_REGION"), "environment")
    firmware = read_dmi()
    cloud = name_cloud(firmware)
    if kind is None and cloud == "aws" and _EC2_TYPE.fullmatch(firmware.get("product_name", "")):
        kind = Fact(value=firmware["product_name"], source="dmi")
    if cloud is not None and (kind is None or place is None):
        # The response is not trusted to be a valid name.
        names = {
            fact: Fact(value=value, source="metadata")
            for fact, value in query_metadata(cloud).items()
            if isinstance(value, str) and _NAME.fullmatch(value)
        }
        kind, place = kind or names.get("instance_type"), place or names.get("region")
    provider = Fact(value=cloud, source="dmi") if cloud is not None else None
    return Placement(instance_type=kind, region=place, provider=provider)


def _given(value: str | None, source: str) -> Fact | None:
    from vmselect.records.base import Fact

    text = (value or "").strip()
    return Fact.model_validate({"value": text[:200], "source": source}) if text else None


def read_dmi() -> dict[str, str]:
    """Return the firmware fields (DMI) that identify a cloud, by name; empty if they cannot be read."""
    facts: dict[str, str] = {}
    for name in ("sys_vendor", "bios_vendor", "bios_version", "product_name", "chassis_asset_tag"):
        try:
            with (DMI_FOLDER / name).open(encoding="utf-8", errors="replace") as file:
                facts[name] = file.read(1_000).strip()
        except OSError:
            continue
    return facts


def name_cloud(firmware: Mapping[str, str]) -> str | None:
    """Return the name of the cloud that the fields of the firmware identify: "aws", "azure", "gcp", or None."""
    if firmware.get("sys_vendor") == "Amazon EC2" or "amazon" in firmware.get("bios_version", "").lower():
        return "aws"  # the second holds for the older Xen machines
    if firmware.get("chassis_asset_tag") == AZURE_ASSET_TAG:
        return "azure"
    if firmware.get("product_name") == "Google Compute Engine":
        return "gcp"
    return None


def query_metadata(cloud: str) -> dict[str, Any]:
    """Request instance type and region from the cloud's metadata service. Return what is received within a second."""
    answers: dict[str, Any] = {}

    def query() -> None:
        try:
            for fact, answer in _query_service(cloud):
                answers[fact] = answer
        except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError, AttributeError):
            return  # no service, or an unexpected response: earlier responses are kept

    # The timeout of a socket applies to each read. Joining the thread limits the time of all reads together.
    thread = threading.Thread(target=query, name="vmselect-metadata", daemon=True)
    thread.start()
    thread.join(METADATA_SECONDS)
    return dict(answers)


def _request(path: str, headers: Mapping[str, str], method: str = "GET") -> str:
    """Send an HTTP request to the metadata service, without proxy, and return the text of the response."""
    connection = http.client.HTTPConnection(urlsplit(METADATA_URL).netloc, timeout=METADATA_SECONDS)
    try:
        connection.request(method, path, headers=dict(headers))
        response = connection.getresponse()
        if response.status != 200:
            raise ValueError(f"The metadata service returned HTTP status {response.status}.")
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
        # The responses read "projects/1234/machineTypes/n1-standard-4" and "projects/1234/zones/us-central1-a".
        yield "instance_type", _request("/computeMetadata/v1/instance/machine-type", headers).rpartition("/")[2]
        yield "region", _request("/computeMetadata/v1/instance/zone", headers).rpartition("/")[2].rpartition("-")[0]


# -- start of the process ----------------------------------------------------------------------------------------------

_marked_ns: int | None = None
_marked_before: int | None = None
_fits = 0
_token: tuple[int, str] | None = None


def mark_start() -> None:
    """Mark the start of initialization: the initialization time of the next training begins with this call.

    By default it begins with the process. Call this function in a notebook, or if a process trains more than once.

    >>> mark_start()
    """
    global _marked_ns
    _marked_ns = time.perf_counter_ns()


def take_initialization() -> tuple[float, InitSource] | None:
    """Return the seconds of initialization until now, and the event with which it began; None if unknown.

    Called once at the start of each training. Without :func:`mark_start`, only the initialization of the first training
    in the process is known.
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
    """Undo :func:`take_initialization` after a call that turned out not to be a training."""
    global _marked_ns, _fits
    _marked_ns, _fits = _marked_before, max(0, _fits - 1)


def number_fit() -> tuple[int, str]:
    """Return the number of the current training in this process, counted from 1, and a unique name of the process."""
    global _token
    if _token is None or _token[0] != os.getpid():  # a forked child is another process
        _token = os.getpid(), secrets.token_hex(4)
    return max(1, _fits), f"{_token[0]}-{_token[1]}"


def in_notebook() -> bool:
    """Return whether the program runs interactively: in a notebook, IPython, or Python's prompt."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return hasattr(sys, "ps1") or (shell is not None and shell() is not None)


def process_age_seconds(stat: Path = Path("/proc/self/stat")) -> float | None:
    """Return the seconds since this process was created, or None if unknown.

    On Linux the start time is read from the kernel, with an accuracy of 10 ms; other sources can be off by a second.
    """
    try:
        # The name of the command may contain spaces and brackets: count the fields after its last bracket.
        started = int(stat.read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
    except (OSError, IndexError, ValueError, AttributeError):
        import psutil
    try:
        return max(0.0, time.time() - float(psutil.Process().create_time()))
    except psutil.Error:
        return None


FRAMES_UP = 12
"""Number of calling functions that :func:`walk_up` yields. In Keras 3, ``fit`` is the second caller of a callback."""


def walk_up(frame: FrameType | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield name and local variables of the function of ``frame`` and of its callers, ``FRAMES_UP`` at most."""
    for _ in range(FRAMES_UP):
        if frame is None:
            return
        yield frame.f_code.co_name, frame.f_locals
        frame = frame.f_back
