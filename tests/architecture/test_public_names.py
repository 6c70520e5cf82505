"""The names users call are pinned: adding one is a decision, losing one is a break."""

from __future__ import annotations

import inspect
import operator
from collections.abc import Iterator
from typing import Any

import pytest
import typer

import vmselect as vs
from vmselect import catalog, estimation
from vmselect.cli import app

NAMES = [
    "Catalog",
    "ConvergenceProbe",
    "ConvergenceStudy",
    "EpochProbe",
    "HuggingFaceProbe",
    "Interruptions",
    "IterationProbe",
    "LightningProbe",
    "Offer",
    "Plan",
    "Profile",
    "Ranking",
    "Scale",
    "Watch",
    "Workload",
    "__version__",
    "compare",
    "describe",
    "diagnose",
    "energy",
    "equations",
    "errors",
    "estimate",
    "estimate_memory",
    "history",
    "load_profiles",
    "load_records",
    "mark_start",
    "predict",
    "probe_loop",
    "rank",
    "recommend",
    "score",
    "serving",
    "skypilot_estimator",
    "stats",
    "sweep",
]

NAMESPACES = {
    "energy": ["Emissions", "load_emissions", "save_emissions"],
    "serving": [
        "Bill", "Downtime", "InferenceProbe", "Transfer", "clean_transfers", "probe_inference", "probe_transfer",
        "rank_inference", "retrieve_and_infer", "simulate_day",
    ],
    "stats": ["Requirements", "classification_metrics", "effects", "scaling", "worker_shares"],
}  # fmt: skip

SIGNATURES = {
    "Catalog.embedded": "date",
    "Catalog.offer": "region market provider service",
    "Catalog.offers": "region market gpu instance_type",
    "Catalog.price": "region market",
    "Catalog.refresh": "regions",
    "Catalog.where": "provider region market gpu gpu_memory_gib max_usd_per_hour service retired stale",
    "ConvergenceProbe": "path monitor patience min_delta mode batch_size stop verbose",
    "EpochProbe": "path epochs sample alarm",
    "HuggingFaceProbe": "path steps validations seconds stop batch_size instance_type region metrics verbose",
    "Interruptions": "per_hour mean_uptime_hours checkpoint_minutes restart_minutes",
    "IterationProbe": "path steps validations seconds stop batch_size validation_steps instance_type region metrics "
    "sample alarm verbose",
    "LightningProbe": "path steps validations seconds stop batch_size instance_type region metrics verbose",
    "Plan": "runner factors machines repetitions minutes seed exclude",
    "Profile.from_times": "instance_type batch_size steps_per_epoch init_seconds first_iteration_seconds "
    "iteration_seconds validation_seconds first_epoch_seconds later_epoch_seconds model total_seconds epochs factors "
    "gpus precision parameters peak_gpu_memory_bytes",
    "Scale": "gpus nodes constant_batch",
    "Watch": "budget_usd deadline_hours usd_per_hour on_limit path every_seconds",
    "Workload": "examples validation_examples batch_size steps_per_epoch",
    "compare": "by metric baseline within",
    "describe": "batch_size examples optimizer inputs epochs validation_examples precision",
    "diagnose": "cpu_threshold",
    "estimate": "epochs method batch_size examples validation_examples confidence workload",
    "estimate_memory": "batch_size gpu catalog",
    "predict": "machines history batch_size catalog confidence",
    "probe_loop": "path steps validations seconds stop batch_size instance_type region metrics verbose",
    "rank": "epochs batch_size objective deadline_hours budget_usd co2_limit_kg chance machines history region market "
    "provider gpu catalog workload scale interruptions transfer emissions method confidence",
    "recommend": "x y epochs batch_size examples optimizer inputs machines",
    "serving.InferenceProbe": "path calls batch_size bytes_per_item instance_type region verbose",
    "serving.Transfer": "data_gb model_gb records",
    "serving.probe_inference": "path batch_size clients rate seconds warmup instance_type region verbose",
    "serving.probe_transfer": "path megabytes files streams usd_per_gb budget_usd options instance_type region verbose",
    "skypilot_estimator": "epochs",
    "stats.effects": "factors metric",
    "stats.scaling": "epochs confidence model metric",
    "sweep": "folder budget_usd parallel yes",
}
POSITIONAL = {"recommend": 3, "sweep": 2, "serving.probe_transfer": 2}
"""Numbers of positional arguments where they are more than one: data and targets, folders."""

