"""What is diagnosed from a record, and that nothing is where nothing was measured."""

import pytest

import vmselect as vs
from tests.support.profiles import make_epoch_profile, make_profile
from vmselect.diagnosis import causes
from vmselect.errors import ArgumentError
from vmselect.records import Boundary, FirstStep, Gpu, InputWait
from vmselect.records.usage import Limits, Summary, Usage

GIB = 2**30
HEALTHY = {
    "usable_cpu_share": 0.97,
    "process_cores": 1.9,
    "other_cores": 0.05,
    "steal_share": 0.0,
    "io_pressure_share": 0.01,
    "memory_pressure_share": 0.0,
    "memory_available_share": 0.6,
    "swap_bytes_per_second": 0.0,
}
GPUS = {"framework_gpus": 2, "replicas": 2, "gpus": (Gpu(name="T4", memory_bytes=16 * GIB),) * 2}
QUOTA = {"container_cores": 4.0}


def profile_of(wait=None, *, cores=2, usage=None, sampled=10.0, limits=None, environment=None, **changes):
    """A profile whose steps wait for this share of the time, with these means over the steady steps."""
    timeline = changes.pop("timeline", {})
    if wait is not None:
        timeline["input_wait"] = InputWait(seconds=wait, wall_seconds=1.0, steps=10, method="test")
    if usage is not None:
        means = {
            name: Summary(count=10, seconds=sampled, mean=mean, maximum=mean, p50=mean, p95=mean)
            for name, mean in usage.items()
        }
        usage = Usage(
            interval_seconds=1.0, limits=Limits(cores=cores, **(limits or {})), phases={"steady_steps": means}
        )
    machine = {"cpu_cores": 2, "usable_cores": cores, "framework_gpus": 0, **(environment or {})}
    return make_profile(validation_seconds=[1.0, 0.5], usage=usage, timeline=timeline, environment=machine, **changes)


def cards(**quantities):
    return {f"gpu{card}_{name}": value for card in (0, 1) for name, value in quantities.items()}


def codes(profile, **options):
    return [found.code for found in vs.diagnose(profile, **options)]


def test_a_compute_bound_training_has_no_finding():
    healthy = profile_of(0.02, usage=HEALTHY)
    assert codes(healthy) == ["compute-bound"]
    assert vs.diagnose(healthy)[0].severity == "info"
    assert not {found.code for found in healthy.findings} & {"compute-bound", "contention", "input-bound"}


def test_what_was_not_sampled_long_enough_is_not_diagnosed():
    assert codes(profile_of()) == []
    assert codes(profile_of(usage={})) == []
    assert codes(profile_of(usage={"steal_share": 1.0}, sampled=0.1)) == []


@pytest.mark.parametrize(("wait", "expected"), [(0.1, []), (0.29, []), (0.3, ["input-bound"])])
def test_steps_are_input_bound_from_a_third_of_waiting(wait, expected):
    assert codes(profile_of(wait)) == expected


def test_waiting_for_data_bounds_what_a_faster_gpu_gains():
    profile = profile_of(0.77, usage=HEALTHY | {"usable_cpu_share": 0.2, "process_cores": 0.4}, environment=GPUS)
    (found,) = vs.diagnose(profile)
    assert (found.code, "1.3x" in found.bound) == ("input-bound", True)
    assert found.evidence["input_wait_share"] == 0.77
    assert found.evidence["device_gain_at_most"] == pytest.approx(1.2987, abs=1e-3)
    assert found.evidence["usable_cpu_share"] == 0.2
    assert "input-bound" in [one.code for one in profile.findings]


@pytest.mark.parametrize(
    ("usage", "bound"),
    [
        ({"usable_cpu_share": 0.97, "process_cores": 7.8}, ""),  # the CPU causes the wait itself
        ({"usable_cpu_share": 0.14, "process_cores": 1.02}, ""),  # one core prepares all the data
        ({"usable_cpu_share": 0.05, "process_cores": 0.3}, "a faster CPU gains at most 1.1x here"),
        (None, ""),  # unknown
    ],
)
def test_without_a_gpu_the_gain_is_bounded_only_where_the_cpu_is_idle(usage, bound):
    found = vs.diagnose(profile_of(0.9, cores=8, usage=usage and HEALTHY | usage))[0]
    assert (found.code, found.bound) == ("input-bound", bound)
    assert ("device_gain_at_most" in found.evidence) == bool(bound)
    assert found.evidence["input_gain_at_most"] == pytest.approx(10)
    with_gpu = profile_of(0.9, cores=8, usage=usage and HEALTHY | usage, environment=GPUS)
    assert "1.1x" in vs.diagnose(with_gpu)[0].bound


