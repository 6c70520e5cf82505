"""Facts about machine, framework, cloud and process: read where they are, None where they are not, never an error."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from vmselect.probe import environment
from vmselect.probe.environment import AZURE_ASSET_TAG, locate
from vmselect.probe.facts import FitFacts
from vmselect.records.base import Placement

# -- machine -----------------------------------------------------------------------------------------------------------


class NVMLError(Exception):
    pass


class Driver:
    """NVIDIA's binding with these functions; all others are not supported."""

    NVMLError = NVMLError

    def __init__(self, **functions: Any) -> None:
        self._functions = functions

    def __getattr__(self, name: str) -> Any:
        def refuse(*_: Any) -> None:
            raise NVMLError("not supported")

        return self._functions.get(name, refuse)


GPUS = {"nvmlInit": lambda: None, "nvmlDeviceGetCount": lambda: 2, "nvmlDeviceGetHandleByIndex": lambda index: index}
FACTS = {
    "nvmlSystemGetDriverVersion": lambda: b"550.54",
    "nvmlDeviceGetName": lambda handle: "Tesla T4" if handle else b"Tesla V100",
    "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=16 << 30),
    "nvmlDeviceGetPowerManagementLimit": lambda handle: 70_000,
}


@pytest.mark.parametrize(
    ("driver", "expected"),
    [
        (Driver(**GPUS, **FACTS), [(name, 16 << 30, "550.54", 70.0) for name in ("Tesla V100", "Tesla T4")]),
        (Driver(**GPUS), [("unknown GPU", None, None, None)] * 2),
        (Driver(), []),
        (None, []),
    ],
    ids=["all facts", "no facts", "no driver", "not installed"],
)
def test_gpus_as_the_driver_describes_them(
    driver: Any, expected: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", driver)
    found = [(gpu.name, gpu.memory_bytes, gpu.driver, gpu.power_limit_watts) for gpu in environment.read_gpus()]
    assert found == expected


def test_the_processor(tmp_path: Path) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel name\t: Xeon 9000\nmodel name\t: other\n")
    assert environment.read_cpu_model(info) == "Xeon 9000"
    environment.read_cpu_model(tmp_path / "absent")
    machine = environment.read_machine()
    assert machine["usable_cores"] <= machine["cpu_cores"] == os.cpu_count()
    assert machine["memory_bytes"] > 0
    assert environment.read_peak_memory() > 1_000_000


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere the peak of the parent is not counted")
def test_the_peak_memory_is_not_that_of_the_parent_process() -> None:
    child = "from vmselect.probe.environment import read_peak_memory; print(read_peak_memory())"
    code = ("import subprocess, sys; big = bytes(range(256)) * 2_000_000; "
            f"subprocess.run([sys.executable, '-c', {child!r}], check=True)")  # fmt: skip
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert 1_000_000 < int(done.stdout) < 256 * 2_000_000


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin a process to a core")
def test_a_process_that_is_pinned_to_one_core() -> None:
    code = ("import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))}); "
            "from vmselect.probe.environment import usable_cores; print(len(usable_cores()))")  # fmt: skip
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"


# -- framework and model -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("task_type", "task_id", "jobs", "expected"),
    [
        ("worker", 0, {"worker": 3}, (0, 3)),
        ("worker", 2, {"worker": 3}, (2, 3)),
        ("chief", 0, {"chief": 1, "worker": 2}, (0, 3)),
        ("worker", 0, {"chief": 1, "worker": 2}, (1, 3)),
        ("worker", 0, {"chief": 1, "worker": 2, "ps": 5}, (1, 3)),
    ],
)
def test_index_and_number_of_workers(
    task_type: str, task_id: int, jobs: dict[str, int], expected: tuple[int, int]
) -> None:
    cluster = SimpleNamespace(jobs=list(jobs), num_tasks=lambda job: jobs[job])
    resolver = SimpleNamespace(cluster_spec=lambda: cluster, task_type=task_type, task_id=task_id)
    strategy = SimpleNamespace(cluster_resolver=resolver, num_replicas_in_sync=4)
    assert environment.read_worker(SimpleNamespace(distribute_strategy=strategy)) == expected
    assert environment.count_replicas(SimpleNamespace(distribute_strategy=strategy)) == 4


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        ("MirroredStrategy", "mirrored"),
        ("MultiWorkerMirroredStrategy", "all_reduce"),
        ("_DefaultDistributionStrategy", None),
        ("ParameterServerStrategy", None),
    ],
)
def test_how_the_devices_of_a_strategy_train_together(strategy: str, expected: str | None) -> None:
    made = type(strategy, (), {"num_replicas_in_sync": 2})()
    assert environment.read_parallelism(SimpleNamespace(distribute_strategy=made), "tensorflow") == expected


