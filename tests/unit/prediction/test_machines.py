"""Which probes and machines a prediction can use, and the reasons where it cannot."""

from __future__ import annotations

import pytest

import vmselect as vs
from vmselect.errors import ArgumentError, EstimateError
from vmselect.prediction import hardware as h
from vmselect.prediction import machines as m
from vmselect.prediction.hardware import Machine, MachineTypes, Refusal
from vmselect.prediction.machines import Prediction, Predictor, Probe
from vmselect.records.base import Environment, Gpu
from vmselect.records.training import InputWait
from vmselect.records.work import Operation, Operations, Work

CATALOG = vs.Catalog.embedded("2026-08-22")
TYPES = MachineTypes(CATALOG)
A10G = TYPES.find("g5.xlarge", None)


def profile(instance_type="g4dn.xlarge", seconds=0.2, *, environment=None, wait=None, **times) -> vs.Profile:
    made = vs.Profile.from_times(
        instance_type=instance_type, batch_size=64, steps_per_epoch=100, iteration_seconds=[seconds] * 10,
        **{"model": "net", **times},
    )  # fmt: skip
    changes = {"environment": environment} if environment else {}
    if wait is not None:
        waited = InputWait(seconds=wait * seconds * 10, wall_seconds=seconds * 10, steps=10, method="test")
        changes["timeline"] = made.timeline.model_copy(update={"input_wait": waited})
    return made.model_copy(update=changes)


def probe(*profiles: vs.Profile) -> Probe:
    seconds = m.step_seconds(profiles[0])
    return Probe(profiles[0].instance_type or "", profiles[0].provider, seconds, profiles, 64)


def refused(*probes: Probe, machine: Machine | None = None) -> Refusal:
    (result,) = Predictor(probes, TYPES).predict([machine or A10G])
    assert isinstance(result, Refusal)
    return result


@pytest.mark.parametrize(
    ("made", "code", "named"),
    [
        ([profile("c5.large")], h.NO_GPU, "g4dn.xlarge"),
        ([profile(environment=Environment(gpus=(Gpu(name="Tesla T4"),), framework_gpus=0))], h.NO_GPU, "g4dn.xlarge"),
        ([profile("p3.8xlarge")], h.SEVERAL_GPUS, "p3.8xlarge"),
        ([profile("dl1.24xlarge", environment=Environment(gpus=(Gpu(name="HL-205"),)))], h.SEVERAL_GPUS, "one GPU"),
        ([profile("lab", environment=Environment(gpus=(Gpu(name="Voodoo 2"),)))], h.NO_FIGURES, "Voodoo 2"),
        ([profile(environment=Environment(gpus=(Gpu(name="NVIDIA H100"),)))], h.CONTRADICTORY, "H100"),
        ([profile(), profile(seconds=0.5)], h.CONTRADICTORY, "g4dn.xlarge"),
        ([profile(wait=0.6)], m.INPUT_BOUND, "vCPUs"),
    ],
)
def test_probes_that_cannot_be_used_give_a_reason_and_a_remedy(made, code, named) -> None:
    refusal = refused(probe(*made))
    assert refusal.code == code
    assert named in refusal.reason
    assert "probe" in refusal.reason or "remove" in refusal.reason


@pytest.mark.parametrize(
    ("name", "code"),
    [("c5.large", m.NO_GPU_SOLD), ("g4ad.xlarge", m.OTHER_VENDOR), ("dl1.24xlarge", m.OTHER_VENDOR),
     ("Standard_NV12ads_A10_v5", m.SHARED_GPU), ("g7.2xlarge", h.NO_FIGURES)],
)  # fmt: skip
def test_machines_that_cannot_be_predicted_name_the_probe_that_helps(name, code) -> None:
    machine = TYPES.find(name, None) or Machine(name, "aws", "RTX-PRO-4500", 1)
    refusal = refused(probe(profile()), machine=machine)
    assert refusal.code == code
    assert f"probe {name}" in refusal.reason


def test_a_bad_probe_does_not_spoil_a_good_one() -> None:
    predictor = Predictor([probe(profile("c5.large", 5.0)), probe(profile())], TYPES)
    (alone,) = Predictor([probe(profile())], TYPES).predict([A10G])
    (result,) = predictor.predict([A10G])
    assert isinstance(result, Prediction)
    assert isinstance(alone, Prediction)
    assert result.seconds == alone.seconds
    assert result.nearest == 1
    assert set(predictor.refused) == {0}


