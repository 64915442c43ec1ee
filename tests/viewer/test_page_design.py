"""All pages: accessible, titled, and as wide as the screen, in light and dark."""

import re
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from agentrl.replay.recorder import Recorder
from agentrl.types import ScoredEpisode
from agentrl.viewer.viewer_server import RunsServer
from tests.replay.episodes import episode, screen, turn
from tests.viewer import runs
from tests.viewer.conftest import Open

AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text()
GAME = "runs/game"
PROBABLE = "human-00000-g000-m00"
WIDE = "wide-00001-g000-m00"
"""An episode whose screens are wider than high, with a long text beside them."""
PAGES = {
    "": "runs · agentrl",
    "runs/absent": "runs · agentrl",
    f"{GAME}/": "Overview · game · agentrl",
    f"{GAME}/episodes": "Episodes · game · agentrl",
    f"{GAME}/episodes?view=gallery": "Episodes · game · agentrl",
    f"{GAME}/episodes?step=99": "Episodes · game · agentrl",
    f"{GAME}/episodes/after-sampled-00002-g000-m00": (
        "after-sampled-00002-g000-m00 · game · agentrl"
    ),
    f"{GAME}/episodes/{PROBABLE}?tab=tokens&coordinates=1": f"{PROBABLE} · game · agentrl",
    f"{GAME}/groups/train-00001-g000": "train-00001-g000 · game · agentrl",
    f"{GAME}/compare": "Compare · game · agentrl",
    f"{GAME}/preferences": "Preferences · game · agentrl",
    f"{GAME}/phones": "Phones · game · agentrl",
    f"{GAME}/logs/engine.log": "engine.log · game · agentrl",
    f"{GAME}/absent": "Page not found · game · agentrl",
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunsServer]:
    folder = tmp_path_factory.mktemp("design") / "runs"
    game = runs.run(folder / "game")
    runs.evaluate(game)
    assert runs.record_probabilities(game) == PROBABLE
    with Recorder(game, "wide") as recorder:
        seen = turn(
            frames=(recorder.frame(screen(3, 800, 1280)),),
            shown="<image>" + "\n".join(map(str, range(40))),
            reply="I see forty lines. <action>tap(0.2, 0.5)</action>",
        )
        made = episode(WIDE, turns=(seen,), group=WIDE.rpartition("-")[0])
        recorder.episode(
            ScoredEpisode(episode=made, components={}, rewards=(0.0,)), split="train", step=1
        )
    (game / "logs").mkdir()
    (game / "logs" / "engine.log").write_text("<b>loading</b>\n" * 9)
    server = RunsServer(folder)
    yield server
    server.close()


def settled(page: Page) -> None:
    expect(page.locator("h1").first).to_be_visible()
    expect(page.locator(".loading")).to_have_count(0)
    page.wait_for_timeout(300)  # charts are drawn in the next frame


@pytest.mark.quick(every=2)
@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_accessible_titled_and_fits(
    served: RunsServer, open_page: Open, path: str
) -> None:
    page = open_page(f"{served.url}/{path}", lost=path.endswith("absent"))
    settled(page)
    assert page.title() == PAGES[path]
    assert page.evaluate("[...document.fonts].map(font => `${font.family} ${font.status}`)") == [
        "Inter loaded"
    ]
    page.evaluate(AXE)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        found = page.evaluate("axe.run()")["violations"]
        worst = [one for one in found if one["impact"] in ("serious", "critical")]
        assert not [(one["id"], one["nodes"][0]["html"]) for one in worst], scheme
    for width in (390, 1920):
        page.set_viewport_size({"width": width, "height": 860})
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
        expect(page.locator(".brand bdi")).to_be_visible()
        for link in page.locator(".top nav a:not([hidden])").all():
            expect(link).to_be_in_viewport(ratio=1)


def test_all_metrics_are_found_by_section_and_name(served: RunsServer, open_page: Open) -> None:
    page = open_page(f"{served.url}/{GAME}/")
    page.get_by_text("Learning (2)").click()
    expect(page.get_by_role("figure", name="learner/entropy")).to_be_visible()
    page.get_by_label("Search metrics").fill("turns s")
    expect(page.get_by_role("figure", name="rollout/turns_per_s")).to_be_visible()
    expect(page.get_by_role("figure", name="learner/entropy")).to_be_hidden()
    page.get_by_label("log axis").check()
    page.get_by_label("Smoothing").fill("0.5")
    page.get_by_label("Search metrics").fill("absent")
    expect(page.get_by_text("No metric name contains this text.")).to_be_visible()


