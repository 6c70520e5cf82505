"""Properties of every load, whatever its times."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vmselect as vs
from vmselect.records import InferenceRecord
from vmselect.records.inference import bucket_of, bucket_seconds, count_buckets, percentile_of, percentile_of_buckets

times = st.floats(min_value=1e-6, max_value=1e4)
percents = st.floats(min_value=0.1, max_value=100)


@given(st.lists(times, min_size=1, max_size=300), percents)
def test_a_histogram_gives_every_percentile_within_half_a_percent(values: list[float], percent: float) -> None:
    exact = percentile_of(values, percent)
    assert percentile_of_buckets(count_buckets(values), percent) == pytest.approx(exact, rel=0.0051)


@given(times)
def test_a_bucket_stands_for_what_is_in_it(seconds: float) -> None:
    assert bucket_seconds(bucket_of(seconds)) == pytest.approx(seconds, rel=0.0051)


@given(st.lists(times, min_size=1, max_size=100), st.randoms(use_true_random=False), percents, percents)
def test_percentiles_rise_and_do_not_depend_on_the_order(
    values: list[float], rnd: Any, first: float, second: float
) -> None:
    shuffled = list(values)
    rnd.shuffle(shuffled)
    record, twin = (InferenceRecord.from_times(instance_type="a", call_seconds=v) for v in (values, shuffled))
    low, high = sorted((first, second))
    assert record.percentile(low) <= record.percentile(high)  # type: ignore[operator]
    assert record.percentile(first) == twin.percentile(first)
    assert record.percentile(100) == max(values)


@given(st.lists(times, min_size=1, max_size=50), st.integers(1, 64), st.integers(1, 8))
def test_a_record_survives_its_file(tmp_path_factory: Any, values: list[float], batch: int, clients: int) -> None:
    folder = tmp_path_factory.mktemp("records")
    record = InferenceRecord.from_times(instance_type="a", call_seconds=values, batch_size=batch, clients=clients)
    record.save(folder)
    assert vs.load_records(folder) == [record]
    assert record.items_per_second == pytest.approx(batch * len(values) * clients / sum(values))


@settings(max_examples=200)
@given(st.data())
def test_a_damaged_record_is_refused(tmp_path_factory: Any, data: st.DataObject) -> None:
    record = InferenceRecord.from_times(instance_type="a", call_seconds=[0.1, 0.2, 0.3])
    content = json.loads(record.to_json())
    part = data.draw(st.sampled_from([content, content["calls"], content["setup"]]))
    key = data.draw(st.sampled_from(sorted(part)))
    part[key] = data.draw(st.sampled_from([None, -1, "x", [], {}, [1], 1e400, True]))
    path = tmp_path_factory.mktemp("damaged") / "r.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    try:
        (record,) = vs.load_records(path)
    except vs.errors.ProfileError:
        return
    assert record.kind in ("inference", "training", "convergence", "transfer")


@given(st.lists(st.floats(0.001, 0.05), min_size=20, max_size=60), st.floats(1, 100), st.floats(1.0, 3.0))
@settings(max_examples=50, deadline=None)
def test_in_an_open_loop_a_higher_rate_never_makes_an_answer_come_sooner(
    beats: list[float], rate: float, factor: float
) -> None:
    def latencies(calls_per_second: float) -> list[float]:
        now = 0

        def sleep(seconds: float) -> None:
            nonlocal now
            now += round(seconds * 1e9)

        left = iter([0.0, *beats])
        probe = vs.serving.probe_inference(rate=calls_per_second, verbose=0, clock=lambda: now, sleep=sleep)
        with probe as p:
            return list(p.run(lambda _: sleep(next(left)), range(len(beats) + 1)).calls.latency)

    # A nanosecond is what the clock rounds to; each call may add one.
    slack = 1e-9 * (len(beats) + 2)
    for slow, fast in zip(latencies(rate), latencies(rate * factor), strict=True):
        assert fast >= slow - slack
