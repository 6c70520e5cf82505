"""Plans: trials, prices, locations, files, and errors before anything starts."""

from __future__ import annotations

import re

import pytest

import vmselect as vs
from vmselect.errors import PlanError
from vmselect.sweeps.plan import _Loader
from vmselect.sweeps.runners.skypilot import resources_of

COMMAND = "python train.py --batch {batch_size}"
FACTORS = {"machine": ["small", "big"], "batch_size": [64, 256]}
MACHINES = {"small": {"cores": 1}, "big": {"cores": 2}}


def test_trials_are_the_combinations_that_the_rules_allow() -> None:
    plan = vs.Plan(COMMAND, factors=FACTORS, machines=MACHINES, repetitions=2, minutes=5,
                   exclude=[{"machine": "small", "batch_size": 256}])  # fmt: skip
    assert sorted(trial.id for trial in plan.trials) == ["001", "002", "003", "004", "005", "006"]
    assert not [t for t in plan.trials if t.factors == {"machine": "small", "batch_size": 256}]
    included = vs.Plan("python t.py", factors={"a": [1, 2, 3], "b": ["x", "y"]}, include=[{"a": [1, 2], "b": "x"}])
    assert sorted(tuple(t.factors.values()) for t in included.trials) == [(1, "x"), (2, "x")]


def test_seed_sets_the_order_and_blocks_stay_together() -> None:
    def order(**arguments: object) -> list[str]:
        plan = vs.Plan("python t.py", factors={"a": list(range(8))}, repetitions=3, **arguments)  # type: ignore[arg-type]
        return [trial.id for trial in plan.trials]

    assert order(seed=1) == order(seed=1) != order(seed=2)
    assert order(seed=None, blocks=()) == sorted(order(seed=1))
    plan = vs.Plan("python t.py", factors={"a": list(range(8))}, repetitions=3, seed=5)
    assert [plan.trials[i].repetition for i in (0, 7)] == [plan.trials[0].repetition] * 2
    by_factor = vs.Plan("python t.py", factors={"a": [1, 2], "b": [1, 2, 3]}, blocks="a")
    assert len({trial.factors["a"] for trial in by_factor.trials[:3]}) == 1


def test_cost_is_price_times_nodes_and_time_cap() -> None:
    catalog = vs.Catalog.embedded("2026-08-22").with_offers(
        [{"provider": "lab", "instance_type": "small", "region": "here", "market": "on_demand", "usd_per_hour": 2.0}]
    )
    plan = vs.Plan("python t.py", factors={"machine": ["small", "other"], "nodes": [1, 3]}, minutes=30)
    frame = plan.to_frame(catalog).set_index(["machine", "nodes"])
    assert frame["worst_usd"].to_dict() == {("small", 1): 1.0, ("small", 3): 3.0, ("other", 1): 0.0, ("other", 3): 0.0}
    rented = vs.Plan("python t.py", runner="skypilot", factors={"instance_type": ["g4dn.xlarge"]}, minutes=60,
                     expected_minutes=15)  # fmt: skip
    assert rented.to_frame(catalog)[["estimated_usd", "worst_usd"]].iloc[0].tolist() == pytest.approx(
        [0.526 / 4, 0.526 * 65 / 60]  # five minutes to end it are paid, too
    )


