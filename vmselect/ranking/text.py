"""Verdict and table of a ranking as text. ``verdict_text.js`` of the page writes the same verdict, as a test checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vmselect.findings import Finding, warnings_first
from vmselect.ranking.measures import MEASURES, describe_objective
from vmselect.units import format_seconds, format_usd

if TYPE_CHECKING:
    from vmselect.ranking.result import Ranking
    from vmselect.ranking.rows import Row

SHOWN = 3


def verdict(ranking: Ranking) -> str:
    """The verdict: the machine to rent with its time and cost, where another is better, and the tied candidates."""
    if not ranking:
        return nothing_feasible(ranking)
    column, result = ranking.deciding_column, ranking.assessment
    order = [int(i) for i in result.order[column]]
    best = order[0]
    # The first in order is the choice; the others are ordered by score.
    leader = next((i for i in order[1:2] if result.score[i, column] < result.score[best, column]), best)
    objective = describe_objective(ranking.settings.objective)
    aim = MEASURES[objective].aim if objective in MEASURES else f"best {objective}"
    if len(order) == 1:
        claim = "the only candidate left."
    elif leader == best:
        claim = f"the {aim} of {len(order):,} candidates."
    else:
        claim = f"tied for the {aim} of {len(order):,} candidates. {_given_up(ranking, best, leader, aim)}"
    rivals = [i for i in order[1:] if result.tied[i, column] and i != leader]
    tie = ""
    if rivals:
        shown = [(ranking.candidates.title(i), ranking.measures_of(i, column)) for i in rivals[:SHOWN]]
        names = [f"{n} ({format_usd(m['cost'].value)} in {format_seconds(m['time'].value)})" for n, m in shown]
        more = f" and {len(rivals) - SHOWN:,} more" if len(rivals) > SHOWN else ""
        tie = f" Within the intervals it is a tie with {'; '.join(names)}{more}."
    return f"Rent {ranking.best}: {claim}{tie}"


def _given_up(ranking: Ranking, best: int, leader: int, aim: str) -> str:
    """Sentence: in which measures ``leader``, with the best score, is better than the choice ``best``, and worse."""
    chosen, leading = (ranking.measures_of(i, ranking.deciding_column) for i in (best, leader))
    better, worse = [], []
    for name, measure in MEASURES.items():
        mine, its = chosen[name].value, leading[name].value
        if ranking.settings.objective[name]:
            better.append(f"{measure.format(its)} instead of {measure.format(mine)}")
        else:
            ratio = its / mine if mine else 0.0
            times = f"{ratio:.3g} times" if ratio < 999.5 else f"{ratio:,.0f} times"
            worse.append(f"its {name} is {times if mine else 'more than'} that of the choice ({measure.format(its)})")
    title = ranking.candidates.title(leader)
    return f"By the estimates alone {title} has the {aim}, {', '.join(better)}, but {', '.join(worse)}."


def as_text(ranking: Ranking, *, shown: int = 10) -> str:
    """Text with verdict, table of the best rows at the deciding epoch count, excluded candidates and findings."""
    if not ranking:
        return verdict(ranking)
    rows = ranking.deciding_rows[:shown]
    table = [("", "instance type", "where", "market", "batch", "time", "cost", "score", "")]
    tie = ranking.assessment.tied[:, ranking.deciding_column].sum() > 1
    for row in rows:
        table.append(
            (str(row.rank), row.instance_type, f"{row.provider} {row.region}", row.market, str(row.batch_size or "?"),
             row.time_text, row.cost_text, f"{row.score:.2f}", marks(row, tie=tie))
        )  # fmt: skip
    widths = [max(len(line[k]) for line in table) for k in range(len(table[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]
    more = len(ranking.deciding_rows) - len(rows)
    tail = [f"... and {more:,} more"] if more > 0 else []
    study = [f"\n{ranking.study}"] if ranking.study else []
    return "\n".join([verdict(ranking), "", *lines, *tail, *remarks(ranking, rows), *study])


def marks(row: Row, *, tie: bool) -> str:
    """Last cell of a row: ``tie`` (if several candidates are tied), ``pareto``, and the bound of a faster GPU."""
    held = " ".join(mark for mark, holds in (("tie", tie and row.tied_with_best), ("pareto", row.pareto)) if holds)
    return ", ".join(filter(None, (held, row.bound)))


def remarks(ranking: Ranking, rows: Sequence[Row]) -> list[str]:
    """Lines below a table of ``rows``: excluded candidates with reasons, and findings."""
    lines = []
    if ranking.deciding_excluded:
        lines.append(f"Excluded: {_describe_reasons(ranking)}; see ranking.excluded.")
        lines += [f"  {excluded}" for excluded in ranking.deciding_excluded[:SHOWN]]
    return lines + describe_findings(ranking, rows)


def describe_findings(ranking: Ranking, rows: Sequence[Row]) -> list[str]:
    """A line per kind of finding about the ranking or one of ``rows``, with the ranks that it concerns."""
    about: dict[Finding, list[int]] = {finding: [] for finding in ranking.findings}
    for row in rows:
        for finding in row.findings:
            about.setdefault(finding, []).append(row.rank)
    kinds: dict[str, list[Finding]] = {}
    for finding in warnings_first(about):
        kinds.setdefault(finding.code, []).append(finding)
    lines = []
    for first, *others in kinds.values():
        # Findings of one kind mostly differ only in numbers: the first is printed, and the ranks of the others.
        ranks = about[first]
        more = {rank for other in others for rank in about[other]}.difference(ranks)
        similar = f"; similar: {_join_ranks(more)}" if more else ""
        noun = "row" if len(ranks) == 1 else "rows"
        where = f" ({noun} {_join_ranks(ranks)}{similar})" if ranks and len(ranks) < len(rows) else ""
        lines.append(f"{first.severity.capitalize()}{where}: {first}")
    return lines


def _join_ranks(ranks: Iterable[int]) -> str:
    """Text of ranks, such as "1-3, 7"."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)


def nothing_feasible(ranking: Ranking) -> str:
    """Verdict if all candidates are excluded: the reasons, and the shortfall of the nearest candidate or an example."""
    reasons = ranking.count_reasons()
    if not reasons:
        return "Nothing is feasible: there are no candidates."
    if short := ranking.shortfall:
        return f"Nothing is feasible: {_describe_reasons(ranking)}. {short}"
    most = reasons.most_common(1)[0][0]
    example = next(excluded for excluded in ranking.deciding_excluded if excluded.reason_code == most)
    return f"Nothing is feasible: {_describe_reasons(ranking)}. For one, {example}."


def _describe_reasons(ranking: Ranking) -> str:
    """Text with the number of excluded candidates for each reason."""
    return ", ".join(
        f"{count:,} candidate{'' if count == 1 else 's'} {code.replace('_', ' ')}"
        for code, count in ranking.count_reasons().most_common()
    )
