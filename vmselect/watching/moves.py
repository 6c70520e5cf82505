"""Whether it pays to continue a running training on another machine. Nothing is moved here."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from vmselect._checks import check_count, check_number, check_seconds, maybe
from vmselect._models import Output
from vmselect.catalog import Catalog
from vmselect.errors import ArgumentError, EstimateError
from vmselect.estimation import Workload, estimate
from vmselect.intervals import Interval
from vmselect.ranking import Interruptions, rank
from vmselect.records.identity import count_nodes
from vmselect.units import cost_usd, format_chance, format_count, format_seconds, format_usd

if TYPE_CHECKING:
    import pandas as pd

    from vmselect.ranking import Ranking
    from vmselect.records import Profile

BOOT_SECONDS = 180.0
"""Time until a rented machine runs the program. Typical clouds take one to five minutes; pass your own."""
ONCE = ("initialization", "first_iteration", "boot")
"""Terms of a runtime that a running training has behind it, and that a move pays again."""
HALF_WIDTH = NormalDist().inv_cdf(0.95)
"""Half-width of a 90 % interval in standard deviations."""


@dataclass(frozen=True, kw_only=True)
class Move:
    """The rest of the training on another machine, with everything that moving costs."""

    instance_type: str
    provider: str
    region: str
    market: str
    basis: str
    seconds: Interval[float]
    usd: Interval[float]
    saving_usd: float
    chance: float
    """Probability that moving costs less than staying."""

    def __str__(self) -> str:
        where = f"{self.instance_type} ({self.provider}, {self.region}, {self.market})"
        return (
            f"{where}: {format_seconds(self.seconds.value)} for {format_usd(self.usd.value)}, saves "
            f"{format_usd(self.saving_usd)} with a probability of {format_chance(self.chance)}"
        )


class MoveRow(Output):
    """A move as it is printed: the rest of the training on another machine, and what moving saves."""

    instance_type: str
    provider: str
    region: str
    market: str
    basis: str
    seconds: float
    seconds_low: float
    seconds_high: float
    usd: float
    usd_low: float
    usd_high: float
    saving_usd: float
    chance: float


@dataclass(frozen=True, kw_only=True)
class Moves(Sequence[Move]):
    """Moves to other machines, the largest expected saving first."""

    rows: tuple[Move, ...]
    stay_seconds: Interval[float]
    stay_usd: Interval[float]
    required_chance: float
    epochs_left: int
    ranking: Ranking = field(repr=False, compare=False)
    """The ranking of all machines for the rest of the training, on which the moves are based."""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> Any:
        return self.rows[index]

    def __iter__(self) -> Iterator[Move]:
        return iter(self.rows)

    @property
    def suggested(self) -> Move | None:
        """The move with the largest expected saving that saves with the required probability; None if there is none."""
        return next((row for row in self.rows if row.saving_usd > 0 and row.chance >= self.required_chance), None)

    def __str__(self) -> str:
        stay = f"Staying takes {format_seconds(self.stay_seconds.value)} for {format_usd(self.stay_usd.value)}"
        work = f"{format_count(self.epochs_left, 'epoch')} left"
        if self.suggested is None:
            return f"Stay: no move saves money with a probability of {self.required_chance:.0%}. {stay} ({work})."
        return f"Move to {self.suggested}. {stay} ({work})."

    def to_task(self) -> dict[str, Any]:
        """The task of the suggested move for SkyPilot, to be completed with your command; empty if there is none."""
        from vmselect.sweeps.runners.skypilot import split_attached  # on use: runners take time to import

        move = self.suggested
        if move is None:
            return {}
        machine, accelerators = split_attached(move.instance_type)
        resources: dict[str, Any] = {"infra": f"{move.provider}/{move.region}", "instance_type": machine}
        resources |= {"accelerators": accelerators} if accelerators else {}
        resources["use_spot"] = move.market == "spot"
        return {"resources": resources, "workdir": ".", "run": "python train.py  # resumes from its checkpoint"}

    def to_frame(self) -> pd.DataFrame:
        """The moves as a DataFrame."""
        import pandas as pd

        names = ("instance_type", "provider", "region", "market", "basis")
        lines = []
        for row in self.rows:
            line: dict[str, Any] = {name: getattr(row, name) for name in names}
            for name, interval in (("seconds", row.seconds), ("usd", row.usd)):
                line |= {name: interval.value, f"{name}_low": interval.low, f"{name}_high": interval.high}
            lines.append(line | {"saving_usd": row.saving_usd, "chance": row.chance})
        return pd.DataFrame(lines, columns=list(MoveRow.model_fields))


def rank_moves(
    profile: Profile,
    *,
    epochs_left: int | None = None,
    usd_per_hour: float | None = None,
    lost_seconds: float = 0.0,
    boot_seconds: float = BOOT_SECONDS,
    chance: float = 0.9,
    catalog: Catalog | None = None,
    machines: Any = "all",
    probes: Sequence[Profile] = (),
    own_interruptions: Interruptions | None = None,
    **arguments: Any,
) -> Moves:
    """Rank other machines for the rest of the training in ``profile``.

    The cost of moving is counted: booting, initialization, the first step, the part of the current epoch that is
    repeated, and the transfer of checkpoint and data if ``transfer`` is passed.

    Args:
        epochs_left: number of epochs that remain; by default those of the training that are not completed.
        usd_per_hour: price of the present machines together; by default that of the catalog.
        lost_seconds: seconds of training in complete epochs after the last checkpoint, which have to be repeated too.
        boot_seconds: seconds until the program runs on a new machine.
        chance: probability with which a suggested move saves money.
        catalog: prices; by default those that ship with vmselect.
        machines: machine types to consider, or "all".
        probes: profiles of the same training on other machines, so that these need not be predicted.
        own_interruptions: how often the present machine is interrupted, if it is a spot machine, as
            :meth:`vmselect.Interruptions.observed` returns it. Others have the published rate of their type.
        arguments: further arguments of :func:`vmselect.rank`, such as ``market``, ``history`` and ``transfer``.
    """
    left = maybe(check_count, "epochs_left", epochs_left)
    if left is None:
        left = count_epochs_left(profile)
    lost = check_seconds("lost_seconds", lost_seconds)
    required = check_number("chance", chance, least=0.5, most=0.999)
    prices = catalog or Catalog.default()
    stay = estimate_stay(profile, left)
    price = maybe(check_number, "usd_per_hour", usd_per_hour, least=0)
    if price is None:
        if profile.instance_type is None:
            raise ArgumentError("The price of the present machine is unknown. Pass usd_per_hour=.")
        price = prices.price(profile.instance_type, region=profile.region) * count_nodes(profile)
    if own_interruptions is not None:
        stay = _interrupt(stay, own_interruptions)
        # Other spot machines lose as much at an interruption; how often depends on their type.
        arguments.setdefault("interruptions", replace(own_interruptions, per_hour=None, mean_uptime_hours=None))
    stay_usd = stay.map(lambda seconds: cost_usd(seconds, price))
    workload = Workload(boot_seconds=check_seconds("boot_seconds", boot_seconds))
    ranking = rank([profile, *probes], epochs=left, machines=machines, catalog=prices, workload=workload, **arguments)
    moves = []
    for row in ranking.deciding_rows:
        if row.instance_type == profile.instance_type and row.region == (profile.region or row.region):
            continue
        # Work since the last checkpoint is repeated at the speed of the new machine.
        repeated = lost * row.seconds / stay.value if stay.value else 0.0
        seconds = _shift(Interval(row.seconds, row.seconds_low, row.seconds_high), repeated)
        more_usd = cost_usd(repeated, row.usd_per_hour)
        usd = _shift(Interval(row.cost_usd, row.cost_low, row.cost_high), more_usd)
        saving = stay_usd.value - usd.value
        moves.append(
            Move(
                instance_type=row.instance_type, provider=row.provider, region=row.region, market=row.market,
                basis=row.basis, seconds=seconds, usd=usd, saving_usd=saving, chance=chance_below(usd, stay_usd),
            )
        )  # fmt: skip
    moves.sort(key=lambda move: -move.saving_usd)
    return Moves(
        rows=tuple(moves),
        stay_seconds=stay,
        stay_usd=stay_usd,
        required_chance=required,
        epochs_left=left,
        ranking=ranking,
    )


def chance_below(cost: Interval[float], other: Interval[float]) -> float:
    """Probability that ``cost`` is less than ``other``; both are 90 % intervals of positive amounts.

    Amounts are compared by their logarithms, with the half-widths towards each other: the interval of a machine that
    was never probed reaches much further up than down.

    >>> round(chance_below(Interval(1.0, 0.5, 2.0), Interval(2.0, 2.0, 2.0)), 2)
    0.95
    """
    if min(cost.value, other.value) <= 0:
        return float(cost.value < other.value)
    above = math.log(cost.high / cost.value)
    below = math.log(other.value / other.low) if other.low > 0 else math.inf
    ratio, deviation = math.log(other.value / cost.value), math.hypot(above, below) / HALF_WIDTH
    return NormalDist().cdf(ratio / deviation) if deviation else float(ratio > 0)


def count_epochs_left(profile: Profile) -> int:
    """Number of epochs of the training in ``profile`` that are not completed."""
    setup = profile.setup
    if setup.epochs is None:
        raise ArgumentError("The record does not state the number of epochs. Pass epochs_left=.")
    done = profile.timeline.complete_epochs
    left = setup.epochs - setup.initial_epoch - done
    if left < 1:
        raise ArgumentError(f"All {setup.epochs} epochs of this training are completed: nothing is left to move.")
    return left


def _shift(interval: Interval[float], by: float) -> Interval[float]:
    return interval.map(lambda value: value + by)


def _interrupt(stay: Interval[float], interruptions: Interruptions) -> Interval[float]:
    """Remaining seconds with the expected ``interruptions``."""
    work = Interval(*(np.array([seconds]) for seconds in stay))
    return Interval(*(float(seconds[0]) for seconds in interruptions.stretch(work, confidence=0.9)))


def estimate_stay(profile: Profile, epochs: int) -> Interval[float]:
    """Remaining seconds on the present machine: without initialization and first step, which are over."""
    runtime = estimate(profile, epochs=epochs)
    # A move repeats the epoch that has begun; staying does not.
    begun = sum(epoch.seconds for epoch in profile.timeline.epochs[-1:] if not epoch.complete)
    over = sum(runtime.terms.get(name, 0.0) for name in ONCE) + begun
    rest = max(0.0, runtime.seconds - over)
    if not rest:
        raise EstimateError("The record has too few steps to estimate the rest of the training.")
    return Interval(rest, max(0.0, runtime.low - over), max(0.0, runtime.high - over))
