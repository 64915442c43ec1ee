"""An episode's page in a real browser."""

import re

import pytest
from playwright.sync_api import expect

from agentrl.cli import run as agentrl
from agentrl.replay.pruning import Pruner
from agentrl.replay.recorder import Recorder
from agentrl.runs.run_paths import episode_file
from agentrl.types import ExecutedAction, ScoredEpisode
from tests.replay import packs
from tests.replay.aging import age
from tests.replay.episodes import episode, turn
from tests.viewer import runs
from tests.viewer.conftest import wait_for

EPISODE = "train-00001-g000-m00"


@pytest.mark.parametrize(
    ("asked", "turn"), [("1.5", 2), ("abc", 1), ("99", 3), ("-1", 1), ("1e999", 1), ("0", 1)]
)
def test_an_invalid_turn_is_reported_and_another_one_shown(small, open_page, asked, turn):
    page = open_page(f"{small.url}/episodes/{EPISODE}?turn={asked}")
    expect(page.locator(".where")).to_have_text(f"before turn {turn} of 3")
    notice = page.locator(".notice")
    expect(notice).to_have_text(f"No turn {asked}: showing turn {turn}.")
    assert page.url.endswith(f"?turn={turn}")


def test_the_token_coloring_is_in_the_address(small, open_page):
    page = open_page(f"{small.url}/episodes/{EPISODE}?tab=tokens")
    expect(page.get_by_role("tabpanel")).to_contain_text("above -1")
    choice = page.get_by_role("button", name="advantage")
    choice.focus()
    page.keyboard.press("Enter")
    expect(choice).to_have_attribute("aria-pressed", "true")
    expect(choice).to_be_focused()
    expect(page.locator(".token").first).to_have_class("token up-1")
    page.keyboard.press("ArrowRight")
    assert page.url.endswith("?turn=2&tab=tokens&color=advantage")
    page.reload()
    expect(choice).to_have_attribute("aria-pressed", "true")
    expect(page.locator(".token").first).to_have_class("token up-1")
    expect(page.locator(".notice")).to_have_count(0)
    page.get_by_role("button", name="Log-probability").click()
    assert page.url.endswith("?turn=2&tab=tokens")


def test_an_episode_is_stepped_through_by_keys_strip_and_line(small, open_page):
    page = open_page(f"{small.url}/episodes/{EPISODE}")
    where = page.locator(".where")
    expect(where).to_have_text("before turn 1 of 3")
    expect(page.locator(".picture .tap")).to_be_visible()
    expect(page.get_by_text("Round 0 of 3.").first).to_be_visible()
    page.keyboard.press("ArrowRight")
    expect(where).to_have_text("before turn 2 of 3")
    page.keyboard.press("a")
    expect(where).to_have_text("after turn 2 of 3")
    expect(page.locator(".picture .tap")).to_have_count(0)
    page.keyboard.press("End")
    expect(where).to_have_text("after turn 3 of 3")
    page.keyboard.press("Home")
    expect(where).to_have_text("before turn 1 of 3")
    page.get_by_role("option").nth(1).click()
    expect(where).to_have_text("before turn 2 of 3")
    box = page.locator(".timeline").bounding_box()
    page.mouse.click(box["x"] + box["width"] - 3, box["y"] + 5)
    expect(where).to_have_text("before turn 3 of 3")
    assert page.url.endswith("?turn=3")


def test_problems_of_an_episode_are_named(serve, open_page, tmp_path):
    with Recorder(tmp_path / "run") as recorder:
        turns = (turn(reply_truncated=True), turn(info={"side_effects": ["sent a message"]}))
        played = episode("cut", turns=turns)
        scored = ScoredEpisode(episode=played, components={}, rewards=(0.0, 0.0))
        recorder.episode(scored, split="train", step=1)
        runs.played(recorder, "expert", 0, split="eval")
    page = open_page(f"{serve(tmp_path / 'run').url}/episodes/cut")
    cut_off = page.locator(".conversation li").first.locator(".badge")
    expect(cut_off).to_have_text("reply cut off")
    expect(cut_off).to_have_attribute("title", re.compile("rollout.max_new_tokens"))
    expect(page.locator(".conversation .badge")).to_have_count(1)
    problems = "reply cut off at rollout.max_new_tokens in 1 of 2 turns; side effects: 1"
    expect(page.get_by_text(problems)).to_be_visible()