def test_history_of_other_models_narrows_the_prediction() -> None:
    history = [
        profile(name, seconds * size, model=f"other {size}")
        for size in (1, 2, 3)
        for name, seconds in (("g4dn.xlarge", 0.2), ("g5.xlarge", 0.09), ("p3.2xlarge", 0.1))
    ]
    points = m.read_history(history, TYPES)
    assert len(points) == len(history)
    (alone,) = Predictor([probe(profile())], TYPES).predict([A10G])
    (informed,) = Predictor([probe(profile())], TYPES, points).predict([A10G])
    assert isinstance(alone, Prediction)
    assert isinstance(informed, Prediction)
    widths = [high / low for low, high in (alone.interval(0.9), informed.interval(0.9))]
    assert widths[1] < widths[0]


def test_records_that_say_nothing_about_gpus_are_no_history() -> None:
    useless = [profile("c5.large"), profile(model=None), profile(wait=0.6), profile("p3.8xlarge")]
    assert m.read_history(useless, TYPES) == []


def test_draws_of_machines_with_one_gpu_are_joint() -> None:
    names = ("g5.xlarge", "g5.2xlarge", "g4ad.xlarge", "p3.2xlarge")
    predictions = Predictor([probe(profile())], TYPES).predict([TYPES.find(name, None) for name in names])
    first_machine, same, _, other = predictions
    assert isinstance(first_machine, Prediction)
    assert first_machine.seconds == same.seconds
    first, second, third = (x.factors(500, seed=1) for x in (first_machine, same, other))
    assert ((first > 1) == (second > 1)).mean() > 0.9 > ((first > 1) == (third > 1)).mean()


def test_a_faster_gpu_does_not_shorten_the_wait_for_data() -> None:
    h100 = TYPES.find("p5.48xlarge", None)
    (free,) = Predictor([probe(profile())], TYPES).predict([h100])
    (tiny,) = Predictor([probe(profile(wait=0.01))], TYPES).predict([h100])
    (little,) = Predictor([probe(profile(wait=0.05))], TYPES).predict([h100])
    (much,) = Predictor([probe(profile(wait=0.25))], TYPES).predict([h100])
    for prediction in (free, tiny, little, much):
        assert isinstance(prediction, Prediction)
    assert tiny.seconds == free.seconds
    assert free.seconds < little.seconds < much.seconds
    # Only the rest of a step of 0.2 s gets faster.
    assert much.seconds == pytest.approx(0.25 * 0.2 + 0.75 * free.seconds)
    assert much.interval(0.9)[0] >= 0.25 * 0.2
    assert much.interval(0.9)[1] >= 0.2  # input that is prepared in parallel may limit the steps already
    assert little.interval(0.9)[1] == pytest.approx(0.05 * 0.2 + 0.95 * free.interval(0.9)[1])
    draws = much.factors(500) * much.seconds
    assert draws.min() >= 0.25 * 0.2


def test_a_slower_gpu_hides_the_wait_for_data() -> None:
    k80 = TYPES.find("p2.xlarge", None) or Machine("p2.xlarge", "aws", "K80", 1)
    (free,), (waits,) = (Predictor([probe(probed)], TYPES).predict([k80]) for probed in (profile(), profile(wait=0.25)))
    assert isinstance(free, Prediction)
    assert isinstance(waits, Prediction)
    assert waits.seconds == free.seconds > 0.2


@pytest.mark.parametrize(
    ("filters", "kept", "dropped"),
    [({"gpu": ["t4"]}, "g4dn.xlarge", "g5.xlarge"),
     ({"provider": ["gcp"]}, "g2-standard-4", "g5.xlarge"),
     ({"names": ["c5.large"]}, "c5.large", "g5.xlarge"), ({}, "g5.xlarge", "c5.large")],
)  # fmt: skip
def test_filters_of_machines(filters, kept, dropped) -> None:
    names = {machine.instance_type for machine in m.choose_machines(TYPES, **filters)}
    assert kept in names
    assert dropped not in names


