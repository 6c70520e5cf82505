"""When a time that was predicted from a description should not be trusted, and what to do instead."""

from __future__ import annotations

from vmselect.findings import Finding
from vmselect.prediction.roofline import StepCost
from vmselect.units import format_seconds

LAUNCH_BOUND = 0.6
"""Share of the launch overhead above which only an interval is shown: there, published times differ from predicted
ones by 49 % on average, with a deviation of 1.07 in log time."""
LAUNCH_HEAVY = 0.3
"""Share of the launch overhead from which the host matters as much as the GPU."""
SHORT_SECONDS = 0.03
"""Predicted step time below which only an interval is shown: the overhead per step of a user's software is not known
(2 to 12 ms in public measurements)."""
MANY_LOOKUPS = 0.1
"""Share of the bytes in embedding tables above which published times differ from predicted ones by 2 to 10 times."""
PROBE = "Probe one machine with a GPU; a few steps are enough."


def is_interval_only(seconds: float, launch_share: float) -> bool:
    """Whether a step time that was predicted without a probe is too uncertain to state a single number."""
    return launch_share > LAUNCH_BOUND or seconds < SHORT_SECONDS


def explain_interval(launch_share: float) -> str:
    """Why only the interval of a step time is meaningful."""
    why = f"{launch_share:.0%} of the predicted step is spent by the host on starting operations"
    if launch_share <= LAUNCH_BOUND:
        why = f"The predicted step is shorter than {format_seconds(SHORT_SECONDS)}"
    return f"{why}, which depends on the software and the host more than on the GPU. Only the interval is meaningful."


def find_cautions(cost: StepCost, seconds: float, launch_share: float) -> list[Finding]:
    """Findings about a step time of ``seconds`` that was predicted from ``cost`` without a probe of the training.

    ``launch_share`` is the share of the launch overhead in the step time on the predicted machine.
    """
    findings: list[Finding] = []
    if is_interval_only(seconds, launch_share):
        text = explain_interval(launch_share)
        findings.append(Finding("launch-bound", text, f"Use a larger batch size, or compile the step. {PROBE}"))
    elif launch_share >= LAUNCH_HEAVY:
        text = f"{launch_share:.0%} of the predicted step is spent by the host on starting operations."
        findings.append(Finding("launch-overhead", text, f"Use a larger batch size on this machine. {PROBE}"))
    if cost.embedding_share > MANY_LOOKUPS:
        text = (
            f"Embedding tables take {cost.embedding_share:.0%} of the memory traffic. Times of such models, "
            "as of small recommenders, were off by 2 to 10 times."
        )
        findings.append(Finding("embedding-tables", text, PROBE))
    if cost.recurrent:
        text = "The model has recurrent layers, whose times were off by -32 to +49 %."
        findings.append(Finding("recurrent-layers", text, PROBE))
    if cost.caveat_level:
        text = "The description is uncertain (custom code, compiled steps or counts of a part), so intervals are wider."
        findings.append(Finding("uncertain-description", text, PROBE))
    return findings