BAD: list[tuple[dict[str, object], tuple[str | int, ...]]] = [
    ({"command": "python t.py {size}"}, ("command",)),
    ({"command": "python t.py | tee log"}, ("command",)),
    ({"command": "bash -c 'echo {batch_size}'"}, ("command",)),
    ({"command": " "}, ("command",)),
    ({"command": "python 't.py"}, ("command",)),
    ({"exclude": [{"color": 1}]}, ("exclude", 0, "color")),
    ({"exclude": [{"batch_size": 65}]}, ("exclude", 0)),
    ({"exclude": [{"batch_size": [64, 256]}]}, ("exclude",)),
    ({"factors": {"batch_size": []}}, ("factors", "batch_size")),
    ({"factors": {"batch_size": [64, 64]}}, ("factors", "batch_size")),
    ({"factors": {"batch_size": ["$(reboot)"]}}, ("factors", "batch_size")),
    ({"factors": {"nodes": [0]}}, ("factors", "nodes")),
    ({"factors": {f"f{i}": list(range(10)) for i in range(6)}}, ("factors",)),
    ({"minutes": 0}, ("minutes",)),
    ({"minutes": 1e9}, ("minutes",)),
    ({"repetitions": 0}, ("repetitions",)),
    ({"runner": "carrier pigeon"}, ("runner",)),
    ({"runner": "ssh"}, ("factors",)),
    ({"runner": "skypilot"}, ("factors",)),
    ({"factors": {"machine": ["smal"]}, "machines": {"small": {}}}, ("factors", "machine")),
    ({"machines": {"small": {}}}, ("machines", "small")),
    ({"factors": {"machine": ["m"]}, "machines": {"m": {"croes": 1}}}, ("machines", "m", "croes")),
    ({"runner": "ssh", "factors": {"machine": ["a"]}, "machines": {"a": {"host": "-oProxyCommand=x"}}},
     ("machines", "a")),
    ({"runner": "ssh", "factors": {"machine": ["-oProxyCommand=x"]}}, ("factors", "machine")),
    ({"runner": "ssh", "factors": {"machine": ["-oX=y"]}, "machines": {"-oX=y": {}}}, ("machines", "-oX=y")),
    ({"runner": "slurm", "factors": {"machine": ["a"]}, "machines": {"a": {"python": "--bcast"}}}, ("machines", "a")),
    ({"factors": {"lr": [1], "LR": [2]}}, ("factors", "LR")),
    ({"environment": {"MY_API_KEY": "123"}}, ("environment", "MY_API_KEY")),
]  # fmt: skip


@pytest.mark.parametrize(("given", "where"), BAD)
def test_error_names_its_location_in_the_plan(given, where) -> None:
    arguments = {"command": "python t.py", "factors": {"batch_size": [64, 256]}} | given
    with pytest.raises(PlanError) as caught:
        vs.Plan(**arguments)  # type: ignore[arg-type]
    assert caught.value.where == where


