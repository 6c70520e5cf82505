"""What is said about a record's speed, and that nothing is said where nothing is known."""

import pytest

import vmselect as vs
from vmselect.errors import ArgumentError
from vmselect.records import Gpu, InputWait
from vmselect.records.usage import Limits, Summary, Usage

GIB = 2**30


def profile_of(share=None, *, cores=2, usage=None, environment=None, setup=None, timeline=None, limits=None):
    """A profile with this wait for input, these means over the steady steps, and changes to its parts."""
    made = vs.Profile.from_times(
        instance_type="m5.large",
        batch_size=64,
        steps_per_epoch=100,
        init_seconds=1,
        first_iteration_seconds=1,
        iteration_seconds=[0.1] * 20,
        validation_seconds=[1.0, 0.5],
    )
    wait = None if share is None else InputWait(seconds=share, wall_seconds=1.0, steps=10, method="test")
    means = {
        name: Summary(count=10, seconds=10.0, mean=mean, maximum=mean, p50=mean, p95=mean)
        for name, mean in (usage or {}).items()
    }
    sampled = Usage(interval_seconds=1.0, limits=Limits(cores=cores, **(limits or {})), phases={"steady_steps": means})
    return made.model_copy(
        update={
            "timeline": made.timeline.model_copy(update={"input_wait": wait, **(timeline or {})}),
            "environment": made.environment.model_copy(
                update={"cpu_cores": 2, "usable_cores": cores, "framework_gpus": 0, **(environment or {})}
            ),
            "setup": made.setup.model_copy(update=setup or {}),
            "usage": sampled if usage is not None else None,
        }
    )


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


def cards(**quantities):
    return {f"gpu{card}_{name}": value for card in (0, 1) for name, value in quantities.items()}


def codes(profile, **options):
    return [found.code for found in vs.diagnose(profile, **options)]


def test_a_healthy_run_raises_nothing():
    healthy = profile_of(0.02, usage=HEALTHY)
    assert codes(healthy) == ["compute-bound"]
    assert vs.diagnose(healthy)[0].severity == "info"
    assert not {found.code for found in healthy.findings} & {"compute-bound", "contention", "input-bound"}


def test_what_was_not_seen_is_not_diagnosed():
    assert codes(profile_of()) == []
    assert codes(profile_of(usage={})) == []
    short = Summary(count=1, seconds=0.1, mean=1.0, maximum=1.0, p50=1.0, p95=1.0)
    usage = Usage(interval_seconds=1.0, phases={"steady_steps": {"steal_share": short}})
    assert codes(profile_of().model_copy(update={"usage": usage})) == []


def test_waiting_for_data_bounds_what_a_faster_machine_gains():
    profile = profile_of(0.77, usage=HEALTHY | {"usable_cpu_share": 0.2, "process_cores": 0.4}, environment=GPUS)
    found = vs.diagnose(profile)
    assert [one.code for one in found] == ["input-bound"]
    assert "a faster GPU gains at most 1.3x here" in found[0].message
    assert found[0].evidence["input_wait_share"] == 0.77
    assert found[0].evidence["device_gain_at_most"] == pytest.approx(1.2987, abs=1e-3)
    assert "20% busy" in found[0].remedy
    assert "input-bound" in [one.code for one in profile.findings]


def test_preparing_data_on_busy_processors_is_told_apart_from_slow_data():
    found = vs.diagnose(profile_of(0.6, usage=HEALTHY))
    assert [one.code for one in found] == ["input-bound", "cpu-saturated"]
    assert "preparing data" in found[0].remedy


