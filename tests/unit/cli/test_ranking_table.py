"""The ranking in the terminal."""

from __future__ import annotations

import io
import re
import shlex
import sys
from collections import Counter
from pathlib import Path

import pytest

import vmselect as vs
from vmselect.cli.demo import DESCRIPTIONS, FOUNDING_RECORDS, assumed_probe, rank_example
from vmselect.cli.output import LEAST_WIDTH, Format
from vmselect.cli.ranking_table import MAX_EXCLUDED, print_ranking, probe_line
from vmselect.findings import name_code
from vmselect.ranking.views import NOT_MEASURED, SIMILAR, fold_similar
from vmselect.records import Operations
from vmselect.units import format_brief_seconds, format_brief_usd, format_chance


@pytest.fixture
def ranking() -> vs.Ranking:
    catalog = vs.Catalog.embedded("2021-02-28")
    return vs.rank(vs.load_profiles(FOUNDING_RECORDS), epochs=50, catalog=catalog)


class Terminal(io.TextIOWrapper):
    def __init__(self, encoding: str) -> None:
        super().__init__(io.BytesIO(), encoding=encoding)

    def isatty(self) -> bool:
        return True

    @property
    def text(self) -> str:
        self.flush()
        return re.sub(r"\x1b\[[0-9;]*m", "", self.buffer.getvalue().decode(self.encoding))  # type: ignore[attr-defined]


def show(ranking: vs.Ranking, monkeypatch: pytest.MonkeyPatch, *, encoding: str = "utf-8", width: int = 100) -> str:
    terminal = Terminal(encoding)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(sys, "stdout", terminal)
    print_ranking(ranking, top=10, format=Format.table)
    return terminal.text


def test_the_table_fits_a_terminal_of_100_columns(ranking: vs.Ranking, monkeypatch: pytest.MonkeyPatch) -> None:
    headline, *lines = show(ranking, monkeypatch).splitlines()
    assert headline == ranking.headline
    start = next(i for i, line in enumerate(lines) if line.split()[:1] == ["#"])
    details, (head, *lines) = lines[:start], lines[start:]
    assert " ".join(line.strip() for line in details) == ranking.details
    assert max(map(len, (head, *lines))) <= 100
    assert len(lines) == len(ranking)
    assert head.split() == ["#", "machine", "GPU", "where", "time", "interval", "cost", "best"]


