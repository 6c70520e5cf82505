# Models that are made from dataclasses are variables for mypy, not types.
# mypy: disable-error-code="valid-type,call-arg"
"""The JSON of a ranking: its models, and how they are made from the ranking. docs/reference/ranking.md explains it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from vmselect import __version__
from vmselect._models import FindingOutput, Number, Numbers, Output, Spread, derive_model, make_model, plain
from vmselect.energy.grids import DEFAULT
from vmselect.energy.power import PowerBasis
from vmselect.estimation.runtime import COEFFICIENTS, Coefficient
from vmselect.findings import Finding
from vmselect.ranking.decision import Shortfall
from vmselect.ranking.next_probe import NextProbe, explain_no_probe
from vmselect.ranking.options import Settings
from vmselect.ranking.rows import Excluded, Row
from vmselect.ranking.views import relative_by_candidate
from vmselect.records.base import Factor
from vmselect.records.forecast import Basis

if TYPE_CHECKING:
    from vmselect.ranking.result import Ranking

FORMAT = 2
COSTS = ("study_seconds", "study_usd", "probe_seconds", "probe_usd", "exhaustive_seconds", "exhaustive_usd", "fraction")


def _coefficient_kind(coefficient: Coefficient) -> Any:
    """Type of a coefficient in JSON: epochs are whole numbers, and null where the coefficient does not apply."""
    kind: Any = int if coefficient.unit == "epochs" else float
    kind = list[kind] if isinstance(coefficient.default, tuple) else kind
    return kind | None if coefficient.to_plain(coefficient.default) is None else kind


RuntimeOutput = make_model(
    "Runtime",
    "Coefficients of the time of a training as a function of the number of epochs.",
    **{coefficient.name: _coefficient_kind(coefficient) for coefficient in COEFFICIENTS},
    terms=dict[str, list[float]],
)


class KnownPower(Output):
    """Power of the machine in steady steps, and the standard deviation of its log."""

    watts: float
    deviation: float
    group: int
    basis: PowerBasis


class UnknownPower(Output):
    """Why the power of the machine is unknown."""

    watts: None
    unknown: str


class Machine(Output):
    """An instance type with its varied settings (``factors``) and the coefficients of its training time."""

    instance_type: str
    provider: str | None
    batch_size: int | None
    title: str
    basis: Basis
    interval_only: bool
    repetitions: int
    probe_seconds: float | None
    iterations: Numbers
    factors: dict[str, Factor]
    method: str
    runtime: RuntimeOutput
    epochs: list[float] | None
    power: KnownPower | UnknownPower


class Candidate(Output):
    """A machine with an offer. ``machine`` and ``findings`` are positions in the ranking's machines and findings."""

    machine: int
    title: str
    instance_type: str
    batch_size: int | None
    varied: str | None
    provider: str
    service: str | None
    region: str
    regions_compared: int
    market: str
    gpu_model: str | None
    gpu_count: Number | None
    vcpus: Number | None
    memory_gib: Number | None
    date: str | None
    usd_per_hour: float
    interruptions_per_hour: float
    price_deviation: float
    price_group: int
    moving_usd: float
    billing_increment_seconds: float
    billing_minimum_seconds: float
    gpus: int
    kg_per_kwh: float | None
    findings: list[int]


class GpuCountRow(Output):
    """A candidate with one or more GPUs of a type, and its speed-up over the fastest candidate with one such GPU."""

    rank: int
    gpu_model: str
    gpus: int
    nodes: int
    instance_type: str
    provider: str
    region: str
    market: str
    batch_size: int | None
    basis: Basis
    seconds: float
    seconds_low: float
    seconds_high: float
    cost_usd: float
    cost_low: float
    cost_high: float
    speed_up: float | None
    efficiency: float | None


class GpuCounts(Output):
    """The numbers of GPUs that were ranked, and which of them is fastest and cheapest."""

    verdict: str
    rows: list[GpuCountRow]


class RelativeRow(Output):
    """A candidate, and its time or cost at each number of epochs divided by the lowest; null where not feasible.

    ``candidate`` is its position in the ranking's candidates, and ``ratios`` are by number of epochs (or ``study``).
    """

    candidate: int
    title: str
    ratios: dict[str, Number | None]


class VariantRow(Output):
    """Untested advice: the steps of a machine with another precision or a compiled step, and time and cost then."""

    rank: int
    instance_type: str
    gpu_model: str
    variant: str
    speed_up: float
    speed_up_low: float
    speed_up_high: float
    seconds: float
    cost_usd: float


