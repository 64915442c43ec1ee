"""Long runs, which are read in the background while pages show how far that has come."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from agentrl import replay
from agentrl.errors import ConfigError
from agentrl.viewer.background_reading import BackgroundReading, StillReading
from agentrl.viewer.metric_history import MetricHistory
from agentrl.viewer.runs_folder import AllRuns
from tests.viewer import runs
from tests.viewer.conftest import ask

METRICS = 60
STEPS = 2_000


def logged(step: int, **metrics: float) -> str:
    line = {"stage": "reinforcement", "step": step, "time": 100.0 + 2 * step, **metrics}
    return json.dumps(line) + "\n"


def test_a_request_reports_progress_until_everything_is_read() -> None:
    may_end, calls = threading.Event(), list[int]()

    def read() -> None:
        calls.append(1)
        assert may_end.wait(20)

    reading = BackgroundReading("episodes", read, lambda: 0.4)
    with pytest.raises(StillReading, match=r"still reading the episodes \(40%\)"):
        reading.require()
    may_end.set()
    reading.require()
    reading.require()
    assert calls == [1]


def test_a_reading_that_failed_is_reported_and_tried_again() -> None:
    failures = [ConfigError("a newer agentrl recorded the run")]

    def read() -> None:
        if failures:
            raise failures.pop()

    reading = BackgroundReading("episodes", read, lambda: 0.0)
    with pytest.raises(ConfigError, match="newer"):
        reading.require()
    reading.require()


def test_a_page_shows_how_far_a_long_run_has_been_read(
    serve, open_page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = runs.run(tmp_path / "run")
    values = {f"learner/metric_{n}": n / 3 for n in range(METRICS)}
    with (run / "metrics.jsonl").open("a") as metrics:
        metrics.writelines(logged(step, **values) for step in range(3, STEPS))
    add, may_end = MetricHistory._add, threading.Event()

    def wait_in_the_middle(history: MetricHistory, line: dict[str, Any]) -> None:
        assert line["step"] != STEPS // 2 or may_end.wait(60)
        add(history, line)

    monkeypatch.setattr(MetricHistory, "_add", wait_in_the_middle)
    served = serve(run)
    page = open_page(served.url)  # which starts the reading
    expect(page.get_by_text("Reading the metrics: ")).to_be_visible()
    status, _, body = ask(served.url, "/api/curves")
    found = json.loads(body)
    assert (status, found["reading"], 0 < found["share"] < 1) == (202, "metrics", True)
    may_end.set()
    expect(page.get_by_role("figure", name="Reward")).to_be_visible()
    expect(page.get_by_text("Reading the metrics: ")).to_be_hidden()
    sections = json.loads(ask(served.url, "/api/run")[2])["sections"]
    assert sum(sections.values()) == METRICS + 10


def test_the_share_that_was_read_grows_to_the_whole(tmp_path: Path) -> None:
    run = runs.run(tmp_path / "runs" / "game")
    recorded, history, listing = replay.open(run), MetricHistory(run), AllRuns(run.parent)
    assert (recorded.share_read(), history.share()) == (0, 0)
    recorded.episodes()
    history.read()
    assert [row["name"] for row in listing.rows()] == ["game"]
    assert (recorded.share_read(), history.share()) == (1, 1)