@pytest.mark.parametrize(
    ("usage", "remedy"),
    [
        ({"usable_cpu_share": 0.97, "process_cores": 7.8}, "97% busy preparing data"),
        ({"usable_cpu_share": 0.14, "process_cores": 1.02}, "a single core"),
        ({"usable_cpu_share": 0.4, "process_cores": 3.1}, "on more cores"),
        ({"usable_cpu_share": 0.14, "process_cores": 0.2}, "14% busy, so reading is slow"),
        ({}, "Prefetch"),
    ],
)
def test_the_remedy_depends_on_what_prepares_the_data(usage, remedy):
    assert remedy in vs.diagnose(profile_of(0.9, cores=8, usage=usage))[0].remedy


def test_the_quota_of_a_container_counts_where_it_is_lower():
    used_up = HEALTHY | {"usable_cpu_share": 0.06, "process_cores": 3.9, "other_cores": 0.0}
    healthy = profile_of(0.0, cores=64, usage=used_up, limits=QUOTA, environment={"cpu_cores": 64})
    assert codes(healthy) == ["cpu-limited", "compute-bound"]
    assert vs.diagnose(healthy)[0].evidence == {"usable_cores": 4.0, "cpu_cores": 64.0, "process_cores": 3.9}
    found = vs.diagnose(profile_of(0.6, cores=64, usage=used_up, limits=QUOTA))
    assert [one.code for one in found] == ["input-bound", "cpu-saturated"]
    assert found[1].evidence == {"process_cores": 3.9, "container_cores": 4.0}
    higher = vs.diagnose(profile_of(0.6, cores=2, usage=HEALTHY, limits=QUOTA))
    assert [one.code for one in higher] == ["input-bound", "cpu-saturated"]
    assert higher[1].evidence == {"usable_cpu_share": 0.97}


def test_processors_that_compute_should_be_busy():
    computing = profile_of(0.0, usage=HEALTHY)
    assert "cpu-saturated" not in codes(computing)
    assert "cpu-saturated" in codes(computing, cpu_threshold=0.9)
    assert "cpu-saturated" not in codes(computing, cpu_threshold=0.98)
    with_gpu = profile_of(0.0, usage=HEALTHY | cards(busy_share=0.9), environment=GPUS)
    assert codes(with_gpu) == ["cpu-saturated", "compute-bound"]


def test_noisy_neighbors():
    other = HEALTHY | {"process_cores": 1.0, "other_cores": 0.95}
    assert codes(profile_of(0.0, usage=other)) == ["noisy-neighbour"]
    assert codes(profile_of(0.0, usage=other, environment={"workers": 2})) == []
    assert codes(profile_of(0.0, usage=other | {"usable_cpu_share": 0.6})) == []  # cores are free: no harm
    (beside, *_) = vs.diagnose(profile_of(0.0, cores=64, usage=other | {"other_cores": 57.8}, limits=QUOTA))
    assert (beside.code, beside.evidence["usable_cores"]) == ("noisy-neighbour", 64)  # of all cores, not of the quota
    stolen = vs.diagnose(profile_of(0.0, usage=HEALTHY | {"steal_share": 0.2}))[0]
    assert (stolen.code, stolen.severity, stolen.evidence) == ("noisy-neighbour", "warning", {"steal_share": 0.2})


def test_cpu_limits():
    pinned = {"process_cores": 0.98, "usable_cpu_share": 0.99, "other_cores": 0.0}
    assert "cpu-limited" in codes(profile_of(0.0, cores=1, usage=HEALTHY | pinned))
    assert "cpu-limited" not in codes(profile_of(0.8, cores=1, usage=HEALTHY | pinned | {"process_cores": 0.2}))
    throttled = HEALTHY | {"container_throttled_share": 0.4}
    found = vs.diagnose(profile_of(0.0, usage=throttled, limits={"container_cores": 0.5}))[0]
    assert (found.code, found.severity) == ("cpu-limited", "warning")
    assert found.evidence == {"container_cores": 0.5, "container_throttled_share": 0.4}