class Omitted(Output):
    """Numbers of rows and of excluded candidates that were left out of this output."""

    rows: int
    excluded: int


class Study(Output):
    """The convergence study that gave the number of epochs per batch size, and the cost of study and probes."""

    monitor: str
    mode: Literal["min", "max"]
    patience: int
    min_delta: Number
    start_from_epoch: int
    model: str | None
    required: Numbers
    measured: list[dict[str, Number | None]]
    sizes: list[dict[str, Number | str | None]]
    cost: dict[str, float | None]


RowOutput = derive_model(
    Row,
    candidate=int,
    epochs=Number,
    findings=list[int],
    measures=dict[str, Spread | None],
    factors=dict[str, Factor],
    terms=Numbers,
    limit_chances=Numbers,
    service=str | None,
)
SettingsOutput = derive_model(
    Settings,
    objective=Numbers,
    region=list[str] | Literal["all"] | None,
    market=list[str] | Literal["all"],
    interruptions=Numbers | None,
    quantile=float,
    emissions=dict[str, Any] | None,
)
ExcludedOutput = derive_model(Excluded)
NextProbeOutput = derive_model(NextProbe)
ShortfallOutput = derive_model(Shortfall)


class NextProbeAnswer(Output):
    """The machine to probe next, or null; why; and the decision that the ranking would make without this probe."""

    next_probe: NextProbeOutput | None
    reason: str
    verdict: str
    expected_regret: Numbers


def answer_next_probe(ranking: Ranking) -> NextProbeAnswer:
    """The next probe of ``ranking`` as the command line prints it."""
    probe = ranking.next_probe
    return NextProbeAnswer(
        next_probe=NextProbeOutput(**vars(probe)) if probe else None,
        reason=probe.reason if probe else explain_no_probe(ranking),
        verdict=ranking.verdict,
        expected_regret=ranking.expected_regret,
    )


class RankingInputs(Output):
    """What is needed to rank again, as on the report page: machines, candidates and settings."""

    format: Literal[2]
    writer: str
    verdict: str
    settings: SettingsOutput
    machines: list[Machine]
    candidates: list[Candidate]
    shortfall: ShortfallOutput | None
    excluded: list[ExcludedOutput]
    ranking_findings: list[int]
    findings: list[FindingOutput]
    study: Study | None = None


class RankingOutput(RankingInputs):
    """A ranking: rows in order, excluded candidates with reasons, and what is needed to rank again."""

    expected_regret: Numbers
    next_probe: NextProbeOutput | None
    rows: list[RowOutput]
    omitted: Omitted | None = None
    scaling: GpuCounts
    variants: list[VariantRow]
    relative: dict[str, list[RelativeRow]]


def ranking_inputs(ranking: Ranking, which: Sequence[int] | None = None) -> RankingInputs:
    """What is needed to rank again, with the candidates of the indices ``which``, by default with all."""
    candidates = range(len(ranking.candidates)) if which is None else which
    machines = range(len(ranking.candidates.machine_estimates))
    excluded = [vars(candidate) for candidate in ranking.always_excluded]
    writer = _Writer(ranking)
    return RankingInputs(**writer.inputs(candidates, machines), excluded=excluded, **writer.findings())


def ranking_output(ranking: Ranking, *, top: int | None = None) -> RankingOutput:
    """The whole ranking, or the first ``top`` rows and excluded candidates, with the machines of these rows."""
    positions = ranking.positions[0][:top]
    candidates: Sequence[int] = range(len(ranking.candidates))
    machines: Sequence[int] = range(len(ranking.candidates.machine_estimates))
    # Candidates of other markets serve the page, which can change the market; nothing here refers to their findings.
    if ranking.settings.market is not None:
        candidates = np.flatnonzero(np.isin(ranking.candidates.column("market"), ranking.settings.market)).tolist()
    # A catalog has thousands of offers: the output of the first rows has only their candidates and machines.
    if top is not None:
        candidates = np.unique(positions).tolist()
        machines = np.unique(ranking.candidates.machine_estimate[candidates]).tolist()
    place_of = {candidate: place for place, candidate in enumerate(candidates)}
    writer = _Writer(ranking)
    values = writer.inputs(candidates, machines)
    values["excluded"] = [vars(candidate) for candidate in ranking.excluded[:top]]
    values["expected_regret"] = ranking.expected_regret
    values["next_probe"] = vars(ranking.next_probe) if ranking.next_probe else None
    values["scaling"] = GpuCounts(verdict=ranking.scaling_verdict, rows=plain(ranking.scaling))
    values["variants"] = plain(ranking.variants)
    values["rows"] = [
        writer.row(row, place_of[int(position)]) for row, position in zip(ranking.rows[:top], positions, strict=True)
    ]
    values["relative"] = {
        objective: [
            RelativeRow(
                candidate=place_of[candidate],
                title=ranking.candidates.title(candidate),
                ratios=dict(zip(map(str, table.columns), plain(ratios), strict=True)),
            )
            for candidate, ratios in zip(table.index.tolist(), table.to_numpy().tolist(), strict=True)
            if candidate in place_of
        ]
        for objective, table in ((name, relative_by_candidate(ranking, name)) for name in ("time", "cost"))
    }
    if top is not None:
        values["omitted"] = Omitted(rows=len(ranking) - len(positions), excluded=max(0, len(ranking.excluded) - top))
    return RankingOutput(**values, **writer.findings())


