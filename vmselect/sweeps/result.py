"""The result of a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmselect.findings import Finding
from vmselect.records import Profile, Record
from vmselect.sweeps.collection import load_all
from vmselect.sweeps.plan import Plan, Trial
from vmselect.sweeps.state import State, trials_of
from vmselect.units import format_usd, printable_lines

if TYPE_CHECKING:
    from vmselect.comparison import Scaling


@dataclass(frozen=True)
class Missing:
    """A trial without a record, and why."""

    trial: Trial
    reason: str
    sure: bool = False
    """Whether it was skipped because it cannot change the result."""

    @property
    def id(self) -> str:
        """The trial's number."""
        return self.trial.id

    def __str__(self) -> str:
        factors = ", ".join(f"{name} {level}" for name, level in self.trial.factors.items())
        return printable_lines(f"trial {self.id}{f' ({factors})' if factors else ''}: {self.reason}")


@dataclass(frozen=True)
class SweepResult:
    """The records of a sweep, which rank, compare and report accept, and the trials without a record.

    ``spent_usd`` includes the worst case of trials that may still run (``unproved``); ``worst_usd`` is the worst case
    of the whole sweep. Trials in ``skipped`` may be ``sure`` not to change the result: skipping them saved
    ``saved_usd`` (estimated) and ``saved_worst_usd`` (at most). ``added`` are repetitions of tied trials. Pass
    ``findings`` to ``Ranking.with_findings``.
    """

    folder: Path
    records: list[Record]
    failed: tuple[Missing, ...]
    skipped: tuple[Missing, ...]
    unproved: tuple[Missing, ...]
    spent_usd: float
    worst_usd: float
    added: tuple[Trial, ...] = ()
    saved_usd: float = 0.0
    saved_worst_usd: float = 0.0
    findings: tuple[Finding, ...] = ()

    def scaling(self, *, epochs: int, confidence: float = 0.9, model: str | None = None) -> Scaling:
        """The speedup of several nodes: :func:`vmselect.scaling` of the trainings among the records."""
        from vmselect.comparison import scaling

        trainings = [record for record in self.records if isinstance(record, Profile)]
        return scaling(trainings, epochs=epochs, confidence=confidence, model=model)

    def __str__(self) -> str:
        parts = [
            f"{len(self.records)} records in {self.folder}",
            f"{len(self.failed)} trials failed" if self.failed else "",
            f"{len(self.skipped)} skipped" if self.skipped else "",
            f"{len(self.added)} repetitions added for ties" if self.added else "",
            f"{len(self.unproved)} may still run: vmselect sweep clean {self.folder}" if self.unproved else "",
            f"{format_usd(self.spent_usd)} spent of at most {format_usd(self.worst_usd)}",
            f"skipping saved about {format_usd(self.saved_usd)}" if any(one.sure for one in self.skipped) else "",
        ]
        return printable_lines("; ".join(filter(None, parts)))


def saving(state: State) -> str:
    """The cost that skipping saved, as a phrase."""
    estimated, worst = (
        sum(getattr(skip, name) for skip in state.sure.values()) for name in ("estimated_usd", "worst_usd")
    )
    return f"skipping saved about {format_usd(estimated)}, at most {format_usd(worst)}"


def spared_findings(state: State) -> tuple[Finding, ...]:
    """The trials that a sweep skipped because they could not win: information for a ranking of the others."""
    if not (sure := state.sure):
        return ()
    factors = dict(state.trials)
    whys = {", ".join(f"{k} {v}" for k, v in factors.get(trial, {}).items()): skip.why for trial, skip in sure.items()}
    shown = "; ".join(f"{who}: {why}" for who, why in list(whys.items())[:5])
    more = f"; and {len(whys) - 5} more" if len(whys) > 5 else ""
    return (
        Finding(
            "not-probed",
            f"The sweep skipped {len(sure)} trials that could not win ({shown}{more}); {saving(state)}.",
            f"To run them: vmselect sweep resume {state.folder} --run-all",
            "info",
        ),
    )


def make_result(plan: Plan, state: State, worst_usd: float) -> SweepResult:
    """The result according to the journal."""
    by_status: dict[str, list[Missing]] = {}
    trials = trials_of(plan, state)
    for trial in trials:
        status, skip = state.status_of(trial.id), state.skipped.get(trial.id)
        by_status.setdefault(status, []).append(Missing(trial, state.reason_of(trial.id), bool(skip and skip.sure)))
    files = [file for several in state.records.values() for file in several]
    open_ones = [*by_status.get("starting", ()), *by_status.get("running", ())]
    return SweepResult(
        folder=state.folder, records=load_all(state.folder, files), failed=tuple(by_status.get("failed", ())),
        skipped=tuple(by_status.get("skipped", ())), unproved=tuple(open_ones),
        spent_usd=state.spent_usd, worst_usd=max(worst_usd, state.spent_usd), added=trials[len(plan.trials) :],
        saved_usd=sum(skip.estimated_usd for skip in state.skipped.values()),
        saved_worst_usd=sum(skip.worst_usd for skip in state.skipped.values()), findings=spared_findings(state),
    )  # fmt: skip


def status_rows(state: State) -> list[dict[str, Any]]:
    """A row per trial, from the journal alone."""
    rows = []
    for trial, factors in state.trials:
        attempts = state.attempts.get(trial, [])
        status = state.status_of(trial)
        rows.append(
            {
                "trial": trial, **factors, "status": status, "attempts": len(attempts),
                "seconds": attempts[-1].seconds if attempts else None,
                "spent_usd": sum(attempt.spent_usd for attempt in attempts),
                "records": len(state.records.get(trial, ())),
                "reason": state.reason_of(trial) if status in ("failed", "skipped") else "",
            }
        )  # fmt: skip
    return rows
