"""The pages of a run in a real browser, other than its list of episodes and their pages."""

import json
import re
from contextlib import suppress
from statistics import fmean

import cv2
import numpy as np
import pytest
import scipy.stats
from playwright.sync_api import expect

from agentrl import replay
from agentrl.cli import run as agentrl
from agentrl.errors import ConfigError, DeviceOffline
from agentrl.files import lock_folder
from agentrl.replay.human_preferences import choices
from agentrl.replay.recorder import Recorder
from agentrl.replay.run_reader import Run
from agentrl.runs.job_failure import recorded_failure
from agentrl.runs.run_paths import episode_file
from agentrl.types import Outcome, ScoredEpisode
from agentrl.viewer.browser_play import BrowserPlay
from agentrl.viewer.viewer_server import ViewerServer
from tests.replay.episodes import episode, turn
from tests.viewer import runs
from tests.viewer.conftest import wait_for

EPISODE = "train-00001-g000-m00"


def test_the_overview_summarizes_the_run(small, open_page):
    page = open_page(small.url)
    expect(page.get_by_role("heading", name="small")).to_be_visible()
    expect(page.get_by_text("17", exact=True).first).to_be_visible()
    for absent in ("Phones", "Logs"):
        expect(page.get_by_role("link", name=absent, exact=True)).to_have_count(0)
    expect(page.locator(".chart canvas")).to_have_count(6)
    expect(page.locator(".charts > p")).to_have_text("No void episodes so far.")
    expect(page.get_by_role("link", name="DeviceOffline")).to_be_visible()
    page.get_by_role("link", name="after sampled").click()
    expect(page.get_by_text("4 of 17 episodes")).to_be_visible()


def test_a_failed_job_and_void_episodes_say_why(serve, open_page, tmp_path):
    run = runs.run(tmp_path / "run")
    error = DeviceOffline("adb:1 is offline")
    with suppress(DeviceOffline), lock_folder(run), recorded_failure(run):
        raise error
    served = serve(run)
    page = open_page(served.url)
    expect(page.get_by_role("alert")).to_contain_text("DeviceOffline adb:1 is offline")
    expect(page.get_by_role("alert")).to_contain_text("Resume it with agentrl train …/run --resume")
    expect(page.get_by_text("failed after 2 steps")).to_be_visible()
    page.get_by_role("link", name="job.log").click()
    expect(page.get_by_text("DeviceOffline: adb:1 is offline")).to_be_visible()
    page.goto(f"{served.url}/episodes?outcome=device_error")
    expect(page.get_by_text("net-3fa2c1 is gone")).to_be_visible()


def test_the_overview_lists_the_worst_cases_of_an_audit(serve, open_page, tmp_path):
    served = serve(runs.run(tmp_path / "run"))
    assert agentrl(["audit", str(served.run), "--judge", "reward/format"]) == 0
    evil = '{"candidate": "<b>x</b>", "cases": [{"id": "<i>", "kind": "<u>", "frame": "../x"}]}'
    (served.run / "audits" / "evil.json").write_text(evil)
    (served.run / "audits" / "odd.json").write_text('{"cases": 3}')
    page = open_page(served.url, lost=True)
    card = page.locator("section", has=page.get_by_role("heading", name="Audit reward-format"))
    expect(card).to_contain_text("100% of 8")  # it accepts nothing
    expect(card.get_by_text("false reject", exact=True)).to_have_count(8)
    picture = card.locator("img").first
    picture.scroll_into_view_if_needed()
    expect(picture).to_have_js_property("naturalWidth", 96)
    other = page.locator("section", has=page.get_by_role("heading", name="Audit evil"))
    expect(other).to_contain_text("<b>x</b>")
    expect(other).to_contain_text("<u>")
    assert page.get_by_role("heading", name="Audit odd").count() == 0
    card.get_by_role("link").first.click()
    expect(page.get_by_text("I look at card").first).to_be_visible()


def test_the_overview_shows_a_column_per_ring(serve, open_page, tmp_path):
    run = runs.run(tmp_path / "run")
    levels = {"success": 0.25, "rings": {"levels": {"success": 0.125}, "<b>": {"success": 1}}}
    (run / "summary.json").write_text(json.dumps({"<i>": levels, "after": {"sampled": 3}}))
    page = open_page(serve(run).url)
    card = page.locator("section", has=page.get_by_role("heading", name="Unseen seeds, levels"))
    columns = ["success", "unseen seeds", "unseen levels", "unseen rules"]
    expect(card.locator("th")).to_have_text(columns)
    expect(card.locator("td")).to_have_text(["<i>", "0.25", "0.125", "\N{EN DASH}"])