class _Writer:
    """Makes the parts of the output of a ranking. Each finding is listed once, and other parts contain its position."""

    def __init__(self, ranking: Ranking) -> None:
        self._ranking = ranking
        self._positions: dict[Finding, int] = {}
        self._whole = self._number(ranking.findings)

    def _number(self, findings: Sequence[Finding]) -> list[int]:
        return [self._positions.setdefault(finding, len(self._positions)) for finding in findings]

    def findings(self) -> dict[str, Any]:
        """The findings of the parts made so far, and the positions of those of the whole ranking."""
        return {"ranking_findings": self._whole, "findings": plain(list(self._positions))}

    def inputs(self, candidates: Sequence[int], machines: Sequence[int]) -> dict[str, Any]:
        """Fields of :class:`RankingInputs` except findings and excluded candidates."""
        ranking = self._ranking
        factors = ranking.candidates.kg_per_kwh(ranking.settings.emissions or DEFAULT)
        place_of = {machine: place for place, machine in enumerate(machines)}
        values = {
            "format": FORMAT,
            "writer": f"vmselect {__version__}",
            "verdict": ranking.verdict,
            "settings": ranking.settings.to_dict(),
            "machines": [self._machine(machine) for machine in machines],
            "candidates": [self._candidate(candidate, place_of, float(factors[candidate])) for candidate in candidates],
            "shortfall": vars(ranking.shortfall) if ranking.shortfall else None,
        }
        if ranking.studied:
            estimates = ranking.candidates.machine_estimates
            sizes = sorted({estimate.batch_size for estimate in estimates if estimate.batch_size})
            cost = ranking.selection_cost()
            values["study"] = ranking.studied.to_dict(sizes, {name: getattr(cost, name) for name in COSTS})
        return values

    def _machine(self, machine: int) -> Machine:
        estimate = self._ranking.candidates.machine_estimates[machine]
        return Machine.of(
            estimate,
            epochs=list(estimate.epochs) if estimate.epochs else None,
            method=estimate.runtime.method,
            runtime=estimate.runtime.coefficients(),
            power=self._ranking.candidates.power.to_dict(machine),
        )

    def _candidate(self, candidate: int, place_of: Mapping[int, int], factor: float) -> Candidate:
        candidates = self._ranking.candidates
        return Candidate(
            machine=place_of[int(candidates.machine_estimate[candidate])],
            title=candidates.title(candidate),
            **candidates.identity(candidate),
            usd_per_hour=candidates.usd_per_hour[candidate],
            interruptions_per_hour=candidates.interruptions_per_hour[candidate],
            price_deviation=candidates.price_deviation[candidate],
            price_group=int(candidates.price_group[candidate]),
            moving_usd=candidates.moving_usd[candidate],
            billing_increment_seconds=candidates.increment_seconds[candidate],
            billing_minimum_seconds=candidates.minimum_seconds[candidate],
            gpus=int(candidates.gpus[candidate]),
            kg_per_kwh=None if np.isnan(factor) else factor,
            findings=self._number(self._ranking.findings_of(candidate)),
        )

    def row(self, row: Row, candidate: int) -> Output:
        """The output of ``row``; ``candidate`` is the position of its candidate in the output."""
        measures = {name: spread and spread._asdict() for name, spread in row.measures.items()}
        values = vars(row) | {"factors": dict(row.factors), "measures": measures}
        values |= {"limit_chances": dict(row.limit_chances), "findings": self._number(row.findings)}
        return RowOutput(**values, candidate=candidate)
