"""The next probe: the machine whose probe is expected to improve the choice most per dollar, if it is worth its price.

Probing a machine replaces its predicted time by a measured one, and moves the predictions of machines with similar
GPUs. The expected improvement of the lowest objective is the knowledge gradient, computed for all machines that were
never probed from the joint distribution of their log times.
"""

from __future__ import annotations

import statistics
from collections import Counter
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from vmselect.ranking.options import ENOUGH_REGRET, ENOUGH_REGRET_WITHOUT_HISTORY
from vmselect.ranking.probability import ErrorModel, log_deviations
from vmselect.ranking.rows import Bools, Floats, Ints
from vmselect.records.forecast import NEVER_PROBED
from vmselect.units import SECONDS_PER_HOUR, format_chance, format_seconds, format_usd, printable

if TYPE_CHECKING:
    from vmselect.ranking.result import Ranking

START_SECONDS = 300.0
"""Seconds that are paid to start a machine and install the program before a probe. Chosen by judgement."""
PROBE_SECONDS = 120.0
"""Assumed seconds of a probe if the records do not contain how long the probes took."""
UNKNOWN_SCRIPT = "YOUR_SCRIPT.py"
"""What stands for the training script in the command of a probe where its name is not known."""
NODES = 21
"""Number of points of the Gauss-Hermite quadrature that computes expected values."""


@dataclass(frozen=True, kw_only=True)
class NextProbe:
    """The machine to probe next, the cost of the probe, and the expected saving in this training."""

    instance_type: str
    provider: str
    region: str
    market: str
    probe_usd: float
    expected_saving_usd: float
    expected_saving: float
    """Expected improvement of the objective, relative to its value for the recommended machine."""
    chance: float
    """Probability that this machine is the best one, before the probe."""
    chance_after: float
    """Expected probability that the GPU chosen after the probe is the best one."""
    batch_size: int | None
    """Batch size of the probe: examples per step of all GPUs together."""
    gpus: int
    """Number of GPUs of all nodes on which the probe should train; 0 if the training does not use all GPUs."""
    nodes: int
    """Number of machines that train together."""
    reason: str

    def __str__(self) -> str:
        machine = f"{self.nodes} x {self.instance_type}" if self.nodes > 1 else self.instance_type
        size = f" at batch size {self.batch_size}" if self.batch_size else ""
        how = f" with {self.gpus} GPUs{size}" if self.gpus > 1 else ""
        return printable(f"Probe {machine}{how} ({self.provider}, {self.region}, {self.market}): {self.reason}")


@dataclass(frozen=True)
class PossibleProbe:
    """Probe of a machine that was never probed: its cost, and the expected improvement of the choice of a machine."""

    candidate: int
    """Index of the best candidate of the machine."""
    gain: float
    """Expected decrease of the logarithm of the lowest objective."""
    cost_usd: float
    saving_usd: float
    """Expected saving in this training, in USD."""

    @property
    def gain_per_usd(self) -> float:
        """Expected improvement per dollar, by which probes are ordered."""
        return self.gain / max(self.cost_usd, 1e-9)

    @property
    def is_worthwhile(self) -> bool:
        """Whether the probe saves more than it costs."""
        return self.saving_usd > self.cost_usd


def rank_probes(ranking: Ranking, *, seconds: float | None = None) -> list[PossibleProbe]:
    """Probes of all machines that were never probed, in order of expected improvement per dollar.

    ``seconds`` is the paid time of a probe, by default the result of :func:`probe_seconds`.
    """
    column, candidates = ranking.deciding_column, ranking.candidates
    offers = _best_offers(ranking)
    which = candidates.machine_estimate[offers]
    unprobed = [k for k, i in enumerate(which) if candidates.machine_estimates[i].basis in NEVER_PROBED]
    if not unprobed or len(offers) < 2:
        return []
    gains = knowledge_gradients(ranking, offers)
    paid = probe_seconds(ranking) if seconds is None else seconds
    costs = paid / SECONDS_PER_HOUR * candidates.usd_per_hour[offers]
    best_cost = float(ranking.assessment.measures["cost"].value[offers[0], column])
    # Gains are decreases of the log of the objective, so a gain g saves the fraction 1 - exp(-g).
    savings = best_cost * -np.expm1(-gains)
    probes = [PossibleProbe(int(offers[k]), float(gains[k]), float(costs[k]), float(savings[k])) for k in unprobed]
    return sorted(probes, key=lambda probe: -probe.gain_per_usd)


def _best_offers(ranking: Ranking) -> Ints:
    """The best offer of each machine estimate, best first."""
    order = ranking.assessment.order[ranking.deciding_column]
    _, first = np.unique(ranking.candidates.machine_estimate[order], return_index=True)
    return np.asarray(order[np.sort(first)])