def test_times_are_rounded_before_they_are_split_into_minutes(small, open_page):
    page = open_page(small.url)
    shown = page.evaluate(
        "import('/static/lib/dom.js')"
        ".then((dom) => [0.2, 4.25, 16.8, 59.6, 119.6, 3725].map(dom.seconds))"
    )
    assert shown == ["200 ms", "4.25 s", "17 s", "1:00", "2:00", "1:02:05"]


def test_a_stopped_server_is_reported(serve, open_page, tmp_path):
    served = serve(runs.run(tmp_path / "run"))
    page = open_page(served.url, lost=True)
    served.close()
    for asks in ("get('/api/run')", "post('/api/play/answer')"):
        message = page.evaluate(
            f"import('/static/lib/dom.js').then((dom) => dom.{asks}).catch((e) => e.message)"
        )
        assert message == "The server is not responding. Is agentrl still running?"


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("range=5-2", "No range 5-2: showing all turns."),
        ("range=1-99", "No range 1-99: showing all turns."),
        ("tab=zzz", "No tab zzz: showing Text."),
        ("color=red", "No color red: showing log-probability."),
        ("turn=99&tab=x", "No turn 99: showing turn 3. No tab x: showing Text."),
    ],
)
def test_invalid_parts_of_an_address_are_reported(small, open_page, asked, words):
    page = open_page(f"{small.url}/episodes/{EPISODE}?{asked}")
    expect(page.locator(".notice")).to_have_text(words)
    expect(page.locator(".cell.outside")).to_have_count(0)


def test_an_unknown_address_links_to_the_overview(small, open_page):
    page = open_page(f"{small.url}/nope", lost=True)
    expect(page.get_by_role("heading", name="Page not found")).to_be_visible()
    page.get_by_role("link", name="Go to the overview").click()
    expect(page.get_by_role("heading", name="small")).to_be_visible()
    page.goto(f"{small.url}/episodes/%zz")
    expect(page.get_by_role("alert")).to_contain_text("small has no episode '%zz'")


def test_phones_without_failures_are_collapsed(serve, open_page, tmp_path):
    with Recorder(tmp_path / "run") as recorder:
        for member in range(32):
            runs.played(recorder, "train", member, step=1, device=f"net-{member:06d}")
    page = open_page(serve(tmp_path / "run").url)
    line, row = page.get_by_text("32 phones without failures"), page.get_by_text("net-000007")
    expect(line).to_be_visible()
    expect(row).to_be_hidden()
    line.click()
    expect(row).to_be_visible()
    with Recorder(tmp_path / "run", writer="more") as recorder:
        runs.played(
            recorder, "train", 7, step=2, device="net-000007", outcome=Outcome.DEVICE_ERROR,
            error="DeviceOffline: net-000007 is gone",
        )  # fmt: skip
    expect(page.get_by_text("31 other phones without failures")).to_be_visible()
    expect(page.get_by_text("net-000008")).to_be_visible()  # it is still open
    phones = page.locator(".card", has=page.get_by_role("heading", name="Phones", exact=True))
    expect(phones.locator("tbody tr").first).to_contain_text("net-000007")
    page.reload()
    expect(row).to_be_visible()
    expect(page.get_by_text("net-000008")).to_be_hidden()


def test_the_first_void_episode_replaces_the_note_by_a_curve(serve, open_page, tmp_path):
    run = runs.run(tmp_path / "run")
    page = open_page(serve(run).url)
    figure, note = page.locator(".chart", has_text="Void episodes"), page.locator(".charts > p")
    expect(note).to_have_text("No void episodes so far.")
    with (run / "metrics.jsonl").open("a") as metrics:
        metrics.write('{"stage": "reinforcement", "step": 3, "rollout/void": 2.0}\n')
    expect(figure.locator("canvas")).to_be_visible()
    expect(note).to_have_count(0)


def test_all_evaluations_of_a_step_are_drawn(serve, open_page, tmp_path):
    run = runs.run(tmp_path / "run")
    runs.evaluate(run)
    figure = open_page(serve(run).url).locator(".chart", has_text="Reward")
    expect(figure.locator(".u-series")).to_have_count(5)
    for name, last in (
        ("during training", "0.9"), ("before and after, sampled", "0.6"),
        ("before and after, greedy", "0.8"),
    ):  # fmt: skip
        expect(figure.locator(".u-series", has_text=f"held out, {name}")).to_contain_text(last)