DEFAULTS = {
    "IterationProbe": {"steps": 20, "validations": 2, "stop": True, "verbose": 1},
    "EpochProbe": {"epochs": 2},
    "ConvergenceProbe": {"monitor": "val_accuracy", "patience": 5, "min_delta": 0, "stop": False, "verbose": 0},
    "Watch": {"on_limit": "warn", "every_seconds": 30},
    "rank": {"objective": "cost", "market": "on_demand", "method": "robust", "confidence": 0.9, "machines": None},
    "estimate": {"method": "robust", "confidence": 0.9},
    "compare": {"by": "instance_type", "baseline": None, "within": None},
    "sweep": {"parallel": 1, "yes": False},
    "Catalog.offers": {"market": "on_demand", "region": None},
    "Catalog.where": {"retired": False, "stale": False},
    "serving.probe_transfer": {"megabytes": 64, "files": 8, "streams": 4},
}

MEMBERS = {
    "Catalog": "embedded default load with_offers save offers price refresh where gpus check commitments",
    "ConvergenceProbe": "epochs_to_stabilise",
    "ConvergenceStudy": "load epochs require batch_sizes",
    "IterationProbe": "profile",
    "EpochProbe": "profile",
    "Plan": "load save trials to_frame",
    "Profile": "save load from_times findings usage work kind id factors metrics outcome instance_type batch_size "
    "init_seconds first_iteration_seconds second_iteration_seconds mean_2_10_seconds first_validation_seconds "
    "second_validation_seconds first_epoch_seconds second_epoch_seconds total_seconds to_json _repr_html_",
    "Ranking": "best rows to_frame to_json pareto excluded relative crossovers selection_cost chart report against "
    "likely_best expected_regret next_probe keep recalibrated headline verdict shortfall scaling findings",
    "Watch": "profile status lightning hugging_face loop",
    "serving.Bill": "of total to_frame",
    "stats.Requirements": "load score",
}
RESULTS = {
    "estimate": "seconds low high terms method findings keep recalibrated",
    "against": "kendall_tau regret coverage to_frame rows",
    "selection_cost": "probe_seconds probe_usd exhaustive_seconds exhaustive_usd",
    "crossover": "epochs previous winner",
    "excluded": "candidate reason reason_code epochs",
    "row": "instance_type provider region market batch_size epochs seconds seconds_low seconds_high usd_per_hour "
    "cost_usd cost_low cost_high score chance tied_with_best pareto basis terms measures findings",
    "next_probe": "instance_type probe_usd expected_saving_usd reason",
    "study": "value low high",
    "comparison": "groups pairs test verdict chart to_json",
    "test": "name statistic p_value",
    "effects": "main interactions cells chart",
    "score": "to_frame coverage chart",
    "history": "compact query to_frame",
    "sweep": "records failed skipped spent_usd worst_usd",
    "trial": "id factors command",
    "finding": "code message remedy severity",
}
"""Members of results, by the key of :func:`make_results`."""

TERMS = {
    "initialization", "first_iteration", "steady_iterations", "partial_batch", "first_validation", "later_validations",
    "epoch_boundaries", "boot",
}  # fmt: skip
METHODS = [
    "robust", "malta-epoch", "malta-iteration", "malta-iteration:second", "malta-iteration:mean-2-10",
    "malta-iteration-no-validation", "malta-iteration-no-validation:second", "malta-iteration-no-validation:mean-2-10",
]  # fmt: skip
MARKETS = ["on_demand", "spot", "reserved_1y", "reserved_3y"]