def find_next_probe(ranking: Ranking, enough_regret: float | None = None) -> NextProbe | None:
    """The probe with the largest expected improvement per dollar; None if none is worth its price.

    ``enough_regret`` is the expected regret, as a fraction of the objective, below which no probe is needed.
    """
    if enough_regret is None:
        enough_regret = default_regret(history=bool(ranking.inputs.history))
    # A probe that saves more than it costs is still not worth the effort if the choice is nearly certain.
    probes = rank_probes(ranking)
    if not probes or relative_regret(ranking) < enough_regret:
        return None
    chosen = next((probe for probe in probes if probe.is_worthwhile), None)
    if chosen is None:
        return None
    column = ranking.deciding_column
    row, machine = ranking.row(chosen.candidate, column), ranking.candidates.of(chosen.candidate)
    gpus = int(ranking.candidates.gpus[chosen.candidate])
    never = f"it was never probed with {gpus} GPUs" if gpus > 1 else "it was never probed"
    best = (
        "is the best by its predicted time"
        if chosen.candidate == ranking.assessment.order[column][0]
        else f"is the best with a probability of {format_chance(row.chance)}"
    )
    return NextProbe(
        instance_type=row.instance_type, provider=row.provider, region=row.region, market=row.market,
        probe_usd=chosen.cost_usd, expected_saving_usd=chosen.saving_usd,
        expected_saving=float(-np.expm1(-chosen.gain)), chance=row.chance,
        chance_after=chance_after_probe(ranking, int(ranking.candidates.machine_estimate[chosen.candidate])),
        batch_size=row.batch_size, gpus=gpus, nodes=machine.nodes,
        reason=f"{never} and {best}. A probe costs about {format_usd(chosen.cost_usd)} and saves "
        f"{format_usd(chosen.saving_usd)} of this training on average.",
    )  # fmt: skip


def chance_of_choice(ranking: Ranking) -> float:
    """Probability that the best machine has the GPU of the recommended one.

    Many providers rent the same GPU. Which of these machines is best hardly matters, and hardly any probe shows it.
    """
    column = ranking.deciding_column
    kinds = _kinds(ranking)
    return float(np.mean(kinds[ranking.assessment.winners[column]] == kinds[ranking.assessment.order[column][0]]))


def _kinds(ranking: Ranking) -> Ints:
    """Number of the GPU model and GPU count of each candidate; a candidate without a GPU is a kind of its own."""
    columns = (ranking.candidates.column(name) for name in ("gpu_model", "gpu_count"))
    machines = ranking.candidates.machine_estimate.tolist()
    numbers: dict[tuple[Any, ...], int] = {}
    keys = ((m, c) if m and c > 0 else (i,) for m, c, i in zip(*columns, machines, strict=True))
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.intp)


def chance_after_probe(ranking: Ranking, machine: int) -> float:
    """Expected probability that the GPU chosen after a probe of the machine estimate ``machine`` is the best one.

    In each joint draw, the probe measures the drawn time of its machine. The choice is then the machine with the lowest
    expected objective, as in every ranking.
    """
    column, kinds = ranking.deciding_column, _kinds(ranking)
    offers = _best_offers(ranking)
    expected = _Expected.of(ranking, offers)
    at = int(np.flatnonzero(ranking.candidates.machine_estimate[offers] == machine)[0])
    drawn = expected.errors.draw(np.array([machine], dtype=np.intp))[0]
    lowest, choice = np.full(len(drawn), np.inf), np.zeros(len(drawn), dtype=np.intp)
    for offer, level, shift in zip(offers.tolist(), expected.level, expected.shifts[:, at], strict=True):
        moved = level + shift * drawn
        lower = moved < lowest
        lowest[lower], choice[lower] = moved[lower], offer
    return float(np.mean(kinds[choice] == kinds[ranking.assessment.winners[column]]))


def explain_no_probe(ranking: Ranking) -> str:
    """Why no probe is recommended, with the cost and the expected saving of the best probe."""
    if not ranking:
        return "No candidate can be ranked yet."
    probes = rank_probes(ranking)
    if not probes:
        return printable(_explain_no_prediction(ranking))
    best = next((probe for probe in probes if probe.is_worthwhile), probes[0])
    name = ranking.row(best.candidate, ranking.deciding_column).instance_type
    paid = format_seconds(probe_seconds(ranking))
    numbers = (
        f"A probe of {name} would cost about {format_usd(best.cost_usd)} (assumed: {paid} with the start of the "
        f"machine) and save {format_usd(best.saving_usd)} of this training on average."
    )
    if best.is_worthwhile:
        regret, enough = relative_regret(ranking), default_regret(history=bool(ranking.inputs.history))
        why = (
            f"No probe is needed: the expected regret of the choice is {regret:.1%}, and up to {enough:.1%} is enough."
        )
    else:
        why = "No probe is worth its cost for this training."
    return printable(f"{why} {numbers}")


