"""``rank``: make a ranking from profiles and prices.

The path of a ranking: read the options, measure the probed machines, add predicted ones, check what fits, join the
offers of the catalog, and let :class:`~vmselect.ranking.result.Ranking` decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from vmselect._checks import check_dataclass, list_items, maybe, suggest_arguments
from vmselect.catalog import Catalog, find_nearest
from vmselect.catalog.gpu_names import find_gpus
from vmselect.catalog.regions import is_group, select_regions
from vmselect.convergence import ConvergenceStudy
from vmselect.diagnosis import Disturbance
from vmselect.energy import Emissions
from vmselect.errors import ArgumentError, MissingNamesError, RankingError
from vmselect.estimation import RuntimeModel, Workload, fit_runtime
from vmselect.estimation.drift import Learned, learn_repetitions
from vmselect.estimation.programs import epochs_of
from vmselect.findings import Finding, RecordsNotUsed
from vmselect.prediction.hardware import MachineTypes, find_gpu_at_rest
from vmselect.prediction.scaling import Scale, size_per_gpu
from vmselect.ranking.candidates import Candidates, add_services, describe_suspicious, join_offers
from vmselect.ranking.described import Descriptions, find_unseen_validations, is_only_description, settings_key
from vmselect.ranking.estimates import MachineEstimate, Measured, Studied, Transfer, check_gpu_memory
from vmselect.ranking.measures import Interruptions
from vmselect.ranking.options import ALL, Objective, Settings, find_home, read_catalog
from vmselect.ranking.predicted import MachineFilter, Machines, add_predicted, add_scaled, describe_missing_nodes
from vmselect.ranking.result import Inputs, Ranking
from vmselect.ranking.rows import Excluded
from vmselect.ranking.scripts import ONE_FIT, Script, find_script
from vmselect.records import Profile, Record
from vmselect.records.identity import check_comparable, distinct, identify, list_values, read_records
from vmselect.records.inference import InferenceRecord
from vmselect.records.training import without_times
from vmselect.units import format_count

NO_CANDIDATE = "no machine of this ranking matches it; probe such a machine, or add it with machines="


@suggest_arguments(find_home)
def rank(
    profiles: Profile | Iterable[Profile],
    *,
    epochs: int | Iterable[int] | ConvergenceStudy | None = None,
    batch_size: int | Iterable[int] | Literal["all"] | None = None,
    objective: Objective = "cost",
    deadline_hours: float | None = None,
    budget_usd: float | None = None,
    co2_limit_kg: float | None = None,
    chance: float | None = None,
    machines: Machines = None,
    history: Iterable[Record] = (),
    region: str | Iterable[str] | None = None,
    market: str | Iterable[str] | None = "on_demand",
    provider: str | Iterable[str] | None = None,
    gpu: str | Iterable[str] | None = None,
    catalog: Catalog | None = None,
    workload: Workload | None = None,
    scale: Scale | Mapping[str, Any] | None = None,
    interruptions: float | Interruptions | Mapping[str, float] | None = None,
    transfer: Transfer | Mapping[str, Any] | None = None,
    emissions: Emissions | Mapping[str, Any] | None = None,
    method: str = "robust",
    confidence: float = 0.9,
) -> Ranking:
    """Rank machines by the time and cost of a training, each with all offers of its instance type.

    >>> import vmselect as vs
    >>> profiles = [
    ...     vs.Profile.from_times(instance_type=name, batch_size=256, steps_per_epoch=159, init_seconds=5,
    ...                           first_iteration_seconds=3.4, iteration_seconds=[seconds] * 10)
    ...     for name, seconds in (("g4dn.xlarge", 0.20), ("g5.xlarge", 0.08))
    ... ]
    >>> ranking = vs.rank(profiles, epochs=50)
    >>> ranking.best.instance_type
    'g5.xlarge'

    Args:
        profiles: Profiles of the training, one or more of each probed machine. A script with several fits is ranked
            as a whole; :func:`~vmselect.estimation.programs.choose_profiles` selects one fit. A profile of
            :func:`vmselect.describe` needs no probe; with nothing else, ``machines`` is ``"all"``.
        epochs: Number of epochs (of each fit); the last of several determines the best candidate. A
            :class:`ConvergenceStudy` gives the number of each batch size. None: as in the probed training.
        batch_size: One batch size, several, or ``"all"``. Sizes that were not probed are interpolated.
        objective: ``"cost"``, ``"time"``, ``"energy"``, ``"co2"``, or weights such as ``{"cost": 0.7, "time": 0.3}``.
        deadline_hours: Exclude candidates whose time is longer.
        budget_usd: Exclude candidates whose cost is higher.
        co2_limit_kg: Exclude candidates that emit more CO2, or whose CO2 is unknown.
        chance: Probability, such as 0.9, with which the limits must be kept. None: the estimate must keep them.
        machines: Machines to add that were never probed: names of instance types, or ``"all"`` with a GPU.
        history: Records of other trainings on several GPUs, which improve the predictions.
        region: A region, the code of a country, ``"eu"`` or ``"europe"``, or several: the cheapest region of each.
            ``"all"`` ranks every region. None: where a machine was measured, or else the cheapest of all regions.
        market: ``"on_demand"``, ``"spot"``, ``"reserved_1y"``, ``"reserved_3y"``, several of these, or ``"all"``.
        provider: Only machines of this provider, or of several.
        gpu: Only machines with this GPU model, or with one of several.
        catalog: Prices, restricted by :meth:`Catalog.where` if wanted. None: :meth:`Catalog.default`.
        workload: How the training differs from the probed one.
        scale: Numbers of GPUs and of machines that train together, to predict.
        interruptions: Interruptions of spot machines per hour, or an :class:`~vmselect.Interruptions`.
        transfer: Data to move to and from each machine, which adds time and cost.
        emissions: How CO2 is computed from energy. Any value also shows energy and CO2.
        method: Estimation method.
        confidence: Confidence level of all intervals.

    Machines that the filters leave out, that break a limit or that cannot be estimated are in ``ranking.excluded``,
    with the reason. A machine, batch size, region, provider or GPU that is named but cannot be ranked raises
    :class:`~vmselect.errors.MissingNamesError`. :func:`vmselect.serving.rank_inference` ranks inference records.
    """
    chosen, history = _read_profiles(profiles), read_records(history, Record, error=None)
    work = _read_workload(workload)
    # Filters restrict the catalog at once, so that no later step can recommend a machine that they leave out.
    prices = read_catalog(catalog, provider=provider, gpu=gpu)
    study = epochs if isinstance(epochs, ConvergenceStudy) else None
    sizes = work.batch_size if batch_size is None else batch_size
    chosen, not_used = _replace_without_gpu(chosen, prices, predicts=machines is not None or scale is not None)
    probed = [profile for profile in chosen if not is_only_description(profile)]
    script = None if study or not probed else find_script(probed, sizes=sizes is not None)
    if machines is None and not any(profile.instance_type for profile in probed):
        # Nothing was probed that can be rented, so that only a description can answer.
        machines = ALL if any(profile.work is not None for profile in chosen) else None
    if epochs is None:
        epochs = script.total_epochs if script else _find_epochs(chosen)
    elif script:
        script = replace(script, sets_epochs=False)
    settings = Settings.read(
        epochs=epochs, batch_size=sizes, objective=objective, deadline_hours=deadline_hours,
        budget_usd=budget_usd, co2_limit_kg=co2_limit_kg, chance=chance, region=region, market=market,
        provider=provider, gpu=gpu, interruptions=interruptions, emissions=emissions, method=method,
        confidence=confidence, billing=prices.billing,
    )  # fmt: skip
    workload = replace(work, batch_size=None)
    training = Training(
        profiles=script.profiles if script else probed, history=history, catalog=prices, workload=workload,
        descriptions=Descriptions.of(chosen, workload, settings.batch_size), settings=settings,
        machines=MachineFilter.read(machines), scale=maybe(check_dataclass, "scale", scale, kind=Scale), study=study,
        script=script,
    )  # fmt: skip
    if sizes is None and study is None:
        training.check_one_batch_size()
    pool = training.estimate()
    pool.findings += not_used
    # Time and cost of moving data belong to a machine, not to an offer, so they are added before prices are joined.
    moved = maybe(check_dataclass, "transfer", transfer, kind=Transfer)
    if moved is not None:
        pool.split(moved.charge(pool.estimates))
        pool.findings += moved.check_place(prices)
    # A service rents the same hardware under another name: its machines get the final times of their twins.
    if prices.services:
        pool.estimates = add_services(pool.estimates, prices.services, prices)
    candidates, unpriced = join_offers(pool.estimates, prices, settings, moved)
    training.check_names(pool, candidates, [*pool.excluded, *unpriced])
    suspicious = describe_suspicious({estimate.instance_type for estimate in pool.estimates}, prices, settings)
    ranked = set(candidates.nodes.tolist())
    missing = describe_missing_nodes(training.scale, ranked) if training.scale and ranked else []
    findings = tuple(dict.fromkeys((*pool.findings, *missing, *prices.findings, *suspicious)))
    inputs = Inputs(
        training.given, tuple(record.id for record in history if isinstance(record, Profile)), catalog=prices
    )
    return Ranking(
        candidates, settings, excluded=[*pool.excluded, *unpriced], findings=findings, studied=pool.studied,
        inputs=inputs,
    )  # fmt: skip


@dataclass
class Pool:
    """The machine estimates that take part in a ranking, and those excluded on the way, with findings."""

    estimates: list[MachineEstimate]
    excluded: list[Excluded]
    findings: list[Finding]
    studied: Studied | None = None
    sizes: set[int | None] = field(default_factory=set)
    """Batch sizes at which a machine was measured or interpolated."""
    too_small: set[str] = field(default_factory=set)
    """Instance types that were left out because the training does not fit into the memory of their GPUs."""

    def split(self, parts: tuple[Sequence[MachineEstimate], Sequence[Excluded]]) -> None:
        """Continue with the first of ``parts``; the second are excluded."""
        self.estimates = list(parts[0])
        self.excluded += parts[1]


@dataclass(frozen=True, kw_only=True)
class Training:
    """The training to rank machines for: its profiles, how it differs from them, and the machines to consider."""

    profiles: Sequence[Profile]
    """Profiles with measured times."""
    descriptions: Descriptions
    history: Sequence[Record]
    catalog: Catalog
    workload: Workload
    settings: Settings
    machines: MachineFilter | None
    scale: Scale | None
    study: ConvergenceStudy | None
    script: Script | None = None

    @property
    def given(self) -> dict[str, Any]:
        """Fields of the workload that replace those of the profiles."""
        return replace(self.workload, boot_seconds=None).given

    @property
    def everything(self) -> list[Profile]:
        """Profiles with measured times, and descriptions."""
        return distinct([*self.profiles, *self.descriptions.profiles])

    def estimate(self) -> Pool:
        """Estimate the measured machines, add the predicted ones, and leave out those with too little GPU memory."""
        script = self.script
        if script and self.scale is not None:
            raise RankingError(
                f"Numbers of GPUs are predicted for one training, and this script has several. {ONE_FIT}"
            )
        comparable = [
            check_comparable(same, arguments=self.given) for same in (script.fits if script else [self.everything])
        ]
        pool = Pool([], [], list(dict.fromkeys(finding for findings in comparable for finding in findings)))
        if script:
            pool.excluded += script.excluded
            pool.findings.append(script.describe(self.settings.decide_at))
        studied = Studied.read(self.study, self.everything, self.settings.confidence) if self.study else None
        measured = Measured(self.profiles, self._fit, arguments=self.given, groups=script.groups if script else None)
        if studied and not self.profiles:
            pool.studied = replace(studied, catalog=self.catalog)
            pool.findings += studied.study.findings
        elif studied:
            sizes = self.settings.batch_size
            estimates, excluded, pool.studied = studied.make_pairs(measured, sizes, self.catalog)
            pool.split((estimates, excluded))
            pool.findings += studied.study.findings
        elif self.settings.batch_size is not None:
            sized, others = measured.at_sizes(self.settings.batch_size, name_others=True)
            pool.split((sized, list(dict.fromkeys([*measured.excluded, *others]))))
        else:
            pool.split((measured.machine_estimates, measured.excluded))
        pool.sizes = {estimate.batch_size for estimate in pool.estimates}
        # Predictions start from measured and interpolated machines, so these have to be complete.
        self._predict(pool, measured)
        if script:
            estimates, small, unknown = script.check_memory(pool.estimates, self.catalog)
        else:
            estimates, small, unknown = check_gpu_memory(pool.estimates, self.everything, self.catalog)
        pool.too_small = {estimate.instance_type for estimate in pool.estimates}
        pool.too_small -= {estimate.instance_type for estimate in estimates}
        pool.split((estimates, small))
        pool.findings += unknown
        return pool

    def _describing(self, pool: Pool) -> Descriptions:
        """Descriptions to predict from. If no probe can be used, its own: they do not depend on its disturbance."""
        if pool.estimates or self.script or self.descriptions.profiles:
            return self.descriptions
        described = [without_times(profile) for profile in self.profiles if profile.work is not None]
        descriptions = Descriptions.of(described, self.workload, self.settings.batch_size)
        if descriptions.profiles and (self.machines or self.scale):
            codes = ", ".join(sorted({entry.reason_code for entry in pool.excluded}))
            problem = f"No probe can be used ({codes}), so all times follow from the description of the training."
            pool.findings.append(Finding("no-usable-probe", problem, "Probe again, as ranking.excluded states."))
        return descriptions

    def _predict(self, pool: Pool, measured: Measured) -> None:
        """Add machines, numbers of GPUs and numbers of nodes that were never probed."""
        descriptions = self._describing(pool)
        if self.scale is not None:
            pool.split(
                add_scaled(
                    pool.estimates, measured, self.profiles, self.catalog, self.settings, scale=self.scale,
                    chosen=self.machines, history=self.history, studied=pool.studied, descriptions=descriptions,
                )
            )  # fmt: skip
        elif self.machines is not None:
            pool.split(
                add_predicted(
                    pool.estimates, self.profiles, self.catalog, self.settings, chosen=self.machines,
                    history=self.history, descriptions=descriptions,
                )
            )  # fmt: skip
            self._count_epochs(pool)
        used = (estimate.description for estimate in pool.estimates if estimate.description is not None)
        pool.findings += find_unseen_validations(used, self.workload)

    def _count_epochs(self, pool: Pool) -> None:
        """Add the number of epochs of the study to described machines, which were not probed at its batch sizes."""
        if pool.studied is None:
            return
        paired = [e if e.epochs else pool.studied.pair(e) for e in pool.estimates]
        estimates = [pair for pair in paired if isinstance(pair, MachineEstimate)]
        pool.split((estimates, [pair for pair in paired if isinstance(pair, Excluded)]))

    def _fit(
        self, profiles: Sequence[Profile], batch_size: int | None, disturbances: Mapping[str, Disturbance]
    ) -> RuntimeModel:
        def fit(same: Sequence[Profile]) -> RuntimeModel:
            return fit_runtime(
                same, workload=replace(self.workload, batch_size=batch_size), method=self.settings.method,
                confidence=self.settings.confidence, disturbances=disturbances, learned=self._learned,
            )  # fmt: skip

        return self.script.combine(profiles, fit, self.settings.decide_at or 1) if self.script else fit(profiles)

    @cached_property
    def _learned(self) -> Learned:
        """What repetitions among all profiles and the history show about differences between processes."""
        return learn_repetitions([*self.profiles, *(record for record in self.history if isinstance(record, Profile))])

    def check_names(self, pool: Pool, candidates: Candidates, excluded: Sequence[Excluded]) -> None:
        """Raise an error if a machine, batch size, region, provider or GPU that was asked for is no candidate.

        A machine that breaks a limit, or whose memory is too small, was considered: its exclusion is the answer. A
        misspelt name was not, and without an error the ranking of the others would look like the answer.
        """
        settings, everything = self.settings, self.catalog.unrestricted.offers(market=None)
        probed = {profile.instance_type or "" for profile in self.profiles}
        priced = {candidates.machine_estimates[i].instance_type for i in np.unique(candidates.machine_estimate)}
        machines = self.machines.names if self.machines else None
        named: dict[str, tuple[Sequence[str] | None, set[str], Any]] = {
            "machines": (
                machines,
                priced | probed | pool.too_small,
                everything["instance_type"],
            ),
            "region": (settings.region, _list_places(settings.region, candidates), everything["region"]),
            "provider": (settings.provider, {*map(str, candidates.column("provider"))}, everything["provider"]),
            "gpu": (settings.gpu, {*map(str, candidates.column("gpu_model"))}, None),
        }
        for argument, (names, ranked, column) in named.items():
            sold = None if column is None else {*map(str, column.cat.categories)}
            for name in names or ():
                is_unknown = sold is not None and name not in sold and not (argument == "region" and is_group(name))
                # An empty ranking names the reason for each of its machines, so only a wrong name is an error there.
                is_ranked = name in ranked if argument != "gpu" else bool(find_gpus(name, ranked))
                if not is_ranked and (is_unknown or len(candidates)):
                    reasons = [entry.reason for entry in excluded if entry.candidate.split(",")[0] == name]
                    near = ", ".join(find_nearest(name, sold or ()))
                    unknown = f"the catalog does not have it{near and f' (similar names: {near})'}"
                    reason = unknown if is_unknown else NO_CANDIDATE
                    raise _missing_name(argument, name, reasons[0] if reasons else reason)
        sizes = {profile.batch_size for profile in self.everything}
        for size in settings.batch_size or ():
            if size not in pool.sizes | sizes:
                texts = ", ".join(map(str, sorted(filter(None, sizes))))
                why = f"it was not probed (probed: {texts or 'none'}) and cannot be interpolated; probe it too"
                reasons = [entry.reason for entry in excluded if entry.candidate.endswith(f"batch {size}")]
                raise _missing_name("batch_size", size, reasons[0] if reasons else why)

    def check_one_batch_size(self) -> None:
        """Raise an error if the profiles have several batch sizes, because these need different numbers of epochs."""
        # On several GPUs the batch grows with their number, so sizes per GPU are compared there.
        types = MachineTypes(self.catalog)
        named = [profile for profile in self.everything if profile.instance_type or is_only_description(profile)]
        sizes = {size_per_gpu(profile, types) if self.scale else profile.batch_size or 0 for profile in named}
        if self.script:
            sizes = {identity.batch_size or 0 for identity in self.script.groups if identity.instance_type}
        if len(sizes) > 1:
            if not self.script:
                check_comparable(named, arguments=self.given)  # another model is the better reason
            texts = ", ".join(f"{size:g}" if size else "unknown" for size in sorted(sizes))
            raise RankingError(
                f"The profiles have different batch sizes ({texts}), which need different numbers of epochs. Pass "
                'batch_size= to choose one, batch_size="all" to compare all at equal epochs, or a convergence study as '
                "epochs=."
            )


def _list_places(places: Sequence[str] | None, candidates: Candidates) -> set[str]:
    """Those of ``places`` (regions, countries or groups of them) in which a candidate is."""
    offers = candidates.offers.iloc[np.unique(candidates.offer)]
    return {place for place in places or () if select_regions(offers, place).any()}


def _missing_name(argument: str, name: str | int, reason: str) -> MissingNamesError:
    option = f"--{argument.replace('_', '-')}"
    message = f"{argument}={name!r} ({option}) cannot be ranked: {reason}. Correct or remove it; --ignore-missing of "
    return MissingNamesError(f"{message}the command line ranks without it.", argument, (name,))


def _read_profiles(profiles: Profile | Iterable[Profile]) -> list[Profile]:
    records = [profiles] if isinstance(profiles, (Record, str, bytes)) else list_items(profiles)
    if any(isinstance(record, InferenceRecord) for record in records):
        raise ArgumentError(
            "Some of the records are inference records. Rank them with vmselect.serving.rank_inference."
        )
    return read_records(records, Profile, error=RankingError)


def _replace_without_gpu(
    profiles: list[Profile], catalog: Catalog, *, predicts: bool
) -> tuple[list[Profile], list[Finding]]:
    """``profiles`` without those whose machine has a GPU that was not used, if a description can stand for them.

    Their times are those of another computer, and their machines are predicted from the description as if they had not
    been probed. This needs predictions (``predicts``), or that nothing else was probed, so that all is predicted.
    """
    types = MachineTypes(catalog)
    left_out = [p for p in profiles if not is_only_description(p) and find_gpu_at_rest(p, types) is not None]
    ids = {profile.id for profile in left_out}
    others = [profile for profile in profiles if profile.id not in ids]
    probed = [profile for profile in others if not is_only_description(profile) and profile.instance_type]
    if not left_out or not (predicts or not probed) or find_script(left_out, sizes=True) is not None:
        return profiles, []
    stands = {settings_key(identify(profile).settings) for profile in others if profile.work is not None}
    for profile in left_out:
        if profile.work is not None and settings_key(identify(profile).settings) not in stands:
            others.append(without_times(profile))
            stands.add(settings_key(identify(profile).settings))
    if not stands >= {settings_key(identify(profile).settings) for profile in left_out}:
        return profiles, []
    names = list_values({profile.instance_type for profile in left_out})
    count = format_count(len(left_out), "record")
    verb = "is" if len(left_out) == 1 else "are"
    fact = f"{count} of {names} {verb} not used: the framework saw no GPU there, so that the step times are of a CPU."
    remedy = "Run the probe on the rented machine, where the framework sees its GPU."
    return others, [RecordsNotUsed("records-not-used", fact, remedy)]


def _read_workload(workload: Workload | None) -> Workload:
    return check_dataclass("workload", {} if workload is None else workload, Workload)


def _find_epochs(profiles: Sequence[Profile]) -> int:
    """The number of epochs of all ``profiles``; profiles that do not state it are ignored. Raise if they differ."""
    counts = {epochs_of(profile) for profile in profiles if profile.setup.epochs is not None}
    if len(counts) == 1:
        return counts.pop()
    why = f"The profiles are of {list_values(counts)} epochs" if counts else "No profile states its number of epochs"
    raise ArgumentError(f"{why}. Pass epochs= (--epochs), such as 50, or several such as [5, 10, 20].")
