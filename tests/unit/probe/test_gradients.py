"""What is known about a script whose training is not recognized."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

import vmselect as vs
from vmselect.probe.gradients import _script_uses_vmselect


@pytest.mark.parametrize("imported", [None, vs, vs.probe_loop])
def test_a_script_that_defines_names_meanwhile_is_read(imported: object, monkeypatch: pytest.MonkeyPatch) -> None:
    script = ModuleType("__main__")

    class Defining:
        @property
        def __module__(self) -> str:  # asked for by the thread of the time limit
            vars(script)[f"name_{len(vars(script))}"] = None
            return "script"

    vars(script).update(first=Defining(), second=imported)
    monkeypatch.setitem(sys.modules, "__main__", script)
    assert _script_uses_vmselect() == (imported is not None)