@pytest.mark.parametrize(
    ("usage", "code"),
    [
        ({"swap_bytes_per_second": 5e6}, "swapping"),
        ({"memory_available_share": 0.02}, "memory-full"),
        ({"container_memory_share": 0.99, "memory_pressure_share": 0.2}, "memory-full"),
        ({"container_memory_share": 0.99}, "compute-bound"),  # full of cached files
        ({"io_pressure_share": 0.6, "disk_write_bytes_per_second": 1e8}, "disk-busy"),
    ],
)
def test_memory_and_disks(usage, code):
    assert codes(profile_of(0.0, usage=HEALTHY | usage))[0] == code


@pytest.mark.parametrize(("own", "remedy"), [(9e7, "faster disk"), (1e7, "other programs")])
def test_the_remedy_for_a_busy_disk_depends_on_who_uses_it(own, remedy):
    disk = {"io_pressure_share": 0.6, "disk_write_bytes_per_second": 1e8, "process_write_bytes_per_second": own}
    assert remedy in vs.diagnose(profile_of(0.0, usage=HEALTHY | disk))[0].remedy


def test_underfed_gpus():
    usage = HEALTHY | {"usable_cpu_share": 0.5} | cards(busy_share=0.2)
    (found,) = vs.diagnose(profile_of(0.01, usage=usage, environment=GPUS))
    assert found.code == "underfed-gpu"
    assert found.evidence == {"gpu_busy_share": 0.2, "gpus": 2.0, "input_wait_share": 0.01}
    assert codes(profile_of(0.7, usage=usage, environment=GPUS)) == ["input-bound"]
    assert codes(profile_of(0.01, usage=usage)) == ["compute-bound"]  # the framework uses no GPU
    assert codes(profile_of(usage=usage, environment=GPUS)) == []  # the wait for data is unknown


def test_only_the_gpus_in_use_are_checked():
    usage = HEALTHY | {"usable_cpu_share": 0.5, "gpu0_busy_share": 0.0, "gpu1_busy_share": 0.95}
    assert codes(profile_of(0.01, usage=usage, environment=GPUS | {"framework_gpus": 1})) == ["compute-bound"]


@pytest.mark.parametrize(("peak", "code"), [(15.5, "gpu-memory-full"), (8, None), (3, "gpu-memory-empty")])
def test_gpu_memory(peak, code):
    diagnoses = vs.diagnose(profile_of(environment=GPUS | {"peak_gpu_memory_bytes": int(peak * GIB)}))
    assert [diagnosis.code for diagnosis in diagnoses] == ([code] if code else [])


@pytest.mark.parametrize("cause", ["heat", "power", "hardware"])
def test_throttled_gpus(cause):
    def found(share):
        slowed = {f"throttled_by_{cause}_share": share}
        usage = HEALTHY | cards(busy_share=0.9, temperature_celsius=88.0, **slowed)
        return vs.diagnose(profile_of(usage=usage, environment=GPUS))

    assert found(0.5)[0].code == "throttled"
    assert found(0.5)[0].evidence == {f"gpu{card}_throttled_by_{cause}_share": 0.5 for card in (0, 1)}
    assert "throttled" not in [one.code for one in found(0.05)]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ((50, 30, 33, 36, 40), ["slowing-down"]),
        ((50, 30, 31, 30, 29, 31), []),
        ((10, 30), []),
        ((50, 30, 90, 30, 37), []),
    ],
)
def test_epochs_that_grow(seconds, expected):
    assert codes(make_epoch_profile("a", *seconds)) == expected


def test_of_thousands_of_epochs_some_are_compared(monkeypatch):
    compared = []
    pairs = causes.combinations
    monkeypatch.setattr(causes, "combinations", lambda items, size: compared.append(len(items)) or pairs(items, size))
    growing = [30 + 0.01 * number for number in range(5_000)]
    (found,) = vs.diagnose(make_epoch_profile("a", 50, *growing))
    assert (found.code, found.evidence["last_epoch_seconds"]) == ("slowing-down", growing[-1])
    assert compared == [causes.MAX_COMPARED]


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ((3.0, 2.9), ["slow-boundaries"]),  # an epoch takes 10.75 s
        ((3.0, 0.02), []),  # the first saving of a model, seen once
        ((0.1, 0.1, 0.1), []),
    ],
)
def test_pauses_between_epochs(seconds, expected):
    last = len(seconds) - 1
    boundaries = tuple(Boundary(epoch=i, seconds=s, final=i == last) for i, s in enumerate(seconds))
    assert codes(profile_of(timeline={"boundaries": boundaries})) == expected


@pytest.mark.parametrize("bad", [None, "profile", 3])
def test_only_profiles_are_diagnosed(bad):
    with pytest.raises(ArgumentError, match="Profile"):
        vs.diagnose(bad)


