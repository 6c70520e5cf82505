"""The answer in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmselect.ranking.objectives import name_of

if TYPE_CHECKING:
    from vmselect.ranking.result import Ranking

SHOWN = 3


def verdict(ranking: Ranking) -> str:
    """What to rent, how long it takes, what it costs, and who is just as good as far as the intervals tell."""
    if not ranking:
        return nothing_feasible(ranking)
    best = ranking.best
    aim = {"cost": "lowest cost", "time": "shortest time"}
    chosen = aim.get(name_of(ranking.settings.objective), f"best {name_of(ranking.settings.objective)}")
    count = len(_deciding(ranking))
    sentence = f"Rent {best}: " + (
        f"the {chosen} of {count:,} candidates." if count > 1 else "the only candidate left."
    )
    rivals = [i for i in _deciding(ranking)[1:] if ranking.assessment.tied[i, ranking.deciding_column]]
    if rivals:
        names = [ranking.candidates.title(int(i)) for i in rivals[:SHOWN]]
        more = f" and {len(rivals) - SHOWN} more" if len(rivals) > SHOWN else ""
        sentence += f" Within the intervals it is a tie with {'; '.join(names)}{more}."
    return sentence


def as_text(ranking: Ranking, *, shown: int = 10) -> str:
    """The verdict, then the best rows at the deciding epoch count as a table, then how many were left out."""
    if not ranking:
        return nothing_feasible(ranking)
    which = _deciding(ranking)
    rows = [ranking.row(i, ranking.deciding_column) for i in which[:shown]]
    table = [("", "instance type", "where", "market", "batch", "time", "cost", "score", "")]
    tie = ranking.assessment.tied[which, ranking.deciding_column].sum() > 1
    for row in rows:
        marks = " ".join(mark for mark, holds in (("tie", tie and row.tied_with_best), ("pareto", row.pareto)) if holds)
        place = f"{row.provider} {row.region}"
        batch = str(row.batch_size or "?")
        table.append(
            (str(row.rank), row.instance_type, place, row.market, batch, row.time_text, row.cost_text,
             f"{row.score:.2f}", marks)
        )  # fmt: skip
    widths = [max(len(line[k]) for line in table) for k in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
    more = len(which) - len(rows)
    tail = [f"... and {more:,} more"] if more > 0 else []
    if ranking.left_out:
        tail.append(f"Left out: {_count(len(ranking.left_out), 'candidate')}; see ranking.excluded.")
    return "\n".join([verdict(ranking), "", *lines, *tail])


def nothing_feasible(ranking: Ranking) -> str:
    """Why there is no answer."""
    reasons = ranking.count_reasons()
    counted = ", ".join(f"{_count(n, 'candidate')} {code.replace('_', ' ')}" for code, n in reasons.most_common())
    most = reasons.most_common(1)[0][0]
    example = next(excluded for excluded in ranking.left_out if excluded.reason_code == most)
    return f"Nothing is feasible: {counted}. For one, {example}."


def _deciding(ranking: Ranking) -> list[int]:
    return [int(i) for i in ranking.assessment.order[ranking.deciding_column]]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"