def test_the_player_stops_at_both_ends(small, open_page):
    page = open_page(f"{small.url}/episodes/{EPISODE}?turn=3")
    where, on = page.locator(".where"), page.get_by_role("button", name="next (→)")
    expect(where).to_have_text("before turn 3 of 3")
    for press in (lambda: page.keyboard.press("ArrowRight"), on.click):
        for _ in range(2):
            press()
            expect(where).to_have_text("after turn 3 of 3", timeout=1000)
    page.keyboard.press("Home")
    for _ in range(2):
        page.keyboard.press("ArrowLeft")
        expect(where).to_have_text("before turn 1 of 3", timeout=1000)


def test_a_preview_does_not_cover_the_chosen_screen(serve, open_page, tmp_path):
    with Recorder(tmp_path / "run") as recorder:
        runs.played(recorder, "train", 0, turns=60)
    page = open_page(f"{serve(tmp_path / 'run').url}/episodes/train-00000-g000-m00")
    peek, cells = page.locator(".peek"), page.get_by_role("option")
    cells.nth(2).hover()
    expect(peek).to_be_visible()
    page.mouse.down()
    page.mouse.up()
    expect(page.locator(".where")).to_have_text("before turn 3 of 60")
    expect(peek).to_be_hidden()
    cells.nth(3).hover()
    expect(peek).to_be_visible()
    page.keyboard.press("End")  # the strip scrolls under the resting pointer
    expect(page.locator(".where")).to_have_text("after turn 60 of 60")
    expect(cells.nth(60)).to_be_in_viewport()
    with pytest.raises(AssertionError):
        expect(peek).to_be_visible(timeout=500)
    cells.nth(59).hover()
    expect(peek).to_be_visible()


def test_buttons_keep_the_focus_and_work_with_keys(small, open_page):
    page = open_page(f"{small.url}/episodes/{EPISODE}")
    on, where = page.get_by_role("button", name="next (→)"), page.locator(".where")
    page.get_by_role("slider", name="timeline").focus()
    page.keyboard.press("Tab")  # to the controls; arrow keys step through the screens
    for _ in range(3):
        page.keyboard.press("Tab")
    expect(on).to_be_focused()
    page.keyboard.press("Enter")
    expect(where).to_have_text("before turn 2 of 3")
    expect(on).to_be_focused()
    page.keyboard.press(" ")
    expect(where).to_have_text("before turn 3 of 3")
    expect(page.get_by_role("slider", name="timeline")).to_have_attribute("aria-valuenow", "3")
    page.keyboard.press("?")
    expect(page.get_by_text("show these keys")).to_be_in_viewport()


def test_space_plays_after_a_tab_was_clicked(small, open_page):
    page = open_page(f"{small.url}/episodes/{EPISODE}")
    page.get_by_role("tab", name="Rewards").click()
    page.keyboard.press(" ")
    expect(page.locator(".where")).to_have_text("before turn 2 of 3")


def test_a_link_restores_turn_side_tab_and_range(small, open_page):
    page = open_page(f"{small.url}/episodes/{EPISODE}?range=2-3")
    expect(page.locator(".where")).to_have_text("before turn 2 of 3")
    page.goto(f"{small.url}/episodes/{EPISODE}?turn=2&after=1&tab=rewards&range=1-2")
    expect(page.locator(".where")).to_have_text("after turn 2 of 3")
    expect(page.get_by_role("tab", name="Rewards")).to_have_attribute("aria-selected", "true")
    expect(page.locator(".rewards tfoot")).to_contain_text("+1")
    expect(page.locator(".cell.outside")).to_have_count(2)  # including the end
    assert "range=1-2" in page.url