def test_a_scrollable_table_has_a_shadow_at_that_edge(small, open_page):
    page = open_page(f"{small.url}/episodes", 390, 844)
    table = page.locator(".scroll")
    expect(table.locator("tbody tr")).to_have_count(17)

    def shades() -> tuple[float, float]:
        """Darkness of the left and the right edge, in a row without text."""
        box = table.bounding_box()
        clip = {"x": box["x"], "y": box["y"] + 1, "width": box["width"], "height": 3}
        seen = cv2.imdecode(np.frombuffer(page.screenshot(clip=clip), np.uint8), 1)
        return 255 - seen[:, :3].mean(), 255 - seen[:, -3:].mean()

    left, right = shades()
    assert left < 2 < 15 < right
    table.evaluate("place => place.scrollLeft = place.scrollWidth")
    wait_for(lambda: shades()[0] > 15 and shades()[1] < 2)


def test_what_cannot_be_shown_is_explained(serve, open_page, tmp_path):
    run = runs.run(tmp_path / "run")
    episode_file(run, EPISODE).write_bytes(b"broken")
    served = serve(run)
    page = open_page(f"{served.url}/episodes/{EPISODE}", lost=True)
    error = page.locator(".state.error")
    expect(error).to_contain_text("This episode cannot be shown")
    error.get_by_role("link", name="All episodes").click()
    expect(page.get_by_text("17 of 17 episodes")).to_be_visible()
    page.goto(f"{served.url}/episodes?view=gallery&step=1")
    expect(page.locator(".text-thumb")).to_have_text("cannot be read")
    run.rename(tmp_path / "moved")
    expect(error).to_contain_text("The folder of this run no longer exists")  # without a reload
    (tmp_path / "moved").rename(run)
    expect(page.locator(".text-thumb")).to_have_text("cannot be read")
    served.close()
    expect(
        page.get_by_text("The server is not responding. Start agentrl view again")
    ).to_be_visible()


def test_a_group_shows_its_members_side_by_side(small, open_page):
    page = open_page(f"{small.url}/groups/train-00001-g000")
    expect(page.locator(".siblings tbody tr")).to_have_count(4)
    expect(page.locator(".siblings .met").first).to_be_visible()
    page.locator(".siblings tbody tr").nth(1).locator("a.cell").nth(2).click()
    expect(page.locator(".where")).to_have_text("before turn 3 of 3")
    expect(page.get_by_role("heading", name="train-00001-g000-m01")).to_be_visible()


def test_evaluations_of_two_runs_are_compared(tmp_path, open_page):
    one, two = runs.run(tmp_path / "one"), runs.run(tmp_path / "two")
    serving = ViewerServer(Run(one), other=Run(two))
    try:
        page = open_page(f"{serving.url}/compare?a=before-sampled@0&b=with:after-sampled@2")
        expect(page.get_by_text("seeds in common")).to_be_visible()
        expect(page.locator(".filters")).to_contain_text("two: after sampled, step 2 (4)")
        expect(page.locator("tbody tr")).to_have_count(4)
        expect(page.locator("tbody a")).to_have_count(4)  # the other run's have no page here
        expect(page.get_by_text("Episodes of two have no page here")).to_contain_text(
            "agentrl view …/two"
        )
    finally:
        serving.close()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ("a=nope@0&b=zz@1", ["small has no evaluation nope@0", "small has no evaluation zz@1"]),
        ("a=with:expert@0&b=after-sampled@2", ["expert@0 belongs to a second run"]),
    ],
)
def test_an_unknown_evaluation_is_reported_and_nothing_is_compared(small, open_page, asked, words):
    address = f"{small.url}/compare?{asked}"
    page = open_page(address)
    for message in words:
        expect(page.locator(".notice", has_text=message)).to_be_visible()
    expect(page.locator("table")).to_have_count(0)
    assert page.url == address
    page.locator("select[name=a]").select_option(label="before sampled, step 0 (4)")
    if len(words) == 2:
        assert page.url == address
        page.locator("select[name=b]").select_option(label="after sampled, step 2 (4)")
    expect(page.locator("tbody tr")).to_have_count(4)
    expect(page.locator(".notice")).to_have_count(0)
    assert page.url.endswith("?a=before-sampled%400&b=after-sampled%402")


def test_an_unknown_seed_filter_is_reported(small, open_page):
    address = f"{small.url}/compare?a=before-sampled@0&b=after-sampled@2&only=zzz"
    page = open_page(address)
    expect(page.locator(".notice")).to_contain_text("no seed filter zzz")
    expect(page.locator("tbody tr")).to_have_count(4)
    assert page.url == address


