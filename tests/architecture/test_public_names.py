"""The names users call are pinned: adding one is a decision, losing one is a break."""

from __future__ import annotations

import inspect
import operator

import pytest

import vmselect as vs

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
    "IterationProbe": "path steps validations seconds stop batch_size validation_steps instance_type region metrics "
    "sample alarm verbose",
    "EpochProbe": "path epochs sample alarm",
    "HuggingFaceProbe": "path steps validations seconds stop batch_size instance_type region metrics verbose",
    "LightningProbe": "path steps validations seconds stop batch_size instance_type region metrics verbose",
    "ConvergenceProbe": "path monitor patience min_delta mode batch_size stop verbose",
    "serving.InferenceProbe": "path calls batch_size bytes_per_item instance_type region verbose",
    "serving.probe_inference": "path batch_size clients rate seconds warmup instance_type region verbose",
    "serving.probe_transfer": "path megabytes files streams usd_per_gb budget_usd options instance_type region verbose",
    "describe": "batch_size examples optimizer inputs epochs validation_examples precision",
    "diagnose": "cpu_threshold",
    "estimate": "epochs method batch_size examples validation_examples confidence",
    "rank": "epochs batch_size objective deadline_hours budget_usd co2_limit_kg chance machines history region market "
    "provider gpu catalog workload scale interruptions transfer emissions method confidence",
    "estimate_memory": "batch_size gpu catalog",
    "predict": "machines history batch_size catalog confidence",
    "compare": "by metric baseline",
    "stats.effects": "factors metric",
    "stats.scaling": "epochs confidence model metric",
    "Plan": "runner factors machines repetitions minutes seed exclude",
    "sweep": "folder budget_usd parallel yes",
}
EQUATIONS = [
    "epoch_runtime",
    "epoch_runtime_with_init",
    "epoch_time",
    "iteration_runtime",
    "iteration_runtime_without_validation",
]


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
    parameters = inspect.signature(operator.attrgetter(name)(vs)).parameters
    assert set(SIGNATURES[name].split()) <= set(parameters)
    positional = [p for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert len(positional) <= (2 if name in ("sweep", "serving.probe_transfer") else 1)


def test_the_equations_are_named_as_in_the_dissertation() -> None:
    assert set(EQUATIONS) <= set(dir(vs.equations))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        vs.nothing  # noqa: B018


def test_every_error_raised_on_purpose_is_one_family() -> None:
    own = [
        value for value in vars(vs.errors).values() if inspect.isclass(value) and value.__module__ == "vmselect.errors"
    ]
    assert all(issubclass(error, vs.errors.VmselectError) for error in own)
    assert all(error.__name__ in (vs.errors.__doc__ or "") for error in own)
