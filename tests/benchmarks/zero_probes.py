"""Scores of predictions from descriptions, with constants fitted without the scored source, as tables in Markdown.

It is run by ``prediction.py FOLDER --zero``; ``described.py`` states the files that the folder must have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from decisions import catalog_prices, equal_prices, search
from described import Source, are_related, fit_described, keep_definable, read_works, without_costs
from prediction import Score, fit_constants, score

from vmselect.prediction.posterior import CONSTANTS, Constants

CASES = ((0, 0), (0, 5), (1, 0), (1, 5), (2, 0), (2, 5))
"""Pairs of the number of probes and the number of models in the history."""
LISTS = 4
"""Price lists at which no GPU is cheaper on average."""


def fit_without(name: str, sources: dict[str, Source]) -> Constants:
    """Constants fitted to all sources that are not related to ``name``."""
    others = {key: keep_definable(key, source) for key, source in sources.items() if not are_related(key, name)}
    plain = fit_constants([without_costs(source) for source in others.values()])
    fitted = fit_described(list(others.values()), plain.slopes)
    return replace(plain, roofline=fitted.roofline, described=fitted.described)


def format_score(one: Score | None, plain: Score | None = None) -> str:
    """Mean error, coverage and half-width; in brackets the mean error without descriptions."""
    if one is None:
        return "-"
    without = f" ({plain.mean:.1f})" if plain is not None else ""
    return f"{one.mean:.1f}{without}, {one.coverage:.0f} %, x{one.factor:.1f}"


def format_search(source: Source, prices: Sequence[dict[str, float]], constants: Constants) -> str:
    """Shares of works within 5 % of the best after 0 to 3 probes; the mean regret after 0 and 1 in %."""
    result = search(source, prices, 0, constants)
    if not result["works"]:
        return "-"
    shares = "/".join(f"{share:.2f}" for share in (result["start"], *result["share_by_probes"][:3]))
    return f"{shares}; {', '.join(f'{100 * regret:.0f}' for regret in result['regret'])}"


def print_tables(folder: Path, only: Sequence[str] | None = None) -> None:
    """Print the scores of all works, of definable works, and of choices, each source with its own constants."""
    sources = read_works(folder)
    names = [name for name in sources if only is None or name in only]
    constants: dict[str, Constants] = {}
    for name in names:
        related = next((constants[other] for other in constants if are_related(other, name)), None)
        constants[name] = related or fit_without(name, sources)
        print(f"<!-- {name}: {constants[name].roofline} {constants[name].described} -->", flush=True)
    titles = [f"{probes} probes, {models} models of history" for probes, models in CASES]
    for title in ("all works", "definable works"):
        print(f"\n| {title} | {' | '.join(titles)} |\n|{'---|' * (len(CASES) + 1)}")
        for name in names:
            source = keep_definable(name, sources[name]) if title == "definable works" else sources[name]
            cells = []
            for probes, models in CASES:
                one = score(name, source, probes=probes, models=models, constants=constants[name])
                plain = score(name, without_costs(source), probes=probes, models=models) if probes else None
                cells.append(format_score(one, plain))
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
    heads = "figures, equal prices | description, equal prices | figures, catalog | description, catalog"
    print(f"\n| choices | {heads} |\n|---|---|---|---|---|")
    for name in names:
        source = sources[name]
        lists = [equal_prices(source, Random(number)) for number in range(LISTS)]
        cells = [
            format_search(works, prices, own)
            for prices in (lists, [catalog_prices()])
            for works, own in ((without_costs(source), CONSTANTS), (source, constants[name]))
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