def test_an_evaluation_shows_its_policy_and_its_results(tmp_path, open_page):
    run = runs.run(tmp_path / "run")
    (run / "metrics.jsonl").unlink()
    asked = {"target": "runs/x", "policy": "model", "checkpoint": 20, "greedy": True}
    (run / "summary.json").write_text(json.dumps(asked))
    serving = ViewerServer(Run(run))
    try:
        with lock_folder(run):
            page = open_page(f"{serving.url}/")
            expect(page.locator("body")).to_contain_text(
                "the model after step 20, greedy, of runs/x"
            )
            expect(page.get_by_text("the results will appear here")).to_be_visible()
        found = {"reward": 8.5, "accuracy": 0.925, "episodes": 4, "void": 0, "seconds": 3.5}
        (run / "summary.json").write_text(json.dumps(asked | found))
        page.reload()
        expect(page.get_by_role("heading", name="Results")).to_be_visible()
        expect(page.locator("body")).to_contain_text("0.925")
        expect(page.locator("body")).to_contain_text("finished")
        expect(page.get_by_text("No curves yet")).to_have_count(0)
    finally:
        serving.close()


def test_a_job_on_a_data_set_shows_its_curves_and_settings(open_page, tmp_path):
    logged = [{"stage": "evaluation", "step": 0, "sampled/accuracy": 0.5, "sampled/loss": 0.7}]
    for step in (1, 2):
        trained = {"learner/loss": 0.7 / step, "learner/accuracy": 0.6, "learner/margin": 0.1}
        logged.append({"stage": "preference training", "step": step, **trained})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in logged))
    (tmp_path / "config.yaml").write_text("dpo: {train: {data: pairs.jsonl}}\n")
    with pytest.raises(ConfigError, match="no recorded episodes"):
        replay.open(tmp_path)
    (tmp_path / "command").write_text("agentrl dpo\n")
    serving = ViewerServer(replay.open(tmp_path, may_be_unplayed=True))
    try:
        page = open_page(serving.url)
        expect(page.locator(".chart figcaption")).to_have_text(
            [re.compile(title) for title in ("Loss", "Answer accuracy", "Margin")]
        )
        expect(page.locator("body")).to_contain_text("agentrl dpo")
        expect(page.get_by_text("No episodes yet")).to_have_count(0)
        page.get_by_text("Configuration").click()
        expect(page.locator("pre")).to_contain_text("pairs.jsonl")
    finally:
        serving.close()


def test_two_evaluations_are_compared_by_seed(small, open_page):
    page = open_page(f"{small.url}/compare?a=before-sampled@0&b=after-sampled@2", 390)
    expect(page.locator("tbody tr")).to_have_count(4)
    expect(page.locator("thead th").nth(1)).to_have_text("B minus A")
    gains = [float(text) for text in page.locator("tbody td:nth-child(2)").all_inner_texts()]
    low, high = scipy.stats.ttest_1samp(gains, 0).confidence_interval()
    fact = re.escape(f"{fmean(gains):+.3g} ({low:+.3g} to {high:+.3g})")
    expect(page.get_by_text(re.compile(fact))).to_be_visible()
    expect(page.get_by_text("only B succeeds").last).to_be_visible()
    page.get_by_label("Seeds").select_option("b_only")
    expect(page.locator("tbody tr")).to_have_count(2)
    page.locator("tbody tr a").last.click()
    expect(page.locator("h1")).to_contain_text("after-sampled-00002")


def test_episodes_appear_as_they_end(serve, open_page, tmp_path):
    served = serve(runs.run(tmp_path / "growing"))
    page = open_page(f"{served.url}/episodes")
    expect(page.get_by_text("17 of 17 episodes")).to_be_visible()
    with Recorder(served.run, writer="later") as recorder:
        runs.played(recorder, "train", 0, step=3)
    expect(page.get_by_text("18 of 18 episodes")).to_be_visible()
    expect(page.locator("#live")).to_be_visible()


@pytest.mark.parametrize("path", ["", "episodes", f"episodes/{EPISODE}", "groups/train-00001-g000"])
def test_pages_fit_a_phone_in_both_color_schemes(small, open_page, path):
    page = open_page(f"{small.url}/{path}", 390, 844)
    expect(page.locator("main h1").first).to_be_visible()
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, re.findall(r"\d+", paper))) < 200) == (scheme == "dark")


def test_no_tab_is_clipped_on_a_phone_while_a_job_plays(open_page, tmp_path):
    run = runs.run(tmp_path / "run")
    serving = ViewerServer(Run(run), stage=BrowserPlay(human=True))
    try:
        with lock_folder(run):
            page = open_page(serving.url, 390, 844)
            expect(page.locator("#live")).to_be_visible()
            expect(page.get_by_role("link", name="Play")).to_be_in_viewport(ratio=1)
    finally:
        serving.close()