@pytest.mark.parametrize(("gpus", "expected"), [([0, 1, 2], ("data_parallel", 3)), ([], (None, 1))])
def test_data_parallel_of_torch(
    gpus: list[int], expected: tuple[str | None, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrapper = type("DataParallel", (), {"device_ids": gpus})
    nothing = SimpleNamespace(is_available=lambda: False)
    torch = SimpleNamespace(nn=SimpleNamespace(DataParallel=wrapper), distributed=nothing, cuda=nothing)
    monkeypatch.setitem(sys.modules, "torch", torch)
    model = wrapper()
    fields = environment.read_framework(model, "torch")
    assert (fields["parallelism"], fields["replicas"]) == expected
    assert fields["framework_gpus"] == (len(gpus) or 0)


def test_workers_of_torch_sum_their_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    distributed = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 0, get_world_size=lambda: 2
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(distributed=distributed))
    assert environment.read_parallelism(None, "torch") == "all_reduce"


def test_a_model_without_a_strategy_has_one_worker_and_replica() -> None:
    assert environment.read_worker(SimpleNamespace()) == (0, 1)
    assert environment.count_replicas(None) == 1


@pytest.mark.parametrize(
    ("local", "workers", "expected"),
    [("8", 8, 8), ("8", 16, 8), ("1", 1, 1), (None, 8, None), ("", 8, None), ("8", 1, None), ("0", 8, None),
     ("many", 8, None)],
)  # fmt: skip
def test_workers_per_machine(
    local: str | None, workers: int, expected: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "read_worker", lambda *_: (0, workers))
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    if local is not None:
        monkeypatch.setenv("LOCAL_WORLD_SIZE", local)
    assert environment.read_framework(None, "numpy")["workers_per_machine"] == expected


@pytest.mark.parametrize(
    ("backend", "shards", "given", "counted"),
    [
        ("tensorflow", None, 96, 96),  # the batch of all workers is given, and counted once
        ("jax", False, 32, 96),  # each has its own, and all are counted
        ("jax", True, 96, 96),  # Keras splits what is given
        ("torch", None, 32, 32),  # each has its own, and counts only that
    ],
)
def test_batch_size_is_that_of_all_workers(
    backend: str, shards: bool | None, given: int, counted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    distribution = SimpleNamespace(distribution=lambda: SimpleNamespace(auto_shard_dataset=shards))
    monkeypatch.setitem(sys.modules, "keras", SimpleNamespace(distribution=distribution))  # type: ignore[arg-type]
    feeders, counters = environment.count_feeders(3, backend)
    assert FitFacts(batch_size=given, partial_batch=given // 2).times(feeders).batch_size == 96
    assert counted * counters == 96
    assert environment.count_feeders(1, backend) == (1, 1)


@pytest.mark.parametrize(
    ("counted", "steps", "expected"),
    [(8.0, 1, 8), (0.0, 1, None), (7.5, 1, None), (float("nan"), None, None), (3.0, 3, None)],
)
def test_examples_that_a_model_has_seen(counted: float, steps: int | None, expected: int | None) -> None:
    tracker = SimpleNamespace(count=SimpleNamespace(value=counted))
    assert environment.count_examples(SimpleNamespace(_loss_tracker=tracker), steps=steps) == expected


@pytest.mark.parametrize("model", [None, SimpleNamespace(), SimpleNamespace(_loss_tracker=SimpleNamespace(count=None))])
def test_a_model_that_counts_no_examples(model: Any) -> None:
    assert environment.count_examples(model) is None


# -- GPU memory --------------------------------------------------------------------------------------------------------


def jax_device(peak: int | None, limit: int = 12_000) -> Any:
    stats = None if peak is None else {"peak_bytes_in_use": peak, "bytes_in_use": 1, "bytes_limit": limit}
    return SimpleNamespace(platform="gpu", memory_stats=lambda: stats)


def fake_torch(allocated: int, reserved: Any = 900, *, available: bool = True) -> Any:
    cuda = SimpleNamespace(is_available=lambda: available, max_memory_allocated=lambda: allocated)
    if reserved is not None:
        cuda.max_memory_reserved = lambda: reserved
    return SimpleNamespace(cuda=cuda)  # synchronizing, or resetting the counter, would raise an AttributeError


def fake_tensorflow(*peaks: int) -> Any:
    info = {f"GPU:{index}": {"current": 1, "peak": peak} for index, peak in enumerate(peaks)}
    config = SimpleNamespace(
        list_logical_devices=lambda kind: [kind] * len(peaks),
        experimental=SimpleNamespace(get_memory_info=lambda name: info[name]),
    )
    return SimpleNamespace(config=config)


def fake_jax(*devices: Any) -> Any:
    return SimpleNamespace(local_devices=lambda: list(devices))


@pytest.mark.parametrize(
    ("backend", "framework", "expected"),
    [
        ("torch", fake_torch(700), (700, {"source": "torch", "reserved_bytes": 900})),
        ("torch", fake_torch(700, None), (700, {"source": "torch", "reserved_bytes": None})),
        ("torch", fake_torch(0), None),
        ("torch", fake_torch(700, available=False), None),
        ("jax", fake_jax(jax_device(500), jax_device(600)), (600, {"source": "jax", "limit_bytes": 12_000})),
        ("jax", fake_jax(jax_device(None)), None),  # a device without statistics
        ("jax", fake_jax(SimpleNamespace(platform="cpu", memory_stats=lambda: None)), None),
        ("tensorflow", fake_tensorflow(300, 400), (400, {"source": "tensorflow"})),
        ("tensorflow", fake_tensorflow(), None),
        ("numpy", None, None),
    ],
)
def test_peak_gpu_memory_of_the_framework(
    backend: str, framework: Any, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    if framework is not None:
        monkeypatch.setitem(sys.modules, backend, framework)
    assert environment.read_gpu_memory(backend) == expected


def test_bytes_that_do_not_depend_on_the_batch() -> None:
    def weight(*shape: int, dtype: str = "float32") -> Any:
        return SimpleNamespace(shape=shape, dtype=dtype)

    trained, moments = [weight(10, 5), weight(5, dtype="bfloat16")], [weight(10, 5)] * 2 + [weight(dtype="int64")]
    model = SimpleNamespace(
        weights=[*trained, weight(3)], trainable_weights=trained, optimizer=SimpleNamespace(variables=moments)
    )
    found = environment.read_fixed_bytes(model)
    assert found == {"weights_bytes": 222, "gradients_bytes": 210, "optimizer_bytes": 408}
    model.optimizer.variables = []  # not built yet
    assert environment.read_fixed_bytes(model) == environment.read_fixed_bytes(None) == {}


def test_bytes_of_a_torch_training() -> None:
    def tensor(count: int, *, size: int = 4, trained: bool = True) -> Any:
        return SimpleNamespace(numel=lambda: count, element_size=lambda: size, requires_grad=trained)

    weights = [tensor(50), tensor(5, size=2), tensor(3, trained=False)]
    slots = {0: {"step": 7, "first": tensor(50), "second": tensor(50)}, 1: {"first": tensor(5, size=2)}}
    adam, sgd = SimpleNamespace(state=slots), SimpleNamespace(state={})
    found = environment.read_torch_bytes(lambda: ([*weights, weights[0]], [adam]))  # a shared weight counts once
    assert found == {"weights_bytes": 222, "gradients_bytes": 210, "optimizer_bytes": 410}
    assert environment.read_torch_bytes(lambda: (weights, [sgd]))["optimizer_bytes"] == 0
    assert (
        environment.read_torch_bytes(lambda: ([], [])) == environment.read_torch_bytes(lambda: ({}["lost"], [])) == {}
    )


# -- cloud -------------------------------------------------------------------------------------------------------------

NITRO = {"sys_vendor": "Amazon EC2", "product_name": "g4dn.xlarge"}
XEN = {"sys_vendor": "Xen", "product_name": "HVM domU", "bios_version": "4.11.amazon"}
AZURE = {"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine", "chassis_asset_tag": AZURE_ASSET_TAG}
GOOGLE = {"sys_vendor": "Google", "product_name": "Google Compute Engine"}
UNREACHABLE = "http://127.0.0.1:9"
AZURE_PATH = "/metadata/instance/compute?api-version=2021-02-01"
GOOGLE_ROOT = "/computeMetadata/v1/instance/"


class Service:
    """A metadata service on loopback: its answers, the headers it needs, and the requests it got."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, str], str | int] = {}
        self.needs: dict[str, tuple[str, str]] = {}
        self.requests: list[tuple[str, str]] = []
        self.delay = 0.0
        service = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                service.requests.append((self.command, self.path))
                time.sleep(service.delay)
                header = service.needs.get(self.path)
                answer = service.answers.get((self.command, self.path), 404)
                if header is not None and self.headers.get(header[0]) != header[1]:
                    answer = 401
                self.send_response(answer if isinstance(answer, int) else 200)
                self.send_header("Location", f"{UNREACHABLE}/redirect")
                self.end_headers()
                if isinstance(answer, str):
                    self.wfile.write(answer.encode())

            do_GET = do_PUT = answer

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A metadata service that answers as on AWS, on a machine without firmware facts."""
    made = Service()
    made.answers = {
        ("PUT", "/latest/api/token"): "secret",
        ("GET", "/latest/meta-data/instance-type"): "p3.2xlarge",
        ("GET", "/latest/meta-data/placement/region"): "eu-west-1",
    }
    made.needs = {
        "/latest/api/token": ("X-aws-ec2-metadata-token-ttl-seconds", "60"),
        "/latest/meta-data/instance-type": ("X-aws-ec2-metadata-token", "secret"),
        "/latest/meta-data/placement/region": ("X-aws-ec2-metadata-token", "secret"),
    }
    monkeypatch.setattr(environment, "DMI_FOLDER", tmp_path)
    monkeypatch.setattr(environment, "METADATA_URL", made.url)
    for name in ("VMSELECT_INSTANCE_TYPE", "VMSELECT_REGION"):
        monkeypatch.delenv(name, raising=False)
    yield made
    made.close()


def write_firmware(facts: dict[str, str]) -> None:
    for name, value in facts.items():
        (environment.DMI_FOLDER / name).write_text(value + "\n")


def facts_of(place: Placement) -> tuple[tuple[str, str] | None, ...]:
    facts = (place.instance_type, place.region, place.provider)
    return tuple((fact.value, fact.source) if fact else None for fact in facts)


def test_arguments_come_first_then_the_environment(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    write_firmware(NITRO)
    monkeypatch.setenv("VMSELECT_INSTANCE_TYPE", " from-env ")
    monkeypatch.setenv("VMSELECT_REGION", "env-region")
    given = locate(instance_type="mine", region="here")
    assert facts_of(given) == (("mine", "argument"), ("here", "argument"), ("aws", "dmi"))
    assert facts_of(locate()) == (("from-env", "environment"), ("env-region", "environment"), ("aws", "dmi"))
    assert service.requests == []


@pytest.mark.parametrize(
    ("facts", "instance_type"), [(NITRO, ("g4dn.xlarge", "dmi")), (XEN, ("p3.2xlarge", "metadata"))]
)
def test_aws(facts: dict[str, str], instance_type: tuple[str, str], service: Service) -> None:
    write_firmware(facts)
    assert facts_of(locate()) == (instance_type, ("eu-west-1", "metadata"), ("aws", "dmi"))
    assert service.requests[0] == ("PUT", "/latest/api/token")  # IMDSv2: first a token


def test_azure(service: Service) -> None:
    write_firmware(AZURE)
    service.answers = {("GET", AZURE_PATH): '{"vmSize": "Standard_NC6s_v3", "location": "westeurope", "other": [1]}'}
    service.needs = {AZURE_PATH: ("Metadata", "true")}
    assert facts_of(locate()) == (("Standard_NC6s_v3", "metadata"), ("westeurope", "metadata"), ("azure", "dmi"))


def test_google(service: Service) -> None:
    write_firmware(GOOGLE)
    service.answers = {("GET", GOOGLE_ROOT + "machine-type"): "projects/123/machineTypes/n1-standard-8",
                       ("GET", GOOGLE_ROOT + "zone"): "projects/123/zones/us-central1-a"}  # fmt: skip
    service.needs = {GOOGLE_ROOT + name: ("Metadata-Flavor", "Google") for name in ("machine-type", "zone")}
    assert facts_of(locate()) == (("n1-standard-8", "metadata"), ("us-central1", "metadata"), ("gcp", "dmi"))


@pytest.mark.parametrize(
    "facts",
    [
        {},
        {"sys_vendor": "LENOVO", "product_name": "20XW"},
        {"sys_vendor": "Microsoft Corporation", "product_name": "Virtual Machine", "chassis_asset_tag": "1234"},
        {"sys_vendor": "QEMU", "product_name": "Standard PC"},
        {"sys_vendor": "Google", "product_name": "Chromebook"},
    ],
)
def test_no_other_machine_sends_a_packet(facts: dict[str, str], service: Service) -> None:
    write_firmware(facts)
    assert facts_of(locate()) == (None, None, None)
    assert service.requests == []


@pytest.mark.parametrize("facts", [XEN, AZURE, GOOGLE])
def test_without_a_service_the_machine_is_unknown(
    facts: dict[str, str], service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_firmware(facts)
    monkeypatch.setattr(environment, "METADATA_URL", UNREACHABLE)
    assert facts_of(locate())[:2] == (None, None)


@pytest.mark.parametrize("answer", ["", "<html>captive portal</html>", "x" * 300, "a b", "../../etc", 500, 301, 401])
def test_answers_that_are_no_names_are_ignored(answer: str | int, service: Service) -> None:
    write_firmware(XEN)
    for name in ("instance-type", "placement/region"):
        service.answers["GET", f"/latest/meta-data/{name}"] = answer
    assert facts_of(locate())[:2] == (None, None)
    assert all("redirect" not in path for _, path in service.requests)


@pytest.mark.parametrize("answer", ["", "[]", "null", "7", '{"vmSize": 7, "location": null}', "{"])
def test_bad_answers_of_azure_are_ignored(answer: str, service: Service) -> None:
    write_firmware(AZURE)
    service.answers = {("GET", AZURE_PATH): answer}
    assert facts_of(locate())[:2] == (None, None)


def test_a_slow_service_is_abandoned(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    write_firmware(XEN)
    monkeypatch.setattr(environment, "METADATA_SECONDS", 0.6)
    service.delay = 0.4  # each request is in time, all together are not
    began = time.monotonic()
    assert locate().region is None
    assert time.monotonic() - began < 60


def test_no_proxy_is_used(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    write_firmware(XEN)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, UNREACHABLE)
    assert locate().region is not None


@pytest.mark.parametrize("name", ["g4dn.xlarge\x00", "Not A Type", "", "m5d.metal-48xl"])
def test_the_name_in_the_firmware_must_look_like_a_type(
    name: str, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_firmware({**NITRO, "product_name": name})
    monkeypatch.setattr(environment, "METADATA_URL", UNREACHABLE)
    assert (locate().instance_type is not None) == (name == "m5d.metal-48xl")


# -- start of the process ----------------------------------------------------------------------------------------------


@pytest.fixture
def fresh_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_marked_ns", None)
    monkeypatch.setattr(environment, "_fits", 0)
    monkeypatch.setattr(environment, "in_notebook", lambda: False)


@pytest.mark.usefixtures("fresh_start")
def test_initialization_is_counted_once() -> None:
    seconds, source = environment.take_initialization()
    assert source == "process start"
    assert seconds > 0
    assert environment.take_initialization() is None
    environment.mark_start()
    seconds, source = environment.take_initialization()
    assert (source, 0 <= seconds < 10) == ("mark_start", True)
    assert environment.take_initialization() is None


@pytest.mark.usefixtures("fresh_start")
def test_in_a_notebook_initialization_counts_from_a_mark_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "in_notebook", lambda: True)
    assert environment.take_initialization() is None
    environment.mark_start()
    assert environment.take_initialization()[1] == "mark_start"


@pytest.mark.parametrize(
    ("ipython", "expected"),
    [
        (None, False),
        (SimpleNamespace(get_ipython=lambda: None), False),
        (SimpleNamespace(get_ipython=lambda: object()), True),
    ],
)
def test_a_notebook_is_detected(ipython: Any, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(sys, "ps1", raising=False)
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    assert environment.in_notebook() is expected


def test_the_age_of_a_process_is_exact() -> None:
    before = time.monotonic()
    code = (
        "import time, vmselect.probe.environment as s; print(s.process_age_seconds()); "
        "time.sleep(0.5); print(s.process_age_seconds())"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    first, second = map(float, out)
    assert 0 < first < second <= time.monotonic() - before + 0.02
    assert second - first >= 0.49


@pytest.mark.parametrize("text", [None, "", "1 (a) b", "1 (evil ) name) S " + "x " * 30])
def test_the_age_without_the_kernels_count(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "stat").write_text(text)
    assert environment.process_age_seconds(tmp_path / "stat") > 0


# -- waiting for devices -----------------------------------------------------------------------------------------------


class Framework(SimpleNamespace):
    """Stands for TensorFlow, JAX and Keras of a process, and notes what was waited for."""

    def __init__(self, *, arrays: int, initialized: bool = True) -> None:
        self.waited: list[str] = []
        self.backend = SimpleNamespace(backend=lambda: "tensorflow")
        self.test = SimpleNamespace(experimental=SimpleNamespace(sync_devices=lambda: self.waited.append("tensorflow")))
        self._arrays, self._initialized = arrays, initialized

    def backends_are_initialized(self) -> bool:
        return self._initialized

    def live_arrays(self) -> list[Any]:
        assert self._initialized, "the query would initialize JAX"
        return [SimpleNamespace(is_deleted=lambda: False)] * self._arrays

    def block_until_ready(self, pending: list[Any]) -> None:
        self.waited.append("jax")


@pytest.mark.parametrize(
    ("arrays", "initialized", "backend"), [(3, True, "jax"), (0, True, "tensorflow"), (0, False, "tensorflow")]
)
def test_jax_is_waited_for_although_tensorflow_reads_the_data(
    monkeypatch: pytest.MonkeyPatch, arrays: int, initialized: bool, backend: str
) -> None:
    framework = Framework(arrays=arrays, initialized=initialized)
    for name in ("keras", "tensorflow", "jax", "jax._src.xla_bridge"):
        monkeypatch.setitem(sys.modules, name, framework)  # type: ignore[arg-type]
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    environment.synchronize_devices()
    assert framework.waited == [backend]
    assert environment.name_loop_backend() == backend


def test_the_arrays_in_the_state_of_a_keras_model_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    class TrackedDict(dict[str, Any]):
        """Keras' own kind of dict, which JAX takes for a single leaf; it wraps lists likewise."""

    class TrackedList(list[Any]):
        """Keras' own kind of list."""

    waited: list[Any] = []
    jax = SimpleNamespace(block_until_ready=waited.append, live_arrays=list)
    monkeypatch.setitem(sys.modules, "jax", jax)  # type: ignore[arg-type]
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    state = TrackedDict(trainable_variables=TrackedList(["w", "b"]), metrics_variables=TrackedList(["m"]))
    environment.synchronize_devices(SimpleNamespace(_jax_state=state))
    assert [(type(one), one) for one in waited] == [(list, ["w", "b", "m"])]
