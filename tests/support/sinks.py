"""Every output that untrusted names reach, and for each a check that a name stays text there.

A name comes from a record, a plan or a price file that somebody else wrote. Each function of :data:`SINKS` takes a name
and a folder for files. It raises AssertionError if the name does anything but appear as text.
"""

from __future__ import annotations

import contextlib
import csv
import io
import subprocess
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import vmselect as vs
from tests.support.comparisons import factorial
from tests.support.priced import prices
from tests.support.profiles import make_epoch_profile, make_profile
from vmselect.cli.output import print_csv, print_err, print_out, print_table
from vmselect.records.usage import Usage
from vmselect.report import render_page
from vmselect.report.charts import epoch_curves_chart
from vmselect.report.page import render_comparisons
from vmselect.sweeps.runners.ssh import ssh_command

FRAGMENTS = (
    "</script>", "</ScRiPt >", "<script>harm()</script>", "<!--", "<!-- <script>", "<img src=x onerror=harm()>", "]]>",
    "'\"><b>", "&lt;", "\\u003c", "`harm`", "$(harm)", "${HOME}", "; harm", "| harm", "&& harm", "'", '"', "\\", "\n",
    "\r", "-oProxyCommand=harm", "--", "-", "-F/dev/null", "../../up", "/etc/passwd", "..", ".", "~", "a/b", "C:\\x",
    "CON", "\0", "\x1b[31m", "\x1b]0;harm\x07", "\x9b2J", "\u202e", "\u2028", "=1+1", "+1", "@SUM(A1)", "\t=1",
    "=HYPERLINK(\"http://h\")", "%s", "{x}", "{{x}}", "{0.__class__}", "[bold]x[/bold]", "name", " ", "é", "名",
)  # fmt: skip
"""Parts of names that mean something to a shell, ssh, a file system, a browser, a terminal or a spreadsheet."""
PLAIN = "plain"


def check_shell(name: str, folder: Path) -> None:
    """A level of a factor is one argument of the command, whichever shell runs the command."""
    try:
        plan = vs.Plan(
            ["printf", "%s", "{x}"], factors={"x": [name], "instance_type": ["g5.xlarge"]}, runner="skypilot"
        )
    except vs.errors.PlanError:
        return
    (trial,) = plan.trials
    assert trial.arguments == ("printf", "%s", name)
    done = subprocess.run(["sh", "-c", trial.command], capture_output=True, check=True)
    assert done.stdout.decode("utf-8", "surrogateescape") == name


def check_ssh(name: str, _: Path) -> None:
    """Neither a plan nor a journal can pass an option to ssh, or a second word of its command, as a host."""
    hosts = [name]
    for machines in ({name: None}, {"m": {"host": name}}, {"m": {"hosts": [name]}}):
        with contextlib.suppress(vs.errors.PlanError):
            plan = vs.Plan("python t.py", runner="ssh", factors={"machine": list(machines)}, machines=machines)
            hosts += plan.machines[next(iter(machines))].hosts
    for host in hosts:
        with contextlib.suppress(vs.errors.SweepError):
            *options, mark, target, command = ssh_command(host, "true")
            assert (mark, target, command) == ("--", host.strip(), "true")
            assert name not in options
            assert not target.startswith("-")
            assert not set(target) & set(" \t\r\n\0'\"\\`$;|&<>")


def check_paths(name: str, folder: Path) -> None:
    """Files that are named after something lie in the folder that the user gave."""
    saved = [
        make_profile(name, model=name).save(folder / "records"),
        vs.ConvergenceStudy.from_epochs({64: 3}, model=name).save(folder / "records"),
    ]
    with contextlib.suppress(vs.errors.PlanError):
        plan = vs.Plan("python t.py", factors={"x": [name]})
        saved += [folder / "records" / trial.id for trial in plan.trials]
    for path in saved:
        assert path.parent == folder / "records"
        assert path.resolve().parent == (folder / "records").resolve()
        assert not path.name.startswith((".", "-"))
        assert path.name.isprintable()
        path.unlink(missing_ok=True)


