"""The phones page in a real browser."""

import re

import pytest
from playwright.sync_api import expect

from agentrl.devices import open_device
from agentrl.replay.live_phone_states import LivePhone, LivePhones, read_live_phones
from agentrl.replay.recorder import Recorder
from agentrl.text.phone_names import phone_name
from tests.replay.episodes import screen
from tests.viewer import runs
from tests.viewer.conftest import wait_for


@pytest.mark.adb
def test_a_tap_on_the_page_reaches_a_free_phone(live, pool, serve, open_page, tmp_path):
    with Recorder(tmp_path / "run", writer="more") as recorder:
        shown = recorder.frame(screen(3, 180, 320))
    busy, free = pool.serials
    live.playing(busy, "train-00001-g000-m00")
    live.frame(busy, shown)
    served = serve(tmp_path / "run")
    page = open_page(f"{served.url}/phones#token={served.guard.token}")
    expect(page.locator(".phone")).to_have_count(2)
    expect(page.locator(".phone img:visible")).to_have_count(1)
    page.locator(".phone", has_text=free).click()
    picture = page.locator(".enlarged img.free")
    expect(picture).to_be_visible()
    expect(picture).to_have_attribute("src", re.compile("/screen"))
    box = picture.bounding_box()
    phone = open_device(free)
    before = phone.screenshot()
    page.mouse.click(box["x"] + 0.5 * box["width"], box["y"] + 0.25 * box["height"])
    expect(page.get_by_text("Tapped at 0.50, 0.25.")).to_be_visible()
    wait_for(lambda: (phone.screenshot() != before).any())
    phone.close()


@pytest.mark.adb
def test_nothing_is_touched_without_the_token_or_while_in_use(
    live, pool, serve, open_page, tmp_path
):
    served = serve(tmp_path / "run")
    wait_for(lambda: read_live_phones(tmp_path / "run"))
    page = open_page(f"{served.url}/phones?phone={pool.serials[0]}", lost=True)
    picture = page.locator(".enlarged img.free")
    expect(picture).to_be_visible()
    expect(picture).to_have_attribute("src", re.compile("/screen"))
    picture.click()
    expect(page.get_by_role("alert")).to_contain_text("the token is missing")


def test_a_phone_of_another_host_is_shown_but_not_touched(serve, open_page, tmp_path):
    run = runs.run(tmp_path / "run")
    keeper = LivePhones(run, "phones", lambda: [LivePhone(serial="a", state="free")], "shelf-2")
    wait_for(lambda: read_live_phones(run))
    page = open_page(f"{serve(run).url}/phones")
    page.locator(".phone", has_text=phone_name("a", "shelf-2")).click()
    expect(page.locator(".enlarged")).to_contain_text("The phone is on shelf-2")
    expect(page.locator(".enlarged img.free")).to_have_count(0)
    keeper.close()


def test_the_phones_page_says_if_no_job_is_running(serve, open_page, tmp_path):
    page = open_page(f"{serve(runs.run(tmp_path / 'run')).url}/phones")
    expect(page.get_by_text("No job is using phones now")).to_be_visible()
