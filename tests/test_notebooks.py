"""The notebook of the documentation runs in a real kernel, with smaller numbers."""

import json
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebooks" / "first_run.ipynb"
SHORT = {
    "warm_start.steps=80": "warm_start.steps=4",
    "train.steps=10": "train.steps=1",
    "eval.episodes=20": "eval.episodes=2",
    "episodes=40": "episodes=2",
}


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_notebook_runs_with_one_bar_per_job_and_shows_pictures_and_tables(
    tmp_path: Path,
) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    source = "".join(cell.source for cell in notebook.cells)
    assert all(code in source for code in SHORT)
    for cell in notebook.cells:
        for long, short in SHORT.items():
            cell.source = cell.source.replace(long, short)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, resources=resources).execute()
    train, run, episode, turn, *evaluations = [
        [str(output.data.get("text/html", output.data["text/plain"])) for output in cell.outputs
         if "data" in output]
        for cell in notebook.cells if cell.cell_type == "code"
    ]  # fmt: skip
    (bar,) = train  # in one place, however often it was drawn
    assert '<progress value="1.000"' in bar
    assert "evaluation after" in bar
    assert "data:image/png;base64" in run[0]
    assert "<th>after sampled</th>" in run[0]
    assert episode[0].count("data:image/jpeg;base64") >= 2
    assert turn[0].startswith("Turn(")
    assert all("95% interval" in outputs[-1] for outputs in evaluations)
    assert len(evaluations) == 2


def test_the_outputs_of_the_notebook_are_stored_and_small() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert all(cell["outputs"] for cell in cells if cell["cell_type"] == "code")
    assert NOTEBOOK.stat().st_size < 300_000
