"""The benchmark of intervals reads every layout and scores what it reads."""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import intervals


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    units = [
        {"run": f"v9/me/box/net/{run}", "unit": "epoch", "start_s": 10.0 * n, "duration_s": 10.0 + (n == 0)}
        for run in range(2)
        for n in range(8)
    ]
    entries = [{"source": "s", "task": "t", "entry": "e", "epoch": n, "hours": (n + 1) / 60} for n in range(8)]
    sizes = [
        {"source": "p", "model": "m", "batch_size": 2**n, "metric": "iteration_ms", "value": 1 + 2.0**n}
        for n in range(4)
    ]
    for name, rows in {"units": units, "entries": entries, "sizes": sizes}.items():
        pd.DataFrame(rows).to_csv(tmp_path / f"{name}.csv", index=False)
    return [tmp_path / f"{name}.csv" for name in ("units", "entries", "sizes")]


def test_constant_work_on_a_line_is_predicted_without_error(
    files: list[Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [one for path in files for one in intervals.read(path) if isinstance(one, intervals.Run)]
    setups = [one for path in files for one in intervals.read(path) if isinstance(one, intervals.Sizes)]
    assert (len(runs), len(setups)) == (3, 1)
    scores = [*intervals.predict_runs(runs), *intervals.predict_sizes(setups)]
    assert {score.seen for score in scores} == {
        "3 units of the run", "5 units of the run", "3 units of another run", "5 units of another run",
        "2 sizes", "3 sizes",
    }  # fmt: skip
    assert max(score.error for score in scores) < 1e-9
    assert all(score.inside and score.width > 0 for score in scores)
    monkeypatch.setattr(sys, "argv", ["intervals.py", *map(str, files)])
    intervals.main()
    assert "| 3 units of the run | MLPerf v9 | 2 |" in capsys.readouterr().out
    before = intervals.robust.EPOCH_SPREAD
    monkeypatch.setattr(sys, "argv", ["intervals.py", *map(str, files), "--leave-out"])
    intervals.main()
    assert "| MLPerf v9 |" in capsys.readouterr().out
    assert before == intervals.robust.EPOCH_SPREAD
    monkeypatch.setattr(sys, "argv", ["intervals.py", *map(str, files), "--growth"])
    intervals.main()
    assert "| +0 | +0 | +0 |" in capsys.readouterr().out.replace("-0", "+0")