def test_parts_of_act_are_drawn_within_it(small, open_page):
    page = open_page(f"{small.url}/episodes/{EPISODE}?tab=time")
    expect(page.locator(".tab .legend")).to_contain_text("settle in act")
    rows = page.locator(".waterfall li")
    expect(rows).to_have_count(3)
    act, part = rows.first.locator(".stage-act"), rows.first.locator(".part")
    expect(part).to_have_attribute("title", "settle, in act: 40 ms")
    whole, inner = act.bounding_box(), part.bounding_box()
    assert inner["x"] == pytest.approx(whole["x"], abs=2)
    assert 0 < inner["width"] < whole["width"]
    expect(page.locator(".timeline .turn").first).to_have_attribute(
        "title", re.compile("generate 200 ms.*act .*settle in act 40 ms", re.DOTALL)
    )


def test_a_range_is_selected_with_shift_and_played(small, open_page):
    page = open_page(f"{small.url}/episodes/{EPISODE}")
    # Loading images move the timeline down.
    loaded = "strip => [...strip.querySelectorAll('img')].every((image) => image.naturalHeight)"
    wait_for(lambda: page.locator(".cell").count() and page.locator(".strip").evaluate(loaded))
    box = page.locator(".timeline").bounding_box()
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + 2, box["y"] + 5)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 5)
    page.mouse.up()
    page.keyboard.up("Shift")
    expect(page.locator(".cell.outside")).to_have_count(2)
    page.keyboard.press("ArrowUp")
    page.keyboard.press(" ")
    seen: set[str] = set()

    def around() -> bool:
        """Collect the positions that playback passes through."""
        seen.add(page.locator(".where").inner_text())
        return len(seen) == 3

    wait_for(around)
    assert seen == {"before turn 1 of 3", "before turn 2 of 3", "after turn 2 of 3"}
    page.keyboard.press("Escape")
    expect(page.locator(".cell.outside")).to_have_count(0)


def test_a_range_is_selected_by_touch_and_by_keys(small, open_page):
    page = open_page(f"{small.url}/episodes/{EPISODE}", 390, 844, has_touch=True)
    outside = page.locator(".cell.outside")
    page.get_by_role("option").nth(1).tap()
    page.get_by_role("button", name="start the range here").tap()
    expect(outside).to_have_count(1)
    assert "range=2-3" in page.url
    page.get_by_role("button", name="end the range here").tap()
    expect(outside).to_have_count(3)
    assert "range=2-2" in page.url
    page.get_by_role("option").nth(2).tap()  # a start after the end: up to the last turn
    page.keyboard.press("s")
    expect(outside).to_have_count(2)
    assert "range=3-3" in page.url
    page.get_by_role("option").nth(1).tap()
    page.keyboard.press("e")
    expect(outside).to_have_count(2)
    assert "range=1-2" in page.url
    page.get_by_role("button", name="all turns").tap()
    expect(outside).to_have_count(0)
    expect(page.get_by_role("button", name="all turns")).to_be_disabled()
    assert "range" not in page.url


def test_every_tab_shows_its_turn(small, open_page):
    page = open_page(f"{small.url}/episodes/{EPISODE}?turn=3")
    for key, expected in enumerate(
        ("I look at card 2.", "above -1", "format", "settle", '"accuracy": 1'), start=1
    ):
        page.keyboard.press(str(key))
        expect(page.get_by_role("tabpanel")).to_contain_text(expected)


BOARD = "  ###\n #@ #\n  ###"