COMMANDS = {
    "recommend": "script --epochs --path --region --provider --deadline-hours --html",
    "probe": "script --fits -m --allow-saves --path",
    "describe": "script -m --path",
    "watch": "script --budget-usd --deadline-hours --usd-per-hour --on-limit --every-seconds",
    "rank": "--machines --history --next --html --study --keep --epochs --objective --chance --recalibrate",
    "estimate": "--memory --keep --epochs",
    "check": "",
    "compare": "--before --by --metric",
    "score show": "",
    "score add": "--hours --usd",
    "prices show": "--gpu --region --provider --market",
    "prices check": "",
    "prices refresh": "--provider --region",
    "prices snapshot": "",
    "sweep plan": "",
    "sweep run": "--budget-usd --yes",
    "sweep status": "",
    "sweep resume": "--yes",
    "sweep clean": "--yes",
    "history list": "",
    "history compact": "",
    "history label": "--instance-type",
    "serve transfer": "",
    "serve inference": "--load",
    "export": "--to",
    "mcp": "--folder",
    "schema": "",
    "demo": "",
}
EQUATIONS = {
    "epoch_runtime": "first_epoch_seconds later_epoch_seconds epochs",
    "epoch_runtime_with_init": "init_seconds first_epoch_seconds later_epoch_seconds epochs",
    "epoch_time": "iteration_seconds iterations_per_epoch validation_seconds",
    "iteration_runtime": "init_seconds first_iteration_seconds second_iteration_seconds iterations_per_epoch "
    "first_validation_seconds second_validation_seconds epochs",
    "iteration_runtime_without_validation": "init_seconds first_iteration_seconds second_iteration_seconds "
    "iterations_per_epoch epochs",
}


def test_the_public_names_are_these() -> None:
    assert sorted(vs.__all__) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_can_be_used_and_is_documented(name: str) -> None:
    value = getattr(vs, name)
    assert name == "__version__" or inspect.getdoc(value)
    assert name in dir(vs)


@pytest.mark.parametrize("namespace", NAMESPACES)
def test_the_names_of_each_namespace_are_these_and_are_documented(namespace: str) -> None:
    module = getattr(vs, namespace)
    assert sorted(module.__all__) == sorted(NAMESPACES[namespace])
    assert all(inspect.getdoc(getattr(module, name)) for name in NAMESPACES[namespace])


