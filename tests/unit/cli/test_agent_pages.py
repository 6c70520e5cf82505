"""Pages for agents: the commands of the skill file run and print JSON, and the tables name what there is."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from vmselect.cli import app
from vmselect.cli.mcp import list_tools
from vmselect.cli.schema import schema_names

sys.path.insert(0, str(Path(__file__).parents[2] / "support"))

from profiles import make_profile

ROOT = Path(__file__).parents[3]
SKILL = (ROOT / "docs" / "agents" / "SKILL.md").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "reference" / "agents-and-programs.md").read_text(encoding="utf-8")
COMMANDS = SKILL.partition("```bash\n")[2].partition("```")[0].splitlines()


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_skill_file_run(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VMSELECT_CACHE_DIR", str(tmp_path / "cache"))
    for folder in ("profiles", "records"):
        for name, seconds in (("g4dn.xlarge", 0.2), ("g5.xlarge", 0.08)):
            make_profile(name, seconds).save(tmp_path / folder)
    (tmp_path / "train.py").write_text("")
    (tmp_path / "plan.yaml").write_text("command: python3 train.py\nrunner: local\nminutes: 1\n")
    done = CliRunner().invoke(app, command.split()[1:])
    assert done.exit_code in (0, 1), done.output
    if "json" in command:
        json.loads(done.stdout)


def test_the_skill_file_has_the_head_that_agents_read() -> None:
    assert re.match(r"---\nname: [a-z-]{1,64}\ndescription: [^\n]{1,1024}\n---\n", SKILL)


def test_the_page_of_tools_names_every_tool() -> None:
    table = PAGE.partition("### Tools\n")[2].partition("\n##")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE) == list(list_tools())


def test_the_page_of_schemas_names_every_schema() -> None:
    table = PAGE.partition("| name |")[2]
    cells = re.findall(r"^\| (`[^|]*) \|", table.partition("\n\n")[0], flags=re.MULTILINE)
    assert sorted(re.findall(r"`([a-z-]+)`", " ".join(cells))) == schema_names()