def test_a_text_game_is_shown_in_lines_and_as_large_as_it_fits(serve, open_page, tmp_path):
    with Recorder(tmp_path / "run") as recorder:
        for member, (total, advantage) in enumerate(((-3.0, 7.31e-5), (-0.5, -1234.5))):
            made = episode(
                f"train-00001-g000-m{member:02d}",
                (turn(frames=(), shown=BOARD, reply_logprobs=(0.0,)),), member=member,
                group="train-00001-g000", final_frames=(), final_shown=BOARD, device=None,
            )  # fmt: skip
            scored = ScoredEpisode(episode=made, components={"outcome": (total,)}, rewards=(total,))
            recorder.episode(scored, split="train", step=1)
            recorder.record_advantages(scored, [[advantage] * len(made.turns[0].reply_ids)], step=1)
    served = serve(tmp_path / "run")
    page = open_page(f"{served.url}/preferences")
    boards = page.locator(".pair .board")
    expect(boards).to_have_count(4)
    assert boards.first.text_content() == BOARD
    expect(boards.first).to_have_css("white-space", "pre")
    page.goto(f"{served.url}/episodes/train-00001-g000-m00")
    board = page.locator(".stage .board")
    assert board.text_content() == BOARD
    assert board.evaluate("board => parseFloat(getComputedStyle(board).fontSize)") > 30
    expect(page.get_by_role("button", name="Probabilities of the coordinates")).to_have_count(0)
    expect(page.locator("dt").get_by_text("phone", exact=True)).to_have_count(0)
    expect(page.locator(".legend").get_by_text("the player decides")).to_be_visible()
    page.goto(f"{served.url}/groups/train-00001-g000")
    expect(page.locator(".siblings .n")).to_have_text(["+7.3e-5", "-1,234"])
    assert page.locator(".siblings .cell").evaluate_all(
        "cells => cells.every((cell) => cell.scrollWidth <= cell.clientWidth)"
    )
    worst, other = (bar.bounding_box() for bar in page.locator(".bars .fill").element_handles())
    assert worst["x"] + worst["width"] == pytest.approx(other["x"] + other["width"], abs=1)
    track = page.locator(".bars .track").first.bounding_box()
    assert worst["width"] == pytest.approx(track["width"] / 2, abs=1)


def test_missing_and_damaged_frames_leave_a_notice(serve, open_page, tmp_path):
    run = runs.run(tmp_path / "run")
    packs.damage(run)
    served = serve(run)
    page = open_page(f"{served.url}/episodes/{EPISODE}", lost=True)
    expect(page.locator(".stage .missing")).to_have_text(
        "This frame was not recorded or is damaged."
    )
    expect(page.locator(".strip .missing")).to_have_count(4)


def test_a_damaged_episode_file_is_reported(serve, open_page, tmp_path):
    run = runs.run(tmp_path / "run")
    episode_file(run, EPISODE).write_bytes(b"broken")
    served = serve(run)
    page = open_page(f"{served.url}/episodes/{EPISODE}", lost=True)
    expect(page.get_by_role("alert")).to_contain_text("cannot be read")
    page.goto(f"{served.url}/episodes/unknown")
    expect(page.get_by_role("alert")).to_contain_text("has no episode 'unknown'")


def test_a_pruned_episode_is_listed_and_its_page_says_why(serve, open_page, tmp_path):
    run = runs.run(tmp_path / "run")
    age(run)
    served = serve(run)
    limit = Pruner(run).prune(1e18, 1200.0).kept_bytes - 1
    removed = [held.id for held in Pruner(run).prune(limit, 1200.0).episodes]
    assert removed == [EPISODE]
    page = open_page(f"{served.url}/episodes?step=1", lost=True)
    expect(page.get_by_text("pruned", exact=True)).to_have_count(1)
    page.goto(f"{served.url}/episodes/{EPISODE}")
    expect(page.get_by_role("alert")).to_contain_text("this episode was removed to free disk space")
    page.goto(f"{served.url}/groups/train-00001-g000")
    expect(page.locator(".siblings tbody tr")).to_have_count(4)
    expect(
        page.locator(".siblings").get_by_text("removed by pruning; only its scores were kept")
    ).to_have_count(1)
    expect(page.locator(".bars .num").first).to_have_text("+1")
    page.goto(served.url)
    expect(page.get_by_text("17", exact=True).first).to_be_visible()
    for exported in (["--group", "train-00001-g000"], []):
        assert agentrl(["export", str(run), str(tmp_path / "out.html"), *exported]) == 0
    assert agentrl(["export", str(run), "x.png", "--episode", EPISODE]) == 2