def times_of(instance_type="g4dn.xlarge", seconds=0.2, **changes) -> vs.Profile:
    times = {"batch_size": 64, "model": "net", "iteration_seconds": [seconds] * 10, **changes}
    return vs.Profile.from_times(instance_type=instance_type, **times)


def test_probed_machines_keep_their_measurement_and_others_are_predicted() -> None:
    names = ["g5.xlarge", "g4dn.xlarge", "c5.large", "nowhere"]
    frame = vs.predict(times_of(), machines=names, catalog=CATALOG)
    assert list(frame.columns) == ["instance_type", "step_seconds", "low", "high", "basis", "reason"]
    assert list(frame["instance_type"]) == names
    assert list(frame["basis"]) == ["predicted", "measured", None, None]
    assert frame["step_seconds"][1] == pytest.approx(0.2)
    assert frame["low"][0] < frame["step_seconds"][0] < frame["high"][0]
    assert list(frame["reason"].notna()) == [False, False, True, True]


def test_a_predicted_interval_is_wider_than_a_measured_one() -> None:
    both = vs.predict([times_of(), times_of("g5.xlarge", 0.09)], machines=["g5.xlarge"], catalog=CATALOG)
    predicted = vs.predict(times_of(), machines=["g5.xlarge", "g4dn.2xlarge"], catalog=CATALOG)
    width = both["high"] / both["low"]
    assert (predicted["high"] / predicted["low"] > width[0]).all()


def test_the_order_of_profiles_and_history_does_not_matter() -> None:
    probes = [times_of(), times_of("p3.2xlarge", 0.08)]
    history = [
        times_of(name, s, model=f"m{k}") for k in range(3) for name, s in (("g4dn.xlarge", 1), ("g6.xlarge", 0.6))
    ]
    names = ["g5.xlarge", "g6.xlarge"]
    first = vs.predict(probes, machines=names, history=history, catalog=CATALOG)
    again = vs.predict(probes[::-1], machines=names[::-1], history=history[::-1], catalog=CATALOG)
    assert first["step_seconds"].to_numpy() == pytest.approx(again["step_seconds"].to_numpy()[::-1], rel=1e-9)
    assert first["high"].to_numpy() == pytest.approx(again["high"].to_numpy()[::-1], rel=1e-9)


def test_the_whole_catalog_by_default() -> None:
    frame = vs.predict(times_of(), catalog=CATALOG)
    assert len(frame) > 150
    assert frame["instance_type"].is_unique
    assert (frame["step_seconds"].isna() == frame["reason"].notna()).all()


def test_wrong_arguments() -> None:
    with pytest.raises(ArgumentError):
        vs.predict(times_of(), history="folder", catalog=CATALOG)
    with pytest.raises(ArgumentError):
        vs.predict([times_of(), times_of("g5.xlarge", batch_size=32)], catalog=CATALOG)
    with pytest.raises(EstimateError):
        vs.predict(times_of(), batch_size=32, catalog=CATALOG)
    with pytest.raises(EstimateError):
        vs.predict(times_of(None), catalog=CATALOG)


# -- descriptions ------------------------------------------------------------------------------------------------------


def describe(made: vs.Profile, *, count: int = 500, size: int = 2048, **facts) -> vs.Profile:
    """``made`` with a description of its step."""
    row = Operation(facts.pop("kind", "mm"), 2.0 * size**3, 12.0 * size**2, size, size, size, 1, count)
    known = {"batch_size": 64, "parameters": 10**6, "parameter_tensors": 9, "optimizer": "adam", "method": "given"}
    return made.model_copy(update={"work": Work(operations=Operations.of([row]), **{**known, **facts})})


def only_described(**facts) -> vs.Profile:
    """A profile without machine and times, as ``vs.describe`` makes it."""
    made = profile(None)
    return describe(made.model_copy(update={"timeline": type(made.timeline)()}), **facts)


def test_a_description_is_predicted_without_any_probe() -> None:
    frame = vs.predict([only_described()], machines=["g4dn.xlarge", "g5.xlarge", "p3.2xlarge"], catalog=CATALOG)
    assert list(frame["basis"]) == ["described"] * 3
    assert (frame["low"] < frame["step_seconds"]).all()
    assert (frame["step_seconds"] < frame["high"]).all()
    assert frame["step_seconds"].argmax() == 0
    assert frame["reason"].isna().all()