def _explain_no_prediction(ranking: Ranking) -> str:
    """Why the ranking contains no machine that was never probed."""
    probed = {machine.instance_type for machine in ranking.candidates.machine_estimates if machine.records}
    reasons = Counter(entry.reason for entry in ranking.excluded if entry.candidate.split(",")[0] not in probed)
    if not reasons:
        return "No machine is left to probe: all machines that can be predicted were probed."
    # One cause, such as a probe without a GPU, usually rules out all machines of a catalog.
    (reason, count), *_ = reasons.most_common(1)
    others = f" ({count} of {sum(reasons.values())} machines)" if len(reasons) > 1 else ""
    return f"No machine that was never probed can be predicted: {reason}{others}."


def default_regret(*, history: bool) -> float:
    """Expected regret, as a fraction of the objective, below which no probe is recommended by default.

    It depends on whether there is a ``history`` of other trainings.
    """
    return ENOUGH_REGRET if history else ENOUGH_REGRET_WITHOUT_HISTORY


def relative_regret(ranking: Ranking) -> float:
    """Expected regret of the recommended candidate, as a fraction of its objective."""
    regret, column = ranking.expected_regret, ranking.deciding_column
    best = ranking.assessment.order[column][0]
    parts = []
    for name, weight in ranking.settings.objective.items():
        value = float(ranking.assessment.measures[name].value[best, column])
        if weight and value:
            parts.append((weight, regret[name] / value))
    total = sum(weight for weight, _ in parts)
    return sum(weight * share for weight, share in parts) / total if total else 0.0


@dataclass(frozen=True)
class _Expected:
    """Expected log objectives of some offers, and how probes of their machines change them."""

    level: Floats
    shifts: Floats
    """Change of each log objective (rows), if a probe of the machine of each offer (columns) takes longer than expected
    by one standard deviation. Probes of measured machines change nothing."""
    predicted: Bools
    """Whether each machine was never probed."""
    errors: ErrorModel

    @classmethod
    def of(cls, ranking: Ranking, offers: Ints) -> _Expected:
        """The expectations of ``offers``, each of another machine."""
        column, confidence = ranking.deciding_column, ranking.settings.confidence
        machine_estimates = ranking.candidates.machine_estimates
        which = ranking.candidates.machine_estimate[offers]
        below, above = log_deviations(ranking.assessment.work.take(which).column(column), confidence)
        # The knowledge gradient needs one normal deviation per machine: the mean of both sides of its interval.
        deviation = (below + above) / 2
        errors = ErrorModel.of(machine_estimates, confidence)
        correlation = errors.correlation()[np.ix_(which, which)]
        predicted = np.array([machine_estimates[i].basis in NEVER_PROBED for i in which])
        shifts = np.where(predicted[:, None], deviation[:, None] * correlation, 0.0)
        return cls(np.log(ranking.assessment.score[offers, column]), shifts, predicted, errors)


def knowledge_gradients(ranking: Ranking, offers: Ints) -> Floats:
    """Expected decrease of the lowest log objective by a probe of the machine of each offer; 0 if it was measured."""
    expected = _Expected.of(ranking, offers)
    gains = np.zeros(len(offers))
    gains[expected.predicted] = [
        expected_decrease(expected.level, shift) for shift in expected.shifts.T[expected.predicted]
    ]
    return gains


def expected_decrease(level: Floats, shift: Floats) -> float:
    """Expected decrease of the smallest of ``level`` if all change by ``shift`` times one standard normal number."""
    nodes, weights = _quadrature()
    lowest = np.min(level + nodes[:, None] * shift, axis=1)
    return max(0.0, float(level.min() - lowest @ weights))


@cache
def _quadrature() -> tuple[Floats, Floats]:
    """Nodes and weights of the Gauss-Hermite quadrature; the weights sum to one."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return nodes, weights / weights.sum()


def probe_seconds(ranking: Ranking) -> float:
    """Paid seconds of a probe: the start of a machine, and the median duration of the previous probes."""
    measured = [machine for machine in ranking.candidates.machine_estimates if machine.basis == "measured"]
    spent = [
        machine.probe_seconds / machine.repetitions
        for machine in measured
        if machine.probe_seconds and machine.repetitions
    ]
    return START_SECONDS + (statistics.median(spent) if spent else PROBE_SECONDS)


def to_dict(ranking: Ranking) -> dict[str, Any]:
    """Numbers for JSON, with which the report page computes the same next probe."""
    nodes, weights = _quadrature()
    enough = default_regret(history=bool(ranking.inputs.history))
    return {
        "seconds": probe_seconds(ranking),
        "enough_regret": enough,
        "nodes": nodes.tolist(),
        "weights": weights.tolist(),
    }