@pytest.mark.parametrize(
    ("usage", "bound"),
    [
        ({"usable_cpu_share": 0.97, "process_cores": 7.8}, ""),  # the wait is the processors' own work
        ({"usable_cpu_share": 0.14, "process_cores": 1.02}, ""),  # the work of one of them
        ({"usable_cpu_share": 0.05, "process_cores": 0.3}, "a faster processor gains at most 1.1x here"),
        (None, ""),  # nobody knows
    ],
)
def test_without_a_gpu_the_bound_is_given_only_where_the_processors_idle(usage, bound):
    found = vs.diagnose(profile_of(0.9, cores=8, usage=usage and HEALTHY | usage))[0]
    assert (found.code, found.bound) == ("input-bound", bound)
    assert ("device_gain_at_most" in found.evidence) == ("at most" in found.message) == bool(bound)
    assert "up to 10x" in found.message
    with_gpu = profile_of(0.9, cores=8, usage=usage and HEALTHY | usage, environment=GPUS)
    assert vs.diagnose(with_gpu)[0].bound == "a faster GPU gains at most 1.1x here"


def test_data_that_one_core_prepares_are_told_apart_from_slow_data():
    def remedy(**usage):
        return vs.diagnose(profile_of(0.9, cores=8, usage=HEALTHY | usage))[0].remedy

    one = remedy(usable_cpu_share=0.14, process_cores=1.02)
    assert "1.0 of 8 cores, as if one of them prepared all the data" in one
    assert "more workers" in one
    assert "nearer" not in one
    several = remedy(usable_cpu_share=0.4, process_cores=3.1)
    assert "3.1 of 8 cores: prepare data on more of them" in several
    slow = remedy(usable_cpu_share=0.14, process_cores=0.2)
    assert "14% busy, so the data come too slowly, not the work on them" in slow


QUOTA = {"container_cores": 4.0}
USED_UP = HEALTHY | {"usable_cpu_share": 0.06, "process_cores": 3.9, "other_cores": 0.0}


def test_what_a_container_allows_is_what_can_be_busy():
    healthy = profile_of(0.0, cores=64, usage=USED_UP, limits=QUOTA, environment={"cpu_cores": 64})
    assert codes(healthy) == ["cpu-limited", "compute-bound"]
    assert "4 of the machine's 64 cores" in vs.diagnose(healthy)[0].message
    found = vs.diagnose(profile_of(0.6, cores=64, usage=USED_UP, limits=QUOTA))
    assert [one.code for one in found] == ["input-bound", "cpu-saturated"]
    assert "The container's 4 cores are 98% busy with preparing data" in found[0].remedy
    assert found[0].remedy.endswith("give the container more cores.")
    assert found[1].remedy.startswith("Give the container more cores")
    assert found[1].evidence == {"process_cores": 3.9, "container_cores": 4.0}
    # A limit above what there is, is none.
    assert codes(profile_of(0.6, cores=2, usage=HEALTHY, limits=QUOTA)) == ["input-bound", "cpu-saturated"]
    assert (
        "The processors are 97% busy" in vs.diagnose(profile_of(0.6, cores=2, usage=HEALTHY, limits=QUOTA))[1].message
    )


def test_neighbours_of_a_container_are_counted_on_all_the_cores():
    usage = HEALTHY | {"usable_cpu_share": 0.95, "process_cores": 3.0, "other_cores": 57.8}
    found = vs.diagnose(profile_of(0.0, cores=64, usage=usage, limits=QUOTA))
    assert [one.code for one in found] == ["noisy-neighbour"]
    assert "90% of the 64 cores" in found[0].message


@pytest.mark.parametrize(("share", "expected"), [(0.29, []), (0.3, ["input-bound"]), (0.1, [])])
def test_the_threshold_of_the_wait(share, expected):
    assert codes(profile_of(share)) == expected


def test_processors_that_compute_ought_to_be_busy_unless_one_asks():
    assert "cpu-saturated" not in codes(profile_of(0.0, usage=HEALTHY))
    assert "cpu-saturated" in codes(profile_of(0.0, usage=HEALTHY), cpu_threshold=0.9)
    assert "cpu-saturated" not in codes(profile_of(0.0, usage=HEALTHY), cpu_threshold=0.98)
    with_gpu = profile_of(0.0, usage=HEALTHY | cards(busy_share=0.9), environment=GPUS)
    assert codes(with_gpu) == ["cpu-saturated", "compute-bound"]