@pytest.mark.parametrize("bad", [1.5, "high", float("nan")])
def test_bad_thresholds(bad):
    with pytest.raises(ArgumentError, match="cpu_threshold"):
        vs.diagnose(profile_of(), cpu_threshold=bad)


def test_the_check_command_lists_diagnoses(tmp_path):
    from typer.testing import CliRunner

    from vmselect.cli import app

    profile_of(0.77, usage=HEALTHY, environment=GPUS).save(tmp_path / "slow.json")
    shown = CliRunner().invoke(app, ["check", str(tmp_path), "--format", "json"])
    assert "input-bound" in shown.output


def first_step(seconds: float, **means: float) -> vs.Profile:
    """A training whose first step took ``seconds``, and the sampled means of that phase."""
    profile = vs.Profile.from_times(first_iteration_seconds=seconds, iteration_seconds=[0.1] * 10)
    sampled = {
        name: Summary(count=9, seconds=9.0, mean=mean, maximum=mean, p50=mean, p95=mean) for name, mean in means.items()
    }
    usage = Usage(interval_seconds=1.0, limits=Limits(cores=8), phases={"first_step": sampled}) if means else None
    facts = profile.environment.model_copy(update={"framework_gpus": 1})
    return profile.model_copy(update={"usage": usage, "environment": facts})


@pytest.mark.parametrize(
    ("means", "word"),
    [
        ({}, "not sampled"),
        ({"process_cores": 3.0, "gpu0_busy_share": 0.0, "io_pressure_share": 0.0}, "compiled"),
        ({"process_cores": 1.0, "gpu0_busy_share": 0.8}, "autotuning"),
        ({"process_cores": 0.3, "gpu0_busy_share": 0.0, "io_pressure_share": 0.6}, "disk"),
        ({"process_cores": 0.1, "gpu0_busy_share": 0.0}, "first data"),
        ({"process_cores": 0.1, "other_cores": 0.5}, "first data"),
        ({"process_cores": 0.4, "other_cores": 7.5}, "other programs 7.5"),
    ],
)
def test_a_slow_first_step_is_explained_by_what_was_busy(means: dict[str, float], word: str) -> None:
    (found,) = [cause for cause in vs.diagnose(first_step(23.0, **means)) if cause.code == "slow-first-step"]
    assert word in found.message
    assert found.severity == "info"
    assert found.evidence["first_step_seconds"] == 23.0


def test_other_workers_of_a_training_are_no_other_programs_of_its_first_step() -> None:
    profile = first_step(23.0, process_cores=0.4, other_cores=7.5)
    together = profile.model_copy(update={"environment": profile.environment.model_copy(update={"workers": 8})})
    evidence = [
        cause.evidence for each in (profile, together) for cause in vs.diagnose(each) if cause.code == "slow-first-step"
    ]
    assert ["other_cores" in values for values in evidence] == [True, False]


@pytest.mark.parametrize(
    ("parts", "words", "advice"),
    [
        ({"tracing_seconds": 3.0, "compiling_seconds": 14.0, "method": "jax.monitoring"},
         "3 s of tracing, 14 s of compiling and 6 s of allocation and execution, by jax.monitoring", "cache compiled"),
        ({"tracing_seconds": 15.0, "method": "tf.function"},
         "15 s of tracing and 8 s of compilation, allocation and execution, by tf.function", "Trace less"),
        ({"tracing_seconds": 1.0, "compiling_seconds": 4.0, "autotuning_seconds": 2.0, "method": "torch.compile"},
         "4 s of compiling (2 s of it autotuning) and 18 s of allocation", "first batch"),
        ({"tracing_seconds": 0.0, "compiling_seconds": 0.0, "method": "torch.compile"}, "0.5 CPU cores", "first batch"),
    ],
)  # fmt: skip
def test_a_slow_first_step_is_divided_into_what_was_timed(parts: dict[str, object], words: str, advice: str) -> None:
    profile = first_step(23.0, process_cores=0.5)
    timeline = profile.timeline.model_copy(update={"first_step": FirstStep(**parts)})
    (found,) = [
        cause
        for cause in vs.diagnose(profile.model_copy(update={"timeline": timeline}))
        if cause.code == "slow-first-step"
    ]
    assert words in found.message
    assert advice in found.remedy
    assert ("tracing_seconds" in found.evidence) == ("tracing_seconds" in parts)


def test_a_first_step_of_a_few_seconds_is_usual() -> None:
    assert "slow-first-step" not in {one.code for one in vs.diagnose(first_step(5.0))}
