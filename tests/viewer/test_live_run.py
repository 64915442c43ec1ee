"""The pages while a real job trains."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.viewer.conftest import wait_for

SHORT = [
    "rollout.engine=hf", "rollout.launcher=local", "rollout.groups=2", "rollout.group_size=2",
    "rollout.concurrency=3", "devices.source=virtual:3", "devices.effect_delay_ms=[50, 300]",
    "env.max_turns=10", "warm_start.episodes=12", "warm_start.steps=20", "warm_start.cache=null",
    "train.steps=3", "eval.every=0", "eval.episodes=2", "eval.baselines=[]", "eval.rings=null",
    "logging=[file]",
]  # fmt: skip
LONG_S = 150.0
"""Deadline for events of the job, on two busy cores."""


@pytest.fixture
def job(adb_server, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "agentrl", "train", "number_game", *SHORT]
    command += [f"run.dir={tmp_path}", "run.name=run"]
    with (tmp_path / "said").open("wb") as said:
        process = subprocess.Popen(
            command, stdout=said, stderr=said, env={**os.environ, "OMP_NUM_THREADS": "1"}
        )
    yield process
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        process.wait(30)


@pytest.mark.slow
@pytest.mark.adb
@pytest.mark.timeout(400)
def test_pages_follow_a_job_from_its_first_episode_to_its_end(job, serve, open_page, tmp_path):
    def holds(what):
        assert job.poll() in (None, 0), (tmp_path / "said").read_text()[-3000:]
        return what()

    def comes(what):
        return wait_for(lambda: holds(what), LONG_S)

    comes((tmp_path / "run" / "episodes").is_dir)
    served = serve(tmp_path / "run")
    overview = open_page(served.url)
    expect(overview.locator("#live")).to_have_text("live")
    state = re.compile("running: .+, no training step done yet")
    expect(overview.get_by_text(state)).to_be_visible()
    overview.get_by_text("Configuration", exact=True).click()
    episodes = open_page(f"{served.url}/episodes")
    # A phone may be leased again, or disappear with its job, while its screen is requested.
    phones = open_page(f"{served.url}/phones#token={served.guard.token}", lost=True)
    for page in (overview, episodes, phones):
        page.evaluate("window.asLoaded = true")

    comes(lambda: phones.locator(".phone img:visible").count() == 3)
    comes(lambda: phones.locator(".phone", has_text="leased").count())
    comes(lambda: phones.locator(".phone", has_text="per action").count())
    _look_closer(phones, comes)
    comes(lambda: episodes.locator("tbody tr").count() >= 2)
    _watch_a_curve_grow(overview, comes)
    configuration = overview.locator("details", has_text="Configuration")
    expect(configuration).to_have_attribute("open", "")

    comes(lambda: job.poll() == 0)
    expect(overview.locator("#live")).to_have_text("finished")
    expect(overview.get_by_text("finished after 3 steps")).to_be_visible()
    expect(episodes.get_by_text("32 of 32 episodes")).to_be_visible()
    expect(phones.get_by_text("The job has finished.")).to_be_visible()
    assert all(page.evaluate("window.asLoaded") for page in (overview, episodes, phones))


def _look_closer(page: Page, comes) -> None:
    """Enlarge one phone: the view updates by itself, and the phone is not tapped while leased."""
    page.locator(".phone").first.click()
    facts, picture = page.locator(".enlarged dl"), page.locator(".enlarged img")
    expect(facts).to_contain_text("leases")
    seen = set()

    def changes() -> bool:
        seen.add((picture.get_attribute("src") or "").partition("?")[0])
        return len(seen - {""}) > 2

    comes(changes)

    def refused() -> bool:
        if "leased" in facts.inner_text():
            picture.click()
        return page.get_by_text("The phone is in use. Wait until it is free.").is_visible()

    comes(refused)


def _watch_a_curve_grow(page: Page, comes) -> None:
    curve = page.locator(".chart", has_text="Turns per episode").locator("canvas")
    comes(curve.count)
    before = curve.evaluate("canvas => { canvas.wasThere = true; return canvas.toDataURL(); }")
    comes(lambda: curve.evaluate("canvas => canvas.toDataURL()") != before)
    assert curve.evaluate("canvas => canvas.wasThere")