def test_the_state_of_the_metric_search_is_in_the_address(
    served: RunsServer, open_page: Open
) -> None:
    page = open_page(f"{served.url}/{GAME}/")
    page.get_by_text("Learning (2)").click()
    page.get_by_label("Smoothing").fill("0.5")
    page.get_by_label("log axis").check()
    expect(page).to_have_url(re.compile(r"\?section=Learning&smooth=0.5&log=1$"))
    page.reload()
    expect(page.get_by_role("figure", name="learner/entropy")).to_be_visible()
    expect(page.get_by_label("Smoothing")).to_have_value("0.5")
    expect(page.get_by_label("log axis")).to_be_checked()
    page.get_by_label("Search metrics").fill("turns s")
    expect(page).to_have_url(re.compile("metrics=turns"))
    page.reload()
    expect(page.get_by_role("figure", name="rollout/turns_per_s")).to_be_visible()


def test_nothing_moves_when_the_pointer_enters_a_chart(served: RunsServer, open_page: Open) -> None:
    # The legend of the rewards wraps at some of these widths.
    page = open_page(f"{served.url}/{GAME}/", height=1200)
    settled(page)
    for width in range(900, 1900, 90):
        page.set_viewport_size({"width": width, "height": 1200})
        page.mouse.move(0, 0)
        page.wait_for_timeout(60)  # the charts are drawn in the new width
        heights = {page.evaluate("document.documentElement.scrollHeight")}
        box = page.locator(".u-over").first.bounding_box()
        assert box is not None
        for part in (0.01, 0.4, 0.99):
            page.mouse.move(box["x"] + part * box["width"], box["y"] + 40)
            heights.add(page.evaluate("document.documentElement.scrollHeight"))
        assert len(heights) == 1, width


def test_charts_that_left_the_page_leave_nothing_behind(
    served: RunsServer, open_page: Open
) -> None:
    page = open_page(f"{served.url}/{GAME}/")
    over, turns = page.get_by_label("Over"), page.get_by_role("figure", name="Turns per episode")
    devtools = page.context.new_cdp_session(page)

    def listeners() -> int:
        for axis, shown in (("time", "time1:30"), ("step", "step2")):
            over.select_option(axis)
            expect(turns.locator(".u-legend")).to_contain_text(shown)
        devtools.send("HeapProfiler.collectGarbage")
        return int(devtools.send("Memory.getDOMCounters")["jsEventListeners"])

    first = listeners()
    assert [listeners() for _ in range(3)] == [first] * 3
    page.emulate_media(color_scheme="dark")
    expect(turns.locator("canvas")).to_have_count(1)
    devtools.detach()


def test_curves_are_drawn_over_what_was_played_or_spent(
    served: RunsServer, open_page: Open
) -> None:
    page = open_page(f"{served.url}/{GAME}/")
    over = page.get_by_label("Over")
    expect(over.locator("option")).to_have_text(["steps", "episodes", "tokens sampled", "time"])
    legend = page.get_by_role("figure", name="Turns per episode").locator(".u-legend")
    expect(legend).to_contain_text("step2")
    for axis, reached in (
        ("episodes", "episodes32"),
        ("tokens", "tokens640"),
        ("time", "time1:30"),
    ):
        over.select_option(axis)
        expect(legend).to_contain_text(reached)
    page.reload()
    expect(legend).to_contain_text("time1:30")


def test_colors_are_those_of_the_system_until_others_are_chosen(
    served: RunsServer, open_page: Open
) -> None:
    page = open_page(f"{served.url}/{GAME}/")
    paper = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(paper)
    page.emulate_media(color_scheme="dark")
    dark = page.evaluate(paper)
    assert light != dark
    page.get_by_role("button", name="Colors: system").click()
    assert page.evaluate(paper) == light
    page.get_by_role("button", name="Colors: light").click()
    page.emulate_media(color_scheme="light")
    page.goto(f"{served.url}/{GAME}/episodes")
    assert page.evaluate(paper) == dark
    for chosen, shown in (("dark", light), ("light", light), ("system", dark)):
        page.get_by_role("button", name=f"Colors: {chosen}").click()
        assert page.evaluate(paper) == shown


def test_the_reply_is_in_view_when_an_episode_opens(served: RunsServer, open_page: Open) -> None:
    for id, reply in (
        ("after-sampled-00002-g000-m00", "I look at card 0."),
        (WIDE, "I see forty lines."),
    ):
        page = open_page(f"{served.url}/{GAME}/episodes/{id}", width=1280, height=720)
        settled(page)
        expect(page.get_by_text(reply).first).to_be_in_viewport(ratio=1)