class Tags(HTMLParser):
    """Collects the elements and attributes of a page, in order, and the text of its scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []
        self.scripts: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if (tag, attrs) != ("code", []):  # a text between backticks, which a name may contain too
            self.found.append((tag, tuple(name for name, _ in attrs)))

    def handle_comment(self, _: str) -> None:
        self.found.append(("comment", ()))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts.append(data)


def check_html(name: str, _: Path) -> None:
    """Pages and notebook output have the same elements, whatever the name."""
    assert [Tags(page).found for page in _pages(name)] == [Tags(page).found for page in _pages(PLAIN)]


def _pages(name: str) -> list[str]:
    ranking = _rank(name)
    compared = vs.compare(_records(name), by="machine")
    study = vs.ConvergenceStudy.from_epochs({64: 3}, model=name)
    shown: tuple[Any, ...] = (ranking, compared, study, _profile(name), vs.estimate(_profile(name), epochs=3))
    return [render_page(ranking), render_comparisons([compared, _effects(name)]), *(one._repr_html_() for one in shown)]


def check_chart(name: str, _: Path) -> None:
    """Charts in HTML files and notebooks have the same elements, and no text of a script can end or hide it."""
    for kind in CHARTS:
        check_one_chart(kind, name)


def check_one_chart(kind: str, name: str) -> None:
    """As :func:`check_chart`, for one of :data:`CHARTS`."""
    hostile, plain = CHARTS[kind](name), CHARTS[kind](PLAIN)
    shown = {"file": lambda one: one.to_html(), "notebook": lambda one: one._repr_mimebundle_()["text/html"]}
    for output, write in shown.items():
        tags = Tags(write(hostile))
        assert tags.found == Tags(write(plain)).found, (kind, output)
        assert not any("<!--" in script or "<script" in script.lower() for script in tags.scripts), (kind, output)


def check_terminal(name: str, _: Path) -> None:
    """Whatever commands and results print is printable, line breaks apart, and rich takes no part of it for markup."""
    ranking = _rank(name)
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        print_table([{"name": name, name: 1}], ["name", name])
        print_out(name)
        print_err([name, *ranking.findings, *ranking.excluded])
    printed = [out.getvalue(), err.getvalue(), *map(str, (ranking, *ranking.rows, _profile(name)))]
    try:
        vs.load_profiles(f"none/{name}")
    except vs.errors.VmselectError as refused:
        printed.append(str(refused))
    for text in printed:
        assert text.replace("\n", "").isprintable(), text
    assert "[bold]" not in name or "[bold]" in out.getvalue()


def check_spreadsheet(name: str, folder: Path) -> None:
    """No cell of a CSV file is a formula, and a name fills one cell."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        print_csv([{"name": name, name: -1.5}], ["name", name])
    files = [out.getvalue()]
    with contextlib.suppress(vs.errors.CatalogError):
        offer = {"provider": "lab", "instance_type": "x", "region": "r", "market": "spot", "usd_per_hour": 1.0}
        catalog = vs.Catalog.embedded(date="2021-02-28").with_offers([{**offer, "note": name}])
        files.append(catalog.save(folder / "prices.csv").read_text(encoding="utf-8"))
    for text in files:
        rows = list(csv.reader(io.StringIO(text)))
        assert all(len(row) == len(rows[0]) for row in rows)
        for cell in (cell for row in rows for cell in row):
            assert not cell.lstrip().startswith(("=", "+", "@")), cell
            assert not cell.lstrip().startswith("-") or float(cell) < 0, cell


def _profile(name: str, factor: str = "") -> vs.Profile:
    series = {"usable_cpu_share": (0.5, 0.6)}
    usage = Usage(interval_seconds=1.0, seconds=(1.0, 2.0), phase=("steady_steps",) * 2, series=series)
    made = make_profile("m", model=name, region="here", provider="lab")
    return made.model_copy(update={"factors": {"optimizer": factor or name}, "usage": usage})


def _records(name: str) -> list[vs.Profile]:
    levels = {"m": name, "n": "other"}
    return [
        one.model_copy(update={"factors": {"machine": levels[one.factors["machine"]]}})
        for one in factorial("m", "n", runs=2)
    ]


def _rank(name: str) -> vs.Ranking:
    return vs.rank([_profile(name), _profile(name, "other")], epochs=[3, 5], catalog=prices(("m", 1.0)))


def _effects(name: str) -> vs.Effects:
    return vs.stats.effects(_records(name), factors=["machine", "batch_size"], metric="step_seconds")


def _select(name: str) -> vs.Ranking:
    study = vs.ConvergenceStudy.from_epochs({64: 3, 128: 4}, metrics={64: 0.9, 128: 0.8})
    records = [
        one.model_copy(update={"factors": {"optimizer": level}}) for one in factorial("m") for level in (name, "other")
    ]
    return vs.rank(records, epochs=study, catalog=prices(("m", 1.0)))


CHARTS: dict[str, Callable[[str], Any]] = {
    **{
        kind: lambda name, kind=kind: _rank(name).chart(kind)  # type: ignore[misc]
        for kind in ("time-cost", "epochs-time", "epochs-cost", "terms", "steps", "usage")
    },
    **{
        kind: lambda name, kind=kind: _select(name).chart(kind)  # type: ignore[misc]
        for kind in ("batch-time", "cost-time", "batch-metric")
    },
    **{
        kind: lambda name, kind=kind: vs.compare(_records(name), by="machine").chart(kind)  # type: ignore[misc]
        for kind in ("boxes", "differences", "series")
    },
    **{kind: lambda name, kind=kind: _effects(name).chart(kind) for kind in ("main", "interactions")},  # type: ignore[misc]
    "epoch curves": lambda name: epoch_curves_chart([make_epoch_profile(name, 2.0, 1.0, 1.0)]),
}
"""A function of a name for every kind of chart, which draws the chart with this name in it."""
SINKS: dict[str, Callable[[str, Path], None]] = {
    "shell": check_shell, "ssh options": check_ssh, "paths": check_paths, "HTML": check_html, "chart JSON": check_chart,
    "terminal": check_terminal, "spreadsheet": check_spreadsheet,
}  # fmt: skip
