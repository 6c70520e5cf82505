"""Runtime model from profiles that contain only total times of trainings, as most publications report."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from vmselect.errors import EstimateError
from vmselect.estimation.first_runs import describe_cold_run, is_cold
from vmselect.estimation.runtime import HalfWidths, RuntimeModel
from vmselect.estimation.statistics import predict_once
from vmselect.findings import Finding
from vmselect.records import Profile
from vmselect.units import count_epochs

RUN_SPREAD = 0.03
"""Prior relative standard deviation between runs, from 24 setups with three runs each in Table 4.2 of the dissertation
(0.029, root mean square). Table 4.1 was not used, because its runs have different numbers of epochs."""


def fit_totals(profiles: Sequence[Profile], *, scale: float, confidence: float) -> RuntimeModel:
    """Runtime model from the total times of ``profiles``, multiplied by ``scale`` (relative size of an epoch).

    At the measured number of epochs, the time is the mean of the runs. It is unknown which part of it occurs only once,
    such as the initialization. For other numbers of epochs, the estimate is proportional to the number of epochs, as if
    no part occurred only once. Its interval extends to the other extreme: the whole time occurs only once.
    """
    title = profiles[0].title
    counts = {profile.setup.epochs for profile in profiles}
    (epochs,) = counts if len(counts) == 1 else (None,)
    if epochs is None:
        raise EstimateError(
            f"{title}: the total times are of different or unknown numbers of epochs. Pass the same epochs= to "
            "Profile.from_times for all repetitions."
        )
    runs = [seconds * scale for profile in profiles for seconds in profile.timeline.run_seconds]
    widths = HalfWidths()
    cold = is_cold(runs)
    total = predict_once(runs[:1] if cold else runs, spread=RUN_SPREAD, confidence=confidence)
    each = total.value / epochs
    if cold:  # the low end is that of later runs
        widths.add_sides(each - fmean(runs[1:]) / epochs, 0.0, per_epoch=1.0)
    widths.add_sides(total.half_width_below / epochs, total.half_width_above / epochs, per_epoch=1.0)
    widths.add_sides(each, each, once=-epochs, per_epoch=1.0)
    known = count_epochs(epochs)
    remedy = f"Estimate {known}, or probe the machine to measure step times."
    return RuntimeModel(
        title=title,
        method="robust",
        confidence=confidence,
        terms={"steady_iterations": (0.0, each)},
        low=widths.low,
        high=widths.high,
        certain=(min(runs) / epochs, 0.0),
        findings=(
            *([describe_cold_run(title, [seconds / epochs for seconds in runs], predicted=True)] if cold else []),
            Finding(
                "only-totals",
                f"{title}: only the total time of {known} is known, so the intervals of other numbers of epochs are "
                "wide.",
                remedy,
                "info",
            ),
        ),
        narrowed_by=(remedy,),
    )
