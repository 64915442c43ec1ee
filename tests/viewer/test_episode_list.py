"""The list of episodes in a real browser: filters, search, queries, gallery, stars."""

import re

from playwright.sync_api import expect

from agentrl.replay.recorder import Recorder
from agentrl.types import ScoredEpisode
from tests.replay.episodes import episode, turn
from tests.viewer import runs

EPISODE = "train-00001-g000-m00"


def test_episodes_are_filtered_and_sorted_and_the_address_remembers_it(small, open_page):
    page = open_page(f"{small.url}/episodes")
    expect(page.get_by_text("17 of 17 episodes")).to_be_visible()
    page.get_by_label("Outcome").select_option("void")
    expect(page.get_by_text("1 of 17 episodes")).to_be_visible()
    expect(page.locator("tbody .badge")).to_have_text("DeviceOffline")
    page.get_by_label("Outcome").select_option("")
    expect(page.locator("tbody .badge", has_text="no success").first).to_have_class("badge plain")
    expect(page.locator("tbody td.num", has_text=re.compile(r"^-1$")).first).to_have_class("num")
    page.get_by_label("Success").select_option("true")
    expect(page.get_by_text("8 of 17 episodes")).to_be_visible()
    page.get_by_role("button", name="step").click()
    page.reload()
    expect(page.get_by_text("8 of 17 episodes")).to_be_visible()
    expect(page.locator("th[aria-sort='descending']")).to_contain_text("step")


def test_filters_are_folded_on_a_narrow_screen_unless_they_are_used(small, open_page):
    page = open_page(f"{small.url}/episodes", 390, 844)
    expect(page.get_by_text("17 of 17 episodes")).to_be_in_viewport()
    step = page.get_by_role("spinbutton", name="Step")
    expect(step).to_be_hidden()
    page.get_by_text("Filters", exact=True).click()
    step.fill("1")
    expect(page.get_by_text("4 of 17 episodes")).to_be_visible()
    page.reload()
    expect(step).to_be_visible()
    page.goto(f"{small.url}/episodes")
    expect(step).to_be_hidden()
    page.set_viewport_size({"width": 1280, "height": 860})
    expect(step).to_be_visible()


def test_text_can_be_searched(small, open_page):
    page = open_page(f"{small.url}/episodes?text=net-3fa2c1+is+gone")
    expect(page.get_by_text("1 of 17 episodes")).to_be_visible()
    page.goto(f"{small.url}/episodes?text=unsaid+phrase")
    expect(page.get_by_text("None of 17 episodes matches")).to_be_visible()


def test_search_works_while_typing_and_shows_excerpts(serve, open_page, tmp_path):
    reply = f"{'far away ' * 40}and the nexus <b>taps</b> \x02it{' and so on' * 40}"
    with Recorder(tmp_path / "run") as recorder:
        for name, said in (("a", reply), ("b", "next to nothing"), ("c", "taps")):
            made = episode(name, (turn(reply=said),))
            scored = ScoredEpisode(episode=made, components={}, rewards=(0.0,))
            recorder.episode(scored, split="train", step=1)
    page = open_page(f"{serve(tmp_path / 'run').url}/episodes")
    words, rows = page.get_by_label("Text", exact=True), page.locator("tbody tr:not(.excerpt)")
    expect(rows).to_have_count(3)
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    words.press_sequentially("tap nex", delay=20)
    expect(rows).to_have_count(1)
    assert not any(url.endswith(("text=t", "text=ta")) for url in asked)
    expect(words).to_be_focused()
    assert page.url.endswith("?text=tap+nex")
    expect(page.locator("mark")).to_have_text(["nexus", "taps"])
    excerpt = page.locator(".excerpt bdi")
    expect(excerpt).to_contain_text("and the nexus <b>taps</b>  it and so on")
    assert len(excerpt.inner_text()) < 300
    words.fill('"nexus it')
    expect(page.get_by_text("None of 3 episodes matches")).to_be_visible()
    words.fill('"the nexus" taps')
    words.press("Enter")
    expect(page.locator("mark")).to_have_text(["the nexus", "taps"])
    words.fill("")
    expect(rows).to_have_count(3)
    expect(page.locator(".excerpt")).to_have_count(0)


def test_number_filters_apply_while_typing(small, open_page):
    page = open_page(f"{small.url}/episodes")
    for field, typed, found in (("Step", "1", 4), ("Seed", "1003", 2), ("Min. reward", "1", 9)):
        box = page.get_by_role("spinbutton", name=field)
        box.press_sequentially(typed, delay=20)
        expect(page.get_by_text(f"{found} of 17 episodes")).to_be_visible()
        expect(box).to_be_focused()
        box.fill("")
        expect(page.get_by_text("17 of 17 episodes")).to_be_visible()


def test_punctuation_alone_matches_all_episodes(small, open_page):
    page = open_page(f"{small.url}/episodes?step=1")
    for signs in ("*", "  ", '"'):
        expect(page.get_by_text("4 of 17 episodes")).to_be_visible()
        page.get_by_label("Text", exact=True).fill("card")
        expect(page.locator("mark").first).to_be_visible()
        page.get_by_label("Text", exact=True).fill(signs)
        expect(page.locator("mark")).to_have_count(0)
        expect(page.get_by_text("4 of 17 episodes")).to_be_visible()
        needed = page.get_by_text("Search terms need a letter")
        expect(needed).to_have_count(1 if signs.strip() else 0)


def test_an_unknown_filter_is_reported(small, open_page):
    page = open_page(f"{small.url}/episodes?q=tap", lost=True)
    expect(page.get_by_role("alert")).to_contain_text("unknown parameter 'q'")
    page.get_by_role("link", name="Show all episodes").click()
    expect(page.get_by_text("17 of 17 episodes")).to_be_visible()