def test_plan_that_cannot_run_fails_before_anything_starts(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.py").write_text("")
    for plan in (
        vs.Plan("python missing.py"),
        vs.Plan("python t.py", factors={"instance_type": ["g4dn.xlargest"]}),
        vs.Plan("pythonic t.py"),
        vs.Plan("python t.py", factors={"machine": ["m"]}, machines={"m": {"cores": 4096}}),
    ):
        with pytest.raises(PlanError):
            vs.sweep(plan, tmp_path / "out", yes=True)
        assert not (tmp_path / "out").exists()


LINES = {
    "command: python t.py\nfacters: {}\n": 2,
    "command: python t.py\nfactors:\n  a: [1]\n  b: [2, 2]\n": 4,
    "command: python t.py\n\nminutes: soon\n": 3,
    "command: python t.py\nfactors: {a: [1]}\nexclude:\n  - a: 2\n": 4,
    "command: a\nmachines:\n  m:\n    cores: none\nfactors: {machine: [m]}\n": 3,
    "factors: {a: [1]}\n": None,
    "command: [\n": 2,
    "command: a\ncommand: b\n": 2,
    "command: a\n1: b\n": 2,
    "": None,
    "- a\n": None,
    "command: !!python/object:os.system x\n": 1,
    "a: &a [x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\n"
    "e: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f]\n": None,
    "command: &a [*a]\n": None,
    "command: a\nfactors: {a: [2026-13-45, 0x, 1e999]}\n": 2,
}


@pytest.mark.parametrize("text", LINES)
def test_error_in_a_file_names_its_line(text, tmp_path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    with pytest.raises(PlanError) as caught:
        vs.Plan.load(path)
    start = re.match(rf"{re.escape(str(path))}(?: line (\d+))?: ", str(caught.value))
    assert start
    assert (start[1] and int(start[1])) == LINES[text]


def test_plan_is_read_back_from_its_file(tmp_path) -> None:
    plan = vs.Plan(COMMAND, factors=FACTORS, machines=MACHINES, repetitions=2, minutes=5, environment={"B": None},
                   exclude=[{"machine": "small", "batch_size": [256]}])  # fmt: skip
    again = vs.Plan.load(plan.save(tmp_path / "plan.yaml"))
    assert again == plan
    assert [t.id for t in again.trials] == [t.id for t in plan.trials]
    assert plan.fingerprint == "9ba79ff68156fa4a", "the journal of an earlier version holds it"


@pytest.mark.parametrize("level", ["1e-3", "5e1", "+1e5", "0x1f", "yes", "1:30", "2024-01-01", "1_000", "eggs", 1e-7])
def test_level_is_read_back_from_its_file(level, tmp_path) -> None:
    plan = vs.Plan("python t.py", factors={"a": [level]})
    assert vs.Plan.load(plan.save(tmp_path / "plan.yaml")).fingerprint == plan.fingerprint


def test_plan_replaces_a_plan_and_no_other_file(tmp_path) -> None:
    plan, path = vs.Plan("python t.py", factors={"a": [1, 2]}), tmp_path / "plan.yaml"
    assert vs.Plan.load(plan.save(plan.save(path))) == plan
    path.write_text("services:\n  web: {image: nginx}\n")
    with pytest.raises(PlanError):
        plan.save(path)
    assert path.read_text().startswith("services:")


def test_numbers_in_a_file_are_numbers_and_a_command_may_be_a_list(tmp_path) -> None:
    (tmp_path / "p.yaml").write_text("command: a {lr}\nfactors: {lr: [1e-3, 0.01, adam, yes]}\n")
    assert vs.Plan.load(tmp_path / "p.yaml").factors["lr"] == (0.001, 0.01, "adam", True)
    listed = vs.Plan(["python", "a b.py", "x|y"])
    assert listed.trials[0].arguments == ("python", "a b.py", "x|y")


def test_attached_accelerators_need_a_price() -> None:
    catalog = vs.Catalog.embedded("2026-08-22")

    def plan(**properties: object) -> vs.Plan:
        machine = {"instance_type": "n1-standard-4", "accelerators": "V100:4", "cloud": "gcp", **properties}
        return vs.Plan("python t.py", runner="skypilot", factors={"machine": ["m"]}, machines={"m": machine})

    with pytest.raises(PlanError):
        plan().prices(catalog)
    assert plan(usd_per_hour=9.0).prices(catalog) == {"001": 9.0}
    assert plan(usd_per_hour=9.0).locations(catalog) == {}


def test_a_budget_is_not_kept_at_an_implausible_price() -> None:
    half = {"provider": "aws", "instance_type": "p5.48xlarge", "region": "us-east-1", "usd_per_hour": 20.0}
    catalog = vs.Catalog.embedded("2026-08-22")
    factors = {"instance_type": ["p5.48xlarge"]}
    plan = vs.Plan("python t.py", runner="skypilot", factors=factors, minutes=60)
    assert plan.prices(catalog) == {"001": 55.04}
    with pytest.raises(PlanError, match="usd_per_hour"):
        plan.prices(catalog.with_offers([half | {"source": "skypilot"}]))
    assert plan.prices(catalog.with_offers([half])) == {"001": 20.0}  # the user knows what is paid


@pytest.mark.parametrize(("cloud", "locations"), [("AWS/us-east-1", ["aws/us-east-1"]), ("elsewhere", [])])
def test_location_of_a_price_follows_the_named_cloud(cloud, locations) -> None:
    machine = {"instance_type": "g5.xlarge", "cloud": cloud}
    plan = vs.Plan("python t.py", runner="skypilot", factors={"machine": ["m"]}, machines={"m": machine})
    assert list(plan.locations(vs.Catalog.embedded("2026-08-22")).values()) == locations


def test_machines_are_rented_in_the_location_of_their_price() -> None:
    plan = vs.Plan("python t.py", runner="skypilot", minutes=10, seed=None,
                   factors={"instance_type": ["g5.xlarge", "Standard_NC4as_T4_v3", "n1-standard-4+1xT4"]})  # fmt: skip
    locations = plan.locations(vs.Catalog.embedded("2026-08-22"))
    assert list(locations.values()) == ["aws/us-east-1", "azure/eastus", "gcp/us-central1"]
    for trial in plan.trials:
        fields = resources_of(trial, locations[trial.offer])
        assert fields["infra"] == locations[trial.offer]
        assert not {"region", "cloud"} & fields.keys()


def test_rules_take_no_time_for_every_pair_of_levels() -> None:
    levels = list(range(30_000))  # with all pairs, minutes
    exclude = [{"a": levels[:15_000]}, *({"a": level} for level in levels[:9])]
    plan = vs.Plan("python t.py", factors={"a": levels}, exclude=exclude, include=[{"a": levels[10_000:20_000]}])
    assert len(plan.trials) == 5_000


def test_local_plan_with_types_to_rent_must_be_marked(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    factors = {"instance_type": ["g4dn.xlarge"]}
    for level_lists in (factors, {"machine": ["g4dn.xlarge"]}):
        with pytest.raises(PlanError) as caught:
            vs.sweep(vs.Plan("python -c pass", factors=level_lists), tmp_path / "out", yes=True)
        assert caught.value.where == ("runner",)
        assert not (tmp_path / "out").exists()
    marked = vs.Plan("python -c pass", factors=factors, stand_ins=True)
    marked.check_stand_ins()
    assert "this computer" in marked.location
    assert vs.Plan.load(marked.save(tmp_path / "plan.yaml")) == marked
    plain = vs.Plan("python -c pass", factors=factors)
    assert "stand_ins" not in plain.to_dict()  # a sweep of an earlier version can be resumed
    vs.Plan("python -c pass", runner="ssh", factors={"machine": ["g4dn.xlarge"]}).check_stand_ins()


def test_own_machine_with_a_price_is_no_type_to_rent() -> None:
    def sold_by(provider: str, name: str) -> vs.Catalog:
        offer = {"provider": provider, "instance_type": name, "region": "here", "usd_per_hour": 1.0}
        return vs.Catalog.embedded().with_offers([{**offer, "market": "on_demand"}])

    plan = vs.Plan("python -c pass", factors={"machine": ["small"]})
    plan.check_stand_ins(sold_by("desk", "small"))
    with pytest.raises(PlanError):
        plan.check_stand_ins(sold_by("aws", "small"))
    with pytest.raises(PlanError):  # also if the prices of the user do not name it
        vs.Plan("python -c pass", factors={"machine": ["g4dn.xlarge"]}).check_stand_ins(sold_by("desk", "small"))


@pytest.mark.parametrize("text", ["[" * 1000 + "]" * 1000, "a: " + "{b: " * 1000, "- " * 1000], ids=["[", "{", "-"])
def test_a_deeply_nested_file_is_refused_before_it_is_read(text, tmp_path, monkeypatch) -> None:
    """PyYAML takes seconds for a thousand brackets, so loading ends at the depth limit."""
    loader, nodes = _Loader.compose_node, []
    monkeypatch.setattr(_Loader, "compose_node", lambda *arguments: nodes.append(1) or loader(*arguments))
    (tmp_path / "plan.yaml").write_text(text)
    with pytest.raises(PlanError, match="line 1"):
        vs.Plan.load(tmp_path / "plan.yaml")
    assert len(nodes) < 20
