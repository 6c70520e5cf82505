"""``vmselect rank``: what its options print."""

from __future__ import annotations

from typer.testing import CliRunner

import vmselect as vs
from vmselect.cli import app
from vmselect.cli.demo import FOUNDING_RECORDS


def test_relative_prints_a_table_of_time_and_of_cost_for_every_number_of_epochs() -> None:
    done = CliRunner().invoke(app, ["rank", str(FOUNDING_RECORDS), "-e", "10,82", "--date", "2021-02-28", "--relative"])
    assert done.exit_code == 0
    ranking = vs.rank(vs.load_profiles(FOUNDING_RECORDS), epochs=[10, 82], catalog=vs.Catalog.embedded("2021-02-28"))
    _, time, cost = done.stdout.split("\nRelative ")
    for table, objective in ((time, "time"), (cost, "cost")):
        assert table.startswith(objective)
        cells = [line.split() for line in table.splitlines() if "xlarge" in line]
        values = ranking.relative(objective)
        assert [cell[0] for cell in cells] == list(values.index)
        assert [cell[-2:] for cell in cells] == [[f"{ratio:.2f}" for ratio in row] for row in values.to_numpy()]
    plain = CliRunner().invoke(app, ["rank", str(FOUNDING_RECORDS), "-e", "10,82", "--date", "2021-02-28"])
    assert "Relative" not in plain.stdout
