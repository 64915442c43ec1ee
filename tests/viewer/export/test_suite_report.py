"""The page of a suite's results."""

import re
from html import unescape
from pathlib import Path

import pytest

from agentrl.training.evaluation.suite_results import TaskResult
from agentrl.viewer.export import write_suite_report
from tests.viewer.export.test_html_pages import HOSTILE


def result(model: str, **changes: object) -> TaskResult:
    settings = {
        "model": model, "suite": "shapes", "task": "easy", "metric": "accuracy", "passes": True,
        "settings": "{}", "samples": 2, "void": 1, "seconds": 1.0, "run": f"01-{model}",
        "metrics": {}, "values": {1: [0.0, 1.0], 2: [1.0, 1.0], 3: [0.0]}, "category": "kind",
        "categories": {1: "a", 2: "b", 3: "a"},
    }  # fmt: skip
    return TaskResult(**{**settings, **changes})


def page(tmp_path: Path, *results: TaskResult) -> str:
    write_suite_report(results, tmp_path / "report.html")
    return (tmp_path / "report.html").read_text()


def test_the_page_shows_estimates_categories_and_differences(tmp_path: Path) -> None:
    better = result("new", values={1: [1.0, 1.0], 2: [1.0, 1.0], 3: [1.0]})
    text = unescape(page(tmp_path, result("old"), better))
    # Seeds have the means 0.5, 1 and 0: 0.5 +- 4.303 * 0.5 / sqrt(3), within [0, 1].
    assert "0.50 (0.00 to 1.00)" in text
    assert "+0.50 (-0.74 to 1.74)" in text
    for word in ("minus old", "kind a", "pass@2", "01-new", "Wilson", "Student's t"):
        assert word in text
    assert text.count('<g class="bar') == 2


def test_the_page_escapes_everything_and_loads_nothing(tmp_path: Path) -> None:
    hostile = result(HOSTILE, suite=HOSTILE, task=HOSTILE, metric=HOSTILE, run=HOSTILE,
                     category=HOSTILE, categories={1: HOSTILE})  # fmt: skip
    text = page(tmp_path, hostile)
    assert "<script" not in text
    assert "<img" not in text
    assert "\u202e" not in text
    assert not re.search(r"https?://| style=|url\(", text)


@pytest.mark.parametrize("values", [{1: [-3.0]}, {1: [0.0], 2: [0.0]}, {1: [500.0], 2: [-2.0]}])
def test_bars_of_any_numbers_stay_inside(tmp_path: Path, values) -> None:
    text = page(tmp_path, result("m", metric="reward", passes=False, values=values, categories={}))
    ends = [float(x) for x in re.findall(r'x[12]="([-\d.]+)"', text)]
    assert all(0 <= x <= 640 for x in ends)
