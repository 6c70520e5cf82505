"""What came of a sweep."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmselect.records import Record
from vmselect.sweeps.collection import load_all
from vmselect.sweeps.plan import Plan, Trial
from vmselect.sweeps.state import State
from vmselect.units import format_usd

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Missing:
    """A trial without a record, and why."""

    trial: Trial
    reason: str

    @property
    def id(self) -> str:
        """The trial's number."""
        return self.trial.id

    def __str__(self) -> str:
        factors = ", ".join(f"{name} {level}" for name, level in self.trial.factors.items())
        return f"trial {self.id}{f' ({factors})' if factors else ''}: {self.reason}"


@dataclass(frozen=True)
class SweepResult:
    """Records, and what is missing; ``records`` goes straight into rank, compare and report.

    ``spent_usd`` is what ended trials cost, with the worst case of any that may still run; ``worst_usd`` is what the
    whole sweep could have cost, which never passed the budget. ``unproved`` are trials that may still run.
    """

    folder: Path
    records: list[Record]
    failed: tuple[Missing, ...]
    skipped: tuple[Missing, ...]
    unproved: tuple[Missing, ...]
    spent_usd: float
    worst_usd: float

    def __str__(self) -> str:
        parts = [
            f"{len(self.records)} records in {self.folder}",
            f"{len(self.failed)} trials failed" if self.failed else "",
            f"{len(self.skipped)} skipped" if self.skipped else "",
            f"{len(self.unproved)} may still run: vmselect sweep clean {self.folder}" if self.unproved else "",
            f"{format_usd(self.spent_usd)} spent of at most {format_usd(self.worst_usd)}",
        ]
        return "; ".join(filter(None, parts))


def make_result(plan: Plan, state: State, worst_usd: float) -> SweepResult:
    """The result after the journal's last event."""
    by_status: dict[str, list[Missing]] = {}
    for trial in plan.trials:
        status = state.status_of(trial.id)
        by_status.setdefault(status, []).append(Missing(trial, state.reason_of(trial.id)))
    files = [file for several in state.records.values() for file in several]
    open_ones = [*by_status.get("starting", ()), *by_status.get("running", ())]
    return SweepResult(
        folder=state.folder, records=load_all(state.folder, files), failed=tuple(by_status.get("failed", ())),
        skipped=tuple(by_status.get("skipped", ())), unproved=tuple(open_ones),
        spent_usd=state.spent_usd, worst_usd=max(worst_usd, state.spent_usd),
    )  # fmt: skip


def status_rows(state: State) -> list[dict[str, Any]]:
    """A row per trial, from the journal alone."""
    rows = []
    for trial, factors in state.about.get("trials", []):
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


def status_frame(state: State) -> pd.DataFrame:
    """The same as a frame."""
    import pandas as pd

    return pd.DataFrame(status_rows(state))