@pytest.mark.parametrize("name", SIGNATURES)
def test_agreed_arguments_are_there_and_keyword_only_after_the_first(name: str) -> None:
    parameters = {
        key: value
        for key, value in inspect.signature(operator.attrgetter(name)(vs)).parameters.items()
        if key != "self"
    }
    assert set(SIGNATURES[name].split()) <= set(parameters)
    if name == "Workload":  # made of its fields
        return
    positional = [p for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert len(positional) <= POSITIONAL.get(name, 1)


@pytest.mark.parametrize("name", DEFAULTS)
def test_agreed_defaults_are_these(name: str) -> None:
    parameters = inspect.signature(operator.attrgetter(name)(vs)).parameters
    assert {key: parameters[key].default for key in DEFAULTS[name]} == DEFAULTS[name]


@pytest.mark.parametrize("name", MEMBERS)
def test_classes_have_the_agreed_members(name: str) -> None:
    assert set(MEMBERS[name].split()) <= list_members(operator.attrgetter(name)(vs))


def list_members(cls: type) -> set[str]:
    """Names of methods, properties and fields of instances of ``cls``."""
    return {*dir(cls), *getattr(cls, "model_fields", ()), *getattr(cls, "__dataclass_fields__", ())}


@pytest.mark.parametrize("name", EQUATIONS)
def test_the_equations_have_the_names_and_arguments_of_the_dissertation(name: str) -> None:
    assert list(inspect.signature(getattr(vs.equations, name)).parameters) == EQUATIONS[name].split()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A result of each kind, by the keys of :data:`RESULTS`."""
    folder = tmp_path_factory.mktemp("results")

    def probe(name: str, once: float, seconds: float, **factors: int) -> vs.Profile:
        return vs.Profile.from_times(
            instance_type=name, batch_size=64, steps_per_epoch=100, init_seconds=once, first_iteration_seconds=1.0,
            iteration_seconds=[seconds + i / 10_000 for i in range(10)], model="net", factors=factors,
        )  # fmt: skip

    machines = {"g5.xlarge": (300.0, 0.1), "g4dn.xlarge": (10.0, 0.25)}
    probes = [probe(name, *times) for name, times in machines.items() for _ in range(3)]
    varied = [probe(name, *times, day=day) for name, times in machines.items() for day in (1, 2, 3)]
    ranking = vs.rank(probes, epochs=[1, 1000])
    real = vs.Profile.from_times(
        instance_type="g5.xlarge", batch_size=64, total_seconds=10_000, epochs=1000, model="net"
    )
    limited = vs.rank(probes, epochs=1, budget_usd=1e-9)
    wide = vs.rank(probes[-1], epochs=10_000, machines=["g5.xlarge", "g6.xlarge", "g6e.xlarge"], region="us")
    kept = [*probes, *vs.load_records(*ranking.keep(folder / "forecasts"))]
    comparison = vs.compare(probes, metric="step_seconds")
    plan = vs.Plan("true", factors={"machine": ["a"]}, machines={"a": {}})
    return {
        "estimate": vs.estimate(probes[0], epochs=5),
        "against": ranking.against(real),
        "selection_cost": ranking.selection_cost(),
        "crossover": ranking.crossovers("cost")[0],
        "excluded": limited.excluded[0],
        "row": ranking.best,
        "next_probe": wide.next_probe,
        "study": vs.ConvergenceStudy.from_epochs({64: [9, 10, 11]}).epochs(64),
        "comparison": comparison,
        "test": comparison.test,
        "effects": vs.stats.effects(varied, factors=["instance_type", "day"], metric="step_seconds"),
        "score": vs.score([*kept, real]),
        "history": vs.history(str(folder / "forecasts")),
        "sweep": vs.sweep(plan, folder / "sweep", yes=True),
        "trial": plan.trials[0],
        "finding": ranking.findings[0],
    }


@pytest.mark.parametrize("name", RESULTS)
def test_results_have_the_agreed_members(name: str, results: dict[str, Any]) -> None:
    assert [member for member in RESULTS[name].split() if not hasattr(results[name], member)] == []


def test_the_names_of_terms_methods_and_markets_are_these() -> None:
    assert set(estimation.runtime.TERMS) >= TERMS
    assert [*estimation.METHODS] == METHODS
    assert [*catalog.MARKETS] == MARKETS


def list_commands(command: Any, *words: str) -> Iterator[tuple[str, set[str]]]:
    """Each command of the command line with its options and arguments."""
    for name, inner in getattr(command, "commands", {}).items():
        yield from list_commands(inner, *words, name)
    if not getattr(command, "commands", None):
        yield " ".join(words), {option for parameter in command.params for option in parameter.opts}


def test_the_commands_have_the_agreed_options() -> None:
    options = dict(list_commands(typer.main.get_command(app)))
    assert sorted(options) == sorted(COMMANDS)
    missing = {name: set(words.split()) - options[name] for name, words in COMMANDS.items()}
    assert not any(missing.values()), missing
    assert [name for name, given in options.items() if "--json" not in given] == ["mcp"]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        vs.nothing  # noqa: B018


def test_every_error_raised_on_purpose_is_one_family() -> None:
    own = [
        value for value in vars(vs.errors).values() if inspect.isclass(value) and value.__module__ == "vmselect.errors"
    ]
    assert all(issubclass(error, vs.errors.VmselectError) for error in own)
    assert all(error.__name__ in (vs.errors.__doc__ or "") for error in own)