def test_the_screen_fills_the_height_and_has_both_sides(small, open_page):
    page = open_page(f"{small.url}/episodes/train-00001-g000-m01?turn=2", 1280, 860)
    screen = page.locator(".picture img")
    expect(screen).to_have_js_property("complete", True)
    assert screen.bounding_box()["height"] == pytest.approx(320, abs=4)  # its own size
    page.keyboard.press("b")
    expect(page.locator(".side")).to_have_count(2)
    before, after = page.locator(".side img").evaluate_all("images => images.map(i => i.src)")
    page.keyboard.press("b")
    assert screen.get_attribute("src") in before
    page.keyboard.press("a")
    assert screen.get_attribute("src") in after
    page.keyboard.press("z")
    expect(page.get_by_role("dialog").locator("img")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_the_current_turn_of_a_long_conversation_is_in_view(serve, open_page, tmp_path):
    with Recorder(tmp_path / "run") as recorder:
        runs.played(recorder, "train", 0, turns=40)
    page = open_page(f"{serve(tmp_path / 'run').url}/episodes/train-00000-g000-m00?turn=30")
    expect(page.locator(".conversation li").nth(29)).to_be_in_viewport()


def test_the_turns_are_a_conversation_and_neighbors_are_a_key_away(small, open_page):
    page = open_page(f"{small.url}/episodes/train-00001-g000-m01?turn=2", 1280, 860)
    turns = page.locator(".conversation li")
    expect(turns).to_have_count(3)
    expect(turns.nth(1)).to_have_attribute("aria-current", "true")
    turns.nth(2).click()
    expect(page.locator(".where")).to_have_text("before turn 3 of 3")
    page.keyboard.press("]")
    expect(page.get_by_role("heading", level=1)).to_have_text("train-00001-g000-m02")
    page.keyboard.press("[")
    expect(page.get_by_role("heading", level=1)).to_have_text("train-00001-g000-m01")
    page.get_by_role("link", name="previous").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("train-00001-g000-m00")


def test_several_actions_of_a_turn_are_shown_with_their_rewards_and_boards(
    serve, open_page, tmp_path
):
    chunk = tuple(
        ExecutedAction(action=n, reward=n / 4, info={}, shown=f"{BOARD}\n{n}") for n in (1, 2, 3)
    )
    with Recorder(tmp_path / "run") as recorder:
        played = turn(frames=(), shown=BOARD, action=[1, 2, 3], chunk=chunk)
        made = episode("train-00001-g000-m00", (played,), final_frames=(), final_shown="the end")
        scored = ScoredEpisode(episode=made, components={"outcome": (1.0,)}, rewards=(1.0,))
        recorder.episode(scored, split="train", step=1)
    served = serve(tmp_path / "run")
    page = open_page(f"{served.url}/episodes/train-00001-g000-m00?both=1")
    expect(page.locator(".conversation .facts dt").first).to_have_text("action 1")
    expect(page.locator(".conversation .facts dd").nth(2)).to_have_text("3, +0.75")
    sides = page.locator(".stage .side")
    expect(sides.locator("> p.faint")).to_have_text(
        ["before", "after action 1", "after action 2", "after"]
    )
    expect(sides.nth(2)).to_contain_text("2")
    expect(sides.last).to_contain_text("the end")
