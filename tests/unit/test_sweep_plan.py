"""Plans: the design, the file, and everything that must fail before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

import vmselect as vs
from vmselect.errors import PlanError
from vmselect.sweeps.command import split_command

COMMAND = "python train.py --batch {batch_size}"
FACTORS = {"machine": ["small", "big"], "batch_size": [64, 256]}
MACHINES = {"small": {"cores": 1}, "big": {"cores": 2}}


def test_every_combination_less_what_is_excluded_as_often_as_asked() -> None:
    plan = vs.Plan(COMMAND, factors=FACTORS, machines=MACHINES, repetitions=2, minutes=5,
                   exclude=[{"machine": "small", "batch_size": 256}])  # fmt: skip
    assert len(plan.trials) == 6
    assert sorted(trial.id for trial in plan.trials) == ["001", "002", "003", "004", "005", "006"]
    assert {trial.command for trial in plan.trials} == {"python train.py --batch 64", "python train.py --batch 256"}
    assert not [t for t in plan.trials if t.factors == {"machine": "small", "batch_size": 256}]


def test_the_seed_decides_the_order_and_blocks_stay_together() -> None:
    def order(**given: object) -> list[str]:
        plan = vs.Plan("python t.py", factors={"a": list(range(8))}, repetitions=3, **given)  # type: ignore[arg-type]
        return [trial.id for trial in plan.trials]

    assert order(seed=1) == order(seed=1) != order(seed=2)
    assert order(seed=None, blocks=()) == sorted(order(seed=1))
    plan = vs.Plan("python t.py", factors={"a": list(range(8))}, repetitions=3, seed=5)
    assert [plan.trials[i].repetition for i in (0, 7)] == [plan.trials[0].repetition] * 2
    by_factor = vs.Plan("python t.py", factors={"a": [1, 2], "b": [1, 2, 3]}, blocks="a")
    assert len({trial.factors["a"] for trial in by_factor.trials[:3]}) == 1


def test_include_keeps_only_what_fits() -> None:
    plan = vs.Plan("python t.py", factors={"a": [1, 2, 3], "b": ["x", "y"]}, include=[{"a": [1, 2], "b": "x"}])
    assert [dict(t.factors) for t in plan.trials if t.factors["b"] != "x"] == []
    assert len(plan.trials) == 2


def test_prices_come_from_the_catalog_times_nodes_and_cap() -> None:
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


BAD = {
    "unknown factor": ({"command": "python t.py {size}"}, "unknown factor 'size'"),
    "unknown factor in a rule": ({"exclude": [{"colour": 1}]}, "unknown factor 'colour'"),
    "unknown level": ({"exclude": [{"batch_size": 65}]}, "its levels are 64, 256"),
    "no candidates": ({"exclude": [{"batch_size": [64, 256]}]}, "no candidate"),
    "no levels": ({"factors": {"batch_size": []}}, "no levels"),
    "duplicate": ({"factors": {"batch_size": [64, 64]}}, "duplicate trials"),
    "cap of 0": ({"minutes": 0}, "minutes must be a number above 0"),
    "absurd cap": ({"minutes": 1e9}, "at most 10080"),
    "not a number": ({"minutes": float("nan")}, "minutes must be"),
    "pipe": ({"command": "python t.py | tee log"}, "only a shell understands"),
    "two commands": ({"command": "python t.py; reboot"}, "only a shell understands"),
    "substitution": ({"factors": {"batch_size": ["$(reboot)"]}}, r"holds \$\("),
    "level with a command": ({"factors": {"batch_size": ["64; reboot"]}}, "holds ;"),
    "level in a shell text": ({"command": "bash -c 'echo {batch_size}'"}, "VMSELECT_FACTOR_BATCH_SIZE"),
    "empty command": ({"command": " "}, "command is empty"),
    "open quote": ({"command": "python 't.py"}, "cannot be split"),
    "unknown runner": ({"runner": "carrier pigeon"}, "runner must be one of"),
    "unknown machine": ({"factors": {"machine": ["smal"]}, "machines": {"small": {}}}, "not among machines"),
    "unused machine": ({"machines": {"small": {}}}, "no trial uses"),
    "unknown word": ({"factors": {"machine": ["m"]}, "machines": {"m": {"croes": 1}}}, "Did you mean cores"),
    "no hosts": ({"runner": "ssh"}, "needs the factor machine"),
    "option as host": (
        {"runner": "ssh", "factors": {"machine": ["a"]}, "machines": {"a": {"host": "-oProxyCommand=x"}}},
        "no host that ssh takes",
    ),
    "nothing to rent": ({"runner": "skypilot"}, "instance_type"),
    "secret": ({"environment": {"MY_API_KEY": "123"}}, "looks like a secret"),
    "repetitions": ({"repetitions": 0}, "repetitions must be"),
    "too many": ({"factors": {f"f{i}": list(range(10)) for i in range(6)}}, "more than 100,000"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_plan_is_named(name: str) -> None:
    given, message = BAD[name]
    facts: dict[str, object] = {"command": "python t.py", "factors": {"batch_size": [64, 256]}, **given}
    with pytest.raises(vs.errors.PlanError, match=message):
        vs.Plan(facts.pop("command"), **facts)  # type: ignore[arg-type]


def test_what_only_the_place_can_tell_fails_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.py").write_text("")
    cases = {
        "is not in": vs.Plan("python missing.py"),
        "no price": vs.Plan("python t.py", factors={"instance_type": ["g4dn.xlargest"]}),
        "is not on this machine": vs.Plan("pythonic t.py"),
        "wants 4096 cores": vs.Plan("python t.py", factors={"machine": ["m"]}, machines={"m": {"cores": 4096}}),
    }
    for message, plan in cases.items():
        with pytest.raises(vs.errors.VmselectError, match=message):
            vs.sweep(plan, tmp_path / "out", yes=True)
        assert not (tmp_path / "out").exists()


LINES = {
    "command: python t.py\nfacters: {}\n": "line 2: unknown key 'facters'. Did you mean factors",
    "command: python t.py\nfactors:\n  a: [1]\n  b: [2, 2]\n": "line 4: Factor b names 2 twice",
    "command: python t.py\n\nminutes: soon\n": "line 3: minutes must be",
    "command: python t.py\nfactors: {a: [1]}\nexclude:\n  - a: 2\n": "line 4: ",
    "command: a\nmachines:\n  m:\n    cores: none\nfactors: {machine: [m]}\n": "line 3: machines: m: cores",
    "factors: {a: [1]}\n": "command is missing",
    "command: [\n": "line 2: ",
    "command: a\ncommand: b\n": "line 2: command is written twice",
    "": "the file is empty",
    "- a\n": "must have keys",
    "command: !!python/object:os.system x\n": "line 1",
    "a: &a [x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\n"
    "e: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f]\n": "too large",
}


@pytest.mark.parametrize("text", LINES)
def test_a_bad_file_is_an_error_with_its_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(text)
    with pytest.raises(vs.errors.PlanError) as caught:
        vs.Plan.load(path)
    assert LINES[text] in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_plan_comes_back_from_its_file(tmp_path: Path) -> None:
    rule = {"machine": "small", "batch_size": 256}
    plan = vs.Plan(COMMAND, factors=FACTORS, machines=MACHINES, repetitions=2, minutes=5, seed=None, blocks=(),
                   exclude=[rule], environment={"A": "{batch_size}", "B": None})  # fmt: skip
    again = vs.Plan.load(plan.save(tmp_path / "plan.yaml"))
    assert again == plan
    assert [t.id for t in again.trials] == [t.id for t in plan.trials]


def test_a_plan_replaces_a_plan_and_no_other_file(tmp_path: Path) -> None:
    plan, path = vs.Plan("python t.py", factors={"a": [1, 2]}), tmp_path / "plan.yaml"
    assert vs.Plan.load(plan.save(plan.save(path))).to_dict() == plan.to_dict()
    path.write_text("services:\n  web: {image: nginx}\n")
    with pytest.raises(PlanError, match="not overwritten"):
        plan.save(path)
    assert path.read_text().startswith("services:")


def test_numbers_in_a_file_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("command: a {lr}\nfactors: {lr: [1e-3, 0.01, adam, yes]}\n")
    plan = vs.Plan.load(tmp_path / "p.yaml")
    assert plan.factors["lr"] == (0.001, 0.01, "adam", True)


def test_a_list_is_taken_as_it_is() -> None:
    assert split_command(["python", "a b.py", "x|y"]) == ("python", "a b.py", "x|y")


def test_five_hundred_trials_are_planned_in_the_time_of_importing_pandas() -> None:
    """Absolute seconds would test the machine; the count is what must not make it slow."""
    plan = vs.Plan("python t.py {b}", factors={"instance_type": ["g4dn.xlarge", "g5.xlarge"], "b": list(range(125))},
                   repetitions=2)  # fmt: skip
    assert len(plan.to_frame()) == 500