@pytest.mark.slow
def test_errors_and_causes_of_any_length_do_not_break_the_layout(serve, open_page, tmp_path):
    run = runs.run(tmp_path / "run")
    with Recorder(run, writer="more") as recorder:
        runs.played(
            recorder, "train", 5, step=2, outcome=Outcome.DEVICE_ERROR, error="x" * 100_000
        )  # fmt: skip
    served = serve(run)
    report = tmp_path / "report.html"
    assert agentrl(["export", str(run), str(report)]) == 0
    page = open_page(f"{served.url}/episodes/train-00002-g000-m05")
    expect(page.locator(".strip")).to_be_visible()
    expect(page.get_by_role("alert")).to_contain_text("xxx")
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.get_by_role("alert").bounding_box()["height"] < 300
    page.goto(served.url)
    cause = page.locator(".bars a", has_text="xxx")
    expect(cause).to_be_visible()
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        assert cause.bounding_box()["height"] < 200
        assert page.evaluate("document.documentElement.scrollWidth") == width
    page = open_page(report.as_uri())
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.locator(".causes").bounding_box()["height"] < 400


HOSTILE = "</pre><script>document.title='taken'</script><img src=x onerror=alert(1)>\u202egnp"


def test_hostile_text_is_escaped(serve, open_page, tmp_path):
    hostile = turn(
        reply=HOSTILE, shown=HOSTILE, parse_error=HOSTILE, state_key=HOSTILE,
        info={HOSTILE: HOSTILE, "metrics": {HOSTILE: 1.0}}, action=HOSTILE,
        timings={HOSTILE: 1.0, "generate": 0.1}, frames=("../../etc/passwd",),
    )  # fmt: skip
    played = episode(
        "bad", turns=(hostile, turn(reply="x" * 300_000, frames=())), group=HOSTILE,
        error=HOSTILE, device=HOSTILE, env_id=HOSTILE, instructions=HOSTILE,
    )  # fmt: skip
    with Recorder(tmp_path / "run") as recorder:
        scored = ScoredEpisode(episode=played, components={HOSTILE: (1.0, 0.0)}, rewards=(1.0, 0.0))
        recorder.episode(scored, split="train", step=1)
    served = serve(tmp_path / "run")
    page = open_page(served.url, lost=True)
    for path in ("", "episodes", "episodes/bad"):
        page.goto(f"{served.url}/{path}")
        expect(page.locator("main h1").first).to_be_visible()
        assert "taken" not in page.title()
        assert page.locator("main script, main img[src=x]").count() == 0
    for tab in "12345":
        page.keyboard.press(tab)
        expect(page.get_by_role("tabpanel")).not_to_be_empty()
        assert page.locator("main script, main img[src=x]").count() == 0
    page.keyboard.press("1")
    expect(page.locator(".said.model pre").first).to_contain_text(r"<script>document")
    assert "\u202e" not in page.locator("main").inner_text()
    page.keyboard.press("ArrowRight")
    expect(page.locator("[aria-current] .said.model pre")).to_contain_text(
        "(100,000 more characters)"
    )


def test_a_person_chooses_the_better_of_two_episodes(serve, open_page, tmp_path):
    served = serve(runs.run(tmp_path / "run"))
    page = open_page(f"{served.url}/preferences#token={served.guard.token}")
    expect(page.get_by_text("0 compared, 12 left")).to_be_visible()
    expect(page.locator(".pair img").first).to_be_visible()
    expect(page.locator(".pair .picture .tap")).to_have_count(6)  # not after the last action
    page.get_by_role("button", name="B is better").click()
    expect(page.get_by_text("1 compared, 11 left")).to_be_visible()
    page.get_by_role("button", name="Skip").click()
    expect(page.get_by_text("2 compared, 10 left")).to_be_visible()
    ((better, worse),) = choices(Run(served.run))
    assert better != worse
    assert better.rpartition("-")[0] == worse.rpartition("-")[0]


def test_a_run_without_episodes_says_so(serve, open_page, tmp_path):
    (tmp_path / "run" / "episodes").mkdir(parents=True)
    served = serve(tmp_path / "run")
    page = open_page(served.url)
    expect(page.get_by_text("No episodes yet")).to_be_visible()
    for title in ("No curves yet", "Episodes by label"):
        expect(page.get_by_text(title)).to_have_count(0)
    page.goto(f"{served.url}/compare")
    expect(page.get_by_text("Nothing to compare yet")).to_be_visible()
