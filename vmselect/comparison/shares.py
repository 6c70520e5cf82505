"""Shares of workers: a worker that is slower than the others, and what equal shares of the batch cost because of it.

Workers that train together wait for the slowest of them in every step. With equal shares of the batch, the speed of all
is therefore that of the slowest times their number; with shares in proportion to their speeds, it is the sum.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd

from vmselect._checks import check_name
from vmselect.comparison.runs import UNKNOWN, read_level
from vmselect.errors import ComparisonError
from vmselect.findings import Finding
from vmselect.records import Profile
from vmselect.records.identity import (
    DATA,
    SCHEDULE,
    VALIDATION,
    check_comparable,
    distinct_values,
    list_values,
    read_records,
)
from vmselect.records.step_times import step_seconds
from vmselect.units import printable

SLOWER = 0.05
"""Difference of speed below which a worker is not called slow. Chosen by judgement."""
LITTLE = 0.005
"""Additional time, as a fraction, that would be shown as 0 %."""
MIN_ROUNDS = 3
"""Fewest measurements of every worker to call one of them consistently last."""
COLUMNS = ("worker", "rounds", "examples_per_second", "times_last", "equal_share", "fair_share")


@dataclass(frozen=True, eq=False)
class WorkerShares:
    """Speeds of workers and their shares of a batch; made by :func:`vmselect.stats.worker_shares`.

    ``table`` has a row per worker: ``rounds`` (measurements of every worker), examples per second, the number of rounds
    in which it was last, and its share of the batch if shares are equal and if they are in proportion to the speeds.
    """

    table: pd.DataFrame
    findings: tuple[Finding, ...]

    @property
    def equal_rate(self) -> float:
        """Examples per second of all workers together with equal shares."""
        return float(self.table["examples_per_second"].min()) * len(self.table)

    @property
    def fair_rate(self) -> float:
        """Examples per second of all workers together with shares in proportion to their speeds."""
        return float(self.table["examples_per_second"].sum())

    @property
    def extra_time(self) -> float:
        """Additional time of a step with equal shares, as a fraction of the time with proportional ones."""
        return self.fair_rate / self.equal_rate - 1

    @property
    def verdict(self) -> str:
        """The slowest worker, and what equal shares cost; or that the workers are equally fast."""
        if self.extra_time < LITTLE:
            return f"The {len(self.table)} workers are about equally fast: equal shares of the batch take no more time."
        slowest = self.table.sort_values("examples_per_second", kind="stable").iloc[0]
        shares = " / ".join(f"{share:.0%}" for share in self.table["fair_share"])
        return printable(
            f"{slowest['worker']} is the slowest of {len(self.table)} workers and last in {slowest['times_last']} of "
            f"{slowest['rounds']} rounds. Equal shares of the batch take {self.extra_time:.0%} more time than "
            f"shares of {shares}."
        )

    def __str__(self) -> str:
        return self.verdict


def worker_shares(records: Iterable[Profile], *, by: str = "worker") -> WorkerShares:
    """Speeds of workers that were probed alone, and what equal shares of the batch cost if they train together.

    ``by`` is the factor (or ``instance_type``) that names the worker of a record. The first record of every worker is
    the first round, and so on; probe all workers in every round, with the same model and batch size.

    >>> import vmselect as vs
    >>> def probed(worker, seconds):
    ...     return vs.Profile.from_times(batch_size=32, iteration_seconds=[seconds] * 5, factors={"worker": worker})
    >>> shares = worker_shares([probed(w, s) for _ in range(3) for w, s in (("10.0.0.4", 0.1), ("10.0.0.5", 0.2))])
    >>> round(shares.extra_time, 2), [finding.code for finding in shares.findings]
    (0.5, ['slow-worker'])
    """
    name = check_name("by", by)
    profiles = sorted(read_records(records, Profile), key=lambda profile: profile.created)
    unnamed = sum(read_level(profile, name) == UNKNOWN for profile in profiles)
    if unnamed:
        raise ComparisonError(
            f"{unnamed} of {len(profiles)} records do not state their {name}. Pass the records of named workers only, "
            "or by= another factor."
        )
    # Workers may hold shares of the data of different sizes.
    remarks = check_comparable(profiles, arguments=DATA | VALIDATION | SCHEDULE, error=ComparisonError)
    sizes = distinct_values(profiles, lambda profile: profile.batch_size)
    if len(sizes) > 1:
        raise ComparisonError(
            f"The records have different batch sizes ({list_values(sizes)}), at which speeds differ too. Pass the "
            "records of one batch size."
        )
    rates: dict[str, list[float]] = {}
    for profile in profiles:
        worker, seconds = str(read_level(profile, name)), step_seconds(profile)
        if not seconds or not profile.batch_size:
            raise ComparisonError(
                f"A record of {worker} has no step times or no batch size. Probe {worker} again, or omit this record."
            )
        rates.setdefault(worker, []).append(profile.batch_size / seconds)
    if len(rates) < 2:
        raise ComparisonError(f"The records are of one worker. Probe every worker ({name}=) alone.")
    rounds = min(map(len, rates.values()))
    rates = {worker: values[:rounds] for worker, values in rates.items()}
    last = [min(rates, key=lambda worker: rates[worker][number]) for number in range(rounds)]
    means = {worker: statistics.fmean(values) for worker, values in rates.items()}
    total = math.fsum(means.values())
    rows = [(worker, rounds, rate, last.count(worker), 1 / len(means), rate / total) for worker, rate in means.items()]
    shares = WorkerShares(pd.DataFrame(rows, columns=list(COLUMNS)), remarks)
    slowest = min(means, key=lambda worker: means[worker])
    others = statistics.fmean(rate for worker, rate in means.items() if worker != slowest)
    if rounds < MIN_ROUNDS or last.count(slowest) < rounds or means[slowest] > (1 - SLOWER) * others:
        return shares
    message = (
        f"{slowest} was the last worker in all {rounds} rounds, with {means[slowest] / others:.0%} of the speed of the "
        f"others. With equal shares of the batch, all wait for it: a step takes {shares.extra_time:.0%} more time."
    )
    remedy = f"Replace {slowest}, or give it {means[slowest] / total:.0%} of the batch instead of {1 / len(means):.0%}."
    return WorkerShares(shares.table, (Finding("slow-worker", message, remedy), *remarks))