def test_neighbours():
    other = HEALTHY | {"process_cores": 1.0, "other_cores": 0.95}
    assert codes(profile_of(0.0, usage=other)) == ["noisy-neighbour"]
    assert codes(profile_of(0.0, usage=other, environment={"workers": 2})) == []
    assert codes(profile_of(0.0, usage=other | {"usable_cpu_share": 0.6})) == []  # cores are free: no harm
    stolen = profile_of(0.0, usage=HEALTHY | {"steal_share": 0.2})
    assert "noisy-neighbour" in codes(stolen)
    assert "steal" in vs.diagnose(stolen)[0].message
    assert vs.diagnose(stolen)[0].severity == "warning"


def test_limits():
    pinned = {"process_cores": 0.98, "usable_cpu_share": 0.99, "other_cores": 0.0}
    assert "cpu-limited" in codes(profile_of(0.0, cores=1, usage=HEALTHY | pinned))
    assert "cpu-limited" not in codes(profile_of(0.8, cores=1, usage=HEALTHY | pinned | {"process_cores": 0.2}))
    held = HEALTHY | {"container_throttled_share": 0.4}
    found = vs.diagnose(profile_of(0.0, usage=held, limits={"container_cores": 0.5}))
    assert found[0].code == "cpu-limited"
    assert "held back in 40% of the scheduler's periods" in found[0].message


@pytest.mark.parametrize(
    ("usage", "code"),
    [
        ({"swap_bytes_per_second": 5e6}, "swapping"),
        ({"memory_available_share": 0.02}, "memory-full"),
        ({"container_memory_share": 0.99, "memory_pressure_share": 0.2}, "memory-full"),
        ({"io_pressure_share": 0.6, "disk_write_bytes_per_second": 1e8}, "disk-busy"),
    ],
)
def test_memory_and_disks(usage, code):
    assert code in codes(profile_of(0.0, usage=HEALTHY | usage))


def test_a_container_full_of_cached_files_is_not_full():
    assert "memory-full" not in codes(profile_of(0.0, usage=HEALTHY | {"container_memory_share": 0.99}))


def test_whose_the_disk_s_work_is():
    usage = HEALTHY | {"io_pressure_share": 0.6, "disk_write_bytes_per_second": 1e8}
    own = vs.diagnose(profile_of(0.0, usage=usage | {"process_write_bytes_per_second": 9e7}))
    other = vs.diagnose(profile_of(0.0, usage=usage))
    assert "most of it this training's own" in own[0].message
    assert "little of it this training's own" in other[0].message


def test_underfed_gpus():
    usage = HEALTHY | {"usable_cpu_share": 0.5} | cards(busy_share=0.2)
    found = vs.diagnose(profile_of(0.01, usage=usage, environment=GPUS))
    assert [one.code for one in found] == ["underfed-gpu"]
    assert "The 2 GPUs are 20% busy with 32 examples a step each" in found[0].message
    assert codes(profile_of(0.7, usage=usage, environment=GPUS)) == ["input-bound"]
    assert codes(profile_of(0.01, usage=usage)) == ["compute-bound"]  # the framework uses no GPU
    assert codes(profile_of(usage=usage, environment=GPUS)) == []  # nobody knows whether data were there


def test_only_the_cards_at_work_are_judged():
    usage = HEALTHY | {"usable_cpu_share": 0.5, "gpu0_busy_share": 0.0, "gpu1_busy_share": 0.95}
    assert codes(profile_of(0.01, usage=usage, environment=GPUS | {"framework_gpus": 1})) == ["compute-bound"]