def test_episodes_are_found_by_a_query(small, open_page):
    page = open_page(f"{small.url}/episodes", lost=True)
    query = page.get_by_label("Query")
    query.fill("label = after-sampled and not success")
    expect(page.get_by_text("1 of 17 episodes")).to_be_visible()
    query.fill("acuracy < 1")
    expect(page.get_by_role("alert")).to_contain_text("did you mean 'accuracy'")


def test_the_gallery_shows_last_screens_as_they_come_into_view(serve, open_page, tmp_path):
    run = runs.run(tmp_path / "run")
    with Recorder(run, writer="more") as recorder:
        for group in range(70):
            runs.played(recorder, "more", 0, step=3, group=group, turns=1)
        made = episode("words", (turn(frames=()),), final_frames=(), final_shown="a <b>board</b>")
        scored = ScoredEpisode(episode=made, components={}, rewards=(0.0,))
        recorder.episode(scored, split="train", step=4)
    page = open_page(f"{serve(run).url}/episodes?step=3")
    page.get_by_role("button", name="gallery").click()
    cards = page.locator(".episode-card")
    expect(cards).to_have_count(60)
    picture = cards.first.locator("img")
    assert picture.evaluate("image => image.decode().then(() => image.naturalWidth)") == 180
    assert cards.last.locator("img").count() == 0
    cards.last.scroll_into_view_if_needed()
    expect(cards.last.locator("img")).to_have_js_property("naturalWidth", 180)
    page.get_by_role("button", name="older").click()
    expect(cards).to_have_count(10)
    assert "view=gallery" in page.url
    page.get_by_label("Query").fill('id = "words"')
    page.get_by_role("spinbutton", name="Step").fill("4")
    expect(cards).to_have_count(1)
    expect(cards.locator(".text-thumb")).to_have_text("a <b>board</b>")
    page.get_by_label("sort").select_option("reward")
    page.get_by_role("button", name="largest first").click()
    assert "sort=reward" in page.url
    assert "down=false" in page.url
    cards.get_by_role("link").click()
    expect(page.get_by_role("heading", name="words")).to_be_visible()


def test_stars_and_notes_are_shared_by_two_pages(serve, open_page, tmp_path):
    run = runs.run(tmp_path / "run")
    served = serve(run)
    page = open_page(served.address(f"episodes/{EPISODE}"), lost=True)
    page.get_by_role("button", name=f"star {EPISODE}").click()
    expect(page.get_by_role("button", name=f"star {EPISODE}")).to_have_attribute(
        "aria-pressed", "true"
    )
    other = open_page(served.address(f"episodes/{EPISODE}"), lost=True)
    expect(other.get_by_role("button", name=f"star {EPISODE}")).to_have_attribute(
        "aria-pressed", "true"
    )
    for one, words in ((other, "too slow"), (page, "<i>too fast</i>")):
        one.get_by_role("button", name="Add a note").click()
        one.get_by_label("note").fill(words)
    page.get_by_role("button", name="Save").click()
    expect(page.locator("p.note")).to_have_text("<i>too fast</i>")
    other.get_by_role("button", name="Save").click()
    refused = other.get_by_role("alert")
    expect(refused).to_contain_text("another page has changed this note to '<i>too fast</i>'")
    page.get_by_role("button", name=f"star {EPISODE}").click()
    expect(other.locator(".star[aria-pressed=false]")).to_be_visible()  # it follows
    expect(other.get_by_label("note")).to_have_value("too slow")  # nothing is lost
    other.get_by_role("button", name="Cancel").click()
    expect(other.locator("p.note")).to_have_text("<i>too fast</i>")
    page.get_by_role("button", name="Edit the note").click()
    page.get_by_label("note").fill("<i>too fast</i>!")
    page.get_by_role("button", name="Save").click()
    expect(other.locator("p.note")).to_have_text("<i>too fast</i>!")
    page.get_by_role("button", name=f"star {EPISODE}").click()
    other.goto(f"{served.url}/episodes")
    other.get_by_label("Starred", exact=True).check()
    expect(other.get_by_text("1 of 17 episodes")).to_be_visible()
    expect(other.locator(".list .note")).to_have_text("<i>too fast</i>!")
    page.get_by_role("button", name=f"star {EPISODE}").click()
    expect(other.get_by_text("None of 17 episodes matches")).to_be_visible()  # it follows


def test_an_invalid_filter_is_reported_and_the_next_one_applies(small, open_page):
    page = open_page(f"{small.url}/episodes", lost=True)
    step = page.get_by_role("spinbutton", name="Step")
    step.fill("1.5")
    step.press("Enter")
    expect(page.get_by_role("alert")).to_contain_text("valid integer")
    step.fill("1")
    step.press("Enter")
    expect(page.get_by_text("4 of 17 episodes")).to_be_visible()


def test_while_the_index_is_built_requests_do_not_overlap(small, open_page):
    asked = []

    def still_reads(route):
        asked.append(route.request.url)
        answer = route.fetch()
        route.fulfill(json=answer.json() | {"searched": [1, 17]})

    page = open_page(f"{small.url}/episodes")
    page.route("**/api/episodes?*", still_reads)
    page.get_by_label("Text", exact=True).fill("card")
    page.get_by_label("Text", exact=True).press("Enter")
    for name in ("reward", "step", "seed", "turns", "tokens"):
        page.get_by_role("button", name=name).click()
        expect(page.locator("th[aria-sort='descending']")).to_contain_text(name)
    asked.clear()
    page.wait_for_timeout(2000)
    page.unroute_all()
    assert 2 <= len(asked) <= 4
