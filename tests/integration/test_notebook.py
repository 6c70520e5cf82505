"""The example notebook runs as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat", reason="the notebook was not run: nbformat is not installed")
nbclient = pytest.importorskip("nbclient", reason="the notebook was not run: nbclient is not installed")
pytest.importorskip("ipykernel", reason="the notebook was not run: ipykernel is not installed")
pytest.importorskip("tensorflow", reason="the notebook was not run: TensorFlow is not installed")
pytest.importorskip("altair", reason="the notebook was not run: altair is not installed")

NOTEBOOK = Path(__file__).parents[2] / "examples" / "vmselect.ipynb"


@pytest.fixture(scope="module")
def notebook(tmp_path_factory: pytest.TempPathFactory) -> object:
    scratch = tmp_path_factory.mktemp("notebook")
    patch = pytest.MonkeyPatch()
    patch.setenv("IPYTHONDIR", str(scratch / "ipython"))
    patch.setenv("TMPDIR", str(scratch))
    try:
        opened = nbformat.read(NOTEBOOK, as_version=4)
        return nbclient.NotebookClient(opened, timeout=300, resources={"metadata": {"path": str(scratch)}}).execute()
    finally:
        patch.undo()


def test_every_cell_shows_what_it_promises(notebook: object) -> None:
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]  # type: ignore[attr-defined]
    outputs = [output for cell in cells for output in cell.outputs]
    assert not [output for output in outputs if output.get("name") == "stderr"]
    shown = [output["data"] for output in outputs if "data" in output]
    assert sum("<svg" in data.get("image/svg+xml", "") for data in shown) == 4
    assert any("g6.xlarge" in data.get("text/html", "") for data in shown)
    recommended = next(data["text/html"] for data in shown if "text/html" in data)
    assert recommended.startswith("<h3")
    assert "Probably rent" in recommended
    assert "<svg" in recommended  # the interval bars
    printed = "".join(output["text"] for output in outputs if output.get("name") == "stdout")
    assert "15 min" in printed
    assert "report.html" in printed


def test_is_kept_without_outputs() -> None:
    kept = nbformat.read(NOTEBOOK, as_version=4)
    assert all(not cell.get("outputs") and cell.get("execution_count") is None for cell in kept.cells)