@pytest.mark.parametrize(("peak", "code"), [(15.5, "gpu-memory-full"), (8, None), (3, "gpu-memory-empty")])
def test_gpu_memory(peak, code):
    profile = profile_of(
        environment=GPUS | {"peak_gpu_memory_bytes": int(peak * GIB)}, setup={"parameters": 25_000_000}
    )
    assert codes(profile) == ([code] if code else [])


def test_about_how_large_a_batch_fits():
    profile = profile_of(
        environment=GPUS | {"peak_gpu_memory_bytes": 3 * GIB}, setup={"parameters": 25_000_000, "batch_size": 64}
    )
    found = vs.diagnose(profile)[0]
    # 0.37 GiB stay, 2.63 GiB grow with the batch: (0.92 x 16 - 0.37) / 2.63 x 64
    assert found.evidence["batch_size_that_fits"] == 340
    assert "a batch of about 340 fits" in found.message
    unknown = profile.model_copy(update={"setup": profile.setup.model_copy(update={"parameters": None})})
    assert "batch" not in vs.diagnose(unknown)[0].message


def test_throttling():
    usage = HEALTHY | cards(busy_share=0.9, throttled_by_heat_share=0.5, temperature_celsius=88.0)
    found = vs.diagnose(profile_of(usage=usage, environment=GPUS))
    assert found[0].code == "throttled"
    assert "because of heat in 50% of the samples at 88 degrees; 2 GPUs" in found[0].message
    usage = HEALTHY | cards(busy_share=0.9, throttled_by_hardware_share=0.5, temperature_celsius=88.0)
    found = vs.diagnose(profile_of(usage=usage, environment=GPUS))
    assert found[0].code == "throttled"
    assert "by its hardware, because of heat or power, in 50% of the samples at 88 degrees" in found[0].message
    usage = HEALTHY | cards(busy_share=0.9, throttled_by_power_share=0.05)
    assert "throttled" not in codes(profile_of(usage=usage, environment=GPUS))


def epochs(*seconds):
    return vs.Profile.from_times(
        instance_type="m5.large", first_epoch_seconds=seconds[0], later_epoch_seconds=list(seconds[1:])
    )


def test_epochs_that_grow():
    assert codes(epochs(50, 30, 33, 36, 40)) == ["slowing-down"]
    assert codes(epochs(50, 30, 31, 30, 29, 31)) == []
    assert codes(epochs(10, 30)) == []
    assert codes(epochs(50, 30, 90, 30, 37)) == []


def test_pauses_between_epochs():
    from vmselect.records import Boundary

    def with_boundaries(*seconds):
        boundaries = [Boundary(epoch=i, seconds=s, final=i == len(seconds) - 1) for i, s in enumerate(seconds)]
        return profile_of(timeline={"boundaries": tuple(boundaries)})

    assert codes(with_boundaries(3.0, 2.9)) == ["slow-boundaries"]  # an epoch takes 10.75 s
    assert codes(with_boundaries(3.0, 0.02)) == []  # the first saving of a model, seen once
    assert codes(with_boundaries(0.1, 0.1, 0.1)) == []


@pytest.mark.parametrize("bad", [None, "profile", 3])
def test_only_profiles_are_diagnosed(bad):
    with pytest.raises(ArgumentError, match="Profile"):
        vs.diagnose(bad)


@pytest.mark.parametrize("bad", [1.5, "high", float("nan")])
def test_bad_thresholds(bad):
    with pytest.raises(ArgumentError, match="cpu_threshold"):
        vs.diagnose(profile_of(), cpu_threshold=bad)


def test_the_command_shows_it(tmp_path):
    from typer.testing import CliRunner

    from vmselect.cli import app

    profile_of(0.77, usage=HEALTHY, environment=GPUS).save(tmp_path / "slow.json")
    shown = CliRunner().invoke(app, ["check", str(tmp_path), "--format", "json"])
    assert "input-bound" in shown.output
    assert "gains at most 1.3x" in shown.output