def test_two_episodes_are_compared_by_keys_however_long_they_are(
    served: RunsServer, open_page: Open
) -> None:
    page = open_page(
        f"{served.url}/{GAME}/preferences#token={served.guard.token}", width=1280, height=720
    )
    done = int(page.get_by_text("compared,").inner_text().split()[0])
    page.mouse.wheel(0, 5000)
    expect(page.get_by_role("button", name="B is better")).to_be_in_viewport(ratio=1)
    for key in "abs":
        page.keyboard.press(key)
        done += 1
        expect(page.get_by_text(f"{done} compared,")).to_be_visible()
        expect(page.get_by_role("heading", name="Which episode is better?")).to_be_in_viewport()


def test_alternatives_of_a_token_are_shown_on_hover_and_focus(
    served: RunsServer, open_page: Open
) -> None:
    page = open_page(f"{served.url}/{GAME}/episodes/{PROBABLE}?tab=tokens")
    page.get_by_text("0.50", exact=True).hover()
    shown = page.get_by_role("tooltip")
    lines = shown.locator("li").all_inner_texts()
    assert [line.split() for line in lines] == [
        ["0.90", "50%"], ["0.50", "40%"], ["0", "5%"], ["all", "others", "5%"],
    ]  # fmt: skip
    expect(shown.locator(".sampled")).to_have_text("0.5040%")
    page.mouse.move(0, 0)
    expect(shown).to_be_hidden()
    page.get_by_role("button", name="Version", exact=True).focus()
    page.keyboard.press("Tab")
    expect(shown.locator("li")).to_have_text(
        ["<action>tap(90%", "<action>select(5%", "all others5%"]
    )
    page.evaluate(AXE)
    found = page.evaluate("axe.run()")["violations"]
    assert not [one["id"] for one in found if one["impact"] in ("serious", "critical")]
    page.keyboard.press("Escape")
    expect(shown).to_be_hidden()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".tab")).to_contain_text("rollout.top_logprobs=10")


def test_the_probabilities_of_the_coordinates_cover_the_screen(
    served: RunsServer, open_page: Open
) -> None:
    page = open_page(f"{served.url}/{GAME}/episodes/{PROBABLE}")
    page.get_by_role("button", name="probabilities of the coordinates (c)").click()
    caption = page.locator(".coordinates")
    expect(caption.locator("dd")).to_have_text(["0.25 60%0.75 30%", "0.90 50%0.50 40%0… 5%"])
    expect(caption).to_contain_text("90% of x, 95% of y")
    assert page.url.endswith("?turn=1&coordinates=1")
    picture = page.locator(".picture img").bounding_box()
    column = page.locator(".band").nth(1).bounding_box()
    assert picture is not None
    assert column is not None
    middle = (column["x"] + column["width"] / 2 - picture["x"]) / picture["width"]
    assert middle == pytest.approx(0.75, abs=0.01)
    page.keyboard.press("ArrowRight")
    expect(caption).to_contain_text("rollout.top_logprobs=10")
    page.keyboard.press("c")
    expect(caption).to_have_count(0)


def test_changes_of_info_are_listed(served: RunsServer, open_page: Open) -> None:
    page = open_page(f"{served.url}/{GAME}/episodes/{PROBABLE}?turn=2&tab=info")
    rows = page.locator(".changed tbody tr")
    expect(rows.locator("td:first-child")).to_have_text(["round", "board[1][1]", "won"])
    assert [row.split() for row in rows.all_inner_texts()] == [
        ["round", "1", "2"], ["board[1][1]", "3", "4"], ["won", "absent", "true"],
    ]  # fmt: skip


def test_the_overview_opens_with_the_result_and_its_examples(
    served: RunsServer, open_page: Open, tmp_path: Path
) -> None:
    page = open_page(f"{served.url}/{GAME}/")
    changed = page.locator(".change")
    expect(changed).to_have_count(2)  # seeds 1001 and 1002 are lost before and won after training
    expect(changed.first.get_by_label("before, seed 1002, reward -1")).to_be_visible()
    expect(changed.first.get_by_label("after, seed 1002, reward +1")).to_be_visible()
    best = page.locator(".thumbnail").first
    assert best.locator("img").evaluate("image => image.decode().then(() => image.naturalWidth)")
    best.click()
    expect(page.locator(".player")).to_be_visible()


def test_the_end_of_a_log_is_text(served: RunsServer, open_page: Open) -> None:
    page = open_page(f"{served.url}/{GAME}/logs")
    page.get_by_role("link", name="engine.log").click()
    expect(page.locator("pre.log")).to_contain_text("<b>loading</b>")
