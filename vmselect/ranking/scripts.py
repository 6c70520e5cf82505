"""Scripts with several fits (trainings), which are ranked as a whole: the time of a machine is the sum of all fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from vmselect.catalog import Catalog
from vmselect.errors import ArgumentError, RankingError
from vmselect.estimation import RuntimeModel
from vmselect.estimation.programs import combine_models, epochs_of, order_fits, split_programs
from vmselect.findings import Finding
from vmselect.ranking.estimates import MachineEstimate, check_gpu_memory
from vmselect.ranking.rows import Excluded
from vmselect.records import Profile
from vmselect.records.identity import Identity, identify, list_values
from vmselect.units import format_count, list_all, list_some

ONE_FIT = (
    "To rank one of its trainings, choose it with --fit "
    "(in Python: vmselect.estimation.programs.choose_profiles(profiles, fit=1))."
)
INCOMPLETE = "incomplete_script"


@dataclass(frozen=True)
class Script:
    """A script with several fits: its profiles of each machine, and what was probed but is not the whole script."""

    programs: Sequence[Sequence[Profile]]
    """The profiles of each machine and batch size on which all fits were probed."""
    excluded: Sequence[Excluded]
    sets_epochs: bool = True
    """Whether each fit has the number of epochs that the script sets, and not one that the user passes for all."""

    @property
    def profiles(self) -> list[Profile]:
        """The profiles of all machines."""
        return [profile for program in self.programs for profile in program]

    @property
    def fits(self) -> list[list[Profile]]:
        """The profiles of each fit on all machines, in the order of the script."""
        return order_fits(self.profiles)

    @property
    def groups(self) -> dict[Identity, list[list[Profile]]]:
        """The fits of each machine; its batch size is None if the fits have different ones."""
        groups: dict[Identity, list[list[Profile]]] = {}
        for program in self.programs:
            identity = identify(program[0])
            if len({profile.batch_size for profile in program}) > 1:
                identity = identity.machine
            groups[identity] = order_fits(program)
        return groups

    @property
    def total_epochs(self) -> int:
        """Number of epochs of the whole script, as it sets them. Raises an error if profiles disagree."""
        return sum(map(_count_epochs, self.fits))

    def combine(
        self, profiles: Sequence[Profile], fit: Callable[[Sequence[Profile]], RuntimeModel], at: int
    ) -> RuntimeModel:
        """The runtime of the whole script on one machine; ``fit`` makes the runtime model of one of its fits.

        The model is exact at ``at`` epochs: those of the whole script, or those that the user passes for each fit.
        """
        fits = order_fits(profiles)
        return combine_models([fit(same) for same in fits], self._counts(profiles, at), at=at)

    def _counts(self, profiles: Sequence[Profile], at: int) -> list[int]:
        """Number of epochs of each fit in ``profiles``, which may lack numbers that those of another machine state."""
        planned = {_number(same[0]): _count_epochs(same) for same in self.fits} if self.sets_epochs else {}
        return [planned.get(_number(same[0]), at) for same in order_fits(profiles)]

    def check_memory(
        self, estimates: Sequence[MachineEstimate], catalog: Catalog
    ) -> tuple[list[MachineEstimate], list[Excluded], tuple[Finding, ...]]:
        """Like :func:`~vmselect.ranking.estimates.check_gpu_memory`: every fit has to fit into the memory."""
        mixed = {estimate.machine_key for estimate in estimates if not estimate.batch_size}
        excluded: list[Excluded] = []
        findings: dict[Finding, None] = {}
        for same in self.fits:
            sized = [_at_size(e, same[0].batch_size) if e.machine_key in mixed else e for e in estimates]
            estimates, small, unknown = check_gpu_memory(sized, same, catalog)
            excluded += small
            findings |= dict.fromkeys(unknown)
        kept = [_at_size(estimate, None) if estimate.machine_key in mixed else estimate for estimate in estimates]
        return kept, excluded, tuple(findings)

    def describe(self, at: int | None) -> Finding:
        """The finding that the ranking is of the whole script, for ``at`` epochs."""
        firsts = [same[0] for same in self.fits]
        parts = [
            f"{_number(first)} ({(first.fit and first.fit.name) or first.model or 'unnamed'}, "
            f"{format_count(count, 'epoch')})"
            for first, count in zip(firsts, self._counts(firsts, at or 1), strict=True)
        ]
        message = f"The script trains {len(parts)} times, so times and costs are those of all its fits: "
        return Finding("whole-script", f"{message}{list_some(parts, 6)}.", ONE_FIT, "info")


def _number(profile: Profile) -> int:
    return profile.fit.number if profile.fit is not None else 0


def _count_epochs(same: Sequence[Profile]) -> int:
    """Number of epochs of a fit; profiles that do not state it are ignored. Raise if they differ."""
    counts = {epochs_of(profile) for profile in same if profile.setup.epochs is not None}
    if len(counts) > 1:
        raise ArgumentError(
            f"The profiles of fit {_number(same[0])} are of {list_values(counts)} epochs. Pass epochs= (--epochs), "
            "such as 50."
        )
    return counts.pop() if counts else epochs_of(same[0])


def find_script(profiles: Sequence[Profile], *, sizes: bool) -> Script | None:
    """The script whose fits ``profiles`` are; None if they are of a single training.

    ``sizes`` is True if the user selects batch sizes: fits that differ in their size are then one training. So are fits
    of one model at several batch sizes, in any case: a script that tries several sizes trains with one of them.
    """
    split, others = split_programs(profiles)
    programs: list[list[Profile]] = []
    for program in split:
        is_sweep = len({profile.batch_size for profile in program}) > 1 and (
            sizes or len({(profile.model, profile.setup.structure) for profile in program}) == 1
        )
        if is_sweep:
            others += program
        else:
            programs.append(program)
    if not programs:
        return None
    numbers = max((_numbers(program) for program in programs), key=len)
    excluded = [_incomplete(program, numbers) for program in programs if _numbers(program) != numbers]
    excluded += [_incomplete([profile], numbers) for profile in others]
    return Script([p for p in programs if _numbers(p) == numbers], list(dict.fromkeys(excluded)))


def _numbers(program: Sequence[Profile]) -> set[int]:
    return {profile.fit.number for profile in program if profile.fit is not None}


def _incomplete(program: Sequence[Profile], numbers: set[int]) -> Excluded:
    """The exclusion of a machine on which not every fit with one of ``numbers`` was probed."""
    missing = sorted(numbers - _numbers(program))
    what = f"fit {list_all(missing)} of the script was not probed on it" if missing else "it trains another script"
    return Excluded(program[0].title, INCOMPLETE, f"{what}; probe the whole script. {ONE_FIT}")


def _at_size(estimate: MachineEstimate, size: int | None) -> MachineEstimate:
    factors = {name: value for name, value in estimate.factors.items() if name != "batch_size"}
    return replace(estimate, factors=factors | ({"batch_size": size} if size else {}))


def refuse_script(estimates: Sequence[MachineEstimate], what: str) -> None:
    """Raise an error if ``estimates`` are of a script with several fits, for which ``what`` is impossible."""
    if any(estimate.fits for estimate in estimates):
        raise RankingError(f"{what} takes one training, and this script has several. {ONE_FIT}")
