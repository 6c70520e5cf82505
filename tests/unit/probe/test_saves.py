"""Functions that save are replaced when their module is imported, and saves of the probe's own folders take place."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from vmselect.probe import saves


class Ended(BaseException):
    """Raised in place of the end of the process."""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A library that saves: its module, imported after its functions were listed."""
    (tmp_path / "savinglib.py").write_text(
        "def save(thing, path):\n    return inner(path)\n\n\ndef inner(path):\n    return path\n\n\n"
        "class Manager:\n    def __init__(self, directory):\n        self.directory = directory\n\n"
        "    def save(self):\n        return self.directory\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))

    def stop(save: saves.Save) -> None:
        raise Ended(save)

    monkeypatch.setattr(saves, "_stop", stop)
    names = {"save": "savinglib.save", "inner": "inner", "Manager.save": "Manager.save", "missing": "missing"}
    saves.after_import("savinglib", lambda module: saves._guard(names, module))
    yield importlib.import_module("savinglib")
    del sys.modules["savinglib"]


def test_a_save_ends_the_program_and_names_its_line(library) -> None:
    with pytest.raises(Ended) as ended:
        library.save(1, "model.bin")
    (save,) = ended.value.args
    assert (save.function, Path(save.file).name) == ("savinglib.save", Path(__file__).name)
    with pytest.raises(Ended):
        library.Manager("here").save()


def test_a_save_to_a_scratch_folder_takes_place_with_all_that_it_calls(library) -> None:
    target = f"/tmp/{saves.SCRATCH}x/model.bin"
    assert library.save(1, target) == library.save(1, Path(target)).__fspath__() == target
    assert library.Manager(target).save() == target
    with pytest.raises(Ended):  # the next save is not inside an allowed one
        library.save(1, "model.bin")


def test_a_module_that_was_imported_before_is_changed_at_once() -> None:
    seen = []
    saves.after_import("json", seen.append)
    assert seen == [sys.modules["json"]]


def test_an_import_that_fails_can_be_repeated(library, tmp_path: Path) -> None:
    seen = []
    saves.after_import("brokenlib", seen.append)
    (tmp_path / "brokenlib.py").write_text("raise ValueError('broken')\n")
    with pytest.raises(ValueError, match="broken"):
        importlib.import_module("brokenlib")
    (tmp_path / "brokenlib.py").write_text("word = 'mended'\n")
    importlib.invalidate_caches()
    importlib.import_module("brokenlib")
    assert [module.word for module in seen] == ["mended"]
    del sys.modules["brokenlib"]


def test_emptying_a_model_file_is_a_save(library, tmp_path: Path) -> None:
    model, other = tmp_path / "model.pt", tmp_path / "notes.txt"
    for file in (model, other):
        file.write_text("mine")
    truncate = 0o1000  # O_TRUNC
    assert truncate == saves.os.O_TRUNC
    with pytest.raises(Ended):
        saves._on_event("open", (str(model), "wb", truncate))
    for event in (
        ("open", (str(model), "rb", 0)),
        ("open", (str(other), "wb", truncate)),
        ("open", (str(tmp_path / "new.pt"), "wb", truncate)),
        ("open", (3, "wb", truncate)),
        ("import", ("torch",)),
    ):
        saves._on_event(*event)


def test_a_new_file_that_the_script_opened_for_its_save_is_removed(library, tmp_path: Path) -> None:
    (tmp_path / "full.pt").write_text("mine")
    with (tmp_path / "new.pt").open("wb") as new, (tmp_path / "full.pt").open("ab") as full:
        for file in (new, full, SimpleNamespace(name="nothing")):
            with pytest.raises(Ended):
                library.save(1, file)
    assert (tmp_path / "full.pt").read_text() == "mine"
    assert not (tmp_path / "new.pt").exists()


@pytest.mark.parametrize("name", saves.SAVES)
def test_listed_functions_exist_in_the_installed_library(name: str) -> None:
    top, _, rest = name.partition(".")
    spec = importlib.util.find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"{top} is not installed: its functions were not looked up")
    place = Path(spec.submodule_search_locations[0], *rest.split("."))
    source = next((file for file in (place.with_suffix(".py"), place / "__init__.py") if file.is_file()), None)
    if source is None:
        pytest.skip(f"the installed version of {top} has no module {name}")
    defined = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            defined |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            defined.add(node.name)
        elif isinstance(node, ast.ImportFrom):
            defined |= {part.asname or part.name for part in node.names}
    assert defined >= saves.SAVES[name].keys()