def test_a_probe_sharpens_the_prediction_of_a_description() -> None:
    names = ["g4dn.xlarge", "g5.xlarge"]
    none = vs.predict([only_described()], machines=names, catalog=CATALOG).set_index("instance_type")
    one = vs.predict([only_described(), profile(seconds=2.0)], machines=names, catalog=CATALOG)
    one = one.set_index("instance_type")
    assert list(one["basis"]) == ["measured", "predicted"]
    ratios = [frame["high"]["g5.xlarge"] / frame["low"]["g5.xlarge"] for frame in (none, one)]
    assert ratios[1] < 0.8 * ratios[0]


def test_a_probe_without_a_gpu_contributes_its_description_and_its_wait_for_data() -> None:
    on_cpu = describe(profile("c5.large", 5.0))
    waits = describe(profile("c5.large", 5.0, wait=0.5))
    alone = vs.predict([only_described()], machines=["g5.xlarge"], catalog=CATALOG)
    free, bound = (vs.predict([made], machines=["g5.xlarge"], catalog=CATALOG) for made in (on_cpu, waits))
    assert free["basis"][0] == "described"
    assert free["step_seconds"][0] == pytest.approx(alone["step_seconds"][0])
    assert bound["step_seconds"][0] == pytest.approx(2.5)
    assert bound["low"][0] == pytest.approx(2.5)


@pytest.mark.parametrize("bad", [[profile(wait=0.6)], [profile(), profile(seconds=0.5)]])
def test_a_description_does_not_hide_that_probes_are_wrong_or_wait_for_data(bad) -> None:
    made = [describe(item) for item in bad]
    with_description, without = refused(probe(*made)), refused(probe(*bad))
    assert with_description == without


@pytest.mark.parametrize(
    ("name", "code"),
    [("c5.large", m.NO_GPU_SOLD), ("g4ad.xlarge", m.OTHER_VENDOR), ("dl1.24xlarge", m.OTHER_VENDOR),
     ("Standard_NV12ads_A10_v5", m.SHARED_GPU), ("g7.2xlarge", h.NO_FIGURES)],
)  # fmt: skip
def test_descriptions_are_refused_where_nothing_is_published(name, code) -> None:
    machine = TYPES.find(name, None) or Machine(name, "aws", "RTX-PRO-4500", 1)
    (result,) = Predictor([], TYPES, (), [only_described()]).predict([machine])
    assert isinstance(result, Refusal)
    assert result.code == code
    assert f"probe {name}" in result.reason


def test_a_description_without_operations_is_refused() -> None:
    empty = only_described().model_copy(update={"work": None})
    (result,) = Predictor([], TYPES, (), [empty]).predict([A10G])
    assert isinstance(result, Refusal)
    assert result.code == m.NO_COST


def test_launch_bound_steps_have_only_an_interval() -> None:
    tiny = only_described(count=3000, size=16)
    (result,) = Predictor([], TYPES, (), [tiny]).predict([A10G])
    assert isinstance(result, Prediction)
    assert result.launch_share > 0.6
    assert result.interval_only
    assert [finding.code for finding in result.cautions] == ["launch-bound"]
    frame = vs.predict([tiny], machines=["g5.xlarge"], catalog=CATALOG)
    assert frame["step_seconds"].isna().all()
    assert 0 < frame["low"][0] < frame["high"][0]
    assert frame["reason"][0]


def test_cautions_name_what_makes_a_description_uncertain() -> None:
    def codes(**facts) -> list[str]:
        (result,) = Predictor([], TYPES, (), [only_described(**facts)]).predict([A10G])
        return [finding.code for finding in result.cautions]

    assert codes() == []
    assert codes(kind="rnn") == ["recurrent-layers"]
    assert codes(caveats=("custom_step",)) == ["uncertain-description"]
    assert "embedding-tables" in codes(kind="embed", count=10_000)


def test_descriptions_in_the_history_are_read() -> None:
    (with_cost, without) = (m.read_history([made], TYPES) for made in (describe(profile()), profile()))
    assert with_cost[0].cost is not None
    assert without[0].cost is None
