"""The scripts of the page compute and print the same as Python, without a browser."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import vmselect as vs
from vmselect.catalog.age import today
from vmselect.intervals import Interval
from vmselect.ranking import MEASURES, Interruptions
from vmselect.ranking.views import PLURALS, REASONS, describe_reason
from vmselect.report.page import page_data
from vmselect.units import format_epochs, format_kg, format_kwh, format_seconds, format_usd

pytest.importorskip("py_mini_racer", reason="the page's scripts were not run: mini-racer is not installed")
sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from priced import OFFER, sell
from scripts import Scripts

FIELDS = ("epochs", "seconds", "seconds_low", "seconds_high", "cost_usd", "cost_low", "cost_high", "score", "chance")

prices = st.one_of(st.sampled_from([0.5, 1.0]), st.floats(0.01, 50))
machines = st.lists(
    st.tuples(st.floats(0, 500), st.floats(0.01, 100), st.floats(0, 30), prices, prices, st.booleans()),
    min_size=1, max_size=6,
)  # fmt: skip
limits = st.one_of(st.none(), st.floats(0.001, 10))
weights = st.one_of(st.sampled_from([0, 1]), st.integers(1, 99).map(lambda percent: percent / 100))
spot = st.one_of(
    st.none(),
    st.fixed_dictionaries({"per_hour": st.floats(0, 1), "checkpoint_minutes": st.floats(1, 30)}),
    st.fixed_dictionaries({"checkpoint_minutes": st.floats(1, 30)}),  # no rate of these machines is published
)


@pytest.fixture(scope="module")
def scripts() -> Iterator[Scripts]:
    engine = Scripts()
    yield engine
    engine.close()


def make(given_machines: list[Any], **options: Any) -> vs.Ranking:
    profiles = []
    for i, (start, epoch, validation, *_) in enumerate(given_machines):
        one = vs.Profile.from_times(
            instance_type=f"m{i}", batch_size=8, init_seconds=start, steps_per_epoch=10,
            iteration_seconds=[epoch / 10] * 6, validation_seconds=[validation, validation / 2],
        )  # fmt: skip
        plan = {"validation_freq": 3, "validation_from": 2}
        plan |= {"validation_until": 12, "early_stopping": 5, "epochs": 20} if i % 2 else {}
        profiles.append(one.model_copy(update={"setup": one.setup.model_copy(update=plan)}))
    catalog = sell(
        on_demand=[price for *_, price, _, _ in given_machines],
        spot=[on_spot if sold else None for *_, on_spot, sold in given_machines],
    )
    billing = options.pop("billing", None)
    return vs.rank(profiles, epochs=20, catalog=catalog.where(billing=billing), **options)


def agree(scripts: Scripts, expected: vs.Ranking, found: dict[str, Any]) -> None:
    rows = expected.rows
    assert [row["candidate"]["title"] for row in found["rows"]] == [row.title for row in rows]
    for there, here, terms in zip(found["rows"], rows, found["terms"], strict=True):
        assert [there[name] for name in FIELDS] == pytest.approx([getattr(here, name) for name in FIELDS], rel=1e-11)
        assert (there["tied"], there["pareto"], there["rank"]) == (here.tied_with_best, here.pareto, here.rank)
        assert there["limit_chances"] == pytest.approx(dict(here.limit_chances), abs=1e-6)
        assert {name: seconds for name, seconds in terms.items() if seconds} == pytest.approx(here.terms, abs=1e-6)
    assert found["regret"] == pytest.approx(expected.expected_regret, rel=1e-9, abs=1e-9)
    assert found["verdict"] == expected.verdict
    found_reasons = [(one["candidate"], one["reason_code"], one["reason"]) for one in found["left"]]
    assert found_reasons == [(one.candidate, one.reason_code, one.reason) for one in expected.deciding_excluded]


@settings(max_examples=40, deadline=None)
@given(
    machines, st.sampled_from([1, 2, 3, 20, 1000]), weights, limits, limits,
    st.sampled_from(["on_demand", "spot", "any"]), st.sampled_from(["exact", "provider"]), spot,
)  # fmt: skip
def test_values_order_ties_front_verdict_and_reasons_are_pythons(
    scripts: Scripts, given_machines: list[Any], epochs: int, time: float, deadline: float | None,
    budget: float | None, market: str, billing: Any, interruptions: Any,
) -> None:  # fmt: skip
    ranking = make(given_machines, billing=billing, interruptions=interruptions)
    weighed = {"cost": 1 - time, "time": time}
    changes = {"epochs": epochs, "deadline_hours": deadline, "budget_usd": budget, "market": market}
    found = scripts.rank(ranking, changes | {"weights": weighed})
    expected = ranking.rerank(
        epochs=epochs, objective=weighed, deadline_hours=deadline, budget_usd=budget,
        market="all" if market == "any" else market,
    )  # fmt: skip
    agree(scripts, expected, found)
    for name in MEASURES:
        there = [start for start, _ in found["leaders"].get(name, [])][1:]
        assert there == [change.epochs for change in expected.crossovers(name, up_to=500)]


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["aws", "gcp", "lab"]), st.floats(0.5, 2), st.integers(0, 300)),
             min_size=2, max_size=6),
    st.floats(0, 1), st.booleans(),
)  # fmt: skip
def test_errors_of_old_prices_and_published_interruptions_too(
    scripts: Scripts, sold: list[Any], time: float, limited: bool
) -> None:
    offers = [
        OFFER | {"provider": provider, "instance_type": f"m{i % 3}", "region": f"r{i}", "market": "spot",
                 "usd_per_hour": price, "date": today() - dt.timedelta(days=age)}
        for i, (provider, price, age) in enumerate(sold)
    ]  # fmt: skip
    profiles = [
        vs.Profile.from_times(
            instance_type=f"m{i}", batch_size=8, steps_per_epoch=100,
            iteration_seconds=[0.1 * (1 + i / 9 + k / 9) for k in range(4)],
        )
        for i in range(min(3, len(sold)))
    ]  # fmt: skip
    offers += [
        OFFER | {"provider": "aws", "instance_type": "g4ad.2xlarge", "region": region, "market": "spot"}
        for region in ("eu-central-1", "eu-west-1")
    ]
    profiles.append(
        vs.Profile.from_times(
            instance_type="g4ad.2xlarge", batch_size=8, steps_per_epoch=100, iteration_seconds=[0.1, 0.11, 0.12, 0.13]
        )
    )
    catalog = sell(on_demand=[9.0] * 3).with_offers(offers)
    ranking = vs.rank(
        profiles, epochs=20, catalog=catalog, region="all", market="spot", interruptions={"checkpoint_minutes": 600}
    )
    changes = {"budget_usd": 0.05, "deadline_hours": 0.07} if limited else {}
    expected = ranking.rerank(objective={"cost": 1 - time, "time": time}, **changes)
    agree(scripts, expected, scripts.rank(ranking, changes | {"weights": {"cost": 1 - time, "time": time}}))


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.floats(0.5, 3), min_size=2, max_size=2), st.floats(0, 300), st.integers(1, 6), st.floats(0, 0.3),
    st.booleans(),
)  # fmt: skip
def test_data_that_are_moved_and_several_nodes_too(
    scripts: Scripts, usd: list[float], size: float, nodes: int, per_hour: float, published: bool
) -> None:
    offers = [
        OFFER | {"provider": "aws", "instance_type": "g4ad.2xlarge", "region": region, "market": "spot",
                 "usd_per_hour": price}
        for region, price in zip(("eu-central-1", "eu-west-1"), usd, strict=True)
    ]  # fmt: skip
    profiles = [
        vs.Profile.from_times(
            instance_type="g4ad.2xlarge", batch_size=8, steps_per_epoch=1000, iteration_seconds=[0.1, 0.2, 0.1, 0.13],
            factors={"nodes": count},
        )
        for count in {1, nodes}
    ]  # fmt: skip
    interruptions: dict[str, Any] = {"checkpoint_minutes": 20} | ({} if published else {"per_hour": per_hour})
    data = {"data_gb": size, "download_seconds_per_mb": 0.001, "provider": "aws", "region": "eu-west-1"}
    ranking = vs.rank(
        profiles, epochs=20, catalog=sell(on_demand=[9.0]).with_offers(offers), region="all", market="spot",
        interruptions=interruptions, transfer=data, deadline_hours=2,
    )  # fmt: skip
    agree(scripts, ranking, scripts.rank(ranking, {}))
    assert sum(row.chance for row in ranking.deciding_rows) == pytest.approx(float(bool(ranking)))


TWO_GRIDS = sell(on_demand=[2.0, 1.0, 0.7, 0.5]).with_offers(
    [OFFER | {"instance_type": "m0", "provider": "gcp", "region": "us-central1", "usd_per_hour": 3.0}]
)
powers = st.lists(st.one_of(st.none(), st.floats(10, 500)), min_size=4, max_size=4)
grid = st.sampled_from(
    [{"country": "DE"}, {}, {"grid_g_per_kwh": 300}, {"hourly": [100, 0, 500], "start_hour": 1.5}, {"basis": "market"}]
)
shares = st.tuples(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1), st.floats(0.01, 1))


@settings(max_examples=12, deadline=None)
@given(powers, st.floats(0.5, 2), shares, st.one_of(st.none(), st.floats(1e-4, 1)), st.booleans(), grid)
def test_energy_and_co2_too(
    scripts: Scripts, watts: list[float | None], speed: float, weighed: tuple[float, ...], most: float | None,
    likely: bool, emissions: Any,
) -> None:  # fmt: skip
    profiles = [
        vs.Profile.from_times(
            instance_type=f"m{i}", batch_size=8, steps_per_epoch=100, gpu_watts=power,
            iteration_seconds=[0.1 * (1 + i * speed + k / 9) for k in range(4)],
        )
        for i, power in enumerate(watts)
    ]  # fmt: skip
    ranking = vs.rank(profiles, epochs=20, catalog=TWO_GRIDS, emissions=emissions)
    objective = dict(zip(("cost", "time", "energy", "co2"), weighed, strict=True))
    changes = {"objective": objective, "co2_limit_kg": most, "chance": 0.8 if likely and most else None}
    expected = ranking.rerank(**changes)
    settings = {name: changes[name] for name in ("co2_limit_kg", "chance")}
    found = scripts.rank(ranking, settings | {"weights": dict(expected.settings.objective)})
    agree(scripts, expected, found)
    for there, here in zip(found["rows"], expected.rows, strict=True):
        for name in ("energy", "co2"):
            numbers = [there[field] for field in MEASURES[name].fields]
            assert numbers == pytest.approx(list(here.measures[name] or [None] * 3), rel=1e-9, nan_ok=True)


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(0.001, 1), min_size=4, max_size=4), st.lists(st.integers(2, 60), min_size=4, max_size=4),
    weights, limits,
)  # fmt: skip
def test_pairs_of_machine_and_batch_size_too(
    scripts: Scripts, steps: list[float], counts: list[int], time: float, deadline: float | None
) -> None:
    sizes = [(name, size) for name in ("m0", "m1") for size in (64, 256)]
    profiles = [
        vs.Profile.from_times(
            instance_type=name, batch_size=size, steps_per_epoch=6400 // size, iteration_seconds=[s] * 5
        )
        for (name, size), s in zip(sizes, steps, strict=True)
    ]  # fmt: skip
    study = vs.ConvergenceStudy.from_epochs({64: counts[:2], 256: counts[2:]}, metrics={64: 0.9, 256: 0.8})
    ranking = vs.rank(profiles, epochs=study, catalog=sell(on_demand=[1.0, 2.5]))
    weighed = {"cost": 1 - time, "time": time}
    found = scripts.rank(ranking, {"weights": weighed, "deadline_hours": deadline})
    agree(scripts, ranking.rerank(objective=weighed, deadline_hours=deadline), found)


@settings(max_examples=40, deadline=None)
@given(
    st.floats(1, 1e6), st.floats(0, 0.5), st.floats(0, 1), st.floats(0, 2), st.floats(1, 59), st.floats(0.5, 3),
)  # fmt: skip
def test_the_probability_of_meeting_a_deadline_is_pythons(
    scripts: Scripts, value: float, below: float, above: float, per_hour: float, minutes: float, deadline: float
) -> None:
    rate = Interruptions(per_hour=per_hour, checkpoint_minutes=minutes, restart_minutes=0)
    work, limit = Interval(value, value * (1 - below), value * (1 + above)), value * deadline
    found = scripts.call(
        "chanceWithin(work, limit, spot)", work=work._asdict(), limit=limit, spot=rate.to_dict(confidence=0.9)
    )
    assert found == pytest.approx(rate.chance_within(work, limit, confidence=0.9), abs=1e-6)


@settings(max_examples=25, deadline=None)
@given(machines, weights, st.floats(0.001, 10), spot)
def test_the_note_about_a_spot_machine_is_pythons(
    scripts: Scripts, given_machines: list[Any], time: float, deadline: float, interruptions: Any
) -> None:
    ranking = make(
        given_machines, market="spot", interruptions=interruptions, deadline_hours=deadline,
        objective={"cost": 1 - time, "time": time},
    )  # fmt: skip
    if not ranking:
        return
    text = scripts.call(
        """(() => {
            const { candidates, initial } = readReport(payload);
            const [row] = rank(candidates, initial).rows;
            return spotDeadlineParts(row, candidates, initial).map((part) => part.name ?? part).join("");
        })()""",
        payload=page_data(ranking),
    )
    assert text == next(str(finding) for finding in ranking.best.findings if finding.code == "spot-deadline")


@settings(max_examples=15, deadline=None)
@given(
    st.floats(0.05, 2.0), st.lists(st.sampled_from(["g5.xlarge", "g6.xlarge", "g6.2xlarge", "g5.8xlarge"]), min_size=1),
    st.sampled_from([1, 50, 5000]), weights, limits,
)  # fmt: skip
def test_predicted_machines_and_the_next_probe_too(
    scripts: Scripts, step: float, names: list[str], epochs: int, time: float, deadline: float | None
) -> None:
    profile = vs.Profile.from_times(
        instance_type="g4dn.xlarge", batch_size=64, steps_per_epoch=1000, iteration_seconds=[step] * 6, model="net"
    )
    ranking = vs.rank([profile], epochs=10, machines=names, catalog=vs.Catalog.embedded("2026-08-22"))
    weighed = {"cost": 1 - time, "time": time}
    found = scripts.rank(ranking, {"weights": weighed, "epochs": epochs, "deadline_hours": deadline})
    expected = ranking.rerank(objective=weighed, epochs=epochs, deadline_hours=deadline)
    agree(scripts, expected, found)
    there, here = found["probe"], expected.next_probe
    assert (there is None) == (here is None)
    if here is not None:
        assert there["row"]["candidate"]["instance_type"] == here.instance_type
        assert [there["cost"], there["saving"]] == pytest.approx([here.probe_usd, here.expected_saving_usd], rel=1e-6)


@settings(max_examples=8, deadline=None)
@given(st.floats(0.05, 1.0), st.floats(1.0, 3.0), st.sampled_from([1, 50, 5000]), weights, limits)
def test_the_number_of_gpus_too(
    scripts: Scripts, step: float, ratio: float, epochs: int, time: float, deadline: float | None
) -> None:
    def profile(name: str, seconds: float, size: int) -> vs.Profile:
        one = vs.Profile.from_times(
            instance_type=name,
            batch_size=size,
            steps_per_epoch=64000 // size,
            iteration_seconds=[seconds] * 6,
            model="net",
        )
        gpus = size // 64
        seen = one.environment.model_copy(update={"replicas": gpus, "framework_gpus": gpus})
        return one.model_copy(update={"environment": seen, "outcome": "stopped"})

    probes = [profile("g4dn.xlarge", step, 64), profile("g4dn.12xlarge", ratio * step, 128)]
    names = ["g4dn.12xlarge", "g4dn.metal", "g5.xlarge", "g5.12xlarge", "g6.xlarge", "g6.48xlarge"]
    catalog, scale = vs.Catalog.embedded("2026-08-22"), vs.Scale(gpus=[1, 4, 8])
    ranking = vs.rank(probes, epochs=10, machines=names, scale=scale, catalog=catalog)
    weighed = {"cost": 1 - time, "time": time}
    found = scripts.rank(ranking, {"weights": weighed, "epochs": epochs, "deadline_hours": deadline})
    expected = ranking.rerank(objective=weighed, epochs=epochs, deadline_hours=deadline)
    agree(scripts, expected, found)
    assert found["scaling"]["text"] == expected.scaling_verdict
    table = expected.scaling
    for gpu, counts in found["scaling"]["models"]:
        for gpus, seconds, cost, efficiency in counts:
            rows = table[(table["gpu_model"] == gpu) & (table["gpus"] == gpus)]
            assert [seconds, cost] == pytest.approx([rows["seconds"].min(), rows["cost_usd"].min()], rel=1e-11)
            assert (efficiency is None) == rows["efficiency"].isna().all()
            assert efficiency is None or efficiency == pytest.approx(rows["efficiency"].max(), rel=1e-9)


@given(st.just(0.0) | st.floats(1e-12, 1e7), st.integers(1, 10**6))
def test_numbers_are_printed_alike(scripts: Scripts, value: float, eighths: int) -> None:
    for x in (value, eighths / 8):
        found = scripts.call("[formatSeconds(x), formatUsd(x), formatEpochs(x), formatKwh(x), formatKg(x)]", x=x)
        assert found == [format_seconds(x), format_usd(x), format_epochs(x), format_kwh(x), format_kg(x)]


def name_all(scripts: Scripts, *given: dict[str, Any]) -> list[str]:
    blank = {"instance_type": "m", "market": "spot", "region": "x", "service": "vm", "provider": "p", "batch_size": 8}
    candidates = [blank | {"varied": None} | one for one in given]
    return list(
        scripts.call("(nameCandidates(candidates), candidates.map(({ label }) => label))", candidates=candidates)
    )


def test_a_label_leaves_out_what_candidates_share(scripts: Scripts) -> None:
    assert name_all(scripts, {}, {"instance_type": "n", "region": "y", "provider": "q"}) == ["m", "n"]
    assert name_all(scripts, {}, {"instance_type": "n", "market": "on_demand"}) == ["m · spot", "n · on demand"]
    sizes = name_all(scripts, {}, {"batch_size": 32}, {"instance_type": "n", "batch_size": 32})
    assert sizes == ["m · batch 8", "m · batch 32", "n"]
    both = name_all(scripts, {}, {"region": "y", "market": "on_demand"}, {"region": "y"})
    assert both == ["m · spot · x", "m · on demand · y", "m · spot · y"]


def test_a_short_label_keeps_the_machine_and_what_follows(scripts: Scripts) -> None:
    def shorten(most: int, *parts: str) -> str:
        parts = ("Standard_NC24ads_A100_v4", *parts)
        return str(scripts.call("shortLabel({ labelParts }, most)", labelParts=parts, most=most))

    assert shorten(36, "spot", "westeurope") == "Standard_NC24ads_A100_v4 · spot"
    assert shorten(24, "spot") == "Standard_…A100_v4 · spot"
    assert shorten(12, "on demand") == "Stand…_v4 · on demand"
    assert shorten(36) == "Standard_NC24ads_A100_v4"


def test_a_finding_of_the_best_candidate_is_shown_once(scripts: Scripts) -> None:
    messages = [
        ("waits", "a idles. Over 9 epochs that is 1 s."),
        ("waits", "a idles."),
        ("waits", "b idles."),
        ("x", "a idles."),
    ]
    findings = [{"code": code, "message": message, "severity": "warning"} for code, message in messages]
    payload = {"findings": findings, "ranking_findings": [0], "page": {"restated_findings": [1]}}
    found = scripts.call(
        "readFindings(payload, []).map((kind) => kind.messages.map((one) => one.number))", payload=payload
    )
    assert found == [[0, 2], [3]]  # by kind


def test_a_label_has_at_most_two_lines(scripts: Scripts) -> None:
    def lines(most: int, *fields: str) -> list[str]:
        parts = ("Standard_NC24ads_A100_v4", *fields)
        one = {"label": " · ".join(parts), "labelParts": parts}
        return list(scripts.call("labelLines(one, most)", one=one, most=most))

    name = "Standard_NC24ads_A100_v4"
    assert lines(24, "on demand", "batch 128") == [name, "on demand · batch 128"]
    assert lines(21, "on demand", "batch 128") == ["Standard_NC…s_A100_v4", "on demand · batch 128"]
    assert lines(24, "on demand", "batch 128", "westeurope") == [name, "on demand · … westeurope"]
    assert lines(60, "spot") == [f"{name} · spot"]
    assert lines(24) == [name]
    assert lines(12) == ["Standa…00_v4"]


def test_reasons_are_described_as_in_python(scripts: Scripts) -> None:
    assert scripts.call("[REASONS, PLURALS]") == [REASONS, PLURALS]
    pairs = [(code, count) for code in (*REASONS, "another_reason") for count in (1, 2, 1234)]
    found = scripts.call("pairs.map(([code, count]) => describeReason(code, count))", pairs=pairs)
    assert found == [describe_reason(code, count) for code, count in pairs]


@pytest.mark.parametrize(
    ("model", "count", "text"),
    [("T4", 1, "T4"), ("T4", 4, "4 × T4"), ("L4", 0.125, "0.125 × L4"), ("L4", None, "L4"), (None, 0, "none")],
)
def test_the_table_states_a_share_of_a_gpu(scripts: Scripts, model: str | None, count: float | None, text: str) -> None:
    assert scripts.call("gpuText({ candidate })", candidate={"gpu_model": model, "gpu_count": count}) == text


def test_findings_that_differ_only_in_their_machine_are_one_item(scripts: Scripts) -> None:
    probe = vs.Profile.from_times(
        instance_type="g4dn.xlarge", batch_size=8, steps_per_epoch=10, iteration_seconds=[0.02] * 9
    )
    ranking = vs.rank(
        probe, epochs=5, machines=["g5.xlarge", "g6.xlarge", "p4d.24xlarge"], catalog=vs.Catalog.embedded()
    )
    items = scripts.call("readReport(payload).findings", payload=page_data(ranking))
    codes = [item["code"] for item in items]
    assert len(set(codes)) == len(codes)
    remedies = {item["code"]: item["remedy"] for item in items}
    assert "g5.xlarge" not in remedies["short-steps-predicted"]