def test_a_narrow_terminal_shows_all_names_whole_and_no_bars(
    ranking: vs.Ranking, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = show(ranking, monkeypatch, width=80)
    assert "●" not in text
    assert all(row.instance_type in text for row in ranking.deciding_rows)
    assert max(map(len, text.splitlines()[1:])) <= 80


@pytest.fixture(scope="module")
def short() -> vs.Ranking:
    """A training of small operations: some rows have only an interval, and costs have many digits."""
    resnet = vs.Profile.load(DESCRIPTIONS / "resnet50.json")
    assert resnet.work is not None
    parts = resnet.work.operations.model_dump()
    smaller = Operations(**parts | {name: tuple(value / 12 for value in parts[name]) for name in ("flops", "bytes")})
    work = resnet.work.model_copy(update={"operations": smaller})
    setup = resnet.setup.model_copy(update={"examples": 25_600, "steps_per_epoch": 100})
    return vs.rank(resnet.model_copy(update={"work": work, "setup": setup}), epochs=20)


@pytest.mark.parametrize("width", [70, 80, 100, 120, 160])
def test_no_number_and_no_place_is_cut_off(short: vs.Ranking, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = show(short, monkeypatch, width=width).splitlines()
    start = next(i for i, line in enumerate(lines) if line.split()[:1] == ["#"])
    head, *lines = lines[start:]
    assert max(map(len, (head, *lines))) <= width
    assert [name for name in head.split() if name != "interval"] == [
        "#", "machine", "GPU", "where", "time", "cost", "best"
    ]  # fmt: skip
    folded = fold_similar(short.deciding_rows, 10)
    firsts = [line for line in lines if line[: head.index("machine")].strip()]
    for line, (row, similar) in zip(firsts, folded, strict=True):
        assert int(line.split()[0]) == row.rank
        assert line.split()[-1] == format_chance(row.chance + sum(other.chance for other in similar))
        assert str(row.provider)[:LEAST_WIDTH] in line
        assert f"{format_brief_usd(row.cost_low).removeprefix('$')}-" in line  # the interval, of every row


def test_an_interval_is_shown_once_in_a_pipe(short: vs.Ranking, capsys: pytest.CaptureFixture[str]) -> None:
    print_ranking(short, top=100, format=Format.table)
    lines = capsys.readouterr().out.splitlines()[2:]
    rows = [line.row for line in fold_similar(short.deciding_rows, 100)]
    assert {row.interval_only for row in rows} == {True, False}
    for row, line in zip(rows, lines[1:], strict=True):
        interval = f"{format_brief_seconds(row.seconds_low)} to {format_brief_seconds(row.seconds_high)}"
        assert line.count(interval) == 1
        assert (format_brief_seconds(row.seconds) in line.replace(interval, "")) is not row.interval_only


def test_the_next_step_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    example = rank_example()
    print_ranking(example, top=10, format=Format.table)
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Next:")]
    command = line.removeprefix("Next:").partition("#")[0]
    assert shlex.split(command)[:4] == ["vmselect", "probe", "--instance-type", example.next_probe.instance_type]


def test_lines_below_the_table_are_wrapped_between_words_except_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    example, terminal = rank_example(), Terminal("utf-8")
    monkeypatch.setenv("COLUMNS", "72")
    monkeypatch.setattr(sys, "stdout", Terminal("utf-8"))
    monkeypatch.setattr(sys, "stderr", terminal)
    command = f"Or:    sky launch {'--flag word ' * 20}end"
    print_ranking(example, top=10, format=Format.table, next_steps=[probe_line(example, "train.py --lr 1"), command])
    lines = terminal.text.splitlines()
    assert command in lines  # copied as it is
    (probe,) = [line for line in lines if line.startswith("Next:")]
    assert "#" not in probe
    assert probe.endswith(" train.py --lr 1")
    others = [line for line in lines if line not in (probe, command)]
    assert max(map(len, others)) <= 72
    words = {word for line in (SIMILAR, str(example.outdated or ""), probe_line(example)) for word in line.split()}
    assert words - {"YOUR_SCRIPT.py"} <= set(terminal.text.split())


def test_bars_show_the_intervals_on_one_scale(ranking: vs.Ranking, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [line for line in show(ranking, monkeypatch).splitlines() if "●" in line]
    rows = sorted(zip(ranking.deciding_rows, lines, strict=True), key=lambda pair: pair[0].seconds)
    places = [line.index("●") for _, line in rows]
    assert places == sorted(places)
    assert places[0] < places[-1]


def test_bounds_are_numbers_without_such_characters(ranking: vs.Ranking, monkeypatch: pytest.MonkeyPatch) -> None:
    text = show(ranking, monkeypatch, encoding="ascii")
    assert "●" not in text
    assert "13 min to 1 h" in text


def test_predicted_rows_are_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = vs.records.Gpu(name="Tesla T4", memory_bytes=16 * 2**30)
    probe = vs.Profile.from_times(
        instance_type="g4dn.xlarge", batch_size=64, steps_per_epoch=100, iteration_seconds=[0.2, 0.21, 0.2]
    )
    environment = probe.environment.model_copy(update={"gpus": (gpu,), "framework_gpus": 1})
    ranking = vs.rank(
        [probe.model_copy(update={"environment": environment})], epochs=5, machines=["g5.xlarge"], market="on_demand"
    )
    assert {"measured", "predicted"} == set(ranking.to_frame()["basis"])
    assert "predicted" in show(ranking, monkeypatch, width=120)


def test_findings_are_counted_and_explained_on_request(ranking: vs.Ranking, capsys: pytest.CaptureFixture[str]) -> None:
    print_ranking(ranking, top=10, format=Format.table)
    brief = capsys.readouterr().err
    print_ranking(ranking, top=10, format=Format.table, verbose=True)
    whole = capsys.readouterr().err
    messages = {finding.message for finding in ranking.findings}
    assert messages
    assert all(message in whole for message in messages)
    assert not any(message in brief for message in messages)
    assert all(name_code(finding.code) in brief for finding in ranking.findings if finding.severity == "warning")


def test_many_exclusions_are_counted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    names = [f"own-{number}" for number in range(5)]
    probes = [vs.Profile.from_times(instance_type=name, batch_size=8, steps_per_epoch=9, iteration_seconds=0.1)
              for name in (*names, "g4dn.xlarge")]  # fmt: skip
    ranking = vs.rank(probes, epochs=5)
    print_ranking(ranking, top=10, format=Format.table)
    assert "own-" not in capsys.readouterr().err
    print_ranking(ranking, top=10, format=Format.table, verbose=True)
    printed = capsys.readouterr().err
    assert all(name in printed for name in names)


def test_predicted_machines_of_a_provider_that_differ_in_the_host_only_share_a_line() -> None:
    hosts = [
        {"provider": provider, "instance_type": f"{provider}-{vcpus}", "region": "here", "usd_per_hour": 2.0,
         "vcpus": vcpus, "gpu_model": "L4", "gpu_count": 1.0, "gpu_memory_gib": 24.0}
        for provider in ("lab", "shop") for vcpus in (8, 16, 32)
    ]  # fmt: skip
    names = [host["instance_type"] for host in hosts]
    catalog = vs.Catalog.embedded("2026-08-22").with_offers(hosts)
    ranking = vs.rank(vs.Profile.load(DESCRIPTIONS / "resnet50.json"), epochs=2, machines=names, catalog=catalog)
    assert len(ranking.rows) == 6
    lines = fold_similar(ranking.rows, 10)
    assert sorted((line.row.provider, len(line.similar)) for line in lines) == [("lab", 2), ("shop", 2)]
    assert sum(row.chance for line in lines for row in (line.row, *line.similar)) == pytest.approx(1)
    assert len(fold_similar(ranking.rows, 1)) == 1


def test_measured_machines_have_a_line_each(ranking: vs.Ranking) -> None:
    lines = fold_similar(ranking.rows, 100)
    assert [line.row for line in lines] == list(ranking.rows)
    assert not any(line.similar for line in lines)


def test_the_basis_below_a_table_is_that_of_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    hosts = [
        {"provider": "lab", "instance_type": f"lab-{vcpus}", "region": "here", "usd_per_hour": 0.2,
         "vcpus": vcpus, "gpu_model": "L4", "gpu_count": 1.0, "gpu_memory_gib": 24.0}
        for vcpus in (8, 16, 32)
    ]  # fmt: skip
    catalog = vs.Catalog.embedded("2026-08-22").with_offers(hosts)
    described = vs.Profile.load(DESCRIPTIONS / "resnet50.json")
    names = [str(host["instance_type"]) for host in hosts]
    first = vs.rank(described, epochs=2, machines=["g4dn.xlarge"], catalog=catalog)
    probe = assumed_probe(described, first, first.best)
    ranking = vs.rank([probe, described], epochs=2, machines=names, catalog=catalog)
    assert [row.basis for row in ranking.deciding_rows] == ["predicted"] * 3 + ["measured"]
    # Two lines: three predicted rows that are alike, and the measured one.
    for top, stated in ((1, True), (2, False)):
        print_ranking(ranking, top=top, format=Format.table)
        assert (NOT_MEASURED["predicted"] in capsys.readouterr().err) is stated


def test_many_exclusions_of_one_kind_are_one_line(short: vs.Ranking, capsys: pytest.CaptureFixture[str]) -> None:
    print_ranking(short, top=10, format=Format.table, verbose=True)
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("Excluded: ")]
    numbers = Counter(entry.reason_code for entry in short.deciding_excluded)
    assert max(numbers.values()) > MAX_EXCLUDED
    assert len(lines) == sum(number if number <= MAX_EXCLUDED else 1 for number in numbers.values())
    for code, number in numbers.items():
        first = next(entry for entry in short.deciding_excluded if entry.reason_code == code)
        (line,) = [line for line in lines if str(first) in line]
        assert number <= MAX_EXCLUDED or line.startswith(f"Excluded: {number} ")
