"""``rank``: make a ranking from profiles and prices.

The path of a ranking: read the options, measure the probed machines, add predicted ones, check what fits, join the
offers of the catalog, and let :class:`~vmselect.ranking.result.Ranking` decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from vmselect._checks import check_dataclass, list_items, maybe, suggest_arguments
from vmselect.catalog import Catalog, find_nearest, fold_gpu
from vmselect.convergence import ConvergenceStudy
from vmselect.diagnosis import Disturbance
from vmselect.energy import Emissions
from vmselect.errors import ArgumentError, MissingNamesError, RankingError
from vmselect.estimation import RuntimeModel, Workload, fit_runtime
from vmselect.estimation.programs import epochs_of
from vmselect.findings import Finding
from vmselect.prediction.hardware import MachineTypes
from vmselect.prediction.scaling import Scale, size_per_gpu
from vmselect.ranking.candidates import Candidates, add_services, join_offers
from vmselect.ranking.estimates import MachineEstimate, Measured, Studied, Transfer, check_gpu_memory
from vmselect.ranking.measures import Interruptions
from vmselect.ranking.options import Objective, Settings, find_home, read_catalog
from vmselect.ranking.predicted import MachineFilter, Machines, add_predicted, add_scaled
from vmselect.ranking.result import Inputs, Ranking
from vmselect.ranking.rows import Excluded
from vmselect.records import Profile, Record
from vmselect.records.identity import check_comparable, list_values, read_records
from vmselect.records.inference import InferenceRecord

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
        profiles: Profiles of the training, one or more of each probed machine.
        epochs: Number of epochs; the last of several determines the best candidate. A :class:`ConvergenceStudy` gives
            the number of each batch size. None: as in the probed training.
        batch_size: One batch size, several, or ``"all"``. Sizes that were not probed are interpolated.
        objective: ``"cost"``, ``"time"``, ``"energy"``, ``"co2"``, or weights such as ``{"cost": 0.7, "time": 0.3}``.
        deadline_hours: Exclude candidates whose time is longer.
        budget_usd: Exclude candidates whose cost is higher.
        co2_limit_kg: Exclude candidates that emit more CO2, or whose CO2 is unknown.
        chance: Probability, such as 0.9, with which the limits must be kept. None: the estimate must keep them.
        machines: Machines to add that were never probed: names of instance types, or ``"all"`` with a GPU.
        history: Records of other trainings on several GPUs, which improve the predictions.
        region: One region, several, or ``"all"``. None: where a machine was measured, if known.
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
    epochs = _find_epochs(chosen) if epochs is None else epochs
    study = epochs if isinstance(epochs, ConvergenceStudy) else None
    sizes = work.batch_size if batch_size is None else batch_size
    settings = Settings.read(
        epochs=epochs, batch_size=sizes, objective=objective, deadline_hours=deadline_hours,
        budget_usd=budget_usd, co2_limit_kg=co2_limit_kg, chance=chance, region=region, market=market,
        provider=provider, gpu=gpu, interruptions=interruptions, emissions=emissions, method=method,
        confidence=confidence, billing=prices.billing,
    )  # fmt: skip
    training = Training(
        profiles=chosen, history=history, catalog=prices, workload=replace(work, batch_size=None), settings=settings,
        machines=MachineFilter.read(machines), scale=maybe(check_dataclass, "scale", scale, kind=Scale), study=study,
    )  # fmt: skip
    if sizes is None and study is None:
        training.check_one_batch_size()
    pool = training.estimate()
    # Time and cost of moving data belong to a machine, not to an offer, so they are added before prices are joined.
    if transfer is not None:
        pool.split(check_dataclass("transfer", transfer, Transfer).charge(pool.estimates))
    # A service rents the same hardware under another name: its machines get the final times of their twins.
    if prices.services:
        pool.estimates = add_services(pool.estimates, prices.services, prices)
    candidates, unpriced = join_offers(pool.estimates, prices, settings)
    training.check_names(pool, candidates, [*pool.excluded, *unpriced])
    findings = tuple(dict.fromkeys((*pool.findings, *prices.findings)))
    inputs = Inputs(training.given, tuple(record.id for record in history if isinstance(record, Profile)))
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
    history: Sequence[Record]
    catalog: Catalog
    workload: Workload
    settings: Settings
    machines: MachineFilter | None
    scale: Scale | None
    study: ConvergenceStudy | None

    @property
    def given(self) -> dict[str, Any]:
        """Fields of the workload that replace those of the profiles."""
        return replace(self.workload, boot_seconds=None).given

    def estimate(self) -> Pool:
        """Estimate the measured machines, add the predicted ones, and leave out those with too little GPU memory."""
        pool = Pool([], [], list(check_comparable(self.profiles, arguments=self.given)))
        studied = Studied.read(self.study, self.profiles, self.settings.confidence) if self.study else None
        measured = Measured(self.profiles, self._fit, arguments=self.given)
        if studied:
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
        estimates, small, unknown = check_gpu_memory(pool.estimates, self.profiles, self.catalog)
        pool.too_small = {estimate.instance_type for estimate in pool.estimates}
        pool.too_small -= {estimate.instance_type for estimate in estimates}
        pool.split((estimates, small))
        pool.findings += unknown
        return pool

    def _predict(self, pool: Pool, measured: Measured) -> None:
        """Add machines, numbers of GPUs and numbers of nodes that were never probed."""
        if self.scale is not None:
            pool.split(
                add_scaled(
                    pool.estimates, measured, self.profiles, self.catalog, self.settings, scale=self.scale,
                    chosen=self.machines, history=self.history, studied=pool.studied,
                )
            )  # fmt: skip
        elif self.machines is not None:
            pool.split(
                add_predicted(
                    pool.estimates, self.profiles, self.catalog, self.settings, chosen=self.machines,
                    history=self.history,
                )
            )  # fmt: skip

    def _fit(
        self, profiles: Sequence[Profile], batch_size: int | None, disturbances: Mapping[str, Disturbance]
    ) -> RuntimeModel:
        return fit_runtime(
            profiles, workload=replace(self.workload, batch_size=batch_size), method=self.settings.method,
            confidence=self.settings.confidence, disturbances=disturbances,
        )  # fmt: skip

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
            "region": (settings.region, {*map(str, candidates.column("region"))}, everything["region"]),
            "provider": (settings.provider, {*map(str, candidates.column("provider"))}, everything["provider"]),
            "gpu": (settings.gpu, {fold_gpu(str(gpu)) for gpu in candidates.column("gpu_model")}, None),
        }
        for argument, (names, ranked, column) in named.items():
            form = fold_gpu if argument == "gpu" else str
            sold = None if column is None else {*map(str, column.cat.categories)}
            for name in names or ():
                is_unknown = sold is not None and name not in sold
                # An empty ranking names the reason for each of its machines, so only a wrong name is an error there.
                if form(name) not in ranked and (is_unknown or len(candidates)):
                    reasons = [entry.reason for entry in excluded if entry.candidate.split(",")[0] == name]
                    near = ", ".join(find_nearest(name, sold or ()))
                    unknown = f"the catalog does not have it{near and f' (similar names: {near})'}"
                    reason = unknown if is_unknown else NO_CANDIDATE
                    raise _missing_name(argument, name, reasons[0] if reasons else reason)
        sizes = {profile.batch_size for profile in self.profiles}
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
        named = [profile for profile in self.profiles if profile.instance_type]
        sizes = {size_per_gpu(profile, types) if self.scale else profile.batch_size or 0 for profile in named}
        if len(sizes) > 1:
            texts = ", ".join(f"{size:g}" if size else "unknown" for size in sorted(sizes))
            raise RankingError(
                f"The profiles have different batch sizes ({texts}), which need different numbers of epochs. Pass "
                'batch_size= to choose one, batch_size="all" to compare all at equal epochs, or a convergence study as '
                "epochs=."
            )


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


def _read_workload(workload: Workload | None) -> Workload:
    return check_dataclass("workload", {} if workload is None else workload, Workload)


def _find_epochs(profiles: Sequence[Profile]) -> int:
    """The number of epochs of all ``profiles``; profiles that do not state it are ignored. Raise if they differ."""
    counts = {epochs_of(profile) for profile in profiles if profile.setup.epochs is not None}
    if len(counts) == 1:
        return counts.pop()
    why = f"The profiles are of {list_values(counts)} epochs" if counts else "No profile states its number of epochs"
    raise ArgumentError(f"{why}. Pass epochs= (--epochs), such as 50, or several such as [5, 10, 20].")
