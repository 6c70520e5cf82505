"""The page's scripts that compute, run in a JavaScript engine: no browser, the same code that the page holds."""

from __future__ import annotations

import json
from typing import Any

from py_mini_racer import MiniRacer

import vmselect as vs
from vmselect.report.page import page_data, read_asset

COMPUTING = ("numbers", "probability", "model", "limits", "next_probe", "scaling", "verdict_text", "table", "report")


class Scripts:
    """An engine with the scripts loaded; made once for a test session."""

    def __init__(self) -> None:
        self._engine = MiniRacer()
        self._engine.eval("\n".join(read_asset(f"{name}.js") for name in COMPUTING))

    def call(self, expression: str, **values: Any) -> Any:
        """What an expression gives; ``values`` are its names."""
        names = ", ".join(values)
        given = ", ".join(json.dumps(value) for value in values.values())
        text = self._engine.eval(f"JSON.stringify((({names}) => ({expression}))({given}) ?? null)")
        return json.loads(str(text))

    def rank(self, ranking: vs.Ranking, changes: dict[str, Any]) -> dict[str, Any]:
        """What the page of ``ranking`` computes under ``changes``."""
        found = self.call(
            """(() => {
                const report = readReport(payload);
                const settings = { ...report.initial, ...changes };
                const { probe, providers } = report.payload.page;
                const view = { ...rank(report.candidates, settings, report.excluded), settings, probe, providers };
                const leaders = Object.fromEntries(report.studied ? [] : MEASURES.map(({ name, fields: [field] }) =>
                    [name, findLeaders(feasibleOf(view), settings, field, 500)
                        .map(({ candidate, from }) => [from, candidate.title])]));
                const left = [...view.alwaysExcluded, ...view.unsold, ...view.excluded];
                const terms = view.rows.map((row) => Object.fromEntries(termSeconds(row)));
                return { rows: view.rows, verdict: verdictText(view), left, leaders, terms, regret: view.regret,
                    probe: findNextProbe(view),
                    scaling: { text: scalingText(view.rows), models: scalingOf(view.rows).map(({ gpu, counts }) => [
                        gpu, counts.map(({ gpus, fastest, cheapest, efficiency }) =>
                            [gpus, fastest.seconds, cheapest.cost_usd, efficiency]),
                    ]) } };
            })()""",
            payload=page_data(ranking),
            changes=changes,
        )
        return dict(found)

    def close(self) -> None:
        """End the engine's threads."""
        self._engine.close()
