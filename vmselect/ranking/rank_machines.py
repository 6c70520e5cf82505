"""``rank`` and ``select``: make a ranking from profiles and prices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from vmselect import _defaults
from vmselect._checks import (
    check_choice,
    check_count,
    check_dataclass,
    check_flag,
    check_name,
    check_seconds,
    list_items,
    maybe,
    several,
    show,
)
from vmselect.catalog import SERVICES, Catalog
from vmselect.convergence import ConvergenceStudy
from vmselect.diagnosis import Disturbance
from vmselect.energy.grids import Emissions
from vmselect.errors import ArgumentError, RankingError
from vmselect.estimation import RuntimeModel, Workload, fit_runtime
from vmselect.estimation.grouping import check_comparable, list_values
from vmselect.estimation.programs import epochs_of
from vmselect.prediction.hardware import MachineTypes
from vmselect.ranking.accuracy import Inputs
from vmselect.ranking.candidates import add_services, join_offers
from vmselect.ranking.estimates import Measured, Studied, check_gpu_memory
from vmselect.ranking.estimates import recalibrate as apply_recalibration
from vmselect.ranking.measures import ALL, Objective, Settings, read_batch_sizes, read_catalog
from vmselect.ranking.next_probe import choose_enough_regret
from vmselect.ranking.predicted import MachineFilter, Machines, add_predicted, add_scaled
from vmselect.ranking.result import Ranking
from vmselect.ranking.scaled import ConstantBatch, Scale, size_per_gpu
from vmselect.ranking.spot import Interruptions
from vmselect.ranking.transfer_cost import Transfer
from vmselect.records import Profile, Record
from vmselect.records.identity import read_records
from vmselect.records.inference import InferenceRecord
from vmselect.scoring.recalibration import Recalibration


def rank(
    profiles: Profile | Iterable[Profile],
    *,
    epochs: int | Iterable[int] | ConvergenceStudy | None = None,
    catalog: Catalog | None = None,
    objective: Objective = _defaults.OBJECTIVE,
    region: str | Iterable[str] | None = None,
    market: str | Iterable[str] | None = _defaults.MARKET,
    services: str | Iterable[str] | None = None,
    deadline_hours: float | None = None,
    budget_usd: float | None = None,
    deadline_chance: float | None = None,
    budget_chance: float | None = None,
    batch_size: int | Iterable[int] | Literal["all"] | None = None,
    method: str = _defaults.METHOD,
    interruptions: Interruptions | Mapping[str, float] | None = None,
    decide_at: int | None = None,
    confidence: float = _defaults.CONFIDENCE,
    billing: Literal["exact", "provider"] = "exact",
    include_retired: bool = False,
    include_unused_gpus: bool = False,
    model: str | None = None,
    fit: int | str | None = None,
    minimum_metric: float | Mapping[str, float] | None = None,
    workload: Workload | None = None,
    examples: int | None = None,
    validation_examples: int | None = None,
    steps_per_epoch: float | None = None,
    boot_seconds: float = 0.0,
    transfer: Transfer | Mapping[str, Any] | None = None,
    machines: Machines = None,
    history: Iterable[Record] = (),
    recalibrate: bool = True,
    enough_regret: float | None = None,
    provider: str | Iterable[str] | None = None,
    gpu: str | Iterable[str] | None = None,
    gpu_memory_gib: float | None = None,
    max_usd_per_hour: float | None = None,
    gpus: int | Iterable[int] | None = None,
    nodes: int | Iterable[int] | None = None,
    constant_batch: ConstantBatch = "per_gpu",
    co2_limit_kg: float | None = None,
    co2_chance: float | None = None,
    emissions: Emissions | Mapping[str, Any] | None = None,
) -> Ranking:
    """Rank all measured machines, each with all offers of its instance type.

    >>> import vmselect as vs
    >>> profiles = [
    ...     vs.Profile.from_times(instance_type=name, batch_size=256, steps_per_epoch=159, init_seconds=5,
    ...                           first_iteration_seconds=3.4, iteration_seconds=[seconds] * 10)
    ...     for name, seconds in (("g4dn.xlarge", 0.20), ("g5.xlarge", 0.08))
    ... ]
    >>> ranking = vs.rank(profiles, epochs=50)
    >>> ranking.best.instance_type
    'g5.xlarge'

    ``market``, ``region`` and ``batch_size`` are one value, several, or ``"all"``. The time at a batch size that was
    not probed is interpolated. Without ``region``, a machine is priced in the region where it was measured, if known.
    ``catalog=None`` uses :meth:`Catalog.default`. ``epochs=None`` uses the number of epochs of the probed trainings.
    With several epoch counts, the last one determines the best
    candidate, unless ``decide_at`` names another. ``epochs`` may be a :class:`ConvergenceStudy`, which gives the number
    of epochs of each batch size; ``minimum_metric`` is then the final value that the monitored metric (or each named
    metric) must reach.
    ``workload``, or its fields as arguments, describes how the training differs from the probed training.
    A candidate is excluded if its estimate exceeds ``deadline_hours`` or ``budget_usd``. With ``deadline_chance`` or
    ``budget_chance``, such as 0.9, it is excluded if it keeps the limit with a lower probability.
    ``billing="provider"`` applies the provider's billing increment and minimum. ``interruptions`` applies to spot
    offers only. ``model`` and ``fit`` (number or name of a training in a program) select profiles.
    A machine with GPUs whose training ran on none of them is excluded, unless ``include_unused_gpus`` is True.
    ``services="sagemaker"`` prices each machine also as the managed service with the same hardware, ``p3.2xlarge`` as
    ``ml.p3.2xlarge``.
    ``transfer`` (a :class:`~vmselect.serving.Transfer`) adds time and cost of moving the data in and the model out.
    ``machines`` adds machines that were never probed: ``"all"`` (or ``"catalog"``) for all GPU machines of the catalog,
    or names of instance types. Their step times are predicted from the probes, from ``history`` (records of other
    trainings on several GPUs) and from published figures of GPUs. ``provider``, ``gpu``, ``gpu_memory_gib`` (minimum
    memory of a GPU) and ``max_usd_per_hour`` select among them. If the profiles contain the GPU memory that the
    training used, machines and batch sizes that were never probed are excluded if the training does not fit.
    ``gpus`` adds machines with these numbers of GPUs of a probed model, and ``nodes`` adds these numbers of nodes of
    machines that were probed on two nodes; the training is assumed to use all of them. With
    ``constant_batch="per_gpu"`` the batch size grows with the number of GPUs. With ``"global"`` it stays the same, and
    smaller batch sizes per GPU must have been probed.
    Forecasts and their outcomes in ``history`` also correct times and intervals, unless ``recalibrate`` is False;
    a finding reports each correction.
    ``enough_regret`` is the expected regret, relative to the objective, below which ``next_probe`` is None (default:
    2 % with a history, 5 % without).
    ``objective`` may also weigh ``"energy"`` (kWh) and ``"co2"`` (kg), and ``co2_limit_kg`` excludes candidates that
    emit more; with ``co2_chance``, those that keep that limit with a lower probability. Candidates whose energy is
    unknown are then excluded. ``emissions`` (:class:`vmselect.energy.Emissions`) states how CO2 follows from energy.
    :func:`vmselect.serving.rank_inference` ranks inference records.
    """
    history = list_items(history)
    enough_regret = choose_enough_regret(enough_regret, history=bool(history))
    added = MachineFilter.read(
        machines, provider=provider, gpu=gpu, gpu_memory_gib=gpu_memory_gib, max_usd_per_hour=max_usd_per_hour
    )
    scale = Scale.read(gpus, nodes, constant_batch)
    fields = {
        "examples": examples, "validation_examples": validation_examples, "steps_per_epoch": steps_per_epoch,
    }  # fmt: skip
    wanted = Workload.merge(workload, fields)
    batch_size = wanted.batch_size if batch_size is None else batch_size
    wanted = replace(wanted, batch_size=None)
    chosen = choose_profiles(profiles, model, fit)
    epochs = _find_epochs(chosen) if epochs is None else epochs
    settings = Settings.read(
        epochs=epochs, studied=isinstance(epochs, ConvergenceStudy), decide_at=decide_at, objective=objective,
        markets=market, regions=region, batch_sizes=read_batch_sizes(batch_size), deadline_hours=deadline_hours,
        budget_usd=budget_usd, deadline_chance=deadline_chance, budget_chance=budget_chance, method=method,
        confidence=confidence, billing=billing, interruptions=interruptions, include_retired=include_retired,
        include_unused_gpus=include_unused_gpus, enough_regret=enough_regret, co2_limit_kg=co2_limit_kg,
        co2_chance=co2_chance, emissions=emissions,
    )  # fmt: skip
    boot_seconds = check_seconds("boot_seconds", boot_seconds)

    def fit_times(
        repeated: Sequence[Profile], size: int | None, disturbances: Mapping[str, Disturbance]
    ) -> RuntimeModel:
        return fit_runtime(
            repeated, workload=replace(wanted, batch_size=size), method=settings.method, confidence=settings.confidence,
            boot_seconds=boot_seconds, disturbances=disturbances,
        )  # fmt: skip

    findings = check_comparable(chosen, arguments=wanted.given)
    catalog = read_catalog(catalog)
    studied = None
    if isinstance(epochs, ConvergenceStudy):
        studied = Studied.read(epochs, minimum_metric, chosen, settings.confidence)
    elif minimum_metric is not None:
        raise ArgumentError("minimum_metric requires a convergence study. Pass a ConvergenceStudy as epochs=.")
    elif batch_size is None:
        types = MachineTypes(catalog)
        known = {size_per_gpu(one, types) if scale else one.batch_size or 0 for one in chosen if one.instance_type}
        sizes = sorted(known)
        if len(sizes) > 1:
            named = ", ".join(f"{size:g}" if size else "unknown" for size in sizes)
            raise RankingError(
                f"The profiles have different batch sizes ({named}), which need different numbers of epochs. Pass "
                'batch_size= to choose one, batch_size="all" to compare all at equal epochs, or call vmselect.select.'
            )
    measured = Measured(chosen, fit_times, given=wanted.given)
    machine_estimates, excluded = measured.machine_estimates, measured.excluded
    if studied:
        machine_estimates, excluded, studied = studied.make_pairs(measured, settings.batch_sizes, catalog)
        findings = (*findings, *studied.study.findings)
    elif settings.batch_sizes is not None:
        machine_estimates, others = measured.at_sizes(settings.batch_sizes, name_others=True)
        excluded = list(dict.fromkeys([*excluded, *others]))
    if scale is not None:
        machine_estimates, refused = add_scaled(
            machine_estimates, measured, chosen, catalog, settings, scale=scale, chosen=added, history=history,
            studied=studied,
        )  # fmt: skip
        excluded = [*excluded, *refused]
    elif added is not None:
        machine_estimates, refused = add_predicted(
            machine_estimates, chosen, catalog, settings, chosen=added, history=history
        )
        excluded = [*excluded, *refused]
    machine_estimates, small, unknown = check_gpu_memory(machine_estimates, chosen, catalog)
    excluded, findings = [*excluded, *small], (*findings, *unknown)
    if check_flag("recalibrate", recalibrate) and history:
        learned = Recalibration.of(history, method=settings.method, confidence=settings.confidence)
        machine_estimates = corrected = apply_recalibration(machine_estimates, learned)
        applied = [estimate.adjustment.applied for estimate in corrected if estimate.adjustment]
        findings = (*findings, *(finding for group in applied for finding in group))
    if transfer is not None:
        machine_estimates, unmoved = check_dataclass("transfer", transfer, Transfer).charge(machine_estimates)
        excluded = [*excluded, *unmoved]
    if services is not None:
        every = isinstance(services, str) and services == ALL
        wanted_services = SERVICES if every else several(check_choice, "services", services, choices=SERVICES)
        machine_estimates = add_services(machine_estimates, wanted_services, catalog)
    candidates, unpriced = join_offers(machine_estimates, catalog, settings)
    findings = tuple(dict.fromkeys((*findings, *catalog.findings)))
    inputs = Inputs(wanted.given, tuple(record.id for record in history if isinstance(record, Profile)))
    return Ranking(
        candidates, settings, excluded=[*excluded, *unpriced], findings=findings, studied=studied, inputs=inputs
    )


def select(
    profiles: Profile | Iterable[Profile],
    study: ConvergenceStudy,
    *,
    catalog: Catalog | None = None,
    objective: Objective = _defaults.OBJECTIVE,
    minimum_metric: float | Mapping[str, float] | None = None,
    **options: Any,
) -> Ranking:
    """Rank all pairs of instance type and batch size, with the number of epochs of each batch size from a study.

    >>> import vmselect as vs
    >>> profiles = [
    ...     vs.Profile.from_times(instance_type=name, batch_size=size, steps_per_epoch=40_960 // size,
    ...                           iteration_seconds=[seconds * size] * 10)
    ...     for name, seconds in (("g4dn.xlarge", 0.0008), ("g5.xlarge", 0.0003)) for size in (256, 1024)
    ... ]
    >>> study = vs.ConvergenceStudy.from_epochs({256: [13, 14], 1024: [22, 20]}, metrics={256: 0.97, 1024: 0.95})
    >>> selection = vs.select(profiles, study)
    >>> selection.best.instance_type, selection.best.batch_size
    ('g5.xlarge', 256)

    Without ``batch_size``, all batch sizes of the study and of the profiles are ranked. Times and epochs that were not
    measured are interpolated; batch sizes too far from measured ones are excluded with a reason. ``minimum_metric`` is
    an upper bound for metrics where smaller is better. ``options`` are arguments of :func:`vmselect.rank`.
    """
    if not isinstance(study, ConvergenceStudy):
        raise ArgumentError(f"study is {show(study)}. Load a study with vmselect.ConvergenceStudy.load(folder).")
    if "epochs" in options:
        raise ArgumentError(
            "vmselect.select takes the numbers of epochs from the study. Remove epochs=, or call vmselect.rank."
        )
    return rank(profiles, epochs=study, catalog=catalog, objective=objective, minimum_metric=minimum_metric, **options)


def _find_epochs(profiles: Sequence[Profile]) -> int:
    """The number of epochs of all ``profiles``; profiles that do not state it are ignored. Raise if they differ."""
    counts = {epochs_of(profile) for profile in profiles if profile.setup.epochs is not None}
    if len(counts) == 1:
        return counts.pop()
    why = f"The profiles are of {list_values(counts)} epochs" if counts else "No profile states its number of epochs"
    raise ArgumentError(f"{why}. Pass epochs= (--epochs), such as 50, or several such as [5, 10, 20].")


def choose_profiles(profiles: Profile | Iterable[Profile], model: str | None, fit: int | str | None) -> list[Profile]:
    """Profiles of the model ``model`` and of the training ``fit`` of a program; None selects all."""
    records = [profiles] if isinstance(profiles, (Record, str, bytes)) else list_items(profiles)
    if any(isinstance(record, InferenceRecord) for record in records):
        raise ArgumentError(
            "Some of the records are inference records. Rank them with vmselect.serving.rank_inference."
        )
    given, model = read_records(records, Profile, error=RankingError), maybe(check_name, "model", model)
    named = [profile for profile in given if model is None or profile.model == model]
    if not named:
        known = ", ".join(sorted({profile.model or "unnamed" for profile in given}))
        raise ArgumentError(f"No profile is of the model {show(model)}. Choose one of: {known}.")
    if fit is None:
        return named
    wanted = check_name("fit", fit) if isinstance(fit, str) else check_count("fit", fit)
    chosen = [one for one in named if one.fit is not None and wanted in (one.fit.number, one.fit.name)]
    if not chosen:
        fits = {(one.fit.number, one.fit.name) for one in named if one.fit is not None}
        known = ", ".join(f"{number} ({name})" if name else str(number) for number, name in sorted(fits, key=str))
        raise ArgumentError(
            f"No profile is of the training {show(wanted)}, passed as fit. "
            f"Trainings to choose from, by number (and name): {known or 'none, so omit fit'}."
        )
    return chosen
