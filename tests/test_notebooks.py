"""The notebook of the documentation runs in a real kernel, and what it trains learns."""

import json
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from scipy.stats import ttest_1samp

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebooks" / "first_run.ipynb"
README = Path(__file__).parents[1] / "README.md"


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_first_job_learns_and_the_notebook_shows_it(tmp_path: Path) -> None:
    assert "agentrl train minigrid run.name=first " in README.read_text()  # the same job
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=1200, resources=resources).execute()
    train, run, before, after, turn, *evaluations = [
        [str(output.data.get("text/html", output.data["text/plain"])) for output in cell.outputs
         if "data" in output]
        for cell in notebook.cells if cell.cell_type == "code"
    ]  # fmt: skip
    (bar,) = train  # in one place, however often it was drawn
    assert '<progress value="1.000"' in bar
    assert "evaluation after" in bar
    assert "data:image/png;base64" in run[0]
    assert "<th>after sampled</th>" in run[0]
    assert before[0].count("data:image/jpeg;base64") > after[0].count("data:image/jpeg;base64") > 1
    assert turn[0].startswith("Turn(")
    assert all("95% interval" in outputs[-1] for outputs in evaluations)
    assert len(evaluations) == 2

    (folder,) = (tmp_path / "runs").glob("minigrid-*")
    records = map(json.loads, (folder / "evaluations.jsonl").read_text().splitlines())
    games = {record["name"]: record["by_seed"] for record in records}
    for decoding in ("sampled", "greedy"):
        was, now = games[f"before {decoding}"], games[f"after {decoding}"]
        gains = [now[seed]["reward"] - was[seed]["reward"] for seed in was]
        assert ttest_1samp(gains, 0.0).confidence_interval().low > 0.5


def test_the_outputs_of_the_notebook_are_stored_and_small() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    assert all(cell["outputs"] for cell in cells if cell["cell_type"] == "code")
    assert NOTEBOOK.stat().st_size < 300_000
